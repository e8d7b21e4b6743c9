"""Scenarios from file to verdict: what is asked is answered, what is wrong is one line, and nothing is left behind."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.scenarios import results
from rkhs_control.scenarios.example import write_example
from rkhs_control.scenarios.material import CLOSED_FORM, OPTIMAL, Source, Work, gather
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


def test_an_unknown_state_makes_closed_loops_and_designs_more_careful():
    """The controller is told a wrong state; what it promises holds for the true one."""
    small = {"plant.horizon": 2, "plant.exploration_runs": 100, "plant.runs": [6, 6], "closed_loop.runs": 4}
    counts = []
    for noise in (0.0, 0.01):
        changes = {**small, "closed_loop.steps": 5, "initial_state_noise": noise}
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
    names = {"cstr", "cstr_closed_loop", "cstr_design", "cstr_sampling", "quadruple_tank"}
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


# ---- a user's own data


@pytest.fixture
def mine(tmp_path):
    """An example folder to spoil."""
    write_example(tmp_path / "mine")
    return tmp_path / "mine"


def certify(run, mine, *more):
    return run("certify", str(mine / "scenario.toml"), "--plan", str(mine / "plan.csv"), "--jobs", "1", *more)


def rewrite(file, change):
    """Change the rows of a CSV file, given as lists of cells with the header first."""
    with file.open(newline="") as stream:
        rows = list(csv.reader(stream))
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(change(rows))


def test_example_is_certified_and_leaves_figures(run, mine, tmp_path):
    code, text = certify(run, mine)
    assert code == 0, text
    assert "CERTIFIED" in text
    assert "24 runs that were held out do not contradict the assumptions" in text
    assert (tmp_path / "results" / "mine" / "time_1.png").stat().st_size > 10_000
    certificate = tmp_path / "results" / "mine" / "certificates" / "plan_1.json"
    code, text = run("verify", str(certificate), "--data", str(mine / "runs.csv"), "--quiet")
    assert code == 0, text
    assert "samples found in the recordings" in text


def test_example_does_not_overwrite_what_is_there(run, mine):
    code, text = run("example", str(mine))
    assert code == 1
    assert "already there" in text


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
    assert "the scenario asks nothing" in text


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
    assert len(text.splitlines()) == 1, text
    assert text.startswith("error: ")
    assert message in text
    assert name in text
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
        ("data.stride=3", "data: stride is how far windows are apart, and needs horizon"),
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
    assert not (tmp_path / "results").exists()


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


@pytest.fixture
def measured_throughout(mine):
    """The example with noise on initial states, too; and a plan of two steps."""

    def noisy(rows):
        rng = np.random.default_rng(0)
        return [
            rows[0],
            *([*row[:2], *(np.array(row[2:4], float) + rng.uniform(-0.05, 0.05, 2)), row[4]] for row in rows[1:]),
        ]

    rewrite(mine / "runs.csv", noisy)
    rewrite(mine / "plan.csv", lambda rows: rows[:3])
    return mine


WINDOWS = {
    "data.horizon": 2,
    "data.stride": 2,
    "predictor.selection_runs": 60,
    "predictor.lengthscales": [20],
    "predictor.compare_closed_form": False,
    "title": "A reactor",
}


def test_windows_are_called_so_and_begin_with_measured_states(run, measured_throughout, tmp_path):
    code, text = certify(
        run, measured_throughout, *(part for k, v in WINDOWS.items() for part in ("--set", f"{k}={json.dumps(v)}"))
    )
    assert code == 2, text
    summary = json.loads((tmp_path / "results" / "mine" / "summary.json").read_text())
    held_out, left_out = summary["held_out_runs_without_contradiction"], summary["windows_left_out"]
    assert summary["runs"] + held_out + left_out == 480
    assert summary["runs_are_windows"]
    for noise in summary["initial_state_noise"].values():
        np.testing.assert_allclose(noise, [0.06, 0.06], rtol=1e-12)
    assert left_out > 0
    assert f"{held_out} windows that were held out do not contradict the assumptions" in text
    assert f"{left_out} windows that share samples with those were left out" in text
    assert "begin with measured states, which may be off by the noise bound: c_A by 0.06, c_B by 0.06" in text
    report = (tmp_path / "results" / "mine" / "report.html").read_text()
    assert f"recorded windows make the boxes, {held_out} held out test them" in report
    assert f"{held_out} more were held out, and {left_out} that share samples with these were left out" in report
    assert "The windows begin with measured states, which may be off by the noise bound: c_A by 0.06" in report
    assert "The true initial state of a plan may differ from the one in it: c_A by 0.06, c_B by 0.06" in report
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
    assert (material.n_held_out, material.n_left_out) == (len(held), 960 - len(kept) - len(held))
    taken = {(r, f + k) for r, f in held.origins.tolist() for k in range(3)}
    assert not taken & {(r, f + k) for r, f in kept.origins.tolist() for k in range(3)}


def test_measured_initial_states_may_be_taken_as_exact_but_it_is_said(measured_throughout):
    changes = {**WINDOWS, "data.initial_state_noise": 0.0}
    scenario, folder = load_scenario(str(measured_throughout / "scenario.toml"), changes)
    with pytest.raises(rc.RkhsControlError, match=r"norm .* begin with measured states: .* and it is 0"):
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
    assert "unknown initial states make up to" in text


def test_measured_initial_states_widen_the_boxes(mine):
    widths = []
    for noise in (0.0, 0.001):
        scenario, folder = load_scenario(str(mine / "scenario.toml"), {"data.initial_state_noise": noise})
        predictor = gather(scenario, Source.of(scenario, folder), Work(0)).predictors[OPTIMAL]
        tube = predictor.boxes([2.0, 1.0], np.full((5, 1), 14.0))
        widths.append(tube.upper - tube.lower)
    assert (widths[1] > widths[0]).all()
