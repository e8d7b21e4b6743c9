"""Offline design for ever: how the region changes with one setting, and how far a limit can be tightened."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...arithmetic.printing import rounded_down
from ...control.invariance import invariant_region
from ...data.arrays import FloatArray, IndexArray
from ...errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ...models.plant import Plant
from ...parallel import collect, in_parallel
from ...prediction.predictor import MultiStepPredictor
from ...reporting import Gallery, Picture, Section, Table
from ...reporting.regions import shares_figure
from ..material import OPTIMAL, Source
from ..schema import BoxLimits, Count, Positive, Scenario, Settings
from .designer import Change, MovedLimit
from .forever import n_escaped, states_in
from .kind import Kind, Listing, Outcome, Run, Task, seconds_text


class TightenedLimit(MovedLimit):
    """Tighten one limit until no region is left."""

    resolution: Positive
    """Values between the tightest one with a region and the next one without are tried until they are at most this far
    apart."""

    def by_tightness(self, value: float) -> float:
        """Larger where the limit is tighter."""
        return value if self.end == "lower" else -value


class ForeverDesignSettings(Settings):
    """Regions for ever with one setting changed at a time, and all else as in the scenario."""

    cells: Annotated[list[Count], Field(min_length=1)]
    """Per state, to start with."""
    max_cells: Count | None = None
    """Number of cells at which splitting stops; by default twice the initial number."""
    horizons: list[Count] = Field(default=[])
    """Longest plans allowed, in steps."""
    runs: list[Count] = Field(default=[])
    """Numbers of recorded runs; smaller sets are subsets of larger ones."""
    noise_factors: list[Positive] = Field(default=[])
    """Factors on all noise bounds, including those of recorded initial states."""
    limit: TightenedLimit | None = None
    checked: Count = 1000
    """Random states in every region whose plans are followed on a simulated plant."""


@dataclass(frozen=True)
class Trial:
    """The region found with one setting changed; no cells if none was found."""

    what: str
    value: float
    share: float = 0.0
    """Share of the limits, as set in this trial."""
    cells: int = 0
    longest: int = 0
    """Steps of its longest plan."""
    seconds: float = 0.0
    """Time taken to look for it."""
    checked: int = 0
    escaped: int = 0
    """States followed on the plant that left the limits on the way, or did not end in the region."""
    refutation: str = ""
    """Why there is no result: the data refute the assumption."""

    @property
    def value_text(self) -> str:
        """With all the digits that were given."""
        return f"{self.value:.15g}"

    def row(self) -> tuple[str, ...]:
        """Of a table."""
        if self.refutation:
            return self.what, self.value_text, "refuted by the data", "", "", ""
        found = (f"{rounded_down(100.0 * self.share)} %", str(self.cells), str(self.longest))
        return (
            self.what,
            self.value_text,
            *(found if self.cells else ("none found", "", "")),
            seconds_text(self.seconds),
        )


@dataclass(frozen=True, eq=False)
class Search:
    """The settings of a search for a region, one of which can be changed."""

    predictor: MultiStepPredictor
    limits: BoxLimits
    max_steps: int
    noise: FloatArray | None
    """How far true states may be from measured ones; none means as far as recorded initial states."""
    settings: ForeverDesignSettings
    plant: Plant | None
    seed: int

    def shorter(self, max_steps: int) -> Search:
        """With plans of at most this many steps."""
        return replace(self, max_steps=max_steps)

    def with_fewer(self, rows: IndexArray) -> Search:
        """As if only these runs had been recorded."""
        return replace(self, predictor=self.predictor.with_runs(self.predictor.runs.subset(np.sort(rows))))

    def noisier(self, factor: float) -> Search:
        """With other noise bounds."""
        return replace(self, predictor=self.predictor.scaled(noise=factor))

    def within(self, limit: TightenedLimit, value: float) -> Search:
        """With one limit moved."""
        return replace(self, limits=limit.moved(self.limits, self.predictor.runs.state_names, value))

    def trial(self, what: str, value: float, n_jobs: int) -> Trial:
        """Look for a region, and follow its plans if one is found."""
        began = time.perf_counter()
        region = invariant_region(
            self.predictor,
            self.limits,
            cells=self.settings.cells,
            max_cells=self.settings.max_cells,
            max_steps=self.max_steps,
            initial_state_noise=self.noise,
            n_jobs=n_jobs,
            progress=lambda done, total: None,  # the caller reports on trials
        )
        found = Trial(what, value, region.share, len(region), region.longest, time.perf_counter() - began)
        if self.plant is None or not len(region):
            return found
        states = states_in(region, self.settings.checked, np.random.default_rng(self.seed))
        return replace(found, checked=len(states), escaped=n_escaped(region, self.plant, states))


@dataclass(frozen=True, eq=False)
class ForeverDesignOutcome(Outcome):
    """All trials, grouped by what was changed; those of the limit run from loose to tight."""

    present: dict[str, float]
    """The scenario's own value of every setting that was changed."""
    trials: list[Trial]
    limit: TightenedLimit | None

    name: ClassVar[str] = "forever_design"

    @property
    def limit_trials(self) -> list[Trial]:
        """The trials of the limit, from loose to tight."""
        return [] if self.limit is None else [trial for trial in self.trials if trial.what == self.limit.text]

    def summary(self) -> dict[str, Any]:
        good, bad = tightest(self.limit_trials)
        return {
            "present": self.present,
            "trials": [asdict(trial) for trial in self.trials],
            "tightest_limit_with_a_region": None if good is None else good.value,
            "next_limit_without": None if bad is None else bad.value,
        }

    @property
    def is_contradicted(self) -> bool:
        return any(trial.escaped for trial in self.trials)

    def _about_limit(self) -> str:
        good, bad = tightest(self.limit_trials)
        if good is None:
            return f"no region was found for any value tried for the limit {self.trials[0].what}"
        text = f"the tightest limit with a region is {good.what} {good.value_text}"
        return f"{text}, and none was found for {bad.value_text}" if bad is not None else f"{text}, the last tried"

    def _about_truth(self) -> str:
        same = [trial for trial in self.trials if trial.value == self.present[trial.what]]  # one region, several rows
        once = [same[0], *(trial for trial in self.trials if trial not in same)]
        checked, escaped = (sum(getattr(trial, name) for trial in once) for name in ("checked", "escaped"))
        return (
            f"of {checked:,} random states in these regions whose plans were followed on the simulated plant, "
            f"{escaped:,} left the limits or did not end in the region"
        )

    def remarks(self) -> list[str]:
        truth = [self._about_truth()] if any(trial.checked for trial in self.trials) else []
        return [*([self._about_limit()] if self.limit is not None else []), *truth]

    def finding(self) -> str:
        if self.limit is not None:
            text = self._about_limit()
            return f"{text[0].upper()}{text[1:]}."
        most = max(trial.share for trial in self.trials)
        return f"Up to {rounded_down(100.0 * most)} % of the limits are certified for ever, depending on the setting."

    def listings(self) -> list[Listing]:
        groups = [[trial.row() for trial in some] for _, some in groupby(self.trials, key=lambda trial: trial.what)]
        return [Listing(_HEADER, groups, title=_TITLE, caption=_CAPTION)]

    def sections(self) -> list[Section]:
        text = (
            "One setting changes at a time, and all else is as in the scenario. A region proves that the limits can "
            "be kept for ever; where none was found, one may still exist, with more cells or other plans."
        )
        picture = Picture(self.figures()["forever_design"], "Share of the limits that is certified for ever.")
        table = Table(_HEADER, [trial.row() for trial in self.trials], _CAPTION)
        found = [f"{text[0].upper()}{text[1:]}." for text in self.remarks()]
        return [Section(_TITLE, [text, *found, Gallery([picture]), table])]

    def figures(self) -> dict[str, Any]:
        shares = {
            what: [(trial.value, trial.share) for trial in some if not trial.refutation]
            for what, some in groupby(self.trials, key=lambda trial: trial.what)
        }
        good, _ = tightest(self.limit_trials)
        return {
            "forever_design": shares_figure(shares, self.present, None if good is None else (good.what, good.value))
        }


