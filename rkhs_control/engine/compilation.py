"""What numba keeps: a message while the engine is compiled, and nothing that was compiled from older sources."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from numba.core.event import Event, Listener, register

_WORD = "rkhs_control: compiling, which takes up to a minute and happens only once (numba caches the result)"
_PACKAGE = Path(__file__).parents[1]
_COMPILED = ("arithmetic", "engine", "kernels")
"""The rooms with compiled functions, which call each other."""


class _Teller(Listener):
    """Prints the message when the first function is compiled; those in numba's cache do not count."""

    has_told = False

    def on_start(self, event: Event) -> None:
        module = str(event.data["dispatcher"].py_func.__module__)
        if not self.has_told and module.startswith(f"{__package__}."):
            self.has_told = True
            print(_WORD, file=sys.stderr)

    def on_end(self, event: Event) -> None:
        """Nothing to say."""


def tell_when_compiling() -> None:
    """Register the message, if there is a terminal to print it on."""
    if sys.stderr.isatty():
        register("numba:compile", _Teller())  # type: ignore[no-untyped-call]


def forget_stale_code(package: Path = _PACKAGE) -> None:
    """Remove compiled code that is older than any of the sources.

    A compiled function contains those that it calls. Numba compares its own file with the cache, but not theirs: after
    an update of a working copy, a bound would go on as it was.
    """
    rooms = [package / room for room in _COMPILED]
    newest = max((file.stat().st_mtime for room in rooms for file in room.glob("*.py")), default=0.0)
    for room in rooms:
        for index in room.glob("__pycache__/*.nbi"):
            with suppress(OSError):  # another process was faster, or the folder cannot be written to
                if index.stat().st_mtime < newest:
                    index.unlink()
