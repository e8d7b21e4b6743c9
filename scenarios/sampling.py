"""Where to sample next, on the simulated plant: a plan that the data cannot decide, and experiments until they can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..certificates.certificate import Certificate, Verdict, certify, certify_plans
from ..data.arrays import FloatArray
from ..decisions.experiments import Experiment, experiments_around, rank_experiments
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ..reporting import figures
from .material import OPTIMAL, Material, Work
from .schema import SamplingStudy, Scenario, by_name

ANYWHERE, NEARBY = "random anywhere", "random nearby"
_NEARBY_CANDIDATES = 100


@dataclass(frozen=True, eq=False)
class SamplingRound:
    """A verdict on the plan, and the experiments that were run since the one before."""

    certificate: Certificate
    experiments: tuple[Experiment, ...] = ()


@dataclass(frozen=True, eq=False)
class SamplingResult:
    """How a plan was decided, or why not."""

    rounds: tuple[SamplingRound, ...]
    baselines: dict[str, tuple[Certificate, ...]]
    """After as many experiments as in each round that were chosen in another way."""
    truth: FloatArray
    """Of the plan, `(n_steps + 1, n_states)`."""
    ending: str
    """Why it ended."""

    @property
    def first(self) -> Certificate:
        return self.rounds[0].certificate

    @property
    def last(self) -> Certificate:
        return self.rounds[-1].certificate

    @property
    def counts(self) -> list[int]:
        """Experiments so far, by round."""
        return np.cumsum([len(each.experiments) for each in self.rounds]).tolist()

    @property
    def is_contradicted(self) -> bool:
        """Whether the truth is outside some box."""
        found = [each.certificate for each in self.rounds]
        found += [certificate for certificates in self.baselines.values() for certificate in certificates]
        return not all(certificate.tube.contains(self.truth[1:]).all() for certificate in found)

    def figure(self) -> Any:
        """The margin of the plan by the number of experiments, and its boxes."""
        certificates = {"ranked": [each.certificate for each in self.rounds], **self.baselines}
        return figures.sampling_figure(self.counts, certificates, self.truth)


def sample_until_decided(scenario: Scenario, material: Material, work: Work) -> SamplingResult:
    """Plan, rank experiments, run them, certify again; then the same with experiments that are not ranked."""
    settings, predictor = scenario.sampling, material.predictors[OPTIMAL]
    assert settings is not None
    assert material.control is not None
    assert material.plant is not None
    names = predictor.runs.state_names
    if len(settings.initial_state) != len(names):
        raise InputError(f"sampling.initial_state must hold {', '.join(names)}; got {settings.initial_state}")
    x0 = np.array(settings.initial_state)
    if not material.limits.state_limits.contains(x0):
        raise InputError(f"sampling.initial_state {settings.initial_state} lies outside the limits")
    inputs = material.control.solve(x0).inputs
    noise = material.start_noise(scenario)
    first = certify(predictor, x0, inputs, **vars(material.limits), initial_state_noise=noise)
    rounds, ending = _loop(first, settings, material, scenario, work)
    counts = [len(each.experiments) for each in rounds[1:]]
    baselines = {}
    for name, draw in ((ANYWHERE, _anywhere), (NEARBY, _nearby)):
        found = [first]
        with work.stage(f"as many experiments, {name}") as progress:
            drawn = draw(first, sum(counts), settings, work.rng) if counts else ()
            parts = zip(*(np.array_split(array, np.cumsum(counts)[:-1]) for array in drawn), strict=True)
            for starts, sequences in parts:
                found.append(_after(found[-1], starts, sequences, material, scenario, work))
                progress(len(found) - 1, len(counts))
        baselines[name] = tuple(found)
    return SamplingResult(tuple(rounds), baselines, material.plant.simulate(x0, inputs), ending)


def _loop(
    first: Certificate, settings: SamplingStudy, material: Material, scenario: Scenario, work: Work
) -> tuple[list[SamplingRound], str]:
    rounds = [SamplingRound(first)]
    with work.stage("ranking and running experiments") as progress:
        for number in range(1, settings.rounds + 1):
            certificate = rounds[-1].certificate
            if certificate.verdict is not Verdict.UNDECIDED:
                break
            chosen = rank_experiments(
                certificate,
                n=settings.experiments,
                only_certified=settings.only_certified,
                n_candidates=settings.candidates,
                rng=work.rng,
            )
            if not chosen:
                kind = "certified experiment" if settings.only_certified else "experiment"
                return rounds, f"no {kind} among {settings.candidates} candidates is expected to help"
            starts, inputs = np.array([e.x0 for e in chosen]), np.array([e.inputs for e in chosen])
            try:
                found = _after(certificate, starts, inputs, material, scenario, work)
            except (FalsifiedNormBoundError, ContradictoryDataError) as error:
                raise type(error)(f"the experiments of round {number} refute the assumptions: {error}") from None
            rounds.append(SamplingRound(found, tuple(chosen)))
            progress(number, settings.rounds)
    verdict = rounds[-1].certificate.verdict
    used_up = "the rounds are used up" if verdict is Verdict.UNDECIDED else f"the plan is {verdict.name.lower()}"
    return rounds, used_up


def _after(
    certificate: Certificate, x0: FloatArray, inputs: FloatArray, material: Material, scenario: Scenario, work: Work
) -> Certificate:
    """The same question once more runs were recorded, under the same assumptions."""
    if len(x0) == 0:
        return certificate
    assert material.plant is not None
    assert scenario.plant is not None
    predictor = certificate.predictor
    states = material.plant.simulate(x0, inputs)
    noise = by_name(scenario.plant.noise, predictor.runs.state_names, "plant.noise")
    states[:, 1:] += work.rng.uniform(-1.0, 1.0, states[:, 1:].shape) * noise
    more = replace(predictor.runs, states=states, inputs=inputs, origins=None)  # type: ignore[arg-type]
    runs = predictor.runs.joined(more)
    return certificate.question.ask(predictor.with_runs(runs))


def _anywhere(
    first: Certificate, n: int, settings: SamplingStudy, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Drawn uniformly from where runs were recorded; few would be certified."""
    runs = first.predictor.runs
    starts, inputs = runs.states[:, 0], runs.inputs
    shape = (n, runs.horizon, runs.n_inputs)
    return (
        rng.uniform(starts.min(axis=0), starts.max(axis=0), (n, runs.n_states)),
        rng.uniform(inputs.min(axis=(0, 1)), inputs.max(axis=(0, 1)), shape),
    )


def _nearby(
    first: Certificate, n: int, settings: SamplingStudy, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Drawn from the candidates that are ranked otherwise, under the same condition."""
    x0, inputs = experiments_around(first, _NEARBY_CANDIDATES, rng)
    question = first.question
    limits = question.state_limits, question.input_limits, question.input_rate_limits
    certificates = certify_plans(first.predictor, x0, inputs, *limits, question.initial_state_noise)
    allowed = [k for k, c in enumerate(certificates) if not settings.only_certified or c.verdict is Verdict.CERTIFIED]
    chosen = rng.permutation(allowed)[:n].astype(int)
    return x0[chosen], inputs[chosen]
