"""Samples with uncertain arguments, and how little their intervals need to be widened for that.

What was recorded at `z` is the plant's value at some `z'` within `h` of it. With `|df/dz_j| <= S_j` at `z` and the
kernel's bends `b_j`, it is within `sum_j h_j S_j + norm_bound / 2 sum_j b_j h_j^2` of the value at `z` itself. A
function of the given norm could be steep; the data say that it is not. So intervals are first widened for any function
of this norm, these bound the slopes at every sample, the slopes narrow the intervals, and so on. Every round rests only
on the previous one.

A round is kept as the weights that prove its slopes. They prove something under any norm and noise bounds, so a chain
of rounds can be re-evaluated for others, and by the checker, without searching for weights again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF, enlarged, up
from ..assumptions.intervals import measurement_bound, uncertainty
from ..assumptions.priors import Prior, residual
from ..data.arrays import FloatArray, IndexArray, distinct_rows
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..engine.functionals import Derivative
from ..envelopes.optimal import OptimalEnvelope
from ..errors import InputError, RkhsControlError
from ..kernels.base import Kernel
from .arguments import ArgumentBoxes

ROUNDS = 3
"""Maximum number of rounds of narrowing."""
_WORTH_IT = 0.05
"""Rounds that can narrow, or have narrowed, the intervals by at most this share are not worth their time."""


@dataclass(frozen=True, eq=False)
class Slopes:
    """One round: weights that bound `dg/dz_j` and `-dg/dz_j` at every sample, for all uncertain `j`.

    The bounds are numbered by `j`, then by sample, then by sign, positive first; bound `q` has the weights
    `starts[q]` to `starts[q + 1]`, on the distinct inputs `indices`.
    """

    starts: IndexArray
    indices: IndexArray
    weights: FloatArray
    norms: FloatArray
    """`|| L - sum_i w_i k_{x_i} ||` of every bound, rounded up."""
    source: str
    """Digest of the kernel, the samples' arguments and the uncertain entries, for which alone the norms are right."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", str(self.source))  # files keep it as an array

    @classmethod
    def of(cls, envelope: OptimalEnvelope, boxes: ArgumentBoxes) -> Slopes:
        """The optimal weights for the data of an envelope."""
        functionals = [Derivative(z, int(j)) for j in boxes.uncertain for z in boxes.centres]
        found, norms = [], []
        by_side = [envelope.upper_bounds(envelope.sides[side], functionals) for side in (1, 0)]
        for functional, *pair in zip(functionals, *by_side, strict=True):
            for bound in pair:
                assert bound.witness is not None
                found.append(bound.witness)
                norms.append(bound.witness.precise_norm_up(functional, envelope.gram))
        sizes = [len(witness.indices) for witness in found]
        return cls(
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate([witness.indices for witness in found]),
            np.concatenate([witness.weights for witness in found]),
            np.array(norms),
            _digest(envelope.kernel, boxes),
        )

    def bounds(self, data: Observations, norm_bound: float) -> FloatArray:
        """The bounds that the weights prove for these data, rounded up, `(n_uncertain * n_samples, 2)`."""
        owner = np.repeat(np.arange(len(self.norms)), np.diff(self.starts))
        above, below = data.upper[self.indices], data.lower[self.indices]
        is_rising, is_positive = owner % 2 == 0, self.weights > 0.0
        ends = np.where(is_rising, np.where(is_positive, above, below), -np.where(is_positive, below, above))
        terms = ends * self.weights
        total, size = (np.bincount(owner, part, len(self.norms)) for part in (terms, np.abs(terms)))
        by_norm = norm_bound * self.norms
        rounding = (int(np.diff(self.starts).max()) + 8) * UNIT_ROUNDOFF * (size + by_norm)
        value: FloatArray = up(up(total + by_norm) + rounding)
        return value.reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class UncertainSamples:
    """The samples of one state after `n` steps, minus the prior, with arguments known to within some noise."""

    Z: FloatArray
    rest: FloatArray
    """Recorded outputs minus the prior."""
    half: FloatArray
    """How far they may be from the plant's value at the true arguments."""
    noise: FloatArray
    prior: Prior
    kernel: Kernel
    norm: float
    name: str
    """In messages."""

    @classmethod
    def of(cls, runs: Trajectories, n: int, i: int, kernel: Kernel, norm: float, prior: Prior) -> UncertainSamples:
        """State `i` after `n` steps of recorded runs."""
        Z = runs.arguments(n)
        rest, half = residual(prior, Z, runs.states[:, n, i], measurement_bound(runs, n, i))
        name = f"step {n}, state {runs.state_names[i]}"
        return cls(Z, rest, half, runs.initial_state_noise, prior, kernel, norm, name)

    @contextmanager
    def named_errors(self, caveat: str = "") -> Iterator[None]:
        """Let errors say which step and state they concern, and what else may be wrong."""
        try:
            yield
        except RkhsControlError as error:
            more = "" if isinstance(error, InputError) else caveat
            raise type(error)(f"{self.name}: {error}{more}") from None

    @cached_property
    def boxes(self) -> ArgumentBoxes:
        """Boxes that contain the true arguments, for every distinct recorded one."""
        return ArgumentBoxes(self.Z[self._groups[0]], self.noise)

    @cached_property
    def widest(self) -> FloatArray:
        """The most that any function of the norm, and the prior, could change between two arguments, rounded up."""
        n_known = self.Z.shape[1] - len(self.noise)
        most = uncertainty(self.kernel, self.norm, self.prior, self.noise, n_known)
        return np.full(len(self.boxes.centres), most)

    @cached_property
    def _groups(self) -> tuple[IndexArray, IndexArray]:
        """The first row of every distinct argument, in order, and which of these each row has."""
        return distinct_rows(self.Z)

    def observations(self, widening: FloatArray) -> Observations:
        """The intervals, widened by a given amount for every distinct argument."""
        return Observations(self.Z, self.rest, enlarged(self.half + widening[self._groups[1]], 1))

    def widening(self, rounds: tuple[Slopes, ...]) -> FloatArray:
        """The widening that remains after a chain of rounds, for every distinct argument."""
        widening = self.widest
        if not len(self.boxes.uncertain):
            return widening
        own = _digest(self.kernel, self.boxes) if rounds else ""
        for slopes in rounds:
            if slopes.source != own:
                raise InputError(
                    "narrowing was found with other runs, another kernel or other uncertain entries of the history, "
                    "and proves nothing here: give None, and it is found again"
                )
            widening = np.minimum(widening, self._by_slopes(slopes, self.observations(widening)))
        return widening

    def rounds(self, most: int) -> tuple[Slopes, ...]:
        """As many rounds as are worth their time."""
        by_kernel, half = self.boxes.displacement(self.kernel, self.norm), float(self.half.mean())
        if by_kernel - self.boxes.remainder(self.kernel, self.norm).max() <= _WORTH_IT * (half + self.widest[0]):
            return ()
        found: list[Slopes] = []
        widening = self.widest
        for _ in range(most):
            data = self.observations(widening)
            slopes = Slopes.of(OptimalEnvelope(data, self.kernel, self.norm), self.boxes)
            narrower = np.minimum(widening, self._by_slopes(slopes, data))
            gained = float((widening - narrower).mean() / (half + widening.mean()))
            widening = narrower
            if gained > 0.0:
                found.append(slopes)
            if gained <= _WORTH_IT:
                break
        return tuple(found)

    def _by_slopes(self, slopes: Slopes, data: Observations) -> FloatArray:
        boxes = self.boxes
        own = np.zeros(len(boxes.uncertain)) if self.prior is None else np.array(self.prior.slopes)[boxes.uncertain]
        bounds = slopes.bounds(data, self.norm).reshape(len(own), len(boxes.centres), 2)
        steepest = np.maximum(up(bounds[:, :, 0] + own[:, None]), up(bounds[:, :, 1] - own[:, None]))
        by_slope: FloatArray = (boxes.reach * steepest.T).sum(axis=1)
        by_slope += 0.0 if self.prior is None else self.prior.blur(self.noise)
        return enlarged(by_slope + boxes.remainder(self.kernel, self.norm), len(own) + 4)


def _digest(kernel: Kernel, boxes: ArgumentBoxes) -> str:
    parts = [kernel.to_dict(), boxes.uncertain, boxes.centres.shape]
    content = json.dumps(parts, default=lambda array: np.asarray(array).tolist())
    return sha256(content.encode() + boxes.centres.tobytes()).hexdigest()


def narrowing_rounds(samples: UncertainSamples, most: int) -> tuple[Slopes, ...]:
    """At most this many rounds; errors say which step and state they concern."""
    with samples.named_errors():
        return samples.rounds(most)
