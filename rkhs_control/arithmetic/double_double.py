"""Double-double arithmetic: twice the digits, for the norms that nearly cancel.

A number is an unevaluated sum `high + low` of two doubles with `|low| <= u |high|`, `u = 2^-53`. Algorithms and bounds
are those of Joldes, Muller and Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
arithmetic" (2017): `multiply` is within 5 `u^2` relative, `root` within 4; `add` within 3 `u^2` of the sum of absolute
values, whatever the signs. What is built from them adds these up; the tests find a tenth of that at most.

The loops over arrays avoid branches, so that they run on vector units; therefore all functions are inlined by force.
What LLVM must not do, and without flags does not, is fuse or reorder operations.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from .rounding import SQUARED_ROUNDOFF, FloatArray

_compiled = njit(cache=True, nogil=True, error_model="numpy", forceinline=True)


class PreciseFall(NamedTuple):
    """`k(x, x)` and the falls among some points, `x_a` with `x_b` at `a (a - 1) / 2 + b` for `b < a`."""

    variance: tuple[float, float]
    high: FloatArray
    low: FloatArray
    error: float
    """A bound on the relative error of all of them; where squares of tiny distances underflow, see `Kernel.fall`."""

    def scaled(self, factor: float) -> PreciseFall:
        """`factor` times these."""
        variance = multiply(*self.variance, factor, 0.0)
        high, low = multiply_all(self.high, self.low, factor, 0.0)
        return PreciseFall(variance, high, low, self.error + 8.0 * SQUARED_ROUNDOFF)

    def plus(self, other: PreciseFall) -> PreciseFall:
        """Those of the sum of two kernels."""
        variance = add(*self.variance, *other.variance)
        high, low = add_all(self.high, self.low, other.high, other.low)
        return PreciseFall(variance, high, low, max(self.error, other.error) + 4.0 * SQUARED_ROUNDOFF)

    def times(self, other: PreciseFall) -> PreciseFall:
        """Those of the product of two kernels, as a sum of two terms that are never negative."""
        variance = multiply(*self.variance, *other.variance)
        high, low = product_falls(self.variance, self.high, self.low, other.variance, other.high, other.low)
        # Neither term exceeds their sum, and nor does the fall of one times the variance of the other.
        return PreciseFall(variance, high, low, 3.0 * (self.error + other.error) + 32.0 * SQUARED_ROUNDOFF)


def _fused_multiply_add(context, a, b, c):  # type: ignore[no-untyped-def]
    """`a b + c`, rounded once; in software where the processor has no such instruction."""
    signature = types.float64(types.float64, types.float64, types.float64)
    return signature, lambda context, builder, signature, args: builder.fma(*args)


_fma: Any = intrinsic(_fused_multiply_add)  # compiled code calls it without the context


@_compiled
def two_sum(a, b):  # type: ignore[no-untyped-def]
    """`a + b`, exactly."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


@_compiled
def two_product(a, b):  # type: ignore[no-untyped-def]
    """`a b`, exactly, unless it over- or underflows. Needs no splitting, which would overflow earlier."""
    product = a * b
    return product, _fma(a, b, -product)


@_compiled
def add(a, a_low, b, b_low):  # type: ignore[no-untyped-def]
    """`a + b` within 3 `u^2` of `|a| + |b|`."""
    total, rest = two_sum(a, b)
    return two_sum(total, rest + (a_low + b_low))


@_compiled
def multiply(a, a_low, b, b_low):  # type: ignore[no-untyped-def]
    """`a b` within 5 `u^2`."""
    product, rest = two_product(a, b)
    rest += _fma(a, b_low, a_low * b)
    total = product + rest
    return total, rest - (total - product)


@_compiled
def divide(a, a_low, b, b_low):  # type: ignore[no-untyped-def]
    """`a / b` within 16 `u^2`."""
    first = a / b
    p, p_low = multiply(b, b_low, first, 0.0)
    rest, _ = add(a, a_low, -p, -p_low)
    return two_sum(first, rest / b)


