"""The leaderboard: what it says of a method is measured, and what is promised for certain held."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rkhs_control.cli import app as cli
from rkhs_control.cli import leaderboard
from rkhs_control.models import henon
from rkhs_control.scenarios.material import Work


@pytest.fixture(scope="module")
def entries():
    return leaderboard.run(Work(4), n_queries=12)


def of(entries, problem):
    return {entry.method: entry for entry in entries if entry.problem == problem}


def test_every_method_is_in_every_contest(entries):
    problems = {entry.problem for entry in entries}
    assert len(problems) == len(leaderboard.CONTESTS)
    for problem in problems:
        assert set(of(entries, problem)) == set(leaderboard.METHODS)


def test_bounds_that_hold_for_certain_held_everywhere(entries):
    for entry in entries:
        if entry.holds == leaderboard.CERTAIN:
            assert entry.contained == 1.0, entry


def test_only_the_gaussian_process_promises_no_more_than_a_probability(entries):
    assert {entry.method for entry in entries if entry.holds == leaderboard.PROBABLE} == {"Gaussian process"}


def test_optimal_is_the_narrowest_of_those_that_assume_no_more(entries):
    for problem in {entry.problem for entry in entries}:
        rows = of(entries, problem)
        for entry in rows.values():
            assert entry.times_optimal == pytest.approx(entry.mean_width / rows["optimal"].mean_width)
            if entry.holds == leaderboard.CERTAIN:
                assert entry.mean_width >= rows["optimal"].mean_width * (1 - 1e-6)
        assert rows["Lipschitz, slope known"].mean_width <= rows["Lipschitz"].mean_width


def test_narrowest_comes_first(entries):
    for problem in {entry.problem for entry in entries}:
        widths = [entry.mean_width for entry in entries if entry.problem == problem]
        assert widths == sorted(widths)


def test_a_truth_outside_is_counted():
    contest = leaderboard.henon_contest(gridded=True, n_queries=4)
    elsewhere = contest.truth.copy()
    elsewhere[0] += 1e6
    assert {entry.contained for entry in leaderboard._compete(replace(contest, truth=elsewhere))} == {0.75}


def test_largest_slope_is_found(rng):
    scales = np.array([1.0, 10.0])
    found = leaderboard.largest_slope(lambda X: 3.0 * X[:, 0] + 0.4 * X[:, 1], rng.normal(size=(5, 2)), scales)
    assert found == pytest.approx(5.0)
    contest = leaderboard.henon_contest(gridded=False, n_queries=4)
    sampled = leaderboard.largest_slope(henon.truth, henon.grid(101), contest.scales)
    assert 1.05 * sampled < contest.steepest < 1.15 * sampled


def test_command_prints_and_keeps_every_entry(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = {"Example 1, grid": leaderboard.CONTESTS["Example 1, grid"]}
    monkeypatch.setattr(leaderboard, "CONTESTS", one)
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "leaderboard", "--queries", "3", "--json", "kept.json", "--out", "drawn"])
    assert ended.value.code == 0
    rows = json.loads((tmp_path / "kept.json").read_text())
    assert {row["method"] for row in rows} == set(leaderboard.METHODS)
    assert {file.name for file in (tmp_path / "drawn").iterdir()} == {"leaderboard.png", "leaderboard.svg"}
    assert "Example 1, grid: 8 of 8" in capsys.readouterr().out