_TITLE = "What regions for ever depend on"
_HEADER = ("change", "", "for ever", "cells", "steps", "time")
_CAPTION = (
    "for ever: certified share of the limits as set in that row; steps: in the longest plan; time: taken by the "
    "search for the region"
)


def tightest(trials: Sequence[Trial]) -> tuple[Trial | None, Trial | None]:
    """From trials ordered loose to tight: the last with a region and the one after it; None where there is none.

    A region within tighter limits is also one within looser limits, so these two say everything.
    """
    with_region = [place for place, trial in enumerate(trials) if trial.cells]
    if not with_region:
        return None, trials[0] if trials else None
    last = with_region[-1]
    return trials[last], trials[last + 1] if last + 1 < len(trials) else None


def prepare(settings: ForeverDesignSettings, scenario: Scenario, source: Source) -> Run | None:
    """Refuse what cannot be done before any work starts."""
    source.require_states("[forever_design]")
    names, states = ", ".join(source.state_names), source.limits.states
    if len(settings.cells) != len(source.state_names):
        raise InputError(f"forever_design.cells must be one per state ({names}); got {settings.cells}")
    if not np.isfinite([states.lower, states.upper]).all() or source.limits.has_rates:
        raise InputError("[forever_design] needs both limits of every state, and no limits on input rates")
    if settings.horizons and max(settings.horizons) > source.horizon:
        raise InputError(f"forever_design.horizons: the recorded {source.kind} have only {source.horizon} steps")
    if settings.runs and source.recorded is not None and max(settings.runs) > len(source.recorded):
        raise InputError(f"forever_design.runs: there are only {len(source.recorded)} recorded {source.kind}")
    if settings.limit is not None:
        settings.limit.require_fits(source, "forever_design.limit")
        opposite = states.upper if settings.limit.end == "lower" else states.lower
        if opposite[source.state_names.index(settings.limit.state)] in settings.limit.values:
            raise InputError(
                "forever_design.limit.values: a limit equal to the opposite one leaves nothing between them"
            )
    return partial(run, settings)


