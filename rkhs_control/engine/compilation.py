"""A message to the user while the engine is compiled, which happens once per machine and version."""

from __future__ import annotations

import sys

from numba.core.event import Event, Listener, register

_WORD = "rkhs_control: compiling, which takes up to a minute and happens only once (numba caches the result)"


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
