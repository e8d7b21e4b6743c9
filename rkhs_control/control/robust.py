"""The robust optimal control problem: inputs for which every box of the tube lies within the limits.

The optimal bounds enter with their exact gradients (by the envelope theorem, those of the witness held fixed). Around a
plan they are replaced by their tangents, IPOPT minimises the cost of the nominal prediction in a region where these can
be trusted, and the bounds at the solution are computed anew. What the constraints lack is penalised, so that the search
may start from a plan that cannot be certified. Boxes are narrow near recorded inputs, so there are many local optima;
where one search ends without a certificate, others begin there. What is returned is judged by the true bounds, all of
them, and not by their tangents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Question, Verdict
from ..data.arrays import FloatArray, as_floats, as_points, as_vector
from ..data.sets import Box, Polytope
from ..engine.functionals import Points
from ..engine.witness import Witness
from ..envelopes.closed_form import ClosedFormEnvelope
from ..envelopes.optimal import OptimalEnvelope
from ..errors import InputError
from ..parallel import Progress
from ..prediction.predictor import MultiStepPredictor
from .certainty_equivalent import CertaintyEquivalentOCP, Plan, solve_from

_PLANS_A_TASK = 4
_PENALTY, _HIGH_PENALTY = 1e3, 1e5  # of what a constraint lacks, against the cost, at first and when beginning again
_BACKOFF, _BACKOFF_BY_RADIUS = 1e-4, 0.1  # shares of the boxes that limits are tightened by: tangents are not exact
_OVERSHOOT = 1e-2  # likewise: at most so much more where a margin is negative, and no more than it is
_SMOOTHING = 1e-7  # of roots and absolute values in the closed form, for its derivatives
_STILL = 1e-4  # a plan that may move by less, as a share of the range of the inputs, has arrived
_FIRST_RADIUS = 0.2  # of the region of trust, likewise
_NEAR = 2.0  # widths of a box: limits that are further away are not watched on the way
_POOR, _GOOD = 0.25, 0.75  # shares of the promised gain: below, the region of trust shrinks; above, it may grow
_ARRIVED = 1e-3  # a certified plan whose merit gains a smaller share has arrived
_NEAREST_RUNS, _RESTARTS = 40, 3  # where to begin again, when the first search ends without a certificate
_HOPELESS = 2.0  # but not if what is lacking is more than so many widths of the box that fails first
_PATIENCE, _PROGRESS = 4, 0.9  # given up if what is lacking does not fall to this share in so many trials


@dataclass(frozen=True, eq=False)
class RobustPlan:
    """A plan, its certificate, and what it costs."""

    inputs: FloatArray
    certificate: Certificate
    cost: float
    """Of the nominal prediction."""
    start: Plan
    """The plan that it started from: certainty equivalent, or the one to repair."""
    iterations: int

    @property
    def success(self) -> bool:
        return self.certificate.verdict is Verdict.CERTIFIED

    @property
    def price(self) -> float:
        """How much dearer it is than what it started from, as a share of that cost."""
        dearer = self.cost - self.start.cost
        if dearer == 0.0:
            return 0.0
        return dearer / abs(self.start.cost) if self.start.cost else math.copysign(math.inf, dearer)


@dataclass(frozen=True, eq=False)
class RobustOCP:
    """Minimise the cost of the nominal prediction with every box of the tube within the limits.

    Parameters
    ----------
    predictor : of `OptimalEnvelope`s, or of `ClosedFormEnvelope`s, which CasADi differentiates
    nominal : the certainty-equivalent problem with the models, the cost and the input limits
    state_limits, input_rate_limits : what every box, and every change of the inputs, must keep
    initial_state_noise : how far the true initial state may be from the one planned from, by default as far as recorded
        ones
    iterations : at most so many plans are tried after the first
    """

    predictor: MultiStepPredictor
    nominal: CertaintyEquivalentOCP
    state_limits: Box | Polytope
    input_rate_limits: Box | None = None
    initial_state_noise: float | FloatArray | None = None
    iterations: int = 40
    _gradients: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        if self.predictor.horizon < self.nominal.horizon:
            raise InputError(
                f"the predictor has {self.predictor.horizon} steps, the nominal problem {self.nominal.horizon}"
            )
        if not issubclass(self.predictor.method, OptimalEnvelope | ClosedFormEnvelope):
            raise InputError(f"there are no gradients of {self.predictor.method.__name__}; OptimalEnvelope has them")
        object.__setattr__(self, "initial_state_noise", self.predictor.start_noise(self.initial_state_noise))
        for envelope in chain(*self.predictor.envelopes):
            envelope.kernel.gradient(envelope.data.X[:1], envelope.data.X[:1])  # refused now if there is none

    def solve(self, x0: npt.ArrayLike, guess: npt.ArrayLike | None = None) -> RobustPlan:
        """The cheapest plan that is found to be certified, from the certainty-equivalent one on.

        If that one is certified, it is the answer; one that breaks input rates is first moved to where it keeps them.
        If none is found, the answer is the one that lacks least.
        """
        return self._improve(_Task(as_floats(x0, "x0"), self.nominal.solve(x0, guess), is_repair=False))

    def solve_many(
        self, x0: npt.ArrayLike, n_jobs: int | None = None, progress: Progress | None = None
    ) -> list[RobustPlan]:
        """A plan from every row of `x0`."""
        return solve_from(self, as_points(x0, "x0", self.predictor.runs.n_states), _PLANS_A_TASK, n_jobs, progress)

    def repair(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> RobustPlan:
        """The smallest change of a plan, in shares of the input ranges, that makes it certifiable."""
        start = as_vector(x0, "x0", self.predictor.runs.n_states)
        plan = self.nominal.input_limits.clip(as_floats(inputs, "inputs"))
        states, cost = self.nominal.predict(start, plan)
        return self._improve(_Task(start, Plan(plan, states, cost, True, "given"), is_repair=True))

    def gradients(self, certificate: Certificate) -> FloatArray:
        """Of the worst corners, `normal . x`, by the inputs: `(n_steps, n_constraints, n_steps * n_inputs)`."""
        question, tube = certificate.question, certificate.tube
        return self._slopes(question.x0, question.inputs, tube.witnesses, np.ones(tube.witnesses.shape, dtype=bool))

    def _slopes(
        self, x0: FloatArray, inputs: FloatArray, witnesses: npt.NDArray[np.object_], needed: npt.NDArray[np.bool_]
    ) -> FloatArray:
        """Likewise, of the ends of boxes that are needed, the others taken as constant."""
        n_states, flat = len(x0), inputs.ravel()
        ends = np.zeros((*needed.shape, flat.size))
        for n, i, side in np.argwhere(needed):
            known = (n + 1) * inputs.shape[1]
            z = np.concatenate([x0, flat[:known]])
            ends[n, i, side, :known] = self._end_gradient(n, i, side, z, witnesses[n, i, side])[n_states:]
        slopes: FloatArray = np.einsum("sci,nisu->ncu", self._normals, ends)
        return slopes

    def _end_gradient(self, n: int, i: int, side: int, z: FloatArray, witness: Witness | None) -> FloatArray:
        """Of the lower or the upper bound of a state by `z`; zero where there is a kink."""
        envelope, sign = self.predictor.envelopes[n][i], 1.0 if side else -1.0
        if isinstance(envelope, OptimalEnvelope):
            return sign * np.nan_to_num(envelope.witness_gradient(z, witness))
        assert isinstance(envelope, ClosedFormEnvelope)
        if (n, i) not in self._gradients:
            self._gradients[n, i] = _closed_form_gradients(envelope)
        return sign * np.nan_to_num(np.array(self._gradients[n, i](z))[side])

    def _improve(self, task: _Task) -> RobustPlan:
        """Search near the start; where that ends without a certificate, near what was recorded."""
        start = self._assess(task, self._within_rates(task.start.inputs))
        best, tried = (start, 0) if start.lacking == 0.0 else self._descend(task, start, self.iterations)
        if best.lacking > 0.0:
            for inputs in self._recorded_starts(task, best):
                if best.lacking == 0.0 or tried >= self.iterations:
                    break
                strict = replace(task, penalty=_HIGH_PENALTY)
                begin = self._assess(strict, self._within_rates(inputs))
                found, more = self._descend(strict, begin, self.iterations - tried - 1)
                tried += more + 1
                best = min(best, found, key=lambda iterate: (iterate.lacking, iterate.merit))
        return RobustPlan(best.inputs, best.certificate, best.cost, task.start, tried)

    def _descend(self, task: _Task, best: _Iterate, iterations: int) -> tuple[_Iterate, int]:
        """The best plan that tangents lead to, and how many were tried.

        Only limits that boxes come near to are watched on the way. At its end all are looked at, and if others have
        come near, it goes on with these, too.
        """
        watched, tried = best.is_near_limits, 0
        while True:
            found, more = self._follow_tangents(task, best, watched, iterations - tried)
            tried += more
            if found.is_glance:
                found = self._assess(task, found.inputs)
            best = min(best, found, key=lambda iterate: iterate.merit)
            unwatched = found.is_near_limits & ~watched
            if found.lacking == 0.0 or tried >= iterations or not unwatched.any():
                return best, tried
            watched |= unwatched

    def _follow_tangents(
        self, task: _Task, best: _Iterate, watched: npt.NDArray[np.bool_], iterations: int
    ) -> tuple[_Iterate, int]:
        """From the best plan so far to the next, in a region that grows while tangents keep their promise."""
        other, radius, lacking = best, _FIRST_RADIUS, [best.lacking]
        while len(lacking) <= iterations and radius >= _STILL and not _is_stuck(lacking):
            inputs, promised = self._solve_near(task, best, other, watched, radius)
            hope = best.merit - promised
            if hope <= 0.0:
                radius *= _POOR
                continue
            trial = self._glance(task, inputs, best, watched)
            gain = best.merit - trial.merit
            moved = float(np.abs((inputs - best.inputs) / self._ranges).max())
            if gain < _POOR * hope:
                radius = _POOR * min(radius, moved)
            elif gain > _GOOD * hope:
                radius = min(1.0, max(radius, 2.0 * moved))
            has_arrived = trial.lacking == 0.0 and 0.0 <= gain < _ARRIVED * abs(trial.merit)
            best, other = (trial, best) if gain > 0.0 else (best, trial)
            lacking.append(best.lacking)
            if has_arrived:
                break
        return best, len(lacking) - 1

    def _recorded_starts(self, task: _Task, stuck: _Iterate) -> list[FloatArray]:
        """Plans that begin like recorded runs up to where one got stuck: boxes are narrow there.

        Of the runs from nearby initial states, those that leave most room at that step.
        """
        failing = np.flatnonzero((stuck.margins < 0.0).any(axis=1))
        if len(failing) == 0:
            return []
        n = int(failing[0]) + 1
        if stuck.lacking > _HOPELESS * stuck.widths[n - 1]:
            return []
        runs, x0 = self.predictor.runs, task.x0
        scale = np.maximum(np.ptp(runs.states[:, 0], axis=0), 1e-12)
        nearest = np.argsort(np.abs((runs.states[:, 0] - x0) / scale).max(axis=1))[:_NEAREST_RUNS]
        beginnings = self.nominal.input_limits.clip(runs.inputs[nearest, :n])
        z = [np.concatenate([x0, beginning.ravel()]) for beginning in beginnings]
        ends = np.tile(stuck.ends[n - 1], (len(nearest), 1, 1))
        for i, side in np.argwhere(self._needed(stuck.margins[[n - 1]] < 0.0)[0]):
            ends[:, i, side] = self._ends(n - 1, i, side, z)[0]
        room = self._room(ends).min(axis=1)
        best = [k for k in np.argsort(-room)[:_RESTARTS] if room[k] > stuck.margins[n - 1].min()]
        return [np.vstack([beginnings[k], stuck.inputs[n:]]) for k in best]

    def _assess(self, task: _Task, inputs: FloatArray) -> _Iterate:
        """A plan under the true bounds, all of them."""
        x0, limits = task.x0, self.nominal.input_limits
        question = Question(x0, inputs, self.state_limits, limits, self.input_rate_limits, self.initial_state_noise)
        certificate = question.ask(self.predictor)
        tube = certificate.tube
        ends = np.stack([tube.lower, tube.upper], axis=-1)
        return self._judged(task, inputs, ends, tube.witnesses, certificate.margins, certificate)

    def _glance(self, task: _Task, inputs: FloatArray, near: _Iterate, watched: npt.NDArray[np.bool_]) -> _Iterate:
        """A plan under the true bounds that watched limits ask for; the others as at a plan nearby."""
        ends, witnesses = near.ends.copy(), near.witnesses.copy()
        flat = inputs.ravel()
        for n, i, side in np.argwhere(self._needed(watched)):
            z = np.concatenate([task.x0, flat[: (n + 1) * inputs.shape[1]]])
            (ends[n, i, side],), (witnesses[n, i, side],) = self._ends(n, i, side, [z])
        return self._judged(task, inputs, ends, witnesses, self._room(ends), near.certificate, is_glance=True)

    def _ends(self, n: int, i: int, side: int, z: Sequence[FloatArray]) -> tuple[FloatArray, list[Witness | None]]:
        """Lower or upper ends of the boxes of one step and state at some arguments, and what proves them."""
        envelope, sign = self.predictor.envelopes[n][i], 1.0 if side else -1.0
        bounds = envelope.upper_bounds(envelope.sides[side], [Points.value(x) for x in z])
        values = sign * (np.array([bound.value for bound in bounds]) + self._shifts[n, i])
        return values, [bound.witness for bound in bounds]

    def _judged(
        self,
        task: _Task,
        inputs: FloatArray,
        ends: FloatArray,
        witnesses: npt.NDArray[np.object_],
        margins: FloatArray,
        certificate: Certificate,
        is_glance: bool = False,
    ) -> _Iterate:
        cost = self.nominal.predict(task.x0, inputs)[1]
        change = float(np.sum(((inputs - task.start.inputs) / self._ranges) ** 2))
        lacking = float(np.maximum(0.0, -margins).sum())
        merit = (change if task.is_repair else cost) + task.penalty * lacking
        return _Iterate(inputs, ends, witnesses, margins, cost, lacking, merit, certificate, is_glance)

    def _room(self, ends: FloatArray) -> FloatArray:
        """How far inside every constraint the worst corners are, but for rounding."""
        room: FloatArray = self.state_limits.as_polytope().offsets - np.einsum("sci,...is->...c", self._normals, ends)
        return room

    def _needed(self, watched: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which ends of which boxes constraints depend on: by step, state and side."""
        return np.stack([watched @ part for part in self._normals != 0.0], axis=-1)

    @cached_property
    def _normals(self) -> FloatArray:
        """Of the limits: what lower and what upper ends of boxes count for, `(2, n_constraints, n_states)`."""
        normals = self.state_limits.as_polytope().normals
        return np.stack([np.minimum(normals, 0.0), np.maximum(normals, 0.0)])

    def _solve_near(
        self, task: _Task, at: _Iterate, other: _Iterate, watched: npt.NDArray[np.bool_], radius: float
    ) -> tuple[FloatArray, float]:
        """The best plan no further than `radius` from one, by the tangents of the bounds there, and its merit.

        Where a margin has a ridge, as it has above a recorded input, the tangents on one side of it promise too much:
        those at the other plan say more, as far as they do not contradict what is known here.
        """
        limits, steps = self.nominal.input_limits, self.nominal.horizon - 1
        margins, slopes = self._tangents(task, at, watched, at.inputs)
        others, other_slopes = self._tangents(task, other, watched, at.inputs)
        is_ridge = others >= margins
        others, other_slopes = np.where(is_ridge, others, margins), np.where(is_ridge[:, None], other_slopes, slopes)
        share = _BACKOFF + (_BACKOFF_BY_RADIUS * radius if at.lacking > 0.0 else 0.0)
        widths = np.repeat(at.widths, at.margins.shape[1])
        backoff = share * widths + np.clip(-margins, 0.0, _OVERSHOOT * widths)
        lower = np.maximum(limits.lower, at.inputs - radius * self._ranges).ravel()
        upper = np.minimum(limits.upper, at.inputs + radius * self._ranges).ravel()
        # slopes @ (u - u_at) - slack <= margins - backoff, by both tangents
        rows = np.vstack([slopes, other_slopes])
        room = np.concatenate([margins - backoff, others - backoff]) + rows @ at.inputs.ravel()
        solution = self._solvers[int(task.is_repair)](
            x0=np.concatenate([at.inputs.ravel(), np.maximum(0.0, -margins)]),
            p=np.concatenate([[task.penalty], task.x0, task.start.inputs.ravel(), rows.ravel(order="F")]),
            lbx=np.concatenate([lower, np.zeros(len(margins))]),
            ubx=np.concatenate([upper, np.full(len(margins), np.inf)]),
            lbg=np.concatenate([np.full(len(room), -np.inf), np.tile(self._rates.lower, steps)]),
            ubg=np.concatenate([room, np.tile(self._rates.upper, steps)]),
        )
        flat = np.array(solution["x"]).ravel()[: at.inputs.size]
        return self._within_rates(limits.clip(flat.reshape(at.inputs.shape))), float(solution["f"])

    def _tangents(
        self, task: _Task, at: _Iterate, watched: npt.NDArray[np.bool_], inputs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """What the tangents at a plan say of the margins of other inputs, and how fast these fall."""
        slopes = self._slopes(task.x0, at.inputs, at.witnesses, self._needed(watched))
        slopes = np.where(watched[:, :, None], slopes, 0.0).reshape(-1, inputs.size)
        return at.margins.ravel() - slopes @ (inputs - at.inputs).ravel(), slopes

    def __getstate__(self) -> dict[str, Any]:
        """What CasADi compiled stays behind."""
        return {**{name: value for name, value in vars(self).items() if name != "_solvers"}, "_gradients": {}}

    def _within_rates(self, inputs: FloatArray) -> FloatArray:
        """Each input as near to what is wanted as the one before it allows; solvers leave limits by rounding."""
        if self.input_rate_limits is None:
            return inputs
        kept = [inputs[0]]
        for wanted in inputs[1:]:
            near = np.clip(wanted, kept[-1] + self._rates.lower, kept[-1] + self._rates.upper)
            kept.append(self.nominal.input_limits.clip(near))
        return np.array(kept)

    @cached_property
    def _rates(self) -> Box:
        """Limits of the changes of inputs, drawn in by what rounding may do."""
        if self.input_rate_limits is None:
            return Box(np.full(len(self._ranges), -np.inf), np.full(len(self._ranges), np.inf))
        lower, upper = self.input_rate_limits.lower, self.input_rate_limits.upper
        room = np.minimum(1e-9 * self._ranges, (upper - lower) / 2.0)
        return Box(lower + room, upper - room)

    @cached_property
    def _shifts(self) -> FloatArray:
        """What an unknown initial state can do to the bounds, by step and state."""
        noise = self.predictor.start_noise(self.initial_state_noise)
        return self.predictor.displacements(noise, self.nominal.horizon)

    @property
    def _ranges(self) -> FloatArray:
        """Of the inputs: between their limits or, where there are none, as recorded."""
        limits = self.nominal.input_limits
        between, recorded = limits.upper - limits.lower, np.ptp(self.predictor.runs.inputs, axis=(0, 1))
        return np.maximum(np.where(np.isfinite(between), between, recorded), 1e-12)

    @cached_property
    def _solvers(self) -> list[Any]:
        """Of the problem with linear constraints, for the nominal cost and for the change of a plan."""
        import casadi

        horizon, n_inputs, n_states = self.nominal.horizon, len(self._ranges), self.predictor.runs.n_states
        n_rows = horizon * len(self.state_limits.as_polytope().offsets)
        x0, u = casadi.MX.sym("x0", n_states), casadi.MX.sym("u", horizon * n_inputs)
        penalty, wanted, slack = (
            casadi.MX.sym("penalty"),
            casadi.MX.sym("wanted", horizon * n_inputs),
            casadi.MX.sym("slack", n_rows),
        )
        slopes = casadi.MX.sym("slopes", 2 * n_rows, horizon * n_inputs)
        changes = [
            u[n * n_inputs : (n + 1) * n_inputs] - u[(n - 1) * n_inputs : n * n_inputs] for n in range(1, horizon)
        ]
        change = casadi.sumsqr((u - wanted) / np.tile(self._ranges, horizon))
        options: dict[str, Any] = {"print_time": False, "ipopt": {"print_level": 0, "sb": "yes", "max_iter": 200}}
        solvers = []
        for cost in (self.nominal.expressions(x0, u)[1], change):
            programme: dict[str, Any] = {
                "x": casadi.vertcat(u, slack),
                "p": casadi.vertcat(penalty, x0, wanted, casadi.vec(slopes)),
                "f": cost + penalty * casadi.sum1(slack),
                "g": casadi.vertcat(slopes @ u - casadi.repmat(slack, 2), *changes),
            }
            solvers.append(casadi.nlpsol("robust", "ipopt", programme, options))
        return solvers


@dataclass(frozen=True, eq=False)
class _Task:
    x0: FloatArray
    start: Plan
    is_repair: bool
    """Whether the change from the start counts, rather than the cost."""
    penalty: float = _PENALTY


@dataclass(frozen=True, eq=False)
class _Iterate:
    inputs: FloatArray
    ends: FloatArray
    """Of the boxes, lower and upper: `(n_steps, n_states, 2)`."""
    witnesses: npt.NDArray[np.object_]
    margins: FloatArray
    cost: float
    lacking: float
    """The sum of what the boxes are outside the limits by."""
    merit: float
    certificate: Certificate
    """Of this plan or, after a glance, of one nearby."""
    is_glance: bool

    @property
    def widths(self) -> FloatArray:
        """Of the boxes at every step, in the widest direction."""
        return (self.ends[:, :, 1] - self.ends[:, :, 0]).max(axis=1, initial=0.0)

    @property
    def is_near_limits(self) -> npt.NDArray[np.bool_]:
        """Constraints, by step, that a box is not far inside of."""
        return self.margins < _NEAR * self.widths[:, None]


def _is_stuck(lacking: list[float]) -> bool:
    """Whether the last trials have hardly come nearer to a certified plan."""
    return len(lacking) > _PATIENCE and lacking[-1] > _PROGRESS * lacking[-1 - _PATIENCE]


def _closed_form_gradients(envelope: ClosedFormEnvelope) -> Any:
    """Of the upper bounds of `-f` and of `f`, as a CasADi function."""
    import casadi

    z = casadi.MX.sym("z", envelope.data.n_dims)
    bounds = casadi.vertcat(*envelope.casadi_bounds(z, _SMOOTHING))
    return casadi.Function("gradients", [z], [casadi.jacobian(bounds, z)])
