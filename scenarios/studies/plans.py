"""Plans of the controller or from a file: verdicts by every method, margins and, where known, the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from ...arithmetic.printing import margin_text, rounded_up
from ...certificates.certificate import Certificate, Verdict, certify_plans, factor_text
from ...control.robust import RobustOCP
from ...data.arrays import FloatArray
from ...data.files import load_plans, save_plans
from ...data.plans import Plans
from ...errors import InputError
from ...parallel import collect, in_parallel
from ...reporting import ReportedPlan, Section, Table, figures
from ...reporting.labels import state_texts
from ...reporting.widths import half_widths, largest_half_widths
from ..material import AFFINE_PRIOR, OPTIMAL, Source, plan_from
from ..schema import GENERAL, Finite, Scenario, Settings, state_pair
from .kind import Kind, Listing, Outcome, Run, Task, finite

_PLANS_AT_ONCE = 250
_MARGINS_UP_TO = 40
_FIGURES_UP_TO = 12  # plans that get their own picture
_REMARKS_UP_TO = 20  # plans that are discussed one by one


class PlansSettings(Settings):
    """Where the controller plans from, and what is drawn."""

    initial_states: list[list[Finite]] = Field(default=[])
    """Initial states as in the data; histories where windows have them."""
    robust: bool = Field(default=False)
    """Also plan from them robustly, with the boxes as constraints."""
    phase_states: list[tuple[str, str]] = Field(default=[])
    """Pairs of states for phase portraits; the first two by default."""


@dataclass(frozen=True, eq=False)
class JudgedPlan(ReportedPlan):
    """A plan as reports describe it, with what a study adds."""

    @property
    def verdict(self) -> Verdict:
        """That of the optimal method."""
        return self.certificates[OPTIMAL].verdict

    def steps_inside(self, method: str) -> int | None:
        """Number of steps at which the true state is in its box."""
        return None if self.truth is None else int(self.certificates[method].tube.contains(self.truth[1:]).sum())

    def summary(self) -> dict[str, Any]:
        """A margin beyond the searched range is null."""
        question, names = self.certificates[OPTIMAL].question, self.certificates[OPTIMAL].predictor.runs.state_names
        methods = {}
        for method, certificate in self.certificates.items():
            tube = certificate.tube
            methods[method] = {
                "verdict": certificate.verdict.name,
                "explanation": certificate.explain(),
                "mean_volume": float(tube.volumes.mean()),
                "largest_half_widths": dict(zip(names, largest_half_widths(certificate).tolist(), strict=True)),
                "margin": finite(certificate.margin),
                **{name: finite(value) for name, value in self.margins.get(method, {}).items()},
                "share_of_width_for_unknown_initial_states": finite(tube.initial_state_share),
                "lower": tube.lower.tolist(),
                "upper": tube.upper.tolist(),
                "steps_with_truth_inside": self.steps_inside(method),
            }
        return {
            "name": self.name,
            "x0": question.x0.tolist(),
            "inputs": question.inputs.tolist(),
            "truth": None if self.truth is None else self.truth.tolist(),
            "methods": methods,
        }

    def rows(self) -> Iterator[list[str | Verdict]]:
        """Table rows, one per method; guaranteed numbers are rounded down."""
        for number, (method, certificate) in enumerate(self.certificates.items()):
            inside, margins = self.steps_inside(method), self.margins.get(method, {})
            yield [
                "" if number else self.name,
                method,
                certificate.verdict,
                ", ".join(map(rounded_up, largest_half_widths(certificate).tolist())),
                margin_text(certificate.margin),
                factor_text(margins.get("norm_margin")),
                factor_text(margins.get("noise_margin")),
                "" if inside is None else f"{inside}/{len(certificate.tube.lower)}",
            ]


@dataclass(frozen=True)
class MeanSize:
    """The mean size of one method's boxes."""

    half_widths: tuple[str, ...]
    """Per state, as text with units."""
    volume: float


