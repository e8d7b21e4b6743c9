"""The ground truth of the paper's Examples 1 and 2: one component of a Henon map with a sinusoidal force.

The data of Tables I and II can be drawn again to the digit: they come from Python's own generator with seed 1.
"""

from __future__ import annotations

import random

import numpy as np

from ..observations import Observations
from ..validation import FloatArray

LIMIT = 10.0
"""The domain is the square `[-LIMIT, LIMIT]^2`."""
LENGTHSCALE = 5.0
"""The lengthscale of the squared exponential in the paper."""
NORM_BOUND = 1200.0
"""The norm bound in the paper."""


def truth(Z: FloatArray) -> FloatArray:
    """`1 - 0.8 z1^2 + z2 + 8 sin(0.8 z2)` at the rows of `Z`, shape `(n, 2)`."""
    return 1.0 - 0.8 * Z[:, 0] ** 2 + Z[:, 1] + 8.0 * np.sin(0.8 * Z[:, 1])


def grid(n_per_axis: int) -> FloatArray:
    """An equidistant grid over the domain, `z1` the outer loop."""
    axis = np.linspace(-LIMIT, LIMIT, n_per_axis)
    return np.array([(a, b) for a in axis for b in axis])


def table_data(noise: float) -> dict[str, tuple[FloatArray, FloatArray]]:
    """The inputs and outputs of the paper's tables, for the designs `grid` and `random`.

    Noise is normal with standard deviation `noise / 2.58`, clipped to `+-noise`.
    """
    generator = random.Random(1)

    def clipped() -> float:
        return min(max(generator.normalvariate(0.0, noise / 2.58), -noise), noise)

    rows = []
    for _ in range(100):
        z1, z2 = generator.uniform(-LIMIT, LIMIT), generator.uniform(-LIMIT, LIMIT)
        rows.append((z1, z2, clipped()))
    scattered = np.array(rows)
    gridded = grid(10)
    grid_noise = np.array([clipped() for _ in gridded])
    return {
        "grid": (gridded, truth(gridded) + grid_noise),
        "random": (scattered[:, :2], truth(scattered[:, :2]) + scattered[:, 2]),
    }


def observations(n: int, noise_bound: float, rng: np.random.Generator, *, gridded: bool = False) -> Observations:
    """`n` samples with uniform noise, at random inputs or on the grid nearest to so many."""
    Z = grid(round(n**0.5)) if gridded else rng.uniform(-LIMIT, LIMIT, (n, 2))
    return Observations(Z, truth(Z) + rng.uniform(-noise_bound, noise_bound, len(Z)), noise_bound)
