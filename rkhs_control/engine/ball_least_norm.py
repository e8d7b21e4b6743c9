"""The least norm with as many digits as it takes: for data beyond double-doubles.

The dual method of `active_set.ascend` in ball arithmetic. A ball says how far rounding may have moved a number, so a
comparison that it leaves open is not guessed: everything begins again with more digits. It takes seconds where doubles
take a millisecond, and is called once per data set, if at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arithmetic.balls import Ball, ball, bits, column, float_down, middle, radius, square
from ..data.arrays import LARGEST, FloatArray
from ..kernels.base import Kernel
from .witness import Witness

MOST_ROWS = 64
"""Of more data than this the least norm is not looked for: it would take minutes."""
MOST_WORK = 3e7
"""Of solving, which takes the cube of the active points, altogether: twenty seconds or so."""
_BITS = (192, 384, 768)
_NEGLIGIBLE = 1e-18
"""A value that touches its end within this share of the largest value does not miss it."""


class _MoreBitsNeededError(Exception):
    """A ball leaves a comparison open."""


class _TooMuchWorkError(Exception):
    """It would take longer than anyone would wait."""


class _Active(NamedTuple):
    """Points on their upper (side 1) or lower (-1) ends, and the weights that put them there."""

    points: tuple[int, ...] = ()
    sides: tuple[int, ...] = ()
    weights: tuple[Ball, ...] = ()

    def without(self, position: int) -> _Active:
        return _Active(*(part[:position] + part[position + 1 :] for part in self))


class ProvedNorm(NamedTuple):
    """The least norm through some intervals, rounded down, and the weights of its function, to the nearest doubles.

    Every step raises the norm; one above `LARGEST` is where it stopped, and the least norm is larger still.
    """

    norm: float
    witness: Witness


def proved_least_norm(kernel: Kernel, X: FloatArray, lower: FloatArray, upper: FloatArray) -> ProvedNorm | None:
    """None where there are too many data, the kernel has no balls, or it takes too many digits or too long."""
    if len(X) > MOST_ROWS or not kernel.has_balls:
        return None
    for n_bits in _BITS:
        with bits(n_bits):
            try:
                return _Problem(kernel, X, lower=lower, upper=upper).solve()
            except _MoreBitsNeededError:
                continue
            except _TooMuchWorkError:
                break
    return None


class _Problem:
    def __init__(self, kernel: Kernel, X: FloatArray, lower: FloatArray, upper: FloatArray) -> None:
        self.kernel = kernel
        self.X = [[ball(x) for x in row] for row in X]
        self.ends = {-1: [ball(x) for x in lower], 1: [ball(x) for x in upper]}
        self.columns: dict[int, list[Ball]] = {}
        self.work = 0.0

    def solve(self) -> ProvedNorm:
        active, norm = _Active(), 0.0
        while norm <= LARGEST and (entry := self._most_violated(active)) is not None:
            active = self._with(active, *entry)
            norm2 = sum((e * w for e, w in zip(self._ends(active), active.weights, strict=True)), ball(0.0))
            if not norm2 > 0:
                raise _MoreBitsNeededError
            norm = max(float_down(norm2.sqrt()), 0.0)
        weights = np.array([middle(weight) for weight in active.weights])
        return ProvedNorm(norm, Witness.sparse(np.array(active.points, dtype=np.int64), weights))

    def _ends(self, active: _Active) -> list[Ball]:
        return [self.ends[side][i] for i, side in zip(active.points, active.sides, strict=True)]

    def _column(self, i: int) -> list[Ball]:
        if i not in self.columns:
            self.columns[i] = [self.kernel.ball(x, self.X[i]) for x in self.X]
        return self.columns[i]

    def _solve(self, points: tuple[int, ...], right: list[Ball]) -> tuple[Ball, ...]:
        """`K_AA^-1 right`."""
        if not points:
            return ()
        self.work += len(points) ** 3
        if self.work > MOST_WORK:
            raise _TooMuchWorkError
        try:
            solution = square([[self._column(j)[i] for j in points] for i in points]).solve(
                column(right), algorithm="precond"
            )
        except ZeroDivisionError:
            raise _MoreBitsNeededError from None
        return tuple(solution[a, 0] for a in range(len(points)))

    def _most_violated(self, active: _Active) -> tuple[int, int, Ball] | None:
        """The point whose value passes an end of its interval by most, that end, and by how much."""
        values = [ball(0.0) for _ in self.X]
        for i, weight in zip(active.points, active.weights, strict=True):
            values = [value + weight * k for value, k in zip(values, self._column(i), strict=True)]
        scale = max(abs(middle(value)) for value in values)
        worst, entry = 0.0, None
        for i, value in enumerate(values):
            if i in active.points:
                continue
            if not radius(value) <= _NEGLIGIBLE * scale:
                raise _MoreBitsNeededError
            for side in (-1, 1):
                violation = side * (value - self.ends[side][i])
                if middle(violation) > max(worst, _NEGLIGIBLE * scale):
                    worst, entry = middle(violation), (i, side, violation)
        return entry

    def _with(self, active: _Active, new: int, side: int, violation: Ball) -> _Active:
        """A step of Goldfarb and Idnani: the weight of `new` grows until its value is on the end.

        An active point whose weight would change its sign on the way leaves.
        """
        while True:
            sections = [self._column(i)[new] for i in active.points]
            projection = self._solve(active.points, sections)
            distance2 = self._column(new)[new] - sum(
                (p * k for p, k in zip(projection, sections, strict=True)), ball(0.0)
            )
            if not distance2 > 0:
                raise _MoreBitsNeededError
            step, leaving = violation / distance2, -1
            for a, (own, weight) in enumerate(zip(active.sides, active.weights, strict=True)):
                rate = own * side * projection[a]
                if not (rate > 0 or rate < 0 or radius(rate) <= _NEGLIGIBLE):
                    raise _MoreBitsNeededError
                if rate > 0 and middle(-own * weight / rate - step) < 0.0:
                    step, leaving = -own * weight / rate, a
            if leaving < 0:
                active = _Active((*active.points, new), (*active.sides, side))
                weights = self._solve(active.points, self._ends(active))
                if not all(weight * s < 0 for s, weight in zip(active.sides, weights, strict=True)):
                    raise _MoreBitsNeededError
                return active._replace(weights=weights)
            moved = tuple(w + side * step * p for w, p in zip(active.weights, projection, strict=True))
            active = active._replace(weights=moved).without(leaving)
            violation = violation - step * distance2
