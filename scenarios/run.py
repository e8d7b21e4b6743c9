"""Running a scenario: prepare, refuse or run what it asks for, one kind of study after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..assumptions.diagnosis import diagnose
from ..assumptions.findings import Diagnosis
from ..certificates.certificate import Verdict
from ..errors import InputError
from .material import Material, Source, Work, gather
from .schema import Scenario
from .studies import kinds
from .studies.kind import Outcome, Task
from .studies.plans import PlansOutcome, PlansSettings, judge, phase_pairs, plans_in

AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)


@dataclass(frozen=True, eq=False)
class StudyResult:
    """All findings of one run of a scenario."""

    task: Task
    outcomes: tuple[Outcome, ...]
    """Outcomes of the requested kinds of studies, in order."""

    @property
    def scenario(self) -> Scenario:
        """What was run."""
        return self.task.scenario

    @property
    def material(self) -> Material:
        """What the studies worked with."""
        return self.task.material

    @property
    def work(self) -> Work:
        """How it was run."""
        return self.task.work

    def find(self, wanted: type[AnyOutcome]) -> AnyOutcome | None:
        """The outcome of one kind of study, if it was run."""
        return next((outcome for outcome in self.outcomes if isinstance(outcome, wanted)), None)

    @property
    def worst_verdict(self) -> Verdict | None:
        """None where there were no plans to judge; for a plan decided by experiments, the last verdict counts."""
        verdicts = [verdict for outcome in self.outcomes for verdict in outcome.verdicts]
        return max(verdicts, key=list(Verdict).index, default=None)

    @property
    def is_contradicted(self) -> bool:
        """Whether some true state is outside its box: then an assumption is wrong."""
        return any(outcome.is_contradicted for outcome in self.outcomes)

    def remarks(self) -> Iterator[str]:
        """Remarks besides the tables, one line each: on the plans, on what they rest on, on other studies."""
        plans = self.find(PlansOutcome)
        if plans is not None:
            yield from plans.remarks()
        yield from self.material.remarks()
        for outcome in self.outcomes:
            if outcome is not plans:
                yield from outcome.remarks()


def run_study(scenario: Scenario, folder: Path, work: Work) -> StudyResult:
    """Run everything that a scenario asks for; paths in it are relative to the folder."""
    source = Source.of(scenario, folder)
    prepared, tells = [], False
    for kind in kinds():
        settings = scenario.settings(kind.settings)
        run = None if settings is None else kind.prepare(settings, scenario, source)
        if run is not None:
            prepared.append(run)
            tells = tells or kind.tells_contradictions
    if not prepared:
        raise InputError("the scenario asks for nothing: give initial_states in [study], with [control], or a plan")
    task = Task(scenario, gather(scenario, source, work, tells_contradictions=tells), work)
    return StudyResult(task, tuple(run(task) for run in prepared))


def certify_file(
    scenario: Scenario,
    folder: Path,
    plan_file: Path,
    work: Work,
    heed: Callable[[Diagnosis], None] = lambda diagnosis: None,
) -> StudyResult:
    """Certify the plans in a file and do nothing else in the scenario; doubts go to `heed` before the work starts."""
    source = Source.of(scenario, folder)
    pairs = phase_pairs(scenario.settings(PlansSettings) or PlansSettings(), source.state_names)
    plans = plans_in(plan_file, source)
    if source.recorded is not None:
        heed(diagnose(source.recorded, plans, source.limits))
    task = Task(scenario, gather(scenario, source, work), work)
    return StudyResult(task, (PlansOutcome(task, judge(plans, task), pairs),))


def diagnose_scenario(scenario: Scenario, folder: Path, plan_file: Path | None = None) -> Diagnosis:
    """What stands out in its recorded runs and limits, and in the plans of a file or of the scenario."""
    source = Source.of(scenario, folder)
    if source.recorded is None:
        raise InputError(
            "the scenario simulates its plant: there are no recordings to look at, which would be in [data]"
        )
    if plan_file is None and scenario.plan is not None:
        plan_file = folder / scenario.plan
    plans = None if plan_file is None else plans_in(plan_file, source)
    return diagnose(source.recorded, plans, source.limits)
