"""The result of one of the paper's experiments: rows of printed and own numbers, figures, and remarks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...reporting.figures import save_figure


@dataclass(frozen=True)
class Comparison:
    """One number of the paper beside ours."""

    what: str
    ours: float
    printed: float | None = None
    """None where the paper prints no number."""
    agrees: bool = True
    """Whether ours is as it should be: the printed number, or different for the reason in the remark."""
    remark: str = ""
    """One line on why ours differs; empty where it does not."""


@dataclass(frozen=True, eq=False)
class PaperResult:
    """One of the paper's experiments, repeated."""

    title: str
    rows: list[Comparison]
    figures: dict[str, Any] = field(default_factory=dict)
    """matplotlib figures, by file name."""
    remarks: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    """Further numbers for the JSON file."""

    @property
    def agrees(self) -> bool:
        """Whether every number agrees with the printed one."""
        return all(row.agrees for row in self.rows)

    def write(self, folder: Path) -> None:
        """The numbers as JSON, the figures as PNG and SVG."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "title": self.title,
            "rows": [asdict(row) for row in self.rows],
            "remarks": self.remarks,
            **self.numbers,
        }
        (folder / "summary.json").write_text(json.dumps(content, indent=1) + "\n")
        for name, figure in self.figures.items():
            save_figure(figure, folder, name)
