"""The checker's slopes and bends of kernels, beside power series and differences of many digits."""

import importlib
import json

import numpy as np
import pytest
from flint import arb, ctx
from forgeries import fourth_moment
from problems import ball_kernel, ball_series

import rkhs_control as rc

checker = importlib.import_module("rkhs_control.checker")
SCALES = (0.7, 1.3, 2.1)
SMOOTH = [
    rc.SquaredExponential(SCALES),
    rc.RationalQuadratic(1.4, alpha=0.3),
    rc.RationalQuadratic(SCALES, alpha=7.0),
    rc.Matern(SCALES, nu=2.5),
    2.5 * rc.Matern(0.8, nu=2.5),
    rc.SquaredExponential(0.9) + 0.3 * rc.RationalQuadratic(SCALES),
    rc.SquaredExponential(SCALES) * (rc.Matern(1.1, nu=2.5) + rc.RationalQuadratic(0.6)),
    (rc.SquaredExponential(2.0) * rc.SquaredExponential(SCALES)) * (3.0 * rc.Matern(SCALES, nu=2.5)),
]
DIFFERENTIABLE = [*SMOOTH, rc.Matern(SCALES, nu=1.5), rc.SquaredExponential(1.0) * rc.Matern(1.2, nu=1.5)]


def as_read(kernel):
    """As it stands in a certificate."""
    return json.loads(json.dumps(kernel.to_dict()))


@pytest.fixture(autouse=True)
def precision():
    before, ctx.prec = ctx.prec, 512
    yield
    ctx.prec = before


@pytest.mark.parametrize("kernel", DIFFERENTIABLE, ids=str)
def test_slopes_are_those_of_the_kernel(kernel, rng):
    """By central differences of 1e-40, and by power series; at the point itself they are zero."""
    x, Y = rng.normal(size=3), rng.normal(size=(5, 3))
    Y[-1] = x
    step = arb("1e-40")
    for j in range(3):
        along = [arb(i == j) for i in range(3)]
        slopes = checker.slope_row(as_read(kernel), x.tolist(), j, Y.tolist())
        for y, slope in zip(Y, slopes, strict=True):
            series = ball_series(kernel, x, y, along)
            assert abs(float((slope - series[1]).mid())) < 1e-60
            if list(y) != list(x):
                assert slope.overlaps(series[1])
                ahead, behind = (
                    sum((c * (sign * step) ** k for k, c in enumerate(series)), arb(0)) for sign in (1, -1)
                )
                assert abs(float(((ahead - behind) / (2 * step) - slope).mid())) < 1e-60
        assert float(slopes[-1]) == 0.0
        assert checker.slope_variance(as_read(kernel), j).overlaps(-2 * ball_series(kernel, x, x, along)[2])


@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
def test_bends_bound_the_norm_of_two_derivatives_in_every_direction(kernel, rng):
    """Along an axis they are that norm for sums and radial kernels, and no less for products."""
    bends = [checker.bend(as_read(kernel), j) for j in range(3)]
    for j in range(3):
        exact = fourth_moment(kernel, [arb(i == j) for i in range(3)]).sqrt()
        assert float(bends[j]) >= float(exact) * (1.0 - 1e-14)
        if not isinstance(kernel, rc.Product):
            assert float(bends[j]) == pytest.approx(float(exact), rel=1e-14)
    for direction in rng.normal(size=(200, 3)) * 10.0 ** rng.uniform(-2, 2, (200, 3)):
        exact = float(fourth_moment(kernel, [arb(d) for d in direction.tolist()]).sqrt())
        assert exact <= sum(float(b) * d**2 for b, d in zip(bends, direction, strict=True)) * (1.0 + 1e-12)


@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
def test_functions_bend_by_no_more_than_the_remainder(kernel, rng):
    """From the plane through their value and slopes at a point, and from what they are at the corners of a box."""
    for _ in range(20):
        centre, points = rng.normal(size=3), rng.normal(size=(4, 3))
        points[0] = centre  # the steepest bends are there
        weights, reach = rng.normal(size=4), 10.0 ** rng.uniform(-3, 0, 3) * rng.integers(0, 2, 3)
        K = kernel(points)
        component = {"kernel": as_read(kernel), "norm_bound": {"value": float(np.sqrt(weights @ K @ weights))}}
        room = float(checker.remainder(component, {j: arb(h) for j, h in enumerate(reach.tolist()) if h}))
        corners = np.stack(np.meshgrid(*((-h, h) for h in reach), indexing="ij"), axis=-1).reshape(-1, 3)
        inside = rng.uniform(-1, 1, (30, 3)) * reach
        slopes = [
            sum(w * float(s) for w, s in zip(weights, column, strict=True))
            for column in (checker.slope_row(as_read(kernel), centre.tolist(), j, points.tolist()) for j in range(3))
        ]
        values = kernel(centre + inside, points) @ weights
        plane = kernel(centre[None], points) @ weights + inside @ np.array(slopes)
        assert (np.abs(values - plane) <= room + 1e-12).all()
        at_corners = kernel(centre + corners, points) @ weights
        assert values.max() <= at_corners.max() + room + 1e-12
        assert values.min() >= at_corners.min() - room - 1e-12


