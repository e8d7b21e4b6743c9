"""Kernel values among the data: one matrix where that is cheap, on demand where the data are many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .kernels import Kernel
from .validation import FloatArray

IndexArray = npt.NDArray[np.int64]

DENSE_LIMIT = 2000
"""Up to so many inputs the whole kernel matrix is kept."""

_CHUNK = 2**21  # kernel values computed at a time, 16 MB


@dataclass(frozen=True, eq=False)
class Gram:
    """`k(x_i, x_j)` over the rows of `X`, plus `nugget` on the diagonal."""

    X: FloatArray
    kernel: Kernel
    nugget: float = 0.0

    def with_added(self, share: float) -> Gram:
        """The same with `share` of `k(x, x)` added to the nugget."""
        return replace(self, nugget=self.nugget + share * self.kernel.variance) if share else self

    @property
    def is_dense(self) -> bool:
        return len(self.X) <= DENSE_LIMIT

    @cached_property
    def _whole_fall(self) -> FloatArray:
        return self.kernel.fall(self.X, self.X)

    @cached_property
    def whole(self) -> FloatArray:
        """The matrix over all the data."""
        return self._matrix(self._whole_fall)

    def fall(self, rows: IndexArray) -> FloatArray:
        """`k(x, x) - k(x_i, x_j)` over some rows, without nugget."""
        if self.is_dense:
            return self._whole_fall[np.ix_(rows, rows)]
        return self.kernel.fall(self.X[rows], self.X[rows])

    def matrix(self, rows: IndexArray) -> FloatArray:
        """The matrix over some rows."""
        return self._matrix(self.fall(rows))

    def combine(self, rows: IndexArray, weights: FloatArray) -> FloatArray:
        """`sum_j weights_j k(x_i, x_j)` over `j` in `rows`, for every `i`, nugget included."""
        if self.is_dense:
            return weights @ self.whole[rows]
        values = np.empty(len(self.X))
        step = max(1, _CHUNK // max(1, len(rows)))
        for first in range(0, len(values), step):
            part = slice(first, first + step)
            values[part] = self.kernel(self.X[part], self.X[rows]) @ weights
        values[rows] += self.nugget * weights
        return values

    def _matrix(self, fall: FloatArray) -> FloatArray:
        matrix = self.kernel.variance - fall
        matrix[np.diag_indices_from(matrix)] += self.nugget
        return matrix
