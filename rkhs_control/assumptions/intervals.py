"""What recorded runs say about one state after some steps: intervals, widened where arguments are uncertain."""

from __future__ import annotations

import math

import numpy as np

from ..arithmetic.rounding import UNDERFLOW, UNIT_ROUNDOFF, enlarged
from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..kernels.base import Kernel


def step_observations(
    runs: Trajectories, n: int, i: int, noise_bound: float | FloatArray | None = None
) -> Observations:
    """State `i` after `n` steps as a function of `runs.arguments(n)`; the noise bound of the runs by default."""
    noise = runs.noise_bound[n - 1, i] if noise_bound is None else noise_bound
    return Observations(runs.arguments(n), runs.states[:, n, i], noise)


def widened_observations(runs: Trajectories, n: int, i: int, kernel: Kernel, norm: float) -> Observations:
    """The same with each interval widened by what uncertain initial states can do to a function of this norm."""
    widening = displacement(kernel, norm, runs.initial_state_noise, n * runs.n_inputs)
    return step_observations(runs, n, i, enlarged(float(runs.noise_bound[n - 1, i] + widening), 1))


def displacement(kernel: Kernel, norm: float, noise: FloatArray, n_known: int) -> float:
    """The largest `|f(z) - f(z')|` for `||f|| <= norm` and `z'` within `noise` in the first coordinates, rounded up.

    It is `norm || k_z - k_z' ||` at the corner, because kernels fall with every coordinate's distance; the `n_known`
    coordinates that follow are the same.
    """
    corner = np.concatenate([noise, np.zeros(n_known)])[None, :]
    fall = float(kernel.fall(corner, np.zeros_like(corner))[0, 0])
    if np.any(noise):
        fall += UNDERFLOW * kernel.variance
    return norm * math.sqrt(2.0 * fall) * (1.0 + kernel.rounding(corner.shape[1]) + 8.0 * UNIT_ROUNDOFF)
