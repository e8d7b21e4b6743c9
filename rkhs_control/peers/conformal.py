"""Split conformal prediction with MAPIE: the size of past errors on held-back runs becomes the size of the intervals.

The predictions are the means of Gaussian processes that have not seen the held-back quarter. The promise is about what
would be *measured*, one interval at a time and on average over plans like the recorded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.trajectories import Trajectories
from .base import Bounds, Card, from_extra
from .gaussian import Learned

TRAINING_SHARE = 0.75
"""Of the runs that train; the others calibrate."""
LEVELS = (0.95, 0.99)


@dataclass(frozen=True, eq=False)
class ConformalBounds(Bounds):
    """Intervals of one confidence level."""

    regressors: list[list[Any]]
    level: int
    """Which of `LEVELS`."""

    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        lower, upper = np.empty((2, len(x0), len(self.regressors), len(self.regressors[0])))
        for n, row in enumerate(self.regressors):
            Z = stacked(x0, inputs[:, : n + 1])
            for i, regressor in enumerate(row):
                intervals = regressor.predict_interval(Z)[1][:, :, self.level]
                lower[:, n, i], upper[:, n, i] = intervals.T
        return lower, upper


def conformal_bounds(runs: Trajectories, learned: Sequence[Sequence[Learned]]) -> list[ConformalBounds]:
    """A method per level; `runs` are in random order, and what was `learned` is from the first half of them."""
    split = from_extra("mapie.regression").SplitConformalRegressor
    n_train = int(TRAINING_SHARE * len(runs))

    def calibrated(n: int, i: int, one: Learned) -> Any:
        Z, y = runs.arguments(n), runs.states[:, n, i]
        regressor = split(one.regressor(Z[:n_train], y[:n_train]), confidence_level=list(LEVELS), prefit=True)
        return regressor.conformalize(Z[n_train:], y[n_train:])

    table = [[calibrated(n, i, one) for i, one in enumerate(row)] for n, row in enumerate(learned, start=1)]
    return [
        ConformalBounds(
            Card(
                f"conformal (MAPIE), {level:.0%}",
                "plans exchangeable with the recorded ones",
                f"each measurement with {level:.0%}, on average over plans",
                "no assumption on plant or noise; around any model, a neural one as well",
            ),
            table,
            which,
        )
        for which, level in enumerate(LEVELS)
    ]
