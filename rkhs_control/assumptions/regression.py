"""Nominal models: kernel ridge regression, the minimum-norm regressor, and cross-validation to choose among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.arrays import LARGEST, FloatArray, IndexArray, as_points, as_vector, positive
from ..data.observations import Observations
from ..engine.functionals import Functional, Points
from ..engine.gram import Gram
from ..engine.least_norm import least_norm
from ..errors import InputError
from ..kernels.base import Kernel
from ..kernels.radial import SquaredExponential
from .priors import AffinePrior, StepOfModel

Lengthscale = float | Sequence[float]
"""A number, or one per dimension."""
Fold = tuple[IndexArray, IndexArray]
"""Indices that are held out, and those kept to learn from."""


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

    def gradient(self, Xq: npt.ArrayLike) -> FloatArray:
        """How fast the model changes with every coordinate, `(m, n_dims)`."""
        slopes = self.kernel.gradient(as_points(Xq, "Xq", self.X.shape[1]), self.X)
        return np.einsum("mnd,n->md", slopes, self.weights)  # type: ignore[no-any-return]

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


@dataclass(frozen=True, eq=False)
class ModelWithPrior:
    """`m(x) + s(x)`: a prior, and a kernel model of its residual."""

    prior: AffinePrior | StepOfModel
    rest: KernelModel

    def __call__(self, Xq: npt.ArrayLike) -> FloatArray:
        """The model at the rows of `Xq`."""
        return self.prior(as_points(Xq, "Xq", self.rest.X.shape[1])) + self.rest(Xq)

    def casadi(self, x: Any) -> Any:
        """The model at a CasADi column `(n_dims, 1)`."""
        import casadi

        if not isinstance(self.prior, AffinePrior):
            raise InputError("planning needs derivatives, and a prior model has none here; plan with an affine prior")
        return self.prior.offset + casadi.DM(self.prior.slopes).T @ x + self.rest.casadi(x)


NominalModel = KernelModel | ModelWithPrior


def kernel_ridge(data: Observations, kernel: Kernel, regularisation: float) -> KernelModel:
    """`weights = (K + regularisation I)^-1 y`, with `y` the midpoints of the intervals."""
    positive(regularisation, "regularisation")
    try:
        return KernelModel(data.X, kernel, _ridge_weights(kernel(data.X), regularisation, data.centre))
    except np.linalg.LinAlgError:
        raise InputError(
            f"regularisation {regularisation:.3g} is too small for this kernel matrix, which is numerically singular"
        ) from None


def minimum_norm(data: Observations, kernel: Kernel) -> KernelModel:
    """The function of least norm through all intervals; it lies inside the optimal envelope everywhere."""
    gram = Gram(data.X, kernel)
    solution = least_norm(gram, data.lower, data.upper)
    solution.require_found(gram, data.lower, data.upper)
    weights = np.zeros(len(data))
    weights[solution.witness.indices] = solution.witness.weights
    return KernelModel(data.X, kernel, weights)


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Mean squared held-out error for each `(lengthscale, regularisation)`, and the best pair."""

    lengthscales: Sequence[Lengthscale]
    regularisations: FloatArray
    errors: FloatArray
    """Shape `(n_lengthscales, n_regularisations)`; infinite where the kernel matrix was numerically singular."""
    kernel: Kernel
    regularisation: float


def cross_validate(
    data: Observations,
    lengthscales: Sequence[Lengthscale],
    regularisations: Sequence[float],
    *,
    folds: int | Sequence[Fold] = 5,
    kernel: Callable[[Lengthscale], Kernel] = SquaredExponential,
    rng: np.random.Generator | None = None,
) -> CrossValidation:
    """k-fold cross-validation of kernel ridge regression over lengthscales and regularisations.

    `kernel` makes a kernel from a lengthscale (a number, or one per dimension); `rng` shuffles the data into folds, and
    without one every `folds`-th datum goes into a fold. Folds may be given as pairs of indices, held out and kept:
    windows of a recording share samples with their neighbours, and must not be judged by these.
    """
    ridge, errors_of = _held_out(data, lengthscales, regularisations, folds, kernel, rng)
    errors = [errors_of(scale, ridge) for scale in lengthscales]
    best, chosen = _least(errors)
    return CrossValidation(lengthscales, ridge, np.array(errors), kernel(lengthscales[best]), float(ridge[chosen]))


