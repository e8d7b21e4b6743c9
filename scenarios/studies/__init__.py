"""The kinds of studies, one module each: its settings, what it does, and what it reports.

A new kind is one more module with a `KIND` (see `kind.py`), listed by name below.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .kind import Kind

MODULES = (
    "plans",
    "check",
    "region",
    "closed_loop",
    "forever",
    "forever_design",
    "sampling",
    "design",
    "recordings",
)
"""In the order in which they are run, shown and reported."""


@cache
def kinds() -> tuple[Kind, ...]:
    """The `KIND` of every module."""
    return tuple(import_module(f".{name}", __package__).KIND for name in MODULES)
