"""Plants for the soundness campaign: initial states of runs and plans are only known to lie in a box.

Every state after every step is a function of the initial state and the inputs, of known norm. The true initial states
are corners of their boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
from flint import arb, ctx

from ..arithmetic.balls import float_up
from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.trajectories import Trajectories
from ..kernels.base import Kernel
from .problems import Scales, draw_design, draw_kernel, draw_scales, draw_truth, sufficient_precision
from .truths import Combination, Truth, inner, root, value_at

_N_PLANS = 8
_EXACT = 512  # bits in which sums of doubles of a few magnitudes are exact


@dataclass(frozen=True, eq=False)
class Plant:
    """Recorded runs of a plant, the assumptions about it, and plans."""

    runs: Trajectories
    truths: list[list[Truth]]
    """By step and state."""
    norm_bounds: list[list[float]]
    precision: int
    """In bits: enough for all norms."""
    starts: FloatArray
    inputs: FloatArray
    start_noise: FloatArray
    """Of the plans."""

    @property
    def kernels(self) -> list[list[Kernel]]:
        """By step and state."""
        return [[truth.kernel for truth in row] for row in self.truths]

    def corners(self, plan: int, step: int) -> list[Combination]:
        """What may be true after a step: the values at all corners of the box of initial states."""
        start, inputs = self.starts[plan].tolist(), self.inputs[plan, : step + 1].ravel().tolist()
        signs = product((-1, 1), repeat=len(start))
        return [_value_at_corner(start, corner, self.start_noise, inputs=inputs) for corner in signs]


def draw_plant(rng: np.random.Generator) -> Plant:
    """One or two states, one input, one or two steps. The first plan repeats the first run, where truths attain."""
    scales, n_states, horizon, n_runs = draw_scales(rng), *(int(rng.integers(1, most)) for most in (3, 3, 16))
    starts = scales.inputs * draw_design(rng, n_runs, n_states)
    inputs = scales.inputs * rng.uniform(-1.0, 1.0, (n_runs, horizon, 1))
    noise, start_noise = scales.inputs * 10.0 ** rng.uniform(-4.0, -0.3, (2, n_states)) * rng.integers(0, 2, (2, 1))
    signs = rng.choice([-1, 1], (n_runs, n_states))
    states, bounds = np.empty((n_runs, horizon + 1, n_states)), np.empty((horizon, n_states))
    states[:, 0] = starts
    truths: list[list[Truth]] = []
    for n in range(horizon):
        recorded = stacked(starts, inputs[:, : n + 1])
        there = [
            _value_at_corner(start, corner, noise, inputs=held)
            for start, corner, held in zip(starts.tolist(), signs, recorded[:, n_states:].tolist(), strict=True)
        ]
        truths.append([_draw_truth(rng, recorded, there[0], scales=scales) for _ in range(n_states)])
        for i, truth in enumerate(truths[n]):
            states[:, n + 1, i], bounds[n, i] = _recorded(rng, truth, there)
    precision = max(sufficient_precision(truth) for row in truths for truth in row)
    with ctx.workprec(precision):
        norm_bounds = [[float_up(truth.norm()) for truth in row] for row in truths]
    chosen = np.concatenate([[0], rng.integers(0, n_runs, _N_PLANS - 1)])
    aside = scales.inputs * 10.0 ** rng.uniform(-14.0, 0.0, (_N_PLANS, 1)) * rng.integers(0, 2, (_N_PLANS, 1))
    aside[0] = 0.0
    runs = Trajectories(states, inputs, bounds, initial_state_noise=noise)
    return Plant(
        runs=runs,
        truths=truths,
        norm_bounds=norm_bounds,
        precision=precision,
        starts=starts[chosen] + aside,
        inputs=inputs[chosen],
        start_noise=start_noise,
    )


def _value_at_corner(start: list[float], signs: Iterable[int], noise: FloatArray, inputs: list[float]) -> Combination:
    """The value at a corner of a box of initial states: not in doubles, but with enough digits to be exact."""
    with ctx.workprec(_EXACT):
        corner = [arb(x) + int(sign) * arb(e) for x, sign, e in zip(start, signs, noise.tolist(), strict=True)]
    return value_at([*corner, *inputs])


def _draw_truth(rng: np.random.Generator, recorded: FloatArray, there: Combination, scales: Scales) -> Truth:
    """Any truth, or the one that falls most from the true initial state of the first run to the recorded one."""
    kernel = draw_kernel(rng, recorded.shape[1], scales, is_smooth=False)
    with ctx.workprec(_EXACT):
        steepest = [*there, *((-weight, section) for weight, section in value_at(recorded[0].tolist()))]
        size = float(root(inner(kernel, steepest, steepest)))
        if size == 0.0 or rng.random() < 0.4:
            return draw_truth(rng, kernel, recorded, scales=scales, is_smooth=False)[0]
        tau = arb(scales.norm * math.exp(rng.uniform(-1.0, 1.0)) / size)
        return Truth(kernel, [(weight * tau, section) for weight, section in steepest])


def _recorded(rng: np.random.Generator, truth: Truth, there: list[Combination]) -> tuple[FloatArray, float]:
    """Outputs at the true initial states of all runs, with maximal noise (the first upwards), and the bound."""
    with ctx.workprec(sufficient_precision(truth)):
        values = [truth.apply(value) for value in there]
        exact = np.array([float(value) for value in values])
        level = float(np.abs(exact).max()) * 10.0 ** rng.uniform(-6.0, 0.0)
        outputs = exact + level * np.concatenate([[1.0], rng.choice([-1.0, 1.0], len(there) - 1)])
        errors = zip(outputs.tolist(), values, strict=True)
        return outputs, max(float_up(abs(arb(output) - value)) for output, value in errors)
