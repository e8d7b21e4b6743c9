"""Data-driven reachability of Lipschitz systems: least squares, what they leave, and a Lipschitz term, step by step.

Alanwar, Koch, Allgöwer and Johansson, "Data-driven reachability analysis from noisy data" (IEEE TAC, 2023), for
nonlinear systems; the settings are those of its published reactor script. Sets are boxes here, where the script has
zonotopes: the only sets that a plan from a known state needs are sums of boxes and their affine images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.arrays import FloatArray
from ..data.sets import Box

HORIZON = 5
N_RECORDINGS, N_STEPS = 30, 20
"""600 samples."""
DISTURBANCE = 1e-4
STARTS = Box([-1.905, -20.3], [-1.895, -19.7])
INPUTS = Box([-0.09, -0.19], [0.11, 0.21])


@dataclass(frozen=True, eq=False)
class LipschitzReachability:
    """From one-step samples: states `x` `(n, n_states)`, inputs `u`, and the states `after` them."""

    x: FloatArray
    u: FloatArray
    after: FloatArray
    slack: FloatArray
    """`(n_states,)`: the Lipschitz constant times half the largest distance between samples, as the script has it."""

    @classmethod
    def of(cls, recordings: list[tuple[FloatArray, FloatArray]]) -> LipschitzReachability:
        """From recordings `(states, inputs)`; the Lipschitz term from their first samples, as the script has it.

        Like there, it looks at one state at a time beside the inputs.
        """
        x = np.vstack([states[:-1] for states, _ in recordings])
        u = np.vstack([inputs for _, inputs in recordings])
        after = np.vstack([states[1:] for states, _ in recordings])
        first = [(states[0], inputs[0], states[1]) for states, inputs in recordings]
        return cls(x, u, after, np.array([_slack(first, i) for i in range(x.shape[1])]))

    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends `(m, N, n_states)` for plans from known states."""
        lower, upper = np.empty((2, len(x0), inputs.shape[1], x0.shape[1]))
        for m, (start, plan) in enumerate(zip(x0, inputs, strict=True)):
            low, high = start, start
            for k, u in enumerate(plan):
                low, high = lower[m, k], upper[m, k] = self._step(low, high, u)
        return lower, upper

    def _step(self, low: FloatArray, high: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Affine least squares around the middle of the box; then residuals, disturbance and the Lipschitz term."""
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        design = np.hstack([np.ones((len(self.x), 1)), self.x - middle, self.u - u])
        model = np.linalg.lstsq(design, self.after, rcond=None)[0]
        left = self.after - design @ model
        reach = half @ np.abs(model[1 : 1 + len(middle)]) + DISTURBANCE + self.slack
        return (
            model[0] - reach + left.min(axis=0) - DISTURBANCE,
            model[0] + reach + left.max(axis=0) + DISTURBANCE,
        )


def _slack(samples: list[tuple[FloatArray, FloatArray, FloatArray]], state: int) -> float:
    z = np.array([[x[state], *u] for x, u, _ in samples])
    f = np.array([after[state] for *_, after in samples])
    apart = np.linalg.norm(z[:, None] - z[None], axis=-1)
    rise = np.abs(f[:, None] - f[None])
    slope = np.divide(rise, apart, out=np.zeros_like(rise), where=apart > 0).max()
    return float(slope * apart.max() / 2.0)
