"""Recorded trajectories: states at the sampling instants, the inputs held between them, and a bound on the noise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import FloatArray, IndexArray, as_rows, listed, positive
from .fields import (
    checked_histories,
    checked_names,
    checked_origins,
    checked_runs,
    noise_by_step,
    noise_of_history,
    require_constant,
    require_same_plant,
    stacked,
    with_units,
)
from .splits import held_out, held_out_windows
from .windows import PRESENT, Recording, Shape, cut_windows

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Trajectories:
    """`M` runs of `N` steps: `states` `(M, N + 1, n_states)`, `inputs` `(M, N, n_inputs)`.

    `noise_bound` bounds the error of the recorded states at the steps 1 to N: a number, one per state, or one per step
    and state, `(N, n_states)`, which is how bounded process disturbances enter. It is kept in the last form.

    `disturbance_bound`, in any of these forms, bounds the effect of unknown disturbances of the plant on a state at
    these steps. It widens the intervals from the runs and, because the plant will be disturbed again, the boxes of
    plans.

    `histories` `(M, n_history)` are what the future depends on besides the inputs to come: by default the initial
    states. Where only some outputs of a plant were recorded, they are the last `shape.output_lags` outputs, latest
    first, and the last `shape.input_lags` inputs.

    `initial_state_noise` bounds the error of the histories: a number for all outputs in them, one per state, or one per
    entry, kept as `(n_history,)`. By default it is zero for whole runs, whose initial states are known. Runs that are
    windows of longer recordings begin with measured outputs; for these it is the noise bound (the largest over all
    steps), and zero for recorded inputs.

    `origins` `(M, 2)` say which recording each run is from and at which step of it the run begins; by default each run
    is its own recording.
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
    initial_state_noise: FloatArray = None  # type: ignore[assignment]  # set when built, like the next ones
    origins: IndexArray = None  # type: ignore[assignment]
    histories: FloatArray = None  # type: ignore[assignment]
    shape: Shape = PRESENT
    disturbance_bound: FloatArray = 0.0  # type: ignore[assignment]
    has_residual_bound: bool = False
    """Whether measured histories are the arguments themselves, and the disturbance bound estimates the residual."""

    if TYPE_CHECKING:  # more may be given than is kept

        def __init__(
            self,
            states: npt.ArrayLike,
            inputs: npt.ArrayLike,
            noise_bound: npt.ArrayLike,
            state_names: Sequence[str] = (),
            input_names: Sequence[str] = (),
            state_units: Sequence[str] = (),
            input_units: Sequence[str] = (),
            sampling_time: float = 1.0,
            initial_state_noise: npt.ArrayLike | None = None,
            origins: npt.ArrayLike | None = None,
            histories: npt.ArrayLike | None = None,
            shape: Shape = PRESENT,
            disturbance_bound: npt.ArrayLike = 0.0,
            has_residual_bound: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        states, inputs = checked_runs(self.states, self.inputs)
        shape = Shape.of(self.shape)
        values = {
            "shape": shape,
            "states": states,
            "inputs": inputs,
            "noise_bound": noise_by_step(self.noise_bound, "noise_bound", states),
            "disturbance_bound": noise_by_step(self.disturbance_bound, "disturbance_bound", states),
            "histories": checked_histories(self.histories, states, inputs, shape),
            "state_names": checked_names(self.state_names, "state_names", "x", states.shape[2]),
            "input_names": checked_names(self.input_names, "input_names", "u", inputs.shape[2]),
            "state_units": checked_names(self.state_units, "state_units", "", states.shape[2]),
            "input_units": checked_names(self.input_units, "input_units", "", inputs.shape[2]),
            "sampling_time": positive(self.sampling_time, "sampling_time"),
            "origins": checked_origins(self.origins, len(states)),
            "has_residual_bound": bool(self.has_residual_bound),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        noise: npt.ArrayLike = self.initial_state_noise
        if noise is None:
            noise = self.noise_bound.max(axis=0) if self.is_windowed else 0.0
        object.__setattr__(self, "initial_state_noise", self.history_noise(noise))

    @classmethod
    def from_recordings(
        cls,
        recordings: Sequence[Recording],
        horizon: int,
        *,
        stride: int = 1,
        output_lags: int = 1,
        input_lags: int = 0,
        every: int = 1,
        initial_state_noise: npt.ArrayLike | None = None,
        **fields: Any,
    ) -> Trajectories:
        """Windows of `horizon` steps, every `stride` steps, from long runs `(outputs, inputs)` of any lengths.

        They begin with measured outputs, which are uncertain by the noise bound unless `initial_state_noise` says
        otherwise (0.0 if they are exact).

        Parameters
        ----------
        recordings : sequence of (outputs, inputs)
            Outputs `(n + 1, n_outputs)` at the sampling instants, inputs `(n, n_inputs)` held between them.
        horizon, stride : int
            In steps.
        output_lags, input_lags : int
            The history of a window: this many outputs, including the present one, and this many past inputs.
        every : int
            Samples per step; inputs are averaged over a step. A given sampling time is that of the samples.
        fields : further ones of `Trajectories`, such as `noise_bound`
        """
        shape = Shape.of((output_lags, input_lags, every))
        cut = cut_windows(recordings, horizon, stride, shape)
        if "sampling_time" in fields:
            fields = {**fields, "sampling_time": every * positive(fields["sampling_time"], "sampling_time")}
        runs = cls(cut.outputs, cut.inputs, origins=cut.origins, histories=cut.histories, shape=shape, **fields)
        noise = runs.noise_bound.max(axis=0) if initial_state_noise is None else initial_state_noise
        return runs.with_initial_state_noise(noise)

    @classmethod
    def from_frame(
        cls,
        frame: DataFrame,
        *,
        state_names: Sequence[str],
        input_names: Sequence[str],
        noise_bound: npt.ArrayLike,
        trajectory: str = "trajectory",
        time: str | None = None,
        horizon: int | None = None,
        stride: int = 1,
        **fields: Any,
    ) -> Trajectories:
        """Runs in a pandas frame with one row per instant, read by the rules for CSV files (`load_trajectories`).

        Numbers count as the decimals that they print as, and the noise bound is raised by their rounding to doubles.
        Before version 3.1, pandas reads files to the last digit only with `float_precision="round_trip"`. Named levels
        of the index count as columns, errors count rows from 0, and the last inputs of a run are not read.

        Parameters
        ----------
        trajectory : str
            The column that identifies runs; without a column `trajectory`, all rows are one run.
        time : str, optional
            The column of times, seconds or dates, evenly spaced; by default `time`, or `step`, which counts from 0.
        fields : `horizon` and `stride` cut windows; the others are those of `from_recordings` and `Trajectories`
        """
        from .frames import read_frame

        named = {"state_names": state_names, "input_names": input_names, "noise_bound": noise_bound, **fields}
        return read_frame(frame, trajectory=trajectory, time=time, horizon=horizon, stride=stride, fields=named)

    def to_frame(self) -> DataFrame:
        """A pandas frame with one row per instant: `trajectory`, `step`, `time` in seconds, the states and the inputs.

        There are no inputs (NaN) at the last instant of a run. Windows, and other runs whose initial states are
        uncertain, are refused, as in CSV files: a frame would forget that they are.
        """
        from .frames import write_frame

        return write_frame(self)

    def __repr__(self) -> str:
        """Sizes, names and bounds on a few lines, not the arrays."""
        is_constant = bool((self.noise_bound == self.noise_bound[0]).all())
        return (
            f"Trajectories({len(self)} {self.kind} of {self.horizon} steps, sampling_time={self.sampling_time:g},\n"
            f"  states: {with_units(self.state_names, self.state_units)},\n"
            f"  inputs: {with_units(self.input_names, self.input_units)},\n"
            f"  noise_bound: {listed(self.noise_bound.max(axis=0))}{'' if is_constant else ' at the most'},\n"
            f"  initial_state_noise: {listed(self.initial_state_noise)})"
        )

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.states)

    @property
    def horizon(self) -> int:
        """The number of steps of each run."""
        return int(self.inputs.shape[1])

    @property
    def n_states(self) -> int:
        """The number of states."""
        return int(self.states.shape[2])

    @property
    def n_inputs(self) -> int:
        """The number of inputs."""
        return int(self.inputs.shape[2])

    @property
    def n_history(self) -> int:
        """The number of entries in a history: the number of states, where these are known."""
        return int(self.histories.shape[1])

    @property
    def history_names(self) -> tuple[str, ...]:
        """`T, T[-1], Q[-1]`: the present states, past ones, and past inputs."""
        return self.shape.history_names(self.state_names, self.input_names)

    @property
    def has_states(self) -> bool:
        """Whether the future depends only on the present states and the inputs to come."""
        return self.n_history == self.n_states

    def require_states(self, what: str) -> None:
        """Refuse histories where a state is needed to start from."""
        if not self.has_states:
            raise InputError(
                f"{what} begins with a state, but the runs have histories: {', '.join(self.history_names)}"
            )

    def history_noise(self, given: npt.ArrayLike) -> FloatArray:
        """How far each entry of a history may be off, from one number for all outputs, one per state or entry."""
        return noise_of_history(given, self.n_states, self.shape.output_lags, self.n_history)

    @property
    def is_windowed(self) -> bool:
        """Whether some runs share a recording, or begin after its first instant."""
        recordings, firsts = self.origins.T
        return bool((firsts > 0).any()) or len(np.unique(recordings)) < len(self)

    @property
    def has_measured_starts(self) -> bool:
        """Whether the runs begin with measured states, which a table of states and inputs cannot say."""
        return self.is_windowed or bool(self.initial_state_noise.any())

    @property
    def kind(self) -> str:
        """What the runs are called in messages."""
        return "windows" if self.is_windowed else "runs"

    @property
    def initial_state_text(self) -> str:
        """What is assumed about recorded initial states, as a clause; empty for whole runs where these are known."""
        start = "the windows begin with measured states, which" if self.is_windowed else "recorded initial states"
        if not self.initial_state_noise.any():
            taken = "as measured, with a bound on what that leaves open" if self.has_residual_bound else "as exact"
            return f"{start} are taken {taken}" if self.is_windowed else ""
        noise, default = self.initial_state_noise, self.history_noise(self.noise_bound.max(axis=0))
        how = " by the noise bound" if np.array_equal(noise, default) else ""
        return f"{start} may be off{how}: {self.by_state(noise[: self.n_states])}"

    def by_state(self, values: FloatArray) -> str:
        """`c_A by 0.1, c_B by 0.2`, for messages."""
        return ", ".join(map("{} by {:g}".format, self.state_names, values))

    @property
    def caveat(self) -> str:
        """A possible cause where data refute an assumption: measured initial states that are taken as exact."""
        if not self.is_windowed or self.initial_state_noise.any():
            return ""
        return (
            "; the runs are windows that begin with measured states: initial_state_noise, how uncertain these are, is 0"
        )

    def arguments(self, n: int) -> FloatArray:
        """`z = (history, u_0, ..., u_{n-1})`, one row per run: what the state after `n` steps is a function of."""
        return stacked(self.histories, self.inputs[:, :n])

    @property
    def sha256(self) -> str:
        """Hash of the bytes of all states, then all inputs, then histories with lags, as little-endian doubles."""
        arrays = (self.states, self.inputs) if self.has_states else (self.states, self.inputs, self.histories)
        content = [array.astype("<f8").tobytes() for array in arrays]
        return hashlib.sha256(b"".join(content)).hexdigest()

    def with_initial_state_noise(self, given: npt.ArrayLike | None) -> Trajectories:
        """The same runs with the given uncertainty of their initial states; unchanged if None."""
        if given is None:
            return self
        return replace(self, initial_state_noise=self.history_noise(given))

    def shortened(self, horizon: int) -> Trajectories:
        """The first steps of every run."""
        if not 1 <= horizon <= self.horizon:
            raise InputError(f"horizon must be 1 to {self.horizon}; got {horizon}")
        return replace(
            self,
            states=self.states[:, : horizon + 1],
            inputs=self.inputs[:, :horizon],
            noise_bound=self.noise_bound[:horizon],
            disturbance_bound=self.disturbance_bound[:horizon],
        )

    def joined(self, other: Trajectories) -> Trajectories:
        """These runs and others of the same plant, with the same noise bounds up to rounding.

        Initial states are then as uncertain as the larger of the two; the others' recordings are numbered after these.
        """
        require_same_plant(self, other)
        next_one = np.array([self.origins[:, 0].max() + 1, 0])
        return replace(
            self,
            states=np.concatenate([self.states, other.states]),
            inputs=np.concatenate([self.inputs, other.inputs]),
            histories=np.concatenate([self.histories, other.histories]),
            noise_bound=np.maximum(self.noise_bound, other.noise_bound),
            disturbance_bound=np.maximum(self.disturbance_bound, other.disturbance_bound),
            initial_state_noise=np.maximum(self.initial_state_noise, other.initial_state_noise),
            origins=np.concatenate([self.origins, other.origins + next_one]),
        )

    def windows(
        self, horizon: int, stride: int = 1, *, initial_state_noise: npt.ArrayLike | None = None, **shape: int
    ) -> Trajectories:
        """Windows of `horizon` steps, every `stride` steps; the noise bound must not differ from step to step.

        They begin with measured states, which are uncertain by the noise bound (or as the runs' initial states already
        are, if that is more) unless `initial_state_noise` says otherwise. `shape` as for `from_recordings`.
        """
        require_constant(self.noise_bound, "noise bound")
        require_constant(self.disturbance_bound, "disturbance bound")
        if not self.has_states:
            raise InputError("windows with histories are cut from recordings, not from other windows")
        recordings = list(zip(self.states, self.inputs, strict=True))
        cut = Trajectories.from_recordings(recordings, horizon, stride=stride, noise_bound=self.noise_bound[0], **shape)
        run, first = cut.origins.T
        runs = replace(
            self,
            states=cut.states,
            inputs=cut.inputs,
            histories=cut.histories,
            shape=cut.shape,
            sampling_time=self.sampling_time * cut.shape.every,
            noise_bound=np.broadcast_to(self.noise_bound[0], (horizon, self.n_states)),
            disturbance_bound=np.broadcast_to(self.disturbance_bound[0], (horizon, self.n_states)),
            initial_state_noise=np.maximum(self.initial_state_noise, self.noise_bound[0]),
            origins=self.origins[run] + np.column_stack([np.zeros_like(first), first]),
        )
        return runs.with_initial_state_noise(initial_state_noise)

    def subset(self, runs: npt.ArrayLike) -> Trajectories:
        """Some of the runs, by index or mask."""
        chosen = as_rows(runs, len(self), "runs")
        names = ("states", "inputs", "origins", "histories")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def split(self, share: float, rng: np.random.Generator) -> tuple[Trajectories, Trajectories]:
        """Two random parts that share no samples, made as by `held_out`; the first has `share` of the runs."""
        second, first = self.held_out(share, rng)
        return first, second

    def held_out(self, share: float, rng: np.random.Generator) -> tuple[Trajectories, Trajectories]:
        """Two random parts that share no samples: the runs that are kept, and the `share` that is held out.

        Windows share samples with their neighbours. For these, the smaller part consists of up to five blocks of
        neighbours, spread over the recordings, and windows that share a sample with both parts belong to neither.
        """
        n_held = round(share * len(self))
        if not 0 < n_held < len(self):
            raise InputError(f"share must leave at least one of {len(self)} {self.kind} on either side; got {share}")
        parts: tuple[npt.NDArray[Any], npt.NDArray[Any]] = (
            held_out_windows(n_held, self.origins, self.horizon + self.shape.lead, rng)
            if self.is_windowed
            else held_out(n_held, len(self), rng)
        )
        kept, held = parts
        return self.subset(kept), self.subset(held)
