"""The section on assumptions: kernels, norm and noise bounds, and how close the data come to refuting them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arithmetic.printing import rounded_down
from ..assumptions.norms import ConsistencyFrontier, consistency_frontier
from ..assumptions.priors import AffinePrior, Prior, is_flat
from ..data.arrays import FloatArray
from ..data.trajectories import Trajectories
from ..envelopes.base import Envelope
from ..envelopes.methods import method_name
from ..prediction.predictor import MultiStepPredictor
from .figures import panels_of
from .labels import state_label
from .page import Block, Gallery, Picture, Section, Table
from .palette import BLUE, DARK_RED, RED

_FURTHER_DOWN = 0.5  # the frontier is drawn down to this fraction of the noise bound
_PICTURES_UP_TO = 6


def assumptions_section(
    predictor: MultiStepPredictor, step: int, state: int, *, why: str, start_noise: FloatArray | None = None
) -> Section:
    """All assumptions, and the frontiers of the states at one step (from 0), starting with `state`.

    `start_noise` is how far the true initial states of plans may be from the stated ones.
    """
    runs = predictor.runs
    start = "the initial state" if runs.has_states else f"its history ({', '.join(runs.history_names)})"
    blocks: list[Block] = [
        f"Each state after each step is assumed to be a function of {start} and the inputs whose norm, in the RKHS "
        f"of its kernel, is at most the norm bound; each recorded value is assumed to be off by at most the noise "
        f"bound. {_method_text(predictor)}",
        *_further_texts(predictor),
        *([f"{text[0].upper()}{text[1:]}."] if (text := predictor.assumption_text) else []),
        *_initial_state_texts(runs, start_noise),
        _assumptions_table(predictor),
    ]
    states = [state, *(i for i in range(runs.n_states) if i != state)][:_PICTURES_UP_TO]
    pictures = [_frontier_picture(predictor, step, i) for i in states]
    blocks += [
        "Data cannot confirm these bounds, but they can refute them. The consistency frontier is the least norm of "
        "any function that fits the recordings, for every noise bound: a pair below it is refuted by the data. "
        f"It is shown for {_frontier_subject(predictor, step, states)} {why}.",
        Gallery(pictures),
    ]
    return Section("Assumptions", blocks)


def _method_text(predictor: MultiStepPredictor) -> str:
    options = ", ".join(f"{name} {value}" for name, value in predictor.options.items())
    text = f"The boxes are made of {method_name(predictor.method).replace('_', ' ')} bounds"
    return text + (f" ({options})." if options else ".")


def _further_texts(predictor: MultiStepPredictor) -> Iterator[str]:
    """Which prior is subtracted before kernels describe the rest, and which disturbances may act; empty if neither."""
    if _has_priors(predictor):
        yield (
            "Where the table names a prior, this function of the same arguments is subtracted first and added back at "
            "the end: kernels and norm bounds are those of the residual. A constant one is the mean of recordings, an "
            "affine one is fitted to them. It is not an assumption, however well or badly it fits."
        )
    if predictor.runs.disturbance_bound.any():
        yield (
            "In addition, unknown disturbances of the plant are assumed to move a state by at most the disturbance "
            "bound, in the recordings and again while a plan runs: the boxes leave room for them."
        )


def _initial_state_texts(runs: Trajectories, start_noise: FloatArray | None) -> Iterator[str]:
    """How uncertain the initial states of recordings and plans are taken to be; empty where all are known."""
    if text := runs.initial_state_text:
        yield f"{text[0].upper()}{text[1:]}."
    if start_noise is not None and start_noise.any():
        yield f"The true initial state of a plan may differ from the stated one: {runs.by_state(start_noise)}."


def _has_priors(predictor: MultiStepPredictor) -> bool:
    return any(prior is not None for row in predictor.priors for prior in row)


def _prior_text(prior: Prior) -> str:
    if prior is None:
        return "none"
    if isinstance(prior, AffinePrior):
        return "constant" if is_flat(prior) else "affine"
    return str(prior.model)


def _assumptions_table(predictor: MultiStepPredictor) -> Table:
    runs, has_priors = predictor.runs, _has_priors(predictor)
    is_disturbed = bool(runs.disturbance_bound.any())
    rows = []
    for n, row in enumerate(predictor.envelopes):
        for i, envelope in enumerate(row):
            norm = envelope.norm_bound
            rows.append(
                (
                    str(n + 1),
                    runs.state_names[i],
                    f"{runs.noise_bound[n, i]:.4g}",
                    *([f"{runs.disturbance_bound[n, i]:.4g}"] if is_disturbed else []),
                    f"{norm.value:.4g}",
                    rounded_down(_least_norm(envelope), 4),
                    norm.provenance,
                    *([_prior_text(predictor.priors[n][i])] if has_priors else []),
                    _kernel_text(envelope.kernel.to_dict()),
                )
            )
    bounds = ("noise bound", *(["disturbance bound"] if is_disturbed else []), "norm bound")
    header = (
        "step",
        "state",
        *bounds,
        "refuted below",
        "where the norm bound is from",
        *(["prior"] if has_priors else []),
        "kernel",
    )
    which = "these noise and disturbance bounds" if is_disturbed else "this noise bound"
    caption = f"refuted below: the least norm that the data allow with {which}."
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
    """The least norm that every function through the data provably has."""
    return envelope.least_norm.certified_norm(envelope.gram, envelope.data.lower, envelope.data.upper)


def _frontier_subject(predictor: MultiStepPredictor, step: int, states: Sequence[int]) -> str:
    names = ", then ".join(predictor.runs.state_names[i] for i in states)
    return f"{names} at step {step + 1},"


def _frontier_picture(predictor: MultiStepPredictor, step: int, state: int) -> Picture:
    envelope, name = predictor.envelopes[step][state], predictor.runs.state_names[state]
    noise, norm, least = envelope.data.noise_bound, envelope.radius, _least_norm(envelope)
    frontier = _frontier(envelope)
    is_wider = predictor.initial_state_noise.any() or predictor.runs.disturbance_bound.any()
    what = "half-width of the intervals" if is_wider else "noise bound"
    refuted = _refuted_noise(envelope, frontier)
    caption = f"{name} at step {step + 1}: with a {what} of {noise:.4g} the data refute "
    if least > 0.0:
        caption += f"norms below {rounded_down(least)}; the norm bound is {rounded_down(norm / least)} times that."
    else:
        caption += "no norm: zero fits."
    if refuted is not None:
        caption += f" With the norm bound {norm:.4g}, they refute a {what} of {rounded_down(refuted)} or less."
    title = f"{state_label(predictor.runs, state)}, step {step + 1}"
    figure = _frontier_figure(frontier, noise, norm, what=what, title=title)
    return Picture(figure, f"Consistency frontier, least norm against {what}. {caption}", caption)


def _frontier(envelope: Envelope) -> ConsistencyFrontier:
    """The frontier down to below the data's noise bound, as far as the intervals do not contradict each other."""
    data = envelope.data
    room = float(np.min(data.upper - data.lower)) / 2.0
    down_to = data.noise_bound - min(room, (1.0 - _FURTHER_DOWN) * data.noise_bound) * (1.0 - 1e-9)
    return consistency_frontier(data, envelope.kernel, down_to)


