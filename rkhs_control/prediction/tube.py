"""Tubes: one box per future step that contains the true state."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import enlarged, outwards
from ..data.arrays import FloatArray, as_floats
from ..data.trajectories import Trajectories
from ..errors import InputError


@dataclass(frozen=True, eq=False)
class Tube:
    """One box per step that contains the true state: `lower`, `upper` and `gap` of shape `(n_steps, n_states)`.

    For many plans at once, all have a leading axis. `initial_state_cost` is how much of the width of each box is due to
    initial states, of the plan or of the recorded runs, that are not known exactly; NaN where the method does not tell.
    `witnesses`, with a last axis for lower and upper, prove the bounds; None where a method has none.
    """

    lower: FloatArray
    upper: FloatArray
    gap: FloatArray
    initial_state_cost: FloatArray
    witnesses: npt.NDArray[np.object_]

    def __getitem__(self, plan: int) -> Tube:
        """The tube of one of many plans."""
        return Tube(*(getattr(self, field.name)[plan] for field in fields(self)))

    @property
    def volumes(self) -> FloatArray:
        """Volumes of the boxes (areas, for two states)."""
        volumes: FloatArray = np.prod(self.upper - self.lower, axis=-1)
        return volumes

    @property
    def initial_state_share(self) -> float:
        """`initial_state_cost` as a share of all widths together."""
        return float(self.initial_state_cost.sum() / (self.upper - self.lower).sum())

    def contains(self, states: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether the states at the steps 1, 2, ... lie in their boxes; shape `(n_steps,)`, plans in front."""
        x = as_floats(states, "states")
        if x.shape != self.lower.shape:
            raise InputError(f"states must have the shape of the tube, {self.lower.shape}; got {x.shape}")
        inside: npt.NDArray[np.bool_] = np.all((self.lower <= x) & (x <= self.upper), axis=-1)
        return inside

    def contradicted_by(self, recorded: Trajectories) -> npt.NDArray[np.bool_]:
        """Where recorded states with their noise bounds do not intersect the boxes of these runs: shape as `lower`."""
        states, noise = recorded.states[:, 1:], enlarged(recorded.noise_bound, 2)
        low, high = outwards(states - noise, states + noise)
        disjoint: npt.NDArray[np.bool_] = (low > self.upper) | (high < self.lower)
        return disjoint

    def __repr__(self) -> str:
        """Its size and its ends, not its numbers."""
        if self.lower.ndim > 2:
            return f"Tube({len(self.lower)} plans of {self.lower.shape[1]} steps, {self.lower.shape[2]} states)"
        boxes = (
            "[" + ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in zip(*ends, strict=True)) + "]"
            for ends in ((self.lower[n], self.upper[n]) for n in sorted({0, len(self.lower) - 1}))
        )
        return f"Tube({len(self.lower)} steps, {self.lower.shape[1]} states: {' to '.join(boxes)})"
