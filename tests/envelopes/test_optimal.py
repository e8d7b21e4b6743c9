"""Optimality: the bounds are the tightest there are, and say how near they come."""

import pickle

import joblib
import numpy as np
import pytest
from problems import random_problem

import rkhs_control as rc
from rkhs_control.engine import gram


def well_posed(rng, n=60, n_dims=2, lengthscale=0.7, noise=0.05, norm_factor=1.3):
    """A problem that doubles can resolve."""
    kernel = rc.SquaredExponential(lengthscale)
    X, centres = rng.uniform(-1, 1, (n, n_dims)), rng.uniform(-1, 1, (8, n_dims))
    weights = rng.normal(size=8)
    norm = np.sqrt(weights @ kernel(centres) @ weights)
    y = kernel(X, centres) @ weights + rng.uniform(-noise, noise, n)
    return rc.Observations(X, y, noise), kernel, norm_factor * norm


def test_gap_is_small_on_well_posed_problems(rng):
    for _ in range(10):
        band = rc.OptimalEnvelope(*well_posed(rng)).bounds(rng.uniform(-1, 1, (20, 2)))
        assert band.relative_gap.max() < 1e-7


def test_bounds_equal_those_of_the_conic_programmes(rng):
    data, kernel, norm_bound = well_posed(rng, n=25)
    queries = np.vstack([rng.uniform(-1, 1, (3, 2)), data.X[:1]])
    optimal = rc.OptimalEnvelope(data, kernel, norm_bound).bounds(queries)
    for formulation in ("primal", "dual"):
        conic = rc.ConicEnvelope(data, kernel, norm_bound, formulation=formulation).bounds(queries)
        np.testing.assert_allclose(optimal.upper, conic.upper, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(optimal.lower, conic.lower, rtol=1e-5, atol=1e-6)


def test_worst_case_at_a_datum_is_its_own_interval_when_the_norm_bound_is_loose(rng):
    data, kernel, norm_bound = well_posed(rng, n=5)
    band = rc.OptimalEnvelope(data, kernel, 100 * norm_bound).bounds(data.X)
    np.testing.assert_allclose(band.upper, data.upper, rtol=1e-14)
    np.testing.assert_allclose(band.lower, data.lower, rtol=1e-14)
    assert band.gap.max() < 1e-9


def test_two_opposite_samples_recover_the_truth():
    data = rc.Observations([[0.0], [1.0]], [[1.5, 0.5], [0.0]], noise_bound=0.5)
    band = rc.OptimalEnvelope(data, rc.SquaredExponential(1.0), 10.0).bounds([[0.0]])
    assert band.lower[0] <= 1.0 <= band.upper[0]
    assert band.width[0] < 1e-12


def test_a_sample_outside_the_band_halves_the_width():
    """Proposition 1: where an output lies outside, the width is at most the noise bound."""
    kernel = rc.SquaredExponential(1.0)
    X = np.linspace(0, 1, 5)[:, None]
    data = rc.Observations(X, [0.0, 0.0, 0.9, 0.0, 0.0], noise_bound=0.6)
    norm_bound = rc.least_norm_estimate(data, kernel).times(1.05)
    band = rc.OptimalEnvelope(data, kernel, norm_bound).bounds(X)
    assert band.upper[2] < 0.9
    assert band.width[2] <= 0.6


@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-13])
def test_queries_next_to_a_datum_keep_a_small_gap(rng, distance):
    data, kernel, norm_bound = well_posed(rng)
    queries = data.X[:20] + distance * rng.normal(size=(20, 2))
    envelope = rc.OptimalEnvelope(data, kernel, norm_bound)
    band = envelope.bounds(queries)
    assert (band.gap / norm_bound).max() < 1e-6
    at_data = envelope.bounds(data.X[:20])
    slack = norm_bound * np.sqrt(2 * kernel.fall(queries, data.X[:20]).diagonal()) + 1e-6 * norm_bound
    assert (np.abs(band.upper - at_data.upper) <= slack).all()


