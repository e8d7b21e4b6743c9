"""The certifier: will this planned input sequence keep the real plant within its limits?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..arithmetic.printing import NONE, margin_text, outside_text, rounded_down
from ..arithmetic.rounding import further_out
from ..data.arrays import FloatArray, as_floats, as_vector, require_finite
from ..data.fields import noise_by_state
from ..data.limits import GivenLimits, Intervals, Limits, PlacedLimits
from ..data.sets import Box
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError, SolverError
from ..prediction.predictor import MultiStepPredictor
from ..prediction.tube import Tube
from .causes import Cause, causes_of
from .format import CertificateFile
from .margins import box_margins, constraint_names, input_violation
from .shortcuts import Shown, explore

LARGEST_FACTOR = 16.0
"""Margins beyond this are not distinguished: a longer path takes more time, and the answer is the same."""


class Verdict(Enum):
    """The three possible answers; the value is what they mean."""

    CERTIFIED = "every box lies within the limits: the plant stays inside, if the assumptions hold"
    UNDECIDED = "some box lies partly outside: the data cannot tell"
    REFUTED = "some box lies wholly outside, or the inputs break their own limits: the plant will violate them"


def factor_text(factor: float | None) -> str:
    """Rounded down; empty where it was not computed, a dash where none would do, or the end of the search."""
    if factor is None:
        return ""
    if factor == 0.0:
        return NONE
    return f"≥{LARGEST_FACTOR:g}" if math.isinf(factor) else rounded_down(factor)


@dataclass(frozen=True, eq=False, init=False)
class Question:
    """A plan, and the limits that it should keep; `ask` a predictor.

    Parameters
    ----------
    x0 : (n_states,)
    inputs : (n_steps, n_inputs)
    limits : Limits, or what limits the states alone
    initial_state_noise : float or (n_states,)
        How far the true initial state may be from `x0`. None, until a predictor is asked, is as far as those of its
        runs; on a certificate it is always an array.
    """

    x0: FloatArray
    inputs: FloatArray
    limits: Limits
    initial_state_noise: FloatArray | None

    def __init__(
        self,
        x0: npt.ArrayLike,
        inputs: npt.ArrayLike,
        limits: GivenLimits,
        initial_state_noise: npt.ArrayLike | None = None,
    ) -> None:
        start, plan = as_vector(x0, "x0"), as_floats(inputs, "inputs")
        if plan.ndim != 2 or plan.size == 0:
            raise InputError(f"inputs must have shape (n_steps, n_inputs); got {plan.shape}")
        require_finite(plan, "inputs")
        noise = None if initial_state_noise is None else noise_by_state(initial_state_noise, len(start))
        values = {"x0": start, "inputs": plan, "limits": Limits.of(limits), "initial_state_noise": noise}
        for array in (start, plan):
            array.setflags(write=False)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def ask(self, predictor: MultiStepPredictor, n_jobs: int | None = None) -> Certificate:
        """The answer of one predictor."""
        limits = self.limits.over(predictor.runs.state_names, predictor.runs.input_names)
        noise = predictor.start_noise(self.initial_state_noise)
        tube = predictor.boxes(self.x0, self.inputs, initial_state_noise=noise, n_jobs=n_jobs)
        return replace(self, initial_state_noise=noise).answered(predictor, limits, tube)

    def answered(self, predictor: MultiStepPredictor, limits: PlacedLimits, tube: Tube) -> Certificate:
        """The answer, given the predictor's tube for this plan."""
        margins, hopes = box_margins(tube.lower, tube.upper, limits.polytope)
        violation = input_violation(self.inputs, limits, predictor.runs.input_names)
        is_certain = predictor.method.is_certain
        if violation is not None or (is_certain and (hopes < 0).any()):
            verdict = Verdict.REFUTED
        elif is_certain and (margins >= 0).all():
            verdict = Verdict.CERTIFIED
        else:
            verdict = Verdict.UNDECIDED
        return Certificate(
            verdict=verdict,
            tube=tube,
            margins=margins,
            hopes=hopes,
            constraint_names=constraint_names(limits.states, predictor.runs.state_names),
            input_violation=violation,
            question=self,
            limits=limits,
            predictor=predictor,
        )


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
    """The limit that the inputs themselves break, if any."""
    question: Question
    limits: PlacedLimits
    """Those of the question, in the order of the predictor's states and inputs."""
    predictor: MultiStepPredictor

    @property
    def margin(self) -> float:
        """The smallest of all margins; zero or more if and only if the states are certified."""
        return float(self.margins.min(initial=np.inf))

    @property
    def initial_state_noise(self) -> FloatArray:
        """How far the true initial state may be from the one in the question, `(n_states,)`."""
        return np.asarray(self.question.initial_state_noise)

    @property
    def first_failure(self) -> tuple[int, str] | None:
        """The first step (from 1) whose box is not within the limits, and its worst constraint."""
        return self._first(self.margins)

    @property
    def first_violation(self) -> tuple[int, str] | None:
        """The first step whose box lies wholly outside, and the constraint that it breaks."""
        return self._first(self.hopes)

    @property
    def starts_inside(self) -> bool:
        """Whether the initial state keeps the limits, wherever it may be; the verdict is about the steps after it."""
        n_states = self.tube.lower.shape[1]  # a history begins with the present states
        x0, noise = self.question.x0[:n_states], self.initial_state_noise[:n_states]
        lower, upper = further_out(x0, -noise), further_out(x0, noise)
        return bool((box_margins(lower[None], upper[None], self.limits.polytope)[0] >= 0.0).all())

    def _first(self, distances: FloatArray) -> tuple[int, str] | None:
        failing = np.flatnonzero((distances < 0).any(axis=1))
        if len(failing) == 0:
            return None
        step = int(failing[0])
        return step + 1, self.constraint_names[int(np.argmin(distances[step]))]

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
        """Likewise the largest factor on all noise bounds, including those of initial states."""
        return self._largest_factor("noise")

    def _largest_factor(self, assumption: str) -> float:
        """As a factor grows, it is first refuted by the data, then certifies the plan, then no longer does."""
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
        """Under assumptions changed by a factor; none where the data refute them.

        Where it cannot be decided whether they do, that never counts in favour of a larger factor.
        """
        if factor == 1.0:
            return self.verdict
        question = self.question
        if assumption == "noise":
            question = replace(question, initial_state_noise=factor * self.initial_state_noise)
        try:
            return question.ask(self.predictor.scaled(**{assumption: factor})).verdict
        except (FalsifiedNormBoundError, ContradictoryDataError):
            return None
        except SolverError:
            return None if factor < 1.0 else Verdict.UNDECIDED

    def explain(self) -> str:
        """The verdict in a sentence, and what it rests on."""
        return "; ".join(filter(None, (self.finding(), self.reason, self.predictor.assumption_text)))

    @property
    def reason(self) -> str:
        """For an undecided plan: what the width of the worst box is mainly due to; empty for others."""
        return f"its width is mainly due to {' and '.join(map(str, self.causes[:2]))}" if self.causes else ""

    def finding(self) -> str:
        """The verdict, and where or by how much; a guaranteed number is never enlarged by rounding."""
        if self.input_violation is not None:
            return f"{self.verdict.name}: {self.input_violation}"
        text = f"{self.verdict.name}: {self._where()}"
        if self.predictor.method.is_certain:
            return text
        return f"{text}; bounds of {self.predictor.method.__name__} hold with a probability only and certify nothing"

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """For an undecided plan: what makes the worst box so wide, largest share first."""
        if self.verdict is not Verdict.UNDECIDED or self.margin >= 0.0:
            return ()
        n, constraint = divmod(int(self.margins.argmin()), self.margins.shape[1])
        reach = np.abs(self.limits.polytope.normals[constraint]) * (self.tube.upper[n] - self.tube.lower[n])
        return causes_of(self, n, int(reach.argmax()))

    def _where(self) -> str:
        """How far the nearest box is inside the limits or, if one is not, where."""
        if not self.constraint_names:
            return "there is no limit on the states, so this promises nothing"
        if self.first_failure is None:
            return f"every box is inside the limits, the nearest by {rounded_down(self.margin)}"
        violation = self.first_violation
        step, name = self.first_failure if violation is None else violation
        distances, fails = (self.margins, "box passes") if violation is None else (self.hopes, "whole box breaks")

        def by(distance: float) -> str:
            return (margin_text if violation is None else outside_text)(distance).removeprefix("-")

        text = f"at step {step} the {fails} {name} by {by(float(distances[step - 1].min()))}"
        worst, constraint = divmod(int(distances.argmin()), distances.shape[1])
        if worst + 1 == step:
            return text
        return (
            text + f" (worst at step {worst + 1}: {self.constraint_names[constraint]} by {by(float(distances.min()))})"
        )

    def save(self, file: str | Path, *, data_file: str | Path | None = None, seed: int | None = None) -> None:
        """Write a self-contained proof, which `verify` checks without trusting anything here.

        It proves as well that what was recorded does not refute the assumptions. With `data_file`, from which the runs
        were read, that is all that is in it, held-out runs included. `seed`, that of a study, is only noted.

        Where recorded histories are uncertain, a second file beside it, which certificates of the same predictor share,
        tells how the intervals were narrowed.
        """
        from .narrowing_file import write_narrowing

        self.to_file(data_file, seed).write(file)
        write_narrowing(self.predictor, len(self.tube.lower), Path(file).parent)

    def to_file(self, data_file: str | Path | None = None, seed: int | None = None) -> CertificateFile:
        """The content of `save`."""
        from .proof import certificate_file

        return certificate_file(self, data_file, seed)

    def explore(self, title: str = "One plan") -> Shown:
        """A page in which limits can be moved and the verdict follows, for notebooks and to `save`: `rc.explore`."""
        return explore(self, title)

    def __repr__(self) -> str:
        """The verdict, and what it is about, in a few lines."""
        steps, states = self.tube.lower.shape
        return f"Certificate({self.finding()};\n    {steps} steps, {states} states, {self.predictor.method.__name__})"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, the binding margin of every step, and what is assumed."""
        rows = "".join(
            f"<tr><td>{n}</td><td>{escape(name)}</td><td>{margin_text(margin)}</td></tr>"
            for n, (margin, name) in enumerate(self._binding(), start=1)
        )
        return (
            f"<p><strong>{self.verdict.name}</strong>: {escape(self.verdict.value)}</p><p>{escape(self.explain())}</p>"
            f"<table><tr><th>step</th><th>nearest limit</th><th>margin</th></tr>{rows}</table>"
        )

    def _binding(self) -> list[tuple[float, str]]:
        """For every step, the least margin and its limit."""
        if not self.constraint_names:
            return []
        return [(float(row.min()), self.constraint_names[int(row.argmin())]) for row in self.margins]


def certify(
    predictor: MultiStepPredictor,
    x0: npt.ArrayLike | Box,
    inputs: npt.ArrayLike,
    limits: GivenLimits | None = None,
    *,
    state_limits: GivenLimits | None = None,
    input_limits: Box | Intervals | None = None,
    input_rate_limits: Box | Intervals | None = None,
    initial_state_noise: npt.ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Certificate:
    """Check one plan, `x0` `(n_states,)` and `inputs` `(n_steps, n_inputs)`, against limits.

    The limits are one `Limits` object, or its parts by name. There is no tolerance anywhere: a box that passes a limit
    by one rounding error is not inside. `initial_state_noise` says how far the true initial state may be from `x0`; by
    default as far as those of the runs, which begin with measured states if they are windows. With a `Box` for `x0` the
    answer is one for all initial states in it, to which only what is given is added.
    """
    if isinstance(x0, Box):
        x0, initial_state_noise = predictor.start_from(x0, initial_state_noise)
    start, plan = as_floats(x0, "x0"), as_floats(inputs, "inputs")
    if start.ndim != 1 or plan.ndim != 2:
        raise InputError("certify takes one plan: x0 (n_states,) and inputs (n_steps, n_inputs)")
    whole = Limits.of(limits, state_limits, input_limits, input_rate_limits)
    return certify_plans(
        predictor, start[None], plan[None], whole, initial_state_noise=initial_state_noise, n_jobs=n_jobs
    )[0]


def certify_plans(
    predictor: MultiStepPredictor,
    x0: npt.ArrayLike,
    inputs: npt.ArrayLike,
    limits: GivenLimits | None = None,
    *,
    state_limits: GivenLimits | None = None,
    input_limits: Box | Intervals | None = None,
    input_rate_limits: Box | Intervals | None = None,
    initial_state_noise: npt.ArrayLike | None = None,
    n_jobs: int | None = None,
) -> list[Certificate]:
    """`certify` for many plans at once: `(n_plans, n_states)` and `(n_plans, n_steps, n_inputs)`."""
    starts, plans = as_floats(x0, "x0"), as_floats(inputs, "inputs")
    if starts.ndim != 2 or plans.ndim != 3:
        raise InputError("certify_plans takes x0 (n_plans, n_states) and inputs (n_plans, n_steps, n_inputs)")
    whole = Limits.of(limits, state_limits, input_limits, input_rate_limits)
    placed = whole.over(predictor.runs.state_names, predictor.runs.input_names)
    noise = predictor.start_noise(initial_state_noise)
    tubes = predictor.boxes(starts, plans, initial_state_noise=noise, n_jobs=n_jobs)
    return [
        Question(start, plan, whole, noise).answered(predictor, placed, tubes[i])
        for i, (start, plan) in enumerate(zip(starts, plans, strict=True))
    ]
