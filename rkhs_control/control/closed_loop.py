"""A closed loop in which only certified inputs are applied, as long as there are any.

At every step the controller's plan is certified. If it is not certifiable, the robust problem repairs it, or else what
remains of the last certified plan, prolonged. If that fails, too, the remainder is applied as it is, and when it is
used up, a safe input of the user's. Nothing that a controller, a solver or a sensor does is an exception here: it is a
reason in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certifier import Certificate, Question, Verdict
from ..predictor import MultiStepPredictor
from ..sets import Box, Polytope
from ..validation import FloatArray, as_vector
from .certainty_equivalent import CertaintyEquivalentOCP
from .robust import RobustOCP

Planner = Callable[[FloatArray], FloatArray]
"""From a state to the inputs of all steps, `(n_steps, n_inputs)`; an exception says why there is no plan."""


class Decision(Enum):
    """What was applied; the value is what that means."""

    CERTIFIED = "the controller's plan, certified"
    REPAIRED = "a plan that the robust problem made of it, certified"
    REMAINDER = "the next input of the last certified plan"
    SAFE_INPUT = "the user's safe input: nothing is certified any more"


@dataclass(frozen=True, eq=False)
class LoggedStep:
    """One step of the loop: what was known, what was applied, and why."""

    state: FloatArray
    inputs: FloatArray
    """`(n_inputs,)`, as applied."""
    decision: Decision
    reason: str
    """Why nothing better was done; empty where the controller's plan was certified."""
    certificate: Certificate | None
    """Of the plan that the inputs belong to."""
    seconds: float

    @property
    def is_certified(self) -> bool:
        """Whether the state after this step is proved to be within the limits."""
        return self.decision is not Decision.SAFE_INPUT


