"""What all envelopes share: the interface, the mirror that turns an upper bound into a lower one, the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from ..arithmetic.printing import rounded_down, rounded_up
from ..assumptions.norms import NormBound
from ..data.arrays import FloatArray, as_points, non_negative
from ..data.observations import Observations
from ..engine.functionals import Functional, Points
from ..engine.gram import Gram
from ..engine.least_norm import LeastNorm, least_norm
from ..engine.witness import Witness
from ..errors import FalsifiedNormBoundError, InputError
from ..kernels.base import Kernel
from ..parallel import in_parallel, n_workers
from .constraint import Constraint

_AT_ONCE = 32
"""Queries per part: enough to outweigh the overhead, and independent of the number of workers."""
_TASKS_EACH = 2
"""Tasks per worker and side, if there are enough parts."""


@dataclass(frozen=True, eq=False)
class Side:
    """The intervals as seen from above or, negated, from below: a lower bound on `f` is an upper bound on `-f`."""

    lower: FloatArray
    upper: FloatArray
    is_mirrored: bool


@dataclass(frozen=True)
class UpperBound:
    """An upper bound on `L f` on one side, its proof, and how far it may be from the least one."""

    value: float
    gap: float = np.nan
    witness: Witness | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Band:
    """Bounds at `m` queries: `lower <= L f <= upper`.

    `gap` is the most that `lower` or `upper` may be from the tightest bound that the assumptions allow; NaN where the
    method does not tell. It measures quality: the bounds hold whatever it is.
    """

    lower: FloatArray
    upper: FloatArray
    gap: FloatArray
    witnesses: tuple[tuple[Witness | None, Witness | None], ...]
    upper_gradient: FloatArray | None = None
    lower_gradient: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.upper)

    def __repr__(self) -> str:
        if not len(self):
            return "Band(no queries)"
        ends = f"from {rounded_down(float(self.lower.min()))} to {rounded_up(float(self.upper.max()))}"
        return f"Band({len(self)} queries, {ends}, widest {rounded_up(float(self.width.max()))})"

    @property
    def width(self) -> FloatArray:
        """`upper - lower`."""
        return self.upper - self.lower

    @property
    def relative_gap(self) -> FloatArray:
        """`gap` as a share of the larger of the two bounds' magnitudes and the width."""
        size = np.maximum(np.maximum(np.abs(self.lower), np.abs(self.upper)), self.width)
        return self.gap / np.where(size > 0, size, 1.0)

    def witness(self, i: int) -> tuple[Witness | None, Witness | None]:
        """What proves the lower and the upper bound of query `i`; the lower one is a witness for `-f`."""
        return self.witnesses[i]


class GivenNormBound:
    """A field that accepts a number or a `NormBound`, and stores a `NormBound`."""

    def __get__(self, instance: object, owner: type | None = None) -> NormBound:
        if instance is None:
            raise AttributeError("norm_bound")  # so that the field has no default
        bound: NormBound = vars(instance)["norm_bound"]
        return bound

    def __set__(self, instance: object, bound: float | NormBound) -> None:
        vars(instance)["norm_bound"] = NormBound.of(bound)


