"""Choosing what a predictor assumes: kernels by cross-validation, norm bounds by estimate, for every step and state.

What is chosen is an assumption, not a proof. Runs that had no part in the choice can refute it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .functionals import UNDERFLOW
from .kernels import UNIT_ROUNDOFF, Kernel, SquaredExponential
from .norms import NormBound, least_norm_estimate, norm_growth
from .observations import Observations
from .regression import cross_validate, cross_validate_per_dimension
from .trajectories import Trajectories
from .validation import FloatArray, as_floats, positive

Progress = Callable[[int, int], None]
"""`progress(done, total)`, called as the work goes on."""

NormEstimate = Literal["least_norm", "interpolant"]

_NEARLY = 0.1
"""A lengthscale whose mean squared error is larger by no more than this share does nearly as well."""

SPREADS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where no lengthscales are given: so many standard deviations of each coordinate."""


@dataclass(frozen=True, eq=False)
class Selection:
    """By step and state: the kernel, the norm bound, and the regularisation that goes with the kernel."""

    kernels: list[list[Kernel]]
    norm_bounds: list[list[NormBound]]
    regularisations: list[list[float]]


def step_observations(
    runs: Trajectories, n: int, i: int, noise_bound: float | FloatArray | None = None
) -> Observations:
    """What the runs say about state `i` after `n` steps, as a function of `runs.arguments(n)`."""
    noise = runs.noise_bound[n - 1, i] if noise_bound is None else noise_bound
    return Observations(runs.arguments(n), runs.states[:, n, i], noise)


def select_assumptions(
    runs: Trajectories,
    lengthscales: Sequence[float | Sequence[float]] | None = None,
    *,
    regularisations: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1),
    folds: int = 5,
    per_dimension: bool = False,
    kernel: Callable[[Any], Kernel] = SquaredExponential,
    norm_estimate: NormEstimate = "least_norm",
    safety_factor: float = 3.0,
    initial_state_noise: float | npt.ArrayLike = 0.0,
    rng: np.random.Generator | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Selection:
    """Choose kernels, norm bounds and regularisations from recorded runs.

    Parameters
    ----------
    lengthscales : candidates, numbers or one a coordinate of `z` at the last step (the first ones serve shorter
        sequences); by default multiples of the standard deviation of each coordinate
    per_dimension : start from the best candidate and go on to a lengthscale for every coordinate
    kernel : makes a kernel from a lengthscale
    norm_estimate : `"least_norm"`, the least norm of a function through the intervals, or `"interpolant"`, the paper's
        Appendix A, which takes the outputs as free of noise and is far larger where they are not; no estimate is below
        that of a bump as high as the noise bound, which could hide in the noise
    safety_factor : the norm bound is the estimate times this. Where noise limits what can be told, a generous factor
        widens the boxes little.
    initial_state_noise : how far recorded initial states may be from the true ones
    """
    from joblib import Parallel, delayed

    if norm_estimate not in ("least_norm", "interpolant"):
        raise InputError(f"norm_estimate must be 'least_norm' or 'interpolant'; got {norm_estimate!r}")
    noise = np.broadcast_to(as_floats(initial_state_noise, "initial_state_noise"), (runs.n_states,))
    pairs = [(n, i) for n in range(1, runs.horizon + 1) for i in range(runs.n_states)]
    generators = [None] * len(pairs) if rng is None else rng.spawn(len(pairs))

    def choose(n: int, i: int, generator: np.random.Generator | None) -> tuple[Kernel, NormBound, float]:
        data = step_observations(runs, n, i)
        candidates = _candidates(lengthscales, data.X)
        if len(data) < 2:
            raise InputError("all runs have the same initial state and inputs: nothing can be learned from them")
        settings: Any = {"folds": min(folds, len(data)), "kernel": kernel}
        again = copy.deepcopy(generator)  # for the same folds
        errors = cross_validate(data, candidates, regularisations, rng=generator, **settings).errors
        best = _shortest_good(candidates, errors)
        model, ridge = kernel(candidates[best]), float(regularisations[int(np.argmin(errors[best]))])
        if per_dimension:
            refined = cross_validate_per_dimension(data, [candidates[best]], regularisations, rng=again, **settings)
            model, ridge = refined.kernel, refined.regularisation
        if norm_estimate == "least_norm":
            estimate = _least_norm(runs, n, i, model, noise)
        else:
            estimate = norm_growth(data.X, data.centre, model).estimate
        hidden = float(runs.noise_bound[n - 1, i]) / math.sqrt(model.variance)
        if hidden > estimate.value:
            estimate = NormBound(hidden, f"norm of a bump as high as the noise bound ({hidden:.6g})")
        return model, estimate.times(safety_factor), ridge

    tasks = (delayed(choose)(n, i, generator) for (n, i), generator in zip(pairs, generators, strict=True))
    found = []
    for result in Parallel(n_jobs=n_jobs, return_as="generator")(tasks):
        found.append(result)
        if progress is not None:
            progress(len(found), len(pairs))
    kernels, bounds, chosen_regularisations = (
        [[found[n * runs.n_states + i][part] for i in range(runs.n_states)] for n in range(runs.horizon)]
        for part in range(3)
    )
    return Selection(kernels, bounds, chosen_regularisations)


def displacement(kernel: Kernel, radius: float, noise: FloatArray, n_known: int) -> float:
    """The largest `|f(z) - f(z')|` for `||f|| <= radius` and `z'` within `noise` in the first coordinates, rounded up.

    It is `radius || k_z - k_z' ||` at the corner, because kernels fall with every coordinate's distance; the `n_known`
    coordinates that follow are the same.
    """
    corner = np.concatenate([noise, np.zeros(n_known)])[None, :]
    fall = float(kernel.fall(corner, np.zeros_like(corner))[0, 0])
    if np.any(noise):
        fall += UNDERFLOW * kernel.variance
    return radius * math.sqrt(2.0 * fall) * (1.0 + kernel.rounding(corner.shape[1]) + 8.0 * UNIT_ROUNDOFF)


def _least_norm(runs: Trajectories, n: int, i: int, kernel: Kernel, noise: FloatArray) -> NormBound:
    """The least norm of a function through the intervals, which the same norm widens where inputs are uncertain."""
    by_norm = displacement(kernel, 1.0, noise, n * runs.n_inputs)
    bound = float(runs.noise_bound[n - 1, i])
    largest = least_norm_estimate(step_observations(runs, n, i), kernel)
    if by_norm == 0.0:
        return largest
    low, high, estimate = 0.0, largest.value, largest
    while high - low > 1e-2 * high:  # a larger norm widens the intervals, and less is needed
        middle = (low + high) / 2.0
        needed = least_norm_estimate(step_observations(runs, n, i, bound + middle * by_norm), kernel)
        low, high, estimate = (middle, high, estimate) if needed.value > middle else (low, middle, needed)
    return NormBound(max(high, estimate.value), f"{estimate.provenance} widened for uncertain initial states")


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
