r"""Problems for the soundness campaign: data from a truth that only just satisfies every assumption.

The worst truths need no search. For *any* weights `w` on the data, any functional `L` and any `tau > 0` let

    f = tau (L - sum_i w_i k_{x_i}),   norm_bound = ||f||,   f(x_i) = upper_i where w_i > 0, lower_i where w_i < 0.

Then `L f = norm_bound ||L - sum_i w_i k_{x_i}|| + sum_i (upper_i w_i^+ - lower_i w_i^-)`: the truth attains the bound
that `w` proves. No sound method can give a smaller bound on `L f`, and the least error in the wrong direction lets it
escape. The weights are those of ridge regression, or the engine's own witness on the data of another function.

Norms and noise are established in ball arithmetic and rounded up: the assumptions hold for certain, by a hair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from flint import arb, ctx

from ..arithmetic.balls import float_up
from ..assumptions.norms import LEAST_BOUND
from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..engine.functionals import Derivative, Functional, Points
from ..envelopes.optimal import OptimalEnvelope
from ..errors import RkhsControlError
from ..kernels.base import Kernel
from ..kernels.composite import Product, Scale, Sum
from ..kernels.radial import Matern12, Matern32, Matern52, RationalQuadratic, SquaredExponential
from .truths import Combination, KernelSection, Truth, combination, inner, root, value_at

_MOST_INPUTS = 40
_PRECISIONS = (256, 1024, 4096)  # in bits
_ACCURATE = 100  # bits of a norm that must be right


class Scales(NamedTuple):
    """Scales of inputs (and lengthscales), outputs, and the variance of the kernel."""

    inputs: float
    outputs: float
    variance: float

    @property
    def norm(self) -> float:
        """The norm of functions with such outputs."""
        return self.outputs / math.sqrt(self.variance)


@dataclass(frozen=True, eq=False)
class Target:
    """A bound to be attained, and the weights that prove it, one per input."""

    functional: Functional
    side: float
    """1.0 above, -1.0 below."""
    weights: FloatArray
    ridge: float = 0.0
    """The regularisation, if the weights are those of ridge regression."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Samples of a truth, and the functionals to bound."""

    truth: Truth
    precision: int
    """In bits: enough for the norm of the truth."""
    X: FloatArray
    outputs: list[FloatArray]
    """One or several per input."""
    noise_bounds: FloatArray
    """One per input."""
    energy: float
    """Of the noise, rounded up."""
    norm_bound: float
    functionals: list[Functional]
    """The target first, if there is one."""
    is_smooth: bool
    """Whether all functions of the space are differentiable."""
    has_open_ends: bool
    """Whether some intervals are to be one-sided."""

    @property
    def kernel(self) -> Kernel:
        """That of the truth."""
        return self.truth.kernel

    @property
    def has_one_output_per_input(self) -> bool:
        """Whether no input was sampled twice."""
        return len(np.unique(self.X, axis=0)) == sum(map(len, self.outputs))

    def observations(self) -> Observations:
        """What is passed to an envelope."""
        data = Observations(self.X, self.outputs, self.noise_bounds)
        if not self.has_open_ends:
            return data
        third = np.arange(len(data)) % 3
        lower, upper = np.where(third == 1, -np.inf, data.lower), np.where(third == 2, np.inf, data.upper)
        return Observations.from_intervals(data.X, lower, upper)

    @property
    def lipschitz(self) -> tuple[float, FloatArray]:
        """A Lipschitz constant of a truth that is differentiable, and the scales of the distance it goes with.

        `|f(x) - f(y)| <= ||f|| ||k_x - k_y||`, and the square of the latter is at most `sum_j h_j (x_j - y_j)^2`, `h_j`
        the squared norm of `f -> df/dx_j`.
        """
        with ctx.workprec(self.precision):
            origin = tuple(arb(0) for _ in range(self.X.shape[1]))
            deviation, *slopes = (
                root(inner(self.kernel, [(arb(1), section)], [(arb(1), section)]))
                for section in (KernelSection(origin), *(KernelSection(origin, j) for j in range(len(origin))))
            )
            scales = [float(deviation / slope) for slope in slopes]
            norm = self.truth.norm()
            return max(float_up(norm * h * arb(s)) for h, s in zip(slopes, scales, strict=True)), np.array(scales)


