r"""Kernels: squared exponential, Matern, rational quadratic, and their scales, sums and products.

Every kernel here is stationary, so it is known by its *fall* `k(x, x) - k(x, y)`. The fall is what gets
computed, to full relative accuracy, and `k(x, y)` is the variance less the fall: two inputs a
hair's breadth apart then have a distance in the RKHS, `2 (k(x, x) - k(x, y))`, that is right to the last
digits instead of lost in `1 - 1`. The evaluation of witnesses (`witness.py`) lives on that.

Adding a kernel is one small class: see `docs/kernels.md`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numba import njit

from . import double_double
from .double_double import SQUARED_ROUNDOFF, PreciseFall
from .errors import InputError
from .validation import LARGEST, SMALLEST, FloatArray, as_vector, positive, within_range

UNIT_ROUNDOFF = 2.0**-53


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

    @abstractmethod
    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """`d k(x, y) / d x`, shape `(n_x, n_y, n_dims)`."""

    @abstractmethod
    def derivative_variance(self, n_dims: int) -> FloatArray:
        """`d^2 k(x, y) / dx_j dy_j` at `y = x`, shape `(n_dims,)`: the squared norm of `f -> df/dx_j`."""

    @abstractmethod
    def rounding(self, n_dims: int) -> float:
        """A bound on the relative error of `fall` in floating point."""

    @abstractmethod
    def casadi(self, x: Any, Y: FloatArray) -> Any:
        """`k(x, Y)` as a CasADi row `(1, n_y)`; `x` is a CasADi column `(n_dims, 1)`, `Y` may be one, too."""

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        """The falls among some points in double-double; None where a kernel does not offer them."""
        return None

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """The kernel matrix `(n_x, n_y)`; with one argument, of `X` with itself."""
        return self.variance - self.fall(X, X if Y is None else Y)

    def diagonal(self, X: FloatArray) -> FloatArray:
        """`k(x, x)` for every row of `X`."""
        return np.full(len(X), self.variance)

    def _require_kernels(self, *parts: Kernel) -> None:
        """Refuse a combination of other things, or one whose variance is out of the range that is computed with."""
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
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scale(self, other)

    __rmul__ = __mul__


@dataclass(frozen=True)
class Radial(Kernel):
    """`k(x, y) = profile(s)` with `s = sum_j ((x_j - y_j) / lengthscale_j)^2` and `profile(0) = 1`.

    A subclass writes `profile`, its derivative `slope` and its `fall_profile` `1 - profile(s)`, the last
    without cancellation, and states in `ulps` how many units in the last place `fall_profile` may be off.
    The profile must be completely monotone in `s` (then it is positive definite in every dimension).
    `profile` takes the module to compute with, numpy or casadi.
    """

    lengthscale: float | Sequence[float]
    ulps: ClassVar[int]

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

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        self._require_differentiable()
        slope = self.slope(self._squared_distances(X, Y))
        return 2.0 * slope[:, :, None] * (X[:, None, :] - Y[None, :, :]) / self._lengthscales(X.shape[1]) ** 2

    def derivative_variance(self, n_dims: int) -> FloatArray:
        self._require_differentiable()
        return -2.0 * self.slope(np.zeros(1))[0] / self._lengthscales(n_dims) ** 2

    def rounding(self, n_dims: int) -> float:
        # s has relative error (n_dims + 6) u, and a fall concave in s passes on no more than that.
        return (n_dims + 8 + 2 * self.ulps) * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        import casadi

        scale = casadi.repmat(casadi.DM(self._lengthscales(Y.shape[1])), 1, Y.shape[0])
        difference = (casadi.repmat(x, 1, Y.shape[0]) - Y.T) / scale
        # The root of a Matern kernel has no derivative at zero; so small a shift leaves every value as it is.
        return self.profile(casadi.sum1(difference**2) + 1e-100, casadi)

    def _squared_distances(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
            raise InputError(f"a kernel takes two arrays (n, n_dims) of the same n_dims; got {X.shape} and {Y.shape}")
        return _squared_distances(X, Y, self._lengthscales(X.shape[1]))  # type: ignore[no-any-return]

    def _lengthscales(self, n_dims: int) -> FloatArray:
        if isinstance(self.lengthscale, float):
            return np.full(n_dims, self.lengthscale)
        if len(self.lengthscale) != n_dims:
            raise InputError(
                f"lengthscale has {len(self.lengthscale)} entries, but the inputs have {n_dims} dimensions"
            )
        return np.array(self.lengthscale)

    def _require_differentiable(self) -> None:
        if not np.isfinite(self.slope(np.zeros(1))[0]):
            raise InputError(
                f"functions in the space of {type(self).__name__} need not be differentiable; "
                "derivatives can be bounded with Matern(nu=1.5), Matern(nu=2.5) or a smoother kernel"
            )


@dataclass(frozen=True)
class SquaredExponential(Radial):
    """`exp(-s / 2)`: infinitely smooth functions. The kernel of the paper."""

    ulps: ClassVar[int] = 4

    def profile(self, s: Any, xp: Any) -> Any:
        return xp.exp(-0.5 * s)

    def fall_profile(self, s: FloatArray) -> FloatArray:
        return -np.expm1(-0.5 * s)

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.squared_exponential_falls(s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        return -0.5 * np.exp(-0.5 * s)


@dataclass(frozen=True)
class RationalQuadratic(Radial):
    """`(1 + s / (2 alpha))^-alpha`: a mixture of squared exponentials of many lengthscales."""

    alpha: float = 1.0
    ulps: ClassVar[int] = 12

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


@dataclass(frozen=True)
class Matern12(Radial):
    """`exp(-r)`, `r = sqrt(s)`: continuous functions without a derivative."""

    ulps: ClassVar[int] = 6

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

    def profile(self, s: Any, xp: Any) -> Any:
        r = xp.sqrt(3.0 * s)
        return (1.0 + r) * xp.exp(-r)

    def fall_profile(self, s: FloatArray) -> FloatArray:
        return _gamma_fall(2, np.sqrt(3.0 * s))

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.matern_falls(0, s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        return -1.5 * np.exp(-np.sqrt(3.0 * s))


@dataclass(frozen=True)
class Matern52(Radial):
    """`(1 + r + r^2 / 3) exp(-r)`, `r = sqrt(5 s)`: functions with two derivatives."""

    ulps: ClassVar[int] = 40

    def profile(self, s: Any, xp: Any) -> Any:
        r = xp.sqrt(5.0 * s)
        return (1.0 + r + 5.0 / 3.0 * s) * xp.exp(-r)

    def fall_profile(self, s: FloatArray) -> FloatArray:
        r = np.sqrt(5.0 * s)
        return _gamma_fall(3, r) + 5.0 / 6.0 * s * np.exp(-r)

    def precise_fall_profile(self, s: FloatArray, s_low: FloatArray) -> tuple[FloatArray, FloatArray]:
        return double_double.matern_falls(1, s, s_low)  # type: ignore[no-any-return]

    def slope(self, s: FloatArray) -> FloatArray:
        r = np.sqrt(5.0 * s)
        return -5.0 / 6.0 * (1.0 + r) * np.exp(-r)


def Matern(lengthscale: float | Sequence[float], nu: float = 2.5) -> Radial:
    """The Matern kernel of smoothness `nu`: 0.5, 1.5 or 2.5."""
    families: dict[float, Callable[..., Radial]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52}
    if nu not in families:
        raise InputError(f"nu must be 0.5, 1.5 or 2.5; got {nu}")
    return families[nu](lengthscale)


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

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.factor * self.kernel.gradient(X, Y)

    def derivative_variance(self, n_dims: int) -> FloatArray:
        return self.factor * self.kernel.derivative_variance(n_dims)

    def rounding(self, n_dims: int) -> float:
        return self.kernel.rounding(n_dims) + 2 * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        return self.factor * self.kernel.casadi(x, Y)


@dataclass(frozen=True)
class Sum(Kernel):
    """`a(x, y) + b(x, y)`."""

    a: Kernel
    b: Kernel

    def __post_init__(self) -> None:
        self._require_kernels(self.a, self.b)

    @property
    def variance(self) -> float:
        return self.a.variance + self.b.variance

    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.a.fall(X, Y) + self.b.fall(X, Y)

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        a, b = self.a.precise_fall(points), self.b.precise_fall(points)
        return None if a is None or b is None else a.plus(b)

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return self.a.gradient(X, Y) + self.b.gradient(X, Y)

    def derivative_variance(self, n_dims: int) -> FloatArray:
        return self.a.derivative_variance(n_dims) + self.b.derivative_variance(n_dims)

    def rounding(self, n_dims: int) -> float:
        return max(self.a.rounding(n_dims), self.b.rounding(n_dims)) + 2 * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        return self.a.casadi(x, Y) + self.b.casadi(x, Y)


@dataclass(frozen=True)
class Product(Kernel):
    """`a(x, y) * b(x, y)`."""

    a: Kernel
    b: Kernel

    def __post_init__(self) -> None:
        self._require_kernels(self.a, self.b)

    @property
    def variance(self) -> float:
        return self.a.variance * self.b.variance

    def fall(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        # a0 b0 - a b, as a sum of two terms that are never negative
        fall_b = self.b.fall(X, Y)
        return self.a.fall(X, Y) * (self.b.variance - fall_b) + self.a.variance * fall_b

    def precise_fall(self, points: FloatArray) -> PreciseFall | None:
        a, b = self.a.precise_fall(points), self.b.precise_fall(points)
        return None if a is None or b is None else a.times(b)

    def gradient(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        a, b = self.a(X, Y)[:, :, None], self.b(X, Y)[:, :, None]
        return self.a.gradient(X, Y) * b + a * self.b.gradient(X, Y)

    def derivative_variance(self, n_dims: int) -> FloatArray:
        a, b = self.a.derivative_variance(n_dims), self.b.derivative_variance(n_dims)
        return a * self.b.variance + self.a.variance * b

    def rounding(self, n_dims: int) -> float:
        # Each of the two terms is at most the fall itself; the factor b costs its absolute error.
        return 3 * (self.a.rounding(n_dims) + self.b.rounding(n_dims)) + 8 * UNIT_ROUNDOFF

    def casadi(self, x: Any, Y: FloatArray) -> Any:
        return self.a.casadi(x, Y) * self.b.casadi(x, Y)


def kernel_from_dict(content: dict[str, Any]) -> Kernel:
    """The kernel that `to_dict` wrote; its class must be one of this module, or imported."""
    known = {kind.__name__: kind for kind in _subclasses(Kernel)}  # type: ignore[type-abstract]
    kind = content.get("kind")
    if kind not in known:
        raise InputError(f"there is no kernel {kind!r}; there is: {', '.join(sorted(known))}")
    values = {
        name: kernel_from_dict(value) if isinstance(value, dict) else value
        for name, value in content.items()
        if name != "kind"
    }
    try:
        return known[kind](**values)
    except TypeError as error:
        raise InputError(f"kernel {kind}: {error}") from None


def _subclasses(parent: type[Kernel]) -> Iterator[type[Kernel]]:
    """All that can be built, however far down."""
    for child in parent.__subclasses__():
        if not inspect.isabstract(child):
            yield child
        yield from _subclasses(child)


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
