"""A first noise bound from recordings: residuals of a local smoother, and how coarsely values were recorded.

The result is a starting point, not an assumption that anyone has made. A smoother sees what changes from sample to
sample, and nothing else that a noise bound must cover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arithmetic.printing import rounded_up
from ..data.arrays import FloatArray, IndexArray, listed, require_finite
from ..data.fields import checked_names
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..data.windows import Recording, checked_recording
from ..errors import InputError, SolverError
from .norms import ConsistencyFrontier, consistency_frontier
from .priors import AffinePrior, residual
from .quantisation import quantisation_step
from .regression import cross_validate

HALF_WINDOWS = (2, 3, 4, 5, 8, 12, 20)
"""Candidate numbers of samples on either side that a parabola is fitted to; chosen per output."""

TYPICAL = 0.99
"""Share of the samples that the typical residual covers."""

_USUAL = 0.95
"""Windows are compared by this quantile of the residuals, so that outliers do not decide between them."""
_FAR = 3.0
"""Samples beyond this multiple of the usual residual are far beyond the rest (5.9 standard deviations, if normal)."""
_MOST_LEVERAGE = 0.5
"""A sample with more leverage on its own fit than this (an input changes just there) is not judged."""
_DEPENDENT = 1e-6
"""Inputs that change by less than this share of their largest change count as constant within a window."""
_ROUNDING = 1e-12
"""Residuals below this share of the largest value are rounding errors."""
_STEP_ACCURACY = 1e-6
_BLOCK = 20_000  # samples at a time
_FRONTIER_SAMPLES = 150
_FRONTIER_SCALES, _FRONTIER_RIDGES = (0.0625, 0.125, 0.25, 0.5, 1.0), (1e-6, 1e-4, 1e-2, 1e-1)
_FRONTIER_DEPTHS = (0.2, 0.5, 1.0)  # of the proposed bound; the frontier is followed as far down as rounding allows


class Place(NamedTuple):
    """A sample: the number of its recording, and its row in it."""

    recording: int
    sample: int

    def __str__(self) -> str:
        return f"recording {self.recording}, sample {self.sample}"


@dataclass(frozen=True)
class Residuals:
    """How far the recorded values of one output are from what their neighbours suggest."""

    largest: float
    where: Place
    """Of the largest."""
    typical: float
    """Bound kept by the share `TYPICAL` of the samples."""
    n_samples: int
    """Number of samples judged."""
    window: int
    """Number of samples per fit, centred on the one in question."""
    far: tuple[Place, ...]
    """Where samples lie far beyond the rest, largest first; one per window."""
    rest: float
    """The largest elsewhere."""


@dataclass(frozen=True, eq=False)
class NoiseProposal:
    """Noise bounds to start from, one per output, and what they are based on."""

    bounds: FloatArray
    """`(n_outputs,)`: the largest residual, or half the quantisation step if that is larger, rounded up."""
    quantisation: FloatArray
    """`(n_outputs,)`: the quantisation step of the recorded values; 0 where none was found."""
    residuals: tuple[Residuals, ...]
    state_names: tuple[str, ...]
    recordings: tuple[tuple[FloatArray, FloatArray], ...]

    def __repr__(self) -> str:
        pairs = map("{}: {:g}".format, self.state_names, self.bounds)
        return f"NoiseProposal({listed(pairs)}; a starting point, see explain())"

    def explain(self) -> str:
        """The proposal for each output, the reasons, and what no smoother can see."""
        return "\n".join([*map(self._explained, range(len(self.bounds))), _CAVEAT])

    def _explained(self, i: int) -> str:
        name, found, step = self.state_names[i], self.residuals[i], float(self.quantisation[i])
        if self.bounds[i] == 0.0:
            return f"{name}: nothing is proposed; the recordings show no noise at all, as of a sensor that is stuck."
        text = (
            f"{name}: {self.bounds[i]:g}. The largest distance of a recorded value from a parabola through those "
            f"around it is {found.largest:.3g}; {TYPICAL:.0%} of {found.n_samples} samples are within "
            f"{found.typical:.3g} (windows of {found.window} samples, with a bend wherever an input changes)."
        )
        if step:
            text += f" Values are recorded in steps of {step:.4g}: no bound below half of that, {step / 2:.3g}, can do."
        if found.far:
            text += (
                f" {_counted(found.far)} far beyond the rest: outliers, or moments at which the plant moves faster "
                f"than a parabola. Elsewhere the largest distance is {found.rest:.3g}."
            )
        return text

    @cached_property
    def frontiers(self) -> tuple[ConsistencyFrontier | None, ...]:
        """Per output, the least norm for every noise bound; below the noise it rises steeply.

        It is that of a function of time and of the accumulated inputs, minus an affine one, on up to 150 samples around
        the largest residual; None where nothing is proposed, or rounding hides it. `noise_figure` draws them.
        """
        return tuple(self._frontier(i) if bound > 0.0 else None for i, bound in enumerate(self.bounds.tolist()))

    def _frontier(self, i: int) -> ConsistencyFrontier | None:
        bound, where = float(self.bounds[i]), self.residuals[i].where
        y, u = self.recordings[where.recording]
        first = max(0, min(where.sample - _FRONTIER_SAMPLES // 2, len(y) - _FRONTIER_SAMPLES))
        rows = np.arange(first, min(first + _FRONTIER_SAMPLES, len(y)))
        Z = np.column_stack([rows, _added_up(u)[rows]])
        spread = Z.std(axis=0)
        moving = spread > _DEPENDENT * np.abs(Z).max(axis=0)
        Z, spread = Z[:, moving], spread[moving]
        data = Observations(Z, *residual(AffinePrior.fitted(Z, y[rows, i]), Z, y[rows, i], bound))
        ridges = [share * max(float(data.centre.var()), bound**2) for share in _FRONTIER_RIDGES]
        scales = [tuple((share * spread).tolist()) for share in _FRONTIER_SCALES]
        kernel = cross_validate(data, scales, ridges, folds=min(5, len(data))).kernel
        for depth in _FRONTIER_DEPTHS:
            try:
                return consistency_frontier(data, kernel, depth * bound)
            except SolverError:
                continue
        return None


_CAVEAT = (
    "These are starting points, read off the recordings, without any guarantee. A smoother does not see what "
    "changes slowly: drift, bias, calibration errors, disturbances that the plant follows; for these consult the "
    "data sheet, and see disturbance_bound. And it takes for noise whatever the plant itself does within a few samples."
)


def _counted(places: Sequence[Place]) -> str:
    named = "; ".join(map(str, places[:3]))
    if len(places) == 1:
        return f"One sample ({named}) lies"
    return f"{len(places)} samples ({named}{'; ...' if len(places) > 3 else ''}) lie"


def propose_noise_bound(
    recordings: Sequence[Recording] | Trajectories, *, state_names: Sequence[str] = ()
) -> NoiseProposal:
    """Propose noise bounds to start from, per output, read off the recordings.

    Each value is compared with a parabola fitted to the samples on both sides but not to itself (by the leave-one-out
    formula), with a bend wherever an input changes. The proposal is the largest distance, or half the quantisation step
    if that is larger, rounded up to two digits. It includes how far noise moves the fit: with uniform noise on smooth
    signals of 60 to 5,000 samples, it came to 0.9 to 2.1 times the true noise bound.

    Parameters
    ----------
    recordings : sequence of (outputs, inputs), or Trajectories
        As for `Trajectories.from_recordings`; or whole runs, not windows.
    state_names : names of the outputs, for the explanation; those of `Trajectories` are known
    """
    runs = _checked(recordings)
    if isinstance(recordings, Trajectories):
        state_names = state_names or recordings.state_names
    n_outputs = runs[0][0].shape[1]
    residuals = _residuals(runs)
    steps = [quantisation_step(np.concatenate([y[:, i] for y, _ in runs])) for i in range(n_outputs)]
    sizes = np.max([np.abs(y).max(axis=0) for y, _ in runs], axis=0).tolist()
    bounds = [
        _rounded(max(found.largest, q / 2.0), size) for found, q, size in zip(residuals, steps, sizes, strict=True)
    ]
    return NoiseProposal(
        bounds=np.array(bounds),
        quantisation=np.array(steps),
        residuals=residuals,
        state_names=checked_names(state_names, "state_names", "x", n_outputs),
        recordings=runs,
    )


def _rounded(bound: float, size: float) -> float:
    """Round up to two digits; steps are known to about six, and half of a round step stays as it is."""
    return float(rounded_up(bound * (1.0 - _STEP_ACCURACY), 2)) if bound > _ROUNDING * size else 0.0


def _checked(recordings: Sequence[Recording] | Trajectories) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Outputs and inputs of every recording, finite, all with the same columns."""
    if isinstance(recordings, Trajectories):
        if recordings.is_windowed:
            raise InputError("recordings must be whole runs, but these are windows; give what they were cut from")
        return tuple(zip(recordings.states, recordings.inputs, strict=True))
    runs = tuple(checked_recording(recording, number) for number, recording in enumerate(recordings))
    if not runs:
        raise InputError("recordings must hold at least one (outputs, inputs); got none")
    columns = (runs[0][0].shape[1], runs[0][1].shape[1])
    for number, (y, u) in enumerate(runs):
        if (y.shape[1], u.shape[1]) != columns:
            raise InputError(
                f"run {number} must have {columns[0]} outputs and {columns[1]} inputs, as run 0 has; "
                f"got {y.shape[1]} and {u.shape[1]}"
            )
        require_finite(y, f"states of run {number}")
        require_finite(u, f"inputs of run {number}")
    return runs