def draw_problem(rng: np.random.Generator) -> Problem:
    """Any kernel, any design, any scale."""
    scales, n_dims, is_smooth = draw_scales(rng), int(rng.integers(1, 5)), bool(rng.random() < 0.6)
    kernel = draw_kernel(rng, n_dims, scales, is_smooth=is_smooth)
    X = scales.inputs * draw_design(rng, int(rng.integers(1, _MOST_INPUTS + 1)), n_dims)
    with ctx.workprec(_PRECISIONS[0]):
        truth, target = draw_truth(rng, kernel, X, scales=scales, is_smooth=is_smooth)
    first = [] if target is None else [target.functional]
    precision = sufficient_precision(truth)
    with ctx.workprec(precision):
        values = [truth.apply(value_at(x)) for x in X.tolist()]
        outputs = draw_outputs(rng, truth, target, values=np.array([float(value) for value in values]))
        errors = [[arb(y) - value for y in row.tolist()] for row, value in zip(outputs, values, strict=True)]
        noise = [max(float_up(abs(error)) for error in row) for row in errors]
        energy = float_up(sum((error**2 for row in errors for error in row), arb(0)))
        looseness = 1.0 if target is not None or rng.random() < 0.5 else math.exp(rng.uniform(0.0, 2.0))
        norm_bound = max(looseness * float_up(truth.norm()), LEAST_BOUND)
    return Problem(
        truth=truth,
        precision=precision,
        X=X,
        outputs=outputs,
        noise_bounds=np.array(noise if rng.random() < 0.5 else [max(noise)] * len(noise)),
        energy=energy,
        norm_bound=norm_bound,
        functionals=first + draw_functionals(rng, X, scales, is_smooth=is_smooth, targets=first),
        is_smooth=is_smooth,
        has_open_ends=bool(rng.random() < 0.1),
    )


def draw_scales(rng: np.random.Generator) -> Scales:
    """Ordinary ones, or anything from 1e-40 to 1e40 that leaves norms below 1e40."""
    if rng.random() < 0.5:
        return Scales(1.0, 1.0, 1.0)
    inputs, variance = rng.uniform(-40.0, 40.0, 2)
    outputs = rng.uniform(-40.0, min(40.0, 40.0 + variance / 2.0))
    return Scales(10.0**inputs, 10.0**outputs, 10.0**variance)


def draw_kernel(rng: np.random.Generator, n_dims: int, scales: Scales, *, is_smooth: bool) -> Kernel:
    """Of any family, with one lengthscale or one per dimension, alone or in sums and products."""
    families: list[Callable[..., Kernel]] = [
        SquaredExponential,
        SquaredExponential,
        lambda scale: RationalQuadratic(scale, alpha=10.0 ** rng.uniform(-1.0, 1.0)),
        lambda scale: RationalQuadratic(scale, alpha=10.0 ** rng.uniform(-6.0, 6.0)),
        Matern32,
        Matern52,
    ]
    families += [] if is_smooth else [Matern12, Matern12]

    def one() -> Kernel:
        lengthscale = scales.inputs * 10.0 ** rng.uniform(-1.3, 1.7)
        per_dimension = (lengthscale * np.exp(rng.uniform(-1.0, 1.0, n_dims))).tolist()
        return families[rng.integers(len(families))](per_dimension if rng.random() < 0.3 else lengthscale)

    kernel, kind, factor = one(), rng.random(), 10.0 ** rng.uniform(-6.0, 6.0)
    if kind < 0.2:
        kernel = Sum(kernel, Scale(one(), factor))
    elif kind < 0.4:
        kernel = Product(Scale(kernel, factor), Scale(one(), 1.0 / factor))
    elif kind < 0.5:
        kernel = Product(Sum(kernel, one()), one())
    is_scaled = scales.variance != 1.0 or rng.random() < 0.2
    return Scale(kernel, scales.variance / kernel.variance * 10.0 ** rng.uniform(-1.0, 1.0)) if is_scaled else kernel


