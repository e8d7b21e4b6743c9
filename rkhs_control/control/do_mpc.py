"""do-mpc: kernel models as its models, plants as its simulators, plans of its controllers."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..assumptions.regression import KernelModel
from ..data.arrays import FloatArray


def kernel_model(models: Sequence[KernelModel], state_names: Sequence[str], input_names: Sequence[str]) -> Any:
    """A discrete do-mpc model, ready to use, whose next states are kernel models of `(x, u)`, one per state.

    It uses MX symbols, which are several times faster than SX with some hundred centres.
    """
    import casadi

    do_mpc = imported_do_mpc()
    model = do_mpc.model.Model("discrete", "MX")
    states = [model.set_variable("_x", name) for name in state_names]
    inputs = [model.set_variable("_u", name) for name in input_names]
    z = casadi.vertcat(*states, *inputs)
    for name, kernel in zip(state_names, models, strict=True):
        model.set_rhs(name, kernel.casadi(z))
    model.setup()
    return model


def is_controller(thing: object) -> bool:
    """Whether it is a do-mpc controller, decided without the slow import of do-mpc."""
    return type(thing).__module__.startswith("do_mpc.")


def planned_inputs(controller: Any, x0: FloatArray) -> FloatArray:
    """The inputs that a do-mpc controller plans; it returns an input even when its solver has failed."""
    controller.make_step(x0.reshape(-1, 1))
    if not controller.solver_stats["success"]:
        raise RuntimeError(f"do-mpc's solver ended with {controller.solver_stats['return_status']}")
    horizon = controller.settings.n_horizon
    return np.array([np.array(controller.opt_x_num_unscaled["_u", k, 0]).ravel() for k in range(horizon)])


def simulator(plant: Any) -> Any:
    """A `Plant` as a do-mpc simulator, sampled at its own sampling time; set `x0` before use."""
    import casadi

    do_mpc = imported_do_mpc()
    model = do_mpc.model.Model("continuous", "SX")
    states = [model.set_variable("_x", name) for name in plant.state_names]
    inputs = [model.set_variable("_u", name) for name in plant.input_names]
    slopes = plant.casadi_right_hand_side()(casadi.vertcat(*states), casadi.vertcat(*inputs))
    for i, name in enumerate(plant.state_names):
        model.set_rhs(name, slopes[i])
    model.setup()
    result = do_mpc.simulator.Simulator(model)
    result.set_param(integration_tool="cvodes", abstol=1e-12, reltol=1e-12, t_step=plant.sampling_time)
    result.setup()
    return result


def run_closed_loop(
    step: Callable[[FloatArray], FloatArray], simulated: Any, x0: npt.ArrayLike, n_steps: int
) -> tuple[FloatArray, FloatArray]:
    """Drive a do-mpc simulator: states `(n_steps + 1, n_states)` and inputs `(n_steps, n_inputs)`.

    `step` is the `make_step` of a `CertifiedMPC`, or anything like it. do-mpc's own record, `simulated.data`, is what
    its plots take.
    """
    state = np.asarray(x0, dtype=np.float64).reshape(-1, 1)
    simulated.reset_history()
    simulated.x0 = state
    states, inputs = [state.ravel()], []
    for _ in range(n_steps):
        u = np.asarray(step(state.ravel())).reshape(-1, 1)
        state = np.asarray(simulated.make_step(u))
        states.append(state.ravel())
        inputs.append(u.ravel())
    return np.array(states), np.array(inputs)


def imported_do_mpc() -> Any:
    """do-mpc, without its warnings, on import and when compiled, about features that are not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", SyntaxWarning)
        return importlib.import_module("do_mpc")
