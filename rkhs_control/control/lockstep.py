"""Certified loops in lockstep: what many of them ask at the same time is answered in one call, which is far quicker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Question
from ..data.arrays import FloatArray, as_floats
from ..data.limits import PlacedLimits
from ..errors import InputError
from ..prediction.predictor import MultiStepPredictor

if TYPE_CHECKING:
    from .certified_loop import CertifiedMPC
    from .safety_filter import SafetyFilter


class Asked(NamedTuple):
    """A plan that somebody wants certified, and with what."""

    predictor: MultiStepPredictor
    limits: PlacedLimits
    question: Question

    @property
    def kind(self) -> tuple[int, int, bytes]:
        """What it has in common with those whose boxes can be made in the same call."""
        noise = self.predictor.start_noise(self.question.initial_state_noise)
        return id(self.predictor), len(self.question.inputs), noise.tobytes()


Outcome = TypeVar("Outcome")
Asking = Generator[Asked, Certificate, Outcome]
"""What comes to an outcome by asking about plans; an error in place of an answer is thrown into it."""


def make_steps(
    loops: Sequence[CertifiedMPC | SafetyFilter], states: npt.ArrayLike, wanted: npt.ArrayLike | None = None
) -> FloatArray:
    """The inputs to apply at measured states of many plants, `(n_loops, n_inputs)`.

    Each plant has a loop of its own, which remembers and logs its own steps and decides as if it were alone. Only the
    boxes that they ask for at the same time are made in one call, which is several times as fast. Bounds may differ
    from those of single steps in the last digits, because they are searched for from elsewhere; all are proved.

    Parameters
    ----------
    loops : one per plant
    states : (n_loops, n_states)
    wanted : (n_loops, n_inputs) or (n_loops, n_steps, n_inputs)
        Takes the place of what the policies of filters say.
    """
    given = [as_floats(states, "states")] + ([] if wanted is None else [as_floats(wanted, "wanted")])
    for name, array in zip(("states", "wanted"), given, strict=False):
        if array.ndim < 2 or len(array) != len(loops):
            raise InputError(f"{name} must have a row for each of the {len(loops)} loops; got shape {array.shape}")
    return np.array(outcomes([loop.deciding(*own) for loop, *own in zip(loops, *given, strict=True)]))


def outcomes(decisions: Sequence[Asking[Outcome]]) -> list[Outcome]:
    """Of all decisions, which are asked on in turn until each has come to its own."""
    found: dict[int, Outcome] = {}
    replies: dict[int, Certificate | Exception | None] = dict.fromkeys(range(len(decisions)))
    while replies:
        asked: dict[int, Asked] = {}
        for k, reply in replies.items():
            try:
                asked[k] = decisions[k].throw(reply) if isinstance(reply, Exception) else decisions[k].send(reply)  # type: ignore[arg-type]
            except StopIteration as end:
                found[k] = end.value
        replies = dict(zip(asked, _answers(list(asked.values())), strict=True))
    return [found[k] for k in range(len(decisions))]


def _answers(asked: Sequence[Asked]) -> list[Certificate | Exception]:
    """One per question, as many as possible from one call."""
    groups = defaultdict[tuple[int, int, bytes], list[int]](list)
    for k, one in enumerate(asked):
        groups[one.kind].append(k)
    found: dict[int, Certificate | Exception] = {}
    for places in groups.values():
        found |= zip(places, _certified([asked[k] for k in places]), strict=True)
    return [found[k] for k in range(len(asked))]


def _certified(alike: Sequence[Asked]) -> Sequence[Certificate | Exception]:
    """Answers to questions of one kind; where that fails, one at a time, to tell whose fault it is."""
    predictor, questions = alike[0].predictor, [one.question for one in alike]
    try:
        tubes = predictor.boxes(
            [question.x0 for question in questions],
            [question.inputs for question in questions],
            initial_state_noise=questions[0].initial_state_noise,
        )
        return [one.question.answered(predictor, one.limits, tubes[k]) for k, one in enumerate(alike)]
    except Exception as error:
        return [error] if len(alike) == 1 else [_certified([one])[0] for one in alike]
