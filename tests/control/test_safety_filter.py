"""Safety filters: whatever is wanted, what is applied from a state of the region is certified."""

import copy
import time
from dataclasses import replace

import numpy as np
import pytest
from regions import A, B, linear_predictor

import rkhs_control as rc
from rkhs_control.control.loop_log import Decision

LIMITS = rc.Limits(states=rc.Box([-0.5, -0.5], [0.5, 0.5]), inputs=rc.Box([-1.0], [1.0]))
"""An input of 1 that is held leads out of them."""


@pytest.fixture(scope="module")
def region():
    return rc.invariant_region(linear_predictor(), LIMITS, cells=4, initial_state_noise=0.02)


def drive(decide, x, n_steps, rng, noise=0.02):
    """True states of a loop in which measurements are off by up to `noise`."""
    found = []
    for _ in range(n_steps):
        u = decide(x + rng.uniform(-noise, noise, 2))
        x = A @ x + B * u
        found.append(x)
    return np.array(found)


POLICIES = {
    "hostile": lambda x: np.array([1.0]),
    "other way": lambda x: np.array([[-1.0]]),
    "outside": lambda x: np.array([7.0]),
    "broken": lambda x: 1 / 0,
    "no number": lambda x: np.array([np.nan]),
    "plan": lambda x: -np.ones((2, 1)),
}


@pytest.mark.parametrize("name", POLICIES)
def test_whatever_a_policy_wants_every_step_is_certified_and_keeps_the_limits(region, rng, name):
    for x0 in ([0.2, -0.2], [0.45, 0.3], [-0.45, -0.3]):
        if region.contains(x0):
            filtered = rc.SafetyFilter(POLICIES[name], region)
            assert LIMITS.states.contains(drive(filtered, np.array(x0), 60, rng)).all()
            assert all(step.is_certified for step in filtered.log)
            assert Decision.SAFE_INPUT not in filtered.decisions


def test_what_is_harmless_is_applied_as_it_is(region, rng):
    filtered = rc.SafetyFilter(lambda x: np.array([0.123]), region)
    assert filtered([0.1, 0.1]) == 0.123
    assert filtered.log[0].decision is Decision.CERTIFIED
    assert filtered.log[0].certificate.verdict is rc.Verdict.CERTIFIED


def test_what_is_not_is_replaced_by_the_nearest_blend_that_is(region, rng):
    decided = set()
    for x0 in rng.uniform(-0.5, 0.5, (60, 2)):
        for wanted in (-1.0, 1.0):
            filtered = rc.SafetyFilter(None, region)
            if not region.contains(x0):
                continue
            applied = float(filtered(x0, wanted=[wanted])[0])
            own = float(region.plan(x0)[0, 0])
            decided.add(filtered.log[0].decision)
            if filtered.log[0].decision is Decision.BLENDED:
                assert min(own, wanted) < applied < max(own, wanted)
                assert filtered.log[0].reason
    assert Decision.CERTIFIED in decided
    assert decided & {Decision.BLENDED, Decision.REGION}


def test_a_start_outside_the_region_is_said_at_once_and_nothing_is_certified_there(region):
    filtered = rc.SafetyFilter(lambda x: np.array([1.0]), region, safe_input=[0.25])
    assert filtered([5.0, 5.0]) == 0.25
    (step,) = filtered.log
    assert step.decision is Decision.SAFE_INPUT
    assert "starts outside the region" in step.reason


def test_a_missing_measurement_is_bridged_where_one_cell_serves_all_states_it_may_be(region):
    filtered = rc.SafetyFilter(lambda x: np.array([0.0]), region)
    served = [cell for cell in region.cells if region.contains(cell.x0)]
    for cell in served:
        filtered.loop.forget()
        filtered(cell.x0)
        filtered([np.nan, np.nan])
        step = filtered.log[-1]
        if step.decision is Decision.REGION:
            box = filtered.log[-2].certificate.tube
            own = step.certificate
            assert (own.question.x0 - own.initial_state_noise <= box.lower[0]).all()
            assert (own.question.x0 + own.initial_state_noise >= box.upper[0]).all()
        else:
            assert step.decision in (Decision.REMAINDER, Decision.SAFE_INPUT)


