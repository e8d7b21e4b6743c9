"""Choosing what a predictor assumes, per step and state: kernels by cross-validation, norm bounds by estimation.

The choice is an assumption, not a proof. Runs that played no part in it can refute it.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..engine.gram import Gram
from ..engine.least_norm import least_norm_along
from ..errors import SolverError, UnsettledNormWarning
from ..kernels.base import Kernel
from ..kernels.families import KernelFamily
from ..parallel import Progress, collect, in_parallel
from .formulations import NOTHING_COMPARED, Comparison
from .nominal import Nominal, NormEstimate, Settings, for_models, nominal, norm_estimate_of
from .norms import TINY, NormBound, norm_growth
from .priors import GivenPrior, Prior, is_flat, priors_for

SHARES = (0.25, 0.5, 1.0)
"""Shares of the data for which the growth of the least norm is tracked."""

_SETTLED = 1.5
"""A least norm has settled if the second half of the data raises it by at most this factor; smooth plants stay below
1.3 with a hundred runs or more, while saturation, dead zones and stiction reach 2 to 25."""
_SETTLED_REST = 2.0
"""The residual of a prior is small compared with the noise, and its least norm settles later."""


_RESIDUAL_GROWTH = (1.0, 1.2, 1.5, 2.0, 3.0)
"""Factors by which the residual bound of the selection's runs may have to grow for all runs."""


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
    residual_bound: FloatArray | None = None
    """By step and state, where measured histories are the arguments: the estimated residual bound."""
    comparison: Comparison = NOTHING_COMPARED
    """The formulations that were compared, if any."""

    def runs_like(self, runs: Trajectories) -> Trajectories:
        """The runs as this formulation treats them."""
        if self.residual_bound is None:
            return runs
        return replace(
            runs,
            initial_state_noise=np.zeros(runs.n_history),
            disturbance_bound=np.maximum(runs.disturbance_bound, self.residual_bound),
            has_residual_bound=True,
        )

    def _settled(self, n: int, name: str) -> float:
        """The factor that the second half of the data may raise a least norm by; infinite if it decides nothing."""
        i = self.state_names.index(name)
        bound = self.norm_bounds[n - 1][i]
        if float(self.growth[n - 1][i][-1]) * (bound.safety_factor or 1.0) < 0.5 * bound.value:
            return math.inf
        return _SETTLED if is_flat(self.priors[n - 1][i]) else _SETTLED_REST

    @property
    def doubt(self) -> str:
        """Which norm estimates have not settled, worst first, and what to do; empty if all have."""
        factors = {
            (n, name): norms[-1] / norms[-2] if norms[-2] > 0.0 else 1.0
            for n, row in enumerate(self.growth, start=1)
            for name, norms in zip(self.state_names, row, strict=True)
        }
        unsettled = sorted(
            (pair for pair in factors if factors[pair] > self._settled(*pair)),
            key=factors.__getitem__,
            reverse=True,
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


class Attempt(NamedTuple):
    """One way to find the assumptions of one step and state."""

    prior: Prior
    settings: Settings
    share: float = math.nan
    """For measured histories: the share of the worst held-out prediction error that bounds the residual."""


class _Choice(NamedTuple):
    """Of one step and state."""

    kernel: Kernel
    norm_bound: NormBound
    regularisation: float
    growth: FloatArray
    disturbance: float


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
    prior: GivenPrior = None,
    residual_shares: FloatArray | None = None,
    selection_runs: int = 400,
    longest: bool = False,
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
    per_dimension : refine the best candidate to one lengthscale per coordinate
    kernel : the name of one of `FAMILIES`, such as "matern52", or a function from a lengthscale to a kernel
    norm_estimate : `"least_norm"`, the least norm of a function through the intervals, or `"interpolant"`, the paper's
        Appendix A, which takes the outputs as noise-free and is far larger where they are not; no estimate is below the
        norm of a bump as high as the noise bound, which could hide in the noise
    safety_factor : the norm bound is the estimate times this
        Its cost depends on the data: where noise is the limiting factor, 3 instead of 1.5 widens boxes by a fifth; with
        few data or uncertain histories it can double them.
    prior : `"constant"`, `"affine"`, a function `(history, inputs) -> (n_steps, n_outputs)`, or a `PriorModel` of one
        It is subtracted before anything else, so that kernels and norm bounds describe the residual. A constant prior
        is the mean of the runs, an affine one is fitted to them; a model of your own is taken as it is.
    residual_shares : (n_steps, n_states)
        Take the measured histories as the arguments, and bound the residual: by this share of the worst held-out
        prediction error, minus the noise bound, and at least by the root mean square error.
    selection_runs : maximum number of runs used to choose kernels; norms are estimated from all
    longest : among lengthscales that predict nearly as well as the best, take the longest instead of the shortest,
        which assumes less
    initial_state_noise : how far recorded initial states may be from the true ones, instead of the value in `runs`
    """
    settings = Settings(
        lengthscales,
        regularisations,
        folds,
        per_dimension,
        kernel,
        norm_estimate,
        safety_factor,
        selection_runs,
        longest,
    )
    runs = runs.with_initial_state_noise(0.0 if residual_shares is not None else initial_state_noise)
    priors = priors_for(prior, runs)
    shares = np.full((runs.horizon, runs.n_states), np.nan) if residual_shares is None else residual_shares
    attempts = [
        [[Attempt(own, settings, share)] for own, share in zip(*row, strict=True)]
        for row in zip(priors, shares.tolist(), strict=True)
    ]
    return select_first(runs, attempts, rng=rng, n_jobs=n_jobs, progress=progress)[0]


def select_first(
    runs: Trajectories,
    attempts: Sequence[Sequence[Sequence[Attempt]]],
    *,
    rng: np.random.Generator | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[Selection, Sequence[Sequence[int]]]:
    """The first attempt that succeeds for every step and state, and which one that is.

    Residuals are bounded everywhere or nowhere: either all attempts have a share, or none has.
    """
    pairs = [(n, i) for n in range(1, runs.horizon + 1) for i in range(runs.n_states)]
    generators = [None] * len(pairs) if rng is None else rng.spawn(len(pairs))
    tasks = [(runs, n, i, attempts[n - 1][i], generator) for (n, i), generator in zip(pairs, generators, strict=True)]
    found = collect(in_parallel(_first_choice, tasks, n_jobs), len(tasks), progress)
    taken, by_step = (
        [part[n * runs.n_states : (n + 1) * runs.n_states] for n in range(runs.horizon)]
        for part in zip(*found, strict=True)
    )
    selection = Selection(
        kernels=[[choice.kernel for choice in row] for row in by_step],
        norm_bounds=[[choice.norm_bound for choice in row] for row in by_step],
        regularisations=[[choice.regularisation for choice in row] for row in by_step],
        growth=[[choice.growth for choice in row] for row in by_step],
        priors=[[own[k].prior for own, k in zip(*row, strict=True)] for row in zip(attempts, taken, strict=True)],
        state_names=runs.state_names,
        residual_bound=None
        if math.isnan(attempts[0][0][0].share)
        else np.array([[choice.disturbance for choice in row] for row in by_step]),
    )
    if selection.doubt:
        warnings.warn(selection.doubt, UnsettledNormWarning, stacklevel=3)
    return selection, taken


def _first_choice(
    runs: Trajectories, n: int, i: int, attempts: Sequence[Attempt], generator: np.random.Generator | None
) -> tuple[int, _Choice]:
    """For one step and state, and the number of the attempt."""
    for k, attempt in enumerate(attempts[:-1]):
        with contextlib.suppress(SolverError):
            return k, _choose(runs, n, i, attempt, generator)
    return len(attempts) - 1, _choose(runs, n, i, attempts[-1], generator)


def _choose(runs: Trajectories, n: int, i: int, attempt: Attempt, generator: np.random.Generator | None) -> _Choice:
    prior, settings, share = attempt
    found = nominal(settings.subset(runs), n, i, prior, settings, generator)
    kernel, noise = found.kernel, float(runs.noise_bound[n - 1, i])
    disturbance = float(runs.disturbance_bound[n - 1, i])
    try:
        if not np.isnan(share):
            disturbance = _residual_of_all(runs, n, i, prior, settings, found, share, noise, disturbance)
        estimate, intervals = norm_estimate_of(runs, n, i, found, prior, noise + disturbance)
    except SolverError as error:
        raise SolverError(f"step {n}, state {runs.state_names[i]}: {error}{runs.caveat}") from None
    growth = _growth(intervals, kernel, in_blocks=runs.is_windowed)
    if settings.norm_estimate == "interpolant":
        data = for_models(runs, n, i, prior)
        estimate = norm_growth(data.X, data.centre, kernel).estimate
    norm = with_floor(estimate, found, noise + disturbance, settings.safety_factor, is_tested=not np.isnan(share))
    return _Choice(kernel, norm, found.regularisation, growth, disturbance)


def with_floor(
    estimate: NormBound, found: Nominal, bound: float, safety_factor: float, *, is_tested: bool
) -> NormBound:
    """The estimate times the safety factor, but not below what could hide in the noise.

    That is a bump as high as the noise bound; the nominal model of what a prior leaves, which is small beside noise and
    residual bounds; and possible errors in a prior's slopes along directions in which the data hardly vary. Where
    held-out blocks test the bounds, the last does not count, and the others do without the safety factor.
    """
    factor = 1.0 if is_tested else safety_factor
    hidden = [
        (bound / math.sqrt(found.kernel.variance), "a bump as high as the noise bound"),
        (found.norm, "the nominal model of what the prior leaves"),
    ]
    if not is_tested:
        hidden.append((found.left_open, "an affine function that the data cannot tell from the prior"))
    floors = [
        NormBound(norm, f"norm of {what} ({norm:.6g})", 1.0).times(factor) for norm, what in hidden if norm > TINY
    ]
    return max([estimate.times(safety_factor), *floors], key=lambda norm: norm.value)


def residual_bound(found: Nominal, share: float, noise: float) -> float:
    """A bound on what measured histories leave unexplained, beyond sensor noise.

    It is never below the root mean square of the errors: a noise bound meant for rare spikes must not explain all of
    them.
    """
    typical = float(np.sqrt(np.mean(found.errors**2)))
    return max(typical, share * float(np.abs(found.errors).max()) - noise)


def _residual_of_all(
    runs: Trajectories,
    n: int,
    i: int,
    prior: Prior,
    settings: Settings,
    found: Nominal,
    share: float,
    noise: float,
    disturbance: float,
) -> float:
    """A residual bound for all runs: that of the selection's runs, enlarged where the others disagree with it.

    Among many windows, some are further off than among a few. A bound that is too small for them shows in a least norm
    far above that of the selection's runs.
    """
    few = settings.subset(runs)
    first = max(disturbance, residual_bound(found, share, noise))
    usual = norm_estimate_of(few, n, i, found, prior, noise + first, quickly=True)[0].value
    for factor in _RESIDUAL_GROWTH:
        with contextlib.suppress(SolverError):
            if norm_estimate_of(runs, n, i, found, prior, noise + factor * first, quickly=True)[0].value <= 2.0 * usual:
                return factor * first
    return _RESIDUAL_GROWTH[-1] * first


def _growth(data: Observations, kernel: Kernel, *, in_blocks: bool) -> FloatArray:
    """Least norms through `SHARES` of the data.

    For windows of recordings, a share is the first part of the data; otherwise it is spread evenly.
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
