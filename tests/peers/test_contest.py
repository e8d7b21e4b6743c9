"""The contest between methods: what is counted is what happened, and a promise that is broken shows."""

from dataclasses import dataclass

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.peers import base, ours
from rkhs_control.peers.base import Bounds, Card
from rkhs_control.peers.contest import Questions, Track, judge, verdicts
from rkhs_control.peers.set_membership import Cones, lipschitz_bounds

CARD = Card("a method", "something", "something else", "elsewhere")
LIMITS = rc.Box([0.0], [1.0])


@dataclass(frozen=True, eq=False)
class Given(Bounds):
    """Boxes around a given truth, moved and so wide."""

    truth: np.ndarray
    move: float
    half: float

    def boxes(self, x0, inputs):
        middle = self.truth[: len(x0)] + self.move
        return middle - self.half, middle + self.half


def questions(rng, n=30):
    truth = rng.uniform(0.3, 0.7, (n, 2, 1))
    truth[0, 1] = 1.2  # one plan violates
    return Questions(np.zeros((n, 1)), np.zeros((n, 2, 1)), truth, np.zeros((n, 1, 1)), np.ones((n, 1, 1)))


def test_close_limits_are_violated_where_their_margin_is_negative(rng):
    asked, margins = questions(rng), rng.uniform(-0.05, 0.05, 30)
    close = Questions.close(asked.x0, asked.inputs, asked.truth, LIMITS.lower, margins)
    assert (close.is_safe == (margins >= 0)).all()
    assert len(close.first(4).upper) == 4


def test_boxes_around_the_truth_cover_it_and_decide_rightly(rng):
    asked = questions(rng)
    score = judge(Given(CARD, asked.truth, 0.0, 0.05), asked)
    assert (score.coverage, score.plan_coverage, score.n_wrong) == (1.0, 1.0, 0)
    assert (score.n_certified, score.n_refuted) == (29, 1)
    assert score.half_widths == pytest.approx((0.05,))


def test_boxes_beside_the_truth_are_counted_against_a_method(rng):
    asked = questions(rng)
    score = judge(Given(CARD, asked.truth, -0.25, 0.05), asked)
    assert score.coverage == 0.0
    assert score.n_wrong == 1, "the plan that violates is called safe"
    far = judge(Given(CARD, asked.truth, 5.0, 0.05), asked)
    assert far.n_wrong == 29, "plans that keep the limits are called unsafe"


def test_a_box_that_touches_the_limit_is_certified_and_one_beyond_is_not():
    lower, upper = np.array([[[0.0]], [[0.0]], [[1.1]]]), np.array([[[1.0]], [[np.nextafter(1.0, 2.0)]], [[1.2]]])
    certified, refuted = verdicts((lower, upper), LIMITS.lower, LIMITS.upper)
    assert certified.tolist() == [True, False, False]
    assert refuted.tolist() == [False, False, True]


class Drifting:
    """A plant that moves by its input; as a planner, it always wants up by 0.3."""

    horizon = 2

    def simulate(self, x0, inputs):
        return np.concatenate([x0[:, None], x0[:, None] + np.cumsum(inputs, axis=1)], axis=1)

    def solve_many(self, x0, n_jobs=None):
        return [type("Plan", (), {"inputs": np.full((2, 1), 0.3)}) for _ in x0]


@dataclass(frozen=True, eq=False)
class Knowing(Bounds):
    """The truth itself."""

    def boxes(self, x0, inputs):
        states = Drifting().simulate(x0, inputs)[:, 1:]
        return states, states


def test_a_loop_follows_plans_that_are_called_safe_and_holds_after_them():
    track = Track(Drifting(), Drifting(), LIMITS, np.zeros(1), np.array([[0.1]]), n_steps=6)
    assert track.run(Knowing(CARD)) == 0  # up to 0.7, where the next plan would leave, and the reference input is held
    assert track.run(None, trusts_all=True) == 3  # 1.3, 1.6, 1.9
    assert track.run(None) == 0


def test_cones_hold_a_function_that_is_no_steeper_than_their_slope(rng):
    Z, noise = rng.uniform(-1.0, 1.0, (200, 2)), 0.02
    weights = np.array([1.0, -2.0])
    cones = Cones.of(Z, Z @ weights + rng.uniform(-noise, noise, 200), noise)
    queries = rng.uniform(-1.0, 1.0, (100, 2))
    lower, upper = cones.interval(queries)
    steepest = np.linalg.norm(weights * Z.std(axis=0))
    assert cones.slope <= 1.2 * steepest * (1 + 1e-9), "the noise is not taken for slope"
    safe = Cones(cones.Z, cones.scale, cones.lower, cones.upper, steepest)
    lower, upper = safe.interval(queries)
    assert (lower <= queries @ weights).all()
    assert (queries @ weights <= upper).all()


@pytest.fixture
def runs(rng):
    x0, inputs = rng.uniform(-1.0, 1.0, (25, 1)), rng.uniform(-1.0, 1.0, (25, 2, 1))
    first = 0.8 * x0 + 0.2 * inputs[:, 0]
    states = np.stack([x0, first, 0.8 * first + 0.2 * inputs[:, 1]], axis=1)
    states[:, 1:] += rng.uniform(-0.01, 0.01, states[:, 1:].shape)
    return rc.Trajectories(states, inputs, 0.01)


def test_lipschitz_boxes_have_a_place_for_every_plan_step_and_state(runs):
    lower, upper = lipschitz_bounds(runs).boxes(runs.histories, runs.inputs)
    assert lower.shape == upper.shape == (25, 2, 1)
    assert (lower <= runs.states[:, 1:]).all()
    assert (runs.states[:, 1:] <= upper).all()


def test_conic_programme_and_path_are_the_same_bound(runs):
    predictor = rc.MultiStepPredictor(runs, rc.SquaredExponential(2.0), 10.0)
    x0, inputs = runs.histories[:1] + 0.05, runs.inputs[:1]
    for one, other in zip(
        ours.conic(predictor).boxes(x0, inputs),
        ours.PredictorBounds(ours.OPTIMAL, predictor).boxes(x0, inputs),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_missing_extra_is_one_line_that_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(base, "EXTRA_MODULES", ("no_such_module_of_ours",))
    with pytest.raises(
        rc.InputError, match=r"^no_such_module_of_ours is not installed: pip install rkhs_control\[peers\]$"
    ):
        base.require_extra()
