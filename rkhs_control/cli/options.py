"""What commands share: how they show their help, their common options, and how these are parsed."""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import InputError

ALL_CORES = os.cpu_count() or 1
ALL_WORKERS = -1

Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to spread the work over.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="A Dask cluster to spread the work over, instead of --jobs: the address of a scheduler, "
        "tcp://host:8786, or local:4 for four processes here.",
    ),
]

Fresh = Annotated[bool, typer.Option("--fresh", help="Start over, ignoring any finished parts of an interrupted run.")]

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the scenario: --set 'limits.states.c_A=[1.0, 2.7]'. Repeatable."),
]


class Commands(TyperGroup):
    """A group of commands whose help reads well."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, with paragraphs as wide as the screen."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help))
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments, with switches shown as switches, without a type."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


def parsed(changes: list[str] | None) -> dict[str, Any]:
    """`key=value` with values as in TOML; a bare word is a string."""
    found = {}
    for change in changes or []:
        key, separator, text = change.partition("=")
        if not separator or not key.strip():
            raise InputError(f"--set takes key=value, such as 'limits.states.c_A=[1.0, 2.7]'; got {change!r}")
        try:
            found[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = text.strip()
    return found


@contextmanager
def workers(jobs: int, cluster: str | None, context: Any) -> Iterator[int]:
    """The number of jobs to use inside: processes on this machine, or all workers of a cluster, open meanwhile."""
    if cluster is None:
        yield jobs
        return
    if context.get_parameter_source("jobs").name != "DEFAULT":
        raise InputError("--cluster replaces --jobs: give only one of them")
    from ..cluster import on_cluster

    with on_cluster(cluster):
        yield ALL_WORKERS
