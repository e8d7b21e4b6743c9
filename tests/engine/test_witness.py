"""Rounding: what is reported lies at or outside the exact value of its witness, by next to nothing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from flint import arb, ctx
from problems import ball_kernel, henon, henon_envelope, random_problem

import rkhs_control as rc
from rkhs_control.engine import columns, gram
from rkhs_control.engine.functionals import Points
from rkhs_control.engine.witness import Witness


def exact_upper_value(witness, x, kernel, X, lower, upper, norm_bound):
    """`U(w)` in ball arithmetic."""
    points, weights = X[witness.indices], [arb(float(w)) for w in witness.weights]
    square = ball_kernel(kernel, x, x)
    for i, p in enumerate(points):
        square -= 2 * weights[i] * ball_kernel(kernel, x, p)
        for j, q in enumerate(points):
            square += weights[i] * weights[j] * ball_kernel(kernel, p, q)
    ends = np.where(witness.weights > 0, upper[witness.indices], lower[witness.indices])
    total = sum((arb(float(e)) * w for e, w in zip(ends, weights, strict=True)), arb(0))
    largest = square.upper()  # at a datum the square is zero, and a ball around it no number to take a root of
    return arb(norm_bound) * (largest.sqrt() if largest > 0 else arb(0)) + total


def slacks(envelope, queries):
    """How far outside every bound lies, proved; at least zero if rounding is outward."""
    ctx.prec = 300
    data, band = envelope.data, envelope.bounds(queries)
    for i, x in enumerate(queries):
        below, above = band.witness(i)
        args = (x, envelope.kernel, data.X)
        exact = exact_upper_value(above, *args, data.lower, data.upper, envelope.radius)
        yield float((arb(float(band.upper[i])) - exact).lower())
        exact = exact_upper_value(below, *args, -data.upper, -data.lower, envelope.radius)
        yield float((arb(float(-band.lower[i])) - exact).lower())


def test_bounds_lie_outside_the_ball_arithmetic_value_of_their_witness():
    for number in range(80):
        rng = np.random.default_rng([30, number])
        problem = random_problem(rng, n_queries=2, n_most=25)
        envelope = rc.OptimalEnvelope(problem.data, problem.kernel, problem.norm * np.exp(rng.uniform(0, 2)))
        assert min(slacks(envelope, problem.queries)) >= 0


def test_outward_slack_is_tiny_on_the_published_example():
    arrays = henon("grid")
    envelope, queries = henon_envelope(arrays), arrays["queries"][7::30]
    band = envelope.bounds(queries)
    size = np.stack([np.abs(band.upper), np.abs(band.lower)], axis=1).ravel()
    assert (np.array(list(slacks(envelope, queries))) <= 1e-9 * size).all()


def witnesses(problems):
    """Of both bounds at the queries of random problems, many of them ill-conditioned."""
    for number in range(problems):
        rng = np.random.default_rng([31, number])
        problem = random_problem(rng, n_queries=2, n_most=25)
        envelope = rc.OptimalEnvelope(problem.data, problem.kernel, problem.norm * np.exp(rng.uniform(0, 2)))
        band = envelope.bounds(problem.queries)
        for i, x in enumerate(problem.queries):
            for witness in band.witness(i):
                yield x, envelope, witness


def test_precise_norms_are_rounded_up_by_a_few_units_in_the_last_place():
    """The plain ones by as much as the norm itself."""
    ctx.prec = 1000
    excess = []
    for x, envelope, witness in witnesses(80):
        functional, nothing = Points.value(x), np.zeros(len(envelope.data.X))
        exact = exact_upper_value(witness, x, envelope.kernel, envelope.data.X, nothing, nothing, 1.0)
        plain, precise = (
            norm(functional, envelope.gram) for norm in (witness.residual_norm_up, witness.precise_norm_up)
        )
        assert arb(precise) >= exact
        assert precise <= plain * (1 + 1e-15)
        if exact > 1e-12:  # beside a datum, squares are so small that underflow counts
            assert arb(precise) <= exact * (1 + arb(1e-13))
            excess.append(float(arb(plain) / exact - 1))
    assert max(excess) > 1e-2


def extreme(rng, size, exponent):
    return rng.choice([-1.0, 1.0], size) * 10.0 ** rng.uniform(-exponent, exponent, size)


@pytest.mark.parametrize("exponent", [50, 150, 300])
def test_no_weights_however_small_or_large_prove_too_small_a_bound(exponent):
    """Kernels, coefficients and intervals of all magnitudes; what overflows becomes an infinite bound."""
    ctx.prec = 4000
    finite = 0
    for number in range(60):
        rng = np.random.default_rng([33, exponent, number])
        kernel = 10.0 ** rng.uniform(-50, 50) * rc.Matern32(10.0 ** rng.uniform(-50, 50))
        X, x = np.unique(extreme(rng, (6, 1), 50), axis=0), extreme(rng, 1, 50)
        ends, norm_bound = np.sort(extreme(rng, (2, len(X)), 50), axis=0), 10.0 ** rng.uniform(-100, 50)
        witness = Witness(np.arange(len(X)), extreme(rng, 1, exponent) * extreme(rng, len(X), 8))
        value, _ = witness.upper_value(Points.value(x), gram.Gram(X, kernel), *ends, norm_bound)
        assert arb(value) >= exact_upper_value(witness, x, kernel, X, *ends, norm_bound).lower()
        finite += np.isfinite(value)
    assert finite > 30


def test_tiny_weights_do_not_prove_a_norm_that_is_not_there(rng):
    """Their squares underflow before they meet a large variance."""
    X, kernel = rng.uniform(-1, 1, (5, 1)), 1e50 * rc.SquaredExponential(0.3)
    ones = np.ones(5)
    weights = np.linalg.solve(kernel(X), ones)
    norms = [
        Witness(np.arange(5), scale * weights).norm_at_least(gram.Gram(X, kernel), ones, ones)
        for scale in (1.0, 1e-60, 1e-90, 1e-110, 1e-200)
    ]
    assert norms[0] > 0
    assert max(norms) <= norms[0] * (1 + 1e-12)


@dataclass(frozen=True)
class Cauchy(rc.Radial):
    """`1 / (1 + s)`, as a user writes it."""

    ulps: ClassVar[int] = 4

    def profile(self, s, xp):
        return 1.0 / (1.0 + s)

    def fall_profile(self, s):
        return s / (1.0 + s)

    def slope(self, s):
        return -1.0 / (1.0 + s) ** 2


@dataclass(frozen=True)
class Contradictory(Cauchy):
    """With a second formula that belongs to another kernel."""

    def precise_fall_profile(self, s, s_low):
        return rc.SquaredExponential(1.0).precise_fall_profile(s, s_low)


@pytest.mark.parametrize("family", [Cauchy, Contradictory])
def test_kernels_without_a_second_formula_or_with_a_wrong_one_keep_their_plain_norms(family, rng):
    X = rng.uniform(-1, 1, (30, 2))
    data = rc.Observations(X, np.cos(X[:, 0]), noise_bound=1e-6)
    queries = rng.uniform(-1, 1, (4, 2))
    envelope, plain = (rc.OptimalEnvelope(data, kind(2.0), norm_bound=10.0) for kind in (family, Cauchy))
    band, wanted = envelope.bounds(queries), plain.bounds(queries)
    np.testing.assert_array_equal([band.lower, band.upper], [wanted.lower, wanted.upper])
    for witness in band.witness(0):
        functional = Points.value(queries[0])
        assert witness.precise_norm_up(functional, envelope.gram) == witness.residual_norm_up(functional, envelope.gram)


def test_columns_computed_on_demand_are_those_of_the_matrix(rng, monkeypatch):
    """However the requests come, and however often the store has to be given up."""
    monkeypatch.setattr(gram, "DENSE_LIMIT", 10)
    monkeypatch.setattr(columns, "_BYTES", 8 * 50 * 12)
    X, kernel = rng.uniform(-1, 1, (50, 2)), rc.Matern(0.5, nu=1.5)
    lazy = gram.Gram(X, kernel, nugget=0.1)
    whole = kernel(X) + 0.1 * np.eye(50)
    for size in (3, 8, 5, 30, 12, 50, 1, 0):
        rows, weights = rng.permutation(50)[:size], rng.normal(size=size)
        np.testing.assert_allclose(lazy.combine(rows, weights), whole[:, rows] @ weights, atol=1e-12)
