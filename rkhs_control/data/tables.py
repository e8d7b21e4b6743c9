"""Tables of runs or plans: one row per instant, grouped by run, in the order of their steps or times.

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
from statistics import median_low
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import fraction_up
from ..errors import InputError
from .arrays import LARGEST, FloatArray, as_floats, positive
from .fields import nearest
from .notation import RunRow, iso_instants, iso_time, separator_of, with_points

_Runs = dict[str, dict[Decimal, RunRow]]
"""The rows of every run by their instants."""

COUNTERS = ("step", "sample")
"""Columns that count the rows of a run; any other clock holds seconds."""


def write_rows(path: Path, state_names: Sequence[str], input_names: Sequence[str], rows: Iterable[list[Any]]) -> None:
    """Floats are written by their `repr`, as csv does: they read back to the same bits."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["trajectory", "step", *state_names, *input_names])
        writer.writerows(rows)


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
    note: str = ""
    """What was assumed in reading it, if anything."""

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
    """The table in a CSV file; one that tells neither instants nor runs is one run, in the order of its rows."""
    records = list(_records(path))
    if not records:
        raise InputError(f"{path}: the file is empty")
    (header, columns), rows = records[0], records[1:]
    where, named = f"{path}, row {header}", set(map(one_line, columns))
    if not named & {*kinds, "time", *COUNTERS}:
        return _in_row_order(str(path), columns, rows, wanted, header=where, kind=kinds[0])
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
        The column that orders the rows of a run: `step` or `sample` counts them, any other holds seconds or ISO dates.
        By default it is `time`, or else `step`, or else `sample`.
    sampling_time : float, optional
        By which times must be apart; by default the spacing of the first two.
    """
    columns = [one_line(column) for column in columns]
    kind = next((name for name in kinds if name in columns), kinds[0])
    clock = _clock(header, columns) if clock is None else one_line(clock)
    keys = [kind, clock] if kind in columns else [clock]
    _require_columns(header, columns, [*keys, *map(one_line, wanted)])
    rows = [RunRow(line, _cells(source, line, columns, cells)) for line, cells in records]
    rows = with_points(source, rows, [*map(one_line, wanted), *([] if clock in COUNTERS else [clock])])
    runs = _runs(source, rows, kind, clock)
    spacing = _spacing(runs, clock, sampling_time)
    for name, run in runs.items():
        for before, after in pairwise(run):
            if abs(after - before - spacing) > spacing / 1000:
                ends = [_said(run[instant], clock, instant) for instant in (before, after)]
                raise InputError(
                    f"{source}, row {run[after].line}: {kind} {name} goes from {clock} {ends[0]} to {ends[1]} "
                    f"where a spacing of {spacing} is expected; {_cure(runs, spacing, after - before, kind, clock)}"
                )
    in_order = {name: list(run.values()) for name, run in runs.items()}
    return RunTable(source, kind, in_order, None if clock in COUNTERS else float(spacing))


def _cure(runs: _Runs, spacing: Decimal, found: Decimal, kind: str, clock: str) -> str:
    """What to do about instants that are not evenly spaced: at a gap, or where a clock jitters."""
    if clock in COUNTERS or 2 * abs(found - spacing) >= spacing:
        return f"at a gap, give the rows after it another name in the column {kind!r}"
    pairs = [(after - before, run[after].line) for run in runs.values() for before, after in pairwise(run)]
    jitters = [(abs(apart - spacing) / spacing, line) for apart, line in pairs if 2 * abs(apart - spacing) < spacing]
    worst, line = max(jitters)
    here, there = (f"{float(100 * share):.2g} %" for share in (abs(found - spacing) / spacing, worst))
    return (
        f"that is a jitter of {here}, and the largest is {there} in row {line}: resample the recording at "
        "even times, or, if the plant was sampled evenly and only the clock was "
        f"read late, put a column 'step' (0, 1, 2, ...) in the place of {clock!r} and give sampling_time"
    )


def _in_row_order(
    source: str,
    columns: Sequence[str],
    records: Sequence[tuple[int, Sequence[str]]],
    wanted: Sequence[str],
    *,
    header: str,
    kind: str,
) -> RunTable:
    """All rows as one run, unless a column that nobody reads looks like a clock with gaps."""
    columns, wanted = [one_line(column) for column in columns], [one_line(column) for column in wanted]
    _require_columns(header, columns, wanted)
    rows = [RunRow(line, _cells(source, line, columns, cells)) for line, cells in records]
    if not rows:
        raise InputError(f"{source}: there are no rows below the header")
    for place, column in enumerate(columns):
        if column not in wanted and (line := _first_gap([one_line(cells[place]) for _, cells in records])) is not None:
            raise InputError(
                f"{source}, row {rows[line].line}: there is no column 'step' or 'time', and {column!r} grows from row "
                "to row, but unevenly here: call it 'time' if it is a clock, or else add a column 'step'"
            )
    note = f"{source}: without a column 'time' or 'step' the rows count as one run, evenly sampled, in their order"
    for place, column in enumerate(columns):
        if column not in wanted and _is_clock([one_line(cells[place]) for _, cells in records]):
            note += f"; {column!r} grows evenly from row to row: if it is a clock, call it 'time'"
    return RunTable(source, kind, {"0": with_points(source, rows, wanted)}, None, note)


def _first_gap(texts: Sequence[str]) -> int | None:
    """Where instants, if these are any, are not evenly spaced: numbers or dates that grow, or mostly by the same."""
    steps = _steps(texts)
    if not steps:
        return None
    usual = median_low(steps)
    is_even = [abs(step - usual) <= abs(usual) / 1000 for step in steps]
    if usual <= 0 or (min(steps) <= 0 and 2 * sum(is_even) < len(steps)) or all(is_even):
        return None
    return is_even.index(False) + 1


def _is_clock(texts: Sequence[str]) -> bool:
    """Whether they may be instants that are evenly spaced."""
    steps = _steps(texts)
    return bool(steps) and min(steps) > 0 and _first_gap(texts) is None


def _steps(texts: Sequence[str]) -> list[Decimal]:
    """From each number or date to the next; none where some are neither."""
    try:
        instants = [
            _decimal(float(text.replace(",", "."))) if (t := iso_time(text)) is None else t.seconds for text in texts
        ]
    except ValueError:
        return []
    if not all(map(Decimal.is_finite, instants)):
        return []
    return [after - before for before, after in pairwise(instants)]


def _cells(source: str, line: int, columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(columns):
        hint = " (numbers with decimal commas need semicolons between the columns)" if len(cells) > len(columns) else ""
        raise InputError(
            f"{source}, row {line}: there are {len(cells)} cells for {len(columns)} columns; as many are needed{hint}"
        )
    return dict(zip(columns, map(one_line, cells), strict=True))


def _runs(source: str, rows: list[RunRow], kind: str, clock: str) -> _Runs:
    """The rows of every run by their instants, in order."""
    runs: _Runs = {}
    for row, instant in zip(rows, _instants(source, rows, clock), strict=True):
        name = row.cells.get(kind, "0")
        first = runs.setdefault(name, {}).setdefault(instant, row)
        if first is not row:
            raise InputError(
                f"{source}, row {row.line}: {clock} {_said(row, clock, instant)} of {kind} {name} was already in row "
                f"{first.line}; "
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
    line, reader = 1, csv.reader(io.StringIO(text, newline=""), delimiter=separator_of(text), strict=True)
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


def _spacing(runs: _Runs, clock: str, sampling_time: float | None) -> Decimal:
    """Of the instants: as given, or else that of the first two in the first run that has two."""
    if clock in COUNTERS:
        return Decimal(1)
    if sampling_time is not None:
        return _decimal(positive(sampling_time, "sampling_time"))
    return next((after - before for run in runs.values() for before, after in pairwise(run)), Decimal(1))


def _instants(source: str, rows: list[RunRow], clock: str) -> list[Decimal]:
    if clock in COUNTERS:
        return [_count(source, row, clock) for row in rows]
    dates = iso_instants(source, rows, clock)
    return [_decimal(_number(source, row, clock, _TIME)) for row in rows] if dates is None else dates


def _said(row: RunRow, clock: str, instant: Decimal) -> str:
    """An instant as people write it."""
    return str(instant) if iso_time(row.cells[clock]) is None else row.cells[clock]


def _count(source: str, row: RunRow, clock: str) -> Decimal:
    try:
        return Decimal(int(row.cells[clock]))
    except ValueError:
        where, text = f"{source}, row {row.line}, column {clock!r}", row.cells[clock]
        raise InputError(f"{where}: {text!r} is not a whole number; count the rows of a run, from 0 up") from None


def _decimal(value: float) -> Decimal:
    """As it is written: 100.3 - 100.2 is 0.1, and so is the sampling time."""
    return Decimal(repr(value))


_TIME = "number of seconds, nor a date such as 2024-05-01T12:00:03.5"


def _number(source: str, row: RunRow, column: str, wanted: str = "number") -> float:
    try:
        value = float(row.cells[column])
        if isfinite(value):
            return value
        problem = f"{row.cells[column]} is not finite"
    except ValueError:
        problem = f"{row.cells[column]!r} is not a {wanted}"
    raise InputError(
        f"{source}, row {row.line}, column {column!r}: {problem}; write a number there, or leave that row out"
    )


def one_line(text: str) -> str:
    """`text` without line breaks and with single spaces."""
    return " ".join(text.split())
