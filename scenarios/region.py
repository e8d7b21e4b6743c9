"""Grids of initial states in the plane of two states, and what is found at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..certificates.certificate import Verdict
from ..data.arrays import FloatArray
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..reporting import figures
from .schema import Scenario


@dataclass(frozen=True, eq=False)
class Region:
    """Verdicts over a grid of initial states, by method or controller: `verdicts[name][i][j]`."""

    states: tuple[int, int]
    first: FloatArray
    second: FloatArray
    verdicts: dict[str, list[list[Verdict]]] = field(default_factory=dict)

    @classmethod
    def over(cls, limits: Box, states: tuple[int, int], shape: tuple[int, int]) -> Region:
        """A grid from limit to limit, without verdicts yet."""
        first, second = (np.linspace(limits.lower[i], limits.upper[i], n) for i, n in zip(states, shape, strict=True))
        return cls(states, first, second)

    def initial_states(self, others: FloatArray) -> FloatArray:
        """Of all points, the second state the inner loop; states that are not of the grid as in `others`."""
        x0 = np.tile(others, (len(self.first) * len(self.second), 1)).astype(np.float64)
        x0[:, self.states] = np.stack(np.meshgrid(self.first, self.second, indexing="ij"), axis=-1).reshape(-1, 2)
        return x0

    def add(self, name: str, verdicts: Sequence[Verdict]) -> None:
        """In the order of `initial_states`."""
        width = len(self.second)
        self.verdicts[name] = [list(verdicts[i * width : (i + 1) * width]) for i in range(len(self.first))]

    def certified(self, name: str) -> FloatArray:
        """Where the plans are certified, as a mask of the grid."""
        return np.array([[verdict is Verdict.CERTIFIED for verdict in row] for row in self.verdicts[name]])

    def figure(self, runs: Trajectories) -> Any:
        """The verdicts as maps, side by side."""
        labels = [figures.state_label(runs, state) for state in self.states]
        return figures.region_figure(self.first, self.second, self.verdicts, labels)


def phase_pairs(scenario: Scenario, names: tuple[str, ...]) -> list[tuple[int, int]]:
    """The states to draw phase portraits of: the first two by default, none where there is one state."""
    given = scenario.study.phase_states or ([(names[0], names[1])] if len(names) > 1 else [])
    return [_state_pair(pair, names, "study.phase_states") for pair in given]


def region_pair(given: tuple[str, str] | None, names: tuple[str, ...], section: str) -> tuple[int, int]:
    """The two states of a region, the first two by default."""
    if len(names) < 2:
        raise InputError(f"{section}.region needs two states")
    return _state_pair(given or names[:2], names, f"{section}.region_states")


def require_region(given: tuple[str, str] | None, names: tuple[str, ...], limits: Box, section: str) -> None:
    """Refuse, before any work, a region that cannot be drawn."""
    pair = list(region_pair(given, names, section))
    if not np.isfinite([limits.lower[pair], limits.upper[pair]]).all():
        raise InputError(f"{section}.region needs limits of both its states")


def _state_pair(names: Sequence[str], known: tuple[str, ...], what: str) -> tuple[int, int]:
    for name in names:
        if name not in known:
            raise InputError(f"{what} names {name!r}, but there is only {', '.join(known)}")
    if names[0] == names[1]:
        raise InputError(f"{what} must name two different states; got {names[0]!r} twice")
    return known.index(names[0]), known.index(names[1])
