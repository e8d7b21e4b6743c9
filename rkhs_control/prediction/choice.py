"""The default choice: formulations compared by the width of boxes on held-out blocks that do not contradict them.

A cross-validated error says which model predicts well, not which assumptions make narrow boxes that hold. So every
formulation builds boxes for blocks that it has not seen, at a few of the steps. Of those whose boxes are not
contradicted, or nearly so, the narrowest is chosen, with two exceptions. Taking measured histories as the arguments
rests on an estimated residual bound, where the noise bound was given; and among lengthscales that predict equally well,
longer ones assume more. A formulation that assumes more must be clearly narrower than one that does not.

With measured histories, whose residual bounds are tested at every step, each step and output gets the formulation that
suits it. Otherwise one serves all: the best of many at each of them would owe too much to luck.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from ..assumptions.formulations import Arguments, Comparison, Formulation, Trial
from ..assumptions.nominal import Nominal, Settings, nominal, norm_estimate_of
from ..assumptions.priors import GivenPrior, Prior, priors_for
from ..assumptions.selection import Attempt, Selection, residual_bound, select_first, with_floor
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
LONGER = 1.2
"""Long lengthscales where an estimated residual bound covers some of what they miss."""
ROOM = 0.75
"""Held-out values may be off by this share of what boxes and noise allow: future ones will be off by more some day."""
ROOM_OF_BOXES = 0.5
"""And by this share of what boxes allow, if the noise is all that it may be."""
ROOM_OF_RESIDUALS = 0.6
"""Of what both allow, where held-out values also choose the bound on residuals, and owe some of their fit to that."""
_FINALISTS = 3
"""How many formulations are measured at steps between the compared ones."""
_BLOCKS, _QUERIES = 4, 100
"""How many blocks are held out in turn, and how many boxes are built in each; fewer where they have many corners."""
_HOPELESS = 1e4
"""A norm beyond this multiple of the outputs gives no useful boxes, and finding that out takes long."""


class _Measured(NamedTuple):
    """One step and output of one formulation."""

    half_width: float
    """Mean half-width of the boxes, as a share of the output's range; infinite where none could be built."""
    contradicted: int
    tested: int
    share: float
    """Of the worst held-out error, for measured histories."""


Pair = tuple[int, int]
"""A step and an output."""
Results = dict[tuple[Formulation, Pair], _Measured]


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
    prior : `"choose"` compares an affine one with none; for windows, with the mean of the outputs
    arguments : how uncertain histories are treated
        `"uncertain"`, anywhere within their noise of the measurements; `"measured"`, as measured, with an estimated
        bound on the residual. By default both are tried for windows of recordings.
    kernel, per_dimension : unless one is given, a rougher kernel is tried, and longer lengthscales that predict nearly
        as well; for windows also per-dimension lengthscales
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
    simplest: GivenPrior = "constant" if runs.is_windowed else None
    first = [
        Formulation(own, way, chosen.kernel, chosen.per_dimension)
        for own in ((simplest, "affine") if prior == "choose" else (prior,))
        for way in ways
    ]
    chooser = Chooser(runs, chosen, n_jobs, progress)
    return chooser.select(first, rng, is_refined=kernel is None and per_dimension is None)


