"""What a kind of study is, and what it produces: numbers for a file, tables, report sections, figures."""

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
    """Everything that a study is run with."""

    scenario: Scenario
    material: Material
    work: Work


@dataclass(frozen=True)
class Listing:
    """A table for the terminal; verdicts in cells are coloured."""

    header: Sequence[str]
    groups: Sequence[Sequence[Sequence[str | Verdict]]]
    """Groups of rows, separated by lines."""
    title: str
    caption: str = ""
    whole: frozenset[int] = frozenset()
    """Columns whose cells stay on one line, however narrow the terminal."""
    is_numeric: bool = False
    """Whether all columns but the first hold numbers, and are aligned accordingly."""


@dataclass(frozen=True, eq=False)
class Outcome(ABC):
    """What a study found, and everything reported about it; parts that a kind does not use stay empty."""

    task: Task

    name: ClassVar[str]
    """The key of its numbers in `summary.json`."""

    @abstractmethod
    def summary(self) -> Any:
        """All numbers, in JSON types."""

    @property
    @abstractmethod
    def is_contradicted(self) -> bool:
        """Whether some true state is outside its box, or a verdict is wrong: then an assumption is wrong."""

    @property
    def contradiction(self) -> str:
        """The contradiction in a sentence, if there is one."""
        return "A true state is outside its box, or a verdict is wrong." if self.is_contradicted else ""

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts; the worst one sets the exit code."""
        return []

    def listings(self) -> Iterable[Listing]:
        """Tables for the terminal."""
        return ()

    def remarks(self) -> Iterable[str]:
        """Further lines for the terminal."""
        return ()

    def finding(self) -> str:
        """The opening sentence of a report without plans."""
        return ""

    def sections(self) -> Iterable[Section]:
        """Sections of the report."""
        return ()

    def figures(self) -> dict[str, Any]:
        """Figures by file name."""
        return {}

    def write(self, folder: Path) -> None:
        """Files other than figures."""
        return


Run = Callable[[Task], Outcome]


@dataclass(frozen=True)
class Kind:
    """One kind of study."""

    section: str
    """Section of the scenario file with its settings; kinds may share one."""
    settings: type[Settings]
    prepare: Callable[[Any, Scenario, Source], Run | None]
    """From its settings: refuses what cannot be done before any work starts, and returns the function that runs the
    study; None where the scenario does not ask for it."""
    complaint: Callable[[Any, Scenario], str]
    """From its settings: what is missing in the other sections, if anything."""
    files: tuple[str, ...] = ()
    """Name patterns of all files that it writes: those of an earlier run are removed."""
    tells_contradictions: bool = False
    """Whether it reports held-out runs that contradict their boxes; without such a study they stop the run."""


def finite(value: float) -> float | None:
    """In JSON types: infinite values become null."""
    return value if math.isfinite(value) else None


def seconds_text(value: float) -> str:
    """A duration as text."""
    return f"{value:.2f} s" if value >= 0.1 else f"{1e3 * value:.3g} ms"
