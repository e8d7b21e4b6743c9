"""Which experiments to run when the data do not show whether a plan keeps its limits.

A bound is attained by a worst-case function, and so is the opposite bound: two plants that the data cannot distinguish.
An experiment is worth running where it would distinguish them. Halfway between the two lies a function that the data
also allow; it predicts the outcome of an experiment, and because it fits its own predictions, no predicted outcome
contradicts the assumptions. The gain of an experiment is how far the failing bounds shrink with that outcome added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from ..certificates.certificate import Certificate, Verdict, certify_plans
from ..data.arrays import FloatArray, as_floats, require_finite
from ..data.fields import stacked
from ..data.sets import Box
from ..errors import InputError
from .gains import Target

_SHORTLIST = 12  # candidates whose bounds are recomputed; the rest are screened by an estimate
_AT_ONCE = 24  # candidates certified together
_WORTHWHILE = 1e-3  # minimum gain of an experiment, as a share of what is lacking
_SCALES = (0.01, 0.03, 0.1, 0.3)  # of perturbations, as shares of the recorded ranges


@dataclass(frozen=True, eq=False)
class Experiment:
    """A run of the plant that is worth recording, and its expected benefit."""

    x0: FloatArray
    inputs: FloatArray
    """`(horizon, n_inputs)`: as long as the recorded runs."""
    gain: float
    """Expected decrease of the total shortfall of the failing constraints."""
    margin: float
    """The expected least margin afterwards."""
    certificate: Certificate
    """Certificate of the experiment itself, from the existing data: no outcome of it, or of earlier ones, is
    assumed."""

    @property
    def is_certified(self) -> bool:
        """Whether the plant provably keeps its limits during the experiment."""
        return _is_certified(self.certificate)


def rank_experiments(
    certificate: Certificate,
    candidates: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    *,
    n: int = 5,
    only_certified: bool = True,
    n_candidates: int = 400,
    rng: np.random.Generator | None = None,
    n_jobs: int | None = None,
) -> list[Experiment]:
    """The `n` experiments that are expected to help an undecided plan most, in the order to run them.

    Each is the best of the remaining candidates if the earlier ones turn out as predicted. Fewer are returned where
    fewer are expected to suffice, and none where none is worthwhile.

    Parameters
    ----------
    candidates : initial states `(m, n_states)` and inputs `(m, horizon, n_inputs)` to choose from; by default
        `experiments_around`, of which `n_candidates` are drawn with `rng`
    only_certified : leave out experiments during which the plant might break the plan's limits. The plan itself is one
    of them.
    """
    if n < 1:
        raise InputError(f"n must be at least 1; got {n}")
    target = Target.of(certificate)
    x0, inputs = _checked(certificate, candidates, n_candidates, rng)
    pool = _Pool(certificate, x0, inputs, only_certified, n_jobs)
    chosen: list[Experiment] = []
    taken: set[int] = set()
    while len(chosen) < n and target.lacking > 0.0:
        places = pool.eligible(k for k in target.order(stacked(x0, inputs)) if k not in taken)
        growths = [target.expected_growth(stacked(x0[[k]], inputs[[k]])[0]) for k in places]
        best = max(range(len(places)), key=lambda j: target.merit(growths[j]), default=None)
        if best is None or (gain := target.gain(growths[best])) <= _WORTHWHILE * target.lacking:
            break
        k, margin = places[best], float((target.margins + growths[best]).min())
        chosen.append(Experiment(x0[k], inputs[k], gain, margin, pool.certificates[k]))
        taken.add(k)
        target = target.after(stacked(x0[[k]], inputs[[k]])[0])
    return chosen


def experiments_around(
    certificate: Certificate, n: int, rng: np.random.Generator | None = None
) -> tuple[FloatArray, FloatArray]:
    """About `n` experiments that may help: initial states `(m, n_states)` and inputs `(m, horizon, n_inputs)`.

    The plan, the recorded runs that the failing bounds rest on, points in between, and perturbations of all these at
    several scales; within the input limits, and within the state limits at the start. Plans shorter than the recorded
    runs are extended with their last input.
    """
    generator = np.random.default_rng(0) if rng is None else rng
    runs, question = certificate.predictor.runs, certificate.question
    runs.require_states("an experiment")
    missing = runs.horizon - len(question.inputs)
    plan = np.concatenate([question.inputs, np.repeat(question.inputs[-1:], missing, axis=0)])
    touched = sorted({run for bound in Target.of(certificate).bounds for run in bound.active_runs(runs)})
    x0 = np.concatenate([question.x0[None], runs.states[touched, 0]])
    inputs = np.concatenate([plan[None], runs.inputs[touched]])
    m = max(0, n - len(x0))
    # Half of them around the plan, the others around points between it and a recorded run
    other = generator.integers(0, len(x0), m)
    way = np.where(generator.random(m) < 0.5, 0.0, generator.random(m))
    scale = generator.choice(_SCALES, m)
    shift = np.where(generator.random(m) < 0.5, 0.0, 1.0)[:, None, None]  # all inputs by the same, or each by its own
    starts = x0[0] + way[:, None] * (x0[other] - x0[0])
    starts = starts + scale[:, None] * np.ptp(runs.states[:, 0], axis=0) * generator.uniform(-1.0, 1.0, starts.shape)
    sequences = inputs[0] + way[:, None, None] * (inputs[other] - inputs[0])
    each = generator.uniform(-1.0, 1.0, sequences.shape)
    moves = shift * each[:, :1] + (1.0 - shift) * each
    sequences = sequences + scale[:, None, None] * np.ptp(runs.inputs, axis=(0, 1)) * moves
    return _within(certificate, np.concatenate([x0, starts]), np.concatenate([inputs, sequences]))


def _within(certificate: Certificate, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Clipped to the limits; initial states outside a polytope are left out."""
    limits, noise = certificate.limits, certificate.initial_state_noise
    if limits.inputs is not None:
        inputs = limits.inputs.clip(inputs)
    states = limits.states
    if isinstance(states, Box) and (states.lower + noise <= states.upper - noise).all():
        x0 = np.clip(x0, states.lower + noise, states.upper - noise)
    inside = limits.polytope.contains(x0)
    return x0[inside], inputs[inside]


