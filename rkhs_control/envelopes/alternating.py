"""Algorithm 1 of the paper: the dual problem by turns in `nu` and `lambda`, sound after any number of turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..arithmetic.rounding import UNIT_ROUNDOFF
from ..data.arrays import FloatArray, positive
from ..engine import path, walk
from ..engine.active_set import forward
from ..engine.functionals import Functional
from ..engine.least_norm import LeastNorm
from ..engine.witness import Witness
from ..errors import InputError
from .base import Envelope, Side, UpperBound


@dataclass(frozen=True, eq=False, repr=False)
class AlternatingEnvelope(Envelope):
    """Minimise over `nu` for fixed `lambda`, then over `lambda` for fixed `nu`, `iterations` times.

    For fixed `lambda` the minimiser is found exactly, where the query path has `theta = 1 / (2 lambda)`. It stops
    early when `lambda` moves by no more than `tolerance` times itself.
    """

    has_witnesses: ClassVar[bool] = True
    iterations: int = 10
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.iterations, float) or int(self.iterations) < 1:
            raise InputError(f"iterations must be a whole number, at least 1; got {self.iterations!r}")
        positive(self.tolerance, "tolerance")

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        start = self.least_norm.mirrored() if side.is_mirrored else self.least_norm
        return [self._upper_bound(side, start, functional) for functional in functionals]

    def _upper_bound(self, side: Side, start: LeastNorm, functional: Functional) -> UpperBound:
        row = functional.row(self.kernel, self.data.X)
        norm2 = functional.squared_norm(self.kernel)
        # A tenth of the best lambda for the projection onto the active points of the start, to which more will come
        projected = row[start.indices]
        forward(start.active.factor, len(projected), projected)
        distance2 = max(norm2 - float(projected @ projected), UNIT_ROUNDOFF * norm2)
        multiplier = max(0.1 * math.sqrt(distance2) / (2.0 * self.radius), 1e-200)
        best = UpperBound(math.inf)
        for _ in range(self.iterations):
            found = self._best_weights(side, start, row, norm2=norm2, tau_end=1.0 / (2.0 * multiplier))
            witness = found.on_known_ends(side.lower, side.upper)
            value, norm = self._evaluated(witness, side, functional)
            if value < best.value:
                best = UpperBound(value, witness=witness)
            previous, multiplier = multiplier, norm / (2.0 * self.radius)
            if multiplier == 0.0 or abs(multiplier - previous) <= self.tolerance * previous:
                break
        return best

    def _best_weights(self, side: Side, start: LeastNorm, row: FloatArray, norm2: float, tau_end: float) -> Witness:
        end = path.follow_query(
            start.gram.whole,
            side.lower,
            side.upper,
            row=row,
            norm2=norm2,
            start=start.active._replace(order=start.indices),
            square=start.norm**2,
            square_limit=math.inf,
            tau_end=tau_end,
        )
        if end.status == walk.RAY:  # the query lies on a datum, lambda = 0: its section is a combination of active ones
            return Witness.sparse(end.active.order, -end.rates)
        if end.tau == 0.0:  # the path got lost where it started
            return Witness(end.active.order[:0], end.rates[:0])
        return Witness.sparse(end.active.order, -end.active.weights / end.tau)