def test_measurements_that_contradict_what_was_proved_end_all_promises(region):
    filtered = rc.SafetyFilter(lambda x: np.array([0.0]), region)
    filtered([0.4, 0.4])
    filtered([-0.4, -0.4])
    assert filtered.log[-1].decision is Decision.REFUTED
    assert not filtered.log[-1].is_certified


def test_a_filter_without_a_policy_must_be_told_what_is_wanted(region):
    filtered = rc.SafetyFilter(None, region)
    filtered([0.1, 0.1])
    assert "no input is wanted" in filtered.log[0].reason
    filtered.loop.forget()
    filtered([0.1, 0.1], "left")
    assert "the controller has no plan" in filtered.log[1].reason
    assert all(step.is_certified for step in filtered.log)  # by the region's own plan


class Environment:
    """In the manner of Gymnasium."""

    name = "linear"

    def reset(self, seed=None):
        self.x = np.array([0.3, 0.1])
        return self.x, {"seed": seed}

    def step(self, action):
        self.x = A @ self.x + B * action
        return self.x, -float(self.x @ self.x), False, False, {"seen": True}


def test_an_environment_is_wrapped_so_that_its_actions_are_filtered(region):
    safe = rc.SafetyFilter(None, region).wrap(Environment())
    state, info = safe.reset(seed=4)
    assert (info, safe.name) == ({"seed": 4}, "linear")
    for _ in range(40):
        state, reward, terminated, truncated, info = safe.step([1.0])
        assert LIMITS.states.contains(state)
        assert info["seen"]
        assert info["decision"].is_certified
    assert (terminated, truncated) == (False, False)
    assert reward <= 0.0
    assert copy.copy(safe).name == "linear"
    state, _ = safe.reset()  # nothing is compared with the box of the step before
    safe.step([0.0])
    assert safe.filter.log[-1].is_certified


def test_a_loop_with_a_region_never_needs_its_safe_input(region, rng):
    predictor = region.predictor
    cost = rc.QuadraticCost(np.eye(2), np.array([[0.01]]), np.eye(2), np.array([0.5, 0.4]), np.zeros(1), 2)
    control = rc.CertaintyEquivalentOCP.from_predictor(predictor, 1e-4, cost=cost, limits=LIMITS)
    robust = rc.RobustOCP(predictor, control, LIMITS, initial_state_noise=0.02)
    loop = rc.CertifiedMPC(control, predictor, LIMITS, [0.0], repair=robust, region=region, repair_seconds=0.2)
    states = drive(loop.make_step, np.array([0.0, 0.0]), 25, rng)
    assert LIMITS.states.contains(states).all()
    assert all(step.is_certified for step in loop.log)
    assert (loop.initial_state_noise == 0.02).all()


def test_repairs_end_with_their_time(region):
    told = []

    class Slow:
        def repair(self, x0, inputs, seconds):
            told.append(seconds)
            time.sleep(0.05)
            raise RuntimeError("not found")

    loop = rc.CertifiedMPC(
        lambda x: np.array([[9.0]]), region.predictor, LIMITS, [0.0], repair=Slow(), region=region, repair_seconds=0.03
    )
    (edge,) = [cell.x0 for cell in region.cells][:1]
    loop.make_step(edge)
    assert all(0.0 < seconds <= 0.03 for seconds in told)
    assert len(told) <= 1


@pytest.mark.parametrize(
    ("limits", "noise", "match"),
    [
        (rc.Limits(rc.Box([-0.4, -0.5], [0.5, 0.5]), LIMITS.inputs), None, "other state limits"),
        (rc.Limits(LIMITS.states, rc.Box([-0.5], [1.0])), None, "limits on the loop's inputs"),
        (rc.Limits(LIMITS.states, LIMITS.inputs, rc.Box([-0.5], [0.5])), None, "on their rates"),
        (LIMITS, 0.03, "may be off by"),
    ],
)
def test_a_region_for_something_else_is_refused(region, limits, noise, match):
    with pytest.raises(rc.InputError, match=match):
        rc.CertifiedMPC(lambda x: x, region.predictor, limits, [0.0], region=region, initial_state_noise=noise)