@_compiled
def reciprocal(a):  # type: ignore[no-untyped-def]
    """`1 / a` of a double, within 2 `u^2`."""
    inverse = 1.0 / a
    return inverse, _fma(-inverse, a, 1.0) / a


@_compiled
def root(a, a_low):  # type: ignore[no-untyped-def]
    """The square root of a number that is not negative."""
    first = math.sqrt(a)
    # of zero, the correction is zero by zero
    second = (_fma(-first, first, a) + a_low) / (2.0 * first if first > 0.0 else 1.0)
    total = first + second
    return total, second - (total - first)


# Tables are made with far more digits than they keep.
_DIGITS = Context(prec=50)


def _pairs(values: list[Decimal]) -> FloatArray:
    """Two rows: the numbers as doubles, and what is left of them."""
    high = [float(value) for value in values]
    low = [float(_DIGITS.subtract(value, Decimal(part))) for value, part in zip(values, high, strict=True)]
    return np.array([high, low])


def _exponentials(count: int, steps: int) -> FloatArray:
    """`exp(-t)` and `1 - exp(-t)` at `t = i / steps`: four rows."""
    step = _DIGITS.exp(_DIGITS.divide(-1, steps))
    values = list(accumulate([step] * (count - 1), _DIGITS.multiply, initial=Decimal(1)))
    return np.concatenate([_pairs(values), _pairs([_DIGITS.subtract(1, value) for value in values])])


_FARTHEST, _STEPS = 512, 256
_COARSE = _exponentials(_FARTHEST, 1)
_FINE = _exponentials(_STEPS, _STEPS)
_INVERSE_FACTORIALS = _pairs([_DIGITS.divide(1, math.factorial(i)) for i in range(32)])


@_compiled
def _within_tables(t, t_low):  # type: ignore[no-untyped-def]
    """`t`, or the end of the tables: beyond it nothing changes any more, `exp(-511)` is 1e-222."""
    is_far = t >= _FARTHEST
    return (_FARTHEST - 1.0 if is_far else t), (0.0 if is_far else t_low)


@_compiled
def _reduced(t, t_low):  # type: ignore[no-untyped-def]
    """`t = i + j / steps + rest`, for `t` that is not negative: `i`, `j` and `f = 1 - exp(-rest)`."""
    t, t_low = _within_tables(t, t_low)
    steps = int(t * _STEPS)
    b, b_low = two_sum(t - steps / _STEPS, t_low)
    # Taylor's series; from the seventh term on, all terms together are below 2^-59 of the first
    f = 0.0
    for i in range(11, 6, -1):
        f = (_INVERSE_FACTORIALS[0, i] - f) * b
    f_low = 0.0
    for i in range(6, 0, -1):
        f, f_low = add(_INVERSE_FACTORIALS[0, i], _INVERSE_FACTORIALS[1, i], -f, -f_low)
        f, f_low = multiply(f, f_low, b, b_low)
    return steps // _STEPS, steps % _STEPS, f, f_low


@_compiled
def exponential_fall(t, t_low):  # type: ignore[no-untyped-def]
    """`1 - exp(-t)` within 32 `u^2`: `f(i + j + b) = f(i) + exp(-i) (f(j) + exp(-j) f(b))`, nothing cancels."""
    i, j, f, f_low = _reduced(t, t_low)
    f, f_low = multiply(f, f_low, _FINE[0, j], _FINE[1, j])
    f, f_low = add(_FINE[2, j], _FINE[3, j], f, f_low)
    f, f_low = multiply(f, f_low, _COARSE[0, i], _COARSE[1, i])
    return add(_COARSE[2, i], _COARSE[3, i], f, f_low)


@_compiled
def exponential(t, t_low):  # type: ignore[no-untyped-def]
    """`exp(-t)` within 16 `u^2` for `t` up to 511."""
    i, j, f, f_low = _reduced(t, t_low)
    f, f_low = add(1.0, 0.0, -f, -f_low)
    e, e_low = multiply(_COARSE[0, i], _COARSE[1, i], _FINE[0, j], _FINE[1, j])
    return multiply(e, e_low, f, f_low)


