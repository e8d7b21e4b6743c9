"""From a scenario to what its studies work with: runs, assumptions, predictors, limits, a controller."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..assumptions.priors import GivenPrior
from ..assumptions.selection import Selection, select_assumptions
from ..control.certainty_equivalent import CertaintyEquivalentOCP, Plan, QuadraticCost
from ..data.arrays import FloatArray
from ..data.limits import require_names
from ..data.tables import bounds_of_decimals
from ..data.trajectories import Trajectories
from ..envelopes.closed_form import ClosedFormEnvelope
from ..errors import InputError, UnsettledNormWarning
from ..models.plant import Plant
from ..parallel import Progress
from ..prediction.choice import choose_assumptions
from ..prediction.predictor import MultiStepPredictor
from .plants import plant_named
from .recorded import HeldOut, data_file, hold_out, load_recordings
from .schema import BoxLimits, ControlProblem, PlantData, PredictorSettings, Scenario, by_name, weight_matrix
from .simulated import record, spread, uniform

OPTIMAL, CLOSED_FORM, AFFINE_PRIOR = "optimal", "closed form", "affine prior"


def _keep_silent(stage: str) -> Progress:
    """Discard the progress of a stage."""
    return lambda done, total: None


@dataclass(frozen=True, eq=False)
class Work:
    """How a scenario is run: random numbers, processes, and where progress is reported."""

    seed: int
    n_jobs: int = 1
    announce: Callable[[str], Progress] = _keep_silent
    """`announce(stage)` returns the callback for the stage's progress."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds, by stage."""

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random number generator, from the seed."""
        return np.random.default_rng(self.seed)

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """Announce a stage and add its duration to `timings`."""
        began = time.perf_counter()
        yield self.announce(name)
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, eq=False)
class Material:
    """What the studies work with."""

    predictors: dict[str, MultiStepPredictor]
    """By method; the optimal one decides."""
    limits: BoxLimits
    control: CertaintyEquivalentOCP | None
    plant: Plant | None
    n_held_out: int = 0
    """Number of held-out runs that do not contradict the predictor; `held_out` has all held-out runs."""
    n_left_out: int = 0
    """Windows that were not used at all because they share samples with held-out ones."""
    doubt: str = ""
    """Which of the norm estimates in use have not settled, if any."""
    data_file: Path | None = None
    """Where the runs were read from."""
    held_out: HeldOut | None = None
    selection: Selection | None = None
    """What was selected from the runs; also used for nominal models."""

    @property
    def runs(self) -> Trajectories:
        """The recorded runs."""
        return self.predictors[OPTIMAL].runs

    def start_noise(self, scenario: Scenario) -> FloatArray:
        """How far the true initial states of plans may be from the stated ones: as the scenario says, or as in runs."""
        if scenario.initial_state_noise is None:
            return self.runs.initial_state_noise
        given = by_name(scenario.initial_state_noise, self.runs.state_names, "initial_state_noise")
        return self.predictors[OPTIMAL].start_noise(bounds_of_decimals(given, "initial_state_noise"))

    def assumptions(self) -> list[list[dict[str, Any]]]:
        """The assumptions by step and state, in JSON types."""
        predictor = self.predictors[OPTIMAL]
        tables = (predictor.kernels, predictor.norm_bounds, predictor.priors)
        return [
            [
                {"kernel": kernel.to_dict(), "norm_bound": vars(bound), "prior": None if prior is None else vars(prior)}
                for kernel, bound, prior in zip(*rows, strict=True)
            ]
            for rows in zip(*tables, strict=True)
        ]

    def remarks(self) -> Iterator[str]:
        """What all results rest on, one line each."""
        if text := self.predictors[OPTIMAL].assumption_text:
            yield text
        if self.selection is not None and self.selection.comparison:
            yield self.selection.comparison.summary
            yield from str(self.selection.comparison).splitlines()
        if self.doubt:
            yield self.doubt
        if self.n_held_out and not (self.held_out is not None and self.held_out.contradiction):
            yield f"{self.n_held_out} held-out {self.runs.kind} do not contradict the assumptions"
        if self.n_left_out:
            yield f"{self.n_left_out} windows that share samples with these were left out"
        if self.runs.initial_state_text:
            yield self.runs.initial_state_text


@dataclass(frozen=True, eq=False)
class Source:
    """Where runs come from, a simulated plant or recordings, and what is known about them before any work is done."""

    folder: Path
    """The folder that paths in the scenario are relative to."""
    plant: Plant | None
    recorded: Trajectories | None
    data_file: Path | None
    state_names: tuple[str, ...]
    input_names: tuple[str, ...]
    horizon: int
    sampling_time: float
    limits: BoxLimits

    @property
    def kind(self) -> str:
        """What the runs are called in messages."""
        return "runs" if self.recorded is None else self.recorded.kind

    @property
    def history_names(self) -> tuple[str, ...]:
        """What a plan begins with: the states, or the last outputs and inputs."""
        return self.state_names if self.recorded is None else self.recorded.history_names

    def require_states(self, what: str) -> None:
        """Refuse histories where a state is needed to start from."""
        if self.recorded is not None:
            self.recorded.require_states(what)

    @classmethod
    def of(cls, scenario: Scenario, folder: Path) -> Source:
        """Paths in the scenario are relative to `folder`."""
        plant, recorded, file = None, None, None
        if scenario.plant is not None:
            plant, horizon = plant_named(scenario.plant.name, folder), scenario.plant.horizon
        else:
            assert scenario.data is not None
            file = data_file(scenario.data, folder)
            recorded = load_recordings(scenario.data, file)
            horizon = recorded.horizon
        system = plant or recorded
        assert system is not None
        return cls(
            folder=folder,
            plant=plant,
            recorded=recorded,
            data_file=file,
            state_names=system.state_names,
            input_names=system.input_names,
            horizon=horizon,
            sampling_time=system.sampling_time,
            limits=scenario.limits.over(system.state_names, system.input_names),
        )


def gather(scenario: Scenario, source: Source, work: Work, *, tells_contradictions: bool = False) -> Material:
    """Simulate the runs if need be, choose the assumptions, build the predictors.

    Assumptions that held-out runs contradict are refused, unless the caller reports the contradiction.
    """
    cost = None if scenario.control is None else _cost(scenario.control, source)
    if source.plant is not None:
        assert scenario.plant is not None
        assert cost is not None
        return _simulated(scenario, scenario.plant, source.plant, cost, source.limits, work)
    assert source.recorded is not None
    material = _recorded(scenario, source.recorded, cost, source.limits, work)
    if material.held_out is not None and not tells_contradictions:
        material.held_out.require_no_contradiction()
    return replace(material, data_file=source.data_file)


def plan_from(control: CertaintyEquivalentOCP, x0: FloatArray, stage: str, work: Work) -> list[Plan]:
    """A plan from every initial state; where the solver fails, its last iterate is used as the plan."""
    with work.stage(stage) as progress:
        return control.solve_many(x0, work.n_jobs, progress)


def _simulated(
    scenario: Scenario, settings: PlantData, plant: Plant, cost: QuadraticCost, limits: BoxLimits, work: Work
) -> Material:
    """Explore with random inputs, select assumptions and models from these runs, then record the controller's plans."""
    require_names(settings.initial_states, plant.state_names, "plant.initial_states")
    wider = scenario.limits.model_copy(update={"states": {**scenario.limits.states, **settings.initial_states}})
    domain = wider.over(plant.state_names, plant.input_names).states
    for what, box in (("states", domain), ("inputs", limits.inputs)):
        if not np.isfinite([box.lower, box.upper]).all():
            raise InputError(f"limits.{what}: a simulated plant needs limits on all of them, to draw from")
    n_runs = settings.exploration_runs
    starts = uniform(domain, (n_runs,), work.rng)
    inputs = uniform(limits.inputs, (n_runs, settings.horizon), work.rng)
    exploration = record(plant, settings, starts, inputs, work.rng)
    selection = _select(exploration, scenario.predictor, work)
    control = _control(exploration, selection, cost, limits)
    starts = spread(settings, domain)
    exploring = replace(control, limits=replace(limits, states=domain))
    plans = plan_from(exploring, starts, "planning the runs to record", work)
    runs = record(plant, settings, starts, np.array([plan.inputs for plan in plans]), work.rng)
    if settings.keep_exploration:
        runs = runs.joined(exploration)
    predictors = _predictors(runs, exploration, selection, scenario.predictor, work)
    doubt = _doubt(selection, scenario.predictor)
    return Material(predictors, limits, control, plant, doubt=doubt, selection=selection)


