"""How logs write columns, numbers and times: separators, decimal commas, ISO dates. Ambiguities are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from ..errors import InputError

_NUMBER = re.compile(r"[+-]?[0-9]*([.,])[0-9]*(?:[eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?P<minute>\d\d:\d\d)(?P<second>:\d\d(?:[.,](?P<fraction>\d{1,9}))?)? ?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


class RunRow(NamedTuple):
    """The text of one row, by column; `line` is its number in messages."""

    line: int
    cells: dict[str, str]


class IsoTime(NamedTuple):
    """A date and time: seconds since the year 1, and whether an offset from UTC was given."""

    seconds: Decimal
    has_zone: bool


def separator_of(text: str) -> str:
    """The column separator, from the header: a comma if there is one, otherwise a semicolon, otherwise a tab."""
    header = re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0]
    return next((mark for mark in ",;\t" if mark in header), ",")


def with_points(source: str, rows: Sequence[RunRow], columns: Sequence[str]) -> list[RunRow]:
    """The rows, with points in place of decimal commas.

    Commas count as decimal if some number shows it: `1,234` alone could be over a thousand. A mix with decimal points
    is refused: one of the two marks would mean something else.
    """
    if not any("," in row.cells[column] for row in rows for column in columns):
        return list(rows)
    found = [
        (number[1], row, column)
        for row in rows
        for column in columns
        if (number := _NUMBER.fullmatch(row.cells[column])) is not None
    ]
    commas = [(row, column) for mark, row, column in found if mark == ","]
    if not commas:  # words with commas
        return list(rows)
    row, column = commas[0]
    text = row.cells[column]
    for mark, other, place in found:
        if mark == ".":
            raise InputError(
                f"{source}, row {other.line}, column {place!r}: {other.cells[place]!r} has a point, but {text!r} in "
                f"row {row.line} a comma; write all numbers with points, or all with decimal commas"
            )
    if all(_THOUSANDS.fullmatch(other.cells[place]) for other, place in commas):
        raise InputError(
            f"{source}, row {row.line}, column {column!r}: {text!r} could be {text.replace(',', '.')} or "
            f"{text.replace(',', '')}, and no other number in the file tells which; write numbers with points"
        )
    changed: dict[int, dict[str, str]] = {}
    for other, place in commas:
        changed.setdefault(other.line, dict(other.cells))[place] = other.cells[place].replace(",", ".")
    return [RunRow(other.line, changed.get(other.line, other.cells)) for other in rows]


def iso_time(text: str) -> IsoTime | None:
    """`2024-05-01T12:00:03.5`, also with a blank for the T, without a time, or with `Z` or an offset; else None."""
    parts = _ISO.fullmatch(text)
    if parts is None:
        return None
    try:
        moment = datetime.fromisoformat(
            f"{parts['date']}T{parts['minute'] or '00:00'}{(parts['second'] or '')[:3]}{parts['zone'] or ''}"
        )
    except ValueError:
        return None
    offset = moment.utcoffset()
    since = moment.replace(tzinfo=None) - datetime(1, 1, 1)
    whole = since.days * 86400 + since.seconds - (0 if offset is None else round(offset.total_seconds()))
    return IsoTime(Decimal(f"{whole}.{parts['fraction'] or 0}"), offset is not None)


def iso_instants(source: str, rows: Sequence[RunRow], column: str) -> list[Decimal] | None:
    """Seconds since the first row if that has an ISO time, which all rows must then have; None otherwise."""
    first = iso_time(rows[0].cells[column]) if rows else None
    if first is None:
        return None
    instants = []
    for row in rows:
        time = iso_time(row.cells[column])
        where, text = f"{source}, row {row.line}, column {column!r}", row.cells[column]
        if time is None:
            raise InputError(
                f"{where}: {text!r} is no date and time such as {rows[0].cells[column]!r} in the first row"
            )
        if time.has_zone != first.has_zone:
            one, other = ("an", "none") if time.has_zone else ("no", "one")
            raise InputError(
                f"{where}: {text!r} says {one} offset from UTC, but the first row {other}; write all times in UTC"
            )
        instants.append(time.seconds - first.seconds)
    return instants
