"""The least norm through the intervals: found where outputs are tied, exact where doubles lose it, or an error."""

import numpy as np
import pytest
from flint import arb, arb_mat, ctx
from problems import ball_kernel

import rkhs_control as rc
from rkhs_control.assumptions.norms import NormBound
from rkhs_control.engine import ball_least_norm
from rkhs_control.engine.gram import Gram
from rkhs_control.engine.least_norm import least_norm

CASES_PER_CHUNK = 100
SIX_STARTS = np.array([0.63, 0.59, 1.38, -1.95, -1.04, -0.62])


def tied(rng):
    """Outputs saturated at one end or both, binary, quantised to 3 to 20 levels, or all the same."""
    n, n_dims = int(rng.integers(3, 40)), int(rng.integers(1, 4))
    X = rng.uniform(-2, 2, (n, n_dims))
    f = sum(rng.normal() * np.sin(2 * X @ rng.normal(size=n_dims) + rng.uniform(0, 6)) for _ in range(3))
    levels = int(rng.integers(3, 21))
    y = [
        np.minimum(f, np.quantile(f, rng.uniform(0, 0.7))),
        np.clip(f, *np.quantile(f, [0.3, 0.6])),
        (f > np.median(f)).astype(float),
        np.round(f / np.abs(f).max() * levels) / levels,
        np.ones(n),
    ][rng.integers(5)]
    family = [rc.SquaredExponential, rc.Matern12, rc.Matern32, rc.Matern52][rng.integers(4)]
    kernel = family(float(np.exp(rng.uniform(-1.5, 1.0))))
    return rc.Observations(X, y, float(rng.uniform(0.02, 0.2)) * (np.ptp(y) + 0.2)), kernel


def conic_least_norm(data, kernel):
    """By cvxpy and Clarabel, in coordinates of the eigenvectors; None where it has no answer."""
    import cvxpy as cp

    values, vectors = np.linalg.eigh(kernel(data.X))
    f = (vectors * np.sqrt(np.maximum(values, 0.0))) @ (b := cp.Variable(len(values)))
    problem = cp.Problem(cp.Minimize(cp.norm(b)), [f >= data.lower, f <= data.upper])
    try:
        problem.solve(solver="CLARABEL")
    except (cp.SolverError, UserWarning):  # the warning says that the solution may be inaccurate
        return None
    return float(problem.value) if problem.status == "optimal" else None


def exact_least_norm(data, kernel, witness):
    """That of the witness's active set, in ball arithmetic; its weights and values must keep the optimality conditions.

    `K_AA a = b_A` on the ends, the signs of `a` point inwards, and no other interval is missed.
    """
    ctx.prec = 2000
    active = list(zip(witness.indices, witness.weights > 0, strict=True))
    if not active:
        return 0.0
    K = arb_mat([[ball_kernel(kernel, data.X[i], data.X[j]) for j, _ in active] for i, _ in active])
    ends = arb_mat([[arb(float(data.lower[i] if is_lower else data.upper[i]))] for i, is_lower in active])
    weights = K.solve(ends)
    assert all((weights[a, 0] > 0) == is_lower for a, (_, is_lower) in enumerate(active))
    slack = 1e-9 * (1.0 + np.abs(data.centre).max())
    for x, low, high in zip(data.X, data.lower, data.upper, strict=True):
        value = sum((weights[a, 0] * ball_kernel(kernel, x, data.X[i]) for a, (i, _) in enumerate(active)), arb(0))
        assert arb(float(low) - slack) < value < arb(float(high) + slack)
    return float((ends.transpose() * weights)[0, 0].sqrt().mid())


def test_six_tied_rows_refute_a_norm_bound_that_is_too_small():
    data, kernel = rc.Observations(SIX_STARTS, np.ones(6), 0.05), rc.SquaredExponential(1.0)
    assert rc.least_norm_estimate(data, kernel).value == pytest.approx(1.4244751262)
    with pytest.raises(rc.FalsifiedNormBoundError, match=r"at least 1\.424"):
        rc.OptimalEnvelope(data, kernel, 0.01)
    runs = rc.Trajectories(np.stack([SIX_STARTS, np.ones(6)], 1)[:, :, None], np.zeros((6, 1, 1)), 0.05)
    with pytest.raises(rc.FalsifiedNormBoundError, match="step 1, state x_0"):
        rc.MultiStepPredictor(runs, kernel, 0.01)


def test_least_norm_of_tied_outputs_is_that_of_the_conic_solver(chunk):
    """Where the conic solver differs, ball arithmetic tells that it is the one that is wrong."""
    n_compared = 0
    for number in range(CASES_PER_CHUNK):
        rng = np.random.default_rng([11, chunk, number])
        data, kernel = tied(rng)
        gram = Gram(data.X, kernel)
        solution = least_norm(gram, data.lower, data.upper)
        assert solution.is_found
        least, conic = rc.least_norm_estimate(data, kernel).value, conic_least_norm(data, kernel)
        proved = solution.certified_norm(gram, data.lower, data.upper)
        assert proved >= least * (1.0 - 1e-6) or (proved == 0.0 and least < 1e-40)  # zero fits
        if conic is not None and abs(least - conic) <= 1e-6 * max(least, 1e-2):
            n_compared += 1
        else:
            assert least == pytest.approx(exact_least_norm(data, kernel, solution.witness), rel=1e-6)
    assert n_compared > 0.8 * CASES_PER_CHUNK