def _recorded(
    scenario: Scenario, recorded: Trajectories, cost: QuadraticCost | None, limits: BoxLimits, work: Work
) -> Material:
    """Select assumptions from some runs, build the boxes from all but the held-out ones, and test with those."""
    assert scenario.data is not None
    try:
        runs, kept_back = hold_out(recorded, scenario.predictor, work.rng)
    except InputError as error:
        raise InputError(f"{scenario.data.file}, {error}") from None
    share = scenario.predictor.selection_share
    n_chosen = min(scenario.predictor.selection_runs, int(share * len(runs)))
    if n_chosen < 2:
        part = "half" if share == 0.5 else f"{share:g}"
        raise InputError(
            f"{scenario.data.file}: {len(runs)} {recorded.kind} are too few: {part} of them must be at least two"
        )
    chosen = runs.subset(np.sort(work.rng.permutation(len(runs))[:n_chosen]))
    selection = _select(chosen, scenario.predictor, work)
    runs, chosen = selection.runs_like(runs), selection.runs_like(chosen)
    kept_back = None if kept_back is None else selection.runs_like(kept_back)
    predictors = _predictors(runs, chosen, selection, scenario.predictor, work)
    held_out = None
    if kept_back is not None:
        with work.stage(f"testing with held-out {recorded.kind}"):
            held_out = HeldOut.tested(kept_back, predictors[OPTIMAL], work.n_jobs)
    return Material(
        predictors,
        limits,
        control=None if cost is None else _control(chosen, selection, cost, limits),
        plant=None,
        n_held_out=0 if held_out is None else len(held_out.runs) - held_out.n_contradicting,
        n_left_out=len(recorded) - len(runs) - (0 if kept_back is None else len(kept_back)),
        doubt=_doubt(selection, scenario.predictor),
        held_out=held_out,
        selection=selection,
    )


