"""Boxes of logs without narrowed histories: no prior, and first-order displacements for uncertain histories.

The effect of an uncertain history is taken to be `norm_bound || k_z - k_z' ||`, in intervals and boxes, as if the data
said nothing about slopes. This serves for comparison only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..assumptions.intervals import displacement, measurement_bound, step_observations
from ..assumptions.nominal import Nominal, Settings, nominal
from ..assumptions.norms import TINY
from ..data.trajectories import Trajectories
from ..engine.gram import Gram
from ..engine.least_norm import least_norm_along
from ..envelopes.optimal import OptimalEnvelope
from ..errors import ContradictoryDataError, RkhsControlError, SolverError
from ..parallel import Progress, collect, in_parallel
from ..prediction.narrowing import UncertainSamples

SAFETY_FACTOR = 3.0
_HOPELESS = 1e4
"""Norms beyond this multiple of the outputs are not searched."""
_HALVINGS = 12
"""Number of bisections of the interval that contains the least norm."""


class FirstOrder(NamedTuple):
    """The mean half-width of one output's boxes after some steps; NaN where they cannot be built, with the reason."""

    half_width: float
    reason: str = ""


def first_order_widths(
    runs: Trajectories,
    held_out: Trajectories,
    steps: Sequence[int],
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> list[list[FirstOrder]]:
    """Widths of the boxes of held-out runs, built from the other runs: by output, then by step.

    Both are taken as recorded, with uncertain histories. Kernels are chosen by interleaved cross-validation, as if
    neighbouring windows shared no samples.
    """
    each_its_own = np.column_stack([np.arange(len(runs)), np.zeros(len(runs), dtype=np.int64)])
    apart = replace(runs, origins=each_its_own)
    tasks = [(apart, held_out, n, i) for i in range(runs.n_states) for n in steps]
    found = collect(in_parallel(_measured, tasks, n_jobs), len(tasks), progress)
    return [found[i * len(steps) : (i + 1) * len(steps)] for i in range(runs.n_states)]


def _measured(runs: Trajectories, held_out: Trajectories, n: int, i: int) -> FirstOrder:
    try:
        return FirstOrder(_half_width(runs, held_out, n, i))
    except RkhsControlError as error:
        return FirstOrder(np.nan, f"{runs.state_names[i]} at step {n}: {error}")


def _half_width(runs: Trajectories, held_out: Trajectories, n: int, i: int) -> float:
    """Mean half-width of the boxes of state `i` after `n` steps."""
    settings = Settings()
    model = nominal(settings.subset(runs), n, i, None, settings)
    kernel, norm = model.kernel, SAFETY_FACTOR * _least_norm(runs, n, i, model)
    samples = UncertainSamples.of(runs, n, i, kernel, norm, None)
    envelope = OptimalEnvelope(samples.observations(samples.widest), kernel, norm)
    band = envelope.bounds(held_out.arguments(n), n_jobs=1)
    by_start = displacement(kernel, norm, held_out.initial_state_noise, n * runs.n_inputs)
    return float(band.width.mean()) / 2.0 + by_start + float(runs.disturbance_bound[n - 1, i])


def _least_norm(runs: Trajectories, n: int, i: int, model: Nominal) -> float:
    """The least norm of a function through intervals that are widened by that same norm, by bisection."""
    kernel, half = model.kernel, measurement_bound(runs, n, i)
    per_norm = displacement(kernel, 1.0, runs.initial_state_noise, n * runs.n_inputs)
    largest = float(np.abs(runs.states[:, n, i]).max()) + half
    gram = Gram(step_observations(runs, n, i, 2.0 * largest).X, kernel)

    def is_enough(norm: float) -> bool:
        try:
            data = step_observations(runs, n, i, half + norm * per_norm)
        except ContradictoryDataError:
            return False
        found = least_norm_along(gram, data.lower, data.upper)
        return found.is_found and found.norm <= norm

    low, high = (max(size / math.sqrt(kernel.variance), TINY) for size in (half, largest))
    hopeless = _HOPELESS * high
    while not is_enough(high):
        low, high = high, 2.0 * high
        if high > hopeless:
            raise SolverError(f"no norm up to {hopeless:.3g} fits the intervals")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
