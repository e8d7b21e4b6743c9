"""Choosing what a predictor assumes: kernels by cross-validation, norm bounds by estimate, for every step and state.

What is chosen is an assumption, not a proof. Runs that had no part in the choice can refute it.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, positive
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..engine.gram import Gram
from ..engine.least_norm import least_norm_along
from ..errors import ContradictoryDataError, InputError, SolverError, UnsettledNormWarning
from ..kernels.base import Kernel
from ..kernels.families import KernelFamily, kernel_family
from ..parallel import Progress, collect, in_parallel
from .intervals import displacement, measurement_bound, step_observations
from .norms import TINY, NormBound, least_norm_estimate, norm_growth
from .priors import Prior, fitted_priors
from .regression import cross_validate, cross_validate_per_dimension

NormEstimate = Literal["least_norm", "interpolant"]

_NEARLY = 0.1
"""A lengthscale whose mean squared error is larger by no more than this share does nearly as well."""

_HOPELESS = 1e9
"""Norms beyond this multiple of the outputs are not looked for where they widen intervals themselves."""

SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where no lengthscales are given: so many standard deviations of each coordinate."""


SHARES = (0.25, 0.5, 1.0)
"""Of the data, on which the least norm is watched as it grows."""

_SETTLED = 1.5
"""A least norm that the second half of the data raises by no more than this factor has settled; smooth plants stay
below 1.3 with a hundred runs or more, saturation, dead zones and stiction come to between 2 and 25."""


@dataclass(frozen=True, eq=False)
class Selection:
    """By step and state: the kernel, the norm bound, and the regularisation that goes with the kernel."""

    kernels: list[list[Kernel]]
    norm_bounds: list[list[NormBound]]
    regularisations: list[list[float]]
    growth: list[list[FloatArray]]
    """Least norms through `SHARES` of the data."""
    priors: Sequence[Sequence[Prior]]
    state_names: tuple[str, ...]

    @property
    def doubt(self) -> str:
        """Which norm estimates have not settled, the worst first, and what to do; empty where all have."""
        factors = {
            (n, name): norms[-1] / norms[-2] if norms[-2] > 0.0 else 1.0
            for n, row in enumerate(self.growth, start=1)
            for name, norms in zip(self.state_names, row, strict=True)
        }
        unsettled = sorted(
            (pair for pair in factors if factors[pair] > _SETTLED), key=factors.__getitem__, reverse=True
        )
        if not unsettled:
            return ""
        named = ", ".join(f"{name} at step {n} (times {factors[n, name]:.3g})" for n, name in unsettled[:3])
        more = f" and {len(unsettled) - 3} more" if len(unsettled) > 3 else ""
        return (
            f"norm estimates have not settled: the second half of the data raised those of {named}{more}. The norm "
            "bounds may be too small. Record more, raise the safety factor, take a rougher kernel (Matern) or shorter "
            "lengthscales; a plant that saturates, sticks or has a dead zone may fit no smooth kernel"
        )


class _Choice(NamedTuple):
    """Of one step and state."""

    kernel: Kernel
    norm_bound: NormBound
    regularisation: float
    growth: FloatArray


