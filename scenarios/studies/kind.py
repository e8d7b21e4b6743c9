"""What a kind of study is, and what comes out of one: numbers for a file, tables, sections of a report, figures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...certificates.certificate import Verdict
from ...reporting import Section
from ..material import Material, Source, Work
from ..schema import Scenario, Settings


@dataclass(frozen=True, eq=False)
class Task:
    """What a study is run with."""

    scenario: Scenario
    material: Material
    work: Work


@dataclass(frozen=True)
class Listing:
    """A table for the terminal; a verdict in a cell is shown in its colour."""

    header: Sequence[str]
    groups: Sequence[Sequence[Sequence[str | Verdict]]]
    """Rows, with a line between one group of them and the next."""
    title: str
    caption: str = ""
    whole: frozenset[int] = frozenset()
    """Columns whose cells stay on one line, however narrow the terminal is."""
    is_numeric: bool = False
    """Whether all columns but the first hold numbers, to be aligned as such."""


@dataclass(frozen=True, eq=False)
class Outcome(ABC):
    """What a study found, and all that is told of it; whatever a kind has nothing to say about stays empty."""

    task: Task

    name: ClassVar[str]
    """The key of its numbers in `summary.json`."""

    @abstractmethod
    def summary(self) -> Any:
        """All numbers, as JSON knows them."""

    @property
    @abstractmethod
    def is_contradicted(self) -> bool:
        """Whether some truth is outside its box, or a verdict is wrong: then an assumption is."""

    @property
    def contradiction(self) -> str:
        """That in a sentence, if so."""
        return "A true state lies outside its box, or a verdict is wrong." if self.is_contradicted else ""

    @property
    def verdicts(self) -> list[Verdict]:
        """Those that the exit code tells the worst of."""
        return []

    def listings(self) -> Iterable[Listing]:
        """Tables for the terminal."""
        return ()

    def remarks(self) -> Iterable[str]:
        """What else the terminal shows, one line each."""
        return ()

    def finding(self) -> str:
        """What a report without plans says first, in a sentence."""
        return ""

    def sections(self) -> Iterable[Section]:
        """Of the report."""
        return ()

    def figures(self) -> dict[str, Any]:
        """By file name."""
        return {}

    def write(self, folder: Path) -> None:
        """Files other than figures."""
        return


Run = Callable[[Task], Outcome]


@dataclass(frozen=True)
class Kind:
    """One kind of study."""

    section: str
    """Of the scenario file, where its settings are; kinds may share one."""
    settings: type[Settings]
    prepare: Callable[[Any, Scenario, Source], Run | None]
    """From its settings: refuses, before any work, what cannot be done, and returns what does it; none where the
    scenario does not ask."""
    complaint: Callable[[Any, Scenario], str]
    """What it needs that is not in the other sections, if anything; from its settings."""
    files: tuple[str, ...] = ()
    """Patterns of the names of all files that it writes: those of an earlier run go."""
    tells_contradictions: bool = False
    """Whether it tells of held-out runs that contradict their boxes; without such a study they end the work."""


def finite(value: float) -> float | None:
    """As JSON knows it: what is infinite is null."""
    return value if math.isfinite(value) else None


def seconds_text(value: float) -> str:
    """A time that something took."""
    return f"{value:.2f} s" if value >= 0.1 else f"{1e3 * value:.3g} ms"
