"""Offline design: where plans can be certified from, by which way of planning, and what that depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...arithmetic.printing import margin_text, rounded_down
from ...certificates.certificate import Certificate, Verdict
from ...control.certainty_equivalent import QuadraticCost, Tightening
from ...control.tightening import half_widths, tightening_for
from ...data.arrays import FloatArray
from ...errors import InputError
from ...reporting import Cell, Gallery, Picture, Section, Table, figures
from ..material import OPTIMAL, Material, Source
from ..schema import Count, Finite, Positive, Scenario, Settings
from .closed_loop import CERTAINTY_EQUIVALENT, ROBUST
from .designer import Change, Designer, Effect, LimitTrial, MovedLimit, effects_of
from .kind import Kind, Listing, Outcome, Run, Task, seconds_text
from .region import Grid, VerdictMap, region_pair

TIGHTENED = "tightened limits"


class LimitSweep(MovedLimit):
    """Move one limit, and see how far plans from an initial state can still be certified."""

    initial_state: list[Finite]

    @property
    def start_text(self) -> str:
        """The initial state as text."""
        return "(" + ", ".join(f"{x:g}" for x in self.initial_state) + ")"


class DesignSettings(Settings):
    """Offline design: box widths, tightened limits, the certifiable region, and what it depends on."""

    region: tuple[Count, Count] = (13, 13)
    """A grid of initial states within the limits."""
    region_states: tuple[str, str] | None = None
    """The two states of that grid, by default the first two; the others are at the controller's reference."""
    tightening_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Each tightened limit, on its own, suffices for this share of the plans; the rest may need far more."""
    effects_region: tuple[Count, Count] = (6, 6)
    """The grid for each of the following variations."""
    horizons: list[Count] = Field(default=[])
    runs: list[Count] = Field(default=[])
    """Numbers of recorded runs; smaller sets are subsets of larger ones."""
    noise_factors: list[Positive] = Field(default=[])
    norm_factors: list[Positive] = Field(default=[])
    sweep: LimitSweep | None = None


@dataclass(frozen=True, eq=False)
class DesignOutcome(Outcome):
    """Tables and maps for a designer."""

    half_widths: FloatArray
    """`(n_plans, n_steps, n_states)`, of the certainty-equivalent plans over the region."""
    tightening: Tightening
    """How far inside the limits the predictions of those plans must stay."""
    tightening_share: float
    """Share of the plans that each of these numbers, on its own, suffices for."""
    region: VerdictMap
    n_wrong: int | None
    """Certified plans that violate a limit on the simulated plant: none if the assumptions hold."""
    effects: list[Effect]
    sweep: LimitSweep | None
    trials: list[LimitTrial]

    name: ClassVar[str] = "design"

    @property
    def is_nested(self) -> bool:
        """Whether everything certified without robust planning is also certified with it."""
        return bool((self.region.certified(CERTAINTY_EQUIVALENT) <= self.region.certified(ROBUST)).all())

    @property
    def is_contradicted(self) -> bool:
        return bool(self.n_wrong)

    def summary(self) -> dict[str, Any]:
        return {
            "half_widths": {
                "mean": self.half_widths.mean(axis=0).tolist(),
                "largest": self.half_widths.max(axis=0).tolist(),
            },
            "tightening": {"below": self.tightening.below.tolist(), "above": self.tightening.above.tolist()},
            "region": self.region.summary(),
            "robust_region_contains_the_other": self.is_nested,
            "certified_plans_that_violate_a_limit": self.n_wrong,
            "effects": [vars(effect) for effect in self.effects],
            "limit": [trial.summary() for trial in self.trials],
        }

    def remarks(self) -> Iterator[str]:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.region.shares.items())
        yield f"certified share of the initial states within the limits, by way of planning: {shares}"
        if TIGHTENED not in self.region.verdicts:
            yield "the tightened limits leave no room: no nominal plan can keep them"
        yield f"the region with robust planning {'contains' if self.is_nested else 'does not contain'} that without"
        if self.n_wrong is not None:
            yield f"{self.n_wrong} certified plans violate a limit on the simulated plant"

    def finding(self) -> str:
        shares = ", ".join(f"{share:.1%} {name}" for name, share in self.region.shares.items())
        return f"Certified share of the initial states, by planning: {shares}."

    def listings(self) -> Iterator[Listing]:
        yield self._widths_listing()
        if self.effects:
            yield self._effects_listing()
        if self.sweep is not None:
            yield self._trials_listing(self.sweep)

    def _by_step(self, *widths: FloatArray) -> list[list[str]]:
        """Table rows: per state the widths `(n_steps, n_states)`, and the tightening of the limits."""
        below, above = self.tightening.below, self.tightening.above
        return [
            [
                str(n + 1),
                *(
                    text
                    for i in range(below.shape[1])
                    for text in (*(f"{each[n, i]:.4f}" for each in widths), _needed(below[n, i]), _needed(above[n, i]))
                ),
            ]
            for n in range(len(below))
        ]

    def _widths_listing(self) -> Listing:
        names = self.task.material.runs.state_names
        header = ["step", *(f"{name}\n{what}" for name in names for what in ("mean", "most", "lower", "upper"))]
        return Listing(
            header,
            [self._by_step(self.half_widths.mean(axis=0), self.half_widths.max(axis=0))],
            title="Half-widths of the boxes, and tightened limits",
            caption="tightened: how far inside its lower and upper limit a prediction must stay; each "
            f"suffices "
            f"on its own for {self.tightening_share:.0%} of the plans",
            whole=frozenset(range(1, len(header))),
            is_numeric=True,
        )

    def _effects_listing(self) -> Listing:
        plannings: dict[str, float] = next((effect.shares for effect in self.effects if effect.shares), {})
        header = [
            "change",
            "",
            *(f"half-width\n{name}" for name in self.task.material.runs.state_names),
            *(f"{name}\ncertified" for name in plannings),
        ]
        groups = [[e.row() for e in effects] for _, effects in groupby(self.effects, key=lambda e: e.what)]
        caption = "half-width: after the last step, on average"
        return Listing(header, groups, title="What the certifiable region depends on", caption=caption)

    def _trials_listing(self, sweep: LimitSweep) -> Listing:
        header = (
            sweep.text,
            "certainty\nequivalent",
            "\nmargin",
            "\nrobust",
            "\nmargin",
            "\nprice",
            "plans\ntried",
            "\ntime",
        )
        rows = [
            (
                f"{trial.limit:g}",
                trial.believing.verdict,
                margin_text(trial.believing.margin),
                trial.plan.certificate.verdict,
                margin_text(trial.plan.certificate.margin),
                f"{trial.plan.price:.0%}" if trial.plan.success else "",
                str(trial.plan.iterations),
                seconds_text(trial.seconds),
            )
            for trial in self.trials
        ]
        title, caption = f"From {sweep.start_text}, as a limit moves", "price: how much more the robust plan costs"
        return Listing(header, [rows], title=title, caption=caption)

    def sections(self) -> Iterator[Section]:
        runs, grid, drawn = self.task.material.runs, self.region.grid, self.figures()
        text = (
            f"Plans from a grid of {len(grid.first)} by {len(grid.second)} initial states within the "
            "limits: by a controller that trusts its model, by the same controller with limits tightened by the box "
            "widths, and with the boxes themselves as constraints."
        )
        if TIGHTENED not in self.region.verdicts:
            text += " The tightened limits leave no room: no nominal plan can keep them, so they have no map."
        picture = Picture(drawn["design_region"], "Verdicts by way of planning.")
        yield Section("The certifiable region", [text, Gallery([picture])])
        text = (
            "Mean half-widths of the boxes over the region, and how far inside the limits the predictions of a "
            f"nominal controller must stay; each number suffices on its own for {self.tightening_share:.0%} of its "
            "plans."
        )
        picture = Picture(drawn["design_widths"], "Half-widths of the boxes by step.")
        yield Section("Tightened limits", [text, self._widths_table(), Gallery([picture])])
        if "design_effects" in drawn:
            text = "How much of the region can be certified when one setting changes."
            description = f"Certified share by horizon, {runs.kind}, noise and norm bound."
            gallery = Gallery([Picture(drawn["design_effects"], description)])
            yield Section("What the region depends on", [text, gallery])
        if self.sweep is not None:
            yield self._limit_section(self.sweep)

    def _widths_table(self) -> Table:
        names, columns = self.task.material.runs.state_names, ("mean", "from below", "from above")
        header = ("step", *(f"{name}, {what}" for name in names for what in columns))
        return Table(header, self._by_step(self.half_widths.mean(axis=0)))

    def _limit_section(self, sweep: LimitSweep) -> Section:
        rows: list[tuple[str | Cell, ...]] = [
            (
                f"{trial.limit:g}",
                *(Cell(c.verdict.name.lower(), c.verdict.name.lower()) for c in trial.certificates.values()),
                f"{trial.plan.price:.0%}" if trial.plan.success else "",
                f"{trial.seconds:.2f}",
            )
            for trial in self.trials
        ]
        header = (f"{sweep.end} limit of {sweep.state}", "certainty equivalent", "robust", "extra cost", "seconds")
        text = (
            f"Plans from {sweep.start_text}. The certificates of the robust plans are certificates/limit_1.json and "
            "so on."
        )
        return Section("How far a limit can be moved", [text, Table(header, rows)])

    def figures(self) -> dict[str, Any]:
        runs = self.task.material.runs
        drawn = {
            "design_widths": figures.widths_figure(self.half_widths, runs),
            "design_region": self.region.figure(runs),
        }
        effects: dict[str, list[tuple[float, dict[str, float]]]] = {}
        for effect in self.effects:
            if effect.shares:
                effects.setdefault(effect.what, []).append((effect.value, effect.shares))
        if effects:
            drawn["design_effects"] = figures.effects_figure(effects)
        return drawn

    def write(self, folder: Path) -> None:
        for number, trial in enumerate(self.trials, start=1):
            (folder / "certificates").mkdir(exist_ok=True)
            file = folder / "certificates" / f"limit_{number}.json"
            trial.plan.certificate.save(file, seed=self.task.work.seed)


def _needed(distance: float) -> str:
    """What suffices, rounded up."""
    return rounded_down(-distance, 4).removeprefix("-")


def prepare(settings: DesignSettings, scenario: Scenario, source: Source) -> Run | None:
    """Refuse what cannot be done before any work starts."""
    source.require_states("[design]")
    pair = region_pair(settings.region_states, source.state_names, source.limits.states, "design")
    if settings.horizons and max(settings.horizons) > source.horizon:
        raise InputError(f"design.horizons: the recorded {source.kind} have only {source.horizon} steps")
    if settings.runs and source.recorded is not None and max(settings.runs) > len(source.recorded):
        raise InputError(f"design.runs: there are only {len(source.recorded)} recorded {source.kind}")
    if settings.sweep is not None:
        if len(settings.sweep.initial_state) != len(source.state_names):
            raise InputError(f"design.sweep.initial_state must hold {', '.join(source.state_names)}")
        settings.sweep.require_fits(source, "design.sweep")
    return partial(run, settings, pair)


def run(settings: DesignSettings, pair: tuple[int, int], task: Task) -> DesignOutcome:
    """The region for three ways of planning, what it depends on, and how far a limit can be moved."""
    material, work, control = task.material, task.work, task.material.control
    assert control is not None
    assert isinstance(control.cost, QuadraticCost)
    base = Designer(material, material.predictors[OPTIMAL], control, material.start_noise(task.scenario))
    grid, coarse = (Grid.over(material.limits.states, pair, n) for n in (settings.region, settings.effects_region))
    x0 = grid.initial_states(control.cost.state_reference)
    with work.stage("planning over the region") as progress:
        believing = base.certified_plans(control, x0, work, progress)
    tightening = tightening_for(control, believing, settings.tightening_share)
    by_planning = {CERTAINTY_EQUIVALENT: believing}
    try:
        cautious = replace(control, tightening=tightening)
    except InputError:  # nothing is left between tightened limits
        pass
    else:
        with work.stage("planning with tightened limits") as progress:
            by_planning[TIGHTENED] = base.certified_plans(cautious, x0, work, progress)
    with work.stage("planning robustly") as progress:
        by_planning[ROBUST] = base.robust_plans(x0, work, progress)
    changes = _changes(settings, base, work.rng.permutation(len(material.runs)))
    return DesignOutcome(
        task,
        half_widths=half_widths(believing),
        tightening=tightening,
        tightening_share=settings.tightening_share,
        region=VerdictMap(grid, {name: [c.verdict for c in found] for name, found in by_planning.items()}),
        n_wrong=_wrong([c for found in by_planning.values() for c in found], material),
        effects=effects_of(changes, base, coarse.initial_states(control.cost.state_reference), work),
        sweep=settings.sweep,
        trials=[] if settings.sweep is None else _limit_trials(settings.sweep, base, task),
    )


def _changes(settings: DesignSettings, base: Designer, order: Any) -> list[Change[Designer]]:
    """In this order, smaller sets of runs are subsets of the larger ones."""
    runs = base.material.runs
    sizes = [min(n, len(runs)) for n in settings.runs]
    return [
        *(Change("horizon", n, runs.horizon, partial(base.shorter, n)) for n in settings.horizons),
        *(Change(runs.kind, n, len(runs), partial(base.with_fewer, order[:n])) for n in sizes),
        *(Change("noise bound x", f, 1.0, partial(base.scaled, noise=f)) for f in settings.noise_factors),
        *(Change("norm bound x", f, 1.0, partial(base.scaled, norm=f)) for f in settings.norm_factors),
    ]


def _limit_trials(sweep: LimitSweep, base: Designer, task: Task) -> list[LimitTrial]:
    """The same initial state under one value of the limit after another."""
    trials: list[LimitTrial] = []
    with task.work.stage(f"moving the limit of {sweep.state}") as progress:
        for value in sweep.values:
            limits = sweep.moved(base.material.limits, base.material.runs.state_names, value)
            trials.append(base.limit_trial(sweep.initial_state, limits, value))
            progress(len(trials), len(sweep.values))
    return trials


def _wrong(certificates: list[Certificate], material: Material) -> int | None:
    """How many certified plans leave the limits on the simulated plant, if there is one."""
    if material.plant is None:
        return None
    certified = [c.question for c in certificates if c.verdict is Verdict.CERTIFIED]
    if not certified:
        return 0
    truths = material.plant.simulate(np.array([q.x0 for q in certified]), np.array([q.inputs for q in certified]))
    return int((~material.limits.states.contains(truths[:, 1:]).all(axis=1)).sum())


def complaint(settings: DesignSettings, scenario: Scenario) -> str:
    """A design needs a controller."""
    return "" if scenario.control is not None else "[design] needs [control], which plans"


KIND = Kind("design", DesignSettings, prepare, complaint, files=("design_*", "certificates/limit_*.json"))
