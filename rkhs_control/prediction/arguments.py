"""Arguments known only to lie in a box: a measured history, or a whole cell of states.

For `||g|| <= norm_bound` and a box `|z_j - c_j| <= h_j`, with the kernel's bends `b_j`,

    sup g  <=  max over corners of an upper bound of g  +  norm_bound / 2 * sum_j b_j h_j^2

because multilinear interpolation from the corners is off by no more than that. Where there are too many corners, the
centre and bounds on the slopes there are used, with the same remainder (Taylor). Where functions may have kinks, the
only bound left is how far a function of this norm can move from its value at the centre. An affine prior has no
remainder, and passes through each of these exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import LOST_PRODUCTS, UNDERFLOW, enlarged, further_out, outwards, up
from ..assumptions.intervals import displacement
from ..assumptions.priors import AffinePrior, Prior
from ..data.arrays import FloatArray, IndexArray, as_floats, require_finite
from ..data.trajectories import Trajectories
from ..engine.functionals import Derivative, Functional
from ..engine.witness import Witness
from ..envelopes.base import Envelope, UpperBound
from ..errors import InputError
from ..kernels.base import Kernel

MOST_CORNERS = 4
"""With more uncertain coordinates, the centre and its slopes are used instead of all corners."""

Method = Literal["point", "corners", "slopes", "displacement"]


@dataclass(frozen=True, eq=False)
class SetProof:
    """What proves an upper bound of `g`, or of `-g`, over a box of arguments.

    The witnesses are one for the argument itself ("point"; "displacement" adds what uncertainty can do), one per corner
    ("corners", the last coordinate changing fastest), or one for the centre and two per uncertain coordinate, for the
    derivative and for minus it ("slopes"). None where a method has no witnesses.
    """

    method: Method
    witnesses: tuple[Witness | None, ...]
    offset: FloatArray
    """Offset from the centre to the argument of the largest bound."""
    binding: int = 0
    """Its witness."""

    @property
    def witness(self) -> Witness | None:
        """The witness of the largest bound."""
        return self.witnesses[self.binding]


@dataclass(frozen=True, eq=False)
class SetEnds:
    """Upper bounds of `m + g`, or of `-(m + g)`, over boxes of arguments; one entry per box."""

    values: FloatArray
    gaps: FloatArray
    costs: FloatArray
    """How much further out they are than the bounds at the centres."""
    proofs: list[SetProof]


@dataclass(frozen=True, eq=False)
class ArgumentBoxes:
    """Boxes around the rows of `centres` `(m, n_dims)`, whose first coordinates may be off by up to `noise`."""

    centres: FloatArray
    noise: FloatArray

    @cached_property
    def uncertain(self) -> IndexArray:
        """Which coordinates are uncertain."""
        return np.flatnonzero(self.noise)

    @cached_property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Ends of the uncertain coordinates, `(m, n_uncertain)` each, rounded outwards."""
        middle, off = self.centres[:, self.uncertain], self.noise[self.uncertain]
        return outwards(middle - off, middle + off)

    @cached_property
    def reach(self) -> FloatArray:
        """How far the ends are from the centres at most, rounded up, `(m, n_uncertain)`."""
        middle, (low, high) = self.centres[:, self.uncertain], self.ends
        return up(np.maximum(high - middle, middle - low))

    @cached_property
    def corners(self) -> FloatArray:
        """`(m, 2^n_uncertain, n_dims)`."""
        points = np.repeat(self.centres[:, None], 2 ** len(self.uncertain), axis=1)
        for c, sides in enumerate(product((0, 1), repeat=len(self.uncertain))):
            for k, side in enumerate(sides):
                points[:, c, self.uncertain[k]] = self.ends[side][:, k]
        return points

    def remainder(self, kernel: Kernel, norm: float) -> FloatArray:
        """`norm / 2 sum_j b_j h_j^2` for every box, rounded up; infinite where the kernel is too rough."""
        if not len(self.uncertain):
            return np.zeros(len(self.centres))
        bends = kernel.bend(self.centres.shape[1])[self.uncertain]
        if not np.isfinite(bends).all():
            return np.full(len(self.centres), np.inf)
        reach = np.maximum(self.reach, UNDERFLOW)  # smaller squares would underflow to zero
        return enlarged(np.maximum(0.5 * (reach**2 @ (norm * bends)), LOST_PRODUCTS), len(bends) + 8)

    def displacement(self, kernel: Kernel, norm: float) -> float:
        """The largest effect of uncertainty on a function of this norm, for any kernel, rounded up."""
        return displacement(kernel, norm, self.noise, self.centres.shape[1] - len(self.noise))

    def method_for(self, kernel: Kernel, norm: float) -> Method:
        """The tightest method, unless there are too many corners."""
        if not len(self.uncertain):
            return "point"
        if self.remainder(kernel, norm).max() > self.displacement(kernel, norm):
            return "displacement"
        return "corners" if len(self.uncertain) <= MOST_CORNERS else "slopes"


def set_ends(envelope: Envelope, prior: Prior, boxes: ArgumentBoxes, side: int) -> SetEnds:
    """Upper bounds (`side` 1) of `m + g` over every box, or (0) of `-(m + g)`."""
    return _ends(envelope, prior, boxes, (side,))[0]


def both_ends(envelope: Envelope, prior: Prior, boxes: ArgumentBoxes) -> tuple[SetEnds, SetEnds]:
    """Upper bounds of `-(m + g)` over every box, and of `m + g`."""
    below, above = _ends(envelope, prior, boxes, (0, 1))
    return below, above


