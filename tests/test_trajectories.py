"""Trajectories: shapes, windows, splits, and files that come back bit by bit or are refused by row and column."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.models.cstr import CSTR


@pytest.fixture
def runs(rng):
    plant = CSTR()
    x0 = rng.uniform([1.2, 0.6], [2.8, 1.8], (7, 2))
    inputs = rng.uniform(3, 25, (7, 4, 1))
    states = plant.simulate(x0, inputs) + rng.uniform(-0.05, 0.05, (7, 5, 2))
    return rc.Trajectories(
        states,
        inputs,
        noise_bound=[0.06, 0.05],
        state_names=plant.state_names,
        input_names=plant.input_names,
        state_units=plant.state_units,
        input_units=plant.input_units,
        sampling_time=plant.sampling_time,
    )


def assert_same(a, b):
    for name in ("states", "inputs", "noise_bound"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("state_names", "input_names", "state_units", "input_units", "sampling_time"):
        assert getattr(a, name) == getattr(b, name)


def test_noise_bound_is_kept_by_step_and_state(runs):
    assert runs.noise_bound.shape == (4, 2)
    np.testing.assert_array_equal(runs.noise_bound, [[0.06, 0.05]] * 4)
    assert (rc.Trajectories(runs.states, runs.inputs, 0.1).noise_bound == 0.1).all()
    growing = np.outer(np.arange(1, 5), [0.01, 0.02])
    np.testing.assert_array_equal(rc.Trajectories(runs.states, runs.inputs, growing).noise_bound, growing)


def test_names_default_to_numbers(runs):
    plain = rc.Trajectories(runs.states, runs.inputs, 0.1)
    assert plain.state_names == ("x_0", "x_1")
    assert plain.input_names == ("u_0",)


def test_split_keeps_runs_whole_and_loses_none(runs, rng):
    first, second = runs.split(0.6, rng)
    assert (len(first), len(second)) == (4, 3)
    together = np.concatenate([first.states, second.states])
    np.testing.assert_array_equal(np.sort(together[:, 0, 0]), np.sort(runs.states[:, 0, 0]))
    assert first.state_units == runs.state_units


def test_windows_of_long_runs_are_the_runs_themselves():
    x, u = np.arange(12.0).reshape(6, 2), np.arange(5.0).reshape(5, 1)
    windows = rc.Trajectories.from_recordings([(x, u), (x[:4] + 100, u[:3] + 100)], horizon=3, noise_bound=0.1)
    assert len(windows) == 4
    np.testing.assert_array_equal(windows.states[1], x[1:5])
    np.testing.assert_array_equal(windows.inputs[2], u[2:5])
    np.testing.assert_array_equal(windows.states[3], x[:4] + 100)
    assert len(rc.Trajectories.from_recordings([(x, u)], horizon=2, stride=2, noise_bound=0.1)) == 2
    with pytest.raises(rc.InputError, match="no run has 9 steps; the longest has 5"):
        rc.Trajectories.from_recordings([(x, u)], horizon=9, noise_bound=0.1)


@pytest.mark.parametrize("ending", ["npz", "mat", "h5", "hdf5"])
def test_files_come_back_bit_by_bit(runs, tmp_path, ending):
    rc.save_trajectories(runs, tmp_path / f"runs.{ending}")
    assert_same(rc.load_trajectories(tmp_path / f"runs.{ending}"), runs)


def test_csv_comes_back_bit_by_bit(runs, tmp_path):
    rc.save_trajectories(runs, tmp_path / "runs.csv")
    back = rc.load_trajectories(
        tmp_path / "runs.csv",
        state_names=["c_A", "c_B"],
        input_names=["u"],
        noise_bound=[0.06, 0.05],
        state_units=runs.state_units,
        input_units=runs.input_units,
        sampling_time=30.0,
    )
    assert_same(back, runs)


def test_csv_of_one_long_run_is_cut_into_windows(runs, tmp_path):
    rc.save_trajectories(runs, tmp_path / "runs.csv")
    windows = rc.load_trajectories(
        tmp_path / "runs.csv", state_names=["c_B"], input_names=["u"], noise_bound=0.1, horizon=2
    )
    assert len(windows) == 7 * 3
    np.testing.assert_array_equal(windows.states[1, :, 0], runs.states[0, 1:4, 1])


def test_matlab_files_of_version_7_3_are_read(runs, tmp_path):
    """As MATLAB writes them: HDF5 behind a header of its own, axes reversed."""
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "runs.mat"
    with h5py.File(file, "w", userblock_size=512) as stream:
        stream["states"], stream["inputs"] = runs.states.T, runs.inputs.T
        stream["sampling_time"] = np.array([[30.0]])
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    with file.open("r+b") as stream:
        stream.write(header)
    back = rc.load_trajectories(file, noise_bound=0.06)
    np.testing.assert_array_equal(back.states, runs.states)
    np.testing.assert_array_equal(back.inputs, runs.inputs)
    assert back.sampling_time == 30.0


CSV = "trajectory,step,x,u\n0,0,1.0,3.0\n0,1,2.0,3.5\n0,2,3.0,\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace(",u\n", ",v\n"), "there is no column 'u'; there is: trajectory, step, x, v"),
        (CSV.replace("2.0", "NaN"), "row 3, column 'x': NaN is not finite"),
        (CSV.replace("2.0", "two"), "row 3, column 'x': 'two' is not a number"),
        (CSV.replace("3.5", ""), "row 3, column 'u': '' is not a number"),
        (CSV.replace("0,2,", "0,1,"), "row 4: step 1 of trajectory 0 was already in row 3"),
        (CSV.replace("0,2,", "0,5,"), "row 4: trajectory 0 goes from step 1 to 5"),
        (CSV.replace("0,2,", "0,last,"), "row 4, column 'step': 'last' is not a whole number"),
        (CSV + "1,0,1.0,3.0\n1,1,1.0,\n", "runs have from 1 to 2 steps; give a horizon"),
        (CSV + "1,0,1.0,3.0\n", "row 5: trajectory 1 has one step only"),
        ("trajectory,step,x,u\n", "there are no rows below the header"),
        ("", "there is no column 'trajectory'"),
    ],
)
def test_bad_csv_files_are_refused_by_row_and_column(text, message, tmp_path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(rc.InputError, match=f"bad.csv.*{message}"):
        rc.load_trajectories(tmp_path / "bad.csv", state_names=["x"], input_names=["u"], noise_bound=0.1)


@pytest.mark.parametrize("ending", ["npz", "mat", "h5"])
def test_unreadable_files_are_refused_by_name(tmp_path, ending):
    file = tmp_path / f"broken.{ending}"
    file.write_bytes(b"this is no such file, whatever its ending says" * 10)
    with pytest.raises(rc.InputError, match=f"broken.{ending}: not a readable"):
        rc.load_trajectories(file)
    with pytest.raises(rc.InputError, match="there is no file"):
        rc.load_trajectories(tmp_path / f"missing.{ending}")


def test_files_without_what_is_needed_are_refused(tmp_path, runs):
    np.savez(tmp_path / "part.npz", states=runs.states, extra=1)
    with pytest.raises(rc.InputError, match="there is no 'inputs' in it; there is: extra, states"):
        rc.load_trajectories(tmp_path / "part.npz")
    (tmp_path / "runs.csv").write_text(CSV)
    with pytest.raises(rc.InputError, match="a CSV file needs state_names, input_names and noise_bound"):
        rc.load_trajectories(tmp_path / "runs.csv")
    with pytest.raises(rc.InputError, match=r"the ending must be one of \.csv, \.h5"):
        rc.save_trajectories(runs, tmp_path / "runs.xlsx")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": np.zeros((7, 5))}, r"states must have shape \(n_runs, n_steps \+ 1, n_states\)"),
        ({"inputs": np.zeros((7, 5, 1))}, r"inputs must have shape \(7, 4, n_inputs\)"),
        ({"noise_bound": [0.1, 0.1, 0.1]}, "noise_bound must be a number, one a state"),
        ({"noise_bound": -0.1}, "noise_bound must be zero or more"),
        ({"state_names": ("a",)}, "state_names must be 2 strings"),
        ({"state_names": ("a", "a")}, "state_names must differ"),
        ({"sampling_time": 0.0}, "sampling_time must be a number above zero"),
    ],
)
def test_wrong_trajectories_are_refused_by_name(runs, change, message):
    arguments = {"states": runs.states, "inputs": runs.inputs, "noise_bound": 0.1, **change}
    with pytest.raises(rc.InputError, match=message):
        rc.Trajectories(**arguments)


def test_not_a_number_is_refused_by_run_and_step(runs):
    states = runs.states.copy()
    states[3, 2, 1] = np.nan
    with pytest.raises(rc.InputError, match="run 3, step 2, column 1 is nan"):
        rc.Trajectories(states, runs.inputs, 0.1)
