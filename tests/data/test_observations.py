"""Observations: intervals from samples, and errors that say what to do."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rkhs_control as rc

NUMBERS = st.floats(-1e6, 1e6)


def test_one_output_an_input_gives_output_plus_minus_noise():
    data = rc.Observations([[0.0], [1.0]], [1.0, 2.0], noise_bound=0.25)
    np.testing.assert_array_equal(data.lower, [0.75, 1.75])
    np.testing.assert_array_equal(data.upper, [1.25, 2.25])
    np.testing.assert_array_equal(data.centre, [1.0, 2.0])
    assert len(data) == 2


def test_several_outputs_and_exact_repeats_are_intersected():
    several = rc.Observations([0.0, 1.0], [[1.0, 1.5], [3.0]], noise_bound=0.5)
    repeats = rc.Observations([0.0, 1.0, -0.0], [1.0, 3.0, 1.5], noise_bound=0.5)
    for data in (several, repeats):
        np.testing.assert_array_equal(data.X, [[0.0], [1.0]])
        np.testing.assert_array_equal(data.lower, [1.0, 2.5])
        np.testing.assert_array_equal(data.upper, [1.5, 3.5])


def test_noise_bounds_may_differ_from_row_to_row():
    data = rc.Observations([0.0, 0.0, 1.0], [1.0, 1.2, 5.0], noise_bound=[0.1, 1.0, 2.0])
    np.testing.assert_allclose(data.lower, [0.9, 3.0])
    np.testing.assert_allclose(data.upper, [1.1, 7.0])


@given(st.lists(st.tuples(NUMBERS, st.floats(0, 1e6)), min_size=1, max_size=5))
def test_interval_ends_are_rounded_outwards(rows):
    from fractions import Fraction

    y, noise = [row[0] for row in rows], [row[1] for row in rows]
    data = rc.Observations(np.arange(len(rows)), y, noise)
    for i in range(len(rows)):
        assert Fraction(data.lower[i]) <= Fraction(y[i]) - Fraction(noise[i])
        assert Fraction(data.upper[i]) >= Fraction(y[i]) + Fraction(noise[i])
        assert Fraction(data.centre[i]) - Fraction(data.half_width[i]) <= Fraction(data.lower[i])
        assert Fraction(data.centre[i]) + Fraction(data.half_width[i]) >= Fraction(data.upper[i])


@given(st.lists(NUMBERS, min_size=2, max_size=4))
def test_contradictions_name_rows_and_a_noise_bound_that_reconciles(outputs):
    if max(outputs) - min(outputs) <= 1e-3:
        return
    with pytest.raises(rc.ContradictoryDataError, match=r"rows \d+ and \d+ contradict each other") as caught:
        rc.Observations(np.zeros(len(outputs)), outputs, noise_bound=1e-4)
    enough = float(re.search(r"at least ([-+.\de]+) \(now", str(caught.value))[1])
    rc.Observations(np.zeros(len(outputs)), outputs, noise_bound=enough)
    assert enough <= (max(outputs) - min(outputs)) / 2 * (1 + 1e-7)


def test_contradiction_under_differing_noise_bounds_says_by_how_much_they_must_grow():
    with pytest.raises(rc.ContradictoryDataError, match=r"larger by at least 0\.35"):
        rc.Observations([0.0, 0.0], [0.0, 1.0], noise_bound=[0.1, 0.2])


def test_intervals_may_have_one_end_only():
    data = rc.Observations.from_intervals([0.0, 1.0], [-np.inf, 0.0], [1.0, np.inf])
    with pytest.raises(rc.InputError, match="needs intervals with two ends; input 0 has only one"):
        rc.ClosedFormEnvelope(data, rc.SquaredExponential(1.0), 10.0)
    with pytest.raises(rc.ContradictoryDataError, match="row 0 contradicts itself"):
        rc.Observations.from_intervals([0.0], [1.0], [0.0])


X = np.zeros((3, 2)) + np.arange(3)[:, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, [1.0, 2.0], 0.1), r"y must have shape \(3,\); got \(2,\)"),
        ((X, [1.0, np.nan, 2.0], 0.1), "y must be finite .* row 1 is nan"),
        ((X, [1.0, 2.0, np.inf], 0.1), "y must be finite .* row 2 is inf"),
        ((X + np.inf, [1.0, 2.0, 3.0], 0.1), "X must be finite"),
        ((np.empty((0, 2)), [], 0.1), "X must have at least one row"),
        ((np.zeros((2, 2, 2)), [1.0, 2.0], 0.1), "X must have shape"),
        ((X, [[1.0], [], [2.0]], 0.1), r"y\[1\] is empty"),
        ((X, [[1.0], [2.0]], 0.1), "y must have as many rows as X; got 2 for 3"),
        ((X, ["a", "b", "c"], 0.1), "y must be an array of real numbers"),
        ((X, np.zeros((3, 2, 2)), 0.1), "y must have shape"),
        ((X, [1.0, 2.0, 3.0], -0.1), "noise_bound must be a number zero or more"),
        ((X, [1.0, 2.0, 3.0], [0.1, -0.1, 0.1]), "noise_bound must be zero or more; row 1"),
        ((X, [1.0, 2.0, 3.0], [0.1, 0.1]), r"noise_bound must have shape \(3,\)"),
        ((X, [1.0, 2.0, 3.0], "small"), "noise_bound must be a number"),
        ((X, [1.0, 2.0, 3.0], np.nan), "noise_bound must be a number"),
        ((X, [1, 2**53 + 1, 3], 0.1), "y has int64 entries that are not doubles"),
        pytest.param(
            (X, np.array([1, 2, 3], np.longdouble) / 3, 0.1),
            "y has .* entries that are not doubles",
            marks=pytest.mark.skipif(
                np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="no longer floats here"
            ),
        ),
        ((X + 1j, [1.0, 2.0, 3.0], 0.1), "X must be an array of real numbers"),
    ],
)
def test_wrong_data_are_refused_by_name(arguments, message):
    with pytest.raises(rc.InputError, match=message):
        rc.Observations(*arguments)


def test_subset_takes_indices_or_a_mask():
    data = rc.Observations(X, [1.0, 2.0, 3.0], 0.5)
    np.testing.assert_array_equal(data.subset([2, 0]).lower, [2.5, 0.5])
    np.testing.assert_array_equal(data.subset(data.lower > 1).lower, [1.5, 2.5])
    assert data.subset([0]).noise_bound == 0.5
    with pytest.raises(rc.InputError, match="indices below 3"):
        data.subset([7])