def select_assumptions(
    runs: Trajectories,
    lengthscales: Sequence[float | Sequence[float]] | None = None,
    *,
    regularisations: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1),
    folds: int = 5,
    per_dimension: bool = False,
    kernel: str | KernelFamily = "squared_exponential",
    norm_estimate: NormEstimate = "least_norm",
    safety_factor: float = 3.0,
    prior: Literal["affine"] | None = None,
    initial_state_noise: npt.ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Selection:
    """Choose kernels, norm bounds and regularisations from recorded runs.

    Parameters
    ----------
    lengthscales : candidates, numbers or one per coordinate of `z` at the last step (the first ones serve shorter
        sequences); by default multiples of the standard deviation of each coordinate
    per_dimension : start from the best candidate and go on to a lengthscale for every coordinate
    kernel : the name of one of `FAMILIES`, such as "matern52", or what makes a kernel from a lengthscale
    norm_estimate : `"least_norm"`, the least norm of a function through the intervals, or `"interpolant"`, the paper's
        Appendix A, which takes the outputs as free of noise and is far larger where they are not; no estimate is below
        that of a bump as high as the noise bound, which could hide in the noise
    safety_factor : the norm bound is the estimate times this. Where noise limits what can be told, a generous factor
        widens the boxes little.
    prior : `"affine"` subtracts an affine function of the arguments, fitted to the runs, before anything else: kernels
        and norm bounds are then those of the rest
    initial_state_noise : how far recorded initial states may be from the true ones, instead of what `runs` say of that
    """
    if prior not in (None, "affine"):
        raise InputError(f"prior must be 'affine' or None; got {prior!r}")
    if norm_estimate not in ("least_norm", "interpolant"):
        raise InputError(f"norm_estimate must be 'least_norm' or 'interpolant'; got {norm_estimate!r}")
    family = kernel_family(kernel)
    runs = runs.with_initial_state_noise(initial_state_noise)
    noise = runs.initial_state_noise
    nothing = ((None,) * runs.n_states,) * runs.horizon
    priors: Sequence[Sequence[Prior]] = nothing if prior is None else fitted_priors(runs)
    gap = runs.horizon + runs.shape.lead if runs.is_windowed else None
    pairs = [(n, i) for n in range(1, runs.horizon + 1) for i in range(runs.n_states)]
    generators = [None] * len(pairs) if rng is None else rng.spawn(len(pairs))

    def choose(n: int, i: int, generator: np.random.Generator | None) -> _Choice:
        data, own = _for_models(runs, n, i, noise, priors[n - 1][i]), priors[n - 1][i]
        candidates = _candidates(lengthscales, data.X)
        if len(data) < 2:
            raise InputError("all runs have the same initial state and inputs: nothing can be learned from them")
        settings: Any = {"folds": min(folds, len(data)), "kernel": family, "gap": gap}
        again = copy.deepcopy(generator)  # for the same folds
        errors = cross_validate(data, candidates, regularisations, rng=generator, **settings).errors
        best = _shortest_good(candidates, errors)
        model, ridge = family(candidates[best]), float(regularisations[int(np.argmin(errors[best]))])
        if per_dimension:
            refined = cross_validate_per_dimension(data, [candidates[best]], regularisations, rng=again, **settings)
            model, ridge = refined.kernel, refined.regularisation
        try:
            estimate, intervals = _estimate(runs, n, i, model, noise, own)
        except SolverError as error:
            raise SolverError(f"step {n}, state {runs.state_names[i]}: {error}{runs.caveat}") from None
        growth = _growth(intervals, model, in_blocks=runs.is_windowed)
        if norm_estimate == "interpolant":
            estimate = norm_growth(data.X, data.centre, model).estimate
        hidden = _hidden(runs, n, i, model)
        if hidden > estimate.value:
            estimate = NormBound(hidden, f"norm of a bump as high as the noise bound ({hidden:.6g})", 1.0)
        return _Choice(model, estimate.times(safety_factor), ridge, growth)

    tasks = [(n, i, generator) for (n, i), generator in zip(pairs, generators, strict=True)]
    found = collect(in_parallel(choose, tasks, n_jobs), len(tasks), progress)
    by_step = [found[n * runs.n_states : (n + 1) * runs.n_states] for n in range(runs.horizon)]
    selection = Selection(
        kernels=[[choice.kernel for choice in row] for row in by_step],
        norm_bounds=[[choice.norm_bound for choice in row] for row in by_step],
        regularisations=[[choice.regularisation for choice in row] for row in by_step],
        growth=[[choice.growth for choice in row] for row in by_step],
        priors=priors,
        state_names=runs.state_names,
    )
    if selection.doubt:
        warnings.warn(selection.doubt, UnsettledNormWarning, stacklevel=2)
    return selection


