"""The robust problem: what it returns is certified, dearer than what it could not certify, and no more than needed."""

from dataclasses import replace

import numpy as np
import pytest
from plants import ROBUST_START, raised

import rkhs_control as rc


@pytest.fixture(scope="module")
def predictor(exploring_predictor):
    return exploring_predictor


def test_a_plan_that_is_certified_already_is_the_answer(predictor, nominal):
    found = rc.RobustOCP(predictor, nominal, raised(predictor, nominal, -0.1)).solve(ROBUST_START)
    np.testing.assert_array_equal(found.inputs, nominal.solve(ROBUST_START).inputs)
    assert found.success
    assert found.price == 0.0
    assert found.iterations == 0


def test_where_the_plan_is_not_certified_another_is_found_at_a_price(plant, predictor, nominal):
    limits = raised(predictor, nominal, 0.15)
    assert (
        rc.certify(predictor, ROBUST_START, nominal.solve(ROBUST_START).inputs, state_limits=limits).verdict
        is rc.Verdict.UNDECIDED
    )
    found = rc.RobustOCP(predictor, nominal, limits).solve(ROBUST_START)
    assert found.success, found.certificate.explain()
    assert found.price > 0
    # by the certifier alone, and by the plant
    again = rc.certify(predictor, ROBUST_START, found.inputs, state_limits=limits, input_limits=plant.input_limits)
    assert again.verdict is rc.Verdict.CERTIFIED
    assert limits.contains(plant.simulate(ROBUST_START, found.inputs)[1:]).all()


def test_no_nearby_certified_plan_is_much_cheaper(predictor, nominal, rng):
    limits = raised(predictor, nominal, 0.15)
    found = rc.RobustOCP(predictor, nominal, limits).solve(ROBUST_START)
    for scale in (0.05, 0.3):
        nearby = nominal.input_limits.clip(found.inputs + rng.normal(0.0, scale, (100, 3, 1)))
        for certificate in rc.certify_plans(predictor, np.tile(ROBUST_START, (100, 1)), nearby, limits):
            if certificate.verdict is rc.Verdict.CERTIFIED:
                cost = nominal.predict(ROBUST_START, certificate.question.inputs)[1]
                assert cost > found.cost - 0.02 * abs(found.cost)


def test_repair_changes_no_more_than_the_cheapest_plan_does(predictor, nominal):
    limits = raised(predictor, nominal, 0.15)
    problem = rc.RobustOCP(predictor, nominal, limits)
    broken = nominal.solve(ROBUST_START).inputs
    repaired, cheapest = problem.repair(ROBUST_START, broken), problem.solve(ROBUST_START)
    assert repaired.success
    assert np.linalg.norm(repaired.inputs - broken) <= 1.02 * np.linalg.norm(cheapest.inputs - broken)
    assert problem.repair(ROBUST_START, cheapest.inputs).iterations == 0


@pytest.mark.parametrize("method", [rc.OptimalEnvelope, rc.ClosedFormEnvelope])
def test_gradients_are_those_of_finite_differences(predictor, nominal, method):
    model = predictor if method is rc.OptimalEnvelope else predictor.with_method(method, nugget=1e-4)
    limits = rc.Polytope([[1.0, 0.0], [0.0, -1.0], [0.5, -0.7]], [3.0, -0.5, 2.0])
    problem = rc.RobustOCP(model, nominal, limits)
    inputs = np.array([[12.0], [15.0], [17.0]])
    slopes = problem.gradients(rc.certify(model, ROBUST_START, inputs, state_limits=limits))
    assert slopes.shape == (3, 3, 3)
    for j in range(3):
        step = np.zeros((3, 1))
        step[j] = 1e-4
        margins = [
            rc.certify(model, ROBUST_START, inputs + sign * step, state_limits=limits).margins for sign in (1, -1)
        ]
        differences = -(margins[0] - margins[1]) / 2e-4
        np.testing.assert_allclose(slopes[:, :, j], differences, rtol=1e-5, atol=1e-6)


def test_closed_form_bounds_serve_as_well(plant, predictor, nominal):
    closed = predictor.with_method(rc.ClosedFormEnvelope, nugget=1e-4)
    limits = raised(closed, nominal, 0.1)
    found = rc.RobustOCP(closed, nominal, limits).solve(ROBUST_START)
    assert found.success, found.certificate.explain()
    assert found.iterations > 0


def test_input_rates_are_kept(predictor, nominal):
    rates = rc.Box([-0.2], [0.2])
    found = rc.RobustOCP(predictor, nominal, rc.Limits(raised(predictor, nominal, 0.1), rates=rates)).solve(
        ROBUST_START
    )
    assert found.success, found.certificate.explain()
    assert rates.contains(np.diff(found.inputs, axis=0)).all()


