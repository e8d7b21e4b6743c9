"""Trajectories in pandas frames: there and back, and refused by row and column like CSV files."""

import sys

import numpy as np
import pytest

import rkhs_control as rc

pandas = pytest.importorskip("pandas")

COLUMNS = {"state_names": ["x", "y"], "input_names": ["u"]}


@pytest.fixture
def runs(rng):
    return rc.Trajectories(
        rng.normal(size=(3, 5, 2)),
        rng.normal(size=(3, 4, 1)),
        noise_bound=[0.06, 0.05],
        state_names=("x", "y"),
        input_names=("u",),
        sampling_time=0.1,
    )


def frame_of(**columns):
    """Two runs of two steps, with some columns as given."""
    whole = {"trajectory": list("aaabbb"), "step": [0, 1, 2] * 2, "x": np.arange(6.0), "y": np.ones(6), "u": np.ones(6)}
    return pandas.DataFrame({**whole, **columns})


def test_runs_come_back_from_a_frame_bit_by_bit(runs):
    frame = runs.to_frame()
    assert list(frame.columns) == ["trajectory", "step", "time", "x", "y", "u"]
    assert len(frame) == 15
    assert frame["u"].isna().sum() == 3
    back = rc.Trajectories.from_frame(frame, noise_bound=[0.06, 0.05], **COLUMNS)
    np.testing.assert_array_equal(back.states, runs.states)
    np.testing.assert_array_equal(back.inputs, runs.inputs)
    np.testing.assert_allclose(back.noise_bound, runs.noise_bound, rtol=1e-13)
    assert (back.noise_bound >= runs.noise_bound).all()
    assert back.sampling_time == 0.1
    assert back.state_names == ("x", "y")
    assert back.initial_state_noise.tolist() == [0.0, 0.0]


def test_dates_in_a_frame_are_seconds():
    """As pandas prints them: with a blank, and with the offset of a zone."""
    for zone in (None, "Europe/Zurich"):
        times = pandas.date_range("2024-03-31 00:30", periods=4, freq="30min", tz=zone)
        frame = pandas.DataFrame({"time": times, "x": [1.0, 2.0, 3.0, 4.0], "u": 0.5})
        runs = rc.Trajectories.from_frame(frame, state_names=["x"], input_names=["u"], noise_bound=0.1)
        assert runs.sampling_time == 1800.0
        np.testing.assert_array_equal(runs.states[0, :, 0], [1, 2, 3, 4])


def test_a_frame_says_what_the_csv_file_says(runs, tmp_path):
    file = tmp_path / "runs.csv"
    rc.save_trajectories(runs, file)
    from_file = rc.load_trajectories(file, noise_bound=[0.06, 0.05], **COLUMNS)
    frame = pandas.read_csv(file, dtype=str)
    from_frame = rc.Trajectories.from_frame(frame, noise_bound=[0.06, 0.05], **COLUMNS)
    for field in ("states", "inputs", "noise_bound", "initial_state_noise"):
        np.testing.assert_array_equal(getattr(from_frame, field), getattr(from_file, field))


def test_columns_may_have_other_names_and_rows_any_order(rng):
    frame = frame_of().rename(columns={"trajectory": "batch", "step": "seconds"})
    frame["seconds"] *= 30.0
    shuffled = frame.sample(frac=1.0, random_state=1)
    read = rc.Trajectories.from_frame(shuffled, trajectory="batch", time="seconds", noise_bound=0.1, **COLUMNS)
    assert read.sampling_time == 30.0
    assert sorted(read.states[:, 0, 0]) == [0.0, 3.0]
    np.testing.assert_array_equal(np.diff(read.states[:, :, 0]), 1.0)


def test_named_levels_of_the_index_count_as_columns():
    indexed = frame_of().set_index(["trajectory", "step"])
    assert len(rc.Trajectories.from_frame(indexed, noise_bound=0.1, **COLUMNS)) == 2