@dataclass(frozen=True, eq=False)
class PlansOutcome(Outcome):
    """The judged plans."""

    plans: list[JudgedPlan]
    phase_pairs: list[tuple[int, int]]
    """Pairs of states for phase portraits."""

    name: ClassVar[str] = "plans"

    def summary(self) -> list[Any]:
        return [plan.summary() for plan in self.plans]

    @property
    def is_contradicted(self) -> bool:
        steps = [
            (plan.steps_inside(method), len(certificate.tube.lower))
            for plan in self.plans
            for method, certificate in plan.certificates.items()
        ]
        return any(inside is not None and inside < total for inside, total in steps)

    @property
    def verdicts(self) -> list[Verdict]:
        return [plan.verdict for plan in self.plans]

    def reported(self) -> list[ReportedPlan]:
        """The plans with the names of their files."""
        return [
            replace(plan, file=f"certificates/plan_{number}.json") for number, plan in enumerate(self.plans, start=1)
        ]

    def listings(self) -> list[Listing]:
        header = ("plan", "method", "verdict", "box ±", "margin", "norm x", "noise x", "truth in")
        states = ", ".join(state_texts(self.task.material.runs))
        caption = (
            f"box ±: half the widths of the widest boxes, {states}; margin: smallest distance to any limit; norm x, "
            "noise x: factor by which all those bounds may grow with the plan still certified"
        )
        return [
            Listing(
                header,
                [list(plan.rows()) for plan in self.plans],
                title=self.task.scenario.title,
                caption=caption,
                whole=frozenset(range(1, len(header))) - {header.index("box ±")},
            )
        ]

    def remarks(self) -> list[str]:
        return [*self._about_plans(), *self._about_boxes()]

    def _about_plans(self) -> Iterator[str]:
        for plan in self.plans[:_REMARKS_UP_TO]:
            if not plan.certificates[OPTIMAL].starts_inside:
                yield f"plan {plan.name} starts outside the limits; its verdict covers the steps after that"
            for method, certificate in plan.certificates.items():
                if certificate.verdict is not Verdict.CERTIFIED:
                    said = filter(None, (certificate.finding(), certificate.reason))
                    yield f"plan {plan.name}, {method}: {'; '.join(said)}"

    def _about_boxes(self) -> Iterator[str]:
        sizes = self._mean_sizes()
        if len(sizes) > 1:
            texts = [f"{method} {', '.join(size.half_widths)}" for method, size in sizes.items()]
            yield f"mean half-widths over all plans: {'; '.join(texts)}"
            small = sizes.pop(OPTIMAL).volume
            others = (f"{method} {size.volume:.4g}, {size.volume / small:.3g} times" for method, size in sizes.items())
            yield f"mean volumes of boxes: {', '.join([f'{OPTIMAL} {small:.4g}', *others])}"
        share = max(plan.certificates[OPTIMAL].tube.initial_state_share for plan in self.plans)
        if share > 0:
            yield f"unknown initial states account for up to {share:.0%} of the box widths"

    def _mean_sizes(self) -> dict[str, MeanSize]:
        """Over the boxes of all plans, by method."""
        runs, sizes = self.task.material.runs, {}
        for method in self.task.material.predictors:
            mine = [plan.certificates[method] for plan in self.plans]
            widths = np.mean([half_widths(certificate).mean(axis=0) for certificate in mine], axis=0)
            volume = float(np.mean([certificate.tube.volumes.mean() for certificate in mine]))
            texts = [
                f"{name} {width:.3g} {unit}".rstrip()
                for name, width, unit in zip(runs.state_names, widths.tolist(), runs.state_units, strict=True)
            ]
            sizes[method] = MeanSize(tuple(texts), volume)
        return sizes

    def sections(self) -> list[Section]:
        sizes = self._mean_sizes()
        if len(sizes) == 1:
            return []
        text = f"The verdicts are those of the {OPTIMAL} bounds. The others use the same recordings."
        if AFFINE_PRIOR in sizes:
            text += (
                f" {AFFINE_PRIOR.capitalize()}: {OPTIMAL} bounds on the residual of an affine fit, with norm bounds "
                "estimated for that residual. This is a different assumption, and neither implies the other."
            )
        rows = [
            (method, ", ".join(size.half_widths), f"{size.volume / sizes[OPTIMAL].volume:.3g}")
            for method, size in sizes.items()
        ]
        header = ("method", "mean half-widths over all plans", "volumes of boxes, times")
        return [Section("Methods compared", [text, Table(header, rows)])]

    def figures(self) -> dict[str, Any]:
        shown, names = self.plans[:_FIGURES_UP_TO], self.task.material.runs.state_names
        by_method = {method: [plan.certificates[method] for plan in shown] for method in self.task.material.predictors}
        truths = [plan.truth for plan in shown if plan.truth is not None]
        drawn = {}
        for pair in self.phase_pairs:
            file_name = re.sub(r"[^\w.-]+", "_", "_".join(["phase", *(names[i] for i in pair)]))
            drawn[file_name] = figures.phase_figure(by_method, truths or None, pair, [plan.name for plan in shown])
        for number, plan in enumerate(shown, start=1):
            drawn[f"time_{number}"] = figures.time_figure(plan.certificates, plan.truth, plan.name)
        return drawn

    def write(self, folder: Path) -> None:
        runs, work = self.task.material.runs, self.task.work
        questions = [plan.certificates[OPTIMAL].question for plan in self.plans]
        plans = Plans(
            names=tuple(plan.name for plan in self.plans),
            x0=tuple(question.x0 for question in questions),
            inputs=tuple(question.inputs for question in questions),
            state_names=runs.history_names,
            input_names=runs.input_names,
        )
        save_plans(plans, folder / "plans.csv")
        (folder / "certificates").mkdir(exist_ok=True)
        for number, plan in enumerate(self.plans, start=1):
            file = folder / "certificates" / f"plan_{number}.json"
            plan.certificates[OPTIMAL].save(file, data_file=self.task.material.data_file, seed=work.seed)


