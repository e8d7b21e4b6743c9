"""Kernels of a scaled distance: squared exponential, rational quadratic, Matern."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from ..arithmetic import balls, double_double
from ..arithmetic.balls import Ball
from ..arithmetic.double_double import PreciseFall
from ..arithmetic.rounding import SQUARED_ROUNDOFF, UNIT_ROUNDOFF
from ..data.arrays import FloatArray, as_vector, positive, within_range
from ..errors import InputError
from .base import Kernel


@dataclass(frozen=True)
class Radial(Kernel):
    """`k(x, y) = profile(s)` with `s = sum_j ((x_j - y_j) / lengthscale_j)^2` and `profile(0) = 1`.

    A subclass writes `profile`, its derivative `slope` and its `fall_profile` `1 - profile(s)`, the last
    without cancellation, and states in `ulps` how many units in the last place `fall_profile` may be off.
    The profile must be completely monotone in `s` (then it is positive definite in every dimension).
    `profile` takes the module to compute with: numpy, casadi or `balls`. The last only where `is_exact` says that no
    constant in it was rounded, as 1.0 / 3.0 is.
    """

    lengthscale: float | Sequence[float]
    ulps: ClassVar[int]
    is_exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.lengthscale, (int, float)) or np.ndim(self.lengthscale) == 0:
            scale: float | tuple[float, ...] = within_range(self.lengthscale, "lengthscale")  # type: ignore[arg-type]
        else:
            entries = as_vector(self.lengthscale, "lengthscale").tolist()
            scale = tuple(within_range(entry, f"lengthscale[{j}]") for j, entry in enumerate(entries))
        object.__setattr__(self, "lengthscale", scale)

    @abstractmethod
    def profile(self, s: Any, xp: Any) -> Any:
        """The kernel as a function of `s`, with `xp.exp`, `xp.sqrt`, ..."""

    @abstractmethod
    def fall_profile(self, s: FloatArray) -> FloatArray:
        """`1 - profile(s)` to full relative accuracy."""

    @abstractmethod
    def slope(self, s: FloatArray) -> FloatArray:
        """The derivative of `profile`, finite at zero where the kernel's functions are differentiable."""

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """`1 - profile(s + s_low)` in double-double within 400 `u^2` relative; None where it is not offered."""
        return None

    @property
    def variance(self) -> float:
        return 1.0

    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.fall_profile(self._squared_distances(X, Y))

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        s = double_double.squared_distances(points, self._lengthscales(points.shape[1]))
        pair = self.precise_fall_profile(*s)
        if pair is None:
            return None
        return PreciseFall((1.0, 0.0), *pair, (512 + 4 * points.shape[1]) * SQUARED_ROUNDOFF)

    @property
    def has_balls(self) -> bool:
        return self.is_exact

    def ball(self, x: list[Ball], y: list[Ball]) -> Ball:
        scales = self._lengthscales(len(x))
        s = sum((((a - b) / float(scale)) ** 2 for a, b, scale in zip(x, y, scales, strict=True)), balls.ball(0.0))
        return self.profile(s, balls)

    @property
    def is_differentiable(self) -> bool:
        return bool(np.isfinite(self.slope(np.zeros(1))[0]))

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        self._require_differentiable()
        slope = self.slope(self._squared_distances(X, Y))
        differences = X[:, None, :] - Y[None, :, :]
        slopes: FloatArray = 2.0 * slope[:, :, None] * differences / self._lengthscales(X.shape[1]) ** 2
        return slopes

    def derivative_variance(self, n_dims: int) -> FloatArray:
        self._require_differentiable()
        variances: FloatArray = -2.0 * self.slope(np.zeros(1))[0] / self._lengthscales(n_dims) ** 2
        return variances

    def bend(self, n_dims: int) -> FloatArray:
        # Along d, k = profile(t^2 sum_j (d_j / l_j)^2), and its fourth derivative at zero is 12 profile''(0) times the
        # square of that sum: the squared norm of f -> d^2/dt^2 f.
        bends: FloatArray = math.sqrt(12.0 * self.curvature) / self._lengthscales(n_dims) ** 2
        return bends * (1.0 + 16.0 * UNIT_ROUNDOFF)

    @property
    def curvature(self) -> float:
        """The second derivative of the profile at zero, within four roundings; infinite where there is none."""
        return math.inf

    def rounding(self, n_dims: int) -> float:
        # s has relative error (n_dims + 6) u, and a fall concave in s passes on no more than that.
        return (n_dims + 8 + 2 * self.ulps) * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        import casadi

        # Column by column, so that kernels of other lengthscales, or of fewer dimensions, share common subexpressions.
        columns = zip(casadi.vertsplit(x), Y.T, self._lengthscales(Y.shape[1]).tolist(), strict=True)
        squares = sum((entry - casadi.DM(column)) ** 2 / scale**2 for entry, column, scale in columns)
        # The root in a Matern kernel has no derivative at zero; such a small shift leaves every value unchanged.
        return self.profile(squares + 1e-100, casadi).T

    def _squared_distances(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
            raise InputError(f"a kernel takes two arrays (n, n_dims) of the same n_dims; got {X.shape} and {Y.shape}")
        return _squared_distances(_read_only(X), _read_only(Y), self._lengthscales(X.shape[1]))  # type: ignore[no-any-return]

    def _lengthscales(self, n_dims: int) -> FloatArray:
        if isinstance(self.lengthscale, float):
            return np.full(n_dims, self.lengthscale)
        if len(self.lengthscale) != n_dims:
            raise InputError(
                f"lengthscale has {len(self.lengthscale)} entries, but the inputs have {n_dims} dimensions"
            )
        return np.array(self.lengthscale)

    def _require_differentiable(self) -> None:
        if not self.is_differentiable:
            raise InputError(
                f"functions in the space of {type(self).__name__} need not be differentiable; "
                "derivatives can be bounded with Matern(nu=1.5), Matern(nu=2.5) or a smoother kernel"
            )


@dataclass(frozen=True)
class SquaredExponential(Radial):
    """`exp(-s / 2)`: infinitely smooth functions. The kernel of the paper."""

    ulps: ClassVar[int] = 4
    is_exact: ClassVar[bool] = True

    def profile(self, s: Any, xp: Any) -> Any:
        return xp.exp(-0.5 * s)

    def fall_profile(self, s: FloatArray) -> FloatArray:
        return -np.expm1(-0.5 * s)

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.squared_exponential_falls(s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        return -0.5 * np.exp(-0.5 * s)

    @property
    def curvature(self) -> float:
        return 0.25


@dataclass(frozen=True)
class RationalQuadratic(Radial):
    """`(1 + s / (2 alpha))^-alpha`: a mixture of squared exponentials of many lengthscales."""

    alpha: float = 1.0
    ulps: ClassVar[int] = 12
    is_exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", positive(self.alpha, "alpha"))
        if not 1e-6 <= self.alpha <= 1e6:
            raise InputError(f"alpha must lie between 1e-6 and 1e6; got {self.alpha}")

    def profile(self, s: Any, xp: Any) -> Any:
        return xp.exp(-self.alpha * xp.log1p(s / (2.0 * self.alpha)))

    def fall_profile(self, s: FloatArray) -> FloatArray:
        return -np.expm1(-self.alpha * np.log1p(s / (2.0 * self.alpha)))

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.rational_quadratic_falls(s, s_low, self.alpha)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        return -0.5 * np.exp(-(self.alpha + 1.0) * np.log1p(s / (2.0 * self.alpha)))

    @property
    def curvature(self) -> float:
        return 0.25 * (self.alpha + 1.0) / self.alpha


@dataclass(frozen=True)
class Matern12(Radial):
    """`exp(-r)`, `r = sqrt(s)`: continuous functions without a derivative."""

    ulps: ClassVar[int] = 6
    is_exact: ClassVar[bool] = True

    def profile(self, s: Any, xp: Any) -> Any:
        return xp.exp(-xp.sqrt(s))

    def fall_profile(self, s: FloatArray) -> FloatArray:
        return -np.expm1(-np.sqrt(s))

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.matern12_falls(s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        root = np.sqrt(s)
        return -np.exp(-root) / (2.0 * np.where(root > 0, root, np.nan))


@dataclass(frozen=True)
class Matern32(Radial):
    """`(1 + r) exp(-r)`, `r = sqrt(3 s)`: functions with one derivative."""

    ulps: ClassVar[int] = 40
    is_exact: ClassVar[bool] = True

    def profile(self, s: Any, xp: Any) -> Any:
        r = xp.sqrt(3.0 * s)
        return (1.0 + r) * xp.exp(-r)

    def fall_profile(self, s: FloatArray) -> FloatArray:
        return _gamma_fall(2, np.sqrt(3.0 * s))  # type: ignore[no-any-return]

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.matern_falls(0, s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        return -1.5 * np.exp(-np.sqrt(3.0 * s))


@dataclass(frozen=True)
class Matern52(Radial):
    """`(1 + r + r^2 / 3) exp(-r)`, `r = sqrt(5 s)`: functions with two derivatives."""

    ulps: ClassVar[int] = 40
    is_exact: ClassVar[bool] = True

    def profile(self, s: Any, xp: Any) -> Any:
        r = xp.sqrt(5.0 * s)
        return (1.0 + r + r * r / 3.0) * xp.exp(-r)

    def fall_profile(self, s: FloatArray) -> FloatArray:
        r = np.sqrt(5.0 * s)
        falls: FloatArray = _gamma_fall(3, r) + 5.0 / 6.0 * s * np.exp(-r)
        return falls

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.matern_falls(1, s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        r = np.sqrt(5.0 * s)
        return -5.0 / 6.0 * (1.0 + r) * np.exp(-r)

    @property
    def curvature(self) -> float:
        return 25.0 / 12.0


def Matern(lengthscale: float | Sequence[float], nu: float = 2.5) -> Radial:
    """The Matern kernel of smoothness `nu`: 0.5, 1.5 or 2.5."""
    families: dict[float, Callable[..., Radial]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52}
    if nu not in families:
        raise InputError(f"nu must be 0.5, 1.5 or 2.5; got {nu}")
    return families[nu](lengthscale)


def _read_only(X: FloatArray) -> FloatArray:
    """A read-only view of `X`: a writable array would be another type for numba, and compiled a second time."""
    view = np.ascontiguousarray(X)[:]
    view.flags.writeable = False
    return view


@njit(cache=True, nogil=True)
def _gamma_fall(order, r):  # type: ignore[no-untyped-def]
    """`1 - exp(-r) sum_{i < order} r^i / i!`, accurate near zero: the regularised incomplete gamma function."""
    out = np.empty_like(r)
    for index in range(r.size):
        x = r.flat[index]
        term, head = 1.0, 0.0
        for i in range(order):
            head += term
            term *= x / (i + 1)
        if x > 1.0:
            out.flat[index] = 1.0 - np.exp(-x) * head
        else:
            tail = 0.0
            for i in range(order, order + 18):
                tail += term
                term *= x / (i + 1)
            out.flat[index] = np.exp(-x) * tail
    return out


@njit(cache=True, nogil=True)
def _squared_distances(X, Y, lengthscales):  # type: ignore[no-untyped-def]
    """`sum_j ((x_j - y_j) / l_j)^2` by differences: the expanded square would cancel."""
    n, m, dims = X.shape[0], Y.shape[0], X.shape[1]
    out = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            s = 0.0
            for k in range(dims):
                difference = (X[i, k] - Y[j, k]) / lengthscales[k]
                s += difference * difference
            out[i, j] = s
    return out
