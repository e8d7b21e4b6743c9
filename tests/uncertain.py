"""Random cases with uncertain arguments: a truth of known norm, samples of it, and a query, as adverse as is allowed.

Truths are finite kernel expansions in extended precision. Many have the form `L - sum_i w_i k_{x_i}` of functions that
attain the bound which the weights `w` prove of a functional `L`: a value at a corner, the difference between a corner
and the centre, a slope, or how far the centre is above its neighbours. True arguments of samples are where they mislead
most, noise and disturbances at their ends. All assumptions hold for certain, by a hair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from problems import LONG, long_kernel, random_kernel

import rkhs_control as rc
from rkhs_control.assumptions.priors import AffinePrior

EPS = LONG(np.finfo(LONG).eps)
KINDS = ("random", "value", "jump", "slope", "bend")
_MOST_CORNERS = 64
_REGIMES = ((-12, -3), (-3, -0.5), (-0.5, 0.5))  # decimal logarithms of noise, in lengthscales


@dataclass(frozen=True)
class Truth:
    """`m + g` with `g = sum_j weights_j k(., centres_j)`, in extended precision."""

    kernel: rc.Kernel
    centres: np.ndarray
    weights: np.ndarray
    prior: AffinePrior | None

    def __call__(self, Z):
        Z = np.asarray(Z, LONG)
        values = long_kernel(self.kernel, Z, self.centres) @ self.weights
        if self.prior is not None:
            values = values + LONG(self.prior.offset) + Z @ np.asarray(self.prior.slopes, LONG)
        return values

    def blur(self, Z):
        """What extended precision may have done to these values, at most."""
        size = LONG(self.kernel.variance) * np.abs(self.weights).sum() * np.ones(len(Z), LONG)
        if self.prior is not None:
            own = np.abs(np.asarray(Z, LONG)) @ np.abs(np.asarray(self.prior.slopes, LONG))
            size = size + abs(LONG(self.prior.offset)) + own
        return 64 * EPS * size

    @property
    def norm(self) -> float:
        """That of `g`, rounded up."""
        square = self.weights @ long_kernel(self.kernel, self.centres, self.centres) @ self.weights
        size = LONG(self.kernel.variance) * np.abs(self.weights).sum() ** 2
        root = np.sqrt(np.maximum(square, 0) + 64 * EPS * size)
        return max(float(np.nextafter(float(root), np.inf)), 1e-90)


@dataclass(frozen=True)
class Query:
    """A plan of one step, and how uncertain its start is."""

    at: np.ndarray
    """The argument: history and inputs."""
    noise: np.ndarray

    def boxes(self, predictor) -> rc.Tube:
        n = len(self.noise)
        return predictor.boxes(self.at[:n], self.at[None, n:], initial_state_noise=self.noise)

    @property
    def half(self):
        return np.append(self.noise, np.zeros(len(self.at) - len(self.noise)))


@dataclass(frozen=True)
class Case:
    """Runs of one output after one step, and two plans: one that the truth was made for, and another."""

    truth: Truth
    runs: rc.Trajectories
    queries: tuple[Query, Query]

    def predictor(self, *, rounds: int = 3, norm_factor: float = 1.0) -> rc.MultiStepPredictor:
        norm = self.truth.norm * norm_factor
        return rc.MultiStepPredictor(self.runs, self.truth.kernel, norm, priors=self.truth.prior, rounds=rounds)

    def whole_predictor(self, rounds: int) -> rc.MultiStepPredictor:
        """The same from whole runs, as a file can hold them: the history is a state, the rest of which becomes zero."""
        runs, others = self.runs, self.runs.n_history - 1
        states = np.stack([runs.histories, np.pad(runs.states[:, 1], ((0, 0), (0, others)))], axis=1)
        bounds = {
            name: [float(getattr(runs, name)[0, 0])] + [0.0] * others for name in ("noise_bound", "disturbance_bound")
        }
        whole = rc.Trajectories(states, runs.inputs, initial_state_noise=runs.initial_state_noise, **bounds)
        norms, priors = [[self.truth.norm] + [1e-3] * others], [[self.truth.prior] + [None] * others]
        return rc.MultiStepPredictor(whole, self.truth.kernel, norms, priors=priors, rounds=rounds)

    def extremes(self, query, rng):
        """The least and the largest value of the plant that a small search finds, each moved in by what blurs it."""
        at, half = query.at, query.half
        found = []
        for sign in (-1, 1):
            Z = np.concatenate([corners(at, half), within(rng, at, half, 24), np.asarray(at, LONG)[None]])
            best = Z[np.argmax(sign * self.truth(Z))]
            for width in (0.3, 0.1, 0.03, 0.01):
                near = np.asarray(best + width * half * rng.uniform(-1, 1, (12, len(at))), LONG)
                Z = np.concatenate([best[None], np.clip(near, *inside(at, half))])
                best = Z[np.argmax(sign * self.truth(Z))]
            disturbed = self.truth(best[None])[0] + sign * LONG(self.runs.disturbance_bound[0, 0])
            found.append(disturbed - sign * self.truth.blur(best[None])[0])
        return found

    def slacks(self, predictor, rng):
        """By query: how the bounds were found, and how much of the box is left on the side of the truth."""
        for query in self.queries:
            tube = query.boxes(predictor)
            (low, high), (lower, upper) = self.extremes(query, rng), (tube.lower[0, 0], tube.upper[0, 0])
            methods = {proof.method for proof in tube.witnesses[0, 0]}
            yield methods.pop(), float(min(high_room(upper, high), high_room(-lower, -low)) / (upper - lower))

    def interval_slack(self, predictor):
        """The same of the intervals at recorded arguments, which must hold the truth's value there."""
        data = predictor.envelope(1, 0).data
        value, blur = replace(self.truth, prior=None)(data.X), self.truth.blur(data.X)
        room = np.minimum(data.upper - value, value - data.lower) + blur
        return float((room / np.maximum(data.upper - data.lower, np.finfo(float).tiny)).min())


