"""Trajectories: shapes, windows, splits, and files that come back bit by bit or are refused by row and column."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.data.files import load_plans, save_plans
from rkhs_control.data.plans import Plans
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
    for name in ("states", "inputs", "noise_bound", "initial_state_noise", "origins"):
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


def test_runs_print_on_a_few_lines(runs):
    text = repr(runs)
    assert text.startswith("Trajectories(7 runs of 4 steps, sampling_time=30,")
    assert "c_A [mol/l], c_B [mol/l]" in text
    assert "noise_bound: 0.06, 0.05," in text
    assert "7 runs" not in repr(runs.windows(2))
    assert "windows of 2 steps" in repr(runs.windows(2))
    many = rc.Trajectories(np.zeros((900, 3, 40)), np.zeros((900, 2, 30)), 0.1)
    assert len(repr(many)) < 500
    assert repr(many).count("\n") == 4


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


# ---- windows begin with measured states


def windows_of(lengths, horizon, stride=1, **fields):
    """Of recordings of so many steps, with noise bounds 0.1 and 0.2; their states say where they are from."""
    recordings = []
    for number, length in enumerate(lengths):
        x = 1000.0 * number + np.arange(length + 1.0)
        recordings.append((np.stack([x, -x], axis=1), np.arange(float(length))[:, None]))
    return rc.Trajectories.from_recordings(recordings, horizon, stride=stride, **{"noise_bound": [0.1, 0.2], **fields})


def samples(runs):
    """Recording and instant of every state."""
    return {(int(r), int(f) + k) for r, f in runs.origins for k in range(runs.horizon + 1)}


def test_windows_begin_with_states_that_are_as_uncertain_as_any_measured_one():
    cut = windows_of([5, 3], 3)
    assert cut.initial_state_noise.tolist() == [0.1, 0.2]
    assert cut.origins.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    assert cut.is_windowed
    assert cut.kind == "windows"
    by_step = np.array([[0.1, 0.5], [0.3, 0.2], [0.2, 0.2]])
    assert windows_of([5, 3], 3, noise_bound=by_step).initial_state_noise.tolist() == [0.3, 0.5]
    assert windows_of([3, 3], 3).initial_state_noise.tolist() == [0.1, 0.2]  # whole, and measured from the first on


def test_windows_are_taken_as_exact_only_when_told():
    assert windows_of([5], 3, initial_state_noise=0.0).initial_state_noise.tolist() == [0.0, 0.0]
    assert windows_of([5], 3, initial_state_noise=[0.0, 0.3]).initial_state_noise.tolist() == [0.0, 0.3]


def test_whole_runs_have_known_initial_states_unless_told(runs):
    assert runs.initial_state_noise.tolist() == [0.0, 0.0]
    assert runs.origins.tolist() == [[i, 0] for i in range(7)]
    assert not runs.is_windowed
    assert runs.kind == "runs"
    told = rc.Trajectories(runs.states, runs.inputs, 0.1, initial_state_noise=0.02)
    assert told.initial_state_noise.tolist() == [0.02, 0.02]
    cut = rc.Trajectories(runs.states, runs.inputs, [0.1, 0.2], origins=[[0, 4 * i] for i in range(7)])
    assert cut.initial_state_noise.tolist() == [0.1, 0.2]


def test_runs_cut_into_windows_begin_with_measured_states(runs):
    cut = runs.windows(2, 2)
    assert cut.initial_state_noise.tolist() == [0.06, 0.05]
    assert cut.origins[:3].tolist() == [[0, 0], [0, 2], [1, 0]]
    assert runs.windows(2, initial_state_noise=0.0).initial_state_noise.tolist() == [0.0, 0.0]
    blurred = rc.Trajectories(runs.states, runs.inputs, 0.1, initial_state_noise=[0.0, 0.3])
    assert blurred.windows(2).initial_state_noise.tolist() == [0.1, 0.3]
    again = windows_of([9], 5, 2).windows(3)
    assert again.origins.tolist() == [[0, first + k] for first in (0, 2, 4) for k in range(3)]
    np.testing.assert_array_equal(again.states[:, 0, 0], again.origins[:, 1])


def test_parts_of_windows_stay_what_they_are():
    cut = windows_of([6, 4], 3)
    part = cut.subset([4, 1])
    assert part.origins.tolist() == [[1, 0], [0, 1]]
    for other in (part, cut.shortened(2)):
        assert other.initial_state_noise.tolist() == [0.1, 0.2]
        assert other.is_windowed
    assert cut.shortened(2).origins.tolist() == cut.origins.tolist()


def test_joined_recordings_are_numbered_on_and_the_larger_uncertainty_holds():
    cut, other = windows_of([5, 4], 3), windows_of([4], 3, initial_state_noise=[0.0, 0.5])
    joined = cut.joined(other)
    assert joined.origins.tolist() == [*cut.origins.tolist(), [2, 0], [2, 1]]
    assert joined.initial_state_noise.tolist() == [0.1, 0.5]
    wider = windows_of([4], 3, noise_bound=np.nextafter([0.1, 0.2], 1.0))
    assert (cut.joined(wider).noise_bound == wider.noise_bound).all()
    with pytest.raises(rc.InputError, match="only runs with the same noise bounds can be joined"):
        cut.joined(windows_of([4], 3, noise_bound=[0.1, 0.2000001]))


@pytest.mark.parametrize(
    ("lengths", "horizon", "stride"),
    [([1000], 6, 1), ([300, 200, 500], 6, 1), ([12] * 60, 4, 1), ([400], 3, 2), ([150], 10, 1), ([400], 3, 9)],
    ids=str,
)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
def test_held_out_windows_share_no_sample_with_the_rest(lengths, horizon, stride, share, rng):
    cut = windows_of(lengths, horizon, stride)
    for kept, held in (cut.held_out(share, rng), cut.split(1.0 - share, rng)):
        assert not samples(kept) & samples(held)
        smaller, n_smaller = min((held, share), (kept, 1.0 - share), key=lambda pair: pair[1])
        assert abs(len(smaller) - n_smaller * len(cut)) <= 1.0
        left_out = len(cut) - len(kept) - len(held)
        assert left_out <= max(len(smaller), horizon)


def test_held_out_windows_are_a_few_blocks_spread_over_the_recordings(rng):
    cut = windows_of([500, 500], 5)
    _, held = cut.held_out(0.1, rng)
    assert set(held.origins[:, 0]) == {0, 1}
    in_order = 1000 * held.origins[:, 0] + held.origins[:, 1]
    assert int((np.diff(np.sort(in_order)) > 1).sum()) + 1 == 5
    first, second = (cut.held_out(0.1, np.random.default_rng(seed))[1].origins.tolist() for seed in (1, 2))
    assert first != second


def test_whole_runs_are_held_out_at_random_and_none_is_lost(runs, rng):
    kept, held = runs.held_out(0.3, rng)
    assert (len(kept), len(held)) == (5, 2)
    assert sorted([*kept.origins[:, 0], *held.origins[:, 0]]) == list(range(7))


def test_windows_that_all_overlap_cannot_be_held_out(rng):
    with pytest.raises(rc.InputError, match="all 11 windows share samples with those to be held out: hold none out"):
        windows_of([30], 20).held_out(0.1, rng)
    with pytest.raises(rc.InputError, match=r"share must leave at least one of 11 windows on either side; got 0.01"):
        windows_of([30], 20).held_out(0.01, rng)


@pytest.mark.parametrize("ending", ["npz", "mat", "h5", "hdf5"])
def test_files_come_back_bit_by_bit(runs, tmp_path, ending):
    rc.save_trajectories(runs, tmp_path / f"runs.{ending}")
    assert_same(rc.load_trajectories(tmp_path / f"runs.{ending}"), runs)


@pytest.mark.parametrize("ending", ["npz", "mat", "h5", "hdf5"])
@pytest.mark.parametrize("n_states", [1, 2])
def test_files_say_that_runs_are_windows(tmp_path, ending, n_states):
    both = windows_of([7, 4], 3)
    cut = rc.Trajectories(both.states[..., :n_states], both.inputs, 0.1, origins=both.origins)
    rc.save_trajectories(cut, tmp_path / f"runs.{ending}")
    assert_same(rc.load_trajectories(tmp_path / f"runs.{ending}"), cut)
    exact = rc.load_trajectories(tmp_path / f"runs.{ending}", initial_state_noise=0.0)
    assert not exact.initial_state_noise.any()


def test_files_from_before_hold_runs_with_known_initial_states(runs, tmp_path):
    np.savez(tmp_path / "runs.npz", states=runs.states, inputs=runs.inputs, noise_bound=runs.noise_bound)
    back = rc.load_trajectories(tmp_path / "runs.npz")
    assert not back.initial_state_noise.any()
    assert back.origins.tolist() == runs.origins.tolist()


def test_csv_files_cannot_pretend_that_windows_are_runs(runs, tmp_path):
    for unsaid in (runs.windows(2), runs.windows(2, initial_state_noise=0.0)):
        with pytest.raises(rc.InputError, match=r"cannot say that windows begin with measured states .* save them as"):
            rc.save_trajectories(unsaid, tmp_path / "runs.csv")
    blurred = rc.Trajectories(runs.states, runs.inputs, 0.1, initial_state_noise=0.1)
    with pytest.raises(rc.InputError, match="cannot say that runs begin with measured states"):
        rc.save_trajectories(blurred, tmp_path / "runs.csv")
    assert not (tmp_path / "runs.csv").exists()


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_horizon_makes_the_initial_states_of_a_file_measured_ones(runs, tmp_path, ending):
    file = tmp_path / f"runs.{ending}"
    rc.save_trajectories(runs, file)
    columns = {"state_names": ["c_A", "c_B"], "input_names": ["u"], "noise_bound": [0.06, 0.05]}
    whole, cut = (rc.load_trajectories(file, horizon=horizon, **columns) for horizon in (None, 2))
    assert not whole.initial_state_noise.any()
    np.testing.assert_array_equal(cut.initial_state_noise, cut.noise_bound[0])
    assert cut.is_windowed
    for given, wanted in ((0.0, [0.0, 0.0]), ([0.0, 0.25], [0.0, 0.25])):
        told = rc.load_trajectories(file, horizon=2, initial_state_noise=given, **columns)
        np.testing.assert_allclose(told.initial_state_noise, wanted, rtol=1e-12)
        assert (told.initial_state_noise >= wanted).all()
    told = rc.load_trajectories(file, initial_state_noise=0.25, **columns)
    assert (told.initial_state_noise >= 0.25).all()


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_stride_leaves_windows_out(runs, tmp_path, ending):
    file = tmp_path / f"runs.{ending}"
    rc.save_trajectories(runs, file)
    columns = {"state_names": ["c_A", "c_B"], "input_names": ["u"], "noise_bound": 0.06}
    cut = rc.load_trajectories(file, horizon=2, stride=2, **columns)
    assert cut.origins[:3].tolist() == [[0, 0], [0, 2], [1, 0]]
    with pytest.raises(rc.InputError, match="stride is the distance between windows, and needs horizon; got 2"):
        rc.load_trajectories(file, stride=2, **columns)


def written(tmp_path, *texts):
    """A run whose recorded states are these decimals, after an initial one that is a double."""
    rows = [f"{step},{x},1.0" for step, x in enumerate(["0.5", *texts])]
    (tmp_path / "decimals.csv").write_text("\n".join(["step,x,u", *rows]))
    return tmp_path / "decimals.csv"


@pytest.mark.parametrize("bound", ["0.06", "0.1", "0.25", "1e-17", "0.3", "123456.7", "0.0"])
@pytest.mark.parametrize(
    "texts", [["0.1"], ["0.7", "1023.9", "-1024.1"], ["1e-300"], ["0.1234567890123456789", "9e15"]]
)
def test_noise_bounds_cover_what_reading_decimals_loses(tmp_path, texts, bound):
    read = rc.load_trajectories(
        written(tmp_path, *texts), state_names=["x"], input_names=["u"], noise_bound=float(bound)
    )
    for text, value, noise in zip(texts, read.states[0, 1:, 0].tolist(), read.noise_bound[:, 0].tolist(), strict=True):
        lost = abs(Fraction(text) - Fraction(value))
        assert lost + Fraction(bound) <= Fraction(noise)
    largest = max(0.5, *(abs(float(text)) for text in texts))
    assert read.noise_bound.max() <= float(bound) + 2.0 * np.spacing(float(bound)) + np.spacing(largest)


def test_decimals_that_are_doubles_cost_nothing(tmp_path):
    read = rc.load_trajectories(
        written(tmp_path, "0.75", "-3", "1e3"), state_names=["x"], input_names=["u"], noise_bound=0.25
    )
    assert (read.noise_bound == 0.25).all()
    file = written(tmp_path, "0.1")
    read = rc.load_trajectories(file, state_names=["x"], input_names=["u"], noise_bound=0.25, initial_state_noise=0.25)
    assert (read.noise_bound > 0.25).all()
    assert (read.initial_state_noise > 0.25).all()


@pytest.mark.parametrize("text", ["1e-99999999999999999999", "1e-999999999", "0." + "3" * 5000])
def test_decimals_of_any_length_and_exponent_are_read_quickly(tmp_path, text):
    read = rc.load_trajectories(written(tmp_path, text), state_names=["x"], input_names=["u"], noise_bound=0.25)
    assert (read.noise_bound > 0.25).all()


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
    assert (back.noise_bound > runs.noise_bound).all()  # by what reading decimals may lose
    np.testing.assert_allclose(back.noise_bound, runs.noise_bound, rtol=1e-14)
    assert_same(replace(back, noise_bound=runs.noise_bound), runs)


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


def load(file, **overrides):
    return rc.load_trajectories(file, state_names=["x"], input_names=["u"], noise_bound=0.1, **overrides)


def read_plans(file):
    return load_plans(file, state_names=["x"], input_names=["u"])


CSV = "trajectory,step,x,u\n0,0,1.0,3.0\n0,1,2.0,3.5\n0,2,3.0,\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace(",u\n", ",v\n"), "there is no column 'u'; there is: trajectory, step, x, v"),
        (
            CSV.replace("2.0", "NaN"),
            "row 3, column 'x': NaN is not finite; write a number there, or leave that row out",
        ),
        (CSV.replace("2.0", "two"), "row 3, column 'x': 'two' is not a number"),
        (CSV.replace("3.5", ""), "row 3, column 'u': '' is not a number; write a number there, or leave that row out"),
        (
            CSV.replace("0,2,", "0,1,"),
            "row 4: step 1 of trajectory 0 was already in row 3; remove one of them, "
            "or give the second run another name in the column 'trajectory'",
        ),
        (
            CSV.replace("0,2,", "0,5,"),
            "row 4: trajectory 0 goes from step 1 to 5 .* give the rows after it another name",
        ),
        (CSV.replace("0,2,", "0,last,"), "row 4, column 'step': 'last' is not a whole number"),
        (CSV + "1,0,1.0,3.0\n1,1,1.0,\n", "runs have from 1 to 2 steps; give a horizon"),
        (CSV + "1,0,1.0,3.0\n", "row 5: trajectory 1 has only one step"),
        ("trajectory,step,x,u\n", "there are no rows below the header"),
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        (CSV.replace("step", "when"), "a column 'step' or 'time' is needed; there is: trajectory, when, x, u"),
        (CSV.replace(",x,", ",xx,"), "no column 'x'; there is: trajectory, step, xx, u; did you mean 'xx'[?]"),
        (CSV.replace(",x,", ",X,"), "no column 'x'; .*; did you mean 'X'[?]"),
        (CSV.replace(",x,", ",other,"), "no column 'x'; there is: trajectory, step, other, u$"),
        (CSV.replace("3.5", "3.5,7"), "row 3: there are 5 cells for 4 columns"),
        (CSV.replace(",3.5", ""), "row 3: there are 3 cells for 4 columns"),
        (CSV.replace("step,x", "x,step,x").replace("0,", "0,1,"), "row 1: 2 columns are called 'x'; rename"),
        (CSV.replace("3.5", "3,5"), "row 3: .*decimal commas need semicolons between the columns"),
        (CSV.replace("2.0", '"2.0'), "row 3: this is not readable as CSV"),
        (CSV.replace("2.0", '"2\n0"'), "row 3, column 'x': '2 0' is not a number"),
        ("\n" + CSV.replace("2.0", "two"), "row 4, column 'x': 'two' is not a number"),
    ],
)
def test_bad_csv_files_are_refused_by_row_and_column(text, message, tmp_path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(rc.InputError, match=f"bad.csv.*{message}") as refusal:
        load(tmp_path / "bad.csv")
    assert "\n" not in str(refusal.value)


def test_bytes_that_are_no_text_are_refused_by_row(tmp_path):
    (tmp_path / "runs.csv").write_bytes(b"\xef\xbb\xbf" + CSV.encode().replace(b"3.5", b"3,5\xb0"))
    with pytest.raises(rc.InputError, match=r"runs.csv, row 3: this is not UTF-8 text; save the file as CSV in UTF-8"):
        load(tmp_path / "runs.csv")
    (tmp_path / "runs.csv").write_text(CSV, encoding="utf-16")
    with pytest.raises(rc.InputError, match=r"runs.csv, row 1: this is not UTF-8 text"):
        load(tmp_path / "runs.csv")


def test_directories_and_closed_files_are_refused(tmp_path, monkeypatch):
    (tmp_path / "runs.csv").mkdir()
    with pytest.raises(rc.InputError, match=r"runs.csv is a directory; give a file"):
        load(tmp_path / "runs.csv")
    with pytest.raises(rc.InputError, match=r"is a directory; give a file"):
        load_plans(tmp_path, state_names=["x"], input_names=["u"])

    def closed(path):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "closed.csv").write_text(CSV)
    monkeypatch.setattr("pathlib.Path.read_bytes", closed)
    with pytest.raises(rc.InputError, match=r"closed.csv: the file cannot be read \(Permission denied\)"):
        load(tmp_path / "closed.csv")


@pytest.mark.filterwarnings("ignore::rkhs_control.RowOrderWarning")  # where the name of the clock is damaged
def test_damaged_csv_files_are_read_or_refused_in_one_line(tmp_path, rng):
    file, whole = (
        tmp_path / "runs.csv",
        np.frombuffer((CSV + "1,0,4.0,3.0\n1,1,5.0,3.5\n1,2,6.0,\n").encode(), np.uint8),
    )
    refusals = []
    for _ in range(500):
        damaged = whole.copy()
        damaged[rng.integers(len(whole), size=2)] = rng.choice(list(b'0,;."\n\r\t\x00\xff -eN'), 2)
        file.write_bytes(damaged[: rng.integers(len(whole) // 2, 2 * len(whole))].tobytes())
        for read in (load, read_plans):
            try:
                read(file)
            except rc.InputError as refusal:
                refusals.append(str(refusal))
    assert 300 < len(refusals) < 1000
    for refusal in refusals:
        assert str(file) in refusal
        assert refusal.splitlines() == [refusal]


def test_marks_blanks_and_spaces_around_the_rows_do_not_matter(tmp_path):
    (tmp_path / "plain.csv").write_text(CSV)
    dressed = "\r\n" + CSV.replace(",", " , ").replace("\n", "\r\n\r\n  \r\n,,,\r\n")
    (tmp_path / "dressed.csv").write_bytes(b"\xef\xbb\xbf" + dressed.encode())
    assert_same(load(tmp_path / "dressed.csv"), load(tmp_path / "plain.csv"))


def test_columns_that_are_not_read_may_hold_anything(tmp_path):
    (tmp_path / "plain.csv").write_text(CSV)
    header, *rows = CSV.splitlines()
    (tmp_path / "more.csv").write_text("\n".join([f"{header},note,note,", *(f'{row},"a, b",,NaN' for row in rows)]))
    assert_same(load(tmp_path / "more.csv"), load(tmp_path / "plain.csv"))


def test_a_file_without_trajectory_column_is_one_run(tmp_path):
    (tmp_path / "named.csv").write_text(CSV)
    (tmp_path / "one.csv").write_text(CSV.replace("trajectory,", "").replace("\n0,", "\n"))
    assert_same(load(tmp_path / "one.csv"), load(tmp_path / "named.csv"))


TIMES = "trajectory,time,x,u\na,100.3,2.0,3.5\na,100.2,1.0,3.0\nb,7,1.5,3.0\na,100.4,3.0,\nb,7.1,2.5,3.5\nb,7.2,3.5,\n"


def test_times_order_the_rows_and_give_the_sampling_time(tmp_path):
    (tmp_path / "runs.csv").write_text(TIMES)
    runs = load(tmp_path / "runs.csv")
    np.testing.assert_array_equal(runs.states[:, :, 0], [[1, 2, 3], [1.5, 2.5, 3.5]])
    np.testing.assert_array_equal(runs.inputs[:, :, 0], [[3, 3.5], [3, 3.5]])
    assert runs.sampling_time == 0.1
    assert load(tmp_path / "runs.csv", sampling_time=0.10001).sampling_time == 0.10001


def test_times_go_before_steps_and_are_checked(tmp_path):
    (tmp_path / "runs.csv").write_text("time,step,x,u\n9,2,3.0,\n4,0,1.0,3.0\n6.5,1,2.0,3.5\n")
    runs = load(tmp_path / "runs.csv")
    np.testing.assert_array_equal(runs.states[0, :, 0], [1, 2, 3])
    assert runs.sampling_time == 2.5
    (tmp_path / "runs.csv").write_text("time,step,x,u\n9,2,3.0,\n4,0,1.0,3.0\n5,1,2.0,3.5\n")
    with pytest.raises(rc.InputError, match="goes from time 5"):
        load(tmp_path / "runs.csv")


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (
            TIMES.replace("7.2", "7.3"),
            {},
            "row 7: trajectory b goes from time 7.1 to 7.3 where a spacing of 0.1 is expected; "
            "at a gap, give the rows after it another name in the column 'trajectory'",
        ),
        (TIMES.replace("7.2", "7.20011"), {}, "row 7: trajectory b goes from time 7.1 to 7.20011 where"),
        (TIMES, {"sampling_time": 0.2}, "row 2: trajectory a goes from time 100.2 to 100.3 where a spacing of 0.2 is"),
        (TIMES, {"sampling_time": 0.0}, "sampling_time must be a number above zero"),
        (
            TIMES.replace("7.2", "7.10"),
            {},
            "row 7: time 7.1 of trajectory b was already in row 6; remove one of them, "
            "or give the second run another name in the column 'trajectory'",
        ),
        (TIMES.replace("7.2", "7 s"), {}, "row 7, column 'time': '7 s' is not a number"),
        (TIMES.replace("7.2", "inf"), {}, "row 7, column 'time': inf is not finite"),
        ("time,x,u\n0,1.0,3.0\n0,2.0,\n", {}, "row 3: time 0.0 of trajectory 0 was already in row 2"),
    ],
)
def test_times_that_repeat_or_leave_gaps_are_refused_by_row(tmp_path, text, given, message):
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(rc.InputError, match=message):
        load(tmp_path / "runs.csv", **given)


def test_times_may_be_off_by_a_thousandth(tmp_path):
    (tmp_path / "runs.csv").write_text(TIMES.replace("7.2", "7.20009"))
    assert len(load(tmp_path / "runs.csv")) == 2


def test_a_run_split_at_its_gap_is_two_runs(tmp_path):
    (tmp_path / "runs.csv").write_text(TIMES.replace("b,7", "a,107"))
    with pytest.raises(rc.InputError, match=r"trajectory a goes from time 100.4 to 107.0"):
        load(tmp_path / "runs.csv")
    (tmp_path / "runs.csv").write_text(TIMES.replace("b,7", "c,107"))
    assert len(load(tmp_path / "runs.csv")) == 2


# ---- plans


@pytest.fixture
def plans(rng):
    return Plans(
        names=("gentle", 'a "bold", long one'),
        x0=(rng.normal(size=2), rng.normal(size=2) * 1e-7),
        inputs=(rng.normal(size=(1, 1)) / 3, rng.normal(size=(5, 1)) * 1e9),
        state_names=("c_A", "c_B"),
        input_names=("u",),
    )


def test_plans_come_back_bit_by_bit(plans, tmp_path):
    save_plans(plans, tmp_path / "plans.csv")
    back = load_plans(tmp_path / "plans.csv", state_names=["c_A", "c_B"], input_names=["u"])
    assert (back.names, back.state_names, back.input_names) == (plans.names, plans.state_names, plans.input_names)
    for a, b in zip((*back.x0, *back.inputs), (*plans.x0, *plans.inputs), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    save_plans(back, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "plans.csv").read_bytes()


def test_plans_are_written_with_states_in_their_first_rows_only(tmp_path):
    save_plans(Plans(("p",), ([0.1, 2.0],), ([[3.0], [1 / 3]],)), tmp_path / "plans.csv")
    written = (tmp_path / "plans.csv").read_text().splitlines()
    assert written == ["trajectory,step,x_0,x_1,u_0", "p,0,0.1,2.0,3.0", "p,1,,,0.3333333333333333"]


def test_recorded_runs_are_plans_too(runs, tmp_path):
    rc.save_trajectories(runs, tmp_path / "runs.csv")
    plans = load_plans(tmp_path / "runs.csv", state_names=runs.state_names, input_names=runs.input_names)
    assert len(plans) == len(runs)
    np.testing.assert_array_equal(plans.x0, runs.states[:, 0])
    np.testing.assert_array_equal(plans.inputs, runs.inputs)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("plan,step,x,u\np,1,not read,3.5\np,0,1.0,3.0\nq,0,2.0,4.0\n", ("p", "q")),
        ("trajectory,plan,step,x,u\np,z,0,1.0,3.0\np,z,1,,3.5\nq,z,0,2.0,4.0\nq,z,1,,\n", ("p", "q")),
        ("plan,time,x,u\nq,5,2.0,4.0\np,0.5,,3.5\np,1.0,,\np,0,1.0,3.0\n", ("q", "p")),
    ],
)
def test_plans_of_any_lengths_are_read_by_name(tmp_path, text, names):
    (tmp_path / "plans.csv").write_text(text)
    plans = read_plans(tmp_path / "plans.csv")
    assert plans.names == names
    for name, x0, inputs in zip(plans.names, plans.x0, plans.inputs, strict=True):
        assert x0.tolist() == {"p": [1.0], "q": [2.0]}[name]
        assert inputs.tolist() == {"p": [[3.0], [3.5]], "q": [[4.0]]}[name]


def test_a_file_of_one_plan_needs_no_names(tmp_path):
    (tmp_path / "plans.csv").write_text("step,x,u\n0,1.0,3.0\n1,,3.5\n")
    plans = read_plans(tmp_path / "plans.csv")
    assert plans.names == ("0",)
    assert plans.inputs[0].tolist() == [[3.0], [3.5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plan,step,x,u\np,0,,3.0\n", "row 2, column 'x': '' is not a number"),
        ("plan,step,x,u\np,0,1.0,3.0\np,1,,\np,2,,3.0\n", "row 3, column 'u': '' is not a number"),
        ("plan,step,x,u\np,0,1.0,\n", "row 2: plan p has no inputs"),
        ("plan,step,x,u\np,0,1.0,1e60\n", "inputs of plan p must be finite"),
        ("plan,step,x,u\np,0,1.0,3.0\np,0,1.0,4.0\n", "row 3: step 0 of plan p was already in row 2; .* 'plan'"),
        ("plan,step,x,u\np,0,1.0,3.0\np,2,,4.0\n", "row 3: plan p goes from step 0 to 2"),
        ("plan,time,x,u\np,0,1.0,3.0\np,30,,4.0\n", "row 3: plan p goes from time 0.0 to 30.0 where .* of 60.0 is"),
        ("plan,step,x\np,0,1.0\n", "there is no column 'u'"),
        ("plan,step,plan,x,u\np,0,p,1.0,3.0\n", "2 columns are called 'plan'"),
    ],
)
def test_bad_plans_are_refused_by_row(tmp_path, text, message):
    (tmp_path / "plans.csv").write_text(text)
    with pytest.raises(rc.InputError, match=f"plans.csv.*{message}"):
        load_plans(tmp_path / "plans.csv", state_names=["x"], input_names=["u"], sampling_time=60.0)


def test_plans_are_kept_in_csv_files_only(plans, tmp_path):
    with pytest.raises(rc.InputError, match=r"the ending must be \.csv"):
        save_plans(plans, tmp_path / "plans.npz")
    with pytest.raises(rc.InputError, match="there is no file"):
        read_plans(tmp_path / "plans.csv")
    save_plans(plans, tmp_path / "plans.csv")
    with pytest.raises(rc.InputError, match="plans need state_names and input_names"):
        load_plans(tmp_path / "plans.csv", state_names=[], input_names=["u"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ("a",)}, "names, x0 and inputs must have one entry per plan, and at least one; got 1, 2 and 2"),
        ({"names": (), "x0": (), "inputs": ()}, "at least one; got 0, 0 and 0"),
        ({"names": ("a", " a")}, "names must differ from each other"),
        ({"x0": ([1.0, 2.0], [1.0])}, "x0 of plan b must have one entry per state"),
        ({"x0": ([1.0, 2.0], [1.0, np.nan])}, "x0 of plan b must be finite"),
        ({"inputs": ([1.0], [[1.0]])}, r"inputs of plan a must have shape \(n_steps, n_inputs\); got \(1,\)"),
        ({"inputs": ([[1.0]], [[1.0, 2.0]])}, r"inputs of plan b must have shape"),
        ({"inputs": ([[1.0]], [[np.inf]])}, r"inputs of plan b must be finite"),
        ({"state_names": ("x",)}, "state_names must be 2 strings"),
    ],
)
def test_wrong_plans_are_refused_by_name(change, message):
    arguments = {"names": ("a", "b"), "x0": ([1.0, 2.0],) * 2, "inputs": ([[1.0]], [[1.0], [2.0]])}
    with pytest.raises(rc.InputError, match=message):
        Plans(**{**arguments, **change})


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
        ({"noise_bound": [0.1, 0.1, 0.1]}, "noise_bound must be a number, one per state"),
        ({"noise_bound": -0.1}, "noise_bound must be zero or more"),
        ({"initial_state_noise": [0.1]}, r"initial_state_noise must have shape \(2,\); got \(1,\)"),
        ({"initial_state_noise": -0.1}, "initial_state_noise must be zero or more; got -0.1"),
        ({"origins": [[0, 0]]}, r"origins must have shape \(7, 2\), recording and first instant .* got \(1, 2\)"),
        ({"origins": [[0, -1]] * 7}, "origins must be whole numbers, zero or more"),
        ({"origins": [[0, 0.5]] * 7}, "origins must be whole numbers, zero or more"),
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


@pytest.mark.parametrize("ending", ["csv", "npz", "mat", "h5"])
def test_long_runs_are_cut_into_windows_whatever_their_file(tmp_path, rng, ending):
    runs = rc.Trajectories(rng.normal(size=(2, 6, 2)), rng.normal(size=(2, 5, 1)), [0.1, 0.2], ["a", "b"], ["u"])
    rc.save_trajectories(runs, tmp_path / f"runs.{ending}")
    columns = {"state_names": ["a", "b"], "input_names": ["u"], "noise_bound": [0.1, 0.2]} if ending == "csv" else {}
    cut = rc.load_trajectories(tmp_path / f"runs.{ending}", horizon=3, **columns)
    assert cut.states.shape == (6, 4, 2)
    np.testing.assert_array_equal(cut.states[4], runs.states[1, 1:5])
    np.testing.assert_array_equal(cut.inputs[4], runs.inputs[1, 1:4])
    np.testing.assert_allclose(cut.noise_bound, [[0.1, 0.2]] * 3, rtol=1e-14)
    assert cut.state_names == ("a", "b")


def test_windows_need_a_noise_bound_that_does_not_change(rng):
    runs = rc.Trajectories(rng.normal(size=(2, 4, 1)), rng.normal(size=(2, 3, 1)), [[0.1], [0.2], [0.3]])
    with pytest.raises(rc.InputError, match="differs from step to step"):
        runs.windows(2)


def test_names_given_for_a_file_that_has_its_own_must_agree(tmp_path, rng):
    runs = rc.Trajectories(rng.normal(size=(3, 3, 2)), rng.normal(size=(3, 2, 1)), 0.1, ["a", "b"], ["u"])
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    with pytest.raises(rc.InputError, match="state_names in it are a, b, not b, a"):
        rc.load_trajectories(tmp_path / "runs.npz", state_names=["b", "a"])
    np.savez(tmp_path / "bare.npz", states=runs.states, inputs=runs.inputs)
    bare = rc.load_trajectories(tmp_path / "bare.npz", state_names=["b", "a"], noise_bound=0.1)
    assert bare.state_names == ("b", "a")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_broken_npz_files_are_one_line(tmp_path, content):
    (tmp_path / "runs.npz").write_bytes(content)
    with pytest.raises(rc.InputError, match="not a readable NPZ file"):
        rc.load_trajectories(tmp_path / "runs.npz")


@pytest.mark.parametrize("ending", [".npz", ".mat", ".h5"])
def test_another_noise_bound_for_saved_windows_is_one_of_their_starts_too(ending, rng, tmp_path):
    recording = rng.normal(size=(12, 2)), rng.normal(size=(11, 1))
    for stated, told, expected in ((None, {}, 0.1), (0.0, {}, 0.0), (None, {"initial_state_noise": 0.03}, 0.03)):
        windows = rc.Trajectories.from_recordings([recording], 3, noise_bound=0.01, initial_state_noise=stated)
        rc.save_trajectories(windows, tmp_path / f"windows{ending}")
        loaded = rc.load_trajectories(tmp_path / f"windows{ending}", noise_bound=0.1, **told)
        np.testing.assert_allclose(loaded.initial_state_noise, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("ending", "content"), [(".npz", b"PK\x03\x04" + bytes(40)), (".mat", b"junk"), (".h5", b"x" * 600)]
)
def test_broken_binary_files_are_one_sentence(ending, content, tmp_path):
    (tmp_path / f"runs{ending}").write_bytes(content)
    with pytest.raises(rc.InputError, match="not a readable"):
        rc.load_trajectories(tmp_path / f"runs{ending}", noise_bound=0.1)
