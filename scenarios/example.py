"""A first scenario with data of one's own: what `rkhs-control example` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..data.files import save_plans, save_trajectories
from ..data.plans import Plans
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..models.cstr import CSTR

_N_RUNS, _N_STEPS, _NOISE = 240, 5, 0.05

_SCENARIO = """\
title = "A reactor, from recorded runs"

[data]
file = "runs.csv"               # columns: trajectory, step (or time), the states, the inputs
states = ["c_A", "c_B"]
inputs = ["u"]
noise_bound = 0.06              # the recorded states are within this of the true ones
# initial_state_noise = 0.0     # if the first state of a run is measured with noise, say so
# horizon = 3                   # cuts long recordings into windows; they begin with states measured within noise_bound
# stride = 1                    # how many steps apart these begin

[limits]
states = { c_A = [1.0, 3.0], c_B = [0.5, 2.0] }
inputs = { u = [3.0, 25.0] }
# input_rates = { u = [-5.0, 5.0] }

# All keys have a default. These are the ones that matter for what is assumed:
[predictor]
safety_factor = 3.0             # on the norm that the runs show
held_out = 0.1                  # share of the runs that tests the boxes
"""


def write_example(folder: Path, seed: int = 0) -> None:
    """Write `scenario.toml`, `runs.csv` and `plan.csv` into a folder that does not hold them yet."""
    files = {name: folder / name for name in ("scenario.toml", "runs.csv", "plan.csv")}
    for file in files.values():
        if file.exists():
            raise InputError(f"{file} is already there; choose another folder")
    plant, rng = CSTR(), np.random.default_rng(seed)
    x0 = rng.uniform([1.1, 0.55], [2.9, 1.9], (_N_RUNS, plant.n_states))
    inputs = _inputs(x0, rng)
    states = plant.simulate(x0, inputs)
    states[:, 1:] += rng.uniform(-_NOISE, _NOISE, states[:, 1:].shape)
    start = np.array([[2.7, 0.6]])
    folder.mkdir(parents=True, exist_ok=True)
    files["scenario.toml"].write_text(_SCENARIO)
    runs = Trajectories(states, inputs, np.array(0.06), plant.state_names, plant.input_names)
    save_trajectories(runs, files["runs.csv"])
    plan = Plans(("1",), (start[0],), (_inputs(start, rng)[0],), plant.state_names, plant.input_names)
    save_plans(plan, files["plan.csv"])


def _inputs(x0: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What an operator might do: towards the reference, by feel."""
    wanted = CSTR.reference_input - 5.0 * (x0[:, :1] - CSTR.reference[0]) + rng.normal(0.0, 1.5, (len(x0), _N_STEPS))
    return CSTR.input_limits.clip(np.round(wanted, 2)[..., None])
