"""Optimisation under unknown constraints: what it returns, and every step to it, keeps them; nothing cheaper does."""

import numpy as np
import pytest
from problems import LONG, long_kernel, random_problem

import rkhs_control as rc
from rkhs_control.models import henon
from rkhs_control.scenarios.paper import rto

DOMAIN = rc.Box([-10.0, -10.0], [10.0, 10.0])


@pytest.fixture(scope="module")
def envelope():
    return rto.envelope_of(rto.paper_samples("grid", 81)[0])


@pytest.fixture(scope="module")
def optimum(envelope):
    return rc.minimise(rto.cost, envelope <= rto.LIMIT, DOMAIN)


def test_every_iterate_is_certified_and_cheaper_than_the_last(envelope, optimum):
    assert optimum.success
    assert len(optimum.iterates) > 3
    assert (envelope.bounds(optimum.iterates).upper <= rto.LIMIT).all()
    assert (henon.truth(optimum.iterates) <= rto.LIMIT).all()
    assert (np.diff(optimum.iterate_costs) < 0).all()
    np.testing.assert_array_equal(optimum.iterates[-1], optimum.x)
    np.testing.assert_array_equal(optimum.iterate_costs, [rto.cost(z) for z in optimum.iterates])


def test_witness_proves_the_bound_at_the_optimum(envelope, optimum):
    (witness,) = optimum.witnesses
    value, _ = witness.upper_value(
        rc.Points.value(optimum.x), envelope.gram, envelope.data.lower, envelope.data.upper, envelope.radius
    )
    assert value <= rto.LIMIT


def test_nothing_certified_is_cheaper(envelope, optimum, rng):
    """Neither nearby nor all over the part of the domain that costs less."""
    nearby = optimum.x + rng.normal(size=(200, 2)) * 10.0 ** rng.uniform(-5, 0, (200, 1))
    radius, angle = np.sqrt(optimum.cost * rng.uniform(0, 1, 400)), rng.uniform(0, 2 * np.pi, 400)
    disc = np.array([1.0, 5.0]) + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    points = np.concatenate([nearby, disc])
    certified = (envelope <= rto.LIMIT).margins(points) >= 0
    assert 0 < certified.sum() < len(points)
    assert min(rto.cost(z) for z in points[certified]) >= optimum.cost - 1e-5
    assert optimum.stationarity < 1e-4


def test_multiplier_is_what_a_relaxed_limit_gains(envelope, optimum):
    step = 1e-3
    costs = [
        rc.minimise(rto.cost, envelope <= rto.LIMIT + change, DOMAIN, start=optimum.x).cost for change in (-step, step)
    ]
    assert optimum.active.tolist() == [True]
    np.testing.assert_allclose(optimum.multipliers[0], (costs[0] - costs[1]) / (2 * step), rtol=1e-3)


def test_a_given_gradient_changes_nothing(envelope, optimum):
    exact = rc.minimise(rto.cost, envelope <= rto.LIMIT, DOMAIN, gradient=rto.cost_gradient)
    np.testing.assert_allclose(exact.cost, optimum.cost, rtol=1e-6)


def test_gradients_of_the_bound_are_those_of_finite_differences(envelope):
    constraint = envelope <= rto.LIMIT
    for z in ([4.1, 5.3], [-6.0, 1.0], [8.0, -7.7]):
        band = envelope.bounds_with_gradient([z])
        for j in range(2):
            step = np.zeros(2)
            step[j] = 1e-4
            ahead, behind = constraint.margins([z + step, z - step])
            np.testing.assert_allclose(band.upper_gradient[0, j], (behind - ahead) / 2e-4, rtol=1e-4, atol=1e-5)


def test_a_floor_is_a_ceiling_of_the_negated_function(envelope, optimum):
    X, y = rto.paper_samples("grid", 81)[0]
    mirrored = rc.minimise(rto.cost, rto.envelope_of((X, -y)) >= -rto.LIMIT, DOMAIN)
    np.testing.assert_allclose(mirrored.x, optimum.x, atol=1e-6)
    assert str(mirrored.constraints[0]) == "f >= 10"


