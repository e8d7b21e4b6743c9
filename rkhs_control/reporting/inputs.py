"""The section on the plans themselves: where they start and which inputs they apply, with the limits of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate
from ..data.arrays import FloatArray
from ..data.sets import Box
from .figures import panels_of
from .labels import Clock, history_texts, in_lines, input_texts, short_name
from .page import Block, Cell, Gallery, Picture, Section, Table, tables_by_step
from .palette import BLUE, LIMIT, RED
from .reported import FIGURES_UP_TO, REMARKS_UP_TO, ReportedPlan

_LABEL = 24  # characters in a line


def inputs_section(plans: Sequence[ReportedPlan], deciding: ReportedPlan) -> Section:
    """Start and inputs of every plan as tables, then as pictures; the deciding plan first."""
    ordered = [deciding, *(plan for plan in plans if plan is not deciding)]
    listed, drawn = ordered[:REMARKS_UP_TO], ordered[:FIGURES_UP_TO]
    text = (
        "What the verdicts are about: where each plan starts, and the inputs that it holds from one step to the next."
    )
    blocks: list[Block] = [f"{text} Numbers are rounded here; the certificates have all digits.", _starts(listed)]
    blocks += _inputs(listed)
    pictures = [
        Picture(
            inputs_figure(plan.certificate, plan.name),
            f"Inputs over time, plan {plan.name}, with their limits as dashed lines.",
            f"Inputs of plan {plan.name}.",
        )
        for plan in drawn
    ]
    blocks.append(Gallery(pictures))
    if len(plans) > len(drawn):
        blocks.append(f"{len(listed)} of {len(plans)} plans are listed, {len(drawn)} drawn.")
    return Section("Start and inputs", blocks)


def _starts(plans: Sequence[ReportedPlan]) -> Table:
    """One row per plan, then how far the start may be off, and the limits."""
    certificate = plans[0].certificate
    rows = [[f"start of plan {plan.name}", *_numbers(plan.certificate.question.x0)] for plan in plans]
    noise = certificate.initial_state_noise
    if noise.any():
        rows.append(["the true start may be off by", *_numbers(noise)])
    limits = certificate.limits.states
    if isinstance(limits, Box):
        before = [""] * (len(noise) - limits.n_dims)  # a history begins with the present states
        rows += [
            [f"{what} limit", *_numbers(end), *before]
            for what, end in (("lower", limits.lower), ("upper", limits.upper))
        ]
    return Table(("", *history_texts(certificate.predictor.runs)), rows)


@dataclass(frozen=True, eq=False)
class _Course:
    """An input over time, or its changes, and their limits."""

    text: str
    values: FloatArray
    is_outside: npt.NDArray[np.bool_]
    limits: tuple[float, float]
    is_change: bool = False

    @property
    def limit_text(self) -> str:
        low, high = self.limits
        return f"{self.text} from {low:g} to {high:g}" if np.isfinite(self.limits).any() else ""

    def cells(self, n_steps: int) -> list[Cell]:
        """Numbers, in red outside their limits; empty after the last."""
        pairs = zip(_numbers(self.values), self.is_outside, strict=True)
        cells = [Cell(text, "refuted", 0.5) if bad else Cell(text) for text, bad in pairs]
        return cells + [Cell("")] * (n_steps - len(cells))


def _courses(certificate: Certificate) -> list[_Course]:
    """All inputs, each followed by its changes where those are limited; limits are compared exactly."""
    limits, found = certificate.limits, []
    for i, text in enumerate(input_texts(certificate.predictor.runs)):
        held = [Fraction(value) for value in certificate.question.inputs[:, i].tolist()]
        changes = [after - before for before, after in pairwise(held)]
        for what, exact, box in ((text, held, limits.input_box), (f"change of {text}", changes, limits.rate_box)):
            low, high = float(box.lower[i]), float(box.upper[i])
            if exact is held or (changes and np.isfinite([low, high]).any()):
                is_outside = np.array([value < low or value > high for value in exact])
                values = np.array([float(value) for value in exact])
                found.append(_Course(what, values, is_outside, (low, high), exact is changes))
    return found


def _inputs(plans: Sequence[ReportedPlan]) -> list[Table]:
    """One row per plan and input (or limited change of an input); one column per step."""
    n_steps = max(len(plan.certificate.question.inputs) for plan in plans)
    clock = Clock.of(plans[0].certificate.predictor.runs, n_steps)
    by_plan = [(plan.name, _courses(plan.certificate)) for plan in plans]
    longest = max((courses for _, courses in by_plan), key=len)  # a plan of one step changes nothing
    rows: list[list[str | Cell]] = [
        [f"{course.text}, plan {name}", *course.cells(n_steps)]
        for text in (course.text for course in longest)
        for name, courses in by_plan
        for course in courses
        if course.text == text
    ]
    limits = "; ".join(filter(None, (course.limit_text for course in longest))) or "none"
    caption = f"Limits: {limits}; red: outside."
    if any(course.is_change for course in longest):
        caption += " Changes are from one step to the next."
    return tables_by_step("", [clock.step_text(n) for n in range(n_steps)], rows, caption)


def _numbers(values: FloatArray) -> list[str]:
    return [f"{value:.5g}" if np.isfinite(value) else "none" for value in values.tolist()]


def inputs_figure(certificate: Certificate, name: str) -> Any:
    """A plan's inputs over time: one panel per input, and one per limited change of an input."""
    n_steps, courses = len(certificate.question.inputs), _courses(certificate)
    clock = Clock.of(certificate.predictor.runs, n_steps)
    times = clock.per_step * np.arange(n_steps + 1)
    figure, panels = panels_of(len(courses), 1, width=5.0, height=1.7, sharex=True)
    for (axes,), course in zip(panels, courses, strict=True):
        if course.is_change:
            when = times[1:-1]
            axes.vlines(when, 0.0, course.values, color=BLUE, linewidth=2.4)
            axes.axhline(0.0, color=BLUE, linewidth=0.6)
        else:
            when = (times[1:] + times[:-1]) / 2.0
            axes.stairs(course.values, times, baseline=None, color=BLUE, linewidth=1.6)
        axes.plot(when[course.is_outside], course.values[course.is_outside], "o", color=RED, markersize=5)
        for end in course.limits:
            if np.isfinite(end):
                axes.axhline(end, **LIMIT)
        axes.set_ylabel(in_lines(course.text, _LABEL))
    panels[0][0].set_title(f"plan {short_name(name)}")
    clock.mark(panels[-1][0], n_steps)
    return figure