def run(settings: ForeverDesignSettings, task: Task) -> ForeverDesignOutcome:
    """A region for every change, then further ones near the limit value where the region vanishes."""
    material, work, scenario = task.material, task.work, task.scenario
    noise = None if scenario.initial_state_noise is None else material.start_noise(scenario)
    horizon = material.runs.horizon
    base = Search(
        material.predictors[OPTIMAL], material.limits, horizon, noise, settings, material.plant, seed=work.seed
    )
    changes = list(_changes(settings, base, work.rng.permutation(len(material.runs))))
    different = [change for change in changes if change.value != change.present]
    with work.stage("looking for regions") as progress:
        tasks = [(change,) for change in (Change("", 0.0, 0.0, lambda: base), *different)]
        unchanged, *found = collect(in_parallel(_trial, tasks, work.n_jobs), len(tasks), progress)
    others = iter(found)
    trials = [
        replace(unchanged, what=change.what, value=change.value) if change.value == change.present else next(others)
        for change in changes
    ]
    if settings.limit is not None:
        n_first = sum(change.what == settings.limit.text for change in changes)
        trials[:n_first] = _bisected(settings.limit, base, trials[:n_first], task)
    return ForeverDesignOutcome(task, {change.what: change.present for change in changes}, trials, settings.limit)


def _changes(settings: ForeverDesignSettings, base: Search, order: IndexArray) -> Iterator[Change[Search]]:
    """The limit first, from loose to tight; the present values are always tried as well."""
    runs, limit = base.predictor.runs, settings.limit
    if limit is not None:
        now = float(getattr(base.limits.states, limit.end)[runs.state_names.index(limit.state)])
        for value in sorted({now, *limit.values}, key=limit.by_tightness):
            yield Change(limit.text, value, now, partial(base.within, limit, value))
    for n in sorted({runs.horizon, *settings.horizons}) if settings.horizons else ():
        yield Change("horizon", n, runs.horizon, partial(base.shorter, n))
    for n in sorted({len(runs), *(min(n, len(runs)) for n in settings.runs)}) if settings.runs else ():
        yield Change(runs.kind, n, len(runs), partial(base.with_fewer, order[:n]))
    for factor in sorted({1.0, *settings.noise_factors}) if settings.noise_factors else ():
        yield Change("noise bound x", factor, 1.0, partial(base.noisier, factor))


def _trial(change: Change[Search], n_jobs: int = 1) -> Trial:
    try:
        return change.changed().trial(change.what, change.value, n_jobs)
    except (FalsifiedNormBoundError, ContradictoryDataError) as error:
        return Trial(change.what, change.value, refutation=str(error))


def _bisected(limit: TightenedLimit, base: Search, trials: list[Trial], task: Task) -> list[Trial]:
    """Trials from loose to tight, refined between the last with a region and the next, which has none."""
    digits = 1 - math.floor(math.log10(limit.resolution))
    with task.work.stage(f"tightening the limit of {limit.state}") as progress:
        n_done = 0
        while True:
            good, bad = tightest(trials)
            gap = 0.0 if good is None or bad is None else abs(bad.value - good.value)
            n_left = max(0, math.ceil(math.log2(gap / limit.resolution))) if gap else 0
            progress(n_done, n_done + n_left)
            if good is None or bad is None or gap <= limit.resolution:
                return trials
            value = round((good.value + bad.value) / 2.0, digits)
            found = base.within(limit, value).trial(limit.text, value, task.work.n_jobs)
            trials = sorted([*trials, found], key=lambda trial: limit.by_tightness(trial.value))
            n_done += 1


def complaint(settings: ForeverDesignSettings, scenario: Scenario) -> str:
    """At least one setting has to change."""
    if settings.limit is None and not (settings.horizons or settings.runs or settings.noise_factors):
        return "[forever_design] needs something to change: limit, horizons, runs or noise_factors"
    return ""


KIND = Kind("forever_design", ForeverDesignSettings, prepare, complaint, files=("forever_design.*",))
