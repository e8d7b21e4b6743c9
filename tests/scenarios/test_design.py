"""Offline design: tightened limits that suffice, regions that contain each other, effects with the right sign."""

import json
from dataclasses import replace

import numpy as np
import pytest
from plants import ROBUST_START, quadratic, raised

import rkhs_control as rc
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.closed_loop import CERTAINTY_EQUIVALENT, ROBUST
from rkhs_control.scenarios.studies.design import DesignOutcome

SMALL = {
    "plant.horizon": 3,
    "plant.exploration_runs": 100,
    "plant.runs": [8, 8],
    "design.region": [4, 4],
    "design.effects_region": [3, 3],
    "design.horizons": [2, 3],
    "design.runs": [60, 164],
    "design.noise_factors": [0.5, 1.0, 2.0],
    "design.norm_factors": [2.0],
    "design.sweep.values": [0.5, 0.62, 0.9],
}


@pytest.fixture(scope="module")
def predictor(exploring_predictor):
    return exploring_predictor


@pytest.fixture(scope="module")
def small_design():
    scenario, folder = load_scenario("cstr_design", SMALL)
    return run_study(scenario, folder, Work(scenario.seed, 1)).find(DesignOutcome)


def certificates(predictor, nominal, starts, limits):
    inputs = np.array([plan.inputs for plan in nominal.solve_many(starts)])
    return rc.certify_plans(predictor, starts, inputs, limits)


def test_tightened_limits_certify_the_plans_that_they_come_from(predictor, nominal, rng):
    """A plan whose predictions keep the tightened limits has all its boxes within the limits themselves."""
    starts = rng.uniform([1.3, 0.6], [2.8, 1.7], (40, 2))
    found = certificates(predictor, nominal, starts, rc.Box([0.0, 0.0], [9.0, 9.0]))
    tightening = rc.tightening_for(nominal, found)
    predicted = np.array([nominal.predict(c.question.x0, c.question.inputs)[0] for c in found])
    lowest, highest = (predicted - tightening.below).min(axis=0), (predicted + tightening.above).max(axis=0)
    for c in found:
        assert (c.tube.lower >= lowest - 1e-12).all()
        assert (c.tube.upper <= highest + 1e-12).all()
    loose = rc.tightening_for(nominal, found, share=0.5)
    assert (loose.below <= tightening.below).all()
    assert (loose.above < tightening.above).any()


def test_plans_that_keep_tightened_limits_are_certified(predictor, nominal, rng):
    """All whose boxes reach no further beyond the predictions than those that the tightening comes from."""
    limits = rc.Box([1.0, 0.9], [2.5, 1.2])
    starts = rng.uniform([1.6, 0.9], [2.5, 1.2], (40, 2))
    eager = replace(
        nominal,
        limits=rc.Limits(limits, nominal.input_limits),
        cost=replace(nominal.cost, input_weight=np.array([[1e-3]])),
    )
    tightening = rc.tightening_for(eager, certificates(predictor, eager, starts, limits))
    cautious = replace(eager, tightening=tightening)
    n_within = 0
    for x0 in starts:
        plan = cautious.solve(x0)
        certificate = rc.certify(predictor, x0, plan.inputs, state_limits=limits)
        within = certificate.tube.upper - plan.states <= tightening.above - 1e-7
        within &= plan.states - certificate.tube.lower <= tightening.below - 1e-7
        if plan.success and within.all():
            n_within += 1
            assert certificate.verdict is rc.Verdict.CERTIFIED
    assert n_within >= 20


def test_predictions_keep_tightened_limits(plant, predictor):
    problem = rc.CertaintyEquivalentOCP.from_predictor(
        predictor,
        regularisations=1e-2,
        cost=quadratic(plant),
        input_limits=plant.input_limits,
        state_limits=rc.Box([1.0, 0.5], [3.0, 2.0]),
    )
    free = problem.solve(ROBUST_START)
    below = np.zeros((3, 2))
    below[1, 1] = free.states[1, 1] - 0.5 + 0.01
    cautious = replace(problem, tightening=rc.Tightening(below, np.zeros((3, 2)))).solve(ROBUST_START)
    assert cautious.success
    assert cautious.states[1, 1] >= free.states[1, 1] + 0.01 - 1e-6
    assert cautious.cost > free.cost


@pytest.mark.parametrize("share", [0.0, 1.5, -1.0])
def test_what_cannot_be_tightened_is_refused(predictor, nominal, share):
    found = certificates(predictor, nominal, ROBUST_START[None], rc.Box([0.0, 0.0], [9.0, 9.0]))
    with pytest.raises(rc.InputError, match="share"):
        rc.tightening_for(nominal, found, share)
    with pytest.raises(rc.InputError, match="there are none"):
        rc.tightening_for(nominal, [])
    with pytest.raises(rc.InputError, match="leave nothing of state 1 at step 1"):
        replace(nominal, tightening=rc.Tightening(np.array([[0.0, 5.0]] * 3), np.array([[0.0, 5.0]] * 3)))


