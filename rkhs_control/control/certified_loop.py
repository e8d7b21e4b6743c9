"""A closed loop in which only certified inputs are applied, as long as there are any.

At every step the measured state is compared with the box that was proved for it. If the two do not intersect, the
measurement or an assumption is wrong, and nothing more is certified until the user says so. Otherwise the controller's
plan is certified. If it is not certifiable, the robust problem repairs it, or else the remainder of the last certified
plan, extended. If that fails as well, the remainder is applied as it is, and when it is used up, the user's safe input.
Nothing that a controller, a solver or a sensor does raises an exception here: it becomes a reason in the log.

With an invariant region, a loop inside it never runs out of certified inputs: a plan is applied if its boxes keep the
limits up to a step whose box lies in the region, and where none is found, the region provides its own.

Each decision is a generator of questions, each answered by a certificate, so that the questions of many loops can be
answered together; see `lockstep`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Question, Verdict
from ..certificates.margins import input_violation
from ..certificates.region import Cell, InvariantRegion
from ..data.arrays import FloatArray, as_floats, as_points, as_vector, read_only
from ..data.limits import GivenLimits, Limits, PlacedLimits
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ..prediction.predictor import MultiStepPredictor
from .lockstep import Asked, Asking, outcomes
from .loop_log import Decision, LoggedStep, LoopMemory, PlanUnderway
from .planners import Planner, planner_of
from .robust import RobustOCP

_BLENDS = (0.25, 0.5, 0.75)
"""Shares of the region's own input that are tried when blending."""
_REFUTING = (ContradictoryDataError, FalsifiedNormBoundError)


_Found = tuple[Decision, PlanUnderway]
"""A plan that may be applied, and the name of the decision."""


