"""Multi-step predictors: every true state in its box, under every assumption that was stated."""

from dataclasses import replace

import numpy as np
import pytest
from plants import Pendulum, feedback_inputs, recorded

import rkhs_control as rc
from rkhs_control.models.quadruple_tank import QuadrupleTank


def test_true_states_lie_in_their_boxes(plant, predictor, rng):
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (50, 2))
    inputs = feedback_inputs(plant, x0, 3)
    tube = predictor.boxes(x0, inputs)
    assert tube.lower.shape == (50, 3, 2)
    assert tube.contains(plant.simulate(x0, inputs)[:, 1:]).all()
    assert np.median(tube.upper - tube.lower) < 0.2
    assert (tube.initial_state_cost == 0).all()


def test_one_plan_equals_its_row_among_many_and_shorter_plans_are_its_beginning(plant, predictor, rng):
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (4, 2))
    inputs = feedback_inputs(plant, x0, 3)
    many = predictor.boxes(x0, inputs)
    one = predictor.boxes(x0[2], inputs[2])
    np.testing.assert_allclose(one.lower, many.lower[2], rtol=1e-7)
    short = predictor.boxes(x0[2], inputs[2, :2])
    np.testing.assert_allclose(short.upper, one.upper[:2], rtol=1e-7)
    parallel = predictor.boxes(x0, inputs, n_jobs=2)
    np.testing.assert_allclose(parallel.upper, many.upper, rtol=1e-7)


def test_noise_of_the_planned_initial_state_widens_the_boxes_by_what_it_reports(plant, predictor, rng):
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (30, 2))
    inputs = feedback_inputs(plant, x0, 3)
    noise = np.array([0.01, 0.02])
    exact, blurred = predictor.boxes(x0, inputs), predictor.boxes(x0, inputs, initial_state_noise=noise)
    widened = (exact.lower - blurred.lower) + (blurred.upper - exact.upper)
    np.testing.assert_allclose(widened, blurred.initial_state_cost, rtol=1e-9)
    assert (blurred.upper > exact.upper).all()
    assert (blurred.lower < exact.lower).all()
    assert (widened < 2.0 * predictor.displacements(noise, 3)).all()  # what any function of the norm could do
    true_start = x0 + noise * rng.choice([-1.0, 1.0], x0.shape)
    assert blurred.contains(plant.simulate(true_start, inputs)[:, 1:]).all()


def test_noise_too_small_to_square_still_moves_the_ends_out(predictor):
    exact, blurred = (predictor.boxes([2.0, 1.0], [[14.0]], initial_state_noise=noise) for noise in (0.0, 1e-200))
    assert (blurred.upper > exact.upper).all()
    assert (blurred.lower < exact.lower).all()


def test_noise_of_recorded_initial_states_widens_every_interval(plant, predictor, rng):
    runs = recorded(plant, rng, initial_noise=0.01)
    kernels = [[envelope.kernel for envelope in row] for row in predictor.envelopes]
    bounds = [[envelope.norm_bound for envelope in row] for row in predictor.envelopes]
    careful = rc.MultiStepPredictor(runs, kernels, bounds, initial_state_noise=0.01, rounds=1)
    for n, row in enumerate(careful.envelopes):
        for i, envelope in enumerate(row):
            assert (envelope.data.half_width > runs.noise_bound[n, i]).all()
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (30, 2))
    inputs = feedback_inputs(plant, x0, 3)
    tube, trusting = careful.boxes(x0, inputs), rc.MultiStepPredictor(runs, kernels, bounds).boxes(x0, inputs)
    assert tube.contains(plant.simulate(x0, inputs)[:, 1:]).all()
    gained = (tube.upper - tube.lower) - (trusting.upper - trusting.lower)
    np.testing.assert_allclose(gained, tube.initial_state_cost, rtol=0.2)
    known = careful.boxes(x0, inputs, initial_state_noise=0.0)
    gained = (known.upper - known.lower) - (trusting.upper - trusting.lower)
    assert (known.initial_state_cost > 0).all()
    assert (gained >= known.initial_state_cost - 1e-6).all()
    closed = careful.with_method(rc.ClosedFormEnvelope).boxes(x0, inputs)
    assert np.isnan(closed.initial_state_cost).all()  # it has no witness to tell


