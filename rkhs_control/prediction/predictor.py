"""Multi-step predictors: one envelope per step and state, from the initial state and the inputs up to that step.

The state after `n` steps is an unknown function of `z = (x_0, u_0, ..., u_{n-1})`. Each of its components gets an
envelope of its own, so that boxes do not build on boxes: no bound is propagated.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import down, enlarged, further_out, up
from ..assumptions.intervals import uncertainty, widened_observations
from ..assumptions.norms import NormBound, estimated_text
from ..assumptions.priors import AffinePrior, Prior
from ..assumptions.selection import select_assumptions
from ..data.arrays import FloatArray, as_floats, require_finite
from ..data.fields import stacked
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..engine.functionals import Points
from ..engine.witness import Witness
from ..envelopes.base import Band, Envelope
from ..envelopes.optimal import OptimalEnvelope
from ..errors import InputError, RkhsControlError
from ..kernels.base import Kernel
from ..parallel import in_parallel
from .tube import Tube

KernelTable = tuple[tuple[Kernel, ...], ...]
NormTable = tuple[tuple[NormBound, ...], ...]
GivenKernels = Kernel | Sequence[Kernel | Sequence[Kernel]]
"""One for all, one per step, or one per step and state."""
PriorTable = tuple[tuple[Prior, ...], ...]
GivenPriors = Prior | Sequence[Prior | Sequence[Prior]]
"""One for all, one per step, or one per step and state; None is none."""
GivenNorms = float | NormBound | Sequence[float | NormBound | Sequence[float | NormBound]]
"""Likewise."""


@dataclass(frozen=True, eq=False, init=False)
class MultiStepPredictor:
    """Boxes for the future states of a plant, guaranteed by recorded runs.

    Parameters
    ----------
    runs : Trajectories
    kernels : Kernel, or a list of one per step, each a Kernel or a list of one per state
    norm_bounds : float or NormBound, or lists like `kernels`; kept by step and state, like the kernels
    priors : AffinePrior, or lists like `kernels`; kernels and norm bounds are then those of what it leaves
    method : the class of envelope, `OptimalEnvelope` by default; `options` are further arguments of it
    initial_state_noise : float or (n_states,)
        How far the recorded initial states may be from the true ones, instead of what `runs` say of that. It is always
        what the `runs` of a built predictor say. Each interval is widened by what it can do to a function of the given
        norm.
    """

    runs: Trajectories
    kernels: KernelTable
    norm_bounds: NormTable
    method: type[Envelope]
    options: dict[str, Any]
    initial_state_noise: FloatArray
    priors: PriorTable
    envelopes: tuple[tuple[Envelope, ...], ...] = field(init=False)
    """By step and state; for others there is `envelope`."""

    def __init__(
        self,
        runs: Trajectories,
        kernels: GivenKernels,
        norm_bounds: GivenNorms,
        method: type[Envelope] = OptimalEnvelope,
        options: dict[str, Any] | None = None,
        initial_state_noise: npt.ArrayLike | None = None,
        priors: GivenPriors = None,
    ) -> None:
        runs = runs.with_initial_state_noise(initial_state_noise)
        bounds = by_step_and_state(norm_bounds, (float, int, NormBound), "norm_bounds", runs)
        table = by_step_and_state(priors, (AffinePrior, type(None)), "priors", runs)
        _require_slopes(table, runs)
        values = {
            "runs": runs,
            "kernels": by_step_and_state(kernels, Kernel, "kernels", runs),
            "norm_bounds": tuple(tuple(NormBound.of(bound) for bound in row) for row in bounds),
            "method": method,
            "options": dict(options or {}),
            "initial_state_noise": runs.initial_state_noise,
            "priors": table,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        rows = [tuple(self._envelope(n, i) for i in range(runs.n_states)) for n in range(1, runs.horizon + 1)]
        object.__setattr__(self, "envelopes", tuple(rows))

    def __repr__(self) -> str:
        """What it is made of, in a few lines."""
        runs, kinds = self.runs, sorted({type(kernel).__name__ for row in self.kernels for kernel in row})
        norms = sorted(bound.value for row in self.norm_bounds for bound in row)
        return (
            f"MultiStepPredictor({len(runs)} {runs.kind} of {runs.horizon} steps, "
            f"states {', '.join(runs.state_names)}, inputs {', '.join(runs.input_names)},\n"
            f"    {self.method.__name__}, {' and '.join(kinds)}, norm bounds {norms[0]:.3g} to {norms[-1]:.3g})"
        )

    @classmethod
    def select(
        cls,
        runs: Trajectories,
        lengthscales: Sequence[float | Sequence[float]] | None = None,
        *,
        selection: Trajectories | None = None,
        method: type[Envelope] = OptimalEnvelope,
        options: dict[str, Any] | None = None,
        initial_state_noise: npt.ArrayLike | None = None,
        **settings: Any,
    ) -> MultiStepPredictor:
        """With kernels and norm bounds chosen by `select_assumptions`, which takes `lengthscales` and `settings`.

        `selection` are the runs to choose with, `runs` by default; other ones make `runs` a test of the choice, which
        is refused if they refute it. `initial_state_noise` replaces that of both.
        """
        runs = runs.with_initial_state_noise(initial_state_noise)
        source = runs if selection is None else selection
        chosen = select_assumptions(source, lengthscales, initial_state_noise=initial_state_noise, **settings)
        return cls(runs, chosen.kernels, chosen.norm_bounds, method, options, priors=chosen.priors)

    @property
    def horizon(self) -> int:
        """The number of steps of the recorded runs, and the longest plan that can be predicted."""
        return self.runs.horizon

    @property
    def assumption_text(self) -> str:
        """Which norm bounds were estimated, and how; empty where all were given."""
        return estimated_text(bound for row in self.norm_bounds for bound in row)

    def scaled(self, *, norm: float = 1.0, noise: float = 1.0) -> MultiStepPredictor:
        """The same predictor with every norm bound, or every noise bound, multiplied by a factor.

        The bounds on disturbances and on the error of recorded initial states are noise bounds, too.
        """
        runs = self.runs
        if noise != 1.0:
            names = ("noise_bound", "disturbance_bound", "initial_state_noise")
            runs = replace(runs, **{name: noise * getattr(runs, name) for name in names})
        bounds = tuple(tuple(bound.times(norm) for bound in row) for row in self.norm_bounds)
        other = copy(self)
        for name, value in (
            ("runs", runs),
            ("norm_bounds", bounds),
            ("initial_state_noise", runs.initial_state_noise),
        ):
            object.__setattr__(other, name, value)
        keeps_data = runs is self.runs and not np.any(self.initial_state_noise)

        def changed(n: int, i: int) -> Envelope:
            envelope = self.envelope(n, i)
            data = envelope.data if keeps_data else other._data(n, i)
            return envelope.with_assumptions(data, bounds[n - 1][i])

        rows = [tuple(changed(n, i) for i in range(runs.n_states)) for n in range(1, runs.horizon + 1)]
        object.__setattr__(other, "envelopes", tuple(rows))
        return other

    def with_runs(self, runs: Trajectories) -> MultiStepPredictor:
        """The same assumptions on the plant with other runs: more or fewer of them, and no more steps."""
        return replace(
            self,
            runs=runs,
            kernels=self.kernels[: runs.horizon],
            norm_bounds=self.norm_bounds[: runs.horizon],
            initial_state_noise=runs.initial_state_noise,
            priors=self.priors[: runs.horizon],
        )

    def with_method(self, method: type[Envelope], **options: Any) -> MultiStepPredictor:
        """The same data and assumptions under another class of envelope: what one method gains over another."""
        return replace(self, method=method, options=options)

    def boxes(
        self,
        x0: npt.ArrayLike,
        inputs: npt.ArrayLike,
        *,
        initial_state_noise: npt.ArrayLike | None = None,
        n_jobs: int | None = None,
    ) -> Tube:
        """The tube of a plan: history `(n_history,)` and inputs `(n_steps, n_inputs)`, up to the horizon.

        The history is the initial state, or what the runs have for it (`runs.history_names`). Thousands of plans at
        once have a leading axis, `(n_plans, n_history)` and `(n_plans, n_steps, n_inputs)`; `n_jobs` spreads steps and
        states over processes. `initial_state_noise` says how far the true history may be from `x0`; by default as far
        as those of the runs, which begin with measured states if they are windows.
        """
        start, plan = self._checked(x0, inputs)
        noise = self.start_noise(initial_state_noise)
        n_steps = plan.shape[1]
        queries = [stacked(start, plan[:, : n + 1]) for n in range(n_steps)]
        tasks = [(e, queries[n]) for n in range(n_steps) for e in self.envelopes[n]]
        bands = list(in_parallel(_bounds, tasks, n_jobs))

        def by_plan(values: Any) -> FloatArray:
            return np.moveaxis(np.array(values).reshape(n_steps, self.runs.n_states, len(start)), -1, 0)

        lower, upper, gap = (by_plan([getattr(band, name) for band in bands]) for name in ("lower", "upper", "gap"))
        shift = self.displacements(noise, n_steps)
        reach = shift + self.runs.disturbance_bound[:n_steps]
        middle, error = (by_plan(part) for part in self._prior_values(queries))
        reach = np.where(reach + error == 0.0, 0.0, enlarged(reach + error, 2))
        lower, upper = further_out(_plus(lower, middle, -1.0), -reach), further_out(_plus(upper, middle, 1.0), reach)
        widening = self.displacements(self.initial_state_noise, n_steps)
        cost = 2.0 * shift
        if widening.any():
            cost = cost + widening * by_plan([_total_weights(band) for band in bands])
        witnesses = np.empty((*lower.shape, 2), dtype=object)
        for index, band in zip(np.ndindex(n_steps, self.runs.n_states), bands, strict=True):
            for k, pair in enumerate(band.witnesses):
                witnesses[(k, *index)] = pair
        tubes = Tube(lower, upper, gap, np.broadcast_to(cost, lower.shape), witnesses)
        return tubes[0] if np.ndim(x0) == 1 else tubes

    def start_noise(self, given: npt.ArrayLike | None) -> FloatArray:
        """How far the true initial state of a plan may be from the one in it: as given, or as far as recorded ones."""
        return self.initial_state_noise if given is None else self.runs.history_noise(given)

    def contradictions(self, held_out: Trajectories, n_jobs: int | None = None) -> npt.NDArray[np.bool_]:
        """Where recordings that were held out refute the assumptions; shape `(n_runs, n_steps, n_states)`.

        A recorded state and its noise bound make an interval that holds the true state, and so does the box. Where the
        two do not meet, the noise bounds or the norm bounds are wrong. That nothing is found proves nothing.
        """
        return self.boxes_of(held_out, n_jobs).contradicted_by(held_out)

    def boxes_of(self, recorded: Trajectories, n_jobs: int | None = None) -> Tube:
        """The tubes of recorded runs, which begin as uncertain as they or those of the predictor, whichever is more."""
        start = np.maximum(recorded.initial_state_noise, self.initial_state_noise)
        return self.boxes(recorded.histories, recorded.inputs, initial_state_noise=start, n_jobs=n_jobs)

    def envelope(self, n: int, i: int) -> Envelope:
        """That of state `i` after `n` steps: a function of `z = (x_0, u_0, ..., u_{n-1})`."""
        return self.envelopes[n - 1][i]

    def ends(
        self, n: int, i: int, side: int, Z: FloatArray, *, initial_state_noise: npt.ArrayLike | None = None
    ) -> tuple[FloatArray, list[Witness | None]]:
        """Lower (`side` 0) or upper (1) ends of the boxes of one state after `n` steps, and what proves them.

        `Z` are arguments `(m, n_states + n * n_inputs)`; the initial states in them are as uncertain as for `boxes`.
        """
        envelope, sign = self.envelope(n, i), 1.0 if side else -1.0
        bounds = envelope.upper_bounds(envelope.sides[side], [Points.value(z) for z in Z])
        reach = self._displacement(n, i, self.start_noise(initial_state_noise)) + self.runs.disturbance_bound[n - 1, i]
        ends, prior = sign * np.array([bound.value for bound in bounds]), self.priors[n - 1][i]
        if prior is not None:
            ends, reach = _plus(ends, prior(Z), sign), reach + prior.error(Z)
        reach = np.where(reach == 0.0, 0.0, enlarged(np.asarray(reach), 2))
        return further_out(ends, sign * reach), [bound.witness for bound in bounds]

    def slopes(self, n: int, i: int, side: int, z: FloatArray, witness: Witness | None) -> FloatArray:
        """How fast such an end moves with `z`, given what proves it there; zero where there is a kink."""
        rest, prior = np.nan_to_num(self.envelope(n, i).end_gradient(z, side, witness)), self.priors[n - 1][i]
        return rest if prior is None else rest + np.array(prior.slopes)

    def _envelope(self, n: int, i: int) -> Envelope:
        try:
            return self.method(self._data(n, i), self.kernels[n - 1][i], self.norm_bounds[n - 1][i], **self.options)
        except RkhsControlError as error:
            caveat = "" if isinstance(error, InputError) else self.runs.caveat
            raise type(error)(f"step {n}, state {self.runs.state_names[i]}: {error}{caveat}") from None

    def _data(self, n: int, i: int) -> Observations:
        """The intervals of state `i` after `n` steps, widened by what unknown initial states can do."""
        kernel, norm = self.kernels[n - 1][i], self.norm_bounds[n - 1][i].value
        return widened_observations(self.runs, n, i, kernel, norm, self.priors[n - 1][i])

    def displacements(self, noise: FloatArray, n_steps: int) -> FloatArray:
        """By step and state: how far a value can be off when the initial state is off by `noise`."""
        states = range(self.runs.n_states)
        return np.array([[self._displacement(n, i, noise) for i in states] for n in range(1, n_steps + 1)])

    def _displacement(self, n: int, i: int, noise: FloatArray) -> float:
        kernel, norm = self.kernels[n - 1][i], self.norm_bounds[n - 1][i].value
        return uncertainty(kernel, norm, self.priors[n - 1][i], noise, n * self.runs.n_inputs)

    def _prior_values(self, queries: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Of the priors at the queries of every step, and what rounding may have done to them, state by state."""
        rows = [
            (np.zeros(len(Z)), np.zeros(len(Z))) if prior is None else (prior(Z), prior.error(Z))
            for Z, row in zip(queries, self.priors, strict=False)
            for prior in row
        ]
        values, errors = zip(*rows, strict=True)
        return np.array(values), np.array(errors)

    def _checked(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        runs = self.runs
        start, plan = as_floats(x0, "x0"), as_floats(inputs, "inputs")
        if start.ndim == 1:
            start, plan = start[None], plan[None]
        if start.ndim != 2 or start.shape[1] != runs.n_history:
            what = "states" if runs.has_states else "entries, a history"
            raise InputError(
                f"x0 must hold {runs.n_history} {what} ({', '.join(runs.history_names)}); got {np.shape(x0)}"
            )
        if plan.ndim != 3 or plan.shape[::2] != (len(start), runs.n_inputs) or plan.shape[1] == 0:
            raise InputError(
                f"inputs must have shape (n_steps, {runs.n_inputs}), for many plans ({len(start)}, n_steps, "
                f"{runs.n_inputs}); got {np.shape(inputs)}"
            )
        if plan.shape[1] > runs.horizon:
            raise InputError(
                f"the plan has {plan.shape[1]} steps, but the recorded {runs.kind} only {runs.horizon}: shorten the "
                f"plan, or {'cut' if runs.is_windowed else 'record'} longer {runs.kind}"
            )
        require_finite(start, "x0")
        require_finite(plan.reshape(len(plan), -1), "inputs")
        return start, plan


def _bounds(envelope: Envelope, queries: FloatArray) -> Band:
    return envelope.bounds(queries, 1)


def _require_slopes(priors: PriorTable, runs: Trajectories) -> None:
    """Refuse priors of another number of arguments."""
    for n, row in enumerate(priors, start=1):
        wanted = runs.n_history + n * runs.n_inputs
        for prior in row:
            if prior is not None and len(prior.slopes) != wanted:
                raise InputError(f"priors[{n - 1}] must have {wanted} slopes; got {len(prior.slopes)}")


def _plus(ends: FloatArray, middle: FloatArray, side: float) -> FloatArray:
    """`ends + middle`, rounded up for the upper side (1), down for the lower (-1); as they are where that is zero."""
    with_prior = up(ends + middle) if side > 0.0 else down(ends + middle)
    return np.where(middle == 0.0, ends, with_prior)


def _total_weights(band: Band) -> FloatArray:
    """At each query, the absolute weights of both witnesses: what wider intervals cost per unit of widening."""
    return np.array(
        [sum(np.abs(w.weights).sum() if w is not None else np.nan for w in pair) for pair in band.witnesses]
    )


def by_step_and_state(given: Any, kinds: Any, name: str, runs: Trajectories) -> tuple[tuple[Any, ...], ...]:
    """One entry per step and state, from one for all, one per step, or one per step and state."""
    rows = [given] * runs.horizon if isinstance(given, kinds) else list(given)
    if len(rows) != runs.horizon:
        raise InputError(f"{name} must be one for all or a list of one per step, {runs.horizon}; got {len(rows)}")
    table = tuple((row,) * runs.n_states if isinstance(row, kinds) else tuple(row) for row in rows)
    for n, row in enumerate(table):
        if len(row) != runs.n_states or not all(isinstance(entry, kinds) for entry in row):
            raise InputError(f"{name}[{n}] must be one for all states or a list of {runs.n_states}; got {row!r}")
    return table
