"""Partitions of a box of states into cells, which are split and merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, IndexArray
from ..data.sets import Box

_AT_ONCE = 20_000_000
"""Maximum number of comparisons of boxes and cells at once."""


class Partition(NamedTuple):
    """Cells that fill a box: another box lies in a set of cells if it intersects no others."""

    lower: FloatArray
    upper: FloatArray
    level: IndexArray
    """How often each cell was split, by dimension: cells of one level have the same size."""
    place: IndexArray
    """Index among the cells of its level, by dimension."""

    @classmethod
    def grid(cls, whole: Box, counts: Sequence[int]) -> Partition:
        """A grid with the given number of cells per dimension."""
        place = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, len(counts))
        lower, upper = np.empty(place.shape), np.empty(place.shape)
        for i, n in enumerate(counts):
            edges = np.linspace(whole.lower[i], whole.upper[i], n + 1)
            lower[:, i], upper[:, i] = edges[place[:, i]], edges[place[:, i] + 1]
        return cls(lower, upper, np.zeros_like(place), place)

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.lower)

    @property
    def middle(self) -> FloatArray:
        """Of every cell."""
        return (self.lower + self.upper) / 2.0

    @property
    def volume(self) -> FloatArray:
        """Of every cell."""
        sizes: FloatArray = np.prod(self.upper - self.lower, axis=1)
        return sizes

    def box(self, cell: int) -> Box:
        """One cell."""
        return Box(self.lower[cell], self.upper[cell])

    def take(self, cells: npt.ArrayLike) -> Partition:
        """Some of the cells."""
        rows = np.asarray(cells, dtype=np.int64)
        return Partition(self.lower[rows], self.upper[rows], self.level[rows], self.place[rows])

    def joined(self, other: Partition) -> Partition:
        """These cells, then others."""
        lower, upper = (np.concatenate([getattr(part, end) for part in (self, other)]) for end in ("lower", "upper"))
        level, place = (np.concatenate([getattr(part, key) for part in (self, other)]) for key in ("level", "place"))
        return Partition(lower, upper, level, place)

    def halves(self, whole: Box) -> Partition:
        """Every cell halved across its longest side, relative to the whole: all first halves, then all second ones."""
        rows = np.arange(self.size)
        across = ((self.upper - self.lower) / (whole.upper - whole.lower)).argmax(axis=1)
        level, first, second = self.level.copy(), self.place.copy(), self.place.copy()
        level[rows, across] += 1
        first[rows, across] *= 2
        second[rows, across] = first[rows, across] + 1
        lower, upper = self.lower.copy(), self.upper.copy()
        upper[rows, across] = lower[rows, across] = self.middle[rows, across]
        return Partition(self.lower, upper, level, first).joined(Partition(lower, self.upper, level, second))

    def pairs(self, cells: Iterable[int], dimension: int) -> list[tuple[int, int]]:
        """Pairs among the given cells that are the two halves of one, adjacent along a dimension."""
        n = self.lower.shape[1] + dimension
        places = {(*self.level[cell].tolist(), *self.place[cell].tolist()): cell for cell in cells}
        firsts = ((key, cell) for key, cell in places.items() if key[n] % 2 == 0)
        both = ((cell, places.get((*key[:n], key[n] + 1, *key[n + 1 :]))) for key, cell in firsts)
        return [(cell, other) for cell, other in both if other is not None]

    def unions(self, pairs: Sequence[tuple[int, int]], dimension: int) -> Partition:
        """Of pairs of halves."""
        first, second = np.array(pairs).T
        level, place = self.level[first].copy(), self.place[first].copy()
        level[:, dimension] -= 1
        place[:, dimension] //= 2
        return Partition(self.lower[first], self.upper[second], level, place)

    def met(self, low: FloatArray, high: FloatArray) -> list[IndexArray]:
        """For every box `(m, n_dims)` within the whole, the cells that it intersects or touches."""
        found: list[IndexArray] = []
        step = max(1, _AT_ONCE // self.lower.size)
        for first in range(0, len(low), step):
            a, b = low[first : first + step, None], high[first : first + step, None]
            touching: npt.NDArray[np.bool_] = np.all((self.lower <= b) & (a <= self.upper), axis=2)
            found += [np.flatnonzero(row) for row in touching]
        return found
