"""Figures of what was held out show every measurement once and every box where it belongs."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.prediction.tube import Tube
from rkhs_control.reporting.held_out import held_out_figure


def windows(lengths, **settings):
    rng = np.random.default_rng(0)
    recordings = [(rng.normal(size=(n + 1, 2)), rng.normal(size=(n, 1))) for n in lengths]
    runs = rc.Trajectories.from_recordings(recordings, 3, noise_bound=0.1, **settings)
    middle = runs.states[:, 1:]
    nothing = np.zeros_like(middle)
    tube = Tube(middle - 1.0, middle + 2.0, nothing, nothing, np.empty((*middle.shape, 2), dtype=object))
    return recordings, runs, tube


def bars(axes):
    """Ends of every vertical line, by their colours."""
    found = {}
    for lines in axes.collections:
        segments = np.array(lines.get_segments())
        if len(segments):
            found.setdefault(tuple(lines.get_colors()[0][:3]), []).extend(segments.tolist())
    return list(found.values())


def test_boxes_stand_where_what_they_predict_was_measured():
    (recording,), runs, tube = windows([12], sampling_time=5.0)
    figure = held_out_figure(runs, tube, np.zeros(tube.lower.shape, dtype=bool))
    for i, axes in enumerate(figure.axes):
        last, first = bars(axes)
        for ahead, segments in ((3, last), (1, first)):
            for (_, start), ((x, low), (_, high)) in zip(runs.origins, segments, strict=True):
                instant = start + ahead
                assert x == 5.0 * instant
                np.testing.assert_allclose([low, high], recording[0][instant, i] + np.array([-1.0, 2.0]))
        (line,) = axes.lines
        np.testing.assert_array_equal(line.get_ydata(), recording[0][:, i])
    assert figure.axes[-1].get_xlabel() == "time in the recording [s]"


def test_contradicted_boxes_are_red():
    _, runs, tube = windows([12])
    bad = np.zeros(tube.lower.shape, dtype=bool)
    bad[4, 2, 1] = True
    upper, lower = held_out_figure(runs, tube, bad).axes
    assert (len(bars(upper)), len(bars(lower))) == (2, 3)
    assert min(len(segments) for segments in bars(lower)) == 1


@pytest.mark.parametrize("lengths", [[8, 5], [3, 3, 3]])
def test_recordings_follow_each_other_without_a_line_between(lengths):
    recordings, runs, tube = windows(lengths)
    axes = held_out_figure(runs, tube, np.zeros(tube.lower.shape, dtype=bool)).axes[0]
    drawn = axes.lines[0].get_ydata()
    assert np.isnan(drawn).sum() == len(lengths) - 1
    np.testing.assert_array_equal(drawn[~np.isnan(drawn)], np.concatenate([y[:, 0] for y, _ in recordings]))
    assert (np.diff(axes.lines[0].get_xdata()[~np.isnan(drawn)]) > 0).all()
