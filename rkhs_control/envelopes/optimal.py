"""The optimal envelope: the tightest bounds that the assumptions allow, by the active-set path."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import FloatArray, IndexArray
from ..engine import path, walk
from ..engine.functionals import Derivative, Functional, Points
from ..engine.gram import DENSE_LIMIT
from ..engine.least_norm import SEARCH_NUGGETS, LeastNorm, least_norm_along
from ..engine.queries import (
    LARGEST_TAU,
    LEAST_TAU,
    NEIGHBOUR,
    NOTHING,
    PointFunctionals,
    QueryEnd,
    Start,
    follow_queries,
    neighbours_in_turn,
)
from ..engine.witness import Square, Witness, is_rough
from ..errors import InputError
from .base import Band, Envelope, Side, UpperBound

SMALL_GAP = 1e-7
"""A bound whose gap is above this share of it is searched again along a regularised path."""

# So many queries are followed in one compiled call.
_AT_ONCE = 256
# With more data than are kept as a matrix: how many rows a path starts with, how many it may gain at a time
_NEAREST, _ROWS_PER_ROUND, _MAX_ROUNDS = 192, 128, 60


@dataclass(frozen=True, eq=False, repr=False)
class OptimalEnvelope(Envelope):
    """`C(x) = min_w U(x; w)` and its mirror (the paper's P1 and D1), exactly, for every query."""

    has_witnesses: ClassVar[bool] = True
    has_gradients: ClassVar[bool] = True

    def bounds_with_gradient(self, Xq: npt.ArrayLike, n_jobs: int | None = None) -> Band:
        """Bounds at the rows of `Xq` with their gradients, `(m, n_dims)`, by the envelope theorem.

        A gradient is NaN where the bound has a kink: at a datum whose own interval is the bound.
        """
        queries = self._queries(Xq)
        band = self.bounds(queries, n_jobs)
        pairs = [band.witness(i) for i in range(len(queries))]
        lower, upper = (
            np.array([self.end_gradient(x, side, pair[side]) for x, pair in zip(queries, pairs, strict=True)])
            for side in (0, 1)
        )
        return replace(band, lower_gradient=lower, upper_gradient=upper)

    def upper_gradient(self, side: Side, z: FloatArray, witness: Witness | None) -> FloatArray:
        """That of the witness held fixed, by the envelope theorem."""
        if witness is None:
            raise InputError("the gradient of an optimal bound needs the witness that proves it there; got None")
        norm = witness.residual_norm_up(Points.value(z), self.gram)
        if norm <= math.sqrt(UNIT_ROUNDOFF):
            return np.full(len(z), np.nan)
        slopes = self.kernel.gradient(z[None, :], self.data.X[witness.indices])[0]
        gradient: FloatArray = -self.radius / norm * (witness.weights @ slopes)
        return gradient

    def derivative_bounds(self, Xq: npt.ArrayLike, n_jobs: int | None = None) -> Band:
        """Certified sensitivities: bounds of `df/dx_j` at the rows of `Xq`, each of shape `(m, n_dims)`."""
        queries = self._queries(Xq)
        shape = queries.shape
        flat = self.functional_bounds([Derivative(x, j) for x in queries for j in range(shape[1])], n_jobs)
        return replace(
            flat,
            lower=flat.lower.reshape(shape),
            upper=flat.upper.reshape(shape),
            gap=flat.gap.reshape(shape),
        )

    def difference_bounds(self, Xa: npt.ArrayLike, Xb: npt.ArrayLike, n_jobs: int | None = None) -> Band:
        """Bounds of `f(a) - f(b)` for the rows `a` of `Xa` and `b` of `Xb`."""
        first, second = self._queries(Xa, "Xa"), self._queries(Xb, "Xb")
        if len(first) != len(second):
            raise InputError(f"Xa and Xb must have equally many rows; got {len(first)} and {len(second)}")
        return self.functional_bounds([Points.difference(a, b) for a, b in zip(first, second, strict=True)], n_jobs)

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        alike = {len(f.points) if type(f) is Points else 0 for f in functionals}
        if len(alike) == 1 and 0 not in alike:
            points = np.stack([f.points for f in functionals])  # type: ignore[attr-defined]
            coefficients = np.stack([f.coefficients for f in functionals])  # type: ignore[attr-defined]
            return self._all_at_once([side], points, coefficients)[0]
        return self._one_by_one(side, functionals)

    def value_bounds(self, sides: Sequence[Side], Z: FloatArray) -> list[list[UpperBound]]:
        return self._all_at_once(sides, Z[:, None], np.ones((len(Z), 1)))

    @cached_property
    def _side_starts(self) -> tuple[Start, Start]:
        """Where paths start, seen from below and from above."""
        below, above = self.sides
        return (
            Start.of(below.lower, below.upper, self.least_norm.mirrored()),
            Start.of(above.lower, above.upper, self.least_norm),
        )

    def _all_at_once(
        self, sides: Sequence[Side], points: FloatArray, coefficients: FloatArray
    ) -> list[list[UpperBound]]:
        """Bounds of `sum_p coefficients_p f(points_p)`, arrays of `(m, n_points, n_dims)` and `(m, n_points)`."""
        if not (self.gram.is_dense and self.least_norm.gram is self.gram):
            functionals = [Points(*pair) for pair in zip(points, coefficients, strict=True)]
            return [self._one_by_one(side, functionals) for side in sides]
        bounds: list[dict[int, UpperBound]] = [{} for _ in sides]
        space = path.Workspace.of(len(self.data))
        for first in range(0, len(points), _AT_ONCE):
            some = first + neighbours_in_turn(self.kernel, points[first : first + _AT_ONCE, 0])
            queries = PointFunctionals.of(self.kernel, self.data.X, points[some], coefficients[some])
            for found, side in zip(bounds, sides, strict=True):
                start = self._side_starts[0 if side.is_mirrored else 1]
                ends = follow_queries(self.gram, start, queries, self.radius, space)
                for q, end in zip(some.tolist(), ends, strict=True):
                    bound = None if end is None else self._tight_bound(side, end, points[q], coefficients[q])
                    found[q] = bound or self._one_by_one(side, [Points(points[q], coefficients[q])])[0]
        return [[found[q] for q in range(len(points))] for found in bounds]

    def _tight_bound(
        self, side: Side, end: QueryEnd, points: FloatArray, coefficients: FloatArray
    ) -> UpperBound | None:
        """What the end of a path proves, with more digits where that shows; none where the gap is not small."""
        value, norm, radius = end.value, end.norm, self.radius
        if is_rough(value, norm, end.error, radius):
            functional, square = Points(points, coefficients), Square(end.square, end.error)
            value, norm = end.witness.refined_value(functional, self.gram, side.lower, side.upper, radius, square)
        slack = end.violation * end.steepest + max(end.tau * norm - radius, 0.0) * norm
        gap = max(value - end.attained, 0.0) + slack  # in this order, what is not a number stays so, and is not tight
        is_tight = gap <= SMALL_GAP * max(abs(value), 1e-3 * radius * math.sqrt(end.norm2))
        return UpperBound(value, gap, end.witness) if is_tight else None

    def _one_by_one(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        bounds: list[UpperBound] = []
        previous: _WorstCase | None = None
        for functional in functionals:
            row = functional.row(self.kernel, self.data.X)
            query = _Query(functional, row, functional.squared_norm(self.kernel))
            if query.norm2 > NOTHING * self.kernel.variance:
                bound, previous = self._upper_bound(side, query, previous)
            else:
                bound = self._trivial_bound(functional)
            bounds.append(bound)
        return bounds

    def _trivial_bound(self, functional: Functional) -> UpperBound:
        """That of the Cauchy-Schwarz inequality, for a functional that is (nearly) zero."""
        nothing = Witness(np.empty(0, dtype=np.int64), np.empty(0))
        value, _ = self._evaluated(nothing, self.sides[1], functional)
        return UpperBound(value, 2.0 * value, nothing)

    def _upper_bound(self, side: Side, query: _Query, previous: _WorstCase | None) -> tuple[UpperBound, _WorstCase]:
        """The best of what the ends of some paths prove; `previous` is where that of another query ended."""
        functional, largest = query.functional, self.radius * math.sqrt(query.norm2)
        best, best_norm, attained = UpperBound(math.inf, math.inf), math.inf, []
        for end in self._worst_cases(side, query, previous):
            attained.append(end)
            gap = best.gap
            for found in self._candidates(end, functional):
                witness = found.on_known_ends(side.lower, side.upper)
                value, norm = self._evaluated(witness, side, functional)
                if value < best.value:
                    best, best_norm = UpperBound(value, witness=witness), norm
            best = replace(best, gap=min(self._gap(best, best_norm, e, functional=functional) for e in attained))
            if best.gap <= SMALL_GAP * max(abs(best.value), 1e-3 * largest):
                break
            if end.status == walk.RAY and best.gap <= 1e-6 * largest:
                break  # next to a datum, doubles do not tell more
            if end.status == walk.NORM_REACHED and gap <= best.gap and not self.gram.is_dense:
                break  # safer matrices are further off, and make ever more of the many data active
        return best, end

    def _worst_cases(self, side: Side, query: _Query, previous: _WorstCase | None) -> Iterator[_WorstCase]:
        """Ends of paths, the quickest first: from a neighbouring query, from the start, along safer matrices."""
        if previous is not None and previous.is_neighbour_of(query):
            moved = self._move(side, previous, query)
            if moved is not None:
                yield moved
        for start in self._starts():
            yield self._worst_case(side, start, query)

    @cached_property
    def _safer_starts(self) -> dict[float, LeastNorm]:
        return {}

    def _starts(self) -> Iterator[LeastNorm]:
        """Where paths may start, with less and less trust in the kernel matrix; made when first needed."""
        yield self.least_norm
        for added in SEARCH_NUGGETS:
            gram = self.gram.with_added(added)
            if gram.nugget > self.least_norm.gram.nugget:
                if added not in self._safer_starts:
                    self._safer_starts[added] = least_norm_along(gram, self.data.lower, self.data.upper)
                yield self._safer_starts[added]

    def _worst_case(self, side: Side, start: LeastNorm, query: _Query) -> _WorstCase:
        """Follow the path on all data or, where they are many, on more and more until the function fits all."""
        if side.is_mirrored:
            start = start.mirrored()
        if self.gram.is_dense:
            rows = np.arange(len(query.row))
            end = self._follow(side, start, query, rows=rows, K=start.gram.whole, order=start.indices)
            return self._at_end(side, query, rows=rows, end=end)[0]
        near = np.argsort(-np.abs(query.row))[:_NEAREST]
        rows = np.concatenate([start.indices, np.setdiff1d(near, start.indices)])
        K, before = start.gram.matrix(rows), None
        for _ in range(_MAX_ROUNDS):
            end = self._follow(side, start, query, rows=rows, K=K, order=start.active.order, before=before)
            worst_case, violations = self._at_end(side, query, rows=rows, end=end)
            violations[rows] = 0.0
            worst = np.argsort(-violations)[:_ROWS_PER_ROUND]
            worst = worst[violations[worst] > 1e-12 * self.radius]
            if len(worst) == 0:
                break
            K, before = start.gram.grown(K, rows, worst), end
            rows = np.concatenate([rows, worst])
        return worst_case

    def _follow(
        self,
        side: Side,
        start: LeastNorm,
        query: _Query,
        *,
        rows: IndexArray,
        K: FloatArray,
        order: IndexArray,
        before: path.PathEnd | None = None,
    ) -> path.PathEnd:
        """One path on the given rows, among which `order` are those of the start; or on from `before` the last came."""
        ends, limit, tau_end = (side.lower[rows], side.upper[rows]), self.radius**2, self._largest_tau(query)
        own: dict[str, Any] = {"row": query.row[rows], "norm2": query.norm2, "square_limit": limit, "tau_end": tau_end}
        resumed = None if before is None else path.resume_query(K, *ends, **own, before=before)
        if resumed is not None:
            return resumed
        heaviest = float(np.abs(start.weights).sum()) * math.sqrt(self.kernel.variance / query.norm2)
        first, square = start.active._replace(order=order), start.norm**2
        return path.follow_query(K, *ends, **own, start=first, square=square, tau_least=LEAST_TAU * heaviest)

    def _move(self, side: Side, previous: _WorstCase, query: _Query) -> _WorstCase | None:
        """From the end of a neighbour's path to that of `query`: first to the query, then to the norm bound."""
        K, tau = self.gram.whole, previous.tau
        rows = {"row": previous.query.row, "new_row": query.row}
        moved = path.follow_move(K, side.lower, side.upper, **rows, tau=tau, start=previous.active)
        if moved.status != walk.THETA_REACHED:
            return None
        order, weights = moved.active.order, moved.active.weights
        square = tau * tau * query.norm2 + 2.0 * tau * float(query.row[order] @ weights)
        square += float(weights @ K[np.ix_(order, order)] @ weights)
        end = path.follow_query(
            K,
            side.lower,
            side.upper,
            row=query.row,
            norm2=query.norm2,
            start=moved.active,
            square=square,
            square_limit=self.radius**2,
            tau=tau,
            tau_end=self._largest_tau(query),
        )
        if end.status != walk.NORM_REACHED:
            return None
        return self._at_end(side, query, rows=np.arange(len(query.row)), end=end)[0]

    def _at_end(self, side: Side, query: _Query, rows: IndexArray, end: path.PathEnd) -> tuple[_WorstCase, FloatArray]:
        """The function at the end of a path, and by how much it violates the intervals of all data."""
        active = end.active._replace(order=rows[end.active.order])
        values = end.tau * query.row + self.gram.combine(active.order, active.weights)
        violations = np.maximum(np.maximum(values - side.upper, side.lower - values), 0.0)
        value = end.tau * query.norm2 + float(query.row[active.order] @ active.weights)
        worst_case = _WorstCase(
            query=query,
            status=end.status,
            tau=end.tau,
            square=end.square,
            active=active,
            rates=end.rates,
            value=value,
            violation=float(violations.max()),
        )
        return worst_case, violations

    def _largest_tau(self, query: _Query) -> float:
        return LARGEST_TAU * self.radius / math.sqrt(query.norm2)

    def _candidates(self, end: _WorstCase, functional: Functional) -> Iterator[Witness]:
        """Weights worth evaluating; each one proves a bound, the least counts."""
        if end.has_section:
            yield end.section
            if end.status == walk.NORM_REACHED:
                return
        indices = end.active.order
        yield Witness(indices[:0], end.rates[:0])
        if len(indices) == 0:
            return
        # The section of L lies (nearly) in the span of the active ones, with weights -rates.
        distance = Witness.sparse(indices, -end.rates).residual_norm_up(functional, self.gram)
        room = math.sqrt(max(self.radius**2 - end.square, 0.0))
        if room > 0.0:
            base = end.active.weights - end.tau * end.rates
            yield Witness.sparse(indices, -end.rates - base * (distance / room))
        nearest = int(np.argmax(np.abs(end.rates)))
        yield Witness(indices[[nearest]], np.array([-np.sign(end.rates[nearest])]))

    def _gap(self, bound: UpperBound, norm: float, end: _WorstCase, functional: Functional) -> float:
        """How far the bound may be from the least one, given a function that attains `end.value`.

        By duality, a function that violates intervals by v and the norm bound by e is within `v ||w||_1 + e norm` of
        what is attainable, with the best weights w; those of the bound and of the function stand in for them.
        """
        if bound.witness is None or end.status == walk.LOST:
            return math.inf
        own = end.section.weights if end.has_section else end.rates
        if not end.has_section:
            size = math.sqrt(max(end.square, 0.0))
        elif bound.witness is end.section:
            size = end.tau * norm
        else:
            size = end.tau * end.section.residual_norm_up(functional, self.gram)
        steepest = max(float(np.abs(own).sum()), float(np.abs(bound.witness.weights).sum()))
        slack = end.violation * steepest + max(0.0, size - self.radius) * norm
        return max(0.0, bound.value - end.value) + slack


@dataclass(frozen=True, eq=False)
class _Query:
    """A functional as the solver sees it: `L k(., x_i)` and `||L||^2`."""

    functional: Functional
    row: FloatArray
    norm2: float


@dataclass(frozen=True, eq=False)
class _WorstCase:
    """The end of a path: `f = tau k_L + sum_a weights_a k_{x_a}`, with the rates of the weights there."""

    query: _Query
    status: int
    tau: float
    square: float
    """The squared norm."""
    active: path.ActiveSet
    rates: FloatArray
    value: float
    violation: float

    @property
    def has_section(self) -> bool:
        """Whether `tau` is large enough to divide by."""
        return self.tau > 1e-200

    @cached_property
    def section(self) -> Witness:
        """The weights `w` for which `f = tau (k_L - sum_a w_a k_{x_a})`."""
        return Witness.sparse(self.active.order, -self.active.weights / self.tau)

    def is_neighbour_of(self, query: _Query) -> bool:
        """Whether moving from here is likely to be quicker than following the whole path."""
        if self.status != walk.NORM_REACHED or len(query.row) > DENSE_LIMIT:
            return False
        change = float(np.abs(query.row - self.query.row).max())
        return change <= NEIGHBOUR * float(np.abs(query.row).max())