def test_a_search_that_ends_without_a_certificate_begins_again_at_recorded_inputs(predictor, nominal):
    """From limits so near that the nearest local optimum does not do, but another one does."""
    shares = np.linspace(0.1, 0.9, 9)
    found = [
        rc.RobustOCP(predictor, nominal, raised(predictor, nominal, share)).solve(ROBUST_START) for share in shares
    ]
    best = max(share for share, plan in zip(shares, found, strict=True) if plan.success)
    dense = np.linspace(3.0, 25.0, 400)
    lower = predictor.envelopes[0][1].bounds(np.column_stack([np.tile(ROBUST_START, (400, 1)), dense])).lower
    tube = predictor.boxes(ROBUST_START, nominal.solve(ROBUST_START).inputs)
    reachable = (lower.max() - tube.lower[0, 1]) / (tube.upper[0, 1] - tube.lower[0, 1])
    assert best >= min(reachable, 0.9) - 0.2


def test_the_robust_region_contains_the_other(small_design):
    assert small_design.is_nested
    assert small_design.n_wrong == 0
    assert small_design.region.certified(ROBUST).sum() > small_design.region.certified(CERTAINTY_EQUIVALENT).sum()
    assert small_design.half_widths.shape == (16, 3, 2)


def test_effects_have_the_right_sign(small_design):
    by_what = {(effect.what, effect.value): effect for effect in small_design.effects}
    assert by_what["noise bound x", 0.5].refutation
    assert by_what["runs", 60].half_widths > by_what["runs", 164].half_widths
    present, doubled = by_what["noise bound x", 1.0], by_what["noise bound x", 2.0]
    assert doubled.half_widths > present.half_widths
    assert doubled.shares[CERTAINTY_EQUIVALENT] <= present.shares[CERTAINTY_EQUIVALENT]
    assert by_what["norm bound x", 2.0].half_widths > present.half_widths
    assert by_what["runs", 164].shares == present.shares == by_what["horizon", 3].shares
    for effect in small_design.effects:
        if not effect.refutation:
            assert effect.shares[ROBUST] >= effect.shares[CERTAINTY_EQUIVALENT]


def test_as_a_limit_moves_the_margin_falls_with_it(small_design):
    first, *_, last = small_design.trials
    assert first.believing.verdict is rc.Verdict.CERTIFIED
    assert first.plan.price == 0.0
    assert not last.plan.success
    assert first.believing.margin > last.believing.margin


def test_the_command_shows_tables_and_keeps_figures(run, tmp_path):
    tiny = {**SMALL, "plant.horizon": 2, "design.horizons": [1], "design.runs": [], "design.noise_factors": []}
    changes = [part for key, value in tiny.items() for part in ("--set", f"{key}={value}")]
    code, text = run("run", "cstr_design", "--jobs", "1", *changes)
    assert code == 0, text
    for said in ("tightened limits", "What the certifiable region depends on", "as a limit moves", "contains that"):
        assert said in text
    folder = tmp_path / "results" / "cstr_design"
    kept = json.loads((folder / "summary.json").read_text())["design"]
    assert kept["robust_region_contains_the_other"] is True
    assert {f"design_{name}.png" for name in ("widths", "region", "effects")} <= {f.name for f in folder.glob("*.png")}
    assert "How far a limit can be moved" in (folder / "report.html").read_text()
    checked = rc.verify(folder / "certificates" / "limit_1.json", data=folder / "runs.npz")
    assert checked.accepted, checked.reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"design.horizons": [9]}, "only 8 steps"),
        ({"design.sweep.state": "c_C"}, "must be one of c_A, c_B"),
        ({"design.sweep.initial_state": [1.0]}, "must hold c_A, c_B"),
        ({"design.region_states": ["c_A", "T"]}, "names 'T'"),
        ({"design.region_states": ["c_A", "c_A"]}, "two different states"),
        ({"design.sweep.values": [2.5]}, "2.5 is beyond the opposite limit"),
        ({"control.state_weight": [-1.0, 1.0]}, "must not be negative"),
        ({"control.state_reference": [1.0]}, "control.state_reference must be"),
    ],
)
def test_impossible_designs_are_refused_before_the_work(changes, message):
    scenario, folder = load_scenario("cstr_design", changes)
    with pytest.raises(rc.InputError, match=message):
        run_study(scenario, folder, Work(1))


def test_an_unknown_initial_state_shrinks_the_region(small_design):
    changes = {**SMALL, "design.horizons": [], "design.runs": [], "design.noise_factors": [], "design.norm_factors": []}
    scenario, folder = load_scenario("cstr_design", {**changes, "initial_state_noise": 0.03})
    careful = run_study(scenario, folder, Work(scenario.seed)).find(DesignOutcome)
    assert careful.region.certified(ROBUST).sum() < small_design.region.certified(ROBUST).sum()
    assert careful.n_wrong == 0
