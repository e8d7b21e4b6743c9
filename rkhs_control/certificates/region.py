"""Regions for ever: cells of states, each with a plan whose boxes keep the limits and end in the region again.

By induction the limits are kept for ever: from a state in a cell its plan keeps them up to its end, where the state
lies in some cell again. Where states are only measured, cells are cells of measured states: a plan then serves the
cell widened by what measurements may be off, and the box that it ends with, widened as much, lies in the region.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..arithmetic.printing import rounded_down
from ..arithmetic.rounding import further_out, up
from ..data.arrays import FloatArray, as_floats, as_points, read_only
from ..data.limits import PlacedLimits
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..prediction.predictor import MultiStepPredictor
from ..prediction.tube import Tube
from .shortcuts import Shown, explore

_AT_ONCE = 20_000_000
"""Maximum number of comparisons of points and cells at once."""


@dataclass(frozen=True, eq=False)
class Cell:
    """States from all of which one plan keeps the limits up to its end, where its box lies in the region."""

    box: Box
    """Box of states, as measured."""
    x0: FloatArray
    reach: FloatArray
    """True states are within this of `x0`: the box plus the measurement error."""
    inputs: FloatArray
    """`(n_steps, n_inputs)`."""
    tube: Tube
    """The boxes proved for all these states, `n_steps` of them."""

    def __post_init__(self) -> None:
        for array in (self.x0, self.reach, self.inputs, *vars(self.tube).values()):
            read_only(array)


def start_of(box: Box, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A point, and how far from it the true state may be if the measured one is in a box."""
    middle, reach = box.around()
    return middle, np.where(noise > 0.0, up(reach + noise), reach)


