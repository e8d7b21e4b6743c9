"""Figures of certificates: phase portraits, intervals over time, the certified region.

Functions called `plot_...` draw on the axes they are given (`ax=`), or on new ones; those called `..._figure` put
methods side by side. Limits are dashed; the true trajectory, where known, is black.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..arithmetic.printing import rounded_up
from ..certificates.certificate import Certificate, Verdict
from ..data.arrays import FloatArray
from ..data.sets import Box
from ..data.trajectories import Trajectories
from .labels import Clock, short_name, state_label, typeset
from .palette import BLUE, GREEN, LIMIT, ORANGE, PINK, RED, START, TRUTH, VERDICTS

DPI = 150
"""Of pictures, and of those parts of drawings that are pictures."""
_LONGEST_LABEL = 48
_DOT: dict[str, Any] = {"color": BLUE, "marker": "o", "markersize": 3, "linestyle": "none"}


def plot_phase(
    certificates: Sequence[Certificate],
    *,
    truths: Sequence[FloatArray] | None = None,
    states: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """The boxes of several plans in the plane of two states, coloured by verdict, certified ones on top.

    `truths` are the true states, `(n_steps + 1, n_states)` for each plan; without them, dotted lines join the boxes
    of each plan. `names` are written where the plans start.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    axes, order = _axes(ax), list(Verdict)
    for certificate in certificates:
        verdict = certificate.verdict
        colour, above = VERDICTS[verdict], 1.0 + 0.1 * (len(order) - order.index(verdict))
        face = to_rgba(colour, 0.25 if verdict is Verdict.CERTIFIED else 0.12)
        lower, upper = certificate.tube.lower[:, states], certificate.tube.upper[:, states]
        for low, high in zip(lower, upper, strict=True):
            axes.add_patch(Rectangle(low, *(high - low), facecolor=face, edgecolor=colour, linewidth=1.0, zorder=above))
        start = certificate.question.x0[list(states)]
        if truths is None:
            axes.plot(*np.vstack([start, (lower + upper) / 2.0]).T, color=colour, linestyle=":", linewidth=0.8)
        axes.plot(*start, **START)
        axes.update_datalim(np.vstack([lower, upper]))
    for truth in truths or ():
        axes.plot(truth[:, states[0]], truth[:, states[1]], **TRUTH)
    if names is not None:
        starts = [tuple(certificate.question.x0[list(states)].tolist()) for certificate in certificates]
        _name_starts(axes, names, starts)
    _limit_lines(axes, certificates[0], states)
    axes.autoscale_view()
    axes.set_xlabel(state_label(certificates[0].predictor.runs, states[0], _LONGEST_LABEL))
    axes.set_ylabel(state_label(certificates[0].predictor.runs, states[1], _LONGEST_LABEL))
    return axes


