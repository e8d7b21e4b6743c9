"""Scenarios: one TOML file that states the data, assumptions, limits and plans.

    title = "my reactor"

    [data]                               # your recordings, or [plant] to simulate one of `rkhs_control.models`
    file = "runs.csv"
    states = ["c_A", "c_B"]
    inputs = ["u"]
    noise_bound = 0.06

    [limits]
    states = { c_A = [1.0, 3.0], c_B = [0.5, 2.0] }
    inputs = { u = [3.0, 25.0] }

Every section is a class below, or in a module of `studies`; every key is one of its fields.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from ..assumptions.nominal import NormEstimate
from ..data.arrays import FloatArray
from ..data.limits import Limits, PlacedLimits, require_names
from ..data.sets import Box
from ..errors import InputError
from ..kernels.families import FAMILIES
from ..models import PLANTS
from .studies import kinds

GENERAL = "study"
"""The section that every scenario has, even if it is not in the file; several kinds of studies share it."""


def _interval(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] <= ends[1]:
        raise ValueError("the lower end must not exceed the upper")
    return ends


def _known_plant(name: str) -> str:
    if name not in PLANTS and not re.fullmatch(r"[\w.]+:\w+", name):
        raise ValueError(
            f"there is no plant {name!r}{_suggestion(name, list(PLANTS))}; there is {', '.join(PLANTS)}, or "
            ""
            "your own as my_module:MyPlant"
        )
    return name


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
ByState = NonNegative | list[NonNegative] | dict[str, NonNegative]
Interval = Annotated[tuple[float, float], AfterValidator(_interval)]
Weight = list[Finite] | list[list[Finite]]
"""The diagonal of a matrix, or the full matrix."""


class Settings(BaseModel):
    """A table in the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


AnySettings = TypeVar("AnySettings", bound=Settings)


class PlantData(Settings):
    """Record runs of a simulated plant: some with random inputs to learn from, then the controller's plans."""

    name: Annotated[str, AfterValidator(_known_plant)]
    """A plant in `rkhs_control.models`; or `my_module:MyPlant`, your own plant in a module in the scenario's folder or
    the working directory."""
    horizon: Count = 8
    exploration_runs: Count = 400
    """Runs with random initial states and inputs, which determine kernels, norm bounds and the controller's models."""
    runs: Count | list[Count] = 800
    """Runs of the controller's plans: a number of evenly spread initial states, or grid points per state."""
    initial_states: dict[str, Interval] = {}
    """Where runs start; states not named here start within their limits."""
    inset: Annotated[float, Field(ge=0, lt=0.5)] = 0.08
    """How far inside that range the initial states of the controller's plans stay, as a share of the range."""
    keep_exploration: bool = False
    """Also build boxes from the runs with random inputs: only inputs that were tried can be planned robustly."""
    noise: ByState
    """Noise on the recorded states, drawn uniformly up to this bound."""
    noise_bound: ByState
    """The noise bound that is assumed."""
    initial_state_noise: ByState = 0.0
    """The same for the initial states of runs, drawn uniformly up to this bound: zero where these are known."""


class FileData(Settings):
    """Recorded runs in a file: CSV in long form, NPZ, MAT or HDF5."""

    file: Path
    """Relative to the scenario; `$NAME` in it stands for an environment variable."""
    states: list[str] = []
    """Columns of the states, or of the recorded outputs; required for CSV files."""
    inputs: list[str] = []
    horizon: Count | None = None
    """Long recordings are cut into windows of this many steps."""
    stride: Count = 1
    """Steps between the starts of successive windows."""
    output_lags: Count = 1
    """Windows begin with a history: this many outputs, including the present one,"""
    input_lags: Annotated[int, Field(ge=0)] = 0
    """and this many past inputs."""
    every: Count = 1
    """Samples per step; inputs are averaged over a step."""
    noise_bound: ByState | None = None
    """One for all states, or one per state; files other than CSV carry their own."""
    disturbance_bound: ByState | None = None
    """How far unknown disturbances of the plant can move a state; unlike noise, they also act while a plan runs."""
    initial_state_noise: ByState | None = None
    """How far the recorded initial states may be from the true ones: by default zero for whole runs, and the noise
    bound for windows, which begin with measured states."""
    state_units: list[str] = []
    input_units: list[str] = []
    sampling_time: Positive | None = None

    @model_validator(mode="after")
    def _windows_need_a_horizon(self) -> FileData:
        if self.horizon is None and self.stride != 1:
            raise ValueError("stride is the distance between windows, and needs horizon, which cuts them")
        for key, usual in (("output_lags", 1), ("input_lags", 0), ("every", 1)):
            if self.horizon is None and getattr(self, key) != usual:
                raise ValueError(f"{key} says how windows are cut, and needs horizon, which cuts them")
        return self


