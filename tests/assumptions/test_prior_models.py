"""Models of the user's as priors: taken off and added again, with their values as assumed."""

import json

import numpy as np
import pytest
from plants import recorded

import rkhs_control as rc

LIMITS = rc.Limits(rc.Box([0.0, 0.0], [9.0, 9.0]))


@pytest.fixture(scope="module")
def runs(plant):
    return recorded(plant, np.random.default_rng(3), n_runs=40, n_steps=2)


@pytest.fixture(scope="module")
def believed(plant):
    def a_little_off(history, inputs):
        return plant.simulate(history[None], 1.05 * inputs[None])[0, 1:]

    return a_little_off


def test_a_good_model_leaves_little_and_the_truth_is_inside(plant, runs, believed, rng):
    without, grey = (rc.MultiStepPredictor.select(runs, prior=prior) for prior in (None, believed))
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (20, 2))
    inputs = rng.uniform(10.0, 18.0, (20, 2, 1))
    truth = plant.simulate(x0, inputs)[:, 1:]
    wide, narrow = (p.boxes(x0, inputs) for p in (without, grey))
    assert wide.contains(truth).all()
    assert narrow.contains(truth).all()
    assert (narrow.upper - narrow.lower).mean() < (wide.upper - wide.lower).mean()


@pytest.mark.parametrize("start_noise", [0.0, 0.01])
def test_certificates_hold_its_values_and_name_them_as_assumed(runs, believed, start_noise, tmp_path):
    model = rc.PriorModel(believed, steepness=(1.0, 1.0), name="reactor")
    noisy = runs.with_initial_state_noise(start_noise)
    predictor = rc.MultiStepPredictor(noisy, rc.SquaredExponential(20.0), 5.0, priors=model)
    certificate = rc.certify(predictor, [2.0, 1.2], [[14.0], [13.0]], LIMITS)
    rc.save_trajectories(noisy, tmp_path / "runs.npz")
    certificate.save(tmp_path / "plan.json", data_file=tmp_path / "runs.npz")
    checked = rc.verify(tmp_path / "plan.json", data=tmp_path / "runs.npz", work=10**9)
    assert checked.accepted, checked.reason
    assert 'of what the prior "reactor", with its values as given' in checked.assumptions[0]
    content = json.loads((tmp_path / "plan.json").read_text())
    prior = content["steps"][0][0]["prior"]
    prior["values"] = [value + 0.5 for value in prior["values"]]
    content["digest"] = _digest(content)
    (tmp_path / "forged.json").write_text(json.dumps(content))
    assert not rc.verify(tmp_path / "forged.json", data=tmp_path / "runs.npz", work=10**9).accepted


def _digest(content):
    from importlib import import_module

    return import_module("rkhs_control.checker").digest(content)


def test_uncertain_histories_need_a_steepness(runs, believed):
    with pytest.raises(rc.InputError, match=r"PriorModel\(\.\.\., steepness=\.\.\.\) must say how much"):
        rc.MultiStepPredictor(
            runs.with_initial_state_noise(0.01), rc.SquaredExponential(20.0), 5.0, priors=rc.PriorModel(believed)
        )
    with pytest.raises(rc.InputError, match="steepness must be zero or more; got -1"):
        rc.PriorModel(believed, steepness=(-1.0, 1.0))


def test_models_of_the_wrong_shape_are_named(runs):
    def flat(history, inputs):
        return np.zeros(len(inputs))

    with pytest.raises(rc.InputError, match=r"prior 'flat' must return finite outputs of shape \(1, 2\)"):
        rc.MultiStepPredictor.select(runs, prior=flat)


def test_what_a_file_or_a_solver_cannot_hold_is_refused(runs, believed, tmp_path):
    predictor = rc.MultiStepPredictor(runs, rc.SquaredExponential(20.0), 5.0, priors=rc.PriorModel(believed))
    with pytest.raises(rc.InputError, match="a predictor with a prior model cannot be saved"):
        rc.save_predictor(predictor, tmp_path / "predictor.npz")
