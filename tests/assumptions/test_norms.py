"""Norm bounds: estimates, the consistency frontier, provenance."""

import math
from dataclasses import dataclass
from typing import ClassVar

import cvxpy
import numpy as np
import pytest
from flint import arb, ctx
from problems import ball_kernel, random_design, random_kernel, random_problem, round_up

import rkhs_control as rc

KERNEL = rc.SquaredExponential(0.6)


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (40, 2))
    return rc.Observations(X, np.sin(3 * X[:, 0]) + X[:, 1] + rng.uniform(-0.1, 0.1, 40), 0.1)


def least_norm_by_cvxpy(data, widening=0.0):
    """The minimum-norm regressor as a quadratic programme."""
    root = np.linalg.cholesky(KERNEL(data.X) + 1e-13 * np.eye(len(data)))
    z = cvxpy.Variable(len(data))
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.norm(z)), [root @ z <= data.upper + widening, root @ z >= data.lower - widening]
    )
    return problem.solve(solver="CLARABEL")


def test_least_norm_is_the_optimum_of_the_quadratic_programme(data):
    assert math.isclose(rc.least_norm_estimate(data, KERNEL).value, least_norm_by_cvxpy(data), rel_tol=1e-6)


def test_minimum_norm_model_passes_through_all_intervals_with_that_norm(data):
    model = rc.minimum_norm(data, KERNEL)
    values = model(data.X)
    assert (values <= data.upper + 1e-9).all()
    assert (values >= data.lower - 1e-9).all()
    assert math.isclose(model.norm, rc.least_norm_estimate(data, KERNEL).value, rel_tol=1e-8)


def test_minimum_norm_model_lies_inside_the_optimal_envelope(data, rng):
    queries = rng.uniform(-1, 1, (20, 2))
    bound = rc.least_norm_estimate(data, KERNEL).times(1.5)
    band = rc.OptimalEnvelope(data, KERNEL, bound).bounds(queries)
    assert (
        (band.lower <= rc.minimum_norm(data, KERNEL)(queries)) & (rc.minimum_norm(data, KERNEL)(queries) <= band.upper)
    ).all()


