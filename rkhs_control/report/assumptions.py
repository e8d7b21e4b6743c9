"""The section on assumptions: kernels, norm and noise bounds, and how near the data come to refuting them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..certifier import Verdict
from ..envelope.base import Envelope
from ..envelope.methods import method_name
from ..figures import COLOURS, panels_of, state_label
from ..norms import ConsistencyFrontier, NormBound, consistency_frontier
from ..predictor import MultiStepPredictor
from ..validation import FloatArray
from .numbers import rounded_down
from .page import Block, Gallery, Picture, Section, Table

_FURTHER_DOWN = 0.5  # the frontier is drawn down to this share of the noise bound
_PICTURES_UP_TO = 6


def assumptions_section(predictor: MultiStepPredictor, step: int, state: int, why: str) -> Section:
    """All assumptions, and the frontiers of the states at one step (from 0), that of `state` first."""
    blocks: list[Block] = [
        "Each state after each step is taken to be a function of the initial state and the inputs whose norm, in the "
        "space that goes with its kernel, is at most the norm bound; each recorded value is taken to be off by at "
        f"most the noise bound. {_method_text(predictor)}",
        _assumptions_table(predictor),
    ]
    states = [state, *(i for i in range(predictor.runs.n_states) if i != state)][:_PICTURES_UP_TO]
    pictures = [_frontier_picture(predictor, step, i) for i in states]
    blocks += [
        "Data cannot confirm these bounds, but they can refute them. The consistency frontier is the least norm of any "
        "function that fits the recordings, for every noise bound: whoever assumes a pair below it is contradicted by "
        f"the data. Shown {'is' if len(states) == 1 else 'are'} {_frontier_subject(predictor, step, states)} {why}.",
        Gallery(pictures),
    ]
    return Section("Assumptions", blocks)


def _method_text(predictor: MultiStepPredictor) -> str:
    options = ", ".join(f"{name} {value}" for name, value in predictor.options.items())
    text = f"The boxes are made of {method_name(predictor.method).replace('_', ' ')} bounds"
    text += f" ({options})." if options else "."
    noise = np.asarray(predictor.initial_state_noise)
    if noise.any():
        names = predictor.runs.state_names
        each = ", ".join(f"{name} by {value:g}" for name, value in zip(names, noise, strict=True))
        text += f" Recorded initial states may be off: {each}."
    return text


def _assumptions_table(predictor: MultiStepPredictor) -> Table:
    runs = predictor.runs
    rows = []
    for n, row in enumerate(predictor.envelopes):
        for i, envelope in enumerate(row):
            norm = NormBound.of(envelope.norm_bound)
            rows.append(
                (
                    str(n + 1),
                    runs.state_names[i],
                    f"{runs.noise_bound[n, i]:.4g}",
                    f"{norm.value:.4g}",
                    rounded_down(_least_norm(envelope), 4),
                    norm.provenance,
                    _kernel_text(envelope.kernel.to_dict()),
                )
            )
    header = ("step", "state", "noise bound", "norm bound", "refuted below", "where the norm bound is from", "kernel")
    caption = "refuted below: the least norm that the data allow with this noise bound."
    return Table(header, rows, caption)


def _kernel_text(content: dict[str, Any]) -> str:
    parts = [f"{name} {_value_text(value)}" for name, value in content.items() if name != "kind"]
    return f"{content['kind']} ({', '.join(parts)})" if parts else str(content["kind"])


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return _kernel_text(value)
    if np.ndim(value):
        return " ".join(f"{entry:.4g}" for entry in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _least_norm(envelope: Envelope) -> float:
    """That every function through the data provably has."""
    return envelope.least_norm.certified_norm(envelope.gram, envelope.data.lower, envelope.data.upper)


def _frontier_subject(predictor: MultiStepPredictor, step: int, states: Sequence[int]) -> str:
    names = ", then ".join(predictor.runs.state_names[i] for i in states)
    return f"{names} at step {step + 1},"


def _frontier_picture(predictor: MultiStepPredictor, step: int, state: int) -> Picture:
    envelope, name = predictor.envelopes[step][state], predictor.runs.state_names[state]
    noise, norm, least = envelope.data.noise_bound, envelope.radius, _least_norm(envelope)
    frontier = _frontier(envelope)
    what = "noise bound" if not np.any(predictor.initial_state_noise) else "half-width of the intervals"
    refuted = _refuted_noise(envelope, frontier)
    caption = f"{name} at step {step + 1}: with the {what} {noise:.4g} the data refute "
    if least > 0.0:
        caption += f"norms below {rounded_down(least)}; the norm bound is {rounded_down(norm / least)} times that."
    else:
        caption += "no norm: zero fits."
    if refuted is not None:
        caption += f" With the norm bound {norm:.4g} they refute a {what} of {rounded_down(refuted)} or less."
    figure = _frontier_figure(frontier, noise, norm, what, state_label(predictor.runs, state), step)
    return Picture(figure, f"Consistency frontier, least norm against {what}. {caption}", caption)


def _frontier(envelope: Envelope) -> ConsistencyFrontier:
    """Beyond the noise bound of the data, as far as their intervals do not contradict each other."""
    data = envelope.data
    room = float(np.min(data.upper - data.lower)) / 2.0
    down_to = data.noise_bound - min(room, (1.0 - _FURTHER_DOWN) * data.noise_bound) * (1.0 - 1e-9)
    return consistency_frontier(data, envelope.kernel, down_to)


def _refuted_noise(envelope: Envelope, frontier: ConsistencyFrontier) -> float | None:
    """A noise bound, the largest among the breakpoints, that the data provably refute under the norm bound."""
    for noise, least in zip(*frontier, strict=True):
        if least > envelope.radius and frontier.refutes(noise, envelope.radius):
            return float(noise)
    return None


def frontier_curve(frontier: ConsistencyFrontier, noise_bounds: FloatArray) -> FloatArray:
    """Least norms from below, at noise bounds within the frontier's range.

    The least norm is convex in the noise bound, so between two breakpoints it lies above the lines through the pairs of
    breakpoints to the left and to the right of them.
    """
    d, norms = frontier.noise_bounds[::-1], frontier.least_norms[::-1]
    d, first = np.unique(d, return_index=True)
    norms = norms[first]
    if len(d) < 2:
        return np.full_like(noise_bounds, norms[0])
    slopes = np.diff(norms) / np.diff(d)
    piece = np.clip(np.searchsorted(d, noise_bounds, side="right") - 1, 0, len(slopes) - 1)
    left, right = np.maximum(piece - 1, 0), np.minimum(piece + 1, len(slopes) - 1)
    has_left = (piece > 0) | (noise_bounds == d[piece])
    from_left = np.where(has_left, norms[piece] + slopes[left] * (noise_bounds - d[piece]), 0.0)
    from_right = np.where(
        piece < len(slopes) - 1, norms[piece + 1] + slopes[right] * (noise_bounds - d[piece + 1]), 0.0
    )
    return np.maximum(np.maximum(from_left, from_right), norms[piece + 1])


def _frontier_figure(frontier: ConsistencyFrontier, noise: float, norm: float, what: str, label: str, step: int) -> Any:
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, panels = panels_of(1, 1, width=5.2, height=3.4)
    axes = panels[0][0]
    largest, smallest = float(frontier.noise_bounds[0]), float(frontier.noise_bounds[-1])
    is_log = smallest > 0.0
    d = (np.geomspace if is_log else np.linspace)(smallest, largest, 600)
    d = np.unique(np.concatenate([d, frontier.noise_bounds]))
    curve = frontier_curve(frontier, d)
    floor = 0.2 * min(norm, float(frontier.least_norms.max() or norm), float(np.interp(noise, d, curve) or norm))
    top = 5.0 * max(norm, min(float(frontier.least_norms.max()), 50.0 * norm))
    right = max(1.5 * float(d[curve > floor].max(initial=0.0)), 2.0 * noise) or largest
    axes.fill_between(d, floor, np.maximum(curve, floor), color=COLOURS[Verdict.REFUTED], alpha=0.18, linewidth=0.0)
    axes.plot(d, np.maximum(curve, floor), color=COLOURS[Verdict.REFUTED], linewidth=1.6)
    axes.plot(noise, norm, "o", color=COLOURS[Verdict.CERTIFIED], markersize=7)
    axes.annotate("assumed", (noise, norm), (9, 5), textcoords="offset points", color=COLOURS[Verdict.CERTIFIED])
    axes.text(0.03, 0.05, "refuted by the data", transform=axes.transAxes, color="#a04000")
    axes.set_yscale("log")
    if is_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(floor, top)
    axes.set_xlim(smallest, right)
    axes.set_xlabel(what)
    axes.set_ylabel("norm")
    axes.set_title(f"{label}, step {step + 1}")
    axes.grid(alpha=0.25)
    return figure
