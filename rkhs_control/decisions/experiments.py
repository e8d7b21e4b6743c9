"""Which experiments to run when the data cannot tell whether a plan keeps its limits.

A bound is attained by a worst-case function, and so is the one from the other side: two plants that the data do not
tell apart. An experiment is worth running where they would be told apart. Half-way between the two lies a function that
the data allow, too; it predicts the outcome of an experiment, and because it fits its own predictions, no predicted
outcome contradicts the assumptions. With that outcome added, the failing bounds are computed again: what they gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from ..assumptions.regression import KernelModel
from ..certificates.certificate import Certificate, Question, Verdict, certify_plans
from ..data.arrays import FloatArray, as_floats, require_finite
from ..data.observations import Observations
from ..data.sets import Box
from ..data.trajectories import Trajectories, stacked
from ..engine.functionals import Points
from ..engine.gram import Spectrum
from ..engine.least_norm import least_norm
from ..engine.witness import Witness
from ..envelopes.optimal import OptimalEnvelope
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError

# Where the noise may fall, as shares of its bound, and how likely: Gauss-Legendre nodes, for a uniform distribution
_NOISE = tuple(zip((-(0.6**0.5), 0.0, 0.6**0.5), (5 / 18, 8 / 18, 5 / 18), strict=True))
_SHORTLIST = 12  # candidates whose bounds are computed again; the rest is screened by an estimate
_AT_ONCE = 24  # candidates that are certified together
_WORTHWHILE = 1e-3  # what an experiment must gain, as a share of what is lacking
_LEAST_NORM = 1e-8  # of what a bound's weights leave of the query: with less, the bound is a datum's own interval
_SCALES = (0.01, 0.03, 0.1, 0.3)  # of perturbations, as shares of the recorded ranges


@dataclass(frozen=True, eq=False)
class Experiment:
    """A run of the plant that is worth recording, and what it is expected to bring."""

    x0: FloatArray
    inputs: FloatArray
    """`(horizon, n_inputs)`: as long as the recorded runs."""
    gain: float
    """By how much what the failing constraints lack, in all, is expected to shrink."""
    margin: float
    """The least of their margins that is then expected."""
    certificate: Certificate
    """Of the experiment itself, by the data there are: nothing is assumed of its outcome, or of those before it."""

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
    """The `n` experiments that are expected to do most for a plan that is undecided, in the order to run them.

    Each is the best of the candidates that are left after those before it have turned out as predicted. Fewer come back
    where fewer are expected to suffice, and none where none is worth it.

    Parameters
    ----------
    candidates : initial states `(m, n_states)` and inputs `(m, horizon, n_inputs)` to choose from; by default
        `experiments_around`, of which `n_candidates` are drawn with `rng`
    only_certified : leave out experiments during which the plant might break the limits of the plan. The plan itself is
        one of them.
    """
    if n < 1:
        raise InputError(f"n must be at least 1; got {n}")
    target = _Target.of(certificate)
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

    The plan, the recorded runs that the failing bounds rest on, what lies between, and perturbations of all these at
    several scales; within the limits of inputs, and of states at the start. Plans that are shorter than the recorded
    runs go on with their last input.
    """
    generator = np.random.default_rng(0) if rng is None else rng
    runs, question = certificate.predictor.runs, certificate.question
    missing = runs.horizon - len(question.inputs)
    plan = np.concatenate([question.inputs, np.repeat(question.inputs[-1:], missing, axis=0)])
    touched = sorted({run for bound in _Target.of(certificate).bounds for run in bound.active_runs(runs)})
    x0 = np.concatenate([question.x0[None], runs.states[touched, 0]])
    inputs = np.concatenate([plan[None], runs.inputs[touched]])
    m = max(0, n - len(x0))
    # Half of them around the plan, the others around points on the way from it to a recorded run
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
    return _within(question, np.concatenate([x0, starts]), np.concatenate([inputs, sequences]))


