"""The study for ever: a region, its proof, and policies that it filters."""

import json

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.control.loop_log import Decision
from rkhs_control.data.sets import Box
from rkhs_control.models.cstr import CSTR
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.results import write_results
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.closed_loop import ClosedLoopOutcome
from rkhs_control.scenarios.studies.filtered import at_random, worst_input
from rkhs_control.scenarios.studies.forever import KIND, ForeverOutcome

SMALL = {
    "plant.horizon": 2,
    "plant.exploration_runs": 120,
    "plant.runs": [8, 8],
    "plant.noise": 0.01,
    "plant.noise_bound": 0.012,
}


@pytest.fixture(scope="module")
def study():
    small = {"forever.cells": [8, 6], "forever.runs": 3, "forever.steps": 30, "forever.table": [5, 5]}
    scenario, folder = load_scenario("cstr_forever", {**SMALL, **small, "forever.checked": 2000})
    return run_study(scenario, folder, Work(scenario.seed))


def test_filtered_policies_keep_the_limits_and_every_step_is_certified(study):
    outcome = study.find(ForeverOutcome)
    assert outcome.region.share > 0.8
    assert (outcome.checked, outcome.escaped) == (2000, 0)
    assert not study.is_contradicted
    for loops in outcome.loops:
        assert outcome.n_outside(loops.states) == 0
        assert all(decision.is_certified for decision in loops.decisions)
        assert sum(loops.decisions.values()) == 90
    unfiltered = {loops.policy: outcome.n_outside(loops.unfiltered) for loops in outcome.loops}
    assert unfiltered["hostile"] > 0


def test_its_files_hold_a_proof_and_all_numbers(study, tmp_path):
    write_results(study, tmp_path)
    checked = rc.verify(tmp_path / "region.json", data=tmp_path / "runs.npz")
    assert checked.accepted
    assert checked.verdict == "INVARIANT"
    kept = json.loads((tmp_path / "summary.json").read_text())["forever"]
    assert kept["share"] == pytest.approx(checked.share)
    assert kept["policies"]["random"]["violations"] == 0
    for name in ("forever.png", "filtered_loops.svg", "report.html"):
        assert (tmp_path / name).exists()
    assert "For ever" in (tmp_path / "report.html").read_text()
    named = {file.name for pattern in KIND.files for file in tmp_path.glob(pattern)}
    always = {"summary.json", "runs.npz", "predictor.npz", "report.html", "explorer.html"}
    assert {file.name for file in tmp_path.iterdir()} == named | always


def test_a_certified_loop_with_a_region_needs_no_safe_input():
    small = {
        "closed_loop.region": [8, 6],
        "closed_loop.runs": 2,
        "closed_loop.steps": 6,
        "closed_loop.repair_seconds": 0.2,
    }
    limits = {"limits.states.c_B": [0.8, 2.0]}
    scenario, folder = load_scenario("cstr_closed_loop", {**SMALL, **small, **limits})
    result = run_study(scenario, folder, Work(scenario.seed))
    tally = result.find(ClosedLoopOutcome).tallies["certified"]
    assert tally.n_outside == 0
    assert Decision.SAFE_INPUT not in tally.decisions


def test_the_hostile_policy_holds_what_leads_out(rng):
    plant = CSTR()
    worst = worst_input(plant, plant.state_limits, plant.input_limits)
    assert worst.tolist() == [3.0]
    policy = at_random(Box([0.0], [1.0]), rng)
    drawn = np.array([policy(np.zeros((3, 2))) for _ in range(50)])
    assert drawn.shape == (50, 3, 1)
    assert len(np.unique(drawn)) == 2 * 3


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"forever.cells": [4]}, "forever.cells must be one per state"),
        ({"forever.table": [4]}, "forever.table must be"),
    ],
)
def test_settings_that_do_not_fit_the_plant_are_refused(change, match):
    scenario, folder = load_scenario("cstr_forever", change)
    with pytest.raises(rc.InputError, match=match):
        run_study(scenario, folder, Work(scenario.seed))
