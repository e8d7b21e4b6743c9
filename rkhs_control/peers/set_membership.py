"""Set membership: every recorded run excludes a cone, for a Lipschitz constant that is estimated as its users do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.trajectories import Trajectories
from .base import Bounds, Card

FACTOR = 1.2
"""Times the estimated constants: the factor that our norm estimates have."""

CARD = Card(
    "Lipschitz set membership",
    f"noise bound; slope, {FACTOR} x the steepest between recorded runs",
    "every state in its box, for certain, if the slope is right",
    "kinks; a slope known from physics; millions of runs, a page of code",
)


@dataclass(frozen=True)
class Cones:
    """One state after one step: arguments in units of their spread, intervals, and how fast the state may change."""

    Z: FloatArray
    scale: FloatArray
    lower: FloatArray
    upper: FloatArray
    slope: float

    @classmethod
    def of(cls, Z: FloatArray, y: FloatArray, noise_bound: float) -> Cones:
        """The slope is the least that the intervals do not refute, times the factor."""
        scale = Z.std(axis=0)
        scaled = Z / np.where(scale > 0, scale, 1.0)
        rise = np.abs(y[:, None] - y[None]) - 2.0 * noise_bound
        apart = _distances(scaled, scaled)
        slopes = np.divide(rise, apart, out=np.zeros_like(rise), where=apart > 0)
        return cls(scaled, scale, y - noise_bound, y + noise_bound, FACTOR * float(max(slopes.max(), 0.0)))

    def interval(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The tightest that follows from the slope and the recorded intervals."""
        reach = self.slope * _distances(Z / np.where(self.scale > 0, self.scale, 1.0), self.Z)
        return (self.lower - reach).max(axis=1), (self.upper + reach).min(axis=1)


@dataclass(frozen=True, eq=False)
class LipschitzBounds(Bounds):
    """Cones by step and state."""

    cones: list[list[Cones]]

    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        lower, upper = np.empty((2, len(x0), len(self.cones), len(self.cones[0])))
        for n, row in enumerate(self.cones):
            Z = stacked(x0, inputs[:, : n + 1])
            for i, cones in enumerate(row):
                lower[:, n, i], upper[:, n, i] = cones.interval(Z)
        return lower, upper


def lipschitz_bounds(runs: Trajectories) -> LipschitzBounds:
    """From the recorded runs alone."""
    bound = runs.noise_bound + runs.disturbance_bound
    table = [
        [Cones.of(runs.arguments(n), runs.states[:, n, i], float(bound[n - 1, i])) for i in range(runs.n_states)]
        for n in range(1, runs.horizon + 1)
    ]
    return LipschitzBounds(CARD, table)


def _distances(A: FloatArray, B: FloatArray) -> FloatArray:
    from scipy.spatial.distance import cdist

    distances: FloatArray = cdist(A, B)
    return distances
