"""Names, units and times as shown in figures and tables."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from ..data.trajectories import Trajectories
from .text import formula, printable

_LABEL_LINES = 3
_LONGEST_NAME = 16  # characters of a plan's name in a figure
_UNITS = (("h", 3600.0, 4 * 3600.0), ("min", 60.0, 600.0), ("s", 1.0, 0.0))  # name, seconds, from how many on


@dataclass(frozen=True)
class Clock:
    """How time is shown: in steps or, where the sampling time is known, in seconds, minutes or hours."""

    unit: str
    """Empty for steps."""
    per_step: float

    @classmethod
    def of(cls, runs: Trajectories, n_steps: int) -> Clock:
        """In a unit that suits this many steps; a sampling time of one also stands for an unknown one."""
        if runs.sampling_time == 1.0:
            return cls("", 1.0)
        unit, seconds, _ = next(u for u in _UNITS if n_steps * runs.sampling_time >= u[2])
        return cls(unit, runs.sampling_time / seconds)

    @property
    def label(self) -> str:
        """Label of a time axis."""
        return f"time [{self.unit}]" if self.unit else "step"

    def step_text(self, step: int) -> str:
        """A step and its time; no line breaks between a number and its unit."""
        text = f"step\N{NO-BREAK SPACE}{step}"
        return f"{text}, {step * self.per_step:.6g}\N{NO-BREAK SPACE}{self.unit}" if self.unit else text

    def mark(self, axes: Any, n_steps: int, marks: int = 8) -> None:
        """A time axis for this many steps, with a limited number of ticks, each at a step."""
        from matplotlib.ticker import MultipleLocator

        axes.xaxis.set_major_locator(MultipleLocator(self.per_step * -(-n_steps // marks)))
        axes.set_xlabel(self.label)


def with_unit(name: str, unit: str) -> str:
    """A name with its unit, if it has one."""
    return f"{name} [{unit}]" if unit else name


def state_texts(runs: Trajectories) -> list[str]:
    """Names of all states with their units."""
    return [with_unit(*pair) for pair in zip(runs.state_names, runs.state_units, strict=True)]


def input_texts(runs: Trajectories) -> list[str]:
    """Names of all inputs with their units."""
    return [with_unit(*pair) for pair in zip(runs.input_names, runs.input_units, strict=True)]


def history_texts(runs: Trajectories) -> list[str]:
    """Names of the entries that a plan begins with, with their units."""
    shape = runs.shape
    units = (*shape.output_lags * runs.state_units, *shape.input_lags * runs.input_units)
    return [with_unit(*pair) for pair in zip(runs.history_names, units, strict=True)]


def in_lines(label: str, width: int | None = None) -> str:
    """For figures, wrapped at a given number of characters."""
    lines = [label] if width is None else textwrap.wrap(label, width, max_lines=_LABEL_LINES, placeholder=" ...")
    return "\n".join(map(typeset, lines))


def state_label(runs: Trajectories, state: int, width: int | None = None) -> str:
    """Name and unit of a state, wrapped at a given number of characters."""
    return in_lines(state_texts(runs)[state], width)


def plain(text: str) -> str:
    """For figures: without control characters or formulas."""
    return printable(text).replace("$", r"\$")  # which would begin a formula


def typeset(text: str) -> str:
    """For figures: names like c_A with a subscript and units like m^3 with a superscript."""
    return formula(plain(text))


def short_name(name: str) -> str:
    """The name of a plan, as figures take it; of a long one, both ends."""
    half = _LONGEST_NAME // 2
    return plain(name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}")
