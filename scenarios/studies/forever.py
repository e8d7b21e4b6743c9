"""For ever: an invariant region of the plant, its proof, and policies of all kinds that a safety filter keeps in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...arithmetic.printing import rounded_down
from ...certificates.region import InvariantRegion
from ...control.invariance import invariant_region
from ...control.loop_log import Decision
from ...data.arrays import FloatArray
from ...errors import InputError
from ...models.plant import Plant
from ...reporting import Gallery, Picture, Section, Table
from ...reporting.figures import loops_figure
from ...reporting.regions import region_for_ever_figure
from ..material import OPTIMAL, Source
from ..schema import Count, Scenario, Settings
from .filtered import Loops, filtered_loops, policies_for
from .kind import Kind, Listing, Outcome, Run, Task, seconds_text

_DRAWN = 20
"""Loops that are drawn."""


class ForeverSettings(Settings):
    """Look for an invariant region, prove it, and filter policies with it."""

    cells: Annotated[list[Count], Field(default=[40, 30])]
    """Per state, to start with."""
    max_cells: Count | None = None
    """Number of cells at which splitting stops; by default twice the initial number."""
    runs: Count = 100
    """Loops per policy, from random states in the region."""
    steps: Count = 400
    table: Annotated[list[Count], Field(default=[])]
    """Grid points per state on which the certainty-equivalent policy is solved, with interpolation in between; by
    default 33, or 17 for three or more states."""
    timed: Count = 100
    """Further steps per policy, run one at a time, to time the filter alone."""
    checked: Count = 100_000
    """Random states in the region whose plans are followed on the simulated plant."""


@dataclass(frozen=True, eq=False)
class ForeverOutcome(Outcome):
    """The region, how it fared on the plant, and the loops."""

    region: InvariantRegion
    seconds: float
    """Time taken to find it."""
    checked: int
    """True trajectories that started in the region and followed its plans."""
    escaped: int
    """Those of them that left the limits on the way, or did not end in the region."""
    loops: list[Loops]

    name: ClassVar[str] = "forever"

    def n_outside(self, states: FloatArray) -> int:
        """States after the first that violate the limits."""
        return int((~self.task.material.limits.states.contains(states[:, 1:])).sum())

    def summary(self) -> dict[str, Any]:
        return {
            "share": self.region.share,
            "cells": len(self.region),
            "longest_plan": self.region.longest,
            "seconds": self.seconds,
            "checked": self.checked,
            "escaped": self.escaped,
            "policies": {
                loops.policy: {
                    "steps": loops.n_steps,
                    "violations": self.n_outside(loops.states),
                    "violations_unfiltered": self.n_outside(loops.unfiltered),
                    "decisions": {decision.name: count for decision, count in loops.decisions.items()},
                    "median_milliseconds": 1e3 * float(np.median(loops.seconds)),
                    "longest_milliseconds": 1e3 * float(loops.seconds.max()),
                }
                for loops in self.loops
            },
        }

    @property
    def is_contradicted(self) -> bool:
        certified = not any(loops.n_uncertified for loops in self.loops)
        return self.escaped > 0 or (certified and any(self.n_outside(loops.states) for loops in self.loops))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                loops.policy,
                f"{loops.n_steps:,}",
                f"{self.n_outside(loops.unfiltered):,}",
                f"{self.n_outside(loops.states):,}",
                *(f"{loops.decisions.get(kind, 0) / loops.n_steps:.1%}" for kind in _KINDS),
                f"{loops.n_uncertified:,}",
                seconds_text(float(np.median(loops.seconds))),
            )
            for loops in self.loops
        ]

    def listings(self) -> list[Listing]:
        return [
            Listing(
                _HEADER, [self._rows()], title="Policies with and without the filter", caption=_CAPTION, whole=_WHOLE
            )
        ]

    def _found(self) -> str:
        return (
            f"{rounded_down(100.0 * self.region.share)} % of the limits are certified for ever, in "
            f"{len(self.region):,} cells with plans of up to {self.region.longest} steps, found in {self.seconds:.0f} s"
        )

    def _checked(self) -> str:
        return (
            f"of {self.checked:,} random states in the region whose plans were followed on the simulated plant, "
            f"{self.escaped:,} left the limits or did not end in the region"
        )

    def remarks(self) -> list[str]:
        return [self._found(), self._checked()]

    def finding(self) -> str:
        return f"{self._found()}."

    def sections(self) -> list[Section]:
        text = (
            f"{self._found()}. From every state in these cells, the plan of its cell keeps the limits to the end of "
            "the plan, where the state is in some cell again: so the limits can be kept for ever, if the "
            "assumptions hold. The file "
            f"region.json proves it. On the simulated plant, {self._checked()}."
        )
        filtered = (
            "The safety filter applies a policy's input where it is certified to lead back into the region, and "
            "otherwise the plan of the cell. The certainty-equivalent policy is interpolated from its plans on a "
            "grid; the hostile one holds the input that leads furthest outside the limits."
        )
        pictures = [
            Picture(figure, description)
            for (name, figure), description in zip(
                self.figures().items(),
                ("The cells of the region, coloured by the first input of their plans.", "Filtered loops over time."),
                strict=True,
            )
        ]
        return [
            Section(
                "For ever",
                [text, Gallery(pictures[:1]), filtered, Table(_HEADER, self._rows(), _CAPTION), Gallery(pictures[1:])],
            )
        ]

    def figures(self) -> dict[str, Any]:
        shown = {
            name: list(states[:_DRAWN])
            for loops in self.loops
            for name, states in ((loops.policy, loops.unfiltered), (f"{loops.policy}, filtered", loops.states))
        }
        material = self.task.material
        return {
            "forever": region_for_ever_figure(self.region),
            "filtered_loops": loops_figure(shown, material.limits.states, material.runs, per_row=2),
        }

    def write(self, folder: Path) -> None:
        self.region.save(folder / "region.json", data_file=folder / "runs.npz", seed=self.task.work.seed)


_KINDS = (Decision.CERTIFIED, Decision.BLENDED, Decision.REGION)
_HEADER = ("policy", "steps", "out\nbefore", "out", "wanted", "between", "region", "uncert.", "a step")
_WHOLE = frozenset(range(1, len(_HEADER)))
_CAPTION = (
    "out before, out: true states outside the limits without and with the filter; wanted, region: steps with the "
    "policy's input, or the plan of the cell; between: with an input between the two; uncert.: steps that were not "
    "certified; a step: median time of the filter per step, one step at a time"
)


def prepare(settings: ForeverSettings, scenario: Scenario, source: Source) -> Run | None:
    """Check that cells and table have one entry per state."""
    source.require_states("[forever]")
    if len(settings.cells) != len(source.state_names):
        raise InputError(f"forever.cells must be one per state ({', '.join(source.state_names)}); got {settings.cells}")
    if settings.table and len(settings.table) != len(source.state_names):
        raise InputError(f"forever.table must be one per state ({', '.join(source.state_names)}); got {settings.table}")
    return partial(run, settings)


def run(settings: ForeverSettings, task: Task) -> ForeverOutcome:
    """Find the region, follow its plans on the plant, then run the policies."""
    material, work = task.material, task.work
    region = find_region(settings.cells, settings.max_cells, task)
    assert material.plant is not None
    with work.stage("following its plans on the plant") as progress:
        starts = states_in(region, settings.checked, work.rng)
        escaped = n_escaped(region, material.plant, starts)
        progress(1, 1)
    x0 = states_in(region, settings.runs, work.rng)
    policies = policies_for(settings.table, material, work)
    loops = filtered_loops(policies, region, x0, settings.steps, settings.timed, material.plant, work)
    seconds = work.timings["looking for a region"]
    return ForeverOutcome(task, region, seconds, len(starts), escaped, loops)


def find_region(
    cells: list[int], max_cells: int | None, task: Task, candidates: FloatArray | None = None
) -> InvariantRegion:
    """The region of the deciding predictor, with the scenario's measurement error; refused where none is found."""
    material, work = task.material, task.work
    with work.stage("looking for a region") as progress:
        region = invariant_region(
            material.predictors[OPTIMAL],
            material.limits,
            cells=cells,
            max_cells=max_cells,
            candidates=candidates,
            initial_state_noise=material.start_noise(task.scenario),
            n_jobs=work.n_jobs,
            progress=progress,
        )
    if not len(region):
        raise InputError("no region for ever was found within these limits; wider limits or more runs may help")
    return region