def test_rows_without_a_run_are_one_recording_and_steps_may_be_floats():
    frame = frame_of(step=np.arange(6.0)).drop(columns="trajectory")
    whole = rc.Trajectories.from_frame(frame, noise_bound=0.1, **COLUMNS)
    assert whole.states.shape == (1, 6, 2)
    cut = rc.Trajectories.from_frame(frame, noise_bound=0.1, horizon=2, stride=2, **COLUMNS)
    assert cut.states[:, 0, 0].tolist() == [0.0, 2.0]
    np.testing.assert_allclose(cut.initial_state_noise, 0.1)


def test_short_floats_keep_their_value():
    short = np.array([0.1, 0.2, 0.3] * 2, dtype=np.float32)
    read = rc.Trajectories.from_frame(frame_of(x=short), noise_bound=0.1, **COLUMNS)
    np.testing.assert_array_equal(read.states[0, :, 0], short[:3].astype(float))


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (frame_of(x=[0.0, 1.0, np.nan, 3.0, 4.0, 5.0]), {}, "frame, row 2, column 'x': nan is not finite"),
        (frame_of(y=["1", "2", "three", "4", "5", "6"]), {}, "frame, row 2, column 'y': 'three' is not a number"),
        (frame_of(u=[1.0, None, 2.0, 1.0, 1.0, 1.0]), {}, "frame, row 1, column 'u': nan is not finite"),
        (frame_of(step=[0, 1, 1, 0, 1, 2]), {}, "row 2: step 1 of trajectory a was already in row 1"),
        (frame_of(step=[0, 1, 3, 0, 1, 2]), {}, "row 2: trajectory a goes from step 1 to 3"),
        (frame_of(step=[0, 1, 1.5, 0, 1, 2]), {}, "row 2, column 'step': '1.5' is not a whole number"),
        (frame_of().drop(columns="y"), {}, "frame: there is no column 'y'"),
        (frame_of().rename(columns={"x": "X"}), {}, "no column 'x'; there is: .*; did you mean 'X'"),
        (frame_of().drop(columns="step"), {}, "frame: a column 'step' or 'time' is needed"),
        (frame_of(), {"time": "when"}, "frame: there is no column 'when'"),
        (frame_of(), {"trajectory": "batch"}, "frame: there is no column 'batch'"),
        (frame_of(trajectory=list("aabbbb"), step=[0, 1, 0, 1, 2, 3]), {}, "frame: runs have from 1 to 3 steps"),
        (frame_of().head(0), {}, "frame: there are no rows"),
        (frame_of(), {"stride": 2}, "distance between windows, and needs horizon"),
        (frame_of(), {"horizon": 9}, "frame: no run has 9 steps"),
        (frame_of(), {"noise_bound": -1.0}, "frame: noise_bound must be zero or more"),
        (frame_of(), {"state_names": "x"}, "state_names must be the names of columns"),
        (frame_of(), {"input_names": []}, "input_names must be the names of columns, at least one"),
        ({"x": [1.0]}, {}, "frame must be a pandas DataFrame; got dict"),
    ],
)
def test_wrong_frames_are_refused_by_row_and_column(frame, options, message):
    with pytest.raises(rc.InputError, match=message):
        rc.Trajectories.from_frame(frame, **{"noise_bound": 0.1, **COLUMNS, **options})


def test_a_frame_does_not_forget_that_initial_states_are_measured(runs):
    with pytest.raises(rc.InputError, match="a frame cannot say that windows begin with measured states"):
        runs.windows(2).to_frame()


def test_names_that_a_frame_needs_itself_are_refused(runs):
    odd = rc.Trajectories(runs.states, runs.inputs, 0.1, ("x", "step"), ("u",))
    with pytest.raises(rc.InputError, match="two columns 'step'"):
        odd.to_frame()


def test_frames_without_pandas_are_refused_with_the_cure(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rc.InputError, match=r"pip install rkhs_control\[pandas\]"):
        runs.to_frame()
