"""What a peer is: a card that says what it assumes and promises, and either boxes for plans or loops of its own."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ..data.arrays import FloatArray
from ..errors import InputError

EXTRA_MODULES = ("sklearn", "mapie", "direct_data_driven_mpc")
"""What the extra `[peers]` brings; all else is a dependency of the package."""


@dataclass(frozen=True)
class Card:
    """What a reader must know of a method before its numbers."""

    name: str
    assumes: str
    promises: str
    better_at: str
    """Where it is the better choice."""


@dataclass(frozen=True, eq=False)
class Bounds(ABC):
    """A method that says, for a plan, in which box each future state lies."""

    card: Card

    @abstractmethod
    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends `(m, N, n_states)`, for states `(m, n_states)` and inputs `(m, N, n_inputs)`."""


@dataclass(frozen=True)
class Loop:
    """One closed loop: the states that it went through after its start, and how often its solver failed."""

    states: FloatArray
    """`(n_steps, n_states)`, the true ones."""
    n_failed: int
    step_s: float
    """Seconds of a processor that a decision took, the median."""


@dataclass(frozen=True, eq=False)
class Controller(ABC):
    """A method that decides itself what to apply, instead of judging plans."""

    card: Card

    @abstractmethod
    def loops(self, x0: FloatArray, n_steps: int, seed: int) -> list[Loop]:
        """A loop from every row of `x0`; `seed` is that of its measurement noise, if it meets any."""


def from_extra(module: str) -> Any:
    """A module of the extra `[peers]`, or one line that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{module.partition('.')[0]} is not installed: pip install rkhs_control[peers]") from error


def require_extra() -> None:
    """Refuse before any work is done, not in the middle of it."""
    for module in EXTRA_MODULES:
        from_extra(module)