def _refuted_noise(envelope: Envelope, frontier: ConsistencyFrontier) -> float | None:
    """The largest noise bound among the breakpoints that the data provably refute under the norm bound."""
    for noise, least in zip(*frontier, strict=True):
        if least > envelope.radius and frontier.refutes(noise, envelope.radius):
            return float(noise)
    return None


def _frontier_figure(frontier: ConsistencyFrontier, noise: float, norm: float, *, what: str, title: str) -> Any:
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, panels = panels_of(1, 1, width=5.2, height=3.4)
    axes = panels[0][0]
    largest, smallest = float(frontier.noise_bounds[0]), float(frontier.noise_bounds[-1])
    is_log = smallest > 0.0
    d = (np.geomspace if is_log else np.linspace)(smallest, largest, 600)
    d = np.unique(np.concatenate([d, frontier.noise_bounds]))
    curve = frontier.least_norms_at(d)
    floor = 0.2 * min(norm, float(curve.max() or norm), float(np.interp(noise, d, curve) or norm))
    top = 5.0 * max(norm, min(float(curve.max()), 50.0 * norm))
    right = max(1.5 * float(d[curve > floor].max(initial=0.0)), 2.0 * noise) or largest
    axes.fill_between(d, floor, np.maximum(curve, floor), color=RED, alpha=0.18, linewidth=0.0)
    axes.plot(d, np.maximum(curve, floor), color=RED, linewidth=1.6)
    axes.plot(noise, norm, "o", color=BLUE, markersize=7)
    axes.annotate("assumed", (noise, norm), (9, 5), textcoords="offset points", color=BLUE)
    axes.text(0.03, 0.05, "refuted by the data", transform=axes.transAxes, color=DARK_RED)
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
    axes.set_title(title)
    axes.grid(alpha=0.25)
    return figure
