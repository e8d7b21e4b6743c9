"""Plans that may lead back into a region: recorded ones, a controller's, and ones that steer to its middle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..certificates.margins import input_violation
from ..data.arrays import FloatArray, as_floats, require_finite
from ..data.limits import PlacedLimits
from ..data.sets import Box
from ..errors import InputError, RkhsControlError
from ..prediction.predictor import MultiStepPredictor
from .certainty_equivalent import CertaintyEquivalentOCP, QuadraticCost
from .planners import planner_of
from .robust import RobustOCP

Candidates = Any
"""Input sequences `(n_plans, n_steps, n_inputs)`, a function from a state to plans, or a controller."""
Maker = Callable[[FloatArray], list[FloatArray]]
"""From a state to plans, `(n_steps, n_inputs)` each; possibly none."""

_NEIGHBOURS = 16
"""Number of recorded runs around a cell that are ranked by where they ended."""
_RANKS = ((0, 1), (1, 1), (2, 1), (0, 2), (0, 3))
"""Which of the ranked runs are tried, and for how many steps."""
_SETTLED = 0.25
"""Share of the runs, those that change least at the end, that are taken to settle."""
_RIDGE = 1e-2
"""Of the models that steer to the middle."""
_EFFORT = 1e-4
"""Cost of an input's whole range, relative to that of a state."""
_ITERATIONS = 15
"""Of a robust problem that looks for a plan."""


def recorded_plans(
    predictor: MultiStepPredictor, limits: PlacedLimits, whole: Box, max_steps: int, middle: FloatArray
) -> Iterator[FloatArray]:
    """Inputs of runs near some states `(m, n_states)`, in rounds `(m, n_steps, n_inputs)`, the most promising first.

    Boxes are narrow near what was recorded. Of runs that began nearby, those come first that are far inside the limits
    after so many steps and at their own end: what is deep inside for a moment only is a poor plan. Where limits are so
    tight that a first step is not enough, what helps is a run that settles, and the input at which runs settle, held:
    boxes at the end are then hardly wider than those of a point.
    """
    from scipy.spatial import cKDTree

    runs, size = predictor.runs, whole.upper - whole.lower
    usable = np.flatnonzero([input_violation(plan, limits, runs.input_names) is None for plan in runs.inputs])
    if not len(usable):
        return
    states = runs.states[usable, 1:]
    depth = (np.minimum(states - whole.lower, whole.upper - states) / size).min(axis=2)
    depth = np.minimum(depth, depth[:, -1:])
    n_near = min(_NEIGHBOURS, len(usable))
    distance, near = cKDTree(runs.states[usable, 0] / size).query(middle / size, k=range(1, n_near + 1))

    def ranked(rank: int, n_steps: int) -> FloatArray:
        best = np.argsort(distance - depth[near, n_steps - 1], axis=1, kind="stable")[:, rank]
        return runs.inputs[usable[near[np.arange(len(middle)), best]], :n_steps]

    first, *others = dict.fromkeys((rank, min(n, max_steps)) for rank, n in _RANKS if rank < n_near)
    yield ranked(*first)
    changes = np.linalg.norm((runs.states[usable, -1] - runs.states[usable, -2]) / size, axis=1)
    settled = usable[np.argsort(changes, kind="stable")[: math.ceil(_SETTLED * len(usable))]]
    settling = runs.inputs[settled[cKDTree(runs.states[settled, 0] / size).query(middle / size)[1]], :max_steps]
    yield settling
    yield np.broadcast_to(np.median(runs.inputs[settled, -1], axis=0), settling.shape)
    for other in others:
        yield ranked(*other)


def steering_to(
    predictor: MultiStepPredictor, limits: PlacedLimits, whole: Box, max_steps: int, target: FloatArray
) -> CertaintyEquivalentOCP:
    """The certainty-equivalent problem that steers to a state."""
    size, box, runs = whole.upper - whole.lower, limits.input_box, predictor.runs
    is_bounded = bool(np.isfinite([box.lower, box.upper]).all())
    reference = (box.lower + box.upper) / 2.0 if is_bounded else np.zeros(box.n_dims)
    effort = np.diag(_EFFORT / (box.upper - box.lower) ** 2) if is_bounded else np.zeros((box.n_dims, box.n_dims))
    weight = np.diag(size**-2)
    return CertaintyEquivalentOCP.from_runs(
        runs.shortened(max_steps),
        predictor.kernels[:max_steps],
        _RIDGE,
        priors=predictor.priors[:max_steps],
        cost=QuadraticCost(weight, effort, weight, target, reference, max_steps),
        limits=limits,
    )


def robust_plan(
    predictor: MultiStepPredictor, problem: CertaintyEquivalentOCP, limits: PlacedLimits, start: Box, end: Box
) -> list[FloatArray]:
    """The plan of a robust problem from everywhere in a box into another, in a list that is empty if none is found."""
    robust = RobustOCP(predictor, problem, limits, initial_state_noise=0.0, iterations=_ITERATIONS, terminal=end)
    try:
        found = robust.solve(start)
    except (RkhsControlError, RuntimeError):  # there is no plan from here
        return []
    return [found.inputs] if found.success else []


def plans_of(candidates: Candidates, n_inputs: int) -> Maker:
    """A function that makes plans from any kind of candidates."""
    if isinstance(candidates, (np.ndarray, list, tuple)):
        plans = _checked(as_floats(candidates, "candidates"), n_inputs)
        return lambda x: plans
    planner = planner_of(candidates)
    if not callable(planner):
        raise InputError(f"candidates must be plans, a controller or a function; got {type(candidates).__name__}")

    def make(x: FloatArray) -> list[FloatArray]:
        try:
            made = as_floats(planner(x), "candidates")
        except (RkhsControlError, RuntimeError):  # there is no plan from here
            return []
        return _checked(made[None] if made.ndim == 2 else made, n_inputs) if made.size else []

    return make


def _checked(plans: FloatArray, n_inputs: int) -> list[FloatArray]:
    if plans.ndim != 3 or not plans.shape[1] or plans.shape[2] != n_inputs:
        raise InputError(f"candidates must have shape (n_plans, n_steps, {n_inputs}); got {plans.shape}")
    require_finite(plans, "candidates")
    return list(plans)
