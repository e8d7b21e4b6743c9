"""The package as a whole: quick to import, built in one direction, clean, and with documentation that runs."""

import ast
import functools
import importlib
import inspect
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import rkhs_control
from rkhs_control import ROOMS
from rkhs_control.scenarios.example import write_example

ROOT = Path(__file__).resolve().parents[1]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"numpy", "numba", "scipy", "casadi", "cvxpy", "flint", "do_mpc", "matplotlib", "pandas", "joblib"}
    loaded = run(sys.executable, "-c", "import sys, rkhs_control; print(*sys.modules)").stdout.split()
    assert "rkhs_control" in loaded
    assert not heavy & set(loaded)


def test_importing_the_package_adds_no_module_but_its_own():
    """A count and no seconds: what is quick on one machine is not on another."""
    script = "import sys; before = set(sys.modules); import rkhs_control; print(*sorted(set(sys.modules) - before))"
    assert run(sys.executable, "-c", script).stdout.split() == ["rkhs_control"]


@pytest.mark.parametrize("missing", ["flint", "do_mpc", "matplotlib", "pandas", "h5py", "distributed"])
def test_certifying_does_not_need(missing):
    """What only some rooms use may be absent, or broken, as long as nobody enters them."""
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import rkhs_control as rc, numpy as np\n"
        "assert all(hasattr(rc, name) for name, home in rc._HOMES.items() if home != '.checker')\n"
        "runs = rc.Trajectories(np.random.default_rng(1).normal(size=(4, 3, 1)), np.ones((4, 2, 1)), 9.0)\n"
        "kernel = rc.SquaredExponential(1.0)\n"
        "predictor = rc.MultiStepPredictor(runs, kernel, 10.0)\n"
        "print(rc.certify(predictor, [0.0], np.ones((2, 1)), state_limits=rc.Box([-99.0], [99.0])).verdict.name)"
    )
    result = run(sys.executable, "-c", script)
    assert result.stdout.strip() == "CERTIFIED", result.stderr


def test_every_public_name_can_be_imported():
    for name in rkhs_control.__all__:
        assert getattr(rkhs_control, name) is not None
    assert set(rkhs_control.__all__) <= set(dir(rkhs_control))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rkhs_control.nonsense


def test_stub_and_package_have_the_same_names():
    """The stub is all that type checkers see, and the package reads only lines of one form."""
    body = ast.parse((ROOT / "rkhs_control" / "__init__.pyi").read_text()).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    assert all(node.level == 1 and len(node.names) == 1 for node in imports)
    assert all(alias.name == alias.asname for node in imports for alias in node.names)
    names = [node.names[0].name for node in imports]
    assert names == list(dict.fromkeys(names)), "a public name stands in the stub twice"
    assert sorted(names) == sorted(set(rkhs_control.__all__) - {"__version__"})
    others = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    assert others == {"ROOMS", "__all__", "__version__"}


def test_public_names_come_from_the_modules_that_define_them():
    for name, home in rkhs_control._HOMES.items():
        value = getattr(rkhs_control, name)
        assert value.__module__.startswith(f"rkhs_control{home}"), f"{name} is from {value.__module__}"


def test_the_version_stands_in_one_place():
    assert f'__version__ = "{rkhs_control.__version__}"' in (ROOT / "rkhs_control" / "__init__.py").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]