def _select(
    runs: Trajectories, settings: PredictorSettings, work: Work, stage: str = "choosing kernels and norm bounds"
) -> Selection:
    with work.stage(stage) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsettledNormWarning)  # the results say it
        common: dict[str, Any] = {
            "regularisations": settings.regularisations,
            "folds": settings.folds,
            "norm_estimate": settings.norm_estimate,
            "rng": work.rng,
            "n_jobs": work.n_jobs,
            "progress": progress,
        }
        names = ("per_dimension", "kernel", "safety_factor")
        given = None if settings.prior == "none" else settings.prior
        if settings.lengthscales is not None or settings.norm_bound is not None:  # these are for one formulation
            prior: GivenPrior = None if given == "choose" else given
            said = {name: getattr(settings, name) for name in names}
            return select_assumptions(runs, settings.lengthscales, prior=prior, **common, **said)
        said = {name: getattr(settings, name) for name in names if name in settings.model_fields_set}
        return choose_assumptions(runs, prior=given, arguments=settings.arguments, **common, **said)


def _doubt(selection: Selection, settings: PredictorSettings) -> str:
    """Doubts about the norm estimates, if they are what is assumed."""
    return selection.doubt if settings.norm_bound is None else ""


def _predictors(
    runs: Trajectories,
    chosen: Trajectories,
    selection: Selection,
    settings: PredictorSettings,
    work: Work,
) -> dict[str, MultiStepPredictor]:
    """Predictors by method; `chosen` are the runs used for the selection, and for the comparisons with it."""
    bounds: Any = selection.norm_bounds
    if settings.norm_bound is not None:
        given = by_name(settings.norm_bound, runs.state_names, "predictor.norm_bound")
        bounds = [np.broadcast_to(given, (runs.n_states,)).tolist()] * runs.horizon
    with work.stage("building the predictors") as progress:
        optimal = MultiStepPredictor(
            runs, selection.kernels, bounds, priors=selection.priors, n_jobs=work.n_jobs, progress=progress
        )
        predictors = {OPTIMAL: optimal}
        if settings.compare_closed_form:
            predictors[CLOSED_FORM] = optimal.with_method(ClosedFormEnvelope, nugget=settings.closed_form_nugget)
        progress(1, 1)
    if settings.compare_affine_prior:
        affine = settings.model_copy(update={"prior": "affine"})
        aside = replace(work)  # with its own random numbers: nothing else depends on the comparison
        other = _select(chosen, affine, aside, "choosing kernels and norm bounds, affine prior")
        predictors[AFFINE_PRIOR] = MultiStepPredictor(runs, other.kernels, other.norm_bounds, priors=other.priors)
    return predictors


def _cost(settings: ControlProblem, source: Source) -> QuadraticCost:
    states, inputs = source.state_names, source.input_names
    return QuadraticCost(
        state_weight=weight_matrix(settings.state_weight, len(states), "control.state_weight"),
        input_weight=weight_matrix(settings.input_weight, len(inputs), "control.input_weight"),
        terminal_weight=weight_matrix(settings.terminal_weight, len(states), "control.terminal_weight"),
        state_reference=np.array(by_name(settings.state_reference, states, "control.state_reference")),
        input_reference=np.array(by_name(settings.input_reference, inputs, "control.input_reference")),
        horizon=source.horizon,
    )


def _control(
    runs: Trajectories, selection: Selection, cost: QuadraticCost, limits: BoxLimits
) -> CertaintyEquivalentOCP:
    return CertaintyEquivalentOCP.from_runs(
        runs,
        selection.kernels,
        selection.regularisations,
        cost=cost,
        limits=limits,
        priors=selection.priors,
    )
