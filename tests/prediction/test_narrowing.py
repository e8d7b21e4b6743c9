"""Rounds of narrowing: each proved by the one before, never wider, and refused with what they were not made for."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.assumptions.priors import AffinePrior
from rkhs_control.prediction.narrowing import UncertainSamples

KERNEL, NORM = rc.SquaredExponential(2.0), 20.0


@pytest.fixture
def runs(rng):
    """Of a smooth plant with two states, one of which is measured; some recorded arguments twice."""
    Z = rng.uniform(-1, 1, (25, 3))
    Z[20:] = Z[:5]
    true = Z[:, :2] + rng.choice([-1.0, 1.0], (25, 2)) * [0.05, 0.0]
    states = np.stack([Z[:, :2], np.stack([np.sin(true[:, 0] + Z[:, 2]), true[:, 1] * true[:, 0]], axis=1)], axis=1)
    return rc.Trajectories(states, Z[:, None, 2:], 0.001, initial_state_noise=[0.05, 0.0])


@pytest.fixture
def predictor(runs):
    return rc.MultiStepPredictor(runs, KERNEL, NORM)


@pytest.fixture
def plans(rng):
    return rng.uniform(-0.8, 0.8, (5, 2)), rng.uniform(-0.8, 0.8, (5, 1, 1))


def samples_of(predictor, i=0):
    return UncertainSamples.of(predictor.runs, 1, i, KERNEL, predictor.norm_bounds[0][i].value, predictor.priors[0][i])


def test_every_round_narrows_and_never_widens_an_interval(predictor):
    samples, rounds = samples_of(predictor), predictor.narrowing[0][0]
    chain = [samples.widening(rounds[:r]) for r in range(len(rounds) + 1)]
    assert len(rounds) > 1
    for before, after in pairwise(chain):
        assert (after <= before).all()
        assert after.mean() < before.mean()
    assert chain[-1].max() < 0.8 * chain[0].max()


def test_more_rounds_never_widen_boxes(runs, plans):
    tubes = [rc.MultiStepPredictor(runs, KERNEL, NORM, rounds=rounds).boxes(*plans) for rounds in range(4)]
    for before, after in pairwise(tubes):
        assert (after.upper <= before.upper + after.gap).all()
        assert (after.lower >= before.lower - after.gap).all()
    assert (tubes[3].upper - tubes[3].lower).mean() < 0.8 * (tubes[0].upper - tubes[0].lower).mean()


def test_samples_and_their_boxes_are_in_the_order_of_the_intervals(predictor):
    samples = samples_of(predictor)
    data = samples.observations(samples.widest)
    assert len(data) == 20
    np.testing.assert_array_equal(samples.boxes.centres, data.X)
    Z = np.repeat(np.where(np.arange(25)[:, None] % 2, 0.0, -0.0), 3, axis=1)  # zeros of both signs are one argument
    samples = replace(samples, Z=Z, rest=np.zeros(25))
    assert len(samples.boxes.centres) == len(samples.observations(samples.widest)) == 1


def test_widening_belongs_to_the_argument_and_not_to_the_row(predictor):
    samples = samples_of(predictor)
    wider = samples.observations(np.arange(20.0))
    np.testing.assert_allclose((wider.upper - wider.lower)[5:20], 2 * (np.arange(5.0, 20.0) + 0.001), rtol=1e-12)


def test_bounds_of_slopes_are_not_below_the_exact_value_of_their_weights(predictor):
    samples = samples_of(predictor)
    data, slopes = samples.observations(samples.widest), predictor.narrowing[0][0][0]
    bounds = slopes.bounds(data, NORM).reshape(-1)
    lower, upper = ([Fraction(end) for end in ends.tolist()] for ends in (data.lower, data.upper))
    for q, bound in enumerate(bounds.tolist()):
        exact = Fraction(NORM) * Fraction(float(slopes.norms[q]))
        for k in range(slopes.starts[q], slopes.starts[q + 1]):
            weight, i = Fraction(float(slopes.weights[k])), slopes.indices[k]
            low, high = (lower[i], upper[i]) if q % 2 == 0 else (-upper[i], -lower[i])
            exact += max(weight * low, weight * high)
        assert Fraction(bound) >= exact
        assert bound <= float(exact) + 1e-11 * NORM


@pytest.mark.parametrize("factors", [{"norm": 2.0}, {"noise": 1.5}, {"norm": 3.0, "noise": 2.0}], ids=str)
def test_weaker_assumptions_have_boxes_and_intervals_that_hold_the_former(predictor, plans, factors):
    weaker = predictor.scaled(**factors)
    boxes, former = weaker.boxes(*plans, initial_state_noise=[0.05, 0.0]), predictor.boxes(*plans)
    assert (boxes.upper >= former.upper - former.gap).all()
    assert (boxes.lower <= former.lower + former.gap).all()
    for i in range(2):
        data, narrow = weaker.envelope(1, i).data, predictor.envelope(1, i).data
        assert (data.lower <= narrow.lower).all()
        assert (data.upper >= narrow.upper).all()


@pytest.mark.parametrize("factors", [{"norm": 2.0}, {"norm": 0.8}, {"noise": 1.5}], ids=str)
def test_scaled_predictors_prove_no_less_than_without_rounds_and_hardly_less_than_anew(runs, predictor, plans, factors):
    def built(rounds):
        noise, norm = factors.get("noise", 1.0), factors.get("norm", 1.0) * NORM
        start = noise * runs.initial_state_noise
        other = replace(runs, noise_bound=noise * runs.noise_bound, initial_state_noise=start)
        return rc.MultiStepPredictor(other, KERNEL, norm, rounds=rounds)

    scaled, plain, anew = (p.boxes(*plans) for p in (predictor.scaled(**factors), built(0), built(3)))
    assert (scaled.upper <= plain.upper + scaled.gap).all()
    assert (scaled.lower >= plain.lower - scaled.gap).all()
    assert (scaled.upper - scaled.lower).mean() < 1.2 * (anew.upper - anew.lower).mean()
    back = predictor.scaled(**factors).scaled(**{name: 1.0 / factor for name, factor in factors.items()})
    np.testing.assert_allclose(back.boxes(*plans).upper, predictor.boxes(*plans).upper, rtol=1e-9)


def test_histories_without_noise_widen_nothing_whatever_rounds_there_were(predictor):
    exact = replace(samples_of(predictor), noise=np.zeros(2))
    assert exact.widening(predictor.narrowing[0][0]).tolist() == [0.0] * 20


def test_saved_predictors_have_their_rounds_and_the_same_bits(predictor, plans, tmp_path, monkeypatch):
    rc.save_predictor(predictor, tmp_path / "predictor.npz")
    monkeypatch.setattr(UncertainSamples, "rounds", None)  # they are not looked for again
    after = rc.load_predictor(tmp_path / "predictor.npz")
    assert [len(rounds) for rounds in after.narrowing[0]] == [len(rounds) for rounds in predictor.narrowing[0]]
    np.testing.assert_array_equal(after.widenings, predictor.widenings)
    for name in ("lower", "upper"):
        np.testing.assert_array_equal(getattr(after.boxes(*plans), name), getattr(predictor.boxes(*plans), name))
        np.testing.assert_array_equal(
            getattr(after.scaled(norm=1.5).boxes(*plans), name), getattr(predictor.scaled(norm=1.5).boxes(*plans), name)
        )


@pytest.mark.parametrize("what", ["kernels", "runs", "initial_state_noise"])
def test_rounds_that_were_found_with_something_else_are_refused(predictor, runs, what):
    """Their norms are those of other functionals: what they prove need not hold."""
    changed = {
        "kernels": rc.SquaredExponential(0.5),
        "runs": runs.subset(np.arange(24, -1, -1)),
        "initial_state_noise": [0.0, 0.05],
    }
    with pytest.raises(rc.InputError, match="step 1, state x_0: narrowing was found with other runs, another kernel"):
        replace(predictor, **{what: changed[what]})
    anew = replace(predictor, **{what: changed[what], "narrowing": None})
    assert np.isfinite(anew.widenings[0][0]).all()


def test_large_slopes_of_a_prior_widen_intervals_by_what_they_do(runs):
    prior = AffinePrior(0.0, (100.0, 0.0, 0.0))
    states = runs.states.copy()
    states[:, 1, 0] += 100.0 * runs.states[:, 0, 0]
    steep = rc.MultiStepPredictor(replace(runs, states=states), KERNEL, NORM, priors=[[prior, None]])
    assert (steep.widenings[0][0] > 0.05 * 95.0).all()
    assert (steep.widenings[0][0] < 0.05 * 110.0).all()


@pytest.mark.parametrize("kernel", [rc.Matern(2.0, nu=0.5), rc.Matern(2.0, nu=1.5)], ids=str)
def test_rough_kernels_are_not_narrowed(runs, kernel):
    predictor = rc.MultiStepPredictor(runs, kernel, 100.0)
    assert predictor.narrowing == (((), ()),)
    assert len(set(predictor.widenings[0][0].tolist())) == 1