def prepare(settings: PlansSettings, scenario: Scenario, source: Source) -> Run | None:
    """Plans of the controller, those in the scenario's file, or both."""
    for start in settings.initial_states:
        if len(start) != len(source.history_names):
            raise InputError(f"study.initial_states: {start} must hold {', '.join(source.history_names)}")
    if not settings.initial_states and scenario.plan is None:
        return None
    given = None if scenario.plan is None else plans_in(source.folder / scenario.plan, source)
    pairs = phase_pairs(settings, source.state_names)
    return partial(run, np.array(settings.initial_states), given, pairs, is_robust=settings.robust)


def run(
    starts: FloatArray, given: Plans | None, pairs: list[tuple[int, int]], task: Task, *, is_robust: bool = False
) -> PlansOutcome:
    """Judge plans from initial states `(n, n_history)`, and given ones; draw phase portraits of pairs of states."""
    plans = judge(_controller_plans(starts, task, is_robust), task) if len(starts) else []
    if given is not None:
        plans += judge(given, task)
    return PlansOutcome(task, plans, pairs)


def phase_pairs(settings: PlansSettings, names: tuple[str, ...]) -> list[tuple[int, int]]:
    """Pairs of states for phase portraits: the first two by default, none where there is only one state."""
    given = settings.phase_states or ([(names[0], names[1])] if len(names) > 1 else [])
    return [state_pair(pair, names, "study.phase_states") for pair in given]


def plans_in(file: Path, source: Source) -> Plans:
    """Read plans, none longer than the recorded runs."""
    names = {"state_names": source.history_names, "input_names": source.input_names}
    plans = load_plans(file, **names, sampling_time=source.sampling_time)
    for name, inputs in zip(plans.names, plans.inputs, strict=True):
        if len(inputs) > source.horizon:
            raise InputError(
                f"{file}: plan {name} has {len(inputs)} steps, but the recorded {source.kind} only {source.horizon}: "
                f"shorten the plan, or {'cut' if source.kind == 'windows' else 'record'} longer {source.kind}"
            )
    return plans


