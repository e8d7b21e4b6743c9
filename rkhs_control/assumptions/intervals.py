"""What recorded runs say about one state after some steps: intervals, widened where arguments are uncertain."""

from __future__ import annotations

import math

import numpy as np

from ..arithmetic.rounding import UNDERFLOW, UNIT_ROUNDOFF, enlarged
from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..kernels.base import Kernel
from .priors import Prior, residual


def measurement_bound(runs: Trajectories, n: int, i: int) -> float:
    """How far a recorded state may be from its prediction: sensor noise and disturbances."""
    noise, disturbance = float(runs.noise_bound[n - 1, i]), float(runs.disturbance_bound[n - 1, i])
    return noise if disturbance == 0.0 else enlarged(noise + disturbance, 1)


def step_observations(
    runs: Trajectories, n: int, i: int, bound: float | FloatArray | None = None, prior: Prior = None
) -> Observations:
    """State `i` after `n` steps as a function of `runs.arguments(n)`, minus the prior."""
    Z, half = runs.arguments(n), measurement_bound(runs, n, i) if bound is None else bound
    if prior is None:
        return Observations(Z, runs.states[:, n, i], half)
    return Observations(Z, *residual(prior, Z, runs.states[:, n, i], half))


def uncertainty(kernel: Kernel, norm: float, prior: Prior, noise: FloatArray, n_known: int) -> float:
    """How far the plant's value may be from that at a history which is off by `noise`, rounded up."""
    by_kernel = displacement(kernel, norm, noise, n_known)
    return by_kernel if prior is None else enlarged(by_kernel + prior.change(noise), 1)


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