def high_room(end, value):
    """How far a value is below an end, in extended precision."""
    return LONG(end) - value


def inside(at, half):
    """The ends of a box, not outside of it by rounding."""
    at, half = np.asarray(at, LONG), np.asarray(half, LONG)
    slip = 2 * EPS * (np.abs(at) + half)
    reach = np.maximum(half - slip, 0)
    return at - reach, at + reach


def corners(at, half):
    """All corners of a box, or some of them where there are many."""
    low, high = inside(at, half)
    signs = list(product((0, 1), repeat=int(np.count_nonzero(half))))[:_MOST_CORNERS]
    points = np.repeat(np.asarray(at, LONG)[None], len(signs), axis=0)
    points[:, np.flatnonzero(half)] = np.where(signs, high[half > 0], low[half > 0])
    return points


def within(rng, at, half, n):
    """Random points of a box."""
    low, high = inside(at, half)
    return low + (high - low) * np.asarray(rng.random((n, len(at))), LONG)


def random_case(rng, **given) -> Case:
    """Of any kind; a fifth of them as `attained_case` has them."""
    if rng.random() < 0.2:
        return attained_case(rng, **given)
    is_dense = rng.random() < 0.5
    n_uncertain = int(rng.integers(1, 3 if is_dense else 7))
    query, kernel, length = _question(rng, n_uncertain, n_uncertain + int(rng.integers(0, 2)), **given)
    recorded = query.noise
    if is_dense or rng.random() < 0.6:
        recorded = _noise(rng, length, query.noise > 0.0, 1 if is_dense else None)
    Z = _design(rng, query, length, is_dense)
    truth, signs = _truth(rng, kernel, KINDS[rng.integers(len(KINDS))], query, Z, length)
    n_history = len(recorded)
    other = Z[rng.integers(len(Z))] if rng.random() < 0.5 else rng.uniform(-1, 1, len(query.at))
    runs = _recorded(rng, truth, Z, signs, recorded)
    return Case(truth, runs, (query, Query(other, _noise(rng, length[:n_history], recorded > 0.0))))


