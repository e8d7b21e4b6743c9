"""Kernel values among the data: one matrix where that is cheap, on demand where the data are many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import FloatArray, IndexArray
from ..kernels.base import Kernel
from .active_set import combine_rows

DENSE_LIMIT = 2000
"""Up to so many inputs the whole kernel matrix is kept."""

_CACHE_BYTES = 2**28


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
        return replace(self, nugget=self.nugget + share * self.kernel.variance) if share else self

    @property
    def is_dense(self) -> bool:
        """Whether there are few enough inputs to keep the whole matrix."""
        return len(self.X) <= DENSE_LIMIT

    @cached_property
    def _whole_fall(self) -> FloatArray:
        return self.kernel.fall(self.X, self.X)

    @cached_property
    def whole(self) -> FloatArray:
        """The matrix over all the data."""
        return self._matrix(self._whole_fall)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of the matrix over all the data, without nugget."""
        return Spectrum(*np.linalg.eigh(self.kernel(self.X)))

    def fall(self, rows: IndexArray) -> FloatArray:
        """`k(x, x) - k(x_i, x_j)` over some rows, without nugget."""
        if self.is_dense:
            return self._whole_fall if self._is_everything(rows) else self._whole_fall[np.ix_(rows, rows)]
        return self.kernel.fall(self.X[rows], self.X[rows])

    def matrix(self, rows: IndexArray) -> FloatArray:
        """The matrix over some rows."""
        return self._matrix(self.fall(rows))

    def combine(self, rows: IndexArray, weights: FloatArray) -> FloatArray:
        """`sum_j weights_j k(x_i, x_j)` over `j` in `rows`, for every `i`, nugget included."""
        if self.is_dense:
            return weights @ (self.whole if self._is_everything(rows) else self.whole[rows])
        values = np.empty(len(self.X))
        with self._columns.lock:
            columns, places = self._columns.of(self, rows)
            combine_rows(columns, places, len(rows), weights, values)
        values[rows] += self.nugget * weights
        return values

    def __getstate__(self) -> dict[str, object]:
        """Another process computes the matrices again: that is quicker than sending them."""
        return {name: value for name, value in vars(self).items() if name not in ("_whole_fall", "whole")}

    def _is_everything(self, rows: IndexArray) -> bool:
        return len(rows) == len(self.X) and np.array_equal(rows, np.arange(len(rows)))

    @cached_property
    def _columns(self) -> _Columns:
        return _Columns()

    def _matrix(self, fall: FloatArray) -> FloatArray:
        matrix = self.kernel.variance - fall
        matrix[np.diag_indices_from(matrix)] += self.nugget
        return matrix


class _Columns:
    """Columns of the kernel matrix that were needed so far; when there is no more room, all are forgotten."""

    def __init__(self) -> None:
        self.store = np.empty((0, 0))
        self.place: dict[int, int] = {}
        self.lock = Lock()

    def of(self, gram: Gram, rows: IndexArray) -> tuple[FloatArray, IndexArray]:
        """The columns as rows of a store, and where in it those for `rows` are."""
        missing = [int(row) for row in rows if int(row) not in self.place]
        if len(self.place) + len(missing) > len(self.store):
            if len(self.store) < len(rows):
                self.store = np.empty((max(len(rows), _CACHE_BYTES // (8 * len(gram.X))), len(gram.X)))
            self.place, missing = {}, [int(row) for row in rows]
        if missing:
            first = len(self.place)
            self.store[first : first + len(missing)] = gram.kernel(gram.X[missing], gram.X)
            self.place.update({row: first + i for i, row in enumerate(missing)})
        return self.store, np.array([self.place[int(row)] for row in rows], dtype=np.int64)

    def __getstate__(self) -> dict[str, object]:
        return {}  # a copy in another process fills its own

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]
