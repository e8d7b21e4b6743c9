"""The certifier: will this planned input sequence keep the real plant within its limits?"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..arithmetic.printing import NONE, rounded_down
from ..arithmetic.rounding import dot_up
from ..assumptions.consistency import consistent_function
from ..assumptions.norms import NormBound
from ..assumptions.selection import step_observations
from ..data.arrays import FloatArray, as_floats
from ..data.files import load_trajectories
from ..data.sets import Box, Polytope
from ..data.trajectories import Trajectories
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError, RkhsControlError, SolverError
from ..prediction.predictor import MultiStepPredictor, Tube
from .format import (
    Assumed,
    CertificateFile,
    Claim,
    Component,
    DataPart,
    Ends,
    FilePart,
    Function,
    Halfspaces,
    MadeWith,
    Proof,
    QuestionPart,
)

LARGEST_FACTOR = 16.0
"""Margins beyond this are not told apart: the longer a path, the more it takes, and the answer is the same."""


class Verdict(Enum):
    """The three possible answers; the value is what they mean."""

    CERTIFIED = "every box lies within the limits: the plant stays inside, if the assumptions hold"
    UNDECIDED = "some box lies partly outside: the data cannot tell"
    REFUTED = "some box lies wholly outside, or the inputs break their own limits: the plant will violate them"


def factor_text(factor: float | None) -> str:
    """Rounded down; nothing where it was not looked for, a dash where none would do, or the end of the search."""
    if factor is None:
        return ""
    if factor == 0.0:
        return NONE
    return f"≥{LARGEST_FACTOR:g}" if math.isinf(factor) else rounded_down(factor)


@dataclass(frozen=True, eq=False)
class Question:
    """A plan, and the limits that it is to keep; `ask` a predictor."""

    x0: FloatArray
    inputs: FloatArray
    state_limits: Box | Polytope
    input_limits: Box | None = None
    input_rate_limits: Box | None = None
    initial_state_noise: Any = None
    """How far the true initial state may be from `x0`: a number, or one per state. None, until a predictor is asked, is
    as far as those of its runs; on a certificate it is always an array `(n_states,)`."""

    @property
    def polytope(self) -> Polytope:
        """The limits of the states, as inequalities."""
        return self.state_limits.as_polytope()

    def ask(self, predictor: MultiStepPredictor, n_jobs: int | None = None) -> Certificate:
        """The answer of one predictor."""
        noise = predictor.start_noise(self.initial_state_noise)
        tube = predictor.boxes(self.x0, self.inputs, initial_state_noise=noise, n_jobs=n_jobs)
        return replace(self, initial_state_noise=noise)._answer(predictor, tube)

    def _answer(self, predictor: MultiStepPredictor, tube: Tube) -> Certificate:
        margins, hopes = _margins(tube.lower, tube.upper, self.polytope)
        names = predictor.runs.input_names
        violation = input_violation(self.inputs, self.input_limits, self.input_rate_limits, names)
        is_certain = predictor.method.is_certain
        if violation is not None or (is_certain and (hopes < 0).any()):
            verdict = Verdict.REFUTED
        elif is_certain and (margins >= 0).all():
            verdict = Verdict.CERTIFIED
        else:
            verdict = Verdict.UNDECIDED
        constraints = _constraint_names(self.state_limits, predictor.runs.state_names)
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
        return self._first(self.margins)

    @property
    def first_violation(self) -> tuple[int, str] | None:
        """The first step whose box lies wholly outside, and the constraint that it breaks."""
        return self._first(self.hopes)

    @property
    def starts_inside(self) -> bool:
        """Whether the initial state keeps the limits, wherever it may be; the verdict is about the steps after it."""
        x0, noise = self.question.x0, self.question.initial_state_noise
        lower, upper = (np.where(noise == 0.0, x0, np.nextafter(x0 + s * noise, s * np.inf)) for s in (-1.0, 1.0))
        return bool((_margins(lower[None], upper[None], self.question.polytope)[0] >= 0.0).all())

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
        """Likewise the largest factor on all noise bounds, those of initial states included."""
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
        """Under assumptions changed by a factor; none where the data refute them.

        Where nobody can tell whether they do, that is never counted in favour of a larger factor.
        """
        if factor == 1.0:
            return self.verdict
        question = self.question
        if assumption == "noise":
            question = replace(question, initial_state_noise=factor * question.initial_state_noise)
        try:
            return question.ask(self.predictor.scaled(**{assumption: factor})).verdict
        except (FalsifiedNormBoundError, ContradictoryDataError):
            return None
        except SolverError:
            return None if factor < 1.0 else Verdict.UNDECIDED

    def explain(self) -> str:
        """The verdict in a sentence, and what it rests on."""
        return "; ".join(filter(None, (self.finding(), self.predictor.assumption_text)))

    def finding(self, amount: Callable[[float], str] = lambda distance: f"{-distance:.4g}") -> str:
        """The verdict, and where or by how much; `amount` writes how far outside a negative distance is."""
        if self.input_violation is not None:
            return f"{self.verdict.name}: {self.input_violation}"
        text = f"{self.verdict.name}: {self._where(amount)}"
        if self.predictor.method.is_certain:
            return text
        return f"{text}; bounds of {self.predictor.method.__name__} hold with a probability only and certify nothing"

    def _where(self, amount: Callable[[float], str]) -> str:
        """By how much the nearest box is inside the limits or, if one is not, where."""
        if not self.constraint_names:
            return "there is no limit of the states, so this promises nothing"
        if self.first_failure is None:
            return f"every box is inside the limits, the nearest by {self.margin:.4g}"
        if self.first_violation is not None:
            (step, name), distances, fails = self.first_violation, self.hopes, "whole box breaks"
        else:
            (step, name), distances, fails = self.first_failure, self.margins, "box passes"
        text = f"at step {step} the {fails} {name} by {amount(float(distances[step - 1].min()))}"
        worst, constraint = divmod(int(distances.argmin()), distances.shape[1])
        if worst + 1 == step:
            return text
        return text + f" (worst at step {worst + 1}: {self.constraint_names[constraint]} by {amount(distances.min())})"

    def save(self, file: str | Path, *, data_file: str | Path | None = None, seed: int | None = None) -> None:
        """Write a self-contained proof, which `verify` checks without trusting anything here.

        It proves as well that what was recorded does not refute the assumptions. With `data_file`, from which the runs
        were read, that is all that is in it, held-out runs included. `seed`, that of a study, is only noted.
        """
        self.to_file(data_file, seed).write(file)

    def to_file(self, data_file: str | Path | None = None, seed: int | None = None) -> CertificateFile:
        """The content of `save`."""
        predictor, question = self.predictor, self.question
        if not self.constraint_names:
            raise InputError("without a limit of the states a certificate would promise nothing, and is not written")
        n_steps, n_states = self.tube.lower.shape
        polytope = question.polytope
        noise = np.broadcast_to(question.initial_state_noise, (n_states,)).tolist()
        source, file, content = None, None if data_file is None else Path(data_file), ""
        if file is not None:
            content = sha256(file.read_bytes()).hexdigest()
        is_windowed, functions = _consistent_functions(predictor, n_steps, file, content)
        if file is not None:
            source = FilePart(name=file.name, sha256=content, is_windowed=is_windowed)
        return CertificateFile(
            question=QuestionPart(
                state_names=list(predictor.runs.state_names),
                input_names=list(predictor.runs.input_names),
                x0=question.x0.tolist(),
                inputs=question.inputs.tolist(),
                initial_state_noise=noise,
                state_limits=Halfspaces(
                    names=list(self.constraint_names),
                    normals=polytope.normals.tolist(),
                    offsets=polytope.offsets.tolist(),
                ),
                input_limits=_ends(question.input_limits),
                input_rate_limits=_ends(question.input_rate_limits),
            ),
            data=DataPart(
                n_runs=len(predictor.runs),
                sha256=predictor.runs.sha256,
                file=source,
                initial_state_noise=np.asarray(predictor.initial_state_noise).tolist(),
            ),
            steps=[[self._component(n, i, functions[n][i]) for i in range(n_states)] for n in range(n_steps)],
            claim=Claim(
                verdict=self.verdict.name,  # type: ignore[arg-type]
                margin=self.margin if self.margins.size else None,
                margins=self.margins.tolist(),
            ),
            made_with=MadeWith(
                rkhs_control=__version__, python=platform.python_version(), numpy=np.__version__, seed=seed
            ),
        )

    def _component(self, n: int, i: int, consistency: Function) -> Component:
        """State `i` after `n + 1` steps, as it is written to a file."""
        envelope, tube = self.predictor.envelopes[n][i], self.tube
        proofs = []
        for bound, witness in zip((tube.lower[n, i], tube.upper[n, i]), tube.witnesses[n, i], strict=True):
            if witness is None:
                raise InputError(f"{type(envelope).__name__} has no witnesses to save; OptimalEnvelope has")
            data, touched = envelope.data, witness.indices
            proofs.append(
                Proof(
                    bound=float(bound),
                    inputs=data.X[touched].tolist(),
                    intervals=list(zip(data.lower[touched].tolist(), data.upper[touched].tolist(), strict=True)),
                    weights=witness.weights.tolist(),
                )
            )
        norm = NormBound.of(envelope.norm_bound)
        return Component(
            kernel=envelope.kernel.to_dict(),
            norm_bound=Assumed(value=norm.value, provenance=norm.provenance),
            noise_bound=Assumed(value=float(self.predictor.runs.noise_bound[n, i]), provenance="given with the runs"),
            consistency=consistency,
            lower=proofs[0],
            upper=proofs[1],
        )


def certify(
    predictor: MultiStepPredictor,
    x0: npt.ArrayLike,
    inputs: npt.ArrayLike,
    *,
    state_limits: Box | Polytope,
    input_limits: Box | None = None,
    input_rate_limits: Box | None = None,
    initial_state_noise: npt.ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Certificate:
    """Check one plan, `x0` `(n_states,)` and `inputs` `(n_steps, n_inputs)`, against limits.

    `input_rate_limits` bound the change of the inputs from one step to the next. There is no tolerance anywhere: a box
    that passes a limit by one rounding error is not inside. `initial_state_noise` says how far the true initial state
    may be from `x0`; by default as far as those of the runs, which begin with measured states if they are windows.
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
    initial_state_noise: npt.ArrayLike | None = None,
    n_jobs: int | None = None,
) -> list[Certificate]:
    """`certify` for many plans at once: `(n_plans, n_states)` and `(n_plans, n_steps, n_inputs)`."""
    starts, plans = as_floats(x0, "x0"), as_floats(inputs, "inputs")
    noise = predictor.start_noise(initial_state_noise)
    if starts.ndim != 2 or plans.ndim != 3:
        raise InputError("certify_plans takes x0 (n_plans, n_states) and inputs (n_plans, n_steps, n_inputs)")
    require_sizes(predictor, state_limits, input_limits, input_rate_limits)
    tubes = predictor.boxes(starts, plans, initial_state_noise=noise, n_jobs=n_jobs)
    return [
        Question(start, plan, state_limits, input_limits, input_rate_limits, noise)._answer(predictor, tubes[i])
        for i, (start, plan) in enumerate(zip(starts, plans, strict=True))
    ]


