"""Set membership: every single sample bounds the function by how fast it may change from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeGuard

import numpy as np

from ..arithmetic.rounding import UNDERFLOW, UNIT_ROUNDOFF, down, sum_up, up
from ..data.arrays import FloatArray, as_vector, positive
from ..engine.functionals import Functional, Points
from ..engine.witness import Witness
from ..errors import InputError
from .base import Envelope, Side, UpperBound


@dataclass(frozen=True, eq=False, repr=False)
class LipschitzEnvelope(Envelope):
    """`min_i ( upper_i + Gamma || k_x - k_{x_i} || )` and its mirror: the best that one sample alone can say.

    A function with `||f|| <= Gamma` is Lipschitz with the constant `Gamma` in the kernel's own metric
    `|| k_x - k_{x_i} ||`, which is never longer than the largest slope of the kernel times the Euclidean distance. So
    this is the classical set-membership bound under the assumptions of the other envelopes. In their terms it is the
    witness with the weight one on one sample; where no weight at all (`|f(x)| <= Gamma sqrt(k(x, x))`) says more,
    that counts. Functionals other than a value are bounded by `Gamma` and their norm alone.

    If a Lipschitz `constant` is also known, in the distance `|| (x - x') / scales ||_2`, the better of both bounds
    counts. Data that refute the constant are refused. A bound from it has no witness.
    """

    has_witnesses: ClassVar[bool] = True
    constant: float | None = None
    scales: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._scales  # refused now if they are wrong
        if self.constant is not None:
            object.__setattr__(self, "constant", positive(self.constant, "constant"))
            self._require_slow_enough()

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        return [self._upper_bound(side, functional) for functional in functionals]

    def _upper_bound(self, side: Side, functional: Functional) -> UpperBound:
        candidates = [
            UpperBound(self._evaluated(witness, side, functional)[0], witness=witness)
            for witness in self._witnesses(side, functional)
        ]
        if self.constant is not None and _is_value(functional):
            cones = self._cones_up(functional.points[0])
            nearest = int(np.argmin(side.upper + cones))
            candidates.append(UpperBound(sum_up(float(side.upper[nearest]), float(cones[nearest]))))
        return min(candidates, key=lambda bound: bound.value)

    def _witnesses(self, side: Side, functional: Functional) -> Iterator[Witness]:
        yield Witness(np.empty(0, dtype=np.int64), np.empty(0))
        if _is_value(functional):
            squares = 2.0 * self.kernel.fall(functional.points, self.data.X)[0] + self.nugget
            nearest = int(np.argmin(side.upper + self.radius * np.sqrt(squares)))
            yield Witness(np.array([nearest], dtype=np.int64), np.ones(1))

    @cached_property
    def _scales(self) -> FloatArray:
        n_dims = self.data.n_dims
        if np.ndim(self.scales) == 0:
            return np.full(n_dims, positive(self.scales, "scales"))  # type: ignore[arg-type]
        given = as_vector(self.scales, "scales", n_dims)
        return np.array([positive(scale, f"scales[{j}]") for j, scale in enumerate(given)])

    def _cones_up(self, x: FloatArray) -> FloatArray:
        """How much the function can differ between a point and each input, rounded up."""
        assert self.constant is not None
        with np.errstate(over="ignore"):
            squares = np.sum(((self.data.X - x) / self._scales) ** 2, axis=1)
        relative = (self.data.n_dims + 8) * UNIT_ROUNDOFF
        distances: FloatArray = np.sqrt(squares) * (1.0 + relative) + UNDERFLOW
        return up(self.constant * distances)

    def _require_slow_enough(self) -> None:
        """Refuse a constant that two samples refute, allowing for their whole intervals."""
        assert self.constant is not None
        data = self.data
        for i, x in enumerate(data.X):
            cones, rises = self._cones_up(x), down(data.lower[i] - data.upper)
            j = int(np.argmax(rises - cones))
            if rises[j] > cones[j]:
                slope = self.constant * rises[j] / cones[j]
                raise InputError(
                    f"constant {self.constant:.9g} is refuted by the data: between the inputs {data.X[j].tolist()} and "
                    f"{x.tolist()} the function changes by at least {slope:.9g} per unit of distance; raise "
                    "constant, or raise noise_bound if that is too small"
                )


def _is_value(functional: Functional) -> TypeGuard[Points]:
    return isinstance(functional, Points) and len(functional.points) == 1 and functional.coefficients[0] == 1.0
