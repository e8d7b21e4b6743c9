"""Recorded samples that no smooth function explains: wrong readings, as shown by least norms under a default kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..data.arrays import FloatArray, IndexArray
from ..data.trajectories import Trajectories
from ..kernels.radial import SquaredExponential
from .findings import Finding
from .intervals import measurement_bound
from .lengthscales import candidates_for
from .outliers import NormDriver, sample_drivers
from .priors import AffinePrior

MANY_TIMES = 10.0
"""Factor by which the least norm must fall per sample: kinks of clean plants (a tank that runs empty) reach 8."""
_MOST_RUNS = 200
"""Maximum number of runs examined."""
_RUNS_PER_DIMENSION, _FEW_RUNS = 3, 30
"""Fewer runs say nothing about single samples."""
_MIDDLE, _SHORTER = 2, 1
"""Default lengthscales to use: the middle one judges, and a shorter one must blame the same sample."""

Drivers = tuple[NormDriver, ...]


def of_norms(runs: Trajectories) -> Iterator[Finding]:
    """Samples without which the least norm after one step falls many times; the first of those sharing windows."""
    n_dims = runs.arguments(1).shape[1]
    if len(runs) < max(_FEW_RUNS, _RUNS_PER_DIMENSION * n_dims):
        return
    part, reach = runs.subset(_looked_at(runs)), runs.shape.output_lags * runs.shape.every
    found = [(drivers, i) for i in range(runs.n_states) if (drivers := _drivers(part, i))]
    named: list[NormDriver] = []
    for drivers, i in sorted(found, key=lambda pair: pair[0][0].place or (0, 0)):
        if not any(_is_cause(other, drivers[0], reach) for other in named):
            yield _finding(runs.state_names[i], drivers)
        named.append(drivers[0])


def _finding(name: str, drivers: Drivers) -> Finding:
    return Finding(
        "warning",
        name,
        f"{'; '.join(driver.text for driver in drivers)} (with a default kernel): a wrong reading, or a jump that no "
        "input explains, makes norm bounds large, or contradicts them; look there, and leave the stretch out, or raise "
        "the noise bound if the sensor can be that far off",
    )


def _is_cause(first: NormDriver, second: NormDriver, reach: int) -> bool:
    """Whether windows that end with the second sample have the first in their histories."""
    if first.place is None or second.place is None or first.place.recording != second.place.recording:
        return False
    return 0 <= second.place.sample - first.place.sample <= reach


def _drivers(runs: Trajectories, i: int) -> Drivers:
    """Drivers of one output, up to the one without which the least norm falls most; none if it does not fall far.

    Where it stays beyond the range of the output, all readings are off by more than the noise bound, not just a few.
    """
    if measurement_bound(runs, 1, i) == 0.0:
        return ()  # exact readings do not come from a sensor
    found = _default_drivers(runs, i, _MIDDLE)
    if not found:
        return ()
    found = found[: 1 + int(np.argmax([driver.factor for driver in found]))]
    falls_far = math.prod(driver.factor for driver in found) > MANY_TIMES ** len(found)
    if not falls_far or found[-1].after > np.ptp(runs.states[:, 1, i]):
        return ()
    blamed = {driver.place for driver in _default_drivers(runs, i, _SHORTER)}
    return found if found[0].place in blamed else ()


def _default_drivers(runs: Trajectories, i: int, scale: int) -> Drivers:
    """With an affine prior and one of the default lengthscales."""
    Z = runs.arguments(1)
    kernel = SquaredExponential(candidates_for(None, Z)[scale])
    return sample_drivers(runs, 1, i, kernel, _plane(Z, runs.states[:, 1, i]))


def _looked_at(runs: Trajectories) -> IndexArray:
    """Which runs to examine if there are many: worst residuals of an affine fit, runs sharing samples, and others."""
    if len(runs) <= _MOST_RUNS:
        return np.arange(len(runs))
    Z, y = runs.arguments(1), runs.states[:, 1]
    rest = np.abs(np.stack([values - _plane(Z, values)(Z) for values in y.T]))
    misfit = (rest / np.maximum(rest.mean(axis=1, keepdims=True), 1e-300)).max(axis=0)
    reach = runs.shape.output_lags
    worst = np.argsort(-misfit)[: _MOST_RUNS // 2 // (2 * reach + 1)]
    recordings, firsts = runs.origins.T
    is_near = (recordings[:, None] == recordings[worst]) & (np.abs(firsts[:, None] - firsts[worst]) <= reach)
    spread = np.linspace(0, len(runs) - 1, _MOST_RUNS // 2).astype(np.int64)
    return np.union1d(np.flatnonzero(is_near.any(axis=1)), spread)


def _plane(Z: FloatArray, y: FloatArray) -> AffinePrior:
    """Affine fit by least squares: it is only used where it was fitted."""
    middle, spread = Z.mean(axis=0), Z.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    slopes = np.linalg.lstsq((Z - middle) / spread, y - y.mean(), rcond=1e-6)[0] / spread
    return AffinePrior(float(y.mean() - slopes @ middle), tuple(slopes.tolist()))
