"""What a certified loop did at every step and why, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ..certificates.certificate import Certificate
from ..data.arrays import FloatArray, read_only


class Decision(Enum):
    """What was applied; the value explains it."""

    CERTIFIED = "the controller's plan, certified"
    REPAIRED = "a plan that the robust problem made from it, certified"
    BLENDED = "an input between what the controller wants and what the region has for the state, certified"
    REMAINDER = "the next input of the last certified plan"
    REGION = "the plan that the region has for the state, certified"
    SAFE_INPUT = "the user's safe input: no certified plan is left"
    REFUTED = (
        "the user's safe input: what was proved has been refuted, and nothing is certified until it is trusted again"
    )

    @property
    def is_certified(self) -> bool:
        """Whether the applied input belongs to a certified plan."""
        return self not in (Decision.SAFE_INPUT, Decision.REFUTED)


@dataclass(frozen=True, eq=False)
class LoggedStep:
    """One step of the loop: what was known, what was applied, and why; its arrays are read-only copies."""

    state: FloatArray
    """`(n_states,)`, as measured; NaN where the measurement cannot be read."""
    inputs: FloatArray
    """`(n_inputs,)`, as applied."""
    decision: Decision
    reason: str
    """Why nothing better was done; empty where the controller's plan was certified."""
    certificate: Certificate | None
    """Certificate of the plan that the inputs belong to."""
    seconds: float

    def __post_init__(self) -> None:
        for name in ("state", "inputs"):
            object.__setattr__(self, name, read_only(np.array(getattr(self, name))))

    @property
    def is_certified(self) -> bool:
        """Whether the state after this step is proved to be within the limits.

        The proof rests on the assumptions of the predictor and on the measurement that the plan began with: if that one
        was off by more than `initial_state_noise`, nothing is proved, and this cannot be detected while it lies within
        the box that was proved for it.
        """
        return self.decision.is_certified


@dataclass(frozen=True, eq=False)
class PlanUnderway:
    """A certified plan, and which of its steps was applied last."""

    certificate: Certificate
    step: int = 0

    @property
    def inputs(self) -> FloatArray:
        """Of that step."""
        inputs: FloatArray = self.certificate.question.inputs[self.step]
        return inputs

    @property
    def rest(self) -> FloatArray:
        """The inputs of the steps after it."""
        return self.certificate.question.inputs[self.step + 1 :]

    @property
    def box(self) -> tuple[FloatArray, FloatArray]:
        """The box proved for the state after that step, whatever is measured on the way."""
        return self.certificate.tube.lower[self.step], self.certificate.tube.upper[self.step]


@dataclass(eq=False)
class LoopMemory:
    """What a loop remembers of earlier steps."""

    plan: PlanUnderway | None = None
    applied: FloatArray | None = None
    refutation: str | None = None
