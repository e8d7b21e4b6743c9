"""What recorded columns show by themselves: constant values, ties, outliers, and noise bounds versus signals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..data.arrays import FloatArray, listed
from ..data.trajectories import Trajectories
from .findings import Finding

UNUSED_SHARE = 0.98
"""A column with a single value in this share of its samples says hardly anything."""
TIED_SHARE, TIED_TIMES = 0.05, 3.0
"""Saturation: the share of samples at an extreme, and how much more often it occurs than the values next to it."""
FEW_LEVELS, FEW_SAMPLES = 5, 50
"""At most this many values are levels, if there are at least this many samples."""
ON_GRID = 0.1
"""Values are quantised if all differences are within this of a multiple of the smallest step."""
OUTLIER_TIMES, NEIGHBOURS = 8.0, 4
"""An outlier jumps away and back by this multiple of the largest step among its neighbours, this many per side."""
VACUOUS_SHARE = 0.3
"""Share of a signal's range: a larger noise bound leaves little information."""
SCATTER_SPANS = 20
"""Minimum number of stretches of held inputs for judging the scatter from sample to sample."""


class Stretch(NamedTuple):
    """Samples that follow each other without a gap."""

    recording: int
    first: int
    """The step of its recording at which it begins."""
    outputs: FloatArray
    inputs: FloatArray


Signal = tuple[Stretch, FloatArray]
"""A stretch, and one of its outputs."""


def stretches(runs: Trajectories) -> list[Stretch]:
    """The recordings covered by runs or windows; every sample once."""
    found = []
    for recording in np.unique(runs.origins[:, 0]):
        mine = runs.origins[:, 0] == recording
        states, inputs = runs.states[mine], runs.inputs[mine]
        steps = runs.origins[mine, 1][:, None] + np.arange(runs.horizon)
        at, rows = np.unique(steps, return_index=True)
        now, after = (part.reshape(-1, runs.n_states)[rows] for part in (states[:, :-1], states[:, 1:]))
        held = inputs.reshape(-1, runs.n_inputs)[rows]
        for part in np.split(np.arange(len(at)), np.flatnonzero(np.diff(at) != 1) + 1):
            outputs = np.concatenate([now[part], after[part[-1:]]])
            found.append(Stretch(int(recording), int(at[part[0]]), outputs, held[part]))
    return found


def of_columns(runs: Trajectories, parts: Sequence[Stretch]) -> Iterator[Finding]:
    """All findings about the columns, one after another."""
    outputs = np.concatenate([part.outputs for part in parts])
    inputs = np.concatenate([part.inputs for part in parts])
    noise = runs.noise_bound.max(axis=0)
    for j, name in enumerate(runs.state_names):
        levels = Levels.of(outputs[:, j])
        yield from unused(name, levels, is_input=False)
        if len(levels.values) > 1:
            yield from saturated(name, levels)
            yield from coarse(name, levels, float(noise[j]))
            yield from noise_against_signal(name, levels, float(noise[j]))
            unexplained = float(noise[j] + runs.disturbance_bound[:, j].max())
            signals = [(part, part.outputs[:, j]) for part in parts]
            if len(levels.values) > FEW_LEVELS:
                yield from outliers(name, signals, unexplained, runs.shape.every)
            yield from scatter(name, signals, unexplained)
    for j, name in enumerate(runs.input_names):
        yield from unused(name, Levels.of(inputs[:, j]), is_input=True)


def percent(share: float) -> str:
    """For messages."""
    return f"{100.0 * share:.3g} %"


class Levels(NamedTuple):
    """The different values of a column, in order, and how often each occurs."""

    values: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, column: FloatArray) -> Levels:
        """Those of a column."""
        values, counts = np.unique(column, return_counts=True)
        return cls(values, counts.astype(np.float64))

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return int(self.counts.sum())

    @property
    def range(self) -> float:
        """From the smallest to the largest."""
        return float(self.values[-1] - self.values[0])


def unused(name: str, levels: Levels, *, is_input: bool) -> Iterator[Finding]:
    """A column that is constant or nearly so."""
    commonest = int(levels.counts.argmax())
    value, share = levels.values[commonest], levels.counts[commonest] / levels.n_samples
    if len(levels.values) == 1 and is_input:
        yield Finding(
            "warning",
            name,
            f"{name} is {value:.6g} in all samples: what another value would do was never seen; leave this input out "
            "if plans keep it there, or record runs in which it changes",
        )
    elif len(levels.values) == 1:
        yield Finding(
            "problem",
            name,
            f"{name} is {value:.6g} in all samples: a stuck or disconnected sensor tells nothing; leave this "
            "column out, or fix it and record again",
        )
    elif share >= UNUSED_SHARE and levels.n_samples >= FEW_SAMPLES:
        seen = "what it does was" if is_input else "whatever moves it was"
        yield Finding(
            "warning",
            name,
            f"{name} is {value:.6g} in {percent(share)} of the samples: {seen} hardly seen; record runs in which it "
            "changes, or leave it out",
        )


