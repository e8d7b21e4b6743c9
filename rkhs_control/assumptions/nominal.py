"""The nominal model of one step and state: the kernel that predicts best, and the least norm the intervals require."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ..data.arrays import FloatArray, distinct_rows
from ..data.observations import Observations
from ..data.splits import blocks_apart
from ..data.trajectories import Trajectories
from ..engine.gram import Gram
from ..engine.least_norm import least_norm_along
from ..errors import InputError, SolverError
from ..kernels.base import Kernel
from ..kernels.families import KernelFamily, kernel_family
from .intervals import measurement_bound, step_observations
from .lengthscales import NEARLY, best_candidate, candidates_for
from .norms import TINY, NormBound, least_norm_estimate
from .priors import Prior, norm_left_open
from .regression import (
    Fold,
    KernelModel,
    cross_validate,
    cross_validate_per_dimension,
    held_out_errors,
    kernel_ridge,
)

NormEstimate = Literal["least_norm", "interpolant"]


class Nominal(NamedTuple):
    """The model of one step and state that best predicts held-out data."""

    kernel: Kernel
    regularisation: float
    errors: FloatArray
    """Errors of predictions of held-out data."""
    norm: float = 0.0
    """Norm of the smoothest model that predicts nearly as well, if it describes the residual of a prior: noise hides
    much of that from the least norm."""
    left_open: float = 0.0
    """Norm of the steepest affine function that the data cannot distinguish from the prior."""


@dataclass(frozen=True)
class Settings:
    """Settings of the choice for one step and state; the arguments of `select_assumptions`."""

    lengthscales: Sequence[float | Sequence[float]] | None = None
    regularisations: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1)
    folds: int = 5
    per_dimension: bool = False
    kernel: str | KernelFamily = "squared_exponential"
    norm_estimate: NormEstimate = "least_norm"
    safety_factor: float = 3.0
    selection_runs: int = 400
    longest: bool = False

    def __post_init__(self) -> None:
        if self.norm_estimate not in ("least_norm", "interpolant"):
            raise InputError(f"norm_estimate must be 'least_norm' or 'interpolant'; got {self.norm_estimate!r}")
        kernel_family(self.kernel)

    def subset(self, runs: Trajectories) -> Trajectories:
        """At most `selection_runs` of the runs, evenly spread."""
        n = min(len(runs), self.selection_runs)
        return runs if n == len(runs) else runs.subset(np.linspace(0, len(runs) - 1, n).astype(np.int64))


def nominal(
    runs: Trajectories,
    n: int,
    i: int,
    prior: Prior,
    settings: Settings,
    generator: np.random.Generator | None = None,
) -> Nominal:
    """The kernel and the regularisation of one step and state, by cross-validation."""
    data = for_models(runs, n, i, prior)
    if len(data) < 2:
        raise InputError("all runs have the same initial state and inputs: nothing can be learned from them")
    candidates = candidates_for(settings.lengthscales, data.X, longest=settings.longest)
    family = kernel_family(settings.kernel)
    folds: int | Sequence[Fold] = min(settings.folds, len(data))
    if runs.is_windowed:
        folds = _blocks(runs, n, settings.folds)
    common: Any = {"folds": folds, "kernel": family}
    again = copy.deepcopy(generator)  # for the same folds
    errors = cross_validate(data, candidates, settings.regularisations, rng=generator, **common).errors
    best = best_candidate(candidates, errors, longest=settings.longest)
    kernel, by_ridge = family(candidates[best]), errors[best]
    if settings.per_dimension:
        refined = cross_validate_per_dimension(data, [candidates[best]], settings.regularisations, rng=again, **common)
        kernel, by_ridge = refined.kernel, refined.errors[int(refined.errors.min(axis=1).argmin())]
    ridge = float(settings.regularisations[int(np.argmin(by_ridge))])
    parts = _blocks(runs, n, settings.folds)
    smoothest = max(np.asarray(settings.regularisations)[by_ridge <= (1.0 + NEARLY) * by_ridge.min()].tolist())
    norm = 0.0 if prior is None else kernel_ridge(data, kernel, smoothest).norm
    left_open = norm_left_open(prior, runs, n, i, _slope_variance(kernel, data.X))
    return Nominal(kernel, ridge, held_out_errors(data, kernel, ridge, parts), norm, left_open)


def _slope_variance(kernel: Kernel, Z: FloatArray) -> FloatArray:
    """By dimension; where functions need not have slopes, of their mean slopes over the spread of the arguments."""
    if kernel.is_differentiable:
        return kernel.derivative_variance(Z.shape[1])
    spread = Z.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    falls = kernel.fall(np.zeros((1, Z.shape[1])), np.diag(spread))[0]
    variance: FloatArray = 2.0 * falls / spread**2
    return variance


def _blocks(runs: Trajectories, n: int, folds: int) -> list[Fold]:
    """Folds of distinct arguments whose windows share no samples."""
    first, _ = distinct_rows(runs.arguments(n))
    reach = runs.horizon + runs.shape.lead if runs.is_windowed else 0
    return blocks_apart(runs.origins[first], reach, min(folds, len(first)))


def norm_estimate_of(
    runs: Trajectories, n: int, i: int, found: Nominal, prior: Prior, bound: float, *, quickly: bool = False
) -> tuple[NormBound, Observations]:
    """The least norm of a function through the intervals of half-width `bound`, and the intervals.

    Where arguments are uncertain, the intervals are widened by the effect through the nominal model's slopes: an
    estimate like the rest. `quickly` gives up where doubles lose the least norm.
    """
    data, text = for_models(runs, n, i, prior), "through"
    half: FloatArray | float = bound
    if runs.initial_state_noise.any():
        model = kernel_ridge(data, found.kernel, found.regularisation)
        half, text = bound + _by_slopes(model, runs, n, prior), "widened for uncertain initial states, through"
    intervals = step_observations(runs, n, i, half, prior)
    if quickly:
        gram = Gram(intervals.X, found.kernel)
        solution = least_norm_along(gram, intervals.lower, intervals.upper)
        if not solution.is_found:
            raise SolverError("the least norm is lost in rounding")
        return NormBound(max(solution.norm * (1.0 + 1e-9), TINY), "least norm", 1.0), intervals
    estimate = least_norm_estimate(intervals, found.kernel)
    return replace(estimate, provenance=estimate.provenance.replace("through", text, 1)), intervals


def _by_slopes(model: KernelModel, runs: Trajectories, n: int, prior: Prior) -> FloatArray:
    """How far a model's values at the recorded arguments may be from those at the true arguments, given the noise."""
    Z, noise = runs.arguments(n), runs.initial_state_noise
    own = 0.0 if prior is None else np.array(prior.slopes)[: len(noise)]
    parts = np.array_split(Z, len(Z) // 200 + 1)
    slopes = np.concatenate([_slopes(model, part, noise) for part in parts])
    by_slopes: FloatArray = np.abs(slopes + own) @ noise
    return by_slopes


def _slopes(model: KernelModel, Z: FloatArray, noise: FloatArray) -> FloatArray:
    """How fast a model changes with the uncertain coordinates; where it need not have slopes, over their noise."""
    if model.kernel.is_differentiable:
        return model.gradient(Z)[:, : len(noise)]
    steps = np.eye(len(noise), Z.shape[1]) * np.where(noise > 0.0, noise, 1.0)[:, None]
    return np.stack([(model(Z + step) - model(Z - step)) / (2.0 * step.sum()) for step in steps], axis=1)


def for_models(runs: Trajectories, n: int, i: int, prior: Prior) -> Observations:
    """As `step_observations`, but outputs at equal arguments may differ by any amount."""
    anything = measurement_bound(runs, n, i) + float(np.ptp(runs.states[:, n, i]))
    return step_observations(runs, n, i, anything, prior)
