r"""The active-set path: a family of interval-constrained least-norm problems, followed exactly.

For a parameter `theta` that grows, let

    f_theta = tau * k_L + sum_i alpha_i k_{x_i},   tau = start_tau + direction * theta

be the function of least norm with `low_i(theta) <= sum_j K_ij alpha_j <= high_i(theta)`, where both ends move
linearly. Then `alpha` is piecewise linear in `theta`: on a piece, the active set `A` (where `alpha != 0`) sits
on its ends, `K_AA alpha_A = b_A(theta)`. A piece ends when a weight of `A` reaches zero (it leaves) or the value
at an inactive point reaches an end of its interval (it enters). Three uses:

- *The query path.* `low = lower - tau K_XL`, likewise `high`: `f_theta` is the worst-case function of the bound
  of `L f`, and its norm grows with `tau` until it meets the norm bound.
- *The move* from one query to a neighbour with `tau` kept: `low = lower - tau (K_XL + theta (K_XL' - K_XL))`.
- *The noise path.* `low = lower - t0 + theta`, `high = upper + t0 - theta`, no `L`: from intervals so wide that zero
  fits into them down to the given ones. Its end is the minimum-norm regressor, its trail the consistency frontier.

Events are told apart by the sign of their rate, so an index that has just left cannot come straight back.
When the kernel section of an entering point depends (numerically) on those of the active ones, weight is
exchanged along the dependence until an active one drops out, as in the dual method of Goldfarb and Idnani.

Nothing here needs to be trusted: what comes out are weights, and bounds are evaluated from weights elsewhere.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from .kernels import UNIT_ROUNDOFF

ENERGY_REACHED = 0
"""The squared norm reached its limit."""
THETA_REACHED = 1
"""The parameter reached its end."""
RAY = 2
"""No event ahead and no growth of the norm: the section of `L` lies in the span of the active ones."""
LOST = 3
"""Too many steps, or a dependence that no exchange resolves."""

DEPENDENT = 1e-13
"""A point whose squared distance to the span of the active ones is below this share of `k(x, x)` depends on them."""

NEGLIGIBLE = 1e-13
"""Rates below this share of the largest count as zero."""

_REFRESH_EVERY = 24
_REORDER = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _forward(L, n, x):
    """`x <- L^-1 x`."""
    for i in range(n):
        total = x[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _backward(L, n, x):
    """`x <- L^-T x`."""
    for i in range(n - 1, -1, -1):
        x[i] /= L[i, i]
        scale = x[i]
        for j in range(i):
            x[j] -= L[i, j] * scale


@njit(cache=True, nogil=True)
def _delete(L, n, position):
    """The Cholesky factor after row and column `position` have gone, by Givens rotations."""
    for i in range(position, n - 1):
        for j in range(i + 2):
            L[i, j] = L[i + 1, j]
    for i in range(position, n - 1):
        a, b = L[i, i], L[i, i + 1]
        r = np.sqrt(a * a + b * b)
        c, s = a / r, b / r
        L[i, i] = r
        for k in range(i + 1, n - 1):
            x, y = L[k, i], L[k, i + 1]
            L[k, i] = c * x + s * y
            L[k, i + 1] = c * y - s * x


@njit(cache=True, nogil=True, fastmath=_REORDER)
def combine_rows(K, order, n, weights, out):
    """`out <- sum_{a < n} weights_a K[order_a]`, four rows at a time: the hot loop when hundreds are active."""
    size = out.size
    out[:] = 0.0
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
def _drop(L, order, n, alpha, sign, position):
    """Take the active point at `position` out; returns the new number of active points."""
    sign[order[position]] = 0
    _delete(L, n, position)
    for a in range(position, n - 1):
        order[a] = order[a + 1]
        alpha[a] = alpha[a + 1]
    return n - 1


@njit(cache=True, nogil=True)
def _enter(K, L, order, n, alpha, sign, new, side):
    """Let the point `new` enter at its upper (`side` = 1) or lower (-1) end.

    Returns the new number of active points, and whether `new` could enter: a dependence may have no exchange.
    """
    column = np.empty(n)
    gained = 0.0
    while True:
        for a in range(n):
            column[a] = K[new, order[a]]
        _forward(L, n, column)
        distance2 = K[new, new]
        for a in range(n):
            distance2 -= column[a] * column[a]
        if distance2 > DEPENDENT * K[new, new]:
            for a in range(n):
                L[n, a] = column[a]
            L[n, n] = np.sqrt(distance2)
            order[n], sign[new], alpha[n] = new, side, gained
            return n + 1, True
        _backward(L, n, column)  # k_new = sum_a column_a k_a, near enough
        step, leaving = np.inf, -1
        for a in range(n):
            rate = sign[order[a]] * side * column[a]
            if rate > 0:
                t = max(-sign[order[a]] * alpha[a] / rate, 0.0)
                if t < step:
                    step, leaving = t, a
        if leaving < 0:
            return n, False
        for a in range(n):
            alpha[a] += side * step * column[a]
        gained -= side * step
        n = _drop(L, order, n, alpha, sign, leaving)


@njit(cache=True, nogil=True)
def _settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values):
    """Recompute weights and values at `theta` from the active set, with one step of iterative refinement."""
    target = np.empty(n)
    for a in range(n):
        i = order[a]
        target[a] = high[i] + theta * high_rate[i] if sign[i] > 0 else low[i] + theta * low_rate[i]
        alpha[a] = target[a]
    _forward(L, n, alpha)
    _backward(L, n, alpha)
    combine_rows(K, order, n, alpha, values)
    for a in range(n):
        target[a] -= values[order[a]]
    _forward(L, n, target)
    _backward(L, n, target)
    for a in range(n):
        alpha[a] += target[a]
    combine_rows(K, order, n, alpha, values)


@njit(cache=True, nogil=True)
def follow(
    K,
    low,
    high,
    low_rate,
    high_rate,
    row,
    norm2,
    direction,
    energy_limit,
    theta_least,
    theta_end,
    start_order,
    start_sign,
    start_factor,
    start_alpha,
    start_energy,
    start_tau,
):
    """Follow the path from `theta = 0` and a given solution there; see the module's docstring.

    Parameters
    ----------
    K : (n, n)
        Kernel matrix, nugget included.
    low, high, low_rate, high_rate : (n,)
        The intervals at zero, and how fast their ends move.
    row, norm2 : (n,), float
        `L k(., x_i)` and `||L||^2`; zeros where `tau` does not move.
    direction : float
        1 or -1, the rate of `tau`.
    energy_limit, theta_least, theta_end : float
        Where to stop: at a squared norm, though not before one parameter, and at the latest at another.
    start_order, start_sign, start_factor, start_alpha : (m,), (m,), (m, m), (m,)
        The active set at zero, which ends it sits on, the Cholesky factor of its kernel matrix, its weights.
    start_energy, start_tau : float
        Squared norm and `tau` at zero.

    Returns
    -------
    status, tau, energy, order, sign, factor, alpha, rate, thetas, energies
        How and where it ended; the active set, ends, factor, weights and their rates there; the trail of
        breakpoints.
    """
    size = K.shape[0]
    n = start_order.size
    L = np.empty((size + 1, size + 1))
    order = np.empty(size + 1, dtype=np.int64)
    alpha = np.zeros(size + 1)
    rate = np.zeros(size + 1)
    sign = np.zeros(size, dtype=np.int64)
    values = np.empty(size)
    value_rate = np.empty(size)
    order[:n] = start_order
    alpha[:n] = start_alpha
    L[:n, :n] = start_factor
    for a in range(n):
        sign[start_order[a]] = start_sign[a]
    combine_rows(K, order, n, alpha, values)

    max_steps = 10 * size + 200
    thetas, energies = np.empty(max_steps + 1), np.empty(max_steps + 1)
    thetas[0], energies[0] = 0.0, start_energy
    theta, energy = 0.0, start_energy
    status, steps, stalled = LOST, 0, 0
    while steps < max_steps and stalled <= 2 * size + 10:
        for a in range(n):
            i = order[a]
            rate[a] = high_rate[i] if sign[i] > 0 else low_rate[i]
        _forward(L, n, rate)
        _backward(L, n, rate)
        combine_rows(K, order, n, rate, value_rate)

        # f' = direction k_L + sum rate_a k_a: squared norm, and inner product with f
        tau = start_tau + direction * theta
        growth, slope = norm2, tau * direction * norm2
        for a in range(n):
            i = order[a]
            end_rate = high_rate[i] if sign[i] > 0 else low_rate[i]
            growth += rate[a] * (2.0 * direction * row[i] + end_rate)
            slope += tau * rate[a] * row[i] + alpha[a] * (direction * row[i] + end_rate)
        growth = max(growth, 0.0)

        # On a ray f stands still: weight only moves from one representation of it to another, until one runs out.
        is_ray = norm2 > 0.0 and growth <= 64.0 * UNIT_ROUNDOFF * norm2
        if is_ray:
            growth, slope = 0.0, 0.0
        # Rates that rounding does not tell from zero would let the same points leave and enter for ever.
        least_rate, least_speed = 0.0, 0.0
        for a in range(n):
            least_rate = max(least_rate, (1e-3 if is_ray else NEGLIGIBLE) * abs(rate[a]))
        for i in range(size):
            least_speed = max(least_speed, NEGLIGIBLE * max(abs(low_rate[i]), abs(high_rate[i])))

        event, leaving, entering, side = np.inf, -1, -1, 0
        for a in range(n):
            if sign[order[a]] * rate[a] > least_rate:
                t = max(-alpha[a] / rate[a], 0.0)
                if t < event:
                    event, leaving = t, a
        if not is_ray:
            for i in range(size):
                if sign[i] == 0:
                    speed = value_rate[i] - high_rate[i]
                    if speed > least_speed:
                        t = max((high[i] + theta * high_rate[i] - values[i]) / speed, 0.0)
                        if t < event:
                            event, leaving, entering, side = t, -1, i, 1
                    speed = low_rate[i] - value_rate[i]
                    if speed > least_speed:
                        t = max((values[i] - low[i] - theta * low_rate[i]) / speed, 0.0)
                        if t < event:
                            event, leaving, entering, side = t, -1, i, -1

        end, end_status = theta_end - theta, THETA_REACHED
        if norm2 > 0.0 and not is_ray:
            # energy + 2 t slope + t^2 growth = energy_limit
            room = energy_limit - energy
            discriminant = slope * slope + growth * room
            if direction * room <= 0.0:
                to_limit = 0.0
            elif discriminant < 0.0:
                to_limit = np.inf
            else:
                to_limit = room / (slope + direction * np.sqrt(discriminant))
            to_limit = max(to_limit, theta_least - theta)
            if to_limit < end:
                end, end_status = to_limit, ENERGY_REACHED

        step = min(event, end)
        if step == np.inf or (is_ray and event == np.inf):
            status = RAY
            break
        steps += 1
        stalled = 0 if step > 0.0 else stalled + 1
        energy += step * (2.0 * slope + step * growth)
        theta += step
        thetas[steps], energies[steps] = theta, energy
        for a in range(n):
            alpha[a] += step * rate[a]
        for i in range(size):
            values[i] += step * value_rate[i]
        if end <= event:
            status = end_status
            break
        if leaving >= 0:
            n = _drop(L, order, n, alpha, sign, leaving)
        else:
            n, entered = _enter(K, L, order, n, alpha, sign, entering, side)
            if not entered:
                break
        if steps % _REFRESH_EVERY == 0:
            _settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values)

    if status != LOST:
        _settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values)
    active = order[:n].copy()
    return (
        status,
        start_tau + direction * theta,
        energy,
        active,
        sign[active],
        np.tril(L[:n, :n]),
        alpha[:n].copy(),
        rate[:n].copy(),
        thetas[: steps + 1].copy(),
        energies[: steps + 1].copy(),
    )
