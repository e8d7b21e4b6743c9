"""Plans from any kind of controller: from a state to the inputs of all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..data.arrays import FloatArray
from .certainty_equivalent import CertaintyEquivalentOCP
from .do_mpc import is_controller, planned_inputs
from .robust import RobustOCP

Planner = Callable[[FloatArray], FloatArray]
"""From a state to the inputs of all steps, `(n_steps, n_inputs)`; an exception says why there is no plan."""


def planner_of(controller: Any) -> Planner:
    """A planner for any supported kind of controller."""
    if isinstance(controller, CertaintyEquivalentOCP):
        return lambda x0: _succeeded(controller.solve(x0))
    if isinstance(controller, RobustOCP):
        return lambda x0: controller.solve(x0).inputs
    if is_controller(controller):
        return lambda x0: planned_inputs(controller, x0)
    return controller  # type: ignore[no-any-return]


def _succeeded(plan: Any) -> FloatArray:
    if not plan.success:
        raise RuntimeError(f"IPOPT ended with {plan.status}")
    return plan.inputs  # type: ignore[no-any-return]
