"""The ground truth of the paper's Examples 1 and 2: one component of a Henon map with a sinusoidal force.

The data of Example 1 can be reproduced to the digit: those of the tables and surfaces come from Python's own generator
with seed 1, those of the slice from the Mersenne Twister of MATLAB (and of older NumPy), also with seed 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from ..data.arrays import FloatArray
from ..data.observations import Observations

LIMIT = 10.0
"""The domain is the square `[-LIMIT, LIMIT]^2`."""
LENGTHSCALE = 5.0
"""The lengthscale of the squared exponential in the paper."""
NORM_BOUND = 1200.0
"""The norm bound in the paper."""


Designs = dict[str, tuple[FloatArray, FloatArray]]
"""The inputs and outputs of the designs `grid` and `random`."""


def truth(Z: FloatArray) -> FloatArray:
    """`1 - 0.8 z1^2 + z2 + 8 sin(0.8 z2)` at the rows of `Z`, shape `(n, 2)`."""
    return 1.0 - 0.8 * Z[:, 0] ** 2 + Z[:, 1] + 8.0 * np.sin(0.8 * Z[:, 1])


def grid(n_per_axis: int) -> FloatArray:
    """An equidistant grid over the domain, with `z1` varying slowest."""
    axis = np.linspace(-LIMIT, LIMIT, n_per_axis)
    return np.array([(a, b) for a in axis for b in axis])


def table_data(noise: float) -> Designs:
    """The inputs and outputs of the paper's tables.

    Noise is normal with standard deviation `noise / 2.58`, clipped to `+-noise`.
    """
    return _drawn_with_python(lambda generator: min(max(generator.normalvariate(0.0, noise / 2.58), -noise), noise))


def surface_data(noise: float) -> Designs:
    """The inputs and outputs of the paper's surfaces, with uniform noise."""
    return _drawn_with_python(lambda generator: generator.uniform(-noise, noise))


def slice_data(noise: float) -> Designs:
    """The inputs and outputs of the paper's slice, with uniform noise: different draws, with `z2` varying slowest."""
    gridded, draws = grid(10)[:, ::-1], _mersenne_twister(300)
    Z = LIMIT * draws[:200].reshape(100, 2)
    return {
        "grid": (gridded, truth(gridded) + noise * draws[:100]),
        "random": (Z, truth(Z) + noise * draws[200:]),
    }


def _drawn_with_python(draw_noise: Callable[[random.Random], float]) -> Designs:
    """First 100 random inputs, each with its noise, then the noise of the grid."""
    generator = random.Random(1)
    rows = []
    for _ in range(100):
        z1, z2 = generator.uniform(-LIMIT, LIMIT), generator.uniform(-LIMIT, LIMIT)
        rows.append((z1, z2, draw_noise(generator)))
    scattered = np.array(rows)
    gridded = grid(10)
    grid_noise = np.array([draw_noise(generator) for _ in gridded])
    return {
        "grid": (gridded, truth(gridded) + grid_noise),
        "random": (scattered[:, :2], truth(scattered[:, :2]) + scattered[:, 2]),
    }


def _mersenne_twister(n: int) -> FloatArray:
    """The first `n` draws, uniform between -1 and 1; the newer generators of NumPy do not give them."""
    return np.random.RandomState(1).uniform(-1.0, 1.0, n)


def observations(n: int, noise_bound: float, rng: np.random.Generator, *, gridded: bool = False) -> Observations:
    """`n` samples with uniform noise, at random inputs or on the grid of the closest size."""
    Z = grid(round(n**0.5)) if gridded else rng.uniform(-LIMIT, LIMIT, (n, 2))
    return Observations(Z, truth(Z) + rng.uniform(-noise_bound, noise_bound, len(Z)), noise_bound)
