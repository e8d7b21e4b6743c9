"""The kinds of studies, one module each: its settings, what it does, and what it tells of that.

A new kind is one more module with a `KIND` (see `kind.py`), and its name below.
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
    """What every module says of itself."""
    return tuple(import_module(f".{name}", __package__).KIND for name in MODULES)
