"""What can be bounded: any continuous linear functional `L` of the unknown function, by its representer.

The solver sees a functional only as the row `L k(., x_i)` and the number `||L||^2`. What is particular to each
kind is how accurately the norm of `L - sum_i w_i k_{x_i}` can be computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numba import njit

from ..arithmetic import compiled_rounding
from ..arithmetic.double_double import add, multiply, paired_sum
from ..arithmetic.rounding import LOST_PRODUCTS, SQUARED_ROUNDOFF, UNDERFLOW, UNIT_ROUNDOFF, exact_sum
from ..data.arrays import SMALLEST, FloatArray, as_points, as_vector, within_range
from ..errors import InputError
from ..kernels.base import Kernel


class Functional(ABC):
    """A continuous linear functional on the RKHS of a stationary kernel."""

    @property
    @abstractmethod
    def n_dims(self) -> int:
        """The dimension of the inputs it is about."""

    @abstractmethod
    def row(self, kernel: Kernel, X: FloatArray) -> FloatArray:
        """`L k(., x_i)` for every row of `X`."""

    @abstractmethod
    def row_error(self, kernel: Kernel) -> float:
        """A bound on the rounding error of an entry of `row`."""

    @abstractmethod
    def squared_norm(self, kernel: Kernel) -> float:
        """`||L||^2`."""

    @abstractmethod
    def residual(self, kernel: Kernel, X: FloatArray, fall: FloatArray, weights: FloatArray) -> tuple[float, float]:
        """`||L - sum_i weights_i k_{x_i}||^2` in floating point, and a bound on its error.

        `fall` is `kernel.fall(X, X)`, passed in because it is often known.
        """

    def precise_residual(self, kernel: Kernel, X: FloatArray, weights: FloatArray) -> tuple[float, float] | None:
        """The same in double-double; None where the functional or the kernel does not offer it."""
        return None


@dataclass(frozen=True, eq=False)
class Points(Functional):
    """`L f = sum_p coefficients_p f(points_p)`: a value, a difference, an average.

    Each coefficient is zero or of a magnitude between 1e-50 and 1e50.
    """

    points: FloatArray
    coefficients: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", as_points(self.points, "points"))
        object.__setattr__(self, "coefficients", as_vector(self.coefficients, "coefficients", len(self.points)))
        size = np.abs(self.coefficients)
        if ((size > 0.0) & (size < SMALLEST)).any():
            least = float(size[size > 0.0].min())
            raise InputError(f"coefficients must be zero or at least {SMALLEST:g} in magnitude; got {least}")

    @property
    def n_dims(self) -> int:
        return int(self.points.shape[1])

    def row_error(self, kernel: Kernel) -> float:
        relative = kernel.rounding(self.n_dims) + (len(self.points) + 2) * UNIT_ROUNDOFF
        return relative * kernel.variance * float(np.abs(self.coefficients).sum())

    @classmethod
    def value(cls, x: FloatArray) -> Points:
        """`L f = f(x)`."""
        return cls(x[None, :], np.ones(1))

    @classmethod
    def difference(cls, x: FloatArray, y: FloatArray) -> Points:
        """`L f = f(x) - f(y)`."""
        return cls(np.stack([x, y]), np.array([1.0, -1.0]))

    def row(self, kernel: Kernel, X: FloatArray) -> FloatArray:
        return self.coefficients @ kernel(self.points, X)

    def squared_norm(self, kernel: Kernel) -> float:
        if len(self.points) == 1:
            return kernel.variance * float(self.coefficients[0]) ** 2
        return self.residual(kernel, self.points[:0], fall=np.empty((0, 0)), weights=np.empty(0))[0]

    def residual(self, kernel: Kernel, X: FloatArray, fall: FloatArray, weights: FloatArray) -> tuple[float, float]:
        # c'Kc = k0 (sum c)^2 - c'Dc with the fall D: where points are close together, so are the terms to zero
        border = kernel.fall(self.points, np.concatenate([X, self.points]))
        return _quadratic_form(kernel, self.n_dims, fall, border, np.concatenate([-weights, self.coefficients]))

    def precise_residual(self, kernel: Kernel, X: FloatArray, weights: FloatArray) -> tuple[float, float] | None:
        fall = kernel.precise_fall(np.concatenate([self.points, X]))
        return None if fall is None else _precise_form(fall, np.concatenate([self.coefficients, -weights]))


@dataclass(frozen=True, eq=False)
class Derivative(Functional):
    """`L f = df/dx_j` at a point: the sensitivity to one input."""

    point: FloatArray
    dimension: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "point", as_vector(self.point, "point"))
        if not 0 <= self.dimension < len(self.point):
            raise InputError(f"dimension must lie between 0 and {len(self.point) - 1}; got {self.dimension}")

    @property
    def n_dims(self) -> int:
        return len(self.point)

    def row_error(self, kernel: Kernel) -> float:
        # |d k / dx_j| is at most sqrt(k0 ||L||^2), and so are its errors, by complete monotonicity of the profile
        return 4.0 * kernel.rounding(self.n_dims) * math.sqrt(kernel.variance * self.squared_norm(kernel))

    def row(self, kernel: Kernel, X: FloatArray) -> FloatArray:
        return kernel.gradient(self.point[None, :], X)[0, :, self.dimension]

    def squared_norm(self, kernel: Kernel) -> float:
        return float(kernel.derivative_variance(len(self.point))[self.dimension])

    def residual(self, kernel: Kernel, X: FloatArray, fall: FloatArray, weights: FloatArray) -> tuple[float, float]:
        norm2 = self.squared_norm(kernel)
        products = self.row(kernel, X) * weights
        square, square_error = _quadratic_form(kernel, self.n_dims, fall, np.empty((0, len(X))), weights)
        value = exact_sum([norm2, -2.0 * exact_sum(products.tolist()), square])
        error = (
            2.0 * self.row_error(kernel) * float(np.abs(weights).sum())
            + kernel.rounding(self.n_dims) * norm2
            + 8.0 * UNIT_ROUNDOFF * (norm2 + float(np.abs(products).sum()) + abs(square))
            + square_error
        )
        return value, 1.001 * error


def relative_error(kernel: Kernel, n_dims: int) -> float:
    """What `quadratic_form` needs to know of a kernel: how far falls and products with them may be off."""
    return kernel.rounding(n_dims) + 8.0 * UNIT_ROUNDOFF


def _quadratic_form(
    kernel: Kernel, n_dims: int, D: FloatArray, border: FloatArray, c: FloatArray
) -> tuple[float, float]:
    variance = within_range(kernel.variance, "the variance of a kernel")
    return quadratic_form(variance, relative_error(kernel, n_dims), D, border, c)  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _precise_form(fall, c):  # type: ignore[no-untyped-def]
    """As `_quadratic_form`, in double-double."""
    weight, size_weight = compiled_rounding.exact_sum(c), np.abs(c).sum()
    rest = compiled_rounding.exact_sum(np.append(c, -weight))
    square, square_low = multiply(weight, rest, weight, rest)
    head, head_low = multiply(square, square_low, fall.variance[0], fall.variance[1])
    total, total_low, size = paired_sum(fall.high, fall.low, c)
    value, _ = add(head, head_low, -total, -total_low)
    relative = fall.error + (8 * c.size + 64) * SQUARED_ROUNDOFF
    # Low parts of tiny products underflow, too, before they meet another weight or the variance.
    underflow = UNDERFLOW * fall.variance[0] * (size_weight * size_weight)
    underflow += LOST_PRODUCTS * (1.0 + size_weight + fall.variance[0])
    return value, 1.001 * (relative * (head + size) + UNIT_ROUNDOFF * abs(value) + underflow)


@njit(cache=True, nogil=True)
def quadratic_form(variance, relative, D, border, c):  # type: ignore[no-untyped-def]
    """`c'Kc = k0 (sum c)^2 - c'Dc`, and a bound on its error; infinite where something overflows.

    The last rows of the symmetric `D` are in `border`, so that a large matrix need not be copied to add a few. Only
    what is below the diagonal is looked at.
    """
    size_weight = 0.0
    for weight in c:
        size_weight += abs(weight)
    total_weight = compiled_rounding.exact_sum(c)
    head = variance * (total_weight * total_weight)
    total, size = _doubled_sum(D, border, c)
    underflow = UNDERFLOW * variance * (size_weight * size_weight) + LOST_PRODUCTS * (1.0 + size_weight + variance)
    return head - total, 1.001 * (relative * (head + size) + underflow)


@njit(cache=True, nogil=True)
def _doubled_sum(D, border, c):  # type: ignore[no-untyped-def]
    """`sum_{a != b} c_a c_b D_ab`, and the sum of absolute values.

    Sums over columns are kept with what rounding loses (Knuth), all columns side by side, which compilers make fast;
    their products with the weights are summed with Neumaier's compensation.
    """
    n, first = c.size, c.size - len(border)
    sums, lost, sizes = np.zeros(n), np.zeros(n), np.zeros(n)
    for a in range(n):
        row, weight = D[a] if a < first else border[a - first], c[a]
        for b in range(a):
            term = weight * row[b]
            before = sums[b]
            after = before + term
            added = after - before
            lost[b] += (before - (after - added)) + (term - added)
            sums[b] = after
            sizes[b] += abs(term)
    total, rest, size = 0.0, 0.0, 0.0
    for b in range(n):
        for part in (sums[b], lost[b]):
            term = 2.0 * c[b] * part
            new = total + term
            rest += (total - new) + term if abs(total) >= abs(term) else (term - new) + total
            total = new
        size += 2.0 * abs(c[b]) * sizes[b]
    return total + rest, size
