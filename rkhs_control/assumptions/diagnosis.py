"""Look at recorded runs, plans and limits before anything is computed: likely mistakes, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, as_floats
from ..data.limits import GivenLimits, Limits
from ..data.plans import Plans
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import InputError
from .excitation import of_runs
from .findings import Diagnosis, Finding, Severity
from .misfits import of_norms
from .symptoms import of_columns, stretches

CLOSE, FAR = 0.05, 0.5
"""How far a plan is outside the recorded range, as shares of that range: good to know, or most likely a mistake."""


def diagnose(
    runs: Trajectories,
    plans: Plans | tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    limits: GivenLimits | None = None,
) -> Diagnosis:
    """What stands out in recorded runs, and in plans and limits compared with them.

    It inspects, and estimates where it must: a finding is not a proof, and no finding is not a promise.

    Parameters
    ----------
    runs : Trajectories
    plans : Plans, or a pair (x0, inputs), optional
        Initial states or histories, `(n_history,)` or one row per plan, and inputs, `(n_steps, n_inputs)` each.
    limits : Limits, or what limits the states, optional

    Returns
    -------
    Diagnosis
        `print` shows one line per finding; `has_problems` says whether something is most likely a mistake.
    """
    if not isinstance(runs, Trajectories):
        raise InputError(f"runs must be Trajectories; got {type(runs).__name__}")
    parts = stretches(runs)
    findings = [*of_columns(runs, parts), *of_runs(runs, parts), *of_norms(runs)]
    if plans is not None:
        findings += _of_plans(runs, plans if isinstance(plans, Plans) else _plans(plans))
    if limits is not None:
        findings += _of_limits(runs, Limits.of(limits))
    return Diagnosis(tuple(findings))


def _plans(given: tuple[npt.ArrayLike, npt.ArrayLike]) -> Plans:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"plans must be Plans or a pair (x0, inputs); got {type(given).__name__}")
    x0, inputs = np.atleast_2d(as_floats(given[0], "x0")), as_floats(given[1], "inputs")
    inputs = inputs[None] if inputs.ndim == 2 else inputs
    if len(x0) != len(inputs):
        raise InputError(f"x0 and inputs must have one row per plan; got {len(x0)} and {len(inputs)}")
    return Plans([str(number) for number in range(len(x0))], list(x0), list(inputs))


def _of_plans(runs: Trajectories, plans: Plans) -> Iterator[Finding]:
    """Compare plans with the recordings, entry by entry of the history and input by input."""
    n_entries, n_inputs = plans.x0[0].size, plans.inputs[0].shape[1]
    if n_entries not in (runs.n_states, runs.n_history) or n_inputs != runs.n_inputs:
        raise InputError(
            f"plans must begin with {', '.join(runs.history_names)} and have the inputs {', '.join(runs.input_names)}; "
            f"got {n_entries} and {n_inputs} numbers"
        )
    longest = max(map(len, plans.inputs))
    if longest > runs.horizon:
        yield Finding(
            "problem",
            "plan",
            f"the longest plan has {longest} steps, but the {runs.kind} only {runs.horizon}: nothing was recorded of "
            f"the last ones; shorten it, or {'cut' if runs.is_windowed else 'record'} longer {runs.kind}",
        )
    starts = np.array(plans.x0)
    for i, name in enumerate(runs.history_names[:n_entries]):
        yield from _outside(name, runs.histories[:, i], [start[None] for start in starts[:, i]], plans.names)
    for i, name in enumerate(runs.input_names):
        yield from _outside(name, runs.inputs[:, :, i], [inputs[:, i] for inputs in plans.inputs], plans.names)


def _outside(name: str, recorded: FloatArray, planned: list[FloatArray], names: tuple[str, ...]) -> Iterator[Finding]:
    lower, upper = float(recorded.min()), float(recorded.max())
    beyond = [np.maximum(lower - values, values - upper) for values in planned]
    worst = int(np.argmax([distance.max() for distance in beyond]))
    distance, value = float(beyond[worst].max()), float(planned[worst][beyond[worst].argmax()])
    if distance <= 1e-9 * max(upper - lower, abs(lower), abs(upper)):
        return
    share = distance / (upper - lower) if upper > lower else math.inf
    guess = unit_guess(value, lower, upper)
    severity: Severity = "problem" if guess or share > FAR else "note" if share <= CLOSE else "warning"
    n_others = sum(bool((other > 0.0).any()) for other in beyond) - 1
    others = f" ({n_others} of the other plans as well)" if n_others else ""
    where = f" in plan {names[worst]}" if len(names) > 1 else ""
    cure = "check the unit" if guess else "plan within what was recorded, or record runs there"
    yield Finding(
        severity,
        name,
        f"{name} = {value:.6g}{where} is outside the recorded [{lower:.6g}, {upper:.6g}]{others}{guess or '.'} Boxes "
        f"there rest on the norm bound alone; {cure}",
    )


def _of_limits(runs: Trajectories, limits: Limits) -> Iterator[Finding]:
    """Limits that no recorded sample satisfies."""
    placed = limits.over(runs.state_names, runs.input_names)
    for names, box, recorded in (
        (runs.state_names, placed.states, runs.states),
        (runs.input_names, placed.inputs, runs.inputs),
    ):
        if not isinstance(box, Box):
            continue
        for i, name in enumerate(names):
            ends, values = (float(box.lower[i]), float(box.upper[i])), recorded[:, :, i]
            lower, upper = float(values.min()), float(values.max())
            if ends[0] > upper or ends[1] < lower:
                middle = float(np.mean([end for end in ends if math.isfinite(end)]))
                yield Finding(
                    "problem",
                    name,
                    f"the limits of {name}, [{ends[0]:.6g}, {ends[1]:.6g}], lie wholly outside of the recorded "
                    f"[{lower:.6g}, {upper:.6g}]{unit_guess(middle, lower, upper) or '.'} Nothing that was recorded "
                    "kept them; check the unit, or record runs there",
                )


def unit_guess(value: float, lower: float, upper: float) -> str:
    """`: degrees?` where a number outside a range would be inside it in another unit; empty where none fits."""
    largest = max(abs(lower), abs(upper))

    def fits(other: float, room: float = 0.1) -> bool:
        room *= upper - lower
        return abs(other) > 0.1 * largest and lower - room <= other <= upper + room

    is_far, is_small = abs(value) > 2.0 * largest, abs(value) <= 2.0 * math.pi
    guesses = (
        (": kelvin?", value > 150.0 and fits(value - 273.15, room=1.0)),
        (": degrees Celsius?", lower > 150.0 and fits(value + 273.15, room=1.0)),
        (": percent?", is_far and lower >= 0.0 and upper <= 1.0 and fits(value / 100.0)),
        (": degrees?", is_far and largest <= 2.0 * math.pi and fits(math.radians(value))),
        (": a fraction?", 0.0 <= value <= 1.0 and lower >= 0.0 and 10.0 < upper <= 100.0 and fits(100.0 * value)),
        (": radians?", is_small and 2.0 * math.pi < largest <= 360.0 and fits(math.degrees(value))),
    )
    return next((guess for guess, holds in guesses if holds), "")
