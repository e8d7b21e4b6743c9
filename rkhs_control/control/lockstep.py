"""Certified loops in lockstep: questions that many of them ask at the same time are answered in one fast call."""

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
    """A plan to certify, and the predictor to certify it with."""

    predictor: MultiStepPredictor
    limits: PlacedLimits
    question: Question

    @property
    def kind(self) -> tuple[int, int, bytes]:
        """The key shared by questions whose boxes can be computed in the same call."""
        noise = self.predictor.start_noise(self.question.initial_state_noise)
        return id(self.predictor), len(self.question.inputs), noise.tobytes()


Outcome = TypeVar("Outcome")
Asking = Generator[Asked, Certificate, Outcome]
"""Reaches an outcome by asking about plans; an error instead of an answer is thrown into it."""


def make_steps(
    loops: Sequence[CertifiedMPC | SafetyFilter], states: npt.ArrayLike, wanted: npt.ArrayLike | None = None
) -> FloatArray:
    """The inputs to apply at the measured states of many plants, `(n_loops, n_inputs)`.

    Each plant has its own loop, which remembers and logs its own steps and decides as if it were alone. Only the boxes
    that they need at the same time are computed in one call, which is several times as fast. Bounds may differ from
    those of single steps in the last digits, because their searches start elsewhere; all are proved.

    Parameters
    ----------
    loops : one per plant
    states : (n_loops, n_states)
    wanted : (n_loops, n_inputs) or (n_loops, n_steps, n_inputs)
        Replaces the outputs of the filters' policies.
    """
    given = [as_floats(states, "states")] + ([] if wanted is None else [as_floats(wanted, "wanted")])
    for name, array in zip(("states", "wanted"), given, strict=False):
        if array.ndim < 2 or len(array) != len(loops):
            raise InputError(f"{name} must have a row for each of the {len(loops)} loops; got shape {array.shape}")
    if len(set(map(id, loops))) < len(loops):
        raise InputError("each plant needs a loop of its own: one of them is given twice")
    if wanted is not None and not all(hasattr(loop, "wrap") for loop in loops):
        raise InputError("only safety filters take wanted inputs, and some of the loops are none")
    return np.array(outcomes([loop.deciding(*own) for loop, *own in zip(loops, *given, strict=True)]))


def outcomes(decisions: Sequence[Asking[Outcome]]) -> list[Outcome]:
    """The outcomes of all decisions, each advanced in turn until it has finished."""
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
    """One answer per question, as many as possible from one call."""
    groups = defaultdict[tuple[int, int, bytes], list[int]](list)
    for k, one in enumerate(asked):
        groups[one.kind].append(k)
    found: dict[int, Certificate | Exception] = {}
    for places in groups.values():
        found |= zip(places, _certified([asked[k] for k in places]), strict=True)
    return [found[k] for k in range(len(asked))]


def _certified(alike: Sequence[Asked]) -> Sequence[Certificate | Exception]:
    """Answers to questions of one kind; if that fails, one at a time, to find which one failed."""
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
