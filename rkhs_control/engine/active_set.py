"""The compiled linear algebra of an active set: a Cholesky factor `L` of `K_AA` that points enter and leave.

Arrays are longer than the active set, whose size is the argument `n`; `order` lists its points, `alpha` their weights
in that order, and `sign` says of every point whether it sits on its upper end (1), its lower end (-1) or is not active.
The diagonal of `L` is kept as reciprocals, which spares the many triangular solves their divisions. `solved` is
`L^-1 b` for the rates `b` at which the ends of the active points move, kept up to date with `L`.

Compiling takes time. Integers begin as `np.int64(0)`, not 0, for which numba would compile what they are passed to a
second time; and loops stand where array expressions would compile their broadcasting with them.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numba import njit

from .compilation import forget_stale_code, tell_when_compiling

forget_stale_code()
tell_when_compiling()

DEPENDENT = 1e-13
"""A point whose squared distance to the span of the active ones is below this share of `k(x, x)` depends on them."""

NEGLIGIBLE = 1e-13
"""Rates and violations below this share of the largest count as zero."""

_REORDER = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, fastmath=_REORDER)
def forward(L, n, x):
    """`x <- L^-1 x`."""
    for i in range(n):
        total = x[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total * L[i, i]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def backward(L, n, x):
    """`x <- L^-T x`."""
    for i in range(n - 1, -1, -1):
        x[i] *= L[i, i]
        scale = x[i]
        for j in range(i):
            x[j] -= L[i, j] * scale


@njit(cache=True, nogil=True, fastmath=_REORDER)
def combine_rows(K, order, n, weights, out):
    """`out <- sum_{a < n} weights_a K[order_a]`, four rows at a time: the hot loop when hundreds are active."""
    size = out.size
    for i in range(size):
        out[i] = 0.0
    a = 0
    while a + 4 <= n:
        r0, r1, r2, r3 = K[order[a]], K[order[a + 1]], K[order[a + 2]], K[order[a + 3]]
        w0, w1, w2, w3 = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
        for i in range(size):
            out[i] += w0 * r0[i] + w1 * r1[i] + w2 * r2[i] + w3 * r3[i]
        a += 4
    while a < n:
        row, w = K[order[a]], weights[a]
        for i in range(size):
            out[i] += w * row[i]
        a += 1


@njit(cache=True, nogil=True)
def drop(L, order, n, alpha, sign, solved, position):
    """Take the active point at `position` out; returns the new number of active points.

    Row and column of the Cholesky factor go by Givens rotations, with which `solved` turns.
    """
    sign[order[position]] = 0
    for a in range(position, n - 1):
        order[a] = order[a + 1]
        alpha[a] = alpha[a + 1]
        for b in range(a + 2):
            L[a, b] = L[a + 1, b]
    for i in range(position, n - 1):
        a, b = L[i, i], 1.0 / L[i, i + 1]  # below the diagonal, and on it, before the rows moved up
        inverse = 1.0 / np.sqrt(a * a + b * b)
        c, s = a * inverse, b * inverse
        L[i, i] = inverse
        x, y = solved[i], solved[i + 1]
        solved[i] = c * x + s * y
        solved[i + 1] = c * y - s * x
        for k in range(i + 1, n - 1):
            x, y = L[k, i], L[k, i + 1]
            L[k, i] = c * x + s * y
            L[k, i + 1] = c * y - s * x
    return n - 1


@njit(cache=True, nogil=True)
def enter(K, L, order, n, alpha, sign, solved, new, side, end_rate, violation):
    """Let the point `new` enter at its upper (`side` = 1) or lower (-1) end, which its value passes by `violation`.

    A step of the dual method of Goldfarb and Idnani: the weight of `new` grows until its value is on the end, which
    moves at `end_rate`; an active point whose weight would change its sign on the way leaves.
    Returns the new number of active points, and whether `new` could enter: a dependence may have no exchange.
    """
    column, projection = np.empty(n), np.empty(n)
    gained = 0.0
    while True:
        for a in range(n):
            column[a] = K[new, order[a]]
        forward(L, n, column)
        distance2 = K[new, new]
        for a in range(n):
            distance2 -= column[a] * column[a]
            projection[a] = column[a]
        is_dependent = distance2 <= DEPENDENT * K[new, new]
        step, leaving = np.inf if is_dependent else violation / distance2, np.int64(-1)
        if step > 0.0:
            backward(L, n, projection)  # that of k_new onto the active sections
            for a in range(n):
                rate = sign[order[a]] * side * projection[a]
                if rate > 0:
                    t = max(-sign[order[a]] * alpha[a] / rate, 0.0)
                    if t < step:
                        step, leaving = t, a
            if is_dependent and leaving < 0:
                return n, False
            for a in range(n):
                alpha[a] += side * step * projection[a]
            gained -= side * step
        if leaving < 0:
            break
        if not is_dependent:
            violation -= step * distance2
        n = drop(L, order, n, alpha, sign, solved, leaving)
    L[n, n] = 1.0 / np.sqrt(distance2)
    solved[n] = end_rate
    for a in range(n):
        L[n, a] = column[a]
        solved[n] -= column[a] * solved[a]
    solved[n] *= L[n, n]
    order[n], sign[new], alpha[n] = new, side, gained
    return n + 1, True


@njit(cache=True, nogil=True)
def settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved):
    """Recompute all of it at `theta` from the active set, the weights with one step of iterative refinement."""
    target = np.empty(n)
    for a in range(n):
        i = order[a]
        target[a] = high[i] + theta * high_rate[i] if sign[i] > 0 else low[i] + theta * low_rate[i]
        solved[a] = high_rate[i] if sign[i] > 0 else low_rate[i]
        alpha[a] = target[a]
    forward(L, n, solved)
    forward(L, n, alpha)
    backward(L, n, alpha)
    combine_rows(K, order, n, alpha, values)
    for a in range(n):
        target[a] -= values[order[a]]
    forward(L, n, target)
    backward(L, n, target)
    for a in range(n):
        alpha[a] += target[a]
    combine_rows(K, order, n, alpha, values)


@njit(cache=True, nogil=True)
def ascend(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved):
    """The function of least norm through the intervals at `theta`, from any active set: the dual method.

    Active points whose weights have the wrong sign leave, the one that is most wrong first; then the most violated
    interval enters, until none is. Every entry raises the least norm, so none comes back to where it was: ties, which a
    path can circle in, are nothing here.
    Returns the number of active points, and whether no interval is missed by more than rounding.
    """
    size = values.size
    for _ in range(20 * size + 200):
        leaving = np.int64(0)
        while leaving >= 0:
            settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved)
            worst, leaving, weight = 0.0, np.int64(-1), 0.0
            for a in range(n):
                weight += abs(alpha[a])
                if sign[order[a]] * alpha[a] > worst:
                    worst, leaving = sign[order[a]] * alpha[a], a
            if leaving >= 0:
                n = drop(L, order, n, alpha, sign, solved, leaving)
        worst, entering, side, scale = 0.0, np.int64(-1), np.int64(0), 0.0
        for i in range(size):
            scale = max(scale, abs(values[i]))
            if sign[i] == 0:
                above = values[i] - high[i] - theta * high_rate[i]
                below = low[i] + theta * low_rate[i] - values[i]
                if above > worst:
                    worst, entering, side = above, i, np.int64(1)
                if below > worst:
                    worst, entering, side = below, i, np.int64(-1)
        if entering < 0 or worst <= NEGLIGIBLE * (scale + K[0, 0] * weight):
            return n, True
        end_rate = high_rate[entering] if side > 0 else low_rate[entering]
        n, entered = enter(K, L, order, n, alpha, sign, solved, entering, side, end_rate, worst)
        if not entered:
            break
    return n, False
