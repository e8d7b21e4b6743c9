"""Norm bounds: where they come from, what the data say about them, and what the data refute.

No data can prove an upper bound on the norm of an unknown function. They can prove lower bounds, and so refute a bound
that is too small. `consistency_frontier` draws the line: every pair (noise bound, norm bound) below it is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from ..arithmetic.rounding import UNIT_ROUNDOFF, outwards, quotient_down, up
from ..data.arrays import FloatArray, as_points, as_vector, non_negative, positive
from ..data.observations import Observations
from ..engine.gram import Gram
from ..engine.least_norm import LeastNorm, least_norm, least_norm_along, noise_trail
from ..engine.witness import Witness
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ..kernels.base import Kernel

TINY = 1e-50
"""A bound must be above zero, even where zero explains all data."""
LEAST_BOUND = 1e-100
"""Smaller norm bounds are refused: their squares, times rounding error bounds, could underflow."""
_MOST_PROOFS = 100  # of a frontier that is drawn
_DEPENDENT = 1e-8  # a sample this close to the span of earlier ones, relative to k(x, x), only adds rounding errors


@dataclass(frozen=True)
class NormBound:
    """An upper bound on the norm of the unknown function, between 1e-100 and 1e50, and its provenance."""

    value: float
    provenance: str = "given"
    safety_factor: float | None = None
    """The factor applied to an estimate from the data; None for a given bound."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", positive(self.value, "norm_bound"))
        if self.value < LEAST_BOUND:
            raise InputError(f"norm_bound must be at least {LEAST_BOUND:g}; got {self.value}")

    @classmethod
    def of(cls, bound: float | NormBound) -> NormBound:
        """A plain number is a given bound."""
        return bound if isinstance(bound, NormBound) else cls(bound)

    def times(self, safety_factor: float) -> NormBound:
        """The bound, enlarged to allow for complexity that the data have not shown."""
        factor = positive(safety_factor, "safety_factor")
        if factor == 1.0:
            return self
        total = None if self.safety_factor is None else self.safety_factor * factor
        return NormBound(self.value * factor, f"{self.provenance}, times {factor:g}", total)

    def require_consistent(self, gram: Gram, start: LeastNorm, data: Observations) -> None:
        """Refuse a bound that the data refute: every function through the intervals has a larger norm."""
        least = start.certified_norm(gram, data.lower, data.upper)
        if least > self.value:
            raise FalsifiedNormBoundError(
                f"norm_bound {self.value:.9g} ({self.provenance}) is refuted by the data: every function through "
                f"the intervals has a norm of at least {least:.9g}, {100 * (least / self.value - 1):.3g} % more; "
                "raise norm_bound (or the safety factor), shorten the lengthscale, or raise noise_bound if that is too "
                "small"
            )
        start.require_found(gram, data.lower, data.upper)


def least_norm_estimate(data: Observations, kernel: Kernel, *, in_balls: bool = True) -> NormBound:
    """The least norm of a function through all intervals: the noise-aware lower estimate of the norm.

    Where double-doubles lose it, it is computed `in_balls`, which may take seconds, or else an error is raised.
    """
    gram = Gram(data.X, kernel)
    solution = least_norm(gram, data.lower, data.upper, in_balls=in_balls)
    solution.require_found(gram, data.lower, data.upper)
    proved = solution.certified_norm(gram, data.lower, data.upper)
    # rounded up, so that it is not itself refuted
    norm = (proved if solution.precise is not None else max(solution.norm, proved)) * (1.0 + 1e-12)
    return NormBound(max(norm, TINY), f"least norm through {len(data)} intervals ({norm:.6g})", 1.0)


def estimated_text(bounds: Iterable[NormBound]) -> str:
    """A note that norm bounds are estimates, with the factors applied; empty where all were given."""
    all_bounds = list(bounds)
    factors = sorted(bound.safety_factor for bound in all_bounds if bound.safety_factor is not None)
    if not factors:
        return ""
    which = "norm bounds" if len(factors) == len(all_bounds) else f"{len(factors)} of {len(all_bounds)} norm bounds"
    times = f"{factors[0]:.4g}" if factors[0] == factors[-1] else f"{factors[0]:.4g} to {factors[-1]:.4g}"
    return f"{which} were estimated from the data, times {times}: data can refute such bounds, and never prove them"


@dataclass(frozen=True, eq=False)
class NormGrowth:
    """The noise-free lower estimate of the paper's Appendix A for the first 1, 2, ... samples; it never falls."""

    norms: FloatArray

    @property
    def estimate(self) -> NormBound:
        """The last norm, as a bound with its provenance."""
        n, final = len(self.norms), float(self.norms[-1])
        text = f"norm of the interpolant of {n} samples taken as noise-free ({final:.6g})"
        return NormBound(max(final, TINY), text, 1.0)


