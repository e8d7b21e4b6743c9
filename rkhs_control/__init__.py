"""rkhs_control: guaranteed bounds on an unknown plant from recorded data, and certified control with them.

The package consists of rooms, each using only those before it; `ROOMS` is their order, and each room's own
docstring says what it is for. A datum passes through them in one direction: row of a file, recording, window,
interval, kernel matrix, path, weights, bound, box, verdict, certificate; then on to the checker, which uses none of
the rest, and to the report.

Public names are listed in `__init__.pyi`, once. They are imported on first use, so that importing the package is
fast.
"""

from __future__ import annotations

from importlib import import_module as _import_module

__version__ = "0.1.0"

ROOMS = (
    "errors",
    "checker",
    "cluster",
    "restart",
    "parallel",
    "arithmetic",
    "data",
    "kernels",
    "engine",
    "assumptions",
    "envelopes",
    "prediction",
    "certificates",
    "decisions",
    "control",
    "reporting",
    "models",
    "scenarios",
    "soundness",
    "peers",
    "cli",
)
"""The order of the rooms: each imports only from those before it."""


def _homes() -> dict[str, str]:
    """The module of every public name, from the lines `from .module import Name as Name` of the stub."""
    with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from .")]
    return {name: module for _, module, _, name, _, _ in words}


_HOMES = _homes()

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
