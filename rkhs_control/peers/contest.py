"""The contest: the same plans and the same starts for all methods, and what each says of them against the truth."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from ..control.certainty_equivalent import CertaintyEquivalentOCP
from ..data.arrays import FloatArray
from ..data.sets import Box
from ..models.plant import Plant
from .base import Bounds, Card, Controller

_TIMED, _WARM_UP = 20, 3

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Questions:
    """Plans from random initial states, what the true plant does under them, and limits of its states by plan."""

    x0: FloatArray
    inputs: FloatArray
    truth: FloatArray
    """`(m, N, n_states)`."""
    lower: FloatArray
    """`(m, 1, n_states)`, like `upper`."""
    upper: FloatArray

    @classmethod
    def close(
        cls, x0: FloatArray, inputs: FloatArray, truth: FloatArray, lower: FloatArray, margins: FloatArray
    ) -> Self:
        """Upper limits of their own for all plans: so far above what the true plant reaches, or below if negative.

        Within wide limits all plans are safe, and every method is right.
        """
        upper = truth.max(axis=1, keepdims=True) + margins[:, None, None]
        return cls(x0, inputs, truth, np.broadcast_to(lower, upper.shape), upper)

    @property
    def is_safe(self) -> Flags:
        """Whether the plan truly keeps the limits, by plan."""
        return np.asarray(((self.lower <= self.truth) & (self.truth <= self.upper)).all(axis=(1, 2)))

    def first(self, n: int) -> Questions:
        """The first `n` of the plans."""
        return Questions(*(getattr(self, field.name)[:n] for field in fields(self)))


@dataclass(frozen=True)
class Score:
    """One row of the table; None where a column does not apply to the method."""

    name: str
    assumes: str
    promises: str
    better_at: str
    n_plans: int | None = None
    coverage: float | None = None
    """Share of the intervals, one per state and step, that hold the true value: what most promises are about."""
    box_coverage: float | None = None
    """Share of the true states that lie in their boxes, in all components."""
    plan_coverage: float | None = None
    """Share of the plans with all states in their boxes."""
    half_widths: tuple[float, ...] | None = None
    """By state, the mean over all plans and steps."""
    n_certified: int | None = None
    n_refuted: int | None = None
    n_unsafe: int | None = None
    """Plans that truly violate their limits."""
    n_wrong: int | None = None
    """Certified plans that violate the limits, and refuted ones that keep them."""
    milliseconds: float | None = None
    """Of a processor, for a plan that is asked alone, or a decision of a controller; the median."""
    n_violating: int | None = None
    """True states outside the limits in closed loop."""
    n_loop_states: int | None = None
    n_failed: int | None = None
    """Steps of the loops at which the solver of a controller failed."""


def verdicts(boxes: tuple[FloatArray, FloatArray], least: FloatArray, greatest: FloatArray) -> tuple[Flags, Flags]:
    """Which plans are certified (all boxes inside the limits), and which refuted (some interval wholly outside)."""
    lower, upper = boxes
    certified = ((lower >= least) & (upper <= greatest)).all(axis=(1, 2))
    refuted = ((upper < least) | (lower > greatest)).any(axis=(1, 2))
    return np.asarray(certified), np.asarray(refuted)


def judge(peer: Bounds, questions: Questions) -> Score:
    """Boxes of all plans against the truth, and the time that single plans take, or where they are few each of them."""
    began = time.process_time()
    lower, upper = peer.boxes(questions.x0, questions.inputs)
    each = (time.process_time() - began) / len(questions.x0)
    inside = (lower <= questions.truth) & (questions.truth <= upper)
    certified, refuted = verdicts((lower, upper), questions.lower, questions.upper)
    safe = questions.is_safe
    return Score(
        **vars(peer.card),
        n_plans=len(questions.x0),
        coverage=float(inside.mean()),
        box_coverage=float(inside.all(axis=2).mean()),
        plan_coverage=float(inside.all(axis=(1, 2)).mean()),
        half_widths=tuple(((upper - lower) / 2.0).mean(axis=(0, 1)).tolist()),
        n_certified=int(certified.sum()),
        n_refuted=int(refuted.sum()),
        n_unsafe=int((~safe).sum()),
        n_wrong=int((certified & ~safe).sum() + (refuted & safe).sum()),
        milliseconds=1e3 * (_seconds_alone(peer, questions) if len(questions.x0) >= _TIMED else each),
    )


def _seconds_alone(peer: Bounds, questions: Questions) -> float:
    seconds = []
    for i in range(_TIMED):
        began = time.process_time()
        peer.boxes(questions.x0[i : i + 1], questions.inputs[i : i + 1])
        seconds.append(time.process_time() - began)
    return float(np.median(seconds[_WARM_UP:]))


@dataclass(frozen=True, eq=False)
class Track:
    """Where closed loops are run: the plant, the controller that plans, where they start and for how long.

    The rule is the same for all methods that judge plans. At every step the controller plans from the present state. If
    the method certifies the plan, its first input is applied. If not, the last certified plan goes on while it lasts;
    after that a safe input is held.
    """

    plant: Plant
    control: CertaintyEquivalentOCP
    limits: Box
    held: FloatArray
    """An input that keeps the plant within the limits in the long run."""
    starts: FloatArray
    n_steps: int
    n_jobs: int | None = None

    @property
    def n_states(self) -> int:
        """How many true states all loops together go through."""
        return len(self.starts) * self.n_steps

    def violating(self, states: FloatArray) -> int:
        """How many of some states `(..., n_states)` are outside the limits."""
        return int((~self.limits.contains(states)).sum())

    def _certified(self, boxes: tuple[FloatArray, FloatArray]) -> Flags:
        return verdicts(boxes, self.limits.lower, self.limits.upper)[0]

    def run(self, peer: Bounds | None, *, trusts_all: bool = False) -> int:
        """Violating states of all loops; without a method nothing is certified, or everything."""
        x, n_loops, horizon = self.starts, len(self.starts), self.control.horizon
        kept = np.tile(self.held, (n_loops, horizon, 1))
        n_violating = 0
        for _ in range(self.n_steps):
            if peer is not None or trusts_all:
                plans = np.array([plan.inputs for plan in self.control.solve_many(x, self.n_jobs)])
                good = np.full(n_loops, True) if peer is None else self._certified(peer.boxes(x, plans))
                kept[good] = plans[good]
            x = self.plant.simulate(x, kept[:, :1])[:, -1]
            kept = np.concatenate([kept[:, 1:], np.tile(self.held, (n_loops, 1, 1))], axis=1)
            n_violating += self.violating(x)
        return n_violating


def drive(peer: Controller, track: Track, seed: int) -> Score:
    """A controller of its own from the same starts, for as many steps."""
    loops = peer.loops(track.starts, track.n_steps, seed)
    return Score(
        **vars(peer.card),
        milliseconds=1e3 * float(np.median([loop.step_s for loop in loops])),
        n_violating=track.violating(np.array([loop.states for loop in loops])),
        n_loop_states=track.n_states,
        n_failed=sum(loop.n_failed for loop in loops),
    )


NO_CHECK = Card("no method: every plan applied", "the model is right", "nothing", "nothing is slower than it must be")
HOLDING = Card("no method: safe input held", "nothing", "nothing", "needs no recordings")
"""What the loops of all methods are to be compared with: some starts leave nobody a way within the limits."""
