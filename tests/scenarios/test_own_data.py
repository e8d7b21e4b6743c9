"""A user's own data, from file to verdict: what is wrong is one line, and nothing is left behind."""

import json

import numpy as np
import pytest
from own_data import certify, rewrite

import rkhs_control as rc
from rkhs_control.scenarios import results
from rkhs_control.scenarios.material import Source, Work, gather
from rkhs_control.scenarios.schema import load_scenario


def test_example_is_certified_and_leaves_figures(run, mine, tmp_path):
    code, text = certify(run, mine)
    assert code == 0, text
    assert "CERTIFIED" in text
    assert "24 held-out runs do not contradict the assumptions" in text
    assert (tmp_path / "results" / "mine" / "time_1.png").stat().st_size > 10_000
    certificate = tmp_path / "results" / "mine" / "certificates" / "plan_1.json"
    code, text = run("verify", str(certificate), "--data", str(mine / "runs.csv"), "--quiet")
    assert code == 0, text
    assert "samples found in the recordings" in text


def test_example_does_not_overwrite_what_is_there(run, mine):
    code, text = run("example", str(mine))
    assert code == 1
    assert "already exists" in text


@pytest.mark.parametrize(
    ("limits", "code", "verdict"),
    [("[0.0, 5.0]", 0, "CERTIFIED"), ("[0.0, 2.47]", 2, "UNDECIDED"), ("[0.0, 2.0]", 3, "REFUTED")],
)
def test_exit_code_is_the_verdict(run, mine, limits, code, verdict):
    found, text = certify(
        run, mine, "--set", f"limits.states.c_A={limits}", "--set", "predictor.compare_closed_form=false"
    )
    assert verdict in text
    assert found == code


def test_run_takes_a_plan_named_in_the_scenario(run, mine):
    code, text = run("run", str(mine / "scenario.toml"), "--jobs", "1", "--set", "plan=plan.csv")
    assert code == 0, text
    code, text = run("run", str(mine / "scenario.toml"), "--jobs", "1")
    assert code == 1
    assert "the scenario asks for nothing" in text


def test_many_plans_of_different_lengths_are_all_judged(run, mine, tmp_path):
    def copies(rows):
        header, plan = rows[0], rows[1:]
        short = [["short", *row[1:]] for row in plan[:2]]
        return [["plan", *header[1:]], *plan, *short]

    rewrite(mine / "plan.csv", copies)
    code, text = certify(run, mine)
    assert code == 0, text
    found = json.loads((tmp_path / "results" / "mine" / "summary.json").read_text())
    assert {plan["name"]: len(plan["inputs"]) for plan in found["plans"]} == {"1": 5, "short": 2}


SPOILED = {
    "missing column": (
        "runs.csv",
        lambda rows: [[cell for j, cell in enumerate(row) if j != 3] for row in rows],
        "there is no column 'c_B'",
    ),
    "NaN": (
        "runs.csv",
        lambda rows: [*rows[:7], [*rows[7][:2], "nan", *rows[7][3:]], *rows[8:]],
        "row 8, column 'c_A'",
    ),
    "repeated step": ("runs.csv", lambda rows: [*rows[:4], rows[3], *rows[4:]], "step 2 of trajectory 0"),
    "repeated timestamp": (
        "runs.csv",
        lambda rows: [
            ["trajectory", "time", *rows[0][2:]],
            *([row[0], f"{30 * min(int(row[1]), 4)}", *row[2:]] for row in rows[1:]),
        ],
        "time 120.0 of trajectory 0",
    ),
    "plan longer than the horizon": (
        "plan.csv",
        lambda rows: [*rows, ["1", "5", "", "", "10.0"]],
        "plan 1 has 6 steps, but the recorded runs only 5: shorten the plan, or record longer runs",
    ),
    "plan without a column": ("plan.csv", lambda rows: [row[:-1] for row in rows], "there is no column 'u'"),
    "plan without initial state": (
        "plan.csv",
        lambda rows: [rows[0], ["1", "0", "", "", "10.0"], *rows[2:]],
        "column 'c_A'",
    ),
    "one run": ("runs.csv", lambda rows: rows[:7], "are too few"),
}


