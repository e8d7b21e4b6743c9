"""The function of least norm that passes through all intervals: the common start of every query path.

Its norm is the smallest norm bound that the data do not refute. Nothing here depends on a query, so it is solved
once per data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import LARGEST, FloatArray, IndexArray
from ..errors import SolverError
from . import path, walk
from .ball_least_norm import proved_least_norm
from .gram import Gram
from .precise_least_norm import precise_weights
from .witness import Witness

SEARCH_NUGGETS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
"""What is added to the diagonal of the kernel matrix, as a share of `k(x, x)`, while looking for weights.

Rounding can make a path lose its way where inputs nearly coincide. A regularised path does not, and ends at weights a
little off the best. They are evaluated without the addition like any others, so that what is said of them holds.
"""

_ACCURACY, _AGREEMENT, _GOOD_AGREEMENT = 1e-9, 0.999, 1.0 - 1e-7
"""Of doubles; of double-doubles, whose proof and norm must agree by this share; below the last, balls are tried."""
_FIRST_ROWS = 256
_ROWS_PER_ROUND = 128


@dataclass(frozen=True, eq=False)
class LeastNorm:
    """`s = sum_a weights_a k_{x_a}` over a few inputs, each on an end of its interval."""

    indices: IndexArray
    """Which inputs."""
    active: path.ActiveSet
    """The same numbered by `0, 1, ...`, with their ends and weights."""
    norm: float
    gram: Gram
    """The kernel matrix along which it was found."""
    is_complete: bool
    """Whether it passes through all intervals (along that matrix), but for rounding."""
    is_found: bool
    """Whether this is the least norm, and not one along a regularised matrix or one that is lost in rounding."""
    precise: Witness | None = None
    """The weights of the least norm itself, where rounding is too much; of a part of the data where these are many."""
    proved: float = 0.0
    """The least norm, rounded down, where only ball arithmetic finds it."""

    def mirrored(self) -> LeastNorm:
        """The same for the data of `-f`, as the start of paths."""
        return replace(self, active=self.active.mirrored(), precise=None)

    @property
    def weights(self) -> FloatArray:
        """Those of the few inputs."""
        return self.active.weights

    @property
    def witness(self) -> Witness:
        """The weights of the least norm, the precise ones where there are such."""
        return Witness.sparse(self.indices, self.weights) if self.precise is None else self.precise

    def require_found(self, gram: Gram, lower: FloatArray, upper: FloatArray) -> None:
        """Refuse to go on where nobody could tell whether the data refute a norm bound."""
        if not self.is_found and gram.nugget == 0.0:
            raise SolverError(
                f"the least norm through the {len(lower)} intervals cannot be computed: it is at least "
                f"{self.certified_norm(gram, lower, upper):.6g}, and the functions that fit are so steep that rounding "
                "hides them; raise noise_bound if that is too small, shorten the lengthscale, or take a rougher kernel "
                "such as Matern"
            )

    def certified_norm(self, gram: Gram, lower: FloatArray, upper: FloatArray) -> float:
        """A norm that every function through the intervals provably has, rounded down."""
        proofs = [Witness.sparse(self.indices, self.weights), self.precise]
        norms = (p.norm_at_least(gram, lower, upper, is_precise=True) for p in proofs if p is not None)
        return max(self.proved, *norms)


def least_norm(
    gram: Gram, lower: FloatArray, upper: FloatArray, *, in_balls: bool = True, before: LeastNorm | None = None
) -> LeastNorm:
    """The function of least norm through the intervals.

    Where doubles lose it, the start of paths is that along a regularised matrix, and the weights of the least norm
    itself are found in double-double, or else their norm in ball arithmetic. The search may begin with what was found
    `before` there were as many intervals.
    """
    if before is not None and before.is_complete and before.gram.nugget == gram.nugget:
        solution = least_norm_along(gram, lower, upper, before)
        if solution.is_found or (solution.is_complete and gram.nugget > 0.0):
            return solution
    for added in SEARCH_NUGGETS:
        solution = least_norm_along(gram.with_added(added), lower, upper)
        if solution.is_complete:
            break
    if solution.is_found or gram.nugget > 0.0:
        return solution
    solution, agreement = _in_double_doubles(gram, lower, upper, solution=solution)
    if not gram.is_dense or agreement >= _GOOD_AGREEMENT:
        return replace(solution, is_found=gram.is_dense)
    proved = proved_least_norm(gram.kernel, gram.X, lower=lower, upper=upper) if in_balls else None
    if proved is None:
        return replace(solution, is_found=agreement >= _AGREEMENT)
    return replace(solution, precise=proved.witness, proved=proved.norm, is_found=proved.norm <= LARGEST)


def _in_double_doubles(
    gram: Gram, lower: FloatArray, upper: FloatArray, solution: LeastNorm
) -> tuple[LeastNorm, float]:
    """With precise weights, and the share of their norm that they prove; zero where double-doubles find none."""
    rows = np.arange(len(lower), dtype=np.int64) if gram.is_dense else solution.indices
    found = precise_weights(gram.kernel, gram.X[rows], lower=lower[rows], upper=upper[rows])
    if found is None:
        return solution, 0.0
    precise = Witness(rows[found.rounded.indices], found.rounded.weights)
    norm = precise.norm_up(gram, is_precise=True)
    return replace(solution, precise=precise), precise.norm_at_least(gram, lower, upper, is_precise=True) / norm


def least_norm_along(gram: Gram, lower: FloatArray, upper: FloatArray, before: LeastNorm | None = None) -> LeastNorm:
    """The same along one matrix, complete or not.

    With more data than are kept as a matrix, it works on a part of them that grows by the most violated until none is.
    """
    n = len(lower)
    if gram.is_dense:
        start = path.NOTHING if before is None else before.active._replace(order=before.indices)
        return _on_rows(gram, lower, upper, rows=np.arange(n, dtype=np.int64), start=start)[0]
    rows, start = _spread_rows(n), path.NOTHING
    if before is not None:
        rows, start = np.concatenate([before.indices, np.setdiff1d(rows, before.indices)]), before.active
    while True:
        solution, start = _on_rows(gram, lower, upper, rows=rows, start=start)
        values = gram.combine(solution.indices, solution.weights)
        excess = np.maximum(values - upper, lower - values)
        size = gram.kernel.variance * float(np.abs(solution.weights).sum())
        tolerance = 1e-10 * float(np.abs(values).max()) + 64 * UNIT_ROUNDOFF * size
        excess[rows] = -np.inf
        worst = np.argsort(-excess)[:_ROWS_PER_ROUND]
        worst = worst[excess[worst] > tolerance]
        if len(worst) == 0 or not solution.is_complete:
            return solution
        rows = np.concatenate([rows, worst])


def _spread_rows(n: int) -> IndexArray:
    return np.unique(np.linspace(0, n - 1, _FIRST_ROWS).astype(np.int64))


def _on_rows(
    gram: Gram, lower: FloatArray, upper: FloatArray, rows: IndexArray, start: path.ActiveSet
) -> tuple[LeastNorm, path.ActiveSet]:
    """The least norm on some rows, from a solution on fewer; and its active set, numbered as the rows are."""
    K = gram.whole if gram.is_dense else gram.matrix(rows)
    active, is_complete = path.least_norm_solution(K, lower[rows], upper[rows], start)
    order = active.order
    ends = np.where(active.sides > 0, upper[rows[order]], lower[rows[order]])
    norm = math.sqrt(max(0.0, math.fsum(ends * active.weights)))  # w'Kw, without its cancellation
    rounding = UNIT_ROUNDOFF * gram.kernel.variance * float(np.abs(active.weights).sum())
    is_found = is_complete and gram.nugget == 0.0 and rounding <= _ACCURACY * float(np.abs(ends).max(initial=0.0))
    solution = LeastNorm(
        indices=rows[order],
        active=active._replace(order=np.arange(len(order))),
        norm=norm,
        gram=gram,
        is_complete=is_complete,
        is_found=is_found,
    )
    return solution, active


def noise_trail(gram: Gram, lower: FloatArray, upper: FloatArray, narrowing: float) -> tuple[FloatArray, FloatArray]:
    """Breakpoints of the noise path: how much further out every interval end was, falling, and the least norms there.

    It goes on beyond the given intervals, every end moving inwards by `narrowing`. With more data than are kept as a
    matrix, it is that of some spread rows and of those which decide its end.
    """
    rows = np.arange(len(lower), dtype=np.int64)
    if not gram.is_dense:
        deciding = least_norm(gram, lower + narrowing, upper - narrowing).indices
        rows = np.union1d(_spread_rows(len(lower)), deciding)
    low, high = lower[rows], upper[rows]
    widest = max(0.0, float(low.max(initial=0.0)), float(-high.min(initial=0.0)))
    for added in SEARCH_NUGGETS:
        end = path.follow_noise(gram.with_added(added).matrix(rows), low, high, widest=widest, narrowing=narrowing)
        norms = np.sqrt(np.maximum(end.squares, 0.0))
        if end.status == walk.THETA_REACHED and (np.diff(norms) >= -_ACCURACY * norms[-1]).all():
            return widest - end.thetas, norms
    raise SolverError(
        f"the frontier of the {len(lower)} intervals could not be followed to its end: rounding hides it; inputs may "
        "nearly coincide (merge them), or ask for a larger noise bound (down_to)"
    )