def test_boxes_from_measured_states_hold_the_truth_and_those_of_exact_ones_do_not(windows):
    cut, test, truth = windows
    careful = rc.MultiStepPredictor.select(cut, [1.0, 2.0])
    assert careful.boxes(test.states[:, 0], test.inputs).contains(truth).all()
    assert not careful.contradictions(test).any()
    with pytest.warns(rc.UnsettledNormWarning, match="x_1 at step 2"):
        trusting = rc.MultiStepPredictor.select(cut, [1.0, 2.0], initial_state_noise=0.0)
    assert not trusting.boxes(test.states[:, 0], test.inputs).contains(truth).all()


def test_how_uncertain_initial_states_are_belongs_to_the_runs(windows):
    cut, test, _ = windows
    kernel = rc.SquaredExponential(2.0)
    by_runs, told = (
        rc.MultiStepPredictor(cut, kernel, 1e6, initial_state_noise=noise, rounds=0) for noise in (None, 0.1)
    )
    assert by_runs.initial_state_noise.tolist() == [0.02, 0.02]
    assert told.initial_state_noise.tolist() == told.runs.initial_state_noise.tolist() == [0.1, 0.1]
    assert cut.initial_state_noise.tolist() == [0.02, 0.02]
    whole = replace(test.subset([0, 5]), initial_state_noise=0.0)
    assert told.with_runs(whole).initial_state_noise.tolist() == [0.0, 0.0]
    assert told.with_method(rc.ClosedFormEnvelope).initial_state_noise.tolist() == [0.1, 0.1]
    assert told.scaled(noise=2.0).runs.initial_state_noise.tolist() == [0.2, 0.2]
    chosen = rc.MultiStepPredictor.select(cut, [2.0], initial_state_noise=[0.03, 0.04], rounds=0)
    assert chosen.runs.initial_state_noise.tolist() == [0.03, 0.04]


def test_plans_start_as_uncertain_as_recorded_initial_states(windows):
    cut, test, _ = windows
    predictor = rc.MultiStepPredictor(cut, rc.SquaredExponential(2.0), 1e3)
    x0, inputs = test.states[:5, 0], test.inputs[:5]
    default, same, exact = (
        predictor.boxes(x0, inputs, initial_state_noise=noise) for noise in (None, [0.02, 0.02], 0.0)
    )
    np.testing.assert_array_equal(default.upper, same.upper)
    assert (default.upper > exact.upper).all()
    assert (default.lower < exact.lower).all()


def test_held_out_windows_do_not_contradict_boxes_that_are_right(windows, rng):
    """Their initial states are only measured, whatever is known of those of the runs that made the boxes."""
    x0, inputs = rng.uniform([-0.6, -1.5], [0.6, 1.5], (80, 2)), rng.uniform(-1.0, 1.0, (80, 2, 1))
    runs = rc.Trajectories(Pendulum().simulate(x0, inputs), inputs, 0.002)
    predictor = rc.MultiStepPredictor.select(runs, [1.0, 2.0])
    _, test, _ = windows
    assert not predictor.contradictions(test).any()
    assert predictor.contradictions(replace(test, initial_state_noise=0.0)).any()


def test_refuted_assumptions_name_windows_that_are_taken_as_exact(windows):
    cut, _, _ = windows
    kernel, hint = rc.SquaredExponential(2.0), "the runs are windows that begin with measured states"
    with pytest.raises(rc.FalsifiedNormBoundError, match=f"{hint}: initial_state_noise, .*, is 0"):
        rc.MultiStepPredictor(cut, kernel, 0.1, initial_state_noise=0.0)
    twice = replace(cut, states=np.round(cut.states), inputs=np.round(cut.inputs), noise_bound=0.1)
    with pytest.raises(rc.ContradictoryDataError, match=hint):
        rc.MultiStepPredictor(twice, kernel, 1e9, initial_state_noise=0.0)
    for runs in (cut, replace(cut, origins=None, initial_state_noise=0.0)):
        with pytest.raises(rc.FalsifiedNormBoundError) as refusal:
            rc.MultiStepPredictor(runs, kernel, 0.01)
        assert "windows" not in str(refusal.value)


