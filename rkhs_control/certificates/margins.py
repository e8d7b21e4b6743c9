"""How far boxes are inside limits: margins rounded down, hopes rounded up, and inputs compared exactly."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..arithmetic.rounding import difference_down, dot_up
from ..data.arrays import FloatArray
from ..data.limits import PlacedLimits
from ..data.sets import Box, Polytope


def box_margins(lower: FloatArray, upper: FloatArray, polytope: Polytope) -> tuple[FloatArray, FloatArray]:
    """How far inside every constraint the worst corner of every box is, rounded down, and the best one, rounded up."""
    normals, offsets = polytope.normals, polytope.offsets
    margins = difference_down(offsets, _furthest_up(normals, lower, upper))
    return margins, -difference_down(-_furthest_up(-normals, lower, upper), offsets)


def _furthest_up(normals: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """The largest `normal . x` in every box, rounded up; exact for a plain limit on one state."""
    used = normals != 0.0
    is_plain = (used.sum(axis=1) == 1) & (np.abs(normals).sum(axis=1) == 1.0)
    place, rows = used.argmax(axis=1), np.arange(len(normals))
    furthest = np.where(normals[rows, place] > 0.0, upper[:, place], -lower[:, place])
    for c in np.flatnonzero(~is_plain):
        for n, ends in enumerate(zip(lower[:, used[c]], upper[:, used[c]], strict=True)):
            furthest[n, c] = dot_up(normals[c, used[c]], np.where(normals[c, used[c]] > 0.0, ends[1], ends[0]))
    return furthest


def input_violation(plan: FloatArray, limits: PlacedLimits, names: tuple[str, ...]) -> str | None:
    """The first input, or input change, outside its limits; changes are computed exactly."""
    inputs, changes = plan.tolist(), []
    if limits.rates is not None:
        exact = [[Fraction(u) for u in row] for row in inputs]
        changes = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(exact)]
    for what, rows, box in (("", inputs, limits.inputs), ("change of ", changes, limits.rates)):
        if box is None:
            continue
        ends = list(zip(names, box.lower.tolist(), box.upper.tolist(), strict=True))
        for n, row in enumerate(rows):
            for value, (name, low, high) in zip(row, ends, strict=True):
                if value < low or value > high:
                    return f"the {what}input {name} at step {n} is {float(value):.6g}, outside [{low:g}, {high:g}]"
    return None


def constraint_names(limits: Box | Polytope, names: tuple[str, ...]) -> tuple[str, ...]:
    """In the order of `Box.as_polytope`: uppers, then lowers; those of a polytope are numbered."""
    if isinstance(limits, Polytope):
        return tuple(f"constraint {c}" for c in range(len(limits.offsets)))
    uppers = [f"{name} <= {_exact(end)}" for name, end in zip(names, limits.upper, strict=True) if np.isfinite(end)]
    lowers = [f"{name} >= {_exact(end)}" for name, end in zip(names, limits.lower, strict=True) if np.isfinite(end)]
    return tuple(uppers + lowers)


def _exact(value: float) -> str:
    """A number as the checker writes it: it reads back the same, and whole numbers have no decimal point."""
    return repr(float(value) + 0.0).removesuffix(".0")
