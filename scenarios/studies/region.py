"""Where plans are certified from: one verdict per cell of a grid in the plane of two states, for the whole cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...certificates.certificate import Certificate, Verdict
from ...certificates.region import start_of
from ...data.arrays import FloatArray
from ...data.sets import Box
from ...data.trajectories import Trajectories
from ...errors import InputError
from ...reporting import Gallery, Picture, Section, figures
from ...reporting.labels import state_label
from ..material import Source, plan_from
from ..schema import GENERAL, Count, Scenario, state_pair
from .kind import Kind, Outcome, Run, Task
from .plans import PlansSettings, certify_all

_TRIED = 10
"""True states per certified cell that are tried on a simulated plant."""


class RegionSettings(PlansSettings):
    """Whether to map verdicts over cells of initial states; the remaining states are as in the first plan."""

    region: tuple[Count, Count] | None = None
    """Numbers of cells that the limits are cut into; plans are certified from everywhere in each cell."""
    region_states: tuple[str, str] | None = None
    """The two states of these cells, by default the first two; the others are as in the first initial state."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Initial states in the plane of two states: points, or cells represented by their midpoints."""

    states: tuple[int, int]
    first: FloatArray
    second: FloatArray
    ends: tuple[FloatArray, FloatArray] | None = None
    """Cell edges per state, one more than there are cells; none for points."""

    @classmethod
    def over(cls, limits: Box, states: tuple[int, int], shape: tuple[int, int]) -> Grid:
        """From limit to limit."""
        first, second = (np.linspace(limits.lower[i], limits.upper[i], n) for i, n in zip(states, shape, strict=True))
        return cls(states, first, second)

    @classmethod
    def of_cells(cls, limits: Box, states: tuple[int, int], shape: tuple[int, int]) -> Grid:
        """Cells that fill the limits."""
        ends = tuple(np.linspace(limits.lower[i], limits.upper[i], n + 1) for i, n in zip(states, shape, strict=True))
        first, second = ((end[:-1] + end[1:]) / 2.0 for end in ends)
        return cls(states, first, second, (ends[0], ends[1]))

    def initial_states(self, others: FloatArray) -> FloatArray:
        """All points, with the second state varying fastest; states outside the grid are as in `others`."""
        x0 = np.tile(others, (len(self.first) * len(self.second), 1)).astype(np.float64)
        x0[:, self.states] = np.stack(np.meshgrid(self.first, self.second, indexing="ij"), axis=-1).reshape(-1, 2)
        return x0

    def boxes(self, others: FloatArray) -> list[Box]:
        """All cells, in the order of `initial_states`."""
        assert self.ends is not None
        first, second = self.ends
        lower = Grid(self.states, first[:-1], second[:-1]).initial_states(others)
        upper = Grid(self.states, first[1:], second[1:]).initial_states(others)
        return [Box(*ends) for ends in zip(lower, upper, strict=True)]

    def rows(self, verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
        """Verdicts in the order of `initial_states`, arranged by first and second state."""
        width = len(self.second)
        return [list(verdicts[i * width : (i + 1) * width]) for i in range(len(self.first))]


@dataclass(frozen=True, eq=False)
class VerdictMap:
    """Verdicts over a grid by method or controller, each in the order of `Grid.initial_states`."""

    grid: Grid
    verdicts: Mapping[str, Sequence[Verdict]]
    middles: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Midpoints from which the plan is certified although the whole cell is undecided."""

    def certified(self, name: str) -> npt.NDArray[np.bool_]:
        """Where the plans are certified, as a mask of the grid."""
        return np.array(
            [[verdict is Verdict.CERTIFIED for verdict in row] for row in self.grid.rows(self.verdicts[name])]
        )

    @property
    def shares(self) -> dict[str, float]:
        """Certified share of all."""
        return {name: certified_share(verdicts) for name, verdicts in self.verdicts.items()}

    def summary(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            "first": self.grid.first.tolist(),
            "second": self.grid.second.tolist(),
            **({} if self.grid.ends is None else {"cells_end_at": [ends.tolist() for ends in self.grid.ends]}),
            "verdicts": {
                name: [[verdict.name for verdict in row] for row in self.grid.rows(verdicts)]
                for name, verdicts in self.verdicts.items()
            },
            **({"certified_from_the_middle_alone": dict(self.middles)} if self.middles else {}),
        }

    def figure(self, runs: Trajectories, names: Iterable[str] | None = None) -> Any:
        """The verdicts as maps side by side; all of them, or only the named ones."""
        maps = {name: self.grid.rows(self.verdicts[name]) for name in names or self.verdicts}
        labels = [state_label(runs, state) for state in self.grid.states]
        first, second = self.grid.ends or (self.grid.first, self.grid.second)
        return figures.region_figure(first, second, maps, labels, self.middles)


@dataclass(frozen=True, eq=False)
class RegionOutcome(Outcome):
    """One map per method."""

    map: VerdictMap
    checked: int
    """True states in certified cells whose plans were followed on the simulated plant."""
    escaped: int
    """Those of them that left the limits: none if the assumptions hold."""

    name: ClassVar[str] = "region"

    def summary(self) -> dict[str, Any]:
        return {**self.map.summary(), "shares": self.map.shares, "checked": self.checked, "escaped": self.escaped}

    @property
    def is_contradicted(self) -> bool:
        return self.escaped > 0

    def _from_middles(self, method: str) -> float:
        """Share of cells that are certified only from their midpoint."""
        return len(self.map.middles[method]) / len(self.map.verdicts[method])

    def _about_truth(self) -> list[str]:
        if not self.checked:
            return []
        return [
            f"of {self.checked:,} random states in certified cells whose plans were followed on the simulated plant, "
            f"{self.escaped:,} left the limits"
        ]

    def remarks(self) -> list[str]:
        shares = ", ".join(
            f"{method} {share:.1%} (and {self._from_middles(method):.1%} only from the midpoint of the cell)"
            for method, share in self.map.shares.items()
        )
        return [f"share of the limits in cells certified as a whole: {shares}", *self._about_truth()]

    def sections(self) -> list[Section]:
        shares, grid = self.map.shares, self.map.grid
        pictures = [
            Picture(
                self.map.figure(self.task.material.runs, [method]),
                f"Verdicts over cells of initial states, {method} bounds: {share:.1%} of the area is certified.",
            )
            for method, share in shares.items()
        ]
        found = ", ".join(f"{method} bounds certify {share:.1%}" for method, share in shares.items())
        text = (
            f"The limits are cut into {len(grid.first)} by {len(grid.second)} cells of initial states. The "
            f"controller's plan from the midpoint of a cell is certified if it keeps the limits from everywhere in "
            f"the cell, so this is about all states, not just points of a grid. By share of the area, {found}. A "
            "dot marks a cell that is undecided as a whole but whose plan is certified from the midpoint itself."
        )
        truth = [f"{said[0].upper()}{said[1:]}." for said in self._about_truth()]
        return [Section("From where it is certified", [text, *truth, Gallery(pictures)])]

    def figures(self) -> dict[str, Any]:
        return {"region": self.map.figure(self.task.material.runs)}


def certified_share(verdicts: Iterable[Verdict]) -> float:
    """The share of `CERTIFIED` verdicts."""
    return float(np.mean([verdict is Verdict.CERTIFIED for verdict in verdicts]))


def region_pair(given: tuple[str, str] | None, names: tuple[str, ...], limits: Box, section: str) -> tuple[int, int]:
    """The two states of a region, by default the first two; refused if it cannot be drawn."""
    if len(names) < 2:
        raise InputError(f"{section}.region needs two states")
    pair = state_pair(given or names[:2], names, f"{section}.region_states")
    if not np.isfinite([limits.lower[list(pair)], limits.upper[list(pair)]]).all():
        raise InputError(f"{section}.region needs limits of both its states")
    return pair


def prepare(settings: RegionSettings, scenario: Scenario, source: Source) -> Run | None:
    """Check the cells before any work is done."""
    if settings.region is None:
        return None
    source.require_states("region in [study]")
    pair = region_pair(settings.region_states, source.state_names, source.limits.states, GENERAL)
    grid = Grid.of_cells(source.limits.states, pair, settings.region)
    return partial(run, grid, np.array(settings.initial_states[0]))


def run(grid: Grid, others: FloatArray, task: Task) -> RegionOutcome:
    """Plan from every midpoint, certify from everywhere in its cell with every method, and try some true states."""
    material, work = task.material, task.work
    assert material.control is not None
    noise = material.start_noise(task.scenario)
    starts = [start_of(box, noise) for box in grid.boxes(others)]
    x0, reach = np.array([x for x, _ in starts]), np.max([own for _, own in starts], axis=0)
    plans = [plan.inputs for plan in plan_from(material.control, x0, "planning over the region", work)]
    verdicts, middles = {}, {}
    certified = np.zeros(len(x0), dtype=bool)
    for method in material.predictors:
        found = certify_all(task, method, list(x0), plans, stage=f"the region, {method}", reach=reach)
        verdicts[method] = [certificate.verdict for certificate in found]
        certified |= [verdict is Verdict.CERTIFIED for verdict in verdicts[method]]
        open_ones = [k for k, verdict in enumerate(verdicts[method]) if verdict is Verdict.UNDECIDED]
        alone = []
        if open_ones:
            some = [plans[k] for k in open_ones]
            alone = certify_all(task, method, list(x0[open_ones]), some, stage=f"midpoints of cells, {method}")
        middles[method] = _points([c for c in alone if c.verdict is Verdict.CERTIFIED], grid.states)
    checked, escaped = _tried(x0[certified], reach, np.array(plans)[certified], task)
    return RegionOutcome(task, VerdictMap(grid, verdicts, middles), checked, escaped)


def _points(certificates: Sequence[Certificate], states: tuple[int, int]) -> list[tuple[float, float]]:
    """Where plans start, in the plane of two states."""
    starts = (certificate.question.x0 for certificate in certificates)
    return [(float(x[states[0]]), float(x[states[1]])) for x in starts]


def _tried(x0: FloatArray, reach: FloatArray, plans: FloatArray, task: Task) -> tuple[int, int]:
    """How many random true states within reach of `x0` were tried on the plant, and how many left the limits."""
    plant = task.material.plant
    if plant is None or not len(x0):
        return 0, 0
    rng = np.random.default_rng(task.work.seed)
    states = np.repeat(x0, _TRIED, axis=0) + reach * rng.uniform(-1.0, 1.0, (_TRIED * len(x0), len(reach)))
    truths = plant.simulate(states, np.repeat(plans, _TRIED, axis=0))[:, 1:]
    return len(states), int((~task.material.limits.states.contains(truths).all(axis=1)).sum())


def complaint(settings: RegionSettings, scenario: Scenario) -> str:
    """States outside the grid are those of the first initial state."""
    if settings.region is not None and not settings.initial_states:
        return "region in [study] needs [control], which plans, and initial_states"
    return ""


KIND = Kind(GENERAL, RegionSettings, prepare, complaint, files=("region.*",))
