"""Which few samples drive the least norm: what would have to be left out for a much smoother function to fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..data.arrays import FloatArray, distinct_rows
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..engine.gram import Gram
from ..engine.least_norm import SEARCH_NUGGETS, LeastNorm, least_norm_along
from ..errors import InputError
from ..kernels.base import Kernel
from .intervals import measurement_bound
from .noise import Place
from .priors import Prior, residual

GAIN = 1.5
"""A sample drives the least norm if the norm falls by more than this factor without it."""

_HOPEFUL = 1.15
"""Where the best sample gains less, a few more would not gain enough: of three equal outliers, the first gains 1.22."""
_HIDDEN = 3.0
"""A least norm below this multiple of that of a bump as high as the noise bound counts as minimal."""
_CANDIDATES = 4
"""Number of the most promising samples that are left out in turn."""
_EQUAL = 1.05
"""Least norms within this factor of each other do not show which of two samples is to blame."""

GivenKernels = Kernel | Sequence[Sequence[Kernel]]
"""One for all, or one per step and state; priors likewise."""


@dataclass(frozen=True)
class NormDriver:
    """A sample, and the least norm with and without it (and without those named before it)."""

    name: str
    """What is left out: a row of the data, or a sample in a recording."""
    rows: tuple[int, ...]
    """Rows of `data.X`: that row, or those of all windows that contain the sample."""
    before: float
    after: float
    place: Place | None = None
    """The recorded sample; where runs are whole, the number of the run and the step."""
    norm_name: str = "the least norm"
    is_first: bool = True
    hidden: float = 0.0
    """A least norm below this counts as minimal: noise could hide that much."""

    @property
    def factor(self) -> float:
        """The factor by which the least norm falls, as far as noise allows."""
        after = max(self.after, self.hidden)
        return self.before / after if after > 0.0 else math.inf

    @property
    def text(self) -> str:
        """A sentence without its end: `without row 812 the least norm falls from 61 to 4`."""
        also = "" if self.is_first else " as well"
        return f"without {self.name}{also} {self.norm_name} falls from {self.before:.3g} to {self.after:.3g}"


class _Group(NamedTuple):
    """What is left out together."""

    name: str
    rows: tuple[int, ...]
    own: tuple[int, ...]
    """Rows that have it as their output: the others have it among their arguments."""
    place: Place | None = None


def norm_drivers(data: Observations, kernel: Kernel, most: int = 3) -> tuple[NormDriver, ...]:
    """The few samples without which the least norm falls most, in that order; none if no small set does it.

    Samples are left out one after another, always the one, among the most promising, that leaves the smallest least
    norm through the rest. As many are named, up to `most`, as lower it by a factor of 1.5 each on average: of two equal
    outliers, the first alone lowers it little. Rows are those of `data.X`, the distinct inputs in order of first
    appearance. Norms are computed in doubles: they distinguish samples and prove nothing.
    """
    return _driving(data, kernel, most, lambda row: [_Group(f"row {row}", (row,), (row,))])


def sample_drivers(
    runs: Trajectories, n: int, i: int, kernel: Kernel, prior: Prior = None, most: int = 3
) -> tuple[NormDriver, ...]:
    """The same for recorded samples, judged by the least norm of state `i` after `n` steps.

    A sample is left out with all windows that have it in their history, or after `n` steps. Intervals allow for noise,
    disturbances and the effect of uncertain histories on the prior; otherwise, recorded histories count as exact. So
    give a prior where they are uncertain: without one, ordinary noise in histories drives the norm.
    """
    data, rows = _intervals(runs, n, i, prior)
    touched = [
        [(recording, first + n), *((recording, first - lag) for lag in range(runs.shape.output_lags))]
        for recording, first in runs.origins.tolist()
    ]
    rows_of: dict[tuple[int, int], set[int]] = {}
    samples_of: dict[int, list[tuple[int, int]]] = {}
    for row, samples in zip(rows, touched, strict=True):
        samples_of.setdefault(row, []).extend(samples)
        for sample in samples:
            rows_of.setdefault(sample, set()).add(row)
    ends: dict[tuple[int, int], list[int]] = {}
    for row, samples in zip(rows, touched, strict=True):
        ends.setdefault(samples[0], []).append(row)

    def groups(row: int) -> Iterable[_Group]:
        for sample in samples_of[row]:
            place = Place(sample[0], sample[1] * runs.shape.every)
            name = _sample_name(runs, i, n if sample in ends else None, place)
            yield _Group(name, tuple(sorted(rows_of[sample])), tuple(ends.get(sample, ())), place)

    return _driving(data, kernel, most, groups, f"the least norm of {runs.state_names[i]} at step {n}")


def norm_outliers(
    runs: Trajectories,
    kernels: GivenKernels,
    priors: Prior | Sequence[Sequence[Prior]] = None,
    *,
    step: int = 1,
    most: int = 3,
) -> list[str]:
    """Recorded samples that drive the least norms of the states after `step` steps, one sentence each, worst first.

    A sample that is wrong in one output also drives the norms of others whose histories contain it: it is named once,
    with the output whose least norm falls most. `kernels` and `priors` are one for all, or one per step and state, as
    returned by `select_assumptions`.
    """
    if not 1 <= step <= runs.horizon:
        raise InputError(f"step must be 1 to {runs.horizon}; got {step}")
    worst: dict[Place | None, tuple[float, str]] = {}
    for i in range(runs.n_states):
        kernel = kernels if isinstance(kernels, Kernel) else kernels[step - 1][i]
        prior = priors[step - 1][i] if isinstance(priors, Sequence) else priors
        found = sample_drivers(runs, step, i, kernel, prior, most)
        factor = math.prod(driver.factor for driver in found)
        for driver in found:
            if factor > worst.get(driver.place, (0.0, ""))[0]:
                worst[driver.place] = (factor, driver.text)
    ordered = sorted(worst.values(), key=lambda pair: -pair[0])
    return [text for _, text in ordered]


def _driving(
    data: Observations,
    kernel: Kernel,
    most: int,
    groups: Callable[[int], Iterable[_Group]],
    norm_name: str = "the least norm",
) -> tuple[NormDriver, ...]:
    """Greedily; `groups` are what may be left out on account of a row."""
    if most < 1:
        raise InputError(f"most must be at least 1; got {most}")
    gram, lower, upper = Gram(data.X, kernel), data.lower, data.upper
    widths = (upper - lower)[np.isfinite(upper - lower)]
    hidden = _HIDDEN * float(np.median(widths)) / 2.0 / math.sqrt(kernel.variance) if len(widths) else 0.0
    for added in SEARCH_NUGGETS:
        present = least_norm_along(gram.with_added(added), lower, upper)
        if present.is_complete:
            break
    else:
        return ()  # rounding hides the least norm and its drivers
    found: list[NormDriver] = []
    while len(found) < most and present.norm > hidden:
        tried = [
            (least_norm_along(present.gram, *_opened(lower, upper, group.rows)), group)
            for group in _candidates(present, groups)
        ]
        best = _likeliest(present, [(left, group) for left, group in tried if left.is_complete], hidden)
        if best is None or present.norm < _HOPEFUL * best[0].norm:
            break
        left, group = best
        norms = (present.norm, left.norm)
        found.append(NormDriver(group.name, group.rows, *norms, group.place, norm_name, not found, hidden))
        lower, upper = _opened(lower, upper, group.rows)
        present = left
    gains = [driver.factor for driver in found]
    while gains and not (gains[-1] > GAIN and math.prod(gains) > GAIN ** len(gains)):
        gains.pop()
    return tuple(found[: len(gains)])


def _likeliest(
    present: LeastNorm, tried: list[tuple[LeastNorm, _Group]], hidden: float
) -> tuple[LeastNorm, _Group] | None:
    """The candidate that leaves the least norm; among near ties, the sample whose own output has the most weight."""
    if not tried:
        return None
    least = max(min(left.norm for left, _ in tried), hidden)
    weights = dict(zip(present.indices.tolist(), np.abs(present.weights).tolist(), strict=True))
    equals = [(left, group) for left, group in tried if left.norm <= _EQUAL * least]
    return max(equals, key=lambda pair: max((weights.get(row, 0.0) for row in pair[1].own), default=0.0))


def _candidates(present: LeastNorm, groups: Callable[[int], Iterable[_Group]]) -> list[_Group]:
    """The few candidates that lower the norm most while all others stay at the ends of their intervals.

    Without the conditions `G` the square of the norm falls by `w_G' [(K^-1)_GG]^-1 w_G`.
    """
    inverse = np.linalg.pinv(present.gram.matrix(present.indices), hermitian=True)
    position = {row: place for place, row in enumerate(present.indices.tolist())}
    falls: dict[_Group, float] = {}
    for group in dict.fromkeys(group for row in position for group in groups(row)):
        G = [position[row] for row in group.rows if row in position]
        w = present.weights[G]
        falls[group] = float(w @ np.linalg.lstsq(inverse[np.ix_(G, G)], w, rcond=None)[0])
    return sorted(falls, key=lambda group: -falls[group])[:_CANDIDATES]


def _opened(lower: FloatArray, upper: FloatArray, rows: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """The data with some of the intervals removed."""
    low, high = lower.copy(), upper.copy()
    low[list(rows)], high[list(rows)] = -np.inf, np.inf
    return low, high


def _intervals(runs: Trajectories, n: int, i: int, prior: Prior) -> tuple[Observations, list[int]]:
    """Intervals allowing for noise, disturbances and the prior's share of uncertain histories; and each window's row.

    Windows with the same argument may contradict each other, because histories are uncertain; the interval is then what
    lies between theirs.
    """
    half = measurement_bound(runs, n, i) + (0.0 if prior is None else prior.change(runs.initial_state_noise))
    Z = runs.arguments(n)
    values, halves = residual(prior, Z, runs.states[:, n, i], half)
    first, rows = distinct_rows(Z)
    lower, upper = np.full(len(first), -np.inf), np.full(len(first), np.inf)
    np.maximum.at(lower, rows, values - halves)
    np.minimum.at(upper, rows, values + halves)
    data = Observations.from_intervals(Z[first], np.minimum(lower, upper), np.maximum(lower, upper))
    return data, rows.tolist()


def _sample_name(runs: Trajectories, i: int, n: int | None, place: Place) -> str:
    """Where a sample is: `n` steps after the beginning of a window, or only in histories."""
    state = runs.state_names[i]
    if not runs.is_windowed:
        return f"run {place.recording}, step {place.sample}" + ("" if n is None else f", {state}")
    if n is None:
        return f"{place} (in histories alone)"
    return f"{place}, {state} (step {n} of the window that begins at {place.sample - n * runs.shape.every})"
