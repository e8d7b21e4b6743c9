"""Observations: every sample says that the unknown function lies in an interval at its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import add_down, add_up, up
from ..errors import ContradictoryDataError, InputError
from .arrays import (
    FloatArray,
    as_floats,
    as_points,
    as_rows,
    as_vector,
    distinct_rows,
    non_negative,
    require_finite,
)


@dataclass(frozen=True, init=False, eq=False)
class Observations:
    """Samples `y_ij = f(x_i) + d_ij`, `|d_ij| <= noise_bound_ij`, as one interval per distinct input.

    `f(x_i)` lies in `[lower_i, upper_i]` with `lower_i = max_j (y_ij - noise_bound_ij)` and `upper_i` its
    mirror. Several outputs at one input (the paper's matrix Lambda) and exact repeats of an input are
    merged that way; the ends are rounded outwards.

    Parameters
    ----------
    X : (n_rows, n_dims)
        Inputs; a flat array is one dimension.
    y : (n_rows,), or a list of n_rows arrays
        Outputs, one or several per input.
    noise_bound : float, or (n_rows,)
        Largest possible noise, for all rows or one per row.
    """

    X: FloatArray
    lower: FloatArray
    upper: FloatArray
    noise_bound: float
    """The largest noise bound of all rows (infinite if intervals were given)."""

    def __init__(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike | Sequence[npt.ArrayLike],
        noise_bound: float | npt.ArrayLike,
    ) -> None:
        inputs = as_points(X, "X")
        _require_rows(inputs)
        outputs = _outputs_by_row(y, len(inputs))
        if np.ndim(noise_bound) == 0:
            noise = np.full(len(inputs), non_negative(noise_bound, "noise_bound"))  # type: ignore[arg-type]
        else:
            noise = as_vector(noise_bound, "noise_bound", len(inputs))
            if (noise < 0).any():
                row = int(np.argmax(noise < 0))
                raise InputError(f"noise_bound must be zero or more; row {row} has {noise[row]}")
        rows = np.repeat(np.arange(len(inputs)), [len(values) for values in outputs])
        values = np.concatenate(outputs)
        noise_rows = noise[rows]
        low, high = add_down(values, -noise_rows), add_up(values, noise_rows)
        self._set(inputs, rows, low, high, noise)

    @classmethod
    def from_intervals(cls, X: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Observations:
        """From intervals; an infinite end is unknown."""
        inputs = as_points(X, "X")
        _require_rows(inputs)
        ends = []
        for name, end in (("lower", lower), ("upper", upper)):
            array = as_floats(end, name)
            if array.shape != (len(inputs),):
                raise InputError(f"{name} must have shape ({len(inputs)},); got {array.shape}")
            unknown = -np.inf if name == "lower" else np.inf
            require_finite(np.where(array == unknown, 0.0, array), name)
            ends.append(array)
        self = object.__new__(cls)
        self._set(inputs, np.arange(len(inputs)), ends[0], ends[1], np.full(1, np.inf))
        return self

    def _set(
        self,
        inputs: FloatArray,
        rows: npt.NDArray[np.intp],
        low: FloatArray,
        high: FloatArray,
        noise: FloatArray,
    ) -> None:
        first, number = distinct_rows(inputs)
        group = number[rows]
        lower, upper = np.full(len(first), -np.inf), np.full(len(first), np.inf)
        np.maximum.at(lower, group, low)
        np.minimum.at(upper, group, high)
        X = np.ascontiguousarray(inputs[first])
        _refuse_contradictions(X, lower, upper, group, rows, low, high, noise)
        for array in (X, lower, upper):
            array.setflags(write=False)
        for name, value in (
            ("X", X),
            ("lower", lower),
            ("upper", upper),
            ("noise_bound", float(noise.max())),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """The number of distinct inputs."""
        return len(self.X)

    @property
    def n_dims(self) -> int:
        """The number of dimensions of an input."""
        return int(self.X.shape[1])

    @cached_property
    def centre(self) -> FloatArray:
        """Midpoint of each interval: the output itself where there is one per input."""
        self.require_two_sided()
        return 0.5 * (self.lower + self.upper)

    @cached_property
    def half_width(self) -> FloatArray:
        """Half the width of each interval, rounded up: the interval lies within `centre +- half_width`."""
        self.require_two_sided()
        return up(np.maximum(self.upper - self.centre, self.centre - self.lower))

    def subset(self, rows: npt.ArrayLike) -> Observations:
        """The observations at some of the distinct inputs, by index or mask."""
        chosen = as_rows(rows, len(self), "rows")
        part = Observations.from_intervals(self.X[chosen], self.lower[chosen], self.upper[chosen])
        object.__setattr__(part, "noise_bound", self.noise_bound)
        return part

    def require_two_sided(self) -> None:
        """Refuse intervals with an unknown end."""
        open_rows = np.flatnonzero(~np.isfinite(self.lower) | ~np.isfinite(self.upper))
        if len(open_rows):
            raise InputError(
                f"this method needs intervals with two ends; input {open_rows[0]} has only one "
                "(OptimalEnvelope takes such data)"
            )


def _require_rows(inputs: FloatArray) -> None:
    if len(inputs) == 0:
        raise InputError("X must have at least one row; got none")


def _outputs_by_row(y: npt.ArrayLike | Sequence[npt.ArrayLike], n_rows: int) -> list[FloatArray]:
    is_ragged = isinstance(y, list | tuple) and any(np.ndim(row) for row in y)
    if not is_ragged:
        flat = as_floats(y, "y")  # type: ignore[arg-type]
        if flat.ndim == 1:
            return list(as_vector(flat, "y", n_rows)[:, None])
        if flat.ndim != 2:
            raise InputError(f"y must have shape ({n_rows},) or be a list of {n_rows} arrays; got {flat.shape}")
    rows = list(y)  # type: ignore[arg-type]
    if len(rows) != n_rows:
        raise InputError(f"y must have as many rows as X; got {len(rows)} for {n_rows}")
    outputs = [as_vector(np.atleast_1d(row), f"y[{i}]") for i, row in enumerate(rows)]
    for i, values in enumerate(outputs):
        if len(values) == 0:
            raise InputError(f"y[{i}] is empty; every input needs at least one output")
    return outputs


def _refuse_contradictions(
    X: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    group: npt.NDArray[np.intp],
    rows: npt.NDArray[np.intp],
    low: FloatArray,
    high: FloatArray,
    noise: FloatArray,
) -> None:
    if (lower <= upper).all():
        return
    excess = (lower - upper) / 2
    worst = int(np.argmax(excess))
    here = np.flatnonzero(group == worst)
    top, bottom = rows[here[np.argmax(low[here])]], rows[here[np.argmin(high[here])]]
    n_bad = int((excess > 0).sum())
    shared = noise[0] if np.isfinite(noise[0]) and (noise == noise[0]).all() else None
    lost = 4.0 * float(np.spacing(abs(lower[worst]) + abs(upper[worst]) + (shared or 0.0)))  # by rounding
    cure = (
        f"the noise bound would have to be at least {_decimal_up(shared + excess[worst] + lost)} (now {shared:.9g})"
        if shared is not None
        else f"their bounds would have to be larger by at least {_decimal_up(excess[worst] + lost)}"
    )
    where = f"rows {bottom} and {top} contradict each other" if top != bottom else f"row {top} contradicts itself"
    raise ContradictoryDataError(
        f"{where} at the input {X[worst].tolist()}: the value would have to be at least {lower[worst]:.9g} and "
        f"at most {upper[worst]:.9g}; {cure}" + (f"; {n_bad} inputs are contradictory in all" if n_bad > 1 else "")
    )


def _decimal_up(value: float) -> str:
    """`value` to nine digits, rounded up, so that the number in the message is enough."""
    return str(Context(prec=9, rounding=ROUND_CEILING).create_decimal_from_float(value).normalize()).lower()
