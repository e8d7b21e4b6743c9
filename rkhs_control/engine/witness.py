r"""Witnesses: the weights that prove a bound, and their evaluation with outward rounding.

For *every* weights `w` on the data,

    L f <= U(w) = norm_bound * || L - sum_i w_i k_{x_i} ||  +  sum_i ( upper_i w_i^+ - lower_i w_i^- )

by the reproducing property and Cauchy-Schwarz. So a reported bound is sound whatever solver found `w`, as long as
`U(w)` is not rounded downwards; that is what this module is for. The error model: IEEE double precision, and `exp`,
`expm1`, `log1p` right to two units in the last place. Kernels, functionals and norm bounds keep to ranges in which what
underflows is small beside what `functionals.py` adds for it; weights may be anything, and what overflows is an infinite
bound.

Where the norm nearly cancels, the bound on the rounding error of doubles would show in `U(w)`; there the norm is
computed again in double-double arithmetic (`double_double.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arithmetic.compiled_rounding import dot_up as compiled_dot_up
from ..arithmetic.rounding import dot_down, dot_up, product_up, quotient_down, sqrt_up, sum_up
from ..data.arrays import FloatArray, IndexArray
from .functionals import Functional, Points
from .gram import Gram

# What rounding of the norm may add to a bound, as a share of it, before the norm is computed again: far less than the
# gap of a bound that counts as tight. And for how many weights that is worth its time, which grows with their square
_ACCURACY, _MOST_WEIGHTS = 1e-9, 400


@dataclass(frozen=True, eq=False)
class Witness:
    """Weights on a few of the data: `indices` into the distinct inputs, none of the `weights` zero."""

    indices: IndexArray
    weights: FloatArray

    @classmethod
    def sparse(cls, indices: IndexArray, weights: FloatArray) -> Witness:
        """The witness of those weights that are finite and not zero."""
        kept = np.isfinite(weights) & (weights != 0.0)
        return cls(indices[kept], weights[kept])

    def on_known_ends(self, lower: FloatArray, upper: FloatArray) -> Witness:
        """Without the weights on ends that are not known, which rounding can leave there: they prove nothing."""
        known = np.isfinite(np.where(self.weights > 0, upper[self.indices], lower[self.indices]))
        return self if known.all() else Witness(self.indices[known], self.weights[known])

    def upper_value(
        self,
        functional: Functional,
        gram: Gram,
        lower: FloatArray,
        upper: FloatArray,
        norm_bound: float,
    ) -> tuple[float, float]:
        """`U(w)` and the norm in it, both rounded up."""
        terms = self._terms_up(lower, upper)
        square = self._residual(functional, gram)
        norm = self._norm_up(square, gram)
        value = _scaled_up(norm_bound, norm, terms)
        if is_rough(value, norm, square.error, norm_bound):
            return self.refined_value(functional, gram, lower, upper, norm_bound, square)
        return value, norm

    def refined_value(
        self,
        functional: Functional,
        gram: Gram,
        lower: FloatArray,
        upper: FloatArray,
        norm_bound: float,
        square: Square,
    ) -> tuple[float, float]:
        """The same with more digits, where the square of the norm is known with a few; for not too many weights."""
        refined = self._refined(square, functional, gram) if len(self.weights) <= _MOST_WEIGHTS else square
        norm = self._norm_up(refined, gram)
        return _scaled_up(norm_bound, norm, self._terms_up(lower, upper)), norm

    def residual_norm_up(self, functional: Functional, gram: Gram) -> float:
        """`|| L - sum_i w_i k_{x_i} ||` (with the nugget's share), rounded up."""
        return self._norm_up(self._residual(functional, gram), gram)

    def precise_norm_up(self, functional: Functional, gram: Gram) -> float:
        """The same from double-double arithmetic, where functional and kernel offer it."""
        return self._norm_up(self._refined(self._residual(functional, gram), functional, gram), gram)

    def norm_at_least(self, gram: Gram, lower: FloatArray, upper: FloatArray, *, is_precise: bool = False) -> float:
        """A norm that every function through the intervals provably has, rounded down.

        Weak duality: `||f|| ||s|| >= <f, s> >= sum_i (lower_i w_i^+ - upper_i w_i^-)` with `s = sum_i w_i k_{x_i}`.
        `is_precise` computes `||s||` in double-double, which takes longer and pays where the weights are large.
        """
        return quotient_down(self.inner_at_least(lower, upper), self.norm_up(gram, is_precise=is_precise))

    def inner_at_least(self, lower: FloatArray, upper: FloatArray) -> float:
        """The least `<f, s>` of functions through the intervals, rounded down."""
        ends = np.where(self.weights > 0, lower[self.indices], upper[self.indices])
        return dot_down(ends, self.weights)

    def norm_up(self, gram: Gram, *, is_precise: bool = False) -> float:
        """`||s||`, rounded up."""
        nothing = Points(gram.X[:0], np.empty(0))
        return (self.precise_norm_up if is_precise else self.residual_norm_up)(nothing, gram)

    def _terms_up(self, lower: FloatArray, upper: FloatArray) -> float:
        return float(
            compiled_dot_up(np.where(self.weights > 0, upper[self.indices], lower[self.indices]), self.weights)
        )

    def _residual(self, functional: Functional, gram: Gram) -> Square:
        X, fall = gram.X[self.indices], gram.fall(self.indices)
        return Square(*functional.residual(gram.kernel, X, fall=fall, weights=self.weights))

    def _refined(self, plain: Square, functional: Functional, gram: Gram) -> Square:
        """The square in double-double, or else as it is."""
        pair = functional.precise_residual(gram.kernel, gram.X[self.indices], self.weights)
        if pair is None:
            return plain
        precise = Square(*pair)
        # Two evaluations of one number: if they contradict each other, a kernel's formulas do not belong together.
        agree = abs(precise.value - plain.value) <= precise.error + plain.error
        return precise if precise.error < plain.error and agree else plain

    def _norm_up(self, square: Square, gram: Gram) -> float:
        nugget = product_up(gram.nugget, dot_up(self.weights, self.weights)) if gram.nugget else 0.0
        return sqrt_up(sum_up(max(square.value, 0.0), square.error, nugget))


def is_rough(value: float, norm: float, error: float, norm_bound: float) -> bool:
    """Whether `error`, of the square of a norm, shows in the bound that it is part of."""
    harmless = _ACCURACY * max(abs(value), 1e-3 * norm_bound * norm)
    # The square is off by at most its error, which is then added once more.
    return norm_bound * error > harmless * norm


class Square(NamedTuple):
    """A squared norm in floating point, and a bound on its error."""

    value: float
    error: float


def _scaled_up(norm_bound: float, norm: float, terms: float) -> float:
    """`norm_bound * norm + terms`, rounded up."""
    return sum_up(product_up(norm_bound, norm), terms)
