"""The certainty-equivalent optimal control problem: it simply trusts its kernel models.

It returns a plan to be certified, not a promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..assumptions.intervals import step_observations
from ..assumptions.priors import AffinePrior, StepOfModel
from ..assumptions.regression import KernelModel, ModelWithPrior, NominalModel, kernel_ridge
from ..data.arrays import FloatArray, as_floats, as_points, as_vector
from ..data.limits import GivenLimits, Intervals, Limits
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..kernels.base import Kernel
from ..parallel import Progress, in_parallel
from ..prediction.by_step import GivenPriors, by_step_and_state
from ..prediction.predictor import MultiStepPredictor

_PLANS_PER_TASK = 20

Cost = Callable[[Any, Any, int], Any]
"""`cost(x, u, n)`: a CasADi expression of the predicted state at step `n` and the input that leads there."""


@dataclass(frozen=True, eq=False)
class QuadraticCost:
    """`|x - x_ref|^2_Q + |u - u_ref|^2_R` at every step, `|x - x_ref|^2_P` at the last; usable as a `Cost`."""

    state_weight: FloatArray
    input_weight: FloatArray
    terminal_weight: FloatArray
    state_reference: FloatArray
    input_reference: FloatArray
    horizon: int

    def __call__(self, x: Any, u: Any, n: int) -> Any:
        import casadi

        dx, du = x - casadi.DM(self.state_reference), u - casadi.DM(self.input_reference)
        weight = self.terminal_weight if n == self.horizon else self.state_weight
        return casadi.bilin(casadi.DM(weight), dx, dx) + casadi.bilin(casadi.DM(self.input_weight), du, du)


@dataclass(frozen=True, eq=False)
class Plan:
    """The solver's result; only a plan with `success` solves the problem."""

    inputs: FloatArray
    """`(n_steps, n_inputs)`, clipped to the input limits, which IPOPT violates by rounding."""
    states: FloatArray
    """`(n_steps, n_states)`, as the models predict them."""
    cost: float
    success: bool
    status: str
    """IPOPT's own status."""


@dataclass(frozen=True, eq=False)
class Tightening:
    """How far inside the lower and upper limits predicted states must stay: `(n_steps, n_states)` each."""

    below: FloatArray
    above: FloatArray


