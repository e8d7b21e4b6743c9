"""One long log of a few outputs, from file to verdict: histories, what is held out, plans that begin with a past."""

import json
import re

import numpy as np
import pytest
from logs import SCENARIO, simulated, write_log
from problems import REFERENCE

import rkhs_control as rc
from rkhs_control.scenarios.material import OPTIMAL, Source, Work, gather
from rkhs_control.scenarios.results import report, write_results
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.plans import PlansOutcome
from rkhs_control.scenarios.studies.recordings import KIND, RecordingsOutcome

RECORDINGS = REFERENCE.parent / "recordings"

CONTROL = {
    "control.state_weight": [1.0],
    "control.input_weight": [0.001],
    "control.terminal_weight": [1.0],
    "control.state_reference": [42.0],
    "control.input_reference": [40.0],
}


@pytest.fixture
def log(tmp_path):
    """A scenario file, beside its log of 600 samples."""
    write_log(tmp_path / "log.csv", [simulated(600, np.random.default_rng(4))])
    (tmp_path / "block.toml").write_text(SCENARIO)
    return tmp_path / "block.toml"


def study(file, **changes):
    scenario, folder = load_scenario(str(file), {key.replace("__", "."): value for key, value in changes.items()})
    return run_study(scenario, folder, Work(0))


