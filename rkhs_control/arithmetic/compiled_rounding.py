"""Outward rounding in compiled code: the functions of `rounding`, with the same names and guarantees."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .rounding import NEARLY_INFINITE, UNIT_ROUNDOFF

_LEAST = math.ulp(0.0)


@njit(cache=True, nogil=True)
def up(value):
    """The next double above."""
    return np.nextafter(value, np.inf)


@njit(cache=True, nogil=True)
def exact_sum(terms):
    """The sum, rounded once; infinite where it could overflow on the way, or a term is no number.

    Shewchuk's partial sums, which do not overlap, as in `math.fsum`: to the bit the same.
    """
    size = 0.0
    for term in terms:
        size += abs(term)
    if not size < NEARLY_INFINITE:
        return np.inf
    partials, n = np.empty(terms.size + 1), 0
    for term in terms:
        x, kept = term, 0
        for i in range(n):
            y = partials[i]
            large, small = (x, y) if abs(x) >= abs(y) else (y, x)
            x = large + small
            rest = small - (x - large)
            if rest != 0.0:
                partials[kept] = rest
                kept += 1
        partials[kept] = x
        n = kept + 1
    if n == 0:
        return 0.0
    n -= 1
    total, rest = partials[n], 0.0
    while n > 0 and rest == 0.0:
        n -= 1
        before = total
        total = before + partials[n]
        rest = partials[n] - (total - before)
    # a tie, rounded to even, though what is left tells on which side of it the sum is
    if n > 0 and ((rest > 0.0 and partials[n - 1] > 0.0) or (rest < 0.0 and partials[n - 1] < 0.0)):
        other = total + 2.0 * rest
        if other - total == 2.0 * rest:
            total = other
    return total


@njit(cache=True, nogil=True)
def sqrt_up(value):
    """Not below the square root of a number that is not negative; that of zero is zero."""
    return up(math.sqrt(value)) if value != 0.0 else 0.0


@njit(cache=True, nogil=True)
def dot_up(a, b):
    """Not below `a . b`; infinite where that could overflow."""
    products, size = np.empty(a.size), 0.0
    for i in range(a.size):
        products[i] = a[i] * b[i]
        size += abs(products[i])
    # Each product is off by half a unit in its last place; the small constant covers underflow.
    return up(exact_sum(products) + (2.0 * UNIT_ROUNDOFF * size + a.size * 2.0 * _LEAST))
