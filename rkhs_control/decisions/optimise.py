"""Optimisation under unknown constraints: the cheapest point that the data certify, reached by certified points only.

A constraint `f <= limit` on a function known only through samples is replaced by `C <= limit` with its optimal upper
bound, so any solution satisfies the true constraint. The bounds enter with their exact gradients (by the envelope
theorem, those of the witness held fixed). Around a certified point they are linearised, the cost is minimised in a
trust region, and violations are corrected by relinearising at the new point. A step is accepted only if the bounds
themselves certify the new point and it is cheaper: every iterate may be tried on the plant.

The certified set may have several parts, so the search descends from several starts. It finds local optima, and reports
how close to optimality they are; that there is no cheaper certified point elsewhere is likely, not proven.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, as_points, as_vector, require_finite
from ..data.sets import Box
from ..engine.witness import Witness
from ..envelopes.base import UpperBound
from ..envelopes.constraint import Constraint
from ..envelopes.optimal import SMALL_GAP
from ..errors import InputError
from ..parallel import Progress

Cost = Callable[[FloatArray], float]
Gradient = Callable[[FloatArray], npt.ArrayLike]

# Lengths are shares of the ranges of `bounds`
_FIRST_RADIUS = 0.1  # of the trust region
_STILL = 1e-7  # a point that may move by less has converged
_APART = 0.1  # starts closer together than this would do the same
_DIFFERENCE = 6e-6  # of the cost, where no gradient is given
_MOST_STEPS, _MOST_CORRECTIONS = 100, 3
_AIM = 0.05  # a correction aims beyond the limit by this share of the violation
# Room below these shares of the largest bound there can be: none, and so little that the limit shapes the next step
_ACTIVE, _NEARLY_ACTIVE = 1e-6, 1e-2


@dataclass(frozen=True, eq=False)
class SafeOptimum:
    """The cheapest certified point found; or, if none was, the one with the least violation."""

    x: FloatArray
    cost: float
    constraints: tuple[Constraint, ...]
    margins: FloatArray
    """How far every bound is inside its limit, `(n_constraints,)`."""
    witnesses: tuple[Witness, ...]
    """What proves every bound."""
    multipliers: FloatArray
    """Decrease in cost per unit of relaxation of each limit; zero for inactive limits."""
    stationarity: float
    """The part of the cost's gradient not opposed by active limits, relative to the larger of those at start and end.
    Zero at a local optimum. It is uninformative where a bound has a kink, at a sample itself.
    """
    iterates: FloatArray
    """The way to `x` from a certified start, `(n_iterates, n_dims)`: all certified, each cheaper than the last."""
    iterate_costs: FloatArray
    n_starts: int
    """Number of certified points that the search descended from."""

    @property
    def success(self) -> bool:
        """Whether `x` is certified: it keeps the constraints if the assumptions hold."""
        return bool((self.margins >= 0.0).all())

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """The limits whose relaxation would lower the cost."""
        return self.multipliers > 0.0

    def explain(self) -> str:
        """In words."""
        at = "(" + ", ".join(f"{value:.6g}" for value in self.x) + ")"
        if not self.success:
            lacks = [f"{c} by {-m:.4g}" for c, m in zip(self.constraints, self.margins, strict=True) if m < 0]
            return (
                f"no point was found that the data certify; the closest, {at}, lacks {' and '.join(lacks)}. More "
                "samples near it, or a smaller noise or norm bound if one is justified, would help"
            )
        gains = [
            f"{c}, which costs {value:.4g} per unit"
            for c, value in zip(self.constraints, self.multipliers, strict=True)
            if value > 0
        ]
        held = f"held back by {' and by '.join(gains)}" if gains else "not held back by any unknown constraint"
        return f"certified at {at}, cost {self.cost:.6g}; {held}"


def minimise(
    cost: Cost,
    constraints: Constraint | Sequence[Constraint],
    bounds: Box,
    *,
    gradient: Gradient | None = None,
    start: npt.ArrayLike | None = None,
    n_scan: int = 256,
    n_starts: int = 5,
    progress: Progress = lambda done, total: None,
) -> SafeOptimum:
    """The cheapest point in a box where unknown constraints are certain to hold.

    Parameters
    ----------
    cost : takes a point `(n_dims,)`, returns a number
        Known and smooth; it may be evaluated anywhere in `bounds`.
    constraints : `envelope <= limit` or `envelope >= limit`, one or several
        Their method must have gradients and witnesses, such as `OptimalEnvelope`; each may concern a different unknown
        function.
    bounds : finite
    gradient : of the cost, `(n_dims,)`; by central differences if absent
    start : `(n_dims,)` or `(n_starts, n_dims)`
        Where to descend from, instead of a search for certified points. A start that is not certified is first moved to
        one that is, if possible.
    n_scan : how many points, besides the data, are scanned for certified ones, cheapest first
    n_starts : maximum number of them, not close to each other, to descend from
    """
    listed = (constraints,) if isinstance(constraints, Constraint) else tuple(constraints)
    problem = _Problem(cost, gradient, listed, bounds)
    if n_scan < 0 or n_starts < 1:
        raise InputError(f"n_scan must be zero or more and n_starts one or more; got {n_scan} and {n_starts}")
    found = problem.scan(n_scan, n_starts) if start is None else problem.given(start)
    progress(1, 1 + len(found))
    ways = []
    for i, point in enumerate(found):
        led = point if point.is_certified else problem.lead(point)
        ways.append(problem.descend(led) if led.is_certified else [led])
        progress(2 + i, 1 + len(found))
    best = min(ways, key=lambda way: (way[-1].lacking, way[-1].cost))
    return problem.result(best, sum(way[-1].is_certified for way in ways))


@dataclass(frozen=True, eq=False)
class _Point:
    """A point in shares of the box, with its cost and what the bounds say about it."""

    s: FloatArray
    cost: float
    room: FloatArray
    """Margins minus the reserves."""
    bounds: tuple[UpperBound, ...]
    lacking: float
    """The largest violation, as a share of the largest possible bound."""

    @property
    def is_certified(self) -> bool:
        return bool((self.room >= 0.0).all())


@dataclass(frozen=True, eq=False)
class _Problem:
    cost: Cost
    gradient: Gradient | None
    constraints: tuple[Constraint, ...]
    bounds: Box

    def __post_init__(self) -> None:
        if not self.constraints:
            raise InputError("there is no unknown constraint; pass `envelope <= limit`, or use an ordinary optimiser")
        for i, constraint in enumerate(self.constraints):
            if not isinstance(constraint, Constraint):
                raise InputError(
                    f"constraint {i} must be `envelope <= limit` or `envelope >= limit`; got {constraint!r}"
                )
            method = type(constraint.envelope)
            for what, is_there in (("gradients", method.has_gradients), ("witnesses", method.has_witnesses)):
                if not is_there:
                    raise InputError(
                        f"constraint {i}: there are no {what} of {method.__name__}; OptimalEnvelope has them"
                    )
            if constraint.envelope.data.n_dims != self.bounds.n_dims:
                raise InputError(
                    f"bounds have {self.bounds.n_dims} dimensions, the data of constraint {i} have "
                    f"{constraint.envelope.data.n_dims}"
                )
        for name in ("lower", "upper"):
            require_finite(getattr(self.bounds, name), f"bounds.{name}")

    @property
    def ranges(self) -> FloatArray:
        return self.bounds.upper - self.bounds.lower

    @cached_property
    def sizes(self) -> FloatArray:
        """The largest possible bound on every constraint's function, without data."""
        return np.array([c.envelope.radius * np.sqrt(c.envelope.kernel.variance) for c in self.constraints])

    @cached_property
    def reserves(self) -> FloatArray:
        """Margins that points keep: bounds computed another way may differ by their gaps, and must certify as well."""
        limits = np.array([abs(c.limit) for c in self.constraints])
        reserves: FloatArray = 2.0 * SMALL_GAP * np.maximum(limits, 1e-3 * self.sizes)
        return reserves

    def point(self, s: FloatArray) -> FloatArray:
        return self.bounds.clip(self.bounds.lower + self.ranges * s)

    def share(self, x: FloatArray) -> FloatArray:
        return np.clip((x - self.bounds.lower) / np.where(self.ranges > 0, self.ranges, 1.0), 0.0, 1.0)

    def at(self, s: FloatArray) -> _Point:
        """A point under the bounds themselves."""
        x = self.point(s)
        bounds = tuple(c.bounds(x[None, :])[0] for c in self.constraints)
        room = self.margins(bounds) - self.reserves
        return _Point(s, self.cost_at(s), room, bounds, float(np.max(np.maximum(0.0, -room) / self.sizes)))

    def margins(self, bounds: tuple[UpperBound, ...]) -> FloatArray:
        return np.array([c.margin(bound) for c, bound in zip(self.constraints, bounds, strict=True)])

    def cost_at(self, s: FloatArray) -> float:
        return float(self.cost(self.point(s)))

    def cost_slope(self, s: FloatArray) -> FloatArray:
        """Of the cost, by shares of the box."""
        if self.gradient is not None:
            return as_vector(self.gradient(self.point(s)), "gradient", len(s)) * self.ranges
        slope = np.zeros(len(s))
        for i in np.flatnonzero(self.ranges > 0):
            ends = np.stack([s, s])
            ends[:, i] = np.clip(s[i] + np.array([-_DIFFERENCE, _DIFFERENCE]), 0.0, 1.0)
            slope[i] = (self.cost_at(ends[1]) - self.cost_at(ends[0])) / (ends[1, i] - ends[0, i])
        return slope

    def slopes(self, at: _Point) -> FloatArray:
        """Of the bounds, `(n_constraints, n_dims)`, by shares of the box; zero where there is a kink."""
        x, rows = self.point(at.s), []
        for constraint, bound in zip(self.constraints, at.bounds, strict=True):
            rows.append(constraint.gradient(x, bound) * self.ranges)
        return np.nan_to_num(np.array(rows))

    def given(self, start: npt.ArrayLike) -> list[_Point]:
        points = as_points(start, "start", self.bounds.n_dims)
        outside = np.flatnonzero(~self.bounds.contains(points))
        if len(points) == 0 or len(outside):
            raise InputError(
                f"start {outside[0]} lies outside bounds" if len(outside) else "start must have at least one row"
            )
        found = [self.at(self.share(x)) for x in points]
        self._require_costs(np.array([point.cost for point in found]))
        return found

    def scan(self, n_scan: int, n_starts: int) -> list[_Point]:
        """The cheapest certified points that are not close to each other; if there are none, the least violating."""
        from scipy.stats.qmc import Halton

        known = np.concatenate([c.envelope.data.X for c in self.constraints])
        spread = Halton(self.bounds.n_dims, scramble=False).random(n_scan)
        candidates = np.unique(np.concatenate([self.share(known[self.bounds.contains(known)]), spread]), axis=0)
        if len(candidates) == 0:
            candidates = np.full((1, self.bounds.n_dims), 0.5)
        costs = np.array([self.cost_at(s) for s in candidates])
        self._require_costs(costs)
        chosen: list[_Point] = []
        others: list[_Point] = []
        for s in candidates[np.argsort(costs, kind="stable")]:
            if any(np.abs(s - point.s).max() < _APART for point in chosen):
                continue
            point = self.at(s)
            (chosen if point.is_certified else others).append(point)
            if len(chosen) == n_starts:
                break
        return chosen or sorted(others, key=lambda point: point.lacking)[:n_starts]

    def descend(self, start: _Point) -> list[_Point]:
        """From one certified point to cheaper ones, in a region that grows with success and shrinks without.

        The curvature of the active bounds is learnt on the way (symmetric rank-one updates).
        """
        way, radius = [start], _FIRST_RADIUS
        curvature = np.zeros((len(start.s), len(start.s)))
        for _ in range(_MOST_STEPS):
            here = way[-1]
            trial = self._cheaper(here, radius, curvature)
            for _ in range(_MOST_CORRECTIONS):
                if trial.is_certified:
                    break
                trial = self._corrected(trial)
            step = trial.s - here.s
            moved = float(np.abs(step).max())
            if trial.is_certified and moved > 0.0:
                change = self._multipliers(trial, _NEARLY_ACTIVE)[0] @ (self.slopes(trial) - self.slopes(here))
                missed = change - curvature @ step
                if abs(missed @ step) > 1e-8 * np.linalg.norm(missed) * np.linalg.norm(step):
                    curvature = curvature + np.outer(missed, missed) / (missed @ step)
            if trial.is_certified and trial.cost < here.cost:
                way.append(trial)
                radius = min(1.0, 2.0 * radius)
            else:
                radius = min(radius, moved) / 3.0
            if min(moved, radius) < _STILL:
                break
        return way

    def lead(self, start: _Point) -> _Point:
        """Move towards a certified point: minimise the largest violation according to the tangents."""
        from scipy.optimize import linprog

        best, radius = start, _FIRST_RADIUS
        for _ in range(_MOST_STEPS):
            if best.is_certified or radius < _STILL:
                break
            low, high = np.maximum(0.0, best.s - radius) - best.s, np.minimum(1.0, best.s + radius) - best.s
            # slopes @ d - t <= room, the least t
            step = linprog(
                np.append(np.zeros(len(low)), 1.0),
                np.column_stack([self.slopes(best) / self.sizes[:, None], -np.ones(len(self.sizes))]),
                best.room / self.sizes,
                bounds=[*zip(low, high, strict=True), (None, None)],
            )
            trial = self.at(np.clip(best.s + step.x[:-1], 0.0, 1.0)) if step.success else best
            is_better = trial.lacking < best.lacking
            best, radius = (trial, min(1.0, 2.0 * radius)) if is_better else (best, radius / 3.0)
        return best

    def _cheaper(self, here: _Point, radius: float, curvature: FloatArray) -> _Point:
        """The cheapest point according to the tangents, at most `radius` from a point."""
        scale = float(np.abs(self.cost_slope(here.s)).max()) or 1.0
        return self._solve(
            here,
            lambda s: (self.cost_at(s) - here.cost + 0.5 * float((s - here.s) @ curvature @ (s - here.s))) / scale,
            lambda s: (self.cost_slope(s) + curvature @ (s - here.s)) / scale,
            room=here.room,
            radius=radius,
        )

    def _corrected(self, trial: _Point) -> _Point:
        """The nearest point that is certified according to the tangents."""
        return self._solve(
            trial,
            lambda s: float(np.sum((s - trial.s) ** 2)),
            lambda s: 2.0 * (s - trial.s),
            room=trial.room - _AIM * np.maximum(0.0, -trial.room),
            radius=1.0,
        )

    def _solve(self, at: _Point, objective: Cost, slope: Gradient, room: FloatArray, radius: float) -> _Point:
        """Minimise subject to `slopes @ (s - at.s) <= room` and to the trust region."""
        from scipy.optimize import minimize

        slopes = self.slopes(at) / self.sizes[:, None]
        solution = minimize(
            objective,
            at.s,
            jac=slope,
            method="SLSQP",
            bounds=np.column_stack([np.maximum(0.0, at.s - radius), np.minimum(1.0, at.s + radius)]),
            constraints={
                "type": "ineq",
                "fun": lambda s: room / self.sizes - slopes @ (s - at.s),
                "jac": lambda s: -slopes,
            },
            options={"ftol": 1e-14, "maxiter": 100},
        )
        return self.at(np.clip(solution.x, 0.0, 1.0)) if np.isfinite(solution.x).all() else at

    def result(self, way: list[_Point], n_starts: int) -> SafeOptimum:
        last, certified = way[-1], [point for point in way if (self.margins(point.bounds) >= 0.0).all()]
        multipliers, left = self._multipliers(last, _ACTIVE)
        steepest = max(float(np.linalg.norm(self.cost_slope(point.s))) for point in (way[0], last))
        return SafeOptimum(
            x=self.point(last.s),
            cost=last.cost,
            constraints=self.constraints,
            margins=self.margins(last.bounds),
            witnesses=tuple(bound.witness for bound in last.bounds if bound.witness is not None),
            multipliers=multipliers,
            stationarity=left / steepest if steepest > 0 else 0.0,
            iterates=np.array([self.point(point.s) for point in certified]).reshape(-1, self.bounds.n_dims),
            iterate_costs=np.array([point.cost for point in certified]),
            n_starts=n_starts,
        )

    def _multipliers(self, at: _Point, nearness: float) -> tuple[FloatArray, float]:
        """Multipliers with which the slopes of active limits best oppose the cost's gradient, and the residual."""
        from scipy.optimize import nnls

        multipliers, identity, slope = np.zeros(len(self.constraints)), np.eye(len(at.s)), self.cost_slope(at.s)
        active = np.flatnonzero(at.room <= nearness * self.sizes)
        opposing = np.concatenate([self.slopes(at)[active], identity[at.s >= 1.0 - _STILL], -identity[at.s <= _STILL]])
        if len(opposing) == 0:
            return multipliers, float(np.linalg.norm(slope))
        values, left = nnls(opposing.T, -slope)
        multipliers[active] = values[: len(active)]
        return multipliers, float(left)

    def _require_costs(self, costs: FloatArray) -> None:
        if not np.isfinite(costs).all():
            raise InputError(f"cost must be a finite number everywhere in bounds; got {costs[~np.isfinite(costs)][0]}")