def norm_growth(X: npt.ArrayLike, values: npt.ArrayLike, kernel: Kernel) -> NormGrowth:
    """`sqrt(f_X' K_XX^-1 f_X)`, a lower bound on the norm of `f`, as the samples come in.

    It is evaluated as `<f, s> / ||s||` for the interpolant `s`, rounded down: proved for every function with exactly
    these values, even where the inputs are nearly dependent. With noisy values it is not a bound at all, and usually
    far too large: use `least_norm_estimate` for those.
    """
    points = as_points(X, "X")
    f = as_vector(values, "values", len(points))
    n = len(points)
    gram = Gram(points, kernel)
    K = gram.matrix(np.arange(n))
    L = np.zeros((n, n))
    kept: list[int] = []
    coordinates = np.zeros(n)
    largest, norms = 0.0, np.empty(n)
    for i in range(n):
        m = len(kept)
        column = np.zeros(m)
        for a in range(m):
            column[a] = (K[i, kept[a]] - L[a, :a] @ column[:a]) / L[a, a]
        distance2 = K[i, i] - column @ column
        if distance2 > _DEPENDENT * K[i, i]:
            L[m, :m], L[m, m] = column, math.sqrt(distance2)
            coordinates[m] = (f[i] - column @ coordinates[:m]) / L[m, m]
            kept.append(i)
            weights = solve_triangular(L[: m + 1, : m + 1], coordinates[: m + 1], lower=True, trans="T")
            largest = max(largest, Witness.sparse(np.array(kept), weights).norm_at_least(gram, f, f))
        norms[i] = largest
    return NormGrowth(norms)


@dataclass(frozen=True, eq=False)
class ConsistencyFrontier:
    """`least_norms[i]` is the least norm of a function that fits the data within `noise_bounds[i]`, which fall.

    Unpacks as `noise_bounds, least_norms`. Between two of its points the squared norm is quadratic. The points are read
    off a path, which rounding may mislead; the results of the methods are proved by weights.
    """

    noise_bounds: FloatArray
    least_norms: FloatArray
    data: Observations
    kernel: Kernel

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter((self.noise_bounds, self.least_norms))

    def refutes(self, noise_bound: float, norm_bound: float) -> bool:
        """Whether the data provably refute the pair, for a noise bound within the range of the frontier."""
        return self.least_norm_at(noise_bound) > norm_bound

    def least_norm_at(self, noise_bound: float) -> float:
        """The least norm for one noise bound within the range of the frontier, proved, rounded down."""
        self._require_followed(noise_bound)
        ends = self._intervals(noise_bound)
        return least_norm(self._gram, *ends).certified_norm(self._gram, *ends)

    def least_norms_at(self, noise_bounds: npt.ArrayLike) -> FloatArray:
        """The same for many noise bounds, faster and a little lower: for plots.

        The weights of a breakpoint prove a norm for every noise bound, a straight line that touches the frontier there
        and is nowhere above it. The result is the highest of a few nearby lines.
        """
        wanted = as_vector(noise_bounds, "noise_bounds")
        for noise_bound in wanted:
            self._require_followed(noise_bound)
        places, proofs = self._proofs
        norms = np.empty(len(wanted))
        for i, next_one in enumerate(np.searchsorted(places, wanted)):
            ends = self._intervals(wanted[i])
            nearby = proofs[max(next_one - 2, 0) : next_one + 2]
            norms[i] = max(quotient_down(witness.inner_at_least(*ends), norm) for witness, norm in nearby)
        return norms

    @cached_property
    def _proofs(self) -> tuple[FloatArray, list[tuple[Witness, float]]]:
        """Breakpoints in ascending order, and the weights of the least norm there with their own norm."""
        places = np.unique(self.noise_bounds)
        places = places[np.unique(np.linspace(0, len(places) - 1, _MOST_PROOFS).astype(np.int64))]
        solution: LeastNorm | None = None
        proofs = []
        for place in places[::-1]:  # each search begins where the one before ended
            solution = least_norm_along(self._gram, *self._intervals(place), solution)
            proofs.append((solution.witness, solution.witness.norm_up(self._gram, is_precise=True)))
        return places, proofs[::-1]

    @cached_property
    def _gram(self) -> Gram:
        return Gram(self.data.X, self.kernel)

    def _intervals(self, noise_bound: float) -> tuple[FloatArray, FloatArray]:
        """What the data say under another noise bound, rounded outwards."""
        widening = up(noise_bound - self.data.noise_bound)
        return outwards(self.data.lower - widening, self.data.upper + widening)

    def _require_followed(self, noise_bound: float) -> None:
        last = self.noise_bounds[-1]
        if not noise_bound >= last - 8.0 * UNIT_ROUNDOFF * self.noise_bounds[0]:
            raise InputError(f"the frontier was followed down to the noise bound {last:.6g}, not to {noise_bound:.6g}")


def consistency_frontier(data: Observations, kernel: Kernel, down_to: float | None = None) -> ConsistencyFrontier:
    """The whole frontier from one path, from noise so large that zero explains everything down to `down_to`.

    Where noise bounds differ from row to row, they all shrink by the same amount and `noise_bounds` is the largest.
    With more data than fit in a matrix, it is the frontier of the subset that decides its end: the frontier of a subset
    lies below that of all data, so what it refutes is refuted.
    `down_to` is the data's own noise bound by default; a smaller one must not make the intervals contradict each other.
    """
    present = data.noise_bound
    if not math.isfinite(present):
        raise InputError("the frontier needs data with noise bounds, not bare intervals")
    narrowing = 0.0 if down_to is None else present - non_negative(down_to, "down_to")
    room = float(np.min(data.upper - data.lower)) / 2.0
    if narrowing > room:
        raise ContradictoryDataError(
            f"down_to = {down_to:.6g} would make intervals contradict each other; the least that does not is "
            f"{present - room:.6g}"
        )
    widenings, norms = noise_trail(Gram(data.X, kernel), data.lower, data.upper, narrowing)
    return ConsistencyFrontier(present + widenings, norms, data, kernel)
