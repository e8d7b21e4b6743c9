"""Prior models: what is known, or fitted, of a plant before its kernel describes the rest.

Bounds are of the residual `f - m`, and so is the norm bound, which then need not pay for offsets and trends. `m` is
a fixed function and no assumption: whatever it is, `m` plus the bounds of the residual bounds the plant, if the norm
bound is one of the residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arithmetic.rounding import UNIT_ROUNDOFF, dot_up, enlarged
from ..data.arrays import FloatArray, as_vector
from ..data.trajectories import Trajectories
from ..errors import InputError

_DEPENDENT = 1e-6
"""Directions in which the arguments vary by a smaller share of the largest are not fitted."""


@dataclass(frozen=True)
class AffinePrior:
    """`m(z) = offset + slopes . z`, with these very doubles."""

    offset: float
    slopes: tuple[float, ...]

    def __post_init__(self) -> None:
        offset, *slopes = as_vector([self.offset, *self.slopes], "a prior").tolist()
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "slopes", tuple(slopes))

    @classmethod
    def fitted(cls, Z: FloatArray, y: FloatArray) -> AffinePrior:
        """By least squares, in coordinates that are centred and scaled."""
        middle, spread = Z.mean(axis=0), Z.std(axis=0)
        spread = np.where(spread > 0.0, spread, 1.0)
        coefficients = np.linalg.lstsq((Z - middle) / spread, y - y.mean(), rcond=_DEPENDENT)[0]
        slopes = coefficients / spread
        return cls(float(y.mean() - slopes @ middle), tuple(slopes.tolist()))

    def __call__(self, Z: FloatArray) -> FloatArray:
        """`m` at every row of `Z`, but for rounding."""
        values: FloatArray = self.offset + Z @ np.array(self.slopes)
        return values

    def error(self, Z: FloatArray) -> FloatArray:
        """What rounding may have done to these values, at most."""
        size = abs(self.offset) + np.abs(Z) @ np.abs(self.slopes)
        return (len(self.slopes) + 8) * UNIT_ROUNDOFF * size

    def change(self, noise: FloatArray) -> float:
        """How much `m` can change where the first coordinates are off by up to `noise`, rounded up."""
        return dot_up(np.abs(self.slopes)[: len(noise)], noise) if np.any(noise) else 0.0


Prior = AffinePrior | None
"""None is zero: the kernel describes all of the plant."""


def fitted_priors(runs: Trajectories) -> tuple[tuple[AffinePrior, ...], ...]:
    """Affine ones for every step and state."""
    return tuple(
        tuple(AffinePrior.fitted(runs.arguments(n), runs.states[:, n, i]) for i in range(runs.n_states))
        for n in range(1, runs.horizon + 1)
    )


GivenPrior = Literal["affine"] | None


def priors_for(given: GivenPrior, runs: Trajectories) -> tuple[tuple[Prior, ...], ...]:
    """Those that are meant, for every step and state."""
    if given is None:
        return ((None,) * runs.n_states,) * runs.horizon
    if given == "affine":
        return fitted_priors(runs)
    raise InputError(f"prior must be 'affine' or None; got {given!r}")


def residual(prior: Prior, Z: FloatArray, y: FloatArray, bound: float | FloatArray) -> tuple[FloatArray, FloatArray]:
    """`y - m(z)` in doubles, and the bound of how far that is from the truth's, which rounding enlarges."""
    if prior is None:
        return y, np.broadcast_to(np.asarray(bound, dtype=np.float64), y.shape)
    rest = y - prior(Z)
    return rest, enlarged(bound + prior.error(Z) + 2.0 * UNIT_ROUNDOFF * (np.abs(rest) + np.abs(y)), 3)
