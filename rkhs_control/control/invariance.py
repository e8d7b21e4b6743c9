"""Invariant regions: the greatest set of cells from each of which some plan leads back into it, within the limits.

The limits are cut into cells. Plans are tried for each: first the inputs of runs that were recorded nearby, because boxes
are narrow there, those first that ended far inside the limits; then those of a certainty-equivalent problem that steers
to the middle. What is left of all cells when those without a plan are taken out again and again is the greatest set
that the plans allow. Cells that are not in it are split and tried again, and in the end neighbours that one plan serves
are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..certificates.margins import input_violation
from ..certificates.region import Cell, InvariantRegion, is_covered, start_of, widened
from ..data.arrays import FloatArray, IndexArray, as_floats
from ..data.limits import GivenLimits, Limits, PlacedLimits
from ..data.sets import Box
from ..errors import InputError, RkhsControlError
from ..parallel import Progress, shown_progress
from ..prediction.predictor import MultiStepPredictor
from .certainty_equivalent import CertaintyEquivalentOCP, QuadraticCost
from .planners import planner_of

Candidates = Any
"""Input sequences `(n_plans, n_steps, n_inputs)`, what makes plans from a state, or a controller."""

_NEIGHBOURS = 16
"""So many recorded runs around a cell are ranked by where they ended."""
_RANKS = ((0, 1), (1, 1), (2, 1), (0, 2), (0, 3), (0, 5), (1, 2), (1, 3), (0, 8))
"""Which of the ranked runs are tried, and for how many steps."""
_RIDGE = 1e-2
"""Of the models that steer to the middle."""
_MOST_SOLVED = 200
"""For so many cells a plan is solved for at most, per round."""
_AT_ONCE = 400
"""Cells whose boxes are made between two words on progress."""
_WORTH_IT = 1e-3
"""Rounds of splitting that add no more than this share of the limits are the last."""
_COMPARED = 20_000_000


class _Leaves(NamedTuple):
    """The cells of the limits: a partition, so that a box is covered where all that it meets are good."""

    lower: FloatArray
    upper: FloatArray
    level: IndexArray
    """How often each was split, by dimension: cells of one level have one size."""
    place: IndexArray
    """Which of the cells of its level, by dimension."""

    @classmethod
    def grid(cls, limits: Box, cells: Sequence[int]) -> _Leaves:
        edges = [np.linspace(*ends, n + 1) for *ends, n in zip(limits.lower, limits.upper, cells, strict=True)]
        place = np.stack(np.meshgrid(*(np.arange(n) for n in cells), indexing="ij"), axis=-1).reshape(-1, len(cells))
        columns = range(len(cells))
        lower, upper = (np.stack([edges[i][place[:, i] + side] for i in columns], axis=1) for side in (0, 1))
        return cls(lower, upper, np.zeros_like(place), place)

    def take(self, rows: npt.ArrayLike) -> _Leaves:
        return _Leaves(*(part[np.asarray(rows)] for part in self))

    def joined(self, other: _Leaves) -> _Leaves:
        return _Leaves(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def halves(self, whole: Box) -> _Leaves:
        """Each cut in two across its longest side, as a share of the limits."""
        parts = []
        rows, longest = (
            np.arange(len(self.lower)),
            ((self.upper - self.lower) / (whole.upper - whole.lower)).argmax(axis=1),
        )
        middle = (self.lower[rows, longest] + self.upper[rows, longest]) / 2.0
        for side in (0, 1):
            lower, upper, level, place = (part.copy() for part in self)
            (upper if side == 0 else lower)[rows, longest] = middle
            level[rows, longest] += 1
            place[rows, longest] = 2 * place[rows, longest] + side
            parts.append(_Leaves(lower, upper, level, place))
        return parts[0].joined(parts[1])

    @property
    def volume(self) -> FloatArray:
        sizes: FloatArray = np.prod(self.upper - self.lower, axis=1)
        return sizes


class _Trial(NamedTuple):
    """A plan that is tried for a cell."""

    leaf: int
    inputs: FloatArray


class _Option(NamedTuple):
    """A plan that keeps the limits from everywhere in a cell, and the box that measurements after it lie in."""

    leaf: int
    inputs: FloatArray
    low: FloatArray
    high: FloatArray


def invariant_region(
    predictor: MultiStepPredictor,
    limits: GivenLimits,
    *,
    cells: int | Sequence[int] = (40, 30),
    candidates: Candidates | None = None,
    initial_state_noise: npt.ArrayLike | None = None,
    max_steps: int | None = None,
    max_cells: int | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> InvariantRegion:
    """The states from which plans keep the limits for ever, as far as the data tell.

    Parameters
    ----------
    predictor : of runs that begin with states
    limits : Limits, or what limits the states alone
        States by a finite box. Limits of how fast inputs change cannot be kept from one plan to the next, and are refused.
    cells : how many per state to start with; one number is for all states
    candidates : plans to try before the recorded ones
        Input sequences `(n_plans, n_steps, n_inputs)`, a controller, or a function from a state to one plan or several.
    initial_state_noise : float or (n_states,)
        How far true states may be from measured ones; by default as far as recorded initial states.
    max_steps : of a plan; the horizon by default
    max_cells : where splitting stops; twice as many as there are at first by default
    n_jobs, progress : processes, and whom to tell about cells that were tried and cells to try
    """
    runs = predictor.runs
    runs.require_states("an invariant region")
    placed = Limits.of(limits).over(runs.state_names, runs.input_names)
    whole = _box_of(placed)
    counts = [cells] * runs.n_states if isinstance(cells, int) else list(cells)
    if len(counts) != runs.n_states or not all(isinstance(n, (int, np.integer)) and n > 0 for n in counts):
        raise InputError(f"cells must be a number or one per state ({', '.join(runs.state_names)}); got {cells!r}")
    longest = runs.horizon if max_steps is None else max_steps
    if not 1 <= longest <= runs.horizon:
        raise InputError(f"max_steps must lie between 1 and the horizon {runs.horizon}; got {max_steps}")
    if not predictor.method.is_certain:
        raise InputError(f"bounds of {predictor.method.__name__} hold with a probability only: nothing holds for ever")
    with shown_progress(progress, "looking for a region") as told:
        search = _Search(predictor, placed, whole, predictor.start_noise(initial_state_noise), longest, n_jobs, told)
        return search.region(_Leaves.grid(whole, counts), candidates, max_cells or 2 * int(np.prod(counts)))


def _box_of(limits: PlacedLimits) -> Box:
    if limits.rates is not None:
        raise InputError(
            "an invariant region cannot keep limits of how fast inputs change: the input before would have to be a "
            "state; leave them out, or record the input as a state"
        )
    if not isinstance(limits.states, Box) or not np.isfinite([limits.states.lower, limits.states.upper]).all():
        raise InputError("an invariant region needs a finite lower and upper limit of every state: a Box")
    return limits.states


@dataclass(eq=False)
class _Search:
    """What is known on the way; `leaves` and `options` change."""

    predictor: MultiStepPredictor
    limits: PlacedLimits
    whole: Box
    noise: FloatArray
    max_steps: int
    n_jobs: int | None
    progress: Progress | None
    leaves: _Leaves = field(init=False)
    options: list[_Option] = field(init=False, default_factory=list)
    chosen: dict[int, _Option] = field(init=False, default_factory=dict)
    """For every good cell, the plan that it is good with."""
    n_done: int = field(init=False, default=0)

    def region(self, leaves: _Leaves, candidates: Candidates | None, max_cells: int) -> InvariantRegion:
        """Try, take out, split; in the end merge, and prove what is left."""
        self.leaves = leaves
        given = None if candidates is None else _plans_of(candidates)
        fresh, share = np.arange(len(leaves.lower)), -1.0
        while True:
            self._try_all(fresh, given)
            open_ones = np.setdiff1d(np.arange(len(self.leaves.lower)), list(self.chosen))
            before, share = share, self._share()
            n_more = max_cells - len(self.leaves.lower)
            if not len(open_ones) or n_more <= 0 or share - before <= _WORTH_IT:
                break
            fresh = self._split(open_ones[np.argsort(-self.leaves.volume[open_ones], kind="stable")][:n_more])
        self._merge()
        return self._proved()

    # ---- trying plans

    def _try_all(self, rows: IndexArray, given: Callable[[FloatArray], list[FloatArray]] | None) -> None:
        """All kinds of plans for some cells, each for those that are still open."""
        if given is not None:
            self._try_made(rows, given)
        for trials in self._recorded(rows):
            self._try([trial for trial in trials if trial.leaf not in self.chosen])
        left = [int(row) for row in rows if int(row) not in self.chosen]
        if left and self.chosen:
            self._try_made(
                np.array(left)[np.linspace(0, len(left) - 1, min(len(left), _MOST_SOLVED)).astype(int)],
                self._to_the_middle(),
            )

    def _try_made(self, rows: IndexArray, make: Callable[[FloatArray], list[FloatArray]]) -> None:
        """Plans that are made for the middle of every open cell."""
        middle = (self.leaves.lower + self.leaves.upper) / 2.0
        trials = []
        for row in map(int, rows):
            if row not in self.chosen:
                trials += [_Trial(row, plan[: self.max_steps]) for plan in make(middle[row])]
        by_length: dict[int, list[_Trial]] = {}
        for trial in trials:
            by_length.setdefault(len(trial.inputs), []).append(trial)
        for some in by_length.values():
            self._try(some)

    def _recorded(self, rows: IndexArray) -> Iterable[list[_Trial]]:
        """Inputs of runs near every cell, the most promising first; all trials of a round have as many steps."""
        from scipy.spatial import cKDTree

        runs, whole = self.predictor.runs, self.whole
        size = whole.upper - whole.lower
        keeps = np.array([input_violation(plan, self.limits, runs.input_names) is None for plan in runs.inputs])
        usable = np.flatnonzero(keeps)
        if not len(usable):
            return
        states = runs.states[usable, 1 : self.max_steps + 1]
        depth = np.minimum(states - whole.lower, whole.upper - states)
        depth = (depth / size).min(axis=2)
        middle = (self.leaves.lower[rows] + self.leaves.upper[rows]) / 2.0
        n_near = min(_NEIGHBOURS, len(usable))
        distance, near = cKDTree(runs.states[usable, 0] / size).query(middle / size, k=n_near)
        distance, near = distance.reshape(len(rows), n_near), near.reshape(len(rows), n_near)
        for rank, n_steps in dict.fromkeys((rank, min(n, self.max_steps)) for rank, n in _RANKS if rank < n_near):
            best = np.argsort(distance - depth[near, n_steps - 1], axis=1, kind="stable")[:, rank]
            chosen = usable[near[np.arange(len(rows)), best]]
            yield [_Trial(int(row), runs.inputs[run, :n_steps]) for row, run in zip(rows, chosen, strict=True)]

    def _to_the_middle(self) -> Callable[[FloatArray], list[FloatArray]]:
        """Plans of a certainty-equivalent problem that steers to the middle of what is good so far."""
        good = np.array(list(self.chosen))
        weight = self.leaves.volume[good][:, None]
        middle = (weight * (self.leaves.lower[good] + self.leaves.upper[good])).sum(axis=0) / (2.0 * weight.sum())
        size, box = self.whole.upper - self.whole.lower, self.limits.input_box
        n_inputs, is_bounded = box.n_dims, np.isfinite([box.lower, box.upper]).all()
        reference = (box.lower + box.upper) / 2.0 if is_bounded else np.zeros(n_inputs)
        effort = np.diag(1e-4 / (box.upper - box.lower) ** 2) if is_bounded else np.zeros((n_inputs, n_inputs))
        runs = self.predictor.runs
        short = (
            self.predictor
            if self.max_steps == runs.horizon
            else self.predictor.with_runs(runs.shortened(self.max_steps))
        )
        cost = QuadraticCost(np.diag(size**-2), effort, np.diag(size**-2), middle, reference, self.max_steps)
        problem = CertaintyEquivalentOCP.from_predictor(short, _RIDGE, cost=cost, limits=self.limits)
        return _plans_of(problem)

    def _try(self, trials: list[_Trial]) -> None:
        """Boxes of all trials, each from everywhere in its cell; what keeps the limits is an option."""
        if not trials:
            return
        names = self.predictor.runs.input_names
        trials = [trial for trial in trials if input_violation(trial.inputs, self.limits, names) is None]
        for part in self._of_one_size([trial.leaf for trial in trials]):
            some = [trials[k] for k in part]
            tubes, _, _ = self._boxes(some)
            inside = ((self.whole.lower <= tubes.lower) & (tubes.upper <= self.whole.upper)).all(axis=2)
            kept = np.logical_and.accumulate(inside, axis=1)
            low, high = widened(tubes.lower, tubes.upper, self.noise)
            for k, n in np.argwhere(kept):
                self.options.append(_Option(some[k].leaf, some[k].inputs[: n + 1], low[k, n], high[k, n]))
            self._tell(len(some), len(trials))
        self._take_out()

    def _of_one_size(self, leaves: list[int]) -> Iterable[IndexArray]:
        """Places in a list of cells whose cells have one size, some at a time."""
        rows = np.array(leaves, dtype=np.int64)
        _, group = np.unique(self.leaves.level[rows], axis=0, return_inverse=True)
        for size in range(int(group.max(initial=-1)) + 1):
            same = np.flatnonzero(group.reshape(-1) == size)
            yield from np.array_split(same, -(-len(same) // _AT_ONCE))

    def _boxes(self, trials: Sequence[_Trial | _Option]) -> tuple[Any, FloatArray, FloatArray]:
        """The tubes of trials for cells of one size, with as many steps; and where these begin."""
        rows = [trial.leaf for trial in trials]
        starts = [
            start_of(Box(*ends), self.noise)
            for ends in zip(self.leaves.lower[rows], self.leaves.upper[rows], strict=True)
        ]
        middle, reach = np.array([x for x, _ in starts]), np.max([r for _, r in starts], axis=0)
        plans = np.array([trial.inputs for trial in trials])
        tubes = self.predictor.boxes(middle, plans, initial_state_noise=reach, n_jobs=self.n_jobs)
        return tubes, middle, reach

    # ---- the greatest set

    def _take_out(self) -> None:
        """Take cells out that have no option whose end lies in what is left, until all have one."""
        n_leaves = len(self.leaves.lower)
        ends = [o for o in self.options if (self.whole.lower <= o.low).all() and (o.high <= self.whole.upper).all()]
        if not ends:
            self.chosen = {}
            return
        leaf = np.array([option.leaf for option in ends])
        met = _met(np.array([o.low for o in ends]), np.array([o.high for o in ends]), self.leaves)
        starts = np.concatenate([[0], np.cumsum([len(rows) for rows in met])[:-1]])
        flat = np.concatenate(met)
        good = np.zeros(n_leaves, dtype=bool)
        good[leaf] = True
        while True:
            is_led_back = ~np.logical_or.reduceat(~good[flat], starts)
            left = np.zeros(n_leaves, dtype=bool)
            left[leaf[is_led_back]] = True
            if (left == good).all():
                break
            good = left
        self.chosen = {}
        for k in np.flatnonzero(is_led_back & good[leaf]):  # the first that was tried is the most promising
            self.chosen.setdefault(int(leaf[k]), ends[k])

    def _share(self) -> float:
        return float(self.leaves.volume[list(self.chosen)].sum() / np.prod(self.whole.upper - self.whole.lower))

    # ---- splitting and merging

    def _split(self, rows: IndexArray) -> IndexArray:
        """Cut cells in two; returns where the new ones are."""
        halves = self.leaves.take(rows).halves(self.whole)
        return self._replace(np.setdiff1d(np.arange(len(self.leaves.lower)), rows), halves)

    def _replace(self, kept: IndexArray, new: _Leaves) -> IndexArray:
        """Keep some cells and add others; options of those that go are gone."""
        place = {int(old): k for k, old in enumerate(kept)}
        self.options = [o._replace(leaf=place[o.leaf]) for o in self.options if o.leaf in place]
        self.chosen = {place[leaf]: o._replace(leaf=place[leaf]) for leaf, o in self.chosen.items() if leaf in place}
        self.leaves = self.leaves.take(kept).joined(new)
        return np.arange(len(kept), len(self.leaves.lower))

    def _merge(self) -> None:
        """Let one cell stand for two neighbours where a plan of either serves both; the region stays the same."""
        for dimension in range(self.whole.n_dims):
            while self._merged(dimension):
                pass

    def _merged(self, dimension: int) -> bool:
        """Whether a pass over all pairs along one dimension merged at least a quarter of them."""
        leaves, by_place = self.leaves, dict[tuple[int, ...], int]()
        for leaf in self.chosen:
            by_place[(*leaves.level[leaf].tolist(), *leaves.place[leaf].tolist())] = leaf
        n, pairs = self.whole.n_dims, []
        for key, leaf in by_place.items():
            if key[n + dimension] % 2 == 0:
                other = by_place.get((*key[: n + dimension], key[n + dimension] + 1, *key[n + dimension + 1 :]))
                if other is not None and leaves.upper[leaf, dimension] == leaves.lower[other, dimension]:
                    pairs.append((leaf, other))
        if not pairs:
            return False
        first, second = (np.array(side) for side in zip(*pairs, strict=True))
        level, place = leaves.level[first].copy(), leaves.place[first].copy()
        level[:, dimension] -= 1
        place[:, dimension] //= 2
        merged = _Leaves(leaves.lower[first], leaves.upper[second], level, place)
        served = self._served(merged, [(self.chosen[a].inputs, self.chosen[b].inputs) for a, b in pairs])
        if not served:
            return False
        rows = np.array(list(served))
        gone = {leaf for k in served for leaf in pairs[k]}
        new = self._replace(
            np.array([k for k in range(len(leaves.lower)) if k not in gone], dtype=np.int64), merged.take(rows)
        )
        for leaf, option in zip(new.tolist(), served.values(), strict=True):
            self.chosen[leaf] = option._replace(leaf=leaf)
        return len(served) >= len(pairs) / 4

    def _served(self, merged: _Leaves, plans: list[tuple[FloatArray, FloatArray]]) -> dict[int, _Option]:
        """Which merged cells one of two plans serves, and with what."""
        good = self.leaves.take(list(self.chosen))
        kept, served = self.leaves, dict[int, _Option]()
        for which in (0, 1):
            self.leaves = merged
            trials = [_Trial(k, pair[which]) for k, pair in enumerate(plans) if k not in served]
            by_length: dict[int, list[_Trial]] = {}
            for trial in trials:
                by_length.setdefault(len(trial.inputs), []).append(trial)
            for some in by_length.values():
                for part in self._of_one_size([trial.leaf for trial in some]):
                    own = [some[k] for k in part]
                    tubes, _, _ = self._boxes(own)
                    inside = ((self.whole.lower <= tubes.lower) & (tubes.upper <= self.whole.upper)).all(axis=(1, 2))
                    low, high = widened(tubes.lower[:, -1], tubes.upper[:, -1], self.noise)
                    for k in np.flatnonzero(inside):
                        if is_covered(low[k], high[k], good.lower, good.upper):
                            served[own[k].leaf] = _Option(*own[k], low[k], high[k])
                    self._tell(len(own), len(trials))
            self.leaves = kept
        return served

    # ---- the proof

    def _proved(self) -> InvariantRegion:
        """Cells with the tubes of their plans; one that would not end in the region, by these, goes, until none does."""
        found: list[Cell] = []
        by_length: dict[int, list[_Option]] = {}
        for option in self.chosen.values():
            by_length.setdefault(len(option.inputs), []).append(option)
        for options in by_length.values():
            for part in self._of_one_size([option.leaf for option in options]):
                some = [options[k] for k in part]
                tubes, middle, reach = self._boxes(some)
                for k, option in enumerate(some):
                    box = Box(self.leaves.lower[option.leaf], self.leaves.upper[option.leaf])
                    found.append(Cell(box, middle[k], reach, option.inputs, tubes[k]))
                self._tell(len(some), len(self.chosen))
        while True:
            region = InvariantRegion(self.predictor, self.limits, self.noise, tuple(found))
            left = [cell for cell in found if self._is_good(cell, region)]
            if len(left) == len(found):
                return region
            found = left

    def _is_good(self, cell: Cell, region: InvariantRegion) -> bool:
        inside = (self.whole.lower <= cell.tube.lower).all() and (cell.tube.upper <= self.whole.upper).all()
        return bool(inside) and region.covers(cell.tube.lower[-1], cell.tube.upper[-1])

    def _tell(self, done: int, planned: int) -> None:
        """More was done; how much is left, nobody knows before it is seen what is still open."""
        self.n_done += done
        if self.progress is not None:
            self.progress(self.n_done, max(self.n_done, planned))


def _met(low: FloatArray, high: FloatArray, leaves: _Leaves) -> list[IndexArray]:
    """For every box within the limits the cells that it meets or touches."""
    found: list[IndexArray] = []
    size = max(1, _COMPARED // max(1, leaves.lower.size))
    for first in range(0, len(low), size):
        a, b = low[first : first + size, None], high[first : first + size, None]
        found += [np.flatnonzero(row) for row in ((leaves.lower <= b) & (a <= leaves.upper)).all(axis=2)]
    return found


def _plans_of(candidates: Candidates) -> Callable[[FloatArray], list[FloatArray]]:
    """What makes a list of plans, `(n_steps, n_inputs)` each, from a state; none where it fails."""
    if isinstance(candidates, (np.ndarray, list, tuple)):
        plans = as_floats(candidates, "candidates")
        if plans.ndim != 3:
            raise InputError(f"candidates must have shape (n_plans, n_steps, n_inputs); got {plans.shape}")
        return lambda x: list(plans)
    planner = planner_of(candidates)

    def make(x: FloatArray) -> list[FloatArray]:
        try:
            made = as_floats(planner(x), "candidates")
        except (RkhsControlError, RuntimeError):  # no plan from here
            return []
        return list(made) if made.ndim == 3 else [made]

    return make
