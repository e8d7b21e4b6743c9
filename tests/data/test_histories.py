"""Windows of recordings: histories, steps of several samples, and where they come from."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.data.splits import last_part


def recording(n=20, n_outputs=2, n_inputs=1):
    outputs = np.arange(n + 1)[:, None] + np.array([0.25, 100.25])[:n_outputs]
    return outputs, -np.arange(n)[:, None] - np.arange(n_inputs) / 8.0


def test_histories_hold_the_latest_first_and_begin_with_the_present():
    runs = rc.Trajectories.from_recordings([recording()], 3, output_lags=3, input_lags=2, noise_bound=[0.1, 0.2])
    assert runs.history_names == ("x_0", "x_1", "x_0[-1]", "x_1[-1]", "x_0[-2]", "x_1[-2]", "u_0[-1]", "u_0[-2]")
    assert runs.histories.shape == (16, 8)
    np.testing.assert_array_equal(runs.histories[0], [2.25, 102.25, 1.25, 101.25, 0.25, 100.25, -1.0, 0.0])
    np.testing.assert_array_equal(runs.origins[:3], [[0, 2], [0, 3], [0, 4]])
    np.testing.assert_array_equal(runs.initial_state_noise, [0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.0, 0.0])
    np.testing.assert_array_equal(runs.arguments(2)[0], [*runs.histories[0], -2.0, -3.0])
    assert runs.states.shape == (16, 4, 2)
    assert not runs.has_states
    assert "of 3 steps" in repr(runs)


def test_without_lags_the_history_is_the_state():
    cut = rc.Trajectories.from_recordings([recording()], 3, noise_bound=0.1)
    np.testing.assert_array_equal(cut.histories, cut.states[:, 0])
    assert cut.has_states
    moved = replace(cut, states=cut.states + 1.0)
    np.testing.assert_array_equal(moved.histories, moved.states[:, 0])
    assert cut.sha256 != moved.sha256


def test_steps_of_several_samples_average_the_inputs_and_keep_every_so_many_outputs():
    rng = np.random.default_rng(0)
    outputs, inputs = rng.normal(size=(24, 2)), rng.normal(size=(23, 2))
    runs = rc.Trajectories.from_recordings(
        [(outputs, inputs)], 2, every=4, output_lags=2, noise_bound=0.1, sampling_time=0.5
    )
    assert runs.sampling_time == 2.0
    assert len(runs) == 3
    np.testing.assert_array_equal(runs.histories[0], [*outputs[4], *outputs[0]])
    np.testing.assert_array_equal(runs.states[0], outputs[[4, 8, 12]])
    assert runs.inputs[0, 0, 1] == math.fsum(inputs[4:8, 1]) / 4.0


def test_windows_that_share_a_sample_of_their_history_are_not_split():
    runs = rc.Trajectories.from_recordings([recording(200)], 3, output_lags=4, noise_bound=0.1)
    kept, held = runs.held_out(0.2, np.random.default_rng(0))

    def samples(part):
        return {t for _, first in part.origins for t in range(first - 3, first + 4)}

    assert not samples(kept) & samples(held)


def test_the_last_part_is_taken_of_every_recording():
    runs = rc.Trajectories.from_recordings(
        [recording(40), recording(24), recording(4)], 3, output_lags=2, noise_bound=0.1
    )
    kept, held = last_part(0.25, runs.origins, runs.horizon + runs.shape.lead)
    np.testing.assert_array_equal(runs.origins[held, 1], [*range(29, 38), *range(17, 22)])
    assert runs.origins[kept, 1].tolist() == [*range(1, 25), *range(1, 13), 1]
    whole = np.stack([np.arange(8), np.zeros(8, dtype=int)], axis=1)
    kept, held = last_part(0.25, whole, 5)
    assert np.flatnonzero(held).tolist() == [6, 7]
    assert np.flatnonzero(kept).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(rc.InputError, match="leaves nothing on one side"):
        last_part(0.01, whole, 5)


def test_a_disturbance_bound_counts_as_the_decimal_that_it_is(tmp_path):
    """0.7 is no double: the nearest one is less, and the next one is a bound."""
    (tmp_path / "log.csv").write_text("sample,x,u\n" + "".join(f"{k},{k}.5,0\n" for k in range(6)))
    names = {"state_names": ["x"], "input_names": ["u"]}
    runs = rc.load_trajectories(tmp_path / "log.csv", **names, noise_bound=0.5, disturbance_bound=0.7, horizon=2)
    assert float(Fraction(7, 10)) < Fraction(7, 10)
    assert (runs.disturbance_bound == math.nextafter(0.7, 1.0)).all()


def test_parts_of_windows_keep_their_histories(tmp_path):
    runs = rc.Trajectories.from_recordings(
        [recording(), recording(12)], 3, output_lags=2, input_lags=1, noise_bound=0.1, disturbance_bound=[0.0, 0.3]
    )
    part = runs.subset([3, 5])
    np.testing.assert_array_equal(part.histories, runs.histories[[3, 5]])
    again = runs.subset(np.arange(4)).joined(runs.subset(np.arange(4, len(runs))))
    np.testing.assert_array_equal(again.histories, runs.histories)
    short = runs.shortened(2)
    assert short.disturbance_bound.shape == (2, 2)
    for ending in ("npz", "mat", "h5"):
        file = tmp_path / f"runs.{ending}"
        rc.save_trajectories(runs, file)
        read = rc.load_trajectories(file)
        assert read.shape == runs.shape
        for name in ("histories", "initial_state_noise", "disturbance_bound", "origins"):
            np.testing.assert_array_equal(getattr(read, name), getattr(runs, name))


def test_csv_recordings_are_cut_with_lags(tmp_path):
    outputs, inputs = recording(30, 1)
    lines = [f"{t},{outputs[t, 0]},{inputs[t, 0] if t < 30 else ''}" for t in range(31)]
    (tmp_path / "log.csv").write_text("time,y,u\n" + "\n".join(lines) + "\n")
    runs = rc.load_trajectories(
        tmp_path / "log.csv",
        state_names=["y"],
        input_names=["u"],
        horizon=2,
        output_lags=2,
        input_lags=1,
        every=5,
        noise_bound=0.1,
    )
    assert runs.sampling_time == 5.0
    assert runs.history_names == ("y", "y[-1]", "u[-1]")
    np.testing.assert_array_equal(runs.histories[0], [5.25, 0.25, -2.0])


def test_how_uncertain_histories_are_is_said_entry_by_entry_in_any_format(tmp_path):
    """Of the windows, whose histories have more entries than the states of the runs in a file."""
    outputs, inputs = recording(n_outputs=1)
    whole, names = rc.Trajectories(outputs[None], inputs[None], 0.1), {"state_names": ["x_0"], "input_names": ["u_0"]}
    for name in ("runs.npz", "runs.csv"):
        rc.save_trajectories(whole, tmp_path / name)
        runs = rc.load_trajectories(
            tmp_path / name, horizon=2, output_lags=3, noise_bound=0.1, initial_state_noise=[0.1, 0.2, 0.0], **names
        )
        np.testing.assert_array_equal(runs.initial_state_noise, [0.1, 0.2, 0.0])


def test_windows_of_whole_runs_are_those_of_recordings(tmp_path):
    outputs, inputs = recording(30, 1)
    whole = rc.Trajectories(outputs[None], inputs[None], 0.1, sampling_time=0.5)
    shape = {"output_lags": 2, "input_lags": 1, "every": 3}
    wanted = rc.Trajectories.from_recordings([(outputs, inputs)], 2, noise_bound=0.1, sampling_time=0.5, **shape)
    rc.save_trajectories(whole, tmp_path / "runs.npz")
    for cut in (whole.windows(2, **shape), rc.load_trajectories(tmp_path / "runs.npz", horizon=2, **shape)):
        for name in ("histories", "inputs", "states", "initial_state_noise", "origins", "sampling_time", "shape"):
            np.testing.assert_array_equal(getattr(cut, name), getattr(wanted, name))
    with pytest.raises(rc.InputError, match="every applies to windows, and needs horizon"):
        rc.load_trajectories(tmp_path / "runs.npz", every=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_lags": 0}, "output_lags must be a whole number, at least 1; got 0"),
        ({"input_lags": -1}, "input_lags must be a whole number, at least 0; got -1"),
        ({"every": 0}, "every must be a whole number, at least 1; got 0"),
        ({"every": 1.5}, r"every must be a whole number, at least 1; got 1\.5"),
        ({"output_lags": 19}, "no run has 3 steps after the 18 of their history; the longest has 2"),
        ({"disturbance_bound": -0.1}, "disturbance_bound must be zero or more"),
        ({"disturbance_bound": [0.1]}, "disturbance_bound must be a number, one per state"),
    ],
)
def test_wrong_windows_are_refused_by_name(arguments, message):
    with pytest.raises(rc.InputError, match=message):
        rc.Trajectories.from_recordings([recording()], 3, noise_bound=0.1, **arguments)


def test_what_begins_with_a_state_refuses_histories():
    runs = rc.Trajectories.from_recordings([recording(40)], 2, output_lags=2, noise_bound=0.1)
    predictor = rc.MultiStepPredictor(runs, rc.SquaredExponential(50.0), 1e4)
    with pytest.raises(rc.InputError, match=r"a certified loop begins with a state, but the runs have histories: x_0"):
        rc.CertifiedMPC(lambda x: x, predictor, rc.Box([-9.0, -9.0], [9.0, 9.0]), [0.0])
    with pytest.raises(rc.InputError, match=r"x0 must hold 4 entries, a history \(x_0, x_1, x_0\[-1\], x_1\[-1\]\)"):
        predictor.boxes([0.0, 0.0], [[1.0]])
    with pytest.raises(rc.InputError, match="windows with histories are cut from recordings"):
        runs.windows(1)