def test_more_data_never_widens_a_bound_beyond_its_gap():
    for number in range(40):
        rng = np.random.default_rng([9, number])
        problem = random_problem(rng)
        if len(problem.data) < 3:
            continue
        part = problem.data.subset(np.arange(len(problem.data)) % 3 != 0)
        small = rc.OptimalEnvelope(part, problem.kernel, 1.5 * problem.norm).bounds(problem.queries)
        large = rc.OptimalEnvelope(problem.data, problem.kernel, 1.5 * problem.norm).bounds(problem.queries)
        assert (large.upper <= small.upper + large.gap).all()
        assert (large.lower >= small.lower - large.gap).all()


def test_optimal_band_lies_inside_every_other_deterministic_band():
    for number in range(60):
        rng = np.random.default_rng([10, number])
        problem = random_problem(rng)
        assumptions = (problem.data, problem.kernel, 1.3 * problem.norm)
        optimal = rc.OptimalEnvelope(*assumptions).bounds(problem.queries)
        models = [
            None,
            rc.minimum_norm(problem.data, problem.kernel),
            rc.kernel_ridge(problem.data, problem.kernel, 0.1),
        ]
        models.append(rc.KernelModel(problem.data.X, problem.kernel, rng.normal(size=len(problem.data))))
        others = [rc.ClosedFormEnvelope(*assumptions, model=model) for model in models]
        others += [rc.EnergyEnvelope(*assumptions), rc.AlternatingEnvelope(*assumptions, iterations=3)]
        for other in others:
            band = other.bounds(problem.queries)
            assert (optimal.upper <= band.upper + optimal.gap).all()
            assert (optimal.lower >= band.lower - optimal.gap).all()


def test_nugget_only_widens(rng):
    data, kernel, norm_bound = well_posed(rng)
    queries = rng.uniform(-1, 1, (20, 2))
    without = rc.OptimalEnvelope(data, kernel, norm_bound).bounds(queries)
    with_nugget = rc.OptimalEnvelope(data, kernel, norm_bound, nugget=1e-4).bounds(queries)
    assert (with_nugget.upper > without.upper).all()
    assert (with_nugget.lower < without.lower).all()


def test_gradient_agrees_with_finite_differences(rng):
    envelope = rc.OptimalEnvelope(*well_posed(rng))
    queries = rng.uniform(-0.9, 0.9, (8, 2))
    band = envelope.bounds_with_gradient(queries)
    step = 1e-5
    for j in range(2):
        shift = step * np.eye(2)[j]
        ahead, behind = envelope.bounds(queries + shift), envelope.bounds(queries - shift)
        for name in ("upper", "lower"):
            difference = (getattr(ahead, name) - getattr(behind, name)) / (2 * step)
            np.testing.assert_allclose(getattr(band, f"{name}_gradient")[:, j], difference, rtol=1e-3, atol=1e-3)


def test_witness_alone_proves_the_bound(rng):
    """Evaluate the witness by the formula, in plain numpy: it is the reported bound, up to rounding."""
    data, kernel, norm_bound = well_posed(rng)
    query = rng.uniform(-1, 1, (1, 2))
    band = rc.OptimalEnvelope(data, kernel, norm_bound).bounds(query)
    for witness, lower, upper, bound in zip(
        band.witness(0),
        (-data.upper, data.lower),
        (-data.lower, data.upper),
        (-band.lower[0], band.upper[0]),
        strict=True,
    ):
        A, w = data.X[witness.indices], witness.weights
        square = kernel(query, query)[0, 0] - 2 * kernel(query, A)[0] @ w + w @ kernel(A, A) @ w
        ends = np.where(w > 0, upper[witness.indices], lower[witness.indices])
        value = norm_bound * np.sqrt(square) + ends @ w
        assert abs(bound - value) < 1e-9 * abs(value)
        assert len(w) < len(data)


def test_neighbouring_queries_do_not_depend_on_their_order(rng):
    envelope = rc.OptimalEnvelope(*well_posed(rng))
    line = np.linspace([-1, -0.5], [1, 0.7], 60)
    together = envelope.bounds(line)
    alone = [envelope.bounds(x[None, :]) for x in line]
    np.testing.assert_allclose(together.upper, [b.upper[0] for b in alone], rtol=1e-8)
    np.testing.assert_allclose(together.lower, [b.lower[0] for b in alone], rtol=1e-8)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_bounds_equal_serial_ones(rng, backend):
    envelope = rc.OptimalEnvelope(*well_posed(rng))
    queries = rng.uniform(-1, 1, (12, 2))
    with joblib.parallel_config(backend=backend, n_jobs=2):
        parallel = envelope.bounds(queries)
    serial = envelope.bounds(queries)
    np.testing.assert_allclose(parallel.upper, serial.upper, rtol=1e-8)
    np.testing.assert_allclose(parallel.lower, serial.lower, rtol=1e-8)