@dataclass(frozen=True, eq=False)
class Chooser:
    """Compares formulations on some runs, and chooses one for every step and output."""

    runs: Trajectories
    settings: Settings
    n_jobs: int | None
    progress: Progress | None

    def select(self, first: list[Formulation], rng: np.random.Generator | None, *, is_refined: bool) -> Selection:
        """Compare, and find kernels and norm bounds with the best formulation of every step and output."""
        steps = tuple(sorted({1, (1 + self.runs.horizon) // 2, self.runs.horizon}))
        pairs = [(n, i) for n in steps for i in range(self.runs.n_states)]
        ways = list(dict.fromkeys(one.arguments for one in first))
        results: Results = {}
        if len(first) > 1 or is_refined:
            results = self._measured(product(first, pairs))
            ways.sort(key=lambda way: _rank_of_way(results, way, pairs))
        if is_refined:
            further = [two for one in first if one.arguments == ways[0] for two in self._refined(one)]
            results |= self._measured(product(further, pairs))
        for way in ways[:-1]:
            with contextlib.suppress(SolverError):
                return self._selected(way, first, results, pairs, rng)
        return self._selected(ways[-1], first, results, pairs, rng)

    def _refined(self, base: Formulation) -> list[Formulation]:
        """Longer lengthscales, a rougher kernel and, for windows, a lengthscale per dimension."""
        longest = replace(base, longest=True)
        if not self.runs.is_windowed:
            return [longest, replace(base, kernel="matern52")]
        one_each = replace(base, per_dimension=True)
        return [longest, one_each, replace(one_each, longest=True), replace(one_each, kernel="matern52")]

    def _measured(self, wanted: Iterable[tuple[Formulation, Pair]]) -> Results:
        runs, keys = self.settings.subset(self.runs), list(wanted)
        tasks = [(runs, *pair, one, self.settings) for one, pair in keys]
        found = collect(in_parallel(_measure, tasks, self.n_jobs), len(tasks), self.progress)
        return dict(zip(keys, found, strict=True))

    def _selected(
        self,
        way: Arguments,
        first: list[Formulation],
        compared: Results,
        pairs: Sequence[Pair],
        rng: np.random.Generator | None,
    ) -> Selection:
        """Assumptions from all runs. These may disagree with the best formulation of a pair; then the next one follows.

        Steps that were not compared follow the closest compared one. Bounds on residuals are tested at every step,
        which ranks the best few again.
        """
        runs, states, steps = self.runs, range(self.runs.n_states), tuple(dict.fromkeys(n for n, _ in pairs))
        results, ranked = compared, dict[Pair, list[Formulation]]()
        for n in range(1, runs.horizon + 1):
            closest = min(steps, key=lambda step: (abs(step - n), -step))
            for i in states:
                ranked[n, i] = _ranked(compared, way, [(closest, i)] if way == "measured" else pairs) or first
        if way == "measured":
            untested = [pair for pair, several in ranked.items() if (several[0], pair) not in compared]
            results = compared | self._measured((one, at) for at in untested for one in ranked[at][:_FINALISTS])
            ranked |= {pair: _ranked(results, way, [pair]) for pair in untested}
            runs = runs.with_initial_state_noise(0.0)
        priors = {one.prior: priors_for(one.prior, runs) for one in first}

        def attempt(one: Formulation, n: int, i: int) -> Attempt:
            share = results[one, (n, i)].share if way == "measured" else np.nan
            return Attempt(priors[one.prior][n - 1][i], _applied(one, self.settings), share)

        attempts = [[[attempt(one, n, i) for one in ranked[n, i]] for i in states] for n in range(1, runs.horizon + 1)]
        selection, taken = select_first(runs, attempts, rng=rng, n_jobs=self.n_jobs, progress=self.progress)
        if not compared:
            return selection
        trials = tuple(_trial(compared, one, steps, len(states)) for one in dict.fromkeys(one for one, _ in compared))
        chosen = tuple(tuple(ranked[n, i][taken[n - 1][i]] for i in states) for n in steps)
        refused = {one for (n, i), several in ranked.items() for one in several[: taken[n - 1][i]]}
        return replace(selection, comparison=Comparison(trials, chosen, frozenset(refused)))


def _applied(formulation: Formulation, settings: Settings) -> Settings:
    return replace(settings, **{name: getattr(formulation, name) for name in ("kernel", "per_dimension", "longest")})


def _rank(one: Formulation, several: Sequence[_Measured]) -> tuple[float, float]:
    """Sort key, best first: least contradicted, then narrowest; long lengthscales assume more and count as wider."""
    width = float(np.mean([measured.half_width for measured in several]))
    if not np.isfinite(width):
        return np.inf, np.inf
    penalty = (LONGER if one.arguments == "measured" else CLEARLY) if one.longest else 1.0
    return sum(found.contradicted for found in several) / sum(found.tested for found in several), width * penalty


def _ranked(results: Results, way: Arguments, pairs: Sequence[Pair]) -> list[Formulation]:
    """The formulations measured at these pairs, best first, without those that made no boxes unless none did."""
    ranks = {
        one: _rank(one, [results[one, pair] for pair in pairs])
        for one in dict.fromkeys(one for one, _ in results)
        if one.arguments == way and all((one, pair) in results for pair in pairs)
    }
    ranked = sorted(ranks, key=ranks.__getitem__)
    return [one for one in ranked if np.isfinite(ranks[one][1])] or ranked[:1]


def _rank_of_way(results: Results, way: Arguments, pairs: Sequence[Pair]) -> tuple[float, float]:
    """As `_rank`, for the best formulations; estimated bounds on residuals assume more."""
    best = [results[_ranked(results, way, [pair] if way == "measured" else pairs)[0], pair] for pair in pairs]
    width = float(np.mean([one.half_width for one in best]))
    if not np.isfinite(width):
        return np.inf, np.inf
    contradicted, tested = sum(one.contradicted for one in best), sum(one.tested for one in best)
    return contradicted / tested, width * (CLEARLY if way == "measured" else 1.0)


def _trial(results: Results, one: Formulation, steps: tuple[int, ...], n_outputs: int) -> Trial:
    table = np.array([[results[one, (n, i)] for i in range(n_outputs)] for n in steps])
    half_widths, contradicted, tested, shares = np.moveaxis(table, -1, 0)
    return Trial(one, steps, half_widths, contradicted.astype(np.int64), tested.astype(np.int64), shares)


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
            if np.isnan(share):
                allowed = np.minimum(ROOM * (noise + half), noise + ROOM_OF_BOXES * half)
            else:
                allowed = ROOM_OF_RESIDUALS * (noise + half)
            contradicted += int((miss > allowed).sum())
            widths.append(half)
    except RkhsControlError:
        return _Measured(np.inf, 0, 0, share)
    all_widths = np.concatenate(widths)
    share_of_range = float(all_widths.mean()) / max(float(np.ptp(runs.states[:, :, i])), 1e-300)
    return _Measured(share_of_range, contradicted, len(all_widths), share)


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
