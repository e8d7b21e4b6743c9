"""The default choice: formulations compared by the width of boxes on held-out blocks that do not contradict them.

A cross-validated error says which model predicts well, not which assumptions make narrow boxes that hold. So every
formulation builds boxes for blocks that it has not seen, at a few of the steps. Among those whose boxes are not
contradicted, or nearly so, the narrowest is chosen, with two exceptions. Taking measured histories as the arguments
rests on an estimated residual bound, where the noise bound was given; and among lengthscales that predict equally well,
longer ones assume more. A formulation that assumes more must be clearly narrower than one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ..assumptions.formulations import NOTHING_COMPARED, Arguments, Comparison, Formulation, Trial
from ..assumptions.nominal import Nominal, Settings, nominal, norm_estimate_of
from ..assumptions.priors import GivenPrior, Prior, priors_for
from ..assumptions.selection import Selection, residual_bound, with_floor
from ..assumptions.selection import select_assumptions as select_one
from ..data.arrays import FloatArray
from ..data.splits import blocks_apart
from ..data.trajectories import Trajectories
from ..envelopes.optimal import OptimalEnvelope
from ..errors import RkhsControlError, SolverError
from ..kernels.families import KernelFamily
from ..parallel import Progress, collect, in_parallel
from .arguments import MOST_CORNERS, ArgumentBoxes, both_ends
from .narrowing import UncertainSamples

RESIDUAL_SHARES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4)
"""Shares of the worst held-out error that bound the residual of measured histories; half of it was too little on
recorded tanks, although no held-out block said so: boxes from all of the data are narrower than those from parts of
them."""
CLEARLY = 1.5
"""Boxes that rest on an estimated residual bound, or on long lengthscales, must be narrower by this factor."""
ROOM = 0.75
"""Held-out values may be off by this share of what boxes and noise allow: future ones will be off by more some day."""
_BLOCKS, _QUERIES = 4, 100
"""How many blocks are held out in turn, and how many boxes are built in each; fewer where they have many corners."""
_HOPELESS = 1e4
"""A norm beyond this multiple of the outputs gives no useful boxes, and finding that out takes long."""


class _Measured(NamedTuple):
    """One step and state of one formulation: half-widths, contradictions, tests, and the residual share."""

    half_width: float
    contradicted: int
    tested: int
    share: float


def choose_assumptions(
    runs: Trajectories,
    *,
    prior: GivenPrior | Literal["choose"] = "choose",
    arguments: Literal["choose", "uncertain", "measured"] = "choose",
    kernel: str | KernelFamily | None = None,
    per_dimension: bool | None = None,
    safety_factor: float | None = None,
    rng: np.random.Generator | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Selection:
    """As `select_assumptions`, but options not given are compared, and `comparison` of the result shows how.

    Parameters
    ----------
    prior : `"choose"` compares an affine one with none
    arguments : how uncertain histories are treated
        `"uncertain"`, anywhere within their noise of the measurements; `"measured"`, as measured, with an estimated
        bound on the residual. By default both are tried for windows of recordings.
    kernel, per_dimension : unless one is given, longer lengthscales that predict nearly as well are tried
        For windows also per-dimension lengthscales and a rougher kernel.
    safety_factor : 3, and 2 for windows, whose held-out blocks test the choice
    settings : further arguments of `select_assumptions`
    """
    if safety_factor is None:
        safety_factor = 2.0 if runs.is_windowed else 3.0
    chosen = Settings(
        kernel=kernel or "squared_exponential",
        per_dimension=bool(per_dimension),
        safety_factor=safety_factor,
        **settings,
    )
    ways: tuple[Arguments, ...] = ("known",)
    if runs.initial_state_noise.any():
        ways = ("uncertain", "measured") if runs.is_windowed else ("uncertain",)
        ways = ways if arguments == "choose" else (arguments,)
    first = [
        Formulation(own, way, chosen.kernel, chosen.per_dimension)
        for own in ((None, "affine") if prior == "choose" else (prior,))
        for way in ways
    ]
    chooser = Chooser(runs, chosen, n_jobs, progress)
    return chooser.select(first, rng, is_refined=kernel is None and per_dimension is None)


@dataclass(frozen=True, eq=False)
class Chooser:
    """Compares formulations on some runs."""

    runs: Trajectories
    settings: Settings
    n_jobs: int | None
    progress: Progress | None

    def select(self, first: list[Formulation], rng: np.random.Generator | None, *, is_refined: bool) -> Selection:
        """Compare, and choose kernels and norm bounds for the best formulation at every step."""
        comparison = self.compare(first, is_refined=is_refined)
        ranked = sorted(comparison.trials, key=_rank)
        formulations = [trial.formulation for trial in ranked if np.isfinite(trial.width)] or first[:1]
        for k, formulation in enumerate(formulations):
            try:
                selection = self._assumptions(formulation, rng)
            except SolverError:
                if k + 1 == len(formulations):
                    raise
                continue
            if comparison:
                comparison = replace(comparison, chosen=formulation, refused=tuple(formulations[:k]))
            break
        return replace(selection, comparison=comparison)

    def _assumptions(self, chosen: Formulation, rng: np.random.Generator | None) -> Selection:
        """Assumptions of one formulation, at every step, from all runs, some of which may disagree with the others."""
        shares = None
        if chosen.arguments == "measured":
            shares = self._trials([chosen], tuple(range(1, self.runs.horizon + 1)))[0].shares
        return select_one(
            self.runs,
            **vars(_applied(chosen, self.settings)),
            prior=chosen.prior,
            residual_shares=shares,
            rng=rng,
            n_jobs=self.n_jobs,
            progress=self.progress,
        )

    def compare(self, first: list[Formulation], *, is_refined: bool) -> Comparison:
        """First priors and arguments; then lengthscales with the best of each prior and, for windows, kernels."""
        if len(first) == 1 and not is_refined:
            return NOTHING_COMPARED
        steps = tuple(sorted({1, (1 + self.runs.horizon) // 2, self.runs.horizon}))
        trials = self._trials(first, steps)
        if is_refined:
            ranked = [trial.formulation for trial in sorted(trials, key=_rank)]
            best = ranked[0]
            best_by_prior = {repr(one.prior): one for one in reversed(ranked)}
            further = [replace(one, longest=True) for one in best_by_prior.values()]
            if self.runs.is_windowed:
                further += [replace(best, per_dimension=True), replace(best, kernel="matern52")]
            trials += self._trials(further, steps)
        return Comparison(tuple(trials), min(trials, key=_rank).formulation)

    def _trials(self, formulations: Sequence[Formulation], steps: tuple[int, ...]) -> list[Trial]:
        pairs = [(n, i) for n in steps for i in range(self.runs.n_states)]
        runs = self.settings.subset(self.runs)
        tasks = [(runs, n, i, formulation, self.settings) for formulation in formulations for n, i in pairs]
        found = collect(in_parallel(_measure, tasks, self.n_jobs), len(tasks), self.progress)
        shape, size = (len(steps), self.runs.n_states), len(pairs)
        ranges = np.maximum(np.ptp(self.runs.states, axis=(0, 1)), 1e-300)
        trials = []
        for k, formulation in enumerate(formulations):
            own = found[k * size : (k + 1) * size]
            trials.append(
                Trial(
                    formulation,
                    steps,
                    np.array([one.half_width for one in own]).reshape(shape) / ranges,
                    sum(one.contradicted for one in own),
                    sum(one.tested for one in own),
                    np.array([one.share for one in own]).reshape(shape),
                )
            )
        return trials


def _applied(formulation: Formulation, settings: Settings) -> Settings:
    return replace(settings, **{name: getattr(formulation, name) for name in ("kernel", "per_dimension", "longest")})


def _rank(trial: Trial) -> tuple[float, float]:
    """Sort key, best first: least contradicted, then narrowest; a formulation that assumes more counts as wider."""
    assumes_more = (trial.formulation.arguments == "measured", trial.formulation.longest)
    penalty = CLEARLY ** sum(assumes_more)
    return (trial.contradicted / max(trial.tested, 1) if np.isfinite(trial.width) else np.inf, penalty * trial.width)


def _measure(runs: Trajectories, n: int, i: int, formulation: Formulation, settings: Settings) -> _Measured:
    """The boxes of one step and state on held-out blocks."""
    if formulation.arguments == "measured":
        runs = runs.with_initial_state_noise(0.0)
    own = _applied(formulation, settings)
    try:
        found = nominal(runs, n, i, priors_for(formulation.prior, runs)[n - 1][i], own)
    except RkhsControlError:
        return _Measured(np.inf, 0, 0, np.nan)
    if formulation.arguments != "measured":
        return _on_blocks(runs, n, i, formulation, own, found, np.nan)
    return min((_on_blocks(runs, n, i, formulation, own, found, share) for share in RESIDUAL_SHARES), key=_worth)


def _worth(measured: _Measured) -> tuple[float, float]:
    """Smaller is better; boxes that could not be built rank below contradicted ones."""
    return (measured.contradicted / measured.tested if measured.tested else np.inf, measured.half_width)


def _on_blocks(
    runs: Trajectories,
    n: int,
    i: int,
    formulation: Formulation,
    settings: Settings,
    found: Nominal,
    share: float,
) -> _Measured:
    noise = float(runs.noise_bound[n - 1, i])
    disturbance = float(runs.disturbance_bound[n - 1, i])
    if not np.isnan(share):
        disturbance = max(disturbance, residual_bound(found, share, noise))
    table = runs.disturbance_bound.copy()
    table[n - 1, i] = disturbance
    runs = replace(runs, disturbance_bound=table)
    reach = runs.horizon + runs.shape.lead if runs.is_windowed else 0
    widths, contradicted = [], 0
    try:
        for held, kept in blocks_apart(runs.origins, reach, _BLOCKS):
            part, prior = runs.subset(kept), priors_for(formulation.prior, runs.subset(kept))[n - 1][i]
            n_corners = 2 ** min(int(np.count_nonzero(runs.initial_state_noise)), MOST_CORNERS)
            few = held[np.linspace(0, len(held) - 1, min(len(held), max(4, _QUERIES // n_corners))).astype(np.int64)]
            tested = runs.subset(few)
            lower, upper = _boxes(part, n, i, found, prior, settings, tested, is_tested=not np.isnan(share))
            half, miss = (upper - lower) / 2.0, np.abs(runs.states[few, n, i] - (lower + upper) / 2.0)
            contradicted += int((miss > ROOM * (half + noise)).sum())
            widths.append(half)
    except RkhsControlError:
        return _Measured(np.inf, 0, 0, share)
    all_widths = np.concatenate(widths)
    return _Measured(float(all_widths.mean()), contradicted, len(all_widths), share)


def _boxes(
    part: Trajectories,
    n: int,
    i: int,
    found: Nominal,
    prior: Prior,
    settings: Settings,
    test: Trajectories,
    *,
    is_tested: bool,
) -> tuple[FloatArray, FloatArray]:
    """Boxes of some windows, built from others."""
    bound = float(part.noise_bound[n - 1, i] + part.disturbance_bound[n - 1, i])
    estimate, intervals = norm_estimate_of(part, n, i, found, prior, bound, quickly=True)
    if estimate.value > _HOPELESS * float(np.abs(intervals.centre).max() + bound):
        raise SolverError("a hopelessly large norm")
    norm = with_floor(estimate, found, bound, settings.safety_factor, is_tested=is_tested).value
    samples = UncertainSamples.of(part, n, i, found.kernel, norm, prior)
    envelope = OptimalEnvelope(samples.observations(samples.widening(samples.rounds(1))), found.kernel, norm)
    boxes = ArgumentBoxes(test.arguments(n), part.initial_state_noise)
    below, above = (ends.values for ends in both_ends(envelope, prior, boxes))
    return -below - part.disturbance_bound[n - 1, i], above + part.disturbance_bound[n - 1, i]