@pytest.mark.parametrize("kernel", DIFFERENTIABLE, ids=str)
@pytest.mark.parametrize("j", [None, 0, 2])
def test_any_weights_bound_functions_of_the_norm_through_the_intervals(kernel, j, rng):
    """Known functions, of whose norm and values nothing is left over, and random weights; mirrored, minus them."""
    for _ in range(10):
        points, x = rng.normal(size=(5, 3)), rng.normal(size=3)
        own, weights = rng.normal(size=5), rng.normal(size=5).tolist()
        K = [[ball_kernel(kernel, p, q) for q in points] for p in points]
        coefficients = [arb(c) for c in own.tolist()]
        at_points = [sum((c * k for c, k in zip(coefficients, row, strict=True)), arb(0)) for row in K]
        norm = float(np.sqrt(float(sum((c * v for c, v in zip(coefficients, at_points, strict=True)), arb(0)))))
        component = {"kernel": as_read(kernel), "norm_bound": {"value": norm * (1.0 + 1e-12)}}
        ends = [(value - abs(e), value + abs(e)) for value, e in zip(at_points, rng.normal(size=5), strict=True)]
        along = [arb(i == j) for i in range(3)]
        order = 0 if j is None else 1
        truth = sum(
            (c * ball_series(kernel, x, p, along)[order] for c, p in zip(coefficients, points, strict=True)), arb(0)
        )
        for is_mirrored, sign in ((False, 1), (True, -1)):
            bound = checker.weighted_bound(component, points.tolist(), ends, weights, x.tolist(), is_mirrored, j)
            known = checker.kernel_rows(as_read(kernel), points.tolist(), points.tolist())
            again = checker.weighted_bound(component, points.tolist(), ends, weights, x.tolist(), is_mirrored, j, known)
            assert float(bound) == float(again)
            assert float(bound) >= float(sign * truth)


def test_a_bound_by_the_function_itself_has_nothing_to_spare(rng):
    """Where the weights make up the functional, the norm takes no part: the bound is the sum of the ends."""
    kernel, x = rc.SquaredExponential(SCALES), rng.normal(size=3).tolist()
    component = {"kernel": as_read(kernel), "norm_bound": {"value": 5.0}}
    bound = checker.weighted_bound(component, [x], [(-0.25, 0.5)], [1.0], x, False, None)
    mirrored = checker.weighted_bound(component, [x], [(-0.25, 0.5)], [1.0], x, True, None)
    assert (float(bound), float(mirrored)) == (0.5, 0.25)


def test_kernels_without_derivatives_have_neither_slopes_nor_bends():
    rough, once = map(as_read, (rc.Matern(1.0, nu=0.5), rc.SquaredExponential(1.0) + rc.Matern(1.0, nu=1.5)))
    with pytest.raises(checker.RejectedError, match="need not have slopes"):
        checker.slope_row(rough, [0.0], 0, [[1.0]])
    with pytest.raises(checker.RejectedError, match="need not have slopes"):
        checker.slope_variance(rough, 0)
    for kernel in (rough, once):
        with pytest.raises(checker.RejectedError, match="need not have two derivatives"):
            checker.bend(kernel, 0)


def test_boxes_reach_beyond_what_rounding_takes_off(rng):
    for x, h in zip(
        rng.normal(size=200) * 10.0 ** rng.uniform(-9, 9, 200), 10.0 ** rng.uniform(-9, 9, 200), strict=True
    ):
        low, high = checker._around(float(x), float(h))
        assert arb(low) <= arb(float(x)) - arb(float(h))
        assert arb(high) >= arb(float(x)) + arb(float(h))
    for x, h in ((1.7e308, 1.7e308), (-1.7e308, 1e308)):
        with pytest.raises(checker.RejectedError, match="too uncertain for doubles"):
            checker._around(x, h)
