"""do-mpc's multi-stage MPC with the true equations and uncertain rates: a reference that knows more."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ..control.certainty_equivalent import QuadraticCost
from ..control.do_mpc import imported_do_mpc
from ..data.arrays import FloatArray
from ..models.cstr import CSTR
from ..parallel import in_parallel
from ..scenarios.schema import BoxLimits
from .base import Bounds, Card, Controller, Loop

SPREAD = 0.05
"""How far the rates in the scenarios are from the true ones, as a share; those are in the middle."""
SHARES = (1.0, 1.0 - SPREAD, 1.0 + SPREAD)
_PENALTY = 1e4  # of a mol/l beyond a limit: starts near one may leave no other way

_ASSUMES = f"the true equations; two rates within {SPREAD:.0%}, the truth among the scenarios"
BOXES_CARD = Card(
    "scenarios of the true model",
    _ASSUMES,
    "each scenario in its box; between them nothing",
    "reaches beyond the recordings; needs no run at all where the model is trusted",
)
CARD = Card(
    "multi-stage MPC (do-mpc)",
    _ASSUMES,
    "limits kept in every scenario, as far as its horizon",
    "recourse: later inputs depend on what will be measured; many states; an established tool",
)


@dataclass(frozen=True, eq=False)
class ScenarioBounds(Bounds):
    """What the plan does in every scenario, and the box around it."""

    plant: CSTR

    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        ways = np.array([plant.simulate(x0, inputs)[:, 1:] for plant in _scenarios(self.plant)])
        lower: FloatArray = ways.min(axis=0)
        upper: FloatArray = ways.max(axis=0)
        return lower, upper


def _scenarios(plant: CSTR) -> list[CSTR]:
    return [
        replace(plant, rate_1=first * plant.rate_1, rate_3=third * plant.rate_3)
        for first, third in product(SHARES, SHARES)
    ]


@dataclass(frozen=True, eq=False)
class MultiStageController(Controller):
    """The controller in closed loop with the true plant; it measures states exactly, as plans know theirs."""

    plant: CSTR
    cost: QuadraticCost
    limits: BoxLimits
    n_jobs: int | None = None

    def loops(self, x0: FloatArray, n_steps: int, seed: int) -> list[Loop]:
        groups = np.array_split(x0, min(len(x0), 8))
        found = in_parallel(_run, ((self, group, n_steps) for group in groups), self.n_jobs)
        return [loop for group in found for loop in group]


def _run(peer: MultiStageController, starts: FloatArray, n_steps: int) -> list[Loop]:
    controller = _controller(peer)
    loops = []
    for start in starts:
        controller.reset_history()
        controller.x0 = start
        controller.set_initial_guess()
        state, states, seconds, n_failed = start, [], [], 0
        for _ in range(n_steps):
            began = time.process_time()
            u = np.asarray(controller.make_step(state.reshape(-1, 1))).ravel()
            seconds.append(time.process_time() - began)
            n_failed += not controller.solver_stats["success"]
            state = peer.plant.simulate(state, peer.limits.inputs.clip(u)[None])[-1]
            states.append(state)
        loops.append(Loop(np.array(states), n_failed, float(np.median(seconds))))
    return loops


def _controller(peer: MultiStageController) -> Any:
    """Branches over both rates at the first step; limits are soft, so that it always has something to say."""
    import casadi

    do_mpc, plant, cost = imported_do_mpc(), peer.plant, peer.cost
    model = do_mpc.model.Model("continuous", "SX")
    x = casadi.vertcat(*(model.set_variable("_x", name) for name in plant.state_names))
    u = casadi.vertcat(*(model.set_variable("_u", name) for name in plant.input_names))
    rates: Any = {name: model.set_variable("_p", name) for name in ("rate_1", "rate_3")}
    slopes = replace(plant, **rates).right_hand_side(x, u, casadi)
    for name, slope in zip(plant.state_names, slopes, strict=True):
        model.set_rhs(name, slope)
    model.setup()
    x, u = model.x.cat, model.u.cat  # its symbols are others from here on
    controller = do_mpc.controller.MPC(model)
    settings = controller.settings
    settings.n_horizon, settings.n_robust, settings.t_step = cost.horizon, 1, plant.sampling_time
    settings.store_full_solution = False
    settings.supress_ipopt_output()
    off = x - casadi.DM(cost.state_reference)
    terminal = casadi.bilin(casadi.DM(cost.terminal_weight), off, off)
    controller.set_objective(mterm=terminal, lterm=cost(x, u, 0))
    controller.set_rterm(**dict.fromkeys(plant.input_names, 0.0))
    states, inputs = peer.limits.states, peer.limits.inputs
    for i, name in enumerate(plant.input_names):
        controller.bounds["lower", "_u", name], controller.bounds["upper", "_u", name] = (
            inputs.lower[i],
            inputs.upper[i],
        )
    for i, name in enumerate(plant.state_names):
        soft = {"soft_constraint": True, "penalty_term_cons": _PENALTY}
        controller.set_nl_cons(f"above_{name}", x[i], ub=states.upper[i], **soft)
        controller.set_nl_cons(f"below_{name}", -x[i], ub=-states.lower[i], **soft)
    values = {name: np.array(SHARES) * getattr(plant, name) for name in rates}
    controller.set_uncertainty_values(**values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of CasADi 3.8, about how do-mpc calls it
        controller.setup()
    return controller
