"""Loops in lockstep: each decides as if it were alone, whatever the others do."""

import numpy as np
import pytest
from regions import A, B, linear_predictor

import rkhs_control as rc

LIMITS = rc.Limits(states=rc.Box([-0.5, -0.5], [0.5, 0.5]), inputs=rc.Box([-1.0], [1.0]))


@pytest.fixture(scope="module")
def region():
    return rc.invariant_region(linear_predictor(), LIMITS, cells=4, initial_state_noise=0.02)


def starts(region, n, rng):
    drawn = rng.uniform(-0.5, 0.5, (20 * n, 2))
    return drawn[np.asarray(region.contains(drawn))][:n]


def both_ways(make, x0, n_steps, wanted, rng):
    """Loops in lockstep and, told the same, one at a time; and the inputs of either."""
    together, alone = [make() for _ in x0], [make() for _ in x0]
    x, applied, expected = x0, [], []
    for k in range(n_steps):
        measured = x + rng.uniform(-0.02, 0.02, x.shape)
        measured[k % len(x), 0] = np.nan if k % 4 == 3 else measured[k % len(x), 0]  # now and then none comes
        own = None if wanted is None else wanted[k]
        applied.append(rc.make_steps(together, measured, own))
        for j, one in enumerate(alone):
            expected.append(one.make_step(measured[j]) if own is None else one(measured[j], own[j]))
        x = x @ A.T + applied[-1] * B
    return together, alone, np.array(applied).ravel(), np.array(expected).ravel()


def test_filters_in_lockstep_decide_as_each_alone(region, rng):
    x0 = starts(region, 7, rng)
    wanted = rng.uniform(-1.4, 1.4, (25, 7, 1))
    wanted[3, 2] = np.nan
    together, alone, applied, expected = both_ways(lambda: rc.SafetyFilter(None, region), x0, 25, wanted, rng)
    np.testing.assert_array_equal(applied, expected)
    kinds = set()
    for one, other in zip(together, alone, strict=True):
        assert [step.decision for step in one.log] == [step.decision for step in other.log]
        for step, same in zip(one.log, other.log, strict=True):
            kinds.add(step.decision)
            if step.certificate is not None:
                assert step.certificate.verdict is rc.Verdict.CERTIFIED
                np.testing.assert_array_equal(step.certificate.question.inputs, same.certificate.question.inputs)
                np.testing.assert_allclose(step.certificate.tube.upper, same.certificate.tube.upper, rtol=0, atol=1e-9)
    assert len(kinds) > 2


def test_loops_that_repair_and_loops_without_a_region_can_go_together(region, rng):
    predictor = region.predictor
    cost = rc.QuadraticCost(np.eye(2), np.array([[0.01]]), np.eye(2), np.array([0.5, 0.4]), np.zeros(1), 2)
    control = rc.CertaintyEquivalentOCP.from_predictor(predictor, 1e-4, cost=cost, limits=LIMITS)
    robust = rc.RobustOCP(predictor, control, LIMITS, initial_state_noise=0.02)
    kinds = [{"region": region}, {"initial_state_noise": 0.02}, {"region": region, "repair": robust}] * 2

    def maker():
        order = iter(kinds)
        return lambda: rc.CertifiedMPC(control, predictor, LIMITS, [0.0], **next(order))

    x0 = starts(region, 6, rng)
    together, alone = [[make() for _ in x0] for make in (maker(), maker())]
    measured = x0 + 0.01
    applied = rc.make_steps(together, measured)
    expected = np.array([one.make_step(x) for one, x in zip(alone, measured, strict=True)])
    np.testing.assert_allclose(applied, expected, rtol=0, atol=1e-6)
    assert [one.log[0].decision for one in together] == [one.log[0].decision for one in alone]


def test_what_fails_for_one_fails_for_that_one_alone(region, rng, monkeypatch):
    """A question that nobody can answer must not take the answers of others with it."""
    predictor, boxes = region.predictor, type(region.predictor).boxes
    bad = np.array([0.123, 0.1])

    def failing(self, x0, inputs, **settings):
        if (np.atleast_2d(x0) == bad).all(axis=1).any():
            raise RuntimeError("no answer")
        return boxes(self, x0, inputs, **settings)

    monkeypatch.setattr(type(predictor), "boxes", failing)
    filters = [rc.SafetyFilter(None, region) for _ in range(3)]
    rc.make_steps(filters, [[0.1, 0.1], bad, [0.0, 0.0]], [[0.1], [0.1], [0.1]])
    first, failed, last = (one.log[0] for one in filters)
    assert first.decision is last.decision is rc.Decision.CERTIFIED
    assert failed.decision is not rc.Decision.CERTIFIED
    assert "no answer" in failed.reason


@pytest.mark.parametrize("states", [[0.1, 0.1], np.zeros((3, 2))])
def test_rows_that_do_not_match_the_loops_are_refused(region, states):
    with pytest.raises(rc.InputError, match="a row for each of the 2 loops"):
        rc.make_steps([rc.SafetyFilter(None, region)] * 2, states)


def test_a_loop_serves_one_plant_and_only_filters_are_told_what_is_wanted(region):
    filtered = rc.SafetyFilter(None, region)
    with pytest.raises(rc.InputError, match="given twice"):
        rc.make_steps([filtered, filtered], np.zeros((2, 2)))
    loop = rc.CertifiedMPC(lambda x: [[0.0]], region.predictor, region.limits, [0.0], region=region)
    with pytest.raises(rc.InputError, match="only safety filters"):
        rc.make_steps([filtered, loop], np.zeros((2, 2)), wanted=np.zeros((2, 1)))
