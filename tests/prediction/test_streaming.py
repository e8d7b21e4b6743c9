"""Recordings that are added to a built predictor: what comes out is what all runs at once would give."""

import numpy as np
import pytest
from plants import feedback_inputs, recorded

import rkhs_control as rc
from rkhs_control.engine import gram


def same_assumptions(predictor, runs, method=rc.OptimalEnvelope):
    return rc.MultiStepPredictor(runs, predictor.kernels, predictor.norm_bounds, method, priors=predictor.priors)


@pytest.mark.parametrize("dense_limit", [2000, 60])
def test_adding_runs_one_by_one_equals_building_from_all(plant, predictor, rng, monkeypatch, dense_limit):
    monkeypatch.setattr(gram, "DENSE_LIMIT", dense_limit)
    runs = recorded(plant, rng, n_runs=110)
    begun = same_assumptions(predictor, runs.subset(np.arange(100)))
    grown, at_once = begun, begun.with_run(runs.states[100:], runs.inputs[100:])
    for k in range(100, 110):
        grown = grown.with_run(runs.states[k], runs.inputs[k])
    fresh = same_assumptions(predictor, runs)
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (5, 2))
    inputs = feedback_inputs(plant, x0, 3)
    truth, expected, before = plant.simulate(x0, inputs)[:, 1:], fresh.boxes(x0, inputs), begun.boxes(x0, inputs)
    for other in (grown, at_once):
        assert len(other.runs) == 110
        tube = other.boxes(x0, inputs)
        np.testing.assert_allclose(tube.lower, expected.lower, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(tube.upper, expected.upper, rtol=1e-9, atol=1e-9)
        assert tube.contains(truth).all()
    assert (expected.upper <= before.upper + 1e-9).all()
    assert (expected.upper - expected.lower).mean() < (before.upper - before.lower).mean()
    assert len(begun.runs) == 100
    assert begun.envelope(3, 1).gram.X.shape[0] == 100


def test_methods_without_paths_go_on_as_well(plant, predictor, plan, rng):
    runs = recorded(plant, rng, n_runs=60)
    begun, fresh = (same_assumptions(predictor, runs.subset(np.arange(n)), rc.ClosedFormEnvelope) for n in (58, 60))
    found, expected = begun.with_run(runs.states[58:], runs.inputs[58:]).boxes(*plan), fresh.boxes(*plan)
    np.testing.assert_allclose(found.lower, expected.lower, rtol=1e-9)
    np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-9)


def test_going_on_does_not_look_for_the_least_norm_from_nothing(plant, predictor, rng, monkeypatch):
    from rkhs_control.engine import path

    starts = []
    solution = path.least_norm_solution
    monkeypatch.setattr(
        path,
        "least_norm_solution",
        lambda K, lower, upper, start: starts.append(start) or solution(K, lower, upper, start),
    )
    more = recorded(plant, rng, n_runs=1)
    predictor.with_run(more.states[0], more.inputs[0])
    assert len(starts) == 6
    assert all(len(start.order) > 0 for start in starts)


def test_a_run_that_is_recorded_again_narrows_the_intervals_of_the_first(predictor):
    runs = predictor.runs
    shifted = runs.states[7].copy()
    shifted[1:] += 0.5 * runs.noise_bound
    envelope = predictor.with_run(shifted, runs.inputs[7]).envelope(2, 0)
    assert len(envelope.data) == len(runs)
    assert envelope.data.lower[7] > predictor.envelope(2, 0).data.lower[7]
    assert envelope.data.upper[7] == predictor.envelope(2, 0).data.upper[7]


def test_a_run_that_refutes_a_norm_bound_is_refused_as_all_at_once_are(predictor):
    runs = predictor.runs
    wrong = runs.states[7].copy()
    wrong[1:, 0] += 40.0
    inputs = runs.inputs[7] + 1e-3
    with pytest.raises(rc.FalsifiedNormBoundError, match=r"step 1, state c_A: norm_bound .* is refuted") as found:
        predictor.with_run(wrong, inputs)
    with pytest.raises(rc.FalsifiedNormBoundError) as expected:
        same_assumptions(
            predictor,
            runs.joined(
                rc.Trajectories(wrong[None], inputs[None], runs.noise_bound, runs.state_names, runs.input_names)
            ),
        )
    assert str(found.value)[:60] == str(expected.value)[:60]


def test_a_run_that_contradicts_another_is_refused(predictor):
    runs = predictor.runs
    wrong = runs.states[7].copy()
    wrong[2, 1] += 3.0 * runs.noise_bound.max()
    with pytest.raises(rc.ContradictoryDataError, match="step 2, state c_B"):
        predictor.with_run(wrong, runs.inputs[7])


def test_with_uncertain_initial_states_all_intervals_are_found_again(plant, predictor, rng):
    runs = recorded(plant, rng, n_runs=31, initial_noise=0.01)
    tables = predictor.kernels, predictor.norm_bounds
    begun, fresh = (
        rc.MultiStepPredictor(runs.subset(np.arange(n)), *tables, initial_state_noise=0.01, rounds=1) for n in (30, 31)
    )
    grown = begun.with_run(runs.states[30], runs.inputs[30])
    for found, expected in zip(grown.widenings, fresh.widenings, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_windows_and_wrong_shapes_are_refused_with_what_to_do(predictor, windows):
    runs = predictor.runs
    with pytest.raises(
        rc.InputError, match=r"a run has states \(4, 2\) and inputs \(3, 1\).*got \(3, 2\) and \(3, 1\)"
    ):
        predictor.with_run(runs.states[0, :3], runs.inputs[0])
    cut = windows[0]
    measured = rc.MultiStepPredictor(cut, rc.SquaredExponential(5.0), 1e3, rounds=0)
    with pytest.raises(rc.InputError, match="cut the new recording into windows"):
        measured.with_run(cut.states[0], cut.inputs[0])
