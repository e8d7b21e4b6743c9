"""A closed loop in which only certified inputs are applied, as long as there are any.

At every step the measured state is compared with the box that was proved for it. If the two do not meet, the
measurement or an assumption is wrong, and nothing is certified any more until the user says so. Else the controller's
plan is certified. If it is not certifiable, the robust problem repairs it, or else what remains of the last certified
plan, prolonged. If that fails, too, the remainder is applied as it is, and when it is used up, a safe input of the
user's. Nothing that a controller, a solver or a sensor does is an exception here: it is a reason in the log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Question, Verdict
from ..certificates.margins import input_violation
from ..data.arrays import FloatArray, as_floats, as_points, as_vector
from ..data.limits import GivenLimits, Limits, PlacedLimits
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ..prediction.predictor import MultiStepPredictor
from .planners import Planner, planner_of
from .robust import RobustOCP

_REFUTING = (ContradictoryDataError, FalsifiedNormBoundError)


class Decision(Enum):
    """What was applied; the value is what that means."""

    CERTIFIED = "the controller's plan, certified"
    REPAIRED = "a plan that the robust problem made of it, certified"
    REMAINDER = "the next input of the last certified plan"
    SAFE_INPUT = "the user's safe input: no certified plan is left"
    REFUTED = (
        "the user's safe input: what was proved has been refuted, and nothing is certified until it is trusted again"
    )

    @property
    def is_certified(self) -> bool:
        """Whether what was applied belongs to a certified plan."""
        return self in (Decision.CERTIFIED, Decision.REPAIRED, Decision.REMAINDER)


@dataclass(frozen=True, eq=False)
class LoggedStep:
    """One step of the loop: what was known, what was applied, and why; its arrays are read-only copies."""

    state: FloatArray
    """`(n_states,)`, as measured; NaN where what came cannot be read."""
    inputs: FloatArray
    """`(n_inputs,)`, as applied."""
    decision: Decision
    reason: str
    """Why nothing better was done; empty where the controller's plan was certified."""
    certificate: Certificate | None
    """Of the plan that the inputs belong to."""
    seconds: float

    def __post_init__(self) -> None:
        for name in ("state", "inputs"):
            object.__setattr__(self, name, _read_only(np.array(getattr(self, name))))

    @property
    def is_certified(self) -> bool:
        """Whether the state after this step is proved to be within the limits.

        The proof rests on the assumptions of the predictor and on the measurement that the plan began with: if that one
        was off by more than `initial_state_noise`, nothing is proved, and nobody can tell while it lies within the box
        that was proved for it.
        """
        return self.decision.is_certified


@dataclass(frozen=True, eq=False)
class _PlanUnderway:
    """A certified plan, and which of its steps was applied last."""

    certificate: Certificate
    step: int = 0

    @property
    def inputs(self) -> FloatArray:
        """Of that step."""
        inputs: FloatArray = self.certificate.question.inputs[self.step]
        return inputs

    @property
    def rest(self) -> FloatArray:
        """The inputs of the steps after it."""
        return self.certificate.question.inputs[self.step + 1 :]

    @property
    def box(self) -> tuple[FloatArray, FloatArray]:
        """What was proved for the state after that step, whatever is measured on the way."""
        return self.certificate.tube.lower[self.step], self.certificate.tube.upper[self.step]


@dataclass(eq=False)
class _Memory:
    """What a loop knows of the steps before."""

    plan: _PlanUnderway | None = None
    applied: FloatArray | None = None
    refutation: str | None = None


