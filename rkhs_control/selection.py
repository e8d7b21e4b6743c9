"""Choosing what a predictor assumes: kernels by cross-validation, norm bounds by estimate, for every step and state.

What is chosen is an assumption, not a proof. Runs that had no part in the choice can refute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .errors import InputError
from .kernels import Kernel, SquaredExponential
from .norms import NormBound, least_norm_estimate, norm_growth
from .observations import Observations
from .regression import cross_validate, cross_validate_per_dimension
from .trajectories import Trajectories
from .validation import FloatArray, positive

Progress = Callable[[int, int], None]
"""`progress(done, total)`, called as the work goes on."""

NormEstimate = Literal["least_norm", "interpolant"]

SPREADS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
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
        Appendix A, which takes the outputs as free of noise and is far larger where they are not
    safety_factor : the norm bound is the estimate times this. Where noise limits what can be told, a generous factor
        widens the boxes little.
    """
    from joblib import Parallel, delayed

    if norm_estimate not in ("least_norm", "interpolant"):
        raise InputError(f"norm_estimate must be 'least_norm' or 'interpolant'; got {norm_estimate!r}")
    search = cross_validate_per_dimension if per_dimension else cross_validate
    pairs = [(n, i) for n in range(1, runs.horizon + 1) for i in range(runs.n_states)]
    generators = [None] * len(pairs) if rng is None else rng.spawn(len(pairs))

    def choose(n: int, i: int, generator: np.random.Generator | None) -> tuple[Kernel, NormBound, float]:
        data = step_observations(runs, n, i)
        candidates = _candidates(lengthscales, data.X)
        chosen = search(data, candidates, regularisations, folds=folds, kernel=kernel, rng=generator)
        if norm_estimate == "least_norm":
            estimate = least_norm_estimate(data, chosen.kernel)
        else:
            estimate = norm_growth(data.X, data.centre, chosen.kernel).estimate
        return chosen.kernel, estimate.times(safety_factor), chosen.regularisation

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
