"""Figures of regions for ever: their cells, and what their plans do first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..certificates.region import InvariantRegion
from ..data.arrays import FloatArray
from .figures import panels_of, state_label
from .palette import LIMIT
from .text import printable


def plot_region(
    region: InvariantRegion,
    *,
    states: tuple[int, int] = (0, 1),
    at: FloatArray | None = None,
    first_input: int = 0,
    ax: Any = None,
) -> Any:
    """The cells of a region in the plane of two states, coloured by the first input of their plans; limits are dashed.

    With more states, those cells that the plane through `at` meets, which goes through the middle by default.
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
    axes.add_patch(Rectangle(low, *(high - low), fill=False, **LIMIT))
    room = 0.03 * (high - low)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])
    axes.set_xlabel(state_label(runs, states[0]))
    axes.set_ylabel(state_label(runs, states[1]))
    unit = f" [{runs.input_units[first_input]}]" if runs.input_units[first_input] else ""
    axes.figure.colorbar(cells, ax=axes, label=printable(f"first input, {runs.input_names[first_input]}{unit}"))
    return axes


def region_for_ever_figure(region: InvariantRegion) -> Any:
    """A region in the planes of its first states."""
    n_states = region.predictor.runs.n_states
    pairs = [(i, j) for i in range(n_states) for j in range(i + 1, n_states)][:3] if n_states > 1 else []
    figure, (panels,) = panels_of(1, len(pairs), width=5.2, height=4.0)
    for axes, pair in zip(panels, pairs, strict=True):
        plot_region(region, states=pair, ax=axes)
    return figure