class PredictorSettings(Settings):
    """What is assumed about the plant, and how it is chosen."""

    kernel: Literal[tuple(FAMILIES)] = "squared_exponential"  # type: ignore[valid-type]
    lengthscales: list[Positive | list[Positive]] | None = None
    """Candidates; by default multiples of the spread of each coordinate."""
    per_dimension: bool = False
    """Refine the best candidate to one lengthscale per coordinate."""
    prior: Literal["choose", "none", "constant", "affine"] = "choose"
    """Whether kernels and norm bounds describe the plant itself, or what the mean of the runs, or an affine fit to
    them, leaves. If not given, it is chosen by the width of boxes on held-out blocks; where lengthscales or norm bounds
    are given, there is no prior."""
    arguments: Literal["choose", "uncertain", "measured"] = "choose"
    """How uncertain histories of windows are treated: within their noise, or as measured, with an estimated bound."""
    regularisations: list[Positive] = [1e-4, 1e-3, 1e-2, 1e-1]
    folds: Annotated[int, Field(ge=2)] = 5
    norm_estimate: NormEstimate = "least_norm"
    safety_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3.0
    norm_bound: Positive | dict[str, Positive] | None = None
    """Replaces the estimate: one for all states, or one per state."""
    selection_runs: Annotated[int, Field(ge=2)] = 400
    """Maximum number of recorded runs used to choose kernels and norm bounds; all runs test the choice."""
    selection_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Maximum share of the runs used for that: with 1.0, only held-out runs are a test."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the recorded runs that is held out to test the boxes:"""
    held_out_part: Literal["random", "end"] = "random"
    """at random, windows in blocks; or the last windows of every recording, as if the log had continued."""
    compare_closed_form: bool = False
    """Also show the closed form of Proposition 3, for comparison with the optimal bounds."""
    closed_form_nugget: NonNegative = 1e-5
    """Added to its kernel matrix, as the authors do; without it, the bounds are wider still."""
    compare_affine_prior: bool = False
    """Also show the optimal bounds with an affine prior, with norm bounds estimated for it."""

    @model_validator(mode="after")
    def _is_a_comparison(self) -> PredictorSettings:
        if self.compare_affine_prior and self.prior == "affine":
            raise ValueError(
                "compare_affine_prior shows what an affine prior would change, but prior is already affine"
            )
        return self


@dataclass(frozen=True, eq=False)
class BoxLimits(PlacedLimits):
    """The limits of a scenario as boxes, infinite where there is no limit."""

    states: Box
    inputs: Box
    rates: Box


class LimitSettings(Settings):
    """Intervals by name; anything not named has no limit, and `inf` means no limit too."""

    states: dict[str, Interval] = {}
    inputs: dict[str, Interval] = {}
    input_rates: dict[str, Interval] = {}

    def over(self, state_names: tuple[str, ...], input_names: tuple[str, ...]) -> BoxLimits:
        """The limits in the order of all states and inputs."""
        placed = Limits(states=self.states, inputs=self.inputs, rates=self.input_rates).over(state_names, input_names)
        return BoxLimits(**vars(placed))


class ControlProblem(Settings):
    """The certainty-equivalent controller: a quadratic cost on kernel-ridge predictions."""

    state_weight: Weight
    input_weight: Weight
    terminal_weight: Weight
    state_reference: list[Finite]
    input_reference: list[Finite]


class Scenario(Settings):
    """A whole file except the sections of studies, which `scenario_class` adds."""

    title: str
    description: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    run_seconds: Positive | None = None
    """Rough measured time of `rkhs-control run` on two cores, as shown by `rkhs-control list`."""
    plant: PlantData | None = None
    data: FileData | None = None
    predictor: PredictorSettings = PredictorSettings()
    limits: LimitSettings
    control: ControlProblem | None = None
    plan: Path | None = None
    """A CSV file with plans to certify, relative to the scenario."""
    initial_state_noise: ByState | None = None
    """How far the true initial state of a plan, or the outputs in its history, may be from the stated ones; by default
    as far as recorded ones."""

    @model_validator(mode="after")
    def _complete(self) -> Scenario:
        if (self.plant is None) == (self.data is None):
            raise ValueError("give either [plant], to simulate one, or [data], with recorded runs")
        if self.plant is not None and self.control is None:
            raise ValueError("[plant] needs [control]: its runs are recorded under that controller")
        for kind in kinds():
            settings = self.settings(kind.settings)
            if settings is not None and (complaint := kind.complaint(settings, self)):
                raise ValueError(complaint)
        return self

    def settings(self, wanted: type[AnySettings]) -> AnySettings | None:
        """The section of this class."""
        return next((section for section in vars(self).values() if isinstance(section, wanted)), None)


