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
    shape = (len(lower), len(polytope.offsets))
    margins, hopes = np.empty(shape), np.empty(shape)
    for n in range(shape[0]):
        for c, normal in enumerate(polytope.normals):
            far = np.where(normal > 0, upper[n], lower[n])
            near = np.where(normal > 0, lower[n], upper[n])
            used, offset = normal != 0, polytope.offsets[c]
            margins[n, c] = difference_down(offset, _dot_up(normal[used], far[used]))
            hopes[n, c] = -difference_down(-_dot_up(-normal[used], near[used]), offset)
    return margins, hopes


def _dot_up(normal: FloatArray, x: FloatArray) -> float:
    """`normal . x`, rounded up; exact for a plain limit of one state."""
    if len(normal) == 1 and abs(normal[0]) == 1.0:
        return float(normal[0] * x[0])
    return dot_up(normal, x)


def input_violation(plan: FloatArray, limits: PlacedLimits, names: tuple[str, ...]) -> str | None:
    """The first input, or change of one, outside its limits; changes are exact."""
    exact = [[Fraction(u) for u in row] for row in plan.tolist()]
    changes = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(exact)]
    for what, rows, box in (("", exact, limits.inputs), ("change of ", changes, limits.rates)):
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
    """A number as the checker writes it: so that it reads back the same, without a point where it is whole."""
    return repr(float(value) + 0.0).removesuffix(".0")
