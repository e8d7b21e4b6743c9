"""For ever: an invariant region of the plant, its proof, and policies of all kinds that a filter keeps in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...arithmetic.printing import rounded_down
from ...certificates.region import InvariantRegion
from ...control.certainty_equivalent import CertaintyEquivalentOCP
from ...control.invariance import invariant_region
from ...control.loop_log import Decision
from ...control.safety_filter import SafetyFilter
from ...data.arrays import FloatArray
from ...data.sets import Box
from ...errors import InputError
from ...models.plant import Plant
from ...parallel import in_parallel
from ...reporting import Gallery, Picture, Section, Table
from ...reporting.figures import loops_figure
from ...reporting.regions import region_for_ever_figure
from ..material import OPTIMAL, Material, Source, Work, plan_from
from ..schema import Count, Scenario, Settings
from .kind import Kind, Listing, Outcome, Run, Task, seconds_text

CERTAINTY_EQUIVALENT, HOSTILE, RANDOM = "certainty equivalent", "hostile", "random"
Policy = Callable[[FloatArray], FloatArray]
"""From a state to an input."""
Maker = Callable[[np.random.Generator], Policy]
"""One policy for every loop."""

_HELD = 60
"""So many steps an input is held to see where it leads."""
_KEPT = 25
"""So many steps a random input is kept."""
_DRAWN = 20
"""Loops that are drawn."""


class ForeverSettings(Settings):
    """Look for an invariant region, prove it, and filter policies with it."""

    cells: Annotated[list[Count], Field(default=[40, 30])]
    """Per state, to start with."""
    max_cells: Count | None = None
    """Where splitting stops; twice as many as at first by default."""
    runs: Count = 100
    """Loops per policy, from random states of the region."""
    steps: Count = 400
    table: Annotated[list[Count], Field(default=[])]
    """The certainty-equivalent policy is solved on a grid of so many states, and interpolated; 33 per state by default,
    17 for three and more."""
    checked: Count = 100_000
    """Random states of the region whose plans are followed on the simulated plant."""


@dataclass(frozen=True, eq=False)
class Loops:
    """All loops of one policy, as it is and filtered."""

    policy: str
    states: FloatArray
    """`(n_runs, n_steps + 1, n_states)`, filtered."""
    unfiltered: FloatArray
    decisions: dict[Decision, int]
    seconds: FloatArray
    """Per step of the filter."""


@dataclass(frozen=True, eq=False)
class ForeverOutcome(Outcome):
    """The region, what it came to on the plant, and the loops."""

    region: InvariantRegion
    seconds: float
    """That finding it took."""
    checked: int
    """True states that began in the region and followed its plans."""
    escaped: int
    """Of those, left the limits on the way or the region at the end."""
    loops: list[Loops]

    name: ClassVar[str] = "forever"

    def n_outside(self, states: FloatArray) -> int:
        """States after the first that break the limits."""
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
                    "steps": int(loops.seconds.size),
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
        certified = all(decision.is_certified for loops in self.loops for decision in loops.decisions)
        return self.escaped > 0 or (certified and any(self.n_outside(loops.states) for loops in self.loops))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                loops.policy,
                f"{loops.seconds.size:,}",
                f"{self.n_outside(loops.unfiltered):,}",
                f"{self.n_outside(loops.states):,}",
                *(f"{loops.decisions.get(kind, 0) / loops.seconds.size:.1%}" for kind in _KINDS),
                f"{sum(count for kind, count in loops.decisions.items() if not kind.is_certified):,}",
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
            f"of {self.checked:,} random states of the region that followed its plans on the simulated plant, "
            f"{self.escaped:,} left the limits, or the region at the end"
        )

    def remarks(self) -> list[str]:
        return [self._found(), self._checked()]

    def finding(self) -> str:
        return f"{self._found()}."

    def sections(self) -> list[Section]:
        text = (
            f"{self._found()}. From every state in them the plan of its cell keeps the limits up to its end, where the "
            f"state is in some cell again: so they can be kept for ever, as far as the assumptions hold. The file "
            f"region.json proves it. On the simulated plant, {self._checked()}."
        )
        filtered = (
            "A filter applies what a policy wants where that is certified to lead back into the region, and else the "
            "plan of the cell. The certainty-equivalent policy is interpolated from its plans on a grid; the hostile "
            "one holds the input that leads furthest out of the limits."
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
            "filtered_loops": loops_figure(shown, material.limits.states, material.runs),
        }

    def write(self, folder: Path) -> None:
        self.region.save(folder / "region.json", data_file=folder / "runs.npz", seed=self.task.work.seed)


_KINDS = (Decision.CERTIFIED, Decision.BLENDED, Decision.REGION)
_HEADER = ("policy", "steps", "out before", "out", "wanted", "between", "region", "uncert.", "a step")
_WHOLE = frozenset(range(1, len(_HEADER)))
_CAPTION = (
    "out before, out: true states outside the limits without and with the filter; wanted, region: steps with what the "
    "policy wanted, or the plan of the cell; between: with an input between the two; uncert.: steps that were not "
    "certified; a step: median time of the filter"
)


def prepare(settings: ForeverSettings, scenario: Scenario, source: Source) -> Run | None:
    """Cells are per state."""
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
    policies = _policies(settings, material, work)
    loops = [
        _loops(name, policy, region, x0, settings.steps, material.plant, work) for name, policy in policies.items()
    ]
    seconds = work.timings["looking for a region"]
    return ForeverOutcome(task, region, seconds, len(starts), escaped, loops)


def find_region(cells: list[int], max_cells: int | None, task: Task) -> InvariantRegion:
    """Of the predictor that decides, with measurements as far off as the scenario says; refused where there is none."""
    material, work = task.material, task.work
    with work.stage("looking for a region") as progress:
        region = invariant_region(
            material.predictors[OPTIMAL],
            material.limits,
            cells=cells,
            max_cells=max_cells,
            initial_state_noise=material.start_noise(task.scenario),
            n_jobs=work.n_jobs,
            progress=progress,
        )
    if not len(region):
        raise InputError("no region for ever was found within these limits; wider ones, or more runs, may help")
    return region


def states_in(region: InvariantRegion, n: int, rng: np.random.Generator) -> FloatArray:
    """Random states of a region, evenly spread."""
    sizes = np.prod(region.upper - region.lower, axis=1)
    cell = rng.choice(len(region), size=n, p=sizes / sizes.sum())
    return rng.uniform(region.lower[cell], region.upper[cell])


def n_escaped(region: InvariantRegion, plant: Plant, states: FloatArray) -> int:
    """How many of some states leave the limits with the plan of their cell, or do not end in the region."""
    owner = np.array([region.cell_at(x) for x in states])
    whole, escaped = region.limits.states, 0
    for at in np.unique(owner):
        mine, inputs = states[owner == at], region.cells[at].inputs
        after = plant.simulate(mine, np.broadcast_to(inputs, (len(mine), *inputs.shape)))[:, 1:]
        inside = whole.contains(after).all(axis=1) & np.asarray(region.contains(after[:, -1]))
        escaped += int((~inside).sum())
    return escaped


def _policies(settings: ForeverSettings, material: Material, work: Work) -> dict[str, Maker]:
    """What is filtered: a controller, an adversary, and chance."""
    control, plant, inputs = material.control, material.plant, material.limits.inputs
    assert control is not None
    assert plant is not None
    states, worst = material.limits.states, worst_input(plant, material.limits.states, inputs)
    table = settings.table or [33 if states.n_dims < 3 else 17] * states.n_dims
    controller = tabulated(control, states, table, work)
    return {
        CERTAINTY_EQUIVALENT: lambda rng: controller,
        HOSTILE: lambda rng: lambda x: worst,
        RANDOM: lambda rng: at_random(inputs, rng),
    }


def at_random(inputs: Box, rng: np.random.Generator) -> Policy:
    """Random inputs, each kept for a while: long enough to lead somewhere."""
    kept: list[FloatArray] = []

    def policy(x: FloatArray) -> FloatArray:
        if not kept:
            kept.extend([rng.uniform(inputs.lower, inputs.upper)] * _KEPT)
        return kept.pop()

    return policy


def tabulated(control: CertaintyEquivalentOCP, states: Box, shape: Sequence[int], work: Work) -> Policy:
    """The first inputs of a controller's plans on a grid of states, and between them interpolated."""
    from scipy.interpolate import RegularGridInterpolator

    axes = [np.linspace(low, high, n) for low, high, n in zip(states.lower, states.upper, shape, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    plans = plan_from(control, points.reshape(-1, states.n_dims), "planning over a grid", work)
    first = np.array([plan.inputs[0] for plan in plans]).reshape(*points.shape[:-1], -1)
    between = RegularGridInterpolator(axes, first)

    def policy(x: FloatArray) -> FloatArray:
        found: FloatArray = between(states.clip(x))[0]
        return found

    return policy


def worst_input(plant: Plant, states: Box, inputs: Box) -> FloatArray:
    """Of the corners of the limits of the inputs, the one that leads furthest out of those of the states when held."""
    corners = np.array(list(product(*zip(inputs.lower, inputs.upper, strict=True))))
    middle = np.tile((states.lower + states.upper) / 2.0, (len(corners), 1))
    after = plant.simulate(middle, np.repeat(corners[:, None], _HELD, axis=1))[:, 1:]
    room = np.minimum(after - states.lower, states.upper - after) / (states.upper - states.lower)
    worst: FloatArray = corners[int(room.min(axis=(1, 2)).argmin())]
    return worst


def _loops(
    name: str, make: Maker, region: InvariantRegion, x0: FloatArray, n_steps: int, plant: Plant, work: Work
) -> Loops:
    """As it is, and filtered, from the same states; loops are shared among processes."""
    n_parts = min(len(x0), max(1, work.n_jobs) * 4)
    parts, generators = np.array_split(x0, n_parts), np.random.default_rng(work.seed).spawn(n_parts)
    found = []
    with work.stage(f"loops, {name}") as progress:
        tasks = [(make, region, part, n_steps, plant, rng) for part, rng in zip(parts, generators, strict=True)]
        for done in in_parallel(_some_loops, tasks, work.n_jobs):
            found.append(done)
            progress(sum(len(states) for states, *_ in found), len(x0))
    states, unfiltered, decisions, seconds = zip(*found, strict=True)
    counts = {kind: sum(own.get(kind, 0) for own in decisions) for kind in Decision}
    return Loops(
        name,
        np.concatenate(states),
        np.concatenate(unfiltered),
        {kind: count for kind, count in counts.items() if count},
        np.concatenate(seconds),
    )


def _some_loops(
    make: Maker, region: InvariantRegion, x0: FloatArray, n_steps: int, plant: Plant, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, dict[Decision, int], FloatArray]:
    """Loops at the same time, so that the plant is simulated for all of them at once."""
    seeds = rng.bit_generator.seed_seq.spawn(len(x0))  # type: ignore[attr-defined]
    policies, same = ([make(np.random.default_rng(seed)) for seed in seeds] for _ in range(2))
    filters = [SafetyFilter(policy, region) for policy in policies]
    filtered = _driven(lambda k, x: filters[k](x), x0, n_steps, plant)
    unfiltered = _driven(lambda k, x: same[k](x), x0, n_steps, plant)
    decisions: dict[Decision, int] = {}
    for one in filters:
        for kind, count in one.decisions.items():
            decisions[kind] = decisions.get(kind, 0) + count
    return filtered, unfiltered, decisions, np.array([step.seconds for one in filters for step in one.log])


def _driven(decide: Callable[[int, FloatArray], FloatArray], x0: FloatArray, n_steps: int, plant: Plant) -> FloatArray:
    """States `(n_runs, n_steps + 1, n_states)` with inputs that are decided for every loop at every step."""
    states = [x0]
    for _ in range(n_steps):
        inputs = np.array([decide(k, x) for k, x in enumerate(states[-1])])
        states.append(plant.simulate(states[-1], inputs[:, None])[:, 1])
    return np.stack(states, axis=1)


def complaint(settings: ForeverSettings, scenario: Scenario) -> str:
    """Policies are run on a plant."""
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
