"""Figures of held-out recordings: the measurements, and the boxes around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, IndexArray
from ..data.trajectories import Trajectories
from ..prediction.tube import Tube
from .figures import panels_of
from .labels import state_label
from .palette import BLUE, ORANGE, RED

_GAP = 2  # steps between recordings drawn one after another


def held_out_figure(runs: Trajectories, tube: Tube, contradicted: npt.NDArray[np.bool_]) -> Any:
    """Measured outputs over time, with the boxes one step and the full horizon ahead; one panel per output.

    A box is drawn at the time that it predicts. Those marked in `contradicted`, `(n_runs, n_steps, n_states)`, are red.
    """
    starts, is_one = _places(runs.origins, runs.horizon)
    unit = runs.sampling_time if is_one else 1.0
    figure, panels = panels_of(runs.n_states, 1, width=9.0, height=2.6, sharex=True)
    ahead = {"1 step ahead": (0, BLUE, 0.8, 1.0), f"{runs.horizon} steps ahead": (runs.horizon - 1, ORANGE, 0.45, 2.6)}
    if runs.horizon == 1:
        ahead = {"1 step ahead": ahead["1 step ahead"]}
    for i, (axes,) in enumerate(panels):
        for number, (label, (n, colour, alpha, width)) in enumerate(reversed(ahead.items())):
            ends, when = (tube.lower[:, n, i], tube.upper[:, n, i]), unit * (starts + n + 1)
            axes.vlines(when, *ends, color=colour, alpha=alpha, linewidth=width, label=label, zorder=1 + number)
            bad = contradicted[:, n, i]
            axes.vlines(when[bad], *(end[bad] for end in ends), color=RED, linewidth=2.6, zorder=4)
        when, measured = _measured(starts, runs.states[:, :, i])
        axes.plot(unit * when, measured, color="black", linewidth=0.8, marker=".", markersize=3, zorder=5)
        axes.lines[-1].set_label("measured")
        axes.set_ylabel(state_label(runs, i, 24))
    panels[-1][0].set_xlabel(_time_label(runs, is_one))
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=3)
    return figure


def _time_label(runs: Trajectories, is_one: bool) -> str:
    if not is_one:
        return "step, one recording after another"
    return "time in the recording [s]" if runs.sampling_time != 1.0 else "step in the recording"


def _places(origins: IndexArray, horizon: int) -> tuple[IndexArray, bool]:
    """Where each run begins, in steps, and whether all are from one recording; otherwise they are chained."""
    recordings = np.unique(origins[:, 0])
    places, begin = origins[:, 1].copy(), 0
    if len(recordings) == 1:
        return places, True
    for recording in recordings:
        mine = origins[:, 0] == recording
        places[mine] += begin - places[mine].min()
        begin = int(places[mine].max()) + horizon + _GAP
    return places, False


def _measured(starts: IndexArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Every measured output once, in time order, with a gap where neighbours are more than a step apart."""
    when = (starts[:, None] + np.arange(outputs.shape[1])).ravel()
    times, first = np.unique(when, return_index=True)
    values = outputs.ravel()[first]
    holes = np.flatnonzero(np.diff(times) > 1) + 1
    return np.insert(times.astype(np.float64), holes, np.nan), np.insert(values, holes, np.nan)
