"""The certifier: will this planned input sequence keep the real plant within its limits?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from .predictor import MultiStepPredictor, Tube
from .sets import Box, Polytope
from .validation import FloatArray, as_floats
from .witness import dot_up

LARGEST_FACTOR = 16.0
"""Margins beyond this are not told apart: the longer a path, the more it takes, and the answer is the same."""


class Verdict(Enum):
    """The three possible answers; the value is what they mean."""

    CERTIFIED = "every box lies within the limits: the plant stays inside, if the assumptions hold"
    UNDECIDED = "some box lies partly outside: the data cannot tell"
    REFUTED = "some box lies wholly outside, or the inputs break their own limits: the plant will violate them"


@dataclass(frozen=True, eq=False)
class Question:
    """A plan, and the limits that it is to keep; `ask` a predictor."""

    x0: FloatArray
    inputs: FloatArray
    state_limits: Box | Polytope
    input_limits: Box | None = None
    input_rate_limits: Box | None = None
    initial_state_noise: float | FloatArray = 0.0

    def ask(self, predictor: MultiStepPredictor, n_jobs: int | None = None) -> Certificate:
        """The answer of one predictor."""
        tube = predictor.boxes(self.x0, self.inputs, initial_state_noise=self.initial_state_noise, n_jobs=n_jobs)
        return self._answer(predictor, tube)

    def _answer(self, predictor: MultiStepPredictor, tube: Tube) -> Certificate:
        limits = self.state_limits
        margins, hopes = _margins(tube, limits.as_polytope() if isinstance(limits, Box) else limits)
        names = predictor.runs.input_names
        violation = _input_violation(self.inputs, self.input_limits, self.input_rate_limits, names)
        if violation is not None or (hopes < 0).any():
            verdict = Verdict.REFUTED
        elif (margins >= 0).all():
            verdict = Verdict.CERTIFIED
        else:
            verdict = Verdict.UNDECIDED
        constraints = _constraint_names(limits, predictor.runs.state_names)
        return Certificate(verdict, tube, margins, hopes, constraints, violation, self, predictor)


@dataclass(frozen=True, eq=False)
class Certificate:
    """The answer for one plan, and by how much."""

    verdict: Verdict
    tube: Tube
    margins: FloatArray
    """`(n_steps, n_constraints)`: how far inside each constraint the whole box is; negative where a part is outside."""
    hopes: FloatArray
    """Likewise for the part of the box that is furthest inside; negative where the whole box is outside."""
    constraint_names: tuple[str, ...]
    input_violation: str | None
    """What the inputs themselves break, if anything."""
    question: Question
    predictor: MultiStepPredictor

    @property
    def margin(self) -> float:
        """The smallest of all margins; zero or more exactly if the states are certified."""
        return float(self.margins.min(initial=np.inf))

    @property
    def first_failure(self) -> tuple[int, str] | None:
        """The first step (from 1) whose box is not within the limits, and its worst constraint."""
        failing = np.flatnonzero((self.margins < 0).any(axis=1))
        if len(failing) == 0:
            return None
        step = int(failing[0])
        return step + 1, self.constraint_names[int(np.argmin(self.margins[step]))]

    @cached_property
    def norm_margin(self) -> float:
        """The largest factor on all norm bounds under which the plan is certified, within 0.1 % and from below.

        Above one for a certified plan: how wrong the norm bounds may be before the answer changes. Below one, a plan
        would be certified if the bounds could be trusted to be that much smaller; zero if none that the data do not
        refute would do. Infinite beyond 16.
        """
        return self._largest_factor("norm")

    @cached_property
    def noise_margin(self) -> float:
        """Likewise the largest factor on all noise bounds."""
        return self._largest_factor("noise")

    def _largest_factor(self, assumption: str) -> float:
        """As a factor grows, the data refute it, then the plan is certified with it, then not."""
        if self.verdict is Verdict.REFUTED:
            return 0.0
        low, high, is_certified = 0.0, 1.0, False
        while (verdict := self._verdict_with(assumption, high)) is not Verdict.UNDECIDED:
            low, high, is_certified = high, 2.0 * high, verdict is Verdict.CERTIFIED
            if low >= LARGEST_FACTOR:
                return math.inf
        while high - low > 1e-3 * high and high > 1e-3:
            middle = (low + high) / 2.0
            verdict = self._verdict_with(assumption, middle)
            if verdict is Verdict.UNDECIDED:
                high = middle
            else:
                low, is_certified = middle, verdict is Verdict.CERTIFIED
        return low if is_certified else 0.0

    def _verdict_with(self, assumption: str, factor: float) -> Verdict | None:
        """Under assumptions changed by a factor; none where the data refute them."""
        if factor == 1.0:
            return self.verdict
        try:
            return self.question.ask(self.predictor.scaled(**{assumption: factor})).verdict
        except (FalsifiedNormBoundError, ContradictoryDataError):
            return None

    def explain(self) -> str:
        """The verdict in a sentence."""
        if self.input_violation is not None:
            return f"{self.verdict.name}: {self.input_violation}"
        if self.first_failure is None:
            return f"{self.verdict.name}: every box is inside the limits by at least {self.margin:.4g}"
        step, name = self.first_failure
        return f"{self.verdict.name}: at step {step} the box passes {name} by {-self.margins[step - 1].min():.4g}"


def certify(
    predictor: MultiStepPredictor,
    x0: npt.ArrayLike,
    inputs: npt.ArrayLike,
    *,
    state_limits: Box | Polytope,
    input_limits: Box | None = None,
    input_rate_limits: Box | None = None,
    initial_state_noise: float | npt.ArrayLike = 0.0,
    n_jobs: int | None = None,
) -> Certificate:
    """Check one plan, `x0` `(n_states,)` and `inputs` `(n_steps, n_inputs)`, against limits.

    `input_rate_limits` bound the change of the inputs from one step to the next. There is no tolerance anywhere: a box
    that passes a limit by one rounding error is not inside.
    """
    start, plan = as_floats(x0, "x0"), as_floats(inputs, "inputs")
    if start.ndim != 1 or plan.ndim != 2:
        raise InputError("certify takes one plan: x0 (n_states,) and inputs (n_steps, n_inputs)")
    limits = (state_limits, input_limits, input_rate_limits)
    return certify_plans(predictor, start[None], plan[None], *limits, initial_state_noise, n_jobs)[0]


def certify_plans(
    predictor: MultiStepPredictor,
    x0: npt.ArrayLike,
    inputs: npt.ArrayLike,
    state_limits: Box | Polytope,
    input_limits: Box | None = None,
    input_rate_limits: Box | None = None,
    initial_state_noise: float | npt.ArrayLike = 0.0,
    n_jobs: int | None = None,
) -> list[Certificate]:
    """`certify` for many plans at once: `(n_plans, n_states)` and `(n_plans, n_steps, n_inputs)`."""
    starts, plans = as_floats(x0, "x0"), as_floats(inputs, "inputs")
    noise = as_floats(initial_state_noise, "initial_state_noise")
    if starts.ndim != 2 or plans.ndim != 3:
        raise InputError("certify_plans takes x0 (n_plans, n_states) and inputs (n_plans, n_steps, n_inputs)")
    for name, limits, size in (
        ("state_limits", state_limits, predictor.runs.n_states),
        ("input_limits", input_limits, predictor.runs.n_inputs),
        ("input_rate_limits", input_rate_limits, predictor.runs.n_inputs),
    ):
        if limits is not None and limits.n_dims != size:
            raise InputError(f"{name} must have {size} dimensions; got {limits.n_dims}")
    tubes = predictor.boxes(starts, plans, initial_state_noise=noise, n_jobs=n_jobs)
    return [
        Question(start, plan, state_limits, input_limits, input_rate_limits, noise)._answer(predictor, tubes[i])
        for i, (start, plan) in enumerate(zip(starts, plans, strict=True))
    ]


def _margins(tube: Tube, polytope: Polytope) -> tuple[FloatArray, FloatArray]:
    """How far inside every constraint the worst corner of every box is, rounded down, and the best one, rounded up."""
    shape = (len(tube.lower), len(polytope.offsets))
    margins, hopes = np.empty(shape), np.empty(shape)
    for n in range(shape[0]):
        for c, normal in enumerate(polytope.normals):
            far = np.where(normal > 0, tube.upper[n], tube.lower[n])
            near = np.where(normal > 0, tube.lower[n], tube.upper[n])
            used, offset = normal != 0, polytope.offsets[c]
            margins[n, c] = _difference_down(offset, _dot_up(normal[used], far[used]))
            hopes[n, c] = -_difference_down(_dot_down(normal[used], near[used]), offset)
    return margins, hopes


def _dot_up(normal: FloatArray, x: FloatArray) -> float:
    """`normal . x`, rounded up; exact for a plain limit of one state."""
    if len(normal) == 1 and abs(normal[0]) == 1.0:
        return float(normal[0] * x[0])
    return dot_up(normal, x)


def _dot_down(normal: FloatArray, x: FloatArray) -> float:
    return -_dot_up(-normal, x)


def _difference_down(a: float, b: float) -> float:
    """`a - b`, rounded down; its sign is that of the comparison."""
    return 0.0 if a == b else float(np.nextafter(a - b, -np.inf))


def _input_violation(plan: FloatArray, limits: Box | None, rates: Box | None, names: tuple[str, ...]) -> str | None:
    """The first input, or change of one, outside its limits."""
    for what, values, box in (("", plan, limits), ("change of ", np.diff(plan, axis=0), rates)):
        if box is not None:
            outside = np.argwhere((values < box.lower) | (values > box.upper))
            if len(outside):
                n, j = (int(i) for i in outside[0])
                return (
                    f"the {what}input {names[j]} at step {n} is {values[n, j]:.6g}, outside "
                    f"[{box.lower[j]:g}, {box.upper[j]:g}]"
                )
    return None


def _constraint_names(limits: Box | Polytope, names: tuple[str, ...]) -> tuple[str, ...]:
    """In the order of `Box.as_polytope`: uppers, then lowers; those of a polytope are numbered."""
    if isinstance(limits, Polytope):
        return tuple(f"constraint {c}" for c in range(len(limits.offsets)))
    uppers = [f"{name} <= {end:g}" for name, end in zip(names, limits.upper, strict=True) if np.isfinite(end)]
    lowers = [f"{name} >= {end:g}" for name, end in zip(names, limits.lower, strict=True) if np.isfinite(end)]
    return tuple(uppers + lowers)
