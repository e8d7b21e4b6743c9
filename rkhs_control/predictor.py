"""Multi-step predictors: one envelope a step and a state, from the initial state and the inputs up to that step.

The state after `n` steps is an unknown function of `z = (x_0, u_0, ..., u_{n-1})`. Each of its components gets an
envelope of its own, so that boxes do not build on boxes: no bound is propagated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .envelope.base import Band, Envelope
from .envelope.optimal import OptimalEnvelope
from .errors import InputError, RkhsControlError
from .kernels import UNIT_ROUNDOFF, Kernel, SquaredExponential
from .norms import NormBound, least_norm_estimate
from .observations import Observations
from .regression import cross_validate
from .trajectories import Trajectories
from .validation import FloatArray, as_floats, as_vector, require_finite


@dataclass(frozen=True, eq=False)
class Tube:
    """A box a step that holds the true state: `lower`, `upper` and `gap` of shape `(n_steps, n_states)`.

    For many plans at once all have a leading axis. `initial_state_cost` is by how much each end lies further out
    because the initial state of the plan is not known exactly.
    """

    lower: FloatArray
    upper: FloatArray
    gap: FloatArray
    initial_state_cost: FloatArray

    @property
    def volumes(self) -> FloatArray:
        """Of each box (areas, for two states)."""
        volumes: FloatArray = np.prod(self.upper - self.lower, axis=-1)
        return volumes

    def contains(self, states: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether the states at the steps 1, 2, ... lie in their boxes; shape `(n_steps,)`, plans in front."""
        x = as_floats(states, "states")
        if x.shape != self.lower.shape:
            raise InputError(f"states must have the shape of the tube, {self.lower.shape}; got {x.shape}")
        inside: npt.NDArray[np.bool_] = np.all((self.lower <= x) & (x <= self.upper), axis=-1)
        return inside


