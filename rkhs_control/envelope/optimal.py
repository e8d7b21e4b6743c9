"""The optimal envelope: the tightest bounds that the assumptions allow, by the active-set path."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .. import path
from ..functionals import Derivative, Functional, Points
from ..gram import IndexArray
from ..kernels import UNIT_ROUNDOFF
from ..least_norm import LeastNorm, least_norm
from ..norms import NormBound
from ..validation import FloatArray
from ..witness import Witness
from .base import Band, Envelope, Side, UpperBound

SMALL_GAP = 1e-8
"""A path whose relative gap is above this is tried again with a coarser idea of dependence."""

# Beyond this the worst-case function is a small difference of two so large ones that rounding hides it.
_LARGEST_THETA = 1e8
_NEAREST = 192
_ROWS_A_ROUND = 64
_MAX_ROUNDS = 60


@dataclass(frozen=True, eq=False)
class _WorstCase:
    """Where a path ended: `f = theta k_L + sum_a weights_a k_{x_a}`, the rates of the weights, and how far `f`
    violates the intervals."""

    status: int
    theta: float
    energy: float
    indices: IndexArray
    weights: FloatArray
    rates: FloatArray
    value: float
    violation: float


@dataclass(frozen=True, eq=False)
class OptimalEnvelope(Envelope):
    """`C(x) = min_w U(x; w)` and its mirror (the paper's P1 and D1), exactly, for every query.

    Data that refute the norm bound are refused when the envelope is built.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        NormBound.of(self.norm_bound).require_consistent(self.gram, self.least_norm, self.data)

    @cached_property
    def least_norm(self) -> LeastNorm:
        """The minimum-norm regressor, where every path starts."""
        return least_norm(self.gram, self.data.lower, self.data.upper)

    def bounds_with_gradient(self, Xq: npt.ArrayLike) -> Band:
        """Bounds at the rows of `Xq` with their gradients, `(m, n_dims)`, by the envelope theorem.

        A gradient is NaN where the bound has a kink: at a datum whose own interval is the bound.
        """
        queries = self._queries(Xq)
        band = self.bounds(queries)
        gradients = np.full((2, *queries.shape), np.nan)
        for i, x in enumerate(queries):
            for side, sign, witness in zip((0, 1), (-1.0, 1.0), band.witness(i), strict=True):
                assert witness is not None  # this envelope always has one
                norm = witness.residual_norm_up(Points.value(x), self.gram)
                slopes = self.kernel.gradient(x[None, :], self.data.X[witness.indices])[0]
                if norm > math.sqrt(UNIT_ROUNDOFF):
                    gradients[side, i] = -sign * self.radius / norm * (witness.weights @ slopes)
        return replace(band, lower_gradient=gradients[0], upper_gradient=gradients[1])

    def derivative_bounds(self, Xq: npt.ArrayLike, n_jobs: int | None = None) -> Band:
        """Certified sensitivities: bounds of `df/dx_j` at the rows of `Xq`; every field has shape `(m, n_dims)`."""
        queries = self._queries(Xq)
        n_dims = self.data.n_dims
        flat = self.functional_bounds(
            [Derivative(x, j) for x in queries for j in range(n_dims)], n_jobs
        )
        shape = (len(queries), n_dims)
        return replace(
            flat,
            lower=flat.lower.reshape(shape),
            upper=flat.upper.reshape(shape),
            gap=flat.gap.reshape(shape),
        )

    def difference_bounds(
        self, Xa: npt.ArrayLike, Xb: npt.ArrayLike, n_jobs: int | None = None
    ) -> Band:
        """Bounds of `f(a) - f(b)` for the rows `a` of `Xa` and `b` of `Xb`."""
        pairs = zip(self._queries(Xa, "Xa"), self._queries(Xb, "Xb"), strict=True)
        return self.functional_bounds([Points.difference(a, b) for a, b in pairs], n_jobs)

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        start = self.least_norm.mirrored() if side.is_mirrored else self.least_norm
        return [self._upper_bound(side, start, functional) for functional in functionals]

    def _upper_bound(self, side: Side, start: LeastNorm, functional: Functional) -> UpperBound:
        best = UpperBound(math.inf, math.inf)
        row = functional.row(self.kernel, self.data.X)
        norm2 = functional.squared_norm(self.kernel)
        for dependent in path.DEPENDENT_TRIALS:
            worst_case = self._worst_case(side, start, row, norm2, dependent)
            for candidate in self._candidates(worst_case, functional):
                bound = self._evaluate(candidate, worst_case, side, functional)
                if bound.value < best.value or best.witness is None:
                    best = bound
            if worst_case.status == path.RAY or best.gap <= SMALL_GAP * max(abs(best.value), abs(worst_case.value)):
                break
        return best

    def _worst_case(
        self, side: Side, start: LeastNorm, row: FloatArray, norm2: float, dependent: float
    ) -> _WorstCase:
        """Follow the path on some of the data, and on more of them until the function fits all."""
        others = np.ones(len(row), dtype=bool)
        others[start.indices] = False
        if self.gram.is_dense:
            rows = np.concatenate([start.indices, np.flatnonzero(others)])
        else:
            nearest = np.argsort(-np.abs(row))[:_NEAREST]
            rows = np.concatenate([start.indices, nearest[others[nearest]]])
        for _ in range(_MAX_ROUNDS):
            worst_case, violations = self._follow(side, start, row, norm2, dependent, rows)
            violations[rows] = 0.0
            new = np.argsort(-violations)[:_ROWS_A_ROUND]
            new = new[violations[new] > 1e-12 * np.abs(worst_case.value)]
            if len(new) == 0:
                break
            rows = np.concatenate([rows, new])
        return worst_case

    def _follow(
        self,
        side: Side,
        start: LeastNorm,
        row: FloatArray,
        norm2: float,
        dependent: float,
        rows: IndexArray,
    ) -> tuple[_WorstCase, FloatArray]:
        """One path on the given rows, which begin with the active ones of the start."""
        status, theta, energy, order, _, _, weights, rates, _, _ = path.follow(
            self.gram.matrix(rows),
            side.lower[rows],
            side.upper[rows],
            -row[rows],
            -row[rows],
            row[rows],
            norm2,
            self.radius**2,
            _LARGEST_THETA * self.radius / math.sqrt(norm2),
            np.arange(len(start.indices)),
            start.sides,
            start.factor,
            start.weights,
            start.norm**2,
            dependent,
        )
        indices = rows[order]
        values = theta * row + self.gram.combine(indices, weights)
        violations = np.maximum(np.maximum(values - side.upper, side.lower - values), 0.0)
        worst_case = _WorstCase(
            status,
            theta,
            energy,
            indices,
            weights,
            rates,
            value=theta * norm2 + float(row[indices] @ weights),
            violation=float(violations.max()),
        )
        return worst_case, violations

    def _candidates(self, end: _WorstCase, functional: Functional) -> Iterator[Witness]:
        """Weights worth evaluating; each one proves a bound, the least counts."""
        if end.theta > 0.0:
            yield Witness.sparse(end.indices, -end.weights / end.theta)
        if end.status == path.LOST or end.theta == 0.0:
            yield Witness.sparse(end.indices[:0], end.weights[:0])
        if end.status not in (path.RAY, path.THETA_REACHED):
            return
        # The section of L lies (nearly) in the span of the active ones, with weights -rates.
        projection = Witness.sparse(end.indices, -end.rates)
        distance = projection.residual_norm_up(functional, self.gram)
        room = math.sqrt(max(self.radius**2 - end.energy, 0.0))
        if room > 0.0:
            base = end.weights - end.theta * end.rates
            yield Witness.sparse(end.indices, -end.rates - base * (distance / room))
        nearest = int(np.argmax(np.abs(end.rates)))
        yield Witness(end.indices[[nearest]], np.array([-np.sign(end.rates[nearest])]))

    def _evaluate(
        self, witness: Witness, end: _WorstCase, side: Side, functional: Functional
    ) -> UpperBound:
        value, norm = witness.upper_value(
            functional, self.gram, side.lower, side.upper, self.radius
        )
        # A function that violates intervals by v and the norm bound by e is still within v ||w||_1 + e * norm of
        # the least bound, by duality.
        if end.theta > 0.0:
            section = Witness.sparse(end.indices, -end.weights / end.theta)
            size = end.theta * section.residual_norm_up(functional, self.gram)
        else:
            size = math.sqrt(max(end.energy, 0.0))
        slack = end.violation * float(np.abs(witness.weights).sum()) + max(0.0, size - self.radius) * norm
        return UpperBound(value, max(0.0, value - end.value) + slack, witness)
