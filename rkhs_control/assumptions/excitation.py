"""Whether recorded runs suffice: their number, how often inputs change, how much of the past they contain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..data.arrays import FloatArray, IndexArray, listed
from ..data.trajectories import Trajectories
from .findings import Finding
from .symptoms import FEW_LEVELS, FEW_SAMPLES, Stretch, percent

RUNS_PER_DIMENSION = 3
"""Fewer are few."""
FEW_CHANGES = 20
"""Of an input, in all windows together."""
WITHIN_SHARE = 0.2
"""Share of an input's changes that may fall within steps before that is worth saying."""


def of_runs(runs: Trajectories, parts: Sequence[Stretch]) -> Iterator[Finding]:
    """What there is too little of in the runs."""
    for j, name in enumerate(runs.input_names):
        if np.ptp(runs.inputs[:, :, j]) > 0.0:
            yield from held(name, runs, j)
            yield from little_excitation(name, runs, j, parts)
            yield from within_steps(name, runs.shape.every, [(part.first, part.inputs[:, j]) for part in parts])
    yield from too_few(runs, parts)
    if runs.is_windowed and runs.shape.lead == 0:
        names = ", ".join(runs.state_names)
        yield Finding(
            "note",
            names,
            f"windows begin with {names} alone: that is enough only if these are the whole state of the plant; where "
            "some of it was not recorded, output_lags and input_lags make histories",
        )


def held(name: str, runs: Trajectories, j: int) -> Iterator[Finding]:
    """Inputs that only differ from run to run, or only take a few levels."""
    inputs = runs.inputs[:, :, j]
    if runs.horizon > 1 and (inputs == inputs[:, :1]).all():
        yield Finding(
            "warning",
            name,
            f"{name} never changes within the {runs.kind}: boxes are narrow only for plans that hold it as well; "
            "record runs in which it changes if plans will change it",
        )
    levels = np.unique(inputs)
    if len(levels) <= FEW_LEVELS and inputs.size >= FEW_SAMPLES:
        yield Finding(
            "note",
            name,
            f"{name} was only tried at {listed(levels)}: between these values boxes rest on the norm bound more than "
            "on data",
        )


def little_excitation(name: str, runs: Trajectories, j: int, parts: Sequence[Stretch]) -> Iterator[Finding]:
    """Windows of a recording in which an input changes only a few times."""
    n_changes = sum(int((np.diff(part.inputs[:, j]) != 0.0).sum()) for part in parts)
    if not runs.is_windowed or not 0 < n_changes < FEW_CHANGES:
        return
    inputs = runs.inputs[:, :, j]
    calm = float((inputs == inputs[:, :1]).all(axis=1).mean())
    n_steps = sum(len(part.inputs) for part in parts)
    yield Finding(
        "warning",
        name,
        f"{name} changes {n_changes} times in {n_steps} steps, and in {percent(calm)} of the {len(runs)} windows not "
        "at all: most of them show the same; record more changes of it, or take longer steps (every)",
    )


def within_steps(name: str, every: int, columns: Sequence[tuple[int, FloatArray]]) -> Iterator[Finding]:
    """An input that is held for several steps and changes within them; columns begin at a step of their recording."""
    found = [_changes(every, first, inputs) for first, inputs in columns]
    at, blended = (np.concatenate(part) for part in zip(*found, strict=True))
    n_within = int(blended.sum())
    if every == 1 or len(at) < FEW_CHANGES or n_within <= WITHIN_SHARE * len(at):
        return
    common = math.gcd(*at.tolist())
    better = [size for size in range(every // 2, 2 * every + 1) if size > 1 and common % size == 0]
    closest = sorted(sorted(better, key=lambda size: abs(size - every))[:2])
    cure = (
        f"steps of {' or '.join(map(str, closest))} samples begin where it changes"
        if closest
        else "choose every, and where the recording begins, so that steps begin where it changes"
    )
    yield Finding(
        "warning",
        name,
        f"{n_within} of {len(at)} changes of {name} fall within a step of {every} samples, whose average does not say "
        f"when: boxes must allow for any time; {cure}",
    )


def _changes(every: int, first: int, inputs: FloatArray) -> tuple[IndexArray, IndexArray]:
    """The samples at which a held input changes, and whether that is within a step (1) or between two (0).

    A step whose average lies between its neighbours, which are held, contains the change.
    """
    at, blended = [], []
    jumps = np.diff(inputs)
    for k in np.flatnonzero(jumps[1:-1]) + 1:  # between the steps k and k + 1
        before, here, after = jumps[k - 1 : k + 2]
        if before == 0.0 and after == 0.0:
            at.append((first + k + 1) * every)
            blended.append(0)
        elif before == 0.0 and here * after > 0.0 and (k + 2 >= len(jumps) or jumps[k + 2] == 0.0):
            at.append((first + k + 2) * every - round(every * here / (here + after)))
            blended.append(1)
    return np.array(at, dtype=np.int64), np.array(blended, dtype=np.int64)


def too_few(runs: Trajectories, parts: Sequence[Stretch]) -> Iterator[Finding]:
    """Fewer runs than a function of this many arguments needs."""
    n_dims, n_runs = runs.n_history + runs.horizon * runs.n_inputs, len(runs)
    length = runs.horizon + runs.shape.lead
    n_apart = sum(max(1, len(part.inputs) // length) for part in parts)
    arguments = f"{runs.n_history} at the start and {runs.horizon} x {runs.n_inputs} inputs"
    cure = "shorten the horizon or the history, take longer steps, or record more"
    if n_runs < RUNS_PER_DIMENSION * n_dims:
        yield Finding(
            "problem" if n_runs <= n_dims else "warning",
            "runs",
            f"{n_dims} numbers that the last step depends on ({arguments}) are many for {n_runs} "
            f"{runs.kind if n_runs > 1 else runs.kind[:-1]}: not even an affine function is known from {n_dims} of "
            f"them; {cure}",
        )
    elif runs.is_windowed and n_apart <= n_dims:
        yield Finding(
            "warning",
            "runs",
            f"of {n_runs} windows only {n_apart} share no sample, for {n_dims} numbers that the last step depends on "
            f"({arguments}): they say less than their number does; {cure}",
        )