def test_saved_predictors_know_that_their_runs_are_windows(windows, tmp_path):
    predictor = rc.MultiStepPredictor(windows[0], rc.SquaredExponential(2.0), 1e6, rounds=0)
    rc.save_predictor(predictor, tmp_path / "predictor.npz")
    after = rc.load_predictor(tmp_path / "predictor.npz")
    assert after.initial_state_noise.tolist() == [0.02, 0.02]
    assert after.runs.origins.tolist() == windows[0].origins.tolist()
    with np.load(tmp_path / "predictor.npz") as arrays:
        before = {name: value for name, value in arrays.items() if name != "origins"}
    np.savez(tmp_path / "before.npz", **before)  # as files were before there were origins
    assert rc.load_predictor(tmp_path / "before.npz").initial_state_noise.tolist() == [0.02, 0.02]


def test_another_plant_with_more_states_and_inputs(rng):
    plant = QuadrupleTank()
    x0 = rng.uniform([11, 11, 1.2, 1.0], [14, 14, 2.2, 2.0], (80, 4))
    inputs = rng.uniform(2.5, 3.5, (80, 2, 2))
    states = plant.simulate(x0, inputs)
    states[:, 1:] += rng.uniform(-0.1, 0.1, states[:, 1:].shape)
    runs = rc.Trajectories(states, inputs, 0.1, plant.state_names, plant.input_names)
    predictor = rc.MultiStepPredictor.select(runs, [20.0, 40.0], safety_factor=3.0)
    tube = predictor.boxes(x0[:20] + 0.05, inputs[20:40])
    assert tube.contains(plant.simulate(x0[:20] + 0.05, inputs[20:40])[:, 1:]).all()


METHODS = [rc.OptimalEnvelope, rc.ClosedFormEnvelope, rc.EnergyEnvelope, rc.GaussianProcessEnvelope]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("initial_noise", [0.0, 0.005])
@pytest.mark.parametrize("factors", [{"norm": 2.0}, {"noise": 1.5}], ids=str)
def test_scaled_assumptions_equal_a_predictor_built_with_them(plant, predictor, rng, method, initial_noise, factors):
    bounds = [[envelope.radius for envelope in row] for row in predictor.envelopes]
    scaled_bounds = [[factors.get("norm", 1.0) * bound for bound in row] for row in bounds]
    runs = predictor.runs
    noise = factors.get("noise", 1.0)
    scaled_runs = replace(runs, noise_bound=runs.noise_bound * noise)
    settings = {"method": method, "initial_state_noise": initial_noise, "rounds": 0}
    scaled_settings = {"method": method, "initial_state_noise": noise * initial_noise, "rounds": 0}
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (3, 2))
    inputs = feedback_inputs(plant, x0, 3)
    before = rc.MultiStepPredictor(runs, predictor.kernels, bounds, **settings)
    before.boxes(x0, inputs)  # whatever it keeps must not leak into the other
    scaled = before.scaled(**factors).boxes(x0, inputs)
    built = rc.MultiStepPredictor(scaled_runs, predictor.kernels, scaled_bounds, **scaled_settings).boxes(x0, inputs)
    np.testing.assert_allclose(scaled.upper, built.upper, rtol=1e-9)
    np.testing.assert_allclose(scaled.lower, built.lower, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_saved_predictor_reads_back_to_the_same_boxes(plant, predictor, rng, method, tmp_path):
    before = rc.MultiStepPredictor(
        predictor.runs,
        [
            rc.Matern(20.0, nu=2.5),
            0.5 * rc.SquaredExponential((5.0, 5.0, 40.0, 40.0)) + rc.Matern(30.0),
            rc.Matern(30.0),
        ],
        rc.NormBound(300.0, "a guess"),
        method,
        {"nugget": 1e-6},
        [0.001, 0.002],
        rounds=0,
    )
    rc.save_predictor(before, tmp_path / "predictor.npz")
    after = rc.load_predictor(tmp_path / "predictor.npz")
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (2, 2))
    inputs = feedback_inputs(plant, x0, 3)
    np.testing.assert_array_equal(after.boxes(x0, inputs).upper, before.boxes(x0, inputs).upper)
    assert after.method is method
    assert after.runs.state_names == before.runs.state_names
    assert after.envelopes[2][1].norm_bound == rc.NormBound(300.0, "a guess")
    assert after.envelopes[1][0].kernel == before.envelopes[1][0].kernel


