"""The parts of docs/architecture.md that are generated from the code: the rooms in order, and the file tree.

    python docs/tree.py

writes them again. A test compares, so that the page stays true.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rkhs_control import ROOMS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
OUTSIDE = ("models", "scenarios")
"""Rooms in their own folder beside the package, into which they are installed."""


def path_of(room: str) -> Path:
    """The file or folder of a room."""
    folder = (ROOT if room in OUTSIDE else ROOT / "rkhs_control") / room
    return folder if folder.is_dir() else folder.with_suffix(".py")


def first_line(file: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def rooms() -> str:
    """The rooms in their order."""
    return ", ".join(f"`{room}`" for room in ROOMS)


def tree() -> str:
    """Every file in the order of the rooms, one line each."""
    lines = ["```text"]
    for room in ROOMS:
        lines += _branch(path_of(room))
    return "\n".join([*lines, "```"])


def _branch(path: Path, depth: int = 0) -> list[str]:
    name = path.name if depth else path.relative_to(ROOT).as_posix()
    if path.is_file():
        return [_row(name, first_line(path), depth)]
    lines = [_row(f"{name}/", first_line(path / "__init__.py"), depth)]
    for file in sorted(path.glob("*.py")):
        if file.name != "__init__.py":
            lines += _branch(file, depth + 1)
    for folder in sorted(init.parent for init in path.glob("*/__init__.py")):
        lines += _branch(folder, depth + 1)
    return lines


def _row(name: str, line: str, depth: int) -> str:
    return f"{'  ' * depth + name:<30}{line}".rstrip()


def filled(page: str) -> str:
    """The page with its generated parts brought up to date."""
    for part, text in (("rooms", rooms()), ("tree", tree())):
        pattern = rf"(<!-- {part}: begin -->\n).*?(\n<!-- {part}: end -->)"
        page, found = re.subn(pattern, lambda ends, text=text: ends[1] + text + ends[2], page, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"{PAGE.name} must have one part {part!r}; it has {found}")
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