@_compiled
def log_one_plus(v, v_low, y):  # type: ignore[no-untyped-def]
    """`log(1 + v)` within 80 `u^2`: the double `y` corrected by `log(1 + d)`, `d = (1 + v) exp(-y) - 1`."""
    one, one_low = add(1.0, 0.0, v, v_low)
    e, e_low = exponential(y, 0.0)
    f, f_low = exponential_fall(y, 0.0)
    # The same as v - (1 + v) (1 - exp(-y)), which are smaller terms where v is small
    is_small = v <= 1.0
    sign = -1.0 if is_small else 1.0
    p, p_low = multiply(one, one_low, f if is_small else e, f_low if is_small else e_low)
    d, d_low = add(sign * p, sign * p_low, v if is_small else -1.0, v_low if is_small else 0.0)
    return add(y, 0.0, d, d_low - 0.5 * d * d)


# 1 - (polynomial of the Matern kernel) exp(-r) is exp(-r) times these series, without their first two terms.
_TAILS = np.stack([_INVERSE_FACTORIALS, _INVERSE_FACTORIALS])
_TAILS[1, :, 2] = _pairs([_DIGITS.divide(1, 6)])[:, 0]
_THIRD = _pairs([_DIGITS.divide(1, 3)])[:, 0]


@_compiled
def matern_fall(order, r, r_low):  # type: ignore[no-untyped-def]
    """`1 - (1 + r) exp(-r)` (order 0) or `1 - (1 + r + r^2 / 3) exp(-r)` (order 1), within 300 `u^2`."""
    r, r_low = _within_tables(r, r_low)  # or else r^2 would grow where exp(-r) does not fall any more
    e, e_low = exponential(r, r_low)
    if r > 1.0:
        head, head_low = 1.0, 0.0
        if order == 1:
            head, head_low = multiply(r, r_low, _THIRD[0], _THIRD[1])
            head, head_low = add(head, head_low, 1.0, 0.0)
        head, head_low = multiply(head, head_low, r, r_low)
        head, head_low = add(head, head_low, 1.0, 0.0)
        head, head_low = multiply(head, head_low, e, e_low)
        return add(1.0, 0.0, -head, -head_low)
    tail = 0.0
    for i in range(30, 18, -1):  # all these together are below 2^-50 of the first term
        tail = (tail + _TAILS[order, 0, i]) * r
    tail_low = 0.0
    for i in range(18, 1, -1):
        tail, tail_low = add(tail, tail_low, _TAILS[order, 0, i], _TAILS[order, 1, i])
        tail, tail_low = multiply(tail, tail_low, r, r_low)
    tail, tail_low = multiply(tail, tail_low, r, r_low)
    return multiply(tail, tail_low, e, e_low)


@_compiled
def add_all(a, a_low, b, b_low):  # type: ignore[no-untyped-def]
    """`add` for the entries of two arrays."""
    high, low = np.empty_like(a), np.empty_like(a)
    for i in range(a.size):
        high[i], low[i] = add(a[i], a_low[i], b[i], b_low[i])
    return high, low


@_compiled
def multiply_all(a, a_low, factor, factor_low):  # type: ignore[no-untyped-def]
    """`multiply` for the entries of an array, by one factor."""
    high, low = np.empty_like(a), np.empty_like(a)
    for i in range(a.size):
        high[i], low[i] = multiply(a[i], a_low[i], factor, factor_low)
    return high, low


@_compiled
def product_falls(variance_a, a, a_low, variance_b, b, b_low):  # type: ignore[no-untyped-def]
    """`a0 b0 - (a0 - a) (b0 - b) = a (b0 - b) + a0 b`."""
    high, low = np.empty_like(a), np.empty_like(a)
    for i in range(a.size):
        value, value_low = add(variance_b[0], variance_b[1], -b[i], -b_low[i])
        first, first_low = multiply(a[i], a_low[i], value, value_low)
        second, second_low = multiply(variance_a[0], variance_a[1], b[i], b_low[i])
        high[i], low[i] = add(first, first_low, second, second_low)
    return high, low