def require_sizes(
    predictor: MultiStepPredictor, state_limits: Box | Polytope, input_limits: Box | None, input_rate_limits: Box | None
) -> None:
    """Refuse limits of more or fewer states or inputs than were recorded."""
    for name, limits, size in (
        ("state_limits", state_limits, predictor.runs.n_states),
        ("input_limits", input_limits, predictor.runs.n_inputs),
        ("input_rate_limits", input_rate_limits, predictor.runs.n_inputs),
    ):
        if limits is not None and limits.n_dims != size:
            raise InputError(f"{name} must have {size} dimensions; got {limits.n_dims}")


def _margins(lower: FloatArray, upper: FloatArray, polytope: Polytope) -> tuple[FloatArray, FloatArray]:
    """How far inside every constraint the worst corner of every box is, rounded down, and the best one, rounded up."""
    shape = (len(lower), len(polytope.offsets))
    margins, hopes = np.empty(shape), np.empty(shape)
    for n in range(shape[0]):
        for c, normal in enumerate(polytope.normals):
            far = np.where(normal > 0, upper[n], lower[n])
            near = np.where(normal > 0, lower[n], upper[n])
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


def input_violation(plan: FloatArray, limits: Box | None, rates: Box | None, names: tuple[str, ...]) -> str | None:
    """The first input, or change of one, outside its limits; changes are exact."""
    exact = [[Fraction(u) for u in row] for row in plan.tolist()]
    changes = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(exact)]
    for what, rows, box in (("", exact, limits), ("change of ", changes, rates)):
        if box is None:
            continue
        ends = list(zip(names, box.lower.tolist(), box.upper.tolist(), strict=True))
        for n, row in enumerate(rows):
            for value, (name, low, high) in zip(row, ends, strict=True):
                if value < low or value > high:
                    return f"the {what}input {name} at step {n} is {float(value):.6g}, outside [{low:g}, {high:g}]"
    return None