def test_working_set_equals_the_whole_matrix(rng, monkeypatch):
    """Data that are too many for a matrix go another way through the code, to the same bounds."""
    assumptions = well_posed(rng, n=700, n_dims=3, lengthscale=0.6, noise=0.3)
    queries = rng.uniform(-1, 1, (4, 3))
    dense = rc.OptimalEnvelope(*assumptions).bounds(queries)
    monkeypatch.setattr(gram, "DENSE_LIMIT", 100)
    envelope = rc.OptimalEnvelope(*assumptions)
    assert not envelope.gram.is_dense
    sparse = pickle.loads(pickle.dumps(envelope)).bounds(queries)
    np.testing.assert_allclose(sparse.upper, dense.upper, rtol=1e-7)
    np.testing.assert_allclose(sparse.lower, dense.lower, rtol=1e-7)
    assert sparse.relative_gap.max() < 1e-7


def test_near_duplicates_that_make_the_matrix_singular_still_give_a_small_gap(rng):
    X = np.repeat(rng.uniform(-1, 1, (15, 2)), 3, axis=0)
    X += 1e-9 * rng.normal(size=X.shape)
    kernel = rc.SquaredExponential(2.0)
    y = np.sin(X[:, 0]) + rng.uniform(-0.05, 0.05, len(X))
    data = rc.Observations(X, y, 0.05)
    norm_bound = rc.least_norm_estimate(data, kernel).times(2.0)
    band = rc.OptimalEnvelope(data, kernel, norm_bound).bounds(rng.uniform(-1, 1, (20, 2)))
    assert band.relative_gap.max() < 1e-4


def test_norm_bound_below_the_frontier_is_refused_with_the_amount(rng):
    data, kernel, _ = well_posed(rng)
    least = rc.least_norm_estimate(data, kernel)
    with pytest.raises(rc.FalsifiedNormBoundError, match="at least") as caught:
        rc.OptimalEnvelope(data, kernel, 0.5 * least.value)
    assert f"{least.value:.6g}"[:5] in str(caught.value)
    rc.OptimalEnvelope(data, kernel, least.times(1.0001))


def test_wrong_queries_are_refused_by_name(rng):
    envelope = rc.OptimalEnvelope(*well_posed(rng))
    with pytest.raises(rc.InputError, match="Xq must have 2 columns"):
        envelope.bounds(np.zeros((3, 5)))
    with pytest.raises(rc.InputError, match="row 1, column 0 is nan"):
        envelope.bounds([[0.0, 0.0], [np.nan, 0.0]])
    assert len(envelope.bounds(np.empty((0, 2)))) == 0


def test_nowhere_differentiable_kernels_have_no_sensitivities(rng):
    data, _, norm_bound = well_posed(rng)
    with pytest.raises(rc.InputError, match="Matern12 need not be differentiable"):
        rc.OptimalEnvelope(data, rc.Matern12(1.0), 100 * norm_bound).derivative_bounds([[0.0, 0.0]])


def test_many_data_are_not_followed_along_ever_safer_matrices_that_do_not_help(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 2.0, (2200, 2))
    data = rc.Observations(X, 0.6 * X[:, 0] + 0.3 * np.sin(X[:, 1]) + rng.uniform(-0.05, 0.05, len(X)), 0.06)
    envelope = rc.OptimalEnvelope(data, rc.SquaredExponential(20.0), 2000.0)  # rounding hides what is so smooth
    ends = []
    follow = rc.OptimalEnvelope._worst_case

    def counted(self, *arguments):
        ends.append(follow(self, *arguments))
        return ends[-1]

    monkeypatch.setattr(rc.OptimalEnvelope, "_worst_case", counted)
    query = np.array([[1.1, 0.7]])
    band = envelope.bounds(query)
    assert max(len(end.active.order) for end in ends) < 500
    truth = 0.6 * query[0, 0] + 0.3 * np.sin(query[0, 1])
    assert band.lower[0] <= truth <= band.upper[0]