def plot_time(certificate: Certificate, state: int, *, truth: FloatArray | None = None, ax: Any = None) -> Any:
    """The interval of one state at every step, over time where the sampling time is known."""
    axes = _axes(ax)
    lower, upper = certificate.tube.lower[:, state], certificate.tube.upper[:, state]
    clock = Clock.of(certificate.predictor.runs, len(lower))
    steps = clock.per_step * np.arange(1, len(lower) + 1)
    middle = (lower + upper) / 2.0
    colour = VERDICTS[certificate.verdict]
    axes.fill_between(steps, lower, upper, color=colour, alpha=0.15, linewidth=0.0)
    axes.errorbar(steps, middle, (upper - lower) / 2.0, fmt="none", ecolor=colour, capsize=4, elinewidth=1.6)
    if truth is None:
        axes.plot(0, certificate.question.x0[state], **START)
    else:
        axes.plot(clock.per_step * np.arange(len(truth)), truth[:, state], **TRUTH)
    limits = certificate.limits.states
    if isinstance(limits, Box):
        for end in (limits.lower[state], limits.upper[state]):
            if np.isfinite(end):
                axes.axhline(end, **LIMIT)
    axes.set_ylabel(state_label(certificate.predictor.runs, state, _LONGEST_LABEL // 2))
    clock.mark(axes, len(lower))
    return axes


def plot_region(
    first: FloatArray,
    second: FloatArray,
    verdicts: Sequence[Sequence[Verdict]],
    *,
    dots: Sequence[tuple[float, float]] = (),
    ax: Any = None,
) -> Any:
    """Verdicts over a grid of initial states: `verdicts[i][j]` belongs to `(first[i], second[j])`.

    Or over cells, where `first` and `second` are the cell edges: one more than there are cells. `dots` are states that
    are certified on their own, in cells that are not.
    """
    from matplotlib.colors import ListedColormap

    axes = _axes(ax)
    order = list(Verdict)
    codes = np.array([[order.index(verdict) for verdict in row] for row in verdicts])
    palette = ListedColormap([VERDICTS[verdict] for verdict in order])
    axes.pcolormesh(first, second, codes.T, cmap=palette, vmin=0, vmax=len(order) - 1, shading="auto", alpha=0.8)
    if len(dots):
        axes.plot(*zip(*dots, strict=True), **_DOT)
    for set_ends, ends in ((axes.set_xlim, first), (axes.set_ylim, second)):
        if len(ends) > 1:
            set_ends(ends[0], ends[-1])  # around points at the edge, colours extend beyond what was examined
    return axes


def phase_figure(
    by_method: Mapping[str, Sequence[Certificate]],
    truths: Sequence[FloatArray] | None = None,
    states: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
) -> Any:
    """One phase portrait per method, on the same scales; `names` are the names of the plans."""
    from matplotlib.lines import Line2D

    figure, panels = panels_of(1, len(by_method), width=5.0, height=4.2, sharex=True, sharey=True)
    for axes, (method, certificates) in zip(panels[0], by_method.items(), strict=True):
        plot_phase(certificates, truths=truths, states=states, names=names, ax=axes)
        axes.set_title(f"{method}: {_sizes(certificates, states)}", fontsize="medium")
    handles = _verdict_patches({c.verdict for certificates in by_method.values() for c in certificates}, alpha=0.4)
    handles.append(Line2D([], [], label="limits", **LIMIT))
    if truths is not None:
        handles.append(Line2D([], [], label="true trajectory", **TRUTH))
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if len(by_method) == 1 else 5)
    return figure


def _sizes(certificates: Sequence[Certificate], states: tuple[int, int]) -> str:
    """Half-widths of the widest boxes in the plane of two states."""
    runs = certificates[0].predictor.runs
    largest = np.max([(c.tube.upper - c.tube.lower).max(axis=0) / 2.0 for c in certificates], axis=0)
    return ", ".join(typeset(f"{runs.state_names[i]} ± {rounded_up(float(largest[i]))}") for i in states) + " at most"


def time_figure(by_method: Mapping[str, Certificate], truth: FloatArray | None = None, name: str = "") -> Any:
    """One plan over time: one row per state, one column per method; `name` is the name of the plan."""
    n_states = next(iter(by_method.values())).tube.lower.shape[1]
    plan = f"plan {short_name(name)}, " if name else ""
    figure, panels = panels_of(n_states, len(by_method), width=5.0, height=2.2, sharex=True, sharey="row")
    for column, (method, certificate) in enumerate(by_method.items()):
        for state in range(n_states):
            axes = plot_time(certificate, state, truth=truth, ax=panels[state][column])
            if column:
                axes.set_ylabel("")
            if state < n_states - 1:
                axes.set_xlabel("")
        panels[0][column].set_title(f"{plan}{method}: {certificate.verdict.name.lower()}")
    return figure


def region_figure(
    first: FloatArray,
    second: FloatArray,
    by_method: Mapping[str, Any],
    labels: Sequence[str],
    dots: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> Any:
    """The certified region per method; `by_method` and `dots` hold the arguments of `plot_region`."""
    from matplotlib.lines import Line2D

    figure, panels = panels_of(1, len(by_method), width=5.0, height=4.6, sharex=True, sharey=True)
    for axes, (method, verdicts) in zip(panels[0], by_method.items(), strict=True):
        plot_region(first, second, verdicts, dots=(dots or {}).get(method, ()), ax=axes)
        share = np.mean([verdict is Verdict.CERTIFIED for row in verdicts for verdict in row])
        axes.set_title(f"{method}: {share:.1%} certified")
        axes.set_xlabel(labels[0])
    panels[0][0].set_ylabel(labels[1])
    seen = {verdict for verdicts in by_method.values() for row in verdicts for verdict in row}
    handles = _verdict_patches(seen, alpha=0.8)
    if any((dots or {}).values()):
        handles.append(Line2D([], [], **_DOT, label="certified from the midpoint of the cell"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2 if len(by_method) == 1 else 4)
    return figure


def loops_figure(
    by_controller: Mapping[str, Sequence[FloatArray]], limits: Box, runs: Trajectories, *, per_row: int | None = None
) -> Any:
    """Closed loops, `(n_steps + 1, n_states)` each: a panel per controller and state; violations are marked.

    States are below each other, controllers side by side, at most `per_row` of them.
    """
    per_row = per_row or len(by_controller)
    n_rows = runs.n_states * -(-len(by_controller) // per_row)
    figure, panels = panels_of(n_rows, per_row, width=4.0, height=2.2, sharex=True)
    for number, (name, loops) in enumerate(by_controller.items()):
        row, column = divmod(number, per_row)
        mine = panels[row * runs.n_states : (row + 1) * runs.n_states, column]
        outside = sum(int((~limits.contains(states[1:])).sum()) for states in loops)
        mine[0].set_title(f"{name}: {outside} violations")
        clock = Clock.of(runs, max(len(states) for states in loops) - 1)
        panels[-1, column].set_xlabel(clock.label)
        for state, axes in enumerate(mine):
            if number > 0:
                axes.sharey(panels[state, 0])
                axes.tick_params(labelleft=column == 0)
            for states in loops:
                times = clock.per_step * np.arange(len(states))
                axes.plot(times, states[:, state], color=BLUE, linewidth=0.7, alpha=0.75, rasterized=True)
                bad = np.flatnonzero(
                    (states[:, state] < limits.lower[state]) | (states[:, state] > limits.upper[state])
                )
                axes.plot(times[bad], states[bad, state], ".", color=RED, markersize=5, rasterized=True)
            for end in (limits.lower[state], limits.upper[state]):
                if np.isfinite(end):
                    axes.axhline(end, **LIMIT)
    for row, first in enumerate(panels[:, 0]):
        first.set_ylabel(state_label(runs, row % runs.n_states))
    return figure


def widths_figure(half_widths: FloatArray, runs: Trajectories) -> Any:
    """Half-widths of boxes by step, `(n_plans, n_steps, n_states)`: the median, and the range from least to most."""
    figure, (panels,) = panels_of(1, half_widths.shape[2], width=4.2, height=2.8)
    clock = Clock.of(runs, half_widths.shape[1])
    steps = clock.per_step * np.arange(1, half_widths.shape[1] + 1)
    for state, axes in enumerate(panels):
        mine = half_widths[:, :, state]
        for inner, alpha in ((0.0, 0.15), (0.1, 0.3)):
            ends = np.quantile(mine, [inner, 1.0 - inner], axis=0)
            label = f"{1.0 - 2.0 * inner:.0%} of the plans"
            axes.fill_between(steps, *ends, color=BLUE, alpha=alpha, linewidth=0.0, label=label)
        axes.plot(steps, np.median(mine, axis=0), color=BLUE, label="median")
        axes.set_ylim(bottom=0.0)
        clock.mark(axes, len(steps))
        axes.set_ylabel(f"half-width, {state_label(runs, state)}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def effects_figure(effects: Mapping[str, Sequence[tuple[float, Mapping[str, float]]]]) -> Any:
    """Certified shares for each setting that changes: its values, and the share by way of planning."""
    figure, (panels,) = panels_of(1, len(effects), width=3.0, height=2.8, sharey=True)
    styles = [(ORANGE, "s"), (BLUE, "o")]
    for axes, (what, points) in zip(panels, effects.items(), strict=True):
        for name, (colour, marker) in zip(points[0][1], styles, strict=False):
            axes.plot(
                [value for value, _ in points], [s[name] for _, s in points], color=colour, marker=marker, label=name
            )
        axes.set_xticks([value for value, _ in points])
        axes.set_xlabel(what)
    panels[0].set_ylabel("certified share of the region")
    panels[0].set_ylim(-0.03, 1.03)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def sampling_figure(counts: Sequence[int], by_choice: Mapping[str, Sequence[Certificate]], truth: FloatArray) -> Any:
    """How experiments decide a plan: its margin against their number, and its boxes before and after.

    `by_choice` has the certificates after `counts` experiments, by how these were chosen, the main way first; `truth`
    is the true trajectory of the plan, `(n_steps + 1, n_states)`.
    """
    ranked = next(iter(by_choice.values()))
    polytope = ranked[0].limits.polytope
    figure, (panels,) = panels_of(1, 2, width=5.4, height=3.6)
    true_margin = float((polytope.offsets - truth[1:] @ polytope.normals.T).min())
    panels[0].axhline(0.0, **LIMIT)
    panels[0].axhline(true_margin, color="black", linewidth=1.0, label="true margin")
    styles = [(BLUE, "-"), (PINK, ":"), (GREEN, "-.")]
    for (name, found), (colour, line) in zip(by_choice.items(), styles, strict=False):
        panels[0].plot(counts, [c.margin for c in found], color=colour, linestyle=line, label=name)
    for verdict in Verdict:
        points = [(n, c.margin) for n, c in zip(counts, ranked, strict=True) if c.verdict is verdict]
        if points:
            panels[0].plot(*zip(*points, strict=True), "o", color=VERDICTS[verdict], label=verdict.name.lower())
    panels[0].set_xlabel("experiments")
    panels[0].set_ylabel("margin to the nearest limit")
    panels[0].xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower center", ncols=6)
    worst = polytope.normals[int(np.argmin(ranked[0].margins.min(axis=0)))]
    state = int(np.argmax(np.abs(worst)))
    for certificate in (ranked[0], ranked[-1]):
        plot_time(certificate, state, truth=truth, ax=panels[1])
    shown = np.concatenate([ranked[0].tube.lower[:, state], ranked[0].tube.upper[:, state], truth[:, state]])
    panels[1].set_ylim(shown.min() - 0.1 * np.ptp(shown), shown.max() + 0.1 * np.ptp(shown))  # far limits are left out
    panels[1].set_title(f"the plan before and after {counts[-1]} experiments")
    return figure


def save_figure(figure: Any, folder: str | Path, name: str) -> None:
    """As `name.png` and `name.svg`."""
    with without_missing_glyphs():
        settle_layout(figure)
        for ending in ("png", "svg"):
            figure.savefig(Path(folder) / f"{name}.{ending}", dpi=DPI)


def settle_layout(figure: Any) -> None:
    """Lay a finished figure out now, and not every time that it is saved, which would take longer than drawing it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


@contextmanager
def without_missing_glyphs() -> Iterator[None]:
    """Draw names in any script: a character missing from the font becomes a box, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def panels_of(rows: int, columns: int, *, width: float, height: float, **sharing: Any) -> tuple[Any, Any]:
    """A figure and its grid of panels; `width` and `height` are those of one panel in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


def _limit_lines(axes: Any, certificate: Certificate, states: tuple[int, int]) -> None:
    """Draw a box as lines; for a polytope, only the constraints on these two states."""
    polytope = certificate.limits.polytope
    others = [i for i in range(polytope.n_dims) if i not in states]
    for normal, offset in zip(polytope.normals, polytope.offsets, strict=True):
        a, b = normal[list(states)]
        if np.any(normal[others]) or (a == 0 and b == 0):
            continue
        if b == 0:
            axes.axvline(offset / a, **LIMIT)
        elif a == 0:
            axes.axhline(offset / b, **LIMIT)
        else:
            axes.axline((0.0, offset / b), slope=-a / b, **LIMIT)


def _verdict_patches(seen: set[Verdict], alpha: float) -> list[Any]:
    from matplotlib.patches import Patch

    shown = [verdict for verdict in Verdict if verdict in seen]
    return [Patch(facecolor=VERDICTS[verdict], alpha=alpha, label=verdict.name.lower()) for verdict in shown]


def _name_starts(axes: Any, names: Sequence[str], starts: Sequence[tuple[float, ...]]) -> None:
    """Plans with the same start share a label."""
    from matplotlib.patheffects import withStroke

    labels: dict[tuple[float, ...], list[str]] = {}
    for name, start in zip(names, starts, strict=True):
        labels.setdefault(start, []).append(short_name(name))
    halo = [withStroke(linewidth=2.5, foreground="white")]
    for start, mine in labels.items():
        text = "\n".join(mine)
        axes.annotate(text, start, (4, 4), textcoords="offset points", fontsize="small", path_effects=halo)
