"""A campaign against the bounds: worst-case truths, known exactly, over all kernels, envelopes and scales.

Every problem has a truth that satisfies all assumptions for certain (`problems.py`, `plants.py`).
The truth is a ball (`truths.py`), and it *escapes* a bound if the ball lies wholly outside: there is no tolerance.
Calling the assumptions of such a problem refuted is a *false refusal*; any other error is counted as well. A problem
depends only on the seed and its number, so that each can be rerun.

`GaussianProcessEnvelope` is left out: it promises a probability, not a bound.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from flint import arb, ctx

from ..data.arrays import LARGEST
from ..envelopes.alternating import AlternatingEnvelope
from ..envelopes.base import Envelope
from ..envelopes.closed_form import ClosedFormEnvelope
from ..envelopes.conic import ConicEnvelope
from ..envelopes.energy import EnergyEnvelope
from ..envelopes.lipschitz import LipschitzEnvelope
from ..envelopes.optimal import OptimalEnvelope
from ..errors import ContradictoryDataError, FalsifiedNormBoundError
from ..parallel import Progress, in_parallel
from ..prediction.predictor import MultiStepPredictor
from .plants import Plant, draw_plant
from .problems import Problem, draw_problem
from .truths import Combination, Truth, combination

CLOSE = 1e-9
"""A truth this close to a bound, relative to it, would escape a bound that is wrong by as little."""

_CHUNK = 20  # problems run and kept together
_PLANTS = 10  # one problem in this many is a plant
_CONIC = 200  # and one in this many is for the slow conic solver
_CONIC_FUNCTIONALS = 3
_DESCRIBED = 10  # escapes, refusals and errors, per chunk and in total


@dataclass
class Tally:
    """The results of a number of problems."""

    problems: int = 0
    bounds: int = 0
    infinite: int = 0
    """Bounds that say nothing."""
    close: int = 0
    """Bounds that a truth comes `CLOSE` to."""
    escapes: int = 0
    undecided: int = 0
    """Bounds practically equal to a truth: thousands of bits do not show on which side it is."""
    false_refusals: int = 0
    """Assumptions called refuted, or data called contradictory."""
    other_errors: int = 0
    tightest: float = 1.0
    """The least distance from a truth to a bound, relative to the larger of both bounds; negative if it escapes."""
    seconds: float = 0.0
    described: list[dict[str, Any]] = field(default_factory=list)
    """The first escapes, refusals and errors."""

    @property
    def is_clean(self) -> bool:
        """Whether no truth escaped, and none was called impossible."""
        return self.escapes == 0 and self.false_refusals == 0

    def add(self, other: Tally) -> None:
        """Add the problems of another tally."""
        for name in (f.name for f in fields(self) if f.name not in ("tightest", "described")):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.tightest = min(self.tightest, other.tightest)
        self.described = (self.described + other.described)[:_DESCRIBED]


@dataclass
class _Case:
    """One problem: counts bounds, and compares them with the truth."""

    number: int
    precision: int
    tally: Tally = field(default_factory=lambda: Tally(problems=1))

    def attempt(self, method: str, work: Callable[..., None], *arguments: Any) -> None:
        """Do what must not fail; failures are counted and shown."""
        try:
            work(method, *arguments)
        except Exception as error:
            is_refusal = isinstance(error, FalsifiedNormBoundError | ContradictoryDataError)
            self.tally.false_refusals += is_refusal
            self.tally.other_errors += not is_refusal
            kind = "false refusal" if is_refusal else "error"
            self._describe(kind, method, error=type(error).__name__, message=str(error)[:500])

    def compare(
        self, method: str, what: str, truth: Truth, *, values: list[Combination], ends: tuple[float, float]
    ) -> None:
        """Compare a lower and an upper bound with the truth, or with everything that may be true."""
        self.tally.bounds += 2
        size = max((abs(end) for end in ends if math.isfinite(end)), default=0.0) or 1.0
        with ctx.workprec(self.precision):
            balls = [truth.apply(value) for value in values]
        for side, end in zip((-1, 1), ends, strict=True):
            if end == side * math.inf:
                self.tally.infinite += 1
                continue
            rooms = [
                self._room(truth, value, ball, side=side, end=end) for value, ball in zip(values, balls, strict=True)
            ]
            share = min(map(float, rooms)) / size
            self.tally.tightest = min(self.tally.tightest, share)
            self.tally.close += abs(share) <= CLOSE
            if any(room < 0 for room in rooms):
                self.tally.escapes += 1
                name = "upper" if side > 0 else "lower"
                self._describe("escape", method, what=what, side=name, bound=end, miss=share)
            elif not all(room >= 0 for room in rooms):
                self.tally.undecided += 1

    def _room(self, truth: Truth, value: Combination, ball: arb, *, side: int, end: float) -> arb:
        """How far inside a bound the truth certainly is; with more digits where the first are not enough."""
        for precision in (self.precision, 4 * self.precision, 16 * self.precision):
            with ctx.workprec(precision):
                ball = ball if precision == self.precision else truth.apply(value)
                room = side * (arb(end) - ball)
            if room < 0 or room >= 0:
                break
        if not room.is_finite():
            raise ArithmeticError(f"the bound {end} and the truth {ball} cannot be compared")
        return room

    def _describe(self, kind: str, method: str, **more: Any) -> None:
        if len(self.tally.described) < _DESCRIBED:
            self.tally.described.append({"kind": kind, "case": self.number, "method": method, **more})


def run_case(seed: int, number: int, norm_factor: float = 1.0) -> Tally:
    """One problem. Factors other than one make the norm bounds wrong: below one, truths must escape."""
    began = time.perf_counter()
    rng = np.random.default_rng([seed, number])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflows, which end in infinite bounds
        if number % _PLANTS == _PLANTS - 1:
            case = _plant_case(number, draw_plant(rng), norm_factor)
        else:
            case = _problem_case(number, draw_problem(rng), rng, norm_factor=norm_factor)
    case.tally.seconds = time.perf_counter() - began
    return case.tally


def _problem_case(number: int, problem: Problem, rng: np.random.Generator, norm_factor: float) -> _Case:
    case = _Case(number, problem.precision)
    values = [combination(functional) for functional in problem.functionals]

    def bound(method: str, n: int) -> None:
        family, options = _METHODS[method]
        norm_bound = problem.norm_bound * norm_factor
        envelope = family(problem.observations(), problem.kernel, norm_bound, **options(problem, rng))
        band = envelope.functional_bounds(problem.functionals[:n], 1)
        for i, (lower, upper) in enumerate(zip(band.lower.tolist(), band.upper.tolist(), strict=True)):
            case.compare(method, f"functional {i}", problem.truth, values=[values[i]], ends=(lower, upper))

    for method in _methods(problem, rng):
        case.attempt(method, bound, len(values))
    if number % _CONIC == 0:
        case.attempt("conic", bound, _CONIC_FUNCTIONALS)
    return case


def _methods(problem: Problem, rng: np.random.Generator) -> list[str]:
    """The optimal envelope, and one of the others whose assumptions the problem satisfies."""
    others = ["optimal, nugget", "alternating", "lipschitz"]
    if problem.is_smooth:
        others.append("lipschitz, constant")
    if not problem.has_open_ends:
        others += ["closed form", "energy"]
        if problem.has_one_output_per_input and 0.0 < problem.energy <= LARGEST:
            others.append("energy, given")
    return ["optimal", str(rng.choice(others))]


def _with_constant(problem: Problem, rng: np.random.Generator) -> dict[str, Any]:
    constant, scales = problem.lipschitz
    return {"constant": constant, "scales": scales}


_METHODS: dict[str, tuple[type[Envelope], Callable[[Problem, np.random.Generator], dict[str, Any]]]] = {
    "optimal": (OptimalEnvelope, lambda problem, rng: {}),
    "optimal, nugget": (
        OptimalEnvelope,
        lambda problem, rng: {"nugget": problem.kernel.variance * 10.0 ** rng.uniform(-12.0, -2.0)},
    ),
    "alternating": (AlternatingEnvelope, lambda problem, rng: {"iterations": int(rng.integers(1, 5))}),
    "closed form": (ClosedFormEnvelope, lambda problem, rng: {}),
    "energy": (EnergyEnvelope, lambda problem, rng: {}),
    "energy, given": (EnergyEnvelope, lambda problem, rng: {"energy": problem.energy}),
    "lipschitz": (LipschitzEnvelope, lambda problem, rng: {}),
    "lipschitz, constant": (LipschitzEnvelope, _with_constant),
    "conic": (ConicEnvelope, lambda problem, rng: {}),
}
"""Envelopes, and their arguments besides the data, the kernel and the norm bound."""


def _plant_case(number: int, plant: Plant, norm_factor: float) -> _Case:
    case = _Case(number, plant.precision)

    def bound(method: str) -> None:
        bounds = [[norm * norm_factor for norm in row] for row in plant.norm_bounds]
        predictor = MultiStepPredictor(plant.runs, plant.kernels, bounds)
        tube = predictor.boxes(plant.starts, plant.inputs, initial_state_noise=plant.start_noise, n_jobs=1)
        for plan, step, state in np.ndindex(tube.lower.shape):
            ends = float(tube.lower[plan, step, state]), float(tube.upper[plan, step, state])
            what = f"plan {plan}, step {step + 1}, state {state}"
            case.compare(method, what, plant.truths[step][state], values=plant.corners(plan, step), ends=ends)

    case.attempt("predictor", bound)
    return case


# Many problems


@dataclass(frozen=True)
class Campaign:
    """The problems 0 to `cases - 1` of a seed."""

    cases: int
    seed: int
    norm_factor: float = 1.0

    def run(self, jobs: int = 1, progress: Progress | None = None) -> Tally:
        """All problems, in chunks that a `restartable` block keeps."""
        ends = [(first, min(first + _CHUNK, self.cases)) for first in range(0, self.cases, _CHUNK)]
        tasks = [(self.seed, self.norm_factor, first, last) for first, last in ends]
        total = Tally()
        for tally in in_parallel(_run_chunk, tasks, jobs):
            total.add(tally)
            if progress is not None:
                progress(total.problems, self.cases)
        return total


def _run_chunk(seed: int, norm_factor: float, first: int, last: int) -> Tally:
    total = Tally()
    for number in range(first, last):
        total.add(run_case(seed, number, norm_factor))
    return total
