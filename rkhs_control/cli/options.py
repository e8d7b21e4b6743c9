"""Options that several commands share, and how they are read."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import typer

from ..errors import InputError

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the scenario: --set 'limits.states.c_A=[1.0, 2.7]'. Repeatable."),
]


def parsed(changes: list[str] | None) -> dict[str, Any]:
    """`key=value` with values as in TOML; a bare word is a text."""
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
