"""Outward rounding: sums, products, roots and quotients that are never on the wrong side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

UNIT_ROUNDOFF = 2.0**-53

UNDERFLOW = 1e-150
"""What a fall may lose, as a share of the variance, when squares of tiny distances underflow."""

# Sums of larger numbers could overflow on the way.
_NEARLY_INFINITE = 1e308


def exact_sum(terms: Sequence[float]) -> float:
    """The sum, rounded once; infinite where it could overflow on the way, or a term is no number."""
    return math.fsum(terms) if sum(map(abs, terms)) < _NEARLY_INFINITE else math.inf


def sum_up(*terms: float) -> float:
    """The sum of some numbers, rounded up; infinite where it could overflow, or one of them is no number."""
    return math.nextafter(exact_sum(terms), math.inf)


def product_up(a: float, b: float) -> float:
    """`a b`, rounded up."""
    return math.nextafter(a * b, math.inf)


def quotient_down(inner: float, norm: float) -> float:
    """`inner / norm` of a norm above zero, rounded down; zero where that is no number or negative."""
    return max(0.0, math.nextafter(inner / norm, -math.inf))


def sqrt_up(value: float) -> float:
    """The square root of a number that is not negative, rounded up; that of zero is zero."""
    return math.nextafter(math.sqrt(value), math.inf) if value != 0.0 else 0.0


def dot_up(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """`a . b`, rounded up; infinite where it could overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = a * b
        size = float(np.abs(products).sum())
    # Each product is off by half a unit in its last place; the small constant covers underflow.
    return sum_up(exact_sum(products.tolist()), 2.0 * UNIT_ROUNDOFF * size + len(products) * 1e-323)