def states_in(region: InvariantRegion, n: int, rng: np.random.Generator) -> FloatArray:
    """Random states, uniform over a region."""
    sizes = np.prod(region.upper - region.lower, axis=1)
    cell = rng.choice(len(region), size=n, p=sizes / sizes.sum())
    return rng.uniform(region.lower[cell], region.upper[cell])


def n_escaped(region: InvariantRegion, plant: Plant, states: FloatArray) -> int:
    """How many of these states leave the limits under the plan of their cell, or do not end in the region."""
    owner = np.array([region.cell_at(x) for x in states])
    whole, escaped = region.limits.states, 0
    for at in np.unique(owner):
        mine, inputs = states[owner == at], region.cells[at].inputs
        after = plant.simulate(mine, np.broadcast_to(inputs, (len(mine), *inputs.shape)))[:, 1:]
        inside = whole.contains(after).all(axis=1) & np.asarray(region.contains(after[:, -1]))
        escaped += int((~inside).sum())
    return escaped


def complaint(settings: ForeverSettings, scenario: Scenario) -> str:
    """Policies need a plant to run on."""
    if scenario.plant is None or scenario.control is None:
        return "[forever] needs the truth, which only a simulated [plant] has, and a [control] to filter"
    return ""


KIND = Kind(
    "forever",
    ForeverSettings,
    prepare,
    complaint,
    files=("forever.*", "filtered_loops.*", "region.json", "narrowing_*"),
)
