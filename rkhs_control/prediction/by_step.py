"""Settings of a predictor per step and state, given once for all, per step, or per step and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..assumptions.norms import NormBound
from ..assumptions.priors import AffinePrior, Prior
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..kernels.base import Kernel
from .narrowing import Slopes

KernelTable = tuple[tuple[Kernel, ...], ...]
NormTable = tuple[tuple[NormBound, ...], ...]
GivenKernels = Kernel | Sequence[Kernel | Sequence[Kernel]]
"""One for all, one per step, or one per step and state."""
PriorTable = tuple[tuple[Prior, ...], ...]
GivenPriors = Prior | Sequence[Prior | Sequence[Prior]]
"""One for all, one per step, or one per step and state; or None."""
GivenNorms = float | NormBound | Sequence[float | NormBound | Sequence[float | NormBound]]
"""Likewise."""
NarrowingTable = tuple[tuple[tuple[Slopes, ...], ...], ...]
"""By step and state, the rounds that narrowed the intervals of samples with uncertain arguments."""


def by_step_and_state(given: Any, kinds: Any, name: str, runs: Trajectories) -> tuple[tuple[Any, ...], ...]:
    """One entry per step and state, from one for all, one per step, or one per step and state."""
    rows = [given] * runs.horizon if isinstance(given, kinds) else list(given)
    if len(rows) != runs.horizon:
        raise InputError(f"{name} must be one for all or a list of one per step, {runs.horizon}; got {len(rows)}")
    table = tuple((row,) * runs.n_states if isinstance(row, kinds) else tuple(row) for row in rows)
    for n, row in enumerate(table):
        if len(row) != runs.n_states or not all(isinstance(entry, kinds) for entry in row):
            raise InputError(f"{name}[{n}] must be one for all states or a list of {runs.n_states}; got {row!r}")
    return table


def require_slopes(priors: PriorTable, runs: Trajectories) -> None:
    """Refuse priors with a different number of arguments."""
    for n, row in enumerate(priors, start=1):
        wanted = runs.n_history + n * runs.n_inputs
        for prior in row:
            if isinstance(prior, AffinePrior) and len(prior.slopes) != wanted:
                raise InputError(f"priors[{n - 1}] must have {wanted} slopes; got {len(prior.slopes)}")
