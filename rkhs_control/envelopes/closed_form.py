"""The suboptimal closed form of Proposition 3: no optimisation per query, centred on a nominal model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..arithmetic.compiled_rounding import dot_up
from ..arithmetic.rounding import enlarged, product_up, sum_up
from ..assumptions.regression import KernelModel
from ..data.arrays import FloatArray
from ..engine.functionals import Functional, Points
from ..engine.witness import Witness
from .base import Envelope, Side, UpperBound
from .projection import deviation_up, distance_up

_SMOOTHING = 1e-7  # of roots and absolute values, for their derivatives


@dataclass(frozen=True, eq=False, repr=False)
class ClosedFormEnvelope(Envelope):
    """`s(x) -+ S(x)`, `S = P_X(x) sqrt(Gamma^2 + Delta) + sum_i |w_i| h_i + |w'y - s(x)|`, `w = K^-1 K_Xx`.

    `s` is any kernel `model` (ridge, minimum norm, given weights; the minimum-norm regressor by default), `y +- h`
    are the intervals, and `Delta`, the minimum in Proposition 3, is minus the least squared norm through them.
    """

    has_gradients: ClassVar[bool] = True
    model: KernelModel | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.data.require_two_sided()

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        return self._seen_from(side, self._middles_and_widths(functionals))

    def value_bounds(self, sides: Sequence[Side], Z: FloatArray) -> list[list[UpperBound]]:
        found = self._middles_and_widths([Points.value(z) for z in Z])
        return [self._seen_from(side, found) for side in sides]

    def _seen_from(self, side: Side, found: Iterable[tuple[float, float]]) -> list[UpperBound]:
        sign = -1.0 if side.is_mirrored else 1.0
        return [UpperBound(sum_up(sign * middle, width)) for middle, width in found]

    def _middles_and_widths(self, functionals: Sequence[Functional]) -> list[tuple[float, float]]:
        """Centres and half-widths of the bounds, which are symmetric."""
        rows = np.empty((len(functionals), len(self.data)))
        for own, functional in zip(rows, functionals, strict=True):
            own[:] = functional.row(self.kernel, self.data.X)
        weights = np.ascontiguousarray(self.gram.spectrum.solve(rows.T, self.nugget).T)
        return [self._middle_and_width(*pair) for pair in zip(functionals, weights, strict=True)]

    def _middle_and_width(self, functional: Functional, weights: FloatArray) -> tuple[float, float]:
        y = self.data.centre
        nominal = self._nominal(functional)
        offset = max(dot_up(y, weights) - nominal, nominal + dot_up(-y, weights))
        width = sum_up(
            deviation_up(functional, self.gram, weights, centre=self._centre, furthest=self._furthest),
            dot_up(np.abs(weights), self.data.half_width),
            enlarged(offset, roundings=4),
        )
        return nominal, width

    def upper_gradient(self, side: Side, z: FloatArray, witness: Witness | None) -> FloatArray:
        """The gradient of the smoothed bound, by CasADi."""
        gradient: FloatArray = np.array(self._gradients(z))[0 if side.is_mirrored else 1]
        return gradient

    @cached_property
    def _gradients(self) -> Any:
        """Gradients of the upper bounds on `-f` and on `f`, compiled once."""
        import casadi

        z = casadi.MX.sym("z", self.data.n_dims)
        bounds = casadi.vertcat(*self._casadi_bounds(z))
        return casadi.Function("gradients", [z], [casadi.jacobian(bounds, z)])

    def __getstate__(self) -> dict[str, Any]:
        """Without the functions compiled by CasADi."""
        return {name: value for name, value in vars(self).items() if name != "_gradients"}

    def _casadi_bounds(self, x: Any) -> tuple[Any, Any]:
        """Upper bounds on `-f` and on `f` at a CasADi column, for derivatives: smoothed, and not rounded outwards."""
        import casadi

        def magnitude(value: Any) -> Any:
            return casadi.sqrt(value**2 + _SMOOTHING**2)

        K = casadi.DM(self.gram.whole)
        k = self.kernel.casadi(x, self.data.X).T
        w = casadi.DM(self.gram.spectrum.solve(np.eye(len(self.data)), self.nugget)) @ k
        distance2 = self.kernel.variance - 2.0 * casadi.dot(w, k) + casadi.dot(w, K @ w)
        s = self._model.casadi(x)
        width = (
            self._furthest * casadi.sqrt(casadi.fmax(distance2, 0.0) + _SMOOTHING**2)
            + casadi.dot(magnitude(w), casadi.DM(self.data.half_width))
            + magnitude(casadi.dot(w, casadi.DM(self.data.centre)) - s)
        )
        return width - s, width + s

    def _nominal(self, functional: Functional) -> float:
        """`L s`; rounding may move this centre, and the width makes up for it."""
        if self.model is not None:
            return self.model.apply(functional)
        # the weights may be larger than those of a given model
        return float(functional.row(self.kernel, self.data.X[self._centre.indices]) @ self._centre.weights)

    @cached_property
    def _model(self) -> KernelModel:
        if self.model is not None:
            return self.model
        return KernelModel(self.data.X[self._centre.indices], self.kernel, self._centre.weights)

    @cached_property
    def _centre(self) -> Witness:
        return Witness.sparse(self.least_norm.indices, self.least_norm.weights)

    @cached_property
    def _furthest(self) -> float:
        """How far `f` can be from the least-norm function, `sqrt(Gamma^2 + Delta)`, rounded up."""
        norm = self._centre.norm_up(self.gram)
        least_inner = self._centre.inner_at_least(self.data.lower, self.data.upper)
        return distance_up(product_up(self.radius, self.radius), product_up(norm, norm), least_inner)
