"""Constraints on an unknown function, `envelope <= limit`: judged by its bounds, kept by every function they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, as_floats, as_points, require_finite
from ..engine.functionals import Points
from ..errors import InputError

if TYPE_CHECKING:
    from .base import Envelope, Side, UpperBound


@dataclass(frozen=True, eq=False)
class Constraint:
    """`f <= limit`, or `f >= limit`, for the unknown function of an envelope: `envelope <= limit` makes one."""

    envelope: Envelope
    limit: float
    is_floor: bool = False
    """Whether `f` must stay above the limit, not below it."""

    def __post_init__(self) -> None:
        limit = as_floats(self.limit, "limit")
        if limit.ndim:
            raise InputError(f"limit must be one number; got shape {limit.shape}")
        require_finite(limit, "limit")
        object.__setattr__(self, "limit", float(limit))

    def __bool__(self) -> NoReturn:
        # from `low <= envelope <= high`, Python would keep only the second half
        raise InputError(
            "a constraint is neither true nor false before a point is chosen (see margins); two limits are two "
            "constraints, [envelope >= low, envelope <= high]"
        )

    def __str__(self) -> str:
        return f"f {'>=' if self.is_floor else '<='} {self.limit:g}"

    def bounds(self, X: FloatArray) -> Sequence[UpperBound]:
        """Upper bounds on `f` (on `-f` for a floor) at the rows of `X`."""
        return self.envelope.upper_bounds(self._side, [Points.value(x) for x in X])

    def gradient(self, x: FloatArray, bound: UpperBound) -> FloatArray:
        """Gradient of such a bound by `x`, `(n_dims,)`; NaN where it has a kink."""
        return self.envelope.upper_gradient(self._side, x, bound.witness)

    @property
    def _side(self) -> Side:
        return self.envelope.sides[0 if self.is_floor else 1]

    def margin(self, bound: UpperBound) -> float:
        """How far a bound is inside the limit; the sign is exact, so zero or more is certified."""
        return (-self.limit if self.is_floor else self.limit) - bound.value

    def margins(self, X: npt.ArrayLike) -> FloatArray:
        """The margin at the rows of `X`: where it is zero or more, the constraint holds, as surely as the bounds do."""
        points = as_points(X, "X", self.envelope.data.n_dims)
        return np.array([self.margin(bound) for bound in self.bounds(points)])
