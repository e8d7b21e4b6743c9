"""The section on widths: how wide the boxes of a plan are, and why."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic.printing import rounded_up
from ..certificates.causes import Cause, causes_of
from ..certificates.certificate import Certificate
from ..data.arrays import FloatArray
from .figures import panels_of
from .labels import Clock, in_lines, state_texts
from .page import Block, Gallery, Picture, Section, Table, tables_by_step
from .palette import BLUE, DARK_RED, GREEN, GREY, LIGHT_GREY, ORANGE, PINK
from .reported import ReportedPlan

_COLOURS = (GREEN, PINK, GREY, BLUE, ORANGE, LIGHT_GREY, DARK_RED)
_EXPLAINED_UP_TO = 200  # intervals whose causes are computed

Causes = list[list[tuple[Cause, ...]]]
"""By step and state."""


def half_widths(certificate: Certificate) -> FloatArray:
    """Half-widths of every box, `(n_steps, n_states)`."""
    widths: FloatArray = certificate.tube.upper - certificate.tube.lower
    return widths / 2.0


def largest_half_widths(certificate: Certificate) -> FloatArray:
    """Half-width of the widest box, per state."""
    largest: FloatArray = half_widths(certificate).max(axis=0)
    return largest


def widths_section(plan: ReportedPlan) -> Section:
    """Half-widths by step and state; then, where the method allows it, what each assumption contributes."""
    certificate = plan.certificate
    widths, runs = half_widths(certificate), certificate.predictor.runs
    clock, texts = Clock.of(runs, len(widths)), state_texts(runs)
    rows = [[f"± {text}", *map(rounded_up, column.tolist())] for text, column in zip(texts, widths.T, strict=True)]
    blocks: list[Block] = [f"Plan {plan.name}. Half the width of every box, rounded up."]
    blocks += tables_by_step("", [clock.step_text(n + 1) for n in range(len(widths))], rows)
    if widths.size <= _EXPLAINED_UP_TO:
        blocks += _contributions(plan, widths, clock)
    return Section("How wide the boxes are, and why", blocks)


def _contributions(plan: ReportedPlan, widths: FloatArray, clock: Clock) -> list[Block]:
    certificate = plan.certificate
    causes = [[causes_of(certificate, n, i) for i in range(widths.shape[1])] for n in range(len(widths))]
    names = list(dict.fromkeys(cause.name for row in causes for found in row for cause in found))
    if not names:  # the method has no weights to tell
        return []
    rows = []
    for i, text in enumerate(state_texts(certificate.predictor.runs)):
        n = int(widths[:, i].argmax())
        shares = {cause.name: f"{100.0 * cause.share:.0f} %" for cause in causes[n][i]}
        rows.append([text, clock.step_text(n + 1), *(shares.get(name, "0 %") for name in names)])
    text = (
        "What the width of each state's widest box is due to, as rounded shares of the terms in its bounds. To "
        "first order, the shares also say how much a change in each assumption would matter."
    )
    figure = causes_figure(certificate, causes, names, clock)
    description = f"Half-widths of the boxes of plan {plan.name} over time, split by cause: {', '.join(names)}."
    return [text, Table(("state", "widest at", *names), rows), Gallery([Picture(figure, description)])]


def causes_figure(certificate: Certificate, causes: Causes, names: list[str], clock: Clock) -> Any:
    """Half-widths over time as stacked bars, one panel per state."""
    widths = half_widths(certificate)
    figure, panels = panels_of(1, widths.shape[1], width=max(2.8, 6.0 / widths.shape[1]), height=2.8)
    times = clock.per_step * np.arange(1, len(widths) + 1)
    for i, (axes, text) in enumerate(zip(panels[0], state_texts(certificate.predictor.runs), strict=True)):
        below = np.zeros(len(widths))
        for name, colour in zip(names, _COLOURS, strict=False):
            shares = [sum(cause.share for cause in row[i] if cause.name == name) for row in causes]
            height = widths[:, i] * shares
            axes.bar(times, height, 0.7 * clock.per_step, bottom=below, color=colour, label=name)
            below += height
        clock.mark(axes, len(widths), marks=4)
        axes.set_ylabel(in_lines(f"half-width, {text}", 30))
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
