"""Trajectories in pandas frames: the columns of a CSV file, read by the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from .recordings import require_horizon, trajectories_of
from .tables import COUNTERS, table_of
from .trajectories import Trajectories

if TYPE_CHECKING:
    from pandas import DataFrame

_KEYS = ("trajectory", "step", "time")


def read_frame(
    frame: DataFrame,
    *,
    trajectory: str,
    time: str | None,
    horizon: int | None,
    stride: int,
    fields: dict[str, Any],
) -> Trajectories:
    """What `Trajectories.from_frame` gives, which explains the arguments."""
    require_horizon(horizon, stride)
    if not hasattr(frame, "columns") or not hasattr(frame, "iloc"):
        raise InputError(f"frame must be a pandas DataFrame; got {type(frame).__name__}")
    fields = {name: value for name, value in fields.items() if value is not None}
    for field in ("state_names", "input_names"):
        fields[field] = _several(fields[field], field)
    wanted = [*fields["state_names"], *fields["input_names"]]
    named = [*wanted, *([] if trajectory == "trajectory" else [trajectory])]
    levels = [level for level in frame.index.names if level is not None and level not in frame.columns]
    columns = frame.reset_index(level=levels) if levels else frame
    table = table_of(
        "frame",
        [str(column) for column in columns.columns],
        enumerate(_texts(columns)),
        named,
        header="frame",
        kinds=(trajectory,),
        clock=time,
        sampling_time=fields.get("sampling_time"),
    )
    return trajectories_of(table, horizon=horizon, stride=stride, fields=fields)


def write_frame(runs: Trajectories) -> DataFrame:
    """What `Trajectories.to_frame` gives."""
    try:
        import pandas
    except ImportError:
        raise InputError("frames need pandas (`pip install rkhs_control[pandas]`)") from None

    if runs.has_measured_starts:
        raise InputError(
            f"a frame cannot say that {runs.kind} begin with measured states (initial_state_noise): take the arrays "
            "states and inputs, or the frame of the recordings before they are cut"
        )
    names = (*runs.state_names, *runs.input_names)
    taken = [name for name in names if name in _KEYS or names.count(name) > 1]
    if taken:
        raise InputError(f"a frame cannot have two columns {taken[0]!r}; give that state or input another name")
    n_instants = runs.horizon + 1
    step = np.tile(np.arange(n_instants), len(runs))
    keys = dict(zip(_KEYS, (np.repeat(np.arange(len(runs)), n_instants), step, step * runs.sampling_time), strict=True))
    nothing = np.full((len(runs), 1, runs.n_inputs), np.nan)  # at the last instant
    values = np.concatenate([runs.states, np.concatenate([runs.inputs, nothing], axis=1)], axis=2)
    return pandas.DataFrame(keys | dict(zip(names, values.reshape(-1, len(names)).T, strict=True)))


def _several(names: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(names, str) or not names:
        raise InputError(f"{field} must be the names of columns, at least one, in a list; got {names!r}")
    return tuple(names)


def _texts(frame: DataFrame) -> list[tuple[str, ...]]:
    """The cells of every row as in a CSV file: `tolist` also preserves the value of short floats."""
    columns = [
        map(_count if name in COUNTERS else str, frame.iloc[:, place].tolist())
        for place, name in enumerate(frame.columns)
    ]
    return list(zip(*columns, strict=True))


def _count(cell: object) -> str:
    """Whole floats without a decimal point: pandas turns integers into floats as soon as one is missing."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
