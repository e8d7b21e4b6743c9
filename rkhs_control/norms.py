"""Norm bounds: where they come from, what the data say about them, and what the data refute.

No data can prove an upper bound of the norm of an unknown function. They can prove lower ones, and so refute a bound
that is too small. `consistency_frontier` draws the line: every pair (noise bound, norm bound) below it is refuted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from .errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from .gram import Gram
from .kernels import UNIT_ROUNDOFF, Kernel
from .least_norm import LeastNorm, least_norm
from .observations import Observations
from .validation import FloatArray, as_points, as_vector, non_negative, positive

_TINY = 1e-50  # a bound must be above zero, even where zero explains all data
_DEPENDENT = 1e-8  # nearer to the span of those before it, as a share of k(x, x), a sample only adds rounding errors


@dataclass(frozen=True)
class NormBound:
    """An upper bound of the norm of the unknown function, and where it comes from."""

    value: float
    provenance: str = "given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", positive(self.value, "norm_bound"))

    @classmethod
    def of(cls, bound: float | NormBound) -> NormBound:
        """A plain number is a bound that was given."""
        return bound if isinstance(bound, NormBound) else cls(bound)

    def times(self, safety_factor: float) -> NormBound:
        """The bound, enlarged for complexity that the data have not shown."""
        factor = positive(safety_factor, "safety_factor")
        if factor == 1.0:
            return self
        return NormBound(self.value * factor, f"{self.provenance}, times {factor:g}")

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


def least_norm_estimate(data: Observations, kernel: Kernel) -> NormBound:
    """The least norm of a function through all intervals: the noise-aware lower estimate of the norm."""
    gram = Gram(data.X, kernel)
    solution = least_norm(gram, data.lower, data.upper)
    # rounded up, so that it is not itself refuted
    norm = max(solution.norm, solution.certified_norm(gram, data.lower, data.upper)) * (1.0 + 1e-12)
    return NormBound(max(norm, _TINY), f"least norm through {len(data)} intervals ({norm:.6g})")


@dataclass(frozen=True, eq=False)
class NormGrowth:
    """The noise-free lower estimate of the paper's Appendix A for the first 1, 2, ... samples; it never falls."""

    norms: FloatArray

    @property
    def estimate(self) -> NormBound:
        n, final = len(self.norms), float(self.norms[-1])
        return NormBound(max(final, _TINY), f"norm of the interpolant of {n} samples taken as noise-free ({final:.6g})")


def norm_growth(X: npt.ArrayLike, values: npt.ArrayLike, kernel: Kernel) -> NormGrowth:
    """`sqrt(f_X' K_XX^-1 f_X)`, a lower bound of the norm of `f`, as the samples come in.

    It is evaluated as `<f, s> / ||s||` for the interpolant `s`, rounded down: a lower bound even where the inputs
    nearly depend on each other. With noisy values it is no bound at all, and usually far too large:
    `least_norm_estimate` is for those.
    """
    points = as_points(X, "X")
    f = as_vector(values, "values", len(points))
    K = kernel(points)
    n = len(points)
    L = np.zeros((n, n))
    kept: list[int] = []
    coordinates = np.zeros(n)
    largest, norms = 0.0, np.empty(n)
    rounding = kernel.rounding(points.shape[1])
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
            largest = max(largest, _certain_share(weights, f[kept], K[np.ix_(kept, kept)], rounding))
        norms[i] = largest
    return NormGrowth(norms)


def _certain_share(weights: FloatArray, values: FloatArray, K: FloatArray, rounding: float) -> float:
    """`<f, s> / ||s||` for `s = sum_a weights_a k_{x_a}`, rounded down: no function with these values has less norm."""
    size = np.abs(weights)
    relative = 4.0 * (len(weights) + 4) * UNIT_ROUNDOFF
    product = float(weights @ values) - relative * float(size @ np.abs(values))
    squared = float(weights @ K @ weights) + (relative + 2.0 * rounding) * float(size @ np.abs(K) @ size)
    return product / math.sqrt(squared) * (1.0 - 8.0 * UNIT_ROUNDOFF) if product > 0.0 else 0.0


@dataclass(frozen=True, eq=False)
class ConsistencyFrontier:
    """`least_norms[i]` is the least norm of a function that fits the data within `noise_bounds[i]`, which fall.

    Unpacks as `noise_bounds, least_norms`. Between two of its points the squared norm is quadratic.
    """

    noise_bounds: FloatArray
    least_norms: FloatArray
    data: Observations
    kernel: Kernel

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter((self.noise_bounds, self.least_norms))

    def refutes(self, noise_bound: float, norm_bound: float) -> bool:
        """Whether the data refute the pair, of a noise bound within the range of the frontier.

        Proved by weights, not read off the path, which rounding may mislead.
        """
        self._require_followed(noise_bound)
        widening = np.nextafter(noise_bound - self.data.noise_bound, np.inf)
        lower = np.nextafter(self.data.lower - widening, -np.inf)
        upper = np.nextafter(self.data.upper + widening, np.inf)
        gram = Gram(self.data.X, self.kernel)
        return least_norm(gram, lower, upper).certified_norm(gram, lower, upper) > norm_bound

    def least_norm_at(self, noise_bound: float) -> float:
        """The least norm for one noise bound within the range of the frontier.

        It is convex in the noise bound, so the chord between breakpoints lies above: what is said here is the
        breakpoint at the larger noise bound, a lower bound.
        """
        self._require_followed(noise_bound)
        if noise_bound >= self.noise_bounds[0]:
            return float(self.least_norms[0])
        passed = np.flatnonzero(self.noise_bounds >= noise_bound)
        return float(self.least_norms[passed[-1] if len(passed) else 0])

    def _require_followed(self, noise_bound: float) -> None:
        last = self.noise_bounds[-1]
        if not noise_bound >= last - 8.0 * UNIT_ROUNDOFF * self.noise_bounds[0]:
            raise InputError(f"the frontier was followed down to the noise bound {last:.6g}, not to {noise_bound:.6g}")


def consistency_frontier(data: Observations, kernel: Kernel, down_to: float | None = None) -> ConsistencyFrontier:
    """The whole frontier from one path, from noise so large that zero explains everything down to `down_to`.

    Where noise bounds differ from row to row, they all shrink by the same amount and `noise_bounds` is the largest.
    With more data than are kept as a matrix, it is the frontier of as many of them as decide its end: one of a part of
    the data lies below that of all, so what it refutes is refuted.
    `down_to` is the data's own noise bound by default; a smaller one must not make the intervals contradict.
    """
    present = data.noise_bound
    if not math.isfinite(present):
        raise InputError("the frontier needs data with noise bounds, not bare intervals")
    narrowing = 0.0 if down_to is None else present - non_negative(down_to, "down_to")
    room = float(np.min(data.upper - data.lower)) / 2.0
    if narrowing > room:
        raise ContradictoryDataError(
            f"down_to = {down_to:.6g} would make intervals contradict; the least that does not is {present - room:.6g}"
        )
    path = least_norm(Gram(data.X, kernel), data.lower, data.upper, narrowing)
    return ConsistencyFrontier(present + path.widenings, np.sqrt(np.maximum(path.energies, 0.0)), data, kernel)