@dataclass(frozen=True, eq=False)
class CertaintyEquivalentOCP:
    """Minimise a cost of the predicted states and the inputs, subject to limits on both.

    Parameters
    ----------
    models : by step and state, kernel models of `z = (history, u_0, ..., u_{n-1})`, with priors or without
    cost : a `Cost`, such as `QuadraticCost`
    limits : Limits
        A box on the predicted states, and one on the inputs. Rates are not part of this problem: `certify` checks them.
    tightening : room left for model errors; none by default
    """

    models: tuple[tuple[NominalModel, ...], ...]
    cost: Cost
    limits: Limits
    tightening: Tightening | None = None

    @classmethod
    def from_runs(
        cls,
        runs: Trajectories,
        kernels: Any,
        regularisations: Any,
        *,
        cost: Cost,
        limits: GivenLimits | None = None,
        state_limits: GivenLimits | None = None,
        input_limits: Box | Intervals | None = None,
        tightening: Tightening | None = None,
        priors: GivenPriors = None,
    ) -> CertaintyEquivalentOCP:
        """On kernel-ridge models of recorded runs; kernels and regularisations for all, or by step and state.

        Limits as for `certify`: one object, or its parts by name.
        """
        placed = Limits.of(limits, state_limits, input_limits).over(runs.state_names, runs.input_names)
        models = nominal_models(runs, kernels, regularisations, priors)
        return cls(models, cost, replace(placed, inputs=placed.input_box), tightening)

    @classmethod
    def from_predictor(
        cls, predictor: MultiStepPredictor, regularisations: Any, **settings: Any
    ) -> CertaintyEquivalentOCP:
        """On kernel-ridge models with the data, kernels and priors of a predictor; `settings` as for `from_runs`."""
        return cls.from_runs(predictor.runs, predictor.kernels, regularisations, priors=predictor.priors, **settings)

    def __post_init__(self) -> None:
        if not (isinstance(self.limits.states, Box) and isinstance(self.limits.inputs, Box)):
            raise InputError("the certainty-equivalent problem takes limits on states and inputs as boxes")
        crossed = np.argwhere(self._tightened[0] > self._tightened[1])
        if len(crossed):
            n, i = crossed[0]
            raise InputError(f"the tightened limits leave nothing of state {i} at step {n + 1}")

    @property
    def horizon(self) -> int:
        """The number of steps."""
        return len(self.models)

    @property
    def n_history(self) -> int:
        """The number of entries of `x0`: the number of states, where these are known."""
        first = self.models[0][0]
        return int((first if isinstance(first, KernelModel) else first.rest).X.shape[1]) - self.input_limits.n_dims

    @property
    def state_limits(self) -> Box:
        """The box of the predicted states."""
        return self.limits.states  # type: ignore[return-value]  # checked when built

    @property
    def input_limits(self) -> Box:
        """The box of the inputs."""
        return self.limits.inputs  # type: ignore[return-value]

    @property
    def _tightened(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits of the predicted states, `(n_steps, n_states)`."""
        lower, upper = (np.tile(ends, (self.horizon, 1)) for ends in (self.state_limits.lower, self.state_limits.upper))
        if self.tightening is None:
            return lower, upper
        return lower + self.tightening.below, upper - self.tightening.above

    def solve(self, x0: npt.ArrayLike, guess: npt.ArrayLike | None = None) -> Plan:
        """The plan from an initial state; `guess` is a warm start for the inputs, by default mid-range."""
        n_inputs = self.input_limits.n_dims
        start = as_vector(x0, "x0", self.n_history)
        shape = (self.horizon, n_inputs)
        first = np.broadcast_to(self._middle, shape) if guess is None else as_floats(guess, "guess")
        if first.shape != shape:
            raise InputError(f"guess must have shape {shape}; got {first.shape}")
        solver, _ = self._compiled
        lower, upper = self._tightened
        solution = solver(
            x0=first.ravel(),
            p=start,
            lbx=np.tile(self.input_limits.lower, self.horizon),
            ubx=np.tile(self.input_limits.upper, self.horizon),
            lbg=lower.ravel(),
            ubg=upper.ravel(),
        )
        inputs = self.input_limits.clip(np.array(solution["x"]).reshape(shape))
        stats = solver.stats()
        states, cost = self.predict(start, inputs)
        return Plan(
            inputs,
            states,
            cost,
            bool(stats["success"]),
            str(stats["return_status"]),
        )

    def predict(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> tuple[FloatArray, float]:
        """The models' prediction for a plan: states `(n_steps, n_states)`, and the cost."""
        plan, shape = as_floats(inputs, "inputs"), (self.horizon, self.input_limits.n_dims)
        if plan.shape != shape:
            raise InputError(f"inputs must have shape {shape}, as long as the horizon of the models; got {plan.shape}")
        states, cost = self._compiled[1](as_floats(x0, "x0"), plan.ravel())
        return np.array(states).reshape(self.horizon, self.state_limits.n_dims), float(cost)

    def expressions(self, x0: Any, u: Any) -> tuple[Any, Any]:
        """Predicted states, stacked, and the cost, for CasADi columns of the initial state and all inputs."""
        import casadi

        n_inputs = self.input_limits.n_dims
        arguments = casadi.vertsplit(casadi.vertcat(x0, u))
        states, cost = [], 0.0
        for n, row in enumerate(self.models, start=1):
            z = casadi.vertcat(*arguments[: self.n_history + n * n_inputs])
            x = casadi.vertcat(*(model.casadi(z) for model in row))
            states.append(x)
            cost = cost + self.cost(x, u[(n - 1) * n_inputs : n * n_inputs], n)
        found: tuple[Any, Any] = casadi.cse([casadi.vertcat(*states), cost])
        return found

    def solve_many(self, x0: npt.ArrayLike, n_jobs: int | None = None, progress: Progress | None = None) -> list[Plan]:
        """A plan from every row of `x0`, from the same guess, so that results do not depend on how work is shared."""
        return solve_from(self, as_points(x0, "x0", self.n_history), _PLANS_PER_TASK, n_jobs, progress)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_compiled"}

    @property
    def _middle(self) -> FloatArray:
        """The middle of the input limits; where one is missing, as close to zero as the other allows."""
        middle = self.input_limits.clip(np.zeros(self.input_limits.n_dims))
        bounded = np.isfinite(self.input_limits.lower) & np.isfinite(self.input_limits.upper)
        middle[bounded] = (self.input_limits.lower[bounded] + self.input_limits.upper[bounded]) / 2.0
        return middle

    @cached_property
    def _compiled(self) -> tuple[Any, Any]:
        """The solver, and the prediction and cost as a function of initial state and inputs."""
        import casadi

        x0 = casadi.MX.sym("x0", self.n_history)
        u = casadi.MX.sym("u", self.horizon * self.input_limits.n_dims)
        g, cost = self.expressions(x0, u)
        programme: dict[str, Any] = {"x": u, "p": x0, "f": cost, "g": g}
        options: dict[str, Any] = {"print_time": False, "ipopt": {"print_level": 0, "sb": "yes"}}
        solver = casadi.nlpsol("ocp", "ipopt", programme, options)
        return solver, casadi.Function("predict", [x0, u], [g, cost])


def nominal_models(
    runs: Trajectories, kernels: Any, regularisations: Any, priors: GivenPriors = None
) -> tuple[tuple[NominalModel, ...], ...]:
    """Kernel-ridge models of recorded runs by step and state; kernels and regularisations for all, or likewise."""
    kernel = by_step_and_state(kernels, Kernel, "kernels", runs)
    added = by_step_and_state(regularisations, (float, int), "regularisations", runs)
    prior = by_step_and_state(priors, (AffinePrior, StepOfModel, type(None)), "priors", runs)

    def model(n: int, i: int) -> NominalModel:
        data = step_observations(runs, n + 1, i, prior=prior[n][i])
        rest = kernel_ridge(data, kernel[n][i], added[n][i])
        return rest if prior[n][i] is None else ModelWithPrior(prior[n][i], rest)

    return tuple(tuple(model(n, i) for i in range(runs.n_states)) for n in range(runs.horizon))


def solve_from(
    problem: Any, starts: FloatArray, plans_a_task: int, n_jobs: int | None, progress: Progress | None
) -> list[Any]:
    """`problem.solve` for every row of `starts`, shared among processes."""
    chunks = np.array_split(starts, max(1, len(starts) // plans_a_task))
    plans: list[Any] = []
    for part in in_parallel(_solve_each, [(problem, chunk) for chunk in chunks], n_jobs):
        plans += part
        if progress is not None:
            progress(len(plans), len(starts))
    return plans


def _solve_each(problem: Any, starts: FloatArray) -> list[Any]:
    return [problem.solve(x0) for x0 in starts]
