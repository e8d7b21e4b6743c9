"""Windows of long recordings: the history of each, its inputs, and the resulting outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import FloatArray, IndexArray, as_floats

Recording = tuple[npt.ArrayLike, npt.ArrayLike]
"""Outputs `(n + 1, n_outputs)` at the sampling instants, and the inputs `(n, n_inputs)` held between them."""


class Shape(NamedTuple):
    """How windows are cut: how much of the past they include, and how many samples make a step."""

    output_lags: int = 1
    """Number of outputs in the history, including the present one."""
    input_lags: int = 0
    """Number of past inputs in the history."""
    every: int = 1
    """Samples per step; inputs are averaged over a step."""

    @classmethod
    def of(cls, given: Sequence[int] | npt.NDArray[Any]) -> Shape:
        """Three whole numbers, none too small."""
        values = as_floats(given, "shape").ravel().tolist()
        for name, least, value in zip(cls._fields, (1, 0, 1), values, strict=True):
            if value != int(value) or value < least:
                raise InputError(f"{name} must be a whole number, at least {least}; got {value:g}")
        return cls(*map(int, values))

    @property
    def lead(self) -> int:
        """How many steps the history reaches back."""
        return max(self.output_lags - 1, self.input_lags)

    def history_names(self, outputs: Sequence[str], inputs: Sequence[str]) -> tuple[str, ...]:
        """`T, T[-1], ..., Q[-1]`: present outputs keep their own names."""
        lagged = [name if k == 0 else f"{name}[-{k}]" for k in range(self.output_lags) for name in outputs]
        return tuple(lagged + [f"{name}[-{k}]" for k in range(1, self.input_lags + 1) for name in inputs])


PRESENT = Shape()
"""No past: the present states are all that matters, as where they are known."""


class Windows(NamedTuple):
    """Arrays with one row per window."""

    outputs: FloatArray
    """`(n_windows, horizon + 1, n_outputs)`."""
    inputs: FloatArray
    """`(n_windows, horizon, n_inputs)`."""
    histories: FloatArray
    """`(n_windows, n_history)`: outputs, latest first, then inputs, latest first."""
    origins: IndexArray
    """`(n_windows, 2)`: the recording, and the step of it at which the window begins."""


def cut_windows(recordings: Sequence[Recording], horizon: int, stride: int, shape: Shape) -> Windows:
    """Windows of `horizon` steps, one every `stride` steps, from recordings of any lengths."""
    if horizon < 1 or stride < 1:
        raise InputError(f"horizon and stride must be at least 1; got {horizon} and {stride}")
    found: list[tuple[FloatArray, FloatArray, FloatArray, tuple[int, int]]] = []
    longest = 0
    for number, recording in enumerate(recordings):
        y, u = in_steps(*checked_recording(recording, number), shape.every)
        longest = max(longest, len(u) - shape.lead)
        found += [
            (y[t : t + horizon + 1], u[t : t + horizon], history_at(y, u, t, shape), (number, t))
            for t in range(shape.lead, len(u) - horizon + 1, stride)
        ]
    if not found:
        reach = f" after the {shape.lead} of their history" if shape.lead else ""
        raise InputError(
            f"no run has {horizon} steps{reach}; the longest has {max(longest, 0)}: choose a shorter horizon"
        )
    return Windows(*(np.array(part) for part in zip(*found, strict=True)))


def checked_recording(recording: Recording, number: int) -> tuple[FloatArray, FloatArray]:
    """Outputs and inputs of one recording as matching arrays."""
    y, u = as_floats(recording[0], f"states of run {number}"), as_floats(recording[1], f"inputs of run {number}")
    if y.ndim != 2 or u.ndim != 2 or len(y) != len(u) + 1:
        raise InputError(
            f"run {number} must have states (n + 1, n_states) and inputs (n, n_inputs); got {y.shape} and {u.shape}"
        )
    return y, u


def in_steps(outputs: FloatArray, inputs: FloatArray, every: int) -> tuple[FloatArray, FloatArray]:
    """A recording in steps of `every` samples: outputs at their ends, inputs averaged over them.

    The sum of each average is rounded once, so that a checker that recomputes it gets the same doubles.
    """
    if every == 1:
        return outputs, inputs
    n_steps = len(inputs) // every
    means = [
        [math.fsum(column) / every for column in inputs[k * every : (k + 1) * every].T.tolist()] for k in range(n_steps)
    ]
    return outputs[: n_steps * every + 1 : every], np.array(means).reshape(n_steps, inputs.shape[1])


def history_at(outputs: FloatArray, inputs: FloatArray, t: int, shape: Shape) -> FloatArray:
    """The part of the past, known at step `t`, that the future depends on."""
    past = [outputs[t - k] for k in range(shape.output_lags)]
    return np.concatenate([*past, *(inputs[t - k] for k in range(1, shape.input_lags + 1))])
