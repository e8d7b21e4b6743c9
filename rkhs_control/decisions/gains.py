"""What an experiment would gain for an undecided plan: the failing bounds, and how far they are expected to fall.

A bound is attained by a worst-case function, and so is the opposite bound: two plants that the data cannot distinguish.
Halfway between the two lies a function that the data also allow; it predicts the outcome of an experiment, and because
it fits its own predictions, no predicted outcome contradicts the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..assumptions.intervals import measurement_bound
from ..assumptions.regression import KernelModel
from ..certificates.certificate import Certificate, Verdict
from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..engine.functionals import Points
from ..engine.gram import Spectrum
from ..engine.least_norm import least_norm
from ..engine.witness import Witness
from ..envelopes.optimal import OptimalEnvelope
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError

# Noise values as shares of the bound, and their weights: Gauss-Legendre nodes for a uniform distribution
_NOISE = tuple(zip((-(0.6**0.5), 0.0, 0.6**0.5), (5 / 18, 8 / 18, 5 / 18), strict=True))
_LEAST_NORM = 1e-8  # of what a bound's weights leave of the query: with less, the bound is a datum's own interval


@dataclass(frozen=True, eq=False)
class Target:
    """The failing constraints: their margins, the bounds they rest on, and their sensitivity to each bound."""

    margins: FloatArray
    """`(n_failing,)`."""
    bounds: tuple[_Bound, ...]
    shares: FloatArray
    """`(n_failing, n_bounds)`: how much a margin grows when a bound shrinks by one."""

    @classmethod
    def of(cls, certificate: Certificate) -> Target:
        """The failing constraints of an undecided certificate; others are refused."""
        if certificate.verdict is not Verdict.UNDECIDED:
            why = {
                Verdict.CERTIFIED: "it is certified: there is nothing left to find out",
                Verdict.REFUTED: "it is refuted: more data cannot change that",
            }
            raise InputError(f"experiments are ranked for undecided plans, but {why[certificate.verdict]}")
        if not issubclass(certificate.predictor.method, OptimalEnvelope):
            raise InputError(
                f"experiments are ranked by the worst-case functions of OptimalEnvelope; "
                f"{certificate.predictor.method.__name__} has none"
            )
        steps, constraints = np.nonzero(certificate.margins < 0.0)
        normals = certificate.limits.polytope.normals[constraints]
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
        """The total amount by which margins are below zero."""
        return float(np.maximum(0.0, -self.margins).sum())

    def gain(self, growth: FloatArray) -> float:
        """How much the total shortfall decreases if the margins grow by `growth`."""
        return self.lacking - float(np.maximum(0.0, -self.margins - growth).sum())

    def merit(self, growth: FloatArray) -> tuple[float, float]:
        """Sort key for experiments: first the gain, then the least margin."""
        return self.gain(growth), float((self.margins + growth).min())

    def order(self, Z: FloatArray) -> list[int]:
        """Experiments, one per row, sorted by estimated merit; those not worth a closer look are left out."""
        falls = np.array([bound.estimated_falls(Z) for bound in self.bounds])
        merits = [self.merit(growth) for growth in (self.shares @ falls).T]
        ranked = sorted(range(len(Z)), key=lambda k: merits[k], reverse=True)
        return [k for k in ranked if merits[k][0] > 0.0]

    def expected_growth(self, z: FloatArray) -> FloatArray:
        """Expected growth of the margins from one experiment, averaged over the noise."""
        growth: FloatArray = self.shares @ np.array([bound.expected_fall(z) for bound in self.bounds])
        return growth

    def after(self, z: FloatArray) -> Target:
        """The target after an experiment has turned out as predicted."""
        bounds = tuple(bound.after(z) for bound in self.bounds)
        falls = np.array([old.value - new.value for old, new in zip(self.bounds, bounds, strict=True)])
        return replace(self, margins=self.margins + self.shares @ falls, bounds=bounds)


@dataclass(frozen=True, eq=False)
class _Bound:
    """One end of a box, as an upper bound on `f` or on `-f`, depending on the side."""

    envelope: OptimalEnvelope
    z: FloatArray
    """The argument of the bound; only this many coordinates of an experiment count."""
    side: int
    noise: float
    """Half the width of the interval that an experiment adds."""
    value: float
    witnesses: tuple[Witness, Witness]
    """Witnesses of this bound and of the opposite one."""

    @classmethod
    def of(cls, certificate: Certificate, n: int, i: int, side: int) -> _Bound:
        predictor, question = certificate.predictor, certificate.question
        envelope = predictor.envelope(n + 1, i)
        assert isinstance(envelope, OptimalEnvelope)
        z = stacked(question.x0[None], question.inputs[None, : n + 1])[0]
        widening = predictor.displacements(predictor.initial_state_noise, n + 1)[n, i]
        return cls._solved(envelope, z, side, measurement_bound(predictor.runs, n + 1, i) + float(widening))

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
        """Recorded runs whose intervals determine the bound."""
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
        """Functions that attain this bound and, negated, the opposite one."""
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
        """Halfway between the worst-case functions of both sides: it fits all data and has no larger norm."""
        this, other = self._worst_cases
        return 0.5 * (this(Z) - other(Z))

    def estimated_falls(self, Z: FloatArray) -> FloatArray:
        """How much the bound would fall with each experiment, averaged over the noise, by matrix products alone."""
        points = Z[:, : len(self.z)]
        centres, falls = self.predicted(points), np.zeros(len(Z))
        for share, probability in _NOISE:
            lower, upper = (centres + (share + end) * self.noise for end in (-1.0, 1.0))
            turned = self._fall_by_turning(points, lower, upper)
            falls += probability * np.maximum(self._fall_by_sharing(points, upper), turned)
        return falls

    def _fall_by_sharing(self, Z: FloatArray, upper: FloatArray) -> FloatArray:
        """The fall proved by weights that give a share `c` to the experiment, the rest to the bound's active points.

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
        """The fall if the worst-case function stays fixed at the bound's active points.

        It can then only rotate orthogonally to those, on a ball of radius `R`: a problem in the plane of `g` and `h`,
        the orthogonal parts of `k_z` and of the experiment's section.
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
        """How much the bound falls with an experiment, averaged over the noise: recomputed."""
        return sum(p * max(0.0, self.value - self._with(z, share).value) for share, p in _NOISE)

    def after(self, z: FloatArray) -> _Bound:
        """The bound with the predicted outcome of an experiment."""
        return self._with(z, 0.0)

    def _with(self, z: FloatArray, share: float) -> _Bound:
        """The bound with the predicted outcome plus this much noise; unchanged where rounding makes that impossible."""
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
