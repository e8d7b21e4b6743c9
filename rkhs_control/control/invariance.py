"""Invariant regions: the greatest set of cells from each of which some plan leads back into it, within the limits.

The limits are cut into cells. Plans are tried for each: first the inputs of runs that were recorded nearby, then those
of a certainty-equivalent problem that steers to the middle, then those of a robust one. Cells without a plan are taken
out again and again; what is left is the greatest set that the plans allow. Cells that are not in it are split and tried
again, and in the end neighbours that one plan serves are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from numbers import Integral
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..certificates.margins import input_violation
from ..certificates.region import Cell, InvariantRegion, is_covered, start_of, widened
from ..data.arrays import FloatArray, IndexArray
from ..data.limits import GivenLimits, Limits, PlacedLimits
from ..data.sets import Box
from ..errors import InputError
from ..parallel import Progress, shown_progress
from ..prediction.predictor import MultiStepPredictor
from ..prediction.tube import Tube
from .candidates import Candidates, Maker, plans_of, recorded_plans, robust_plan, steering_to
from .certainty_equivalent import CertaintyEquivalentOCP
from .partition import Partition

_AT_ONCE = 400
"""Cells whose boxes are computed between two progress reports."""
_MOST_SOLVED = 100
"""Maximum number of cells per round for which a plan is solved."""
_MOST_ROBUST = 8
"""Maximum number for which a robust plan is solved, which takes about a second each."""
_WORTH_ROBUST = 0.01
"""If cells without a plan make up at most this share of the limits, no robust plans are sought."""
_WORTH_IT = 1e-3
"""A round of splitting that adds at most this share of the limits is the last."""
_OFTEN = 0.25
"""Merging along a dimension is repeated while at least this share of the pairs was merged."""


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
    """The states from which plans keep the limits for ever, as far as the data can tell.

    Parameters
    ----------
    predictor : of runs that begin with states
    limits : Limits, or what limits the states alone
        States by a finite box. How fast inputs change cannot be limited here: nothing is known of the input before.
    cells : how many per state to start with; one number is for all states
    candidates : plans to try before the recorded ones
        Input sequences `(n_plans, n_steps, n_inputs)`, a controller, or a function from a state to one plan or several.
    initial_state_noise : float or (n_states,)
        How far true states may be from measured ones; by default as far as recorded initial states.
    max_steps : maximum length of a plan; the horizon by default
    max_cells : where splitting stops; by default at twice as many cells as there are at first
    n_jobs, progress : processes, and a callback for the numbers of cells tried and to try
    """
    runs = predictor.runs
    runs.require_states("an invariant region")
    if runs.has_residual_bound:
        raise InputError(
            "an invariant region needs to know how far measured states may be off, and these were taken as measured: "
            "select with arguments='uncertain'"
        )
    placed = Limits.of(limits).over(runs.state_names, runs.input_names)
    whole, placed = _box_of(placed), replace(placed, rates=None)
    counts = np.ravel(cells).tolist() * (runs.n_states if np.ndim(cells) == 0 else 1)
    if len(counts) != runs.n_states or not all(isinstance(n, int) and n > 0 for n in counts):
        raise InputError(f"cells must be a number or one per state ({', '.join(runs.state_names)}); got {cells!r}")
    longest = runs.horizon if max_steps is None else max_steps
    if not (isinstance(longest, Integral) and 1 <= longest <= runs.horizon):
        raise InputError(f"max_steps must lie between 1 and the horizon {runs.horizon}; got {max_steps}")
    if not predictor.method.is_certain:
        raise InputError(f"bounds of {predictor.method.__name__} hold with a probability only: nothing holds for ever")
    with shown_progress(progress, "looking for a region") as told:
        noise = predictor.start_noise(initial_state_noise)
        search = _Search(predictor, placed, whole, noise, longest, n_jobs, told, Partition.grid(whole, counts))
        given = None if candidates is None else plans_of(candidates, runs.n_inputs)
        return search.region(given, max_cells or 2 * search.cells.size)


def _box_of(limits: PlacedLimits) -> Box:
    if limits.has_rates:
        raise InputError(
            "an invariant region cannot keep limits on how fast inputs change: the last input would have to be a "
            "state; leave them out, or record the input as a state"
        )
    if not isinstance(limits.states, Box) or not np.isfinite([limits.states.lower, limits.states.upper]).all():
        raise InputError("an invariant region needs a finite lower and upper limit on every state: a Box")
    if (limits.states.lower >= limits.states.upper).any():
        raise InputError("an invariant region needs limits with room between them: lower below upper for every state")
    return limits.states


class _Trial(NamedTuple):
    """A plan to try for a cell."""

    cell: int
    inputs: FloatArray


class _Option(NamedTuple):
    """A plan that keeps the limits from everywhere in a cell, and the box of measurements after it."""

    cell: int
    inputs: FloatArray
    low: FloatArray
    high: FloatArray


def _spread(rows: IndexArray, most: int) -> list[int]:
    """At most this many of the rows, evenly spread."""
    found: list[int] = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)].tolist()
    return found


@dataclass(eq=False)
class _Search:
    """The state of the search."""

    predictor: MultiStepPredictor
    limits: PlacedLimits
    whole: Box
    noise: FloatArray
    max_steps: int
    n_jobs: int | None
    progress: Progress | None
    cells: Partition
    waiting: dict[int, list[FloatArray]] = field(default_factory=dict)
    """For every cell, the plans not yet tried."""
    options: list[_Option] = field(default_factory=list)
    met: list[IndexArray] = field(default_factory=list)
    """For every option, the cells that its end intersects."""
    chosen: dict[int, _Option] = field(default_factory=dict)
    """For every good cell, the plan that makes it good."""
    n_tried: int = 0

    def region(self, given: Maker | None, max_cells: int) -> InvariantRegion:
        """Try plans, remove cells, split; finally merge, and prove what is left."""
        fresh, share = np.arange(self.cells.size), 0.0
        while True:
            self._queue(fresh, given)
            self._settle()
            left = np.setdiff1d(np.arange(self.cells.size), list(self.chosen))
            before, share = share, self._share()
            n_more = max_cells - self.cells.size
            if not len(left) or n_more <= 0 or 0.0 < share <= before + _WORTH_IT:
                break
            largest = left[np.argsort(-self.cells.volume[left], kind="stable")][:n_more]
            others = np.setdiff1d(np.arange(self.cells.size), largest)
            fresh = self._replace(others, self.cells.take(largest).halves(self.whole))
        for dimension in range(self.whole.n_dims):
            while self._merge(dimension) >= _OFTEN:
                pass
        return self._proved()

    def _share(self) -> float:
        return float(self.cells.volume[list(self.chosen)].sum() / np.prod(self.whole.upper - self.whole.lower))

    # ---- trying plans, until every cell that is left has one

    def _queue(self, rows: IndexArray, given: Maker | None) -> None:
        """Set the plans to try for some cells, in this order."""
        middle = self.cells.middle[rows]
        for row, x in zip(rows.tolist(), middle, strict=True):
            self.waiting[row] = [] if given is None else [plan[: self.max_steps] for plan in given(x)]
        for plans in recorded_plans(self.predictor, self.limits, self.whole, self.max_steps, middle):
            for row, plan in zip(rows.tolist(), plans, strict=True):
                self.waiting[row].append(plan)

    def _settle(self) -> None:
        """Try further plans for cells that have none leading back, and remove those that run out of plans."""
        left = np.ones(self.cells.size, dtype=bool)
        further = iter((self._steered, self._robust))
        while True:
            lost = np.flatnonzero(left & ~self._has_way_back(left))
            if not len(lost):
                break
            trials = [_Trial(row, self.waiting[row].pop(0)) for row in lost.tolist() if self.waiting[row]]
            for more in further if not trials else ():
                trials = more(lost, np.setdiff1d(np.flatnonzero(left), lost))
                if trials:
                    break
            if trials:
                self._try(trials)
            else:
                left[lost] = False
        self.chosen = {}
        for option, rows in zip(self.options, self.met, strict=True):  # the first tried are the most promising
            if left[rows].all() and left[option.cell]:
                self.chosen.setdefault(option.cell, option)

    def _has_way_back(self, left: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which cells have an option that ends in the remaining cells."""
        found = np.zeros(self.cells.size, dtype=bool)
        if self.options:
            firsts = np.concatenate([[0], np.cumsum([len(rows) for rows in self.met])[:-1]])
            returns = ~np.logical_or.reduceat(~left[np.concatenate(self.met)], firsts)
            found[np.array([option.cell for option in self.options])[returns]] = True
        return found

    def _steered(self, lost: IndexArray, kept: IndexArray) -> list[_Trial]:
        """Plans to the middle of what is left, for some of the cells that no recorded plan leads back from."""
        if not len(kept):
            return []
        make = plans_of(self._steering(kept), self.predictor.runs.n_inputs)
        return [_Trial(row, plan) for row in _spread(lost, _MOST_SOLVED) for plan in make(self.cells.middle[row])]

    def _robust(self, lost: IndexArray, kept: IndexArray) -> list[_Trial]:
        """Robust plans into the remaining cells, for a few of those cells, the largest, where they matter."""
        size = self.cells.volume[lost]
        is_small = size.sum() <= _WORTH_ROBUST * np.prod(self.whole.upper - self.whole.lower)
        if not len(kept) or is_small or not self.predictor.method.has_gradients:
            return []
        problem = self._steering(kept)
        end = Box(self.cells.lower[kept].min(axis=0), self.cells.upper[kept].max(axis=0))
        trials = []
        for row in _spread(lost[size == size.max()], _MOST_ROBUST):
            start = Box(*widened(self.cells.lower[row], self.cells.upper[row], self.noise))
            trials += [_Trial(row, plan) for plan in robust_plan(self.predictor, problem, self.limits, start, end)]
        return trials

    def _steering(self, kept: IndexArray) -> CertaintyEquivalentOCP:
        target = np.average(self.cells.middle[kept], axis=0, weights=self.cells.volume[kept])
        return steering_to(self.predictor, self.limits, self.whole, self.max_steps, target)

    def _try(self, trials: list[_Trial]) -> None:
        """Boxes of all trials, each from everywhere in its cell; what keeps the limits is an option."""
        names = self.predictor.runs.input_names
        kept = [trial for trial in trials if input_violation(trial.inputs, self.limits, names) is None]
        found = []
        for some, tubes, _ in self._tubes(self.cells, self._begin_well(kept)):
            for k, n in np.argwhere(np.logical_and.accumulate(self._inside(tubes), axis=1)):
                low, high = widened(tubes.lower[k, n], tubes.upper[k, n], self.noise)
                if (self.whole.lower <= low).all() and (high <= self.whole.upper).all():
                    found.append(_Option(some[k].cell, some[k].inputs[: n + 1], low, high))
        self.options += found
        self.met += self._meeting(found)

    def _meeting(self, options: list[_Option]) -> list[IndexArray]:
        if not options:
            return []
        return self.cells.met(np.array([o.low for o in options]), np.array([o.high for o in options]))

    def _begin_well(self, trials: list[_Trial]) -> list[_Trial]:
        """One-step trials, and those whose first step keeps the limits: the others can be dropped."""
        longer = [trial for trial in trials if len(trial.inputs) > 1]
        begun = self._tubes(self.cells, [_Trial(trial.cell, trial.inputs[:1]) for trial in longer])
        good = {
            (some[k].cell, some[k].inputs.tobytes())
            for some, tubes, _ in begun
            for k in np.flatnonzero(np.all(self._inside(tubes), axis=1)).tolist()
        }
        return [t for t in trials if len(t.inputs) == 1 or (t.cell, t.inputs[:1].tobytes()) in good]

    def _tubes(
        self, cells: Partition, trials: Sequence[_Trial | _Option]
    ) -> Iterator[tuple[list[_Trial | _Option], Tube, FloatArray]]:
        """Tubes of plans from everywhere in their cells, and the cells' reach; cells of one size at a time."""

        def key(trial: _Trial | _Option) -> tuple[int, ...]:
            return (len(trial.inputs), *cells.level[trial.cell].tolist())

        for _, group in groupby(sorted(trials, key=key), key):
            alike = list(group)
            for first in range(0, len(alike), _AT_ONCE):
                some = alike[first : first + _AT_ONCE]
                starts = [start_of(cells.box(trial.cell), self.noise) for trial in some]
                reach = np.max([own for _, own in starts], axis=0)
                x0, plans = np.array([x for x, _ in starts]), np.array([trial.inputs for trial in some])
                yield some, self.predictor.boxes(x0, plans, initial_state_noise=reach, n_jobs=self.n_jobs), reach
                self.n_tried += len(some)
                if self.progress is not None:  # the final total is unknown
                    self.progress(self.n_tried, self.n_tried + len(trials) - first - len(some))

    def _inside(self, tubes: Tube) -> npt.NDArray[np.bool_]:
        """Which boxes are within the limits."""
        inside: npt.NDArray[np.bool_] = np.all(
            (self.whole.lower <= tubes.lower) & (tubes.upper <= self.whole.upper), axis=-1
        )
        return inside

    # ---- splitting and merging

    def _replace(self, kept: IndexArray, new: Partition) -> IndexArray:
        """Keep some cells and add others, whose indices are returned; options of removed cells are dropped."""
        place = {old: k for k, old in enumerate(kept.tolist())}
        self.waiting = {place[cell]: plans for cell, plans in self.waiting.items() if cell in place}
        self.options = [o._replace(cell=place[o.cell]) for o in self.options if o.cell in place]
        self.chosen = {place[cell]: o._replace(cell=place[cell]) for cell, o in self.chosen.items() if cell in place}
        self.cells = self.cells.take(kept).joined(new)
        self.met = self._meeting(self.options)
        return np.arange(len(kept), self.cells.size)

    def _merge(self, dimension: int) -> float:
        """Let one cell stand for two where a plan of either serves both: the region stays the same.

        Returns the share of pairs along a dimension that were merged.
        """
        pairs = self.cells.pairs(self.chosen, dimension)
        if not pairs:
            return 0.0
        unions, served = self.cells.unions(pairs, dimension), dict[int, _Option]()
        good = self.cells.take(list(self.chosen))
        for side in (0, 1):
            trials = [_Trial(k, self.chosen[pair[side]].inputs) for k, pair in enumerate(pairs) if k not in served]
            for some, tubes, _ in self._tubes(unions, trials):
                for k in np.flatnonzero(self._inside(tubes).all(axis=1)):
                    low, high = widened(tubes.lower[k, -1], tubes.upper[k, -1], self.noise)
                    if is_covered(low, high, good.lower, good.upper):
                        served[some[k].cell] = _Option(some[k].cell, some[k].inputs, low, high)
        gone = [cell for k in served for cell in pairs[k]]
        new = self._replace(np.setdiff1d(np.arange(self.cells.size), gone), unions.take(list(served)))
        for cell, option in zip(new.tolist(), served.values(), strict=True):
            self.chosen[cell] = option._replace(cell=cell)
        return len(served) / len(pairs)

    # ---- the proof

    def _proved(self) -> InvariantRegion:
        """Cells with the tubes of their plans; those that do not end in the region are removed in turn."""
        found: list[Cell] = []
        for some, tubes, reach in self._tubes(self.cells, list(self.chosen.values())):
            for k in np.flatnonzero(np.all(self._inside(tubes), axis=1)).tolist():
                box = self.cells.box(some[k].cell)
                found.append(Cell(box, start_of(box, self.noise)[0], reach, some[k].inputs, tubes[k]))
        while True:
            region = InvariantRegion(self.predictor, self.limits, self.noise, tuple(found))
            left = [cell for cell in found if region.covers(cell.tube.lower[-1], cell.tube.upper[-1])]
            if len(left) == len(found):
                return region
            found = left
