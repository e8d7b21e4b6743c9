"""Double-double arithmetic: error-free where it says so, and elsewhere within the bounds it claims."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from numba import njit
from problems import ball_kernel

import rkhs_control as rc
from rkhs_control.arithmetic import double_double

UNIT = Fraction(1, 2**106)
FAMILIES = [
    rc.SquaredExponential,
    lambda scale: rc.RationalQuadratic(scale, alpha=1e-6),
    lambda scale: rc.RationalQuadratic(scale, alpha=0.3),
    lambda scale: rc.RationalQuadratic(scale, alpha=50.0),
    lambda scale: rc.RationalQuadratic(scale, alpha=1e6),
    rc.Matern12,
    rc.Matern32,
    rc.Matern52,
    lambda scale: 0.7 * rc.Matern52(scale),
    lambda scale: rc.SquaredExponential(scale) + 0.1 * rc.Matern12(3.0),
    lambda scale: 1e-5 * rc.SquaredExponential(scale) * (rc.RationalQuadratic(2.0) + 1e4 * rc.Matern32(0.3)),
]


@njit
def pairs(operation, a, b):
    """Of many numbers at once: a loop that the compiler may put on vector units."""
    high, low = np.empty_like(a), np.empty_like(a)
    for i in range(a.size):
        high[i], low[i] = operation(a[i], b[i])
    return high, low


def numbers(rng, size, exponent=50):
    return rng.normal(size=size) * 10.0 ** rng.uniform(-exponent, exponent, size)


def exact(high, low=0.0):
    return Fraction(float(high)) + Fraction(float(low))


def random_pairs(rng, size, exponent=50):
    """Normalised numbers of twice the digits."""
    high = numbers(rng, size, exponent)
    return double_double.two_sum(high, high * rng.uniform(-1, 1, size) * 2.0**-53)


def as_ball(high, low):
    return arb(float(high)) + arb(float(low))


def test_sums_and_products_of_doubles_are_exact(rng):
    a, b = numbers(rng, 20_000), numbers(rng, 20_000)
    b[:10_000] = a[:10_000] * np.round(rng.normal(size=10_000), 2)  # of a size, so that sums cancel
    for operation, result in ((double_double.two_sum, Fraction.__add__), (double_double.two_product, Fraction.__mul__)):
        high, low = pairs(operation, a, b)
        for i in range(len(a)):
            assert exact(high[i], low[i]) == result(exact(a[i]), exact(b[i]))
        assert (np.abs(low) <= 2.0**-53 * np.abs(high)).all()


def test_arithmetic_is_within_its_bounds(rng):
    a, a_low = random_pairs(rng, 5_000, exponent=2)
    b, b_low = random_pairs(rng, 5_000, exponent=2)
    for i in range(len(a)):
        x, y = exact(a[i], a_low[i]), exact(b[i], b_low[i])
        total = exact(*double_double.add(a[i], a_low[i], b[i], b_low[i]))
        assert abs(total - (x + y)) <= 3 * UNIT * (abs(x) + abs(y))
        product = exact(*double_double.multiply(a[i], a_low[i], b[i], b_low[i]))
        assert abs(product - x * y) <= 5 * UNIT * abs(x * y)
        assert abs(exact(*double_double.reciprocal(a[i])) * exact(a[i]) - 1) <= 2 * UNIT
        square = exact(*double_double.root(abs(a[i]), math.copysign(a_low[i], a[i] * a_low[i]))) ** 2
        assert abs(square - abs(x)) <= 8 * UNIT * abs(x)


def test_exponentials_and_logarithms_are_within_their_bounds(rng):
    ctx.prec = 1000
    for _ in range(3_000):
        high = 10.0 ** rng.uniform(-30, 2.7)
        if rng.random() < 0.3:
            high = round(high * 256) / 256 + 2.0**-52  # where the argument is split
        pair = double_double.two_sum(high, high * rng.uniform(-1, 1) * 2.0**-53)
        t = as_ball(*pair)
        guess = math.log1p(pair[0])
        for computed, true, bound in (
            (double_double.exponential(*pair), (-t).exp(), 16),
            (double_double.exponential_fall(*pair), -(-t).expm1(), 32),
            (double_double.log_one_plus(*pair, guess), t.log1p(), 80),
        ):
            assert abs(as_ball(*computed) / true - 1) <= bound * arb(2) ** -106


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family(1.0)))
def test_falls_in_double_double_are_as_accurate_as_they_say(family, rng):
    """And the claim is one of at least 90 bits."""
    ctx.prec = 700
    for number in range(300):
        n_dims = int(rng.integers(1, 11))
        kernel = family(np.exp(rng.uniform(-1, 1, n_dims)).tolist())
        x = rng.uniform(-1, 1, n_dims) if number % 3 else np.zeros(n_dims)
        y = x + 10.0 ** rng.uniform(-18, 3) * rng.normal(size=n_dims)
        fall = kernel.precise_fall(np.array([x, y]))
        true = ball_kernel(kernel, x, x) - ball_kernel(kernel, x, y)
        assert fall.error < 2.0**-90
        assert abs(as_ball(fall.high[0], fall.low[0]) - true) <= arb(fall.error) * true
        assert abs(as_ball(*fall.variance) / ball_kernel(kernel, x, x) - 1) <= arb(fall.error)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family(1.0)))
def test_falls_among_many_points_are_those_of_two_at_a_time(family, rng):
    """To the last bit: vector units compute as the scalar ones do."""
    points = rng.normal(size=(23, 3)) * 10.0 ** rng.uniform(-3, 1, (23, 1))
    kernel = family([0.5, 1.0, 2.0])
    whole = kernel.precise_fall(points)
    for index, pair in enumerate(zip(*np.tril_indices(23, -1), strict=True)):
        alone = kernel.precise_fall(points[list(pair)][::-1].copy())
        assert (whole.high[index], whole.low[index]) == (alone.high[0], alone.low[0])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family(1.0)))
def test_falls_in_double_double_survive_far_and_near_inputs(family):
    X = np.array([[0.0, 0.0], [1e-300, 0.0], [3e-155, 1e-170], [1e40, -1e40], [1e50, 1e50], [-1e50, 1e-30], [0.0, 0.0]])
    below = np.tril_indices(len(X), -1)
    for scale in (1e-50, 1e-20, 1.0, 1e50):
        kernel = family(scale)
        fall, plain = kernel.precise_fall(X), kernel.fall(X, X)[below]
        np.testing.assert_allclose(fall.high, plain, rtol=2 * kernel.rounding(2), atol=1e-150 * kernel.variance)
        assert (np.abs(fall.low) <= 2.0**-53 * fall.high).all()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family(1.0)))
def test_falls_in_double_double_are_as_accurate_as_they_say_however_far(family, rng):
    """Up to 1e100 lengthscales, where squares are 1e200 and exponentials left their tables long ago."""
    ctx.prec = 700
    for exponent in [*rng.uniform(2, 100, 60), 96.5, 98.0, 100.0]:
        kernel, points = family(1e-50), np.array([[0.0], [10.0 ** (exponent - 50.0)]])
        fall = kernel.precise_fall(points)
        true = ball_kernel(kernel, points[0], points[0]) - ball_kernel(kernel, *points)
        assert abs(as_ball(fall.high[0], fall.low[0]) - true) <= arb(fall.error) * true


@pytest.mark.parametrize("factor", [1e-50, 1e50])
def test_falls_in_double_double_keep_their_digits_at_the_ends_of_the_range_of_variances(factor, rng):
    ctx.prec = 700
    for _ in range(100):
        kernel = factor * rc.Matern32(1.0)
        points = np.array([[0.0], [10.0 ** rng.uniform(-60, 3)]])
        fall = kernel.precise_fall(points)
        true = ball_kernel(kernel, points[0], points[0]) - ball_kernel(kernel, *points)
        assert abs(as_ball(fall.high[0], fall.low[0]) - true) <= arb(fall.error) * true


def test_kernel_without_double_double_makes_its_combinations_do_without(rng):
    class Triangle(rc.Kernel):
        """Only what is abstract."""

        variance = 1.0
        fall = gradient = derivative_variance = rounding = casadi = None

    X, other = rng.uniform(-1, 1, (4, 2)), rc.SquaredExponential(1.0)
    for kernel in (Triangle(), 2.0 * Triangle(), Triangle() + other, other * Triangle()):
        assert kernel.precise_fall(X) is None
