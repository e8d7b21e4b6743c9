"""How much functions can bend: against fourth derivatives of kernels in ball arithmetic, and what bends most."""

import numpy as np
import pytest
from flint import arb, ctx
from problems import LONG, ball_kernel, long_kernel

import rkhs_control as rc

SMOOTH = [
    rc.SquaredExponential(0.7),
    rc.SquaredExponential([0.5, 2.0, 30.0]),
    rc.RationalQuadratic(0.7, alpha=0.3),
    rc.RationalQuadratic([0.5, 2.0, 0.01], alpha=50.0),
    rc.Matern([0.5, 2.0, 7.0], nu=2.5),
    1e-9 * rc.Matern(0.7, nu=2.5),
]
SUMS = [
    rc.SquaredExponential(0.7) + 0.1 * rc.Matern(0.3),
    3.0 * (rc.SquaredExponential([0.5, 2.0, 1.0]) + rc.RationalQuadratic([2.0, 0.5, 1.0])),
]
PRODUCTS = [
    rc.SquaredExponential([0.5, 2.0, 1.0]) * (7.0 * rc.SquaredExponential([2.0, 0.5, 1.0])),
    rc.SquaredExponential(0.7) * rc.RationalQuadratic(3.0),
    (1e-3 * rc.Matern(0.7)) * (rc.Matern([0.5, 2.0, 7.0]) + 4.0 * rc.SquaredExponential(0.1)),
    rc.RationalQuadratic(1.0, alpha=0.1) * rc.RationalQuadratic(2.0, alpha=0.2) * rc.Matern(1.0),
]
COMPOSITES = SUMS + PRODUCTS
ROUGH = [rc.Matern(1.0, nu=0.5), rc.Matern(1.0, nu=1.5)]
STEP = 2.0**-200


def norm_of_bending(kernel, direction):
    """That of `f -> d^2/dt^2 f(x + t d)`: the root of the fourth derivative of `k(t d, 0)` at zero, by differences."""
    nothing = np.zeros(3)
    at = [ball_kernel(kernel, t * STEP * direction, nothing) for t in (0, 1, 2)]
    return ((6 * at[0] - 8 * at[1] + 2 * at[2]) / arb(STEP) ** 4).sqrt()


@pytest.mark.parametrize("kernel", SMOOTH + COMPOSITES, ids=str)
def test_bend_bounds_second_derivatives_in_every_direction(kernel, rng):
    ctx.prec = 2000
    for direction in [*np.eye(3), *rng.normal(size=(20, 3)), *10.0 ** rng.uniform(-3, 3, (20, 3))]:
        bound = sum(
            (arb(float(b)) * arb(float(d)) ** 2 for b, d in zip(kernel.bend(3), direction, strict=True)), arb(0)
        )
        exact = norm_of_bending(kernel, direction)
        assert exact.rel_accuracy_bits() > 100
        assert exact <= bound * (1 + arb(2) ** -180)  # what differences are off
        assert kernel not in SMOOTH or bound <= exact * (1 + 1e-12)


@pytest.mark.parametrize("kernel", SMOOTH + SUMS + PRODUCTS[:1], ids=str)
def test_bend_is_no_larger_than_it_must_be(kernel):
    """Along coordinates. Products of other kernels than Gaussians bend a little less than it says."""
    ctx.prec = 2000
    for j, bend in enumerate(kernel.bend(3)):
        assert arb(float(bend)) <= norm_of_bending(kernel, np.eye(3)[j]) * (1 + 1e-12)


@pytest.mark.parametrize("kernel", SMOOTH + COMPOSITES, ids=str)
def test_no_kernel_expansion_bends_more(kernel, rng):
    """A second difference is a mean of second derivatives, so no more than their bound, however long its step."""
    for _ in range(50):
        centres, weights = rng.uniform(-1, 1, (5, 3)), np.asarray(rng.normal(size=5), LONG)
        norm = np.sqrt(weights @ long_kernel(kernel, centres, centres) @ weights)
        x, step = rng.uniform(-1, 1, 3), rng.normal(size=3) * 10.0 ** rng.uniform(-2, 0)
        left, middle, right = long_kernel(kernel, np.stack([x - step, x, x + step]), centres) @ weights
        assert abs(left - 2 * middle + right) <= norm * (kernel.bend(3) @ step**2) * (1 + 1e-9)


@pytest.mark.parametrize("kernel", SMOOTH + SUMS, ids=str)
def test_some_function_bends_nearly_as_much(kernel):
    """The one that represents the second derivative, or nearly: a second difference of kernels."""
    weights = np.array([1, -2, 1], LONG)
    for j in range(3):
        length = np.broadcast_to(getattr(kernel, "lengthscale", 0.5), 3)[j]
        step = 0.002 * length * np.eye(3)[j]
        points = np.stack([-step, 0.0 * step, step])
        norm = np.sqrt(weights @ long_kernel(kernel, points, points) @ weights)  # and its own difference is the square
        assert norm >= 0.99 * kernel.bend(3)[j] * step[j] ** 2


@pytest.mark.parametrize("rough", ROUGH, ids=str)
@pytest.mark.parametrize("make", [lambda k: k, lambda k: 2.0 * k, lambda k: k + SMOOTH[0], lambda k: SMOOTH[0] * k])
def test_rough_kernels_have_no_bound_for_bending(rough, make):
    assert (make(rough).bend(3) == np.inf).all()


def test_deep_composites_round_their_bend_upwards(rng):
    ctx.prec = 2000
    kernel = rc.SquaredExponential(0.7)
    for factor in rng.uniform(0.3, 2.0, 6):
        kernel = (float(factor) * kernel) * rc.SquaredExponential(float(rng.uniform(0.5, 2.0)))
    exact = norm_of_bending(kernel, np.eye(3)[0])
    assert exact <= arb(float(kernel.bend(3)[0])) <= exact * (1 + 1e-9)
