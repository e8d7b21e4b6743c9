"""Plants from outside the package: found beside the scenario, and refused in one line where something is wrong."""

import sys

import pytest

import rkhs_control as rc
from rkhs_control.models.cstr import CSTR
from rkhs_control.scenarios.plants import plant_named

PENDULUM = """
from dataclasses import dataclass
from typing import ClassVar

import rkhs_control as rc
from rkhs_control.models.plant import Plant


@dataclass(frozen=True)
class Pendulum(Plant):
    name: ClassVar = "pendulum"
    state_names: ClassVar = ("angle", "rate")
    state_units: ClassVar = ("rad", "rad/s")
    input_names: ClassVar = ("torque",)
    input_units: ClassVar = ("N m",)
    sampling_time: ClassVar = 0.1
    state_limits: ClassVar = rc.Box([-1.0, -3.0], [1.0, 3.0])
    input_limits: ClassVar = rc.Box([-2.0], [2.0])

    damping: float = 0.3

    def right_hand_side(self, x, u, xp):
        return [x[1], -9.81 * xp.sin(x[0]) - self.damping * x[1] + u[0]]


@dataclass(frozen=True)
class Weighted(Pendulum):
    mass: float = None

    def __init__(self, mass):
        object.__setattr__(self, "mass", mass)


class Nameless(Plant):
    def right_hand_side(self, x, u, xp):
        return [u[0]]


stiff = Pendulum(damping=2.0)
number = 3
"""
SCENARIO = """
title = "a pendulum of my own"

[plant]
name = "my_pendulum:Pendulum"
horizon = 2
exploration_runs = 60
runs = [6, 6]
noise = 0.01
noise_bound = 0.012

[predictor]
lengthscales = [5]
compare_closed_form = false

[limits]
states = { angle = [-1.0, 1.0], rate = [-3.0, 3.0] }
inputs = { torque = [-2.0, 2.0] }

[control]
state_weight = [1.0, 0.1]
input_weight = [0.1]
terminal_weight = [1.0, 0.1]
state_reference = [0.0, 0.0]
input_reference = [0.0]

[study]
initial_states = [[0.3, 0.0]]
check = 12

[closed_loop]
runs = 10
steps = 2
safe_input = [0.0]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A scenario with a plant beside it, away from the working directory; nothing of it stays imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my_pendulum.py").write_text(PENDULUM)
    (tmp_path / "mine" / "scenario.toml").write_text(SCENARIO)
    yield tmp_path / "mine"
    for name in ("my_pendulum", "broken_plant", "leaving_plant"):
        sys.modules.pop(name, None)


def test_a_scenario_runs_on_a_plant_of_ones_own_with_several_processes(run, folder):
    code, text = run("run", str(folder / "scenario.toml"), "--jobs", "2")
    assert code in (0, 2), text
    assert "24 of 24 true states in their boxes" in text
    assert "Closed loops on the true plant" in text


def test_a_plant_is_a_class_or_an_instance_beside_the_scenario_or_in_the_working_directory(
    folder, monkeypatch, tmp_path
):
    assert plant_named("my_pendulum:Pendulum", folder).damping == 0.3
    assert plant_named("my_pendulum:stiff", folder).damping == 2.0
    sys.modules.pop("my_pendulum")
    monkeypatch.chdir(folder)
    assert plant_named("my_pendulum:stiff", tmp_path).damping == 2.0
    assert plant_named("rkhs_control.models.cstr:CSTR", folder) == plant_named("cstr", folder) == CSTR()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Pendulum", r"module 'no_such_module' cannot be imported \(ModuleNotFoundError: No module"),
        ("broken_plant:Pendulum", r"module 'broken_plant' cannot be imported \(ZeroDivisionError: division by zero\)"),
        ("leaving_plant:Pendulum", r"module 'leaving_plant' cannot be imported \(SystemExit: 3\)"),
        ("my_pendulum:Pendulun", r"module 'my_pendulum' has no 'Pendulun' \(did you mean 'Pendulum'\?\)"),
        ("my_pendulum:number", "my_pendulum:number is not a rkhs_control.models.plant.Plant but a int"),
        ("my_pendulum:dataclass", "my_pendulum:dataclass is not a rkhs_control.models.plant.Plant but a function"),
        ("my_pendulum:Plant", "my_pendulum:Plant cannot be built without arguments"),
        ("my_pendulum:Weighted", r"my_pendulum:Weighted cannot be built without arguments \(.*'mass'\)"),
        ("my_pendulum:Nameless", "my_pendulum:Nameless has no state_names, which every plant needs"),
    ],
)
def test_what_is_no_plant_is_refused_in_one_line(folder, name, message):
    (folder / "broken_plant.py").write_text("1 / 0\n")
    (folder / "leaving_plant.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(rc.InputError, match=message) as refusal:
        plant_named(name, folder)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_module_that_another_file_was_imported_under_is_refused(folder, tmp_path):
    """Python would silently take the one that it has."""
    plant_named("my_pendulum:Pendulum", folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "my_pendulum.py").write_text(PENDULUM)
    with pytest.raises(rc.InputError, match=r"another module 'my_pendulum' is in use .*: rename .*other"):
        plant_named("my_pendulum:Pendulum", tmp_path / "other")


def test_looking_for_a_plant_lets_nothing_of_the_folder_hide_what_is_installed(folder):
    before = list(sys.path)
    plant_named("my_pendulum:Pendulum", folder)
    assert sys.path[: len(before)] == before


def test_a_name_that_is_no_plant_says_which_there_are(run, folder):
    code, text = run("run", str(folder / "scenario.toml"), "--set", "plant.name=cstt")
    assert code == 1
    assert "there is no plant 'cstt' (did you mean 'cstr'?)" in text
    assert "your own as my_module:MyPlant" in text
