"""The bound of kernel predictive control (KPC), as its paper states it and as its script computes it.

Maddalena, Scharnhorst, Jiang and Jones, "KPC: Learning-based model predictive control with deterministic guarantees"
(L4DC, 2021). Kernel ridge regression, and around it

    P(z) sqrt(Gamma^2 + Delta - y'K^-1 y) + dbar ||K^-1 k_z||_1 + |y'(K + K K / (n lambda))^-1 k_z|.

The published script takes the square of the power function `P` for `P`, which is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..kernels.radial import SquaredExponential

HORIZON = 3
N_SAMPLES = (300, 400, 600)
NOISE = 0.001
INPUTS = (3.0, 35.0)
LENGTHSCALES = ((1.7, 2.0), (3.1, 27.5), (5.0, 5.6))
"""By step and state."""
JITTER, REGULARISATION, FACTOR = 1e-5, 1e-7, 1.5
"""All of these are the script's."""


@dataclass(frozen=True, eq=False)
class KernelRidgeBound:
    """One state after one step."""

    data: Observations
    lengthscale: float
    uses_square: bool = False
    """As in the script."""

    @property
    def kernel(self) -> SquaredExponential:
        """Which ours shares."""
        return SquaredExponential(self.lengthscale)

    @cached_property
    def norm_bound(self) -> float:
        """`Gamma`: 1.5 times the norm of what interpolates the data, with the jitter."""
        return FACTOR * float(np.sqrt(self._y @ self._solved(self._y)))

    def interval(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds at the rows of `Z`."""
        k, y, n = self.kernel(self.data.X, Z), self._y, len(self.data)
        weights = self._solved(k)
        square = np.maximum(1.0 - np.sum(k * weights, axis=0), 0.0)
        power = square if self.uses_square else np.sqrt(square)
        ridge = self._gram + n * REGULARISATION * np.eye(n)
        mean = k.T @ np.linalg.solve(ridge, y)
        # (K + K K / (n lambda))^-1 = (K^-1 - (K + n lambda)^-1), by partial fractions
        smoothing = np.abs(weights.T @ y - mean)
        room = self.norm_bound**2 * (1.0 - 1.0 / FACTOR**2) + self._noise_term
        reach = power * np.sqrt(room) + NOISE * np.abs(weights).sum(axis=0) + smoothing
        return mean - reach, mean + reach

    @property
    def _y(self) -> FloatArray:
        return self.data.centre

    @cached_property
    def _gram(self) -> FloatArray:
        K = self.kernel(self.data.X)
        K[np.diag_indices_from(K)] += JITTER
        return K

    @cached_property
    def _factor(self) -> Any:
        return cho_factor(self._gram, lower=True)

    def _solved(self, right: FloatArray) -> FloatArray:
        solution: FloatArray = cho_solve(self._factor, right)
        return solution

    @cached_property
    def _noise_term(self) -> float:
        """`Delta`: the greatest `2 y'K^-1 d - d'K^-1 d` over noises `|d_i| <= dbar`, by a quadratic programme."""
        import cvxpy as cp

        root = np.linalg.inv(np.tril(self._factor[0]))
        noise, slope = cp.Variable(len(self.data)), self._solved(self._y)
        units = noise * NOISE  # so that the solver sees numbers near one
        objective = 2.0 * slope @ units - cp.sum_squares(root @ units)
        problem = cp.Problem(cp.Maximize(objective), [cp.abs(noise) <= 1.0])
        problem.solve(solver="CLARABEL")
        return float(problem.value)