def draw_design(rng: np.random.Generator, n: int, n_dims: int) -> FloatArray:
    """Inputs in a cube of side two: uniform, gridded, clustered down to 1e-12, repeated, collinear, or far away."""
    X, kind = rng.uniform(-1.0, 1.0, (n, n_dims)), rng.integers(6)
    if kind == 1:
        X = np.round(3.0 * X) / 3.0
    if kind == 2:
        X = X[rng.integers(0, max(1, n // 5), n)] + 10.0 ** rng.uniform(-12.0, -1.0) * rng.normal(size=X.shape)
    if kind == 3:
        X = X[rng.integers(0, max(1, n // 2), n)]
    if kind == 4:
        X = X[:1] + rng.uniform(-1.0, 1.0, (n, 1)) * rng.normal(size=(1, n_dims))
    if kind == 5:
        X = X + 10.0 ** rng.uniform(0.0, 5.0)
    return X


# Truths


def draw_truth(
    rng: np.random.Generator, kernel: Kernel, X: FloatArray, *, scales: Scales, is_smooth: bool
) -> tuple[Truth, Target | None]:
    """A random sum of a few sections or, three times out of four, a truth that attains the bound at a target."""
    aside = X[0] + scales.inputs * rng.uniform(-2.0, 2.0, (4, X.shape[1]))
    centres = np.concatenate([X[rng.integers(0, len(X), 2)], aside])
    weights = rng.normal(size=len(centres)) * (scales.outputs / kernel.variance)
    plain = Truth(kernel, _sections(centres, weights))
    if rng.random() < 0.25:
        return plain, None
    functional, side = draw_functional(rng, X, scales, is_smooth=is_smooth), float(rng.choice([-1.0, 1.0]))
    norm = float(plain.norm()) * math.exp(rng.uniform(0.0, 2.0))
    values = kernel(X, centres) @ weights
    noise_bound = float(np.abs(values).max()) * 10.0 ** rng.uniform(-6.0, 0.0)
    target = (
        ridge_target(rng, kernel, X, functional=functional, side=side)
        if rng.random() < 0.5
        else own_target(kernel, X, values, noise_bound=noise_bound, norm=norm, functional=functional, side=side)
    )
    truth = None if target is None else attaining(kernel, X, target, norm=norm)
    return (plain, None) if truth is None else (truth, target)


def attaining(kernel: Kernel, X: FloatArray, target: Target, norm: float) -> Truth | None:
    """`tau (L - sum_i w_i k_{x_i})`, of about the given norm; none where the sections cancel."""
    active = np.flatnonzero(target.weights)
    sections = combination(target.functional) + _sections(X[active], -target.weights[active])
    size = float(root(inner(kernel, sections, sections)))
    tau = target.side * norm / size if size > 0.0 else math.inf
    weights = [tau * float(weight) for weight, _ in sections]
    if not all(abs(weight) < 1e150 for weight in weights):
        return None
    return Truth(kernel, [(arb(w), section) for w, (_, section) in zip(weights, sections, strict=True)])


def ridge_target(
    rng: np.random.Generator, kernel: Kernel, X: FloatArray, *, functional: Functional, side: float
) -> Target:
    """Proved by the weights of kernel ridge regression on some of the data."""
    chosen = np.flatnonzero(rng.random(len(X)) < rng.choice([0.3, 1.0]))
    ridge = kernel.variance * 10.0 ** rng.uniform(-12.0, 0.0)
    weights = np.zeros(len(X))
    matrix = kernel(X[chosen]) + ridge * np.eye(len(chosen))
    weights[chosen] = np.linalg.solve(matrix, functional.row(kernel, X[chosen]))
    return Target(functional, side, weights, ridge=ridge)


def own_target(
    kernel: Kernel,
    X: FloatArray,
    values: FloatArray,
    *,
    noise_bound: float,
    norm: float,
    functional: Functional,
    side: float,
) -> Target | None:
    """Proved by the engine's own witness on data of another function; none where it refuses them."""
    try:
        data = Observations(X, values, noise_bound)
        pair = OptimalEnvelope(data, kernel, norm).functional_bounds([functional]).witness(0)
    except RkhsControlError:
        return None
    witness = pair[0 if side < 0.0 else 1]
    assert witness is not None
    weights = np.zeros(len(X))
    for x, weight in zip(data.X[witness.indices], witness.weights, strict=True):
        weights[np.flatnonzero((x == X).all(axis=1))[0]] = weight
    return Target(functional, side, weights)


def sufficient_precision(truth: Truth) -> int:
    """In bits, for the norm of a truth whose sections nearly cancel."""
    for precision in _PRECISIONS:
        with ctx.workprec(precision):
            if truth.norm().rel_accuracy_bits() >= _ACCURATE:
                break
    return precision


def _sections(points: FloatArray, weights: FloatArray) -> Combination:
    rows = zip(weights.tolist(), points.tolist(), strict=True)
    return [(arb(weight), KernelSection(tuple(map(arb, point)))) for weight, point in rows]


# Samples and queries


def draw_outputs(rng: np.random.Generator, truth: Truth, target: Target | None, values: FloatArray) -> list[FloatArray]:
    """Noise at the ends that a target needs, tied or saturated outputs, or several outputs per input."""
    largest, kind = float(np.abs(values).max()), rng.random()
    level = 0.0 if rng.random() < 0.15 else largest * 10.0 ** rng.uniform(-6.0, 0.0)
    noise = level * (rng.choice([-1.0, 1.0], len(values)) if rng.random() < 0.7 else rng.uniform(-1, 1, len(values)))
    if kind < 0.1 and largest > 0.0:
        step = largest / rng.integers(1, 6)
        return list((np.round(values / step) * step)[:, None])
    if kind < 0.2:
        return list(np.clip(values + noise, -0.5 * largest, 0.5 * largest)[:, None])
    if kind < 0.3:
        return list(np.stack([values + level, values - level], axis=1))
    if target is not None and target.ridge > 0.0 and rng.random() < 0.5:
        # the noise of the worst case under a bound on its energy: then the outputs of those with weights are zero
        tau = float(truth.sections[0][0] / combination(target.functional)[0][0])
        noise = -tau * target.ridge * target.weights
    elif target is not None:
        noise = np.where(target.weights == 0.0, noise, -target.side * level * np.sign(target.weights))
    return list((values + noise)[:, None])


def draw_functional(rng: np.random.Generator, X: FloatArray, scales: Scales, *, is_smooth: bool) -> Functional:
    """A value, a difference, a combination or, of a smooth function, a derivative."""
    x, y = _draw_query(rng, X, scales), _draw_query(rng, X, scales)
    kind = rng.random()
    if kind < 0.15:
        return Points.difference(x, y)
    if kind < 0.2:
        return Points(np.stack([x, y]), rng.choice([-1.0, 1.0], 2) * 10.0 ** rng.uniform(-50.0, 50.0, 2))
    if kind < 0.4 and is_smooth:
        return Derivative(x, int(rng.integers(X.shape[1])))
    return Points.value(x)


def draw_functionals(
    rng: np.random.Generator, X: FloatArray, scales: Scales, *, is_smooth: bool, targets: list[Functional]
) -> list[Functional]:
    """Many random ones, and values next to any that are a target."""
    near = [target.points[0] for target in targets if isinstance(target, Points)]
    moved = [x + scales.inputs * 10.0 ** rng.uniform(-14.0, -1.0, len(x)) for x in near for _ in range(4)]
    others = [draw_functional(rng, X, scales, is_smooth=is_smooth) for _ in range(35)]
    return [Points.value(x) for x in near + moved] + others


def _draw_query(rng: np.random.Generator, X: FloatArray, scales: Scales) -> FloatArray:
    """On a datum, next to one (at the origin so near that squares underflow), or elsewhere."""
    x: FloatArray = X[rng.integers(len(X))]
    kind = rng.random()
    if kind < 0.2:
        return x
    if kind < 0.25:
        step: FloatArray = scales.inputs * 10.0 ** rng.uniform(-200.0, -14.0) * rng.normal(size=len(x))
    elif kind < 0.6:
        step = scales.inputs * 10.0 ** rng.uniform(-14.0, -1.0) * rng.normal(size=len(x))
    else:
        step = scales.inputs * rng.uniform(-1.5, 1.5, len(x))
    return x + step
