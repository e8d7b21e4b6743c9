"""Bounds from the energy of the noise, `sum_i d_i^2 <= energy`, in closed form for every trade-off `s`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF, dot_down, dot_up, product_up, quotient_up, sqrt_up, sum_up
from ..data.arrays import FloatArray, positive
from ..engine.functionals import Functional
from ..engine.gram import Gram
from ..engine.witness import Witness
from .base import Envelope, Side, UpperBound
from .projection import deviation_up, distance_up


@dataclass(frozen=True, eq=False, repr=False)
class EnergyEnvelope(Envelope):
    """`mu_s(x) + beta_s sqrt(Sigma_s(x))`, minimised over the scalar `s`; every `s` is valid.

    With noise of energy `sum_i d_i^2 <= energy`, the pair (f, d) lies in a ball of squared radius
    `Gamma^2 + energy / s` of the product space, for every `s > 0`; `mu_s` and `Sigma_s` are mean and variance of the
    Gaussian process with noise variance `s`, and `beta_s^2 = Gamma^2 + energy / s - y' (K + s I)^-1 y`.
    `y` are the midpoints of the intervals: the outputs themselves where there is one per input. By default, `energy` is
    what the noise bounds allow. The nugget plays no part here.
    """

    energy: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.energy is not None:
            object.__setattr__(self, "energy", positive(self.energy, "energy"))

    @cached_property
    def _energy(self) -> float:
        """Energy of the noise around the midpoints of the intervals, rounded up."""
        if self.energy is None:
            return dot_up(self.data.half_width, self.data.half_width)
        # A midpoint differs from its output by the rounding of the interval's ends.
        lost = 4.0 * UNIT_ROUNDOFF * np.maximum(np.abs(self.data.lower), np.abs(self.data.upper))
        total = sum_up(sqrt_up(self.energy), sqrt_up(dot_up(lost, lost)))
        return product_up(total, total)

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        sign = -1.0 if side.is_mirrored else 1.0
        return [self._upper_bound(sign * self.data.centre, functional) for functional in functionals]

    def _upper_bound(self, y: FloatArray, functional: Functional) -> UpperBound:
        from scipy.optimize import minimize_scalar

        row = functional.row(self.kernel, self.data.X)
        rotated_row, rotated_y = self.gram.spectrum.vectors.T @ row, self.gram.spectrum.vectors.T @ y
        norm2 = functional.squared_norm(self.kernel)

        def value(log_s: float) -> float:
            s = math.exp(log_s)
            shifted = np.maximum(self.gram.spectrum.values, 0.0) + s
            variance = max(norm2 - float(np.sum(rotated_row**2 / shifted)), 0.0)
            beta2 = max(self.radius**2 + self._energy / s - float(np.sum(rotated_y**2 / shifted)), 0.0)
            return float(np.sum(rotated_row * rotated_y / shifted)) + math.sqrt(beta2 * variance)

        # The balance of both balls is near energy / Gamma^2; eight decades on either side of it are plenty.
        least = 1e-16 * self.kernel.variance
        middle = math.log(max(self._energy / self.radius**2, least))
        grid = np.maximum(middle + np.linspace(-18.0, 18.0, 37), math.log(least))
        near = int(np.argmin([value(g) for g in grid]))
        best = minimize_scalar(value, bounds=(grid[max(near - 1, 0)], grid[min(near + 1, 36)]), method="bounded")
        return UpperBound(self._evaluate(y, row, functional, s=math.exp(best.x)))

    def _evaluate(self, y: FloatArray, row: FloatArray, functional: Functional, s: float) -> float:
        """The bound at one `s`, rounded up."""
        gram = Gram(self.data.X, self.kernel, nugget=s)
        weights, centre = self.gram.spectrum.solve(row, s), self.gram.spectrum.solve(y, s)
        square = float(centre @ gram.combine(np.arange(len(y)), centre))
        relative = self.kernel.rounding(self.data.n_dims) + (2 * len(y) + 8) * UNIT_ROUNDOFF
        size = float(np.abs(centre).sum())
        norm2 = sum_up(product_up(self.radius, self.radius), quotient_up(self._energy, s))
        square_up = sum_up(square, relative * (self.kernel.variance + s) * size * size)
        furthest = distance_up(norm2, square_up, dot_down(y, centre))
        middle = Witness(np.arange(len(y), dtype=np.int64), centre)
        return sum_up(dot_up(y, weights), deviation_up(functional, gram, weights, centre=middle, furthest=furthest))
