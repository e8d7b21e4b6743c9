"""The pictures of the gallery on the first page, taken from the notebooks and pages as they were executed last.

    sphinx-build docs build/docs && python docs/thumbnails.py build/jupyter_execute

writes them to docs/_static/thumbnails/: of a notebook what the cell with the tag `thumbnail` drew, of a page its first
picture. Run it again when these have changed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "_static" / "thumbnails"


def wanted() -> list[str]:
    """The notebooks and pages in the gallery, by the links of its pictures."""
    return re.findall(r"\]\(_static/thumbnails/\w+\.svg\)\]\(([\w/]+)\.md\)", (DOCS / "index.md").read_text())


def pictures(cells: list[dict[str, Any]]) -> Iterator[str]:
    """What some cells drew."""
    for cell in cells:
        for output in cell.get("outputs", []):
            if "image/svg+xml" in output.get("data", {}):
                yield "".join(output["data"]["image/svg+xml"])


def thumbnail(executed: Path) -> str:
    """The picture that stands for an executed notebook, with its paths rounded and without the date of its making."""
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    tagged = [cell for cell in cells if "thumbnail" in cell["metadata"].get("tags", [])]
    picture = next(pictures(tagged or cells))
    picture = re.sub(r"\s*<metadata>.*?</metadata>", "", picture, flags=re.DOTALL)
    picture = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(?<=\d\.\d\d)\d+", "", path[0]), picture)
    return re.sub(r"[ \t]+\n", "\n", picture)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for page in wanted():
        text = thumbnail(Path(sys.argv[1]) / f"{page}.ipynb")
        (FOLDER / f"{Path(page).name}.svg").write_text(text, encoding="utf-8")
