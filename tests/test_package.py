"""The package as a whole: quick to import, built in one direction, clean, and with documentation that runs."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rkhs_control.scenarios.example import write_example

ROOT = Path(__file__).resolve().parents[1]
ORDER = [
    "verify",
    "errors",
    "validation",
    "sets",
    "trajectories",
    "csv_tables",
    "trajectory_files",
    "observations",
    "double_double",
    "kernels",
    "functionals",
    "active_set",
    "path",
    "gram",
    "witness",
    "precise_least_norm",
    "least_norm",
    "norms",
    "consistency",
    "regression",
    "envelope",
    "selection",
    "optimise",
    "predictor",
    "predictor_files",
    "certificate_format",
    "certifier",
    "experiments",
    "control",
    "figures",
    "report",
    "models",
    "scenarios",
    "bench",
    "leaderboard",
    "soundness",
    "console",
    "cli",
]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numpy", "numba", "scipy", "casadi", "cvxpy"}
    loaded = run(sys.executable, "-c", "import sys, rkhs_control; print(*sys.modules)").stdout.split()
    assert "rkhs_control" in loaded
    assert not heavy & set(loaded)


def test_every_public_name_can_be_imported():
    import rkhs_control

    for name in rkhs_control.__all__:
        assert getattr(rkhs_control, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rkhs_control.nonsense


def module_of(file):
    """Which of ORDER a source file belongs to."""
    parts = file.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "rkhs_control" else parts[0]


def imported_modules(file):
    """Those of ORDER that a source file imports from, wherever in it."""
    depth = len(file.relative_to(ROOT).parts) - (1 if file.is_relative_to(ROOT / "rkhs_control") else 0)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            yield from (name for name in names if name in ORDER)


def test_modules_import_only_from_those_before_them():
    files = [f for folder in ("rkhs_control", "models", "scenarios") for f in (ROOT / folder).rglob("*.py")]
    for file in files:
        if file == ROOT / "rkhs_control" / "__init__.py":
            continue
        for used in imported_modules(file):
            assert ORDER.index(used) < ORDER.index(module_of(file)), f"{file.name} imports {used}"


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
