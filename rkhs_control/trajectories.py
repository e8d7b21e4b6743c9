"""Recorded trajectories: states at the sampling instants, the inputs held between them, and a bound on the noise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .validation import FloatArray, as_floats, as_rows, positive, require_finite


@dataclass(frozen=True, eq=False)
class Trajectories:
    """`M` runs of `N` steps: `states` `(M, N + 1, n_states)`, `inputs` `(M, N, n_inputs)`.

    `noise_bound` bounds the error of the recorded states at the steps 1 to N: a number, one a state, or one a step and
    state, `(N, n_states)`, which is how bounded process disturbances enter. It is kept in the last form. The initial
    states, at step 0, are taken as known.
    """

    states: FloatArray
    inputs: FloatArray
    noise_bound: FloatArray
    state_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    state_units: tuple[str, ...] = ()
    input_units: tuple[str, ...] = ()
    sampling_time: float = 1.0
    """In seconds."""

    def __post_init__(self) -> None:
        states, inputs = as_floats(self.states, "states"), as_floats(self.inputs, "inputs")
        if states.ndim != 3 or min(states.shape) == 0 or states.shape[1] < 2:
            raise InputError(f"states must have shape (n_runs, n_steps + 1, n_states); got {states.shape}")
        if inputs.ndim != 3 or inputs.shape[:2] != (states.shape[0], states.shape[1] - 1) or inputs.shape[2] == 0:
            wanted = f"({states.shape[0]}, {states.shape[1] - 1}, n_inputs)"
            raise InputError(f"inputs must have shape {wanted} to go with the states; got {inputs.shape}")
        _require_finite_runs(states, "states")
        _require_finite_runs(inputs, "inputs")
        values = {
            "states": states,
            "inputs": inputs,
            "noise_bound": _noise_by_step(self.noise_bound, states.shape[1] - 1, states.shape[2]),
            "state_names": checked_names(self.state_names, "state_names", "x", states.shape[2]),
            "input_names": checked_names(self.input_names, "input_names", "u", inputs.shape[2]),
            "state_units": checked_names(self.state_units, "state_units", "", states.shape[2]),
            "input_units": checked_names(self.input_units, "input_units", "", inputs.shape[2]),
            "sampling_time": positive(self.sampling_time, "sampling_time"),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_recordings(
        cls,
        recordings: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
        horizon: int,
        *,
        stride: int = 1,
        **fields: object,
    ) -> Trajectories:
        """Windows of `horizon` steps, every `stride` steps, from long runs `(states, inputs)` of any lengths."""
        if horizon < 1 or stride < 1:
            raise InputError(f"horizon and stride must be at least 1; got {horizon} and {stride}")
        states, inputs = [], []
        for number, (run_states, run_inputs) in enumerate(recordings):
            x, u = as_floats(run_states, f"states of run {number}"), as_floats(run_inputs, f"inputs of run {number}")
            if x.ndim != 2 or u.ndim != 2 or len(x) != len(u) + 1:
                raise InputError(
                    f"run {number} must have states (n + 1, n_states) and inputs (n, n_inputs); "
                    f"got {x.shape} and {u.shape}"
                )
            for first in range(0, len(u) - horizon + 1, stride):
                states.append(x[first : first + horizon + 1])
                inputs.append(u[first : first + horizon])
        if not states:
            longest = max((len(np.asarray(u)) for _, u in recordings), default=0)
            raise InputError(f"no run has {horizon} steps; the longest has {longest}: choose a shorter horizon")
        return cls(np.array(states), np.array(inputs), **fields)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.states)

    @property
    def horizon(self) -> int:
        return self.inputs.shape[1]

    @property
    def n_states(self) -> int:
        return self.states.shape[2]

    @property
    def n_inputs(self) -> int:
        return self.inputs.shape[2]

    def arguments(self, n: int) -> FloatArray:
        """`z = (x_0, u_0, ..., u_{n-1})`, a row a run: what the state after `n` steps is a function of."""
        return stacked(self.states[:, 0], self.inputs[:, :n])

    @property
    def sha256(self) -> str:
        """Of the bytes of all states, then all inputs, as little-endian doubles."""
        content = [array.astype("<f8").tobytes() for array in (self.states, self.inputs)]
        return hashlib.sha256(b"".join(content)).hexdigest()

    def shortened(self, horizon: int) -> Trajectories:
        """The first steps of every run."""
        if not 1 <= horizon <= self.horizon:
            raise InputError(f"horizon must be 1 to {self.horizon}; got {horizon}")
        states, inputs, noise = self.states[:, : horizon + 1], self.inputs[:, :horizon], self.noise_bound[:horizon]
        return replace(self, states=states, inputs=inputs, noise_bound=noise)

    def joined(self, other: Trajectories) -> Trajectories:
        """These runs and other ones of the same plant, with the same noise bounds."""
        same = ("state_names", "input_names", "sampling_time")
        if any(getattr(self, name) != getattr(other, name) for name in same) or self.horizon != other.horizon:
            raise InputError("only runs of the same plant and length can be joined")
        if not np.array_equal(self.noise_bound, other.noise_bound):
            raise InputError("only runs with the same noise bounds can be joined")
        states, inputs = (np.concatenate([getattr(r, name) for r in (self, other)]) for name in ("states", "inputs"))
        return replace(self, states=states, inputs=inputs)

    def windows(self, horizon: int, stride: int = 1) -> Trajectories:
        """Windows of `horizon` steps, every `stride` steps; the noise bound must not differ from step to step."""
        if (self.noise_bound != self.noise_bound[0]).any():
            raise InputError("runs whose noise bound differs from step to step cannot be cut into windows")
        recordings = list(zip(self.states, self.inputs, strict=True))
        cut = Trajectories.from_recordings(recordings, horizon, stride=stride, noise_bound=self.noise_bound[0])
        noise = np.broadcast_to(self.noise_bound[0], (horizon, self.n_states))
        return replace(self, states=cut.states, inputs=cut.inputs, noise_bound=noise)

    def subset(self, runs: npt.ArrayLike) -> Trajectories:
        """Some of the runs, by index or mask."""
        chosen = as_rows(runs, len(self), "runs")
        return replace(self, states=self.states[chosen], inputs=self.inputs[chosen])

    def split(self, share: float, rng: np.random.Generator) -> tuple[Trajectories, Trajectories]:
        """Two parts at random, whole runs each; the first holds `share` of them."""
        first = round(share * len(self))
        if not 0 < first < len(self):
            raise InputError(f"share must leave at least one of the {len(self)} runs on either side; got {share}")
        shuffled = rng.permutation(len(self))
        return self.subset(np.sort(shuffled[:first])), self.subset(np.sort(shuffled[first:]))


def stacked(states: FloatArray, inputs: FloatArray) -> FloatArray:
    """Initial states `(m, n_states)` and inputs `(m, n_steps, n_inputs)` as rows `(x_0, u_0, u_1, ...)`."""
    return np.hstack([states, inputs.reshape(len(inputs), -1)])


def _require_finite_runs(array: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming run, step and column."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        run, step, column = (int(i) for i in bad[0])
        raise InputError(
            f"{name} must be finite; run {run}, step {step}, column {column} is {array[run, step, column]}"
        )
    require_finite(array.reshape(len(array), -1), name)


def _noise_by_step(noise: npt.ArrayLike, n_steps: int, n_states: int) -> FloatArray:
    array = as_floats(noise, "noise_bound")
    if array.shape not in ((), (n_states,), (n_steps, n_states)):
        raise InputError(
            f"noise_bound must be a number, one a state ({n_states},), or one a step and state "
            f"({n_steps}, {n_states}); got {array.shape}"
        )
    require_finite(array, "noise_bound")
    if (array < 0).any():
        raise InputError(f"noise_bound must be zero or more; got {array.min()}")
    return np.ascontiguousarray(np.broadcast_to(array, (n_steps, n_states)))


def checked_names(given: Sequence[str], field: str, letter: str, size: int) -> tuple[str, ...]:
    """Names or units as given; where none are, the names are numbered and the units empty."""
    names = tuple(given) or tuple(f"{letter}_{i}" if letter else "" for i in range(size))
    if len(names) != size or not all(isinstance(name, str) for name in names):
        raise InputError(f"{field} must be {size} strings; got {given!r}")
    if letter and len(set(names)) != size:
        raise InputError(f"{field} must differ from each other; got {given!r}")
    return names
