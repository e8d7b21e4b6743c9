"""The figure of proposed noise bounds: where the consistency frontier of each output bends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..assumptions.noise import NoiseProposal
from ..assumptions.norms import ConsistencyFrontier
from .figures import panels_of
from .palette import BLUE, DARK_GREY, DARK_RED, GREY, RED
from .text import printable

_RIGHT = 3.0  # times the proposed bound
_SHOWN = 1e4  # norms up to this multiple of the smallest


def noise_figure(proposal: NoiseProposal) -> Any:
    """A panel per output: the least norm that the samples around its largest residual allow, for every noise bound.

    Read from right to left: the curve is flat while it describes the signal, and turns up where it would have to
    describe the noise. A noise bound to the left of the bend is probably too small. The proposed bound is marked, and
    half a step of the recorded values where it is in sight.
    """
    figure, panels = panels_of(1, len(proposal.bounds), width=4.6, height=3.2)
    for i, (axes, frontier) in enumerate(zip(panels[0], proposal.frontiers, strict=True)):
        name = printable(proposal.state_names[i]).replace("$", r"\$")
        axes.set_title(
            f"{name}: {proposal.bounds[i]:g} proposed" if proposal.bounds[i] else f"{name}: nothing proposed"
        )
        axes.set_xlabel("noise bound")
        if frontier is None:
            axes.set_axis_off()
            why = "rounding hides the frontier" if proposal.bounds[i] else "no noise in the recordings"
            axes.text(0.5, 0.5, why, ha="center", transform=axes.transAxes, color=DARK_GREY)
        else:
            _draw(axes, frontier, float(proposal.bounds[i]), float(proposal.quantisation[i]) / 2.0)
    panels[0][0].set_ylabel("least norm")
    return figure


def _draw(axes: Any, frontier: ConsistencyFrontier, bound: float, half_step: float) -> None:
    left, right = float(frontier.noise_bounds[-1]), _RIGHT * bound
    d = np.unique(np.concatenate([np.linspace(left, right, 300), frontier.noise_bounds[frontier.noise_bounds < right]]))
    # what is proved for a noise bound is proved for all smaller ones
    curve = np.maximum.accumulate(frontier.least_norms_at(d)[::-1])[::-1]
    floor = 0.5 * max(float(curve.min()), 0.2 * bound)  # noise could hide a bump of the norm of the bound
    curve = np.maximum(curve, floor)
    axes.fill_between(d, floor, curve, color=RED, alpha=0.18, linewidth=0.0)
    axes.plot(d, curve, color=RED, linewidth=1.6)
    axes.axvline(bound, color=BLUE, linewidth=1.4)
    axes.annotate(
        "proposed", (bound, 0.93), (6, 0), xycoords=axes.get_xaxis_transform(), textcoords="offset points", color=BLUE
    )
    if half_step > left:
        axes.axvline(half_step, color=GREY, linestyle=":", linewidth=1.2)
        axes.annotate(
            "half a step", (half_step, 0.8), (6, 0), xycoords=axes.get_xaxis_transform(), textcoords="offset points"
        )
    axes.text(0.03, 0.05, "refuted", transform=axes.transAxes, color=DARK_RED)
    axes.set_yscale("log")
    axes.set_ylim(floor, 3.0 * float(np.clip(curve.max(), 10.0 * floor, _SHOWN * floor)))
    axes.set_xlim(left, right)
    axes.grid(alpha=0.25)
