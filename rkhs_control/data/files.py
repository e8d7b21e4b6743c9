"""Trajectories in files: CSV in long form, NPZ, MAT (v5, and v7.3 through HDF5) and HDF5, by file extension.

CSV contains the recorded values and nothing else, one row per instant: the columns `trajectory` (optional for a single
run), `time` (in seconds, or ISO dates), or the counters `step` or `sample`, the states, and the inputs, which are not
read at the last instant of a run. Columns may also be separated by semicolons or tabs, with decimal commas. The other
formats contain every field of `Trajectories`.

Planned inputs are CSV files of the same form, of which only the first row of states is read. Where the future depends
on a history, its entries have their own columns: `T`, `T[-1]`, `Q[-1]`.

A decimal such as 0.1 is not a double. The rounding of recorded states is added to their noise bound. Initial states
that are taken as known, and inputs, are the doubles as read: what a controller computes with and sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .arrays import as_floats
from .plans import Plans
from .recordings import bounds_as_read, require_horizon, shape_of, trajectories_of
from .tables import one_line, read_table, write_rows
from .trajectories import Trajectories

_FIELDS = [field.name for field in fields(Trajectories)]
_TEXTS = [name for name in _FIELDS if name.endswith(("_names", "_units"))]


def save_trajectories(runs: Trajectories, file: str | Path) -> None:
    """Write a file in the format given by its extension."""
    path = Path(file)
    _format_of(path, _WRITERS)(runs, path)


def load_trajectories(
    file: str | Path,
    *,
    state_names: Sequence[str] = (),
    input_names: Sequence[str] = (),
    horizon: int | None = None,
    stride: int = 1,
    **overrides: Any,
) -> Trajectories:
    """Read a file in the format given by its extension.

    A CSV file needs `state_names` and `input_names`, the columns to read, and `noise_bound`. Times, if present, must be
    evenly spaced, by `sampling_time` if that is given; without any clock, the rows are one run in their order, and a
    `RowOrderWarning` says so. `horizon` cuts the runs into windows of this many steps, one every `stride` steps. These
    begin with measured states, which are uncertain by the noise bound unless `initial_state_noise` says otherwise; the
    initial states of whole runs are taken as known unless it does.

    `overrides` replace fields of `Trajectories` (a noise bound, units) in any format. Bounds are rounded up, and the
    noise bound of recorded states is raised by the rounding of their decimals to doubles.
    """
    path, overrides = _existing(file), {name: value for name, value in overrides.items() if value is not None}
    require_horizon(horizon, stride)
    if path.suffix.lower() == ".csv":
        if not state_names or not input_names or "noise_bound" not in overrides:
            raise InputError(f"{path}: a CSV file needs state_names, input_names and noise_bound to be read")
        table = read_table(path, [*state_names, *input_names], sampling_time=overrides.get("sampling_time"))
        named = {"state_names": tuple(state_names), "input_names": tuple(input_names), **overrides}
        return trajectories_of(table, horizon=horizon, stride=stride, fields=named)
    content = _read(path)
    missing = [name for name in ("states", "inputs", "noise_bound") if name not in content and name not in overrides]
    if missing:
        raise InputError(f"{path}: there is no {missing[0]!r} in it; there is: {', '.join(sorted(content))}")
    known, shape = {name: value for name, value in content.items() if name in _FIELDS}, shape_of(overrides, horizon)
    if "noise_bound" in overrides and _starts_as_noisy(known):
        noise = as_floats(overrides["noise_bound"], "noise_bound")
        overrides.setdefault("initial_state_noise", noise.max(axis=0) if noise.ndim == 2 else noise)
    for field, names in (("state_names", tuple(state_names)), ("input_names", tuple(input_names))):
        if names and known.setdefault(field, names) != names:
            raise InputError(f"{path}: {field} in it are {', '.join(known[field])}, not {', '.join(names)}")
    try:
        given = {**overrides, **bounds_as_read(overrides)}
        if horizon is None:
            return Trajectories(**{**known, **given})
        noise = given.pop("initial_state_noise", None)  # for the windows, whose histories may have more entries
        return Trajectories(**{**known, **given}).windows(horizon, stride, initial_state_noise=noise, **shape)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    """The content of a file that is not CSV."""
    reader = _format_of(path, _READERS)
    try:
        content: dict[str, Any] = reader(path)
        return content
    except InputError:
        raise
    except Exception as error:  # whatever libraries raise on a broken file
        raise InputError(
            f"{path}: not a readable {path.suffix[1:].upper()} file ({type(error).__name__}: {error})"
        ) from None


def _starts_as_noisy(known: dict[str, Any]) -> bool:
    """Whether initial states are as uncertain as the file's noise bound, so that a new bound replaces both."""
    if "noise_bound" not in known or "initial_state_noise" not in known:
        return False
    is_measured = "origins" in known and (np.any(known["origins"][:, 1]) or np.any(known["initial_state_noise"]))
    noise = np.max(np.atleast_2d(known["noise_bound"]), axis=0)
    return bool(is_measured) and bool(np.all(noise == known["initial_state_noise"]))


def save_plans(plans: Plans, file: str | Path) -> None:
    """Write a CSV file: `trajectory`, `step`, the states (of the first rows only) and the inputs."""
    rows: list[list[Any]] = []
    for name, x0, inputs in zip(plans.names, plans.x0, plans.inputs, strict=True):
        for step, u in enumerate(inputs.tolist()):
            rows.append([name, step, *([""] * len(x0) if step else x0.tolist()), *u])
    write_rows(_csv(file), plans.state_names, plans.input_names, rows)


