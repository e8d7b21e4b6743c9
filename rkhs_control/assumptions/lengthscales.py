"""Which lengthscales are tried, and which of those that do equally well is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.arrays import FloatArray, positive

NEARLY = 0.1
"""A lengthscale whose mean squared error is larger by no more than this share does nearly as well."""

SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where no lengthscales are given: so many standard deviations of each coordinate."""
LONG_SPREADS = (16.0, 32.0)
"""Besides, where the longest ones are asked for that predict nearly as well."""


def best_candidate(candidates: Sequence[Any], errors: FloatArray, *, longest: bool) -> int:
    """Which lengthscale is the shortest, or the longest, that predicts nearly as well as the best.

    Long ones leave out functions that the data cannot tell from the truth yet: of two that do equally well, the shorter
    assumes less.
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
