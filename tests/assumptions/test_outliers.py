"""Samples that drive the least norm: planted ones are found and named, and nothing else is."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.assumptions.intervals import step_observations
from rkhs_control.assumptions.outliers import sample_drivers
from rkhs_control.assumptions.priors import AffinePrior, fitted_priors

KERNEL = rc.SquaredExponential(1.5)


def sampled(rng, n=120):
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 0] * X[:, 1] + rng.uniform(-0.1, 0.1, n)


def test_a_planted_outlier_is_named_with_what_it_does_to_the_least_norm(rng):
    X, y = sampled(rng)
    clean = rc.least_norm_estimate(rc.Observations(np.delete(X, 77, axis=0), np.delete(y, 77), 0.1), KERNEL).value
    y[77] += 1.0
    data = rc.Observations(X, y, 0.1)
    (driver,) = rc.norm_drivers(data, KERNEL)
    assert driver.rows == (77,)
    assert driver.after == pytest.approx(clean, rel=1e-6)
    assert driver.before > 10.0 * driver.after
    assert driver.text == f"without row 77 the least norm falls from {driver.before:.3g} to {driver.after:.3g}"


def test_nothing_is_named_where_noise_keeps_its_bound():
    for seed in range(10):
        X, y = sampled(np.random.default_rng(seed))
        assert rc.norm_drivers(rc.Observations(X, y, 0.1), KERNEL) == ()


def test_data_that_zero_explains_have_no_drivers(rng):
    assert rc.norm_drivers(rc.Observations(rng.normal(size=(20, 2)), np.zeros(20), 0.1), KERNEL) == ()


def test_two_outliers_are_named_though_leaving_out_one_gains_little(rng):
    """On a short lengthscale their norms add as squares: the first alone gains a factor of less than 1.5."""
    X, y = np.arange(40.0)[:, None], rng.uniform(-0.1, 0.1, 40)
    y[10], y[30] = 5.0, -5.0
    first, second = rc.norm_drivers(rc.Observations(X, y, 0.1), rc.SquaredExponential(0.5))
    assert {first.rows, second.rows} == {(10,), (30,)}
    assert first.factor < 1.5 < second.factor
    assert second.text.startswith(f"without row {second.rows[0]} as well the least norm falls")


def test_no_more_are_named_than_asked_for(rng):
    X, y = np.arange(40.0)[:, None], rng.uniform(-0.1, 0.1, 40)
    y[[10, 20, 30]] = 5.0, -20.0, 80.0
    data, kernel = rc.Observations(X, y, 0.1), rc.SquaredExponential(0.5)
    assert [driver.rows for driver in rc.norm_drivers(data, kernel)] == [(30,), (20,), (10,)]
    assert [driver.rows for driver in rc.norm_drivers(data, kernel, most=1)] == [(30,)]
    with pytest.raises(rc.InputError, match="most must be at least 1"):
        rc.norm_drivers(data, kernel, most=0)


def logged(rng, spike=None, n=600):
    """Two temperatures of a heated block, measured to 0.05; `spike` is the sample and output that is wrong by 2."""
    heater = np.repeat(rng.uniform(20.0, 60.0, n // 12 + 1), 12)[:n]
    x, states = np.array([30.0, 30.0]), [np.array([30.0, 30.0])]
    for u in heater:
        core, surface = x
        x = np.array([core + 0.08 * (20.0 + 0.5 * u - core), surface + 0.15 * (core - surface)])
        states.append(x)
    measured = np.array(states) + rng.uniform(-0.05, 0.05, (n + 1, 2))
    if spike is not None:
        measured[spike] += 2.0
    return measured, heater[:, None]


def windows(rng, *spikes, **shape):
    runs = rc.Trajectories.from_recordings(
        [logged(rng, spike) for spike in spikes], 3, noise_bound=0.05, state_names=["core", "surface"], **shape
    )
    return runs, rc.SquaredExponential(tuple(2.0 * runs.arguments(1).std(axis=0)))


@pytest.mark.parametrize("output", [0, 1])
def test_an_outlier_in_a_recording_is_named_by_recording_sample_and_output(rng, output):
    """Histories hold it, too: it is left out with all windows that know of it."""
    runs, kernel = windows(rng, None, (412, output), output_lags=2, input_lags=1, every=4)
    (text,) = rc.norm_outliers(runs, kernel, fitted_priors(runs))
    name = runs.state_names[output]
    assert text.startswith(
        f"without recording 1, sample 412, {name} (step 1 of the window that begins at 408) the least norm of {name} "
        "at step 1 falls from "
    )
    (driver,) = sample_drivers(runs, 1, output, kernel, fitted_priors(runs)[0][output])
    assert driver.place == (1, 412)
    begins = sorted(4 * first for recording, first in runs.origins[list(driver.rows)] if recording == 1)
    assert begins == [408, 412, 416]


def test_recordings_without_an_outlier_name_nothing():
    for seed in range(4):
        runs, kernel = windows(np.random.default_rng(seed), None, output_lags=2, input_lags=1, every=4)
        assert rc.norm_outliers(runs, kernel, fitted_priors(runs)) == []


def test_of_samples_that_share_their_windows_the_one_whose_output_is_off_is_named(rng):
    """Where windows are missing, the sample before it goes with the same windows."""
    runs, kernel = windows(rng, (412, 0), output_lags=2, input_lags=1, every=4)
    part = runs.subset(~np.isin(runs.origins[:, 1], [101, 104]))
    (driver,) = sample_drivers(part, 1, 0, kernel, fitted_priors(part)[0][0])
    assert driver.place == (0, 412)
    assert part.origins[list(driver.rows), 1].tolist() == [102, 103]


def test_factors_count_down_to_what_noise_could_hide(rng):
    X, y = np.arange(40.0)[:, None], np.zeros(40)
    y[10] = 5.0
    (driver,) = rc.norm_drivers(rc.Observations(X, y, 0.1), rc.SquaredExponential(0.5))
    assert driver.after == 0.0
    assert driver.factor == pytest.approx(driver.before / 0.3)


def test_kernels_and_priors_may_be_tables(rng):
    runs, kernel = windows(rng, (412, 0), output_lags=2, input_lags=1, every=4)
    priors = fitted_priors(runs)
    assert rc.norm_outliers(runs, [[kernel] * 2] * 3, priors) == rc.norm_outliers(runs, kernel, priors)
    with pytest.raises(rc.InputError, match="step must be 1 to 3; got 4"):
        rc.norm_outliers(runs, kernel, step=4)


def test_an_outlier_of_a_whole_run_is_named_by_run_and_step(rng):
    x0, inputs = rng.uniform(-1.0, 1.0, (60, 1)), rng.uniform(-1.0, 1.0, (60, 2, 1))
    states = [x0]
    for k in range(2):
        states.append(0.8 * states[-1] + 0.3 * inputs[:, k])
    measured = np.stack(states, axis=1) + rng.uniform(-0.02, 0.02, (60, 3, 1))
    measured[:, 0] = x0
    measured[23, 2] += 1.0
    runs = rc.Trajectories(measured, inputs, 0.02, state_names=["x"])
    assert rc.norm_outliers(runs, rc.SquaredExponential(2.0)) == []
    (text,) = rc.norm_outliers(runs, rc.SquaredExponential(2.0), step=2)
    assert text.startswith("without run 23, step 2, x the least norm of x at step 2 falls from ")


def test_equal_histories_that_contradict_each_other_do_not_stop_the_search(rng):
    """Coarse readings repeat. What follows the same history and input then differs, by 60 where one is wrong."""
    heater = np.repeat(rng.integers(-2, 3, 40), 8)[:, None].astype(float)
    outputs = [0.0]
    for u in heater[:, 0]:
        outputs.append(0.9 * outputs[-1] + u)
    coarse = np.round(np.array(outputs))[:, None]
    histories, counts = np.unique(np.column_stack([coarse[:-1], heater]), axis=0, return_counts=True)
    often = histories[np.argmax(counts)]
    place = 1 + int(np.flatnonzero((np.column_stack([coarse[:-1], heater]) == often).all(axis=1))[1])
    coarse[place] += 60.0
    runs = rc.Trajectories.from_recordings([(coarse, heater)], 1, noise_bound=0.5, state_names=["T"])
    prior = AffinePrior(0.0, (0.9, 1.0))
    with pytest.raises(rc.ContradictoryDataError):
        step_observations(runs, 1, 0, 0.95, prior)
    (text,) = rc.norm_outliers(runs, rc.SquaredExponential((10.0, 2.0)), prior)
    assert text.startswith(f"without recording 0, sample {place}, T (step 1 of the window that begins at {place - 1})")