def _ends(box: Box | None) -> Ends | None:
    """For a file: infinite ends are none."""
    if box is None:
        return None
    lower, upper = ([x if math.isfinite(x) else None for x in end.tolist()] for end in (box.lower, box.upper))
    return Ends(lower=lower, upper=upper)


def _constraint_names(limits: Box | Polytope, names: tuple[str, ...]) -> tuple[str, ...]:
    """In the order of `Box.as_polytope`: uppers, then lowers; those of a polytope are numbered."""
    if isinstance(limits, Polytope):
        return tuple(f"constraint {c}" for c in range(len(limits.offsets)))
    uppers = [f"{name} <= {_exact(end)}" for name, end in zip(names, limits.upper, strict=True) if np.isfinite(end)]
    lowers = [f"{name} >= {_exact(end)}" for name, end in zip(names, limits.lower, strict=True) if np.isfinite(end)]
    return tuple(uppers + lowers)


def _exact(value: float) -> str:
    """A number as the checker writes it: so that it reads back the same, without a point where it is whole."""
    return repr(float(value) + 0.0).removesuffix(".0")


@lru_cache(maxsize=1)  # they do not depend on the plan, and plans are saved one after the other
def _consistent_functions(
    predictor: MultiStepPredictor, n_steps: int, file: Path | None, content: str
) -> tuple[bool, list[list[Function]]]:
    """For every step and state a function that keeps the assumptions: through all runs, or all that the file holds.

    Also whether the runs are windows of what the file holds, whose `content` has this hash.
    """
    runs = predictor.runs
    is_windowed, recorded = (False, [runs] * n_steps) if file is None else _recorded(file, runs, n_steps)
    widening = predictor.displacements(predictor.initial_state_noise, n_steps)
    rows: list[list[Function]] = []
    for n, all_of_them in enumerate(recorded):
        rows.append([])
        for i, envelope in enumerate(predictor.envelopes[n]):
            try:
                data = envelope.data
                if all_of_them is not runs:
                    data = step_observations(all_of_them, n + 1, i, runs.noise_bound[n, i] + widening[n, i])
                witness = consistent_function(data, envelope.kernel, envelope.radius)
            except RkhsControlError as error:
                where = "" if file is None else f"all recordings in {file}, also those that were held out: "
                raise type(error)(f"{where}step {n + 1}, state {runs.state_names[i]}: {error}") from None
            rows[n].append(Function(inputs=data.X[witness.indices].tolist(), weights=witness.weights.tolist()))
    return is_windowed, rows