def test_files_that_are_no_predictors_are_refused(predictor, tmp_path):
    with pytest.raises(rc.InputError, match=r"ends in \.npz"):
        rc.save_predictor(predictor, tmp_path / "predictor.json")
    with pytest.raises(rc.InputError, match="there is no file"):
        rc.load_predictor(tmp_path / "predictor.npz")
    (tmp_path / "text.npz").write_text("nothing")
    np.savez(tmp_path / "other.npz", states=np.zeros(3))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(rc.InputError, match="not a file that save_predictor wrote"):
            rc.load_predictor(tmp_path / name)


def test_another_method_has_the_same_data_and_assumptions(plant, predictor, rng):
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (5, 2))
    inputs = feedback_inputs(plant, x0, 3)
    optimal, closed = predictor.boxes(x0, inputs), predictor.with_method(rc.ClosedFormEnvelope).boxes(x0, inputs)
    assert (closed.upper >= optimal.upper - optimal.gap).all()
    assert (closed.lower <= optimal.lower + optimal.gap).all()
    assert closed.volumes.mean() > 1.5 * optimal.volumes.mean()


def test_held_out_runs_contradict_wrong_assumptions_and_no_right_ones(plant, predictor, rng):
    held_out = recorded(plant, rng, n_runs=60)
    found = predictor.contradictions(held_out)
    assert found.shape == (60, 3, 2)
    assert not found.any()
    states = held_out.states.copy()
    states[:, 1:, 1] += 0.5
    found = predictor.contradictions(rc.Trajectories(states, held_out.inputs, 0.06))
    assert found[..., 1].all()
    assert not found[..., 0].any()


def test_provenance_of_norm_bounds_is_kept(predictor):
    for row in predictor.envelopes:
        for envelope in row:
            assert envelope.norm_bound.provenance.endswith("times 3")


@pytest.mark.parametrize(
    ("x0", "inputs", "message"),
    [
        ([2.0, 1.0], np.full((4, 1), 14.0), "the plan has 4 steps, but the recorded runs only 3"),
        ([2.0], np.full((2, 1), 14.0), r"x0 must hold 2 states \(c_A, c_B\)"),
        ([2.0, 1.0], np.full((2, 2), 14.0), r"inputs must have shape \(n_steps, 1\)"),
        ([2.0, np.nan], np.full((2, 1), 14.0), "x0 must be finite"),
        ([2.0, 1.0], np.empty((0, 1)), "inputs must have shape"),
    ],
)
def test_wrong_plans_are_refused_by_name(predictor, x0, inputs, message):
    with pytest.raises(rc.InputError, match=message):
        predictor.boxes(x0, inputs)


def test_wrong_assumptions_are_refused_with_step_and_state(predictor):
    kernel = rc.SquaredExponential(5.0)
    with pytest.raises(rc.FalsifiedNormBoundError, match=r"step 1, state c_A: norm_bound 0.1 .* refuted by the data"):
        rc.MultiStepPredictor(predictor.runs, kernel, 0.1)
    with pytest.raises(rc.InputError, match="kernels must be one for all or a list of one per step, 3; got 2"):
        rc.MultiStepPredictor(predictor.runs, [kernel, kernel], 100.0)
    with pytest.raises(rc.InputError, match=r"norm_bounds\[1\] must be one for all states or a list of 2"):
        rc.MultiStepPredictor(predictor.runs, kernel, [100.0, [100.0], 100.0])
    with pytest.raises(rc.InputError, match="initial_state_noise must be zero or more"):
        rc.MultiStepPredictor(predictor.runs, kernel, 100.0, initial_state_noise=-0.1)
