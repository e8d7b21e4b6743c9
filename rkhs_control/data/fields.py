"""Checks of the fields of trajectories and plans: names, units, noise bounds, origins of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import FloatArray, IndexArray, as_floats, as_vector, listed, require_finite
from .windows import Shape


def require_finite_runs(array: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming run, step and column."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        run, step, column = (int(i) for i in bad[0])
        raise InputError(
            f"{name} must be finite; run {run}, step {step}, column {column} is {array[run, step, column]}"
        )
    require_finite(array.reshape(len(array), -1), name)


def checked_runs(given_states: npt.ArrayLike, given_inputs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Matching states `(n_runs, n_steps + 1, n_states)` and inputs `(n_runs, n_steps, n_inputs)`."""
    states, inputs = as_floats(given_states, "states"), as_floats(given_inputs, "inputs")
    if states.ndim != 3 or min(states.shape) == 0 or states.shape[1] < 2:
        raise InputError(f"states must have shape (n_runs, n_steps + 1, n_states); got {states.shape}")
    if inputs.ndim != 3 or inputs.shape[:2] != (states.shape[0], states.shape[1] - 1) or inputs.shape[2] == 0:
        wanted = f"({states.shape[0]}, {states.shape[1] - 1}, n_inputs)"
        raise InputError(f"inputs must have shape {wanted} to go with the states; got {inputs.shape}")
    require_finite_runs(states, "states")
    require_finite_runs(inputs, "inputs")
    return states, inputs


def noise_by_step(given: npt.ArrayLike, name: str, states: FloatArray) -> FloatArray:
    """The bound for every step and state, from one number, one per state, or one per step and state."""
    array, (n_steps, n_states) = as_floats(given, name), (states.shape[1] - 1, states.shape[2])
    if array.shape not in ((), (n_states,), (n_steps, n_states)):
        raise InputError(
            f"{name} must be a number, one per state ({n_states},), or one per step and state "
            f"({n_steps}, {n_states}); got {array.shape}"
        )
    require_finite(array, name)
    if (array < 0).any():
        raise InputError(f"{name} must be zero or more; got {array.min()}")
    return np.ascontiguousarray(np.broadcast_to(array, (n_steps, n_states)))


def checked_histories(given: npt.ArrayLike | None, states: FloatArray, inputs: FloatArray, shape: Shape) -> FloatArray:
    """One row per run, beginning with its initial states; these alone where there are no lags."""
    if not shape.lead:
        return np.ascontiguousarray(states[:, 0])
    if given is None:
        raise InputError("runs with lags need histories: from_recordings cuts them")
    array = as_floats(given, "histories")
    wanted = (len(states), shape.output_lags * states.shape[2] + shape.input_lags * inputs.shape[2])
    if array.shape != wanted:
        raise InputError(f"histories must have shape {wanted}, for {shape}; got {array.shape}")
    require_finite(array, "histories")
    if (array[:, : states.shape[2]] != states[:, 0]).any():
        raise InputError("histories must begin with the states at the beginning of the runs")
    return array


def checked_origins(given: npt.ArrayLike | None, n_runs: int) -> IndexArray:
    """Recording and first instant of every run; by default each run is its own recording."""
    if given is None:
        return np.stack([np.arange(n_runs), np.zeros(n_runs, dtype=np.int64)], axis=1)
    array = as_floats(given, "origins")
    if array.shape != (n_runs, 2):
        raise InputError(
            f"origins must have shape ({n_runs}, 2), recording and first instant of every run; got {array.shape} (None "
            "for runs that are not windows)"
        )
    if not ((array >= 0) & (array == np.floor(array)) & (array < 2.0**53)).all():
        raise InputError("origins must be whole numbers, zero or more")
    return array.astype(np.int64)


def checked_names(given: Sequence[str], field: str, letter: str, size: int) -> tuple[str, ...]:
    """Names or units as given; by default, names are numbered and units empty."""
    names = tuple(given) or tuple(f"{letter}_{i}" if letter else "" for i in range(size))
    if len(names) != size or not all(isinstance(name, str) for name in names):
        raise InputError(f"{field} must be {size} strings; got {given!r}")
    if letter and len(set(names)) != size:
        raise InputError(f"{field} must differ from each other; got {given!r}")
    return names


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Which of `names` was probably meant, ignoring case; None if none is close."""
    known = {other.casefold(): other for other in names}
    near = get_close_matches(name.casefold(), known, n=1)
    return known[near[0]] if near else None


def with_units(names: Sequence[str], units: Sequence[str]) -> str:
    """`c_A [mol/l], c_B [mol/l]`."""
    return listed(f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True))


def stacked(states: FloatArray, inputs: FloatArray) -> FloatArray:
    """Initial states `(m, n_states)` and inputs `(m, n_steps, n_inputs)` as rows `(x_0, u_0, u_1, ...)`."""
    return np.hstack([states, inputs.reshape(len(inputs), -1)])


def noise_by_state(noise: npt.ArrayLike, n_entries: int) -> FloatArray:
    """How far initial states may be off, from one number or one per entry."""
    array = as_floats(noise, "initial_state_noise")
    array = as_vector(np.full(n_entries, array) if array.ndim == 0 else array, "initial_state_noise", n_entries)
    if (array < 0).any():
        raise InputError(f"initial_state_noise must be zero or more; got {array.min()}")
    array.setflags(write=False)  # runs, predictors and certificates share it
    return array


def noise_of_history(given: npt.ArrayLike, n_states: int, output_lags: int, n_history: int) -> FloatArray:
    """Noise of every entry of a history: bounds on outputs apply at all lags, recorded inputs are known."""
    if n_history == n_states or np.size(given) == n_history != 1:
        return noise_by_state(given, n_history)
    outputs = np.tile(noise_by_state(given, n_states), output_lags)
    return noise_by_state(np.concatenate([outputs, np.zeros(n_history - len(outputs))]), n_history)


def require_constant(bound: FloatArray, name: str) -> None:
    """Refuse a bound that differs from step to step where windows may start at any step."""
    if (bound != bound[0]).any():
        raise InputError(f"runs whose {name} differs from step to step cannot be cut into windows")


def require_same_plant(runs: Any, other: Any) -> None:
    """Refuse runs that cannot be joined: different names, lengths, shapes or bounds, up to rounding."""
    same = ("state_names", "input_names", "sampling_time", "shape", "horizon")
    if any(getattr(runs, name) != getattr(other, name) for name in same):
        raise InputError("only runs of the same plant and length can be joined")
    largest = max(np.abs(runs.states).max(), np.abs(other.states).max())
    for bound in ("noise_bound", "disturbance_bound"):
        if not np.allclose(getattr(runs, bound), getattr(other, bound), rtol=1e-12, atol=1e-15 * largest):
            raise InputError(f"only runs with the same {bound.replace('_', ' ')}s can be joined")
