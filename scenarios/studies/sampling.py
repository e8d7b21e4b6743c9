"""Where to sample next, on the simulated plant: an undecided plan, and experiments until the data decide it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...arithmetic.printing import margin_text
from ...certificates.certificate import Certificate, Verdict, certify, certify_plans
from ...data.arrays import FloatArray
from ...data.files import save_plans, save_trajectories
from ...data.plans import Plans
from ...decisions.experiments import Experiment, experiments_around, rank_experiments
from ...errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ...reporting import Cell, Gallery, Picture, Section, Table, figures
from ..material import OPTIMAL, Source
from ..schema import Count, Finite, Scenario, Settings, by_name
from .kind import Kind, Listing, Outcome, Run, Task, finite

ANYWHERE, NEARBY = "random anywhere", "random nearby"
_NEARBY_CANDIDATES = 100


class SamplingSettings(Settings):
    """Run experiments on the simulated plant until the plan from an initial state is decided."""

    initial_state: list[Finite]
    experiments: Count = 2
    """Maximum per round: those expected to help most."""
    rounds: Count = 10
    """At most."""
    only_certified: bool = True
    """Run only experiments during which the plant provably keeps its limits."""
    candidates: Count = 400
    """Candidates to choose from in each round."""


@dataclass(frozen=True, eq=False)
class SamplingRound:
    """A verdict on the plan, and the experiments run since the previous one."""

    certificate: Certificate
    experiments: tuple[Experiment, ...] = ()


@dataclass(frozen=True, eq=False)
class SamplingOutcome(Outcome):
    """How a plan was decided, or why not."""

    rounds: tuple[SamplingRound, ...]
    baselines: dict[str, tuple[Certificate, ...]]
    """Certificates after as many experiments as in each round, chosen in another way."""
    truth: FloatArray
    """True states of the plan, `(n_steps + 1, n_states)`."""
    ending: str
    """Why it ended."""

    name: ClassVar[str] = "sampling"

    @property
    def first(self) -> Certificate:
        """The certificate before any new experiment."""
        return self.rounds[0].certificate

    @property
    def last(self) -> Certificate:
        """The certificate after the last experiment."""
        return self.rounds[-1].certificate

    @property
    def counts(self) -> list[int]:
        """Experiments so far, by round."""
        return list(accumulate(len(each.experiments) for each in self.rounds))

    @property
    def experiments(self) -> list[Experiment]:
        """The experiments of all rounds, in the order they were run."""
        return [experiment for each in self.rounds for experiment in each.experiments]

    @property
    def is_contradicted(self) -> bool:
        found = [each.certificate for each in self.rounds]
        found += [certificate for certificates in self.baselines.values() for certificate in certificates]
        return not all(certificate.tube.contains(self.truth[1:]).all() for certificate in found)

    @property
    def verdicts(self) -> list[Verdict]:
        return [self.last.verdict]

    def summary(self) -> dict[str, Any]:
        question = self.first.question
        return {
            "x0": question.x0.tolist(),
            "inputs": question.inputs.tolist(),
            "truth": self.truth.tolist(),
            "ending": self.ending,
            "rounds": [
                {
                    "experiments": [_experiment_summary(experiment) for experiment in each.experiments],
                    "verdict": each.certificate.verdict.name,
                    "explanation": each.certificate.explain(),
                    "margin": finite(each.certificate.margin),
                    "margin_by_other_choices": {
                        name: finite(found[number].margin) for name, found in self.baselines.items()
                    },
                }
                for number, each in enumerate(self.rounds)
            ],
        }

    def listings(self) -> list[Listing]:
        rows: list[tuple[str | Verdict, ...]] = []
        for number, (each, count) in enumerate(zip(self.rounds, self.counts, strict=True)):
            certificate = each.certificate
            step, constraint = divmod(int(certificate.margins.argmin()), certificate.margins.shape[1])
            rows.append(
                (
                    str(count),
                    f"{sum(e.is_certified for e in each.experiments)}/{len(each.experiments)}" if number else "",
                    certificate.verdict,
                    f"step {step + 1}, {certificate.constraint_names[constraint]}",
                    margin_text(certificate.margin),
                    *(margin_text(found[number].margin) for found in self.baselines.values()),
                )
            )
        baselines = (name.replace(" ", "\n") for name in self.baselines)
        return [
            Listing(
                ("runs", "cert.", "verdict", "worst bound", "margin", *baselines),
                [rows],
                title="Experiments that decide a plan",
                caption="runs: experiments so far; cert.: experiments of the round certified to keep the limits; "
                "margin: of the plan; then its margin after as many random experiments",
                whole=frozenset({3}),
            )
        ]

    def remarks(self) -> list[str]:
        return [f"experiments ended after {self.counts[-1]}: {self.ending}"]

    def finding(self) -> str:
        number, now = self.counts[-1], self.last.verdict
        after = f"after {number} experiment{'' if number == 1 else 's'}" if number else "without any experiment"
        if now is Verdict.UNDECIDED:
            return f"The plan is still undecided {after}: {self.ending}."
        before = f"; before {'it' if number == 1 else 'them'} it was undecided" if number else ""
        return f"The plan is {now.name.lower()} {after}{before}."

    def sections(self) -> list[Section]:
        rows: list[tuple[str | Cell, ...]] = [
            (
                str(count),
                Cell(each.certificate.verdict.name.lower(), each.certificate.verdict.name.lower()),
                margin_text(each.certificate.margin),
                *(margin_text(found[number].margin) for found in self.baselines.values()),
            )
            for number, (each, count) in enumerate(zip(self.rounds, self.counts, strict=True))
        ]
        text = (
            "Experiments on the simulated plant that were expected to shrink the failing bound most, and the margin "
            "of the plan after them; for comparison, the margin after as many random experiments."
        )
        table = Table(("experiments", "verdict", "margin", *self.baselines), rows)
        picture = Picture(self.figures()["sampling"], "The margin of the plan against the number of experiments.")
        return [Section("Experiments that decide the plan", [text, table, Gallery([picture])])]

    def figures(self) -> dict[str, Any]:
        certificates = {"ranked": [each.certificate for each in self.rounds], **self.baselines}
        return {"sampling": figures.sampling_figure(self.counts, certificates, self.truth)}

    def write(self, folder: Path) -> None:
        """The last certificate, the runs it rests on, and the experiments in the order they were run."""
        (folder / "certificates").mkdir(exist_ok=True)
        self.last.save(folder / "certificates" / "sampling.json", seed=self.task.work.seed)
        runs, experiments = self.last.predictor.runs, self.experiments
        save_trajectories(runs, folder / "runs_with_experiments.npz")
        if experiments:
            plans = Plans(
                names=tuple(f"experiment {number}" for number in range(1, len(experiments) + 1)),
                x0=tuple(experiment.x0 for experiment in experiments),
                inputs=tuple(experiment.inputs for experiment in experiments),
                state_names=runs.state_names,
                input_names=runs.input_names,
            )
            save_plans(plans, folder / "experiments.csv")


def _experiment_summary(experiment: Experiment) -> dict[str, Any]:
    return {
        "x0": experiment.x0.tolist(),
        "inputs": experiment.inputs.tolist(),
        "expected_gain": experiment.gain,
        "is_certified": experiment.is_certified,
    }


def prepare(settings: SamplingSettings, scenario: Scenario, source: Source) -> Run | None:
    """The plan has to start within the limits."""
    if len(settings.initial_state) != len(source.state_names):
        raise InputError(
            f"sampling.initial_state must hold {', '.join(source.state_names)}; got {settings.initial_state}"
        )
    if not source.limits.states.contains(settings.initial_state):
        raise InputError(f"sampling.initial_state {settings.initial_state} lies outside the limits")
    return partial(run, settings)


def run(settings: SamplingSettings, task: Task) -> SamplingOutcome:
    """Plan, rank experiments, run them, certify again; then the same with unranked experiments."""
    material, work = task.material, task.work
    assert material.control is not None
    assert material.plant is not None
    x0 = np.array(settings.initial_state)
    inputs = material.control.solve(x0).inputs
    noise = material.start_noise(task.scenario)
    first = certify(material.predictors[OPTIMAL], x0, inputs, limits=material.limits, initial_state_noise=noise)
    rounds, ending = _loop(first, settings, task)
    counts = [len(each.experiments) for each in rounds[1:]]
    baselines = {}
    for name, draw in ((ANYWHERE, _anywhere), (NEARBY, _nearby)):
        found = [first]
        with work.stage(f"as many experiments, {name}") as progress:
            drawn = draw(first, sum(counts), settings, work.rng) if counts else ()
            parts = zip(*(np.array_split(array, np.cumsum(counts)[:-1]) for array in drawn), strict=True)
            for starts, sequences in parts:
                found.append(_after(found[-1], starts, sequences, task))
                progress(len(found) - 1, len(counts))
        baselines[name] = tuple(found)
    truth = material.plant.simulate(x0, inputs)
    return SamplingOutcome(task, tuple(rounds), baselines=baselines, truth=truth, ending=ending)


def _loop(first: Certificate, settings: SamplingSettings, task: Task) -> tuple[list[SamplingRound], str]:
    rounds = [SamplingRound(first)]
    with task.work.stage("ranking and running experiments") as progress:
        for number in range(1, settings.rounds + 1):
            certificate = rounds[-1].certificate
            if certificate.verdict is not Verdict.UNDECIDED:
                break
            chosen = rank_experiments(
                certificate,
                n=settings.experiments,
                only_certified=settings.only_certified,
                n_candidates=settings.candidates,
                rng=task.work.rng,
            )
            if not chosen:
                kind = "certified experiment" if settings.only_certified else "experiment"
                return rounds, f"no {kind} among {settings.candidates} candidates is expected to help"
            starts, inputs = np.array([e.x0 for e in chosen]), np.array([e.inputs for e in chosen])
            try:
                found = _after(certificate, starts, inputs, task)
            except (FalsifiedNormBoundError, ContradictoryDataError) as error:
                raise type(error)(f"the experiments of round {number} refute the assumptions: {error}") from None
            rounds.append(SamplingRound(found, tuple(chosen)))
            progress(number, settings.rounds)
    verdict = rounds[-1].certificate.verdict
    used_up = "the rounds are used up" if verdict is Verdict.UNDECIDED else f"the plan is {verdict.name.lower()}"
    return rounds, used_up


def _after(certificate: Certificate, x0: FloatArray, inputs: FloatArray, task: Task) -> Certificate:
    """The same question after recording more runs, under the same assumptions."""
    if len(x0) == 0:
        return certificate
    assert task.material.plant is not None
    assert task.scenario.plant is not None
    predictor = certificate.predictor
    states = task.material.plant.simulate(x0, inputs)
    noise = by_name(task.scenario.plant.noise, predictor.runs.state_names, "plant.noise")
    states[:, 1:] += task.work.rng.uniform(-1.0, 1.0, states[:, 1:].shape) * noise
    more = replace(predictor.runs, states=states, inputs=inputs, origins=None)  # type: ignore[arg-type]
    runs = predictor.runs.joined(more)
    return certificate.question.ask(predictor.with_runs(runs))


def _anywhere(
    first: Certificate, n: int, settings: SamplingSettings, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Drawn uniformly from the recorded range; few would be certified."""
    runs = first.predictor.runs
    starts, inputs = runs.states[:, 0], runs.inputs
    shape = (n, runs.horizon, runs.n_inputs)
    return (
        rng.uniform(starts.min(axis=0), starts.max(axis=0), (n, runs.n_states)),
        rng.uniform(inputs.min(axis=(0, 1)), inputs.max(axis=(0, 1)), shape),
    )


def _nearby(
    first: Certificate, n: int, settings: SamplingSettings, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Drawn from the same candidates under the same condition, without ranking."""
    x0, inputs = experiments_around(first, _NEARBY_CANDIDATES, rng)
    noise = first.question.initial_state_noise
    certificates = certify_plans(first.predictor, x0, inputs, limits=first.question.limits, initial_state_noise=noise)
    allowed = [k for k, c in enumerate(certificates) if not settings.only_certified or c.verdict is Verdict.CERTIFIED]
    chosen = rng.permutation(allowed)[:n].astype(int)
    return x0[chosen], inputs[chosen]


def complaint(settings: SamplingSettings, scenario: Scenario) -> str:
    """Experiments need a plant to run on."""
    needed = "[sampling] runs experiments, which need a simulated [plant]"
    return "" if scenario.plant is not None else needed


KIND = Kind(
    "sampling",
    SamplingSettings,
    prepare,
    complaint,
    files=("sampling.*", "certificates/sampling.json", "experiments.csv", "runs_with_experiments.npz"),
)
