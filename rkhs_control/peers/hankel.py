"""Direct data-driven MPC (`direct-data-driven-mpc`): a controller from one long recording, without a model.

Its scheme needs one trajectory under exciting inputs, not many short runs, and keeps it up to date while it controls.
So each loop begins with as many exciting steps as its own example has, from the same start as the loops of the others,
with the same noise as the recordings; only what comes after that is counted.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..control.certainty_equivalent import QuadraticCost
from ..data.arrays import FloatArray
from ..models.plant import Plant
from ..parallel import in_parallel
from ..scenarios.schema import BoxLimits
from .base import Card, Controller, Loop, from_extra

N_RECORDED = 120
"""Exciting steps before it controls, as in its example."""
ORDER = 2
"""Of the plant, an upper bound; known here."""
WEIGHTS = {"weights of its example": (3e-6, 1e7), "weights tuned here": (1.0, 1e2)}
"""On the combination of recorded windows and on the slack: those of its own reactor, whose data have no noise; and
those of seven pairs, decades apart, that came nearest to the reference with the noise of these recordings."""


@dataclass(frozen=True, eq=False)
class HankelController(Controller):
    """Its nonlinear controller, in units of the limits; it has limits of inputs, and none of outputs."""

    plant: Plant
    cost: QuadraticCost
    limits: BoxLimits
    noise: float
    weights: tuple[float, float]
    n_jobs: int | None = None

    def loops(self, x0: FloatArray, n_steps: int, seed: int) -> list[Loop]:
        seeds = np.random.SeedSequence(seed).spawn(len(x0))
        return list(in_parallel(_run, ((self, *pair, n_steps) for pair in zip(x0, seeds, strict=True)), self.n_jobs))


def card(weights: str) -> Card:
    """By how it is tuned, a name in `WEIGHTS`."""
    return Card(
        f"direct data-driven MPC, {weights}",
        f"one exciting recording ({N_RECORDED} steps); order of the plant",
        "inputs in their limits; states near the reference if noise is small enough",
        "one short recording; no kernel, no norm, a convex programme; follows a drifting plant",
    )


def _run(peer: HankelController, start: FloatArray, seed: np.random.SeedSequence, n_steps: int) -> Loop:
    rng, inputs, states = np.random.default_rng(seed), peer.limits.inputs, peer.limits.states
    middle_u, half_u = inputs.around()
    middle_x, half_x = states.around()

    def measured(x: FloatArray) -> FloatArray:
        noisy: FloatArray = (x + peer.noise * rng.uniform(-1.0, 1.0, x.shape) - middle_x) / half_x
        return noisy

    exciting = rng.uniform(inputs.lower, inputs.upper, (N_RECORDED, inputs.n_dims))
    recorded = peer.plant.simulate(start, exciting)[1:]
    controller = _controller(peer, (exciting - middle_u) / half_u, measured(recorded))
    state, last, after, seconds, n_failed = recorded[-1], exciting[-1], [], [], 0
    for _ in range(n_steps):
        began = time.process_time()
        found = _decision(controller)
        seconds.append(time.process_time() - began)
        n_failed += found is None
        last = last if found is None else inputs.clip(middle_u + half_u * found)
        state = peer.plant.simulate(state, last[None])[-1]
        after.append(state)
        controller.store_input_output_measurement((last - middle_u) / half_u, measured(state))
    return Loop(np.array(after), n_failed, float(np.median(seconds)))


def _decision(controller: Any) -> FloatArray | None:
    """None where its solver fails; the last input is then held."""
    import cvxpy as cp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cvxpy's, on slow parameters and inaccurate solutions
        try:
            controller.update_and_solve_data_driven_mpc()
        except (cp.SolverError, ValueError):
            return None
    found = np.asarray(controller.get_optimal_control_input_at_step(0), dtype=np.float64).ravel()
    return found if np.isfinite(found).all() else None


def _controller(peer: HankelController, inputs: FloatArray, outputs: FloatArray) -> Any:
    package, cost = from_extra("direct_data_driven_mpc"), peer.cost
    middle_x, half_x = peer.limits.states.around()
    n_inputs, n_outputs, horizon = inputs.shape[1], outputs.shape[1], cost.horizon
    alpha, slack = peer.weights
    unit = np.tile([-1.0, 1.0], (n_inputs, 1))
    D, half_u = np.diag(half_x), np.diag(peer.limits.inputs.around()[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it solves its first programme when it is built
        return package.NonlinearDataDrivenMPCController(
            n=ORDER,
            m=n_inputs,
            p=n_outputs,
            u=inputs,
            y=outputs,
            L=horizon,
            Q=np.kron(np.eye(horizon + ORDER + 1), D @ cost.state_weight @ D),
            R=np.kron(np.eye(horizon + ORDER + 1), half_u @ cost.input_weight @ half_u),
            S=D @ cost.terminal_weight @ D,
            y_r=((cost.state_reference - middle_x) / half_x).reshape(-1, 1),
            lamb_alpha=alpha,
            lamb_sigma=slack,
            U=unit,
            Us=0.99 * unit,
            alpha_reg_type=package.AlphaRegType.PREVIOUS,
            update_cost_threshold=1e-5,
        )
