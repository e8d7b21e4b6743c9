"""A function that satisfies all assumptions: from contradictory ones, anything would follow.

A certificate carries such a function for every step and state. Its norm is at most the norm bound and it passes through
all intervals, so a checker knows that the data do not refute what the certificate assumes.
"""

from __future__ import annotations

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..engine.gram import Gram
from ..engine.least_norm import least_norm, least_norm_along
from ..engine.precise_least_norm import precise_weights
from ..engine.witness import Witness
from ..errors import FalsifiedNormBoundError
from ..kernels.base import Kernel
from .norms import NormBound

_SHARES = (0.1, 1e-3, 1e-6, 1e-9, 0.0)
"""Room to leave at both ends of an interval, as shares of its width: the first that fits is used."""


def consistent_function(data: Observations, kernel: Kernel, norm_bound: float) -> Witness:
    """Weights of a function of norm at most `norm_bound` through all intervals, as far inside them as possible.

    Where doubles cannot tell that it is inside, it is found with twice the digits, or else may miss by rounding; the
    checker then decides, or repairs it.
    """
    gram, nearest, least_miss = Gram(data.X, kernel), None, np.inf
    for share in _SHARES:
        solution = least_norm_along(gram, *_narrowed(data, share))
        witness = Witness.sparse(solution.indices, solution.weights)
        miss = _miss(witness, gram, data)
        if miss < least_miss and witness.norm_up(gram, is_precise=True) <= norm_bound:
            nearest, least_miss = witness, miss
            if miss < 0.0:
                return witness
    for share in _SHARES if gram.is_dense else ():
        precise = precise_weights(kernel, data.X, *_narrowed(data, share))
        if precise is not None and precise.whole.norm_up(gram, is_precise=True) <= norm_bound:
            return precise.whole
    if nearest is None:
        NormBound(norm_bound).require_consistent(gram, least_norm(gram, data.lower, data.upper), data)
        raise FalsifiedNormBoundError(
            f"norm_bound {norm_bound:.9g} leaves no room: no function of so small a norm was found that provably "
            "passes through all intervals; raise norm_bound by a hair (or the safety factor)"
        )
    return nearest


def _narrowed(data: Observations, share: float) -> tuple[FloatArray, FloatArray]:
    """Intervals with some room left at their finite ends."""
    width = data.upper - data.lower
    room = np.where(np.isfinite(width), share * width, 0.0)
    return data.lower + room, data.upper - room


def _miss(witness: Witness, gram: Gram, data: Observations) -> float:
    """By how much the function may miss an interval, rounding included; negative if it passes through all."""
    values = gram.combine(witness.indices, witness.weights)
    relative = gram.kernel.rounding(data.n_dims) + (len(witness.weights) + 8) * UNIT_ROUNDOFF
    error = relative * gram.kernel.variance * float(np.abs(witness.weights).sum())
    return float(np.maximum(values - data.upper, data.lower - values).max()) + error
