"""The paper's other methods, on the same interface."""

import sys
import types
from itertools import pairwise

import cvxpy
import numpy as np
import pytest

import rkhs_control as rc

KERNEL = rc.SquaredExponential(0.8)


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (30, 2))
    return rc.Observations(X, np.sin(2 * X[:, 0]) * X[:, 1] + rng.uniform(-0.1, 0.1, 30), 0.1)


@pytest.fixture
def queries(rng):
    return rng.uniform(-1, 1, (10, 2))


def test_alternating_never_widens_with_more_turns_and_reaches_the_optimum(data, queries):
    widths = [
        rc.AlternatingEnvelope(data, KERNEL, 6.0, iterations=turns).bounds(queries).width for turns in (1, 2, 5, 30)
    ]
    for fewer, more in pairwise(widths):
        assert (more <= fewer * (1 + 1e-9)).all()
    optimal = rc.OptimalEnvelope(data, KERNEL, 6.0).bounds(queries)
    np.testing.assert_allclose(widths[-1], optimal.width, rtol=1e-4)


def test_closed_form_is_narrowest_around_the_interpolant(data, queries):
    """None of the terms but the last depends on the model, and around the interpolant the last is zero."""
    interpolant = rc.KernelModel(data.X, KERNEL, np.linalg.solve(KERNEL(data.X), data.centre))
    narrowest = rc.ClosedFormEnvelope(data, KERNEL, 6.0, model=interpolant).bounds(queries)
    for model in (rc.minimum_norm(data, KERNEL), rc.kernel_ridge(data, KERNEL, 0.1)):
        band = rc.ClosedFormEnvelope(data, KERNEL, 6.0, model=model).bounds(queries)
        assert (band.width >= narrowest.width - 1e-6).all()
        np.testing.assert_allclose((band.lower + band.upper) / 2, model(queries), atol=1e-9)


def test_closed_form_is_proposition_3(data, queries):
    """Against the formula as printed, with its Delta from cvxpy."""
    K, kq = KERNEL(data.X), KERNEL(queries, data.X)
    nu = cvxpy.Variable(len(data))
    root = np.linalg.cholesky(K + 1e-14 * np.eye(len(data)))
    delta = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(root.T @ nu) / 4 + data.centre @ nu + 0.1 * cvxpy.norm1(nu))
    ).solve(solver="CLARABEL")
    ridge = rc.kernel_ridge(data, KERNEL, 0.1)
    weights = np.linalg.solve(K, kq.T)
    power = np.sqrt(1 - np.sum(kq.T * weights, axis=0))
    half = power * np.sqrt(36 + delta) + 0.1 * np.abs(weights).sum(axis=0)
    half += np.abs(data.centre @ weights - ridge(queries))
    band = rc.ClosedFormEnvelope(data, KERNEL, 6.0, model=ridge).bounds(queries)
    np.testing.assert_allclose(band.width / 2, half, rtol=1e-5)


def test_energy_bound_is_the_least_over_the_trade_off(data, queries):
    """Every trade-off `s` gives a valid bound, none a better one than the reported."""
    envelope = rc.EnergyEnvelope(data, KERNEL, 6.0)
    band = envelope.bounds(queries)
    K, kq, energy = KERNEL(data.X), KERNEL(queries, data.X), float(np.sum(data.half_width**2))
    for s in 10.0 ** np.linspace(-6, 2, 17):
        weights = np.linalg.solve(K + s * np.eye(len(data)), kq.T)
        beta2 = 36 + energy / s - data.centre @ np.linalg.solve(K + s * np.eye(len(data)), data.centre)
        upper = data.centre @ weights + np.sqrt(beta2 * (1 - np.sum(kq.T * weights, axis=0)))
        assert (band.upper <= upper + 1e-6).all()


def test_less_noise_energy_narrows_the_band(data, queries):
    loose = rc.EnergyEnvelope(data, KERNEL, 6.0).bounds(queries)
    tight = rc.EnergyEnvelope(data, KERNEL, 6.0, energy=0.2).bounds(queries)
    assert (tight.width < loose.width).all()


def test_gaussian_process_bound_is_the_papers(data, queries):
    envelope = rc.GaussianProcessEnvelope(data, KERNEL, 6.0, confidence=0.99, noise_std=0.05)
    K, kq = KERNEL(data.X) + 0.05**2 * np.eye(len(data)), KERNEL(queries, data.X)
    gain = 0.5 * np.linalg.slogdet(np.eye(len(data)) + KERNEL(data.X) / 0.05**2)[1]
    beta = 6.0 + 4 * 0.05 * np.sqrt(gain + 1 + np.log(1 / 0.01))
    sigma = np.sqrt(1 - np.sum(kq.T * np.linalg.solve(K, kq.T), axis=0))
    band = envelope.bounds(queries)
    np.testing.assert_allclose(band.upper - band.lower, 2 * beta * sigma, rtol=1e-6)
    np.testing.assert_allclose((band.upper + band.lower) / 2, kq @ np.linalg.solve(K, data.centre), rtol=1e-6)


