"""Kernels: against ball arithmetic, finite differences and CasADi."""

import json
import math

import casadi
import numpy as np
import pytest
from flint import arb, ctx
from problems import ball_kernel, long_kernel, random_kernel, random_radial

import rkhs_control as rc
from rkhs_control.engine.functionals import Points

KERNELS = [
    rc.SquaredExponential(0.7),
    rc.SquaredExponential([0.5, 2.0]),
    rc.RationalQuadratic(0.7, alpha=0.3),
    rc.RationalQuadratic([0.5, 2.0], alpha=50.0),
    rc.Matern(0.7, nu=0.5),
    rc.Matern(0.7, nu=1.5),
    rc.Matern([0.5, 2.0], nu=2.5),
    2.5 * rc.SquaredExponential(0.7),
    rc.SquaredExponential(0.7) + 0.1 * rc.Matern(0.3, nu=1.5),
    rc.SquaredExponential(0.7) * rc.RationalQuadratic(3.0),
]
SMOOTH = [k for k in KERNELS if k.is_differentiable]


def test_only_matern_12_and_what_is_made_of_it_have_no_slopes():
    rough = rc.Matern12(0.7)
    assert [k for k in KERNELS if k not in SMOOTH] == [rough]
    assert not any(k.is_differentiable for k in (2.0 * rough, rough + SMOOTH[0], SMOOTH[0] * rough))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_fall_is_as_accurate_as_it_says(kernel, rng):
    ctx.prec = 300
    for _ in range(200):
        x = rng.uniform(-1, 1, 2)
        y = x + 10.0 ** rng.uniform(-12, 2) * rng.normal(size=2)
        exact = ball_kernel(kernel, x, x) - ball_kernel(kernel, x, y)
        computed = kernel.fall(x[None], y[None])[0, 0]
        error = abs(float((arb(float(computed)) - exact) / exact))
        assert error <= kernel.rounding(2)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_ball_of_a_kernel_overlaps_the_textbook_formula(kernel, rng):
    ctx.prec = 300
    for _ in range(20):
        x, y = rng.uniform(-1, 1, (2, 2))
        value = kernel.ball([arb(float(entry)) for entry in x], [arb(float(entry)) for entry in y])
        assert value.overlaps(ball_kernel(kernel, x, y))
        assert value.rel_accuracy_bits() > 250


def test_random_kernels_are_positive_semidefinite(rng):
    for _ in range(30):
        kernel = random_kernel(rng, 3)
        X = rng.uniform(-1, 1, (25, 3))
        assert np.linalg.eigvalsh(kernel(X)).min() > -1e-12 * kernel.variance * 25


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_values_diagonal_and_casadi_agree(kernel, rng):
    X, Y = rng.uniform(-1, 1, (6, 2)), rng.uniform(-1, 1, (5, 2))
    np.testing.assert_allclose(kernel(X, Y), long_kernel(kernel, X, Y).astype(float), rtol=1e-12)
    np.testing.assert_allclose(kernel(X).diagonal(), kernel.diagonal(X))
    for variable in (casadi.SX.sym("x", 2), casadi.MX.sym("x", 2)):
        row = casadi.Function("k", [variable], [kernel.casadi(variable, Y)])
        for i, x in enumerate(X):
            np.testing.assert_allclose(np.array(row(x))[0], kernel(X, Y)[i], rtol=1e-12)


@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
def test_gradient_agrees_with_casadi_and_at_coincidence_is_zero(kernel, rng):
    Y = rng.uniform(-1, 1, (5, 2))
    X = np.vstack([rng.uniform(-1, 1, (4, 2)), Y[:1]])
    variable = casadi.MX.sym("x", 2)
    jacobian = casadi.Function("j", [variable], [casadi.jacobian(kernel.casadi(variable, Y), variable)])
    for i, x in enumerate(X):
        np.testing.assert_allclose(kernel.gradient(X, Y)[i], np.array(jacobian(x)), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
def test_derivative_variance_is_the_curvature_at_zero(kernel):
    """`(k(0, 0) - k(h e_j, 0)) 2 / h^2` tends to it."""
    for j in range(2):
        step = 1e-6 * np.eye(2)[j : j + 1]
        curvature = 2 * kernel.fall(step, np.zeros((1, 2)))[0, 0] / 1e-12
        assert math.isclose(kernel.derivative_variance(2)[j], curvature, rel_tol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_survive_a_file(kernel):
    assert rc.kernel_from_dict(json.loads(json.dumps(kernel.to_dict()))) == kernel


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "Radial"}, "there is no kernel 'Radial'; there is: .*Matern12, "),
        ({}, "there is no kernel None"),
        ({"kind": "SquaredExponential", "length": 1.0}, "kernel SquaredExponential: .*length"),
    ],
)
def test_what_is_no_kernel_is_refused(content, message):
    with pytest.raises(rc.InputError, match=message):
        rc.kernel_from_dict(content)


