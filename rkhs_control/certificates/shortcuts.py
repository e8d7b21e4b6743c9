"""Shortcuts from results to what shows them, which is in a later room.

No room imports from a later one. `certificate.explore()` is a shorter way to write `rc.explore(certificate)`, and this
is the only file that goes through the front door of the package to do so; a test says that no other does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class Shown(Protocol):
    """What notebooks show, and `save` writes to a file."""

    def save(self, file: str | Path) -> Path:
        """Write it, and return where."""

    def _repr_html_(self) -> str: ...


def explore(result: Any, title: str) -> Shown:
    """`rkhs_control.explore` of a certificate or a region."""
    import rkhs_control

    return rkhs_control.explore(result, title=title)
