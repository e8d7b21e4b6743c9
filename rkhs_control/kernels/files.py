"""Kernels read from plain numbers and names, as stored in files."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..errors import InputError
from . import composite, radial  # noqa: F401  so that their kernels are known
from .base import Kernel


def kernel_from_dict(content: dict[str, Any]) -> Kernel:
    """The kernel written by `to_dict`; its class must be one of this package, or imported."""
    known = {kind.__name__: kind for kind in _subclasses(Kernel)}  # type: ignore[type-abstract]
    kind = content.get("kind")
    if kind not in known:
        raise InputError(f"there is no kernel {kind!r}; there is: {', '.join(sorted(known))}")
    values = {
        name: kernel_from_dict(value) if isinstance(value, dict) else value
        for name, value in content.items()
        if name != "kind"
    }
    try:
        return known[kind](**values)
    except TypeError as error:
        raise InputError(f"kernel {kind}: {error}") from None


def _subclasses(parent: type[Kernel]) -> Iterator[type[Kernel]]:
    """All that can be built, however far down."""
    for child in parent.__subclasses__():
        if not inspect.isabstract(child):
            yield child
        yield from _subclasses(child)
