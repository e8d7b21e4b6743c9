"""The walk along a path, compiled: piece by piece, from event to event; see `path`."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numba import njit

from ..arithmetic.rounding import UNIT_ROUNDOFF
from .active_set import NEGLIGIBLE, backward, combine_rows, drop, enter, settle

NORM_REACHED = 0
"""The squared norm reached its limit."""
THETA_REACHED = 1
"""The parameter reached its end."""
RAY = 2
"""No event ahead and no growth of the norm: the section of `L` lies in the span of the active ones."""
LOST = 3
"""Too many steps, or a dependence that no exchange resolves."""
STALLED = 4
"""Many events coincide here, and the path may circle among them: it has to go on from a hair ahead."""
_UNDERWAY = -1

_REFRESH_EVERY = 96
# After so many steps of no length in a row, the walk stalls.
_PATIENCE = 4


@njit(cache=True, nogil=True)
def begin(space, start):  # type: ignore[no-untyped-def]
    """Put an active set into the workspace, whatever was there."""
    L, order, sign, alpha = space[:4]
    members, sides, factor, weights = start
    for i in range(sign.size):
        sign[i] = 0
    for a in range(members.size):
        order[a] = members[a]
        sign[members[a]] = sides[a]
        alpha[a] = weights[a]
        for b in range(a + 1):
            L[a, b] = factor[a, b]


@njit(cache=True, nogil=True)
def path_length(norm2, square_limit, theta_end):  # type: ignore[no-untyped-def]
    """How long a path may be."""
    return min(theta_end, np.sqrt(square_limit / norm2)) if norm2 > 0.0 else theta_end


@njit(cache=True, nogil=True, error_model="numpy")
def walk(  # type: ignore[no-untyped-def]
    K,
    low,
    high,
    low_rate,
    high_rate,
    row,
    norm2,
    direction,
    square_limit,
    theta_least,
    theta_end,
    start_tau,
    theta,
    square,
    n,
    steps,
    space,
):
    """Follow the path from `theta` and the solution in the workspace; see the module's docstring.

    Parameters
    ----------
    K : (n_data, n_data)
        Kernel matrix, nugget included.
    low, high, low_rate, high_rate : (n_data,)
        The intervals at zero, and how fast their ends move.
    row, norm2 : (n_data,), float
        `L k(., x_i)` and `||L||^2`; zeros where `tau` does not move.
    direction : float
        1 or -1, the rate of `tau`.
    square_limit, theta_least, theta_end : float
        Where to stop: at a squared norm, though not before one parameter, and at the latest at another.
    start_tau, theta, square, n, steps : float, float, float, int, int
        `tau` at zero; where the path starts, with which squared norm and how many active points, after how many steps.
    space : Workspace
        Holds the solution at the start, and then that at the end.

    Returns the status, and the last four of the former at the end.

    """
    L, order, sign, alpha, rate, solved, values, value_rate, thetas, squares = space
    size = K.shape[0]
    # Rates that rounding does not tell from zero would let the same points leave and enter for ever.
    least_speed = 0.0
    for i in range(size):
        least_speed = max(least_speed, NEGLIGIBLE * max(abs(low_rate[i]), abs(high_rate[i])))

    max_steps = thetas.size - 1
    thetas[steps], squares[steps] = theta, square
    no_length = UNIT_ROUNDOFF * path_length(norm2, square_limit, theta_end)
    status, stalled, is_settled = np.int64(_UNDERWAY), 0, False
    while True:
        if not is_settled or steps % _REFRESH_EVERY == 0:
            settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved)
            is_settled = True
        if status != _UNDERWAY:
            break
        for a in range(n):
            rate[a] = solved[a]
        backward(L, n, rate)
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
        least_rate = 0.0
        for a in range(n):
            least_rate = max(least_rate, (1e-3 if is_ray else NEGLIGIBLE) * abs(rate[a]))

        event, leaving, entering, side = np.inf, np.int64(-1), np.int64(-1), np.int64(0)
        for a in range(n):
            if sign[order[a]] * rate[a] > least_rate:
                t = max(-alpha[a] / rate[a], 0.0)
                if t < event:
                    event, leaving = t, a
        if not is_ray:
            for i in range(size):
                above, below = value_rate[i] - high_rate[i], low_rate[i] - value_rate[i]
                room_above = high[i] + theta * high_rate[i] - values[i]
                room_below = values[i] - low[i] - theta * low_rate[i]
                # One branch that is hardly ever taken: guessing the direction of every point would cost more.
                if (room_above < event * above) | (room_below < event * below):
                    if sign[i] != 0 or event <= 0.0:
                        continue
                    if above > least_speed and room_above < event * above:
                        event, leaving, entering, side = max(room_above / above, 0.0), np.int64(-1), i, np.int64(1)
                    if below > least_speed and event > 0.0 and room_below < event * below:
                        event, leaving, entering, side = max(room_below / below, 0.0), np.int64(-1), i, np.int64(-1)

        end, end_status = theta_end - theta, THETA_REACHED
        if norm2 > 0.0 and not is_ray:
            # square + 2 t slope + t^2 growth = square_limit
            room = square_limit - square
            scale = max(abs(slope), np.sqrt(growth) * np.sqrt(abs(room)))  # squares could underflow
            discriminant = (slope / scale) ** 2 + growth / scale * (room / scale) if scale > 0.0 else -1.0
            if direction * room <= 0.0:
                to_limit = 0.0
            elif discriminant < 0.0:
                to_limit = np.inf
            else:
                to_limit = room / (slope + direction * scale * np.sqrt(discriminant))
            to_limit = max(to_limit, theta_least - theta)
            if to_limit < end:
                end, end_status = to_limit, NORM_REACHED

        step = min(event, end)
        if step == np.inf or (is_ray and event == np.inf):
            status, is_settled = np.int64(RAY), False
            continue
        if steps >= max_steps:
            status = np.int64(LOST)
            break
        steps += 1
        stalled = 0 if step > no_length or end <= event else stalled + 1
        if stalled > _PATIENCE:
            status = np.int64(STALLED)
            break
        square += step * (2.0 * slope + step * growth)
        theta += step
        thetas[steps], squares[steps] = theta, square
        for a in range(n):
            alpha[a] += step * rate[a]
        for i in range(size):
            values[i] += step * value_rate[i]
        if end <= event:
            status, is_settled = np.int64(end_status), False
        elif leaving >= 0:
            n = drop(L, order, n, alpha, sign, solved, leaving)
        else:
            end_rate = high_rate[entering] if side > 0 else low_rate[entering]
            n, entered = enter(K, L, order, n, alpha, sign, solved, entering, side, end_rate, 0.0)
            if not entered:
                status = np.int64(LOST)
                break
    return status, theta, square, n, steps
