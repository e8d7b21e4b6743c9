"""A first scenario with your own data: what `rkhs-control example` writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from ..data.arrays import FloatArray
from ..data.files import save_plans, save_trajectories
from ..data.plans import Plans
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..models.cstr import CSTR
from .example_texts import LONG_RECORDING, RECORDED_RUNS, WITH_DO_MPC

_N_RUNS, _N_STEPS, _NOISE = 240, 5, 0.05
_N_SAMPLES, _LOG_NOISE = 640, 0.05


def write_example(folder: Path, seed: int = 0, kind: str = "csv") -> tuple[str, ...]:
    """Write the files of one of `KINDS` into a folder that does not hold them yet, and return their names."""
    names, write = KINDS[kind]
    for name in names:
        if (folder / name).exists():
            raise InputError(f"{folder / name} already exists; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, np.random.default_rng(seed))
    return names


def next_command(folder: Path, kind: str) -> str:
    """What to type after `write_example`."""
    if kind == "do-mpc":
        return f"python {folder / 'loop.py'}"
    return f"rkhs-control certify {folder / 'scenario.toml'} --plan {folder / 'plan.csv'}"


def _recorded_runs(folder: Path, rng: np.random.Generator) -> None:
    """Runs of a reactor, each from its own initial state, and a plan."""
    plant = CSTR()
    x0 = rng.uniform([1.1, 0.55], [2.9, 1.9], (_N_RUNS, plant.n_states))
    inputs = _operated(x0, rng)
    start = np.array([[2.7, 0.6]])
    _save_runs(folder / "runs.csv", x0, inputs, _NOISE, rng)
    plan = Plans(("1",), (start[0],), (_operated(start, rng)[0],), plant.state_names, plant.input_names)
    save_plans(plan, folder / "plan.csv")
    (folder / "scenario.toml").write_text(RECORDED_RUNS)


def _operated(x0: FloatArray, rng: np.random.Generator) -> FloatArray:
    """What an operator might do: steer towards the reference by feel."""
    wanted = CSTR.reference_input - 5.0 * (x0[:, :1] - CSTR.reference[0]) + rng.normal(0.0, 1.5, (len(x0), _N_STEPS))
    return CSTR.input_limits.clip(np.round(wanted, 2)[..., None])


def _long_recording(folder: Path, rng: np.random.Generator) -> None:
    """One log of a heated block whose core is not measured, and a plan that begins with a history."""
    heater = np.repeat(np.round(rng.uniform(20.0, 60.0, _N_SAMPLES // 12 + 1), 1), 12)[:_N_SAMPLES]
    core, surface = 30.0, 30.0
    start, rows = datetime(2024, 5, 1, 12), ["time,T,Q"]
    for sample, power in enumerate(heater.tolist()):
        measured = surface + rng.uniform(-_LOG_NOISE, _LOG_NOISE)
        rows.append(f"{start + timedelta(seconds=5 * sample):%Y-%m-%dT%H:%M:%S},{measured:.3f},{power}")
        core, surface = (
            core + 0.08 * (20.0 + 0.5 * power - core),
            surface + 0.15 * (core - surface) - 2e-4 * (surface - 20.0) ** 2,
        )
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    plan = Plans(("1",), ([36.0, 35.8, 40.0],), ([[45.0], [45.0], [42.0], [40.0]],), ("T", "T[-1]", "Q[-1]"), ("Q",))
    save_plans(plan, folder / "plan.csv")
    (folder / "scenario.toml").write_text(LONG_RECORDING)


def _with_do_mpc(folder: Path, rng: np.random.Generator) -> None:
    """Runs of a reactor with inputs over their whole range, and a script."""
    plant = CSTR()
    x0 = rng.uniform([1.0, 0.5], [3.0, 2.0], (_N_RUNS, plant.n_states))
    _save_runs(folder / "runs.csv", x0, np.round(rng.uniform(3.0, 25.0, (_N_RUNS, 3, 1)), 2), 0.02, rng)
    (folder / "loop.py").write_text(WITH_DO_MPC)


def _save_runs(file: Path, x0: FloatArray, inputs: FloatArray, noise: float, rng: np.random.Generator) -> None:
    """The reactor's states, all but the first measured with noise."""
    plant = CSTR()
    states = plant.simulate(x0, inputs)
    states[:, 1:] += rng.uniform(-noise, noise, states[:, 1:].shape)
    save_trajectories(Trajectories(states, inputs, np.array(noise), plant.state_names, plant.input_names), file)


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Path, np.random.Generator], None]]] = {
    "csv": (("scenario.toml", "runs.csv", "plan.csv"), _recorded_runs),
    "long-recording": (("scenario.toml", "log.csv", "plan.csv"), _long_recording),
    "do-mpc": (("loop.py", "runs.csv"), _with_do_mpc),
}
"""By name: the files of an example, and the function that writes them."""
