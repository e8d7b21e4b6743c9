"""The search of the robust problem: from plan to plan by linearised bounds, in a trust region.

The optimal bounds enter with their exact gradients (by the envelope theorem, those of the witness held fixed). Around a
plan they are linearised, IPOPT minimises the cost of the nominal prediction in a trust region, and the bounds are
recomputed at the solution. Constraint violations are penalised, so that the search may start from a plan that cannot be
certified. Boxes are narrow near recorded inputs, so there are many local optima; where one search ends without a
certificate, others start from there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Question
from ..data.arrays import FloatArray
from ..data.limits import PlacedLimits
from ..data.sets import Box
from ..errors import InputError
from ..prediction.arguments import SetProof
from ..prediction.predictor import MultiStepPredictor
from .certainty_equivalent import CertaintyEquivalentOCP, Plan

_PENALTY, _HIGH_PENALTY = 1e3, 1e5  # of a constraint violation relative to the cost, at first and after a restart
_BACKOFF, _BACKOFF_BY_RADIUS = 1e-4, 0.1  # limits are tightened by these shares of the boxes: tangents are not exact
_OVERSHOOT = 1e-2  # likewise: at most this much more where a margin is negative, and no more than its size
_STILL = 1e-4  # a plan that may move by less, as a share of the input range, has converged
_FIRST_RADIUS = 0.2  # of the trust region, likewise
_NEAR = 2.0  # widths of a box: limits further away are not monitored during the search
_POOR, _GOOD = 0.25, 0.75  # shares of the predicted gain: below, the trust region shrinks; above, it may grow
_ARRIVED = 1e-3  # a certified plan whose merit gains a smaller share has converged
_NEAREST_RUNS, _RESTARTS = 40, 3  # where to restart when the first search ends without a certificate
_HOPELESS = 2.0  # but not if the violation exceeds this many widths of the box that fails first
_PATIENCE, _PROGRESS = 4, 0.9  # given up if the violation does not fall to this share in this many trials


@dataclass(frozen=True, eq=False)
class Task:
    """Where a search starts, and what it minimises."""

    x0: FloatArray
    start: Plan
    is_repair: bool
    """Whether to minimise the change from the start, rather than the cost."""
    penalty: float = _PENALTY
    deadline: float = math.inf
    """By `time.monotonic`: nothing more is tried after this time."""

    @property
    def has_time(self) -> bool:
        """Whether there is time to try another plan."""
        return time.monotonic() < self.deadline


@dataclass(frozen=True, eq=False)
class Iterate:
    """An intermediate plan, with its boxes and their violations."""

    inputs: FloatArray
    ends: FloatArray
    """Of the boxes, lower and upper: `(n_steps, n_states, 2)`."""
    witnesses: npt.NDArray[np.object_]
    margins: FloatArray
    cost: float
    lacking: float
    """Sum of the distances by which boxes are outside the limits."""
    merit: float
    certificate: Certificate
    """Slopes at this plan or, after a partial evaluation, at one nearby."""
    is_glance: bool

    @property
    def widths(self) -> FloatArray:
        """Width of the boxes at every step, in the widest direction."""
        widths: FloatArray = (self.ends[:, :, 1] - self.ends[:, :, 0]).max(axis=1, initial=0.0)
        return widths

    @property
    def is_near_limits(self) -> npt.NDArray[np.bool_]:
        """Which constraints, by step, have a box close to them."""
        return self.margins < _NEAR * self.widths[:, None]


@dataclass(frozen=True, eq=False)
class Search:
    """Search for plans whose boxes keep the limits."""

    predictor: MultiStepPredictor
    nominal: CertaintyEquivalentOCP
    limits: PlacedLimits
    initial_state_noise: FloatArray
    iterations: int
    terminal: Box | None = None
    """Terminal set for the last box, in addition to the limits."""

    def slopes(
        self, x0: FloatArray, inputs: FloatArray, witnesses: npt.NDArray[np.object_], needed: npt.NDArray[np.bool_]
    ) -> FloatArray:
        """Likewise for the box ends that are needed, with the others taken as constant."""
        n_history, flat = len(x0), inputs.ravel()
        ends = np.zeros((*needed.shape, flat.size))
        for n, i, side in np.argwhere(needed):
            known = (n + 1) * inputs.shape[1]
            z = np.concatenate([x0, flat[:known]])
            ends[n, i, side, :known] = self.predictor.slopes(n + 1, i, side, z, witnesses[n, i, side])[n_history:]
        slopes: FloatArray = np.einsum("sci,nisu->ncu", self._normals, ends)
        return slopes

    def improve(self, task: Task) -> tuple[Iterate, int]:
        """Search near the start; if that ends without a certificate, near recorded runs."""
        start = self._assess(task, self._within_rates(task.start.inputs))
        best, tried = (start, 0) if start.lacking == 0.0 else self._descend(task, start, self.iterations)
        if best.lacking > 0.0:
            for inputs in self._recorded_starts(task, best):
                if best.lacking == 0.0 or tried >= self.iterations or not task.has_time:
                    break
                strict = replace(task, penalty=_HIGH_PENALTY)
                begin = self._assess(strict, self._within_rates(inputs))
                found, more = self._descend(strict, begin, self.iterations - tried - 1)
                tried += more + 1
                best = min(best, found, key=lambda iterate: (iterate.lacking, iterate.merit))
        return best, tried

    def _descend(self, task: Task, best: Iterate, iterations: int) -> tuple[Iterate, int]:
        """The best plan that tangents lead to, and how many were tried.

        Only limits that boxes come close to are monitored during the search. At the end all are checked, and if others
        have come close, the search continues with these included.
        """
        watched, tried = best.is_near_limits, 0
        while True:
            found, more = self._follow_tangents(task, best, watched, iterations - tried)
            tried += more
            if found.is_glance:
                found = self._assess(task, found.inputs)
            best = min(best, found, key=lambda iterate: iterate.merit)
            unwatched = found.is_near_limits & ~watched
            if found.lacking == 0.0 or tried >= iterations or not unwatched.any() or not task.has_time:
                return best, tried
            watched |= unwatched

    def _follow_tangents(
        self, task: Task, best: Iterate, watched: npt.NDArray[np.bool_], iterations: int
    ) -> tuple[Iterate, int]:
        """From the best plan so far to the next, in a trust region that grows while the tangents predict well."""
        other, radius, lacking = best, _FIRST_RADIUS, [best.lacking]
        while len(lacking) <= iterations and radius >= _STILL and not _is_stuck(lacking) and task.has_time:
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

    def _recorded_starts(self, task: Task, stuck: Iterate) -> list[FloatArray]:
        """Plans that begin like recorded runs up to where the search got stuck: boxes are narrow there.

        Among runs from nearby initial states, those that leave the most room at that step are used.
        """
        failing = np.flatnonzero((stuck.margins < 0.0).any(axis=1))
        if len(failing) == 0:
            return []
        n = int(failing[0]) + 1
        if stuck.lacking > _HOPELESS * stuck.widths[n - 1]:
            return []
        runs, x0 = self.predictor.runs, task.x0
        scale = np.maximum(np.ptp(runs.histories, axis=0), 1e-12)
        nearest = np.argsort(np.abs((runs.histories - x0) / scale).max(axis=1))[:_NEAREST_RUNS]
        beginnings = self.limits.input_box.clip(runs.inputs[nearest, :n])
        z = [np.concatenate([x0, beginning.ravel()]) for beginning in beginnings]
        ends = np.tile(stuck.ends[n - 1], (len(nearest), 1, 1))
        for i, side in np.argwhere(self._needed(stuck.margins[[n - 1]] < 0.0)[0]):
            ends[:, i, side] = self._ends(n - 1, i, side, np.array(z))[0]
        room = self._room(ends).min(axis=1)
        best = [k for k in np.argsort(-room)[:_RESTARTS] if room[k] > stuck.margins[n - 1].min()]
        return [np.vstack([beginnings[k], stuck.inputs[n:]]) for k in best]

    def _assess(self, task: Task, inputs: FloatArray) -> Iterate:
        """A plan under all true bounds."""
        certificate = Question(task.x0, inputs, self.limits, self.initial_state_noise).ask(self.predictor)
        tube = certificate.tube
        ends = np.stack([tube.lower, tube.upper], axis=-1)
        margins = certificate.margins.copy()
        margins[-1] -= self._tighter
        return self._judged(task, inputs, ends, tube.witnesses, margins, certificate)

    def _glance(self, task: Task, inputs: FloatArray, near: Iterate, watched: npt.NDArray[np.bool_]) -> Iterate:
        """A plan under the true bounds needed for monitored limits; the others as at a nearby plan."""
        ends, witnesses = near.ends.copy(), near.witnesses.copy()
        flat = inputs.ravel()
        for n, i, side in np.argwhere(self._needed(watched)):
            z = np.concatenate([task.x0, flat[: (n + 1) * inputs.shape[1]]])
            (ends[n, i, side],), (witnesses[n, i, side],) = self._ends(n, i, side, z[None])
        margins = self._room(ends)
        margins[-1] -= self._tighter
        return self._judged(task, inputs, ends, witnesses, margins, near.certificate, is_glance=True)

    def _judged(
        self,
        task: Task,
        inputs: FloatArray,
        ends: FloatArray,
        witnesses: npt.NDArray[np.object_],
        margins: FloatArray,
        certificate: Certificate,
        is_glance: bool = False,
    ) -> Iterate:
        cost = self.nominal.predict(task.x0, inputs)[1]
        change = float(np.sum(((inputs - task.start.inputs) / self._ranges) ** 2))
        lacking = float(np.maximum(0.0, -margins).sum())
        merit = (change if task.is_repair else cost) + task.penalty * lacking
        return Iterate(inputs, ends, witnesses, margins, cost, lacking, merit, certificate, is_glance)

    def _room(self, ends: FloatArray) -> FloatArray:
        """How far inside every constraint the worst corners are, up to rounding."""
        room: FloatArray = self.limits.polytope.offsets - np.einsum("sci,...is->...c", self._normals, ends)
        return room

    @cached_property
    def _tighter(self) -> FloatArray:
        """How much tighter every limit is at the last step."""
        limits = self.limits.polytope
        if self.terminal is None:
            return np.zeros(len(limits.offsets))
        ends = self.terminal.as_polytope()
        if not np.array_equal(ends.normals, limits.normals):
            raise InputError("a terminal box needs state limits that are a box with the same finite ends")
        return np.maximum(limits.offsets - ends.offsets, 0.0)

    def _needed(self, watched: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The box ends that constraints depend on: by step, state and side."""
        return np.stack([watched @ part for part in self._normals != 0.0], axis=-1)

    @cached_property
    def _normals(self) -> FloatArray:
        """Normals of the limits, as weights on lower and upper box ends, `(2, n_constraints, n_states)`."""
        normals = self.limits.polytope.normals
        return np.stack([np.minimum(normals, 0.0), np.maximum(normals, 0.0)])

    def _solve_near(
        self, task: Task, at: Iterate, other: Iterate, watched: npt.NDArray[np.bool_], radius: float
    ) -> tuple[FloatArray, float]:
        """The best plan within `radius` of a given one, by the tangents of the bounds there, and its merit.

        Where a margin has a ridge, as above a recorded input, the tangents on one side of it promise too much: those at
        the other plan are more informative, as long as they do not contradict what is known here.
        """
        limits, steps = self.limits.input_box, self.nominal.horizon - 1
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
        self, task: Task, at: Iterate, watched: npt.NDArray[np.bool_], inputs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """What the tangents at a plan say about the margins for other inputs, and how fast these fall."""
        slopes = self.slopes(task.x0, at.inputs, at.witnesses, self._needed(watched))
        slopes = np.where(watched[:, :, None], slopes, 0.0).reshape(-1, inputs.size)
        return at.margins.ravel() - slopes @ (inputs - at.inputs).ravel(), slopes

    def _within_rates(self, inputs: FloatArray) -> FloatArray:
        """Each input as close to the wanted one as its predecessor allows; solvers violate limits by rounding."""
        if self.limits.rates is None:
            return inputs
        kept = [inputs[0]]
        for wanted in inputs[1:]:
            near = np.clip(wanted, kept[-1] + self._rates.lower, kept[-1] + self._rates.upper)
            kept.append(self.limits.input_box.clip(near))
        return np.array(kept)

    @cached_property
    def _rates(self) -> Box:
        """Input rate limits, tightened to allow for rounding."""
        lower, upper = self.limits.rate_box.lower, self.limits.rate_box.upper
        room = np.minimum(1e-9 * self._ranges, (upper - lower) / 2.0)
        return Box(lower + room, upper - room)

    @property
    def _ranges(self) -> FloatArray:
        """Input ranges: between the limits or, where there are none, as recorded."""
        limits = self.limits.input_box
        between, recorded = limits.upper - limits.lower, np.ptp(self.predictor.runs.inputs, axis=(0, 1))
        return np.maximum(np.where(np.isfinite(between), between, recorded), 1e-12)

    @cached_property
    def _solvers(self) -> list[Any]:
        """Solvers of the linearly constrained problem, for the nominal cost and for the change of a plan."""
        import casadi

        horizon, n_inputs, n_history = self.nominal.horizon, len(self._ranges), self.predictor.runs.n_history
        n_rows = horizon * len(self.limits.polytope.offsets)
        x0, u = casadi.MX.sym("x0", n_history), casadi.MX.sym("u", horizon * n_inputs)
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

    def _ends(self, n: int, i: int, side: int, Z: FloatArray) -> tuple[FloatArray, list[SetProof]]:
        return self.predictor.ends(n + 1, i, side, Z, initial_state_noise=self.initial_state_noise)


def _is_stuck(lacking: list[float]) -> bool:
    """Whether the last trials have hardly come closer to a certified plan."""
    return len(lacking) > _PATIENCE and lacking[-1] > _PROGRESS * lacking[-1 - _PATIENCE]