def saturated(name: str, levels: Levels) -> Iterator[Finding]:
    """Many samples exactly at an extreme."""
    if len(levels.values) <= FEW_LEVELS or levels.counts.max() >= UNUSED_SHARE * levels.n_samples:
        return
    for side, counts in (("minimum", levels.counts), ("maximum", levels.counts[::-1])):
        share, usual = counts[0] / levels.n_samples, counts[1 : 1 + FEW_LEVELS].mean()
        if share >= TIED_SHARE and counts[0] > TIED_TIMES * usual:
            value = levels.values[0 if side == "minimum" else -1]
            yield Finding(
                "warning",
                name,
                f"{name} is exactly {value:.6g}, its {side}, in {percent(share)} of the samples: a sensor or a tank "
                "that saturates hides how far the plant really went; leave these stretches out, or stay in range",
            )


def coarse(name: str, levels: Levels, noise_bound: float) -> Iterator[Finding]:
    """Few values, or steps that the noise bound does not cover."""
    if levels.n_samples < FEW_SAMPLES:
        return
    if len(levels.values) <= FEW_LEVELS:
        yield Finding(
            "warning",
            name,
            f"{name} has {len(levels.values)} different values only ({listed(levels.values)}): smooth functions "
            "describe switches badly; leave it out, or record the quantity behind it",
        )
    gaps = np.diff(levels.values)
    step = float(gaps.min())
    with np.errstate(over="ignore", invalid="ignore"):  # values on wildly different scales form no grid
        is_grid = bool((np.abs(gaps / step - np.round(gaps / step)) < ON_GRID).all())
    if is_grid and noise_bound < 0.499 * step:
        yield Finding(
            "problem",
            name,
            f"{name} was recorded in steps of {step:.3g}, so readings are off by up to half of that, but its noise "
            f"bound is {noise_bound:.3g}: raise it to {step / 2:.3g} and what the sensor itself is off by",
        )


def noise_against_signal(name: str, levels: Levels, noise_bound: float) -> Iterator[Finding]:
    """A noise bound that is zero, or large compared with everything recorded."""
    share = noise_bound / levels.range
    if noise_bound == 0.0:
        yield Finding(
            "warning",
            name,
            f"the noise bound of {name} is 0: recorded numbers are taken as exact, which only simulated ones are; give "
            "what the sensor may be off by",
        )
    elif share > VACUOUS_SHARE:
        yield Finding(
            "problem" if share >= 0.5 else "warning",
            name,
            f"the noise bound of {name}, {noise_bound:.3g}, is {percent(share)} of its recorded range of "
            f"{levels.range:.3g}: boxes will be about as wide as everything that was seen; record larger movements, "
            "or justify a smaller bound",
        )


def outliers(name: str, signals: Sequence[Signal], noise_bound: float, every: int) -> Iterator[Finding]:
    """Samples that jump away and back by far more than their neighbours move, and than noise explains."""
    usual = np.median(np.concatenate([np.abs(np.diff(signal)) for _, signal in signals]))
    least = max(2.0 * noise_bound, OUTLIER_TIMES * float(usual))
    found = [(part, signal, place) for part, signal in signals for place in _jumps(signal, least)]
    if found:
        part, signal, place = found[0]
        before, value, after = signal[place - 1 : place + 2]
        more = f" ({len(found)} such samples in all)" if len(found) > 1 else ""
        yield Finding(
            "warning",
            name,
            f"{name} goes from {before:.4g} to {value:.4g} and back to {after:.4g} at sample "
            f"{every * (part.first + place)} of recording {part.recording}{more}: a sensor glitch makes norm bounds "
            "large, or contradicts them; leave the stretch out, unless the plant really did that",
        )


def _jumps(signal: FloatArray, least: float) -> list[int]:
    """The indices of isolated samples."""
    moves = np.diff(signal)
    back = np.minimum(np.abs(moves[:-1]), np.abs(moves[1:]))
    places = np.flatnonzero((moves[:-1] * moves[1:] < 0.0) & (back > least)) + 1
    found = []
    for place in places.tolist():
        near = [*moves[max(0, place - 1 - NEIGHBOURS) : place - 1], *moves[place + 1 : place + 1 + NEIGHBOURS]]
        aside = abs(signal[place + 1] - signal[place - 1])
        if near and back[place - 1] > OUTLIER_TIMES * max(aside, *map(abs, near)):
            found.append(place)
    return found


def scatter(name: str, signals: Sequence[Signal], noise_bound: float) -> Iterator[Finding]:
    """Noise that shows where inputs are held: third differences leave little of a smooth signal."""
    found = [np.empty(0)]
    for part, signal in signals:
        if len(part.inputs) >= 4:
            is_held = (np.diff(part.inputs, axis=0) == 0.0).all(axis=1)
            calm = is_held[:-2] & is_held[1:-1] & is_held[2:]  # including the previous step's input
            found.append(np.abs(np.diff(signal, 3))[1:][calm])
    differences = np.concatenate(found)
    if len(differences) < SCATTER_SPANS:
        return
    deviation = float(np.median(differences)) / (0.6745 * np.sqrt(20.0))  # of normal noise
    if 0.0 < noise_bound < deviation:
        yield Finding(
            "warning",
            name,
            f"{name} scatters by about {deviation:.2g} (standard deviation) from sample to sample while inputs are "
            f"held, but its noise bound is {noise_bound:.2g}: unless the plant itself moves that fast, raise the "
            "bound to the sensor's worst-case error",
        )
