"""Nominal models and how they are chosen."""

import numpy as np
import pytest

import rkhs_control as rc


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (80, 2))
    return rc.Observations(X, np.sin(4 * X[:, 0]) + 0.1 * X[:, 1] + rng.uniform(-0.05, 0.05, 80), 0.05)


def test_ridge_minimises_its_own_objective(data, rng):
    kernel, ridge = rc.SquaredExponential(0.7), 0.3
    model = rc.kernel_ridge(data, kernel, ridge)
    K = kernel(data.X)

    def objective(weights):
        return np.sum((K @ weights - data.centre) ** 2) + ridge * weights @ K @ weights

    for _ in range(20):
        assert objective(model.weights) <= objective(model.weights + 1e-3 * rng.normal(size=len(data)))


def test_model_evaluates_functionals_like_itself(data):
    model = rc.kernel_ridge(data, rc.SquaredExponential(0.7), 0.1)
    x = np.array([0.2, -0.3])
    assert np.isclose(model.apply(rc.Points.value(x)), model(x[None])[0])
    step = 1e-6
    slope = (model([[0.2 + step, -0.3]])[0] - model([[0.2 - step, -0.3]])[0]) / (2 * step)
    assert np.isclose(model.apply(rc.Derivative(x, 0)), slope, rtol=1e-6)


def test_cross_validation_equals_refitting_every_fold(data):
    lengthscales, ridges = [0.3, 0.8], [1e-3, 1e-1]
    result = rc.cross_validate(data, lengthscales, ridges, folds=4)
    fold_of = np.arange(len(data)) % 4
    for i, lengthscale in enumerate(lengthscales):
        for j, ridge in enumerate(ridges):
            squares = 0.0
            for fold in range(4):
                model = rc.kernel_ridge(data.subset(fold_of != fold), rc.SquaredExponential(lengthscale), ridge)
                held = data.subset(fold_of == fold)
                squares += np.sum((model(held.X) - held.centre) ** 2)
            assert np.isclose(result.errors[i, j], squares / len(data), rtol=1e-6)


def test_cross_validation_finds_the_direction_that_matters(data, rng):
    """The truth varies quickly along the first dimension and slowly along the second."""
    result = rc.cross_validate(data, [(0.5, 5.0), (5.0, 0.5)], [1e-2], rng=rng)
    assert result.kernel == rc.SquaredExponential((0.5, 5.0))
    assert result.regularisation == 1e-2
    other = rc.cross_validate(data, [0.5], [1e-2], kernel=lambda scale: rc.Matern(scale, nu=1.5))
    assert other.kernel == rc.Matern32(0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: rc.cross_validate(d, [1.0], [0.1], folds=1), "folds must be between 2 and"),
        (lambda d: rc.cross_validate(d, [], [0.1]), "at least one candidate"),
        (lambda d: rc.cross_validate(d, [1.0], [0.0]), "regularisations must be a number above zero"),
        (lambda d: rc.kernel_ridge(d, rc.SquaredExponential(1.0), 0.0), "regularisation must be a number above zero"),
        (lambda d: rc.kernel_ridge(d, rc.SquaredExponential(40.0), 1e-30), "numerically singular"),
        (lambda d: rc.KernelModel(d.X, rc.SquaredExponential(1.0), [1.0]), "weights must have shape"),
    ],
)
def test_wrong_settings_are_refused_by_name(make, message, data):
    with pytest.raises(rc.InputError, match=message):
        make(data)
