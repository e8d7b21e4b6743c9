"""Sets of states and inputs: boxes and polytopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import up
from ..errors import InputError
from .arrays import FloatArray, as_floats, as_vector, listed


@dataclass(frozen=True, eq=False)
class Box:
    """`lower <= x <= upper`; an infinite end is no limit."""

    lower: FloatArray
    upper: FloatArray

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        ends = [np.atleast_1d(as_floats(end, name)) for name, end in (("lower", lower), ("upper", upper))]
        if ends[0].ndim != 1 or ends[0].shape != ends[1].shape:
            raise InputError(f"lower and upper must have the same shape (n,); got {ends[0].shape} and {ends[1].shape}")
        crossed = np.flatnonzero(~(ends[0] <= ends[1]))
        if len(crossed):
            i = int(crossed[0])
            raise InputError(f"lower must not exceed upper; entry {i} has {ends[0][i]:g} and {ends[1][i]:g}")
        for name, end in zip(("lower", "upper"), ends, strict=True):
            end.setflags(write=False)
            object.__setattr__(self, name, end)

    def __repr__(self) -> str:
        """As in its constructor, with a few digits of a few entries."""
        return f"Box([{listed(self.lower)}], [{listed(self.upper)}])"

    @property
    def n_dims(self) -> int:
        """The number of dimensions."""
        return len(self.lower)

    @classmethod
    def unbounded(cls, n_dims: int) -> Box:
        """The whole space."""
        return cls(np.full(n_dims, -np.inf), np.full(n_dims, np.inf))

    def contains(self, points: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each point, along the last axis, lies in the box."""
        x = np.asarray(points)
        inside: npt.NDArray[np.bool_] = np.all((self.lower <= x) & (x <= self.upper), axis=-1)
        return inside

    def clip(self, points: npt.ArrayLike) -> FloatArray:
        """The nearest points in the box."""
        return np.clip(np.asarray(points, dtype=np.float64), self.lower, self.upper)

    def around(self) -> tuple[FloatArray, FloatArray]:
        """A point in its middle, and how far the box extends from there in every dimension, rounded up."""
        if not np.isfinite([self.lower, self.upper]).all():
            raise InputError("a box that is infinite has no middle: give it two ends in every dimension")
        middle = self.lower / 2.0 + self.upper / 2.0
        reach = np.maximum(middle - self.lower, self.upper - middle)
        return middle, np.where(reach > 0.0, up(reach), 0.0)

    def as_polytope(self) -> Polytope:
        """The same set as inequalities, one for every finite end: uppers first, then lowers."""
        upper, lower = np.isfinite(self.upper), np.isfinite(self.lower)
        identity = np.eye(self.n_dims)
        return Polytope(
            np.vstack([identity[upper], -identity[lower]]), np.concatenate([self.upper[upper], -self.lower[lower]])
        )


@dataclass(frozen=True, eq=False)
class Polytope:
    """`normals @ x <= offsets`."""

    normals: FloatArray
    offsets: FloatArray

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, normals: npt.ArrayLike, offsets: npt.ArrayLike) -> None: ...

    def __post_init__(self) -> None:
        normals = as_floats(self.normals, "normals")
        if normals.ndim != 2 or not np.isfinite(normals).all():
            raise InputError(f"normals must be a finite array (n_constraints, n_dims); got shape {normals.shape}")
        empty = np.flatnonzero(~normals.any(axis=1))
        if len(empty):
            raise InputError(
                f"normals must not be zero; row {empty[0]} is, and limits nothing: leave it out, with its offset"
            )
        offsets = as_vector(self.offsets, "offsets", len(normals))
        for name, array in (("normals", normals), ("offsets", offsets)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        """The size, not the arrays."""
        n = len(self.offsets)
        return f"Polytope({n} inequalit{'y' if n == 1 else 'ies'} in {self.n_dims} dimension{'s'[: self.n_dims != 1]})"

    @property
    def n_dims(self) -> int:
        """The number of dimensions."""
        return int(self.normals.shape[1])

    def as_polytope(self) -> Polytope:
        """Itself, for the same interface as `Box`."""
        return self

    def contains(self, points: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each point, along the last axis, lies in the polytope."""
        inside: npt.NDArray[np.bool_] = np.all(np.asarray(points) @ self.normals.T <= self.offsets, axis=-1)
        return inside
