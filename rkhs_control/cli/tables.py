"""What the command line shows: progress bars, tables, closing lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from ..reporting.text import printable
from ..scenarios.studies.kind import seconds_text

if TYPE_CHECKING:
    from ..scenarios.paper.result import PaperResult
    from ..scenarios.run import StudyResult
    from ..scenarios.studies.kind import Listing

_COMPACT: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
_COLOURS = {"CERTIFIED": "green", "UNDECIDED": "yellow", "REFUTED": "red"}


@contextmanager
def progress_bars(console: Console) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Yields `announce(stage)`, which adds a bar and returns a callback for `(done, total)`.

    Without a terminal, it prints a line for every quarter of a stage.
    """
    if not console.is_terminal:
        yield lambda stage: _lines(console, stage)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:

        def announce(stage: str) -> Callable[[int, int], None]:
            task = progress.add_task(stage, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield announce


def _lines(console: Console, stage: str) -> Callable[[int, int], None]:
    quarters = [0]

    def report(done: int, total: int) -> None:
        if 4 * done // total > quarters[0]:
            quarters[0] = 4 * done // total
            console.print(f"{stage}: {done} of {total}", highlight=False)

    return report


def listing_table(listing: Listing) -> Table:
    """A study's listing, with coloured verdicts."""
    table = Table(title=_text(listing.title), caption=_text(listing.caption) or None, **_COMPACT)
    for number, header in enumerate(listing.header):
        table.add_column(
            _text(header),
            no_wrap=number in listing.whole,
            justify="right" if listing.is_numeric and number else "left",
            overflow="ellipsis" if number else "fold",
        )
    for group in listing.groups:
        for row in group:
            table.add_row(*(_text(cell) if isinstance(cell, str) else _verdict(cell.name) for cell in row))
        table.add_section()
    return table


def study_remarks(result: StudyResult) -> Iterator[str]:
    """Further remarks, one line each."""
    for remark in result.remarks():
        yield f"[yellow]{_text(remark)}[/yellow]" if remark == result.material.doubt else _text(remark)
    if result.is_contradicted:
        yield "[red]a true state is outside its box or a verdict is wrong: an assumption does not hold[/red]"


def paper_table(result: PaperResult) -> Table:
    """The paper's numbers beside ours, with a line on every difference."""
    table = Table("", "printed", "ours", "", "", title=escape(result.title), box=box.SIMPLE_HEAD)
    for row in result.rows:
        table.add_row(
            escape(row.what),
            "" if row.printed is None else f"{row.printed:.2f}",
            f"{row.ours:.2f}",
            "[green]ok[/green]" if row.agrees else "[red]differs[/red]",
            escape(row.remark),
        )
    return table


def bench_table(measurements: list[dict[str, Any]]) -> Table:
    """One row per problem and method."""
    table = Table(
        "problem",
        "samples",
        "method",
        "per bound",
        "times\nfaster",
        "gap",
        "width",
        "memory",
        caption="per bound: the quickest of several calls, unless one takes 0.3 s; times faster: than the faster conic "
        "programme; gap: largest relative gap; --json saves more",
        **_COMPACT,
    )
    for column in (table.columns[1], *table.columns[3:]):
        column.no_wrap = True
    previous = None
    for m in measurements:
        if previous not in (None, m["problem"]):
            table.add_section()
        previous = m["problem"]
        table.add_row(
            m["problem"],
            f"{m['n_samples']:,}",
            m["method"],
            seconds_text(m["bound_s"]),
            "" if m["conic_ratio"] is None else f"{m['conic_ratio']:,.{0 if m['conic_ratio'] >= 10 else 2}f}",
            "" if m["largest_relative_gap"] is None else f"{m['largest_relative_gap']:.0e}",
            f"{m['mean_width']:.4g}",
            "" if m["peak_memory_mb"] is None else f"{m['peak_memory_mb']:.0f} MB",
        )
    return table


def scale_table(points: list[dict[str, Any]], slopes: list[dict[str, Any]]) -> Table:
    """A row per measurement; the last of an axis has the slopes."""
    table = Table(
        "against",
        "",
        "set-up",
        "per bound",
        "floor",
        "active",
        "gap",
        "memory",
        caption="floor: a kernel row and the closed form on the active set; gap: the largest, relative; slope: the "
        "exponent of the power law that fits best",
        **_COMPACT,
    )
    for fit in slopes:
        for p in [p for p in points if p["axis"] == fit["axis"]]:
            table.add_row(
                p["axis"],
                f"{p['value']:,.0f}",
                seconds_text(p["setup_s"]),
                seconds_text(p["bound_s"]),
                seconds_text(p["floor_s"]),
                f"{p['mean_active']:.0f}",
                f"{p['largest_relative_gap']:.0e}",
                f"{p['peak_memory_mb']:.0f} MB",
            )
        table.add_row("", "slope", "", f"{fit['bound']:.2f}", f"{fit['floor']:.2f}", end_section=True)
    return table


def plans_table(rows: list[dict[str, Any]]) -> Table:
    """Times to certify plans, one row per method."""
    table = Table("method", "samples", "one plan", "per bound", "plans per second", "faster than conic, per bound")
    for row in rows:
        table.add_row(
            row["method"],
            f"{row['n_samples']:,}",
            "" if row["plan_s"] is None else seconds_text(row["plan_s"]),
            seconds_text(row["bound_s"]),
            "" if row["plans_per_second"] is None else f"{row['plans_per_second']:.0f}",
            f"{row['conic_ratio']:,.0f} x",
        )
    return table


def leaderboard_table(entries: list[dict[str, Any]]) -> Table:
    """One row per contest and method, narrowest first."""
    table = Table(
        "contest",
        "method",
        "width",
        "x optimal",
        "truth in",
        "per bound",
        "holds",
        caption="width: mean width of the bounds; truth in: share of the queries; holds: condition beyond what all "
        "methods assume, a noise and a norm bound",
        **_COMPACT,
    )
    for column in table.columns[2:6]:
        column.justify, column.no_wrap = "right", True
    previous = None
    for entry in entries:
        if previous not in (None, entry["problem"]):
            table.add_section()
        is_first, previous = previous != entry["problem"], entry["problem"]
        table.add_row(
            entry["problem"] if is_first else "",
            entry["method"],
            f"{entry['mean_width']:.4g}",
            f"{entry['times_optimal']:.3g}",
            f"{entry['contained']:.1%}",
            seconds_text(entry["bound_s"]),
            entry["holds"],
        )
    return table


def soundness_table(total: dict[str, Any]) -> Table:
    """The results of a campaign against the bounds."""
    table = Table(
        "problems",
        Column("bounds", no_wrap=True),
        Column("of those close", min_width=8),
        "escapes",
        "false refusals",
        "other errors",
        "tightest miss",
        "seconds",
        caption="close: a truth comes within a relative 1e-9 of the bound; tightest miss: the closest that any "
        "truth came, negative if it escaped; seconds: of work, summed over all processes",
        **_COMPACT,
    )
    table.add_row(
        *(f"{total[name]:,}" for name in ("problems", "bounds", "close", "escapes", "false_refusals", "other_errors")),
        f"{total['tightest']:.1e}",
        f"{total['seconds']:,.0f}",
    )
    return table


def soundness_remarks(total: dict[str, Any], seed: int, norm_factor: float) -> Iterator[str]:
    """The first escapes, refusals and errors, and how to run them again."""
    for found in total["described"]:
        again = f"--seed {seed} --case {found['case']}" + (
            "" if norm_factor == 1.0 else f" --norm-factor {norm_factor!r}"
        )
        said = (
            f"{found['what']}, {found['side']} bound {found['bound']!r}, missed by {-found['miss']:.1e} of it"
            if found["kind"] == "escape"
            else f"{found['error']}: {found['message']}"
        )
        yield _text(f"{found['kind']}, {found['method']}: {said}; rerun: rkhs-control bench soundness {again}")
    if norm_factor < 1.0:
        yield f"norm bounds were multiplied by {norm_factor!r}: truths must escape, and refusals are right"
    if total["undecided"]:
        yield f"bounds practically equal to a truth, on either side: {total['undecided']:,}"
    if total["infinite"]:
        yield f"infinite bounds, which say nothing: {total['infinite']:,}"


def _text(given: str) -> str:
    """A user's text, without anything that would control the terminal."""
    return escape(printable(given))


def _verdict(name: str) -> str:
    return f"[{_COLOURS[name]}]{name}[/{_COLOURS[name]}]"