def widened(lower: FloatArray, upper: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The box in which measurements of states in a box may lie."""
    return further_out(lower, -noise), further_out(upper, noise)


@dataclass(frozen=True, eq=False)
class InvariantRegion:
    """States from which the limits can be kept for ever, and the plans that do it; `invariant_region` finds one.

    It holds if the assumptions of the predictor do. A region may be empty.
    """

    predictor: MultiStepPredictor
    limits: PlacedLimits
    initial_state_noise: FloatArray
    """How far true states may be from measured ones, `(n_states,)`."""
    cells: tuple[Cell, ...]

    @cached_property
    def lower(self) -> FloatArray:
        """Of all cells, `(n_cells, n_states)`."""
        return read_only(np.array([cell.box.lower for cell in self.cells]).reshape(-1, self.predictor.runs.n_states))

    @cached_property
    def upper(self) -> FloatArray:
        """Of all cells, `(n_cells, n_states)`."""
        return read_only(np.array([cell.box.upper for cell in self.cells]).reshape(-1, self.predictor.runs.n_states))

    @property
    def share(self) -> float:
        """Share of the volume of the limits."""
        whole = self.limits.states
        assert isinstance(whole, Box)
        parts = np.prod((self.upper - self.lower) / (whole.upper - whole.lower), axis=1)
        return float(min(parts.sum(), 1.0))

    @property
    def longest(self) -> int:
        """Steps of its longest plan; zero if there is none."""
        return max((len(cell.inputs) for cell in self.cells), default=0)

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        """Its size."""
        return (
            f"InvariantRegion({rounded_down(100.0 * self.share)} % of the limits for ever; {len(self)} cells, plans of "
            f"up to {self.longest} steps)"
        )

    def cell_at(self, x: npt.ArrayLike) -> int | None:
        """Index of the cell that contains a measured state `(n_states,)`; None outside the region."""
        state = as_floats(x, "x")
        if state.shape != (self.predictor.runs.n_states,):
            raise InputError(f"x must have shape ({self.predictor.runs.n_states},); got {state.shape}")
        found = np.flatnonzero(np.all((self.lower <= state) & (state <= self.upper), axis=1))
        return int(found[0]) if len(found) else None

    def contains(self, x: npt.ArrayLike) -> bool | npt.NDArray[np.bool_]:
        """Whether a measured state `(n_states,)` is in the region; for many, along the first axis, an array."""
        points = as_points(np.atleast_2d(as_floats(x, "x")), "x", self.lower.shape[1])
        found = np.zeros(len(points), dtype=bool)
        size = max(1, _AT_ONCE // max(1, self.lower.size))
        for first in range(0, len(points), size):
            part = points[first : first + size, None]
            found[first : first + size] = np.any(np.all((self.lower <= part) & (part <= self.upper), axis=2), axis=1)
        return bool(found[0]) if np.ndim(x) == 1 else found

    def plan(self, x: npt.ArrayLike) -> FloatArray:
        """The inputs `(n_steps, n_inputs)` that keep the limits from a measured state and end in the region."""
        at = self.cell_at(x)
        if at is None:
            raise InputError(f"{as_floats(x, 'x').tolist()} is not in the region: nothing is certified for ever there")
        return self.cells[at].inputs.copy()

    def covers(self, lower: FloatArray, upper: FloatArray) -> bool:
        """Whether every measurement of every state in a box lies in the region; compared exactly."""
        return is_covered(*widened(lower, upper, self.initial_state_noise), self.lower, self.upper)

    def first_covered(self, tube: Tube) -> int | None:
        """The first step of a tube whose box lies in the region, from 0; None where none does."""
        steps = range(len(tube.lower))
        return next((n for n in steps if self.covers(tube.lower[n], tube.upper[n])), None)

    def require_serves(self, runs: Trajectories, limits: PlacedLimits, noise: FloatArray) -> None:
        """Refuse a loop about another plant, with other limits, or with larger measurement errors."""
        for name in ("state_names", "input_names", "sampling_time"):
            ours, theirs = getattr(self.predictor.runs, name), getattr(runs, name)
            if ours != theirs:
                raise InputError(f"{name} of the region are {ours}, and of the loop's predictor {theirs}")
        own, given = self.limits.polytope, limits.polytope
        if not (np.array_equal(own.normals, given.normals) and (own.offsets <= given.offsets).all()):
            raise InputError("the region keeps other state limits than those of the loop: find a region for these")
        box, allowed = self.limits.input_box, limits.input_box
        if (box.lower < allowed.lower).any() or (box.upper > allowed.upper).any() or limits.has_rates:
            raise InputError("the plans of the region may break the limits on the loop's inputs, or on their rates")
        if (noise > self.initial_state_noise).any():
            raise InputError(
                f"the region serves measurements that are off by {self.initial_state_noise.tolist()}, and those of the "
                f"loop may be off by {noise.tolist()}: find one with that initial_state_noise"
            )

    def explore(self, title: str = "A region for ever") -> Shown:
        """A page that shows the plan of every cell, for notebooks and to `save`: `rc.explore`."""
        return explore(self, title)

    def save(self, file: str | Path, *, data_file: str | Path | None = None, seed: int | None = None) -> None:
        """Write a self-contained proof, which `verify` checks without trusting anything here.

        Arguments as for `Certificate.save`, and a second file as there; an empty region proves nothing, and is refused.
        """
        from .narrowing_file import write_narrowing
        from .region_file import region_file

        region_file(self, data_file, seed).write(file)
        write_narrowing(self.predictor, self.longest, Path(file).parent)


def is_covered(low: FloatArray, high: FloatArray, lower: FloatArray, upper: FloatArray) -> bool:
    """Whether a box lies in the union of others, which may touch and overlap; by comparisons only."""
    near = np.flatnonzero(((lower <= high) & (low <= upper)).all(axis=1))
    lower, upper = lower[near], upper[near]
    if not len(near):
        return False
    if ((lower <= low) & (high <= upper)).all(axis=1).any():
        return True
    cuts = [_cuts(*ends) for ends in zip(low.tolist(), high.tolist(), lower.T, upper.T, strict=True)]
    parts = list(product(*map(pairwise, cuts)))
    pieces = np.array(parts)  # (n_pieces, n_states, 2): no face of a box goes through any of these
    inside = (lower[None] <= pieces[:, None, :, 0]) & (pieces[:, None, :, 1] <= upper[None])
    return bool(np.any(np.all(inside, axis=2), axis=1).all())


def _cuts(low: float, high: float, lower: FloatArray, upper: FloatArray) -> list[float]:
    """The ends of a box, and the ends of others inside it."""
    ends = np.unique(np.concatenate([lower, upper]))
    inner = ends[(low < ends) & (ends < high)].tolist()
    return [low, *inner, high]
