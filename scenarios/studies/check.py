"""Plans from random initial states against the truth: are the verdicts and the boxes right?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...certificates.certificate import Verdict
from ...reporting import Section, Table
from ..material import OPTIMAL, Source, plan_from
from ..schema import GENERAL, Scenario, Settings
from ..simulated import measured
from .kind import Kind, Outcome, Run, Task
from .plans import certify_all


class CheckSettings(Settings):
    """Whether the verdicts are compared with the truth."""

    check: Annotated[int, Field(ge=0)] = 0
    """Number of random initial states whose plans are compared with the simulated truth."""


@dataclass(frozen=True, eq=False)
class CheckOutcome(Outcome):
    """How many verdicts and boxes were right."""

    n_plans: int
    n_states: int
    """The number of true states."""
    n_inside: int
    counts: dict[Verdict, int]
    n_wrong: int
    """Certified plans that violate the limits, and refuted ones that do not."""
    plans_per_second: float
    """Of certification alone, without planning."""

    name: ClassVar[str] = "check"

    def summary(self) -> dict[str, Any]:
        return {
            "n_plans": self.n_plans,
            "n_states": self.n_states,
            "n_inside": self.n_inside,
            "verdicts": {verdict.name: number for verdict, number in self.counts.items()},
            "n_wrong": self.n_wrong,
            "plans_per_second": self.plans_per_second,
        }

    @property
    def is_contradicted(self) -> bool:
        return self.n_inside < self.n_states or self.n_wrong > 0

    def remarks(self) -> list[str]:
        counts = ", ".join(f"{number} {verdict.name.lower()}" for verdict, number in self.counts.items())
        return [
            f"{self.n_plans} plans from random initial states: {self.n_inside:,} of {self.n_states:,} true states "
            f"in their boxes; {counts}; {self.n_wrong} of these verdicts wrong; {self.plans_per_second:.0f} plans "
            "certified per second"
        ]

    def sections(self) -> list[Section]:
        rows = [
            ("plans from random initial states", f"{self.n_plans:,}"),
            *((f"of these {verdict.name.lower()}", f"{number:,}") for verdict, number in self.counts.items()),
            ("verdicts that the plant contradicts", f"{self.n_wrong:,}"),
            ("true states", f"{self.n_states:,}"),
            ("of these in their boxes", f"{self.n_inside:,}"),
            ("plans certified per second", f"{self.plans_per_second:.0f}"),
        ]
        text = "The plant in this study is simulated, so the verdicts can be compared with what it really does."
        return [Section("Verdicts against the truth", [text, Table(("", "number"), rows)])]


def prepare(settings: CheckSettings, scenario: Scenario, source: Source) -> Run | None:
    """Nothing is left to refuse."""
    return partial(run, settings.check) if settings.check else None


def run(n_plans: int, task: Task) -> CheckOutcome:
    """Plan from random initial states within the limits, certify, and simulate."""
    material, work = task.material, task.work
    assert material.control is not None
    assert material.plant is not None
    limits = material.limits.states
    x0 = work.rng.uniform(limits.lower, limits.upper, (n_plans, limits.n_dims))
    plans = plan_from(material.control, x0, "planning from random initial states", work)
    inputs = np.array([plan.inputs for plan in plans])
    began = time.perf_counter()
    certificates = certify_all(task, OPTIMAL, list(x0), list(inputs), stage="certifying random plans")
    seconds = time.perf_counter() - began
    starts = measured(x0, material.start_noise(task.scenario), work.rng)
    truths = material.plant.simulate(starts, inputs)[:, 1:]
    verdicts = [certificate.verdict for certificate in certificates]
    feasible = np.all(limits.contains(truths), axis=1).tolist()
    return CheckOutcome(
        task,
        n_plans=len(x0),
        n_states=truths.shape[0] * truths.shape[1],
        n_inside=sum(int(c.tube.contains(truth).sum()) for c, truth in zip(certificates, truths, strict=True)),
        counts={verdict: verdicts.count(verdict) for verdict in Verdict},
        n_wrong=sum(
            c.verdict is (Verdict.REFUTED if f else Verdict.CERTIFIED) and c.input_violation is None
            for c, f in zip(certificates, feasible, strict=True)
        ),
        plans_per_second=len(x0) / seconds,
    )


def complaint(settings: CheckSettings, scenario: Scenario) -> str:
    """Without a simulated plant there is no truth."""
    if settings.check and scenario.plant is None:
        return "check in [study] needs the truth, which only a simulated [plant] has"
    return ""


KIND = Kind(GENERAL, CheckSettings, prepare, complaint)
