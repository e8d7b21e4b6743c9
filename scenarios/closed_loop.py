"""Closed loops on the simulated plant: what believing the model costs, and what certifying it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..control.certified_loop import CertifiedMPC, Decision
from ..control.robust import RobustOCP
from ..data.arrays import FloatArray, as_vector
from ..errors import InputError
from .material import OPTIMAL, Material, Work
from .schema import ClosedLoopStudy, Scenario

CERTAINTY_EQUIVALENT, ROBUST, CERTIFIED = "certainty equivalent", "robust", "certified"
_RUNS_A_TASK = 5
_ITERATIONS = 24  # of the robust problem: what takes more would come too late


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
            decision.is_certified and not inside
            for decision, inside in zip(self.decisions, self.is_inside, strict=False)
        )

    @property
    def is_refuted(self) -> bool:
        """Whether a measurement was outside the box that was proved for it: with right assumptions, never."""
        return Decision.REFUTED in self.decisions


def compare_controllers(scenario: Scenario, material: Material, work: Work) -> dict[str, list[LoopRun]]:
    """Every controller from the same initial states."""
    from joblib import Parallel, delayed

    settings = scenario.closed_loop
    assert settings is not None
    limits = material.limits.state_limits
    lower, upper = settings.initial_states or (limits.lower.tolist(), limits.upper.tolist())
    if not len(lower) == len(upper) == limits.n_dims:
        raise InputError(f"closed_loop.initial_states must hold {', '.join(material.runs.state_names)} twice")
    if not np.isfinite([lower, upper]).all():
        raise InputError("closed_loop.initial_states is needed where states have no limits")
    noise = material.start_noise(scenario)
    x0 = work.rng.uniform(lower, upper, (settings.runs, limits.n_dims))
    chunks = np.array_split(x0, max(1, len(x0) // _RUNS_A_TASK))
    results = {}
    for name in (CERTAINTY_EQUIVALENT, ROBUST, CERTIFIED):
        found: list[LoopRun] = []
        with work.stage(f"closed loops, {name}") as progress:
            generators = np.random.default_rng(work.seed).spawn(len(chunks))
            tasks = (
                delayed(_run_some)(name, chunk, settings, material, noise, rng)
                for chunk, rng in zip(chunks, generators, strict=True)
            )
            for part in Parallel(work.n_jobs, return_as="generator")(tasks):
                found += part
                progress(len(found), len(x0))
        results[name] = found
    return results


def _run_some(
    name: str,
    x0: FloatArray,
    settings: ClosedLoopStudy,
    material: Material,
    noise: float | FloatArray,
    rng: np.random.Generator,
) -> list[LoopRun]:
    make = _makers(settings, material, noise)[name]
    errors = rng.uniform(-1.0, 1.0, (len(x0), settings.steps, x0.shape[1])) * noise
    return [_run(make(), start, wrong_by, material) for start, wrong_by in zip(x0, errors, strict=True)]


def _makers(settings: ClosedLoopStudy, material: Material, noise: float | FloatArray) -> dict[str, Callable[[], Any]]:
    """For every controller, what makes a fresh one; all of a task share what is compiled."""
    control, predictor, limits = material.control, material.predictors[OPTIMAL], material.limits
    assert control is not None
    safe_input = as_vector(settings.safe_input, "closed_loop.safe_input", material.runs.n_inputs)
    states, rates = limits.state_limits, limits.input_rate_limits
    robust = RobustOCP(predictor, control, states, rates, noise, iterations=_ITERATIONS)
    certified = (predictor, states, limits.input_limits, safe_input, robust, rates, noise)
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


def _run(controller: Any, x0: FloatArray, errors: FloatArray, material: Material) -> LoopRun:
    """The controller is told the state with an error, `(n_steps, n_states)`; the same for every controller."""
    assert material.plant is not None
    assert material.control is not None
    states, inputs, seconds = [x0], [], []
    for error in errors:
        began = time.perf_counter()
        u = np.asarray(controller.make_step(states[-1] + error))
        seconds.append(time.perf_counter() - began)
        inputs.append(u)
        states.append(material.plant.simulate(states[-1], u[None])[-1])
    cost = sum(float(material.control.cost(x, u, 0)) for x, u in zip(states[1:], inputs, strict=True))
    return LoopRun(
        np.array(states),
        np.array(inputs),
        material.limits.state_limits.contains(np.array(states[1:])),
        tuple(step.decision for step in controller.log),
        cost,
        np.array(seconds),
    )
