"""Rounding: what is reported lies at or outside the exact value of its witness, by next to nothing."""

import numpy as np
from flint import arb, ctx
from problems import ball_kernel, henon, henon_envelope, random_problem

import rkhs_control as rc
from rkhs_control import gram


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
    envelope, queries = henon_envelope(arrays), arrays["queries"][7::120]
    band = envelope.bounds(queries)
    size = np.repeat(np.maximum(np.abs(band.upper), np.abs(band.lower)), 2)
    assert np.median(np.array(list(slacks(envelope, queries))) / size) < 1e-9


def test_columns_computed_on_demand_are_those_of_the_matrix(rng, monkeypatch):
    """However the requests come, and however often the store has to be given up."""
    monkeypatch.setattr(gram, "DENSE_LIMIT", 10)
    monkeypatch.setattr(gram, "_CACHE_BYTES", 8 * 50 * 12)
    X, kernel = rng.uniform(-1, 1, (50, 2)), rc.Matern(0.5, nu=1.5)
    lazy = gram.Gram(X, kernel, nugget=0.1)
    whole = kernel(X) + 0.1 * np.eye(50)
    for size in (3, 8, 5, 30, 12, 50, 1, 0):
        rows, weights = rng.permutation(50)[:size], rng.normal(size=size)
        np.testing.assert_allclose(lazy.combine(rows, weights), whole[:, rows] @ weights, atol=1e-12)
