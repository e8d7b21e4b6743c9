"""Our own bounds as one of the methods: boxes of a predictor, whichever envelope makes them."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.arrays import FloatArray
from ..envelopes.conic import ConicEnvelope
from ..prediction.predictor import MultiStepPredictor
from .base import Bounds, Card

_ASSUMES = "noise bound; kernel; norm bound, 1.2 x an estimate from 400 other runs"

OPTIMAL = Card(
    "ours, optimal bounds",
    _ASSUMES,
    "every state in its box, for certain",
    "a guarantee for all states at once, and a certificate that others check",
)
AFFINE = Card(
    "ours, affine prior",
    _ASSUMES.replace("kernel;", "kernel; affine model fitted to the runs;"),
    OPTIMAL.promises,
    "the same, where the plant is nearly linear",
)
CONIC = Card(
    "conic programme (cvxpy, Clarabel)",
    _ASSUMES,
    "as ours: the same optimum",
    "needs a modelling language and no solver of one's own; further convex knowledge is one line",
)


@dataclass(frozen=True, eq=False)
class PredictorBounds(Bounds):
    """The tubes of a predictor."""

    predictor: MultiStepPredictor

    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        tube = self.predictor.boxes(x0, inputs)
        return tube.lower, tube.upper


def conic(predictor: MultiStepPredictor) -> PredictorBounds:
    """The same assumptions by an interior-point method through cvxpy, in the formulation that is quicker here."""
    return PredictorBounds(CONIC, predictor.with_method(ConicEnvelope, formulation="primal"))