def _ends(envelope: Envelope, prior: Prior, boxes: ArgumentBoxes, sides: tuple[int, ...]) -> list[SetEnds]:
    kernel, norm = envelope.kernel, envelope.radius
    method, centres = boxes.method_for(kernel, norm), boxes.centres[:, None]
    points = np.concatenate([centres, boxes.corners], axis=1) if method == "corners" else centres
    flat = points.reshape(-1, points.shape[2])
    found = envelope.value_bounds([envelope.sides[side] for side in sides], flat)
    return [
        _set_ends(envelope, prior, boxes, side, method, points, bounds)
        for side, bounds in zip(sides, found, strict=True)
    ]


def _set_ends(
    envelope: Envelope,
    prior: Prior,
    boxes: ArgumentBoxes,
    side: int,
    method: Method,
    points: FloatArray,
    bounds: list[UpperBound],
) -> SetEnds:
    kernel, norm, centres = envelope.kernel, envelope.radius, boxes.centres[:, None]
    values, gaps = (np.array([getattr(b, key) for b in bounds]).reshape(points.shape[:2]) for key in ("value", "gap"))
    values = _with_prior(values, prior, points if isinstance(prior, AffinePrior) else centres, side)
    blur = 0.0 if prior is None or method == "point" else prior.blur(boxes.noise)
    witnesses = [tuple(b.witness for b in row) for row in _rows(bounds, points.shape[1])]
    at_centre, further = values[:, 0], np.zeros(len(values))
    if method == "point":
        proofs = [SetProof(method, own, np.zeros(len(z))) for own, z in zip(witnesses, boxes.centres, strict=True)]
        return SetEnds(at_centre, gaps[:, 0], further, proofs)
    if method == "corners":  # the centre only shows what these cost
        values, gaps, points, witnesses = values[:, 1:], gaps[:, 1:], points[:, 1:], [own[1:] for own in witnesses]
        further = boxes.remainder(kernel, norm) + blur
    elif method == "slopes":
        slopes, by_slopes = _slope_bounds(envelope, prior, boxes)
        further = by_slopes + boxes.remainder(kernel, norm) + blur
        witnesses = [(*own, *more) for own, more in zip(witnesses, slopes, strict=True)]
    elif method == "displacement":
        further = further + boxes.displacement(kernel, norm) + (0.0 if prior is None else prior.change(boxes.noise))
    ends, further = further_out(values.max(axis=1), enlarged(further, 3)), enlarged(further, 3)
    proofs = [
        SetProof(method, own, points[k, at] - boxes.centres[k], int(at))
        for k, (own, at) in enumerate(zip(witnesses, values.argmax(axis=1), strict=True))
    ]
    return SetEnds(ends, gaps.max(axis=1) + further, ends - at_centre, proofs)


def _with_prior(values: FloatArray, prior: Prior, points: FloatArray, side: int) -> FloatArray:
    """Upper bounds of `g`, with the prior at these points, or at one for all bounds of a row, rounded up."""
    if prior is None:
        return values
    flat = points.reshape(-1, points.shape[2])
    middle = (prior(flat) if side else -prior(flat)).reshape(points.shape[:2])
    return further_out(up(values + middle), enlarged(prior.error(flat), 2).reshape(points.shape[:2]))


def _slope_bounds(
    envelope: Envelope, prior: Prior, boxes: ArgumentBoxes
) -> tuple[list[tuple[Witness | None, ...]], FloatArray]:
    """`sum_j h_j sup |d(m + g)/dz_j|` at every centre, rounded up, and what proves the bounds on the slopes."""
    functionals: Sequence[Functional] = [Derivative(z, int(j)) for z in boxes.centres for j in boxes.uncertain]
    falling, rising = (envelope.upper_bounds(side, functionals) for side in envelope.sides)
    own = np.zeros(len(boxes.uncertain)) if prior is None else np.array(prior.slopes)[boxes.uncertain]
    shape = boxes.reach.shape
    steepest = np.maximum(
        up(np.array([b.value for b in rising]).reshape(shape) + own),
        up(np.array([b.value for b in falling]).reshape(shape) - own),
    )
    pairs = [(r.witness, f.witness) for r, f in zip(rising, falling, strict=True)]
    witnesses = [tuple(w for pair in row for w in pair) for row in _rows(pairs, len(boxes.uncertain))]
    return witnesses, enlarged((boxes.reach * steepest).sum(axis=1), shape[1] + 2)


def _rows(items: Sequence[UpperBound] | Sequence[tuple[Witness | None, Witness | None]], size: int) -> list[list]:  # type: ignore[type-arg]
    """In groups of the same size."""
    return [list(items[k : k + size]) for k in range(0, len(items), size)]


def checked_plans(runs: Trajectories, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Histories `(n_plans, n_history)` and inputs `(n_plans, n_steps, n_inputs)`, refused if they do not fit `runs`."""
    start, plan = as_floats(x0, "x0"), as_floats(inputs, "inputs")
    if start.ndim == 1:
        start, plan = start[None], plan[None]
    if start.ndim != 2 or start.shape[1] != runs.n_history:
        what = "states" if runs.has_states else "entries, a history"
        raise InputError(f"x0 must hold {runs.n_history} {what} ({', '.join(runs.history_names)}); got {np.shape(x0)}")
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