@pytest.mark.parametrize("clock", ["time", "step", "sample"])
def test_windows_of_a_scenario_are_those_of_python(log, clock):
    recordings = [simulated(n, np.random.default_rng(n)) for n in (120, 60)]
    write_log(log.parent / "log.csv", recordings, clock)
    scenario, folder = load_scenario(str(log), {"data.disturbance_bound": {"T": 0.25}})
    found = Source.of(scenario, folder).recorded
    wanted = rc.Trajectories.from_recordings(
        recordings, 3, output_lags=2, input_lags=1, every=4, noise_bound=0.05, disturbance_bound=0.25
    )
    for name in ("states", "inputs", "histories", "origins", "disturbance_bound"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert found.history_names == ("T", "T[-1]", "Q[-1]")
    np.testing.assert_allclose(found.initial_state_noise, [0.05, 0.05, 0.0], rtol=1e-9)
    assert found.sampling_time == (4.0 if clock == "time" else 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.horizon": None, "data.output_lags": 1, "data.every": 1}, "input_lags says how windows are cut"),
        ({"data.output_lags": 0}, r"data\.output_lags: .* greater than or equal to 1; got 0"),
        ({"data.input_lags": -1}, r"data\.input_lags: .* greater than or equal to 0; got -1"),
        ({"data.every": 2.5}, r"data\.every"),
        ({"data.disturbance_bound": -0.1}, r"data\.disturbance_bound"),
        ({"data.disturbance_bound": [0.1, 0.2]}, r"data\.disturbance_bound must be a number or 1 of them \(T\)"),
        ({"predictor.prior": "linear"}, r"predictor\.prior: .*'none', 'constant' or 'affine'; got 'linear'"),
        ({"predictor.compare_affine_prior": True}, "prior is already affine"),
        ({"predictor.held_out_part": "start"}, "'random' or 'end'"),
        ({"predictor.held_out": 0.0}, r"\[recordings\] needs \[data\] .* predictor.held_out"),
        ({"recordings.steps": [1, 4]}, "recordings.steps: the recorded windows have only 3 steps"),
        ({**CONTROL, "study.initial_states": [[30.0]]}, r"\[30.0\] must hold T, T\[-1\], Q\[-1\]"),
        ({"study.robust": True}, "robust in .study. needs initial_states"),
        ({**CONTROL, "design": {}}, r"\[design\] begins with a state, but the runs have histories: T, T\[-1\]"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(log, changes, message):
    with pytest.raises(rc.InputError, match=message):
        study(log, **changes)


def test_a_region_of_histories_is_refused(log):
    changes = {**CONTROL, "study.initial_states": [[30.0, 30.0, 40.0]], "study.region": [2, 2]}
    with pytest.raises(rc.InputError, match=r"region in \[study\] begins with a state"):
        study(log, **changes)


def test_files_may_be_named_by_an_environment_variable(run, log, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    moved = (log.parent / "log.csv").rename(tmp_path / "data" / "log.csv")
    monkeypatch.delenv("MY_LOGS", raising=False)
    command = ("run", str(log), "--jobs", "1", "--set", "data.file=$MY_LOGS/log.csv")
    code, text = run(*command)
    assert code == 1
    (line,) = text.splitlines()
    assert "needs the environment variable MY_LOGS, which is not set" in line
    assert "--set data.file=/path/to/log.csv" in line
    monkeypatch.setenv("MY_LOGS", str(tmp_path / "data"))
    for file in ("$MY_LOGS/log.csv", "${MY_LOGS}/log.csv", moved):
        scenario, folder = load_scenario(str(log), {"data.file": str(file)})
        assert Source.of(scenario, folder).data_file == moved
    dollar = moved.rename(log.parent / "$MY_LOGS.csv")
    scenario, folder = load_scenario(str(log), {"data.file": "$MY_LOGS.csv"})
    assert Source.of(scenario, folder).data_file == dollar


def test_the_end_of_every_recording_can_be_held_out(log):
    write_log(log.parent / "log.csv", [simulated(n, np.random.default_rng(n)) for n in (400, 240)])
    scenario, folder = load_scenario(str(log))
    source = Source.of(scenario, folder)
    material = gather(scenario, source, Work(0))
    held, kept = material.held_out.runs.origins, material.runs.origins
    for recording in (0, 1):
        everything = source.recorded.origins[source.recorded.origins[:, 0] == recording, 1]
        mine = held[held[:, 0] == recording, 1]
        np.testing.assert_array_equal(mine, everything[-round(len(everything) / 4) :])
        latest = kept[kept[:, 0] == recording, 1].max() + 3  # the last step of a window
        assert latest < mine.min() - 1  # the first step of a history
    assert material.n_left_out == len(source.recorded) - len(held) - len(kept) == 2 * 4


def test_boxes_of_what_was_held_out_are_measured_beside_a_nominal_model(run, log, tmp_path):
    code, text = run("run", str(log), "--jobs", "1", "--out", str(tmp_path / "out"))
    assert code == 0, text
    assert "Boxes of 37 held-out windows" in text
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert found["recordings"]["held_out"] == 37
    assert found["recordings"]["contradicted"] == 0
    widths = found["recordings"]["widths"]
    assert [(width["output"], width["step"]) for width in widths] == [("T", 1), ("T", 2), ("T", 3)]
    recorded = rc.load_trajectories(
        log.parent / "log.csv",
        state_names=["T"],
        input_names=["Q"],
        noise_bound=0.05,
        horizon=3,
        output_lags=2,
        input_lags=1,
        every=4,
    )
    held = recorded.subset(np.arange(len(recorded) - 37, len(recorded)))
    tube = rc.load_predictor(tmp_path / "out" / "predictor.npz").boxes(held.histories, held.inputs)
    half = (tube.upper - tube.lower) / 2.0
    np.testing.assert_allclose([width["half_width"] for width in widths], half.mean(axis=0)[:, 0], rtol=1e-6)
    np.testing.assert_allclose([width["largest"] for width in widths], half.max(axis=0)[:, 0], rtol=1e-6)
    for width in widths:
        assert 0.0 < width["error"] < width["half_width"] < width["range"]
        assert width["ratio_to_error"] == width["half_width"] / width["error"]
        assert width["share_of_range"] == width["half_width"] / width["range"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "None of 37 held-out windows contradicts its boxes." in page
    assert "function of its history (T, T[-1], Q[-1]) and the inputs" in page
    assert "Where the table names a prior" in page
    assert ">affine</td>" in page
    assert {file.name for file in (tmp_path / "out").glob("recordings*")} == set(KIND.files)


def test_held_out_windows_that_contradict_are_said_loudly(run, log, tmp_path):
    outputs, inputs = simulated(600, np.random.default_rng(4))
    outputs[520:] += 5.0
    write_log(log.parent / "log.csv", [(outputs, inputs)])
    code, text = run("run", str(log), "--jobs", "1", "--out", str(tmp_path / "out"))
    assert code == 1
    (said,) = re.findall(
        r"CONTRADICTED: (\d+ of 37 held-out windows contradict their boxes), the first at step 3 in T", text
    )
    assert int(said.split()[0]) >= 3  # the jump is ahead of three windows
    assert "do not contradict" not in text
    page = (tmp_path / "out" / "report.html").read_text()
    assert said in page
    assert ">CONTRADICTED<" in page
    (log.parent / "plan.csv").write_text("step,T,T[-1],Q[-1],Q\n0,30,30,40,40\n")
    code, text = run("certify", str(log), "--plan", str(log.parent / "plan.csv"), "--jobs", "1")
    assert code == 1
    assert text.splitlines()[-1].startswith(f"error: {said}")


def test_plans_in_files_begin_with_a_history(run, log, tmp_path):
    plan = log.parent / "plan.csv"
    plan.write_text("plan,step,T,T[-1],Q[-1],Q\na,0,32.5,32.0,40,45\na,1,,,,50\nb,0,33.0,33.0,30,30\n")
    code, text = run("certify", str(log), "--plan", str(plan), "--jobs", "1", "--out", str(tmp_path / "out"))
    assert code == 0, text
    file = tmp_path / "out" / "certificates" / "plan_1.json"
    assert json.loads(file.read_text())["question"]["x0"] == [32.5, 32.0, 40.0]
    for data in (log.parent / "log.csv", tmp_path / "out" / "runs.npz"):
        checked = rc.verify(file, data=data)
        assert checked.accepted, checked.reason
    names = {"state_names": ["T", "T[-1]", "Q[-1]"], "input_names": ["Q"]}
    read, kept = (rc.load_plans(path, **names) for path in (plan, tmp_path / "out" / "plans.csv"))
    assert read.names == kept.names == ("a", "b")
    for x, again in zip((*read.x0, *read.inputs), (*kept.x0, *kept.inputs), strict=True):
        np.testing.assert_array_equal(x, again)
    plan.write_text("step,T,Q[-1],Q\n0,30,40,40\n")
    code, text = run("certify", str(log), "--plan", str(plan), "--jobs", "1")
    assert code == 1
    assert "there is no column 'T[-1]'" in text


def test_certificates_of_logs_that_count_samples_are_checked_with_the_log(run, log, tmp_path):
    write_log(log.parent / "log.csv", [simulated(600, np.random.default_rng(4))], "sample")
    (log.parent / "plan.csv").write_text("step,T,T[-1],Q[-1],Q\n0,32,32,40,40\n")
    code, text = run(
        "certify", str(log), "--plan", str(log.parent / "plan.csv"), "--jobs", "1", "--out", str(tmp_path / "out")
    )
    assert code == 0, text
    checked = rc.verify(tmp_path / "out" / "certificates" / "plan_1.json", data=log.parent / "log.csv")
    assert checked.accepted, checked.reason


def test_the_controller_plans_from_histories_and_robustly(log, tmp_path):
    """Believing the model it goes to a limit that the boxes then pass; with the boxes as constraints it does not."""
    changes = {**CONTROL, "study.initial_states": [[38.0, 38.0, 40.0]], "study.robust": True}
    result = study(log, **changes, limits__states__T=[20.0, 40.6])
    believing, robust = result.find(PlansOutcome).plans
    assert (believing.name, robust.name) == ("(38)", "(38) robust")
    assert believing.verdict is rc.Verdict.UNDECIDED
    assert robust.verdict is rc.Verdict.CERTIFIED
    assert result.find(RecordingsOutcome) is not None
    write_results(result, tmp_path / "out")
    assert rc.verify(tmp_path / "out" / "certificates" / "plan_2.json").accepted
    assert "Held-out recordings" in [section.title for section in report(result).page().sections]


def test_histories_with_the_same_present_are_told_apart(log):
    changes = {**CONTROL, "study.initial_states": [[32.0, 32.0, 40.0], [32.0, 31.0, 40.0]]}
    result = study(log, **changes)
    assert [plan.name for plan in result.find(PlansOutcome).plans] == ["(32, 32, 40)", "(32, 31, 40)"]


def test_an_affine_prior_is_compared_without_changing_the_verdicts():
    small = {"plant.horizon": 2, "plant.exploration_runs": 60, "plant.runs": [7, 7], "study.check": 0}
    results = []
    for is_compared in (False, True):
        changes = {**small, "study.region": [1, 1], "predictor.compare_affine_prior": is_compared}
        scenario, folder = load_scenario("cstr", changes)
        results.append(run_study(scenario, folder, Work(1)))
    alone, compared = (result.find(PlansOutcome) for result in results)
    assert not compared.is_contradicted
    for one, other in zip(alone.plans, compared.plans, strict=True):
        assert list(other.certificates) == ["optimal", "closed form", "affine prior"]
        np.testing.assert_array_equal(one.certificates[OPTIMAL].tube.lower, other.certificates[OPTIMAL].tube.lower)
        prior = other.certificates["affine prior"]
        assert all(p is not None for row in prior.predictor.priors for p in row)
        assert prior.tube.volumes.mean() < one.certificates[OPTIMAL].tube.volumes.mean()
    (line,) = (remark for remark in compared.remarks() if remark.startswith("mean half-widths over all plans"))
    assert re.search(r"; closed form c_A [\d.]+ mol/l, c_B [\d.]+ mol/l; affine prior c_A", line)
    (section,) = compared.sections()
    text, table = section.blocks
    assert "bounds on the residual of an affine fit" in text
    assert [row[0] for row in table.rows] == ["optimal", "closed form", "affine prior"]
    assert float(table.rows[2][2]) < 1.0


@pytest.mark.reference
@pytest.mark.parametrize(("name", "n_held_out"), [("tank", 61), ("tclab", 87)])
def test_the_studies_of_real_recordings_are_narrow_and_not_contradicted(name, n_held_out, monkeypatch, request):
    if not request.config.getoption("--all-cases"):
        pytest.skip("takes minutes: --all-cases")
    if not (RECORDINGS / f"{name}.csv").exists():
        pytest.skip("the recordings are not here")
    monkeypatch.setenv("RKHS_RECORDINGS", str(RECORDINGS))
    scenario, folder = load_scenario(name, {"study": {}})
    outcome = run_study(scenario, folder, Work(scenario.seed)).find(RecordingsOutcome)
    assert (len(outcome.held_out.runs), outcome.held_out.n_contradicting) == (n_held_out, 0)
    for widths in outcome.widths:
        assert [width.step for width in widths] == [1, 3, 6]
        assert widths[0].share < 0.15
        assert widths[-1].share < 0.20
        assert widths[0].narrower_by(widths[0].first_order) > 5.0
        assert widths[-1].narrower_by(widths[-1].first_order) > 3.0
