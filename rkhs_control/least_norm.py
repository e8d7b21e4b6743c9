"""The function of least norm that passes through all intervals: the common start of every query path.

Its norm is the smallest norm bound that the data do not refute. Nothing here depends on a query, so it is solved
once a data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from . import path
from .functionals import Points
from .gram import Gram
from .kernels import UNIT_ROUNDOFF
from .validation import FloatArray, IndexArray
from .witness import Witness, dot_up

SEARCH_NUGGETS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
"""What is added to the diagonal of the kernel matrix, as a share of `k(x, x)`, while looking for weights.

Rounding can make a path lose its way where inputs nearly coincide. A regularised path does not, and ends at weights a
little off the best. They are evaluated without the addition like any others, so that what is said of them holds.
"""

_FIRST_ROWS = 256
_ROWS_A_ROUND = 128


@dataclass(frozen=True, eq=False)
class LeastNorm:
    """`s = sum_a weights_a k_{x_a}` over a few inputs, each on an end of its interval."""

    indices: IndexArray
    """Which inputs."""
    active: path.ActiveSet
    """The same numbered by `0, 1, ...`, with their ends and weights."""
    norm: float
    widenings: FloatArray
    """Breakpoints of the noise path: how much further out every interval end was, falling."""
    energies: FloatArray
    """The least squared norm at those breakpoints."""
    gram: Gram
    """The kernel matrix along which it was found."""
    is_complete: bool
    """Whether the path got to its end."""

    def mirrored(self) -> LeastNorm:
        """The same for the data of `-f`."""
        return replace(self, active=self.active.mirrored())

    @property
    def weights(self) -> FloatArray:
        return self.active.weights

    def certified_norm(self, gram: Gram, lower: FloatArray, upper: FloatArray) -> float:
        """A norm that every function through the intervals provably has, rounded down.

        Weak duality: `||f|| ||s|| >= <f, s> >= sum_a (lower_a weights_a^+ - upper_a weights_a^-)`.
        """
        witness = Witness.sparse(self.indices, self.weights)
        if len(witness.indices) == 0:
            return 0.0
        ends = np.where(witness.weights > 0, lower[witness.indices], upper[witness.indices])
        nothing = Points(gram.X[:0], np.empty(0))
        ratio = -dot_up(-ends, witness.weights) / witness.residual_norm_up(nothing, gram)
        return max(0.0, ratio * (1.0 - 4.0 * UNIT_ROUNDOFF))


def least_norm(gram: Gram, lower: FloatArray, upper: FloatArray, narrowing: float = 0.0) -> LeastNorm:
    """Follow the noise path, along a regularised matrix where it would get lost otherwise."""
    for added in SEARCH_NUGGETS:
        solution = noise_path(gram.with_added(added), lower, upper, narrowing)
        if solution.is_complete:
            break
    return solution


def noise_path(gram: Gram, lower: FloatArray, upper: FloatArray, narrowing: float = 0.0) -> LeastNorm:
    """From intervals so wide that zero fits, down to the given ones.

    `narrowing` goes on beyond them, every end moving inwards by so much. With more data than are kept as a matrix,
    it works on a part of them that grows by the most violated until none is.
    """
    n = len(lower)
    if gram.is_dense:
        return _on_rows(gram, lower, upper, narrowing, np.arange(n, dtype=np.int64))
    rows = np.unique(np.linspace(0, n - 1, _FIRST_ROWS).astype(np.int64))
    while True:
        solution = _on_rows(gram, lower, upper, narrowing, rows)
        values = gram.combine(solution.indices, solution.weights)
        excess = np.maximum(values - upper, lower - values) + narrowing
        size = gram.kernel.variance * float(np.abs(solution.weights).sum())
        tolerance = 1e-10 * float(np.abs(values).max()) + 64 * UNIT_ROUNDOFF * size
        excess[rows] = -np.inf
        worst = np.argsort(-excess)[:_ROWS_A_ROUND]
        worst = worst[excess[worst] > tolerance]
        if len(worst) == 0 or not solution.is_complete:
            return solution
        rows = np.concatenate([rows, worst])


def _on_rows(gram: Gram, lower: FloatArray, upper: FloatArray, narrowing: float, rows: IndexArray) -> LeastNorm:
    low, high = lower[rows], upper[rows]
    widest = max(0.0, float(low.max()), float(-high.min()))
    K = gram.whole if gram.is_dense else gram.matrix(rows)
    end = path.follow_noise(K, low, high, widest, narrowing)
    order, weights = end.active.order, end.active.weights
    norm = math.sqrt(max(0.0, float(weights @ K[np.ix_(order, order)] @ weights)))
    return LeastNorm(
        rows[order],
        end.active._replace(order=np.arange(len(order))),
        norm,
        widest - end.thetas,
        end.energies,
        gram,
        is_complete=end.status == path.THETA_REACHED,
    )
