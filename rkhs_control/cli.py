"""The command line: `rkhs-control --help`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from . import __version__
from .errors import RkhsControlError

app = typer.Typer(
    help="Guaranteed bounds on an unknown plant from recorded data.",
    epilog="Start with `rkhs-control list`, then `rkhs-control run tables`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Measure speed against named alternatives, all in one run.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

STUDIES = {"tables": "Tables I and II of the paper: widths of the optimal bounds, ours beside the printed ones"}

ALL_CORES = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to spread the bounds over.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Keep the numbers in this file.", dir_okay=False)]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("list")
def list_studies() -> None:
    """List the studies that `rkhs-control run` knows."""
    table = Table("name", "what it does", title="Studies")
    for name, description in STUDIES.items():
        table.add_row(name, description)
    Console().print(table)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="One of those that `rkhs-control list` names.")],
    jobs: Jobs = ALL_CORES,
    json_file: JsonFile = None,
) -> None:
    """Run a study and print its table; exit code 1 if it does not come out as it should."""
    if study not in STUDIES:
        raise typer.BadParameter(f"there is no study {study!r}; there is: {', '.join(STUDIES)}")
    _require_folder(json_file)
    raise typer.Exit(_tables(jobs, json_file))


@bench_app.command("envelope")
def bench_envelope(json_file: JsonFile = None) -> None:
    """Time a bound by the path, the conic programmes, the alternating method and the closed form.

    Takes a few minutes, nearly all of them in the conic solver at 800 samples.
    """
    from . import bench

    _require_folder(json_file)
    console = Console()
    with console.status("") as status:
        result = bench.run(lambda message: status.update(f"measuring: {message}"))
    console.print(_bench_table(result["measurements"]))
    _keep(result, json_file, console)


def main() -> None:
    """Entry point: what the package refuses is one line, not a traceback."""
    try:
        app()
    except RkhsControlError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        raise SystemExit(1) from None


def _tables(jobs: int, json_file: Path | None) -> int:
    from dataclasses import asdict

    from .scenarios import tables

    console = Console()
    table = Table("noise", "design", "norm bound", "noise bound", "printed", "ours", "gap", "", title="Rows `opt`")
    kept = []
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("cells", total=36)
        for cell in tables.cells(jobs):
            kept.append(cell)
            table.add_row(
                f"{cell.noise:g}",
                cell.design,
                f"{cell.norm_bound:g}",
                f"{cell.noise_bound:g}",
                f"{cell.printed:.2f}",
                f"{cell.width:.2f}",
                f"{cell.largest_relative_gap:.0e}",
                "[green]ok[/green]" if cell.agrees else "[red]differs[/red]",
            )
            progress.advance(task)
    console.print(table)
    agreeing = sum(cell.agrees for cell in kept)
    console.print(
        f"{agreeing} of {len(kept)} cells lie between 97 % of the printed width and 0.01 above it. "
        "Ours are the smaller: the printed ones come from a kernel matrix with 1e-5 on its diagonal."
    )
    _keep([asdict(cell) for cell in kept], json_file, console)
    return 0 if agreeing == len(kept) else 1


def _bench_table(measurements: list[dict[str, Any]]) -> Table:
    table = Table(
        "problem",
        "samples",
        "method",
        "set-up",
        "a bound",
        "faster than conic",
        "largest gap",
        "active",
        "width",
        "memory",
    )
    previous = None
    for m in measurements:
        if previous not in (None, m["problem"]):
            table.add_section()
        previous = m["problem"]
        table.add_row(
            m["problem"],
            f"{m['n_samples']:,}",
            m["method"],
            _seconds(m["setup_s"]),
            _seconds(m["bound_s"]),
            "" if m["conic_ratio"] is None else f"{m['conic_ratio']:,.{0 if m['conic_ratio'] >= 10 else 2}f} x",
            "" if m["largest_relative_gap"] is None else f"{m['largest_relative_gap']:.0e}",
            "" if m["mean_active"] is None else f"{m['mean_active']:.0f}",
            f"{m['mean_width']:.4g}",
            "" if m["peak_memory_mb"] is None else f"{m['peak_memory_mb']:.0f} MB",
        )
    return table


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{1e3 * value:.2f} ms"


def _require_folder(file: Path | None) -> None:
    """Refuse before a long run what could not be written after it."""
    if file is not None and not file.resolve().parent.is_dir():
        raise typer.BadParameter(f"the folder of {file} does not exist", param_hint="--json")


def _keep(content: Any, file: Path | None, console: Console) -> None:
    if file is not None:
        file.write_text(json.dumps(content, indent=2) + "\n")
        console.print(f"kept in {file}")