@cache
def scenario_class() -> type[Scenario]:
    """`Scenario` with the sections of all kinds of studies; a section shared by several kinds has all their keys."""
    by_section: dict[str, list[type[Settings]]] = {}
    for kind in kinds():
        by_section.setdefault(kind.section, []).append(kind.settings)
    fields: dict[str, Any] = {}
    for name, parts in by_section.items():
        # Last kind first: its settings may build on those of an earlier kind.
        section = parts[0] if len(parts) == 1 else create_model(f"{name}_section", __base__=tuple(reversed(parts)))
        fields[name] = (section, section()) if name == GENERAL else (section | None, None)
    return create_model("Scenario", __base__=Scenario, **fields)


def builtin_scenarios() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    folder = Path(str(resources.files(__package__)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_scenario(
    name_or_file: str, changes: dict[str, Any] | None = None, other_names: Iterable[str] = ()
) -> tuple[Scenario, Path]:
    """Load a scenario by name or file, and return it with the folder that its paths are relative to.

    `changes` replace keys before anything is checked, by dotted names: `{"limits.states.c_B": [0.6, 2.0]}`. An unknown
    name may be a typo for one of `other_names`.
    """
    builtin = builtin_scenarios()
    path = builtin.get(name_or_file, Path(name_or_file))
    if not path.is_file():
        known = [*builtin, *other_names]
        near = _suggestion(name_or_file.lower(), known)
        raise InputError(f"there is no scenario {name_or_file!r}{near}: give a TOML file or one of {', '.join(known)}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not a readable TOML file ({error})") from None
    for dotted, value in (changes or {}).items():
        *sections, key = dotted.split(".")
        table = content
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise InputError(f"{dotted}: {section} is not a section of {path}")
        table[key] = value
    try:
        return scenario_class().model_validate(content), path.parent
    except ValidationError as error:
        raise InputError(f"{path}: {_first_problem(error)}") from None


def by_name(given: ByState | dict[str, Any], names: tuple[str, ...], what: str) -> float | FloatArray:
    """A number for all, or an array with one entry per name, however it was given."""
    if isinstance(given, float | int):
        return float(given)
    if isinstance(given, dict):
        require_names(given, names, what)
        missing = [name for name in names if name not in given]
        if missing:
            raise InputError(f"{what} has no value for {missing[0]!r}; it needs {', '.join(names)}")
        return np.array([given[name] for name in names])
    if len(given) != len(names):
        raise InputError(f"{what} must be a number or {len(names)} of them ({', '.join(names)}); got {len(given)}")
    return np.array(given)


def state_pair(given: Sequence[str], names: tuple[str, ...], what: str) -> tuple[int, int]:
    """The indices of two different states."""
    for name in given:
        if name not in names:
            raise InputError(f"{what} names {name!r}, but there is only {', '.join(names)}")
    if given[0] == given[1]:
        raise InputError(f"{what} must name two different states; got {given[0]!r} twice")
    return names.index(given[0]), names.index(given[1])


def weight_matrix(given: Weight, size: int, what: str) -> FloatArray:
    """A matrix, given by its diagonal or in full."""
    array = np.array(given, dtype=np.float64) if len({np.size(row) for row in given}) == 1 else np.empty(0)
    matrix = np.diag(array) if array.ndim == 1 else array
    if matrix.shape != (size, size):
        raise InputError(f"{what} must be {size} numbers, or {size} rows of {size}; got {given}")
    if (np.linalg.eigvalsh(matrix + matrix.T) < -1e-9 * np.abs(matrix).max(initial=0.0)).any():
        raise InputError(f"{what} must not be negative in any direction; got {given}")
    return matrix


def _suggestion(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _first_problem(error: ValidationError) -> str:
    """One line about the first error."""
    problem = error.errors()[0]
    place = [str(part) for part in problem["loc"] if not _is_branch_of_union(part)]
    if problem["type"] == "extra_forbidden":
        section = _section_at(place[:-1])
        known = list(section.model_fields)
        where = f"section [{'.'.join(place[:-1])}]" if place[:-1] else "the file"
        near = _suggestion(place[-1], known)
        return f"{where} has no key {place[-1]!r}{near}; it has {', '.join(known)}"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    message = re.sub(r"input should be a valid dictionary or instance of \w+", "must be a section with keys", message)
    if not place:
        return message
    if problem["type"] == "missing":
        return f"{'.'.join(place)} is missing"
    got = "" if isinstance(problem["input"], dict) else f"; got {problem['input']!r}"
    return f"{'.'.join(place)}: {message.replace('constrained-float', 'number')}{got}"


def _is_branch_of_union(part: Any) -> bool:
    """Pydantic names the type that it tried last, which means nothing to the file's author."""
    return isinstance(part, str) and ("[" in part or part in ("float", "int"))


def _section_at(place: list[str]) -> type[Settings]:
    section: type[Settings] = scenario_class()
    for name in place:
        annotation = section.model_fields[name].annotation
        choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        section = next(c for c in choices if isinstance(c, type) and issubclass(c, Settings))
    return section
