"""Scenarios from file to verdict: what is asked is answered, what is wrong is one line, and nothing is left behind."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.scenarios.material import CLOSED_FORM, OPTIMAL, Work
from rkhs_control.scenarios.results import summary, write_results
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import builtin_scenarios, load_scenario
from rkhs_control.scenarios.studies.check import CheckOutcome
from rkhs_control.scenarios.studies.closed_loop import ClosedLoopOutcome
from rkhs_control.scenarios.studies.plans import PlansOutcome, PlansSettings

SMALL = {
    "cstr": {
        "plant.horizon": 3,
        "plant.exploration_runs": 80,
        "plant.runs": [9, 9],
        "study.check": 30,
        "study.region": [4, 3],
    },
    "quadruple_tank": {
        "plant.horizon": 2,
        "plant.exploration_runs": 80,
        "plant.runs": 80,
        "predictor.per_dimension": False,
        "study.check": 10,
        "study.region": [3, 3],
    },
}


@pytest.fixture(scope="module", params=sorted(SMALL))
def small_study(request):
    scenario, folder = load_scenario(request.param, SMALL[request.param])
    stages = []

    def announce(stage):
        stages.append(stage)
        return lambda done, total: stages.append((stage, done, total))

    return run_study(scenario, folder, Work(scenario.seed, 1, announce)), stages


def test_small_studies_come_out_sound(small_study):
    result, _ = small_study
    assert not result.is_contradicted
    check = result.find(CheckOutcome)
    assert check.n_inside == check.n_states
    assert check.n_wrong == 0
    for plan in result.find(PlansOutcome).plans:
        optimal, closed = plan.certificates[OPTIMAL], plan.certificates[CLOSED_FORM]
        assert (optimal.tube.lower >= closed.tube.lower - 1e-6).all()
        assert (optimal.tube.upper <= closed.tube.upper + 1e-6).all()
        assert plan.steps_inside(OPTIMAL) == plan.steps_inside(CLOSED_FORM) == len(optimal.tube.lower)
        assert plan.margins[OPTIMAL]["norm_margin"] >= plan.margins[CLOSED_FORM]["norm_margin"]
        assert plan.margins[OPTIMAL]["noise_margin"] >= plan.margins[CLOSED_FORM]["noise_margin"]


def test_every_stage_reports_its_progress_to_the_end(small_study):
    _, stages = small_study
    announced = {stage for stage in stages if isinstance(stage, str)}
    finished = {event[0] for event in stages if not isinstance(event, str) and event[1] == event[2]}
    assert announced == finished


def test_results_are_complete_and_read_back(small_study, tmp_path):
    result, _ = small_study
    write_results(result, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    content = json.loads((folder / "summary.json").read_text())
    assert content == json.loads(json.dumps(summary(result)))
    assert content["verdict"] == result.worst_verdict.name
    names = result.material.runs.state_names
    plans = rc.load_plans(folder / "plans.csv", state_names=names, input_names=result.material.runs.input_names)
    predictor = rc.load_predictor(folder / "predictor.npz")
    for plan, x0, inputs in zip(result.find(PlansOutcome).plans, plans.x0, plans.inputs, strict=True):
        again, before = predictor.boxes(x0, inputs), plan.certificates[OPTIMAL].tube
        np.testing.assert_allclose(again.lower, before.lower, rtol=1e-7)
        np.testing.assert_allclose(again.upper, before.upper, rtol=1e-7)
    stems = {path.stem for path in folder.glob("*.svg")}
    assert stems == {path.stem for path in folder.glob("*.png")}
    assert {"region", "time_1", "phase_" + "_".join(names[:2])} <= stems
    certificates = sorted((folder / "certificates").glob("*.json"))
    assert len(certificates) == len(plans.names)
    for file in certificates:
        checked = rc.verify(file, data=folder / "runs.npz")
        assert checked.accepted, checked.reason
        assert file.stat().st_size < 1_000_000


def test_the_same_seed_gives_the_same_study_however_it_is_shared_out():
    changes = {**SMALL["cstr"], "study.check": 0, "study.region": [1, 1]}
    scenario, folder = load_scenario("cstr", changes)
    one, two, other = (run_study(scenario, folder, Work(seed, jobs)) for seed, jobs in ((1, 1), (1, 2), (2, 1)))
    np.testing.assert_array_equal(one.material.runs.states, two.material.runs.states)
    assert not np.array_equal(one.material.runs.states, other.material.runs.states)


def test_plans_that_break_input_limits_say_nothing_about_the_assumptions():
    """They are refuted, and the plant keeps its limits all the same: no verdict is wrong."""
    changes = {**SMALL["cstr"], "study.region": [1, 1], "limits.input_rates": {"u": [-1e-3, 1e-3]}}
    scenario, folder = load_scenario("cstr", changes)
    check = run_study(scenario, folder, Work(scenario.seed)).find(CheckOutcome)
    assert check.counts[rc.Verdict.REFUTED] > 0
    assert check.n_wrong == 0


def test_measured_initial_states_are_off_by_at_most_their_bound_and_boxes_allow_for_it():
    small = {**SMALL["cstr"], "study.region": [1, 1], "predictor.compare_affine_prior": False}
    known, measured = (
        run_study(*load_scenario("cstr", {**small, "plant.initial_state_noise": noise}), Work(1))
        for noise in (0.0, 0.05)
    )
    starts = known.material.runs.states[:, 0]  # a grid
    off = np.abs(measured.material.runs.states[:, 0] - starts)
    assert 0.04 < off.max() <= 0.05 * (1.0 + 1e-12)
    np.testing.assert_array_equal(measured.material.runs.initial_state_noise, [0.05, 0.05])
    check = measured.find(CheckOutcome)
    assert check.n_inside == check.n_states == 90
    assert check.n_wrong == 0


def test_an_unknown_state_makes_closed_loops_and_designs_more_careful():
    """The controller is told a wrong state; what it promises holds for the true one."""
    small = {"plant.horizon": 2, "plant.exploration_runs": 100, "plant.runs": [6, 6], "closed_loop.runs": 4}
    counts = []
    for noise in (0.0, 0.1):
        changes = {**small, "closed_loop.steps": 5, "closed_loop.region": [], "initial_state_noise": noise}
        scenario, folder = load_scenario("cstr_closed_loop", changes)
        result = run_study(scenario, folder, Work(scenario.seed))
        assert not result.is_contradicted
        loops = result.find(ClosedLoopOutcome).loops
        counts.append(sum(d.name != "SAFE_INPUT" for loop in loops["certified"] for d in loop.decisions))
    assert counts[1] < counts[0]


def test_closed_loops_keep_what_was_certified(run, tmp_path):
    small = {
        "plant.horizon": 2,
        "plant.exploration_runs": 100,
        "plant.runs": "[6, 6]",
        "closed_loop.runs": 4,
        "closed_loop.steps": 5,
        "closed_loop.region": "[]",
    }
    changes = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    code, text = run("run", "cstr_closed_loop", "--jobs", "1", *changes)
    assert code == 0, text
    kept = json.loads((tmp_path / "results" / "cstr_closed_loop" / "summary.json").read_text())
    assert list(kept["closed_loops"]) == ["certainty equivalent", "robust", "certified"]
    for loop in kept["closed_loops"]["certified"]:
        assert len(loop["decisions"]) == 5
        for inside, decision in zip(loop["inside"], loop["decisions"], strict=True):
            assert inside or decision == "SAFE_INPUT"
    starts = [[loop["states"][0] for loop in loops] for loops in kept["closed_loops"].values()]
    assert starts[0] == starts[1] == starts[2]
    assert (tmp_path / "results" / "cstr_closed_loop" / "closed_loops.png").exists()


def test_builtin_scenarios_say_what_they_do():
    names = {
        "cstr",
        "cstr_closed_loop",
        "cstr_design",
        "cstr_forever",
        "cstr_forever_design",
        "cstr_sampling",
        "kpc",
        "quadruple_tank",
        "reachability",
        "tank",
        "tclab",
        "three_tanks_forever",
    }
    assert set(builtin_scenarios()) == names
    for name in builtin_scenarios():
        scenario, _ = load_scenario(name)
        assert scenario.description
        assert scenario.title


def test_documented_scenario_is_one(tmp_path):
    """The blocks of the page, put together."""
    page = Path(__file__).resolve().parents[2] / "docs" / "scenarios.md"
    blocks = re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL)
    (tmp_path / "documented.toml").write_text("\n".join(blocks))
    scenario, folder = load_scenario(str(tmp_path / "documented.toml"))
    assert folder == tmp_path
    assert scenario.settings(PlansSettings).initial_states == [[1.23, 0.81], [2.7, 0.544]]


def test_worst_verdict_is_that_of_the_study():
    scenario, folder = load_scenario(
        "cstr", {**SMALL["cstr"], "study.check": 0, "predictor.compare_closed_form": False}
    )
    result = run_study(scenario, folder, Work(1))
    verdicts = {plan.verdict for plan in result.find(PlansOutcome).plans}
    assert result.worst_verdict in verdicts
    order = list(rc.Verdict)
    assert order.index(result.worst_verdict) == max(order.index(verdict) for verdict in verdicts)