def cross_validate_per_dimension(
    data: Observations,
    lengthscales: Sequence[Lengthscale],
    regularisations: Sequence[float],
    *,
    folds: int | Sequence[Fold] = 5,
    kernel: Callable[[Lengthscale], Kernel] = SquaredExponential,
    sweeps: int = 3,
    rng: np.random.Generator | None = None,
) -> CrossValidation:
    """One lengthscale per dimension, by coordinate descent of the held-out error from the best of `cross_validate`.

    A sweep takes the dimensions in turn and multiplies or divides the lengthscale by a step as long as that lowers the
    error; then it chooses the regularisation again. The first sweep moves each at most once, so that none runs away
    while the others are still wrong. The step is 4, and 2 from the third sweep on, or sooner if 4 changes nothing;
    `sweeps` is the maximum number of sweeps, and the search ends where 2 changes nothing. No lengthscale moves from its
    start by more than a factor of 64, which an irrelevant dimension may reach. The folds are those of `cross_validate`
    with the same `rng`.

    In the result, `lengthscales` are tuples, the given ones followed by what each sweep arrived at (where it changed
    something), with a row of `errors` each. The least error is never above that of the start, but it was searched for:
    as an estimate of the error on fresh data it is optimistic.
    """
    if sweeps < 1:
        raise InputError(f"sweeps must be at least 1; got {sweeps}")
    ridge, errors_of = _held_out(data, lengthscales, regularisations, folds, kernel, rng)
    tried = [_one_a_dimension(scale, data.X.shape[1]) for scale in lengthscales]
    errors = [errors_of(scales, ridge) for scales in tried]
    best, chosen = _least(errors)
    start, step = tried[best], 4.0
    for sweep in range(sweeps):
        swept = _sweep(errors_of, ridge[[chosen]], tried[best], start, step, once=sweep == 0)
        changed = swept != tried[best]
        if changed:
            tried.append(swept)
            errors.append(errors_of(swept, ridge))
            best, chosen = _least(errors)
        elif step == 2.0:
            break
        if sweep > 0 or not changed:
            step = 2.0
    return CrossValidation(tried, ridge, np.array(errors), kernel(tried[best]), float(ridge[chosen]))


def _ridge_weights(K: FloatArray, regularisation: float, y: FloatArray) -> FloatArray:
    """`(K + regularisation I)^-1 y`; LinAlgError where that matrix is numerically singular."""
    from scipy.linalg import cho_factor, cho_solve

    A = K.copy()
    A[np.diag_indices_from(A)] += regularisation
    # A is its own transpose, and by columns, as LAPACK wants it, it is factored in place.
    return cho_solve(cho_factor(A.T, lower=True, overwrite_a=True), y)  # type: ignore[no-any-return]


def _kernel_matrix(kernel: Kernel, X: FloatArray) -> FloatArray:
    """`kernel(X)` in less than half the time, by symmetry and in blocks that fit the cache."""
    K = np.empty((len(X), len(X)))
    for i in range(0, len(X), 50):
        block = kernel(X[i:], X[i : i + 50])
        K[i:, i : i + 50], K[i : i + 50, i:] = block, block.T
    return K