@dataclass(eq=False)
class CertifiedMPC:
    """A controller that applies what can be certified; it remembers its last certified plan and keeps a log.

    Parameters
    ----------
    controller : a do-mpc `MPC`, a `CertaintyEquivalentOCP`, a `RobustOCP`, or any `Planner`
    predictor : what plans are certified with, over its own horizon if theirs is longer
    state_limits, input_limits, input_rate_limits : as for `certify`
    safe_input : `(n_inputs,)`, applied when nothing certified is left
    repair : the robust problem that mends a plan; without one, none is mended
    initial_state_noise : how far the true state may be from the one that `make_step` is told
    """

    controller: Any
    predictor: MultiStepPredictor
    state_limits: Box | Polytope
    input_limits: Box
    safe_input: npt.ArrayLike
    repair: RobustOCP | None = None
    input_rate_limits: Box | None = None
    initial_state_noise: float | FloatArray = 0.0
    log: list[LoggedStep] = field(default_factory=list)
    _certified: Certificate | None = field(default=None, repr=False)
    _used: int = 0

    def __post_init__(self) -> None:
        self.safe_input = as_vector(self.safe_input, "safe_input", self.predictor.runs.n_inputs)
        self._planner = planner_of(self.controller)

    def make_step(self, x0: npt.ArrayLike) -> FloatArray:
        """The input to apply at a state, `(n_inputs,)`."""
        began = time.perf_counter()
        state = np.asarray(x0, dtype=np.float64).ravel()
        reasons: list[str] = []
        certificate, decision = self._new_plan(state, reasons)
        if certificate is not None:
            self._certified, self._used = certificate, 0
        elif self._certified is not None and self._used + 1 < len(self._certified.question.inputs):
            self._used += 1
            decision = Decision.REMAINDER
        else:
            self._certified, decision = None, Decision.SAFE_INPUT
            reasons.append("no certified plan is left")
        applied = np.asarray(self.safe_input)
        if self._certified is not None:
            applied = self._certified.question.inputs[self._used]
        self.log.append(
            LoggedStep(state, applied, decision, "; ".join(reasons), self._certified, time.perf_counter() - began)
        )
        return applied

    def _new_plan(self, state: FloatArray, reasons: list[str]) -> tuple[Certificate | None, Decision]:
        """A certified plan from here, if there is one; `reasons` are added to."""
        if state.shape != (self.predictor.runs.n_states,) or not np.isfinite(state).all():
            reasons.append(f"the state {state} is not one")
            return None, Decision.CERTIFIED
        try:
            plan = np.atleast_2d(np.asarray(self._planner(state), dtype=np.float64))[: self.predictor.horizon]
            plan = self.input_limits.clip(plan)  # solvers leave bounds by rounding
            certificate = self._certify(state, plan)
        except Exception as error:  # whatever a controller may do
            reasons.append(f"the controller has no plan ({error})")
            plan = np.tile(np.asarray(self.safe_input), (self.predictor.horizon, 1))
        else:
            if self._may_apply(certificate):
                return certificate, Decision.CERTIFIED
            reasons.append(self._objection(certificate))
        if self.repair is None:
            return None, Decision.CERTIFIED
        for wanted in (plan, *self._prolonged()):
            try:
                certificate = self._certify(state, self.repair.repair(state, wanted).inputs)
            except Exception as error:
                reasons.append(f"the repair failed ({error})")
                continue
            if self._may_apply(certificate):
                return certificate, Decision.REPAIRED
        reasons.append("the repair found no certified plan")
        return None, Decision.REPAIRED

    def _prolonged(self) -> Iterator[FloatArray]:
        """What is left of the last certified plan, with its last input held: nearly certified, and so soon repaired."""
        if self._certified is not None:
            inputs = self._certified.question.inputs
            rest = inputs[self._used + 1 :]
            if len(rest):
                yield np.concatenate([rest, np.repeat(rest[-1:], len(inputs) - len(rest), axis=0)])

    def _may_apply(self, certificate: Certificate) -> bool:
        """Certified, and no larger a change from what was applied last than the rates allow."""
        if certificate.verdict is not Verdict.CERTIFIED:
            return False
        if self.input_rate_limits is None or not self.log:
            return True
        return bool(self.input_rate_limits.contains(certificate.question.inputs[0] - self.log[-1].inputs))

    def _objection(self, certificate: Certificate) -> str:
        if certificate.verdict is Verdict.CERTIFIED:
            return "the change from the input before exceeds its rate limits"
        return certificate.explain()

    def _certify(self, state: FloatArray, plan: FloatArray) -> Certificate:
        question = Question(
            state, plan, self.state_limits, self.input_limits, self.input_rate_limits, self.initial_state_noise
        )
        return question.ask(self.predictor)


def planner_of(controller: Any) -> Planner:
    """How to get a plan from a controller of any kind that is known here."""
    if isinstance(controller, CertaintyEquivalentOCP):
        return lambda x0: _succeeded(controller.solve(x0))
    if isinstance(controller, RobustOCP):
        return lambda x0: controller.solve(x0).inputs
    if type(controller).__module__.startswith("do_mpc."):  # told without importing it, which is slow
        return lambda x0: _do_mpc_plan(controller, x0)
    return controller  # type: ignore[no-any-return]


def _succeeded(plan: Any) -> FloatArray:
    if not plan.success:
        raise RuntimeError(f"IPOPT ended with {plan.status}")
    return plan.inputs  # type: ignore[no-any-return]


def _do_mpc_plan(controller: Any, x0: FloatArray) -> FloatArray:
    """What a do-mpc controller predicts; it returns an input even when its solver has failed."""
    controller.make_step(x0.reshape(-1, 1))
    if not controller.solver_stats["success"]:
        raise RuntimeError(f"do-mpc's solver ended with {controller.solver_stats['return_status']}")
    horizon = controller.settings.n_horizon
    return np.array([np.array(controller.opt_x_num_unscaled["_u", k, 0]).ravel() for k in range(horizon)])
