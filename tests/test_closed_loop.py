"""The closed loop: what was certified comes true, whatever goes wrong is a reason in the log."""

import warnings

import numpy as np
import pytest
from test_predictor import plant  # noqa: F401
from test_robust import nominal, predictor  # noqa: F401

import rkhs_control as rc
from rkhs_control.control import do_mpc_bridge
from rkhs_control.control.closed_loop import CertifiedMPC, Decision

START = np.array([2.6, 0.9])
LIMITS = rc.Box([1.0, 0.5], [3.0, 2.0])
SAFE = [14.19]


def loop(controller, predictor, plant, repair=None, limits=LIMITS, **settings):  # noqa: F811
    return CertifiedMPC(controller, predictor, limits, plant.input_limits, SAFE, repair, **settings)


def drive(certified, plant, x0, n_steps):  # noqa: F811
    states = [np.asarray(x0)]
    for _ in range(n_steps):
        states.append(plant.simulate(states[-1], certified.make_step(states[-1])[None])[-1])
    return np.array(states)


def test_certified_steps_come_true(plant, predictor, nominal, rng):  # noqa: F811
    """With a limit so near that plans need to be repaired, or cannot be."""
    limits = rc.Box([1.0, 0.95], [3.0, 2.0])
    seen = set()
    for x0 in rng.uniform([1.4, 0.96], [2.4, 1.2], (8, 2)):
        certified = loop(nominal, predictor, plant, rc.RobustOCP(predictor, nominal, limits), limits)
        states = drive(certified, plant, x0, 6)
        for state, logged in zip(states[1:], certified.log, strict=True):
            assert not logged.is_certified or limits.contains(state)
        seen |= {logged.decision for logged in certified.log}
    assert Decision.CERTIFIED in seen
    assert len(seen) > 1


def test_a_controller_that_fails_is_bridged_by_its_last_certified_plan(plant, predictor, nominal):  # noqa: F811
    calls = []

    def failing(x0):
        calls.append(x0)
        if len(calls) > 1:
            raise RuntimeError("no licence")
        return nominal.solve(x0).inputs

    certified = loop(failing, predictor, plant)
    states = drive(certified, plant, START, 5)
    decisions = [logged.decision for logged in certified.log]
    assert decisions == [Decision.CERTIFIED, *[Decision.REMAINDER] * 2, *[Decision.SAFE_INPUT] * 2]
    plan = certified.log[0].certificate.question.inputs
    np.testing.assert_array_equal([logged.inputs for logged in certified.log[:3]], plan)
    assert certified.log[0].certificate.tube.contains(states[1:4]).all()
    assert certified.log[1].reason == "the controller has no plan (no licence)"
    assert certified.log[3].reason.endswith("no certified plan is left")
    np.testing.assert_array_equal(certified.log[3].inputs, SAFE)


def test_what_is_left_of_a_certified_plan_is_prolonged_and_repaired(plant, predictor, nominal):  # noqa: F811
    """Where the controller's own plan cannot be repaired."""
    narrow = rc.Box([1.0, 0.5], [2.4, 2.0])  # which the second plan leaves
    robust = rc.RobustOCP(predictor, nominal, narrow)
    plans = [nominal.solve([2.3, 1.0]).inputs, np.full((3, 1), 25.0)]

    class Repair:
        def __init__(self):
            self.asked = []

        def repair(self, x0, inputs):
            self.asked.append(inputs)
            if len(self.asked) == 1:
                raise RuntimeError("beyond repair")
            return robust.repair(x0, inputs)

    repair = Repair()
    certified = loop(lambda x0: plans.pop(0), predictor, plant, repair, narrow)
    drive(certified, plant, np.array([2.3, 1.0]), 2)
    assert [logged.decision for logged in certified.log] == [Decision.CERTIFIED, Decision.REPAIRED]
    first = certified.log[0].certificate.question.inputs
    np.testing.assert_array_equal(repair.asked[1], [first[1], first[2], first[2]])
    assert "beyond repair" in certified.log[1].reason


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ([np.nan, 1.0], "is not one"),
        ([1.0], "is not one"),
        ([40.0, -30.0], "box"),  # far outside the data
        ([1.0, 0.4], "box"),  # outside the limits
    ],
)
def test_impossible_states_end_in_the_safe_input_with_a_reason(plant, predictor, nominal, state, reason):  # noqa: F811
    certified = loop(nominal, predictor, plant, rc.RobustOCP(predictor, nominal, LIMITS))
    assert certified.make_step(state) == SAFE
    assert certified.log[0].decision is Decision.SAFE_INPUT
    assert certified.log[0].certificate is None
    if reason != "box":
        assert reason in certified.log[0].reason


