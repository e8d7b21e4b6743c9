"""`rkhs-control doctor`: look at data, plan and limits before anything is computed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from .options import Set, parsed

if TYPE_CHECKING:
    from ..assumptions.findings import Diagnosis, Finding

_COLOURS = {"problem": "red", "warning": "yellow", "note": "cyan"}


def doctor(
    scenario: Annotated[str, typer.Argument(help="A TOML file with your data and limits.")],
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="CSV with plans, as for `certify`; by default the one named in the scenario."),
    ] = None,
    changes: Set = None,
) -> None:
    """Look at the recordings of a scenario, and at a plan, before anything is computed.

    Looks for columns that never change, saturation, quantisation, outliers and readings that drive the norm, noise
    bounds out of proportion to the signals, plans and limits outside the recorded range (wrong units?), and too few
    runs. Exit code 0 if there are no problems, with or without warnings; 1 if there are, or on an error.
    """
    from ..scenarios.run import diagnose_scenario
    from ..scenarios.schema import load_scenario

    loaded, base = load_scenario(scenario, parsed(changes))
    diagnosis = diagnose_scenario(loaded, base, plan)
    screen = Console()
    for finding in diagnosis.findings:
        _show(finding, screen)
    counts = [_counted(len(diagnosis.of(severity)), severity) for severity in ("problem", "warning", "note")]
    screen.print(", ".join(counts) if diagnosis.findings else diagnosis.explain(), highlight=False)
    raise typer.Exit(1 if diagnosis.has_problems else 0)


def show_doubts(diagnosis: Diagnosis) -> None:
    """Print problems and warnings to the error stream, apart from the results."""
    screen = Console(stderr=True)
    for finding in diagnosis.of("problem", "warning"):
        _show(finding, screen)


def _show(finding: Finding, screen: Console) -> None:
    colour = _COLOURS[finding.severity]
    screen.print(f"[{colour}]{finding.severity}:[/{colour}] {escape(finding.text)}", highlight=False, soft_wrap=True)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
