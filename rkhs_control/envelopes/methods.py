"""The envelopes by name, for files and scenarios."""

from .alternating import AlternatingEnvelope
from .base import Envelope
from .closed_form import ClosedFormEnvelope
from .conic import ConicEnvelope
from .energy import EnergyEnvelope
from .gaussian_process import GaussianProcessEnvelope
from .lipschitz import LipschitzEnvelope
from .optimal import OptimalEnvelope

METHODS: dict[str, type[Envelope]] = {
    "optimal": OptimalEnvelope,
    "conic": ConicEnvelope,
    "alternating": AlternatingEnvelope,
    "closed_form": ClosedFormEnvelope,
    "energy": EnergyEnvelope,
    "lipschitz": LipschitzEnvelope,
    "gaussian_process": GaussianProcessEnvelope,
}


def method_name(method: type[Envelope]) -> str:
    """The name of one of `METHODS`, or of the class itself."""
    return next((name for name, known in METHODS.items() if known is method), method.__name__)
