"""Logs as plants write them: dates, decimal commas, semicolons, clocks that jitter, and no clock at all."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.data.notation import iso_time

COLUMNS = {"state_names": ["x"], "input_names": ["u"]}


def read(folder, text, **given):
    (folder / "log.csv").write_text(text)
    return rc.load_trajectories(folder / "log.csv", noise_bound=0.1, **COLUMNS, **given)


def assert_refused(folder, text, message, **given):
    with pytest.raises(rc.InputError, match=message) as refusal:
        read(folder, text, **given)
    assert "log.csv" in str(refusal.value)
    assert "\n" not in str(refusal.value)


# ---- numbers


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators_and_decimal_commas_are_found(tmp_path, mark):
    rows = [["time", "x", "u"], ["0,0", "1,5", "2,25"], ["0,5", "-,5", "1e1"], ["1,0", "3", ""]]
    runs = read(tmp_path, "\n".join(mark.join(row) for row in rows))
    np.testing.assert_array_equal(runs.states[0, :, 0], [1.5, -0.5, 3.0])
    np.testing.assert_array_equal(runs.inputs[0, :, 0], [2.25, 10.0])
    assert runs.sampling_time == 0.5


def test_decimal_commas_lose_what_points_would(tmp_path):
    """The noise bound is raised by what the decimals lose as doubles, however these are written."""
    text = "step;x;u\n0;0,1;1\n1;0,7;1\n2;12,3;\n"
    np.testing.assert_array_equal(
        read(tmp_path, text).noise_bound, read(tmp_path, text.replace(",", ".").replace(";", ",")).noise_bound
    )


def test_points_between_semicolons_are_points(tmp_path):
    runs = read(tmp_path, "step;x;u\n0;1.234;1\n1;2.345;1\n2;3.456;\n")
    np.testing.assert_array_equal(runs.states[0, :, 0], [1.234, 2.345, 3.456])


def test_commas_within_quotes_are_decimal_ones_if_that_is_plain(tmp_path):
    assert read(tmp_path, 'step,x,u\n0,"1,5",1\n1,2,1\n2,3,\n').states[0, 0, 0] == 1.5


@pytest.mark.parametrize("evidence", ["0,125", "1234,567", "1,5", ",125", "1,234e2", "1,"])
def test_commas_that_could_be_thousands_are_refused_unless_another_number_tells(tmp_path, evidence):
    text = "step;x;u\n0;21,125;30,000\n1;22,250;{}\n2;1,500;\n"
    message = "row 2, column 'x': '21,125' could be 21.125 or 21125, and no other number .*; write numbers with points"
    assert_refused(tmp_path, text.format("30,000"), message)
    assert read(tmp_path, text.format(evidence)).states[0, 0, 0] == 21.125


def test_points_beside_commas_are_refused(tmp_path):
    message = "row 3, column 'x': '1.500' has a point, but '1,5' in row 2 a comma; write all numbers with points"
    assert_refused(tmp_path, "step;x;u\n0;1,5;1\n1;1.500;1\n2;3;\n", message)
    assert_refused(tmp_path, "step;x;u\n0;1,5;1\n1;1.234,5;1\n2;3;\n", "row 3, column 'x': '1.234,5' is not a number")


def test_columns_that_are_not_read_may_be_written_otherwise(tmp_path):
    assert read(tmp_path, "step;x;u;note\n0;1,5;1;2.5\n1;2,5;1;1,234\n2;3;;7.5\n").states[0, 1, 0] == 2.5


def test_plans_are_read_by_the_same_rules(tmp_path):
    (tmp_path / "plan.csv").write_text("x;u\n1,5;2,5\n;3,5\n")
    plans = rc.load_plans(tmp_path / "plan.csv", **COLUMNS)
    np.testing.assert_array_equal(plans.inputs[0], [[2.5], [3.5]])
    assert plans.x0[0] == [1.5]


# ---- times


DATES = "time,x,u\n{},1,3\n{},2,4\n{},3,\n"


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        (["2024-05-01T12:00:03.5", "2024-05-01T12:00:04.75", "2024-05-01T12:00:06"], 1.25),
        (["2024-05-01 12:00:03", "2024-05-01 12:00:04", "2024-05-01 12:00:05"], 1.0),
        (["2024-12-31T23:59Z", "2025-01-01T00:00Z", "2025-01-01T00:01Z"], 60.0),
        (["2024-03-31T01:30:00+01:00", "2024-03-31T03:00:00+02:00", "2024-03-31 03:30:00+0200"], 1800.0),
        (["2024-02-28", "2024-02-29", "2024-03-01"], 86400.0),
        (["2024-05-01T12:00:03.000000100", "2024-05-01T12:00:03.000000200", "2024-05-01T12:00:03.0000003"], 1e-7),
    ],
)
def test_dates_are_seconds(tmp_path, times, seconds):
    runs = read(tmp_path, DATES.format(*times))
    assert runs.sampling_time == seconds
    np.testing.assert_array_equal(runs.states[0, :, 0], [1, 2, 3])
    first, last, middle = times[0], times[2], times[1]
    shuffled = f"time,x,u\n{last},3,\n{first},1,3\n{middle},2,4\n"
    np.testing.assert_array_equal(read(tmp_path, shuffled).states[0, :, 0], [1, 2, 3])


def test_dates_go_with_decimal_commas(tmp_path):
    text = "time;x;u\n2024-05-01 12:00:03,5;1,5;3\n2024-05-01 12:00:04,0;2;4\n2024-05-01 12:00:04,5;3;\n"
    runs = read(tmp_path, text)
    assert runs.sampling_time == 0.5
    assert runs.states[0, 0, 0] == 1.5


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["2024-05-01T12:00", "2", "3"], "row 3, column 'time': '2' is no date and time such as '2024-05-01T12:00'"),
        (["1", "2024-05-01T12:00", "3"], "row 3, column 'time': '2024-05-01T12:00' is not a number of seconds"),
        (["01.05.2024 12:00", "2", "3"], "row 2, column 'time': .* nor a date such as 2024-05-01T12:00:03.5"),
        (["2024-13-01", "2", "3"], "row 2, column 'time': '2024-13-01' is not a number of seconds, nor a date such as"),
        (
            ["2024-05-01T12:00Z", "2024-05-01T12:01", "2024-05-01T12:02"],
            "row 3, column 'time': '2024-05-01T12:01' says no offset from UTC, but the first row one; write all times",
        ),
        (
            ["2024-05-01T12:00", "2024-05-01T12:01", "2024-05-01T14:01"],
            "row 4: trajectory 0 goes from time 2024-05-01T12:01 to 2024-05-01T14:01 where a spacing of 60.* at a gap",
        ),
        (
            ["2024-05-01T12:00", "2024-05-01T12:01", "2024-05-01 12:01:00"],
            "row 4: time 2024-05-01 12:01:00 of trajectory 0 was already in row 3",
        ),
    ],
)
def test_dates_that_do_not_go_together_are_refused_by_row(tmp_path, times, message):
    assert_refused(tmp_path, DATES.format(*times), message)


def test_what_is_no_date_is_no_date():
    for text in ("2024-05-01T12:00.5", "2024-05-01T25:00", "20240501", "12:00:00", "2024-5-1", "", "1.5"):
        assert iso_time(text) is None


def test_a_clock_that_jitters_is_refused_with_the_rows_the_jitter_and_the_cure(tmp_path):
    message = (
        "row 4: trajectory 0 .* from time 1.0 to 2.013 where a spacing of 1.0 is expected; that is a jitter of 1.3 %, "
        "and the largest is 4 % in row 6: resample .* put a column 'step' .* in the place of 'time'"
    )
    times = (0, 1, 2.013, 3, 4.04)
    assert_refused(tmp_path, "time,x,u\n" + "".join(f"{t},1,2\n" for t in times), message)
    cured = read(tmp_path, "step,x,u\n" + "".join(f"{k},1,2\n" for k in range(5)), sampling_time=1.0)
    assert cured.sampling_time == 1.0


# ---- no clock


def test_rows_without_a_clock_are_one_run_in_their_order_and_that_is_said(tmp_path):
    with pytest.warns(
        rc.RowOrderWarning, match=r"log.csv: without a column 'time' or 'step' the rows count as one run"
    ):
        runs = read(tmp_path, "n,x,u\n0,3,5\n1,1,6\n2,2,7\n3,4,\n", horizon=2)
    np.testing.assert_array_equal(runs.states[:, :, 0], [[3, 1, 2], [1, 2, 4]])
    assert runs.is_windowed


def test_an_even_clock_by_another_name_is_pointed_out(tmp_path):
    with pytest.warns(rc.RowOrderWarning, match=r"in their order; 't' grows evenly .* call it 'time'"):
        runs = read(tmp_path, "t,x,u\n0,3,5\n2,1,6\n4,2,7\n6,4,\n", horizon=2)
    assert runs.sampling_time == 1.0
    with pytest.warns(rc.RowOrderWarning, match=r"in their order$"):
        read(tmp_path, "note,x,u\n9,3,5\n2,1,6\n4,2,7\n1,4,\n", horizon=2)


@pytest.mark.parametrize(
    ("column", "row"), [((0, 1, 2, 5), 5), ((0, 1.0, 2.1, 3.2), 3), ((0, 1, 0, 1), 4), ((7, 8, 10, 11), 4)]
)
def test_a_clock_by_another_name_with_gaps_is_refused(tmp_path, column, row):
    text = "t,x,u\n" + "".join(f"{t},1,2\n" for t in column)
    assert_refused(
        tmp_path, text, f"row {row}: there is no column 'step' or 'time', and 't' grows .* but unevenly here"
    )


def test_runs_that_are_told_apart_need_a_clock(tmp_path):
    assert_refused(tmp_path, "trajectory,x,u\n0,1,2\n0,2,\n", "row 1: a column 'step' or 'time' is needed")
