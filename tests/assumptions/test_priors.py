"""Affine priors: exact where they are said to be, and of no influence on what is true."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.assumptions.intervals import step_observations
from rkhs_control.assumptions.priors import AffineFit, AffinePrior, is_flat, norm_left_open, priors_for, residual


def exact(prior, z):
    return Fraction(prior.offset) + sum(
        Fraction(a) * Fraction(v) for a, v in zip(prior.slopes, z.tolist(), strict=True)
    )


def test_residuals_hold_the_truth_in_exact_arithmetic(rng):
    for _ in range(200):
        n_dims = int(rng.integers(1, 8))
        prior = AffinePrior(rng.normal() * 10.0 ** rng.uniform(-8, 8), tuple(rng.normal(size=n_dims) * 1e3))
        Z = rng.normal(size=(5, n_dims)) * 10.0 ** rng.uniform(-6, 6)
        y, bound = rng.normal(size=5) * 10.0 ** rng.uniform(-8, 8), 10.0 ** rng.uniform(-20, 0)
        rest, wider = residual(prior, Z, y, bound)
        for z, value, r, w in zip(Z, y.tolist(), rest.tolist(), wider.tolist(), strict=True):
            truth = Fraction(value) - exact(prior, z)
            assert abs(Fraction(r) - truth) + Fraction(bound) <= Fraction(w)
        for z, value, error in zip(Z, prior(Z).tolist(), prior.error(Z).tolist(), strict=True):
            assert abs(Fraction(value) - exact(prior, z)) <= Fraction(error)


def test_change_is_that_of_the_worst_corner(rng):
    prior = AffinePrior(1.0, (2.0, -3.0, 0.5))
    assert prior.change(np.array([0.25, 0.5])) == pytest.approx(2.0)
    assert prior.change(np.array([0.25, 0.5])) >= 2.0
    assert prior.change(np.zeros(2)) == 0.0


def test_a_fitted_prior_is_the_plane_through_data_that_lie_in_one(rng):
    Z = rng.normal(size=(40, 3)) * np.array([1.0, 1e3, 1e-3]) + np.array([5.0, 0.0, 1.0])
    y = 2.0 + Z @ np.array([1.0, -0.01, 300.0])
    prior = AffinePrior.fitted(Z, y)
    np.testing.assert_allclose(prior.slopes, [1.0, -0.01, 300.0], rtol=1e-6)
    np.testing.assert_allclose(prior(Z), y, rtol=1e-9)
    constant = AffinePrior.fitted(np.column_stack([Z, np.ones(40)]), y)
    assert constant.slopes[3] == 0.0


def of_feedback(rng, n=200, noise=0.05):
    """Inputs are a function of the state: nothing tells what either does alone."""
    x = rng.normal(size=(n, 1))
    Z = np.column_stack([x, 2.0 * x, 4.0 * x + 1e-4 * rng.normal(size=(n, 1))])
    return Z, (x + 0.3 * x**2)[:, 0] + rng.uniform(-noise, noise, n)


def test_slopes_that_data_of_a_feedback_do_not_tell_are_not_made_up(rng):
    Z, y = of_feedback(rng)
    by_least_squares = np.linalg.lstsq(Z - Z.mean(axis=0), y - y.mean(), rcond=1e-6)[0]
    prior = AffinePrior.fitted(Z, y, 0.05)
    assert np.abs(by_least_squares).max() > 10.0
    assert np.abs(prior.slopes).max() < 1.0
    assert np.sqrt(np.mean((y - y.mean()) ** 2)) > 2.0 * np.sqrt(np.mean((y - prior(Z)) ** 2))


def test_norms_allow_for_the_slopes_that_data_leave_open(rng):
    Z, y = of_feedback(rng)
    told = rng.normal(size=Z.shape), (rng.normal(size=len(Z)))
    variance = rc.SquaredExponential(5.0).derivative_variance(3)
    open_norms = []
    for X, outputs in ((Z, y), told):
        runs = rc.Trajectories(np.stack([X[:, :2], np.column_stack([outputs, outputs])], axis=1), X[:, None, 2:], 0.05)
        assert norm_left_open(None, runs, 1, 0, variance) == 0.0
        open_norms.append(norm_left_open(AffinePrior.fitted(X, outputs, 0.05), runs, 1, 0, variance))
    assert open_norms[0] > y.std()  # a slope of about the outputs' spread per spread of an argument, and more
    assert open_norms[1] < 0.5 * open_norms[0]


def test_that_arguments_differ_by_noise_tells_nothing_of_slopes(rng):
    x = rng.normal(size=300)
    Z = np.column_stack([x + rng.uniform(-0.2, 0.2, 300), 3.0 * x])
    blind, knowing = (AffineFit.of(Z, x, 0.01, blur).doubts for blur in (None, np.array([0.2])))
    assert np.abs(knowing).max() > 3.0 * np.abs(blind).max()


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
@pytest.mark.parametrize("by_feedback", [False, True])
def test_the_truth_is_inside_with_a_prior_whatever_inputs_were_recorded(plant, rng, by_feedback):
    """Also for plans that no feedback would make, where those are all that was recorded."""
    from plants import feedback_inputs, recorded

    runs = recorded(plant, np.random.default_rng(5))
    if not by_feedback:
        inputs = rng.uniform(3.0, 25.0, runs.inputs.shape)
        states = plant.simulate(runs.states[:, 0], inputs)
        states[:, 1:] += rng.uniform(-0.05, 0.05, states[:, 1:].shape)
        runs = replace(runs, states=states, inputs=inputs)
    without, with_prior = (rc.MultiStepPredictor.select(runs, prior=prior) for prior in (None, "affine"))
    in_one_space = [rc.MultiStepPredictor.select(runs, [10.0], prior=prior) for prior in (None, "affine")]
    norms = [np.mean([[b.value for b in row] for row in p.norm_bounds]) for p in in_one_space]
    assert norms[1] < (1.0 if by_feedback else 0.5) * norms[0]
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (40, 2))
    for inputs in (feedback_inputs(plant, x0, 3), rng.uniform(3.0, 25.0, (40, 3, 1))):
        truth = plant.simulate(x0, inputs)[:, 1:]
        assert all(p.boxes(x0, inputs).contains(truth).all() for p in (without, with_prior))


def test_a_prior_of_zero_changes_no_bit(plant):
    from plants import recorded

    runs = recorded(plant, np.random.default_rng(5), n_runs=40)
    data, same = (step_observations(runs, 2, 1, prior=prior) for prior in (None, AffinePrior(0.0, (0.0,) * 4)))
    np.testing.assert_array_equal(data.X, same.X)
    np.testing.assert_allclose(data.lower, same.lower, rtol=0.0, atol=1e-14)
    assert (same.lower <= data.lower).all()


def test_a_constant_prior_is_the_mean_of_the_runs_and_leaves_no_slope_open(plant):
    from plants import recorded

    runs = recorded(plant, np.random.default_rng(5), n_runs=40)
    for n, row in enumerate(priors_for("constant", runs), start=1):
        for i, prior in enumerate(row):
            assert is_flat(prior)
            np.testing.assert_allclose(prior(runs.arguments(n)), runs.states[:, n, i].mean())
            assert norm_left_open(prior, runs, n, i, np.ones(2 + n)) == 0.0
    assert not any(is_flat(prior) for row in priors_for("affine", runs) for prior in row)


def test_priors_of_the_wrong_size_or_name_are_refused(plant):
    from plants import recorded

    runs = recorded(plant, np.random.default_rng(5), n_runs=30)
    with pytest.raises(rc.InputError, match=r"priors\[0\] must have 3 slopes; got 2"):
        rc.MultiStepPredictor(runs, rc.SquaredExponential(20.0), 50.0, priors=AffinePrior(0.0, (1.0, 2.0)))
    with pytest.raises(
        rc.InputError, match=r"prior must be .constant., .affine., None, or a function .*; got .linear."
    ):
        rc.MultiStepPredictor.select(runs, prior="linear")


def test_plans_on_models_with_priors_predict_what_these_say(plant):
    from plants import quadratic, recorded

    runs = recorded(plant, np.random.default_rng(5))
    predictor = rc.MultiStepPredictor.select(runs, [20.0], prior="affine")
    nominal = rc.CertaintyEquivalentOCP.from_predictor(
        predictor,
        regularisations=1e-2,
        cost=quadratic(plant),
        limits=rc.Limits(rc.Box([0.0, 0.0], [9.0, 9.0]), plant.input_limits),
    )
    start = np.array([2.3, 0.9])
    plan = nominal.solve(start)
    z = np.array([[*start, *plan.inputs.ravel()]])
    np.testing.assert_allclose([model(z)[0] for model in nominal.models[2]], plan.states[2], rtol=1e-9)
    limits = raised_limits(predictor, start, plan.inputs)
    found = rc.RobustOCP(predictor, nominal, limits).solve(start)
    assert found.certificate.verdict.name == "CERTIFIED", found.certificate.explain()


def raised_limits(predictor, start, inputs):
    """Limits that the plan's box passes by a little."""
    tube = predictor.boxes(start, inputs)
    low = float(tube.lower[:, 1].min())
    return rc.Box([0.0, low + 0.05 * float((tube.upper - tube.lower)[:, 1].min())], [9.0, 9.0])