def test_frontier_of_tied_outputs_rises_to_the_least_norm():
    for number in range(60):
        data, kernel = tied(np.random.default_rng([12, number]))
        gram = Gram(data.X, kernel)
        solution = least_norm(gram, data.lower, data.upper)
        if solution.is_found and solution.precise is None:
            noise_bounds, norms = rc.consistency_frontier(data, kernel)
            assert (np.diff(noise_bounds) <= 0.0).all()
            assert (np.diff(norms) >= -1e-9 * norms[-1]).all()
            assert norms[-1] == pytest.approx(solution.norm, rel=1e-6, abs=1e-12)


def test_least_norm_that_doubles_lose_is_found_with_more_digits():
    """A smooth kernel on a binary signal: along a matrix regularised by 1e-10 it would be 200 times too small."""
    rng = np.random.default_rng(4)
    X = np.sort(rng.uniform(-2.0, 2.0, 22))
    data, kernel = rc.Observations(X, (np.sin(4.0 * X) > 0).astype(float), 0.05), rc.SquaredExponential(1.0)
    gram = Gram(data.X, kernel)
    solution = least_norm(gram, data.lower, data.upper)
    assert solution.precise is not None
    exact = exact_least_norm(data, kernel, solution.witness)
    assert exact > 1e5
    assert rc.least_norm_estimate(data, kernel).value == pytest.approx(exact, rel=1e-6)
    with pytest.raises(rc.FalsifiedNormBoundError):
        rc.OptimalEnvelope(data, kernel, 0.99 * exact)
    assert rc.OptimalEnvelope(data, kernel, 1.01 * exact).bounds([[0.0]]).upper >= 0.0


def test_least_norm_that_double_doubles_lose_is_found_in_balls():
    data, kernel = tied(np.random.default_rng([11, 8, 16]))
    gram = Gram(data.X, kernel)
    solution = least_norm(gram, data.lower, data.upper)
    exact = exact_least_norm(data, kernel, solution.witness)
    assert exact > 1e13
    assert solution.is_found
    assert solution.proved == pytest.approx(exact, rel=1e-12)
    assert rc.least_norm_estimate(data, kernel).value == pytest.approx(exact, rel=1e-9)
    with pytest.raises(rc.FalsifiedNormBoundError):
        rc.OptimalEnvelope(data, kernel, 0.999999 * exact)


def test_least_norm_beyond_all_digits_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(ball_least_norm, "MOST_WORK", 1e6)  # more would find that it is above all that is allowed
    X = np.linspace(-2.0, 2.0, 60)
    data, kernel = rc.Observations(X, (np.arange(60) % 2).astype(float), 0.01), rc.SquaredExponential(4.0)
    for use in (
        lambda: rc.least_norm_estimate(data, kernel),
        lambda: rc.minimum_norm(data, kernel),
        lambda: rc.OptimalEnvelope(data, kernel, 1e12),
    ):
        with pytest.raises(rc.SolverError, match=r"cannot be computed: it is at least .* take a rougher kernel"):
            use()
    with pytest.raises(rc.FalsifiedNormBoundError):  # what is proved refutes, all the same
        rc.OptimalEnvelope(data, kernel, 10.0)


def test_inverted_bounds_are_refused_as_a_contradiction(monkeypatch):
    """Even if a norm bound that is too small got past the check at the start."""
    monkeypatch.setattr(NormBound, "require_consistent", lambda *_: None)
    data = rc.Observations(SIX_STARTS, np.ones(6), 0.05)
    for family in (rc.OptimalEnvelope, rc.LipschitzEnvelope):
        with pytest.raises(rc.FalsifiedNormBoundError, match=r"at least .* and at most"):
            family(data, rc.SquaredExponential(1.0), 0.01).bounds([[0.0]])


@pytest.mark.parametrize("family", [rc.OptimalEnvelope, rc.ClosedFormEnvelope])
def test_a_nugget_lets_no_refuted_norm_bound_through(family):
    data = rc.Observations(SIX_STARTS, np.ones(6), 0.05)
    with pytest.raises(rc.FalsifiedNormBoundError, match=r"at least 1\.424"):
        family(data, rc.SquaredExponential(1.0), 0.5, nugget=1e3)


def test_of_many_data_a_part_does_not_count_as_all():
    """More than are kept as a matrix: double-doubles only see some of them."""
    x = np.linspace(-2.0, 2.0, 2500)
    data = rc.Observations(x, np.clip(3.0 * x, -1.0, 1.0), 0.05)
    with pytest.raises((rc.SolverError, rc.FalsifiedNormBoundError)):
        rc.OptimalEnvelope(data, rc.SquaredExponential(1.0), 3e5)


@pytest.mark.parametrize("n_bits", [8, 16, 32, 64])
def test_too_few_bits_prove_no_norm_rather_than_a_wrong_one(n_bits, monkeypatch, rng):
    """Of balls so wide that nothing is certain about their squared norm, none is taken for an answer."""
    for _ in range(20):
        data, kernel = tied(rng)
        monkeypatch.setattr(ball_least_norm, "_BITS", (n_bits,))
        few = ball_least_norm.proved_least_norm(kernel, data.X, lower=data.lower, upper=data.upper)
        monkeypatch.setattr(ball_least_norm, "_BITS", (768,))
        many = ball_least_norm.proved_least_norm(kernel, data.X, lower=data.lower, upper=data.upper)
        assert few is None or few.norm <= many.norm * (1 + 1e-15)
