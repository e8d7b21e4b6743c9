"""Recordings that were measured throughout: windows, and what unknown initial states cost."""

import json
import re

import numpy as np
import pytest
from own_data import certify, rewrite

import rkhs_control as rc
from rkhs_control.scenarios.material import OPTIMAL, Source, Work, gather
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.plans import PlansOutcome


@pytest.fixture
def mine(mine):
    """The example with every third of its runs."""
    rewrite(mine / "runs.csv", lambda rows: [rows[0], *(row for row in rows[1:] if int(row[0]) % 3 == 0)])
    return mine


@pytest.fixture
def measured_throughout(mine):
    """The same with noise on initial states, too; and a plan of two steps."""

    def noisy(rows):
        rng = np.random.default_rng(0)
        noise = [rng.uniform(-0.05, 0.05, 2) * (row[1] == "0") for row in rows[1:]]  # the others have theirs
        return [
            rows[0],
            *([*row[:2], *(np.array(row[2:4], float) + e), row[4]] for row, e in zip(rows[1:], noise, strict=True)),
        ]

    rewrite(mine / "runs.csv", noisy)
    rewrite(mine / "plan.csv", lambda rows: rows[:3])
    return mine


WINDOWS = {
    "data.horizon": 2,
    "data.stride": 2,
    "predictor.selection_runs": 40,
    "predictor.lengthscales": [20],
    "predictor.compare_closed_form": False,
    "title": "A reactor",
}


def test_windows_are_called_so_and_begin_with_measured_states(run, measured_throughout, tmp_path):
    changes = {**WINDOWS, "limits.states.c_B": [0.4, 2.0]}
    settings = (part for k, v in changes.items() for part in ("--set", f"{k}={json.dumps(v)}"))
    code, text = certify(run, measured_throughout, *settings)
    assert code == 0, text
    summary = json.loads((tmp_path / "results" / "mine" / "summary.json").read_text())
    held_out, left_out = summary["held_out_runs_without_contradiction"], summary["windows_left_out"]
    assert summary["runs"] + held_out + left_out == 160
    assert summary["runs_are_windows"]
    for noise in summary["initial_state_noise"].values():
        np.testing.assert_allclose(noise, [0.06, 0.06], rtol=1e-12)
    assert left_out > 0
    assert f"{held_out} held-out windows do not contradict the assumptions" in text
    assert f"{left_out} windows that share samples with these were left out" in text
    assert "begin with measured states, which may be off by the noise bound: c_A by 0.06, c_B by 0.06" in text
    page = (tmp_path / "results" / "mine" / "report.html").read_text()
    report = re.sub("<[^>]*>", "", page)  # indices are marked up
    assert f"recorded windows make the boxes, {held_out} held out test them" in report
    assert f"{held_out} more were held out, and {left_out} that share samples with these were left out" in report
    assert "The windows begin with measured states, which may be off by the noise bound: c_A by 0.06" in report
    assert "The true initial state of a plan may differ from the stated one: c_A by 0.06, c_B by 0.06" in report
    assert "recorded runs" not in report


def test_scenarios_hold_out_windows_that_share_no_sample_with_the_rest(measured_throughout, monkeypatch):
    parts = []
    held_out = rc.Trajectories.held_out

    def watched(self, share, rng):
        parts.append(held_out(self, share, rng))
        return parts[-1]

    monkeypatch.setattr(rc.Trajectories, "held_out", watched)
    scenario, folder = load_scenario(str(measured_throughout / "scenario.toml"), {**WINDOWS, "data.stride": 1})
    material = gather(scenario, Source.of(scenario, folder), Work(0))
    ((kept, held),) = parts
    assert material.runs.origins.tolist() == kept.origins.tolist()
    assert (material.n_held_out, material.n_left_out) == (len(held), 320 - len(kept) - len(held))
    taken = {(r, f + k) for r, f in held.origins.tolist() for k in range(3)}
    assert not taken & {(r, f + k) for r, f in kept.origins.tolist() for k in range(3)}


def test_measured_initial_states_may_be_taken_as_exact_but_it_is_said(measured_throughout):
    changes = {**WINDOWS, "data.initial_state_noise": 0.0}
    scenario, folder = load_scenario(str(measured_throughout / "scenario.toml"), changes)
    with pytest.raises(rc.RkhsControlError, match=r"norm .* begin with measured states: initial_state_noise, .*, is 0"):
        gather(scenario, Source.of(scenario, folder), Work(0))


def test_plans_start_as_uncertain_as_recorded_initial_states_unless_the_scenario_says_otherwise(measured_throughout):
    widths = []
    for given, wanted in ((None, 0.06), (0.0, 0.0), (0.01, 0.01), ([0.01, 0.01], 0.01)):
        changes = {**WINDOWS, "plan": "plan.csv", **({} if given is None else {"initial_state_noise": given})}
        scenario, folder = load_scenario(str(measured_throughout / "scenario.toml"), changes)
        (plan,) = run_study(scenario, folder, Work(0)).find(PlansOutcome).plans
        certificate = plan.certificates[OPTIMAL]
        np.testing.assert_allclose(certificate.question.initial_state_noise, [wanted] * 2, rtol=1e-12)
        widths.append((certificate.tube.upper - certificate.tube.lower).mean())
    assert widths[1] < widths[2] == widths[3] < widths[0]


def test_recordings_too_short_to_hold_windows_out_say_so(measured_throughout):
    rewrite(measured_throughout / "runs.csv", lambda rows: rows[:7])
    scenario, folder = load_scenario(
        str(measured_throughout / "scenario.toml"), {"data.horizon": 3, "predictor.held_out": 0.34}
    )
    with pytest.raises(rc.InputError, match=r"runs.csv, predictor.held_out: all 3 windows share samples"):
        gather(scenario, Source.of(scenario, folder), Work(0))


def test_what_measured_initial_states_cost_is_said(run, mine):
    _, text = certify(run, mine, "--set", "data.initial_state_noise=0.002", "--set", "initial_state_noise=0.002")
    assert "unknown initial states account for up to" in text


def test_measured_initial_states_widen_the_boxes(mine):
    widths = []
    for noise in (0.0, 0.001):
        scenario, folder = load_scenario(str(mine / "scenario.toml"), {"data.initial_state_noise": noise})
        predictor = gather(scenario, Source.of(scenario, folder), Work(0)).predictors[OPTIMAL]
        tube = predictor.boxes([2.0, 1.0], np.full((5, 1), 14.0))
        widths.append(tube.upper - tube.lower)
    assert (widths[1] > widths[0]).all()