def _recorded(file: Path, runs: Trajectories, n_steps: int) -> tuple[bool, list[Trajectories]]:
    """Whether runs are windows of what a file holds, and all runs or windows of 1, 2, ... steps that it holds."""
    load = partial(
        load_trajectories,
        file,
        state_names=runs.state_names,
        input_names=runs.input_names,
        sampling_time=runs.sampling_time,
        noise_bound=0.0,
        initial_state_noise=0.0,
    )
    try:
        whole = load()
    except InputError:  # runs of several lengths, or a file that the next attempt says what is wrong with
        whole = None
    if whole is not None and whole.horizon >= runs.horizon and _rows(runs) <= _rows(whole.shortened(runs.horizon)):
        return False, [runs if len(whole) == len(runs) else whole] * n_steps
    if not _rows(runs) <= _rows(load(horizon=runs.horizon)):
        raise InputError(
            f"{file}: the runs are not in it; data_file is the file that they were read from (without one, the "
            "certificate rests on the runs alone)"
        )
    return True, [load(horizon=n) for n in range(1, n_steps + 1)]


def _rows(runs: Trajectories) -> set[bytes]:
    """The runs, so that they can be looked up."""
    return {states.tobytes() + inputs.tobytes() for states, inputs in zip(runs.states, runs.inputs, strict=True)}
