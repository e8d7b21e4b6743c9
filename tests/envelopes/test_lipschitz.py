"""The set-membership bound: sound, what its formula says, and never tighter than the optimum."""

import numpy as np
import pytest
from problems import LONG, long_kernel, random_problem, round_up

import rkhs_control as rc

KERNEL = rc.SquaredExponential([0.7, 1.4])


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (30, 2))
    return rc.Observations(X, np.sin(2 * X[:, 0]) * X[:, 1] + rng.uniform(-0.1, 0.1, 30), 0.1)


@pytest.fixture
def queries(rng, data):
    return np.concatenate([rng.uniform(-1, 1, (20, 2)), data.X[:3], [[30.0, 30.0]]])


def assert_contains(band, truth):
    assert (np.asarray(band.lower, LONG) <= truth).all()
    assert (truth <= np.asarray(band.upper, LONG)).all()


@pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision for the ground truth")
def test_band_contains_every_ground_truth():
    for number in range(300):
        rng = np.random.default_rng([7, number])
        problem = random_problem(rng)
        nugget = 10.0 ** rng.uniform(-10, -2) if number % 3 == 0 else 0.0
        norm_bound = problem.norm * rng.choice([1.0, 1.0, 3.0])
        envelope = rc.LipschitzEnvelope(problem.data, problem.kernel, norm_bound, nugget=nugget)
        assert_contains(envelope.bounds(problem.queries), problem.truth(problem.queries))


@pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision for the ground truth")
def test_band_contains_a_function_where_it_has_the_largest_slope():
    """One kernel is steepest a lengthscale from its centre: there, constant times distance is all but attained."""
    closest = np.inf
    for number in range(300):
        rng = np.random.default_rng([8, number])
        n_dims = int(rng.integers(1, 5))
        scales = np.exp(rng.uniform(-2, 2, n_dims))
        kernel, centre = rc.SquaredExponential(scales), rng.uniform(-1, 1, (1, n_dims))
        weight = LONG(rng.normal() * 10.0 ** rng.uniform(-2, 2))
        direction = rng.normal(size=n_dims)
        direction *= scales / np.linalg.norm(direction)
        along = 1.0 + rng.uniform(-1, 1, (14, 1)) * 10.0 ** rng.uniform(-8, -1)
        X, queries = np.split(centre + along * direction, [10])
        truth = weight * long_kernel(kernel, queries, centre)[:, 0]
        f = weight * long_kernel(kernel, X, centre)[:, 0]
        y = np.asarray(f, dtype=float)
        noise_bound = np.array([round_up(error) for error in np.abs(y - f) + LONG(1e-18) * abs(weight)])
        slope = round_up(abs(weight) * np.exp(LONG(-0.5)))
        envelope = rc.LipschitzEnvelope(
            rc.Observations(X, y, noise_bound), kernel, 2.0 * round_up(abs(weight)), constant=slope, scales=scales
        )
        band = envelope.bounds(queries)
        assert_contains(band, truth)
        closest = min(closest, *((np.asarray(band.upper, LONG) - truth) / abs(weight)))
    assert closest < 1e-14


def test_bounds_are_the_lowest_of_all_cones(data, queries):
    """Against the formula as stated, written down again."""
    distances = np.sqrt(2.0 * (1.0 - KERNEL(queries, data.X)))
    plain = rc.LipschitzEnvelope(data, KERNEL, 6.0).bounds(queries)
    np.testing.assert_allclose(plain.upper, np.minimum((data.upper + 6.0 * distances).min(axis=1), 6.0), rtol=1e-7)
    np.testing.assert_allclose(plain.lower, np.maximum((data.lower - 6.0 * distances).max(axis=1), -6.0), rtol=1e-7)
    euclidean = np.linalg.norm(queries[:, None] - data.X[None], axis=-1)
    known = rc.LipschitzEnvelope(data, KERNEL, 6.0, constant=2.5).bounds(queries)
    np.testing.assert_allclose(known.upper, np.minimum(plain.upper, (data.upper + 2.5 * euclidean).min(axis=1)))
    assert (known.width[:20] < plain.width[:20]).all()


def test_optimal_band_lies_inside(data, queries):
    optimal = rc.OptimalEnvelope(data, KERNEL, 6.0).bounds(queries)
    single = rc.LipschitzEnvelope(data, KERNEL, 6.0).bounds(queries)
    assert (single.lower <= optimal.lower + optimal.gap).all()
    assert (optimal.upper - optimal.gap <= single.upper).all()
    assert single.width.mean() > 1.5 * optimal.width.mean()


def test_witness_of_a_bound_proves_it(data, queries):
    envelope = rc.LipschitzEnvelope(data, KERNEL, 6.0)
    band = envelope.bounds(queries)
    for x, bound, (_, above) in zip(queries, band.upper, band.witnesses, strict=True):
        assert above.weights.tolist() in ([], [1.0])
        value, _ = above.upper_value(rc.Points.value(x), envelope.gram, data.lower, data.upper, 6.0)
        assert value == bound
    known = rc.LipschitzEnvelope(data, KERNEL, 6.0, constant=2.5).bounds(queries[:1])
    assert known.witness(0)[1] is None


def test_derivatives_and_differences_are_bounded_by_the_norm_alone(data):
    envelope = rc.LipschitzEnvelope(data, KERNEL, 6.0)
    a, b = np.zeros(2), np.array([0.1, 0.0])
    band = envelope.functional_bounds([rc.Derivative(a, 0), rc.Points.difference(a, b)])
    expected = [6.0 / 0.7, 6.0 * np.sqrt(2.0 * (1.0 - np.exp(-0.5 * (0.1 / 0.7) ** 2)))]
    np.testing.assert_allclose(band.upper, expected, rtol=1e-9)
    np.testing.assert_allclose(band.lower, -band.upper)


def test_ends_that_are_not_known_say_nothing():
    data = rc.Observations.from_intervals([0.0, 1.0], [0.5, -np.inf], [np.inf, 0.7])
    band = rc.LipschitzEnvelope(data, rc.SquaredExponential(1.0), 2.0).bounds([0.0, 1.0])
    assert band.lower[0] == pytest.approx(0.5, abs=1e-12)
    assert band.upper[1] == pytest.approx(0.7, abs=1e-12)
    assert band.upper[0] > 1.0 > -1.0 > band.lower[1]


def test_constant_that_two_samples_refute_is_refused():
    data = rc.Observations([0.0, 2.0], [0.0, 3.0], 0.5)  # changes by at least 2 over a distance of 2
    kernel = rc.SquaredExponential(1.0)
    rc.LipschitzEnvelope(data, kernel, 50.0, constant=1.0)
    with pytest.raises(rc.InputError, match=r"constant 0.99 is refuted by the data: .* changes by at least 1 per unit"):
        rc.LipschitzEnvelope(data, kernel, 50.0, constant=0.99)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constant": 0.0}, "constant must be a number above zero"),
        ({"constant": 3.0, "scales": [1.0, 2.0, 3.0]}, r"scales must have shape \(2,\)"),
        ({"constant": 3.0, "scales": [1.0, 0.0]}, r"scales\[1\] must be a number above zero"),
    ],
)
def test_wrong_settings_are_refused_by_name(options, message, data):
    with pytest.raises(rc.InputError, match=message):
        rc.LipschitzEnvelope(data, KERNEL, 6.0, **options)
