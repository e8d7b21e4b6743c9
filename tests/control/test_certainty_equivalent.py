"""The certainty-equivalent problem: solved, within its limits, and honest about failure."""

import casadi
import numpy as np
import pytest
from plants import quadratic

import rkhs_control as rc

START = np.array([2.6, 0.9])


@pytest.fixture(scope="module")
def problem(plant, predictor):
    return rc.CertaintyEquivalentOCP.from_predictor(
        predictor,
        regularisations=0.1,
        cost=quadratic(plant),
        input_limits=plant.input_limits,
        state_limits=plant.state_limits,
    )


def test_plan_is_feasible_and_what_the_models_predict(problem):
    plan = problem.solve(START)
    assert plan.success
    assert plan.status == "Solve_Succeeded"
    assert problem.input_limits.contains(plan.inputs).all()
    assert problem.state_limits.contains(plan.states).all()
    for n, row in enumerate(problem.models):
        z = np.concatenate([START, plan.inputs[: n + 1].ravel()])
        np.testing.assert_allclose(plan.states[n], [model(z[None])[0] for model in row], rtol=1e-9)


def test_no_nearby_feasible_plan_is_cheaper(plant, problem, rng):
    plan = problem.solve(START)
    cost = quadratic(plant)
    for _ in range(200):
        inputs = plant.input_limits.clip(plan.inputs + rng.normal(0, 0.3, plan.inputs.shape))
        states = np.array(
            [
                [model(np.concatenate([START, inputs[: n + 1].ravel()])[None])[0] for model in row]
                for n, row in enumerate(problem.models)
            ]
        )
        if plant.state_limits.contains(states).all():
            total = sum(float(cost(casadi.DM(states[n]), casadi.DM(inputs[n]), n + 1)) for n in range(3))
            assert total >= plan.cost - 1e-6


def test_guess_does_not_change_where_it_ends(problem):
    cold, warm = problem.solve(START), problem.solve(START, guess=np.full((3, 1), 20.0))
    np.testing.assert_allclose(cold.inputs, warm.inputs, atol=1e-3)


def test_any_casadi_cost_will_do(plant, problem):
    dearest = rc.CertaintyEquivalentOCP(
        problem.models, lambda x, u, n: -u[0], rc.Limits(rc.Box([0.0, 0.0], [9.0, 9.0]), plant.input_limits)
    ).solve(START)
    np.testing.assert_allclose(dearest.inputs, 25.0, atol=1e-5)


def test_inputs_without_limits_are_planned_as_well(plant, problem):
    free = rc.CertaintyEquivalentOCP(
        problem.models, quadratic(plant), rc.Limits(rc.Box.unbounded(2), rc.Box.unbounded(1))
    ).solve(START)
    assert free.success
    np.testing.assert_allclose(free.inputs, problem.solve(START).inputs, atol=0.05)


def test_unreachable_limits_are_a_failed_plan_not_an_exception(plant, problem):
    plan = rc.CertaintyEquivalentOCP(
        problem.models, quadratic(plant), rc.Limits(rc.Box([7.0, 7.0], [8.0, 8.0]), plant.input_limits)
    ).solve(START)
    assert not plan.success
    assert "Infeasible" in plan.status
    assert plant.input_limits.contains(plan.inputs).all()


def test_plan_can_be_certified_and_the_plant_follows_its_tube(plant, predictor, problem):
    plan = problem.solve(START)
    certificate = rc.certify(predictor, START, plan.inputs, state_limits=rc.Box([0.0, 0.0], [6.0, 6.0]))
    assert certificate.tube.contains(plant.simulate(START, plan.inputs)[1:]).all()


def test_wrong_starts_are_refused_by_name(problem):
    with pytest.raises(rc.InputError, match=r"x0 must have shape \(2,\)"):
        problem.solve([1.0, 2.0, 3.0])
    with pytest.raises(rc.InputError, match=r"guess must have shape \(3, 1\)"):
        problem.solve(START, guess=[1.0, 2.0, 3.0])
