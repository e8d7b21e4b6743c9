"""Recorded runs of a scenario: where their file is, how they are read, and which of them are held out."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.files import load_trajectories
from ..data.splits import last_part
from ..data.trajectories import Trajectories
from ..errors import FalsifiedNormBoundError, InputError
from ..prediction.predictor import MultiStepPredictor
from ..prediction.tube import Tube
from .schema import FileData, PredictorSettings, by_name

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


def data_file(settings: FileData, folder: Path) -> Path:
    """The data file of a scenario in this folder; `$NAME` in it stands for an environment variable.

    A file whose name really contains a dollar sign is found as it is.
    """
    given = str(settings.file)
    if (folder / given).exists():
        return folder / given

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not os.environ.get(name):
            raise InputError(
                f"data.file: {given} needs the environment variable {name}, which is not set: set it, or give the file "
                f"itself, --set data.file=/path/to/{Path(given).name}"
            )
        return os.environ[name]

    return folder / Path(_VARIABLE.sub(value, given)).expanduser()


def load_recordings(settings: FileData, file: Path) -> Trajectories:
    """The runs in a file, whole or cut into windows."""
    names = tuple(settings.states)
    given: dict[str, Any] = {
        "state_units": tuple(settings.state_units) or None,
        "input_units": tuple(settings.input_units) or None,
        "sampling_time": settings.sampling_time,
        "horizon": settings.horizon,
        "stride": settings.stride,
    }
    if settings.horizon is not None:
        given |= {name: getattr(settings, name) for name in ("output_lags", "input_lags", "every")}
    for key in ("noise_bound", "disturbance_bound", "initial_state_noise"):
        bound = getattr(settings, key)
        if isinstance(bound, dict) and not names:
            raise InputError(f"data.{key} by name needs data.states")
        given[key] = None if bound is None else by_name(bound, names, f"data.{key}")
    return load_trajectories(file, state_names=names, input_names=tuple(settings.inputs), **given)


def hold_out(
    runs: Trajectories, settings: PredictorSettings, rng: np.random.Generator
) -> tuple[Trajectories, Trajectories | None]:
    """The runs that are kept, and those held out to test the boxes; none if that is less than half a run."""
    if round(settings.held_out * len(runs)) < 1:
        return runs, None
    try:
        if settings.held_out_part == "random":
            return runs.held_out(settings.held_out, rng)
        kept, held = last_part(settings.held_out, runs.origins, runs.horizon + runs.shape.lead)
    except InputError as error:
        raise InputError(f"predictor.held_out: {error}") from None
    return runs.subset(kept), runs.subset(held)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Runs that played no part in the assumptions, and how they compare with their boxes."""

    runs: Trajectories
    tube: Tube
    contradicted: npt.NDArray[np.bool_]
    """Where a recorded state, within its noise, misses its box, `(n_runs, n_steps, n_states)`."""

    @classmethod
    def tested(cls, runs: Trajectories, predictor: MultiStepPredictor, n_jobs: int) -> HeldOut:
        """Test runs against the boxes of a predictor."""
        tube = predictor.boxes_of(runs, n_jobs)
        return cls(runs, tube, tube.contradicted_by(runs))

    @property
    def n_contradicting(self) -> int:
        """Number of runs that contradict a box anywhere."""
        return int(self.contradicted.any(axis=(1, 2)).sum())

    @property
    def contradiction(self) -> str:
        """How many runs contradict their boxes, and where the first does; empty if none does."""
        if not self.contradicted.any():
            return ""
        run, n, i = (int(index) for index in np.argwhere(self.contradicted)[0])
        return (
            f"{self.n_contradicting} of {len(self.runs)} held-out {self.runs.kind} contradict their boxes, the first "
            f"at step {n + 1} in {self.runs.state_names[i]}, where {self.runs.states[run, n + 1, i]:.6g} was recorded"
        )

    def require_no_contradiction(self) -> None:
        """Refuse assumptions that these runs refute."""
        if self.contradiction:
            raise FalsifiedNormBoundError(
                f"{self.contradiction}: raise safety_factor or norm_bound, or noise_bound or disturbance_bound if "
                f"these are too small{self.runs.caveat}"
            )