@dataclass(frozen=True, eq=False, init=False)
class CertifiedMPC:
    """A controller that applies what can be certified; it remembers its last certified plan and keeps a log.

    What `make_step` returns is to be applied for one sampling time, after which it is told the state again. It compares
    that state, wherever the true one may be around it, with the box that the plan underway was certified with. If they
    do not meet, the measurement or an assumption is refuted: the plan is dropped, the safe input is applied, and no
    step is certified until `trust_again`. A measurement that cannot be read contradicts nothing: the certificate was of
    the whole plan, so what remains of it still is certified.

    What is certified is true for the true plant as long as the assumptions of the predictor hold and measurements are
    off by at most `initial_state_noise`. Those that are off by more and yet meet the box cannot be told from good ones.

    Parameters
    ----------
    controller : a do-mpc `MPC`, a `CertaintyEquivalentOCP`, a `RobustOCP`, or any `Planner`
    predictor : what plans are certified with, over its own horizon if theirs is longer
    limits : Limits, or what limits the states alone
    safe_input : `(n_inputs,)` within the input limits, applied when nothing certified is left, at whatever rate
    repair : the robust problem that mends a plan; without one, none is mended
    initial_state_noise : float or (n_states,)
        How far the true state may be from the one that `make_step` is told; by default as far as the recorded initial
        states may be from theirs.
    """

    controller: Any
    predictor: MultiStepPredictor
    limits: PlacedLimits
    safe_input: FloatArray
    repair: RobustOCP | None
    initial_state_noise: FloatArray
    log: list[LoggedStep]
    _planner: Planner = field(repr=False)
    _memory: _Memory = field(repr=False)

    def __init__(
        self,
        controller: Any,
        predictor: MultiStepPredictor,
        limits: GivenLimits,
        safe_input: npt.ArrayLike,
        *,
        repair: RobustOCP | None = None,
        initial_state_noise: npt.ArrayLike | None = None,
    ) -> None:
        runs = predictor.runs
        runs.require_states("a certified loop")
        placed = Limits.of(limits).over(runs.state_names, runs.input_names)
        safe = as_vector(safe_input, "safe_input", runs.n_inputs)
        violation = input_violation(safe[None], placed, runs.input_names)
        if violation is not None:
            raise InputError(f"safe_input must keep the limits of the inputs, but {violation}")
        values = {
            "controller": controller,
            "predictor": predictor,
            "limits": placed,
            "safe_input": _read_only(safe),
            "repair": repair,
            "initial_state_noise": _read_only(predictor.start_noise(initial_state_noise).copy()),
            "log": [],
            "_planner": planner_of(controller),
            "_memory": _Memory(),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def refutation(self) -> str | None:
        """What refuted the measurements or the assumptions, if anything has; then no step is certified."""
        return self._memory.refutation

    def trust_again(self) -> None:
        """Certify again after a refutation, from the next measurement on, with which nothing is compared.

        Only the user can know that a sensor is mended, or that a measurement was a single fault. If it is an assumption
        that was wrong (a noise bound, a norm bound, a plant that has changed), it still is: build another predictor.
        """
        self._memory.refutation = None

    def make_step(self, x0: npt.ArrayLike) -> FloatArray:
        """The input to apply at a measured state, `(n_inputs,)`.

        An interrupt passes through and leaves no certified plan behind: nobody knows what was applied instead.
        """
        began, memory, reasons = time.perf_counter(), self._memory, list[str]()
        before, memory.plan = memory.plan, None
        state = self._measured(x0, reasons)
        decision, plan = self._decide(state, before, reasons)
        applied = self.safe_input if plan is None else plan.inputs
        if plan is None and not self._keeps_rates(applied):
            reasons.append("the change to the safe input exceeds its rate limits")
        certificate = None if plan is None else plan.certificate
        seconds = time.perf_counter() - began
        self.log.append(LoggedStep(state, applied, decision, "; ".join(reasons), certificate, seconds))
        memory.plan, memory.applied = plan, applied
        return applied.copy()

    def _measured(self, x0: npt.ArrayLike, reasons: list[str]) -> FloatArray:
        """A copy of what was measured, `(n_states,)`, NaN if it cannot be read; `reasons` are added to."""
        names = self.predictor.runs.state_names
        try:
            array = as_floats(x0, "x0")
            if array.size != len(names) or max(array.shape, default=1) != len(names):
                raise InputError(f"x0 must have shape ({len(names)},); got {array.shape}")
        except Exception as error:  # whatever a sensor may send
            reasons.append(f"the measurement is not a state ({error})")
            return _read_only(np.full(len(names), np.nan))
        state = array.ravel()
        missing = [f"{name} is {x}" for name, x in zip(names, state.tolist(), strict=True) if not math.isfinite(x)]
        if missing:
            reasons.append(f"the measurement is not a state ({', '.join(missing)})")
        return _read_only(state)

    def _decide(
        self, state: FloatArray, before: _PlanUnderway | None, reasons: list[str]
    ) -> tuple[Decision, _PlanUnderway | None]:
        """What to apply, and the certified plan that it belongs to; `reasons` are added to."""
        memory, found = self._memory, None
        if memory.refutation is None and before is not None:
            memory.refutation = self._contradiction(state, before)
        if memory.refutation is None and np.isfinite(state).all():
            found = self._new_plan(state, before, reasons)
        if memory.refutation is not None:
            reasons.append(memory.refutation)
            return Decision.REFUTED, None
        if found is not None:
            return found
        if before is not None and len(before.rest):
            return Decision.REMAINDER, _PlanUnderway(before.certificate, before.step + 1)
        reasons.append("no certified plan is left")
        return Decision.SAFE_INPUT, None

    def _contradiction(self, state: FloatArray, before: _PlanUnderway) -> str | None:
        """Where a measured state, wherever the true one may be around it, does not meet its box; compared exactly."""
        noise, (lower, upper) = self.initial_state_noise, before.box
        columns = (array.tolist() for array in (state, noise, lower, upper))
        outside = []
        for name, x, e, low, high in zip(self.predictor.runs.state_names, *columns, strict=True):
            if math.isfinite(x) and not (Fraction(x) + Fraction(e) >= low and Fraction(x) - Fraction(e) <= high):
                measured = f"{name} was measured as {x}" + (f" +- {e}" if e else "")
                outside.append(f"{measured}, but proved to be in [{low}, {high}]")
        if not outside:
            return None
        return f"refuted at step {len(self.log)}: {', '.join(outside)}; the measurement or an assumption is wrong"

    def _new_plan(
        self, state: FloatArray, before: _PlanUnderway | None, reasons: list[str]
    ) -> tuple[Decision, _PlanUnderway] | None:
        """A certified plan from here, if there is one; `reasons` are added to."""
        n_inputs, horizon = self.predictor.runs.n_inputs, self.predictor.horizon
        try:
            wanted = as_points(self._planner(state.copy()), "inputs", n_inputs)[:horizon]
            wanted = self.limits.input_box.clip(wanted)  # solvers leave bounds by rounding
            certificate = self._certify(state, wanted)
        except Exception as error:  # whatever a controller may do
            reasons.append(f"the controller has no plan ({error})")
            self._look_for_refutation(error, self.controller)
            wanted = np.tile(self.safe_input, (horizon, 1))
        else:
            if self._may_apply(certificate):
                return Decision.CERTIFIED, _PlanUnderway(certificate)
            reasons.append(self._objection(certificate))
        if self.repair is None or self.refutation is not None:
            return None
        for plan in (wanted, *_prolonged(before)):
            try:
                certificate = self._certify(state, self.repair.repair(state.copy(), plan).inputs)
            except Exception as error:
                reasons.append(f"the repair failed ({error})")
                self._look_for_refutation(error, self.repair)
                continue
            if self._may_apply(certificate):
                return Decision.REPAIRED, _PlanUnderway(certificate)
        reasons.append("the repair found no certified plan")
        return None

    def _may_apply(self, certificate: Certificate) -> bool:
        """Certified, and no larger a change from what was applied last than the rates allow."""
        return certificate.verdict is Verdict.CERTIFIED and self._keeps_rates(certificate.question.inputs[0])

    def _keeps_rates(self, inputs: FloatArray) -> bool:
        """Whether the change from the inputs that were applied last is within its limits, exactly."""
        if self._memory.applied is None:
            return True
        change = np.array([self._memory.applied, inputs])
        rates = replace(self.limits, inputs=None)
        return input_violation(change, rates, self.predictor.runs.input_names) is None

    def _objection(self, certificate: Certificate) -> str:
        if certificate.verdict is Verdict.CERTIFIED:
            return "the change from the input before exceeds its rate limits"
        return certificate.finding()

    def _certify(self, state: FloatArray, plan: npt.ArrayLike) -> Certificate:
        """The certificate of a copy of the plan, which nobody else can change."""
        question = Question(state, plan, self.limits, self.initial_state_noise)
        try:
            certificate = question.ask(self.predictor)
        except Exception as error:
            self._look_for_refutation(error, self)
            raise
        for array in (*vars(certificate.tube).values(), certificate.margins, certificate.hopes):
            _read_only(array)
        return certificate

    def _look_for_refutation(self, error: Exception, source: Any) -> None:
        """Data that contradict the assumptions, said by one who shares them, make every proof void."""
        if isinstance(error, _REFUTING) and getattr(source, "predictor", None) is self.predictor:
            self._memory.refutation = f"refuted at step {len(self.log)}: the assumptions are contradictory ({error})"


def _prolonged(plan: _PlanUnderway | None) -> Iterator[FloatArray]:
    """What is left of a certified plan, with its last input held: nearly certified, and so soon repaired."""
    if plan is not None and len(plan.rest):
        yield np.concatenate([plan.rest, np.repeat(plan.rest[-1:], plan.step + 1, axis=0)])


def _read_only(array: FloatArray) -> FloatArray:
    array.setflags(write=False)
    return array
