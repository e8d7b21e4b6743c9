"""Boxes of arguments: ends, remainders and methods, and that a box's bounds hold those of every point in it."""

from fractions import Fraction

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.assumptions.priors import AffinePrior
from rkhs_control.prediction.arguments import ArgumentBoxes

SMOOTH, ROUGH = rc.SquaredExponential(1.0), rc.Matern(1.0, nu=1.5)


def wavy_runs(rng, n_history, n_runs=12):
    """Of one output, whose history is known."""
    Z = rng.uniform(-1, 1, (n_runs, n_history + 1))
    states = np.stack([Z[:, 0], np.sin(Z @ np.linspace(1.0, 0.3, n_history + 1))], axis=1)[:, :, None]
    return rc.Trajectories(states, Z[:, None, n_history:], 0.02, histories=Z[:, :n_history], shape=(n_history, 0, 1))


def test_corners_and_reach_enclose_the_exact_box(rng):
    """In rational numbers, at scales at which a sum loses digits, or all of the noise."""
    for _ in range(100):
        centres = rng.normal(size=(3, 4)) * 10.0 ** rng.uniform(-9, 9, (3, 4))
        noise = np.abs(rng.normal(size=3)) * 10.0 ** rng.uniform(-20, 3, 3) * [1.0, rng.choice([0.0, 1.0]), 1.0]
        boxes = ArgumentBoxes(centres, noise)
        low, high = boxes.corners.min(axis=1), boxes.corners.max(axis=1)
        for k, j in np.ndindex(3, 4):
            centre, half = Fraction(centres[k, j]), Fraction(noise[j]) if j < 3 else Fraction(0)
            assert Fraction(low[k, j]) <= centre - half
            assert Fraction(high[k, j]) >= centre + half
            if half:
                reach = Fraction(boxes.reach[k, boxes.uncertain.tolist().index(j)])
                assert reach >= max(Fraction(high[k, j]) - centre, centre - Fraction(low[k, j]))
            else:
                assert low[k, j] == high[k, j] == centres[k, j]


def test_corners_are_all_of_them_with_the_last_coordinate_changing_fastest():
    boxes = ArgumentBoxes(np.array([[1.0, 2.0, 3.0]]), np.array([0.5, 0.0, 0.25]))
    np.testing.assert_allclose(
        boxes.corners[0], [[0.5, 2, 2.75], [0.5, 2, 3.25], [1.5, 2, 2.75], [1.5, 2, 3.25]], rtol=1e-15
    )


def test_remainder_is_rounded_up_down_to_where_squares_underflow(rng):
    for _ in range(200):
        scale, norm = 10.0 ** rng.uniform(-50, 50), 10.0 ** rng.uniform(-100, 100)
        kernel = rc.SquaredExponential(scale)
        noise = scale * 10.0 ** rng.uniform(-250, 0, 2)
        boxes = ArgumentBoxes(np.zeros((1, 3)), noise)
        exact = (
            sum(Fraction(float(h)) ** 2 for h in noise)
            * Fraction(norm)
            * Fraction(1.7320508)
            / 2
            / Fraction(scale) ** 2
        )
        assert Fraction(float(boxes.remainder(kernel, norm)[0])) >= exact


def test_remainder_is_nothing_without_uncertainty_and_infinite_for_rough_kernels():
    point, box = (ArgumentBoxes(np.zeros((2, 3)), np.array([0.0, noise])) for noise in (0.0, 0.1))
    assert point.remainder(SMOOTH, 1.0).tolist() == [0.0, 0.0]
    assert box.remainder(ROUGH, 1.0).tolist() == [np.inf, np.inf]
    np.testing.assert_allclose(box.remainder(SMOOTH, 2.0), np.sqrt(3.0) * 0.01, rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "n_uncertain", "noise", "method"),
    [
        (SMOOTH, 0, 0.0, "point"),
        (SMOOTH, 4, 0.1, "corners"),
        (SMOOTH, 5, 0.1, "slopes"),
        (SMOOTH, 1, 3.0, "displacement"),
        (SMOOTH, 6, 3.0, "displacement"),
        (ROUGH, 1, 1e-9, "displacement"),
        (SMOOTH + ROUGH, 5, 1e-9, "displacement"),
    ],
)
def test_method_is_the_tightest_with_few_enough_corners(kernel, n_uncertain, noise, method, rng):
    given = np.zeros(6)
    given[:n_uncertain] = noise
    assert ArgumentBoxes(np.zeros((1, 7)), given).method_for(kernel, 1.0) == method
    tube = rc.MultiStepPredictor(wavy_runs(rng, 6), kernel, 30.0).boxes(np.zeros(6), [[0.0]], initial_state_noise=given)
    assert [proof.method for proof in tube.witnesses[0, 0]] == [method, method]