def test_a_region_of_another_plant_is_refused(region):
    runs = region.predictor.runs
    for change in ({"state_names": ("y", "x")}, {"input_names": ("v",)}, {"sampling_time": 2.0}):
        other = rc.MultiStepPredictor(replace(runs, **change), rc.SquaredExponential(8.0), 12.0)
        limits = LIMITS.over(("x", "y"), ("u",)).states, LIMITS.inputs
        with pytest.raises(rc.InputError, match=f"{next(iter(change))} of the region are"):
            rc.CertifiedMPC(lambda x: x, other, rc.Limits(*limits), [0.0], region=region)


def test_plans_of_a_region_are_certified_by_the_predictor_that_proved_them(region, tmp_path):
    noisier = rc.MultiStepPredictor(replace(region.predictor.runs, noise_bound=2.0), rc.SquaredExponential(8.0), 12.0)
    loop = rc.CertifiedMPC(lambda x: 1 / 0, noisier, LIMITS, [0.0], region=region)
    loop.make_step(region.cells[0].x0)
    (step,) = loop.log
    assert step.decision is Decision.REGION
    step.certificate.save(tmp_path / "plan.json")
    assert rc.verify(tmp_path / "plan.json").accepted


def test_what_a_region_proved_cannot_be_changed(region):
    cell = region.cells[0]
    for array in (cell.x0, cell.reach, cell.inputs, *vars(cell.tube).values(), region.lower, region.upper):
        assert not array.flags.writeable


def test_a_robust_problem_that_ends_in_a_region_is_feasible_again_after_every_step(region, rng):
    """Recursive feasibility: the rest of a plan, and then the region's own, is a plan from the next state."""
    predictor = region.predictor
    inner = rc.Box([-0.3, -0.3], [0.3, 0.3])
    assert region.covers(inner.lower, inner.upper)
    cost = rc.QuadraticCost(np.eye(2), np.array([[0.01]]), np.eye(2), np.array([0.5, 0.5]), np.zeros(1), 2)
    control = rc.CertaintyEquivalentOCP.from_predictor(predictor, 1e-4, cost=cost, limits=LIMITS)
    robust = rc.RobustOCP(predictor, control, LIMITS, initial_state_noise=0.0, terminal=inner)
    x = np.array([0.4, 0.3])
    for _ in range(6):
        plan = robust.solve(x)
        assert plan.success
        assert inner.contains([plan.certificate.tube.lower[-1], plan.certificate.tube.upper[-1]]).all()
        x = A @ x + B * plan.inputs[0]
        assert LIMITS.states.contains(x)


def test_plans_and_certificates_from_a_box_serve_all_states_in_it(region, rng):
    predictor, start = region.predictor, rc.Box([0.0, 0.1], [0.2, 0.2])
    inputs = np.array([[0.1], [-0.2]])
    tube = predictor.boxes(start, inputs)
    certificate = rc.certify(predictor, start, inputs, LIMITS)
    np.testing.assert_array_equal(certificate.tube.lower, tube.lower)
    for x in np.concatenate([rng.uniform(start.lower, start.upper, (50, 2)), [start.lower, start.upper]]):
        one = predictor.boxes(x, inputs)
        assert (tube.lower <= one.lower).all()
        assert (one.upper <= tube.upper).all()
    wider = predictor.boxes(start, inputs, initial_state_noise=0.05)
    assert (wider.lower < tube.lower).all()
    cost = rc.QuadraticCost(np.eye(2), np.array([[0.01]]), np.eye(2), np.zeros(2), np.zeros(1), 2)
    control = rc.CertaintyEquivalentOCP.from_predictor(predictor, 1e-4, cost=cost, limits=LIMITS)
    plan = rc.RobustOCP(predictor, control, LIMITS).solve(start)
    assert plan.success
    assert (plan.certificate.initial_state_noise >= 0.05).all()
