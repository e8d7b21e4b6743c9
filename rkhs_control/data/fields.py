"""Checks of the fields of trajectories and plans: names, units, noise bounds, where runs are from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import FloatArray, IndexArray, as_floats, listed, require_finite


def require_finite_runs(array: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming run, step and column."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        run, step, column = (int(i) for i in bad[0])
        raise InputError(
            f"{name} must be finite; run {run}, step {step}, column {column} is {array[run, step, column]}"
        )
    require_finite(array.reshape(len(array), -1), name)


def noise_by_step(noise: npt.ArrayLike, n_steps: int, n_states: int) -> FloatArray:
    """The noise bound of every step and state, from a number for all, one per state, or all of them."""
    array = as_floats(noise, "noise_bound")
    if array.shape not in ((), (n_states,), (n_steps, n_states)):
        raise InputError(
            f"noise_bound must be a number, one per state ({n_states},), or one per step and state "
            f"({n_steps}, {n_states}); got {array.shape}"
        )
    require_finite(array, "noise_bound")
    if (array < 0).any():
        raise InputError(f"noise_bound must be zero or more; got {array.min()}")
    return np.ascontiguousarray(np.broadcast_to(array, (n_steps, n_states)))


def checked_origins(given: npt.ArrayLike | None, n_runs: int) -> IndexArray:
    """Recording and first instant of every run; by default each is a recording of its own."""
    if given is None:
        return np.stack([np.arange(n_runs), np.zeros(n_runs, dtype=np.int64)], axis=1)
    array = as_floats(given, "origins")
    if array.shape != (n_runs, 2):
        raise InputError(
            f"origins must have shape ({n_runs}, 2), recording and first instant of every run; got {array.shape} (None "
            "for runs that are no windows)"
        )
    if not ((array >= 0) & (array == np.floor(array)) & (array < 2.0**53)).all():
        raise InputError("origins must be whole numbers, zero or more")
    return array.astype(np.int64)


def checked_names(given: Sequence[str], field: str, letter: str, size: int) -> tuple[str, ...]:
    """Names or units as given; where none are, the names are numbered and the units empty."""
    names = tuple(given) or tuple(f"{letter}_{i}" if letter else "" for i in range(size))
    if len(names) != size or not all(isinstance(name, str) for name in names):
        raise InputError(f"{field} must be {size} strings; got {given!r}")
    if letter and len(set(names)) != size:
        raise InputError(f"{field} must differ from each other; got {given!r}")
    return names


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Which of `names` was meant, whatever its capitals; None where none is near."""
    known = {other.casefold(): other for other in names}
    near = get_close_matches(name.casefold(), known, n=1)
    return known[near[0]] if near else None


def with_units(names: Sequence[str], units: Sequence[str]) -> str:
    """`c_A [mol/l], c_B [mol/l]`."""
    return listed(f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True))
