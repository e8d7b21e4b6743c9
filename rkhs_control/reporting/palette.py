"""The colours of all figures: those of Okabe and Ito, which colour-blind readers can tell apart."""

from __future__ import annotations

from typing import Any

from ..certificates.certificate import Verdict

BLUE: str = "#0072B2"
ORANGE: str = "#E69F00"
RED: str = "#D55E00"
GREEN: str = "#009E73"
PINK: str = "#CC79A7"
DARK_RED: str = "#a04000"
"""For text on light red."""
LIGHT_GREY: str = "#bbbbbb"
GREY: str = "#666666"
DARK_GREY: str = "#444444"

VERDICTS = {Verdict.CERTIFIED: BLUE, Verdict.UNDECIDED: ORANGE, Verdict.REFUTED: RED}

LIMIT: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.0}
TRUTH: dict[str, Any] = {"color": "black", "linewidth": 1.0, "marker": ".", "markersize": 4}
START: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 5, "fillstyle": "none"}

_PAPER, _INK = "#191d23", "#e8ebee"
_DARK = {
    "#ffffff": _PAPER,
    "#000000": _INK,
    BLUE: "#4ba3dc",
    RED: "#f07c2d",
    DARK_RED: "#f2a070",
    LIGHT_GREY: "#6b7480",
    GREY: "#a9b2bd",
    DARK_GREY: "#c3cad2",
    "#cccccc": "#4a525d",  # frames of legends
    "#b0b0b0": "#4a525d",  # grids
}
"""What colours become in dark mode; the others are light enough."""


def dark_style() -> str:
    """CSS rules for matplotlib's drawings, which set colours in attributes and leave text at its default."""
    rules = [
        f'[style*="{what}: {light.lower()}"] {{ {what}: {dark} !important }}'
        for light, dark in _DARK.items()
        for what in ("fill", "stroke")
    ]
    return f"@media (prefers-color-scheme: dark) {{ svg {{ fill: {_INK} }} {' '.join(rules)} }}"
