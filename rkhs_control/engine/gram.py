"""Kernel values among the data: one matrix where that is cheap, on demand where the data are many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import FloatArray, IndexArray
from ..kernels.base import Kernel
from .columns import Columns

DENSE_LIMIT = 2000
"""Up to so many inputs the whole kernel matrix is kept."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and -vectors of a kernel matrix; solves leave out what is not told apart from zero."""

    values: FloatArray
    vectors: FloatArray

    def solve(self, right: FloatArray, added: float = 0.0) -> FloatArray:
        """`(K + added I)^-1 right`, for a column or columns."""
        shifted = self.values + added
        kept = shifted > len(shifted) * UNIT_ROUNDOFF * np.abs(shifted).max()
        inverse = np.where(kept, 1.0 / np.where(kept, shifted, 1.0), 0.0)
        return self.vectors @ (inverse * (self.vectors.T @ right).T).T


@dataclass(frozen=True, eq=False)
class Gram:
    """`k(x_i, x_j)` over the rows of `X`, plus `nugget` on the diagonal."""

    X: FloatArray
    kernel: Kernel
    nugget: float = 0.0

    def with_added(self, share: float) -> Gram:
        """The same with `share` of `k(x, x)` added to the nugget."""
        return self.with_nugget(self.nugget + share * self.kernel.variance) if share else self

    def with_nugget(self, nugget: float) -> Gram:
        """The same with another nugget; what is known of the kernel is not computed again."""
        other = replace(self, nugget=nugget)
        vars(other).update({name: value for name, value in vars(self).items() if name == "whole_fall"})
        return other

    def extended(self, X: FloatArray) -> Gram:
        """That of more inputs, the first of which are those here."""
        n, other = len(self.X), replace(self, X=X)
        if other.is_dense:
            fall = np.empty((len(X), len(X)))
            fall[:n, :n] = self.whole_fall
            fall[n:] = self.kernel.fall(X[n:], X)
            fall[:n, n:] = fall[n:, :n].T
            vars(other)["whole_fall"] = fall
        return other

    @property
    def is_dense(self) -> bool:
        """Whether there are few enough inputs to keep the whole matrix."""
        return len(self.X) <= DENSE_LIMIT

    @cached_property
    def whole_fall(self) -> FloatArray:
        """`k(x, x) - k(x_i, x_j)` over all the data, without nugget."""
        return self.kernel.fall(self.X, self.X)

    @cached_property
    def whole(self) -> FloatArray:
        """The matrix over all the data."""
        return self._matrix(self.whole_fall)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of the matrix over all the data, without nugget."""
        return Spectrum(*np.linalg.eigh(self.kernel(self.X)))

    def fall(self, rows: IndexArray) -> FloatArray:
        """`k(x, x) - k(x_i, x_j)` over some rows, without nugget."""
        if self.is_dense:
            return self.whole_fall if self._is_everything(rows) else self.whole_fall[np.ix_(rows, rows)]
        return self.kernel.fall(self.X[rows], self.X[rows])

    def matrix(self, rows: IndexArray) -> FloatArray:
        """The matrix over some rows."""
        return self._matrix(self.fall(rows))

    def grown(self, matrix: FloatArray, rows: IndexArray, more: IndexArray) -> FloatArray:
        """The matrix over `rows` and `more`, given that over `rows`."""
        n, size = len(rows), len(rows) + len(more)
        larger = np.empty((size, size))
        larger[:n, :n] = matrix
        larger[n:, :n] = self.kernel(self.X[more], self.X[rows])
        larger[:n, n:] = larger[n:, :n].T
        larger[n:, n:] = self.matrix(more)
        return larger

    def combine(self, rows: IndexArray, weights: FloatArray) -> FloatArray:
        """`sum_j weights_j k(x_i, x_j)` over `j` in `rows`, for every `i`, nugget included."""
        if self.is_dense:
            return weights @ (self.whole if self._is_everything(rows) else self.whole[rows])
        values = self._columns.combine(self.kernel, self.X, rows, weights)
        values[rows] += self.nugget * weights
        return values

    def values(self, rows: IndexArray, weights: FloatArray) -> FloatArray:
        """`sum_j weights_j k(x_i, x_j)` over all `j`, for `i` in `rows`, nugget included."""
        if self.is_dense:
            return self.whole[rows] @ weights
        return self.combine(np.arange(len(self.X), dtype=np.int64), weights)[rows]

    def __getstate__(self) -> dict[str, object]:
        """Another process computes the matrices again: that is quicker than sending them."""
        return {name: value for name, value in vars(self).items() if name not in ("whole_fall", "whole")}

    def _is_everything(self, rows: IndexArray) -> bool:
        return len(rows) == len(self.X) and np.array_equal(rows, np.arange(len(rows)))

    @cached_property
    def _columns(self) -> Columns:
        return Columns()

    def _matrix(self, fall: FloatArray) -> FloatArray:
        matrix = self.kernel.variance - fall
        matrix[np.diag_indices_from(matrix)] += self.nugget
        return matrix
