"""The report of a study: its plans, and a section for everything else that it looked into."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import numpy as np

from ..certificates.certificate import Verdict
from ..reporting import Cell, Gallery, Picture, Report, ReportedPlan, Section, Table, figures
from .closed_loop import LoopRun
from .design import TIGHTENED, DesignResult
from .material import OPTIMAL
from .region import Region, phase_pairs
from .sampling import SamplingResult
from .schema import LimitSweep
from .study import Check, StudyResult


def study_report(result: StudyResult) -> Report:
    """With the names of files as `write_results` gives them."""
    material, names = result.material, result.material.runs.state_names
    facts = {"seed": str(result.work.seed)}
    if material.data_file is not None:
        digest = sha256(material.data_file.read_bytes()).hexdigest()
        facts["recordings"] = f"{material.data_file.name}, SHA-256 {digest}"
    if material.n_held_out:
        facts[f"held-out {material.runs.kind} that do not contradict the assumptions"] = str(material.n_held_out)
    return Report(
        result.scenario.title,
        material.predictors[OPTIMAL],
        [
            ReportedPlan(plan.name, plan.certificates, plan.margins, plan.truth, f"certificates/plan_{number}.json")
            for number, plan in enumerate(result.plans, start=1)
        ],
        result.scenario.description,
        [*_sections(result)],
        "A true state lies outside its box, or a verdict is wrong." if result.is_contradicted else "",
        " ".join(_findings(result)),
        phase_pairs(result.scenario, names),
        "runs.npz",
        facts,
        result.work.timings,
        material.n_held_out,
        material.n_left_out,
        material.doubt,
    )


def _sections(result: StudyResult) -> Iterator[Section]:
    """Of what the study looked into besides its plans."""
    if result.check is not None:
        yield _check_section(result.check)
    if result.region is not None:
        yield _region_section(result.region, result)
    if result.loops is not None:
        yield _loops_section(result.loops, result)
    if result.design is not None:
        yield from _design_sections(result.design, result)
    if result.sampling is not None:
        yield _sampling_section(result.sampling)


def _check_section(check: Check) -> Section:
    rows = [
        ("plans from random initial states", f"{check.n_plans:,}"),
        *((f"of these {verdict.name.lower()}", f"{number:,}") for verdict, number in check.verdicts.items()),
        ("verdicts that the plant contradicts", f"{check.n_wrong:,}"),
        ("true states", f"{check.n_states:,}"),
        ("of these in their boxes", f"{check.n_inside:,}"),
        ("plans certified a second", f"{check.plans_per_second:.0f}"),
    ]
    text = "The plant of this study is simulated, so the verdicts can be compared with what it does."
    return Section("Verdicts against the truth", [text, Table(("", "number"), rows)])


def _region_section(region: Region, result: StudyResult) -> Section:
    runs = result.material.runs
    labels = [figures.state_label(runs, state) for state in region.states]
    pictures, shares = [], []
    for method, verdicts in region.verdicts.items():
        share = np.mean([verdict is Verdict.CERTIFIED for row in verdicts for verdict in row])
        shares.append(f"{method} bounds certify {share:.1%}")
        figure = figures.region_figure(region.first, region.second, {method: verdicts}, labels)
        pictures.append(
            Picture(figure, f"Verdicts over a grid of initial states, {method} bounds: {share:.1%} certified.")
        )
    text = (
        f"Plans of the controller from a grid of {len(region.first)} by {len(region.second)} initial states within the "
        f"limits: {', '.join(shares)}."
    )
    return Section("From where it is certified", [text, Gallery(pictures)])


def _findings(result: StudyResult) -> Iterator[str]:
    """Of studies that are not about plans, in a sentence each."""
    if result.loops is not None:
        yield _loops_finding(result.loops)
    if result.design is not None:
        shares = [f"{result.design.region.certified(name).mean():.1%} {name}" for name in result.design.region.verdicts]
        yield f"Certified share of the initial states, by planning: {', '.join(shares)}."
    if result.sampling is not None:
        yield _sampling_finding(result.sampling)


def _sampling_finding(sampling: SamplingResult) -> str:
    number, now = sampling.counts[-1], sampling.last.verdict
    after = f"after {number} experiment{'' if number == 1 else 's'}" if number else "without any experiment"
    if now is Verdict.UNDECIDED:
        return f"The plan is still undecided {after}: {sampling.ending}."
    before = f"; before {'it' if number == 1 else 'them'} it was undecided" if number else ""
    return f"The plan is {now.name.lower()} {after}{before}."


def _loops_finding(loops: dict[str, list[LoopRun]]) -> str:
    outside = [
        f"{sum(int((~run.is_inside).sum()) for run in mine):,} under the {name} controller"
        for name, mine in loops.items()
    ]
    steps = sum(len(run.inputs) for run in next(iter(loops.values())))
    return f"Closed loops of {steps:,} steps; true states outside the limits: {', '.join(outside)}."


def _loops_section(loops: dict[str, list[LoopRun]], result: StudyResult) -> Section:
    limits, runs = result.material.limits.state_limits, result.material.runs
    rows, pictures = [], []
    for name, mine in loops.items():
        decisions = [decision for run in mine for decision in run.decisions]
        outside = sum(int((~run.is_inside).sum()) for run in mine)
        rows.append(
            (
                name,
                f"{sum(len(run.inputs) for run in mine):,}",
                f"{outside:,}",
                f"{sum(run.broken_promises for run in mine):,}" if decisions else "",
                f"{np.mean([run.cost for run in mine]):.4g}",
                f"{sum(not decision.is_certified for decision in decisions) / len(decisions):.1%}" if decisions else "",
                f"{1e3 * np.mean([run.seconds.mean() for run in mine]):.3g}",
            )
        )
        figure = figures.loops_figure({name: [run.states for run in mine]}, limits, runs)
        pictures.append(
            Picture(figure, f"Closed loops under the controller {name}: {outside} violations of the limits.")
        )
    header = ("controller", "steps", "outside limits", "though certified", "mean cost", "safe input", "ms a step")
    text = "Each controller on the simulated plant, from the same initial states."
    refuted = sum(run.is_refuted for mine in loops.values() for run in mine)
    if refuted:
        text += f" Loops with a measurement outside its proved box, so that an assumption is wrong: {refuted:,}."
    return Section("Closed loops", [text, Table(header, rows), Gallery(pictures)])


def _design_sections(design: DesignResult, result: StudyResult) -> Iterator[Section]:
    runs = result.material.runs
    drawn = design.figures(runs)
    text = (
        f"Plans from a grid of {len(design.region.first)} by {len(design.region.second)} initial states within the "
        "limits, by a controller that believes its model, by the same with limits tightened by what boxes take, and "
        "with the boxes themselves as constraints."
    )
    if TIGHTENED not in design.region.verdicts:
        text += " Limits tightened like that leave no room: no nominal plan can keep them, so there is no map of that."
    yield Section("The certifiable region", [text, Gallery([Picture(drawn["design_region"], "Verdicts by planning.")])])
    header = (
        "step",
        *(f"{name}, {what}" for name in runs.state_names for what in ("mean", "from below", "from above")),
    )
    widths, tightening = design.half_widths.mean(axis=0), design.tightening
    rows = [
        (
            str(n + 1),
            *(
                f"{values[n, i]:.4f}"
                for i in range(runs.n_states)
                for values in (widths, tightening.below, tightening.above)
            ),
        )
        for n in range(len(widths))
    ]
    text = (
        "Half-widths of the boxes on average over the region, and how far inside the limits the predictions of a "
        f"nominal controller must stay; each number suffices by itself for {design.tightening_share:.0%} of its plans."
    )
    pictures = [Picture(drawn["design_widths"], "Half-widths of the boxes by step.")]
    yield Section("Tightened limits", [text, Table(header, rows), Gallery(pictures)])
    if "design_effects" in drawn:
        text = "How much of the region can be certified when one thing changes."
        picture = Picture(drawn["design_effects"], f"Certified share by horizon, {runs.kind}, noise and norm bound.")
        yield Section("What the region depends on", [text, Gallery([picture])])
    if design.sweep is not None:
        yield _limit_section(design, design.sweep)


def _limit_section(design: DesignResult, sweep: LimitSweep) -> Section:
    start = ", ".join(f"{x:g}" for x in sweep.initial_state)
    rows: list[tuple[str | Cell, ...]] = [
        (
            f"{trial.limit:g}",
            *(Cell(c.verdict.name.lower(), c.verdict.name.lower()) for c in (trial.believing, trial.plan.certificate)),
            f"{trial.plan.price:.0%}" if trial.plan.success else "",
            f"{trial.seconds:.2f}",
        )
        for trial in design.trials
    ]
    header = (f"{sweep.end} limit of {sweep.state}", "certainty equivalent", "robust", "dearer by", "seconds")
    text = f"Plans from ({start}). The certificates of the robust ones are certificates/limit_1.json and so on."
    return Section("How far a limit can be moved", [text, Table(header, rows)])


def _sampling_section(sampling: SamplingResult) -> Section:
    rows: list[tuple[str | Cell, ...]] = [
        (
            str(count),
            Cell(each.certificate.verdict.name.lower(), each.certificate.verdict.name.lower()),
            f"{each.certificate.margin:+.4f}",
            *(f"{found[number].margin:+.4f}" for found in sampling.baselines.values()),
        )
        for number, (each, count) in enumerate(zip(sampling.rounds, sampling.counts, strict=True))
    ]
    text = (
        "Experiments on the simulated plant that were expected to shrink the failing bound most, and the margin of the "
        "plan after them; beside it, the margin after as many random experiments."
    )
    table = Table(("experiments", "verdict", "margin", *sampling.baselines), rows)
    picture = Picture(sampling.figure(), "The margin of the plan by the number of experiments.")
    return Section("Experiments that decide the plan", [text, table, Gallery([picture])])