def attained_case(rng, **given) -> Case:
    """Exact samples at the centre and corners of a query whose bounds the truth nearly attains, however they are found.

    A corner less the centre attains the displacement; a slope at the centre, what slopes do; and a bend, the remainder.
    """
    n_uncertain = int(rng.integers(1, 7))
    query, kernel, length = _question(rng, n_uncertain, n_uncertain, is_steep=True, **given)
    kind = KINDS[rng.integers(2, 5)]
    Z = corners(query.at, query.half).astype(float) if kind == "bend" else query.at[None]
    points, weights = _functional(rng, kind, query, query.at, length)
    weights = weights * LONG(10.0 ** rng.uniform(-6, 6) * rng.choice([-1.0, 1.0]))
    prior = _prior(rng, float(np.abs(weights).max()), length) if kind != "bend" else None  # its slopes would hide that
    truth = Truth(kernel, points, weights, prior)
    runs = _recorded(rng, truth, Z, np.ones(len(Z)), np.zeros(n_uncertain), is_exact=True)
    return Case(truth, runs, (query, Query(Z[0], 0.0 * query.noise)))


def _question(rng, n_uncertain, n_history, *, kernel=None, is_steep=False):
    """A query, a kernel for it, and its lengthscales."""
    n_dims = n_history + 1
    kernel = random_kernel(rng, n_dims) if kernel is None else kernel(n_dims)
    length = np.minimum(_lengthscales(kernel, n_dims), 30.0)
    is_uncertain = np.zeros(n_history, bool)
    is_uncertain[rng.permutation(n_history)[:n_uncertain]] = True
    noise = _noise(rng, length, is_uncertain, 1 if is_steep and rng.random() < 0.7 else None, is_steep)
    return Query(rng.uniform(-1, 1, n_dims), noise), kernel, length


def _lengthscales(kernel, n_dims):
    if isinstance(kernel, rc.Scale):
        return _lengthscales(kernel.kernel, n_dims)
    if isinstance(kernel, (rc.Sum, rc.Product)):
        return np.minimum(_lengthscales(kernel.a, n_dims), _lengthscales(kernel.b, n_dims))
    return np.broadcast_to(kernel.lengthscale, n_dims)


def _noise(rng, length, is_uncertain, regime=None, is_steep=False):
    """Of one size in all uncertain entries, or mainly in one of them; from 1e-12 to a few lengthscales."""
    low, high = _REGIMES[rng.choice(3, p=[0.25, 0.55, 0.2]) if regime is None else regime]
    size, spread = (
        length[: len(is_uncertain)] * 10.0 ** rng.uniform(low, high),
        rng.uniform(0.3, 1.0, len(is_uncertain)),
    )
    if is_steep or rng.random() < 0.4:
        spread[np.arange(len(spread)) != np.argmax(is_uncertain)] *= 10.0 ** rng.uniform(-9, 0)
    return np.where(is_uncertain, size * spread, 0.0)


def _design(rng, query, length, is_dense):
    """Recorded arguments: anywhere, near the query, at its centre and corners, some of them twice."""
    at = query.at
    Z = rng.uniform(-1, 1, (int(rng.integers(8, 16) if is_dense else rng.integers(1, 6)), len(at)))
    if is_dense or rng.random() < 0.5:
        Z = at + length * 10.0 ** rng.uniform(-2, 0) * rng.uniform(-1, 1, Z.shape)
    if rng.random() < 0.5:
        Z = np.concatenate([Z, at[None]])
    if rng.random() < 0.4:
        Z = np.concatenate([Z[:-1], corners(at, query.half)[: int(rng.integers(1, 5))].astype(float)])
    if rng.random() < 0.2:
        Z = Z[rng.integers(0, len(Z), len(Z) + 1)]
    return Z


