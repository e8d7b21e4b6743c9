"""The command line as a newcomer meets it."""

import json

import pytest
from typer.testing import CliRunner

from rkhs_control import bench, cli
from rkhs_control.models import henon
from rkhs_control.scenarios import tables

run = CliRunner().invoke


def test_help_teaches_what_there_is():
    assert "rkhs-control run tables" in run(cli.app, ["--help"]).output
    assert "tables" in run(cli.app, ["list"]).output
    assert run(cli.app, ["--version"]).output.strip()


def test_unknown_study_is_named_with_those_there_are():
    result = run(cli.app, ["run", "nonsense"])
    assert result.exit_code == 2
    assert "there is no study 'nonsense'; there is: tables" in result.output


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    result = run(cli.app, ["bench", "envelope", "--json", str(tmp_path / "missing" / "out.json")])
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_tables_command_prints_and_keeps_every_cell(tmp_path, monkeypatch):
    """On a coarser grid of queries than the paper's, and only one noise level, to be quick."""
    full = tables.cells
    monkeypatch.setattr(tables, "cells", lambda jobs: full(jobs, n_per_axis=6))
    monkeypatch.setattr(tables, "PRINTED", {1.0: {"grid": tables.PRINTED[1.0]["grid"]}})
    result = run(cli.app, ["run", "tables", "--jobs", "1", "--json", str(tmp_path / "cells.json")])
    cells = json.loads((tmp_path / "cells.json").read_text())
    assert len(cells) == 9
    assert "of 9 cells" in result.output
    assert all(cell["largest_relative_gap"] < 1e-6 for cell in cells)
    widths = [cell["width"] for cell in cells]
    assert widths == sorted(widths[:3]) + sorted(widths[3:6]) + sorted(widths[6:])


@pytest.mark.parametrize("design", ["grid", "random"])
def test_first_cell_of_each_design_is_the_published_one(design, monkeypatch):
    """At the paper's own grid of queries."""
    monkeypatch.setattr(tables, "PRINTED", {1.0: {design: tables.PRINTED[1.0][design]}})
    cell = next(tables.cells(n_jobs=1))
    assert cell.agrees, cell


def test_table_data_are_within_their_noise():
    for noise in (1.0, 5.0):
        for Z, y in henon.table_data(noise).values():
            assert len(Z) == 100
            assert abs(y - henon.truth(Z)).max() <= noise + 1e-12


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
    assert cli._bench_table([vars(row) for row in rows]).row_count == len(rows)
