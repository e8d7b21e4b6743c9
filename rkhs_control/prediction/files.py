"""Predictors in files: runs, kernels and norm bounds in one NPZ, which reads back bit for bit."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from ..assumptions.norms import NormBound
from ..assumptions.priors import AffinePrior, StepOfModel
from ..data.trajectories import Trajectories
from ..envelopes.methods import METHODS, method_name
from ..errors import InputError
from ..kernels.files import kernel_from_dict
from .by_step import NarrowingTable
from .narrowing import ROUNDS, Slopes
from .predictor import MultiStepPredictor

FORMAT, FORMER = "rkhs_control predictor 3", ("rkhs_control predictor 1", "rkhs_control predictor 2")
_PARTS = [field.name for field in fields(Slopes)]


def save_predictor(predictor: MultiStepPredictor, file: str | Path) -> None:
    """Write a predictor to an NPZ file."""
    path = _npz(file)
    if any(isinstance(prior, StepOfModel) for row in predictor.priors for prior in row):
        raise InputError("a predictor with a prior model cannot be saved: a file does not hold functions; select again")
    assumptions = {
        "format": FORMAT,
        "method": method_name(predictor.method),
        "options": predictor.options,
        "kernels": [[kernel.to_dict() for kernel in row] for row in predictor.kernels],
        "norm_bounds": [[vars(bound) for bound in row] for row in predictor.norm_bounds],
        "rounds": predictor.rounds,
        "priors": [[None if prior is None else vars(prior) for prior in row] for row in predictor.priors],
    }
    try:
        text = json.dumps(assumptions)
    except TypeError as error:
        raise InputError(f"this predictor cannot be saved: its options must be numbers and names ({error})") from None
    runs = {field.name: np.asarray(getattr(predictor.runs, field.name)) for field in fields(Trajectories)}
    np.savez_compressed(path, assumptions=text, **runs, **_arrays(predictor.narrowing))  # type: ignore[arg-type]


def load_predictor(file: str | Path) -> MultiStepPredictor:
    """Read a predictor written by `save_predictor`; its assumptions are checked against its data again."""
    path = _npz(file)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            content = dict(arrays)
        assumptions = json.loads(str(content["assumptions"]))
        if assumptions["format"] not in (FORMAT, *FORMER):
            raise ValueError(assumptions["format"])
        names = [field.name for field in fields(Trajectories)]
        values: dict[str, Any] = {name: content[name] for name in names if name in content}
        texts = {name: tuple(value.tolist()) for name, value in values.items() if name.endswith(("_names", "_units"))}
        values = {**values, **texts, "sampling_time": float(values["sampling_time"])}
        values["has_residual_bound"] = bool(values.get("has_residual_bound", False))
        kernels, bounds, method, options = (assumptions[key] for key in ("kernels", "norm_bounds", "method", "options"))
        norm_bounds = [[NormBound(**bound) for bound in row] for row in bounds]
        none = [[None] * len(row) for row in bounds]  # the previous format had no priors
        priors = [
            [None if prior is None else AffinePrior(**prior) for prior in row]
            for row in assumptions.get("priors", none)
        ]
        narrowing = _narrowing(content, len(bounds), len(bounds[0])) if assumptions["format"] == FORMAT else None
    except Exception as error:  # whatever may be wrong with a file from elsewhere
        raise InputError(f"{path}: not a file that save_predictor wrote ({type(error).__name__})") from None
    if method not in METHODS:
        raise InputError(f"{path}: there is no envelope {method!r}; there is: {', '.join(METHODS)}")
    return MultiStepPredictor(
        Trajectories(**values),
        [[kernel_from_dict(kernel) for kernel in row] for row in kernels],
        norm_bounds,
        METHODS[method],
        options,
        priors=priors,
        rounds=assumptions.get("rounds", ROUNDS),
        narrowing=narrowing,
    )


def _arrays(narrowing: NarrowingTable) -> dict[str, Any]:
    """The weights of all rounds, by step, state, round and part."""
    return {
        f"narrowing_{n}_{i}_{r}_{part}": getattr(slopes, part)
        for n, row in enumerate(narrowing)
        for i, rounds in enumerate(row)
        for r, slopes in enumerate(rounds)
        for part in _PARTS
    }


def _narrowing(content: dict[str, Any], n_steps: int, n_states: int) -> NarrowingTable:
    def rounds(n: int, i: int) -> tuple[Slopes, ...]:
        keys = (f"narrowing_{n}_{i}_{r}_" for r in count())
        return tuple(Slopes(*(content[key + part] for part in _PARTS)) for key in takewhile(is_there, keys))

    def is_there(key: str) -> bool:
        return key + _PARTS[0] in content

    return tuple(tuple(rounds(n, i) for i in range(n_states)) for n in range(n_steps))


def _npz(file: str | Path) -> Path:
    path = Path(file)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: a predictor is kept in a file that ends in .npz")
    return path
