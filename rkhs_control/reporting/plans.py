"""The sections on plans: verdicts, tubes, distances to limits, what would change the verdicts, how to check them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arithmetic.printing import NONE, margin_text, outside_text, rounded_down, rounded_up
from ..certificates.certificate import LARGEST_FACTOR, Certificate, Verdict, factor_text
from ..data.arrays import FloatArray
from . import figures
from .labels import Clock, state_texts
from .page import Block, Cell, Commands, Gallery, Picture, Section, Table, tables_by_step
from .reported import (
    FIGURES_UP_TO,
    REMARKS_UP_TO,
    ReportedPlan,
    deciding_entry,
    explanation,
)
from .widths import largest_half_widths
from .zoom import needs_zoom, zoom_figure

_ROWS_UP_TO = 200  # plans in the table


def plans_section(plans: Sequence[ReportedPlan]) -> Section:
    """One row per plan and method."""
    states = state_texts(plans[0].certificate.predictor.runs)
    header = ["plan", "method", "verdict", "margin", "at", "norm ×", "noise ×", *(f"± {text}" for text in states)]
    knows_truth = any(plan.truth is not None for plan in plans)
    rows: list[list[str | Cell]] = []
    for plan in plans[:_ROWS_UP_TO]:
        for method, certificate in plan.certificates.items():
            margins = plan.margins.get(method, {})
            row: list[str | Cell] = [
                plan.name,
                method,
                Cell(certificate.verdict.name.lower(), certificate.verdict.name.lower()),
                *_deciding_texts(certificate),
                factor_text(margins.get("norm_margin")),
                factor_text(margins.get("noise_margin")),
                *map(rounded_up, largest_half_widths(certificate).tolist()),
            ]
            if knows_truth:
                row.append(_truth_text(certificate, plan.truth))
            rows.append(row)
    caption = (
        "margin: smallest distance from a box to a limit, negative where part of it is outside or, for a refuted "
        "plan, where all of it is; norm ×, noise ×: largest factor on all norm bounds, or all noise bounds, with "
        f"which the plan is certified, rounded down; below 1 they would have to shrink to that; {NONE} where nothing "
        "that fits the data would do; ±: half the width of the widest box, rounded up"
    )
    if knows_truth:
        header.append("truth in boxes")
        caption += "; truth in boxes: number of steps at which the simulated plant was inside its box"
    blocks: list[Block] = [Table(header, rows, caption)]
    if len(plans) > _ROWS_UP_TO:
        blocks.append(f"The first {_ROWS_UP_TO} of {len(plans)} plans are shown.")
    return Section("Plans", blocks)


def _truth_text(certificate: Certificate, truth: FloatArray | None) -> str:
    if truth is None:
        return ""
    inside = certificate.tube.contains(truth[1:])
    return f"{int(inside.sum())} of {len(inside)}"


def _deciding_texts(certificate: Certificate) -> tuple[str, str]:
    """The deciding distance, and where it occurs."""
    if certificate.input_violation is not None:
        return NONE, "the inputs"
    if not certificate.margins.size:
        return margin_text(certificate.margin), ""
    step, constraint = deciding_entry(certificate)
    where = f"step {step + 1}, {certificate.constraint_names[constraint]}"
    return _distance_text(certificate.margins[step, constraint], certificate.hopes[step, constraint]), where


def _distance_text(margin: float, hope: float) -> str:
    """Distance of a whole box to a limit or, where all of it is outside, of its nearest part."""
    return outside_text(hope) if hope < 0.0 else margin_text(margin)


def tubes_section(
    plans: Sequence[ReportedPlan], deciding: ReportedPlan, pairs: Sequence[tuple[int, int]] | None
) -> Section:
    """Phase portraits for pairs of states, then intervals over time; the deciding plan first."""
    shown = [deciding, *(plan for plan in plans if plan is not deciding)][:FIGURES_UP_TO]
    if pairs is None:
        pairs = [(0, 1)] if deciding.certificate.tube.lower.shape[1] > 1 else []
    blocks = [*_tubes(shown, pairs)]
    if len(plans) > len(shown):
        blocks.append(f"{len(shown)} of {len(plans)} plans are drawn.")
    return Section("Where the plant can be", blocks)


def _tubes(shown: Sequence[ReportedPlan], pairs: Sequence[tuple[int, int]]) -> Iterator[Block]:
    """Phase portraits by all methods; over time, the first plan by all methods."""
    truths = [plan.truth for plan in shown if plan.truth is not None]
    text = "Each box contains the true state at one step, if the assumptions hold. Dashed lines are limits"
    if truths:
        text += "; a solid line is the simulated truth, which the verdict did not use"
    elif pairs:
        text += "; dotted ones only show which boxes belong together"
    yield f"{text}."
    names = shown[0].certificate.predictor.runs.state_names
    methods = [m for m in shown[0].certificates if all(m in plan.certificates for plan in shown)]
    labels = [plan.name for plan in shown]
    for pair in pairs:
        drawn = {
            m: figures.phase_figure(
                {m: [plan.certificates[m] for plan in shown]}, truths=truths or None, states=pair, names=labels
            )
            for m in methods
        }
        _same_scales(list(drawn.values()))
        for figure in drawn.values():
            figure.set_figwidth(6.0)  # room for the legend
        what = f"{names[pair[0]]} against {names[pair[1]]}"
        yield Gallery([Picture(f, f"Phase portrait, {what}: the boxes of {m} bounds.") for m, f in drawn.items()])
    over_time = [(shown[0], m) for m in methods] + [(plan, plan.method) for plan in shown[1:]]
    drawings = [figures.time_figure({m: plan.certificates[m]}, plan.truth, plan.name) for plan, m in over_time]
    _same_scales(drawings[: len(methods)])
    pictures = []
    for (plan, method), figure in zip(over_time, drawings, strict=True):
        verdict = explanation(plan.certificates[method])
        description = f"Intervals of every state over time, plan {plan.name}, {method}: {verdict}."
        pictures.append(Picture(figure, description, f"Plan {plan.name}. {verdict}."))
    deciding = shown[0]
    if needs_zoom(deciding.certificate):
        step, constraint = deciding_entry(deciding.certificate)
        where = f"plan {deciding.name} around step {step + 1}, near {deciding.certificate.constraint_names[constraint]}"
        zoomed = zoom_figure(deciding.certificate, deciding.truth)
        pictures.insert(len(methods), Picture(zoomed, f"Enlarged: {where}.", f"Enlarged: {where}."))
    yield Gallery(pictures)


def _same_scales(drawn: Sequence[Any]) -> None:
    """Give the panels of several figures the same ranges."""
    for panels in zip(*(figure.axes for figure in drawn), strict=True):
        for side in ("x", "y"):
            ends = [getattr(axes, f"get_{side}lim")() for axes in panels]
            for axes in panels:
                getattr(axes, f"set_{side}lim")(min(e[0] for e in ends), max(e[1] for e in ends))


def margins_section(plan: ReportedPlan, n_plans: int) -> Section:
    """Distances to the limits: one row per constraint, one column per step."""
    certificate = plan.certificate
    margins, hopes = certificate.margins, certificate.hopes
    step, constraint = deciding_entry(certificate)
    decides = certificate.input_violation is None
    rows = []
    for c, name in enumerate(certificate.constraint_names):
        largest = max(float(np.abs(margins[:, c]).max()), 1e-300)
        row: list[str | Cell] = [name]
        for n, (margin, hope) in enumerate(zip(margins[:, c].tolist(), hopes[:, c].tolist(), strict=True)):
            if margin >= 0.0:
                tone, strength = "certified", 0.08 + 0.37 * (1.0 - margin / largest)
            else:
                tone, strength = ("refuted", 0.5) if hope < 0.0 else ("undecided", 0.5)
            row.append(
                Cell(_distance_text(margin, hope), tone, strength, is_marked=decides and (n, c) == (step, constraint))
            )
        rows.append(row)
    which = "" if n_plans == 1 else f"Plan {plan.name}, which decides the verdict. "
    text = (
        f"{which}How far inside every limit the whole box is, step by step; within a row, the deeper the blue, the "
        "closer the limit. Orange: part of the box is outside; red: all of it, by at least the distance shown. "
    )
    text += "The framed entry decides." if decides else "The inputs refute the plan, whatever this table shows."
    clock = Clock.of(certificate.predictor.runs, len(margins))
    steps = [clock.step_text(n + 1) for n in range(len(margins))]
    return Section("Distance to the limits", [text, *tables_by_step("limit", steps, rows)])


def changes_section(deciding: ReportedPlan, plans: Sequence[ReportedPlan]) -> Section:
    """What would change the verdict, for the deciding plan; then why others are not certified."""
    blocks: list[Block] = [*_change_texts(deciding)]
    others = [p for p in plans if p is not deciding and p.certificate.verdict is not Verdict.CERTIFIED]
    if others:
        rows = [(plan.name, explanation(plan.certificate)) for plan in others[:REMARKS_UP_TO]]
        blocks.append(Table(("plan", "why it is not certified"), rows))
    return Section("What would change the verdict", blocks)


def _change_texts(plan: ReportedPlan) -> Iterator[str]:
    certificate, margins = plan.certificate, plan.margins.get(plan.method, {})
    yield f"Plan {plan.name}. {explanation(certificate)}."
    if certificate.causes:
        yield f"The width of its worst box is due to {', '.join(map(str, certificate.causes))}."
    if certificate.input_violation is not None:
        yield "Other inputs: this part of the verdict does not rest on the data or the assumptions at all."
    if certificate.verdict is Verdict.REFUTED:
        if (certificate.hopes < 0.0).any():
            yield (
                "Smaller norm or noise bounds would only narrow boxes that are already outside. Larger ones could "
                "make it undecided, never certified: change the plan or the limits."
            )
        return
    for assumption in ("norm", "noise"):
        if f"{assumption}_margin" in margins:
            yield _margin_sentence(assumption, margins[f"{assumption}_margin"], certificate.verdict)
    if certificate.verdict is Verdict.UNDECIDED:
        hope, kind = float(certificate.hopes.min()), certificate.predictor.runs.kind
        yield (
            f"The nearest part of every box keeps every limit by at least {rounded_down(hope, 4)}, which is why it "
            f"is not refuted. More recorded {kind} near this plan would narrow the boxes; a plan further from the "
            "limit would also help."
        )


def _margin_sentence(assumption: str, margin: float, verdict: Verdict) -> str:
    if verdict is Verdict.CERTIFIED:
        if math.isinf(margin):
            return (
                f"It stays certified with all {assumption} bounds {LARGEST_FACTOR:g} times as large; larger factors "
                "were not tried."
            )
        return (
            f"It stays certified with all {assumption} bounds up to {factor_text(margin)} times as large; beyond "
            "that, the data cannot decide."
        )
    if margin > 0.0:
        return (
            f"It would be certified if all {assumption} bounds could be justified at {factor_text(margin)} times "
            "their values, which the data do not refute."
        )
    return f"No smaller {assumption} bounds that the data do not refute would certify it."


def proofs_section(plans: Sequence[ReportedPlan], data_file: str | None) -> Section:
    """How to check certificates without trusting anything in the report."""
    blocks: list[Block] = [
        "A certificate is a file that proves its own bounds. The checker proves them again in ball arithmetic and "
        "uses none of the code that made them: it is a single file, rkhs_control/checker.py, and needs only "
        "python-flint."
    ]
    saved = [plan for plan in plans if plan.file is not None]
    if not saved:
        blocks.append('These certificates were not saved: certificate.save("plan.json") does that, and then')
        return Section("Check it yourself", [*blocks, Commands(["rkhs-control verify plan.json"])])
    data = "" if data_file is None else f" --data {shlex.quote(data_file)}"
    lines = [f"rkhs-control verify {shlex.quote(str(plan.file))}{data}" for plan in saved[:REMARKS_UP_TO]]
    alone = f"python checker.py {shlex.quote(str(saved[0].file))}"
    blocks += ["In the folder of this report:", Commands([*lines, alone])]
    if data:
        blocks.append("With the data, it also looks up in the recordings every sample that a proof uses.")
    return Section("Check it yourself", blocks)
