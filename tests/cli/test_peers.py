"""`bench peers`: the table has a row per method and says where a column does not apply."""

import io

import pytest
from rich.console import Console

from rkhs_control.cli import app as cli
from rkhs_control.cli.peers import (
    better_table,
    is_ours,
    least_width,
    neighbours_table,
    peers_figure,
    peers_tables,
    share_text,
)
from rkhs_control.peers import base
from rkhs_control.peers.contest import Score

JUDGED = {"n_plans": 4, "coverage": 0.99999, "box_coverage": 0.99, "plan_coverage": 0.9, "half_widths": (0.01, 0.02)}
COUNTED = {"n_certified": 3, "n_refuted": 0, "n_wrong": 1, "milliseconds": 2.5, "n_violating": 7, "n_loop_states": 80}
SCORES = [
    vars(Score("ours, optimal bounds", "a norm", "certainty", "proofs", **JUDGED, **COUNTED)),
    vars(Score("a controller", "a model", "nothing", "speed", milliseconds=9.0, n_violating=0, n_loop_states=80)),
]


def printed(*things, width=200):
    screen = Console(width=width, record=True, file=io.StringIO())
    for thing in things:
        screen.print(thing)
    return screen.export_text()


@pytest.mark.parametrize("width", [80, 120, 200, None])
def test_no_column_is_cut_off(width):
    long = {**SCORES[0], "n_loop_states": 2_000_000, "milliseconds": 50_672.0, "n_certified": 1_386, "n_plans": 12_500}
    tables = peers_tables([long, *SCORES], width)
    text = printed(*tables, width=max(map(least_width, tables)) if width is None else width)
    assert len(tables) == (2 if width in (80, 120) else 1)
    for part in ("promises", "coverage", "half-width", "decided", "wrong", "ms", "violations", "2,000,000", "12,500"):
        assert part in text.split()


def test_table_has_promise_beside_coverage_and_dashes_where_nothing_applies():
    text = printed(*peers_tables(SCORES, 200))
    for part in ("certainty", "99.99 %", "0.0100", "3 safe", "of 80", "4 plans"):
        assert part in text
    row = next(line for line in text.splitlines() if line.strip().startswith("a controller"))
    assert row.count(" - ") + row.count(" -") >= 4
    assert "proofs" in printed(better_table(SCORES))


def test_a_share_is_never_rounded_up_to_all():
    assert share_text(1.0) == "100 %"
    assert share_text(1.0 - 1e-9) == "99.99 %"
    assert share_text(0.889) == "88.90 %"


def test_figure_shows_methods_with_boxes_only():
    widths, shares = peers_figure(SCORES).axes
    assert [label.get_text() for label in widths.get_yticklabels()] == ["ours, optimal bounds (4 plans)"]
    assert "1 wrong verdicts" in shares.texts[0].get_text()


def test_only_rows_of_this_package_decide_the_exit_code():
    assert [is_ours(score) for score in SCORES] == [True, False]


def test_command_without_the_extra_ends_with_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "EXTRA_MODULES", ("no_such_module_of_ours",))
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "peers"])
    assert ended.value.code == 1
    assert "pip install rkhs_control[peers]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_published_settings_show_half_widths_step_by_step():
    row = {"setting": "KPC", "method": "ours", "n_samples": "300", "coverage": 1.0, "milliseconds": 2.0}
    text = printed(neighbours_table([{**row, "half_widths": ((0.1, 0.2), (0.3, 0.4))}]))
    assert "0.1000  0.2000" in text
    assert "0.3000  0.4000" in text
