"""Runs recorded while a predictor is in use: when it can continue from those it already has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..data.arrays import as_floats
from ..data.trajectories import Trajectories
from ..errors import InputError


def goes_on(runs: Trajectories, more: Trajectories) -> bool:
    """Whether `more` begins with `runs`, and no initial state is uncertain: then the intervals of `runs` stay.

    The effect of uncertain ones on an interval depends on all other data, so everything starts over.
    """
    n = len(runs)
    parts = ((getattr(runs, name), getattr(more, name)[:n]) for name in ("states", "inputs", "histories"))
    return (
        len(more) >= n
        and more.horizon == runs.horizon
        and not runs.initial_state_noise.any()
        and not more.initial_state_noise.any()
        and all(np.array_equal(ours, theirs) for ours, theirs in parts)
    )


def with_further(runs: Trajectories, states: npt.ArrayLike, inputs: npt.ArrayLike) -> Trajectories:
    """The runs and one more, or several with a leading axis, under the same bounds."""
    if runs.is_windowed or not runs.has_states:
        raise InputError(
            "with_run takes whole runs that begin with their initial state, and the runs here are windows of longer "
            "recordings: cut the new recording into windows like these, and call with_runs with runs.joined(windows)"
        )
    x, u = (as_floats(values, name) for values, name in ((states, "states"), (inputs, "inputs")))
    x, u = (x[None], u[None]) if x.ndim == 2 else (x, u)
    expected = (runs.horizon + 1, runs.n_states), (runs.horizon, runs.n_inputs)
    if x.shape[1:] != expected[0] or u.shape[1:] != expected[1] or len(x) != len(u):
        raise InputError(
            f"a run has states {expected[0]} and inputs {expected[1]}, several have a leading axis; got "
            f"{np.shape(states)} and {np.shape(inputs)}"
        )
    return runs.joined(replace(runs, states=x, inputs=u, histories=None, origins=None))  # type: ignore[arg-type]
