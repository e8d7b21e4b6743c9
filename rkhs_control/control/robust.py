"""The robust optimal control problem: inputs for which every box of the tube lies within the limits.

The optimal bounds enter with their exact gradients (by the envelope theorem, those of the witness held fixed). Around a
plan they are replaced by their tangents, IPOPT minimises the cost of the nominal prediction in a region where these can
be trusted, and the bounds at the solution are computed anew. What the constraints lack is penalised, so that the search
may start from a plan that cannot be certified. What is returned is judged by the true bounds, not by their tangents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certifier import Certificate, Question, Verdict
from ..envelope.closed_form import ClosedFormEnvelope
from ..envelope.optimal import OptimalEnvelope
from ..errors import InputError
from ..predictor import MultiStepPredictor
from ..sets import Box, Polytope
from ..validation import FloatArray, as_floats, as_vector
from .certainty_equivalent import CertaintyEquivalentOCP, Plan

_PENALTY = 1e3  # of what a constraint lacks, against the cost
_BACKOFF = 1e-4  # that limits are tightened by, as a share of what the boxes take: tangents and IPOPT are not exact
_SMOOTHING = 1e-7  # of roots and absolute values in the closed form, for its derivatives
_STILL = 1e-4  # a plan that may move by less, as a share of the range of the inputs, has arrived
_FIRST_RADIUS = 0.1  # of the region of trust, likewise


@dataclass(frozen=True, eq=False)
class RobustPlan:
    """A plan, its certificate, and what it costs."""

    inputs: FloatArray
    certificate: Certificate
    cost: float
    """Of the nominal prediction."""
    start: Plan
    """The plan that it started from: certainty equivalent, or the one to repair."""
    iterations: int

    @property
    def success(self) -> bool:
        return self.certificate.verdict is Verdict.CERTIFIED

    @property
    def price(self) -> float:
        """How much dearer it is than what it started from, as a share of that cost."""
        return (self.cost - self.start.cost) / abs(self.start.cost)


@dataclass(frozen=True, eq=False)
class RobustOCP:
    """Minimise the cost of the nominal prediction with every box of the tube within the limits.

    Parameters
    ----------
    predictor : of `OptimalEnvelope`s, or of `ClosedFormEnvelope`s, which CasADi differentiates
    nominal : the certainty-equivalent problem with the models, the cost and the input limits
    state_limits, input_rate_limits : what every box, and every change of the inputs, must keep
    initial_state_noise : how far the true initial state may be from the one planned from
    iterations : at most so many times are the bounds computed
    """

    predictor: MultiStepPredictor
    nominal: CertaintyEquivalentOCP
    state_limits: Box | Polytope
    input_rate_limits: Box | None = None
    initial_state_noise: float | FloatArray = 0.0
    iterations: int = 40
    _gradients: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.predictor.horizon < self.nominal.horizon:
            raise InputError(
                f"the predictor has {self.predictor.horizon} steps, the nominal problem {self.nominal.horizon}"
            )
        if not issubclass(self.predictor.method, OptimalEnvelope | ClosedFormEnvelope):
            raise InputError(f"there are no gradients of {self.predictor.method.__name__}; OptimalEnvelope has them")

    def solve(self, x0: npt.ArrayLike, guess: npt.ArrayLike | None = None) -> RobustPlan:
        """The cheapest plan that is found to be certified, from the certainty-equivalent one on.

        If that one is certified, it is the answer. If none is found, the answer is the one that lacks least.
        """
        return self._improve(as_floats(x0, "x0"), self.nominal.solve(x0, guess), is_repair=False)

    def repair(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> RobustPlan:
        """The smallest change of a plan, in shares of the input ranges, that makes it certifiable."""
        start = as_vector(x0, "x0", self.predictor.runs.n_states)
        plan = self.nominal.input_limits.clip(as_floats(inputs, "inputs"))
        states, cost = self.nominal.predict(start, plan)
        return self._improve(start, Plan(plan, states, cost, True, "given"), is_repair=True)

    def gradients(self, certificate: Certificate) -> FloatArray:
        """Of the worst corners, `normal . x`, by the inputs: `(n_steps, n_constraints, n_steps * n_inputs)`."""
        question = certificate.question
        polytope, plan = question.polytope, question.inputs.ravel()
        n_inputs, n_states = question.inputs.shape[1], len(question.x0)
        n_steps = len(question.inputs)
        result = np.zeros((n_steps, len(polytope.offsets), plan.size))
        for n in range(n_steps):
            z = np.concatenate([question.x0, plan[: (n + 1) * n_inputs]])
            ends = np.array([self._end_gradients(n, i, z, certificate) for i in range(n_states)])[:, :, n_states:]
            for c, normal in enumerate(polytope.normals):
                result[n, c, : ends.shape[2]] = sum(a * ends[i, int(a > 0)] for i, a in enumerate(normal))
        return result

    def _end_gradients(self, n: int, i: int, z: FloatArray, certificate: Certificate) -> FloatArray:
        """Of the lower and the upper bound of a state by `z`, `(2, n_dims)`; zero where there is a kink."""
        envelope = self.predictor.envelopes[n][i]
        if isinstance(envelope, OptimalEnvelope):
            below, above = certificate.tube.witnesses[n, i]
            pair = np.array([-envelope.witness_gradient(z, below), envelope.witness_gradient(z, above)])
        else:
            assert isinstance(envelope, ClosedFormEnvelope)
            if (n, i) not in self._gradients:
                self._gradients[n, i] = _closed_form_gradients(envelope)
            pair = np.array(self._gradients[n, i](z)) * np.array([[-1.0], [1.0]])
        return np.nan_to_num(pair)

    def _improve(self, x0: FloatArray, start: Plan, *, is_repair: bool) -> RobustPlan:
        """Follow the tangents from the best plan so far, in a region that grows with success and shrinks without."""
        best = self._assess(x0, start.inputs, start, is_repair)
        radius, tried = _FIRST_RADIUS, 0
        while best.certificate.verdict is not Verdict.CERTIFIED or tried:
            if tried == self.iterations or radius < _STILL:
                break
            tried += 1
            trial = self._assess(x0, self._solve_near(x0, best, start, radius, is_repair), start, is_repair)
            gain = best.merit - trial.merit
            if gain <= 0:
                radius /= 3.0
                continue
            has_arrived = trial.lacking == 0.0 and gain < 1e-4 * abs(trial.merit)
            best, radius = trial, min(1.0, 2.0 * radius)
            if has_arrived:
                break
        return RobustPlan(best.inputs, best.certificate, best.cost, start, tried)

    def _assess(self, x0: FloatArray, inputs: FloatArray, start: Plan, is_repair: bool) -> _Iterate:
        """A plan under the true bounds."""
        question = Question(
            x0, inputs, self.state_limits, self.nominal.input_limits, self.input_rate_limits, self.initial_state_noise
        )
        certificate = question.ask(self.predictor)
        cost = self.nominal.predict(x0, inputs)[1]
        lacking = float(np.maximum(0.0, -certificate.margins).sum())
        objective = float(np.sum(((inputs - start.inputs) / self._ranges) ** 2)) if is_repair else cost
        return _Iterate(inputs, certificate, cost, lacking, objective + _PENALTY * lacking)

    def _solve_near(self, x0: FloatArray, at: _Iterate, start: Plan, radius: float, is_repair: bool) -> FloatArray:
        """The best plan no further than `radius` from one, by the tangents of the bounds there."""
        limits, steps = self.nominal.input_limits, self.nominal.horizon - 1
        slopes = self.gradients(at.certificate).reshape(-1, at.inputs.size)
        margins = at.certificate.margins.ravel()
        widths = (at.certificate.tube.upper - at.certificate.tube.lower).max(axis=1, initial=0.0)
        backoff = _BACKOFF * np.repeat(widths, at.certificate.margins.shape[1])
        rates = self.input_rate_limits or Box(np.full(limits.n_dims, -np.inf), np.full(limits.n_dims, np.inf))
        lower = np.maximum(limits.lower, at.inputs - radius * self._ranges).ravel()
        upper = np.minimum(limits.upper, at.inputs + radius * self._ranges).ravel()
        # slopes @ (u - u_at) - slack <= margins - backoff
        solution = self._solvers[int(is_repair)](
            x0=np.concatenate([at.inputs.ravel(), np.maximum(0.0, -margins)]),
            p=np.concatenate([x0, start.inputs.ravel(), slopes.ravel(order="F")]),
            lbx=np.concatenate([lower, np.zeros(len(margins))]),
            ubx=np.concatenate([upper, np.full(len(margins), np.inf)]),
            lbg=np.concatenate([np.full(len(margins), -np.inf), np.tile(rates.lower, steps)]),
            ubg=np.concatenate([margins - backoff + slopes @ at.inputs.ravel(), np.tile(rates.upper, steps)]),
        )
        flat = np.array(solution["x"]).ravel()[: at.inputs.size]
        return limits.clip(flat.reshape(at.inputs.shape))

    @property
    def _ranges(self) -> FloatArray:
        return np.maximum(self.nominal.input_limits.upper - self.nominal.input_limits.lower, 1e-12)

    @cached_property
    def _solvers(self) -> list[Any]:
        """Of the problem with linear constraints, for the nominal cost and for the change of a plan."""
        import casadi

        horizon, n_inputs, n_states = self.nominal.horizon, len(self._ranges), self.predictor.runs.n_states
        n_rows = horizon * len(self.state_limits.as_polytope().offsets)
        x0, u = casadi.MX.sym("x0", n_states), casadi.MX.sym("u", horizon * n_inputs)
        wanted, slack = casadi.MX.sym("wanted", horizon * n_inputs), casadi.MX.sym("slack", n_rows)
        slopes = casadi.MX.sym("slopes", n_rows, horizon * n_inputs)
        change = casadi.sumsqr((u - wanted) / np.tile(self._ranges, horizon))
        options: dict[str, Any] = {"print_time": False, "ipopt": {"print_level": 0, "sb": "yes", "max_iter": 200}}
        solvers = []
        for cost in (self.nominal.expressions(x0, u)[1], change):
            programme: dict[str, Any] = {
                "x": casadi.vertcat(u, slack),
                "p": casadi.vertcat(x0, wanted, casadi.vec(slopes)),
                "f": cost + _PENALTY * casadi.sum1(slack),
                "g": casadi.vertcat(slopes @ u - slack, u[n_inputs:] - u[: (horizon - 1) * n_inputs]),
            }
            solvers.append(casadi.nlpsol("robust", "ipopt", programme, options))
        return solvers


@dataclass(frozen=True, eq=False)
class _Iterate:
    inputs: FloatArray
    certificate: Certificate
    cost: float
    lacking: float
    """The sum of what the boxes are outside the limits by."""
    merit: float


def _closed_form_gradients(envelope: ClosedFormEnvelope) -> Any:
    """Of the upper bounds of `-f` and of `f`, as a CasADi function."""
    import casadi

    z = casadi.MX.sym("z", envelope.data.n_dims)
    bounds = casadi.vertcat(*envelope.casadi_bounds(z, _SMOOTHING))
    return casadi.Function("gradients", [z], [casadi.jacobian(bounds, z)])
