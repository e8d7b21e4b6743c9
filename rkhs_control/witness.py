r"""Witnesses: the weights that prove a bound, and their evaluation with outward rounding.

For *every* weights `w` on the data,

    L f <= U(w) = norm_bound * || L - sum_i w_i k_{x_i} ||  +  sum_i ( upper_i w_i^+ - lower_i w_i^- )

by the reproducing property and Cauchy-Schwarz. So a reported bound is sound whatever solver found `w`, as long as
`U(w)` is not rounded downwards; that is what this module is for. The error model: IEEE double precision, and `exp`,
`expm1`, `log1p` right to two units in the last place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .functionals import Functional
from .gram import Gram
from .kernels import UNIT_ROUNDOFF
from .validation import FloatArray, IndexArray


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

    def upper_value(
        self,
        functional: Functional,
        gram: Gram,
        lower: FloatArray,
        upper: FloatArray,
        norm_bound: float,
    ) -> tuple[float, float]:
        """`U(w)` and the norm in it, both rounded up."""
        ends = np.where(self.weights > 0, upper[self.indices], lower[self.indices])
        norm = self.residual_norm_up(functional, gram)
        value = sum_up(norm_bound * norm * (1.0 + 2.0 * UNIT_ROUNDOFF), dot_up(ends, self.weights))
        return value, norm

    def residual_norm_up(self, functional: Functional, gram: Gram) -> float:
        """`|| L - sum_i w_i k_{x_i} ||` (with the nugget's share), rounded up."""
        value, error = functional.residual(gram.kernel, gram.X[self.indices], gram.fall(self.indices), self.weights)
        nugget = gram.nugget * math.fsum(self.weights**2) * (1.0 + 8.0 * UNIT_ROUNDOFF)
        return sqrt_up(sum_up(max(value, 0.0), error, nugget))


def sum_up(*terms: float) -> float:
    """The sum of some numbers, rounded up."""
    return math.nextafter(math.fsum(terms), math.inf) if all(map(math.isfinite, terms)) else math.inf


def sqrt_up(value: float) -> float:
    """The square root of a number that is not negative, rounded up; that of zero is zero."""
    return math.nextafter(math.sqrt(value), math.inf) if value > 0.0 else 0.0


def dot_up(a: FloatArray, b: FloatArray) -> float:
    """`a . b`, rounded up."""
    products = a * b
    if not np.isfinite(products).all():
        return math.inf
    # Each product is off by half a unit in its last place; the small constant covers underflow.
    error = 2.0 * UNIT_ROUNDOFF * float(np.abs(products).sum()) + len(products) * 1e-323
    return sum_up(math.fsum(products), error)
