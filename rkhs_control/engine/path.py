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

# mypy: disable-error-code="assignment"

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..data.arrays import FloatArray, IndexArray
from .active_set import ascend
from .walk import LOST, NORM_REACHED, STALLED, begin, path_length, walk

# A path that stalls jumps ahead by this share of its length.
_HAIR = 1e-9


class ActiveSet(NamedTuple):
    """A solution on a path: which points are active, on which ends (1 upper, -1 lower), and their weights."""

    order: IndexArray
    sides: IndexArray
    factor: FloatArray
    """`L` with `L L' = K_AA`, with the reciprocals of its diagonal."""
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


class Workspace(NamedTuple):
    """Where a path is: the arrays of `active_set`, as long as all data, and the trail of breakpoints."""

    L: FloatArray
    order: IndexArray
    sign: IndexArray
    alpha: FloatArray
    rate: FloatArray
    solved: FloatArray
    values: FloatArray
    value_rate: FloatArray
    thetas: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, size: int) -> Workspace:
        """For so many data."""
        L, order, sign = np.empty((size + 1, size + 1)), np.empty(size + 1, np.int64), np.zeros(size, np.int64)
        lengths = (*3 * (size + 1,), size, size, *2 * (10 * size + 201,))
        return cls(L, order, sign, *map(np.zeros, lengths))

    def active(self, n: int) -> ActiveSet:
        """The solution of `n` active points, copied."""
        members = self.order[:n].copy()
        return ActiveSet(members, self.sign[members], np.tril(self.L[:n, :n]), self.alpha[:n].copy())

    def square(self, n: int, row: FloatArray, norm2: float, tau: float) -> float:
        """The squared norm of `tau k_L + sum_a alpha_a k_a`."""
        weights, order = self.alpha[:n], self.order[:n]
        return tau * tau * norm2 + float(weights @ (2.0 * tau * row[order] + self.values[order]))

    def ascend(self, K: FloatArray, *ends: FloatArray, theta: float, n: int) -> tuple[int, bool]:
        """The solution at `theta`, from any other; see `active_set.ascend`."""
        begun = (self.L, self.order, n, self.sign)
        return ascend(K, *begun, *ends, theta, self.alpha, self.values, self.solved)  # type: ignore[call-arg, no-any-return]


NOTHING = ActiveSet(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 0)), np.empty(0))


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


def resume_query(
    K: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    row: FloatArray,
    norm2: float,
    before: PathEnd,
    square_limit: float,
    tau_end: float,
) -> PathEnd | None:
    """The end of a query path when there are more data than before: from where it ended without them.

    The new intervals enter at the same `tau`, which makes the norm larger, and the path goes down from there. None
    where that does not lead to `square_limit`.
    """
    if before.status != NORM_REACHED or before.tau <= 0.0:
        return None
    space, still, tau = Workspace.of(len(lower)), np.zeros(len(lower)), before.tau
    begin(space, before.active)
    ends = lower - tau * row, upper - tau * row, still, still
    n, is_there = space.ascend(K, *ends, theta=0.0, n=len(before.active.order))
    if not is_there:
        return None
    end = follow_query(
        K,
        lower,
        upper,
        row=row,
        norm2=norm2,
        start=space.active(n),
        square=space.square(n, row, norm2, tau),
        square_limit=square_limit,
        tau_end=tau_end,
        tau=tau,
    )
    return end if end.status == NORM_REACHED else None


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


def _follow(
    K: FloatArray,
    low: FloatArray,
    high: FloatArray,
    *,
    low_rate: FloatArray,
    high_rate: FloatArray,
    row: FloatArray,
    norm2: float,
    direction: float,
    square_limit: float,
    theta_least: float,
    theta_end: float,
    start: ActiveSet,
    start_square: float,
    start_tau: float,
) -> PathEnd:
    """Follow the path from `theta = 0` and a given solution there, with jumps where it would circle; see `walk`."""
    space = Workspace.of(len(low))
    begin(space, start)
    ends, where = (low, high, low_rate, high_rate), (row, norm2, direction, square_limit, theta_least, theta_end)
    theta, square, n, steps = 0.0, start_square, len(start.order), 0
    while True:
        status, theta, square, n, steps = walk(K, *ends, *where, start_tau, theta, square, n, steps, space)
        if status != STALLED:
            break
        theta = min(theta + _HAIR * path_length(norm2, square_limit, theta_end), theta_end)
        n, is_there = space.ascend(K, *ends, theta=theta, n=n)
        if not is_there:
            status = LOST
            break
        square = space.square(n, row, norm2, start_tau + direction * theta)
        space.thetas[steps], space.squares[steps] = theta, square
    trail = space.thetas[: steps + 1].copy(), space.squares[: steps + 1].copy()
    return PathEnd(status, start_tau + direction * theta, square, space.active(n), space.rate[:n].copy(), *trail)


def least_norm_solution(
    K: FloatArray, lower: FloatArray, upper: FloatArray, start: ActiveSet = NOTHING
) -> tuple[ActiveSet, bool]:
    """The function of least norm through all intervals, by the dual method from any start; and whether it got there."""
    space, still = Workspace.of(len(lower)), np.zeros(len(lower))
    begin(space, start)
    n, is_there = space.ascend(K, lower, upper, still, still, theta=0.0, n=len(start.order))
    return space.active(n), is_there