def _checked(
    certificate: Certificate,
    candidates: tuple[npt.ArrayLike, npt.ArrayLike] | None,
    n_candidates: int,
    rng: np.random.Generator | None,
) -> tuple[FloatArray, FloatArray]:
    if candidates is None:
        return experiments_around(certificate, n_candidates, rng)
    runs = certificate.predictor.runs
    runs.require_states("an experiment")
    x0, inputs = as_floats(candidates[0], "candidates[0]"), as_floats(candidates[1], "candidates[1]")
    if x0.shape != (len(x0), runs.n_states) or inputs.shape != (len(x0), runs.horizon, runs.n_inputs):
        raise InputError(
            f"candidates must be initial states (m, {runs.n_states}) and inputs (m, {runs.horizon}, {runs.n_inputs}), "
            f"as long as the recorded runs; got {x0.shape} and {inputs.shape}"
        )
    require_finite(x0, "candidates[0]")
    require_finite(inputs.reshape(len(inputs), -1), "candidates[1]")
    return x0, inputs


@dataclass(frozen=True, eq=False)
class _Pool:
    """Candidates, and the certificates of those examined so far."""

    certificate: Certificate
    x0: FloatArray
    inputs: FloatArray
    only_certified: bool
    n_jobs: int | None
    certificates: dict[int, Certificate] = field(default_factory=dict)

    def eligible(self, order: Iterable[int]) -> list[int]:
        """The first few that may be run."""
        found: list[int] = []
        waiting = iter(order)
        while len(found) < _SHORTLIST and (chunk := list(islice(waiting, _AT_ONCE))):
            self._certify([k for k in chunk if k not in self.certificates])
            found += [k for k in chunk if self._is_allowed(self.certificates[k])]
        return found[:_SHORTLIST]

    def _is_allowed(self, certificate: Certificate) -> bool:
        return _is_certified(certificate) if self.only_certified else certificate.input_violation is None

    def _certify(self, places: list[int]) -> None:
        if not places:
            return
        predictor = self.certificate.predictor
        found = certify_plans(
            predictor,
            self.x0[places],
            self.inputs[places],
            self.certificate.limits,
            initial_state_noise=np.maximum(self.certificate.initial_state_noise, predictor.initial_state_noise),
            n_jobs=self.n_jobs,
        )
        self.certificates.update(zip(places, found, strict=True))


def _is_certified(certificate: Certificate) -> bool:
    return certificate.verdict is Verdict.CERTIFIED and certificate.starts_inside
