"""`rkhs-control bench peers`: other methods on the same recordings and questions, in one table and one figure."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from .options import ALL_CORES, Cluster, Jobs, workers

_SENTENCES = ("assumes", "promises")
_COLUMNS = (*_SENTENCES, "coverage", "half-width", "decided", "wrong", "ms", "violations")
_NOTES = (
    "coverage: share of the intervals, one per state and step, that hold the true value; a promise about measurements "
    "counts as kept if the true value is inside",
    "half-width: mean over all plans and steps, by state (c_A, c_B)",
    "decided: each plan has limits within 0.05 mol/l of what the true plant reaches, and about half violate theirs. "
    "Safe: all boxes inside the limits; unsafe: some interval wholly outside; wrong: the plant does the opposite",
    "ms: of one processor, for a plan asked alone or a decision of a controller; the median",
    "violations: true states outside the limits (c_A up to 2.2 mol/l) in closed loop, under a controller that wants "
    "more. At every step it plans from the true state; a plan that the method calls safe is followed, else the last "
    "one that was, and after its end an input is held that settles inside. Controllers of their own have the same wish",
)


def bench_peers(
    context: typer.Context,
    plans: Annotated[int, typer.Option("--plans", min=1, help="To judge; eight true states each.")] = 1250,
    conic: Annotated[int, typer.Option("--conic", min=1, help="By the conic programme; minutes each.")] = 1,
    loops: Annotated[int, typer.Option("--loops", min=1, help="Closed loops per method.")] = 50,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Of each loop.")] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 1,
    jobs: Jobs = ALL_CORES,
    cluster: Cluster = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the figure; results/peers by default.", file_okay=False),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep the numbers in this file.", dir_okay=False)
    ] = None,
) -> None:
    """Other methods on the reactor's recordings and questions: what each promises beside what it does.

    Gaussian processes (scikit-learn), conformal prediction (MAPIE), Lipschitz set membership, the conic programme,
    multi-stage MPC (do-mpc) and direct data-driven MPC, all installed by the package's extra "peers". Exit code 1 if
    a verdict of ours is wrong.
    """
    from ..peers import neighbours
    from ..peers.bench import Size, run
    from ..reporting.figures import save_figure
    from ..scenarios.material import Work
    from ..scenarios.results import ResultFolder
    from .show import require_writable
    from .tables import progress_bars

    require_writable(json_file)
    folder = ResultFolder.of("peers", out).folder
    screen = Console()
    began = time.perf_counter()
    with workers(jobs, cluster, context) as n_jobs, progress_bars(screen) as announce:
        work = Work(seed, n_jobs, announce)
        scores = [asdict(score) for score in run(work, Size(plans, min(conic, plans), loops, steps))]
        published = [asdict(row) for row in neighbours.run(work)]
    seconds = time.perf_counter() - began
    for table in peers_tables(scores, screen.width if screen.is_terminal else None):
        Console(width=max(screen.width, least_width(table))).print(table)
    for note in _NOTES:
        screen.print(note, highlight=False, soft_wrap=True)
    screen.print(better_table(scores))
    screen.print(neighbours_table(published))
    for setting in dict.fromkeys(row["setting"] for row in published):
        screen.print(f"printed, {setting}: {neighbours.PRINTED[setting]}", highlight=False, soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(peers_figure(scores), folder, "peers")
    screen.print(f"took {seconds:.0f} s; the figure is in {folder}")
    if json_file is not None:
        kept = {"seed": seed, "seconds": seconds, "timings": work.timings, "scores": scores, "published": published}
        json_file.write_text(json.dumps(kept, indent=2) + "\n")
        screen.print(f"kept in {json_file}")
    raise typer.Exit(1 if any(score["n_wrong"] for score in scores if is_ours(score)) else 0)


def is_ours(score: dict[str, Any]) -> bool:
    """Whether a row is about this package."""
    return str(score["name"]).startswith("ours")


def peers_tables(scores: list[dict[str, Any]], width: int | None) -> list[Table]:
    """A row per method, a dash where a column does not apply; in two tables where one would be wider than `width`."""
    whole = _table(scores, _COLUMNS)
    if width is None or least_width(whole) <= width:
        return [whole]
    return [_table(scores, part) for part in (_COLUMNS[:3], _COLUMNS[3:])]


def least_width(table: Table) -> int:
    """Below this, columns would be cut off."""
    return Console(width=1000).measure(table).minimum


def _table(scores: list[dict[str, Any]], names: Sequence[str]) -> Table:
    rows = [_cells(score) for score in scores]
    columns = [Column("method", min_width=18)]
    for name in names:
        if name in _SENTENCES:
            columns.append(Column(name, min_width=18))
        else:
            longest = max(len(line) for row in rows for line in [name, *row[name].split("\n")])
            columns.append(Column(name, justify="right", no_wrap=True, min_width=longest))
    title = "The reactor: the same recordings and the same questions"
    table = Table(*columns, title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for score, row in zip(scores, rows, strict=True):
        table.add_row(escape(score["name"]), *(row[name] for name in names))
    return table


def _cells(score: dict[str, Any]) -> dict[str, str]:
    none = "-"
    judged, widths = score["coverage"] is not None, score["half_widths"] or ()
    looped = score["n_violating"] is not None
    failed = f"\n{score['n_failed']} failed" if score["n_failed"] else ""
    cells = [
        escape(score["assumes"]),
        escape(score["promises"]),
        share_text(score["coverage"]) + f"\n{score['n_plans']:,} plans" if judged else none,
        "\n".join(f"{width:.4f}" for width in widths) if judged else none,
        f"{score['n_certified']:,} safe\n{score['n_refuted']:,} unsafe" if judged else none,
        f"{score['n_wrong']:,}" if judged else none,
        none
        if score["milliseconds"] is None
        else f"{score['milliseconds']:,.{1 if score['milliseconds'] < 100 else 0}f}",
        f"{score['n_violating']:,}\nof {score['n_loop_states']:,}{failed}" if looped else none,
    ]
    return dict(zip(_COLUMNS, cells, strict=True))


def share_text(share: float) -> str:
    """In per cent, never rounded up to all of it."""
    return "100 %" if share == 1.0 else f"{min(100.0 * share, 99.99):.2f} %"


def better_table(scores: list[dict[str, Any]]) -> Table:
    """Where each method is the better choice."""
    table = Table("method", "is better at", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for score in scores:
        table.add_row(escape(score["name"]), escape(score["better_at"]))
    return table


def neighbours_table(rows: list[dict[str, Any]]) -> Table:
    """A row per method and published setting; half-widths by step, the states of a step beside each other."""
    table = Table(
        "setting",
        "method",
        Column("samples", no_wrap=True),
        Column("coverage", justify="right", no_wrap=True),
        Column("half-width by step", no_wrap=True),
        Column("ms", justify="right", no_wrap=True),
        title="The settings of two published neighbours",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for row in rows:
        steps = ("  ".join(f"{width:.4f}" for width in step) for step in row["half_widths"])
        cells = row["setting"], row["method"], row["n_samples"], share_text(row["coverage"]), "\n".join(steps)
        table.add_row(*(escape(cell) for cell in cells), f"{row['milliseconds']:,.1f}")
    return table


def peers_figure(scores: list[dict[str, Any]]) -> Any:
    """Half-widths and coverage side by side, a bar per method that has boxes."""
    from ..reporting.figures import panels_of
    from ..reporting.palette import BLUE, LIGHT_GREY, ORANGE, RED

    rows = [score for score in scores if score["coverage"] is not None][::-1]
    places = range(len(rows))
    figure, axes = panels_of(1, 2, width=6.0, height=0.42 * len(rows) + 0.8, sharey=True)
    widths, shares = axes[0]
    for i, (name, colour) in enumerate((("c_A", BLUE), ("c_B", ORANGE))):
        ends = [place + 0.18 - 0.36 * i for place in places]
        widths.barh(ends, [score["half_widths"][i] for score in rows], height=0.34, color=colour, label=name)
    widths.set_yticks(places, [f"{score['name']} ({score['n_plans']:,} plans)" for score in rows])
    widths.set_xlabel("mean half-width, mol/l")
    widths.legend()
    missed = [100.0 * (1.0 - score["coverage"]) for score in rows]
    shares.barh(places, missed, color=[BLUE if is_ours(score) else LIGHT_GREY for score in rows], height=0.6)
    for place, score in zip(places, rows, strict=True):
        wrong = f", {score['n_wrong']} wrong verdicts" if score["n_wrong"] else ""
        text = f"{share_text(score['coverage'])} inside{wrong}"
        shares.annotate(
            text,
            (100.0 * (1.0 - score["coverage"]), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            color=RED if wrong else "black",
        )
    shares.set_xlim(0.0, 1.6 * max([*missed, 1.0]))
    shares.set_xlabel("true values outside their intervals, %")
    return figure
