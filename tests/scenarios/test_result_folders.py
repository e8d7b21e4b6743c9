"""Where results go: two scenarios never overwrite each other's without a word."""

import shutil

import pytest
from own_data import certify

import rkhs_control as rc
from rkhs_control.scenarios.results import ResultFolder

QUICK = ("--set", "predictor.compare_closed_form=false", "--set", "predictor.lengthscales=[20]")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Scenario files in folders, with the working directory above them."""
    monkeypatch.chdir(tmp_path)
    for name in ("one/scenario.toml", "two/scenario.toml", "one/other.toml", "two/other.toml", "cstr.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def claimed(scenario, out=None):
    results = ResultFolder.of(scenario, out)
    results.folder.mkdir(parents=True, exist_ok=True)
    results.claim()
    return str(results.folder)


def test_results_are_named_after_the_file_or_its_folder(here, monkeypatch):
    assert claimed("cstr") == "results/cstr"
    assert claimed("henon") == "results/henon"
    assert claimed("one/scenario.toml") == "results/one"
    assert claimed("two/scenario.toml") == "results/two"
    assert claimed("one/other.toml") == "results/other"
    monkeypatch.chdir(here / "two")
    assert claimed("scenario.toml") == "results/two"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("one/other.toml", "two/other.toml"),
        ("cstr", "cstr.toml"),
        ("cstr.toml", "cstr"),
        ("other.toml", "one/other.toml"),
    ],
)
def test_results_of_another_scenario_are_not_replaced(here, first, second):
    (here / "other.toml").write_text("")
    folder = claimed(first)
    assert claimed(first) == folder
    with pytest.raises(rc.InputError, match=f"{folder} has the results of (the built-in )?{first}, .* --out"):
        ResultFolder.of(second)


def test_results_stay_a_scenarios_own_when_both_are_moved(here, monkeypatch):
    claimed("one/other.toml")
    shutil.copytree(here, here.parent / "moved")
    monkeypatch.chdir(here.parent / "moved")
    assert claimed("one/other.toml") == "results/other"


def test_a_folder_that_was_chosen_is_written_to_and_it_is_said_whose_results_go(run, mine, tmp_path):
    shutil.copytree(mine, tmp_path / "theirs")
    theirs = str(tmp_path / "theirs" / "scenario.toml")
    assert certify(run, mine, *QUICK, "--out", "kept")[0] == 0
    code, text = run("certify", theirs, "--plan", str(mine / "plan.csv"), "--jobs", "1", *QUICK, "--out", "kept")
    assert code == 0, text
    assert "kept had results of mine/scenario.toml; they were replaced by those of this run" in text
    assert "had results of" not in certify(run, mine, *QUICK)[1]
