"""The command line as a newcomer meets it."""

import json
from pathlib import Path

import pytest

from rkhs_control import __version__
from rkhs_control.cli import benchmarks as bench
from rkhs_control.cli import tables as console
from rkhs_control.scenarios.paper import tables
from rkhs_control.scenarios.schema import load_scenario


def test_help_teaches_what_there_is(run):
    code, text = run("--help")
    assert code == 0
    assert "rkhs-control run cstr" in text
    assert "0 certified, 2 undecided, 3 refuted, 1 error" in text
    code, text = run("list")
    assert all(name in text for name in ("cstr", "quadruple_tank", "cstr_design", "tables", "henon", "rto", "frontier"))
    assert run("--version") == (0, __version__ + "\n")
    for name in ("run", "certify", "example", "list", "bench"):
        code, text = run(name, "--help")
        assert code == 0
        assert len(text.splitlines()) > 4


def test_switches_are_shown_without_a_type_and_exit_codes_are_listed(run):
    code, text = run("--help")
    assert code == 0
    assert "--version" in text
    assert "<bool>" not in text
    for said in ("130 interrupted", "0 accepted, 1 rejected, 4 unreadable"):
        assert said in text


def test_shells_complete_commands_and_scenarios(run, monkeypatch):
    code, text = run("--show-completion", "bash")
    assert code == 0, text
    assert "COMPLETE" in text
    monkeypatch.setenv("_RKHS_CONTROL_COMPLETE", "complete_bash")
    for typed, offered in (("rkhs-control ver", ["verify"]), ("rkhs-control run quad", ["quadruple_tank"])):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        assert run()[1].split() == offered


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["run"], "Missing argument"),
        (["run", "cstr", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["run", "cstt"], "there is no scenario 'cstt' (did you mean 'cstr'?)"),
        (["run", "Tabels"], "(did you mean 'tables'?)"),
        (["run", "henon", "--set", "seed=2"], "it has no keys to set"),
        (["certify", "henon", "--plan", "plan.csv"], "henon is one of the paper's experiments"),
        (["run", "cstr", "--set", "seed"], "--set takes key=value"),
        (["run", "cstr", "--set", "limits.states.c_A=[3, 1]"], "the lower end must not exceed the upper; got [3, 1]"),
        (["run", "cstr_design", "--set", "design.sweep=1"], "design.sweep: must be a section with keys; got 1"),
        (["run", "cstr", "--set", "seed=-1"], "seed: input should be greater than or equal to 0; got -1"),
        (["run", "cstr", "--set", "predictor.lengthscale=[1]"], "(did you mean 'lengthscales'?)"),
        (["run", "cstr", "--set", "limits.states.c_C=[0, 1]"], "limits of states name 'c_C'"),
        (["certify", "cstr"], "Missing option"),
        (["bench", "envelope", "--json", "missing/out.json"], "the folder of missing/out.json does not exist"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_one(run, arguments, message, tmp_path):
    code, text = run(*arguments)
    assert code == 1
    assert message in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_commands_that_need_another_show_their_help_and_no_error(run):
    code, text = run("bench")
    assert code != 0
    assert "leaderboard" in text
    assert "error" not in text


def test_results_that_cannot_be_written_are_refused_before_the_work(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, text = run("run", "tables", "--out", "file/deeper")
    assert code == 1
    assert "results cannot be written to file/deeper" in text


def test_tables_command_prints_and_keeps_every_cell(run, tmp_path, monkeypatch):
    """On a coarser grid of queries than the paper's, and only one noise level and design, to be quick."""
    monkeypatch.setattr(tables, "QUERIES_PER_AXIS", 6)
    monkeypatch.setattr(tables, "PRINTED", {1.0: {"grid": tables.PRINTED[1.0]["grid"]}})
    code, text = run("run", "tables", "--jobs", "1", "--out", "kept")
    assert code == 1  # these are not the printed widths, and that is said
    assert "differs" in text
    assert "columns of the tables: 9 of 9" in text
    kept = json.loads((tmp_path / "kept" / "summary.json").read_text())
    assert len(kept["rows"]) == 27
    assert all(column["largest_relative_gap"] < 1e-6 for column in kept["columns"])
    for kind in tables.KINDS:
        widths = [column["ours"][kind] for column in kept["columns"]]
        assert widths == sorted(widths[:3]) + sorted(widths[3:6]) + sorted(widths[6:])
    assert (tmp_path / "kept" / "widths.png").exists()


@pytest.mark.parametrize(
    "problem",
    [bench.example_1(gridded=True, n_queries=4), bench.smooth_sequences(100, 4), bench.random_design(100, 4)],
    ids=lambda problem: problem.name,
)
def test_benchmark_measures_every_method_on_every_problem(problem):
    rows = list(bench._compare(problem, 1, lambda message: None))
    assert [row.method for row in rows] == list(bench._METHODS)
    by_method = {row.method: row for row in rows}
    assert by_method["path"].largest_relative_gap < 1e-6
    assert max(by_method[name].conic_ratio for name in by_method if name.startswith("conic")) == 1.0
    assert by_method["closed form"].mean_width > by_method["path"].mean_width
    assert console.bench_table([vars(row) for row in rows]).row_count == len(rows)


def test_certification_benchmark_measures_every_method(run, monkeypatch):
    """On a small scenario, to be quick."""
    small = {"plant.horizon": 2, "plant.exploration_runs": 40, "plant.runs": [6, 6]}
    monkeypatch.setattr(bench, "load_scenario", lambda name: load_scenario(name, small))
    code, text = run("bench", "certify", "--plans", "20", "--jobs", "1", "--json", "kept.json")
    assert code == 0, text
    rows = {row["method"]: row for row in json.loads(Path("kept.json").read_text())}
    assert list(rows) == ["conic dual (Clarabel)", "optimal", "closed form"]
    assert rows["optimal"]["conic_ratio"] > 1
    assert rows["optimal"]["plans_per_second"] > 1
