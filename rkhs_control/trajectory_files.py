"""Trajectories in files: CSV in long form, NPZ, MAT (v5, and v7.3 through HDF5) and HDF5, told apart by their ending.

CSV holds what was recorded and nothing else: a row an instant with the columns `trajectory`, `step`, the states and the
inputs, which are empty at the last step of a run. The other formats hold every field of `Trajectories`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError
from .trajectories import Trajectories
from .validation import FloatArray

_FIELDS = [field.name for field in fields(Trajectories)]
_TEXTS = [name for name in _FIELDS if name.endswith(("_names", "_units"))]


def save_trajectories(runs: Trajectories, file: str | Path) -> None:
    """Write a file in the format of its ending."""
    path = Path(file)
    _format_of(path, _WRITERS)(runs, path)


def load_trajectories(
    file: str | Path,
    *,
    state_names: Sequence[str] = (),
    input_names: Sequence[str] = (),
    horizon: int | None = None,
    **overrides: Any,
) -> Trajectories:
    """Read a file in the format of its ending.

    A CSV file needs `state_names` and `input_names`, the columns to read, and `noise_bound`; `horizon` cuts its runs
    into windows of so many steps. `overrides` replace fields of `Trajectories` (a noise bound, units) in any format.
    """
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if path.suffix.lower() == ".csv":
        if not state_names or not input_names or "noise_bound" not in overrides:
            raise InputError(f"{path}: a CSV file needs state_names, input_names and noise_bound to be read")
        recordings = _read_csv(path, list(state_names), list(input_names))
        named = {"state_names": tuple(state_names), "input_names": tuple(input_names), **overrides}
        return _assemble(path, recordings, horizon, named)
    content = _format_of(path, _READERS)(path)
    missing = [name for name in ("states", "inputs", "noise_bound") if name not in content and name not in overrides]
    if missing:
        raise InputError(f"{path}: there is no {missing[0]!r} in it; there is: {', '.join(sorted(content))}")
    known = {name: value for name, value in content.items() if name in _FIELDS}
    try:
        return Trajectories(**{**known, **overrides})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _format_of(path: Path, formats: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    if path.suffix.lower() not in formats:
        raise InputError(f"{path}: the ending must be one of {', '.join(sorted(formats))}")
    return formats[path.suffix.lower()]


# ---- CSV


def _write_csv(runs: Trajectories, path: Path) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["trajectory", "step", *runs.state_names, *runs.input_names])
        for number in range(len(runs)):
            for step in range(runs.horizon + 1):
                held = runs.inputs[number, step].tolist() if step < runs.horizon else [""] * runs.n_inputs
                writer.writerow([number, step, *runs.states[number, step].tolist(), *held])


def _read_csv(path: Path, state_names: list[str], input_names: list[str]) -> list[tuple[FloatArray, FloatArray]]:
    """The runs of a file, in the order of their first rows; each sorted by step."""
    with path.open(newline="") as stream:
        reader = csv.DictReader(stream)
        columns = reader.fieldnames or []
        for column in ["trajectory", "step", *state_names, *input_names]:
            if column not in columns:
                raise InputError(f"{path}: there is no column {column!r}; there is: {', '.join(columns)}")
        runs: dict[str, dict[int, tuple[int, dict[str, str]]]] = {}
        for line, row in enumerate(reader, start=2):
            run = runs.setdefault(str(row["trajectory"]), {})
            step = _step(path, line, row["step"])
            if step in run:
                raise InputError(
                    f"{path}, row {line}: step {step} of trajectory {row['trajectory']} "
                    f"was already in row {run[step][0]}"
                )
            run[step] = line, row
    if not runs:
        raise InputError(f"{path}: there are no rows below the header")
    return [_run(path, name, rows, state_names, input_names) for name, rows in runs.items()]


def _run(
    path: Path,
    name: str,
    rows: dict[int, tuple[int, dict[str, str]]],
    state_names: list[str],
    input_names: list[str],
) -> tuple[FloatArray, FloatArray]:
    steps = sorted(rows)
    for before, after in pairwise(steps):
        if after != before + 1:
            raise InputError(f"{path}, row {rows[after][0]}: trajectory {name} goes from step {before} to {after}")
    if len(steps) < 2:
        raise InputError(f"{path}, row {rows[steps[0]][0]}: trajectory {name} has one step only")
    states = [[_number(path, *rows[step], column) for column in state_names] for step in steps]
    inputs = [[_number(path, *rows[step], column) for column in input_names] for step in steps[:-1]]
    return np.array(states), np.array(inputs)


def _step(path: Path, line: int, text: str) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise InputError(f"{path}, row {line}, column 'step': {text!r} is not a whole number") from None


def _number(path: Path, line: int, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        raise InputError(f"{path}, row {line}, column {column!r}: {row[column]!r} is not a number") from None
    if not np.isfinite(value):
        raise InputError(f"{path}, row {line}, column {column!r}: {row[column]} is not finite; leave that run out")
    return value


def _assemble(
    path: Path, recordings: list[tuple[FloatArray, FloatArray]], horizon: int | None, named: dict[str, Any]
) -> Trajectories:
    lengths = sorted({len(inputs) for _, inputs in recordings})
    if horizon is None and len(lengths) > 1:
        raise InputError(f"{path}: runs have from {lengths[0]} to {lengths[-1]} steps; give a horizon to cut windows")
    try:
        return Trajectories.from_recordings(recordings, horizon or lengths[0], **named)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


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
    try:
        with np.load(path, allow_pickle=False) as arrays:
            content = dict(arrays)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable NPZ file ({error})") from None
    return _with_texts(_scalars(content), lambda value: tuple(str(text) for text in np.atleast_1d(value)))


def _write_mat(runs: Trajectories, path: Path) -> None:
    from scipy.io import savemat

    content = _content(runs)
    savemat(path, {n: np.array(v, dtype=object) if n in _TEXTS else v for n, v in content.items()}, do_compression=True)


def _read_mat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path)
    except NotImplementedError:  # what scipy says of v7.3, which is HDF5
        return _read_hdf5(path, is_matlab=True)
    except (OSError, ValueError, MatReadError) as error:
        raise InputError(f"{path}: not a readable MAT file ({error})") from None
    content = {name: value for name, value in content.items() if not name.startswith("__")}
    return _with_texts(_scalars(content), lambda value: tuple("".join(np.ravel(cell)) for cell in np.ravel(value)))


def _write_hdf5(runs: Trajectories, path: Path) -> None:
    with _h5py(path).File(path, "w") as stream:
        for name, value in _content(runs).items():
            stream[name] = value


def _read_hdf5(path: Path, *, is_matlab: bool = False) -> dict[str, Any]:
    """MATLAB's v7.3 stores arrays with their axes reversed, and texts in a way that is not read here."""
    try:
        with _h5py(path).File(path, "r") as stream:
            content = {name: stream[name][()] for name in stream if hasattr(stream[name], "shape")}
    except OSError as error:
        raise InputError(f"{path}: not a readable HDF5 file ({error})") from None
    if is_matlab:
        return _scalars({name: value.T for name, value in content.items() if name not in _TEXTS})
    return _with_texts(_scalars(content), lambda value: tuple(text.decode() for text in np.atleast_1d(value)))


def _scalars(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value.item() if name == "sampling_time" else value for name, value in content.items()}


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
