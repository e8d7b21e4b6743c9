"""Nominal models and how they are chosen."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.assumptions.regression import cross_validate_per_dimension

LENGTHSCALES, RIDGES = [0.5, 1, 2], [1e-4, 1e-3, 1e-2, 1e-1]


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


def test_a_singular_kernel_matrix_has_an_infinite_held_out_error(data):
    result = rc.cross_validate(data, [40.0], [1e-30, 1e-2])
    assert np.isinf(result.errors[0, 0])
    assert result.regularisation == 1e-2
    per_dimension = cross_validate_per_dimension(data, [40.0], [1e-30, 1e-2])
    assert np.isinf(per_dimension.errors[0, 0])
    assert np.isfinite(per_dimension.errors.min())


def few_dimensions_matter(X):
    """Fast along the second dimension, slow along the fourth, constant along the other four."""
    return np.sin(4 * X[:, 1]) + 0.5 * X[:, 3] ** 2


@pytest.fixture
def anisotropic(rng):
    X = rng.uniform(-1, 1, (120, 6))
    return rc.Observations(X, few_dimensions_matter(X) + rng.uniform(-0.05, 0.05, 120), 0.05)


@pytest.mark.parametrize("kernel", [rc.SquaredExponential, rc.Matern])
def test_one_lengthscale_a_dimension_predicts_better_than_one_for_all(kernel, anisotropic, rng):
    one = rc.cross_validate(anisotropic, LENGTHSCALES, RIDGES, kernel=kernel)
    many = cross_validate_per_dimension(anisotropic, LENGTHSCALES, RIDGES, kernel=kernel)
    assert many.errors.min() < 0.2 * one.errors.min()
    fresh = rng.uniform(-1, 1, (500, 6))
    squares = [
        np.mean((rc.kernel_ridge(anisotropic, c.kernel, c.regularisation)(fresh) - few_dimensions_matter(fresh)) ** 2)
        for c in (one, many)
    ]
    assert squares[1] < 0.2 * squares[0]


def test_dimensions_that_do_not_matter_get_the_longest_lengthscales(anisotropic):
    scales = np.array(cross_validate_per_dimension(anisotropic, LENGTHSCALES, RIDGES).kernel.lengthscale)
    assert scales[1] < scales[3] < np.delete(scales, [1, 3]).min()


def test_every_row_of_errors_is_what_cross_validation_of_its_lengthscales_gives(anisotropic):
    """So the folds are the same throughout, and the chosen pair is the best of all."""
    result = cross_validate_per_dimension(anisotropic, LENGTHSCALES, RIDGES, rng=np.random.default_rng(3))
    again = rc.cross_validate(anisotropic, result.lengthscales, RIDGES, rng=np.random.default_rng(3))
    assert np.allclose(result.errors, again.errors, rtol=1e-9)
    assert (result.kernel, result.regularisation) == (again.kernel, again.regularisation)
    assert list(result.lengthscales[:3]) == [(scale,) * 6 for scale in LENGTHSCALES]
    assert len(result.lengthscales) == 3 + 3  # one after each sweep


def test_no_lengthscale_goes_further_than_a_factor_of_64(anisotropic):
    result = cross_validate_per_dimension(anisotropic, [0.5], [1e-2], sweeps=10)
    change = np.array(result.kernel.lengthscale) / 0.5
    assert change.max() == 64.0
    assert change.min() >= 1 / 64
    assert len(result.lengthscales) < 1 + 10  # it stopped when a sweep changed nothing


@pytest.mark.parametrize("seed", range(10))
def test_held_out_error_is_never_larger_than_at_the_start(seed):
    rng = np.random.default_rng(seed)
    noise = rc.Observations(rng.uniform(-1, 1, (30, 3)), rng.normal(size=30), 1.0)
    one = rc.cross_validate(noise, LENGTHSCALES, RIDGES, rng=np.random.default_rng(seed))
    many = cross_validate_per_dimension(noise, LENGTHSCALES, RIDGES, rng=np.random.default_rng(seed))
    assert many.errors.min() <= one.errors.min()


def test_choice_is_reproduced_by_the_same_generator(anisotropic):
    first, second = (
        cross_validate_per_dimension(anisotropic, LENGTHSCALES, RIDGES, rng=np.random.default_rng(7)) for _ in range(2)
    )
    assert (first.kernel, first.regularisation) == (second.kernel, second.regularisation)
    assert np.array_equal(first.errors, second.errors)


def test_one_dimension_is_searched_beyond_the_candidates(rng):
    x = rng.uniform(-1, 1, 60)
    line = rc.Observations(x, np.sin(8 * x) + rng.uniform(-0.01, 0.01, 60), 0.01)
    (scale,) = cross_validate_per_dimension(line, [8.0], [1e-3]).kernel.lengthscale
    assert 0.1 < scale < 2.0


def test_search_starts_from_a_tuple_too(data):
    result = cross_validate_per_dimension(data, [(5.0, 0.5), 40.0], [1e-2])
    assert result.lengthscales[:2] == [(5.0, 0.5), (40.0, 40.0)]
    assert result.kernel.lengthscale[0] < 5.0
    assert result.kernel.lengthscale[1] > 0.5


def test_lengthscales_at_the_limits_are_not_pushed_beyond(data):
    result = cross_validate_per_dimension(data, [(0.5, 1e50)], [1e-2])
    assert result.kernel.lengthscale[1] <= 1e50


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: rc.cross_validate(d, [1.0], [0.1], folds=1), "folds must be between 2 and"),
        (lambda d: rc.cross_validate(d, [], [0.1]), "at least one candidate"),
        (lambda d: rc.cross_validate(d, [1.0], [0.0]), "regularisations must be a number above zero"),
        (lambda d: rc.cross_validate(d, [40.0], [1e-30]), "numerically singular for every candidate"),
        (lambda d: cross_validate_per_dimension(d, [1.0], [0.1], sweeps=0), "sweeps must be at least 1"),
        (lambda d: cross_validate_per_dimension(d, [(1.0,) * 3], [0.1]), "lengthscales must have shape"),
        (lambda d: cross_validate_per_dimension(d, [0.0], [0.1]), "lengthscales must be a number above zero"),
        (lambda d: rc.kernel_ridge(d, rc.SquaredExponential(1.0), 0.0), "regularisation must be a number above zero"),
        (lambda d: rc.kernel_ridge(d, rc.SquaredExponential(40.0), 1e-30), "numerically singular"),
        (lambda d: rc.KernelModel(d.X, rc.SquaredExponential(1.0), [1.0]), "weights must have shape"),
    ],
)
def test_wrong_settings_are_refused_by_name(make, message, data):
    with pytest.raises(rc.InputError, match=message):
        make(data)
