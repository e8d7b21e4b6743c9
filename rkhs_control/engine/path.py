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
Where many events coincide (equal outputs, as of a saturated signal), a path can circle among them; there the same
method solves the problem a hair ahead, and the path goes on from that solution.

Nothing here needs to be trusted: what comes out are weights, and bounds are evaluated from weights elsewhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import FloatArray, IndexArray
from .active_set import NEGLIGIBLE, ascend, backward, combine_rows, drop, enter, forward, settle

NORM_REACHED = 0
"""The squared norm reached its limit."""
THETA_REACHED = 1
"""The parameter reached its end."""
RAY = 2
"""No event ahead and no growth of the norm: the section of `L` lies in the span of the active ones."""
LOST = 3
"""Too many steps, or a dependence that no exchange resolves."""

_REFRESH_EVERY = 24
# After so many steps of no length in a row, the path jumps ahead by this share of its length.
_PATIENCE, _HAIR = 4, 1e-9


class ActiveSet(NamedTuple):
    """A solution on a path: which points are active, on which ends (1 upper, -1 lower), and their weights."""

    order: IndexArray
    sides: IndexArray
    factor: FloatArray
    """`L` with `L L' = K_AA`."""
    weights: FloatArray

    def mirrored(self) -> ActiveSet:
        """The same for the data of `-f`."""
        return self._replace(sides=-self.sides, weights=-self.weights)


class PathEnd(NamedTuple):
    """How and where a path ended, and the trail of its breakpoints."""

    status: int
    tau: float
    square: float
    """The squared norm there."""
    active: ActiveSet
    rates: FloatArray
    """Rates of the weights in front of the end."""
    thetas: FloatArray
    squares: FloatArray
    """Squared norms at the breakpoints."""


NOTHING = ActiveSet(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 0)), np.empty(0))


