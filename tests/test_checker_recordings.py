"""The checker reads logs of plants, by code of its own, to the very numbers that certificates are made from."""

import warnings

import numpy as np
import pytest
from plants import swings

import rkhs_control as rc
from rkhs_control import checker

COLUMNS = {"state_names": ["x", "y"], "input_names": ["u"]}
VALUES = ["0.1,-0.25,3.0", "0.7,1e-3,3.5", "-12.345,2.0,4.125", "0.3,0.0625,2.5", "1.1,2.2,0.3"]
"""Of the columns x, y and u."""


def log(clock, instants, mark=",", point=".", order=range(5)):
    """A file with these values, in the notation of some logger."""
    rows = [[instants[k], *(cell.replace(".", point) for cell in VALUES[k].split(","))] for k in order]
    return "\n".join(mark.join(row) for row in [[clock, "x", "y", "u"], *rows])


COUNT = list("01234")
DATES = [f"2024-05-01T23:59:{s}.5" for s in (57, 58, 59)] + [f"2024-05-02T00:00:{s}.5" for s in ("00", "01")]
ZONES = ["12:00+00:00", "14:30+0200", "11:00-02", "13:30Z", "14:00 Z"]
LOGS = {
    "commas": log("step", COUNT),
    "semicolons": log("step", COUNT, mark=";"),
    "tabs": log("step", COUNT, mark="\t"),
    "decimal commas": log("step", COUNT, mark=";", point=","),
    "decimal commas in times": log("time", ["7,125", "7,25", "7,375", "7,5", "7,625"], mark=";", point=","),
    "dates": log("time", DATES),
    "dates, blanks for T, commas": log(
        "time", [d.replace("T", " ").replace(".", ",") for d in DATES], mark=";", point=","
    ),
    "dates in several zones": log("time", [f"2024-05-01 {time}" for time in ZONES]),
    "days, in another order": log(
        "time", ["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03"], order=(3, 0, 4, 2, 1)
    ),
    "nanoseconds": log("time", [f"2024-05-01 12:00:00.00000010{k}" for k in range(5)]),
    "no clock": log("sample", COUNT),
    "carriage returns": log("sample", COUNT, mark=";", point=",").replace("\n", "\r"),
}


def read(file, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.RowOrderWarning)
        return rc.load_trajectories(file, noise_bound=0.1, **COLUMNS, **given)


@pytest.mark.parametrize("name", LOGS)
def test_both_readers_agree_to_the_bit(tmp_path, name):
    file = tmp_path / "log.csv"
    file.write_bytes(LOGS[name].encode())
    runs = read(file)
    [(states, inputs)] = checker._csv_runs(LOGS[name], **COLUMNS)
    np.testing.assert_array_equal(states, runs.states[0])
    np.testing.assert_array_equal(inputs, runs.inputs[0])
    expected = np.array([[float(cell) for cell in row.split(",")] for row in VALUES])
    np.testing.assert_array_equal(runs.states[0], expected[:, :2])
    np.testing.assert_array_equal(runs.inputs[0], expected[:4, 2:])


@pytest.mark.parametrize(
    "text",
    [
        "step;x;y;u\n0;21,125;30,000;1\n1;22,125;30,000;1\n",  # thousands?
        "step;x;y;u\n0;1,5;1.500;1\n1;1,5;2;1\n",  # both marks
        "step;x;y;u\n0;1.234,5;1;1\n1;1,5;2;1\n",
        "time,x,y,u\n2024-13-01,1,2,3\n2024-13-02,1,2,3\n",
        "time,x,y,u\n2024-05-01,1,2,3\n2,1,2,3\n",
        "time,x,y,u\n2024-05-01T12:00.5,1,2,3\n2024-05-01T12:01.5,1,2,3\n",
        "time,x,y,u\n2024-05-01,1,2,3\n2024-05-02,1,2,3\n2024-05-04,1,2,3\n",
        "trajectory,x,y,u\n0,1,2,3\n0,1,2,3\n",
    ],
)
def test_both_readers_refuse_what_may_mean_two_things(tmp_path, text):
    file = tmp_path / "log.csv"
    file.write_text(text)
    with pytest.raises(rc.InputError):
        read(file)
    with pytest.raises(ValueError):  # noqa: PT011  # the checker has no errors of its own for it
        checker._csv_runs(text, **COLUMNS)


def test_both_readers_agree_on_random_notations(rng):
    """Rounded to a few decimals at random, so that some of these files could mean two things."""
    refused = 0
    for _ in range(300):
        mark, point = rng.choice([",", ";", "\t"]), rng.choice([",", "."])
        numbers = np.round(rng.uniform(0.5, 3.0, (4, 3)) * rng.choice([1.0, 10.0, 300.0]), rng.integers(1, 5))
        rows = [f"{k}{mark}" + mark.join(f'"{x}"'.replace(".", point) for x in row) for k, row in enumerate(numbers)]
        text = "\n".join([mark.join(("step", "x", "y", "u")), *rows])
        try:
            [(states, inputs)] = checker._csv_runs(text, **COLUMNS)
        except ValueError:
            refused += 1
            assert point == ","
            continue
        np.testing.assert_array_equal(states, numbers[:, :2])
        np.testing.assert_array_equal(inputs, numbers[:3, 2:])
    assert refused < 100


def test_whatever_is_read_of_damaged_logs_is_read_alike(tmp_path, rng):
    file, n_read = tmp_path / "log.csv", 0
    for _ in range(1000):
        text = np.array(list(LOGS[rng.choice(list(LOGS))]))
        text[rng.integers(len(text), size=rng.integers(1, 4))] = rng.choice(list("0159,;.\t -+:TZe\n"))
        file.write_bytes("".join(text).encode())
        try:
            runs = read(file, horizon=1)
        except rc.InputError:
            continue
        n_read += 1
        found = checker._csv_runs("".join(text), **COLUMNS)
        states = [state for states, _ in found for state in states[:-1]]
        np.testing.assert_array_equal(states, runs.states[:, 0])
        np.testing.assert_array_equal([u for _, inputs in found for u in inputs], runs.inputs[:, 0])
    assert n_read > 100


def test_a_certificate_from_a_log_with_dates_and_decimal_commas_is_accepted(tmp_path, rng):
    _, measured, torques = swings(rng, 60, 0.01)
    rows = [
        f"2024-05-01 12:{k // 60:02d}:{k % 60:02d},0;" + ";".join(f"{x:.5f}".replace(".", ",") for x in (*y, *u))
        for k, (y, u) in enumerate(zip(measured, [*torques, [0.0]], strict=True))
    ]
    (tmp_path / "log.csv").write_text("\n".join(["time;x;y;u", *rows]))
    runs = read(tmp_path / "log.csv", horizon=2, initial_state_noise=0.0, disturbance_bound=0.1)
    predictor = rc.MultiStepPredictor(runs, rc.SquaredExponential(3.0), 50.0)
    limits = rc.Limits({"x": (-9.0, 9.0), "y": (-9.0, 9.0)})
    certificate = rc.certify(predictor, runs.histories[7], runs.inputs[7], limits)
    certificate.save(tmp_path / "plan.json", data_file=tmp_path / "log.csv")
    result = rc.verify(tmp_path / "plan.json", data=tmp_path / "log.csv")
    assert result.accepted, result.reason
    assert "consistency proved through all" in result.samples