@_compiled
def squared_exponential_falls(s, s_low):  # type: ignore[no-untyped-def]
    """`1 - exp(-s / 2)`."""
    high, low = np.empty_like(s), np.empty_like(s)
    for i in range(s.size):
        high[i], low[i] = exponential_fall(0.5 * s[i], 0.5 * s_low[i])
    return high, low


@_compiled
def rational_quadratic_falls(s, s_low, alpha):  # type: ignore[no-untyped-def]
    """`1 - (1 + s / (2 alpha))^-alpha`."""
    high, low = np.empty_like(s), np.empty_like(s)
    inverse, inverse_low = reciprocal(2.0 * alpha)
    guess = np.log1p(s * inverse)
    for i in range(s.size):
        v, v_low = multiply(s[i], s_low[i], inverse, inverse_low)
        y, y_low = log_one_plus(v, v_low, guess[i])
        y, y_low = multiply(y, y_low, alpha, 0.0)
        high[i], low[i] = exponential_fall(y, y_low)
    return high, low


@_compiled
def matern12_falls(s, s_low):  # type: ignore[no-untyped-def]
    """`1 - exp(-sqrt(s))`."""
    high, low = np.empty_like(s), np.empty_like(s)
    for i in range(s.size):
        r, r_low = root(s[i], s_low[i])
        high[i], low[i] = exponential_fall(r, r_low)
    return high, low


@_compiled
def matern_falls(order, s, s_low):  # type: ignore[no-untyped-def]
    """Those of Matern32 (order 0) and Matern52 (order 1)."""
    high, low = np.empty_like(s), np.empty_like(s)
    for i in range(s.size):
        r, r_low = multiply(s[i], s_low[i], 3.0 + 2.0 * order, 0.0)
        r, r_low = root(r, r_low)
        high[i], low[i] = matern_fall(order, r, r_low)
    return high, low


@_compiled
def squared_distances(points, lengthscales):  # type: ignore[no-untyped-def]
    """`sum_j ((x_j - y_j) / l_j)^2` for all pairs of points, within `(20 + 3 n_dims) u^2`, ordered as falls are."""
    n, dims = points.shape
    columns = points.T.copy()
    high, low = np.zeros(n * (n - 1) // 2), np.zeros(n * (n - 1) // 2)
    for k in range(dims):
        x = columns[k]
        inverse, inverse_low = reciprocal(lengthscales[k])
        for a in range(1, n):
            first = a * (a - 1) // 2
            s, s_low = high[first : first + a], low[first : first + a]
            for b in range(a):
                d, d_low = two_sum(x[a], -x[b])
                d, d_low = multiply(d, d_low, inverse, inverse_low)
                d, d_low = multiply(d, d_low, d, d_low)
                s[b], s_low[b] = add(s[b], s_low[b], d, d_low)
    return high, low


@_compiled
def paired_sum(fall, fall_low, c):  # type: ignore[no-untyped-def]
    """`2 sum_{b < a} c_a c_b fall_ab` within `(6 n + 16) u^2` of the sum of absolute values, and that sum."""
    n = c.size
    sums, sums_low, sizes = np.zeros(n), np.zeros(n), np.zeros(n)
    for a in range(1, n):
        first = a * (a - 1) // 2
        for b in range(a):
            term, term_low = multiply(fall[first + b], fall_low[first + b], c[a], 0.0)
            sums[b], sums_low[b] = add(sums[b], sums_low[b], term, term_low)
            sizes[b] += abs(term)
    total, total_low, size = 0.0, 0.0, 0.0
    for b in range(n):
        term, term_low = multiply(sums[b], sums_low[b], c[b], 0.0)
        total, total_low = add(total, total_low, term, term_low)
        size += abs(c[b]) * sizes[b]
    return 2.0 * total, 2.0 * total_low, 2.0 * size