def test_frontier_is_the_least_norm_for_every_noise_bound(data):
    noise_bounds, least_norms = rc.consistency_frontier(data, KERNEL, down_to=0.05)
    assert noise_bounds[0] >= np.abs(data.centre).max() - 1e-9
    assert least_norms[0] == 0.0
    assert math.isclose(noise_bounds[-1], 0.05, rel_tol=1e-9)
    assert (np.diff(noise_bounds) <= 0).all()
    assert (np.diff(least_norms) >= -1e-9).all()
    for i in range(3, len(noise_bounds), len(noise_bounds) // 4):
        by_cvxpy = least_norm_by_cvxpy(data, widening=noise_bounds[i] - 0.1)
        assert math.isclose(least_norms[i], by_cvxpy, rel_tol=1e-4)


def test_frontier_refutes_what_lies_below_it(data):
    frontier = rc.consistency_frontier(data, KERNEL)
    least = rc.least_norm_estimate(data, KERNEL).value
    assert frontier.refutes(0.1, 0.9 * least)
    assert not frontier.refutes(0.1, 1.01 * least)
    assert frontier.least_norm_at(1e3) == 0.0
    with pytest.raises(rc.InputError, match=r"followed down to the noise bound 0\.1"):
        frontier.least_norm_at(0.01)
    with pytest.raises(rc.InputError, match=r"followed down to the noise bound 0\.1"):
        frontier.refutes(0.01, 1.0)
    further = rc.consistency_frontier(data, KERNEL, down_to=0.05)
    narrower = rc.least_norm_estimate(rc.Observations(data.X, data.centre, 0.05), KERNEL).value
    assert narrower > 1.1 * least
    assert further.refutes(0.05, 0.99 * narrower)
    assert not further.refutes(0.05, 1.01 * narrower)


def data_of_known_least_norm(rng):
    """A function on the ends of its intervals, lower where its weights are positive: no other has so small a norm."""
    n_dims = int(rng.integers(1, 4))
    kernel, X = random_kernel(rng, n_dims), np.unique(random_design(rng, int(rng.integers(2, 15)), n_dims), axis=0)
    weights = rng.normal(size=len(X))
    balls = [arb(float(w)) for w in weights]
    values = [sum((w * ball_kernel(kernel, x, p) for w, p in zip(balls, X, strict=True)), arb(0)) for x in X]
    norm = sum((w * value for w, value in zip(balls, values, strict=True)), arb(0)).sqrt()
    centre = np.array([float(value) for value in values])
    y = centre + np.sign(weights) * np.abs(centre).max() * 10.0 ** rng.uniform(-6, 0)
    errors = [abs(arb(float(output)) - value) for output, value in zip(y, values, strict=True)]
    return rc.Observations(X, y, max(round_up(float(error.upper())) for error in errors)), kernel, norm


def test_the_frontier_never_says_more_than_the_norm_of_a_function_that_fits():
    """Not even by a hair, as what is read off the path does in one case out of seven."""
    ctx.prec = 300
    off = 0
    for number in range(100):
        data, kernel, norm = data_of_known_least_norm(np.random.default_rng([9, number]))
        frontier = rc.consistency_frontier(data, kernel)
        assert arb(frontier.least_norm_at(data.noise_bound)) <= norm
        wider = data.noise_bound * np.geomspace(1.0, 2.0, 5)
        assert all(arb(float(least)) <= norm for least in frontier.least_norms_at(wider))
        off += frontier.least_norm_at(data.noise_bound) < 0.999 * float(norm)
    assert off <= 5  # where inputs are so close together that rounding hides the norm


def test_the_frontier_of_many_noise_bounds_is_proved_and_touches_that_of_one(data):
    frontier = rc.consistency_frontier(data, KERNEL, down_to=0.08)
    wanted = np.geomspace(0.08, 3.0, 40)
    drawn, proved = frontier.least_norms_at(wanted), np.array([frontier.least_norm_at(d) for d in wanted])
    assert (drawn <= proved * (1 + 1e-9)).all()
    assert (drawn >= 0.98 * proved).all()
    assert (np.diff(drawn) <= 0).all()
    with pytest.raises(rc.InputError, match=r"followed down to the noise bound 0\.08"):
        frontier.least_norms_at([0.1, 0.01])


def test_frontier_never_refutes_what_the_data_just_allow(rng):
    """Two outputs at one input, and the least noise bound under which they agree, however it is rounded."""
    for _ in range(300):
        low, high = np.sort(rng.uniform(-1, 1, 2))
        noise = rng.uniform(1, 2)
        least = np.nextafter((high - low) / 2.0, np.inf)
        frontier = rc.consistency_frontier(rc.Observations([0.0, 0.0], [low, high], noise), KERNEL, down_to=least)
        assert not frontier.refutes(max(least, frontier.noise_bounds[-1]), 1e9)


def test_frontier_never_refutes_a_function_through_nearly_noise_free_samples(rng):
    """Far below the noise level norms are large, and the path loses digits."""
    for _ in range(10):
        truth = rc.KernelModel(rng.uniform(0, 5, (20, 1)), rc.SquaredExponential(0.8), rng.normal(size=20))
        X = rng.uniform(0, 5, (40, 1))
        data = rc.Observations(X, truth(X), 1e-3)
        assert not rc.consistency_frontier(data, truth.kernel, down_to=1e-9).refutes(1e-9, truth.norm)


def test_noise_free_estimate_stays_below_the_true_norm_where_samples_nearly_depend_on_each_other():
    for number in range(40):
        rng = np.random.default_rng([5, number])
        truth = rc.KernelModel(rng.uniform(0, 10, (25, 1)), rc.SquaredExponential(0.4), rng.normal(size=25))
        X = rng.uniform(0, 10, (80, 1))
        assert rc.norm_growth(X, truth(X), truth.kernel).norms[-1] <= truth.norm * (1 + 1e-6)
    even = np.linspace(-1, 1, 61)[:, None]  # so many inputs that no factor of their kernel matrix can be trusted
    for number in range(40):
        rng = np.random.default_rng([6, number])
        truth = rc.KernelModel(rng.uniform(-1, 1, (5, 1)), rc.SquaredExponential(0.4), rng.normal(size=5))
        assert rc.norm_growth(even, truth(even), truth.kernel).norms[-1] <= truth.norm * (1 + 1e-6)


@dataclass(frozen=True)
class Coarse(rc.SquaredExponential):
    """As inaccurate as it says it may be, always in the same direction."""

    ulps: ClassVar[int] = 1000

    def fall_profile(self, s):
        return super().fall_profile(s) * (1.0 + 1500 * 2.0**-53)

    precise_fall_profile = rc.Radial.precise_fall_profile


def test_noise_free_estimate_allows_for_errors_of_kernel_values_as_large_as_the_variance():
    """Samples so far apart that kernel values are next to nothing: their errors are not."""
    X = 20.0 * np.arange(400.0)[:, None]
    norms = rc.norm_growth(X, np.ones(400), Coarse(1.0)).norms
    exact = np.sqrt(np.arange(1, 401))  # but for exp(-200)
    assert (norms <= exact).all()
    assert (norms >= exact * (1 - 1e-9)).all()


def test_frontier_never_refutes_the_truth():
    for number in range(60):
        problem = random_problem(np.random.default_rng([20, number]))
        frontier = rc.consistency_frontier(problem.data, problem.kernel)
        assert not frontier.refutes(problem.data.noise_bound, problem.norm)


def test_frontier_stops_before_the_data_contradict(rng):
    data = rc.Observations([0.0, 0.0], [0.0, 0.1], 0.1)
    with pytest.raises(rc.ContradictoryDataError, match=r"least that does not is 0\.05"):
        rc.consistency_frontier(data, KERNEL, down_to=0.01)
    with pytest.raises(rc.InputError, match="down_to must be"):
        rc.consistency_frontier(data, KERNEL, down_to=np.nan)


def test_noise_free_estimate_grows_towards_the_true_norm(rng):
    centres, weights = rng.uniform(-1, 1, (6, 2)), rng.normal(size=6)
    truth = rc.KernelModel(centres, KERNEL, weights)
    X = np.vstack([rng.uniform(-1, 1, (60, 2)), centres])
    growth = rc.norm_growth(X, truth(X), KERNEL)
    assert (np.diff(growth.norms) >= 0).all()
    assert (growth.norms <= truth.norm * (1 + 1e-6)).all()
    assert growth.norms[-1] > 0.99 * truth.norm
    expected = math.sqrt(truth(X[:5]) @ np.linalg.solve(KERNEL(X[:5]), truth(X[:5])))
    assert math.isclose(growth.norms[4], expected, rel_tol=1e-6)


def test_provenance_tells_where_a_bound_comes_from(data):
    bound = rc.least_norm_estimate(data, KERNEL).times(1.2)
    assert bound.provenance.startswith("least norm through 40 intervals")
    assert bound.provenance.endswith("times 1.2")
    assert rc.NormBound(3.0).provenance == "given"
    assert rc.OptimalEnvelope(data, KERNEL, bound).norm_bound is bound
    growth = rc.norm_growth(data.X, data.centre, KERNEL).estimate
    assert "interpolant of 40 samples taken as noise-free" in growth.provenance


def test_the_estimate_itself_is_never_refuted():
    for number in range(60):
        problem = random_problem(np.random.default_rng([21, number]))
        rc.OptimalEnvelope(problem.data, problem.kernel, rc.least_norm_estimate(problem.data, problem.kernel))
