"""Kernels of one lengthscale by name, for scenarios and `select`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InputError
from .base import Kernel
from .radial import Matern12, Matern32, Matern52, RationalQuadratic, SquaredExponential

KernelFamily = Callable[[Any], Kernel]
"""Makes a kernel from a lengthscale."""

FAMILIES: dict[str, type[Kernel]] = {
    "squared_exponential": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
}


def kernel_family(given: str | KernelFamily) -> KernelFamily:
    """One of `FAMILIES` by name; a function from a lengthscale to a kernel is returned as it is."""
    if not isinstance(given, str):
        return given
    if given not in FAMILIES:
        raise InputError(f"there is no kernel {given!r}; there is: {', '.join(FAMILIES)}")
    return FAMILIES[given]
