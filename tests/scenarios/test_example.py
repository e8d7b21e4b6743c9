"""What `rkhs-control example` writes: every kind of it runs as it is, and ends with a verdict."""

import subprocess
import sys

import pytest
from own_data import certify

from rkhs_control.scenarios.example import KINDS, next_command, write_example


def test_every_kind_can_be_asked_for_and_says_what_is_next(run, tmp_path):
    for kind in KINDS:
        folder = tmp_path / kind
        code, text = run("example", str(folder), "--kind", kind)
        assert code == 0, text
        assert next_command(folder, kind) in text
        assert sorted(file.name for file in folder.iterdir()) == sorted(KINDS[kind][0])
    code, text = run("example", str(tmp_path / "other"), "--kind", "parquet")
    assert code == 1
    assert "'parquet' is not one of" in text


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "csv"])
def test_nothing_is_overwritten(run, tmp_path, kind):
    (tmp_path / KINDS[kind][0][1]).write_text("mine")
    code, text = run("example", str(tmp_path), "--kind", kind)
    assert code == 1
    assert "already exists" in text
    assert [file.name for file in tmp_path.iterdir()] == [KINDS[kind][0][1]]


def test_a_long_recording_goes_from_a_dated_log_to_a_certified_plan(run, tmp_path):
    """With two of the choices made beforehand: comparing all of them takes longer."""
    write_example(tmp_path / "mine", kind="long-recording")
    chosen = ("--set", "predictor.prior=affine", "--set", "predictor.arguments=measured")
    code, text = certify(run, tmp_path / "mine", *chosen, "--set", "predictor.kernel=matern52")
    assert code == 0, text
    assert "CERTIFIED" in text
    assert "held-out windows do not contradict the assumptions" in text
    certificate = tmp_path / "results" / "mine" / "certificates" / "plan_1.json"
    code, text = run("verify", str(certificate), "--data", str(tmp_path / "mine" / "log.csv"), "--quiet")
    assert code == 0, text


def test_the_script_with_do_mpc_certifies_a_plan_and_filters_a_loop(tmp_path):
    write_example(tmp_path, kind="do-mpc")
    ran = subprocess.run([sys.executable, tmp_path / "loop.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr
    assert "plan from [2.0, 1.0]: CERTIFIED" in ran.stdout
    assert "plan from [1.3, 1.0]: UNDECIDED" in ran.stdout
    assert "do-mpc alone: 16 of 40 steps outside the limits" in ran.stdout
    assert "do-mpc filtered: 0 of 40 steps outside the limits" in ran.stdout


def test_every_study_in_the_list_says_how_long_it_takes(run):
    from rkhs_control.cli.first import rough_time
    from rkhs_control.scenarios.paper import RUN_SECONDS, STUDIES
    from rkhs_control.scenarios.schema import builtin_scenarios, load_scenario

    assert RUN_SECONDS.keys() == STUDIES.keys()
    assert all(load_scenario(name)[0].run_seconds for name in builtin_scenarios())
    assert [rough_time(seconds) for seconds in (4.0, 18.0, 61.0, 120.0, 820.0, None)] == [
        "10 s",
        "20 s",
        "60 s",
        "2 min",
        "14 min",
        "",
    ]
    assert "20 s" in run("list")[1]