def test_uncertain_initial_states_cost_more(predictor, nominal):
    limits = raised(predictor, nominal, 0.05)
    exact = rc.RobustOCP(predictor, nominal, limits).solve(ROBUST_START)
    blurred = rc.RobustOCP(predictor, nominal, limits, initial_state_noise=0.001).solve(ROBUST_START)
    assert blurred.success
    assert blurred.cost > exact.cost


def test_plans_start_as_uncertain_as_recorded_initial_states_unless_told(predictor, nominal):
    measured = predictor.with_runs(replace(predictor.runs, initial_state_noise=0.001))
    limits = raised(predictor, nominal, -1.0)
    for given, wanted in ((None, [0.001, 0.001]), (0.0, [0.0, 0.0])):
        found = rc.RobustOCP(measured, nominal, limits, initial_state_noise=given).solve(ROBUST_START)
        assert found.certificate.question.initial_state_noise.tolist() == wanted


def test_where_nothing_can_be_certified_the_answer_says_so(predictor, nominal):
    found = rc.RobustOCP(predictor, nominal, rc.Box([1.0, 1.5], [3.0, 2.0])).solve(ROBUST_START)
    assert not found.success
    assert found.certificate.verdict is not rc.Verdict.CERTIFIED


def test_wrong_settings_are_refused_by_name(predictor, nominal):
    limits = rc.Box([1.0, 0.5], [3.0, 2.0])
    with pytest.raises(rc.InputError, match="EnergyEnvelope has no gradients"):
        rc.RobustOCP(predictor.with_method(rc.EnergyEnvelope), nominal, limits)
    first = rc.Trajectories(predictor.runs.states[:, :3], predictor.runs.inputs[:, :2], 0.02)
    short = rc.MultiStepPredictor(first, predictor.kernels[:2], predictor.norm_bounds[:2])
    with pytest.raises(rc.InputError, match="the predictor has 2 steps, the nominal problem 3"):
        rc.RobustOCP(short, nominal, limits)


def test_plans_keep_input_rates_from_wherever_they_start(plant, predictor, nominal, rng):
    """Also where the plan to repair is far from them, and exactly: the certifier has no tolerance."""
    limits = raised(predictor, nominal, -0.2)
    rates = rc.Box([-0.7], [0.7])
    problem = rc.RobustOCP(predictor, nominal, rc.Limits(limits, rates=rates))
    for start in ([[3.0], [25.0], [3.0]], [[14.0], [20.0], [14.0]], rng.uniform(3.0, 25.0, (3, 1))):
        assert rates.contains(np.diff(problem.repair(ROBUST_START, start).inputs, axis=0)).all()
    found = problem.repair(ROBUST_START, [[14.0], [20.0], [14.0]])
    assert found.success, found.certificate.explain()
    assert rc.certify(
        predictor, ROBUST_START, found.inputs, state_limits=limits, input_rate_limits=rates
    ).verdict.name == ("CERTIFIED")


def test_a_horizon_of_one_step_can_be_planned(plant, predictor, nominal):
    short = predictor.with_runs(predictor.runs.shortened(1))
    one = replace(nominal, models=nominal.models[:1], cost=replace(nominal.cost, horizon=1))
    found = rc.RobustOCP(short, one, raised(predictor, nominal, 0.1)).solve(ROBUST_START)
    assert found.success, found.certificate.explain()
    assert found.inputs.shape == (1, 1)


@pytest.mark.parametrize("n_steps", [1, 2, 4])
def test_plans_of_another_length_are_refused(predictor, nominal, n_steps):
    problem = rc.RobustOCP(predictor, nominal, raised(predictor, nominal, 0.1))
    with pytest.raises(rc.InputError, match=r"inputs must have shape \(3, 1\)"):
        problem.repair(ROBUST_START, np.full((n_steps, 1), 14.0))


def test_kernels_without_gradients_are_refused_at_once(predictor, nominal):
    rough = rc.MultiStepPredictor(predictor.runs, rc.Matern12(20.0), 1e3)
    with pytest.raises(rc.InputError, match="need not be differentiable"):
        rc.RobustOCP(rough, nominal, rc.Box([1.0, 0.5], [3.0, 2.0]))


def test_another_predictor_brings_its_own_gradients(predictor, nominal):
    closed = predictor.with_method(rc.ClosedFormEnvelope, nugget=1e-4)
    limits = raised(closed, nominal, 0.1)
    problem = rc.RobustOCP(closed, nominal, limits)
    problem.gradients(rc.certify(closed, ROBUST_START, np.full((3, 1), 14.0), state_limits=limits))
    wider = closed.scaled(norm=2.0)
    other = replace(problem, predictor=wider)
    certificate = rc.certify(wider, ROBUST_START, np.full((3, 1), 14.0), state_limits=limits)
    fresh = rc.RobustOCP(wider, nominal, limits).gradients(certificate)
    np.testing.assert_array_equal(other.gradients(certificate), fresh)