@dataclass(frozen=True, eq=False, repr=False)
class Envelope(ABC):
    """Guaranteed bounds on an unknown function from `data` and a bound on its norm in the RKHS of `kernel`.

    Data that refute the norm bound are refused when the envelope is built. What a method can do is declared on its
    class, so that callers need not ask which class it is.
    """

    is_certain: ClassVar[bool] = True
    """Whether the bounds hold for certain under the assumptions, or only with some probability."""

    has_witnesses: ClassVar[bool] = False
    """Whether bounds come with the weights that prove them, which certificates contain and the checker evaluates."""

    has_gradients: ClassVar[bool] = False
    """Whether `end_gradient` gives the gradients of the bounds by the query, which planning needs."""

    data: Observations
    kernel: Kernel
    norm_bound: GivenNormBound = GivenNormBound()
    nugget: float = 0.0
    """Added to the diagonal of the kernel matrix of the data: bounds stay valid and become wider."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nugget", non_negative(self.nugget, "nugget"))
        # A nugget would let functions miss the intervals.
        gram, start = (self._plain_gram, self._plain_least_norm) if self.nugget else (self.gram, self.least_norm)
        self.norm_bound.require_consistent(gram, start, self.data)

    def __repr__(self) -> str:
        data = f"{len(self.data)} inputs, n_dims={self.data.n_dims}"
        bound = f"norm_bound={self.radius!r} ({self.norm_bound.provenance})"
        own = [(f, getattr(self, f.name)) for f in fields(self) if f.name not in ("data", "kernel", "norm_bound")]
        options = [f"{f.name}={value!r}" for f, value in own if np.isscalar(value) and value != f.default]
        return f"{type(self).__name__}({', '.join([data, repr(self.kernel), bound, *options])})"

    def __le__(self, limit: float) -> Constraint:
        """`f <= limit`, as `minimise` takes it."""
        return Constraint(self, limit)

    def __ge__(self, limit: float) -> Constraint:
        return Constraint(self, limit, is_floor=True)

    @property
    def radius(self) -> float:
        """The norm bound as a number."""
        return self.norm_bound.value

    @cached_property
    def gram(self) -> Gram:
        """The kernel matrix of the data."""
        return Gram(self.data.X, self.kernel, self.nugget)

    @cached_property
    def least_norm(self) -> LeastNorm:
        """The minimum-norm regressor: its norm is the least that the data do not refute."""
        return least_norm(self.gram, self.data.lower, self.data.upper)

    @cached_property
    def _plain_gram(self) -> Gram:
        """Without the nugget."""
        return self.gram.with_nugget(0.0)

    @cached_property
    def _plain_least_norm(self) -> LeastNorm:
        return least_norm(self._plain_gram, self.data.lower, self.data.upper)

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Seen from below, and from above."""
        lower, upper = self.data.lower, self.data.upper
        return Side(-upper, -lower, True), Side(lower, upper, False)

    def with_assumptions(self, data: Observations, norm_bound: float | NormBound) -> Self:
        """The same envelope for other intervals at the same inputs, or another norm bound.

        Whatever does not depend on them is not recomputed.
        """
        if data is not self.data and not np.array_equal(data.X, self.data.X):
            raise InputError("with_assumptions takes data at the same inputs")
        other = object.__new__(type(self))
        kept = {"gram", "_plain_gram"}
        if data is self.data:
            kept |= {"least_norm", "_plain_least_norm", "sides"}
        vars(other).update({name: value for name, value in vars(self).items() if name in kept})
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        other.__init__(**{**given, "data": data, "norm_bound": norm_bound})  # type: ignore[misc]
        return other

    def with_more(self, data: Observations) -> Self:
        """The same envelope for more data, the first of which are at its present inputs.

        Kernel matrix and least norm are updated from what is known; data that refute the norm bound are refused.
        """
        if not np.array_equal(data.X[: len(self.data)], self.data.X):
            raise InputError("with_more takes data whose first inputs are those of the envelope")
        other, gram = object.__new__(type(self)), self.gram.extended(data.X)
        solution = least_norm(gram, data.lower, data.upper, before=self.least_norm)
        vars(other).update(gram=gram, least_norm=solution)
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        other.__init__(**{**given, "data": data})  # type: ignore[misc]
        return other

    @abstractmethod
    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        """An upper bound on every functional for the data as seen from `side`."""

    def value_bounds(self, sides: Sequence[Side], Z: FloatArray) -> list[list[UpperBound]]:
        """`upper_bounds` of the values at the rows of `Z`, which are finite, from each side."""
        functionals = [Points.value(z) for z in Z]
        return [self.upper_bounds(side, functionals) for side in sides]

    def end_gradient(self, z: FloatArray, side: int, witness: Witness | None) -> FloatArray:
        """Gradient of the lower (`side` 0) or upper (1) bound on `f(z)` by `z`; NaN where it has a kink.

        `witness` is what proves the bound there, None for methods without witnesses. The shape is `(n_dims,)`.
        """
        gradient = self.upper_gradient(self.sides[side], z, witness)
        return gradient if side else -gradient

    def upper_gradient(self, side: Side, z: FloatArray, witness: Witness | None) -> FloatArray:
        """The gradient of the upper bound at `z` as seen from `side`, by methods that have gradients."""
        raise InputError(f"{type(self).__name__} has no gradients; OptimalEnvelope has")

    def bounds(self, Xq: npt.ArrayLike, n_jobs: int | None = None) -> Band:
        """Bounds on `f` at the rows of `Xq`, shape `(m, n_dims)`.

        `n_jobs` spreads them over processes with joblib; by default as set by `joblib.parallel_config`, so any of its
        backends works, including a Dask cluster.
        """
        return self.functional_bounds([Points.value(x) for x in self._queries(Xq)], n_jobs)

    def functional_bounds(self, functionals: Sequence[Functional], n_jobs: int | None = None) -> Band:
        """Bounds on any linear functionals of `f`."""
        for i, functional in enumerate(functionals):
            if functional.n_dims != self.data.n_dims:
                raise InputError(
                    f"functional {i} has {functional.n_dims} dimensions, but the data have {self.data.n_dims}"
                )
        below, above = self._in_parallel(functionals, n_jobs)
        lower, upper = np.array([-b.value for b in below]), np.array([a.value for a in above])
        self.refuse_inverted(lower, upper)
        return Band(
            lower=lower,
            upper=upper,
            gap=np.array([max(b.gap, a.gap) for b, a in zip(below, above, strict=True)]),
            witnesses=tuple((b.witness, a.witness) for b, a in zip(below, above, strict=True)),
        )

    def _evaluated(self, witness: Witness, side: Side, functional: Functional) -> tuple[float, float]:
        """The bound that a witness proves on a functional as seen from `side`, and its norm, both rounded up."""
        return witness.upper_value(functional, self.gram, lower=side.lower, upper=side.upper, norm_bound=self.radius)

    def _in_parallel(
        self, functionals: Sequence[Functional], n_jobs: int | None
    ) -> tuple[list[UpperBound], list[UpperBound]]:
        """Upper bounds on every functional, seen from below and from above.

        Parts are the same however they are shared out, and so are the bounds; a process takes several of them at once,
        because the data go with every task.
        """
        parts = [functionals[first : first + _AT_ONCE] for first in range(0, len(functionals), _AT_ONCE)]
        together = max(1, len(parts) // (_TASKS_EACH * n_workers(n_jobs)))
        tasks = [(side, parts[k : k + together]) for side in self.sides for k in range(0, len(parts), together)]
        bounds = list(chain.from_iterable(in_parallel(self._bounds_of_parts, tasks, n_jobs)))
        return bounds[: len(functionals)], bounds[len(functionals) :]

    def _bounds_of_parts(self, side: Side, parts: Sequence[Sequence[Functional]]) -> list[UpperBound]:
        return [bound for part in parts for bound in self.upper_bounds(side, part)]

    def refuse_inverted(self, lower: FloatArray, upper: FloatArray) -> None:
        """A lower bound above an upper one proves that no function fits: the assumptions contradict each other."""
        inverted = np.flatnonzero(lower > upper)
        if self.is_certain and len(inverted):
            i = int(inverted[0])
            raise FalsifiedNormBoundError(
                f"norm_bound {self.radius:.9g} ({self.norm_bound.provenance}) is refuted by the data: at "
                f"query {i} the unknown function would have to be at least {lower[i]:.9g} and at most {upper[i]:.9g}; "
                "raise norm_bound (or the safety factor), shorten the lengthscale, or raise noise_bound if that is too "
                "small"
            )

    def _queries(self, Xq: npt.ArrayLike, name: str = "Xq") -> FloatArray:
        return as_points(Xq, name, self.data.n_dims)