def judge(plans: Plans, task: Task) -> list[JudgedPlan]:
    """Certificates of every method for every plan, with their norm and noise margins."""
    certificates = {
        method: certify_all(task, method, plans.x0, plans.inputs, stage=f"certifying, {method}")
        for method in task.material.predictors
    }
    margins = _margins([c for found in certificates.values() for c in found], task)
    plant, judged = task.material.plant, []
    for i, (name, x0, inputs) in enumerate(zip(plans.names, plans.x0, plans.inputs, strict=True)):
        truth = None if plant is None else plant.simulate(x0, inputs)
        mine = {method: found[i] for method, found in certificates.items()}
        found = {method: margins[c] for method, c in mine.items() if c in margins}
        judged.append(JudgedPlan(name, mine, margins=found, truth=truth))
    return judged


def certify_all(
    task: Task,
    method: str,
    x0: Sequence[FloatArray],
    inputs: Sequence[FloatArray],
    *,
    stage: str,
    reach: FloatArray | None = None,
) -> list[Certificate]:
    """Certify plans in batches of equal length; the certificates are in the order of the plans.

    They hold from everywhere within `reach` of `x0`; by default that is the error bound of the initial states.
    """
    material, work = task.material, task.work
    noise = material.start_noise(task.scenario) if reach is None else reach
    certificates: dict[int, Certificate] = {}
    with work.stage(stage) as progress:
        for length in sorted({len(u) for u in inputs}):
            same = [i for i, u in enumerate(inputs) if len(u) == length]
            for chunk in np.array_split(same, max(1, len(same) // _PLANS_AT_ONCE)):
                found = certify_plans(
                    material.predictors[method],
                    np.array([x0[i] for i in chunk]),
                    np.array([inputs[i] for i in chunk]),
                    limits=material.limits,
                    initial_state_noise=noise,
                    n_jobs=work.n_jobs if len(chunk) > 10 else 1,
                )
                certificates.update(zip(chunk.tolist(), found, strict=True))
                progress(len(certificates), len(inputs))
    return [certificates[i] for i in range(len(inputs))]


def _controller_plans(starts: FloatArray, task: Task, is_robust: bool) -> Plans:
    material, work, control = task.material, task.work, task.material.control
    assert control is not None
    names = _names_of(starts, material.runs.n_states)
    inputs = [plan.inputs for plan in plan_from(control, starts, "planning from the initial states", work)]
    if is_robust:
        noise = material.start_noise(task.scenario)
        problem = RobustOCP(material.predictors[OPTIMAL], control, material.limits, initial_state_noise=noise)
        with work.stage("planning robustly") as progress:
            inputs += [plan.inputs for plan in problem.solve_many(starts, work.n_jobs, progress)]
        names, starts = [*names, *(f"{name} robust" for name in names)], np.concatenate([starts, starts])
    return Plans(names, tuple(starts), tuple(inputs))


def _names_of(starts: FloatArray, n_states: int) -> list[str]:
    """Initial states as text; for histories, only the present outputs if these are distinct."""
    for shown in (starts[:, :n_states], starts):
        names = ["(" + ", ".join(f"{x:g}" for x in start) + ")" for start in shown]
        if len(set(names)) == len(names):
            break
    return names


def _margins(certificates: list[Certificate], task: Task) -> dict[Certificate, dict[str, float]]:
    """Norm and noise margins; skipped where there are many plans, as they take longer than the verdicts."""
    if len(certificates) > _MARGINS_UP_TO:
        return {}
    with task.work.stage("norm and noise margins") as progress:
        found = in_parallel(_margins_of, ((certificate,) for certificate in certificates), task.work.n_jobs)
        return dict(zip(certificates, collect(found, len(certificates), progress), strict=True))


def _margins_of(certificate: Certificate) -> dict[str, float]:
    return {"norm_margin": certificate.norm_margin, "noise_margin": certificate.noise_margin}


def complaint(settings: PlansSettings, scenario: Scenario) -> str:
    """Planning needs a controller and somewhere to start."""
    if settings.initial_states and scenario.control is None:
        return "initial_states in [study] need [control], which plans from them"
    if settings.robust and not settings.initial_states:
        return "robust in [study] needs initial_states to plan from"
    return ""


KIND = Kind(
    GENERAL,
    PlansSettings,
    prepare,
    complaint,
    files=("plans.csv", "certificates/plan_*.json", "phase_*.png", "phase_*.svg", "time_*.png", "time_*.svg"),
)