@dataclass(frozen=True, eq=False)
class MultiStepPredictor:
    """Boxes for the future states of a plant, guaranteed by recorded runs.

    Parameters
    ----------
    runs : Trajectories
    kernels : Kernel, or a list of one a step, each a Kernel or a list of one a state
    norm_bounds : float or NormBound, or lists like `kernels`
    method : the class of envelope, `OptimalEnvelope` by default; `options` are further arguments of it
    initial_state_noise : float or (n_states,)
        How far the recorded initial states may be from the true ones (windows of a long recording begin with a
        measured state). Each interval is widened by what that can do to a function of the given norm.
    """

    runs: Trajectories
    kernels: Any
    norm_bounds: Any
    method: type[Envelope] = OptimalEnvelope
    options: dict[str, Any] = field(default_factory=dict)
    initial_state_noise: float | FloatArray = 0.0
    envelopes: tuple[tuple[Envelope, ...], ...] = field(init=False)
    """By step and state."""

    def __post_init__(self) -> None:
        runs = self.runs
        kernels = _by_step_and_state(self.kernels, Kernel, "kernels", runs)
        bounds = _by_step_and_state(self.norm_bounds, (float, int, NormBound), "norm_bounds", runs)
        object.__setattr__(self, "initial_state_noise", _noise_by_state(self.initial_state_noise, runs.n_states))
        rows = [
            tuple(self._envelope(n, i, kernels[n][i], NormBound.of(bounds[n][i])) for i in range(runs.n_states))
            for n in range(runs.horizon)
        ]
        object.__setattr__(self, "envelopes", tuple(rows))

    @classmethod
    def select(
        cls,
        runs: Trajectories,
        lengthscales: Sequence[float | Sequence[float]],
        *,
        regularisations: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1),
        folds: int = 5,
        safety_factor: float = 3.0,
        selection: Trajectories | None = None,
        rng: np.random.Generator | None = None,
        **fields: Any,
    ) -> MultiStepPredictor:
        """Choose lengthscales by cross-validation and norm bounds by estimate, for every step and state.

        `lengthscales` are candidates for squared exponentials, numbers or one a dimension of `z` at the last step (the
        first ones serve shorter sequences). `selection` are the runs to choose with, `runs` by default; the norm bound
        is their least norm times `safety_factor`. That is an assumption, not a proof; where noise limits what can be
        told, a generous factor widens the boxes little.
        """
        source = runs if selection is None else selection
        kernels: list[list[Kernel]] = []
        bounds: list[list[NormBound]] = []
        for n in range(runs.horizon):
            n_dims = runs.n_states + (n + 1) * runs.n_inputs
            candidates = [scale if np.ndim(scale) == 0 else tuple(scale)[:n_dims] for scale in lengthscales]  # type: ignore[arg-type]
            kernels.append([])
            bounds.append([])
            for i in range(runs.n_states):
                data = Observations(_arguments(source, n), source.states[:, n + 1, i], source.noise_bound[n, i])
                chosen = cross_validate(
                    data, candidates, regularisations, folds=folds, kernel=SquaredExponential, rng=rng
                )
                kernels[n].append(chosen.kernel)
                bounds[n].append(least_norm_estimate(data, chosen.kernel).times(safety_factor))
        return cls(runs, kernels, bounds, **fields)

    @property
    def horizon(self) -> int:
        return self.runs.horizon

    def with_norm_factor(self, factor: float) -> MultiStepPredictor:
        """The same predictor with every norm bound multiplied by `factor`."""
        bounds = [[NormBound.of(e.norm_bound).times(factor) for e in row] for row in self.envelopes]
        if np.any(self.initial_state_noise):  # the intervals depend on the norm bounds
            return replace(self, norm_bounds=bounds)
        other = copy(self)
        rows = [
            tuple(e.with_norm_bound(b) for e, b in zip(*pair, strict=True))
            for pair in zip(self.envelopes, bounds, strict=True)
        ]
        object.__setattr__(other, "norm_bounds", bounds)
        object.__setattr__(other, "envelopes", tuple(rows))
        return other

    def boxes(
        self,
        x0: npt.ArrayLike,
        inputs: npt.ArrayLike,
        *,
        initial_state_noise: float | npt.ArrayLike = 0.0,
        n_jobs: int | None = None,
    ) -> Tube:
        """The tube of a plan: initial state `(n_states,)` and inputs `(n_steps, n_inputs)`, up to the horizon.

        Thousands of plans at once have a leading axis, `(n_plans, n_states)` and `(n_plans, n_steps, n_inputs)`;
        `n_jobs` spreads steps and states over processes. `initial_state_noise` says how far the true initial state may
        be from `x0`.
        """
        from joblib import Parallel, delayed

        start, plan = self._checked(x0, inputs)
        noise = _noise_by_state(initial_state_noise, self.runs.n_states)
        n_steps = plan.shape[1]
        tasks = [
            delayed(envelope.bounds)(_stack(start, plan[:, : n + 1]), 1)
            for n in range(n_steps)
            for envelope in self.envelopes[n]
        ]
        bands: list[Band] = Parallel(n_jobs=n_jobs)(tasks)
        shape = (n_steps, self.runs.n_states, len(start))
        lower, upper, gap = (
            np.moveaxis(np.array([getattr(band, name) for band in bands]).reshape(shape), -1, 0)
            for name in ("lower", "upper", "gap")
        )
        cost = np.array([[_displacement(envelope, noise) for envelope in row] for row in self.envelopes[:n_steps]])
        lower, upper = _further_out(lower, -cost), _further_out(upper, cost)
        cost = np.broadcast_to(cost, lower.shape)
        if np.ndim(x0) == 1:
            return Tube(lower[0], upper[0], gap[0], cost[0])
        return Tube(lower, upper, gap, cost)

    def contradictions(self, held_out: Trajectories, n_jobs: int | None = None) -> npt.NDArray[np.bool_]:
        """Where recordings that were held out refute the assumptions; shape `(n_runs, n_steps, n_states)`.

        A recorded state and its noise bound make an interval that holds the true state, and so does the box. Where the
        two do not meet, the noise bounds or the norm bounds are wrong. That nothing is found proves nothing.
        """
        tube = self.boxes(
            held_out.states[:, 0], held_out.inputs, initial_state_noise=self.initial_state_noise, n_jobs=n_jobs
        )
        recorded, noise = held_out.states[:, 1:], held_out.noise_bound * (1.0 + 4.0 * UNIT_ROUNDOFF)
        low, high = np.nextafter(recorded - noise, -np.inf), np.nextafter(recorded + noise, np.inf)
        disjoint: npt.NDArray[np.bool_] = (low > tube.upper) | (high < tube.lower)
        return disjoint

    def _envelope(self, n: int, i: int, kernel: Kernel, bound: NormBound) -> Envelope:
        runs, noise = self.runs, self.initial_state_noise
        try:
            arguments = _arguments(runs, n)
            padded = np.concatenate([np.asarray(noise), np.zeros((n + 1) * runs.n_inputs)])
            widening = bound.value * _section_distance(kernel, padded)
            interval = runs.noise_bound[n, i] + widening * (1.0 + 4.0 * UNIT_ROUNDOFF)
            data = Observations(arguments, runs.states[:, n + 1, i], interval * (1.0 + 2.0 * UNIT_ROUNDOFF))
            return self.method(data, kernel, bound, **self.options)
        except RkhsControlError as error:
            raise type(error)(f"step {n + 1}, state {runs.state_names[i]}: {error}") from None

    def _checked(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        runs = self.runs
        start, plan = as_floats(x0, "x0"), as_floats(inputs, "inputs")
        if start.ndim == 1:
            start, plan = start[None], plan[None]
        if start.ndim != 2 or start.shape[1] != runs.n_states:
            raise InputError(f"x0 must hold {runs.n_states} states ({', '.join(runs.state_names)}); got {np.shape(x0)}")
        if plan.ndim != 3 or plan.shape[::2] != (len(start), runs.n_inputs) or plan.shape[1] == 0:
            raise InputError(
                f"inputs must have shape (n_steps, {runs.n_inputs}), for many plans ({len(start)}, n_steps, "
                f"{runs.n_inputs}); got {np.shape(inputs)}"
            )
        if plan.shape[1] > runs.horizon:
            raise InputError(
                f"the plan has {plan.shape[1]} steps, but the recorded runs only {runs.horizon}: shorten the plan, or "
                "record longer runs"
            )
        require_finite(start, "x0")
        require_finite(plan.reshape(len(plan), -1), "inputs")
        return start, plan


def _stack(states: FloatArray, inputs: FloatArray) -> FloatArray:
    """`z = (x_0, u_0, ..., u_n)`, a row a run."""
    return np.hstack([states, inputs.reshape(len(inputs), -1)])


def _arguments(runs: Trajectories, n: int) -> FloatArray:
    """The arguments of the map to step `n + 1`."""
    return _stack(runs.states[:, 0], runs.inputs[:, : n + 1])


def _section_distance(kernel: Kernel, displacement: FloatArray) -> float:
    """The largest `|| k_z - k_z' ||` for `|z - z'| <= displacement`, entry by entry, rounded up.

    The kernels fall with every coordinate's distance, so it is that of the corner.
    """
    fall = float(kernel.fall(displacement[None, :], np.zeros((1, len(displacement))))[0, 0])
    return math.sqrt(2.0 * fall) * (1.0 + kernel.rounding(len(displacement)) + 4.0 * UNIT_ROUNDOFF)


def _displacement(envelope: Envelope, noise: FloatArray) -> float:
    """How far the value at a query can be off when its initial state is off by `noise`."""
    padded = np.concatenate([noise, np.zeros(envelope.data.n_dims - len(noise))])
    return envelope.radius * _section_distance(envelope.kernel, padded) * (1.0 + 2.0 * UNIT_ROUNDOFF)


def _further_out(ends: FloatArray, shift: FloatArray) -> FloatArray:
    """`ends + shift`, rounded in the direction of the shift; as they are where it is zero."""
    return np.where(shift == 0.0, ends, np.nextafter(ends + shift, np.where(shift > 0.0, np.inf, -np.inf)))


def _noise_by_state(noise: float | npt.ArrayLike, n_states: int) -> FloatArray:
    array = as_floats(noise, "initial_state_noise")
    array = as_vector(np.full(n_states, array) if array.ndim == 0 else array, "initial_state_noise", n_states)
    if (array < 0).any():
        raise InputError(f"initial_state_noise must be zero or more; got {array.min()}")
    return array


def _by_step_and_state(given: Any, kinds: Any, name: str, runs: Trajectories) -> list[list[Any]]:
    """One entry a step and a state, from one for all, one a step, or one a step and state."""
    rows = [given] * runs.horizon if isinstance(given, kinds) else list(given)
    if len(rows) != runs.horizon:
        raise InputError(f"{name} must be one for all or a list of one a step, {runs.horizon}; got {len(rows)}")
    table = [[row] * runs.n_states if isinstance(row, kinds) else list(row) for row in rows]
    for n, row in enumerate(table):
        if len(row) != runs.n_states or not all(isinstance(entry, kinds) for entry in row):
            raise InputError(f"{name}[{n}] must be one for all states or a list of {runs.n_states}; got {row!r}")
    return table
