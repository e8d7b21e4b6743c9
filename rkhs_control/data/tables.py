"""Tables of runs or plans: one row per instant, told apart by run, in the order of their steps or times.

They come from CSV files or from frames. What is wrong with one is an error that names the row, the column, and what to
do. A decimal is read as the double that is nearest to it, and how far that may be off can be asked for.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from math import isfinite, ulp
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import fraction_up
from ..errors import InputError
from .arrays import LARGEST, FloatArray, as_floats, positive
from .fields import nearest

COUNTERS = ("step", "sample")
"""Columns that count the rows of a run; any other clock holds seconds."""


def write_rows(path: Path, state_names: Sequence[str], input_names: Sequence[str], rows: Iterable[list[Any]]) -> None:
    """Floats are written by their `repr`, as csv does: they read back to the same bits."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["trajectory", "step", *state_names, *input_names])
        writer.writerows(rows)


class RunRow(NamedTuple):
    """What one row holds, as text, by column; `line` is how messages call it."""

    line: int
    cells: dict[str, str]


@dataclass(frozen=True)
class RunTable:
    """Rows by the name of their run: runs in the order of their first rows, rows by step or time."""

    source: str
    """Where they are from, for messages: the path of a file."""
    kind: str
    """What a run is called: the column that tells them apart."""
    runs: dict[str, list[RunRow]]
    sampling_time: float | None
    """Where there are times."""

    def numbers(self, rows: list[RunRow], columns: Sequence[str]) -> FloatArray:
        """The numbers of some rows, `(n_rows, n_columns)`."""
        names = [one_line(column) for column in columns]
        return np.array([[_number(self.source, row, name) for name in names] for row in rows])

    def rounding(self, column: str) -> Fraction:
        """How far numbers of a column may be from the decimals in the file.

        It is half a unit in the last place of the largest, or zero where every decimal is a double.
        """
        texts = [row.cells[one_line(column)] for rows in self.runs.values() for row in rows]
        if all(_is_double(text) for text in texts):
            return Fraction(0)
        return Fraction(ulp(max(abs(float(text)) for text in texts))) / 2


def bounds_of_decimals(bounds: npt.ArrayLike, name: str, roundings: Sequence[Fraction] | None = None) -> FloatArray:
    """Bounds on the errors of decimals, as bounds on those of the doubles that were read instead; rounded upwards.

    `roundings` are how far these are from the decimals, one per column. A bound is a decimal itself: it counts as what
    it is printed as, if that is more. What `Trajectories` would refuse is left as it is.
    """
    array = as_floats(bounds, name)
    is_fitting = roundings is None or array.ndim == 0 or array.shape[-1] == len(roundings)
    if not is_fitting or not ((array >= 0.0) & (array <= LARGEST)).all():
        return array
    errors = np.array(Fraction(0) if roundings is None else roundings, dtype=object)
    return np.asarray(np.frompyfunc(_sum_up, 2, 1)(array, errors), dtype=np.float64)


def _sum_up(bound: float, rounding: Fraction) -> float:
    return fraction_up(max(Fraction(bound), Fraction(repr(bound))) + rounding)


def _is_double(text: str) -> bool:
    """Whether a decimal that `float` reads is that number exactly."""
    try:
        return Decimal(text) == Decimal(float(text))
    except InvalidOperation:  # exponents beyond what decimals can have
        return False


def read_table(
    path: Path, wanted: Sequence[str], *, kinds: Sequence[str] = ("trajectory",), sampling_time: float | None = None
) -> RunTable:
    """The table in a CSV file."""
    records = list(_records(path))
    if not records:
        raise InputError(f"{path}: the file is empty")
    (header, columns), rows = records[0], records[1:]
    where = f"{path}, row {header}"
    return table_of(str(path), columns, rows, wanted, header=where, kinds=kinds, sampling_time=sampling_time)