def _held_out(
    data: Observations,
    lengthscales: Sequence[Lengthscale],
    regularisations: Sequence[float],
    folds: int | Sequence[Fold],
    kernel: Callable[[Lengthscale], Kernel],
    rng: np.random.Generator | None,
) -> tuple[FloatArray, Callable[[Lengthscale, FloatArray], FloatArray]]:
    """The regularisations, and the function of lengthscale and regularisations that cross-validation minimises.

    The function is the mean squared held-out error, shape `(n_regularisations,)`, with the same folds at every call.
    """
    n, y = len(data), data.centre
    if isinstance(folds, int) and not 2 <= folds <= n:
        raise InputError(f"folds must be between 2 and the number of inputs, {n}; got {folds}")
    if len(lengthscales) == 0 or len(regularisations) == 0:
        raise InputError("lengthscales and regularisations must each hold at least one candidate")
    parts = _folds(n, folds, rng) if isinstance(folds, int) else folds
    n_held = sum(len(held) for held, _ in parts)

    def errors_of(lengthscale: Lengthscale, ridge: FloatArray) -> FloatArray:
        K, squares = _kernel_matrix(kernel(lengthscale), data.X), np.zeros(len(ridge))
        for held, kept in parts:
            inner, cross = K[np.ix_(kept, kept)], K[np.ix_(held, kept)]
            # An eigendecomposition would serve all regularisations, but costs as much as ten of the factors or more.
            for i, regularisation in enumerate(ridge):
                try:
                    weights = _ridge_weights(inner, regularisation, y[kept])
                except np.linalg.LinAlgError:
                    squares[i] = np.inf
                else:
                    squares[i] += np.sum((cross @ weights - y[held]) ** 2)
        return squares / n_held

    return np.array([positive(value, "regularisations") for value in regularisations]), errors_of


def _folds(n: int, folds: int, rng: np.random.Generator | None) -> list[Fold]:
    fold_of = np.arange(n) % folds if rng is None else rng.permutation(n) % folds
    return [(np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)) for fold in range(folds)]


def held_out_errors(data: Observations, kernel: Kernel, regularisation: float, folds: Sequence[Fold]) -> FloatArray:
    """The error of every held-out datum, predicted from the data that its fold keeps."""
    K, y = _kernel_matrix(kernel, data.X), data.centre
    errors = [
        y[held] - K[np.ix_(held, kept)] @ _ridge_weights(K[np.ix_(kept, kept)], regularisation, y[kept])
        for held, kept in folds
    ]
    return np.concatenate(errors)


def _least(errors: Sequence[FloatArray]) -> tuple[int, int]:
    """The indices of the lengthscale and the regularisation with the least error."""
    if not np.isfinite(errors).any():
        raise InputError("the kernel matrix was numerically singular for every candidate; raise the regularisations")
    best, chosen = np.unravel_index(np.argmin(errors), np.shape(errors))
    return int(best), int(chosen)


def _one_a_dimension(scale: Lengthscale, n_dims: int) -> tuple[float, ...]:
    if np.ndim(scale) == 0:
        return (positive(scale, "lengthscales"),) * n_dims  # type: ignore[arg-type]
    return tuple(as_vector(scale, "lengthscales", n_dims).tolist())


def _sweep(
    errors_of: Callable[[Lengthscale, FloatArray], FloatArray],
    ridge: FloatArray,
    scales: tuple[float, ...],
    start: tuple[float, ...],
    step: float,
    *,
    once: bool,
) -> tuple[float, ...]:
    """Each lengthscale in turn, multiplied or divided by `step` while the error falls: whichever ends lower."""

    def walk(error: float, scales: tuple[float, ...], j: int, factor: float) -> tuple[float, tuple[float, ...]]:
        lowest, highest = max(start[j] / 64.0, 1.0 / LARGEST), min(64.0 * start[j], LARGEST)
        while lowest <= scales[j] * factor <= highest:
            trial = (*scales[:j], scales[j] * factor, *scales[j + 1 :])
            trial_error = float(errors_of(trial, ridge)[0])
            if trial_error >= error:
                break
            error, scales = trial_error, trial
            if once:
                break
        return error, scales

    error = float(errors_of(scales, ridge)[0])
    for j in range(len(scales)):
        error, scales = min(walk(error, scales, j, factor) for factor in (step, 1.0 / step))
    return scales
