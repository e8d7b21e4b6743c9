"""Policies of all kinds on the simulated plant, unfiltered and filtered; all loops of a part run in lockstep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...certificates.region import InvariantRegion
from ...control.certainty_equivalent import CertaintyEquivalentOCP
from ...control.lockstep import make_steps
from ...control.loop_log import Decision
from ...control.safety_filter import SafetyFilter
from ...data.arrays import FloatArray
from ...data.sets import Box
from ...models.plant import Plant
from ...parallel import in_parallel
from ..material import Material, Work, plan_from

CERTAINTY_EQUIVALENT, HOSTILE, RANDOM = "certainty equivalent", "hostile", "random"
Policy = Callable[[FloatArray], FloatArray]
"""Maps the states of several loops `(n_loops, n_states)` to inputs `(n_loops, n_inputs)`."""
Maker = Callable[[np.random.Generator], Policy]
"""Makes a fresh policy for several loops."""

_HELD = 60
"""Steps for which an input is held to see where it leads."""
_KEPT = 25
"""Steps for which a random input is held."""
_IN_LOCKSTEP = 25
"""Loops per task. Random numbers are drawn per task, so they do not depend on the number of processes."""


@dataclass(frozen=True, eq=False)
class Loops:
    """All loops of one policy, unfiltered and filtered."""

    policy: str
    states: FloatArray
    """`(n_loops, n_steps + 1, n_states)`, filtered."""
    unfiltered: FloatArray
    decisions: dict[Decision, int]
    seconds: FloatArray
    """Time that the filter took for single steps of a further loop."""

    @property
    def n_steps(self) -> int:
        """Steps of all filtered loops together."""
        return sum(self.decisions.values())

    @property
    def n_uncertified(self) -> int:
        """Those of them whose input was not certified."""
        return sum(count for decision, count in self.decisions.items() if not decision.is_certified)


def policies_for(table: Sequence[int], material: Material, work: Work) -> dict[str, Maker]:
    """The policies to filter: a controller, an adversary, and random inputs."""
    control, plant, inputs = material.control, material.plant, material.limits.inputs
    assert control is not None
    assert plant is not None
    states, worst = material.limits.states, worst_input(plant, material.limits.states, inputs)
    shape = table or [33 if states.n_dims < 3 else 17] * states.n_dims
    controller = tabulated(control, states, shape, work)
    return {
        CERTAINTY_EQUIVALENT: lambda rng: controller,
        HOSTILE: lambda rng: lambda x: np.tile(worst, (len(x), 1)),
        RANDOM: lambda rng: at_random(inputs, rng),
    }


def at_random(inputs: Box, rng: np.random.Generator) -> Policy:
    """Random inputs, each held long enough to lead somewhere."""
    kept: list[FloatArray] = []

    def policy(x: FloatArray) -> FloatArray:
        if not kept:
            kept.extend([rng.uniform(inputs.lower, inputs.upper, (len(x), inputs.n_dims))] * _KEPT)
        return kept.pop()

    return policy


def tabulated(control: CertaintyEquivalentOCP, states: Box, shape: Sequence[int], work: Work) -> Policy:
    """The first inputs of a controller's plans on a grid of states, interpolated in between."""
    from scipy.interpolate import RegularGridInterpolator

    axes = [np.linspace(low, high, n) for low, high, n in zip(states.lower, states.upper, shape, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    plans = plan_from(control, points.reshape(-1, states.n_dims), "planning over a grid", work)
    first = np.array([plan.inputs[0] for plan in plans]).reshape(*points.shape[:-1], -1)
    between = RegularGridInterpolator(axes, first)

    def policy(x: FloatArray) -> FloatArray:
        found: FloatArray = between(states.clip(x))
        return found

    return policy


def worst_input(plant: Plant, states: Box, inputs: Box) -> FloatArray:
    """The corner of the input limits that, when held, leads furthest outside the state limits."""
    corners = np.array(list(product(*zip(inputs.lower, inputs.upper, strict=True))))
    middle = np.tile((states.lower + states.upper) / 2.0, (len(corners), 1))
    after = plant.simulate(middle, np.repeat(corners[:, None], _HELD, axis=1))[:, 1:]
    room = np.minimum(after - states.lower, states.upper - after) / (states.upper - states.lower)
    worst: FloatArray = corners[int(room.min(axis=(1, 2)).argmin())]
    return worst


def filtered_loops(
    policies: dict[str, Maker],
    region: InvariantRegion,
    x0: FloatArray,
    n_steps: int,
    n_timed: int,
    plant: Plant,
    work: Work,
) -> list[Loops]:
    """Every policy, unfiltered and filtered, from the same states; the loops are shared among processes.

    At the end, `n_timed` steps of every policy are filtered one at a time, as on a real plant.
    """
    n_parts = -(-len(x0) // _IN_LOCKSTEP)
    parts, generators = np.array_split(x0, n_parts), np.random.default_rng(work.seed).spawn(n_parts)
    tasks = [
        (make, region, part, n_steps, plant, rng)
        for make in policies.values()
        for part, rng in zip(parts, generators, strict=True)
    ]
    found = []
    with work.stage("filtered loops") as progress:
        for done in in_parallel(_some_loops, tasks, work.n_jobs):
            found.append(done)
            progress(sum(len(states) for states, *_ in found), len(policies) * len(x0))
    loops = []
    for k, (name, make) in enumerate(policies.items()):
        states, unfiltered, decisions = zip(*found[k * n_parts : (k + 1) * n_parts], strict=True)
        with work.stage("timing single steps"):
            seconds = _seconds_alone(make(np.random.default_rng(work.seed)), region, x0[0], n_timed, plant)
        total = sum(decisions, Counter[Decision]())
        loops.append(Loops(name, np.concatenate(states), np.concatenate(unfiltered), dict(total), seconds))
    return loops


def _some_loops(
    make: Maker, region: InvariantRegion, x0: FloatArray, n_steps: int, plant: Plant, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, Counter[Decision]]:
    """Loops in lockstep: states with the filter, states without it, and the decisions."""
    seed = int(rng.integers(2**63))
    policy, same = (make(np.random.default_rng(seed)) for _ in range(2))
    filters = [SafetyFilter(None, region) for _ in x0]
    filtered = _driven(lambda x: make_steps(filters, x, policy(x)), x0, n_steps, plant)
    unfiltered = _driven(same, x0, n_steps, plant)
    return filtered, unfiltered, sum((one.decisions for one in filters), Counter[Decision]())


def _seconds_alone(policy: Policy, region: InvariantRegion, x0: FloatArray, n_steps: int, plant: Plant) -> FloatArray:
    """How long single steps take; an additional first step is not counted, as it may have to load compiled code."""
    alone = SafetyFilter(lambda x: policy(x[None])[0], region)
    _driven(lambda x: alone(x[0])[None], x0[None], n_steps + 1, plant)
    return np.array([step.seconds for step in alone.log[1:]])


def _driven(decide: Policy, x0: FloatArray, n_steps: int, plant: Plant) -> FloatArray:
    """States `(n_loops, n_steps + 1, n_states)` with inputs decided for all loops at once at every step."""
    states = [x0]
    for _ in range(n_steps):
        states.append(plant.simulate(states[-1], decide(states[-1])[:, None])[:, 1])
    return np.stack(states, axis=1)
