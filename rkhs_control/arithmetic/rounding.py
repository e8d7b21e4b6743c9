"""Every outward rounding: results that are never on the wrong side of the exact ones.

One IEEE operation (`+ - * /`, square root) is off by half a unit in the last place at most, so its result moved to the
next double by `up` or `down` is on the right side of the exact one, subnormal numbers and overflow included. Every
function here says what it guarantees, with `<=` between the exact number and the double. NaN stays NaN unless said
otherwise, and no comparison with it is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import overload

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
"""`u`: one operation is off by this share of its result at most."""

SQUARED_ROUNDOFF = UNIT_ROUNDOFF**2
"""`u^2`, the unit in which errors of double-doubles are counted."""

UNDERFLOW = 1e-150
"""What a fall may lose, as a share of the variance, when squares of tiny distances underflow."""

LOST_PRODUCTS = 1e-300
"""What products of two weights and a fall may lose in all when they underflow, for a variance of one or less."""

_LEAST, _LARGEST = math.ulp(0.0), math.nextafter(math.inf, 0.0)

NEARLY_INFINITE = 1e308
"""Sums of larger numbers could overflow on the way."""


@overload
def up(value: float) -> float: ...
@overload
def up(value: FloatArray) -> FloatArray: ...
def up(value: float | FloatArray) -> float | FloatArray:
    """Not below the exact result of the one operation that `value` came from: the next double above."""
    return _towards(value, math.inf)


@overload
def down(value: float) -> float: ...
@overload
def down(value: FloatArray) -> FloatArray: ...
def down(value: float | FloatArray) -> float | FloatArray:
    """Not above the exact result of the one operation that `value` came from: the next double below."""
    return _towards(value, -math.inf)


def _towards(value: float | FloatArray, end: float | FloatArray) -> float | FloatArray:
    if isinstance(value, float | int) and isinstance(end, float):
        return math.nextafter(value, end)
    with np.errstate(over="ignore"):
        return np.nextafter(value, end)


def outwards(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends that each came from one operation, moved so that the exact interval lies within."""
    return down(lower), up(upper)


def further_out(ends: FloatArray, shift: FloatArray) -> FloatArray:
    """`ends + shift`, rounded in the direction of the shift; exactly `ends` where it is zero."""
    return np.where(shift == 0.0, ends, _towards(ends + shift, np.where(shift > 0.0, np.inf, -np.inf)))


@overload
def enlarged(value: float, roundings: int) -> float: ...
@overload
def enlarged(value: FloatArray, roundings: int) -> FloatArray: ...
def enlarged(value: float | FloatArray, roundings: int) -> float | FloatArray:
    """At least so many doubles above `value`, which is not negative; zero stays zero.

    So it is not below the exact sum of positive numbers that `value` came from by so many roundings.
    """
    with np.errstate(over="ignore"):
        larger = value * (1.0 + 2 * roundings * UNIT_ROUNDOFF) + roundings * _LEAST
    if isinstance(value, float | int):
        return larger if value != 0.0 else value
    return np.where(value != 0.0, larger, value)


def exact_sum(terms: Sequence[float]) -> float:
    """The sum, rounded once; infinite where it could overflow on the way, or a term is no number."""
    return math.fsum(terms) if sum(map(abs, terms)) < NEARLY_INFINITE else math.inf


def sum_up(*terms: float) -> float:
    """Not below the sum; infinite where that could overflow, or a term is no number."""
    return up(exact_sum(terms))


def add_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """`a + b` entry by entry, the least double that is not below it: exact sums stay as they are."""
    return _add_towards(a, b, math.inf)


def add_down(a: FloatArray, b: FloatArray) -> FloatArray:
    """`a + b` entry by entry, the largest double that is not above it: exact sums stay as they are."""
    return _add_towards(a, b, -math.inf)


def _add_towards(a: FloatArray, b: FloatArray, end: float) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        total = a + b
        # Knuth's error of a sum tells on which side it fell; where something overflows, it is no number.
        part = total - a
        error = (a - (total - part)) + (b - part)
    stays = (error * math.copysign(1.0, end) <= 0.0) | np.isinf(a) | np.isinf(b)
    return np.where(stays, total, _towards(total, end))


@overload
def difference_down(a: float, b: float) -> float: ...
@overload
def difference_down(a: FloatArray, b: FloatArray) -> FloatArray: ...
def difference_down(a: float | FloatArray, b: float | FloatArray) -> float | FloatArray:
    """Not above `a - b`; not negative exactly where `a >= b`."""
    if isinstance(a, np.ndarray):
        return np.where(a == b, 0.0, down(a - b))
    return 0.0 if a == b else down(a - b)


def product_up(a: float, b: float) -> float:
    """Not below `a b`."""
    return up(a * b)


def quotient_up(a: float, b: float) -> float:
    """Not below `a / b`, for `b` other than zero."""
    return up(a / b)


def quotient_down(inner: float, norm: float) -> float:
    """Not above `inner / norm` for a norm above zero; zero where that is no number or negative."""
    return max(0.0, down(inner / norm))


def sqrt_up(value: float) -> float:
    """Not below the square root of a number that is not negative; that of zero is zero."""
    return up(math.sqrt(value)) if value != 0.0 else 0.0


def dot_up(a: FloatArray, b: FloatArray) -> float:
    """Not below `a . b`; infinite where that could overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = a * b
        size = float(np.abs(products).sum())
    # Each product is off by half a unit in its last place; the small constant covers underflow.
    return sum_up(exact_sum(products.tolist()), 2.0 * UNIT_ROUNDOFF * size + len(products) * 2.0 * _LEAST)


def dot_down(a: FloatArray, b: FloatArray) -> float:
    """Not above `a . b`; minus infinity where that could overflow."""
    return -dot_up(-a, b)


def fraction_up(exact: Fraction) -> float:
    """The least double that is not below a rational number."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -_LARGEST
    return nearest if Fraction(nearest) >= exact else up(nearest)
