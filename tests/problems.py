"""Problems that several tests share: random ones with a ground truth of known norm, and the published ones.

Ground truths are finite kernel expansions, evaluated in extended precision by formulas written down a second time
here, so that a bound is compared with the truth itself and not with a rounded one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from flint import arb, arb_series

import rkhs_control as rc

LONG = np.longdouble
REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"


def long_kernel(kernel, X, Y):
    """`k(X, Y)` in extended precision."""
    if isinstance(kernel, rc.Scale):
        return LONG(kernel.factor) * long_kernel(kernel.kernel, X, Y)
    if isinstance(kernel, rc.Sum):
        return long_kernel(kernel.a, X, Y) + long_kernel(kernel.b, X, Y)
    if isinstance(kernel, rc.Product):
        return long_kernel(kernel.a, X, Y) * long_kernel(kernel.b, X, Y)
    X, Y = np.asarray(X, LONG), np.asarray(Y, LONG)
    s = np.sum(((X[:, None] - Y[None]) / np.asarray(kernel.lengthscale, LONG)) ** 2, axis=-1)
    if isinstance(kernel, rc.SquaredExponential):
        return np.exp(-s / 2)
    if isinstance(kernel, rc.RationalQuadratic):
        return (1 + s / (2 * LONG(kernel.alpha))) ** -LONG(kernel.alpha)
    if isinstance(kernel, rc.Matern12):
        return np.exp(-np.sqrt(s))
    if isinstance(kernel, rc.Matern32):
        return (1 + np.sqrt(3 * s)) * np.exp(-np.sqrt(3 * s))
    r = np.sqrt(5 * s)
    return (1 + r + r**2 / 3) * np.exp(-r)


def long_gradient(kernel, X, Y):
    """`d k(X, Y) / dX` of a radial kernel in extended precision."""
    X, Y = np.asarray(X, LONG), np.asarray(Y, LONG)
    scale = np.broadcast_to(np.asarray(kernel.lengthscale, LONG), X.shape[1:])
    difference = (X[:, None] - Y[None]) / scale**2
    s = np.sum(((X[:, None] - Y[None]) / scale) ** 2, axis=-1)
    if isinstance(kernel, rc.SquaredExponential):
        slope = -np.exp(-s / 2)
    elif isinstance(kernel, rc.RationalQuadratic):
        slope = -((1 + s / (2 * LONG(kernel.alpha))) ** -(LONG(kernel.alpha) + 1))
    elif isinstance(kernel, rc.Matern32):
        slope = -3 * np.exp(-np.sqrt(3 * s))
    else:
        slope = -LONG(5) / 3 * (1 + np.sqrt(5 * s)) * np.exp(-np.sqrt(5 * s))
    return slope[..., None] * difference


def ball_kernel(kernel, x, y):
    """`k(x, y)` in ball arithmetic, from the textbook formulas."""
    if isinstance(kernel, rc.Scale):
        return arb(kernel.factor) * ball_kernel(kernel.kernel, x, y)
    if isinstance(kernel, rc.Sum):
        return ball_kernel(kernel.a, x, y) + ball_kernel(kernel.b, x, y)
    if isinstance(kernel, rc.Product):
        return ball_kernel(kernel.a, x, y) * ball_kernel(kernel.b, x, y)
    scales = np.broadcast_to(kernel.lengthscale, len(x))
    s = sum(((arb(float(a)) - arb(float(b))) / arb(float(c))) ** 2 for a, b, c in zip(x, y, scales, strict=True))
    if isinstance(kernel, rc.SquaredExponential):
        return (-s / 2).exp()
    if isinstance(kernel, rc.RationalQuadratic):
        return (1 + s / (2 * arb(kernel.alpha))) ** (-arb(kernel.alpha))
    if isinstance(kernel, rc.Matern12):
        return (-s.sqrt()).exp()
    if isinstance(kernel, rc.Matern32):
        return (1 + (3 * s).sqrt()) * (-(3 * s).sqrt()).exp()
    r = (5 * s).sqrt()
    return (1 + r + r**2 / 3) * (-r).exp()


def ball_series(kernel, x, y, direction):
    """`k(x + t d, y)` as a power series in `t >= 0`, up to `t^4`, in ball arithmetic."""
    if isinstance(kernel, rc.Scale):
        return arb(kernel.factor) * ball_series(kernel.kernel, x, y, direction)
    if isinstance(kernel, rc.Sum | rc.Product):
        a, b = (ball_series(part, x, y, direction) for part in (kernel.a, kernel.b))
        return a + b if isinstance(kernel, rc.Sum) else a * b
    scales = np.broadcast_to(kernel.lengthscale, len(x))
    s = arb_series([0], prec=5)
    for a, b, c, d in zip(x, y, scales, direction, strict=True):
        s += arb_series([(arb(float(a)) - arb(float(b))) / arb(float(c)), d / arb(float(c))], prec=5) ** 2
    if isinstance(kernel, rc.SquaredExponential):
        return (-s / 2).exp()
    if isinstance(kernel, rc.RationalQuadratic):
        alpha = arb(kernel.alpha)
        return (-alpha * (1 + s / (2 * alpha)).log()).exp()
    is_same = list(x) == list(y)
    r = arb_series([0, s[2].sqrt()], prec=5) if is_same else s.sqrt()
    if isinstance(kernel, rc.Matern12):
        return (-r).exp()
    if isinstance(kernel, rc.Matern32):
        r = arb(3).sqrt() * r
        return (1 + r) * (-r).exp()
    r = arb(5).sqrt() * r
    return (1 + r + r * r / 3) * (-r).exp()


def round_up(value) -> float:
    """An extended-precision number as a double that is not smaller."""
    return float(np.nextafter(float(value), np.inf))


@dataclass(frozen=True)
class Problem:
    """Data of a ground truth `f = sum_j weights_j k(., centres_j)` whose norm and noise are exactly within bounds."""

    kernel: rc.Kernel
    data: rc.Observations
    norm: float
    queries: np.ndarray
    centres: np.ndarray
    weights: np.ndarray

    def truth(self, X):
        return long_kernel(self.kernel, X, self.centres) @ self.weights

    def truth_gradient(self, X):
        return np.einsum("qcj,c->qj", long_gradient(self.kernel, X, self.centres), self.weights)


def random_radial(rng, n_dims: int, *, smooth: bool = False) -> rc.Radial:
    lengthscale = np.exp(rng.uniform(np.log(0.05), np.log(50.0)))
    if rng.random() < 0.3:
        lengthscale = lengthscale * np.exp(rng.uniform(-1, 1, n_dims))
    families = [
        rc.SquaredExponential,
        rc.SquaredExponential,
        lambda scale: rc.RationalQuadratic(scale, alpha=np.exp(rng.uniform(-1, 2))),
        rc.Matern32,
        rc.Matern52,
    ]
    if not smooth:
        families.append(rc.Matern12)
    return families[rng.integers(len(families))](lengthscale)


def random_kernel(rng, n_dims: int) -> rc.Kernel:
    kernel: rc.Kernel = random_radial(rng, n_dims)
    if rng.random() < 0.2:
        kernel = float(np.exp(rng.uniform(-3, 3))) * kernel
    if rng.random() < 0.2:
        other = random_radial(rng, n_dims)
        kernel = kernel + other if rng.random() < 0.5 else kernel * other
    return kernel


def random_design(rng, n: int, n_dims: int) -> np.ndarray:
    """Uniform, gridded, clustered, duplicated or collinear inputs in the cube of side two."""
    kind = rng.integers(5)
    X = rng.uniform(-1, 1, (n, n_dims))
    if kind == 1:
        X = np.round(X * 3) / 3
    if kind == 2:
        X = X[rng.integers(0, max(1, n // 5), n)] + 10.0 ** rng.uniform(-12, -1) * rng.normal(size=X.shape)
    if kind == 3:
        X = X[rng.integers(0, max(1, n // 2), n)]
    if kind == 4:
        X = X[:1] + rng.uniform(-1, 1, (n, 1)) * rng.normal(size=(1, n_dims))
    return X


def random_problem(rng, *, smooth: bool = False, n_queries: int = 4, n_most: int = 60) -> Problem:
    n_dims = int(rng.integers(1, 5))
    kernel = random_radial(rng, n_dims, smooth=True) if smooth else random_kernel(rng, n_dims)
    X = random_design(rng, int(rng.integers(1, n_most)), n_dims)
    m = int(rng.integers(1, 8))
    centres = np.concatenate([rng.uniform(-1, 1, (m, n_dims)), X[rng.integers(0, len(X), 2)]])
    weights = np.asarray(rng.normal(size=len(centres)) * 10.0 ** rng.uniform(-2, 2), LONG)
    norm = np.sqrt(np.maximum(weights @ long_kernel(kernel, centres, centres) @ weights, 0))
    f = long_kernel(kernel, X, centres) @ weights
    level = float(np.abs(f).max()) * 10.0 ** rng.uniform(-6, 0)
    noise = rng.uniform(-1, 1, len(X)) if rng.random() < 0.5 else rng.choice([-1.0, 1.0], len(X))
    y = np.asarray(f + level * noise, dtype=float)
    # the truth is itself evaluated with an error, of extended precision
    blur = LONG(1e-17) * np.abs(weights).sum() * kernel.variance
    noise_bound = np.array([round_up(error + blur) for error in np.abs(np.asarray(y, LONG) - f)])
    if rng.random() < 0.5:
        noise_bound = noise_bound.max()
    queries = rng.uniform(-1.2, 1.2, (n_queries, n_dims))
    near = rng.integers(0, len(X), n_queries)
    which = rng.random(n_queries)
    queries[which < 0.3] = X[near[which < 0.3]]
    close = (which >= 0.3) & (which < 0.6)
    queries[close] = X[near[close]] + 10.0 ** rng.uniform(-14, -1) * rng.normal(size=(close.sum(), n_dims))
    data = rc.Observations(X, y, noise_bound)
    return Problem(kernel, data, max(round_up(norm), 1e-12), queries, centres, weights)


def henon(name: str) -> dict[str, np.ndarray]:
    """One of the published arrays of Example 1."""
    with np.load(reference_file(f"henon_{name}_noise1.npz")) as arrays:
        return dict(arrays)


def reference_file(name: str) -> Path:
    """Of those published by others; where they are absent, the test is skipped."""
    if not (REFERENCE / name).exists():
        pytest.skip("the published numbers are not here")
    return REFERENCE / name


def henon_envelope(arrays, family=rc.OptimalEnvelope, nugget: float = 0.0, **options):
    data = rc.Observations(arrays["X"], arrays["y"], float(arrays["noise_bound"]))
    kernel = rc.SquaredExponential(float(arrays["lengthscale"]))
    return family(data, kernel, float(arrays["norm_bound"]), nugget=nugget, **options)
