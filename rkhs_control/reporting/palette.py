"""The colours of all figures: those of Okabe and Ito, which people who see few colours tell apart, too."""

from __future__ import annotations

from typing import Any

from ..certificates.certificate import Verdict

BLUE, ORANGE, RED, GREEN, PINK = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7"
DARK_RED = "#a04000"
"""For text on a light red."""
LIGHT_GREY, GREY, DARK_GREY = "#bbbbbb", "#666666", "#444444"

VERDICTS = {Verdict.CERTIFIED: BLUE, Verdict.UNDECIDED: ORANGE, Verdict.REFUTED: RED}

LIMIT: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.0}
TRUTH: dict[str, Any] = {"color": "black", "linewidth": 1.0, "marker": ".", "markersize": 4}
START: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 5, "fillstyle": "none"}
