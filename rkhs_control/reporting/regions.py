"""Figures of regions for ever: their cells, the first inputs of their plans, and how their size varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..certificates.region import InvariantRegion
from ..data.arrays import FloatArray
from .figures import panels_of
from .labels import plain, state_label
from .palette import BLUE, LIMIT, RED, START

_FEW = 4
"""Up to this many values get a tick each."""


def plot_region(
    region: InvariantRegion,
    *,
    states: tuple[int, int] = (0, 1),
    at: FloatArray | None = None,
    first_input: int = 0,
    ax: Any = None,
) -> Any:
    """The cells of a region in the plane of two states, coloured by the first input of their plans; limits are dashed.

    With more states, the cells that intersect the plane through `at`, by default through the middle.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    runs, whole = region.predictor.runs, region.limits.states
    axes = panels_of(1, 1, width=5.0, height=4.0)[1][0][0] if ax is None else ax
    middle = (whole.lower + whole.upper) / 2.0 if at is None else at  # type: ignore[union-attr]
    others = [i for i in range(runs.n_states) if i not in states]
    shown = np.flatnonzero(((region.lower <= middle) & (middle <= region.upper))[:, others].all(axis=1))
    ends = (tuple(end[k, list(states)].tolist() for end in (region.lower, region.upper)) for k in shown)
    patches = [Rectangle((x, y), right - x, top - y) for (x, y), (right, top) in ends]
    cells = PatchCollection(patches, cmap="cividis", edgecolor="white", linewidth=0.3)
    cells.set_array(np.array([region.cells[k].inputs[0, first_input] for k in shown]))
    axes.add_collection(cells)
    low, high = whole.lower[list(states)], whole.upper[list(states)]  # type: ignore[union-attr]
    axes.add_patch(Rectangle((float(low[0]), float(low[1])), *(high - low), fill=False, **LIMIT))
    room = 0.03 * (high - low)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])
    axes.set_xlabel(state_label(runs, states[0]))
    axes.set_ylabel(state_label(runs, states[1]))
    unit = f" [{runs.input_units[first_input]}]" if runs.input_units[first_input] else ""
    axes.figure.colorbar(cells, ax=axes, label=plain(f"first input, {runs.input_names[first_input]}{unit}"))
    return axes


def region_for_ever_figure(region: InvariantRegion) -> Any:
    """A region in the planes of its first states."""
    n_states = region.predictor.runs.n_states
    pairs = [(i, j) for i in range(n_states) for j in range(i + 1, n_states)][:3] if n_states > 1 else []
    figure, (panels,) = panels_of(1, len(pairs), width=5.2, height=4.0)
    for axes, pair in zip(panels, pairs, strict=True):
        plot_region(region, states=pair, ax=axes)
    return figure


def shares_figure(
    by_change: Mapping[str, Sequence[tuple[float, float]]],
    present: Mapping[str, float],
    tightest: tuple[str, float] | None = None,
) -> Any:
    """How much of the limits is certified for ever, for each setting that changes: its values and shares.

    A ring marks the present value of each, a cross means that no region was found; `tightest` says which setting gets a
    dashed line, and where.
    """
    from matplotlib.ticker import PercentFormatter

    figure, (panels,) = panels_of(1, len(by_change), width=3.0, height=2.8, sharey=True)
    for axes, (what, points) in zip(panels, by_change.items(), strict=True):
        values, shares = np.array(sorted(points)).reshape(-1, 2).T
        found, now = shares > 0.0, values == present[what]
        axes.plot(values, shares, color=BLUE, linestyle=":", linewidth=1.0)
        axes.plot(values[found], shares[found], "o", color=BLUE, label="certified for ever")
        axes.plot(values[~found], shares[~found], "X", color=RED, label="no region found", zorder=3)
        axes.plot(values[now], shares[now], **{**START, "markersize": 11, "linestyle": "none"}, label="as it is")
        if tightest is not None and tightest[0] == what:
            axes.axvline(tightest[1], **LIMIT, label="tightest with a region")
        if len(values) <= _FEW:
            axes.set_xticks(values)
        axes.set_xlabel(plain(what))
    panels[0].set_ylabel("share of the limits, for ever")
    panels[0].set_ylim(-0.05, 1.05)
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    shown = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4 if len(by_change) > 1 else 2)
    return figure