def _within(question: Question, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Moved to the nearest within the limits; initial states outside a polytope are left out."""
    if question.input_limits is not None:
        inputs = question.input_limits.clip(inputs)
    limits, noise = question.state_limits, question.initial_state_noise
    if isinstance(limits, Box) and (limits.lower + noise <= limits.upper - noise).all():
        x0 = np.clip(x0, limits.lower + noise, limits.upper - noise)
    inside = question.polytope.contains(x0)
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
    """Candidates, and the certificates of those that were looked at."""

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
        question, predictor = self.certificate.question, self.certificate.predictor
        found = certify_plans(
            predictor,
            self.x0[places],
            self.inputs[places],
            question.state_limits,
            question.input_limits,
            question.input_rate_limits,
            np.maximum(question.initial_state_noise, predictor.initial_state_noise),
            self.n_jobs,
        )
        self.certificates.update(zip(places, found, strict=True))


@dataclass(frozen=True, eq=False)
class _Target:
    """The failing constraints: their margins, the bounds they rest on, and what a unit of each is to them."""

    margins: FloatArray
    """`(n_failing,)`."""
    bounds: tuple[_Bound, ...]
    shares: FloatArray
    """`(n_failing, n_bounds)`: how much a margin grows when a bound shrinks by one."""

    @classmethod
    def of(cls, certificate: Certificate) -> _Target:
        if certificate.verdict is not Verdict.UNDECIDED:
            why = {
                Verdict.CERTIFIED: "it is certified: there is nothing left to find out",
                Verdict.REFUTED: "it is refuted: more data cannot change that",
            }
            raise InputError(f"experiments are ranked for plans that are undecided, but {why[certificate.verdict]}")
        if not issubclass(certificate.predictor.method, OptimalEnvelope):
            raise InputError(
                f"experiments are ranked by the worst-case functions of OptimalEnvelope; "
                f"{certificate.predictor.method.__name__} has none"
            )
        steps, constraints = np.nonzero(certificate.margins < 0.0)
        normals = certificate.question.polytope.normals[constraints]
        needed = {(n, i, normals[row, i] > 0) for row, n in enumerate(steps.tolist()) for i in _nonzero(normals[row])}
        ends = sorted(needed)
        shares = np.zeros((len(steps), len(ends)))
        for row, n in enumerate(steps.tolist()):
            for i in _nonzero(normals[row]):
                shares[row, ends.index((n, i, normals[row, i] > 0))] = abs(normals[row, i])
        bounds = tuple(_Bound.of(certificate, n, i, int(above)) for n, i, above in ends)
        return cls(certificate.margins[steps, constraints], bounds, shares)

    @property
    def lacking(self) -> float:
        """What the margins are below zero by, in all."""
        return float(np.maximum(0.0, -self.margins).sum())

    def gain(self, growth: FloatArray) -> float:
        return self.lacking - float(np.maximum(0.0, -self.margins - growth).sum())

    def merit(self, growth: FloatArray) -> tuple[float, float]:
        """To compare experiments by: first what they gain, then the least margin."""
        return self.gain(growth), float((self.margins + growth).min())

    def order(self, Z: FloatArray) -> list[int]:
        """Experiments, a row each, by their estimated merit; those that are not worth a second look are left out."""
        falls = np.array([bound.estimated_falls(Z) for bound in self.bounds])
        merits = [self.merit(growth) for growth in (self.shares @ falls).T]
        ranked = sorted(range(len(Z)), key=lambda k: merits[k], reverse=True)
        return [k for k in ranked if merits[k][0] > 0.0]

    def expected_growth(self, z: FloatArray) -> FloatArray:
        """Of the margins by one experiment, on average over the noise."""
        growth: FloatArray = self.shares @ np.array([bound.expected_fall(z) for bound in self.bounds])
        return growth

    def after(self, z: FloatArray) -> _Target:
        """Once an experiment has turned out as predicted."""
        bounds = tuple(bound.after(z) for bound in self.bounds)
        falls = np.array([old.value - new.value for old, new in zip(self.bounds, bounds, strict=True)])
        return replace(self, margins=self.margins + self.shares @ falls, bounds=bounds)


@dataclass(frozen=True, eq=False)
class _Bound:
    """One end of a box, as an upper bound of `f` or of `-f`, whichever the side says."""

    envelope: OptimalEnvelope
    z: FloatArray
    """What it bounds the function at; experiments count up to as many coordinates."""
    side: int
    noise: float
    """Half the width of the interval that an experiment adds."""
    value: float
    witnesses: tuple[Witness, Witness]
    """Of this bound, and of the one from the other side."""

    @classmethod
    def of(cls, certificate: Certificate, n: int, i: int, side: int) -> _Bound:
        predictor, question = certificate.predictor, certificate.question
        envelope = predictor.envelopes[n][i]
        assert isinstance(envelope, OptimalEnvelope)
        z = stacked(question.x0[None], question.inputs[None, : n + 1])[0]
        widening = predictor.displacements(predictor.initial_state_noise, n + 1)[n, i]
        return cls._solved(envelope, z, side, float(predictor.runs.noise_bound[n, i] + widening))

    @classmethod
    def _solved(cls, envelope: OptimalEnvelope, z: FloatArray, side: int, noise: float) -> _Bound:
        functional = Points.value(z)
        this, other = (envelope.upper_bounds(envelope.sides[s], [functional])[0] for s in (side, 1 - side))
        assert this.witness is not None
        assert other.witness is not None
        return cls(envelope, z, side, noise, this.value, (this.witness, other.witness))

    @property
    def sign(self) -> float:
        return 1.0 if self.side else -1.0

    def active_runs(self, runs: Trajectories) -> Iterator[int]:
        """Recorded runs whose intervals hold the bound."""
        recorded = runs.arguments((len(self.z) - runs.n_states) // runs.n_inputs)
        for x in self.envelope.data.X[self.witnesses[0].indices]:
            yield int(np.flatnonzero((recorded == x).all(axis=1))[0])

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """`|| k_z - sum_a w_a k_{x_a} ||` for the weights of this side and of the other; (nearly) zero at a datum."""
        value, gram = Points.value(self.z), self.envelope.gram
        this, other = (max(w.precise_norm_up(value, gram), _LEAST_NORM) for w in self.witnesses)
        return this, other

    @cached_property
    def _worst_cases(self) -> tuple[KernelModel, KernelModel]:
        """Functions that attain this bound and, negated, that of the other side."""
        return self._worst_case(0), self._worst_case(1)

    def _worst_case(self, which: int) -> KernelModel:
        envelope, witness, norm = self.envelope, self.witnesses[which], self._norms[which]
        X = envelope.data.X
        if norm > _LEAST_NORM:
            points, weights = np.vstack([self.z, X[witness.indices]]), np.append(1.0, -witness.weights)
            return KernelModel(points, envelope.kernel, envelope.radius / norm * weights)
        # The bound is the end of an interval: of all functions that pass through it, the one of least norm
        side, own = envelope.sides[self.side if which == 0 else 1 - self.side], _heaviest(witness)
        lower = side.lower.copy()
        lower[own] = side.upper[own]
        least = least_norm(envelope.gram, lower, side.upper)
        return KernelModel(X[least.indices], envelope.kernel, least.weights)

    def predicted(self, Z: FloatArray) -> FloatArray:
        """Half-way between the worst-case functions of both sides: it fits all data and has no larger norm."""
        this, other = self._worst_cases
        return 0.5 * (this(Z) - other(Z))

    def estimated_falls(self, Z: FloatArray) -> FloatArray:
        """How much the bound would fall with each experiment, on average over the noise, by matrix products alone."""
        points = Z[:, : len(self.z)]
        centres, falls = self.predicted(points), np.zeros(len(Z))
        for share, probability in _NOISE:
            lower, upper = (centres + (share + end) * self.noise for end in (-1.0, 1.0))
            turned = self._fall_by_turning(points, lower, upper)
            falls += probability * np.maximum(self._fall_by_sharing(points, upper), turned)
        return falls

    def _fall_by_sharing(self, Z: FloatArray, upper: FloatArray) -> FloatArray:
        """What weights prove that give a share `c` to the experiment, and the rest to the points the bound rests on.

        `k_z - (1 - c) sum_a w_a k_{x_a} - c k_z'` is a mixture of two residuals, `r` and `k_z - k_z'`.
        """
        kernel, witness, radius, norm = self.envelope.kernel, self.witnesses[0], self.envelope.radius, self._norms[0]
        X = self.envelope.data.X[witness.indices]
        r = kernel(np.vstack([self.z, Z]), np.vstack([self.z, X])) @ np.append(1.0, -witness.weights)
        c = np.linspace(0.0, 1.0, 11)[1:, None]
        distance2 = 2.0 * kernel.fall(Z, self.z[None])[:, 0]
        norms2 = ((1.0 - c) * norm) ** 2 + 2.0 * c * (1.0 - c) * (r[0] - r[1:]) + c**2 * distance2
        bounds = radius * np.sqrt(np.maximum(norms2, 0.0)) + (1.0 - c) * (self.value - radius * norm) + c * upper
        falls: FloatArray = np.maximum(0.0, self.value - bounds.min(axis=0))
        return falls

    def _fall_by_turning(self, Z: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
        """What is lost if the worst-case function stays as it is at the points the bound rests on.

        Then it can only be turned orthogonally to those, on a ball of radius `R`: a problem in the plane of `g` and
        `h`, which are what is orthogonal of `k_z` and of the experiment's section.
        """
        kernel, gram, touched = self.envelope.kernel, self.envelope.gram, self.witnesses[0].indices
        queries = np.vstack([self.z, Z])
        k_z, h2 = kernel(queries, self.z[None])[:, 0], np.full(len(queries), kernel.variance)
        if len(touched):
            sections = kernel(queries, gram.X[touched])
            weights = Spectrum(*np.linalg.eigh(gram.matrix(touched))).solve(sections.T)
            k_z, h2 = k_z - sections @ weights[:, 0], h2 - np.einsum("qa,aq->q", sections, weights)
        least = _LEAST_NORM**2 * kernel.variance
        g, h = np.sqrt(max(float(h2[0]), least)), np.sqrt(np.maximum(h2[1:], least))
        cosine = np.clip(k_z[1:] / (g * h), -1.0, 1.0)
        R = self.envelope.radius / self._norms[0] * g
        fixed = self._worst_cases[0](Z) - R * cosine * h
        falls = np.zeros(len(Z))
        for sign, end in ((1.0, upper), (-1.0, lower)):
            room = np.clip(sign * (end - fixed) / h, -R, R)
            reached = sign * cosine * room + np.sqrt((1.0 - cosine**2) * (R**2 - room**2))
            falls += np.where(sign * cosine * R > room, g * (R - reached), 0.0)
        return falls

    def expected_fall(self, z: FloatArray) -> float:
        """How much the bound falls with an experiment, on average over the noise: computed anew."""
        return sum(p * max(0.0, self.value - self._with(z, share).value) for share, p in _NOISE)

    def after(self, z: FloatArray) -> _Bound:
        """With the outcome that is predicted of an experiment."""
        return self._with(z, 0.0)

    def _with(self, z: FloatArray, share: float) -> _Bound:
        """With the outcome of an experiment and so much noise; unchanged where rounding makes that impossible."""
        point = z[None, : len(self.z)]
        outcome = self.sign * (float(self.predicted(point)[0]) + share * self.noise)
        data, envelope = self.envelope.data, self.envelope
        try:
            extended = Observations.from_intervals(
                np.vstack([data.X, point]),
                np.append(data.lower, outcome - self.noise),
                np.append(data.upper, outcome + self.noise),
            )
            return self._solved(replace(envelope, data=extended), self.z, self.side, self.noise)
        except (ContradictoryDataError, FalsifiedNormBoundError):
            return self


def _heaviest(witness: Witness) -> int:
    return int(witness.indices[np.argmax(np.abs(witness.weights))])


def _nonzero(row: FloatArray) -> list[int]:
    return np.flatnonzero(row).tolist()


def _is_certified(certificate: Certificate) -> bool:
    return certificate.verdict is Verdict.CERTIFIED and certificate.starts_inside
