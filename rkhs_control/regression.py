"""Nominal models: kernel ridge regression, the minimum-norm regressor, and cross-validation to choose between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .functionals import Functional, Points
from .gram import Gram
from .kernels import Kernel, SquaredExponential
from .least_norm import least_norm
from .observations import Observations
from .validation import FloatArray, as_points, as_vector, positive


@dataclass(frozen=True, eq=False)
class KernelModel:
    """`s(x) = sum_i weights_i k(x, x_i)`."""

    X: FloatArray
    kernel: Kernel
    weights: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", as_points(self.X, "X"))
        object.__setattr__(self, "weights", as_vector(self.weights, "weights", len(self.X)))

    def __call__(self, Xq: npt.ArrayLike) -> FloatArray:
        """The model at the rows of `Xq`."""
        return self.kernel(as_points(Xq, "Xq", self.X.shape[1]), self.X) @ self.weights

    def casadi(self, x: Any) -> Any:
        """The model at a CasADi column `(n_dims, 1)`."""
        import casadi

        return self.kernel.casadi(x, self.X) @ casadi.DM(self.weights)

    def apply(self, functional: Functional) -> float:
        """`L s` for a linear functional `L`."""
        return float(functional.row(self.kernel, self.X) @ self.weights)

    @property
    def norm(self) -> float:
        """`||s||_H`."""
        nothing = Points(self.X[:0], np.empty(0))
        fall = self.kernel.fall(self.X, self.X)
        return float(np.sqrt(max(0.0, nothing.residual(self.kernel, self.X, fall, self.weights)[0])))


def kernel_ridge(data: Observations, kernel: Kernel, regularisation: float) -> KernelModel:
    """`weights = (K + regularisation I)^-1 y`, with `y` the middles of the intervals."""
    from scipy.linalg import cho_factor, cho_solve

    positive(regularisation, "regularisation")
    K = kernel(data.X)
    K[np.diag_indices_from(K)] += regularisation
    try:
        factor = cho_factor(K, lower=True)
    except np.linalg.LinAlgError:
        raise InputError(
            f"regularisation {regularisation:.3g} is too small for this kernel matrix, which is numerically singular"
        ) from None
    return KernelModel(data.X, kernel, cho_solve(factor, data.centre))


def minimum_norm(data: Observations, kernel: Kernel) -> KernelModel:
    """The function of least norm through all intervals; it lies inside the optimal envelope everywhere."""
    solution = least_norm(Gram(data.X, kernel), data.lower, data.upper)
    weights = np.zeros(len(data))
    weights[solution.indices] = solution.weights
    return KernelModel(data.X, kernel, weights)


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Mean squared error on held-out data for each `(lengthscale, regularisation)`, and the pair with the least."""

    lengthscales: Sequence[float | Sequence[float]]
    regularisations: FloatArray
    errors: FloatArray
    """Shape `(n_lengthscales, n_regularisations)`; infinite where the kernel matrix was numerically singular."""
    kernel: Kernel
    regularisation: float


def cross_validate(
    data: Observations,
    lengthscales: Sequence[float | Sequence[float]],
    regularisations: Sequence[float],
    *,
    folds: int = 5,
    kernel: Callable[[float | Sequence[float]], Kernel] = SquaredExponential,
    rng: np.random.Generator | None = None,
) -> CrossValidation:
    """k-fold cross-validation of kernel ridge regression over lengthscales and regularisations.

    `kernel` makes a kernel from a lengthscale (a number, or one a dimension); `rng` shuffles the data into folds, and
    without one every `folds`-th datum makes a fold.
    """
    n = len(data)
    if not 2 <= folds <= n:
        raise InputError(f"folds must be between 2 and the number of inputs, {n}; got {folds}")
    if len(lengthscales) == 0 or len(regularisations) == 0:
        raise InputError("lengthscales and regularisations must each hold at least one candidate")
    ridge = np.array([positive(value, "regularisations") for value in regularisations])
    fold_of = np.arange(n) % folds if rng is None else rng.permutation(n) % folds
    candidates = [kernel(lengthscale) for lengthscale in lengthscales]
    errors = np.array([_held_out_errors(data, candidate, ridge, fold_of) for candidate in candidates])
    if not np.isfinite(errors).any():
        raise InputError("the kernel matrix was numerically singular for every candidate; raise the regularisations")
    best, best_ridge = np.unravel_index(np.argmin(errors), errors.shape)
    return CrossValidation(lengthscales, ridge, errors, candidates[int(best)], float(ridge[int(best_ridge)]))


def _held_out_errors(
    data: Observations, kernel: Kernel, ridge: FloatArray, fold_of: npt.NDArray[np.intp]
) -> FloatArray:
    """Mean squared held-out error for every regularisation: one eigendecomposition a fold serves them all."""
    K, y = kernel(data.X), data.centre
    squares = np.zeros(len(ridge))
    for fold in np.unique(fold_of):
        held, kept = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
        values, vectors = np.linalg.eigh(K[np.ix_(kept, kept)])
        projected, cross = vectors.T @ y[kept], K[np.ix_(held, kept)] @ vectors
        for i, added in enumerate(ridge):
            if values[0] + added <= 0.0:
                squares[i] = np.inf
            else:
                squares[i] += np.sum((cross @ (projected / (values + added)) - y[held]) ** 2)
    return squares / len(y)