def test_plans_are_repaired_where_they_can_be(plant, predictor, nominal):  # noqa: F811
    start = np.array([2.7, 0.6])
    tube = predictor.boxes(start, nominal.solve(start).inputs)
    end = float(tube.lower[0, 1] + 0.1 * (tube.upper[0, 1] - tube.lower[0, 1]))
    limits = rc.Box([1.0, end], [3.0, 2.0])
    certified = loop(nominal, predictor, plant, rc.RobustOCP(predictor, nominal, limits), limits)
    applied = certified.make_step(start)
    assert certified.log[0].decision is Decision.REPAIRED
    assert "UNDECIDED: at step 1 the box passes c_B" in certified.log[0].reason
    assert limits.contains(plant.simulate(start, applied[None])[1])


def test_a_robust_controller_and_uncertain_states_serve(plant, predictor, nominal):  # noqa: F811
    robust = rc.RobustOCP(predictor, nominal, LIMITS, initial_state_noise=0.001)
    certified = loop(robust, predictor, plant, initial_state_noise=0.001)
    drive(certified, plant, START, 2)
    assert [logged.decision for logged in certified.log] == [Decision.CERTIFIED] * 2
    assert (certified.log[0].certificate.tube.initial_state_cost > 0).all()


def test_the_change_from_the_input_before_keeps_its_rate(plant, predictor, nominal):  # noqa: F811
    plans = iter([np.full((3, 1), 14.0), np.full((3, 1), 20.0), np.full((3, 1), 14.5)])
    certified = loop(lambda x0: next(plans), predictor, plant, input_rate_limits=rc.Box([-1.0], [1.0]))
    drive(certified, plant, START, 3)
    assert [logged.decision for logged in certified.log] == [Decision.CERTIFIED, Decision.REMAINDER, Decision.CERTIFIED]
    assert certified.log[1].reason == "the change from the input before exceeds its rate limits"
    assert [float(logged.inputs[0]) for logged in certified.log] == [14.0, 14.0, 14.5]


@pytest.fixture(scope="module")
def do_mpc_controller(predictor, plant):  # noqa: F811
    """do-mpc on a one-step kernel model of the same data."""
    import do_mpc

    runs = predictor.runs
    models = [
        rc.kernel_ridge(
            rc.Observations(runs.arguments(1), runs.states[:, 1, i], 0.02), rc.SquaredExponential(20.0), 1e-3
        )
        for i in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = do_mpc_bridge.kernel_model(models, plant.state_names, plant.input_names)
        controller = do_mpc.controller.MPC(model)
        controller.settings.n_horizon = 6
        controller.settings.t_step = plant.sampling_time
        controller.settings.supress_ipopt_output()
        stage = (model.x["c_A"] - 2.14) ** 2 + (model.x["c_B"] - 1.09) ** 2
        controller.set_objective(mterm=stage, lterm=stage)
        controller.set_rterm(u=1e-3)
        controller.bounds["lower", "_u", "u"], controller.bounds["upper", "_u", "u"] = 3.0, 25.0
        controller.setup()
        controller.x0 = START
        controller.set_initial_guess()
    return controller


@pytest.mark.filterwarnings("ignore")
def test_do_mpc_controls_a_do_mpc_plant_under_certificates(plant, predictor, do_mpc_controller):  # noqa: F811
    simulated = do_mpc_bridge.simulator(plant)
    certified = loop(do_mpc_controller, predictor, plant)
    states, inputs = do_mpc_bridge.run_closed_loop(certified.make_step, simulated, START, 4)
    assert states.shape == (5, 2)
    np.testing.assert_allclose(states[1:], plant.simulate(START, inputs)[1:], atol=1e-6)
    assert all(logged.is_certified for logged in certified.log)
    assert len(certified.log[0].certificate.question.inputs) == predictor.horizon
    assert LIMITS.contains(states).all()
    np.testing.assert_allclose(simulated.data["_u", "u"].ravel(), inputs.ravel())


@pytest.mark.filterwarnings("ignore")
def test_a_failed_do_mpc_solve_is_noticed(plant, predictor, do_mpc_controller, monkeypatch):  # noqa: F811
    """do-mpc returns an input all the same."""
    controller = do_mpc_controller
    real = controller.make_step

    def failing(x0):
        result = real(x0)
        monkeypatch.setitem(controller.solver_stats, "success", False)
        monkeypatch.setitem(controller.solver_stats, "return_status", "Maximum_Iterations_Exceeded")
        return result

    monkeypatch.setattr(controller, "make_step", failing)
    certified = loop(controller, predictor, plant)
    certified.make_step(START)
    assert certified.log[0].decision is Decision.SAFE_INPUT
    assert "do-mpc's solver ended with Maximum_Iterations_Exceeded" in certified.log[0].reason