def _estimate(
    runs: Trajectories, n: int, i: int, kernel: Kernel, noise: FloatArray, prior: Prior
) -> tuple[NormBound, Observations]:
    """The least norm of a function through the intervals, and the intervals.

    Where inputs are uncertain, the norm itself widens the intervals: it is the least that needs no more than itself.
    """
    bound, by_norm = measurement_bound(runs, n, i), displacement(kernel, 1.0, noise, n * runs.n_inputs)
    bound += 0.0 if prior is None else prior.change(noise)
    data = _for_models(runs, n, i, noise, prior)
    if by_norm == 0.0:
        return least_norm_estimate(data, kernel), data
    gram = Gram(data.X, kernel)

    def widened(norm: float) -> Observations:
        return step_observations(runs, n, i, bound + norm * by_norm, prior)

    def is_refuted(norm: float) -> bool:
        try:
            wide = widened(norm)
        except ContradictoryDataError:
            return True
        return least_norm_along(gram, wide.lower, wide.upper).certified_norm(gram, wide.lower, wide.upper) > norm

    def needed(norm: float) -> float:
        try:
            return least_norm_estimate(widened(norm), kernel, in_balls=False).value
        except (SolverError, ContradictoryDataError):
            return math.inf

    small = max(_hidden(runs, n, i, kernel), TINY)
    if (enough := needed(small)) <= small:  # no estimate is below what noise could hide
        return NormBound(enough, f"least norm through {len(data)} intervals ({enough:.6g})", 1.0), widened(small)
    low, high = small, max(float(np.abs(data.centre).max()) / math.sqrt(kernel.variance), 2.0 * small)
    hopeless = _HOPELESS * high
    while is_refuted(high):
        low, high = high, 2.0 * high
    while high - low > 1e-2 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    while needed(high) > high:  # rounding had hidden that it is refuted
        high *= 2.0
        if high > hopeless:
            raise SolverError(
                f"no norm bound up to {high:.3g} was found that the {len(data)} intervals do not refute, though they "
                "widen with it; raise noise_bound or disturbance_bound, shorten the lengthscale, or take more lags"
            )
    text = f"least norm through {len(data)} intervals ({high:.6g}) widened for uncertain initial states"
    return NormBound(high, text, 1.0), widened(high)


def _hidden(runs: Trajectories, n: int, i: int, kernel: Kernel) -> float:
    """The norm of a bump as high as noise and disturbances, which could hide it."""
    return measurement_bound(runs, n, i) / math.sqrt(kernel.variance)


def _for_models(runs: Trajectories, n: int, i: int, noise: FloatArray, prior: Prior) -> Observations:
    """As `step_observations`, but outputs at equal inputs may differ by anything where inputs are uncertain."""
    if not noise.any():
        return step_observations(runs, n, i, prior=prior)
    anything = measurement_bound(runs, n, i) + float(np.ptp(runs.states[:, n, i]))
    return step_observations(runs, n, i, anything, prior)


def _growth(data: Observations, kernel: Kernel, *, in_blocks: bool) -> FloatArray:
    """Least norms through `SHARES` of the data.

    A share is the first so many of them where they are windows of recordings, and otherwise spread evenly.
    """
    shares = [np.arange(len(data)) < share * len(data) for share in SHARES]
    if not in_blocks:
        shares = [np.arange(len(data)) * share % 1.0 < share for share in SHARES]
    gram, norms = Gram(data.X, kernel), []
    for share in shares:
        lower, upper = (
            np.where(share, end, open_end) for end, open_end in ((data.lower, -np.inf), (data.upper, np.inf))
        )
        norms.append(least_norm_along(gram, lower, upper).certified_norm(gram, lower, upper))
    return np.maximum.accumulate(norms)


def _shortest_good(candidates: Sequence[Any], errors: FloatArray) -> int:
    """Which lengthscale is the shortest that predicts nearly as well as the best.

    Long ones leave out functions that the data cannot tell from the truth yet: of two that do equally well, the shorter
    assumes less.
    """
    least = errors.min(axis=1)
    good = np.flatnonzero(least <= (1.0 + _NEARLY) * least.min()).tolist()
    return min(good, key=lambda c: float(np.mean(np.log(candidates[c]))))


def _candidates(given: Sequence[float | Sequence[float]] | None, X: FloatArray) -> list[Any]:
    """Lengthscales for the coordinates of `X`."""
    if given is None:
        spread = X.std(axis=0)
        spread = np.where(spread > 1e-12 * (1.0 + np.abs(X).max(axis=0)), spread, 1.0)
        return [tuple((factor * spread).tolist()) for factor in SPREADS]
    return [
        positive(scale, "lengthscales") if np.ndim(scale) == 0 else tuple(scale)[: X.shape[1]]  # type: ignore[arg-type]
        for scale in given
    ]
