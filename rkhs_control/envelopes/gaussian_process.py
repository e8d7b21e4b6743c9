"""The Gaussian-process bound that the paper compares with: it holds with some probability, not for certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..data.arrays import FloatArray, positive
from ..engine.functionals import Functional
from ..errors import InputError
from .base import Envelope, Side, UpperBound


@dataclass(frozen=True, eq=False, repr=False)
class GaussianProcessEnvelope(Envelope):
    """`mu(x) +- beta sigma(x)`, `beta = Gamma + 4 lambda sqrt(gamma + 1 + ln(1 / delta))`.

    Gaussian noise of standard deviation `noise_std` (by default such that 99 % is within the noise bound);
    `gamma` is the information gain of the data, a lower bound of the maximal one, which favours this method.
    """

    is_certain: ClassVar[bool] = False
    confidence: float = 0.99
    noise_std: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.confidence < 1.0:
            raise InputError(f"confidence must lie between 0 and 1; got {self.confidence}")
        if self.noise_std is not None:
            object.__setattr__(self, "noise_std", positive(self.noise_std, "noise_std"))

    @cached_property
    def _noise_std(self) -> float:
        return positive(self.data.half_width.max() / 2.58 if self.noise_std is None else self.noise_std, "noise_std")

    @cached_property
    def _factor(self) -> tuple[FloatArray, bool]:
        K = self.kernel(self.data.X)
        K[np.diag_indices_from(K)] += self._noise_std**2
        return cho_factor(K, lower=True)  # type: ignore[no-any-return]

    @cached_property
    def information_gain(self) -> float:
        """`1/2 ln det(I + K / noise_std^2)`."""
        return float(np.sum(np.log(np.diag(self._factor[0])))) - len(self.data) * math.log(self._noise_std)

    @cached_property
    def beta(self) -> float:
        """Half-width of the band in standard deviations."""
        inside = self.information_gain + 1.0 - math.log(1.0 - self.confidence)
        return self.radius + 4.0 * self._noise_std * math.sqrt(inside)

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        sign = -1.0 if side.is_mirrored else 1.0
        rows = np.empty((len(functionals), len(self.data)))
        for i, functional in enumerate(functionals):
            rows[i] = functional.row(self.kernel, self.data.X)
        norms = np.array([functional.squared_norm(self.kernel) for functional in functionals])
        weights = cho_solve(self._factor, rows.T)
        mean = sign * (self.data.centre @ weights)
        variance = np.maximum(norms - np.sum(rows.T * weights, axis=0), 0.0)
        return [UpperBound(float(value)) for value in mean + self.beta * np.sqrt(variance)]
