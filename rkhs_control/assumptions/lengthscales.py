"""Which lengthscales are tried, and which is taken among those that do equally well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.arrays import FloatArray, positive

NEARLY = 0.1
"""A lengthscale does nearly as well if its mean squared error is larger by at most this share."""

SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Default lengthscales, in standard deviations of each coordinate."""
LONG_SPREADS = (16.0, 32.0)
"""Additional ones where the longest that predict nearly as well are wanted."""


def best_candidate(candidates: Sequence[Any], errors: FloatArray, *, longest: bool) -> int:
    """The index of the shortest, or the longest, lengthscale that predicts nearly as well as the best.

    Long ones exclude functions that the data cannot yet distinguish from the truth: of two that do equally well, the
    shorter assumes less.
    """
    least = errors.min(axis=1)
    good = np.flatnonzero(least <= (1.0 + NEARLY) * least.min()).tolist()
    sizes = {c: float(np.mean(np.log(candidates[c]))) for c in good}
    return max(good, key=sizes.__getitem__) if longest else min(good, key=sizes.__getitem__)


def candidates_for(
    given: Sequence[float | Sequence[float]] | None, X: FloatArray, *, longest: bool = False
) -> list[Any]:
    """Lengthscales for the coordinates of `X`."""
    if given is None:
        spread = X.std(axis=0)
        spread = np.where(spread > 1e-12 * (1.0 + np.abs(X).max(axis=0)), spread, 1.0)
        factors = SPREADS + LONG_SPREADS if longest else SPREADS
        return [tuple((factor * spread).tolist()) for factor in factors]
    return [
        positive(scale, "lengthscales") if np.ndim(scale) == 0 else tuple(scale)[: X.shape[1]]  # type: ignore[arg-type]
        for scale in given
    ]
