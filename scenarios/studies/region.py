"""From where plans are certified: verdicts over a grid of initial states in the plane of two states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...certificates.certificate import Verdict
from ...data.arrays import FloatArray
from ...data.sets import Box
from ...data.trajectories import Trajectories
from ...errors import InputError
from ...reporting import Gallery, Picture, Section, figures
from ..material import Source, plan_from
from ..schema import GENERAL, Count, Scenario, state_pair
from .kind import Kind, Outcome, Run, Task
from .plans import PlansSettings, certify_all


class RegionSettings(PlansSettings):
    """Whether verdicts over a grid of initial states are drawn; states that are not of it as in the first plan."""

    region: tuple[Count, Count] | None = None
    """Verdicts over a grid of initial states."""
    region_states: tuple[str, str] | None = None
    """The two states of that grid, the first two by default; others are those of the first initial state."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Initial states in the plane of two states."""

    states: tuple[int, int]
    first: FloatArray
    second: FloatArray

    @classmethod
    def over(cls, limits: Box, states: tuple[int, int], shape: tuple[int, int]) -> Grid:
        """From limit to limit."""
        first, second = (np.linspace(limits.lower[i], limits.upper[i], n) for i, n in zip(states, shape, strict=True))
        return cls(states, first, second)

    def initial_states(self, others: FloatArray) -> FloatArray:
        """Of all points, the second state the inner loop; states that are not of the grid as in `others`."""
        x0 = np.tile(others, (len(self.first) * len(self.second), 1)).astype(np.float64)
        x0[:, self.states] = np.stack(np.meshgrid(self.first, self.second, indexing="ij"), axis=-1).reshape(-1, 2)
        return x0

    def rows(self, verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
        """Verdicts in the order of `initial_states` by first and second state."""
        width = len(self.second)
        return [list(verdicts[i * width : (i + 1) * width]) for i in range(len(self.first))]


@dataclass(frozen=True, eq=False)
class VerdictMap:
    """Verdicts over a grid, by method or controller, each in the order of `Grid.initial_states`."""

    grid: Grid
    verdicts: Mapping[str, Sequence[Verdict]]

    def certified(self, name: str) -> npt.NDArray[np.bool_]:
        """Where the plans are certified, as a mask of the grid."""
        return np.array(
            [[verdict is Verdict.CERTIFIED for verdict in row] for row in self.grid.rows(self.verdicts[name])]
        )

    @property
    def shares(self) -> dict[str, float]:
        """Certified, of all."""
        return {name: certified_share(verdicts) for name, verdicts in self.verdicts.items()}

    def summary(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "first": self.grid.first.tolist(),
            "second": self.grid.second.tolist(),
            "verdicts": {
                name: [[verdict.name for verdict in row] for row in self.grid.rows(verdicts)]
                for name, verdicts in self.verdicts.items()
            },
        }

    def figure(self, runs: Trajectories, names: Iterable[str] | None = None) -> Any:
        """The verdicts as maps, side by side; all of them, or those that are named."""
        maps = {name: self.grid.rows(self.verdicts[name]) for name in names or self.verdicts}
        labels = [figures.state_label(runs, state) for state in self.grid.states]
        return figures.region_figure(self.grid.first, self.grid.second, maps, labels)


@dataclass(frozen=True, eq=False)
class RegionOutcome(Outcome):
    """A map for every method."""

    map: VerdictMap

    name: ClassVar[str] = "region"

    def summary(self) -> dict[str, Any]:
        return self.map.summary()

    @property
    def is_contradicted(self) -> bool:
        return False

    def remarks(self) -> list[str]:
        shares = ", ".join(f"{method} {share:.1%}" for method, share in self.map.shares.items())
        return [f"certified share of the initial states within the limits: {shares}"]

    def sections(self) -> list[Section]:
        shares, grid = self.map.shares, self.map.grid
        pictures = [
            Picture(
                self.map.figure(self.task.material.runs, [method]),
                f"Verdicts over a grid of initial states, {method} bounds: {share:.1%} certified.",
            )
            for method, share in shares.items()
        ]
        found = ", ".join(f"{method} bounds certify {share:.1%}" for method, share in shares.items())
        text = (
            f"Plans of the controller from a grid of {len(grid.first)} by {len(grid.second)} initial states within the "
            f"limits: {found}."
        )
        return [Section("From where it is certified", [text, Gallery(pictures)])]

    def figures(self) -> dict[str, Any]:
        return {"region": self.map.figure(self.task.material.runs)}


def certified_share(verdicts: Iterable[Verdict]) -> float:
    """How many of them are `CERTIFIED`, of all."""
    return float(np.mean([verdict is Verdict.CERTIFIED for verdict in verdicts]))


def region_pair(given: tuple[str, str] | None, names: tuple[str, ...], limits: Box, section: str) -> tuple[int, int]:
    """The two states of a region, the first two by default; refused if it cannot be drawn."""
    if len(names) < 2:
        raise InputError(f"{section}.region needs two states")
    pair = state_pair(given or names[:2], names, f"{section}.region_states")
    if not np.isfinite([limits.lower[list(pair)], limits.upper[list(pair)]]).all():
        raise InputError(f"{section}.region needs limits of both its states")
    return pair


def prepare(settings: RegionSettings, scenario: Scenario, source: Source) -> Run | None:
    """The grid is known before the work."""
    if settings.region is None:
        return None
    source.require_states("region in [study]")
    pair = region_pair(settings.region_states, source.state_names, source.limits.states, GENERAL)
    grid = Grid.over(source.limits.states, pair, settings.region)
    return partial(run, grid, grid.initial_states(np.array(settings.initial_states[0])))


def run(grid: Grid, x0: FloatArray, task: Task) -> RegionOutcome:
    """Plan from all initial states of the grid, and certify with every method."""
    control = task.material.control
    assert control is not None
    plans = [plan.inputs for plan in plan_from(control, x0, "planning over the region", task.work)]
    verdicts = {}
    for method in task.material.predictors:
        certificates = certify_all(task, method, list(x0), plans, stage=f"the region, {method}")
        verdicts[method] = [certificate.verdict for certificate in certificates]
    return RegionOutcome(task, VerdictMap(grid, verdicts))


def complaint(settings: RegionSettings, scenario: Scenario) -> str:
    """States that are not of the grid are those of the first initial state."""
    if settings.region is not None and not settings.initial_states:
        return "region in [study] needs [control], which plans, and initial_states"
    return ""


KIND = Kind(GENERAL, RegionSettings, prepare, complaint, files=("region.*",))
