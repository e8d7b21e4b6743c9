"""What a kernel is: defined by its fall, and combined by `+` and `*`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any

import numpy as np

from ..arithmetic.balls import Ball
from ..arithmetic.double_double import PreciseFall
from ..data.arrays import LARGEST, SMALLEST, FloatArray
from ..errors import InputError


class Kernel(ABC):
    """A stationary, positive-definite kernel `k(x, y)`; `+`, `*` and a positive number combine them."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """`k(x, x)`, the same everywhere, between 1e-50 and 1e50."""

    @abstractmethod
    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """`k(x, x) - k(x, y)`, shape `(n_x, n_y)`, within `rounding` relative of the exact value.

        Where squares of tiny distances underflow, within 1e-150 of `k(x, x)`.
        """

    @property
    def is_differentiable(self) -> bool:
        """Whether all functions of the space have slopes."""
        return True

    @abstractmethod
    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """`d k(x, y) / d x`, shape `(n_x, n_y, n_dims)`."""

    @abstractmethod
    def derivative_variance(self, n_dims: int) -> FloatArray:
        """`d^2 k(x, y) / dx_j dy_j` at `y = x`, shape `(n_dims,)`: the squared norm of `f -> df/dx_j`."""

    def bend(self, n_dims: int) -> FloatArray:
        """Numbers `b_j`, rounded up: `|d^2/dt^2 f(x + t d)| <= ||f|| sum_j b_j d_j^2` in every direction `d`.

        Infinite where functions need not have two derivatives, or where the kernel does not say how much they can bend.
        """
        return np.full(n_dims, np.inf)

    @abstractmethod
    def rounding(self, n_dims: int) -> float:
        """A bound on the relative error of `fall` in floating point."""

    @abstractmethod
    def casadi(self, x: Any, Y: FloatArray) -> Any:
        """`k(x, Y)` as a CasADi row `(1, n_y)`; `x` is a CasADi column `(n_dims, 1)`, and `Y` may be one as well."""

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        """The falls among some points in double-double; None where a kernel does not offer them."""
        return None

    @property
    def has_balls(self) -> bool:
        """Whether the kernel can be evaluated in ball arithmetic."""
        return False

    def ball(self, x: list[Ball], y: list[Ball]) -> Ball:
        """`k(x, y)` in ball arithmetic, for kernels that support it."""
        raise InputError(f"{type(self).__name__} cannot be evaluated in ball arithmetic")

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """The kernel matrix `(n_x, n_y)`; with one argument, of `X` with itself."""
        return self.variance - self.fall(X, X if Y is None else Y)

    def diagonal(self, X: FloatArray) -> FloatArray:
        """`k(x, x)` for every row of `X`."""
        return np.full(len(X), self.variance)

    def _require_kernels(self, *parts: Kernel) -> None:
        """Refuse a combination of anything but kernels, or one whose variance is outside the supported range."""
        for part in parts:
            if not isinstance(part, Kernel):
                raise InputError(f"a {type(self).__name__} is made of kernels; got {part!r}")
        if not SMALLEST <= self.variance <= LARGEST:
            raise InputError(
                f"the variance k(x, x) of a {type(self).__name__} must lie between {SMALLEST:g} and {LARGEST:g}; got "
                f"{self.variance:g}: choose other factors, or another unit of the outputs"
            )

    def to_dict(self) -> dict[str, Any]:
        """The kernel as plain numbers and names, for files; `kernel_from_dict` reads it back."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        plain = {name: v.to_dict() if isinstance(v, Kernel) else v for name, v in values.items()}
        return {"kind": type(self).__name__, **plain}

    def __add__(self, other: Kernel) -> Kernel:
        from .composite import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        from .composite import Product, Scale

        return Product(self, other) if isinstance(other, Kernel) else Scale(self, other)

    __rmul__ = __mul__
