"""From tables to trajectories: recordings of any lengths, whole or in windows, with bounds for the doubles as read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import InputError, RowOrderWarning
from .arrays import FloatArray
from .tables import RunTable, bounds_of_decimals
from .trajectories import Trajectories
from .windows import Shape


def trajectories_of(table: RunTable, *, horizon: int | None, stride: int, fields: dict[str, Any]) -> Trajectories:
    """The runs of a table, or windows of them if there is a horizon.

    Parameters
    ----------
    table : RunTable
    horizon : int, optional
        Steps of a window; by default the runs stay whole.
    stride : int
        Steps from one window to the next.
    fields : dict
        Fields of `Trajectories` that a table does not contain; `state_names` and `input_names` are the columns to read.
    """
    state_names, input_names = fields["state_names"], fields["input_names"]
    shape = shape_of(fields, horizon)
    if table.note:
        warnings.warn(table.note, RowOrderWarning, stacklevel=3)
    recordings = [_recording(table, name, state_names, input_names) for name in table.runs]
    bounds = bounds_as_read(fields, [table.rounding(name) for name in state_names])
    named = {**fields, **bounds}
    if table.sampling_time is not None:
        named["sampling_time"] = table.sampling_time
    lengths = sorted({len(inputs) for _, inputs in recordings})
    if horizon is None and len(lengths) > 1:
        raise InputError(
            f"{table.source}: runs have from {lengths[0]} to {lengths[-1]} steps; give a horizon to cut windows"
        )
    whole: dict[str, Any] = {} if horizon is not None else {"initial_state_noise": 0.0}
    try:
        return Trajectories.from_recordings(
            recordings, horizon or lengths[0], stride=stride, **{**whole, **named, **shape}
        )
    except InputError as error:
        raise InputError(f"{table.source}: {error}") from None


def bounds_as_read(given: dict[str, Any], roundings: Sequence[Fraction] | None = None) -> dict[str, FloatArray]:
    """The given bounds, adapted to the doubles as read; a known initial state is exactly that double.

    Disturbances act on the plant, not on its readings.
    """
    bounds: dict[str, FloatArray] = {}
    for name in ("noise_bound", "initial_state_noise"):
        if name in given:
            bounds[name] = bounds_of_decimals(given[name], name, roundings)
    if "disturbance_bound" in given:
        bounds["disturbance_bound"] = bounds_of_decimals(given["disturbance_bound"], "disturbance_bound")
    if "initial_state_noise" in bounds:
        is_known = np.equal(given["initial_state_noise"], 0.0)
        bounds["initial_state_noise"] = np.where(is_known, 0.0, bounds["initial_state_noise"])
    return bounds


def require_horizon(horizon: int | None, stride: int) -> None:
    """Refuse window settings where there are no windows."""
    if horizon is None and stride != 1:
        raise InputError(f"stride is the distance between windows, and needs horizon; got {stride} without it")


def shape_of(fields: dict[str, Any], horizon: int | None) -> dict[str, int]:
    """How windows are to be cut, taken out of the other fields; refused without a horizon."""
    shape = {name: fields.pop(name) for name in Shape._fields if name in fields}
    if shape and horizon is None:
        raise InputError(f"{next(iter(shape))} applies to windows, and needs horizon")
    return shape


def _recording(
    table: RunTable, name: str, state_names: Sequence[str], input_names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    rows = table.runs[name]
    if len(rows) < 2:
        raise InputError(f"{table.source}, row {rows[0].line}: {table.kind} {name} has only one step; leave it out")
    return table.numbers(rows, state_names), table.numbers(rows[:-1], input_names)
