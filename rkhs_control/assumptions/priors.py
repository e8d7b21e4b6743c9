"""Prior models: what is known about a plant, or fitted to it, before a kernel describes the rest.

Bounds are on the residual `f - m`, and so is the norm bound, which then need not pay for offsets and trends. `m` is a
fixed function, not an assumption: whatever it is, `m` plus bounds on the residual bounds the plant, if the norm bound
holds for the residual. Where arguments are uncertain, an affine `m` changes exactly by its slopes; for a model, the
user must say how steep it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arithmetic.rounding import UNIT_ROUNDOFF, dot_up, enlarged
from ..data.arrays import FloatArray, as_floats, as_vector
from ..data.trajectories import Trajectories
from ..errors import InputError


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
    def fitted(cls, Z: FloatArray, y: FloatArray, noise: float = 0.0) -> AffinePrior:
        """Fitted to outputs that may be off by `noise`; slopes that these do not determine are taken to be zero."""
        slopes = AffineFit.of(Z, y, noise).slopes
        return cls(float(y.mean() - slopes @ Z.mean(axis=0)), tuple(slopes.tolist()))

    def __call__(self, Z: FloatArray) -> FloatArray:
        """`m` at every row of `Z`, up to rounding."""
        values: FloatArray = self.offset + Z @ np.array(self.slopes)
        return values

    def error(self, Z: FloatArray) -> FloatArray:
        """A bound on the rounding error of these values."""
        size = abs(self.offset) + np.abs(Z) @ np.abs(self.slopes)
        return (len(self.slopes) + 8) * (UNIT_ROUNDOFF * size + math.ulp(0.0))  # products may underflow

    def change(self, noise: FloatArray) -> float:
        """How much `m` can change where the first coordinates are off by up to `noise`, rounded up."""
        return dot_up(np.abs(self.slopes)[: len(noise)], noise) if np.any(noise) else 0.0

    def blur(self, noise: FloatArray) -> float:
        """The part of that change which the slopes do not explain: none."""
        return 0.0

    def gradient(self, z: FloatArray) -> FloatArray:
        """The slopes, at every `z`."""
        return np.array(self.slopes)


class AffineFit(NamedTuple):
    """Slopes by ridge regression, and how far they may be off along the principal directions of the arguments.

    Arguments are centred and scaled. A unit of each is then expected to change the output by about its spread, and the
    data correct that as far as noise, or non-affine behaviour, allows. Least squares would give slopes a thousand times
    larger where inputs are almost a function of the state, as under feedback.
    """

    slopes: FloatArray
    doubts: FloatArray
    """`(n_directions, n_dims)`: each row is a change in the slopes that the data do not rule out."""

    @classmethod
    def of(cls, Z: FloatArray, y: FloatArray, noise: float, blur: FloatArray | None = None) -> AffineFit:
        """For outputs `y` at the rows of `Z`, whose first coordinates may be off by `blur`.

        Differences between arguments that are due to noise say nothing about slopes.
        """
        spread, rest, size = Z.std(axis=0), y - y.mean(), float(y.std())
        spread = np.where(spread > 0.0, spread, 1.0)
        if size == 0.0:
            return cls(np.zeros(Z.shape[1]), np.zeros((0, Z.shape[1])))
        U, singular, directions = np.linalg.svd((Z - Z.mean(axis=0)) / spread, full_matrices=False)
        along = U.T @ rest
        off = max(float(np.sqrt(np.mean((rest - U @ along) ** 2))), noise, 1e-9 * size)
        ridge = (off / size) ** 2
        slopes = (singular * along / (singular**2 + ridge)) @ directions
        by_noise = np.zeros(Z.shape[1])
        if blur is not None:
            by_noise[: len(blur)] = len(Z) / 3.0 * (blur / spread[: len(blur)]) ** 2
        excited = np.maximum(singular**2 - directions**2 @ by_noise, 0.0)
        doubts = size * np.sqrt(ridge / (excited + ridge))[:, None] * directions
        return cls(slopes / spread, doubts / spread)


@dataclass(frozen=True, eq=False)
class PriorModel:
    """The user's own model as a prior: the data then bound its error.

    Parameters
    ----------
    function : `(history (n_history,), inputs (n_steps, n_inputs)) -> outputs (n_steps, n_outputs)`
        Outputs at a step must not depend on inputs after it. Its values are taken as they are, and go into certificates
        as assumed.
    steepness : (n_history,), optional
        The most that an output can change per unit of each entry of the history. It is needed where histories are
        uncertain, and is assumed.
    name : str
        Its name in certificates and reports.
    """

    function: Callable[[FloatArray, FloatArray], npt.ArrayLike]
    steepness: tuple[float, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"a prior model must be a function (history, inputs); got {self.function!r}")
        if self.steepness is not None:
            values = as_vector(self.steepness, "steepness")
            if (values < 0.0).any():
                raise InputError(f"steepness must be zero or more; got {values.min():g}")
            object.__setattr__(self, "steepness", tuple(values.tolist()))
        object.__setattr__(self, "name", self.name or getattr(self.function, "__name__", "model"))

    def __str__(self) -> str:
        return f"model {self.name!r}"

    def predict(self, history: FloatArray, inputs: FloatArray, n_outputs: int) -> FloatArray:
        """Its outputs for one plan, checked."""
        outputs = as_floats(self.function(history.copy(), inputs.copy()), f"prior {self.name!r}")
        if outputs.shape != (len(inputs), n_outputs) or not np.isfinite(outputs).all():
            raise InputError(
                f"prior {self.name!r} must return finite outputs of shape ({len(inputs)}, {n_outputs}) for inputs of "
                f"shape {inputs.shape}; got {outputs.tolist() if outputs.size < 10 else outputs.shape}"
            )
        return outputs


@dataclass(frozen=True, eq=False)
class StepOfModel:
    """`m(z)`: one output of a model after some steps, `z = (history, u_0, ..., u_{n-1})`."""

    model: PriorModel
    output: int
    n_outputs: int
    n_history: int
    n_inputs: int

    def __call__(self, Z: FloatArray) -> FloatArray:
        """`m` at every row of `Z`."""
        histories, inputs = Z[:, : self.n_history], Z[:, self.n_history :].reshape(len(Z), -1, self.n_inputs)
        rows = zip(histories, inputs, strict=True)
        return np.array([self.model.predict(*row, self.n_outputs)[-1, self.output] for row in rows])

    def error(self, Z: FloatArray) -> FloatArray:
        """Its values are the function."""
        return np.zeros(len(Z))

    @property
    def slopes(self) -> tuple[float, ...]:
        """None are known exactly; `blur` covers the change."""
        return (0.0,) * self.n_history

    def change(self, noise: FloatArray) -> float:
        """How much `m` can change where the history is off by up to `noise`, rounded up."""
        if not np.any(noise):
            return 0.0
        if self.model.steepness is None or len(self.model.steepness) != len(noise):
            raise InputError(
                f"prior {self.model.name!r}: histories are uncertain, so PriorModel(..., steepness=...) must say how "
                f"much it can change per unit of each of their {len(noise)} entries; or take histories as measured "
                "(arguments='measured', or initial_state_noise=0.0)"
            )
        return dot_up(np.array(self.model.steepness), noise)

    def blur(self, noise: FloatArray) -> float:
        """All of the change."""
        return self.change(noise)

    def gradient(self, z: FloatArray) -> FloatArray:
        """By differences."""
        size = 1e-6 * (1.0 + np.abs(z))
        return (self(z + np.diag(size)) - self(z - np.diag(size))) / (2.0 * size)


Prior = AffinePrior | StepOfModel | None
"""None is zero: the kernel describes all of the plant."""


def is_flat(prior: Prior) -> bool:
    """Whether the kernel describes all of the plant but an offset."""
    return prior is None or (isinstance(prior, AffinePrior) and not any(prior.slopes))


def fitted_priors(runs: Trajectories) -> tuple[tuple[AffinePrior, ...], ...]:
    """Fitted affine priors for every step and state."""
    return tuple(
        tuple(AffinePrior.fitted(*_known(runs, n, i)) for i in range(runs.n_states)) for n in range(1, runs.horizon + 1)
    )


def mean_priors(runs: Trajectories) -> tuple[tuple[AffinePrior, ...], ...]:
    """The mean output of every step and state."""
    return tuple(
        tuple(AffinePrior(offset, (0.0,) * runs.arguments(n).shape[1]) for offset in row.tolist())
        for n, row in enumerate(runs.states[:, 1:].mean(axis=0), start=1)
    )


def _known(runs: Trajectories, n: int, i: int) -> tuple[FloatArray, FloatArray, float]:
    """Arguments and outputs of state `i` after `n` steps, and the noise of the latter."""
    return runs.arguments(n), runs.states[:, n, i], float(runs.noise_bound[n - 1, i])


def norm_left_open(prior: Prior, runs: Trajectories, n: int, i: int, slope_variance: FloatArray) -> float:
    """Norm of the steepest affine function that the runs cannot distinguish from fitted slopes; zero without these.

    `slope_variance` is that of the kernel, by dimension: a slope of `a_j` takes a norm of `|a_j| / sqrt(variance_j)`.
    """
    if not isinstance(prior, AffinePrior) or is_flat(prior):
        return 0.0
    doubts = AffineFit.of(*_known(runs, n, i), runs.initial_state_noise).doubts
    squares = (doubts**2 / slope_variance).sum(axis=1)
    return float(np.sqrt(squares.max(initial=0.0)))


GivenPrior = Literal["constant", "affine"] | PriorModel | Callable[[FloatArray, FloatArray], npt.ArrayLike] | None
"""None, the mean of the runs, a fit to them, or the user's own model."""


