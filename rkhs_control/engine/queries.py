r"""Many queries of one data set in one compiled call: their paths, the weights at the ends, and what these prove.

For data that are kept as a matrix and functionals `L f = sum_p c_p f(z_p)`. Every path starts where the one before
ended, if the two are neighbours, or else at the function of least norm. What comes out is what `path` and `witness`
give, one query at a time. Where a path ends anywhere but at the norm bound, there is no result, and another way has to
be found.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from ..arithmetic.compiled_rounding import dot_up, sqrt_up, up
from ..data.arrays import FloatArray, IndexArray, within_range
from ..kernels.base import Kernel
from .functionals import quadratic_form, relative_error
from .gram import Gram
from .least_norm import LeastNorm
from .path import ActiveSet, Workspace
from .walk import NORM_REACHED, THETA_REACHED, begin, walk
from .witness import Witness

LEAST_TAU, LARGEST_TAU = 1e-7, 1e8
"""Below the least `tau` (times the weights of the start) the weights of the witness, and above the largest (times the
norm bound) those of the worst-case function, are so large that rounding hides what they add up to."""

NOTHING = 1e-140
"""A functional of so small a squared norm, as a share of `k(x, x)`, is not worth a path."""

NEIGHBOUR = 0.1
"""Rows that differ by no more than this share belong to neighbouring queries."""


class PointFunctionals(NamedTuple):
    """Functionals of as many points each, and their falls: what the solver needs to know of them."""

    coefficients: FloatArray
    """`(m, n_points)`"""
    among: FloatArray
    """Falls among the points of each, `(m, n_points, n_points)`."""
    falls: FloatArray
    """Those from its points to the data, `(m, n_points, n_data)`."""

    @classmethod
    def of(cls, kernel: Kernel, X: FloatArray, points: FloatArray, coefficients: FloatArray) -> PointFunctionals:
        """From points `(m, n_points, n_dims)`."""
        m, n_points, n_dims = points.shape
        falls = kernel.fall(points.reshape(-1, n_dims), X).reshape(m, n_points, len(X))
        among = np.zeros((m, n_points, n_points))
        if n_points > 1:
            among[:] = [kernel.fall(own, own) for own in points]
        return cls(coefficients, among, falls)


class Start(NamedTuple):
    """The intervals, and the function of least norm through them, where paths start."""

    lower: FloatArray
    upper: FloatArray
    active: ActiveSet
    square: float

    @classmethod
    def of(cls, lower: FloatArray, upper: FloatArray, start: LeastNorm) -> Start:
        """In arrays of one type each, so that nothing is compiled twice."""
        active = ActiveSet._make(part.copy() for part in start.active._replace(order=start.indices))
        return cls(lower.copy(), upper.copy(), active, start.norm**2)


class QueryEnd(NamedTuple):
    """The end of a path: weights that prove a bound, and the worst-case function `f = tau (L - sum_i w_i k_{x_i})`."""

    witness: Witness
    value: float
    """The upper bound of `L f` that the weights prove, rounded up."""
    norm: float
    """That of `L - sum_i w_i k_{x_i}`, rounded up."""
    square: float
    error: float
    """The square of that in floating point, and a bound on its error."""
    steepest: float
    """The sum of the absolute weights."""
    tau: float
    attained: float
    """`L f` of the worst-case function."""
    violation: float
    """By how much that misses an interval at most."""
    norm2: float
    """`||L||^2`"""


def neighbours_in_turn(kernel: Kernel, points: FloatArray) -> IndexArray:
    """An order in which every point is followed by the nearest of those that are left."""
    order = np.zeros(len(points), dtype=np.int64)
    if len(points) <= 1:
        return order
    fall = kernel.fall(points, points)
    for k in range(1, len(points)):
        fall[:, order[k - 1]] = np.inf
        order[k] = fall[order[k - 1]].argmin()
    return order


def follow_queries(
    gram: Gram, start: Start, queries: PointFunctionals, norm_bound: float, space: Workspace
) -> list[QueryEnd | None]:
    """The ends of the paths of all queries, as far as they end at the norm bound; `space` is for as many data."""
    m, size = len(queries.coefficients), len(start.lower)
    numbers, counts = np.empty((m, 9)), np.empty(m, dtype=np.int64)
    indices, weights = np.empty((m, size), dtype=np.int64), np.empty((m, size))
    _follow_queries(
        gram.whole,
        gram.whole_fall,
        start,
        queries,
        norm_bound,
        within_range(gram.kernel.variance, "the variance of a kernel"),
        gram.nugget,
        relative_error(gram.kernel, gram.X.shape[1]),
        space,
        numbers,
        counts,
        indices,
        weights,
    )
    return [
        None if n < 0 else QueryEnd(Witness(own[:n].copy(), w[:n].copy()), *row)
        for row, n, own, w in zip(numbers.tolist(), counts.tolist(), indices, weights, strict=True)
    ]


@njit(cache=True, nogil=True)
def _follow_queries(  # type: ignore[no-untyped-def]
    K, fall, start, queries, norm_bound, variance, nugget, relative, space, numbers, counts, indices, weights
):
    """Fill the last four arrays; `counts` are numbers of weights, -1 where a path does not end at the norm bound."""
    lower, upper, active, start_square = start
    order, alpha, values = space.order, space.alpha, space.values
    size, limit, heaviest = lower.size, norm_bound * norm_bound, 0.0
    row, before, low, high, end_rate = (np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size))
    still = np.zeros(size)
    for weight in active.weights:
        heaviest += abs(weight)
    has_before, tau, n = False, 0.0, np.int64(0)
    for query in range(counts.size):
        counts[query] = -1
        c, own_among, own_falls = queries.coefficients[query], queries.among[query], queries.falls[query]
        result = numbers[query]
        norm2, _ = quadratic_form(variance, relative, own_among, own_among[:0], c)
        if not norm2 > NOTHING * variance:
            continue
        is_moving = _represent(c, own_falls, variance, before, row) and has_before
        is_start = not is_moving
        square, status = 0.0, np.int64(-1)
        while True:
            if is_start:
                begin(space, active)
                tau, n, square = 0.0, active.order.size, start_square
            # to this query at the same tau, or up or down to the norm bound
            direction = -1.0 if not is_moving and tau > 0.0 and square > limit else 1.0
            theta_end = LARGEST_TAU * norm_bound / math.sqrt(norm2) - tau if direction > 0.0 else tau
            for i in range(size):
                value = tau * (before[i] if is_moving else row[i])
                low[i], high[i] = lower[i] - value, upper[i] - value
                end_rate[i] = value - tau * row[i] if is_moving else -direction * row[i]
            status, theta, square, n, _ = walk(
                K,
                low,
                high,
                end_rate,
                end_rate,
                still if is_moving else row,
                0.0 if is_moving else norm2,
                direction,
                np.inf if is_moving else limit,
                LEAST_TAU * heaviest * math.sqrt(variance / norm2) if is_start else 0.0,
                1.0 if is_moving else theta_end,
                tau,
                0.0,
                square,
                n,
                np.int64(0),
                space,
            )
            if not is_moving:
                tau += direction * theta
                if is_start or status == NORM_REACHED:
                    break
            is_start = not is_moving or status != THETA_REACHED
            is_moving = False
            square = tau * tau * norm2
            for a in range(n):
                square += alpha[a] * (2.0 * tau * row[order[a]] + values[order[a]])
        row, before = before, row
        has_before = status == NORM_REACHED and tau > 0.0
        if not has_before:
            continue
        counts[query] = _proved(
            fall,
            lower,
            upper,
            order,
            alpha,
            n,
            tau,
            own_among,
            own_falls,
            c,
            norm_bound,
            variance,
            nugget,
            relative,
            indices[query],
            weights[query],
            result,
        )
        attained, violation = tau * norm2, 0.0
        for a in range(n):
            attained += before[order[a]] * alpha[a]
        for i in range(size):
            value = values[i] + tau * before[i]
            violation = max(violation, value - upper[i], lower[i] - value)
        result[5], result[6], result[7], result[8] = tau, attained, violation, norm2


@njit(cache=True, nogil=True)
def _represent(coefficients, falls, variance, before, row):  # type: ignore[no-untyped-def]
    """`L k(., x_i)` into `row`; and whether moving there from `before` is likely to be quicker than the whole path."""
    change, largest = 0.0, 0.0
    for i in range(row.size):
        value = 0.0
        for p in range(coefficients.size):
            value += coefficients[p] * (variance - falls[p, i])
        row[i] = value
        change, largest = max(change, abs(value - before[i])), max(largest, abs(value))
    return change <= NEIGHBOUR * largest


@njit(cache=True, nogil=True)
def _proved(  # type: ignore[no-untyped-def]
    fall,
    lower,
    upper,
    order,
    alpha,
    n,
    tau,
    among,
    falls,
    coefficients,
    norm_bound,
    variance,
    nugget,
    relative,
    indices,
    weights,
    numbers,
):
    """The weights `-alpha / tau` into the arrays for them, and what they prove, as `Witness.upper_value` has it.

    Returns the number of weights, -1 where they prove nothing.
    """
    k, p, steepest = np.int64(0), coefficients.size, 0.0
    for a in range(n):
        weight = -alpha[a] / tau
        if weight != 0.0 and math.isfinite(weight):
            indices[k], weights[k] = order[a], weight
            steepest += abs(weight)
            k += 1
    D, border, c, ends = np.empty((k, k)), np.empty((p, k + p)), np.empty(k + p), np.empty(k)
    for a in range(k):
        i = indices[a]
        c[a] = -weights[a]
        ends[a] = upper[i] if weights[a] > 0.0 else lower[i]
        for b in range(a):
            D[a, b] = fall[i, indices[b]]
        for q in range(p):
            border[q, a] = falls[q, i]
    for q in range(p):
        c[k + q] = coefficients[q]
        for b in range(q):
            border[q, k + b] = among[q, b]
    square, error = quadratic_form(variance, relative, D, border, c)
    total = up(max(square, 0.0) + error)
    if nugget > 0.0:
        total = up(total + up(nugget * dot_up(weights[:k], weights[:k])))
    norm = sqrt_up(total)
    value = up(up(norm_bound * norm) + dot_up(ends, weights[:k]))
    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] = value, norm, square, error, steepest
    return k if math.isfinite(value) else np.int64(-1)