# ---- the smoother


class _Judged(NamedTuple):
    """Leave-one-out residuals by windows of one length."""

    sizes: FloatArray
    """`(n_judged, n_outputs)`, without their signs."""
    places: IndexArray
    """`(n_judged, 2)`: recording and sample."""


def _residuals(runs: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[Residuals, ...]:
    longest = max(len(y) for y, _ in runs)
    tried = {half: _judged(runs, half) for half in HALF_WINDOWS if 2 * half < longest}
    most = max((len(judged.sizes) for judged in tried.values()), default=0)
    if most == 0:
        n_inputs = runs[0][1].shape[1]
        raise InputError(
            f"recordings are too short to tell noise from signal: the longest has {longest} samples, and a fit around "
            f"a sample takes at least {2 * HALF_WINDOWS[0] + 1}, and about {2 * (3 + 2 * n_inputs)} where the "
            f"{n_inputs} inputs change all the time"
        )
    tried = {half: judged for half, judged in tried.items() if 2 * len(judged.sizes) >= most}
    found = []
    for i in range(runs[0][0].shape[1]):
        usual = {half: float(np.quantile(judged.sizes[:, i], _USUAL)) for half, judged in tried.items()}
        half = min(usual, key=usual.__getitem__)
        found.append(_summary(tried[half], i, half, usual[half]))
    return tuple(found)


def _summary(judged: _Judged, i: int, half: int, usual: float) -> Residuals:
    sizes = judged.sizes[:, i]
    order = np.argsort(-sizes, kind="stable")
    places = [Place(*place) for place in judged.places.tolist()]
    far: list[Place] = []
    moved: set[tuple[int, int]] = set()  # an outlier moves the fits around it, so that their samples also seem far
    for row in order[: int((sizes > _FAR * usual).sum())]:
        if places[row] not in moved:
            far.append(places[row])
            run, sample = places[row]
            moved.update((run, near) for near in range(sample - half, sample + half + 1))
    return Residuals(
        largest=float(sizes.max()),
        where=places[order[0]],
        typical=float(np.quantile(sizes, TYPICAL)),
        n_samples=len(sizes),
        window=2 * half + 1,
        far=tuple(far),
        rest=float(sizes[[place not in moved for place in places]].max(initial=0.0)),
    )


def _judged(runs: Sequence[tuple[FloatArray, FloatArray]], half: int) -> _Judged:
    sizes, places = [np.empty((0, runs[0][0].shape[1]))], [np.empty((0, 2), dtype=np.int64)]
    largest_input = np.max([np.abs(u - u.mean(axis=0)).max(axis=0, initial=0.0) for _, u in runs], axis=0)
    negligible = _DEPENDENT * np.concatenate([half * largest_input, half**2 * largest_input])
    for number, (y, u) in enumerate(runs):
        for middles in _blocks(len(y), half):
            left_out, leverage = _left_out(y, u, middles, half, negligible)
            judged = leverage <= _MOST_LEVERAGE
            sizes.append(np.abs(left_out[judged]))
            places.append(np.column_stack([np.full(judged.sum(), number), middles[judged]]))
    return _Judged(np.concatenate(sizes), np.concatenate(places))


def _blocks(n: int, half: int) -> Iterator[IndexArray]:
    """The samples with `half` others on either side, in batches."""
    for first in range(half, n - half, _BLOCK):
        yield np.arange(first, min(first + _BLOCK, n - half))


def _added_up(u: FloatArray) -> FloatArray:
    """Cumulative sums of the inputs minus their mean: a straight line with a bend wherever an input changes."""
    return np.concatenate([np.zeros((1, u.shape[1])), np.cumsum(u - u.mean(axis=0), axis=0)])


def _bends(u: FloatArray, middles: IndexArray, half: int) -> FloatArray:
    """By window and sample: inputs summed once, and summed twice.

    This is a first-order plant's response to a changing input, to second order in time; zero where no input changes.
    """
    changes = u[middles[:, None] + np.arange(-half, half)] - u[middles - 1][:, None]
    once = np.concatenate([np.zeros((len(middles), 1, u.shape[1])), np.cumsum(changes, axis=1)], axis=1)
    return np.concatenate([once, np.cumsum(once, axis=1) - once], axis=2)


def _left_out(
    y: FloatArray, u: FloatArray, middles: IndexArray, half: int, negligible: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`r_i / (1 - h_ii)`, the distance of a sample from the fit to the others in its window, and `h_ii`.

    The fit is a parabola in time plus the bends of the inputs. Its columns are orthonormalised one by one, for all
    windows at once; `negligible` is what is left of an input that is constant in a window.
    """
    around = middles[:, None] + np.arange(-half, half + 1)
    parabolas = np.linalg.qr(np.vander(np.arange(-half, half + 1) / half, 3))[0]
    projection = parabolas @ parabolas.T
    rest = y[around] - y[middles][:, None]  # exactly zero where an output is constant
    rest = rest - np.einsum("ab,nbi->nai", projection, rest)
    leverage = np.full(len(middles), projection[half, half])
    bends, columns = _bends(u, middles, half), list[FloatArray]()
    for j, least in enumerate(negligible):
        column = bends[:, :, j] - bends[:, :, j] @ projection
        for other in columns:
            column = column - other * np.sum(other * column, axis=1, keepdims=True)
        length = np.linalg.norm(column, axis=1, keepdims=True)
        column = np.where(length > least, column / np.where(length > least, length, 1.0), 0.0)
        rest = rest - column[:, :, None] * np.einsum("na,nai->ni", column, rest)[:, None, :]
        leverage += column[:, half] ** 2
        columns.append(column)
    return rest[:, half] / np.maximum(1.0 - leverage, 1e-9)[:, None], leverage
