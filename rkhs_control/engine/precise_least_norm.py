"""The least norm in double-double, for data that only a function of huge weights passes through.

Smooth kernels on saturated, binary or coarsely quantised outputs need weights so large that doubles lose the values
which they add up to. A regularised matrix would find smaller ones, and a least norm that is far too small. Here is the
dual method of `active_set.ascend` once more, with twice the digits. It is called once per data set, if at all.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ..arithmetic.double_double import PreciseFall, add, divide, multiply, root
from ..data.arrays import FloatArray, IndexArray
from ..kernels.base import Kernel
from .witness import Witness

_DEPENDENT = 1e-27
"""A point whose squared distance to the span of the active ones is below this share of `k(x, x)` depends on them."""
_ACCURACY = 1e-12
"""Violations below this share of the largest value count as none."""


class PreciseWeights(NamedTuple):
    """Weights on a few of the data, each in two parts: a double, and what that loses."""

    indices: IndexArray
    high: FloatArray
    low: FloatArray

    @property
    def rounded(self) -> Witness:
        """Of the first parts."""
        return Witness.sparse(self.indices, self.high)

    @property
    def whole(self) -> Witness:
        """What doubles lose of a weight is a second weight on the same input."""
        return Witness.sparse(np.tile(self.indices, 2), np.concatenate([self.high, self.low]))


def precise_weights(kernel: Kernel, X: FloatArray, lower: FloatArray, upper: FloatArray) -> PreciseWeights | None:
    """The weights of the function of least norm; None where it takes still more digits, or the kernel has none."""
    fall = kernel.precise_fall(X)
    if fall is None or not np.isfinite(fall.error):
        return None
    *parts, is_there = _ascend(*_matrix(fall, len(X)), lower, upper)
    return PreciseWeights(*parts) if is_there else None


def _matrix(fall: PreciseFall, n: int) -> tuple[FloatArray, FloatArray]:
    high, low = np.empty((n, n)), np.empty((n, n))
    _fill(high, low, fall.variance[0], fall.variance[1], fall.high, fall.low)
    return high, low


@njit(cache=True, nogil=True)
def _fill(high, low, variance, variance_low, fall, fall_low):
    for a in range(len(high)):
        high[a, a], low[a, a] = variance, variance_low
        for b in range(a):
            pair = a * (a - 1) // 2 + b
            high[a, b], low[a, b] = add(variance, variance_low, -fall[pair], -fall_low[pair])
            high[b, a], low[b, a] = high[a, b], low[a, b]


@njit(cache=True, nogil=True)
def _forward(L, L_low, n, x, x_low):
    """`x <- L^-1 x`."""
    for i in range(n):
        for j in range(i):
            p, p_low = multiply(L[i, j], L_low[i, j], x[j], x_low[j])
            x[i], x_low[i] = add(x[i], x_low[i], -p, -p_low)
        x[i], x_low[i] = divide(x[i], x_low[i], L[i, i], L_low[i, i])


@njit(cache=True, nogil=True)
def _backward(L, L_low, n, x, x_low):
    """`x <- L^-T x`."""
    for i in range(n - 1, -1, -1):
        x[i], x_low[i] = divide(x[i], x_low[i], L[i, i], L_low[i, i])
        for j in range(i):
            p, p_low = multiply(L[i, j], L_low[i, j], x[i], x_low[i])
            x[j], x_low[j] = add(x[j], x_low[j], -p, -p_low)


@njit(cache=True, nogil=True)
def _extend(K, K_low, L, L_low, order, n, new):
    """Row `n` of the factor, for the point `new` behind the first `n` active ones; returns its squared distance."""
    for a in range(n):
        L[n, a], L_low[n, a] = K[new, order[a]], K_low[new, order[a]]
    _forward(L, L_low, n, L[n], L_low[n])
    distance2, distance2_low = K[new, new], K_low[new, new]
    for a in range(n):
        p, p_low = multiply(L[n, a], L_low[n, a], L[n, a], L_low[n, a])
        distance2, distance2_low = add(distance2, distance2_low, -p, -p_low)
    if distance2 > 0.0:
        L[n, n], L_low[n, n] = root(distance2, distance2_low)
    return distance2


@njit(cache=True, nogil=True)
def _delete(L, L_low, n, position):
    """The factor after row and column `position` have gone, by Givens rotations."""
    for i in range(position, n - 1):
        L[i, : i + 2], L_low[i, : i + 2] = L[i + 1, : i + 2], L_low[i + 1, : i + 2]
    for i in range(position, n - 1):
        p, p_low = multiply(L[i, i], L_low[i, i], L[i, i], L_low[i, i])
        q, q_low = multiply(L[i, i + 1], L_low[i, i + 1], L[i, i + 1], L_low[i, i + 1])
        p, p_low = add(p, p_low, q, q_low)
        r, r_low = root(p, p_low)
        c, c_low = divide(L[i, i], L_low[i, i], r, r_low)
        s, s_low = divide(L[i, i + 1], L_low[i, i + 1], r, r_low)
        for k in range(i, n - 1):
            x, x_low, y, y_low = L[k, i], L_low[k, i], L[k, i + 1], L_low[k, i + 1]
            p, p_low = multiply(c, c_low, x, x_low)
            q, q_low = multiply(s, s_low, y, y_low)
            L[k, i], L_low[k, i] = add(p, p_low, q, q_low)
            p, p_low = multiply(c, c_low, y, y_low)
            q, q_low = multiply(s, s_low, x, x_low)
            L[k, i + 1], L_low[k, i + 1] = add(p, p_low, -q, -q_low)


@njit(cache=True, nogil=True)
def _ascend(K, K_low, lower, upper):
    """Active points, their weights in two parts, and whether it got there; see `active_set.ascend` and `.enter`."""
    size = lower.size
    L, L_low = np.empty((size + 1, size + 1)), np.empty((size + 1, size + 1))
    order, sign, n = np.empty(size + 1, dtype=np.int64), np.zeros(size, dtype=np.int64), 0
    alpha, alpha_low = np.zeros(size + 1), np.zeros(size + 1)
    for _ in range(20 * size + 200):
        entering, side, violation, scale = -1, 0, 0.0, 0.0
        for i in range(size):
            if sign[i] == 0:
                v, v_low = 0.0, 0.0
                for a in range(n):
                    p, p_low = multiply(K[i, order[a]], K_low[i, order[a]], alpha[a], alpha_low[a])
                    v, v_low = add(v, v_low, p, p_low)
                scale = max(scale, abs(v))
                above, below = (v - upper[i]) + v_low, (lower[i] - v) - v_low
                if above > violation:
                    entering, side, violation = i, 1, above
                if below > violation:
                    entering, side, violation = i, -1, below
        if entering < 0 or violation <= _ACCURACY * scale:
            return order[:n].copy(), alpha[:n].copy(), alpha_low[:n].copy(), True
        projection, projection_low = np.empty(n), np.empty(n)
        while True:
            distance2 = _extend(K, K_low, L, L_low, order, n, entering)
            is_dependent = distance2 <= _DEPENDENT * K[entering, entering]
            projection[:n], projection_low[:n] = L[n, :n], L_low[n, :n]
            _backward(L, L_low, n, projection, projection_low)
            step, leaving = np.inf if is_dependent else violation / distance2, -1
            for a in range(n):
                rate = sign[order[a]] * side * projection[a]
                if rate > 0.0:
                    t = max(-sign[order[a]] * alpha[a] / rate, 0.0)
                    if t < step:
                        step, leaving = t, a
            if leaving < 0:
                break
            for a in range(n):
                p, p_low = multiply(projection[a], projection_low[a], side * step, 0.0)
                alpha[a], alpha_low[a] = add(alpha[a], alpha_low[a], p, p_low)
            if not is_dependent:
                violation -= step * distance2
            sign[order[leaving]] = 0
            n -= 1
            for a in range(leaving, n):
                order[a], alpha[a], alpha_low[a] = order[a + 1], alpha[a + 1], alpha_low[a + 1]
            _delete(L, L_low, n + 1, leaving)
        if is_dependent:
            break
        order[n], sign[entering], n = entering, side, n + 1
        # The weights that put all active points on their ends; signs stay, but for rounding
        for a in range(n):
            alpha[a], alpha_low[a] = upper[order[a]] if sign[order[a]] > 0 else lower[order[a]], 0.0
        _forward(L, L_low, n, alpha, alpha_low)
        _backward(L, L_low, n, alpha, alpha_low)
    return order[:n].copy(), alpha[:n].copy(), alpha_low[:n].copy(), False
