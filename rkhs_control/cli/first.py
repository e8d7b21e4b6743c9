"""`rkhs-control list` and `rkhs-control example`: what can be run, and files to start from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


class _Example(StrEnum):
    """The examples that can be written."""

    CSV = "csv"
    LONG_RECORDING = "long-recording"
    DO_MPC = "do-mpc"


def list_scenarios() -> None:
    """List the scenarios and studies that `rkhs-control run` knows by name, and how long each takes."""
    from ..scenarios.paper import RUN_SECONDS, STUDIES
    from ..scenarios.schema import builtin_scenarios, load_scenario

    table = Table("name", "takes about", "what it does", title="rkhs-control run NAME", caption="times on two cores")
    for name in builtin_scenarios():
        scenario = load_scenario(name)[0]
        table.add_row(name, rough_time(scenario.run_seconds), scenario.description)
    table.add_section()
    for name, description in STUDIES.items():
        table.add_row(name, rough_time(RUN_SECONDS[name]), description)
    Console().print(table)


def rough_time(seconds: float | None) -> str:
    """Whole minutes, or tens of seconds up to two minutes; empty where it was not measured."""
    if seconds is None:
        return ""
    if seconds < 115:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 60)} min"


def example(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    kind: Annotated[
        _Example,
        typer.Option(
            "--kind",
            help="csv: a scenario, recorded runs and a plan. long-recording: the same, from one long log of outputs "
            "and "
            "inputs. do-mpc: recorded runs, and a script that certifies and filters a do-mpc controller.",
        ),
    ] = _Example.CSV,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed.")] = 0,
) -> None:
    """Write data, and a scenario or script that uses them, into a folder, to try out and to modify."""
    from ..scenarios.example import next_command, write_example

    written = write_example(folder, seed, kind.value)
    Console().print(
        f"{folder}: {', '.join(written)}. Next:\n\n    {next_command(folder, kind.value)}\n",
        highlight=False,
        soft_wrap=True,
    )