def least_norm_solution(K: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[ActiveSet, bool]:
    """The function of least norm through all intervals, by the dual method; and whether it got there."""
    return _least_norm_solution(K, lower, upper)  # type: ignore[no-any-return]


def follow_noise(K: FloatArray, lower: FloatArray, upper: FloatArray, *, widest: float, narrowing: float) -> PathEnd:
    """The noise path: every interval starts `widest` wider at both ends and ends `narrowing` narrower."""
    inwards = np.ones(len(lower))
    ends = lower - widest, upper + widest
    end: PathEnd = _follow(
        K,
        *ends,
        low_rate=inwards,
        high_rate=-inwards,
        row=np.zeros(len(lower)),
        norm2=0.0,
        direction=1.0,
        square_limit=math.inf,
        theta_least=0.0,
        theta_end=widest + narrowing,
        start=NOTHING,
        start_square=0.0,
        start_tau=0.0,
    )
    return end


def follow_query(
    K: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    row: FloatArray,
    norm2: float,
    start: ActiveSet,
    square: float,
    square_limit: float,
    tau_end: float,
    tau: float = 0.0,
    tau_least: float = 0.0,
) -> PathEnd:
    """The query path of a functional `(row, norm2)` from a solution at `tau`, up or down to `square_limit`.

    `square` is the squared norm at the start, `square_limit` the one to stop at; but not below `tau_least`, and at
    `tau_end` at the latest.
    """
    direction = -1.0 if tau > 0.0 and square > square_limit else 1.0
    rate = -direction * row
    ends = lower - tau * row, upper - tau * row
    end: PathEnd = _follow(
        K,
        *ends,
        low_rate=rate,
        high_rate=rate,
        row=row,
        norm2=norm2,
        direction=direction,
        square_limit=square_limit,
        theta_least=tau_least,
        theta_end=tau_end - tau if direction > 0 else tau,
        start=start,
        start_square=square,
        start_tau=tau,
    )
    return end


def follow_move(
    K: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    row: FloatArray,
    new_row: FloatArray,
    tau: float,
    start: ActiveSet,
) -> PathEnd:
    """The move from the solution of one query to that of another at the same `tau`; squared norms are not kept."""
    rate = -tau * (new_row - row)
    ends = lower - tau * row, upper - tau * row
    end: PathEnd = _follow(
        K,
        *ends,
        low_rate=rate,
        high_rate=rate,
        row=np.zeros(len(row)),
        norm2=0.0,
        direction=1.0,
        square_limit=math.inf,
        theta_least=0.0,
        theta_end=1.0,
        start=start,
        start_square=0.0,
        start_tau=tau,
    )
    return end


@njit(cache=True, nogil=True)
def _follow(  # type: ignore[no-untyped-def]
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
    start,
    start_square,
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
    square_limit, theta_least, theta_end : float
        Where to stop: at a squared norm, though not before one parameter, and at the latest at another.
    start : ActiveSet
        The solution at zero.
    start_square, start_tau : float
        Squared norm and `tau` at zero.

    """
    size = K.shape[0]
    n = start.order.size
    L = np.empty((size + 1, size + 1))
    order = np.empty(size + 1, dtype=np.int64)
    alpha = np.zeros(size + 1)
    rate = np.zeros(size + 1)
    solved = np.empty(size + 1)
    sign = np.zeros(size, dtype=np.int64)
    values = np.empty(size)
    value_rate = np.empty(size)
    order[:n] = start.order
    alpha[:n] = start.weights
    L[:n, :n] = start.factor
    for a in range(n):
        sign[start.order[a]] = start.sides[a]
    combine_rows(K, order, n, alpha, values)
    for a in range(n):
        solved[a] = high_rate[order[a]] if sign[order[a]] > 0 else low_rate[order[a]]
    forward(L, n, solved)

    # Rates that rounding does not tell from zero would let the same points leave and enter for ever.
    least_speed = 0.0
    for i in range(size):
        least_speed = max(least_speed, NEGLIGIBLE * max(abs(low_rate[i]), abs(high_rate[i])))

    max_steps = 10 * size + 200
    thetas, squares = np.empty(max_steps + 1), np.empty(max_steps + 1)
    thetas[0], squares[0] = 0.0, start_square
    theta, square = 0.0, start_square
    length = theta_end
    if norm2 > 0.0:
        length = min(length, np.sqrt(square_limit / norm2))
    status, steps, stalled = LOST, 0, 0
    while steps < max_steps:
        rate[:n] = solved[:n]
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
                    room = high[i] + theta * high_rate[i] - values[i]
                    if speed > least_speed and event > 0.0 and room < event * speed:
                        event, leaving, entering, side = max(room / speed, 0.0), -1, i, 1
                    speed = low_rate[i] - value_rate[i]
                    room = values[i] - low[i] - theta * low_rate[i]
                    if speed > least_speed and event > 0.0 and room < event * speed:
                        event, leaving, entering, side = max(room / speed, 0.0), -1, i, -1

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
            status = RAY
            break
        steps += 1
        stalled = 0 if step > UNIT_ROUNDOFF * length or end <= event else stalled + 1
        if stalled > _PATIENCE:
            stalled = 0
            theta = min(theta + _HAIR * length, theta_end)
            n, is_there = ascend(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved)
            if not is_there:
                break
            tau = start_tau + direction * theta
            square = tau * tau * norm2
            for a in range(n):
                square += alpha[a] * (2.0 * tau * row[order[a]] + values[order[a]])
            thetas[steps], squares[steps] = theta, square
            continue
        square += step * (2.0 * slope + step * growth)
        theta += step
        thetas[steps], squares[steps] = theta, square
        for a in range(n):
            alpha[a] += step * rate[a]
        for i in range(size):
            values[i] += step * value_rate[i]
        if end <= event:
            status = end_status
            break
        if leaving >= 0:
            n = drop(L, order, n, alpha, sign, solved, leaving)
        else:
            end_rate = high_rate[entering] if side > 0 else low_rate[entering]
            n, entered = enter(K, L, order, n, alpha, sign, solved, entering, side, end_rate, 0.0)
            if not entered:
                break
        if steps % _REFRESH_EVERY == 0:
            settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved)

    if status != LOST:
        settle(K, L, order, n, sign, low, high, low_rate, high_rate, theta, alpha, values, solved)
    members = order[:n].copy()
    active = ActiveSet(members, sign[members], np.tril(L[:n, :n]), alpha[:n].copy())
    trail = thetas[: steps + 1].copy(), squares[: steps + 1].copy()
    return PathEnd(status, start_tau + direction * theta, square, active, rate[:n].copy(), trail[0], trail[1])


@njit(cache=True, nogil=True)
def _least_norm_solution(K, lower, upper):  # type: ignore[no-untyped-def]
    size = lower.size
    L, order = np.empty((size + 1, size + 1)), np.empty(size + 1, dtype=np.int64)
    alpha, solved, values = np.zeros(size + 1), np.empty(size + 1), np.empty(size)
    sign, still = np.zeros(size, dtype=np.int64), np.zeros(size)
    n, is_there = ascend(K, L, order, 0, sign, lower, upper, still, still, 0.0, alpha, values, solved)
    members = order[:n].copy()
    return ActiveSet(members, sign[members], np.tril(L[:n, :n]), alpha[:n].copy()), is_there