def _truth(rng, kernel, kind, query, Z, length):
    """A truth, and for every sample on which side of its interval it is to be."""
    scale, signs = 10.0 ** rng.uniform(-6, 6), rng.choice([-1.0, 1.0], len(Z))
    if kind == "random":
        points = np.concatenate([rng.uniform(-1, 1, (int(rng.integers(1, 5)), len(query.at))), Z[:2]])
        weights = np.asarray(rng.normal(size=len(points)), LONG)
    else:
        points, weights = _functional(rng, kind, query, query.at if rng.random() < 0.6 else Z[0], length)
        distinct, group = np.unique(Z, axis=0, return_inverse=True)
        K, ridge = kernel(distinct), kernel.variance * 10.0 ** rng.uniform(-9, 0)
        row = (long_kernel(kernel, distinct, points) @ weights).astype(float)
        found, side = np.linalg.solve(K + ridge * np.eye(len(K)), row), rng.choice([-1.0, 1.0])
        signs = side * np.where(found[group.reshape(-1)] < 0.0, -1.0, 1.0)
        points = np.concatenate([points, distinct])
        weights = np.concatenate([weights, -np.asarray(found, LONG)]) * LONG(side)
    weights = weights * LONG(scale) / np.abs(weights).max()
    return Truth(kernel, np.asarray(points, LONG), weights, _prior(rng, scale, length)), signs


def _prior(rng, scale, length):
    """None, or an affine one whose slopes may be large."""
    if rng.random() < 0.5:
        return None
    slopes = scale * 10.0 ** rng.uniform(-2, 3) * rng.normal(size=len(length)) / length
    return AffinePrior(scale * float(rng.normal()), tuple(slopes.tolist()))


def _functional(rng, kind, query, at, length):
    """Points and coefficients: a value at a corner, a corner less the centre, a slope or a bend at the centre."""
    centre, half = np.asarray(at, LONG), query.half
    corner = corners(centre, half)[0 if rng.random() < 0.5 else -1]
    if kind == "value":
        return corner[None], np.ones(1, LONG)
    if kind == "jump":
        return np.stack([corner, centre]), np.array([1, -1], LONG)
    j = int(np.argmax(half / length))
    step = np.zeros(len(half), LONG)
    step[j] = LONG(length[j]) * LONG(1e-3 if kind == "slope" else 0.01)
    if kind == "slope":
        return np.stack([centre + step, centre - step]), np.array([1, -1], LONG)
    return np.stack([centre + step, centre, centre - step]), np.array([-1, 2, -1], LONG)


def _recorded(rng, truth, Z, signs, noise, *, is_exact=False):
    """Samples at their worst: true arguments where they mislead most, noise and disturbances at their ends."""
    n_history = len(noise)
    half = np.append(noise, np.zeros(Z.shape[1] - n_history))
    is_worst = rng.random() < 0.8
    values = np.empty(len(Z), LONG)
    for k, z in enumerate(Z):
        box = np.concatenate([corners(z, half), within(rng, z, half, 4), np.asarray(z, LONG)[None]])
        reached = truth(box)
        values[k] = reached[np.argmin(signs[k] * reached)] if is_worst else reached[rng.integers(len(reached))]
    size = 0.0 if is_exact else float(np.abs(values).max() or 1.0)
    amount, disturbance = size * 10.0 ** rng.uniform(-9, -0.5, 2) * rng.choice([0.0, 1.0], 2, p=[0.3, 0.7])
    off = signs * (amount + disturbance) * (1.0 if is_worst else rng.uniform(-1, 1, len(Z)))
    outputs = np.asarray(values - off, float)
    errors = np.abs(np.asarray(outputs, LONG) - values) + 4 * truth.blur(np.abs(Z) + half)
    bound = (errors.max() - LONG(disturbance)) + 8 * EPS * (errors.max() + LONG(disturbance))
    return rc.Trajectories(
        np.stack([Z[:, 0], outputs], axis=1)[:, :, None],
        Z[:, None, n_history:],
        noise_bound=max(float(np.nextafter(float(bound), np.inf)), 0.0),
        disturbance_bound=disturbance,
        histories=Z[:, :n_history],
        shape=(n_history, 0, 1),
        initial_state_noise=noise,
    )
