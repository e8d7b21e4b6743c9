"""Limits of a plant: on its states, its inputs, and how fast these may change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import as_floats
from .fields import nearest
from .sets import Box, Polytope

Intervals = Mapping[str, Sequence[float]]
"""`{"c_A": (1.0, 3.0)}`: lower and upper ends by name; names that are absent have no limit."""

Pair = tuple[npt.ArrayLike, npt.ArrayLike] | list[Any]
"""`(lower, upper)`, each a number or one per dimension."""


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits that a plant must keep: one object for certifying, planning, loops and experiments.

    Each part is a `Box`, a pair `(lower, upper)` that makes one, or intervals by name, `{"c_A": (1.0, 3.0)}`; states
    may also be limited by a `Polytope`. Names become indices when the limits are applied to recorded runs (`over`).

    Parameters
    ----------
    states : Box, Polytope, pair or intervals by name
    inputs : Box, pair or intervals by name, optional
    rates : Box, pair or intervals by name, optional
        Limits on the change of the inputs from one step to the next.
    """

    states: Box | Polytope | Intervals
    inputs: Box | Intervals | None = None
    rates: Box | Intervals | None = None

    if TYPE_CHECKING:  # more may be given than is kept

        def __init__(
            self,
            states: Box | Polytope | Intervals | Pair,
            inputs: Box | Intervals | Pair | None = None,
            rates: Box | Intervals | Pair | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.states is None:
            raise InputError("limits need states: a Box, a Polytope, or intervals by name (possibly none, {})")
        for part in ("states", "inputs", "rates"):
            object.__setattr__(self, part, _limit(getattr(self, part), part))

    @classmethod
    def of(
        cls, limits: Any, state_limits: Any = None, input_limits: Any = None, input_rate_limits: Any = None
    ) -> Limits:
        """One object from either form: `limits`, or its parts by their long names."""
        parts = (state_limits, input_limits, input_rate_limits)
        if limits is not None:
            if any(part is not None for part in parts):
                raise InputError(
                    "give either limits or state_limits, input_limits and input_rate_limits, not some of both"
                )
            return limits if isinstance(limits, Limits) else cls(limits)
        if state_limits is None:
            raise InputError("give limits=Limits(states=..., inputs=..., rates=...), or state_limits")
        return cls(*parts)

    def over(self, state_names: Sequence[str], input_names: Sequence[str]) -> PlacedLimits:
        """The same in the order of all states and inputs; refused where names or sizes do not match."""
        states = _placed(self.states, state_names, "states")
        inputs, rates = (_placed(getattr(self, part), input_names, part) for part in ("inputs", "rates"))
        return PlacedLimits(states, inputs, rates, len(input_names))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class PlacedLimits(Limits):
    """Limits in the order of a plant's states and inputs, no longer by name."""

    states: Box | Polytope
    inputs: Box | None = None
    rates: Box | None = None
    n_inputs: int = 0

    @property
    def input_box(self) -> Box:
        """The limits of the inputs, infinite where there are none."""
        return Box.unbounded(self.n_inputs) if self.inputs is None else self.inputs

    @property
    def rate_box(self) -> Box:
        """The limits on input changes, infinite where there are none."""
        return Box.unbounded(self.n_inputs) if self.rates is None else self.rates

    @property
    def has_rates(self) -> bool:
        """Whether there is any limit on input changes."""
        return bool(np.isfinite([self.rate_box.lower, self.rate_box.upper]).any())

    @cached_property
    def polytope(self) -> Polytope:
        """The limits of the states as inequalities."""
        return self.states.as_polytope()


GivenLimits = Limits | Box | Polytope | Intervals | Pair
"""`Limits`, or limits on the states alone: a box, a polytope, a pair `(lower, upper)`, or intervals by name."""


def _limit(given: Any, part: str) -> Box | Polytope | Intervals | None:
    """One part of the limits, checked as far as possible without knowing the plant."""
    if given is None or isinstance(given, Box) or (isinstance(given, Polytope) and part == "states"):
        return given
    if isinstance(given, Mapping):
        return {str(name): _interval(ends, f"{part}[{name!r}]") for name, ends in given.items()}
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return Box(*given)
    wanted = "a Box, a Polytope" if part == "states" else "a Box"
    raise InputError(f"{part} must be {wanted}, a pair (lower, upper) or intervals by name; got {given!r}")


def _interval(ends: Any, what: str) -> tuple[float, float]:
    array = as_floats(ends, what)
    if array.shape != (2,) or not array[0] <= array[1]:
        raise InputError(f"{what} must be a lower and an upper end, in that order; got {ends!r}")
    return float(array[0]), float(array[1])


def _placed(given: Box | Polytope | Intervals | None, names: Sequence[str], part: str) -> Box | Polytope | None:
    if isinstance(given, Mapping):
        require_names(given, names, f"limits of {part}")
        ends = np.array([given.get(name, (-math.inf, math.inf)) for name in names])
        return Box(ends[:, 0], ends[:, 1])
    if given is not None and given.n_dims != len(names):
        raise InputError(f"limits of {part} must have {len(names)} dimensions ({', '.join(names)}); got {given.n_dims}")
    return given


def require_names(given: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    """Refuse an unknown name, suggesting the closest known one."""
    for name in given:
        if name not in names:
            near = nearest(name, names)
            meant = f" (did you mean {near!r}?)" if near else ""
            raise InputError(f"{what} name {name!r}{meant}, but there is only {', '.join(names)}")
