"""The closed loop: what was certified comes true, whatever goes wrong is a reason in the log.

What sensors do wrong, and what a loop must remember, is tried on a plant of one state that decays, and is quick.
"""

import warnings
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.control import do_mpc as do_mpc_bridge
from rkhs_control.control.certified_loop import CertifiedMPC, Decision
from rkhs_control.scenarios.studies.closed_loop import ClosedLoopOutcome, LoopRun

START = np.array([2.6, 0.9])
LIMITS = rc.Box([1.0, 0.5], [3.0, 2.0])
SAFE = [14.19]


@pytest.fixture(scope="module")
def predictor(exploring_predictor):
    return exploring_predictor


def loop(controller, predictor, plant, repair=None, limits=LIMITS, rates=None, **settings):
    whole = rc.Limits(limits, plant.input_limits, rates)
    return CertifiedMPC(controller, predictor, whole, SAFE, repair=repair, **settings)


def drive(certified, plant, x0, n_steps):
    states = [np.asarray(x0)]
    for _ in range(n_steps):
        states.append(plant.simulate(states[-1], certified.make_step(states[-1])[None])[-1])
    return np.array(states)


def test_certified_steps_come_true(plant, predictor, nominal, rng):
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


def test_a_controller_that_fails_is_bridged_by_its_last_certified_plan(plant, predictor, nominal):
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


def test_what_is_left_of_a_certified_plan_is_prolonged_and_repaired(plant, predictor, nominal):
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
        ([np.nan, 1.0], "the measurement is not a state (c_A is nan)"),
        ([1.0], "the measurement is not a state (x0 must have shape (2,); got (1,))"),
        ([40.0, -30.0], "box"),  # far outside the data
        ([1.0, 0.4], "box"),  # outside the limits
    ],
)
def test_impossible_states_end_in_the_safe_input_with_a_reason(plant, predictor, nominal, state, reason):
    certified = loop(nominal, predictor, plant, rc.RobustOCP(predictor, nominal, LIMITS))
    assert certified.make_step(state) == SAFE
    assert certified.log[0].decision is Decision.SAFE_INPUT
    assert certified.log[0].certificate is None
    if reason != "box":
        assert reason in certified.log[0].reason


def test_plans_are_repaired_where_they_can_be(plant, predictor, nominal):
    start = np.array([2.7, 0.6])
    tube = predictor.boxes(start, nominal.solve(start).inputs)
    end = float(tube.lower[0, 1] + 0.1 * (tube.upper[0, 1] - tube.lower[0, 1]))
    limits = rc.Box([1.0, end], [3.0, 2.0])
    certified = loop(nominal, predictor, plant, rc.RobustOCP(predictor, nominal, limits), limits)
    applied = certified.make_step(start)
    assert certified.log[0].decision is Decision.REPAIRED
    assert "UNDECIDED: at step 1 the box passes c_B" in certified.log[0].reason
    assert limits.contains(plant.simulate(start, applied[None])[1])


def test_a_robust_controller_and_uncertain_states_serve(plant, predictor, nominal):
    robust = rc.RobustOCP(predictor, nominal, LIMITS, initial_state_noise=0.001)
    certified = loop(robust, predictor, plant, initial_state_noise=0.001)
    drive(certified, plant, START, 2)
    assert [logged.decision for logged in certified.log] == [Decision.CERTIFIED] * 2
    assert (certified.log[0].certificate.tube.initial_state_cost > 0).all()


def test_the_change_from_the_input_before_keeps_its_rate(plant, predictor, nominal):
    plans = iter([np.full((3, 1), 14.0), np.full((3, 1), 20.0), np.full((3, 1), 14.5)])
    certified = loop(lambda x0: next(plans), predictor, plant, rates=rc.Box([-1.0], [1.0]))
    drive(certified, plant, START, 3)
    assert [logged.decision for logged in certified.log] == [Decision.CERTIFIED, Decision.REMAINDER, Decision.CERTIFIED]
    assert certified.log[1].reason == "the change from the previous input exceeds its rate limits"
    assert [float(logged.inputs[0]) for logged in certified.log] == [14.0, 14.0, 14.5]