def test_kernels_are_values():
    assert rc.SquaredExponential(2) == rc.SquaredExponential(2.0)
    assert rc.Matern([1, 2], nu=1.5) == rc.Matern32((1.0, 2.0))
    assert len({rc.SquaredExponential([1, 2]), rc.SquaredExponential([1.0, 2.0])}) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rc.SquaredExponential(0.0), "lengthscale must be a number above zero"),
        (lambda: rc.SquaredExponential([1.0, -1.0]), r"lengthscale\[1\] must be a number above zero"),
        (lambda: rc.SquaredExponential("wide"), "lengthscale must be"),
        (lambda: rc.SquaredExponential(1e-60), "lengthscale must be at least"),
        (lambda: rc.SquaredExponential([1.0, 1e-60]), r"lengthscale\[1\] must be at least 1e-50"),
        (lambda: rc.RationalQuadratic(1.0, alpha=0), "alpha must be a number above zero"),
        (lambda: rc.Matern(1.0, nu=2), "nu must be 0.5, 1.5 or 2.5"),
        (lambda: -1.0 * rc.Matern(1.0), "factor must be a number above zero"),
        (lambda: rc.SquaredExponential([1.0, 2.0])(np.zeros((3, 3))), "2 entries, but the inputs have 3 dimensions"),
        (lambda: rc.SquaredExponential(1.0)(np.zeros((3, 3)), np.zeros((3, 2))), "of the same n_dims"),
    ],
)
def test_wrong_parameters_are_refused_by_name(make, message):
    with pytest.raises(rc.InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda k: 1e-310 * k, "factor must be at least 1e-50; got 1e-310"),
        (lambda k: 1e51 * k, "factor must be a number above zero, at most 1e"),
        (lambda k: 1e-30 * (1e-30 * k), "variance .* of a Scale must lie between 1e-50 and 1e.50; got 1e-60"),
        (lambda k: (1e30 * k) * (1e30 * k), "variance .* of a Product must lie between 1e-50 and 1e.50; got 1e.60"),
        (lambda k: 1e50 * k + 1e50 * k, "variance .* of a Sum must lie between 1e-50 and 1e.50; got 2e.50"),
        (
            lambda k: rc.kernel_from_dict({"kind": "Sum", "a": 1.0, "b": k.to_dict()}),
            "a Sum is made of kernels; got 1.0",
        ),
        (lambda k: Points(np.zeros((2, 1)), [0.0, 1e-60]), "coefficients must be zero or at least 1e-50 in magnitude"),
        (lambda k: rc.NormBound(1e-101), "norm_bound must be at least 1e-100; got 1e-101"),
    ],
)
def test_numbers_whose_products_could_underflow_or_overflow_are_refused(make, message):
    with pytest.raises(rc.InputError, match=message):
        make(rc.SquaredExponential(1.0))


def test_numbers_at_the_ends_of_the_ranges_are_accepted():
    kernel = rc.SquaredExponential([1e-50, 1e50])
    assert (1e-50 * kernel).variance == 1e-50
    assert (1e50 * kernel).variance == 1e50
    Points(np.zeros((3, 1)), [0.0, -1e-50, 1e50])
    rc.NormBound(1e-100)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_fall_is_as_accurate_as_it_says_however_far_or_near(kernel, rng):
    """Up to 1e100 lengthscales, and down to where squares underflow."""
    ctx.prec = 700
    for _ in range(200):
        y = np.array([rng.choice([-1.0, 1.0]), rng.normal()]) * 10.0 ** rng.uniform(-300, 50)
        exact = ball_kernel(kernel, np.zeros(2), np.zeros(2)) - ball_kernel(kernel, np.zeros(2), y)
        computed = kernel.fall(np.zeros((1, 2)), y[None])[0, 0]
        allowed = arb(kernel.rounding(2)) * exact + arb(1e-150) * arb(kernel.variance)
        assert abs(arb(float(computed)) - exact) <= allowed


def test_random_radial_kernels_survive_far_and_near_inputs(rng):
    for _ in range(50):
        kernel = random_radial(rng, 2)
        X = np.array([[0.0, 0.0], [1e-300, 0.0], [1e40, -1e40]])
        fall = kernel.fall(X, X)
        assert np.isfinite(fall).all()
        assert (fall >= 0).all()
