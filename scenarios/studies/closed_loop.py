"""Closed loops on the simulated plant: what trusting the model costs, and what certification costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ...arithmetic.printing import rounded_down
from ...certificates.region import InvariantRegion
from ...control.certified_loop import CertifiedMPC
from ...control.loop_log import Decision
from ...control.robust import RobustOCP
from ...data.arrays import FloatArray, as_vector
from ...errors import InputError
from ...parallel import in_parallel
from ...reporting import Gallery, Picture, Section, Table, figures
from ...reporting.regions import region_for_ever_figure
from ..material import OPTIMAL, Material, Source
from ..schema import Count, Finite, Scenario, Settings
from .forever import find_region
from .kind import Kind, Listing, Outcome, Run, Task, seconds_text

CERTAINTY_EQUIVALENT, ROBUST, CERTIFIED = "certainty equivalent", "robust", "certified"
_RUNS_PER_TASK = 5
_ITERATIONS = 24  # of the robust problem: a solution that takes more would come too late


class ClosedLoopSettings(Settings):
    """Run three controllers on the simulated plant: certainty-equivalent, robust, and certified with a fallback."""

    runs: Count = 100
    """From random initial states within the limits."""
    steps: Count = 40
    safe_input: list[Finite]
    """Applied when nothing certified is left."""
    initial_states: tuple[list[Finite], list[Finite]] | None = None
    """Lower and upper corners of the box to draw initial states from; the limits by default."""
    region: Annotated[list[Count], Field(default=[])]
    """Cells per state of an invariant region, which are not split. Loops then start in the region, and the certified
    controller keeps to it."""
    repair_seconds: float = 0.1
    """Time limit for repairing a plan, with a region."""


@dataclass(frozen=True, eq=False)
class LoopRun:
    """One closed loop under one controller."""

    states: FloatArray
    """`(n_steps + 1, n_states)`, true."""
    inputs: FloatArray
    is_inside: npt.NDArray[np.bool_]
    """Whether the states after each step keep the limits."""
    decisions: tuple[Decision, ...]
    """Of the certified controller; empty for the others."""
    cost: float
    seconds: FloatArray
    """Per step."""

    @property
    def broken_promises(self) -> int:
        """Steps that were certified yet violated a limit: none if the assumptions hold."""
        return sum(
            decision.is_certified and not inside
            for decision, inside in zip(self.decisions, self.is_inside, strict=False)
        )

    @property
    def is_refuted(self) -> bool:
        """Whether a measurement fell outside its proved box: never if the assumptions hold."""
        return Decision.REFUTED in self.decisions

    def summary(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            "states": self.states.tolist(),
            "inputs": self.inputs.tolist(),
            "inside": self.is_inside.tolist(),
            "decisions": [decision.name for decision in self.decisions],
            "cost": self.cost,
            "seconds": self.seconds.tolist(),
        }


@dataclass(frozen=True)
class Tally:
    """All loops of one controller in numbers."""

    runs: Sequence[LoopRun]

    @property
    def n_steps(self) -> int:
        """The number of steps in all loops together."""
        return sum(len(run.inputs) for run in self.runs)

    @property
    def n_outside(self) -> int:
        """True states outside the limits."""
        return sum(int((~run.is_inside).sum()) for run in self.runs)

    @property
    def n_broken(self) -> int:
        """Those of them that follow a certified step."""
        return sum(run.broken_promises for run in self.runs)

    @property
    def mean_cost(self) -> float:
        """The mean cost per loop."""
        return float(np.mean([run.cost for run in self.runs]))

    @property
    def seconds(self) -> float:
        """Per step, on average."""
        return float(np.mean([run.seconds.mean() for run in self.runs]))

    @property
    def decisions(self) -> list[Decision]:
        """Those of all loops, one loop after another."""
        return [decision for run in self.runs for decision in run.decisions]

    def share(self, *kinds: Decision) -> str:
        """As a share of the decisions; empty where there are none."""
        found = self.decisions
        return f"{sum(decision in kinds for decision in found) / len(found):.1%}" if found else ""


@dataclass(frozen=True, eq=False)
class ClosedLoopOutcome(Outcome):
    """Loops by controller, from the same initial states."""

    loops: dict[str, list[LoopRun]]
    region: InvariantRegion | None = None

    name: ClassVar[str] = "closed_loops"

    @property
    def tallies(self) -> dict[str, Tally]:
        """The loops in numbers, by controller."""
        return {name: Tally(runs) for name, runs in self.loops.items()}

    @property
    def n_refuted(self) -> int:
        """Loops in which a measurement refuted an assumption."""
        return sum(run.is_refuted for runs in self.loops.values() for run in runs)

    def summary(self) -> dict[str, Any]:
        return {name: [run.summary() for run in runs] for name, runs in self.loops.items()}

    @property
    def is_contradicted(self) -> bool:
        return self.n_refuted > 0 or any(tally.n_broken for tally in self.tallies.values())

    def listings(self) -> list[Listing]:
        header = ("controller", "out", "broken", "cost", "cert.", "repair", "rest", "own", "safe", "a step")
        rows = [
            (
                name,
                str(tally.n_outside),
                str(tally.n_broken) if tally.decisions else "",
                f"{tally.mean_cost:.4g}",
                tally.share(Decision.CERTIFIED),
                tally.share(Decision.REPAIRED, Decision.BLENDED),
                tally.share(Decision.REMAINDER),
                tally.share(Decision.REGION),
                tally.share(Decision.SAFE_INPUT, Decision.REFUTED),
                seconds_text(tally.seconds),
            )
            for name, tally in self.tallies.items()
        ]
        caption = (
            "out: true states outside the limits; broken: those that follow a certified step; cert., repair, rest, "
            "own, safe: steps with a certified plan, a repaired one, the rest of an earlier one, the region's own "
            "plan, the safe input"
        )
        if self.n_refuted:
            caption += f"; loops in which a measurement refuted an assumption: {self.n_refuted:,}"
        whole = frozenset(range(1, len(header)))
        title = f"Closed loops on the true plant, {next(iter(self.tallies.values())).n_steps:,} steps each"
        return [Listing(header, [rows], title=title, caption=caption, whole=whole)]

    def _about_region(self) -> list[str]:
        if self.region is None:
            return []
        return [
            f"The certified controller keeps to a region of {rounded_down(100.0 * self.region.share)} % of the limits, "
            f"certified for ever, in {len(self.region):,} cells; all loops start in it."
        ]

    def remarks(self) -> list[str]:
        return self._about_region()

    def finding(self) -> str:
        outside = [f"{tally.n_outside:,} under the {name} controller" for name, tally in self.tallies.items()]
        steps = next(iter(self.tallies.values())).n_steps
        return f"Closed loops of {steps:,} steps; true states outside the limits: {', '.join(outside)}."

    def sections(self) -> list[Section]:
        rows, pictures = [], []
        for name, tally in self.tallies.items():
            rows.append(
                (
                    name,
                    f"{tally.n_steps:,}",
                    f"{tally.n_outside:,}",
                    f"{tally.n_broken:,}" if tally.decisions else "",
                    f"{tally.mean_cost:.4g}",
                    tally.share(*(decision for decision in Decision if not decision.is_certified)),
                    f"{1e3 * tally.seconds:.3g}",
                )
            )
            description = f"Closed loops under the {name} controller: {tally.n_outside} violations of the limits."
            pictures.append(Picture(self._figure([name]), description))
        header = ("controller", "steps", "outside limits", "though certified", "mean cost", "safe input", "ms per step")
        text = " ".join(
            ["Each controller on the simulated plant, from the same initial states.", *self._about_region()]
        )
        if self.n_refuted:
            text += (
                f" Loops with a measurement outside its proved box, which refutes an assumption: {self.n_refuted:,}."
            )
        return [Section("Closed loops", [text, Table(header, rows), Gallery(pictures)])]

    def figures(self) -> dict[str, Any]:
        drawn = {"closed_loops": self._figure(list(self.loops))}
        return drawn if self.region is None else {**drawn, "closed_loops_region": region_for_ever_figure(self.region)}

    def _figure(self, names: list[str]) -> Any:
        states = {name: [run.states for run in self.loops[name]] for name in names}
        return figures.loops_figure(states, self.task.material.limits.states, self.task.material.runs)


def prepare(settings: ClosedLoopSettings, scenario: Scenario, source: Source) -> Run | None:
    """Check where the loops start before any work is done."""
    limits = source.limits.states
    lower, upper = settings.initial_states or (limits.lower.tolist(), limits.upper.tolist())
    if not len(lower) == len(upper) == limits.n_dims:
        raise InputError(f"closed_loop.initial_states must hold {', '.join(source.state_names)} twice")
    if not np.isfinite([lower, upper]).all():
        raise InputError("closed_loop.initial_states is needed where some state has no limits")
    as_vector(settings.safe_input, "closed_loop.safe_input", len(source.input_names))
    return partial(run, settings, (lower, upper))


def run(settings: ClosedLoopSettings, starts: tuple[list[float], list[float]], task: Task) -> ClosedLoopOutcome:
    """Every controller from the same initial states."""
    material, work = task.material, task.work
    noise = material.start_noise(task.scenario)
    cells = settings.region
    region = find_region(cells, math.prod(cells), task, _held_reference(task)) if cells else None
    x0 = _starts(settings.runs, starts, region, work.rng)
    chunks = np.array_split(x0, max(1, len(x0) // _RUNS_PER_TASK))
    loops = {}
    for name in (CERTAINTY_EQUIVALENT, ROBUST, CERTIFIED):
        found: list[LoopRun] = []
        with work.stage(f"closed loops, {name}") as progress:
            generators = np.random.default_rng(work.seed).spawn(len(chunks))
            tasks = (
                (name, chunk, settings, material, noise, region, rng)
                for chunk, rng in zip(chunks, generators, strict=True)
            )
            for part in in_parallel(_run_some, tasks, work.n_jobs):
                found += part
                progress(len(found), len(x0))
        loops[name] = found
    return ClosedLoopOutcome(task, loops, region)


def _held_reference(task: Task) -> FloatArray:
    """The input at the set point, held over the whole horizon: a plan that can keep tight limits."""
    control = task.scenario.control
    assert control is not None
    return np.tile(control.input_reference, (1, task.material.runs.horizon, 1))


def _starts(
    n: int, ends: tuple[list[float], list[float]], region: InvariantRegion | None, rng: np.random.Generator
) -> FloatArray:
    """Random states in a box, and in the region if there is one."""
    found = rng.uniform(*ends, (n, len(ends[0])))
    if region is None:
        return found
    for _ in range(1000):
        outside = ~np.asarray(region.contains(found))
        if not outside.any():
            return found
        found[outside] = rng.uniform(*ends, (int(outside.sum()), len(ends[0])))
    raise InputError("closed_loop.initial_states contains hardly any state of the region")


def _run_some(
    name: str,
    x0: FloatArray,
    settings: ClosedLoopSettings,
    material: Material,
    noise: FloatArray,
    region: InvariantRegion | None,
    rng: np.random.Generator,
) -> list[LoopRun]:
    make = _makers(settings, material, noise, region)[name]
    errors = rng.uniform(-1.0, 1.0, (len(x0), settings.steps, x0.shape[1])) * noise
    return [_run(make(), start, wrong_by, material) for start, wrong_by in zip(x0, errors, strict=True)]


def _makers(
    settings: ClosedLoopSettings, material: Material, noise: FloatArray, region: InvariantRegion | None
) -> dict[str, Callable[[], Any]]:
    """A factory per controller; all loops of a task share what is compiled."""
    control, predictor, limits = material.control, material.predictors[OPTIMAL], material.limits
    assert control is not None
    robust = RobustOCP(predictor, control, limits, initial_state_noise=noise, iterations=_ITERATIONS)
    certified = partial(
        CertifiedMPC,
        control,
        predictor,
        limits,
        settings.safe_input,
        repair=robust,
        initial_state_noise=noise,
        region=region,
        repair_seconds=math.inf if region is None else settings.repair_seconds,
    )
    return {
        CERTAINTY_EQUIVALENT: lambda: _First(lambda x: control.solve(x).inputs),
        ROBUST: lambda: _First(lambda x: robust.solve(x).inputs),
        CERTIFIED: certified,
    }


@dataclass(frozen=True)
class _First:
    """A controller that applies the first input of every plan, whatever happens."""

    plan: Callable[[FloatArray], FloatArray]
    log = ()

    def make_step(self, x0: FloatArray) -> FloatArray:
        first: FloatArray = self.plan(x0)[0]
        return first


def _run(controller: Any, x0: FloatArray, errors: FloatArray, material: Material) -> LoopRun:
    """The controller sees the state with an error, `(n_steps, n_states)`, the same for every controller."""
    assert material.plant is not None
    assert material.control is not None
    states, inputs, seconds = [x0], [], []
    for error in errors:
        began = time.perf_counter()
        u = np.asarray(controller.make_step(states[-1] + error))
        seconds.append(time.perf_counter() - began)
        inputs.append(u)
        states.append(material.plant.simulate(states[-1], u[None])[-1])
    return LoopRun(
        states=np.array(states),
        inputs=np.array(inputs),
        is_inside=material.limits.states.contains(np.array(states[1:])),
        decisions=tuple(step.decision for step in controller.log),
        cost=sum(float(material.control.cost(x, u, 0)) for x, u in zip(states[1:], inputs, strict=True)),
        seconds=np.array(seconds),
    )


def complaint(settings: ClosedLoopSettings, scenario: Scenario) -> str:
    """Loops need a plant to run on."""
    return "" if scenario.plant is not None else "[closed_loop] needs the truth, which only a simulated [plant] has"


KIND = Kind("closed_loop", ClosedLoopSettings, prepare, complaint, files=("closed_loops.*",))
