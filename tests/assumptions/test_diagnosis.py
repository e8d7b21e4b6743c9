"""The doctor: each check speaks up on data that trigger it, and is silent on those that do not."""

import math
import re

import numpy as np
import pytest
from problems import REFERENCE

import rkhs_control as rc
from rkhs_control.assumptions.diagnosis import unit_guess
from rkhs_control.assumptions.symptoms import stretches

RECORDINGS = REFERENCE.parent / "recordings"


def recording(n=600, hold=3):
    """A level and a temperature that follow a pump, with noise of 0.01, and the pump."""
    rng = np.random.default_rng(5)
    pump = np.repeat(rng.uniform(0.0, 1.0, n // hold + 1), hold)[:n]
    level, temperature = [0.5], [20.0]
    for u in pump:
        level.append(level[-1] + 0.2 * (u - level[-1]))
        temperature.append(temperature[-1] + 0.1 * (20.0 + 5.0 * level[-1] - temperature[-1]))
    outputs = np.stack([level, temperature], axis=1)
    return outputs + rng.uniform(-0.01, 0.01, outputs.shape), pump[:, None]


def windows(outputs, inputs, noise_bound=0.01, **given):
    names = {"state_names": ["level", "T"], "input_names": ["pump"]}
    shape = {"horizon": 4, "output_lags": 2, "input_lags": 1, **given}
    return rc.Trajectories.from_recordings([(outputs, inputs)], noise_bound=noise_bound, **names, **shape)


def findings(runs, *given, **more):
    """The texts by severity and subject; several of one kind in lines."""
    found = {}
    for one in rc.diagnose(runs, *given, **more).findings:
        found.setdefault((one.severity, one.subject), []).append(one.text)
    return {kind: "\n".join(texts) for kind, texts in found.items()}


def test_nothing_stands_out_in_good_data():
    outputs, pump = recording()
    runs = windows(outputs, pump)
    diagnosis = rc.diagnose(runs, (runs.histories[7], runs.inputs[7]), rc.Limits({"level": (0.0, 1.0)}))
    assert diagnosis.findings == ()
    assert not diagnosis
    assert repr(diagnosis) == diagnosis.explain() == "nothing stands out"


def test_a_diagnosis_is_one_line_per_finding_the_worst_first():
    diagnosis = rc.Diagnosis(
        (rc.Finding("note", "a", "A."), rc.Finding("problem", "b", "B."), rc.Finding("warning", "c", "C."))
    )
    assert diagnosis.explain() == "problem: B.\nwarning: C.\nnote: A."
    assert diagnosis
    assert diagnosis.has_problems
    assert [found.subject for found in diagnosis.of("warning", "note")] == ["c", "a"]
    assert not rc.Diagnosis(diagnosis.of("warning", "note")).has_problems
    with pytest.raises(rc.InputError, match="severity must be one of problem, warning, note; got 'error'"):
        rc.Finding("error", "a", "A.")


def test_samples_that_windows_share_count_once():
    outputs, pump = recording(60)
    for stride in (1, 2, 5, 7):
        runs = windows(outputs, pump, stride=stride)
        parts = stretches(runs)
        seen = np.unique((runs.origins[:, 1:] + np.arange(5)).ravel())
        for part in parts:
            np.testing.assert_array_equal(part.outputs, outputs[part.first : part.first + len(part.outputs)])
            np.testing.assert_array_equal(part.inputs, pump[part.first : part.first + len(part.inputs)])
        covered = np.concatenate([part.first + np.arange(len(part.outputs)) for part in parts])
        np.testing.assert_array_equal(np.unique(covered), seen)
        assert len(parts) == (1 if stride <= 4 else len(runs))


# ---- columns


def test_constant_columns_are_named():
    outputs, pump = recording()
    outputs[:, 1] = 21.5
    found = findings(windows(outputs, np.full_like(pump, 0.3)))
    assert "T is 21.5 in all samples" in found["problem", "T"]
    assert "pump is 0.3 in all samples" in found["warning", "pump"]


def test_columns_that_hardly_move_are_named():
    outputs, pump = recording()
    pump[:] = 0.3
    pump[300:306:2] = 0.9
    assert "pump is 0.3 in 99.5 % of the samples" in findings(windows(outputs, pump, horizon=2))["warning", "pump"]


def test_inputs_that_are_held_in_every_window_are_named():
    runs = windows(*recording(hold=5), stride=5, horizon=4, output_lags=1, input_lags=0)
    assert "pump never changes within the windows" in findings(runs)["warning", "pump"]


def test_saturation_is_told_from_a_coarse_sensor():
    outputs, pump = recording()
    ceiling = np.quantile(outputs[:, 0], 0.85)
    outputs[:, 0] = np.minimum(outputs[:, 0], ceiling)
    assert f"level is exactly {ceiling:.6g}, its maximum, in 15" in findings(windows(outputs, pump))["warning", "level"]
    outputs, pump = recording()
    outputs[:, 0] = np.maximum(np.round(outputs[:, 0], 2), 0.4)
    outputs[:, 1] = np.round(outputs[:, 1], 1)
    found = findings(windows(outputs, pump, noise_bound=0.06))
    assert "level is exactly 0.4, its minimum" in found["warning", "level"]
    assert found.keys() == {("warning", "level")}


def test_noise_bounds_below_half_a_step_of_the_sensor_are_problems():
    outputs, pump = recording()
    outputs[:, 1] = 0.05 * np.round(outputs[:, 1] / 0.05)
    found = findings(windows(outputs, pump))
    assert "T was recorded in steps of 0.05, so readings are off by up to half of that" in found["problem", "T"]
    assert "raise it to 0.025" in found["problem", "T"]
    assert findings(windows(outputs, pump, noise_bound=[0.01, 0.035])) == {}


def test_switches_are_named():
    outputs, pump = recording()
    outputs[:, 0] = outputs[:, 0] > 0.5
    found = findings(windows(outputs, pump, noise_bound=[0.2, 0.01]))
    assert "level has 2 different values only (0, 1)" in found["warning", "level"]


def test_isolated_outliers_are_named_and_fast_plants_are_not():
    outputs, pump = recording()
    outputs[200, 1] += 3.0
    outputs[311, 1] -= 4.0
    text = findings(windows(outputs, pump))["warning", "T"]
    assert "at sample 200 of recording 0 (2 such samples in all)" in text
    assert "at sample" not in findings(windows(outputs, pump, noise_bound=[0.01, 2.5]))["warning", "T"]  # noise, then
    outputs, pump = recording()
    outputs[200:, 1] += 3.0  # a step is no isolated outlier, though no input explains it
    assert "at sample" not in findings(windows(outputs, pump))["warning", "T"]


def test_outliers_are_counted_in_samples_of_the_file():
    outputs, pump = recording(2400, hold=12)
    outputs[400, 1] += 9.0
    assert "at sample 400 of" in findings(windows(outputs, pump, every=4))["warning", "T"]


def test_noise_bounds_are_compared_with_the_signal():
    runs = windows(*recording())
    ranges = np.ptp(runs.states.reshape(-1, 2), axis=0)
    for share, severity in ((0.2, None), (0.4, "warning"), (0.6, "problem")):
        found = findings(windows(*recording(), noise_bound=[0.01, share * ranges[1]]))
        assert found.keys() == ({(severity, "T")} if severity else set())
    assert "its recorded range" in found["problem", "T"]
    assert "the noise bound of T is 0" in findings(windows(*recording(), noise_bound=[0.01, 0.0]))["warning", "T"]


def test_noise_bounds_are_compared_with_the_scatter_where_inputs_are_held():
    runs = windows(*recording(hold=12), noise_bound=[0.01, 0.002])
    assert "T scatters by about 0.00" in findings(runs)["warning", "T"]
    assert findings(windows(*recording(hold=12), noise_bound=[0.01, 0.008])) == {}
    assert findings(windows(*recording(hold=1), noise_bound=[0.01, 0.002])) == {}  # the inputs may be the cause
    assert findings(windows(*recording(hold=12), noise_bound=[0.01, 0.002], disturbance_bound=0.01)) == {}


def test_wild_scales_are_looked_at_without_a_fuss():
    outputs, pump = recording()
    outputs[:, 1] = np.geomspace(5e-324, 1e50, 601)
    rc.diagnose(windows(outputs, pump, noise_bound=[0.01, 1e-300]))


# ---- samples that drive the norm


def named(runs):
    """The findings about least norms: the output, the sample or run, and the two norms."""
    pattern = r"without (?:recording \d+, sample|run) (\d+),? .* falls from (\S+) to (\S+)"
    texts = [(one.subject, one.text) for one in rc.diagnose(runs).of("warning") if "the least norm" in one.text]
    return [(name, *map(float, re.match(pattern, text).groups())) for name, text in texts]


@pytest.mark.parametrize("output", [0, 1])
def test_a_corrupted_row_is_named_with_what_it_does_to_the_least_norm(output):
    """Once, though histories of the other output hold it as well."""
    outputs, pump = recording()
    outputs[222, output] += 0.3
    ((name, sample, before, after),) = named(windows(outputs, pump))
    assert (name, sample) == (["level", "T"][output], 222)
    assert before > 10.0 * after


def test_a_corrupted_row_of_a_long_log_is_found_among_thousands():
    outputs, pump = recording(4000)
    outputs[2345, 1] += 0.4
    ((name, sample, *_),) = named(windows(outputs, pump, every=1))
    assert (name, sample) == ("T", 2345)


def test_a_jump_of_the_sensor_that_no_input_explains_is_named():
    outputs, pump = recording()
    outputs[200:, 1] += 3.0
    ((name, sample, *_),) = named(windows(outputs, pump))
    assert (name, sample) == ("T", 200)


def test_a_corrupted_run_is_named_by_its_number(rng):
    x0, inputs = rng.uniform(-1.0, 1.0, (80, 1)), rng.uniform(-1.0, 1.0, (80, 2, 1))
    states = np.stack([x0, 0.8 * x0 + 0.3 * inputs[:, 0], np.zeros_like(x0)], axis=1)
    states[:, 1:] += rng.uniform(-0.02, 0.02, (80, 2, 1))
    assert named(rc.Trajectories(states, inputs, 0.02)) == []
    states[23, 1] += 0.8
    ((name, run, *_),) = named(rc.Trajectories(states, inputs, 0.02))
    assert (name, run) == ("x_0", 23)
    assert named(rc.Trajectories(states, inputs, 0.0)) == []  # exact readings are none of a sensor
    assert named(rc.Trajectories(states[:25], inputs[:25], 0.02)) == []  # too few to tell


@pytest.mark.parametrize("plant", ["saturating", "dead zone", "swinging", "emptying"])
def test_clean_logs_of_nonlinear_plants_name_no_sample(plant):
    for seed, noise in ((0, 0.02), (1, 0.002)):
        rng = np.random.default_rng(seed)
        inputs = np.repeat(rng.uniform(-1.0, 1.0, 100), 4)[:, None]
        a, b, outputs = 0.0, 0.0, [(0.0, 0.0)]
        for u in inputs[:, 0].tolist():
            a, b = {
                "saturating": (a + 0.2 * (math.tanh(2.0 * u) - a), b + 0.3 * (a**2 - b)),
                "dead zone": (a + 0.2 * (math.copysign(max(0.0, abs(u) - 0.4), u) - a), b + 0.3 * (a - b)),
                "swinging": (a + 0.2 * b, 0.95 * b + 0.2 * (u - math.sin(3.0 * a))),
                "emptying": (a + 0.3 * (u + 1.0 - max(a, 0.0) ** 0.5), b + 0.3 * (max(a, 0.0) ** 0.5 - b)),
            }[plant]
            outputs.append((a, b))
        measured = np.array(outputs) + rng.uniform(-noise, noise, (401, 2))
        for lags in (1, 2):
            runs = rc.Trajectories.from_recordings([(measured, inputs)], 2, noise_bound=noise, output_lags=lags)
            assert named(runs) == []


# ---- how many


def test_too_few_runs_for_the_dimension_are_counted():
    outputs, pump = recording(1200)
    starts, inputs = outputs[: 40 * 30].reshape(40, 30, 2)[:, :5], pump.reshape(40, 30, 1)[:, :4]
    for n_runs, severity in ((6, "problem"), (10, "warning"), (18, None)):
        runs = rc.Trajectories(starts[:n_runs], inputs[:n_runs], 0.01)
        found = {key: text for key, text in findings(runs).items() if key[1] == "runs"}
        assert found.keys() == ({(severity, "runs")} if severity else set())
        if severity:
            said = "6 numbers that the last step depends on (2 at the start and 4 x 1 inputs) are many for"
            assert f"{said} {n_runs} runs: " in found[severity, "runs"]


def test_windows_that_share_their_samples_count_for_less():
    text = findings(windows(*recording(46)))["warning", "runs"]
    assert "of 42 windows only 9 share no sample, for 9 numbers that the last step depends on" in text
    assert ("warning", "runs") not in findings(windows(*recording(51)))


def test_recordings_of_little_excitation_are_named():
    text = findings(windows(*recording(hold=60)))["warning", "pump"]
    assert "pump changes 9 times in 599 steps" in text
    assert "of the 596 windows not at all" in text
    assert findings(windows(*recording(hold=20))) == {}


def test_inputs_that_change_within_steps_are_named_with_steps_that_begin_where_they_change():
    outputs, pump = recording(1800, hold=30)
    text = findings(windows(outputs, pump, every=8))["warning", "pump"]
    changes = range(30, 1800, 30)
    within = sum(at % 8 != 0 for at in changes)
    assert text.startswith(f"{within} of {len(changes)} changes of pump fall within a step of 8 samples")
    assert "steps of 6 or 10 samples begin where it changes" in text
    for every in (1, 5, 6, 10, 15):
        assert "fall within" not in findings(windows(outputs, pump, every=every)).get(("warning", "pump"), "")
    late = "where the recording begins"
    assert late in findings(windows(outputs[7:], pump[7:], every=8))["warning", "pump"]
    wandering = np.cumsum(np.random.default_rng(1).uniform(-0.1, 0.1, pump.shape), axis=0)
    assert "fall within" not in findings(windows(outputs, wandering, every=8)).get(("warning", "pump"), "")


def test_inputs_of_a_few_levels_and_windows_without_a_past_are_notes():
    outputs, pump = recording()
    found = findings(windows(outputs, np.round(2.0 * pump) / 2.0, output_lags=1, input_lags=0))
    assert found.keys() == {("note", "pump"), ("note", "level, T")}
    assert "pump was only tried at 0, 0.5, 1" in found["note", "pump"]


# ---- plans and limits


def test_plans_outside_of_what_was_recorded_are_named_with_the_unit_that_fits():
    rng = np.random.default_rng(0)
    angles = np.cumsum(rng.uniform(-0.1, 0.1, (80, 4, 1)), axis=1)
    angles[:2, 0, 0] = -1.0, 1.0
    runs = rc.Trajectories(angles, rng.uniform(-1.0, 1.0, (80, 3, 1)), 0.01, state_names=["theta"], input_names=["u"])
    found = findings(runs, ([11.5], [[0.1], [0.2], [0.1]]))
    assert found["problem", "theta"].startswith("theta = 11.5 is outside the recorded [-1, 1]: degrees?")
    assert found.keys() == {("problem", "theta")}
    assert findings(runs, ([0.5], [[0.1]])) == {}


@pytest.mark.parametrize(
    ("value", "lower", "upper", "guess"),
    [
        (11.5, -1.0, 1.0, "degrees"),
        (math.radians(70.0), 30.0, 80.0, "radians"),
        (313.0, 20.0, 60.0, "kelvin"),
        (40.0, 293.0, 333.0, "degrees Celsius"),
        (45.0, 0.0, 1.0, "percent"),
        (0.45, 20.0, 80.0, "a fraction"),
        (27.0, 1.1, 2.9, ""),
        (1.2, 0.0, 1.0, ""),
        (70.0, 20.0, 60.0, ""),
        (-40.0, 20.0, 60.0, ""),
    ],
)
def test_units_are_guessed_where_they_fit(value, lower, upper, guess):
    assert unit_guess(value, lower, upper) == (f": {guess}?" if guess else "")


def test_how_far_a_plan_is_outside_makes_it_a_note_a_warning_or_a_problem():
    runs = windows(*recording())
    lower, upper = runs.inputs.min(), runs.inputs.max()
    for share, severity in ((-0.1, None), (0.03, "note"), (0.3, "warning"), (0.8, "problem")):
        plan = np.full((4, 1), 0.5)
        plan[2] = upper + share * (upper - lower)
        found = findings(runs, (runs.histories[3], plan))
        assert found.keys() == ({(severity, "pump")} if severity else set())


def test_plans_are_compared_entry_by_entry_of_their_histories():
    runs = windows(*recording())
    history = runs.histories[3].copy()
    history[3] += 273.15
    found = findings(runs, (history, runs.inputs[3]))
    assert found.keys() == {("problem", "T[-1]")}
    assert ": kelvin?" in found["problem", "T[-1]"]


def test_several_plans_are_counted_and_named():
    runs = windows(*recording())
    inputs = [runs.inputs[3], runs.inputs[3] + 2.0, runs.inputs[3] + 3.0]
    plans = rc.Plans(("calm", "bold", "bolder"), [runs.histories[3]] * 3, inputs)
    text = findings(runs, plans)["problem", "pump"]
    assert " in plan bolder is outside the recorded" in text
    assert "(1 of the other plans as well)" in text
    assert findings(runs, (runs.histories[:2], runs.inputs[:2])) == {}


def test_plans_that_are_too_long_or_of_another_plant_are_not_overlooked():
    runs = windows(*recording())
    found = findings(runs, (runs.histories[3], np.full((5, 1), 0.5)))
    assert "the longest plan has 5 steps, but the windows only 4" in found["problem", "plan"]
    with pytest.raises(rc.InputError, match=r"plans must begin with level, T, level\[-1\]"):
        rc.diagnose(runs, ([1.0, 2.0, 3.0], np.full((4, 1), 0.5)))
    with pytest.raises(rc.InputError, match="one row per plan; got 1 and 2"):
        rc.diagnose(runs, (runs.histories[3], np.full((2, 4, 1), 0.5)))
    with pytest.raises(rc.InputError, match=r"plans must be Plans or a pair \(x0, inputs\); got ndarray"):
        rc.diagnose(runs, runs.histories[3])
    with pytest.raises(rc.InputError, match="runs must be Trajectories; got ndarray"):
        rc.diagnose(runs.states)


def test_limits_wholly_outside_of_what_was_recorded_are_problems():
    runs = windows(*recording())
    found = findings(runs, limits=rc.Limits({"T": (290.0, 300.0)}, inputs={"pump": (2.0, math.inf)}))
    assert "the limits of T, [290, 300], lie wholly outside of the recorded" in found["problem", "T"]
    assert ": kelvin?" in found["problem", "T"]
    assert "the limits of pump, [2, inf]" in found["problem", "pump"]
    assert findings(runs, limits={"T": (22.0, 300.0)}) == {}
    assert findings(runs, limits=rc.Limits(rc.Polytope([[1.0, 0.0]], [-9.0]))) == {}  # only boxes are looked at


# ---- recordings of real plants


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore::rkhs_control.RowOrderWarning")
def test_the_recorded_plants_are_healthy_but_for_the_heaters_few_changes():
    if not (RECORDINGS / "tank.csv").exists():
        pytest.skip("the recordings are not here")
    tanks = {"state_names": ["level_upper", "level_lower"], "input_names": ["pump"], "output_lags": 2, "every": 10}
    assert findings(rc.load_trajectories(RECORDINGS / "tank.csv", horizon=6, noise_bound=0.025, **tanks)) == {}
    found = findings(rc.load_trajectories(RECORDINGS / "tank.csv", horizon=6, noise_bound=0.002, **tanks))
    assert "level_lower was recorded in steps of 0.00488" in found["problem", "level_lower"]
    heaters = {"state_names": ["T_1", "T_2"], "input_names": ["Q_1", "Q_2"], "output_lags": 2, "every": 20}
    found = findings(rc.load_trajectories(RECORDINGS / "tclab.csv", horizon=6, noise_bound=0.4, **heaters))
    assert found.keys() == {(severity, name) for severity in ("warning", "note") for name in ("Q_1", "Q_2")}
    assert "Q_1 changes 16 times" in found["warning", "Q_1"]
