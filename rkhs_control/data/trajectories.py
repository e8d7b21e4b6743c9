"""Recorded trajectories: states at the sampling instants, the inputs held between them, and a bound on the noise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import FloatArray, IndexArray, as_floats, as_rows, as_vector, positive, require_finite

_BLOCKS = 5  # of windows that are held out: at most so many


@dataclass(frozen=True, eq=False)
class Trajectories:
    """`M` runs of `N` steps: `states` `(M, N + 1, n_states)`, `inputs` `(M, N, n_inputs)`.

    `noise_bound` bounds the error of the recorded states at the steps 1 to N: a number, one per state, or one per step
    and state, `(N, n_states)`, which is how bounded process disturbances enter. It is kept in the last form.

    `initial_state_noise` bounds the error at step 0: a number or one per state, kept as `(n_states,)`. By default it is
    zero for whole runs, whose initial states are known. Runs that are windows of longer recordings begin with measured
    states; for these it is the noise bound (the largest of all steps).

    `origins` `(M, 2)` tell which recording each run is from and at which instant of it the run begins; by default each
    is a recording of its own.
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
    initial_state_noise: FloatArray = None  # type: ignore[assignment]  # until it is built, like the next
    origins: IndexArray = None  # type: ignore[assignment]

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
            "origins": _checked_origins(self.origins, len(states)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        noise: npt.ArrayLike = self.initial_state_noise
        if noise is None:
            noise = self.noise_bound.max(axis=0) if self.is_windowed else 0.0
        object.__setattr__(self, "initial_state_noise", noise_by_state(noise, self.n_states))

    @classmethod
    def from_recordings(
        cls,
        recordings: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
        horizon: int,
        *,
        stride: int = 1,
        initial_state_noise: npt.ArrayLike | None = None,
        **fields: object,
    ) -> Trajectories:
        """Windows of `horizon` steps, every `stride` steps, from long runs `(states, inputs)` of any lengths.

        They begin with measured states, which are uncertain by the noise bound unless `initial_state_noise` says
        otherwise (0.0 if they are exact).
        """
        if horizon < 1 or stride < 1:
            raise InputError(f"horizon and stride must be at least 1; got {horizon} and {stride}")
        states, inputs, origins = [], [], []
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
                origins.append((number, first))
        if not states:
            longest = max((len(np.asarray(u)) for _, u in recordings), default=0)
            raise InputError(f"no run has {horizon} steps; the longest has {longest}: choose a shorter horizon")
        runs = cls(np.array(states), np.array(inputs), origins=np.array(origins), **fields)  # type: ignore[arg-type]
        noise = runs.noise_bound.max(axis=0) if initial_state_noise is None else initial_state_noise
        return runs.with_initial_state_noise(noise)

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

    @property
    def is_windowed(self) -> bool:
        """Whether some runs share a recording, or begin after its first instant."""
        recordings, firsts = self.origins.T
        return bool((firsts > 0).any()) or len(np.unique(recordings)) < len(self)

    @property
    def kind(self) -> str:
        """What they are called in messages."""
        return "windows" if self.is_windowed else "runs"

    @property
    def initial_state_text(self) -> str:
        """What is assumed of recorded initial states, in a clause; empty for whole runs where these are known."""
        start = "the windows begin with measured states, which" if self.is_windowed else "recorded initial states"
        if not self.initial_state_noise.any():
            return f"{start} are taken as exact" if self.is_windowed else ""
        is_default = np.array_equal(self.initial_state_noise, self.noise_bound.max(axis=0))
        by_what = " by the noise bound" if is_default else ""
        return f"{start} may be off{by_what}: {self.by_state(self.initial_state_noise)}"

    def by_state(self, values: FloatArray) -> str:
        """`c_A by 0.1, c_B by 0.2`, for messages."""
        return ", ".join(f"{name} by {value:g}" for name, value in zip(self.state_names, values, strict=True))

    @property
    def caveat(self) -> str:
        """What may be wrong where data refute an assumption: measured initial states that are taken as exact."""
        if not self.is_windowed or self.initial_state_noise.any():
            return ""
        return (
            "; the runs are windows that begin with measured states: initial_state_noise says how uncertain these are, "
            "and it is 0"
        )

    def arguments(self, n: int) -> FloatArray:
        """`z = (x_0, u_0, ..., u_{n-1})`, one row per run: what the state after `n` steps is a function of."""
        return stacked(self.states[:, 0], self.inputs[:, :n])

    @property
    def sha256(self) -> str:
        """Of the bytes of all states, then all inputs, as little-endian doubles."""
        content = [array.astype("<f8").tobytes() for array in (self.states, self.inputs)]
        return hashlib.sha256(b"".join(content)).hexdigest()

    def with_initial_state_noise(self, given: npt.ArrayLike | None) -> Trajectories:
        """The same runs, their initial states as uncertain as given; as they are if nothing is."""
        if given is None:
            return self
        return replace(self, initial_state_noise=noise_by_state(given, self.n_states))

    def shortened(self, horizon: int) -> Trajectories:
        """The first steps of every run."""
        if not 1 <= horizon <= self.horizon:
            raise InputError(f"horizon must be 1 to {self.horizon}; got {horizon}")
        states, inputs, noise = self.states[:, : horizon + 1], self.inputs[:, :horizon], self.noise_bound[:horizon]
        return replace(self, states=states, inputs=inputs, noise_bound=noise)

    def joined(self, other: Trajectories) -> Trajectories:
        """These runs and other ones of the same plant, with the same noise bounds up to rounding.

        Initial states are then taken to be as uncertain as those of either; the recordings of the others are numbered
        on from these.
        """
        same = ("state_names", "input_names", "sampling_time")
        if any(getattr(self, name) != getattr(other, name) for name in same) or self.horizon != other.horizon:
            raise InputError("only runs of the same plant and length can be joined")
        largest = max(np.abs(self.states).max(), np.abs(other.states).max())
        if not np.allclose(self.noise_bound, other.noise_bound, rtol=1e-12, atol=1e-15 * largest):
            raise InputError("only runs with the same noise bounds can be joined")
        next_one = np.array([self.origins[:, 0].max() + 1, 0])
        return replace(
            self,
            states=np.concatenate([self.states, other.states]),
            inputs=np.concatenate([self.inputs, other.inputs]),
            noise_bound=np.maximum(self.noise_bound, other.noise_bound),
            initial_state_noise=np.maximum(self.initial_state_noise, other.initial_state_noise),
            origins=np.concatenate([self.origins, other.origins + next_one]),
        )

    def windows(
        self, horizon: int, stride: int = 1, *, initial_state_noise: npt.ArrayLike | None = None
    ) -> Trajectories:
        """Windows of `horizon` steps, every `stride` steps; the noise bound must not differ from step to step.

        They begin with measured states, which are uncertain by the noise bound (or by what initial states of the runs
        already are, if that is more) unless `initial_state_noise` says otherwise.
        """
        if (self.noise_bound != self.noise_bound[0]).any():
            raise InputError("runs whose noise bound differs from step to step cannot be cut into windows")
        recordings = list(zip(self.states, self.inputs, strict=True))
        cut = Trajectories.from_recordings(recordings, horizon, stride=stride, noise_bound=self.noise_bound[0])
        run, first = cut.origins.T
        runs = replace(
            self,
            states=cut.states,
            inputs=cut.inputs,
            noise_bound=np.broadcast_to(self.noise_bound[0], (horizon, self.n_states)),
            initial_state_noise=np.maximum(self.initial_state_noise, self.noise_bound[0]),
            origins=self.origins[run] + np.column_stack([np.zeros_like(first), first]),
        )
        return runs.with_initial_state_noise(initial_state_noise)

    def subset(self, runs: npt.ArrayLike) -> Trajectories:
        """Some of the runs, by index or mask."""
        chosen = as_rows(runs, len(self), "runs")
        return replace(self, states=self.states[chosen], inputs=self.inputs[chosen], origins=self.origins[chosen])

    def split(self, share: float, rng: np.random.Generator) -> tuple[Trajectories, Trajectories]:
        """Two parts at random that share no sample, as `held_out` makes them; the first holds `share` of the runs."""
        second, first = self.held_out(share, rng)
        return first, second

    def held_out(self, share: float, rng: np.random.Generator) -> tuple[Trajectories, Trajectories]:
        """Two parts at random that share no sample: what is kept, and `share` of the runs that are held out.

        Windows share samples with their neighbours. Of those the smaller part is made of up to five blocks of
        neighbours, spread over the recordings, and windows that share a sample with both parts belong to neither.
        """
        n_held = round(share * len(self))
        if not 0 < n_held < len(self):
            raise InputError(
                f"share must leave at least one of the {len(self)} {self.kind} on either side; got {share}"
            )
        if not self.is_windowed:
            shuffled = rng.permutation(len(self))
            return self.subset(np.sort(shuffled[n_held:])), self.subset(np.sort(shuffled[:n_held]))
        blocks, rest = self._blocks(min(n_held, len(self) - n_held), rng)
        kept, held = (rest, blocks) if 2 * n_held <= len(self) else (blocks, rest)
        return self.subset(kept), self.subset(held)

    def _blocks(self, n: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which windows belong to blocks of `n` in all, and which share no sample with those.

        There are as many blocks as leave out no more windows than they hold; a single one is at the end.
        """
        in_order = np.lexsort(self.origins.T[::-1])
        for n_blocks in range(min(_BLOCKS, n), 0, -1):
            chosen = np.zeros(len(self), dtype=bool)
            for number, segment in enumerate(np.array_split(in_order, n_blocks)):
                size = (n + number) // n_blocks
                last = len(segment) - size
                first = last if n_blocks == 1 else int(rng.integers(last + 1))
                chosen[segment[first : first + size]] = True
            rest = ~self._touched_by(chosen)
            if (~chosen & ~rest).sum() <= n:
                break
        if not rest.any():
            raise InputError(
                f"all {len(self)} windows share samples with those to be held out: hold none out, record more, or cut "
                "shorter windows"
            )
        return chosen, rest

    def _touched_by(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which runs share a sample with a chosen one: those of the same recording, begun at most `horizon` apart."""
        touched = np.zeros(len(self), dtype=bool)
        for recording in np.unique(self.origins[chosen, 0]):
            mine = self.origins[:, 0] == recording
            firsts, taken = self.origins[mine, 1], np.sort(self.origins[mine & chosen, 1])
            before = np.searchsorted(taken, firsts - self.horizon)
            up_to = np.searchsorted(taken, firsts + self.horizon, side="right")
            touched[mine] = up_to > before
        return touched


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
            f"noise_bound must be a number, one per state ({n_states},), or one per step and state "
            f"({n_steps}, {n_states}); got {array.shape}"
        )
    require_finite(array, "noise_bound")
    if (array < 0).any():
        raise InputError(f"noise_bound must be zero or more; got {array.min()}")
    return np.ascontiguousarray(np.broadcast_to(array, (n_steps, n_states)))


def noise_by_state(noise: npt.ArrayLike, n_states: int) -> FloatArray:
    """How far initial states may be off, from a number for all or one per state."""
    array = as_floats(noise, "initial_state_noise")
    array = as_vector(np.full(n_states, array) if array.ndim == 0 else array, "initial_state_noise", n_states)
    if (array < 0).any():
        raise InputError(f"initial_state_noise must be zero or more; got {array.min()}")
    array.setflags(write=False)  # runs, predictors and certificates share it
    return array


def _checked_origins(given: npt.ArrayLike | None, n_runs: int) -> IndexArray:
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