def test_conic_solver_that_does_not_end_optimal_gives_no_bound(data, queries, monkeypatch):
    monkeypatch.setattr(cvxpy.Problem, "status", property(lambda self: "optimal_inaccurate"))
    with pytest.warns(UserWarning, match=r"ended with status 'optimal_inaccurate'"):
        band = rc.ConicEnvelope(data, KERNEL, 6.0).bounds(queries[:1])
    assert band.upper[0] == np.inf
    assert band.lower[0] == -np.inf


def test_missing_solver_is_named_with_what_there_is(data):
    with pytest.raises(rc.SolverError, match=r"'GUROBI' is not installed; installed are .*CLARABEL"):
        rc.ConicEnvelope(data, KERNEL, 6.0, solver="GUROBI")


def test_mosek_without_a_licence_is_a_plain_message(data, monkeypatch):
    """As MOSEK behaves when it is installed but finds no licence."""

    class Error(Exception):
        pass

    class Env:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def checkoutlicense(self, feature):
            raise Error("license cannot be located")

    fake = types.SimpleNamespace(Error=Error, Env=Env, feature=types.SimpleNamespace(pts=0))
    monkeypatch.setitem(sys.modules, "mosek", fake)
    monkeypatch.setattr(cvxpy, "installed_solvers", lambda: ["CLARABEL", "MOSEK"])
    with pytest.raises(rc.SolverError, match=r"could not be used .license cannot be located.*solver='CLARABEL'"):
        rc.ConicEnvelope(data, KERNEL, 6.0, solver="MOSEK")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: rc.OptimalEnvelope(d, KERNEL, -1.0), "norm_bound must be a number above zero"),
        (lambda d: rc.OptimalEnvelope(d, KERNEL, 6.0, nugget=-1e-9), "nugget must be a number zero or more"),
        (lambda d: rc.OptimalEnvelope(d, rc.SquaredExponential([1.0, 1.0, 1.0]), 6.0), "inputs have 2 dimensions"),
        (lambda d: rc.AlternatingEnvelope(d, KERNEL, 6.0, iterations=0), "iterations must be a whole number"),
        (lambda d: rc.ConicEnvelope(d, KERNEL, 6.0, formulation="both"), "formulation must be 'primal' or 'dual'"),
        (lambda d: rc.GaussianProcessEnvelope(d, KERNEL, 6.0, confidence=1.0), "confidence must lie between"),
        (lambda d: rc.EnergyEnvelope(d, KERNEL, 6.0, energy=0.0), "energy must be a number above zero"),
        (lambda d: rc.OptimalEnvelope(d, KERNEL, 6.0).difference_bounds(d.X[:2], d.X[:3]), "equally many rows"),
    ],
)
def test_wrong_settings_are_refused_by_name(make, message, data):
    with pytest.raises(rc.InputError, match=message):
        make(data)


def test_functionals_of_another_dimension_are_refused(data):
    envelope = rc.OptimalEnvelope(data, KERNEL, 6.0)
    with pytest.raises(rc.InputError, match="functional 0 has 1 dimensions, but the data have 2"):
        envelope.functional_bounds([rc.Points.value(np.zeros(1))])


def test_the_zero_functional_is_bounded_by_zero(data):
    for family in (rc.OptimalEnvelope, rc.ClosedFormEnvelope, rc.EnergyEnvelope, rc.AlternatingEnvelope):
        band = family(data, KERNEL, 6.0).functional_bounds([rc.Points.difference(data.X[0], data.X[0])])
        assert band.lower[0] <= 0 <= band.upper[0]
        assert band.width[0] < 1e-6


def test_differences_of_near_points_hold_for_every_method(data):
    """A difference is far smaller than the values it is made of: the errors of those must be in its bound."""
    truth = rc.minimum_norm(data, KERNEL)
    for family in (rc.OptimalEnvelope, rc.ClosedFormEnvelope, rc.EnergyEnvelope):
        envelope = family(data, KERNEL, 6.0)
        for distance in 10.0 ** -np.arange(1, 15):
            a, b = data.X[0], data.X[0] + distance
            band = envelope.functional_bounds([rc.Points.difference(a, b)])
            exact = float((KERNEL.fall(b[None], data.X) - KERNEL.fall(a[None], data.X))[0] @ truth.weights)
            assert band.lower[0] <= exact + 1e-13
            assert band.upper[0] >= exact - 1e-13
