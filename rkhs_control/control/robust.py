"""The robust optimal control problem: inputs for which every box of the tube lies within the limits.

The result is judged by all true bounds, not by the approximations that the search used.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Verdict
from ..data.arrays import FloatArray, as_floats, as_points, as_vector
from ..data.limits import GivenLimits, Limits, PlacedLimits
from ..data.sets import Box
from ..errors import InputError
from ..parallel import Progress
from ..prediction.predictor import MultiStepPredictor
from .certainty_equivalent import CertaintyEquivalentOCP, Plan, solve_from
from .robust_search import Search, Task

_PLANS_PER_TASK = 4


@dataclass(frozen=True, eq=False)
class RobustPlan:
    """A plan, its certificate, and what it costs."""

    inputs: FloatArray
    certificate: Certificate
    cost: float
    """Cost of the nominal prediction."""
    start: Plan
    """The plan that the search started from: certainty-equivalent, or the one to repair."""
    iterations: int
    terminal: Box | None = None

    @property
    def success(self) -> bool:
        """Whether the plan is certified and ends in the terminal set."""
        tube = self.certificate.tube
        ends_there = self.terminal is None or bool(self.terminal.contains([tube.lower[-1], tube.upper[-1]]).all())
        return self.certificate.verdict is Verdict.CERTIFIED and ends_there

    @property
    def price(self) -> float:
        """Extra cost relative to the plan that it started from, as a share of that plan's cost."""
        dearer = self.cost - self.start.cost
        if dearer == 0.0:
            return 0.0
        return dearer / abs(self.start.cost) if self.start.cost else math.copysign(math.inf, dearer)


@dataclass(frozen=True, eq=False, init=False)
class RobustOCP:
    """Minimise the cost of the nominal prediction, with every box of the tube within the limits.

    Parameters
    ----------
    predictor : of a method whose bounds have gradients
    nominal : the certainty-equivalent problem with the models and the cost
    limits : Limits, or limits on the states alone
        What every box, input and change of the inputs must keep; inputs by default those of `nominal`.
    initial_state_noise : how far the true initial state may be from the one planned from, by default as far as recorded
        ones
    iterations : maximum number of plans tried after the first
    terminal : Box, optional
        Terminal set for the last box. Inside an invariant region there is always a plan from there on, so a loop that
        plans this way does not run out of plans.
    """

    predictor: MultiStepPredictor
    nominal: CertaintyEquivalentOCP
    limits: PlacedLimits
    initial_state_noise: FloatArray
    iterations: int
    terminal: Box | None

    def __init__(
        self,
        predictor: MultiStepPredictor,
        nominal: CertaintyEquivalentOCP,
        limits: GivenLimits,
        *,
        initial_state_noise: npt.ArrayLike | None = None,
        iterations: int = 40,
        terminal: Box | None = None,
    ) -> None:
        placed = Limits.of(limits).over(predictor.runs.state_names, predictor.runs.input_names)
        values = {
            "predictor": predictor,
            "nominal": nominal,
            "limits": replace(placed, inputs=nominal.input_limits) if placed.inputs is None else placed,
            "initial_state_noise": predictor.start_noise(initial_state_noise),
            "iterations": iterations,
            "terminal": terminal,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.predictor.horizon < self.nominal.horizon:
            raise InputError(
                f"the predictor has {self.predictor.horizon} steps, the nominal problem {self.nominal.horizon}"
            )
        if not self.predictor.method.has_gradients:
            raise InputError(f"{self.predictor.method.__name__} has no gradients; OptimalEnvelope has")
        for n, kernels in enumerate(self.predictor.kernels, start=1):
            z = self.predictor.runs.arguments(n)[:1]
            for kernel in kernels:
                kernel.gradient(z, z)  # refused now if there is none

    def solve(self, x0: npt.ArrayLike | Box, guess: npt.ArrayLike | None = None) -> RobustPlan:
        """The cheapest certified plan found, starting from the certainty-equivalent one.

        If that one is certified, it is the answer; if it breaks input rate limits, it is first moved within them. If
        none is found, the answer is the plan with the least violation. From a box, the plan serves all states in it.
        """
        if isinstance(x0, Box):
            middle, reach = x0.around()
            return replace(self, initial_state_noise=reach).solve(middle, guess)
        return self._improve(Task(as_floats(x0, "x0"), self.nominal.solve(x0, guess), is_repair=False))

    def solve_many(
        self, x0: npt.ArrayLike, n_jobs: int | None = None, progress: Progress | None = None
    ) -> list[RobustPlan]:
        """A plan from every row of `x0`."""
        return solve_from(self, as_points(x0, "x0", self.predictor.runs.n_history), _PLANS_PER_TASK, n_jobs, progress)

    def repair(self, x0: npt.ArrayLike, inputs: npt.ArrayLike, *, seconds: float = math.inf) -> RobustPlan:
        """The smallest change to a plan, in shares of the input ranges, that makes it certifiable.

        After `seconds`, no further plan is tried.
        """
        deadline = time.monotonic() + seconds
        start = as_vector(x0, "x0", self.predictor.runs.n_history)
        plan = self.limits.input_box.clip(as_floats(inputs, "inputs"))
        states, cost = self.nominal.predict(start, plan)
        return self._improve(Task(start, Plan(plan, states, cost, True, "given"), is_repair=True, deadline=deadline))

    def gradients(self, certificate: Certificate) -> FloatArray:
        """Gradients of the worst corners, `normal . x`, by inputs: `(n_steps, n_constraints, n_steps * n_inputs)`."""
        question, tube = certificate.question, certificate.tube
        return self._search.slopes(
            question.x0, question.inputs, tube.witnesses, np.ones(tube.witnesses.shape, dtype=bool)
        )

    def _improve(self, task: Task) -> RobustPlan:
        best, tried = self._search.improve(task)
        return RobustPlan(best.inputs, best.certificate, best.cost, task.start, tried, self.terminal)

    @cached_property
    def _search(self) -> Search:
        return Search(
            self.predictor, self.nominal, self.limits, self.initial_state_noise, self.iterations, self.terminal
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the functions compiled by CasADi."""
        return {name: value for name, value in vars(self).items() if name != "_search"}