def load_plans(
    file: str | Path,
    *,
    state_names: Sequence[str],
    input_names: Sequence[str],
    sampling_time: float | None = None,
) -> Plans:
    """Read planned inputs from a CSV file, in which the column `trajectory` may be called `plan`.

    The states are read from the first row of each plan, the inputs from all rows; a last row without inputs is the end
    instant. For runs with histories, `state_names` are their `history_names`. Times, if present, must be evenly spaced,
    by `sampling_time` if that is given.
    """
    path = _csv(_existing(file))
    if not state_names or not input_names:
        raise InputError(f"{path}: plans need state_names and input_names to be read")
    columns = [*state_names, *input_names]
    table = read_table(path, columns, kinds=("trajectory", "plan"), sampling_time=sampling_time)
    x0, inputs = [], []
    for name, rows in table.runs.items():
        ends = not any(rows[-1].cells[one_line(column)] for column in input_names)
        held = rows[:-1] if ends else rows
        if not held:
            raise InputError(f"{path}, row {rows[0].line}: {table.kind} {name} has no inputs; write them in its rows")
        x0.append(table.numbers(rows[:1], state_names)[0])
        inputs.append(table.numbers(held, input_names))
    try:
        return Plans(tuple(table.runs), tuple(x0), tuple(inputs), tuple(state_names), tuple(input_names))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _existing(file: str | Path) -> Path:
    path = Path(file)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    return path


def _csv(file: str | Path) -> Path:
    path = Path(file)
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: plans are kept in CSV files; the ending must be .csv")
    return path


def _format_of(path: Path, formats: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    if path.suffix.lower() not in formats:
        raise InputError(f"{path}: the ending must be one of {', '.join(sorted({'.csv', *formats}))}")
    return formats[path.suffix.lower()]


# ---- CSV


def _write_csv(runs: Trajectories, path: Path) -> None:
    if runs.has_measured_starts:
        raise InputError(
            f"{path}: a CSV file cannot say that {runs.kind} begin with measured states (initial_state_noise): save "
            "them as .npz, .mat or .h5"
        )
    rows: list[list[Any]] = []
    for number in range(len(runs)):
        inputs = [*runs.inputs[number].tolist(), [""] * runs.n_inputs]
        for step, (x, u) in enumerate(zip(runs.states[number].tolist(), inputs, strict=True)):
            rows.append([number, step, *x, *u])
    write_rows(path, runs.state_names, runs.input_names, rows)


# ---- NPZ, MAT, HDF5


def _content(runs: Trajectories) -> dict[str, Any]:
    content = {name: getattr(runs, name) for name in _FIELDS}
    return {name: list(value) if name in _TEXTS else value for name, value in content.items()}


def _with_texts(content: dict[str, Any], decode: Callable[[Any], tuple[str, ...]]) -> dict[str, Any]:
    return {name: decode(value) if name in _TEXTS else value for name, value in content.items()}


def _write_npz(runs: Trajectories, path: Path) -> None:
    arrays: dict[str, Any] = {name: np.array(value) for name, value in _content(runs).items()}
    np.savez_compressed(path, **arrays)


def _read_npz(path: Path) -> dict[str, Any]:
    # NumPy leaves a broken file open if it opens it itself.
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        content = dict(arrays)
    return _with_texts(_scalars(content), lambda value: tuple(str(text) for text in np.atleast_1d(value)))


def _write_mat(runs: Trajectories, path: Path) -> None:
    from scipy.io import savemat

    content = _content(runs)
    savemat(path, {n: np.array(v, dtype=object) if n in _TEXTS else v for n, v in content.items()}, do_compression=True)


def _read_mat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        content = loadmat(path)
    except NotImplementedError:  # what scipy says of v7.3, which is HDF5
        return _read_hdf5(path, is_matlab=True)
    content = {name: value for name, value in content.items() if not name.startswith("__")}
    return _with_texts(_scalars(content), lambda value: tuple("".join(np.ravel(cell)) for cell in np.ravel(value)))


def _write_hdf5(runs: Trajectories, path: Path) -> None:
    with _h5py(path).File(path, "w") as stream:
        for name, value in _content(runs).items():
            stream[name] = value


def _read_hdf5(path: Path, *, is_matlab: bool = False) -> dict[str, Any]:
    """MATLAB's v7.3 stores arrays with their axes reversed, and strings in a way that is not read here."""
    with _h5py(path).File(path, "r") as stream:
        content = {name: stream[name][()] for name in stream if hasattr(stream[name], "shape")}
    if is_matlab:
        return _scalars({name: value.T for name, value in content.items() if name not in _TEXTS})
    return _with_texts(_scalars(content), lambda value: tuple(text.decode() for text in np.atleast_1d(value)))


def _scalars(content: dict[str, Any]) -> dict[str, Any]:
    """Single values as scalars, and per-state values, which MATLAB turns into matrices, as vectors."""
    single = ("sampling_time", "has_residual_bound")
    found = {n: v.item() if n in single and np.size(v) == 1 else v for n, v in content.items()}
    if np.ndim(noise := found.get("initial_state_noise", 0.0)) > 1:
        found["initial_state_noise"] = np.ravel(noise)
    return found


def _h5py(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError(f"{path}: this format needs h5py (`pip install rkhs_control[h5py]`)") from None
    return h5py


_WRITERS: dict[str, Callable[[Trajectories, Path], None]] = {
    ".csv": _write_csv,
    ".npz": _write_npz,
    ".mat": _write_mat,
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
}
_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".npz": _read_npz,
    ".mat": _read_mat,
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
}
