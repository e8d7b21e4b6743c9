"""What is chosen from runs: sensible, reproducible, with its provenance."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from plants import recorded

import rkhs_control as rc


@pytest.fixture(scope="module")
def runs(plant):
    return recorded(plant, np.random.default_rng(3), n_runs=80, n_steps=2)


def test_without_candidates_lengthscales_follow_the_units(runs):
    """The same runs in other units: the same predictor, in other units."""
    factors = np.array([1000.0, 0.01])
    other = rc.Trajectories(runs.states * factors, runs.inputs * 60.0, runs.noise_bound * factors)
    here, there = (rc.select_assumptions(r, rng=np.random.default_rng(0)) for r in (runs, other))
    for n in range(2):
        scale = np.concatenate([factors, np.full(n + 1, 60.0)])
        for i in range(2):
            lengthscales = np.array(here.kernels[n][i].lengthscale) * scale
            np.testing.assert_allclose(there.kernels[n][i].lengthscale, lengthscales, rtol=1e-9)
            bound = here.norm_bounds[n][i].value * factors[i]
            np.testing.assert_allclose(there.norm_bounds[n][i].value, bound, rtol=1e-6)


def test_shares_and_order_of_the_work_do_not_matter(runs):
    one, two = (rc.select_assumptions(runs, rng=np.random.default_rng(7), n_jobs=jobs) for jobs in (1, 2))
    assert one.kernels == two.kernels
    assert one.norm_bounds == two.norm_bounds
    assert one.regularisations == two.regularisations


def test_per_dimension_lengthscales_differ_and_predict_no_worse(plant, runs):
    isotropic = rc.select_assumptions(runs, [5.0, 20.0, 80.0])
    chosen = rc.select_assumptions(runs, [5.0, 20.0, 80.0], per_dimension=True)
    held_out = recorded(plant, np.random.default_rng(4), n_runs=100, n_steps=2)
    errors = []
    for selection in (isotropic, chosen):
        model = rc.kernel_ridge(
            rc.Observations(runs.arguments(2), runs.states[:, 2, 1], 0.06),
            selection.kernels[1][1],
            selection.regularisations[1][1],
        )
        errors.append(np.mean((model(held_out.arguments(2)) - held_out.states[:, 2, 1]) ** 2))
    assert len(set(chosen.kernels[1][1].lengthscale)) > 1
    assert errors[1] <= 1.1 * errors[0]


def test_norm_estimates_say_where_they_come_from(runs):
    least = rc.select_assumptions(runs, [20.0])
    interpolant = rc.select_assumptions(runs, [20.0], norm_estimate="interpolant", safety_factor=1.2)
    assert least.norm_bounds[0][0].provenance.startswith("least norm through 80 intervals")
    assert least.norm_bounds[0][0].provenance.endswith(", times 3")
    assert interpolant.norm_bounds[0][0].provenance.startswith("norm of the interpolant of 80 samples")
    # Noise taken for signal is most of it
    assert interpolant.norm_bounds[0][0].value > 10.0 * least.norm_bounds[0][0].value


def test_progress_counts_every_step_and_state(runs):
    seen = []
    rc.select_assumptions(runs, [20.0], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")  # below the noise, norms grow with the data
def test_runs_that_had_no_part_refute_a_noise_bound_that_is_too_small(plant, runs):
    """By a norm bound that they refute, or, far below the noise, by norms that nobody can compute."""
    more = recorded(plant, np.random.default_rng(5), n_runs=200, n_steps=2)
    for noise_bound, error in ((0.045, rc.FalsifiedNormBoundError), (0.01, rc.SolverError)):
        few, many = (rc.Trajectories(r.states, r.inputs, noise_bound) for r in (runs, more))
        with pytest.raises(error, match=r"step 1, state x_0: .* raise noise_bound if that is too small"):
            rc.MultiStepPredictor.select(many, [20.0, 40.0], selection=few)


def saturating(n_runs, is_smooth):
    rng = np.random.default_rng(8)
    states, inputs = rng.uniform(-1.5, 1.5, (n_runs, 3, 1)), rng.uniform(-2.0, 2.0, (n_runs, 2, 1))
    for n in range(2):
        u = inputs[:, n] if is_smooth else np.clip(inputs[:, n], -1.0, 1.0)
        states[:, n + 1] = 0.8 * states[:, n] + 0.5 * u
    states[:, 1:] += rng.uniform(-0.02, 0.02, states[:, 1:].shape)
    return rc.Trajectories(states, inputs, 0.024)


def test_norm_estimates_that_have_not_settled_are_named_with_a_cure():
    """A saturating input fits no smooth kernel: the second half of the data still raises the estimate."""
    with pytest.warns(rc.UnsettledNormWarning, match=r"x_0 at step 1 \(times .*\).*rougher kernel") as caught:
        selection = rc.select_assumptions(saturating(100, is_smooth=False))
    assert str(caught[0].message) == selection.doubt
    assert selection.growth[0][0][-1] > 1.5 * selection.growth[0][0][-2]


def test_norm_estimates_of_a_smooth_plant_settle():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection = rc.select_assumptions(saturating(100, is_smooth=True))
    assert selection.doubt == ""
    assert all((np.diff(norms) >= 0.0).all() for row in selection.growth for norms in row)


def test_wrong_settings_are_refused_by_name(runs):
    with pytest.raises(rc.InputError, match="norm_estimate must be 'least_norm' or 'interpolant'; got 'both'"):
        rc.select_assumptions(runs, [20.0], norm_estimate="both")
    with pytest.raises(rc.InputError, match="lengthscales"):
        rc.select_assumptions(runs, [-1.0])


def test_of_lengthscales_that_do_equally_well_the_shortest_is_chosen(runs):
    """Beyond some length all are alike on noisy data; what is assumed is then the least."""
    chosen = rc.select_assumptions(runs, [20.0, 500.0, 1000.0, 2000.0])
    assert all(kernel.lengthscale == 20.0 for row in chosen.kernels for kernel in row)


def test_uncertain_initial_states_do_not_blow_up_the_norm(plant):
    noisy = recorded(plant, np.random.default_rng(6), n_runs=150, n_steps=1, noise=0.005, initial_noise=0.02)
    with pytest.raises(rc.SolverError, match=r"state c_B: .* it is at least \d\.\d+e\+"):  # taken as exact
        rc.select_assumptions(noisy, [10.0, 20.0])
    careful = rc.select_assumptions(noisy, [10.0, 20.0], initial_state_noise=0.02)
    after = careful.norm_bounds[0][1]
    assert after.value < 1e3
    assert "widened for uncertain initial states" in after.provenance
    predictor = rc.MultiStepPredictor.select(noisy, [10.0, 20.0], initial_state_noise=0.02)
    x0 = np.random.default_rng(7).uniform([1.3, 0.7], [2.7, 1.7], (50, 2))
    inputs = np.full((50, 1, 1), 14.0)
    assert predictor.boxes(x0, inputs).contains(plant.simulate(x0, inputs)[:, 1:]).all()


def test_runs_say_how_uncertain_their_initial_states_are(plant):
    noisy = recorded(plant, np.random.default_rng(6), n_runs=60, n_steps=1, noise=0.005, initial_noise=0.02)
    known = replace(noisy, initial_state_noise=0.02)
    by_runs, told = rc.select_assumptions(known, [20.0]), rc.select_assumptions(noisy, [20.0], initial_state_noise=0.02)
    assert by_runs.norm_bounds == told.norm_bounds
    exact = rc.select_assumptions(known, [20.0], initial_state_noise=0.0)
    assert exact.norm_bounds == rc.select_assumptions(noisy, [20.0]).norm_bounds != told.norm_bounds


def test_default_choice_holds_for_a_pendulum():
    """Where the longest lengthscales would do best in cross-validation and leave the truth out."""
    rng = np.random.default_rng(0)
    x0, inputs = rng.uniform([-1.2, -2.5], [1.2, 2.5], (150, 2)), rng.uniform(-1, 1, (150, 4, 1))
    states = pendulum(x0, inputs)
    states[:, 1:] += rng.uniform(-0.02, 0.02, states[:, 1:].shape)
    swings = rc.Trajectories(states, inputs, 0.02)
    with pytest.warns(rc.UnsettledNormWarning, match="x_0 at step 4"):
        predictor = rc.MultiStepPredictor.select(swings, selection=swings.subset(np.arange(75)), rng=rng)
    x0, inputs = rng.uniform([-1.2, -2.5], [1.2, 2.5], (100, 2)), rng.uniform(-1, 1, (100, 4, 1))
    assert predictor.boxes(x0, inputs).contains(pendulum(x0, inputs)[:, 1:]).all()


def pendulum(x0, inputs, dt=0.01):
    """By the classical Runge-Kutta method, ten steps per sample."""
    x, states = x0.T, [x0]
    for k in range(inputs.shape[1]):

        def slope(x, u=inputs[:, k, 0]):
            return np.array([x[1], -9.81 * np.sin(x[0]) - 0.2 * x[1] + 3.0 * u])

        for _ in range(10):
            a = slope(x)
            b = slope(x + dt / 2 * a)
            c = slope(x + dt / 2 * b)
            x = x + dt / 6 * (a + 2 * b + 2 * c + slope(x + dt * c))
        states.append(x.T)
    return np.stack(states, axis=1)


def test_windows_with_equal_measured_starts_and_different_ends_contradict_nothing(rng):
    """Coarsely quantised recordings: equal arguments are not equal states."""
    x, inputs = [0.3], rng.choice([-1.0, 0.0, 1.0], 60)
    for u in inputs:
        x.append(2.0 * np.sin(1.7 * x[-1]) + 0.3 * u)
    recorded_x = np.round(np.array(x) / 0.25) * 0.25
    runs = rc.Trajectories.from_recordings([(recorded_x[:, None], inputs[:, None])], horizon=2, noise_bound=0.125)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.UnsettledNormWarning)
        predictor = rc.MultiStepPredictor.select(runs)
    assert predictor.runs.has_residual_bound
    assert predictor.initial_state_noise.tolist() == [0.0]
    assert not predictor.contradictions(runs).any()


def test_kernels_are_chosen_by_name_as_in_scenarios(runs):
    by_name = rc.select_assumptions(runs, [2.0], kernel="matern52")
    assert by_name.kernels == rc.select_assumptions(runs, [2.0], kernel=rc.Matern52).kernels
    with pytest.raises(rc.InputError, match="there is no kernel 'matern53'; there is: squared_exponential, matern12"):
        rc.select_assumptions(runs, [2.0], kernel="matern53")
