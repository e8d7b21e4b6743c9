"""Multi-step predictors: one envelope per step and state, from the initial state and the inputs up to that step.

The state after `n` steps is an unknown function of `z = (x_0, u_0, ..., u_{n-1})`. Each component gets its own
envelope, so boxes do not build on boxes: no bound is propagated.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import enlarged, further_out
from ..assumptions.formulations import NOTHING_COMPARED, Comparison
from ..assumptions.intervals import uncertainty
from ..assumptions.norms import NormBound, estimated_text
from ..assumptions.priors import AffinePrior, PriorModel, StepOfModel, priors_for
from ..assumptions.selection import select_assumptions
from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..envelopes.base import Envelope
from ..envelopes.optimal import OptimalEnvelope
from ..kernels.base import Kernel
from ..parallel import Progress, collect, in_parallel, shown_progress
from .arguments import ArgumentBoxes, SetProof, both_ends, checked_plans, set_ends
from .by_step import (
    GivenKernels,
    GivenNorms,
    GivenPriors,
    KernelTable,
    NarrowingTable,
    NormTable,
    PriorTable,
    by_step_and_state,
    require_slopes,
)
from .narrowing import ROUNDS, UncertainSamples, narrowing_rounds
from .streaming import goes_on, with_further
from .tube import Tube


@dataclass(frozen=True, eq=False, init=False)
class MultiStepPredictor:
    """Boxes for the future states of a plant, guaranteed by recorded runs.

    Parameters
    ----------
    runs : Trajectories
    kernels : Kernel, or a list of one per step, each a Kernel or a list of one per state
    norm_bounds : float or NormBound, or lists like `kernels`; kept by step and state, like the kernels
    priors : PriorModel, AffinePrior, or lists like `kernels`; kernels and norm bounds then describe the residual
    method : the envelope class, `OptimalEnvelope` by default; `options` are its further arguments
    initial_state_noise : float or (n_states,)
        How far the recorded initial states may be from the true ones, instead of the value in `runs`. The `runs` of a
        built predictor always have the value in use. Each interval is widened by its effect.
    rounds : int
        Where recorded initial states are uncertain: number of rounds in which the data themselves show how small the
        effect is. With 0, intervals are widened by the effect on any function of the given norm.
    narrowing : the rounds found by a predictor with the same runs and kernels, instead of a new search
    n_jobs, progress : processes for these rounds, and a progress callback
    """

    runs: Trajectories
    kernels: KernelTable
    norm_bounds: NormTable
    method: type[Envelope]
    options: dict[str, Any]
    initial_state_noise: FloatArray
    priors: PriorTable
    rounds: int
    narrowing: NarrowingTable
    comparison: Comparison = field(init=False, default=NOTHING_COMPARED)
    """The formulations that `select` compared."""
    widenings: tuple[tuple[FloatArray, ...], ...] = field(init=False)
    """By step and state: how much wider each interval is because recorded initial states are uncertain."""
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
        priors: GivenPriors | PriorModel = None,
        rounds: int = ROUNDS,
        narrowing: NarrowingTable | None = None,
        *,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        runs = runs.with_initial_state_noise(initial_state_noise)
        bounds = by_step_and_state(norm_bounds, (float, int, NormBound), "norm_bounds", runs)
        priors = priors_for(priors, runs) if isinstance(priors, PriorModel) else priors
        table = by_step_and_state(priors, (AffinePrior, StepOfModel, type(None)), "priors", runs)
        require_slopes(table, runs)
        values = {
            "runs": runs,
            "kernels": by_step_and_state(kernels, Kernel, "kernels", runs),
            "norm_bounds": tuple(tuple(NormBound.of(bound) for bound in row) for row in bounds),
            "method": method,
            "options": dict(options or {}),
            "initial_state_noise": runs.initial_state_noise,
            "priors": table,
            "rounds": rounds,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        found = self._narrowed(n_jobs, progress) if narrowing is None else narrowing
        object.__setattr__(self, "narrowing", found)
        object.__setattr__(self, "widenings", self._by_step(self._widening))
        object.__setattr__(self, "envelopes", self._by_step(self._envelope))

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
        rounds: int = ROUNDS,
        n_jobs: int | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> MultiStepPredictor:
        """A predictor with kernels, norm bounds and priors chosen from the runs.

        Without `lengthscales`, options missing from `settings` are compared on held-out blocks (`choose_assumptions`;
        the table is in `comparison`). With them, nothing is compared: `settings` go to `select_assumptions`.

        `selection` are the runs to choose with, by default `runs`; if they are different, `runs` are a test of the
        choice, which is refused if they refute it. `initial_state_noise` replaces that of both. Without `progress`, a
        terminal shows a bar.
        """
        from .choice import choose_assumptions

        runs = runs.with_initial_state_noise(initial_state_noise)
        source = runs if selection is None else selection.with_initial_state_noise(initial_state_noise)
        with shown_progress(progress, "choosing what to assume") as told:
            common: dict[str, Any] = {"n_jobs": n_jobs, "progress": told, **settings}
            if lengthscales is None:
                chosen = choose_assumptions(source, **common)
            else:
                chosen = select_assumptions(source, lengthscales, **common)
        with shown_progress(progress, "narrowing intervals") as told:
            predictor = cls(
                chosen.runs_like(runs),
                chosen.kernels,
                chosen.norm_bounds,
                method,
                options,
                priors=chosen.priors,
                rounds=rounds,
                n_jobs=n_jobs,
                progress=told,
            )
        object.__setattr__(predictor, "comparison", chosen.comparison)
        return predictor

    @property
    def horizon(self) -> int:
        """The number of steps in the recorded runs, and in the longest plan that can be predicted."""
        return self.runs.horizon

    @property
    def assumption_text(self) -> str:
        """Which bounds were estimated, and how; empty where all were given."""
        text = estimated_text(bound for row in self.norm_bounds for bound in row)
        if not self.runs.has_residual_bound:
            return text
        return f"{text}; so were the bounds on what measured histories leave open, from predictions of held-out data"

    def scaled(self, *, norm: float = 1.0, noise: float = 1.0) -> MultiStepPredictor:
        """The same predictor with every norm bound, or every noise bound, multiplied by a factor.

        The bounds on disturbances and on the error of recorded initial states also count as noise bounds.
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
        object.__setattr__(other, "widenings", other._by_step(other._widening))
        keeps_data = runs is self.runs and not np.any(self.initial_state_noise)

        def changed(n: int, i: int) -> Envelope:
            envelope = self.envelope(n, i)
            data = envelope.data if keeps_data else other._samples(n, i).observations(other.widenings[n - 1][i])
            return envelope.with_assumptions(data, bounds[n - 1][i])

        object.__setattr__(other, "envelopes", other._by_step(changed))
        return other

    def with_runs(self, runs: Trajectories) -> MultiStepPredictor:
        """The same assumptions about the plant with other runs: more or fewer of them, and no more steps.

        If the first of them are the present runs, and initial states are known, it continues from there, which
        takes a small part of the time. Runs that refute a norm bound are refused, as when it was built.
        """
        if goes_on(self.runs, runs):
            return self._with_more(runs)
        return replace(
            self,
            runs=runs,
            kernels=self.kernels[: runs.horizon],
            norm_bounds=self.norm_bounds[: runs.horizon],
            initial_state_noise=runs.initial_state_noise,
            priors=self.priors[: runs.horizon],
            narrowing=None,  # type: ignore[arg-type]  # to be found again
        )

    def with_run(self, states: npt.ArrayLike, inputs: npt.ArrayLike) -> MultiStepPredictor:
        """With one more recorded run, states `(N + 1, n_states)` and inputs `(N, n_inputs)`, or with several more.

        Several have a leading axis. Their noise bounds are those of the other runs, and their initial states are
        known as well; see `with_runs` for runs unlike these.
        """
        return self.with_runs(with_further(self.runs, states, inputs))

    def with_method(self, method: type[Envelope], **options: Any) -> MultiStepPredictor:
        """The same data and assumptions with another envelope class: what one method gains over another."""
        return replace(self, method=method, options=options)

    def boxes(
        self,
        x0: npt.ArrayLike | Box,
        inputs: npt.ArrayLike,
        *,
        initial_state_noise: npt.ArrayLike | None = None,
        n_jobs: int | None = None,
    ) -> Tube:
        """The tube of a plan: history `(n_history,)` and inputs `(n_steps, n_inputs)`, up to the horizon.

        The history is the initial state, or what the runs use instead (`runs.history_names`). Thousands of plans at
        once have a leading axis, `(n_plans, n_history)` and `(n_plans, n_steps, n_inputs)`; `n_jobs` spreads steps and
        states over processes. `initial_state_noise` says how far the true history may be from `x0`; by default as far
        as in the runs, which begin with measured states if they are windows. With a `Box` for `x0`, the tube holds from
        everywhere in it, and only a given noise is added to it.
        """
        if isinstance(x0, Box):
            x0, initial_state_noise = self.start_from(x0, initial_state_noise)
        start, plan = checked_plans(self.runs, x0, inputs)
        noise = self.start_noise(initial_state_noise)
        n_steps, n_states = plan.shape[1], self.runs.n_states
        queries = [ArgumentBoxes(stacked(start, plan[:, : n + 1]), noise) for n in range(n_steps)]
        tasks = [(self.envelopes[n][i], self.priors[n][i], queries[n]) for n in range(n_steps) for i in range(n_states)]
        pairs = list(in_parallel(both_ends, tasks, n_jobs))

        def by_plan(values: Any) -> FloatArray:
            return np.moveaxis(np.array(values).reshape(n_steps, n_states, len(start)), -1, 0)

        for envelope, (below, above) in zip((task[0] for task in tasks), pairs, strict=True):
            envelope.refuse_inverted(-below.values, above.values)
        reach = self.runs.disturbance_bound[:n_steps]
        lower = further_out(by_plan([-below.values for below, _ in pairs]), -reach)
        upper = further_out(by_plan([above.values for _, above in pairs]), reach)
        gap = by_plan([np.maximum(below.gaps, above.gaps) for below, above in pairs])
        cost = by_plan([below.costs + above.costs for below, above in pairs])
        proofs = np.empty((*lower.shape, 2), dtype=object)
        for (n, i), pair in zip(np.ndindex(n_steps, n_states), pairs, strict=True):
            widening = self.widenings[n][i]
            for k, both in enumerate(zip(*(ends.proofs for ends in pair), strict=True)):
                proofs[k, n, i] = both
                if widening.any():
                    cost[k, n, i] += sum(_cost_of(proof, widening) for proof in both)
        tubes = Tube(lower, upper, gap, cost, proofs)
        return tubes[0] if np.ndim(x0) == 1 else tubes

    def start_noise(self, given: npt.ArrayLike | None) -> FloatArray:
        """How far the true initial state of a plan may be from the stated one: as given, or as for recorded ones."""
        return self.initial_state_noise if given is None else self.runs.history_noise(given)

    def start_from(self, box: Box, noise: npt.ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """The middle of a box of initial states, and how far from it the true ones may be: the box plus `noise`."""
        middle, reach = box.around()
        return middle, enlarged(reach + (0.0 if noise is None else self.runs.history_noise(noise)), 1)

    def contradictions(self, held_out: Trajectories, n_jobs: int | None = None) -> npt.NDArray[np.bool_]:
        """Where held-out recordings refute the assumptions; shape `(n_runs, n_steps, n_states)`.

        A recorded state and its noise bound give an interval that contains the true state, and so does the box. Where
        the two do not intersect, the noise bounds or the norm bounds are wrong. Finding no contradiction proves
        nothing.
        """
        return self.boxes_of(held_out, n_jobs).contradicted_by(held_out)

    def boxes_of(self, recorded: Trajectories, n_jobs: int | None = None) -> Tube:
        """The tubes of recorded runs, with the larger of their own and the predictor's initial uncertainty.

        Where measured histories are the arguments, they are taken as measured.
        """
        start = np.maximum(recorded.initial_state_noise, self.initial_state_noise)
        start = self.initial_state_noise if self.runs.has_residual_bound else start
        return self.boxes(recorded.histories, recorded.inputs, initial_state_noise=start, n_jobs=n_jobs)

    def envelope(self, n: int, i: int) -> Envelope:
        """The envelope of state `i` after `n` steps: a function of `z = (x_0, u_0, ..., u_{n-1})`."""
        return self.envelopes[n - 1][i]

    def ends(
        self, n: int, i: int, side: int, Z: FloatArray, *, initial_state_noise: npt.ArrayLike | None = None
    ) -> tuple[FloatArray, list[SetProof]]:
        """Lower (`side` 0) or upper (1) ends of the boxes of one state after `n` steps, and what proves them.

        `Z` are arguments `(m, n_history + n * n_inputs)`; the histories in them are as uncertain as for `boxes`.
        """
        boxes, sign = ArgumentBoxes(Z, self.start_noise(initial_state_noise)), 1.0 if side else -1.0
        found = set_ends(self.envelope(n, i), self.priors[n - 1][i], boxes, side)
        return further_out(sign * found.values, sign * self.runs.disturbance_bound[n - 1, [i]]), found.proofs

    def slopes(self, n: int, i: int, side: int, z: FloatArray, proof: SetProof) -> FloatArray:
        """Gradient of such an end by `z`, given its proof there; zero where there is a kink."""
        gradient = self.envelope(n, i).end_gradient(z + proof.offset, side, proof.witness)
        rest, prior = np.nan_to_num(gradient), self.priors[n - 1][i]
        return rest if prior is None else rest + prior.gradient(z)

    def _by_step(self, make: Any) -> tuple[tuple[Any, ...], ...]:
        """`make(n, i)` for every step and state."""
        states = range(self.runs.n_states)
        return tuple(tuple(make(n, i) for i in states) for n in range(1, self.runs.horizon + 1))

    def _narrowed(self, n_jobs: int | None, progress: Progress | None) -> NarrowingTable:
        """Rounds of narrowing for every step and state, none where recorded initial states are known."""
        if not self.initial_state_noise.any() or self.rounds < 1:
            return self._by_step(lambda n, i: ())
        tasks = [task for row in self._by_step(lambda n, i: (self._samples(n, i), self.rounds)) for task in row]
        found = collect(in_parallel(narrowing_rounds, tasks, n_jobs), len(tasks), progress)
        return self._by_step(lambda n, i: found[(n - 1) * self.runs.n_states + i])

    def _envelope(self, n: int, i: int) -> Envelope:
        samples = self._samples(n, i)
        with samples.named_errors(self.runs.caveat):
            data = samples.observations(self.widenings[n - 1][i])
            return self.method(data, self.kernels[n - 1][i], self.norm_bounds[n - 1][i], **self.options)

    def _with_more(self, runs: Trajectories) -> MultiStepPredictor:
        other = copy(self)
        object.__setattr__(other, "runs", runs)
        object.__setattr__(other, "widenings", other._by_step(other._widening))

        def larger(n: int, i: int) -> Envelope:
            samples = other._samples(n, i)
            with samples.named_errors(runs.caveat):
                return self.envelope(n, i).with_more(samples.observations(other.widenings[n - 1][i]))

        object.__setattr__(other, "envelopes", other._by_step(larger))
        return other

    def _samples(self, n: int, i: int) -> UncertainSamples:
        kernel, norm = self.kernels[n - 1][i], self.norm_bounds[n - 1][i].value
        return UncertainSamples.of(self.runs, n, i, kernel, norm, self.priors[n - 1][i])

    def _widening(self, n: int, i: int) -> FloatArray:
        samples = self._samples(n, i)
        with samples.named_errors(self.runs.caveat):
            return samples.widening(self.narrowing[n - 1][i])

    def displacements(self, noise: FloatArray, n_steps: int) -> FloatArray:
        """By step and state: how far a value can be off when the initial state is off by `noise`."""
        states = range(self.runs.n_states)
        return np.array([[self._displacement(n, i, noise) for i in states] for n in range(1, n_steps + 1)])

    def _displacement(self, n: int, i: int, noise: FloatArray) -> float:
        kernel, norm = self.kernels[n - 1][i], self.norm_bounds[n - 1][i].value
        return uncertainty(kernel, norm, self.priors[n - 1][i], noise, n * self.runs.n_inputs)


def _cost_of(proof: SetProof, widening: FloatArray) -> float:
    """What wider intervals cost an end: the widening times the weights on them."""
    witness = proof.witness
    return np.nan if witness is None else float(np.abs(witness.weights) @ widening[witness.indices])