def test_starts_without_noise_have_the_boxes_of_points_to_the_bit(rng):
    predictor = rc.MultiStepPredictor(wavy_runs(rng, 3), SMOOTH, 30.0)
    start, plan = rng.uniform(-1, 1, (5, 3)), rng.uniform(-1, 1, (5, 1, 1))
    tube, band = predictor.boxes(start, plan), predictor.envelope(1, 0).bounds(np.hstack([start, plan[:, 0]]))
    np.testing.assert_array_equal(tube.upper[:, 0, 0], band.upper)
    np.testing.assert_array_equal(tube.lower[:, 0, 0], band.lower)
    assert (tube.initial_state_cost == 0.0).all()


@pytest.mark.parametrize("prior", [None, AffinePrior(0.3, (2.0, -50.0, 0.1, 7.0, 0.0, -1.0))], ids=["", "prior"])
@pytest.mark.parametrize(("kernel", "n_uncertain"), [(SMOOTH, 3), (SMOOTH, 5), (ROUGH, 2)], ids=str)
def test_a_box_of_arguments_has_a_box_that_holds_those_of_every_point_in_it(kernel, n_uncertain, prior, rng):
    runs = wavy_runs(rng, 5)
    predictor = rc.MultiStepPredictor(runs, kernel, 300.0, priors=prior)
    noise = np.where(np.arange(5) < n_uncertain, [0.1, 0.05, 0.2, 1e-9, 0.1], 0.0)
    for _ in range(5):
        start, plan = rng.uniform(-1, 1, 5), rng.uniform(-1, 1, (1, 1))
        whole = predictor.boxes(start, plan, initial_state_noise=noise)
        within = start + noise * np.concatenate([rng.uniform(-1, 1, (10, 5)), rng.choice([-1.0, 1.0], (10, 5))])
        points = predictor.boxes(within, np.repeat(plan[None], 20, axis=0), initial_state_noise=0.0)
        assert (points.upper <= whole.upper + points.gap).all()
        assert (points.lower >= whole.lower - points.gap).all()
        smaller = predictor.boxes(start, plan, initial_state_noise=0.5 * noise)
        assert (smaller.upper <= whole.upper).all()
        assert (smaller.lower >= whole.lower).all()


@pytest.mark.parametrize("n_uncertain", [2, 5])
def test_affine_priors_go_through_without_a_remainder(n_uncertain, rng):
    """Of a plant that is its prior, boxes are as wide as slopes and noise make them, and what little the rest adds."""
    slopes, Z = np.array([3.0, -200.0, 0.5, 10.0, 1.0, 2.0]), rng.uniform(-1, 1, (20, 6))
    states = np.stack([Z[:, 0], 1.0 + Z @ slopes], axis=1)[:, :, None]
    runs = rc.Trajectories(states, Z[:, None, 5:], 1e-9, histories=Z[:, :5], shape=(5, 0, 1))
    predictor = rc.MultiStepPredictor(runs, SMOOTH, 1e-6, priors=AffinePrior(1.0, tuple(slopes.tolist())))
    noise = np.where(np.arange(5) < n_uncertain, 0.1, 0.0)
    tube = predictor.boxes(Z[3, :5], Z[None, 3, 5:], initial_state_noise=noise)
    np.testing.assert_allclose(tube.upper - tube.lower, 2.0 * np.abs(slopes[:5]) @ noise, rtol=1e-5)
    assert (tube.upper - tube.lower > 2.0 * np.abs(slopes[:5]) @ noise).all()


@pytest.mark.parametrize("method", [rc.ClosedFormEnvelope, rc.EnergyEnvelope, rc.AlternatingEnvelope])
@pytest.mark.parametrize("n_history", [3, 5])
def test_other_methods_hold_the_optimal_boxes_over_sets_of_arguments(method, n_history, rng):
    predictor = rc.MultiStepPredictor(wavy_runs(rng, n_history), SMOOTH, 30.0)
    other = predictor.with_method(method)
    start, plan = rng.uniform(-0.5, 0.5, n_history), [[0.1]]
    optimal, wider = (p.boxes(start, plan, initial_state_noise=0.05) for p in (predictor, other))
    slack = 1e-6 * (optimal.upper - optimal.lower)
    assert (wider.upper >= optimal.upper - slack).all()
    assert (wider.lower <= optimal.lower + slack).all()
