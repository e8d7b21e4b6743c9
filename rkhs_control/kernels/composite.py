"""Kernels made of kernels: scales, sums and products."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arithmetic.balls import Ball
from ..arithmetic.double_double import PreciseFall
from ..arithmetic.rounding import UNIT_ROUNDOFF, sqrt_up
from ..data.arrays import FloatArray, within_range
from .base import Kernel


@dataclass(frozen=True)
class Scale(Kernel):
    """`factor * k(x, y)`."""

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", within_range(self.factor, "factor"))
        self._require_kernels(self.kernel)

    @property
    def variance(self) -> float:
        return self.factor * self.kernel.variance

    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.factor * self.kernel.fall(X, Y)

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        fall = self.kernel.precise_fall(points)
        return None if fall is None else fall.scaled(self.factor)

    @property
    def has_balls(self) -> bool:
        return self.kernel.has_balls

    def ball(self, x: list[Ball], y: list[Ball]) -> Ball:
        return self.factor * self.kernel.ball(x, y)

    @property
    def is_differentiable(self) -> bool:
        return self.kernel.is_differentiable

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.factor * self.kernel.gradient(X, Y)

    def derivative_variance(self, n_dims: int) -> FloatArray:
        return self.factor * self.kernel.derivative_variance(n_dims)

    def bend(self, n_dims: int) -> FloatArray:
        return sqrt_up(self.factor) * self.kernel.bend(n_dims) * (1.0 + self.rounding(n_dims))

    def rounding(self, n_dims: int) -> float:
        return self.kernel.rounding(n_dims) + 2 * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        return self.factor * self.kernel.casadi(x, Y)


@dataclass(frozen=True)
class Pair(Kernel):
    """Made of two kernels."""

    a: Kernel
    b: Kernel

    def __post_init__(self) -> None:
        self._require_kernels(self.a, self.b)

    @property
    def has_balls(self) -> bool:
        return self.a.has_balls and self.b.has_balls

    @property
    def is_differentiable(self) -> bool:
        return self.a.is_differentiable and self.b.is_differentiable

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        a, b = self.a.precise_fall(points), self.b.precise_fall(points)
        return None if a is None or b is None else self._combined(a, b)

    @abstractmethod
    def _combined(self, a: PreciseFall, b: PreciseFall) -> PreciseFall:
        """The falls from those of the two."""


@dataclass(frozen=True)
class Sum(Pair):
    """`a(x, y) + b(x, y)`."""

    @property
    def variance(self) -> float:
        return self.a.variance + self.b.variance

    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.a.fall(X, Y) + self.b.fall(X, Y)

    def _combined(self, a: PreciseFall, b: PreciseFall) -> PreciseFall:
        return a.plus(b)

    def ball(self, x: list[Ball], y: list[Ball]) -> Ball:
        return self.a.ball(x, y) + self.b.ball(x, y)

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.a.gradient(X, Y) + self.b.gradient(X, Y)

    def derivative_variance(self, n_dims: int) -> FloatArray:
        return self.a.derivative_variance(n_dims) + self.b.derivative_variance(n_dims)

    def bend(self, n_dims: int) -> FloatArray:
        # squared norms of functionals add up, and sums of such roots over coordinates are never smaller (Minkowski)
        return np.hypot(self.a.bend(n_dims), self.b.bend(n_dims)) * (1.0 + self.rounding(n_dims))

    def rounding(self, n_dims: int) -> float:
        return max(self.a.rounding(n_dims), self.b.rounding(n_dims)) + 2 * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        return self.a.casadi(x, Y) + self.b.casadi(x, Y)


@dataclass(frozen=True)
class Product(Pair):
    """`a(x, y) * b(x, y)`."""

    @property
    def variance(self) -> float:
        return self.a.variance * self.b.variance

    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        # a0 b0 - a b, as a sum of two terms that are never negative
        fall_b = self.b.fall(X, Y)
        return self.a.fall(X, Y) * (self.b.variance - fall_b) + self.a.variance * fall_b

    def _combined(self, a: PreciseFall, b: PreciseFall) -> PreciseFall:
        return a.times(b)

    def ball(self, x: list[Ball], y: list[Ball]) -> Ball:
        return self.a.ball(x, y) * self.b.ball(x, y)

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        a, b = self.a(X, Y)[:, :, None], self.b(X, Y)[:, :, None]
        return self.a.gradient(X, Y) * b + a * self.b.gradient(X, Y)

    def derivative_variance(self, n_dims: int) -> FloatArray:
        a, b = self.a.derivative_variance(n_dims), self.b.derivative_variance(n_dims)
        return a * self.b.variance + self.a.variance * b

    def bend(self, n_dims: int) -> FloatArray:
        # The squared norm is b0 A^2 + 6 D E + a0 B^2, with the second derivatives D, E of a and b at zero and fourth
        # ones A^2, B^2. All kernels here are mixtures of Gaussians, so 3 D^2 <= a0 A^2, 3 E^2 <= b0 B^2, and the whole
        # is at most (sqrt(b0) A + sqrt(a0) B)^2. Rounding of the variances is less than that of the falls.
        a, b = sqrt_up(self.b.variance) * self.a.bend(n_dims), sqrt_up(self.a.variance) * self.b.bend(n_dims)
        return (a + b) * (1.0 + self.rounding(n_dims))

    def rounding(self, n_dims: int) -> float:
        # Each of the two terms is at most the fall itself; the factor b costs its absolute error.
        return 3 * (self.a.rounding(n_dims) + self.b.rounding(n_dims)) + 8 * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        return self.a.casadi(x, Y) * self.b.casadi(x, Y)