@dataclass(frozen=True, eq=False, init=False)
class CertifiedMPC:
    """A controller that applies only what can be certified; it remembers its last certified plan and keeps a log.

    Apply the result of `make_step` for one sampling time, then call it again with the new state. It compares that
    state, within its measurement error, with the box that the current plan was certified with. If they do not
    intersect, the measurement or an assumption is refuted: the plan is dropped, the safe input is applied, and no step
    is certified until `trust_again`. An unreadable measurement contradicts nothing: the certificate was for the whole
    plan, so the remainder is still certified.

    Certificates hold for the true plant as long as the predictor's assumptions hold and measurements are off by at most
    `initial_state_noise`. Measurements that are off by more yet intersect the box cannot be told from good ones.

    Parameters
    ----------
    controller : a do-mpc `MPC`, a `CertaintyEquivalentOCP`, a `RobustOCP`, or any `Planner`
    predictor : certifies plans, over its own horizon if theirs is longer
    limits : Limits, or limits on the states alone
    safe_input : `(n_inputs,)` within the input limits, applied when nothing certified is left, whatever their rates
    repair : the robust problem that repairs plans; without one, none is repaired
    initial_state_noise : float or (n_states,)
        How far the true state may be from the one passed to `make_step`; by default as stated by the region, or else as
        for recorded initial states.
    region : an invariant region within the same limits
        Plans then need to be certified only until they reach it, and must reach it. From a state in it there is always
        a certified input, as long as the assumptions hold and measurements arrive.
    repair_seconds : time after which a repair tries no further plan
    """

    controller: Any
    predictor: MultiStepPredictor
    limits: PlacedLimits
    safe_input: FloatArray
    repair: RobustOCP | None
    initial_state_noise: FloatArray
    region: InvariantRegion | None
    repair_seconds: float
    log: list[LoggedStep]
    _planner: Planner = field(repr=False)
    _memory: LoopMemory = field(repr=False)

    def __init__(
        self,
        controller: Any,
        predictor: MultiStepPredictor,
        limits: GivenLimits,
        safe_input: npt.ArrayLike,
        *,
        repair: RobustOCP | None = None,
        initial_state_noise: npt.ArrayLike | None = None,
        region: InvariantRegion | None = None,
        repair_seconds: float = math.inf,
    ) -> None:
        runs = predictor.runs
        runs.require_states("a certified loop")
        placed = Limits.of(limits).over(runs.state_names, runs.input_names)
        if region is not None:
            if initial_state_noise is None:
                initial_state_noise = region.initial_state_noise
            region.require_serves(runs, placed, predictor.start_noise(initial_state_noise))
        safe = as_vector(safe_input, "safe_input", runs.n_inputs)
        violation = input_violation(safe[None], placed, runs.input_names)
        if violation is not None:
            raise InputError(f"safe_input must keep the limits of the inputs, but {violation}")
        values = {
            "controller": controller,
            "predictor": predictor,
            "limits": placed,
            "safe_input": read_only(safe),
            "repair": repair,
            "initial_state_noise": read_only(predictor.start_noise(initial_state_noise).copy()),
            "region": region,
            "repair_seconds": repair_seconds,
            "log": [],
            "_planner": planner_of(controller),
            "_memory": LoopMemory(),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def refutation(self) -> str | None:
        """What refuted the measurements or the assumptions, if anything did; then no step is certified."""
        return self._memory.refutation

    def trust_again(self) -> None:
        """Resume certification after a refutation, from the next measurement, which is not compared with any box.

        Only the user can know that a sensor has been repaired, or that a measurement was a single fault. If an
        assumption was wrong (a noise bound, a norm bound, a plant that has changed), it still is: build another
        predictor.
        """
        self._memory.refutation = None

    def forget(self) -> None:
        """Start again from another state: the current plan is dropped, the log and any refutation stay."""
        self._memory.plan = self._memory.applied = None

    def make_step(self, x0: npt.ArrayLike) -> FloatArray:
        """The input to apply at a measured state, `(n_inputs,)`.

        An interrupt passes through and leaves no certified plan behind, as what was applied instead is unknown.
        """
        (applied,) = outcomes([self.deciding(x0)])
        return applied

    def deciding(self, x0: npt.ArrayLike) -> Asking[FloatArray]:
        """`make_step` as a generator: the caller certifies the plans."""
        began, memory, reasons = time.perf_counter(), self._memory, list[str]()
        before, memory.plan = memory.plan, None
        state = self._measured(x0, reasons)
        if not self.log and self.region is not None and self.region.cell_at(state) is None:
            reasons.append("the loop starts outside the region: it is unknown whether the limits can be kept for ever")
        decision, plan = yield from self._decide(state, before, reasons)
        applied = self.safe_input if plan is None else plan.inputs
        if plan is None and not self._keeps_rates(applied):
            reasons.append("the change to the safe input exceeds its rate limits")
        certificate = None if plan is None else plan.certificate
        seconds = time.perf_counter() - began
        self.log.append(LoggedStep(state, applied, decision, "; ".join(reasons), certificate, seconds))
        memory.plan, memory.applied = plan, applied
        return applied.copy()

    def _measured(self, x0: npt.ArrayLike, reasons: list[str]) -> FloatArray:
        """A copy of the measurement, `(n_states,)`, NaN if it cannot be read; appends to `reasons`."""
        names = self.predictor.runs.state_names
        try:
            array = as_floats(x0, "x0")
            if array.size != len(names) or max(array.shape, default=1) != len(names):
                raise InputError(f"x0 must have shape ({len(names)},); got {array.shape}")
        except Exception as error:  # whatever a sensor may send
            reasons.append(f"the measurement is not a state ({error})")
            return read_only(np.full(len(names), np.nan))
        state = array.ravel()
        missing = [f"{name} is {x}" for name, x in zip(names, state.tolist(), strict=True) if not math.isfinite(x)]
        if missing:
            reasons.append(f"the measurement is not a state ({', '.join(missing)})")
        return read_only(state)

    def _decide(
        self, state: FloatArray, before: PlanUnderway | None, reasons: list[str]
    ) -> Asking[tuple[Decision, PlanUnderway | None]]:
        """What to apply, and the certified plan that it belongs to; appends to `reasons`."""
        memory, found = self._memory, None
        if memory.refutation is None and before is not None:
            memory.refutation = self._contradiction(state, before)
        if memory.refutation is None and np.isfinite(state).all():
            found = yield from self._new_plan(state, before, reasons)
        if memory.refutation is not None:
            reasons.append(memory.refutation)
            return Decision.REFUTED, None
        if found is not None:
            return found
        if before is not None and len(before.rest):
            return Decision.REMAINDER, PlanUnderway(before.certificate, before.step + 1)
        if self.region is not None:
            cell = self._own_cell(self.region, state, before, reasons)
            if cell is not None:
                return Decision.REGION, PlanUnderway(self._certificate_of(self.region, cell))
        reasons.append("no certified plan is left")
        return Decision.SAFE_INPUT, None

    def _own_cell(
        self, region: InvariantRegion, state: FloatArray, before: PlanUnderway | None, reasons: list[str]
    ) -> Cell | None:
        """The cell of the region whose plan serves the state or, if it was not measured, all possible states."""
        if np.isfinite(state).all():
            at = region.cell_at(state)
            if at is None:
                reasons.append(f"the state {state.tolist()} is outside the region")
            return None if at is None else region.cells[at]
        if before is None:
            return None
        lower, upper = before.box
        serving = (cell for cell in region.cells if cell.box.contains([lower, upper]).all())
        return next(serving, None)

    def _certificate_of(self, region: InvariantRegion, cell: Cell) -> Certificate:
        """The certificate of a cell's plan, for all states in it, by the predictor that proved it."""
        question = Question(cell.x0, cell.inputs, self.limits, cell.reach)
        return question.answered(region.predictor, self.limits, cell.tube)

    def _contradiction(self, state: FloatArray, before: PlanUnderway) -> str | None:
        """Where a measured state, within its error, does not intersect its box; compared exactly.

        Where measured states are the arguments, no error is stated for the next one but the noise bound of recordings.
        """
        noise, (lower, upper) = self.initial_state_noise, before.box
        if self.predictor.runs.has_residual_bound:
            noise = np.maximum(noise, self.predictor.runs.noise_bound[before.step])
        columns = (array.tolist() for array in (state, noise, lower, upper))
        outside = []
        for name, x, e, low, high in zip(self.predictor.runs.state_names, *columns, strict=True):
            if math.isfinite(x) and not (Fraction(x) + Fraction(e) >= low and Fraction(x) - Fraction(e) <= high):
                measured = f"{name} was measured as {x}" + (f" +- {e}" if e else "")
                outside.append(f"{measured}, but proved to be in [{low}, {high}]")
        if not outside:
            return None
        return f"refuted at step {len(self.log)}: {', '.join(outside)}; the measurement or an assumption is wrong"

    def _new_plan(self, state: FloatArray, before: PlanUnderway | None, reasons: list[str]) -> Asking[_Found | None]:
        """A certified plan from here, if there is one; appends to `reasons`."""
        n_inputs, horizon = self.predictor.runs.n_inputs, self.predictor.horizon
        try:
            wanted = as_points(self._planner(state.copy()), "inputs", n_inputs)[:horizon]
            wanted = self.limits.input_box.clip(wanted)  # solvers violate bounds by rounding
            certificate = yield from self._certify_shortest(state, wanted)
        except Exception as error:  # whatever a controller may do
            reasons.append(f"the controller has no plan ({error})")
            self._look_for_refutation(error, self.controller)
            wanted = np.tile(self.safe_input, (horizon, 1))
        else:
            if self._may_apply(certificate):
                return Decision.CERTIFIED, PlanUnderway(certificate)
            reasons.append(self._objection(certificate))
        if self.refutation is not None:
            return None
        repaired = yield from self._repaired(state, wanted, before, reasons)
        return repaired or (yield from self._blended(state, wanted, reasons))

    def _blended(self, state: FloatArray, wanted: FloatArray, reasons: list[str]) -> Asking[_Found | None]:
        """The input closest to the wanted one that leads into the region, on the line to the region's own input."""
        at = None if self.region is None else self.region.cell_at(state)
        if self.region is None or at is None:
            return None
        for share in _BLENDS:
            first = (1.0 - share) * wanted[:1] + share * self.region.cells[at].inputs[:1]
            try:
                certificate = yield from self._certify(state, self.limits.input_box.clip(first))
            except Exception as error:
                reasons.append(f"inputs between that and the region's own input were not certified ({error})")
                return None
            if self._may_apply(certificate):
                return Decision.BLENDED, PlanUnderway(certificate)
        return None

    def _repaired(
        self, state: FloatArray, wanted: FloatArray, before: PlanUnderway | None, reasons: list[str]
    ) -> Asking[_Found | None]:
        """A plan that the robust problem makes from the wanted one, or from the remainder of the last one."""
        if self.repair is None:
            return None
        deadline = time.monotonic() + self.repair_seconds
        for plan in self._to_repair(wanted, before):
            seconds = deadline - time.monotonic()
            if seconds <= 0.0:
                break
            patience = {} if math.isinf(seconds) else {"seconds": seconds}
            try:
                repaired = self.repair.repair(state.copy(), plan, **patience)
                certificate = yield from self._certify_shortest(state, repaired.inputs)
            except Exception as error:
                reasons.append(f"the repair failed ({error})")
                self._look_for_refutation(error, self.repair)
                continue
            if self._may_apply(certificate):
                return Decision.REPAIRED, PlanUnderway(certificate)
        reasons.append("the repair found no certified plan")
        return None

    def _to_repair(self, wanted: FloatArray, before: PlanUnderway | None) -> Iterator[FloatArray]:
        """The wanted plan, and the remainder of a certified plan, its last input held, which is nearly certified.

        With a region, plans may have ended early, and are held up to the horizon.
        """
        yield wanted if self.region is None else _held(wanted, self.predictor.horizon)
        if before is not None and len(before.rest):
            n_steps = len(before.rest) + before.step + 1
            yield _held(before.rest, n_steps if self.region is None else self.predictor.horizon)

    def _may_apply(self, certificate: Certificate) -> bool:
        """Certified, leading into the region if there is one, and within the input rate limits."""
        return (
            certificate.verdict is Verdict.CERTIFIED
            and self._leads_home(certificate)
            and self._keeps_rates(certificate.question.inputs[0])
        )

    def _leads_home(self, certificate: Certificate) -> bool:
        """Whether a plan ends in the region, if there is one."""
        tube = certificate.tube
        return self.region is None or self.region.covers(tube.lower[-1], tube.upper[-1])

    def _keeps_rates(self, inputs: FloatArray) -> bool:
        """Whether the change from the last applied inputs is within its limits, exactly."""
        if self._memory.applied is None:
            return True
        change = np.array([self._memory.applied, inputs])
        rates = replace(self.limits, inputs=None)
        return input_violation(change, rates, self.predictor.runs.input_names) is None

    def _objection(self, certificate: Certificate) -> str:
        if certificate.verdict is not Verdict.CERTIFIED:
            return certificate.finding()
        if not self._leads_home(certificate):
            return "the plan keeps the limits, but none of its boxes lies in the region"
        return "the change from the previous input exceeds its rate limits"

    def _certify_shortest(self, state: FloatArray, plan: FloatArray) -> Asking[Certificate]:
        """The certificate of a plan or, with a region, of its start up to the first step that ends in the region."""
        if self.region is None:
            return (yield from self._certify(state, plan))
        first = yield from self._certify(state, plan[:1])
        if len(plan) == 1 or first.verdict is not Verdict.CERTIFIED or self._leads_home(first):
            return first
        whole = yield from self._certify(state, plan)
        kept = np.logical_and.accumulate((whole.margins >= 0.0).all(axis=1))
        home = self.region.first_covered(whole.tube)
        if home is None or not kept[home]:
            return whole
        return (yield from self._certify(state, plan[: home + 1]))

    def _certify(self, state: FloatArray, plan: npt.ArrayLike) -> Asking[Certificate]:
        """The certificate of a private copy of the plan."""
        question = Question(state, plan, self.limits, self.initial_state_noise)
        try:
            certificate = yield Asked(self.predictor, self.limits, question)
        except Exception as error:
            self._look_for_refutation(error, self)
            raise
        for array in (*vars(certificate.tube).values(), certificate.margins, certificate.hopes):
            read_only(array)
        return certificate

    def _look_for_refutation(self, error: Exception, source: Any) -> None:
        """An error saying that the data contradict the shared assumptions makes every proof void."""
        if isinstance(error, _REFUTING) and getattr(source, "predictor", None) is self.predictor:
            self._memory.refutation = f"refuted at step {len(self.log)}: the assumptions are contradictory ({error})"


def _held(plan: FloatArray, n_steps: int) -> FloatArray:
    """A plan of this many steps; a shorter one is extended by holding its last input."""
    return np.concatenate([plan, np.repeat(plan[-1:], max(0, n_steps - len(plan)), axis=0)])
