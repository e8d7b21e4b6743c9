"""Pages: sections of paragraphs, tables and pictures as one HTML file that needs nothing else.

Pictures are part of the file and nothing is fetched, so that a page can be mailed, archived and printed. All text is
escaped.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from .figures import DPI, settle_layout, without_missing_glyphs
from .palette import dark_style
from .text import marked_up, printable

_LARGEST_SVG = 400_000  # bytes; above this, a picture of dots may be much smaller
_WIDE = 700  # CSS pixels; wider pictures have several panels, and would not be legible if a phone shrank them
_COLUMNS = 10  # of steps in a table
_NUMBER = re.compile(r"–|[-+−≥]?\s?[\d,.]+(e[-+]?\d+)?( ?[%×])?( of [\d,]+)?")


@dataclass(frozen=True)
class Cell:
    """A table cell, with a tone: certified, undecided, refuted, or none."""

    text: str
    tone: str = ""
    strength: float | None = None
    """Shades the whole cell, from 0 to 1; without it the text is a badge."""
    is_marked: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of texts or cells; columns of numbers are aligned as numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    kind: ClassVar[str] = "table"

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, with every text as a cell."""
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows]

    @property
    def is_numeric(self) -> list[bool]:
        """Per column: whether it has nothing but numbers."""
        columns = [[row[i].text for row in self.cells if row[i].text] for i in range(len(self.header))]
        return [bool(column) and all(_NUMBER.fullmatch(text) for text in column) for column in columns]


def tables_by_step(
    corner: str, steps: Sequence[str], rows: Sequence[Sequence[str | Cell]], caption: str = ""
) -> list[Table]:
    """One column per step, in as many tables as are needed to fit each on a sheet of paper."""
    n_tables = -(-len(steps) // _COLUMNS)
    ends = [1 + round(i * len(steps) / n_tables) for i in range(n_tables + 1)]
    return [
        Table((corner, *steps[a - 1 : b - 1]), [(row[0], *row[a:b]) for row in rows], "" if a > 1 else caption)
        for a, b in pairwise(ends)
    ]


@dataclass(frozen=True, eq=False)
class Picture:
    """A matplotlib figure, its alternative text, and a caption."""

    figure: Any
    description: str
    caption: str = ""

    @property
    def source(self) -> str:
        """The figure itself, as a data URL; a drawing follows the reader's dark mode."""
        drawing = self._as("svg", metadata={"Date": None}, dpi=DPI)
        drawing = drawing.replace(b"</style>", f" {dark_style()}</style>".encode(), 1)
        if len(drawing) > _LARGEST_SVG:
            dots = self._as("png", dpi=DPI)
            if 2 * len(dots) < len(drawing):
                return "data:image/png;base64," + base64.b64encode(dots).decode()
        return "data:image/svg+xml;base64," + base64.b64encode(drawing).decode()

    @property
    def size(self) -> tuple[int, int]:
        """In CSS pixels."""
        width, height = self.figure.get_size_inches()
        return round(96 * width), round(96 * height)

    @property
    def is_wide(self) -> bool:
        """Whether it scrolls on a small screen rather than shrinks."""
        return self.size[0] > _WIDE

    def _as(self, ending: str, **settings: Any) -> bytes:
        from matplotlib import rc_context

        buffer = io.BytesIO()
        with rc_context({"svg.hashsalt": "rkhs_control"}), without_missing_glyphs():  # the same figure, the same bytes
            settle_layout(self.figure)
            self.figure.savefig(buffer, format=ending, **settings)
        return buffer.getvalue()


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side where there is room."""

    pictures: Sequence[Picture]
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Commands:
    """Lines to type."""

    lines: Sequence[str]
    kind: ClassVar[str] = "commands"


Block = str | Table | Gallery | Commands
"""A text is a paragraph."""


@dataclass(frozen=True)
class Section:
    """A title and the blocks below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Headline:
    """What a reader sees first: a word in its tone, a sentence, its meaning, and a few labelled numbers."""

    word: str
    tone: str
    sentence: str
    paragraphs: Sequence[str] = ()
    numbers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Page:
    """A headline and sections."""

    title: str
    headline: Headline
    sections: Sequence[Section]
    description: str = ""
    warnings: Sequence[str] = field(default=())
    footer: str = ""
    date: str = ""
    symbols: Sequence[str] = ()
    """Names like c_A, whose last part is typeset as an index."""
    explorer: str = ""
    """The file beside this one in which limits can be moved, if there is one."""

    def html(self) -> str:
        """One file, with styles and figures inside."""
        return rendered("report.html.j2", self.symbols, page=self)

    def write(self, file: str | Path) -> None:
        """`html` to a file, in UTF-8."""
        Path(file).write_text(self.html(), encoding="utf-8")


def rendered(template: str, symbols: Sequence[str] = (), **values: Any) -> str:
    """A template with these values in it, escaped; names among `symbols` can be set with an index."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("rkhs_control.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # not what is escaped already
    )
    environment.filters["typeset"] = lambda text: Markup(marked_up(text, symbols))
    return environment.get_template(template).render(**values)
