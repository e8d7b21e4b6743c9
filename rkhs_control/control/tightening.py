"""Offline design: tightened limits, from the boxes of many plans, for a controller that does not use boxes itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..certificates.certificate import Certificate
from ..data.arrays import FloatArray
from ..errors import InputError
from .certainty_equivalent import CertaintyEquivalentOCP, Tightening


def half_widths(certificates: Sequence[Certificate]) -> FloatArray:
    """Half-widths of the boxes of plans of equal length: `(n_plans, n_steps, n_states)`."""
    return np.array([(c.tube.upper - c.tube.lower) / 2.0 for c in certificates])


def tightening_for(
    nominal: CertaintyEquivalentOCP, certificates: Sequence[Certificate], share: float = 1.0
) -> Tightening:
    """How far inside the limits the predictions of `nominal` must stay for these plans to be certified.

    At every step, for every state and on either side: how far the box extends beyond the prediction, maximised over all
    plans. With a `share`, each of these numbers, on its own, suffices for that share of the plans. Other plans may need
    more: only a certificate can tell.
    """
    if not certificates:
        raise InputError("tightenings come from the boxes of plans; there are none")
    if not 0.0 < share <= 1.0:
        raise InputError(f"share must be above 0 and at most 1; got {share}")
    predicted = np.array([nominal.predict(c.question.x0, c.question.inputs)[0] for c in certificates])
    lower, upper = (np.array([getattr(c.tube, end) for c in certificates]) for end in ("lower", "upper"))
    # a model may lie outside the box; that side then needs more, the other less than nothing
    below, above = (
        np.maximum(np.quantile(d, share, axis=0, method="higher"), 0.0) for d in (predicted - lower, upper - predicted)
    )
    return Tightening(below, above)
