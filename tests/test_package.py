"""The package as a whole: quick to import, built in one direction, clean, and with documentation that runs."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rkhs_control
from rkhs_control import ROOMS
from rkhs_control.scenarios.example import write_example

ROOT = Path(__file__).resolve().parents[1]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numpy", "numba", "scipy", "casadi", "cvxpy"}
    loaded = run(sys.executable, "-c", "import sys, rkhs_control; print(*sys.modules)").stdout.split()
    assert "rkhs_control" in loaded
    assert not heavy & set(loaded)


def test_every_public_name_can_be_imported():
    for name in rkhs_control.__all__:
        assert getattr(rkhs_control, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rkhs_control.nonsense


def room_of(file):
    """Which of the rooms a source file belongs to."""
    parts = file.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "rkhs_control" else parts[0]


def imported_rooms(file):
    """Those that a source file imports from, wherever in it and only for types, too."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    package = list(parts[:-1]) if parts[0] == "rkhs_control" else ["rkhs_control", *parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            target = [*above, *(node.module or "").split(".")] if node.module else above
            names = [target[1]] if len(target) > 1 else [alias.name for alias in node.names]
            if target[:1] == ["rkhs_control"]:
                yield from (name for name in names if not name.startswith("__"))
        if isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("rkhs_control."))


def test_rooms_import_only_from_those_before_them():
    files = [f for folder in ("rkhs_control", "models", "scenarios") for f in (ROOT / folder).rglob("*.py")]
    for file in files:
        if file.parent == ROOT / "rkhs_control" and file.stem in ("__init__", "__main__"):
            continue
        for used in imported_rooms(file):
            assert ROOMS.index(used) <= ROOMS.index(room_of(file)), f"{file.relative_to(ROOT)} imports {used}"


def test_the_package_runs_as_a_module():
    assert run(sys.executable, "-m", "rkhs_control", "--version").stdout.strip() == rkhs_control.__version__


def test_every_room_says_what_it_is_for():
    for room in set(ROOMS) - {"models", "scenarios"}:
        assert importlib.import_module(f"rkhs_control.{room}").__doc__
    packages = {path.parent.name for path in (ROOT / "rkhs_control").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "rkhs_control").glob("*.py")} - {"__init__", "__main__"}
    assert packages | modules | {"models", "scenarios"} == set(ROOMS)


@pytest.mark.parametrize("command", [("ruff", "check", "."), ("ruff", "format", "--check", ".")], ids=" ".join)
def test_code_is_clean(command):
    result = run(sys.executable, "-m", *command)
    assert result.returncode == 0, result.stdout + result.stderr


def test_types_are_right(tmp_path):
    """As the package is installed, with models and scenarios inside it."""
    shutil.copytree(ROOT / "rkhs_control", tmp_path / "rkhs_control")
    for part in ("models", "scenarios"):
        shutil.copytree(ROOT / part, tmp_path / "rkhs_control" / part)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_readme_runs(tmp_path, monkeypatch):
    """The Python blocks of README.md, one after the other; those of docs/ run when it is built."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    write_example(tmp_path / "my_plant")
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "README.md", "exec"), {"__name__": "readme"})
