"""`rkhs-control doctor`, and what `certify` says of data before it begins."""

import numpy as np
import pytest

SCENARIO = """\
title = "a heater"
[data]
file = "log.csv"
states = ["T"]
inputs = ["Q"]
noise_bound = 0.05
horizon = 2
[limits]
states = { T = [0.0, 90.0] }
[predictor]
norm_bound = 500.0
selection_runs = 20
compare_closed_form = false
"""


@pytest.fixture
def plant(tmp_path):
    """A log of a heater as a German logger writes it, a scenario and a plan."""
    rng = np.random.default_rng(2)
    temperature, rows = 30.0, ["Probe;T;Q"]
    for k in range(60):
        heat = rng.uniform(20.0, 60.0)
        measured = temperature + rng.uniform(-0.04, 0.04)
        rows.append(f"{k};{measured:.4f};{heat:.4f}".replace(".", ","))
        temperature += 0.3 * (20.0 + 0.5 * heat - temperature)
    (tmp_path / "log.csv").write_text("\n".join(rows))
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "plan.csv").write_text("step,T,Q\n0,38.0,40.0\n1,,45.0\n")
    (tmp_path / "kelvin.csv").write_text("step,T,Q\n0,311.15,40.0\n1,,0.45\n")
    return tmp_path


def test_the_doctor_is_content_with_a_good_log(run, plant):
    code, text = run("doctor", "scenario.toml", "--plan", "plan.csv")
    assert code == 0
    assert "0 problems, 0 warnings, 1 note" in text
    assert "note: log.csv: without a column 'time' or 'step' the rows count as one run" in text
    assert "RowOrderWarning" not in text


def test_the_doctor_names_problems_with_exit_code_one(run, plant):
    code, text = run("doctor", "scenario.toml", "--plan", "kelvin.csv")
    assert code == 1
    assert "problem: T = 311.15 is outside the recorded" in text
    assert ": kelvin? " in text
    assert ": a fraction? " in text
    assert "2 problems, 0 warnings, 1 note" in text


def test_the_doctor_reads_the_plan_that_a_scenario_names(run, plant):
    (plant / "scenario.toml").write_text('plan = "kelvin.csv"\n' + SCENARIO)
    assert run("doctor", "scenario.toml")[0] == 1
    assert run("doctor", "scenario.toml", "--plan", "plan.csv")[0] == 0
    assert run("doctor", "scenario.toml", "--plan", "plan.csv", "--set", "data.noise_bound=9.0")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["nothing.toml"], "there is no scenario 'nothing.toml'"),
        (["cstr"], "the scenario simulates its plant: there are no recordings to look at"),
        (["scenario.toml", "--plan", "nothing.csv"], "there is no file nothing.csv"),
        (["scenario.toml", "--set", "data.file=nothing.csv"], "there is no file nothing.csv"),
        (["scenario.toml", "--set", "data.horizon"], "--set takes key=value"),
    ],
)
def test_wrong_arguments_of_the_doctor_are_one_line(run, plant, arguments, message):
    code, text = run("doctor", *arguments)
    assert code == 1
    [error] = [line for line in text.splitlines() if line.startswith("error: ")]
    assert message in error
    assert "Traceback" not in text


def test_exit_codes_of_the_doctor_are_in_its_help(run):
    code, text = run("doctor", "--help")
    assert code == 0
    assert "Exit code 0 if there are no problems, with or without warnings; 1 if there are" in " ".join(text.split())


def test_certify_says_what_is_doubtful_first_and_keeps_its_exit_codes(run, plant):
    code, text = run("certify", "scenario.toml", "--plan", "kelvin.csv")
    assert code == 2
    assert text.count("problem: ") == 2
    assert ": kelvin? " in text
    assert "windows begin with T alone" not in text  # a note
    code, text = run("certify", "scenario.toml", "--plan", "plan.csv")
    assert code in (0, 2)
    assert "problem: " not in text
    assert "warning: " not in text
