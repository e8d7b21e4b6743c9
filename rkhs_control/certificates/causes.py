"""Why a box is as wide as it is: the share of its width that each assumption is responsible for.

The upper bound of `g` is `norm_bound || k_z - sum_i w_i k_{x_i} ||` plus the ends of intervals, each times its weight,
and so is the lower one. What widens the intervals is known: noise, disturbances, uncertain histories of the recordings.
By the envelope theorem, these parts are also the effect of a small change in each assumption. An uncertain start moves
the prior by its slopes; the rest of its cost is due to what the kernel describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..engine.functionals import Points

if TYPE_CHECKING:
    from .certificate import Certificate

_FAR = 2.0
"""A plan is far from the data if the nearest datum is this many times further away than data are from each other."""
_NEIGHBOURS = 200  # data that determine that distance


@dataclass(frozen=True)
class Cause:
    """One of the reasons, and its share of the width of a box."""

    name: str
    share: float

    def __str__(self) -> str:
        return f"{self.name} ({100.0 * self.share:.0f} % of the width)"


def causes_of(certificate: Certificate, n: int, i: int) -> tuple[Cause, ...]:
    """Causes for the box of state `i` after `n + 1` steps, largest share first; none where a method has no weights."""
    predictor, tube, question = certificate.predictor, certificate.tube, certificate.question
    envelope, runs, prior = predictor.envelope(n + 1, i), predictor.runs, predictor.priors[n][i]
    proofs = tube.witnesses[n, i]
    if any(proof.witness is None for proof in proofs):
        return ()
    z = stacked(question.x0[None], question.inputs[None, : n + 1])[0]
    widening, weight, by_norm, by_samples = predictor.widenings[n][i], 0.0, 0.0, 0.0
    for proof in proofs:
        witness, functional = proof.witness, Points.value(z + proof.offset)
        norm = witness.residual_norm_up(functional, envelope.gram)
        by_norm += envelope.radius * norm
        weight += float(np.abs(witness.weights).sum())
        by_samples += float(np.abs(witness.weights) @ widening[witness.indices])
    start = max(float(tube.initial_state_cost[n, i]) - by_samples, 0.0)
    by_prior = 0.0 if prior is None else min(2.0 * prior.change(certificate.initial_state_noise), start)
    left_open = "what measured histories leave open" if runs.has_residual_bound else "disturbances"
    parts = {
        "the noise bound": weight * float(runs.noise_bound[n, i]),
        left_open: (weight + 2.0) * float(runs.disturbance_bound[n, i]),
        "uncertain histories of the recordings": by_samples,
        "the prior's slopes at the uncertain start": by_prior,
        "the uncertain start of the plan": start - by_prior,
        _distance(z, envelope.data.X, _scales(envelope.kernel, z)): by_norm,
    }
    total = sum(parts.values())
    found = sorted((Cause(name, part / total) for name, part in parts.items() if part > 0.0), key=lambda c: -c.share)
    return tuple(found)


def _scales(kernel: object, z: FloatArray) -> FloatArray:
    """Scales for measuring distances: the kernel's lengthscales, if it has any."""
    return np.broadcast_to(np.asarray(getattr(kernel, "lengthscale", 1.0), dtype=np.float64), z.shape)


def _distance(z: FloatArray, X: FloatArray, scales: FloatArray) -> str:
    """What the norm bound's part is due to: the norm bound itself, or a lack of nearby data."""
    from scipy.spatial import cKDTree

    tree = cKDTree(X / scales)
    nearest = float(tree.query(z / scales)[0])
    some = X[np.linspace(0, len(X) - 1, min(len(X), _NEIGHBOURS)).astype(np.int64)] / scales
    apart = float(np.median(tree.query(some, k=2)[0][:, 1])) if len(X) > 1 else np.inf
    return "too few data near the plan" if nearest > _FAR * apart else "the norm bound"
