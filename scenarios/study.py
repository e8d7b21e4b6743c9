"""Running a scenario: plans, verdicts by every method, and how they compare with the truth where it is known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..certificates.certificate import Certificate, Verdict, certify_plans
from ..data.arrays import FloatArray
from ..data.files import Plans, load_plans
from ..errors import InputError
from ..prediction.predictor import MultiStepPredictor
from .closed_loop import LoopRun, compare_controllers
from .design import DesignResult, require_design, run_design
from .material import OPTIMAL, Material, Source, Work, gather, plan_from
from .region import Region, phase_pairs, region_pair, require_region
from .sampling import SamplingResult, sample_until_decided
from .schema import Scenario

_PLANS_AT_ONCE = 250
_MARGINS_UP_TO = 40


@dataclass(frozen=True, eq=False)
class JudgedPlan:
    """A plan, what every method says of it and, where it is known, what the plant does."""

    name: str
    certificates: dict[str, Certificate]
    truth: FloatArray | None
    """`(n_steps + 1, n_states)`."""
    margins: dict[str, dict[str, float]]
    """By method: `norm_margin` and `noise_margin`, where there were few enough plans to look for them."""

    @property
    def verdict(self) -> Verdict:
        return self.certificates[OPTIMAL].verdict

    def steps_inside(self, method: str) -> int | None:
        """At how many steps the true state lies in its box."""
        return None if self.truth is None else int(self.certificates[method].tube.contains(self.truth[1:]).sum())


@dataclass(frozen=True)
class Check:
    """Plans from random initial states against the truth."""

    n_plans: int
    n_states: int
    """How many true states there were."""
    n_inside: int
    verdicts: dict[Verdict, int]
    n_wrong: int
    """Certified plans that violate the limits, and refuted ones that do not."""
    plans_per_second: float
    """Certified, not planned."""


@dataclass(frozen=True, eq=False)
class StudyResult:
    """Everything that a run of a scenario found."""

    scenario: Scenario
    material: Material
    work: Work
    plans: list[JudgedPlan]
    check: Check | None = None
    region: Region | None = None
    loops: dict[str, list[LoopRun]] | None = None
    """Closed loops, by controller."""
    sampling: SamplingResult | None = None
    """Experiments for a plan that was undecided."""
    design: DesignResult | None = None
    """Tables and maps for offline design."""

    @property
    def worst_verdict(self) -> Verdict | None:
        """None where there were no plans to judge; of one that experiments were run for, the last verdict counts."""
        verdicts = [plan.verdict for plan in self.plans]
        if self.sampling is not None:
            verdicts.append(self.sampling.last.verdict)
        return max(verdicts, key=list(Verdict).index, default=None)

    @property
    def is_contradicted(self) -> bool:
        """Whether some truth is outside its box: then an assumption is wrong."""
        if self.check is not None and (self.check.n_inside < self.check.n_states or self.check.n_wrong):
            return True
        loops = [] if self.loops is None else [run for runs in self.loops.values() for run in runs]
        if any(run.broken_promises or run.is_refuted for run in loops):
            return True
        if self.sampling is not None and self.sampling.is_contradicted:
            return True
        if self.design is not None and self.design.n_wrong:
            return True
        steps = [
            (plan.steps_inside(method), len(certificate.tube.lower))
            for plan in self.plans
            for method, certificate in plan.certificates.items()
        ]
        return any(inside is not None and inside < total for inside, total in steps)


def run_study(scenario: Scenario, folder: Path, work: Work) -> StudyResult:
    """All that a scenario asks for."""
    study = scenario.study
    other_questions = (scenario.plan, scenario.closed_loop, scenario.design, scenario.sampling)
    if not study.initial_states and all(question is None for question in other_questions):
        raise InputError("the scenario asks nothing: give initial_states in [study], with [control], or a plan")
    source = Source.of(scenario, folder)
    starts = _initial_states(scenario, source)
    phase_pairs(scenario, source.state_names)  # refused now rather than after the work
    if study.region is not None:
        require_region(study.region_states, source.state_names, source.limits.state_limits, "study")
    if scenario.design is not None:
        require_design(scenario.design, source)
    given = None if scenario.plan is None else plans_in(folder / scenario.plan, source)
    material = gather(scenario, source, work)
    plans = []
    if study.initial_states:
        plans += judge(_controller_plans(starts, material, work), scenario, material, work)
    if given is not None:
        plans += judge(given, scenario, material, work)
    check = _check(scenario, material, work) if study.check else None
    region = _region(scenario, material, work) if study.region else None
    loops = None if scenario.closed_loop is None else compare_controllers(scenario, material, work)
    sampling = None if scenario.sampling is None else sample_until_decided(scenario, material, work)
    design = None if scenario.design is None else run_design(scenario, material, work)
    return StudyResult(scenario, material, work, plans, check, region, loops, sampling, design)


def certify_file(scenario: Scenario, folder: Path, plan_file: Path, work: Work) -> StudyResult:
    """The plans in a file, and nothing else of what the scenario asks for."""
    source = Source.of(scenario, folder)
    plans = plans_in(plan_file, source)
    material = gather(scenario, source, work)
    return StudyResult(scenario, material, work, judge(plans, scenario, material, work))


def plans_in(file: Path, source: Source) -> Plans:
    """Read plans, none longer than the recorded runs."""
    names = {"state_names": source.state_names, "input_names": source.input_names}
    plans = load_plans(file, **names, sampling_time=source.sampling_time)
    for name, inputs in zip(plans.names, plans.inputs, strict=True):
        if len(inputs) > source.horizon:
            raise InputError(
                f"{file}: plan {name} has {len(inputs)} steps, but the recorded {source.kind} only {source.horizon}: "
                f"shorten the plan, or {'cut' if source.kind == 'windows' else 'record'} longer {source.kind}"
            )
    return plans


def judge(plans: Plans, scenario: Scenario, material: Material, work: Work) -> list[JudgedPlan]:
    """Certificates of every method for every plan, with their norm and noise margins."""
    certificates = {
        method: _certify(plans.x0, plans.inputs, predictor, scenario, material, f"certifying, {method}", work)
        for method, predictor in material.predictors.items()
    }
    margins = _margins([c for found in certificates.values() for c in found], work)
    judged = []
    for i, (name, x0, inputs) in enumerate(zip(plans.names, plans.x0, plans.inputs, strict=True)):
        truth = None if material.plant is None else material.plant.simulate(x0, inputs)
        mine = {method: found[i] for method, found in certificates.items()}
        judged.append(JudgedPlan(name, mine, truth, {method: margins[c] for method, c in mine.items() if c in margins}))
    return judged


def _margins(certificates: list[Certificate], work: Work) -> dict[Certificate, dict[str, float]]:
    """Norm and noise margins, which take longer than the verdicts: none where there are many plans."""
    from joblib import Parallel, delayed

    if len(certificates) > _MARGINS_UP_TO:
        return {}
    margins: list[dict[str, float]] = []
    with work.stage("norm and noise margins") as progress:
        for found in Parallel(work.n_jobs, return_as="generator")(delayed(_margins_of)(c) for c in certificates):
            margins.append(found)
            progress(len(margins), len(certificates))
    return dict(zip(certificates, margins, strict=True))


def _margins_of(certificate: Certificate) -> dict[str, float]:
    return {"norm_margin": certificate.norm_margin, "noise_margin": certificate.noise_margin}


def _certify(
    x0: Sequence[FloatArray],
    inputs: Sequence[FloatArray],
    predictor: MultiStepPredictor,
    scenario: Scenario,
    material: Material,
    stage: str,
    work: Work,
) -> list[Certificate]:
    """Plans of one length at a time, some at once; certificates in the order of the plans."""
    noise = material.start_noise(scenario)
    certificates: dict[int, Certificate] = {}
    with work.stage(stage) as progress:
        for length in sorted({len(u) for u in inputs}):
            same = [i for i, u in enumerate(inputs) if len(u) == length]
            for chunk in np.array_split(same, max(1, len(same) // _PLANS_AT_ONCE)):
                found = certify_plans(
                    predictor,
                    np.array([x0[i] for i in chunk]),
                    np.array([inputs[i] for i in chunk]),
                    **vars(material.limits),
                    initial_state_noise=noise,
                    n_jobs=work.n_jobs if len(chunk) > 10 else 1,
                )
                certificates.update(zip(chunk.tolist(), found, strict=True))
                progress(len(certificates), len(inputs))
    return [certificates[i] for i in range(len(inputs))]


def _initial_states(scenario: Scenario, source: Source) -> FloatArray:
    """To plan from, `(n, n_states)`."""
    starts = scenario.study.initial_states
    for start in starts:
        if len(start) != len(source.state_names):
            raise InputError(f"study.initial_states: {start} must hold {', '.join(source.state_names)}")
    return np.array(starts)


def _controller_plans(starts: FloatArray, material: Material, work: Work) -> Plans:
    assert material.control is not None
    plans = plan_from(material.control, starts, "planning from the initial states", work)
    names = tuple("(" + ", ".join(f"{x:g}" for x in start) + ")" for start in starts)
    return Plans(names, tuple(starts), tuple(plan.inputs for plan in plans))


def _check(scenario: Scenario, material: Material, work: Work) -> Check:
    assert material.control is not None
    assert material.plant is not None
    limits = material.limits.state_limits
    x0 = work.rng.uniform(limits.lower, limits.upper, (scenario.study.check, limits.n_dims))
    plans = plan_from(material.control, x0, "planning from random initial states", work)
    inputs = np.array([plan.inputs for plan in plans])
    predictor, stage = material.predictors[OPTIMAL], "certifying random plans"
    began = time.perf_counter()
    certificates = _certify(list(x0), list(inputs), predictor, scenario, material, stage, work)
    seconds = time.perf_counter() - began
    truths = material.plant.simulate(x0, inputs)[:, 1:]
    verdicts = [certificate.verdict for certificate in certificates]
    feasible = np.all(limits.contains(truths), axis=1).tolist()
    return Check(
        n_plans=len(x0),
        n_states=truths.shape[0] * truths.shape[1],
        n_inside=sum(int(c.tube.contains(truth).sum()) for c, truth in zip(certificates, truths, strict=True)),
        verdicts={verdict: verdicts.count(verdict) for verdict in Verdict},
        n_wrong=sum(
            c.verdict is (Verdict.REFUTED if f else Verdict.CERTIFIED) and c.input_violation is None
            for c, f in zip(certificates, feasible, strict=True)
        ),
        plans_per_second=len(x0) / seconds,
    )


def _region(scenario: Scenario, material: Material, work: Work) -> Region:
    study = scenario.study
    assert study.region is not None
    assert material.control is not None
    states = region_pair(study.region_states, material.runs.state_names, "study")
    grid = Region.over(material.limits.state_limits, states, study.region)
    x0 = grid.initial_states(np.array(study.initial_states[0]))
    plans = [plan.inputs for plan in plan_from(material.control, x0, "planning over the region", work)]
    for method, predictor in material.predictors.items():
        found = _certify(list(x0), plans, predictor, scenario, material, f"the region, {method}", work)
        grid.add(method, [certificate.verdict for certificate in found])
    return grid