@pytest.mark.parametrize("case", sorted(SPOILED))
def test_spoiled_files_are_one_line_that_says_what_to_do(run, mine, tmp_path, case):
    name, change, message = SPOILED[case]
    rewrite(mine / name, change)
    code, text = certify(run, mine)
    assert code == 1, text
    *doubts, error = text.splitlines()
    assert all(doubt.startswith(("problem: ", "warning: ")) for doubt in doubts), text
    assert error.startswith("error: ")
    assert message in error
    assert name in error
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.noise_bound=0.02", "raise noise_bound if that is too small"),
        ("predictor.selection_runs=1", "predictor.selection_runs"),
        ("study={initial_states = [[1.0, 1.0]], region = [3, 3]}", "need [control]"),
        ("study.region=[3, 3]", "region in [study] needs [control]"),
        ("data.noise_bound=-0.1", "data.noise_bound"),
        ("predictor.norm_bound=0.5", "norm_bound 0.5 (given) is refuted by the data"),
        ("predictor.norm_bond=0.5", "(did you mean 'norm_bound'?)"),
        ("data.file=runs.csc", "there is no file"),
        ("data.states=['c_A', 'c_b']", "did you mean 'c_B'?"),
        ("limits.states.c_A=[3.0, 1.0]", "the lower end must not exceed the upper"),
        ("limits.states.c_A=[nan, 1.0]", "the lower end must not exceed the upper"),
        ("data.noise_bound={c_A = 0.06}", "data.noise_bound has no value for 'c_B'"),
        ("data.noise_bound=[0.06]", "data.noise_bound must be a number or 2 of them"),
        ("data.stride=3", "data: stride is the distance between windows, and needs horizon"),
        ("data.horizon=9", "no run has 9 steps"),
        (
            "data.horizon=4",
            "plan 1 has 5 steps, but the recorded windows only 4: shorten the plan, or cut longer windows",
        ),
        ("data.initial_state_noise={c_A = 0.06}", "data.initial_state_noise has no value for 'c_B'"),
        ("study.initial_states=[[1.0, 1.0]]", "initial_states in [study] need [control]"),
        ("plant.name=cstr", "plant"),
        ("title=3", "title: input should be a valid string"),
    ],
)
def test_wrong_settings_are_one_line_that_names_them(run, mine, tmp_path, change, message):
    code, text = certify(run, mine, "--set", change)
    assert code == 1, text
    *before, last = text.splitlines()
    assert all(line.startswith("choosing kernels") for line in before), text
    assert last.startswith("error: ")
    assert message in last
    assert not (tmp_path / "results").exists()


def test_a_file_that_is_not_toml_is_one_line(run, mine):
    (mine / "scenario.toml").write_text("title = \n")
    code, text = certify(run, mine)
    assert code == 1
    assert "not a readable TOML file" in text


def test_held_out_runs_that_contradict_are_refused(mine):
    """Runs of another plant among those held out: no safety factor can explain them."""
    scenario, folder = load_scenario(str(mine / "scenario.toml"), {"predictor.held_out": 0.5})
    runs = rc.load_trajectories(folder / "runs.csv", state_names=["c_A", "c_B"], input_names=["u"], noise_bound=0.06)
    states = runs.states.copy()
    rng = np.random.default_rng(0)
    held_out = np.sort(rng.permutation(len(runs))[: len(runs) // 2])
    states[held_out, 2:, 0] += 1.0
    rc.save_trajectories(rc.Trajectories(states, runs.inputs, 0.06, ["c_A", "c_B"], ["u"]), folder / "runs.csv")
    with pytest.raises(rc.FalsifiedNormBoundError, match=r"held-out runs contradict their boxes, the first at step 2"):
        gather(scenario, Source.of(scenario, folder), Work(0))


def test_noise_bounds_may_be_given_by_state(run, mine):
    for change in ("data.noise_bound=[0.06, 0.06]", "data.noise_bound={c_A = 0.06, c_B = 0.06}"):
        code, text = certify(run, mine, "--set", change)
        assert code == 0, text


def test_infinite_limits_are_none(run, mine, tmp_path):
    code, text = certify(run, mine, "--set", "limits.states={c_A = [-inf, inf], c_B = [-inf, 2.0]}")
    assert code == 0, text
    kept = json.loads((tmp_path / "results" / "mine" / "summary.json").read_text())
    assert kept["scenario"]["limits"]["states"]["c_A"] == ["-Infinity", "Infinity"]


def test_noise_that_explains_everything_does_not_make_boxes_vanish(run, mine):
    """Zero fits all the data, so they say nothing about the norm; what hides in the noise must stay possible."""
    code, text = certify(run, mine, "--set", "data.noise_bound=5.0")
    assert code == 2, text
    assert "UNDECIDED" in text


def test_names_with_marks_in_them_are_only_names(run, mine, tmp_path):
    rewrite(mine / "plan.csv", lambda rows: [rows[0], *(["[/b] $x", *row[1:]] for row in rows[1:])])
    for name in ("runs.csv", "plan.csv"):
        rewrite(mine / name, lambda rows: [[cell.replace("c_B", "c_B/$l") for cell in rows[0]], *rows[1:]])
    changes = ["data.states=['c_A', 'c_B/$l']", "limits.states={'c_B/$l' = [0.5, 2.0]}", "title='[bold]x[/foo]'"]
    code, text = certify(run, mine, *(part for change in changes for part in ("--set", change)))
    assert code == 0, text
    assert "[/b] $x" in text
    assert (tmp_path / "results" / "mine" / "phase_c_A_c_B_l.png").exists()


def test_nothing_is_left_behind_when_writing_fails(run, mine, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(results.figures, "save_figure", fail)
    code, text = certify(run, mine)
    assert code == 1
    assert text.splitlines()[-1] == "error: the disk is full"
    assert {file.name for file in tmp_path.glob("results/mine/*")} <= {".parts"}  # empty if all parts were quick


def test_figures_of_an_earlier_run_go(run, mine, tmp_path):
    folder = tmp_path / "results" / "mine"
    folder.mkdir(parents=True)
    for name in ("time_7.png", "mine.txt"):
        (folder / name).write_text("")
    assert certify(run, mine)[0] == 0
    assert not (folder / "time_7.png").exists()
    assert (folder / "mine.txt").exists()


def test_a_plan_that_starts_outside_is_said_to(run, mine):
    _, text = certify(run, mine, "--set", "limits.states.c_A=[1.0, 2.6]")
    assert "plan 1 starts outside the limits" in text