def table_of(
    source: str,
    columns: Sequence[str],
    records: Iterable[tuple[int, Sequence[str]]],
    wanted: Sequence[str],
    *,
    header: str,
    kinds: Sequence[str] = ("trajectory",),
    clock: str | None = None,
    sampling_time: float | None = None,
) -> RunTable:
    """The table of some records, each a number and the text of its cells.

    Parameters
    ----------
    source, header : str
        Where the table, and the names of its columns, are from, for messages.
    columns : sequence of str
    records : iterable of (int, sequence of str)
    wanted : sequence of str
        Columns that will be read.
    kinds : sequence of str
        Columns that may tell runs apart, the first that there is counts; if there is none, all rows are of one run.
    clock : str, optional
        The column that orders the rows of a run: `step` or `sample` counts them, any other holds seconds. By default it
        is `time`, or else `step`, or else `sample`.
    sampling_time : float, optional
        By which times must be apart; by default the spacing of the first two.
    """
    columns = [one_line(column) for column in columns]
    kind = next((name for name in kinds if name in columns), kinds[0])
    clock = _clock(header, columns) if clock is None else one_line(clock)
    keys = [kind, clock] if kind in columns else [clock]
    _require_columns(header, columns, [*keys, *map(one_line, wanted)])
    runs = _runs(source, [RunRow(line, _cells(source, line, columns, cells)) for line, cells in records], kind, clock)
    spacing = _spacing(runs, clock, sampling_time)
    for name, run in runs.items():
        for before, after in pairwise(run):
            if abs(after - before - spacing) > spacing / 1000:
                raise InputError(
                    f"{source}, row {run[after].line}: {kind} {name} goes from {clock} {before} to {after} "
                    f"where a spacing of {spacing} is expected; "
                    f"at a gap, give the rows after it another name in the column {kind!r}"
                )
    in_order = {name: list(run.values()) for name, run in runs.items()}
    return RunTable(source, kind, in_order, None if clock in COUNTERS else float(spacing))


def _cells(source: str, line: int, columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(columns):
        raise InputError(
            f"{source}, row {line}: there are {len(cells)} cells for {len(columns)} columns; as many are needed"
        )
    return dict(zip(columns, map(one_line, cells), strict=True))


def _runs(source: str, rows: list[RunRow], kind: str, clock: str) -> dict[str, dict[Decimal, RunRow]]:
    """The rows of every run by their instants, in order."""
    runs: dict[str, dict[Decimal, RunRow]] = {}
    for row in rows:
        name, instant = row.cells.get(kind, "0"), _instant(source, row, clock)
        first = runs.setdefault(name, {}).setdefault(instant, row)
        if first is not row:
            raise InputError(
                f"{source}, row {row.line}: {clock} {instant} of {kind} {name} was already in row {first.line}; "
                f"remove one of them, or give the second run another name in the column {kind!r}"
            )
    if not runs:
        raise InputError(f"{source}: there are no rows below the header")
    return {name: dict(sorted(run.items())) for name, run in runs.items()}


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the line that it starts on."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: the file cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, row {line}: this is not UTF-8 text; save the file as CSV in UTF-8") from None
    header = text.lstrip().partition("\n")[0]
    for mark in ";\t":
        if mark in header and "," not in header:
            line = text[: text.index(header)].count("\n") + 1
            raise InputError(f"{path}, row {line}: the columns are separated by {mark!r}; commas are needed")
    line, reader = 1, csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, row {line}: this is not readable as CSV ({error})") from None


def _clock(header: str, columns: Sequence[str]) -> str:
    for name in ("time", *COUNTERS):
        if name in columns:
            return name
    raise InputError(f"{header}: a column 'step' or 'time' is needed; there is: {', '.join(columns)}")


def _require_columns(header: str, columns: list[str], wanted: list[str]) -> None:
    for name in wanted:
        if columns.count(name) > 1:
            raise InputError(f"{header}: {columns.count(name)} columns are called {name!r}; rename all but one")
        if name not in columns:
            near = nearest(name, (column for column in columns if column not in wanted))
            hint = f"; did you mean {near!r}?" if near else ""
            raise InputError(f"{header}: there is no column {name!r}; there is: {', '.join(columns)}{hint}")


def _spacing(runs: dict[str, dict[Decimal, RunRow]], clock: str, sampling_time: float | None) -> Decimal:
    """Of the instants: as given, or else that of the first two in the first run that has two."""
    if clock in COUNTERS:
        return Decimal(1)
    if sampling_time is not None:
        return _decimal(positive(sampling_time, "sampling_time"))
    return next((after - before for run in runs.values() for before, after in pairwise(run)), Decimal(1))


def _instant(source: str, row: RunRow, clock: str) -> Decimal:
    if clock not in COUNTERS:
        return _decimal(_number(source, row, clock))
    try:
        return Decimal(int(row.cells[clock]))
    except ValueError:
        where, text = f"{source}, row {row.line}, column {clock!r}", row.cells[clock]
        raise InputError(f"{where}: {text!r} is not a whole number; count the rows of a run, from 0 up") from None


def _decimal(value: float) -> Decimal:
    """As it is written: 100.3 - 100.2 is 0.1, and so is the sampling time."""
    return Decimal(repr(value))


def _number(source: str, row: RunRow, column: str) -> float:
    try:
        value = float(row.cells[column])
        if isfinite(value):
            return value
        problem = f"{row.cells[column]} is not finite"
    except ValueError:
        problem = f"{row.cells[column]!r} is not a number"
    raise InputError(
        f"{source}, row {row.line}, column {column!r}: {problem}; write a number there, or leave that row out"
    )


def one_line(text: str) -> str:
    """`text` without line breaks and with single spaces."""
    return " ".join(text.split())
