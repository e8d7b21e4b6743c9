"""Closed loops on the simulated plant: what believing the model costs, and what certifying it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..control.closed_loop import CertifiedMPC, Decision
from ..control.robust import RobustOCP
from ..errors import InputError
from ..validation import FloatArray, as_vector
from .material import OPTIMAL, Material, Work
from .schema import ClosedLoopStudy, Scenario

CERTAINTY_EQUIVALENT, ROBUST, CERTIFIED = "certainty equivalent", "robust", "certified"
_RUNS_A_TASK = 5
_ITERATIONS = 16  # of the robust problem: what takes more would come too late


@dataclass(frozen=True, eq=False)
class LoopRun:
    """One closed loop under one controller."""

    states: FloatArray
    """`(n_steps + 1, n_states)`, true."""
    inputs: FloatArray
    is_inside: npt.NDArray[np.bool_]
    """Whether the states after each step keep the limits."""
    decisions: tuple[Decision, ...]
    """Of the certified controller; empty for the others."""
    cost: float
    seconds: FloatArray
    """A step."""

    @property
    def broken_promises(self) -> int:
        """Steps that were certified and violated a limit: with right assumptions, none."""
        return sum(
            decision is not Decision.SAFE_INPUT and not inside
            for decision, inside in zip(self.decisions, self.is_inside, strict=False)
        )


def compare_controllers(scenario: Scenario, material: Material, work: Work) -> dict[str, list[LoopRun]]:
    """Every controller from the same initial states."""
    from joblib import Parallel, delayed

    settings = scenario.closed_loop
    assert settings is not None
    limits = material.limits.state_limits
    lower, upper = settings.initial_states or (limits.lower.tolist(), limits.upper.tolist())
    if not len(lower) == len(upper) == limits.n_dims:
        raise InputError(f"closed_loop.initial_states must hold {', '.join(material.runs.state_names)} twice")
    x0 = work.rng.uniform(lower, upper, (settings.runs, limits.n_dims))
    chunks = np.array_split(x0, max(1, len(x0) // _RUNS_A_TASK))
    results = {}
    for name in (CERTAINTY_EQUIVALENT, ROBUST, CERTIFIED):
        found: list[LoopRun] = []
        with work.stage(f"closed loops, {name}") as progress:
            tasks = (delayed(_run_some)(name, chunk, settings, material) for chunk in chunks)
            for part in Parallel(work.n_jobs, return_as="generator")(tasks):
                found += part
                progress(len(found), len(x0))
        results[name] = found
    return results


def _run_some(name: str, x0: FloatArray, settings: ClosedLoopStudy, material: Material) -> list[LoopRun]:
    make = _makers(settings, material)[name]
    return [_run(make(), start, settings.steps, material) for start in x0]


def _makers(settings: ClosedLoopStudy, material: Material) -> dict[str, Callable[[], Any]]:
    """For every controller, what makes a fresh one; all of a task share what is compiled."""
    control, predictor, limits = material.control, material.predictors[OPTIMAL], material.limits
    assert control is not None
    safe_input = as_vector(settings.safe_input, "closed_loop.safe_input", material.runs.n_inputs)
    robust = RobustOCP(predictor, control, limits.state_limits, limits.input_rate_limits, iterations=_ITERATIONS)
    certified = (predictor, limits.state_limits, limits.input_limits, safe_input, robust, limits.input_rate_limits)
    return {
        CERTAINTY_EQUIVALENT: lambda: _First(lambda x: control.solve(x).inputs),
        ROBUST: lambda: _First(lambda x: robust.solve(x).inputs),
        CERTIFIED: lambda: CertifiedMPC(control, *certified),
    }


@dataclass(frozen=True)
class _First:
    """A controller that applies the first input of every plan, come what may."""

    plan: Callable[[FloatArray], FloatArray]
    log = ()

    def make_step(self, x0: FloatArray) -> FloatArray:
        first: FloatArray = self.plan(x0)[0]
        return first


def _run(controller: Any, x0: FloatArray, n_steps: int, material: Material) -> LoopRun:
    assert material.plant is not None
    assert material.control is not None
    states, inputs, seconds = [x0], [], []
    for _ in range(n_steps):
        began = time.perf_counter()
        u = np.asarray(controller.make_step(states[-1]))
        seconds.append(time.perf_counter() - began)
        inputs.append(u)
        states.append(material.plant.simulate(states[-1], u[None])[-1])
    cost = sum(float(material.control.cost(x, u, 1)) for x, u in zip(states[1:], inputs, strict=True))
    return LoopRun(
        np.array(states),
        np.array(inputs),
        material.limits.state_limits.contains(np.array(states[1:])),
        tuple(step.decision for step in controller.log),
        cost,
        np.array(seconds),
    )