@pytest.mark.parametrize("case", range(12))
def test_no_known_function_escapes(case):
    """Two limits on ground truths of known norm, evaluated in extended precision."""
    rng = np.random.default_rng([4, case])
    problem = random_problem(rng, smooth=True, n_most=40)
    envelope = rc.OptimalEnvelope(problem.data, problem.kernel, problem.norm)
    n_dims, target = problem.data.n_dims, rng.uniform(-1, 1, problem.data.n_dims)
    middle = problem.data.centre
    low, high = np.quantile(middle, 0.1) - problem.data.noise_bound, np.quantile(middle, 0.8) + problem.data.noise_bound
    found = rc.minimise(
        lambda x: float(np.sum((x - target) ** 2)),
        [envelope >= low, envelope <= high],
        rc.Box(-np.ones(n_dims), np.ones(n_dims)),
        n_scan=40,
        n_starts=2,
    )
    assert found.success == (len(found.iterates) > 0)
    if found.success:
        values = long_kernel(problem.kernel, found.iterates, problem.centres) @ problem.weights
        assert ((LONG(low) <= values) & (values <= LONG(high))).all()


def test_known_functions_are_mostly_found_feasible():
    """So that the claim above is not an empty one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30, 2))
    centres, weights = rng.uniform(-1, 1, (5, 2)), rng.normal(size=5)
    kernel = rc.SquaredExponential(0.8)
    truth = kernel(X, centres) @ weights
    norm = float(np.sqrt(weights @ kernel(centres) @ weights))
    envelope = rc.OptimalEnvelope(rc.Observations(X, truth, 0.01), kernel, 1.1 * norm)
    limit = float(np.median(truth))
    found = rc.minimise(lambda x: float(x @ x), [envelope <= limit, envelope >= -5.0], rc.Box([-1, -1], [1, 1]))
    assert found.success
    assert kernel(found.x[None], centres)[0] @ weights <= limit
    assert found.active.tolist() == [True, False]


def test_a_cost_that_the_constraint_does_not_hinder_is_minimised_freely(envelope):
    found = rc.minimise(lambda z: float((z[0] - 8) ** 2 + (z[1] - 2) ** 2), envelope <= rto.LIMIT, DOMAIN)
    np.testing.assert_allclose(found.x, [8.0, 2.0], atol=1e-5)
    assert not found.active.any()
    assert "not held back" in found.explain()


def test_sides_of_the_box_are_kept(envelope):
    box = rc.Box([6.5, -10.0], [8.0, 2.0])
    found = rc.minimise(lambda z: float(z[0] - z[1]), envelope <= rto.LIMIT, box)
    assert found.success
    assert box.contains(found.iterates).all()
    assert found.x.tolist() == [6.5, 2.0]
    assert not found.active.any()
    assert found.stationarity < 1e-9


def test_from_a_start_that_is_not_certified_the_search_is_led_to_where_it_is(envelope, optimum):
    start = np.array([3.0, 5.0])
    assert (envelope <= rto.LIMIT).margins(start)[0] < 0
    found = rc.minimise(rto.cost, envelope <= rto.LIMIT, DOMAIN, start=start)
    assert found.success
    assert (envelope.bounds(found.iterates).upper <= rto.LIMIT).all()
    np.testing.assert_allclose(found.cost, optimum.cost, rtol=1e-5)


def test_where_nothing_is_certified_the_answer_says_so(envelope):
    found = rc.minimise(rto.cost, envelope <= -500.0, DOMAIN, n_scan=20, n_starts=2)
    assert not found.success
    assert found.margins[0] < 0
    assert len(found.iterates) == found.n_starts == 0
    assert "no point was found" in found.explain()
    # it lacks no more than the data do
    assert found.margins[0] >= (envelope <= -500.0).margins(envelope.data.X).max() - 1e-6


def test_progress_is_told_to_the_end(envelope):
    told = []
    rc.minimise(rto.cost, envelope <= rto.LIMIT, DOMAIN, n_starts=3, progress=lambda *pair: told.append(pair))
    assert [done for done, _ in told] == [1, 2, 3, 4]
    assert told[-1] == (4, 4)


def test_wrong_arguments_are_refused_by_name(envelope):
    with pytest.raises(rc.InputError, match="two limits are two constraints"):
        _ = -20.0 <= envelope <= -10.0
    with pytest.raises(rc.InputError, match="limit must be finite"):
        rc.Constraint(envelope, np.nan)
    with pytest.raises(rc.InputError, match="limit must be one number"):
        _ = envelope <= [1.0, 2.0]
    constraint = envelope <= rto.LIMIT
    with pytest.raises(rc.InputError, match="no unknown constraint"):
        rc.minimise(rto.cost, [], DOMAIN)
    with pytest.raises(rc.InputError, match="constraint 1 must be"):
        rc.minimise(rto.cost, [constraint, True], DOMAIN)
    with pytest.raises(rc.InputError, match="bounds have 1 dimensions, the data of constraint 0 have 2"):
        rc.minimise(rto.cost, constraint, rc.Box([0.0], [1.0]))
    with pytest.raises(rc.InputError, match=r"bounds\.upper must be finite"):
        rc.minimise(rto.cost, constraint, rc.Box([0.0, 0.0], [1.0, np.inf]))
    with pytest.raises(rc.InputError, match="start 0 lies outside bounds"):
        rc.minimise(rto.cost, constraint, DOMAIN, start=[11.0, 0.0])
    with pytest.raises(rc.InputError, match="cost must be a finite number"):
        rc.minimise(lambda z: np.nan, constraint, DOMAIN)
    with pytest.raises(rc.InputError, match="n_starts one or more"):
        rc.minimise(rto.cost, constraint, DOMAIN, n_starts=0)
    rough = rc.OptimalEnvelope(rc.Observations([[0.0], [1.0]], [0.0, 0.1], 0.1), rc.Matern12(1.0), 2.0)
    with pytest.raises(rc.InputError, match="Matern12 need not be differentiable"):
        rc.minimise(lambda x: float(x[0]), rough <= 1.0, rc.Box([0.0], [1.0]))
    for method, lacks in ((rc.ClosedFormEnvelope, "witnesses"), (rc.EnergyEnvelope, "gradients")):
        other = method(envelope.data, envelope.kernel, envelope.norm_bound)
        with pytest.raises(rc.InputError, match=f"there are no {lacks} of {method.__name__}; OptimalEnvelope has"):
            rc.minimise(rto.cost, other <= rto.LIMIT, DOMAIN)


def test_true_problem_has_the_printed_optimum():
    z, cost = rto.true_optimum()
    assert round(cost, 2) == rto.PRINTED_TRUE
    assert abs(henon.truth(z[None])[0] - rto.LIMIT) < 1e-6
    fine = henon.grid(1201)
    feasible = fine[henon.truth(fine) <= rto.LIMIT]
    assert cost <= np.min(np.sum((feasible - [1.0, 5.0]) ** 2, axis=1)) <= cost + 0.1


@pytest.mark.parametrize("n", [64, 81, 100])
def test_the_authors_search_on_their_grids_gives_the_printed_optima(n):
    (samples,) = rto.paper_samples("grid", n)
    assert abs(rto.search_as_printed(samples) - rto.PRINTED["grid"][n]) <= 0.01


def test_optimum_falls_as_nested_data_grow():
    samples = rto.paper_samples("random", 100)[0]
    optima = rto.nested_optima(samples, [np.arange(n) for n in (40, 64, 100)])
    assert rto.falls(optima)
    assert optima[0].cost > optima[-1].cost > rto.true_optimum()[1]
    assert not rto.falls(optima[::-1])


def test_nested_grids_are_nested():
    (Z, y), rows = rto.nested_grid(np.random.default_rng(0))
    assert [len(part) for part in rows] == [n * n for n in rto.NESTED_GRIDS]
    assert set(rows[0]) < set(rows[1]) < set(rows[2])
    np.testing.assert_allclose(Z[rows[1]], henon.grid(9))
    assert np.abs(y - henon.truth(Z)).max() <= rto.NOISE


def test_measuring_at_the_optimum_never_leaves_the_true_constraint():
    optima = rto.measured_optima(rto.paper_samples("grid", 64)[0], 4, np.random.default_rng(2))
    assert rto.falls(optima)
    assert optima[-1].cost < 0.8 * optima[0].cost
    assert max(henon.truth(o.iterates).max() for o in optima) <= rto.LIMIT