def test_the_workflow_runs_the_test_command_of_the_readme():
    command = re.search(r"^ +(python3 -m venv .* -m pytest)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)[1]
    assert f"- run: {command}\n" in (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert f"    {command}\n" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_changelog_has_this_version():
    assert f"\n## {rkhs_control.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_folder_with_code_is_in_the_wheel():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {init.parent.relative_to(ROOT) for init in ROOT.glob("*/**/__init__.py") if init.parts[-3] != "tests"}
    ours = {folder for folder in folders if folder.parts[0] in ("rkhs_control", "models", "scenarios")}
    named = {".".join(("rkhs_control", *parts[parts[0] == "rkhs_control" :])) for parts in (f.parts for f in ours)}
    assert named == set(setup["packages"])
    assert "py.typed" in setup["package-data"]["rkhs_control"]
    assert "__init__.pyi" in setup["package-data"]["rkhs_control"]


# ---- rooms


def source_files():
    """Of the package, except the two at its top that open all rooms."""
    files = [f for folder in ("rkhs_control", "models", "scenarios") for f in (ROOT / folder).rglob("*.py")]
    return [f for f in files if f.parent != ROOT / "rkhs_control" or f.stem not in ("__init__", "__main__")]


def module_of(file):
    """The name that a source file is imported by, without that of the package: `data.arrays`."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    parts = parts[1:] if parts[0] == "rkhs_control" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in source_files()}


def imported(file):
    """Modules of ours that a source file imports, at any depth of it, for types only and by public names, too."""
    package = ["rkhs_control", *module_of(file).split(".")]
    package = package if file.stem == "__init__" else package[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "rkhs_control" or alias.name.startswith("rkhs_control."):
                    yield alias.name.partition(".")[2]
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            target = [*above, *((node.module or "").split(".") if node.module else [])]
            if target[:1] == ["rkhs_control"]:
                for alias in node.names:
                    yield resolved(".".join(target[1:]), alias.name)


def resolved(module, name):
    """The module that `from module import name` gets: one of that name, the home of a public one, or `module`."""
    whole = f"{module}.{name}".lstrip(".")
    if whole in MODULES:
        return whole
    return module or rkhs_control._HOMES.get(name, "").removeprefix(".")


GRAPH = {module: {used for used in imported(file) if used} for module, file in MODULES.items()}


def test_one_file_alone_goes_through_the_front_door():
    """`import rkhs_control` opens every room, later ones, too: only shortcuts like `certificate.explore()` may."""
    through = {
        module
        for module, file in MODULES.items()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import) and any(alias.name == "rkhs_control" for alias in node.names)
    }
    assert through == {"certificates.shortcuts"}


def test_the_import_test_sees_every_depth_and_types():
    assert "data.sets" in GRAPH["models.cstr"]
    assert "data.frames" in GRAPH["data.trajectories"], "an import within a function"
    assert any(module.startswith("scenarios.paper.") for module in GRAPH)
    assert resolved("", "Box") == "data.sets"
    assert resolved("", "__version__") == ""
    assert set().union(*GRAPH.values()) <= set(GRAPH)


def test_rooms_import_only_from_those_before_them():
    for module, used in GRAPH.items():
        for other in used:
            mine, theirs = module.split(".")[0], other.split(".")[0]
            assert ROOMS.index(theirs) <= ROOMS.index(mine), f"{module} imports {other}"


def test_the_checker_uses_nothing_of_the_rest():
    assert not GRAPH["checker"]
    assert all("rkhs_control" not in line for line in MODULES["checker"].read_text().splitlines() if "import " in line)


BASE = {"errors", "arithmetic.rounding", "data.arrays", "data.sets", "data.limits", "data.trajectories"}
BASE |= {"kernels.base", "certificates.certificate"}  # an interface, and the result that everything shows
BASE |= {
    "parallel",
    "scenarios.material",
    "reporting.figures",
}  # processes, studies, figures
"""Modules that any other may use."""


def test_no_module_but_base_ones_has_many_users():
    users = Counter(used for module, others in GRAPH.items() for used in others - {module})
    assert {module: n for module, n in users.items() if n > 25 and module not in BASE} == {}


def test_files_are_short():
    lines = {module: len(file.read_text().splitlines()) for module, file in MODULES.items() if module != "checker"}
    assert {module: n for module, n in lines.items() if n >= 400} == {}


def test_the_package_runs_as_a_module():
    assert run(sys.executable, "-m", "rkhs_control", "--version").stdout.strip() == rkhs_control.__version__


def test_every_room_says_what_it_is_for():
    for room in set(ROOMS) - {"models", "scenarios"}:
        assert importlib.import_module(f"rkhs_control.{room}").__doc__
    packages = {path.parent.name for path in (ROOT / "rkhs_control").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "rkhs_control").glob("*.py")} - {"__init__", "__main__"}
    assert packages | modules | {"models", "scenarios"} == set(ROOMS)


def public_methods(kind):
    """Those that a class defines itself, and properties, by name."""
    functions = (property, functools.cached_property, classmethod, staticmethod)
    for name, value in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, functions)):
            yield name


def test_every_public_method_is_explained_where_it_first_appears():
    """What implements a method of a base class needs no docstring of its own, which ruff cannot see."""
    missing = []
    for name in MODULES:
        module = importlib.import_module(f"rkhs_control.{name}")
        kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
        for kind in (kind for kind in kinds if not kind.__name__.startswith("_")):
            missing += [f"{name}.{kind.__name__}.{m}" for m in public_methods(kind) if not explained(kind, m)]
    assert not missing, "\n".join(missing)


def explained(kind, method):
    return any(getattr(vars(base).get(method), "__doc__", None) for base in kind.__mro__)


def test_documented_parameters_begin_lines_and_are_those_of_the_signature():
    wrong = []
    for name in MODULES:
        module = importlib.import_module(f"rkhs_control.{name}")
        things = [thing for thing in vars(module).values() if getattr(thing, "__module__", None) == module.__name__]
        for thing in (thing for thing in things if inspect.isfunction(thing) or inspect.isclass(thing)):
            section = (inspect.getdoc(thing) or "").partition("Parameters\n----------\n")[2].splitlines()
            parameters = set(inspect.signature(thing).parameters) if section else set()
            for line in section:
                for match in re.finditer(r"(\w+(?:, \w+)*) : ", line):
                    names = set(match[1].split(", "))
                    begins, known = match.start() == 0, parameters & names
                    if (begins and names - parameters) or (known and not begins):
                        wrong.append(f"{name}.{thing.__name__}: {line}")
    assert not wrong, "\n".join(wrong)


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


def test_the_description_of_the_package_has_no_link_that_leads_nowhere():
    """Where a package is shown there is no repository around it."""
    described = runpy.run_path(str(ROOT / "setup.py"))["long_description"]((ROOT / "README.md").read_text())
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", described) if not link.startswith("https://")]
    assert "cstr_phase.png" not in described
    assert "docs/assumptions.md" not in described
    for part in ("# rkhs_control\n", "How to choose them honestly", "import rkhs_control as rc", "## Measured"):
        assert part in described


def test_the_readme_runs(tmp_path, monkeypatch):
    """The Python blocks of README.md, one after the other; those of docs/ run when it is built."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    write_example(tmp_path / "my_plant")
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "README.md", "exec"), {"__name__": "readme"})
