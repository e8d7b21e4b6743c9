"""`rkhs-control explore`: open the explorer among the results of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..errors import InputError


def explore(
    results: Annotated[Path, typer.Argument(help="A folder that `run` or `certify` wrote, as results/cstr.")],
    is_opened: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in the browser, or only print where it is.")
    ] = True,
) -> None:
    """Open the explorer of some results: move limits and see verdicts change, step through time, switch plans.

    It is the file explorer.html beside the report, and needs no network.
    """
    import webbrowser

    file = explorer_in(results)
    Console().print(str(file), highlight=False, soft_wrap=True)
    if is_opened and not webbrowser.open(file.resolve().as_uri()):
        Console().print("no browser was found: open this file in one", highlight=False)


def explorer_in(results: Path) -> Path:
    """The file; refused, with what to do, where there is none."""
    from ..scenarios.results import EXPLORER

    if results.is_file() and results.suffix == ".html":
        return results
    file: Path = results / EXPLORER
    if file.is_file():
        return file
    if not results.is_dir():
        raise InputError(f"{results} is not a folder: give one that `rkhs-control run` or `certify` wrote")
    if any(results.glob("certificates/*.json")) or (results / "region.json").is_file():
        raise InputError(
            f"{results} has certificates, but no {EXPLORER}: an earlier version wrote them. Run the same scenario again"
        )
    if (results / "report.html").is_file():
        raise InputError(f"{results} has neither plans nor a region for ever, so there is nothing to explore")
    raise InputError(f"{results} has no results: give a folder that `rkhs-control run` or `certify` wrote")
