"""Offline design: what can be certified from where, by which planning, and what that depends on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..certificates.certificate import Certificate, Verdict, certify_plans
from ..control.certainty_equivalent import CertaintyEquivalentOCP, QuadraticCost, Tightening
from ..control.robust import RobustOCP, RobustPlan
from ..control.tightening import half_widths, tightening_for
from ..data.arrays import FloatArray, IndexArray
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ..parallel import Progress
from ..prediction.predictor import MultiStepPredictor
from ..reporting import figures
from .closed_loop import CERTAINTY_EQUIVALENT, ROBUST
from .material import OPTIMAL, Limits, Material, Source, Work
from .region import Region, region_pair, require_region
from .schema import DesignStudy, LimitSweep, Scenario

TIGHTENED = "tightened limits"


@dataclass(frozen=True)
class Effect:
    """What the certifiable region becomes when one thing changes."""

    what: str
    value: float
    half_widths: tuple[float, ...]
    """Of each state after the last step, on average over the certainty-equivalent plans."""
    shares: dict[str, float]
    """Of the initial states, that can be certified, by planning."""
    refutation: str = ""
    """Why there is nothing to say: the data refute the assumption."""


@dataclass(frozen=True, eq=False)
class LimitTrial:
    """One initial state under one value of a limit: planned with and without a look at the boxes."""

    limit: float
    believing: Certificate
    plan: RobustPlan
    seconds: float
    """That robust planning took."""


@dataclass(frozen=True, eq=False)
class DesignResult:
    """Tables and maps for a designer."""

    half_widths: FloatArray
    """`(n_plans, n_steps, n_states)`, of the certainty-equivalent plans over the region."""
    tightening: Tightening
    """What the predictions of those plans must keep from the limits."""
    tightening_share: float
    """Of the plans that each of these numbers, taken by itself, suffices for."""
    region: Region
    n_wrong: int | None
    """Certified plans that violate a limit on the simulated plant: with right assumptions, none."""
    effects: list[Effect]
    sweep: LimitSweep | None
    trials: list[LimitTrial]

    @property
    def is_nested(self) -> bool:
        """Whether whatever is certified without robust planning is certified with it."""
        return bool((self.region.certified(CERTAINTY_EQUIVALENT) <= self.region.certified(ROBUST)).all())

    def figures(self, runs: Trajectories) -> dict[str, Any]:
        """By file name."""
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


def require_design(settings: DesignStudy, source: Source) -> None:
    """Refuse, before any work, what cannot be done."""
    require_region(settings.region_states, source.state_names, source.limits.state_limits, "design")
    if settings.horizons and max(settings.horizons) > source.horizon:
        raise InputError(f"design.horizons: the recorded {source.kind} have only {source.horizon} steps")
    if settings.runs and source.recorded is not None and max(settings.runs) > len(source.recorded):
        raise InputError(f"design.runs: there are only {len(source.recorded)} recorded {source.kind}")
    if settings.sweep is not None:
        if settings.sweep.state not in source.state_names:
            raise InputError(f"design.sweep.state must be one of {', '.join(source.state_names)}")
        if len(settings.sweep.initial_state) != len(source.state_names):
            raise InputError(f"design.sweep.initial_state must hold {', '.join(source.state_names)}")
        for value in settings.sweep.values:
            try:
                _moved(source.limits, settings.sweep, source.state_names, value)
            except InputError:
                raise InputError(f"design.sweep.values: {value:g} is beyond the opposite limit") from None


def run_design(scenario: Scenario, material: Material, work: Work) -> DesignResult:
    """The region by three ways of planning, what it depends on, and how far a limit can be moved."""
    settings = scenario.design
    assert settings is not None
    assert material.control is not None
    noise = material.start_noise(scenario)
    base = _Designer(settings, material, material.predictors[OPTIMAL], material.control, noise)
    grid, x0 = base.grid(settings.region)
    with work.stage("planning over the region") as progress:
        believing = base.certified_plans(material.control, x0, work, progress)
    tightening = tightening_for(material.control, believing, settings.tightening_share)
    by_planning = {CERTAINTY_EQUIVALENT: believing}
    try:
        cautious = replace(material.control, tightening=tightening)
    except InputError:  # nothing is left between tightened limits
        pass
    else:
        with work.stage("planning with tightened limits") as progress:
            by_planning[TIGHTENED] = base.certified_plans(cautious, x0, work, progress)
    with work.stage("planning robustly") as progress:
        by_planning[ROBUST] = base.robust_plans(x0, work, progress)
    for name, certificates in by_planning.items():
        grid.add(name, [certificate.verdict for certificate in certificates])
    n_wrong = None if material.plant is None else _wrong([c for found in by_planning.values() for c in found], material)
    sweep = settings.sweep
    return DesignResult(
        half_widths(believing),
        tightening,
        settings.tightening_share,
        grid,
        n_wrong,
        _effects(base, work),
        sweep,
        [] if sweep is None else _limit_trials(sweep, base, work),
    )


@dataclass(frozen=True, eq=False)
class _Designer:
    """A predictor and a controller over one grid of initial states."""

    settings: DesignStudy
    material: Material
    predictor: MultiStepPredictor
    control: CertaintyEquivalentOCP
    noise: FloatArray
    """How far true initial states may be from those planned from."""

    def grid(self, shape: tuple[int, int]) -> tuple[Region, FloatArray]:
        cost, names = self.control.cost, self.material.runs.state_names
        assert isinstance(cost, QuadraticCost)
        limits = self.material.limits.state_limits
        region = Region.over(limits, region_pair(self.settings.region_states, names, "design"), shape)
        return region, region.initial_states(cost.state_reference)

    def certified_plans(
        self, control: CertaintyEquivalentOCP, x0: FloatArray, work: Work, progress: Progress | None = None
    ) -> list[Certificate]:
        plans = control.solve_many(x0, work.n_jobs, progress)
        inputs = np.array([plan.inputs for plan in plans])
        limits = vars(self.material.limits)
        return certify_plans(self.predictor, x0, inputs, **limits, initial_state_noise=self.noise, n_jobs=work.n_jobs)

    def robust_plans(self, x0: FloatArray, work: Work, progress: Progress | None = None) -> list[Certificate]:
        plans = self.robust(self.material.limits).solve_many(x0, work.n_jobs, progress)
        return [plan.certificate for plan in plans]

    def robust(self, limits: Limits) -> RobustOCP:
        nominal = replace(self.control, state_limits=limits.state_limits)
        return RobustOCP(self.predictor, nominal, limits.state_limits, limits.input_rate_limits, self.noise)

    def effect(self, what: str, value: float, work: Work) -> Effect:
        """On a coarser grid, because there are many."""
        _, x0 = self.grid(self.settings.effects_region)
        believing = self.certified_plans(self.control, x0, work)
        found = {CERTAINTY_EQUIVALENT: believing, ROBUST: self.robust_plans(x0, work)}
        shares = {name: float(np.mean([c.verdict is Verdict.CERTIFIED for c in cs])) for name, cs in found.items()}
        return Effect(what, value, tuple(half_widths(believing)[:, -1].mean(axis=0).tolist()), shares)

    def shorter(self, horizon: int) -> _Designer:
        cost = self.control.cost
        assert isinstance(cost, QuadraticCost)
        control = replace(self.control, models=self.control.models[:horizon], cost=replace(cost, horizon=horizon))
        return replace(self, predictor=self.predictor.with_runs(self.material.runs.shortened(horizon)), control=control)

    def with_fewer(self, rows: IndexArray) -> _Designer:
        return replace(self, predictor=self.predictor.with_runs(self.material.runs.subset(np.sort(rows))))

    def scaled(self, **factors: float) -> _Designer:
        return replace(self, predictor=self.predictor.scaled(**factors))


def _effects(base: _Designer, work: Work) -> list[Effect]:
    """One thing changes at a time; smaller sets of runs are parts of the larger ones."""
    settings, runs = base.settings, base.material.runs
    order = work.rng.permutation(len(runs))
    changes: list[tuple[str, float, float, Callable[[Any], _Designer]]] = [
        *(("horizon", n, runs.horizon, base.shorter) for n in settings.horizons),
        *((runs.kind, min(n, len(runs)), len(runs), lambda n: base.with_fewer(order[:n])) for n in settings.runs),
        *(("noise bound x", factor, 1.0, lambda f: base.scaled(noise=f)) for factor in settings.noise_factors),
        *(("norm bound x", factor, 1.0, lambda f: base.scaled(norm=f)) for factor in settings.norm_factors),
    ]
    if not changes:
        return []
    effects: list[Effect] = []
    with work.stage("what the region depends on") as progress:
        unchanged = base.effect("", 0.0, work)
        for what, value, present, change in changes:
            try:
                effect = unchanged if value == present else change(value).effect(what, value, work)
            except (FalsifiedNormBoundError, ContradictoryDataError) as error:
                effect = Effect(what, value, (), {}, str(error))
            effects.append(replace(effect, what=what, value=value))
            progress(len(effects), len(changes))
    return effects


def _limit_trials(sweep: LimitSweep, base: _Designer, work: Work) -> list[LimitTrial]:
    """The same initial state under one limit after the other."""
    limits, trials = base.material.limits, []
    with work.stage(f"moving the limit of {sweep.state}") as progress:
        for value in sweep.values:
            problem = base.robust(_moved(limits, sweep, base.material.runs.state_names, value))
            began = time.perf_counter()
            found = problem.solve(sweep.initial_state)
            seconds = time.perf_counter() - began
            question = replace(found.certificate.question, inputs=found.start.inputs)
            trials.append(LimitTrial(value, question.ask(base.predictor), found, seconds))
            progress(len(trials), len(sweep.values))
    return trials


def _moved(limits: Limits, sweep: LimitSweep, names: tuple[str, ...], value: float) -> Limits:
    ends = {end: getattr(limits.state_limits, end).copy() for end in ("lower", "upper")}
    ends[sweep.end][names.index(sweep.state)] = value
    return replace(limits, state_limits=Box(**ends))


def _wrong(certificates: list[Certificate], material: Material) -> int:
    """How many certified plans leave the limits on the simulated plant."""
    assert material.plant is not None
    certified = [c.question for c in certificates if c.verdict is Verdict.CERTIFIED]
    if not certified:
        return 0
    truths = material.plant.simulate(np.array([q.x0 for q in certified]), np.array([q.inputs for q in certified]))
    return int((~material.limits.state_limits.contains(truths[:, 1:]).all(axis=1)).sum())