@pytest.fixture(scope="module")
def do_mpc_controller(predictor, plant):
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
def test_do_mpc_controls_a_do_mpc_plant_under_certificates(plant, predictor, do_mpc_controller):
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
def test_a_failed_do_mpc_solve_is_noticed(plant, predictor, do_mpc_controller, monkeypatch):
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


def decay(x, u):
    return 0.8 * np.asarray(x) + 0.2 * np.asarray(u)


@pytest.fixture(scope="module")
def decaying():
    """A predictor of three steps of the plant `decay`."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1.0, 1.0, (60, 3, 1))
    states = [rng.uniform(-1.0, 1.0, (60, 1))]
    for n in range(3):
        states.append(decay(states[-1], inputs[:, n]))
    recorded = np.stack(states, axis=1)
    recorded[:, 1:] += rng.uniform(-0.002, 0.002, recorded[:, 1:].shape)
    runs = rc.Trajectories(recorded, inputs, 0.002, ("x",), ("u",))
    return rc.MultiStepPredictor.select(runs, [4.0, 8.0])


def at_rest(x0):
    return np.zeros((3, 1))


def small_loop(predictor, controller=at_rest, safe_input=(0.25,), limit=0.9, rates=None, **settings):
    limits = rc.Limits(rc.Box([-limit], [limit]), rc.Box([-1.0], [1.0]), rates)
    return CertifiedMPC(controller, predictor, limits, safe_input, **settings)


def decisions(certified):
    return [logged.decision for logged in certified.log]


def box(certified, steps=1):
    """What was proved for the state after so many steps of the first plan."""
    tube = certified.log[0].certificate.tube
    return float(tube.lower[steps - 1, 0]), float(tube.upper[steps - 1, 0])


def only_once(plan):
    plans = [plan]

    def controller(x0):
        if not plans:
            raise RuntimeError("no licence")
        return plans.pop()

    return controller


@pytest.mark.parametrize("controller", [at_rest, only_once(np.zeros((3, 1)))])
def test_a_measurement_outside_its_proved_box_ends_all_certificates(decaying, controller):
    """Whether the controller has another plan or its last one would be followed."""
    certified = small_loop(decaying, controller)
    certified.make_step([0.2])
    low, high = box(certified)
    assert 0.158 < low < 0.16 < high < 0.162
    assert certified.refutation is None

    assert certified.make_step([0.59]) == 0.25
    logged = certified.log[1]
    assert (logged.decision, logged.is_certified, logged.certificate) == (Decision.REFUTED, False, None)
    assert f"refuted at step 1: x was measured as 0.59, but proved to be in [{low}, {high}]" in logged.reason
    assert logged.reason == certified.refutation

    certified.make_step([0.16])  # where nothing is wrong any more
    certified.make_step([np.nan])
    assert decisions(certified)[1:] == [Decision.REFUTED] * 3
    assert all(certified.refutation in logged.reason for logged in certified.log[1:])


def test_a_refuted_loop_begins_anew_when_the_user_trusts_it_again(decaying):
    certified = small_loop(decaying)
    for measured in (0.2, 0.59, 0.3):
        certified.make_step([measured])
    certified.trust_again()
    assert certified.refutation is None
    certified.make_step([-0.4])  # nothing to compare it with
    certified.make_step([0.4])
    assert decisions(certified) == [
        Decision.CERTIFIED,
        Decision.REFUTED,
        Decision.REFUTED,
        Decision.CERTIFIED,
        Decision.REFUTED,
    ]


def test_trust_in_a_loop_that_is_not_refuted_changes_nothing(decaying):
    certified = small_loop(decaying)
    certified.make_step([0.2])
    certified.trust_again()
    certified.make_step([0.59])
    assert decisions(certified) == [Decision.CERTIFIED, Decision.REFUTED]


def test_a_jump_of_one_measurement_is_refuted_and_never_planned_from(plant, predictor, nominal):
    asked = []

    def controller(x0):
        asked.append(x0)
        return nominal.solve(x0).inputs

    certified = loop(controller, predictor, plant, rc.RobustOCP(predictor, nominal, LIMITS))
    state = START
    for n in range(5):
        measured = state + (np.array([0.4, 0.0]) if n == 2 else 0.0)
        state = plant.simulate(state, certified.make_step(measured)[None])[-1]
        assert not certified.log[-1].is_certified or LIMITS.contains(state)
    assert decisions(certified) == [Decision.CERTIFIED] * 2 + [Decision.REFUTED] * 3
    assert "refuted at step 2: c_A was measured as" in certified.log[2].reason
    assert "c_B" not in certified.log[2].reason
    assert len(asked) == 2


def test_a_stuck_sensor_is_caught_as_soon_as_it_leaves_the_box(decaying):
    """Not while the plant is held where the sensor says that it is."""
    plans = [np.full((3, 1), u) for u in (0.3, 0.3, 0.0, 0.0)]
    certified = small_loop(decaying, lambda x0: plans.pop(0))
    state = np.array([0.3])
    for _ in range(5):
        state = decay(state, certified.make_step([0.3]))
    assert decisions(certified) == [Decision.CERTIFIED] * 3 + [Decision.REFUTED] * 2


class Broken:
    def __array__(self, *args, **kwargs):
        raise OSError("no connection")


UNREADABLE = {
    "nan": ([np.nan], "x is nan"),
    "infinite": ([-np.inf], "x is -inf"),
    "two states": ([0.1, 0.2], "x0 must have shape (1,); got (2,)"),
    "none": (None, "x0 must be an array of real numbers"),
    "text": (["0.16"], "x0 must be an array of real numbers"),
    "ragged": ([[0.1], [0.1, 0.2]], "x0 must be an array of real numbers"),
    "huge integer": ([10**400], "x0 must be an array of real numbers"),
    "masked": (np.ma.masked_array([0.1], [True]), "x0 has masked entries"),
    "broken": (Broken(), "no connection"),
}


@pytest.mark.parametrize(("measured", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_measurement_that_cannot_be_read_contradicts_nothing(decaying, measured, reason):
    """The certificate was of the whole plan; the next measurement is compared with the box of its own step."""
    states = [np.array([0.2])]
    certified = small_loop(decaying)
    for given in (states[0], measured):
        states.append(decay(states[-1], certified.make_step(given)))
    assert decisions(certified) == [Decision.CERTIFIED, Decision.REMAINDER]
    assert certified.log[1].reason.startswith("the measurement is not a state (")
    assert reason in certified.log[1].reason
    assert certified.log[0].certificate.tube.contains([*states[1:], [0.1024]])[:2].all()

    certified.make_step(states[2])
    assert certified.log[2].decision is Decision.CERTIFIED

    other = small_loop(decaying)
    for given in (states[0], measured, states[1]):  # what was right one step before
        other.make_step(given)
    assert decisions(other) == [Decision.CERTIFIED, Decision.REMAINDER, Decision.REFUTED]
    assert str(list(box(other, steps=2))) in other.log[2].reason


def test_without_any_measurement_a_plan_is_followed_to_its_end(decaying):
    certified = small_loop(decaying)
    for measured in (0.2, np.nan, np.nan, np.nan, 0.9, 0.72):
        certified.make_step([measured])
    assert decisions(certified) == [
        Decision.CERTIFIED,
        Decision.REMAINDER,
        Decision.REMAINDER,
        Decision.SAFE_INPUT,
        Decision.CERTIFIED,  # after the safe input there is nothing to compare with
        Decision.CERTIFIED,
    ]


def test_the_last_box_of_a_plan_is_compared_too(decaying):
    certified = small_loop(decaying)
    for measured in (0.2, np.nan, np.nan, 0.2):
        certified.make_step([measured])
    assert certified.log[3].decision is Decision.REFUTED


def test_the_readable_part_of_a_measurement_is_compared(plant, predictor, nominal):
    certified = loop(nominal, predictor, plant)
    state = plant.simulate(START, certified.make_step(START)[None])[-1]
    certified.make_step([np.nan, state[1]])
    assert certified.log[1].decision is Decision.REMAINDER
    certified.make_step([np.nan, state[1] + 0.4])
    assert certified.log[2].decision is Decision.REFUTED
    assert "c_A is nan" in certified.log[2].reason


def test_measurements_are_columns_or_rows(decaying):
    certified = small_loop(decaying)
    certified.make_step(np.array([[0.2]]))
    certified.make_step(np.float32(0.16))
    assert decisions(certified) == [Decision.CERTIFIED] * 2
    np.testing.assert_array_equal(certified.log[1].state, [np.float32(0.16)])


def test_noise_of_a_measurement_counts_to_the_last_bit(decaying):
    noise = 0.001
    for side in (0, 1):
        for beyond in (False, True):
            certified = small_loop(decaying, initial_state_noise=noise)
            certified.make_step([0.2])
            end, outwards = box(certified)[side], (-np.inf, np.inf)[side]
            measured = end + (-noise, noise)[side]
            while abs(Fraction(measured) - Fraction(end)) <= Fraction(noise):
                measured = float(np.nextafter(measured, outwards))
            while not beyond and abs(Fraction(measured) - Fraction(end)) > Fraction(noise):
                measured = float(np.nextafter(measured, -outwards))
            certified.make_step([measured])
            assert (certified.refutation is not None) == beyond
    assert f"x was measured as {measured} +- 0.001, but" in certified.refutation


def test_where_measured_states_are_the_arguments_the_next_one_may_be_off_by_its_noise(decaying):
    measured = replace(decaying, runs=replace(decaying.runs, has_residual_bound=True), initial_state_noise=0.0)
    noise = float(measured.runs.noise_bound[0, 0])
    assert noise > 0.0
    for share, decision in ((0.999, Decision.CERTIFIED), (1.001, Decision.REFUTED)):
        certified = small_loop(measured, at_rest)
        certified.make_step([0.3])
        _, upper = box(certified)
        certified.make_step(upper + share * noise)
        assert certified.log[-1].decision is decision


def test_states_are_as_uncertain_as_recorded_ones_unless_said_otherwise(decaying):
    assert (small_loop(decaying).initial_state_noise == [0.0]).all()
    measured = replace(decaying.runs, initial_state_noise=0.003)
    predictor = rc.MultiStepPredictor(measured, decaying.kernels, decaying.norm_bounds)
    assert (small_loop(predictor).initial_state_noise == [0.003]).all()
    assert (small_loop(predictor, initial_state_noise=0.0).initial_state_noise == [0.0]).all()
    certified = small_loop(decaying, initial_state_noise=0.01)
    assert (certified.initial_state_noise == [0.01]).all()
    certified.make_step([0.2])
    assert (certified.log[0].certificate.question.initial_state_noise == [0.01]).all()
    with pytest.raises(rc.InputError, match="initial_state_noise must be zero or more"):
        small_loop(decaying, initial_state_noise=-0.01)


def test_assumptions_that_turn_out_contradictory_are_refuted(decaying, monkeypatch):
    """No remainder is certified by assumptions from which everything follows."""
    certified = small_loop(decaying)
    certified.make_step([0.2])

    def contradictory(*args, **settings):
        raise rc.FalsifiedNormBoundError("the box is empty")

    with monkeypatch.context() as patch:
        patch.setattr(rc.MultiStepPredictor, "boxes", contradictory)
        certified.make_step([0.16])
    assert certified.log[1].decision is Decision.REFUTED
    assert "the assumptions are contradictory (the box is empty)" in certified.refutation
    certified.make_step([0.16])
    assert certified.log[2].decision is Decision.REFUTED


@pytest.mark.parametrize(("is_shared", "decision"), [(True, Decision.REFUTED), (False, Decision.REMAINDER)])
def test_contradictions_that_a_controller_meets_count_if_it_assumes_the_same(decaying, is_shared, decision):
    class Controller:
        predictor = decaying if is_shared else None
        plan = staticmethod(only_once(np.zeros((3, 1))))

        def __call__(self, x0):
            try:
                return self.plan(x0)
            except RuntimeError:
                raise rc.FalsifiedNormBoundError("the box is empty") from None

    certified = small_loop(decaying, Controller())
    certified.make_step([0.2])
    certified.make_step([0.16])
    assert decisions(certified) == [Decision.CERTIFIED, decision]
    assert "the box is empty" in certified.log[1].reason


def test_what_is_returned_and_what_is_kept_share_no_memory_with_the_caller(decaying):
    safe, measured, plan = np.array([0.25]), np.array([0.2]), np.zeros((3, 1))

    def controller(x0):
        x0 *= 100.0  # it may do with its argument what it likes
        return plan

    certified = small_loop(decaying, controller, safe)
    applied = certified.make_step(measured)
    for array in (safe, measured, plan, applied):
        array[...] += 0.5
    np.testing.assert_array_equal(certified.log[0].state, [0.2])
    np.testing.assert_array_equal(certified.log[0].inputs, [0.0])
    assert certified.log[0].certificate.question.x0 == [0.2]
    assert certified.make_step([np.nan]) == 0.0  # the remainder, as it was certified
    applied = certified.make_step([0.59])
    assert applied == 0.25
    applied *= 100.0
    assert certified.make_step([0.59]) == 0.25
    assert certified.safe_input == [0.25]


def test_a_repair_may_use_its_arrays_again(decaying):
    class Repair:
        plan = np.zeros((3, 1))

        def repair(self, x0, inputs):
            x0 *= 100.0
            inputs *= 100.0
            return self

        @property
        def inputs(self):
            return self.plan

    def controller(x0):
        raise RuntimeError("no licence")

    certified = small_loop(decaying, controller, repair=Repair())
    certified.make_step([0.2])
    Repair.plan += 0.5
    assert certified.make_step([np.nan]) == 0.0
    assert decisions(certified) == [Decision.REPAIRED, Decision.REMAINDER]
    assert certified.log[0].certificate.question.x0 == [0.2]
    assert certified.safe_input == [0.25]


def test_what_was_logged_and_proved_cannot_be_changed(decaying):
    certified = small_loop(decaying, initial_state_noise=0.001)
    certified.make_step([0.2])
    logged = certified.log[0]
    question, tube = logged.certificate.question, logged.certificate.tube
    arrays = (logged.state, logged.inputs, question.x0, question.inputs, tube.lower, tube.upper)
    for array in (*arrays, logged.certificate.margins, certified.safe_input, certified.initial_state_noise):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1.0
    for name in ("safe_input", "limits", "predictor"):
        with pytest.raises(FrozenInstanceError):
            setattr(certified, name, None)


def test_rates_from_the_input_before_are_compared_exactly(decaying):
    """-0.3 - -1.0 is 0.7 in doubles, and a little more in truth."""
    assert -0.3 - -1.0 == 0.7
    assert Fraction(-0.3) - Fraction(-1.0) > Fraction(0.7)
    plans = [np.full((3, 1), -1.0), np.full((3, 1), -0.3), np.full((3, 1), np.nextafter(-0.3, -1.0))]
    rates = rc.Box([-0.7], [0.7])
    certified = small_loop(decaying, lambda x0: plans.pop(0), rates=rates)
    state = np.array([0.2])
    for _ in range(3):
        state = decay(state, certified.make_step(state))
    assert decisions(certified) == [Decision.CERTIFIED, Decision.REMAINDER, Decision.CERTIFIED]
    assert certified.log[1].reason == "the change from the previous input exceeds its rate limits"


def test_rates_are_kept_when_the_log_is_emptied(decaying):
    plans = [np.full((3, 1), u) for u in (0.0, 0.9)]
    certified = small_loop(decaying, lambda x0: plans.pop(0), rates=rc.Box([-0.5], [0.5]))
    certified.make_step([0.2])
    certified.log.clear()
    certified.make_step([0.16])
    assert decisions(certified) == [Decision.REMAINDER]


def test_a_safe_input_keeps_its_limits_but_its_rate_is_only_reported(decaying):
    with pytest.raises(
        rc.InputError, match=r"safe_input must keep the limits of the inputs, but the input u .* is 1, outside"
    ):
        small_loop(decaying, safe_input=[np.nextafter(1.0, 2.0)])
    for rate, is_said in ((0.25, False), (0.2, True)):
        certified = small_loop(decaying, rates=rc.Box([-rate], [rate]))
        certified.make_step([0.2])
        certified.make_step([0.59])
        said = certified.log[1].reason.endswith("the change to the safe input exceeds its rate limits")
        assert said == is_said
        certified.make_step([0.59])
        assert "rate" not in certified.log[2].reason  # it stays where it is


def test_limits_of_another_size_are_refused_when_the_loop_is_built(decaying):
    two = rc.Box([-1.0, -1.0], [1.0, 1.0])
    one = rc.Box([-1.0], [1.0])
    for limits, name in (((two, one), "states"), ((one, two), "inputs"), ((one, one, two), "rates")):
        with pytest.raises(rc.InputError, match=rf"limits of {name} must have 1 dimensions \(.\); got 2"):
            CertifiedMPC(at_rest, decaying, rc.Limits(*limits), [0.0])


@pytest.mark.parametrize("where", ["controller", "repair"])
def test_an_interrupt_passes_and_leaves_no_certified_plan_behind(decaying, where):
    """Nobody knows what was applied meanwhile, so nothing is known of the rest of the plan."""

    class Interrupted:
        count = 0

        def repair(self, x0, inputs):
            raise KeyboardInterrupt

        def __call__(self, x0):
            self.count += 1
            if self.count == 1:
                return np.zeros((3, 1))
            if where == "controller" and self.count == 2:
                raise KeyboardInterrupt
            raise RuntimeError("no licence")

    controller = Interrupted()
    certified = small_loop(decaying, controller, repair=controller if where == "repair" else None)
    certified.make_step([0.2])
    with pytest.raises(KeyboardInterrupt):
        certified.make_step([0.16])
    certified.make_step([np.nan])
    assert decisions(certified) == [Decision.CERTIFIED, Decision.SAFE_INPUT]


@pytest.mark.parametrize(
    ("plan", "applied"),
    [
        ([[0.5]], 0.5),  # one step only
        ([0.5, 0.4, 0.3], 0.5),
        (np.full((9, 1), 0.5), 0.5),  # longer than what was recorded
        ([[7.0], [0.0], [0.0]], 1.0),  # clipped, and certified as such
        ([[np.nan], [0.0], [0.0]], None),
        ([[np.inf], [0.0], [0.0]], None),
        (np.zeros((3, 2)), None),
        (np.zeros((0, 1)), None),
        (np.zeros((3, 1, 1)), None),
        ([["0.5"]], None),
        (None, None),
    ],
)
def test_whatever_a_controller_returns_only_what_is_applied_is_certified(decaying, plan, applied):
    certified = small_loop(decaying, lambda x0: plan)
    given = certified.make_step([0.2])
    logged = certified.log[0]
    if applied is None:
        assert (logged.decision, logged.certificate) == (Decision.SAFE_INPUT, None)
        assert "the controller has no plan" in logged.reason
        assert given == 0.25
    else:
        assert given == applied == logged.certificate.question.inputs[0]
        assert logged.decision is Decision.CERTIFIED
        assert logged.certificate.verdict is rc.Verdict.CERTIFIED


def test_only_steps_of_certified_plans_are_certified():
    assert {decision for decision in Decision if decision.is_certified} == {
        Decision.CERTIFIED,
        Decision.REPAIRED,
        Decision.BLENDED,
        Decision.REMAINDER,
        Decision.REGION,
    }


def test_refuted_loops_of_a_study_break_no_promise_and_are_counted():
    decided = (Decision.CERTIFIED, Decision.REFUTED)
    run = LoopRun(np.zeros((3, 1)), np.zeros((2, 1)), np.array([True, False]), decided, 1.0, np.ones(2))
    assert run.is_refuted
    assert run.broken_promises == 0
    (refuted,) = ClosedLoopOutcome(None, {"certified": [run]}).listings()
    assert "loops in which a measurement refuted an assumption: 1" in refuted.caption
    fine = LoopRun(np.zeros((2, 1)), np.zeros((1, 1)), np.array([True]), decided[:1], 1.0, np.ones(1))
    (kept,) = ClosedLoopOutcome(None, {"certified": [fine]}).listings()
    assert "refuted" not in kept.caption


NOISE = 0.002


class Moody:
    """A controller that goes where it likes, or fails in a way of its own."""

    def __init__(self, rng):
        self.rng = rng

    def __call__(self, x0):
        mood = self.rng.integers(10)
        if mood == 0:
            raise RuntimeError("no licence")
        if mood == 1:
            return np.full((3, 1), np.nan)
        goal = self.rng.choice([-1.5, 0.0, 1.5])
        return np.tile(goal + 0.2 * self.rng.standard_normal(), (self.rng.integers(1, 5), 1))


class Sensor:
    """True states with an error of at most `NOISE`, and now and then a fault; `is_honest` says which."""

    def __init__(self, rng):
        self.rng, self.stuck = rng, None

    def __call__(self, x):
        honest = x + self.rng.uniform(-NOISE, NOISE, 1)
        fault = self.rng.choice(
            ["none", "jump", "small jump", "nan", "lost", "stuck"], p=[0.8, 0.04, 0.04, 0.04, 0.04, 0.04]
        )
        if fault == "stuck" or self.stuck is not None:
            self.stuck = honest if self.stuck is None else self.stuck
            return self.stuck, bool(abs(self.stuck - x) <= NOISE)
        if "jump" in fault:
            return honest + self.rng.choice([-1.0, 1.0]) * (0.4 if fault == "jump" else 0.02), False
        if fault == "nan":
            return np.array([np.nan]), True
        return (None if fault == "lost" else honest), True


def test_whatever_sensors_and_controllers_do_no_step_is_certified_that_was_not(decaying, chunk):
    """A plan that began with an honest measurement comes true; one that is clearly outside its box ends everything."""
    rng = np.random.default_rng([8, chunk])
    limits, seen = rc.Box([-0.6], [0.6]), set()
    for _ in range(20):
        certified = small_loop(decaying, Moody(rng), limit=0.6, initial_state_noise=NOISE)
        sensor, x, step, proved = Sensor(rng), rng.uniform(-0.5, 0.5, 1), 0, None
        began_honestly, all_honest = False, True
        for _ in range(10):
            if certified.refutation is not None and rng.random() < 0.3:
                certified.trust_again()
                sensor.stuck, all_honest = None, True
            was_refuted = certified.refutation is not None
            measured, is_honest = sensor(x)
            all_honest &= is_honest
            applied = certified.make_step(measured)
            logged = certified.log[-1]
            seen.add(logged.decision)
            if was_refuted:
                assert logged.decision is Decision.REFUTED
            elif proved is not None and measured is not None:
                distance = max(float(proved[0] - measured[0]), float(measured[0] - proved[1])) - NOISE
                assert not distance > 1e-12 or logged.decision is Decision.REFUTED
                assert not distance < -1e-12 or logged.decision is not Decision.REFUTED
            assert not all_honest or logged.decision is not Decision.REFUTED
            step = step + 1 if logged.decision is Decision.REMAINDER else 0
            if logged.decision in (Decision.CERTIFIED, Decision.REPAIRED):
                began_honestly = is_honest
            x, proved = decay(x, applied), None
            if logged.is_certified:
                np.testing.assert_array_equal(applied, logged.certificate.question.inputs[step])
                tube = logged.certificate.tube
                proved = tube.lower[step, 0], tube.upper[step, 0]
                if began_honestly:
                    assert proved[0] <= x[0] <= proved[1]
                    assert limits.contains(x)
    assert seen >= {Decision.CERTIFIED, Decision.REMAINDER, Decision.SAFE_INPUT, Decision.REFUTED}
