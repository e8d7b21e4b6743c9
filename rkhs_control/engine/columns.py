"""Columns of a kernel matrix that is too large to be kept: the latest ones are, the others are computed when needed."""

from __future__ import annotations

from threading import Lock

import numpy as np

from ..data.arrays import FloatArray, IndexArray
from ..kernels.base import Kernel
from .active_set import combine_rows

_BYTES = 2**30
"""For the columns that are kept."""
_AT_ONCE = 64
"""Columns are added up in groups of so many, always the same ones, so that sums do not depend on what is kept."""


class Columns:
    """Columns `k(X, x_j)`, as rows of a store; where there is no more room, those that were not used for longest go."""

    def __init__(self) -> None:
        self._store = np.empty((0, 0))
        self._place: dict[int, int] = {}  # the latest ones last
        self._lock = Lock()

    def combine(self, kernel: Kernel, X: FloatArray, rows: IndexArray, weights: FloatArray) -> FloatArray:
        """`sum_j weights_j k(x_i, x_j)` over `j` in `rows`, for every `i`."""
        values, part = np.zeros(len(X)), np.empty(len(X))
        with self._lock:
            self._keep(kernel, X, rows.tolist())
            for first in range(0, len(rows), _AT_ONCE):
                group = slice(first, first + _AT_ONCE)
                places = np.array([self._at(kernel, X, row, k) for k, row in enumerate(rows[group].tolist())])
                combine_rows(self._store, places, len(places), weights[group], part)
                values += part
        return values

    def _keep(self, kernel: Kernel, X: FloatArray, rows: list[int]) -> None:
        """Compute those of the columns that are missing, as far as there is room for them."""
        most = min(len(X), _BYTES // (8 * len(X)))
        if not len(self._store):
            self._store = np.empty((most + _AT_ONCE, len(X)))  # the last ones are for columns that are not kept
        for row in rows:
            if row in self._place:
                self._place[row] = self._place.pop(row)
        wanted = set(rows)
        others = iter([row for row in self._place if row not in wanted])
        for row in rows:
            if row in self._place:
                continue
            free, column = len(self._place), kernel(X[[row]], X)[0]
            if free >= most:
                oldest = next(others, None)
                if oldest is None:
                    return
                free = self._place.pop(oldest)
            self._store[free] = column
            self._place[row] = free

    def _at(self, kernel: Kernel, X: FloatArray, row: int, k: int) -> int:
        """Where the column of a row is: kept, or else the `k`-th of those that are not."""
        if row in self._place:
            return self._place[row]
        place = len(self._store) - _AT_ONCE + k
        self._store[place] = kernel(X[[row]], X)[0]
        return place

    def __getstate__(self) -> dict[str, object]:
        return {}  # a copy in another process fills its own

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]