def as_given(prior: object) -> Literal["constant", "affine"] | PriorModel | None:
    """The given prior, checked."""
    if prior is None or isinstance(prior, PriorModel):
        return prior
    if prior == "constant":
        return "constant"
    if prior == "affine":
        return "affine"
    if callable(prior):
        return PriorModel(prior)
    raise InputError(f"prior must be 'constant', 'affine', None, or a function (history, inputs); got {prior!r}")


def priors_for(given: GivenPrior, runs: Trajectories) -> tuple[tuple[Prior, ...], ...]:
    """The requested priors, for every step and state."""
    prior = as_given(given)
    if prior is None:
        return ((None,) * runs.n_states,) * runs.horizon
    if prior == "constant":
        return mean_priors(runs)
    if prior == "affine":
        return fitted_priors(runs)
    assert isinstance(prior, PriorModel)
    own = tuple(StepOfModel(prior, i, runs.n_states, runs.n_history, runs.n_inputs) for i in range(runs.n_states))
    return (own,) * runs.horizon


def residual(prior: Prior, Z: FloatArray, y: FloatArray, bound: float | FloatArray) -> tuple[FloatArray, FloatArray]:
    """`y - m(z)` in doubles, and the bound on its distance from the true residual, enlarged for rounding."""
    if prior is None:
        return y, np.broadcast_to(np.asarray(bound, dtype=np.float64), y.shape)
    rest = y - prior(Z)
    return rest, enlarged(bound + prior.error(Z) + 2.0 * UNIT_ROUNDOFF * (np.abs(rest) + np.abs(y)), 3)
