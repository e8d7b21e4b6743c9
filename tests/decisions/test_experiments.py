"""Experiments for undecided plans: what is promised of them comes true, and nothing is decided wrongly on the way."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from plants import LENGTHSCALES, feedback_inputs, recorded
from problems import LONG, long_kernel, round_up
from scipy.stats import spearmanr

import rkhs_control as rc
from rkhs_control.certificates.certificate import Verdict
from rkhs_control.scenarios.material import Source, Work, gather
from rkhs_control.scenarios.results import write_results
from rkhs_control.scenarios.run import StudyResult, run_study
from rkhs_control.scenarios.schema import load_scenario, scenario_class
from rkhs_control.scenarios.studies import sampling as study
from rkhs_control.scenarios.studies.kind import Task

START = np.array([2.0, 1.4])


@pytest.fixture(scope="module")
def predictor(plant):
    """From so few runs that boxes are wider than the noise."""
    runs = recorded(plant, np.random.default_rng(5), n_runs=20)
    return rc.MultiStepPredictor.select(runs, LENGTHSCALES)


@pytest.fixture(scope="module")
def certificate(plant, predictor):
    """A plan whose boxes pass the lower limit of c_B, though the truth keeps it."""
    inputs = feedback_inputs(plant, START[None], 3)[0]
    limit = (predictor.boxes(START, inputs).lower[:, 1].min() + plant.simulate(START, inputs)[1:, 1].min()) / 2.0
    limits = rc.Box([1.0, limit], [3.0, 2.0])
    found = rc.certify(predictor, START, inputs, state_limits=limits, input_limits=plant.input_limits)
    assert found.verdict is Verdict.UNDECIDED
    return found


def after(certificate, plant, x0, inputs, noise):
    """The question asked again with experiments recorded under that noise, `(m, n_steps, n_states)`."""
    runs = certificate.predictor.runs
    states = plant.simulate(x0, inputs)
    states[:, 1:] += noise
    joined = runs.joined(replace(runs, states=states, inputs=inputs, origins=None))
    return certificate.question.ask(replace(certificate.predictor, runs=joined))


def lacking(certificate, failing):
    return float(np.maximum(0.0, -certificate.margins[failing]).sum())


def single_gains(certificate, x0, inputs):
    """What is expected of every candidate by itself."""
    gains = []
    for k in range(len(x0)):
        found = rc.rank_experiments(certificate, (x0[[k]], inputs[[k]]), n=1, only_certified=False)
        gains.append(found[0].gain if found else 0.0)
    return np.array(gains)


def test_expected_gains_agree_with_what_experiments_bring(plant, certificate, rng):
    x0, inputs = rc.experiments_around(certificate, 60, rng)
    expected = single_gains(certificate, x0, inputs)
    picked = np.argsort(-expected)[[0, 1, 4, 8, 12, 16, 20, 30, 40, -1]]
    failing = certificate.margins < 0
    draws = rng.uniform(-0.06, 0.06, (6, 1, 3, 2))
    actual = [
        lacking(certificate, failing)
        - np.mean([lacking(after(certificate, plant, x0[[k]], inputs[[k]], d), failing) for d in draws])
        for k in picked
    ]
    assert spearmanr(expected[picked], actual).statistic > 0.8
    assert actual[0] > 0.5 * max(actual)
    assert actual[0] > 0.1 * lacking(certificate, failing)


def test_screening_does_not_miss_the_best_candidate(certificate, rng):
    x0, inputs = rc.experiments_around(certificate, 80, rng)
    best = single_gains(certificate, x0, inputs).max()
    (found,) = rc.rank_experiments(certificate, (x0, inputs), n=1, only_certified=False)
    assert found.gain > 0.95 * best


def test_candidates_keep_the_limits_and_hold_the_plan(certificate, rng):
    x0, inputs = rc.experiments_around(certificate, 300, rng)
    question = certificate.question
    assert 250 < len(x0) <= 300
    assert certificate.limits.states.contains(x0).all()
    assert certificate.limits.inputs.contains(inputs).all()
    np.testing.assert_array_equal(x0[0], question.x0)
    np.testing.assert_array_equal(inputs[0], question.inputs)


def test_only_certified_experiments_are_offered_unless_others_are_allowed(certificate):
    x0, inputs = rc.experiments_around(certificate, 300, np.random.default_rng(1))
    allowed = rc.rank_experiments(certificate, (x0, inputs), n=3)
    assert len(allowed) > 0
    for experiment in allowed:
        again = replace(certificate.question, x0=experiment.x0, inputs=experiment.inputs).ask(certificate.predictor)
        assert experiment.is_certified
        assert again.verdict is Verdict.CERTIFIED
        assert again.starts_inside
    plan = x0[:1], inputs[:1]  # undecided as it is
    assert rc.rank_experiments(certificate, plan) == []
    (risky,) = rc.rank_experiments(certificate, plan, only_certified=False)
    assert not risky.is_certified
    assert risky.gain > 0
    free = rc.rank_experiments(certificate, (x0, inputs), n=1, only_certified=False)
    assert free[0].gain >= allowed[0].gain


def test_no_candidate_comes_twice_and_the_gains_add_up(certificate):
    found = rc.rank_experiments(certificate, n=4, only_certified=False)
    assert len({(*e.x0, *e.inputs.ravel()) for e in found}) == len(found)
    total = -certificate.margins[certificate.margins < 0].sum()
    assert all(0 < e.gain <= total for e in found)
    assert all(e.margin > certificate.margin for e in found)


def test_constraints_on_several_states_and_short_plans_are_served(plant, predictor):
    inputs = feedback_inputs(plant, START[None], 3)[0, :2]
    tube, truth = predictor.boxes(START, inputs), plant.simulate(START, inputs)[1:]
    offset = float((tube.upper.sum(axis=1) + truth.sum(axis=1)).max() / 2.0)
    limits = rc.Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [offset, -1.0, -0.5])
    certificate = rc.certify(predictor, START, inputs, state_limits=limits)
    assert certificate.verdict is Verdict.UNDECIDED
    (found,) = rc.rank_experiments(certificate, n=1, only_certified=False)
    assert found.inputs.shape == (3, 1)
    again = after(certificate, plant, found.x0[None], found.inputs[None], -0.05)  # noise that helps
    assert again.margin > certificate.margin


def known_plant(rng):
    """A plant of one step, `x_1 = f(x_0, u_0)`, whose norm is known exactly; as a function, and that norm."""
    kernel = rc.SquaredExponential((0.7, 0.9))
    centres, weights = rng.uniform(-1, 1, (8, 2)), np.asarray(rng.normal(size=8), LONG)
    norm = round_up(np.sqrt(weights @ long_kernel(kernel, centres, centres) @ weights))
    return kernel, lambda Z: np.asarray(long_kernel(kernel, Z, centres) @ weights, dtype=float), norm


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_safe", [True, False])
def test_loops_on_plants_of_known_norm_decide_nothing_wrongly(seed, is_safe):
    """The truth stays in its box, boxes never grow, safe plans get certified and unsafe ones do not."""
    rng = np.random.default_rng(seed)
    kernel, f, norm = known_plant(rng)
    noise = 0.05

    def record(Z):
        y = f(Z) + rng.uniform(-noise, noise, len(Z))
        return rc.Trajectories(np.stack([Z[:, 0], y], axis=1)[..., None], Z[:, 1:, None], noise + 1e-12)

    z = rng.uniform(-0.5, 0.5, 2)
    predictor = rc.MultiStepPredictor(record(rng.uniform(-1, 1, (12, 2))), kernel, norm)
    truth, upper = float(f(z[None])[0]), predictor.boxes(z[:1], z[1:, None]).upper[0, 0]
    limit = truth + 0.5 * (upper - truth) if is_safe else truth - 1e-3
    limits, inputs = rc.Box([-9.0], [limit]), rc.Box([-1.0], [1.0])
    certificate = rc.certify(predictor, z[:1], z[1:, None], state_limits=limits, input_limits=inputs)
    seen = [certificate]
    while certificate.verdict is Verdict.UNDECIDED and len(seen) < 12:
        found = rc.rank_experiments(certificate, n=2, only_certified=False, n_candidates=100, rng=rng)
        if not found:
            break
        Z = np.array([[e.x0[0], e.inputs[0, 0]] for e in found])
        runs = certificate.predictor.runs.joined(record(Z))
        certificate = certificate.question.ask(replace(certificate.predictor, runs=runs))
        seen.append(certificate)
    assert all(c.tube.contains([[truth]]).all() for c in seen)
    tops = [c.tube.upper[0, 0] for c in seen]
    assert all(later <= earlier + 1e-7 for earlier, later in pairwise(tops))
    assert len(seen) > 1
    assert tops[-1] < tops[0]
    assert (certificate.verdict is Verdict.CERTIFIED) == is_safe


def test_only_undecided_plans_of_optimal_bounds_are_taken(predictor, certificate):
    question = certificate.question
    for limit, message in ((0.0, "it is certified: there is nothing left"), (1.9, "it is refuted: more data cannot")):
        decided = replace(question, limits=rc.Box([0.5, limit], [4.0, 3.0])).ask(predictor)
        with pytest.raises(rc.InputError, match=message):
            rc.rank_experiments(decided)
    closed = question.ask(predictor.with_method(rc.ClosedFormEnvelope, nugget=1e-5))
    assert closed.verdict is Verdict.UNDECIDED
    with pytest.raises(rc.InputError, match="ClosedFormEnvelope has none"):
        rc.rank_experiments(closed)
    with pytest.raises(rc.InputError, match=r"inputs \(m, 3, 1\).*got \(1, 2\) and \(1, 2, 1\)"):
        rc.rank_experiments(certificate, (START[None], question.inputs[None, :2]))
    with pytest.raises(rc.InputError, match="n must be at least 1"):
        rc.rank_experiments(certificate, n=0)


SMALL = {"plant.horizon": 3, "plant.exploration_runs": 30, "plant.runs": 30, "sampling.candidates": 120}


@pytest.fixture(scope="module")
def small():
    """The scenario on three steps and 60 runs, with what it is run on."""
    scenario, folder = load_scenario("cstr_sampling", {**SMALL, "sampling.rounds": 3})
    return scenario, gather(scenario, Source.of(scenario, folder), Work(1))


def test_the_scenario_runs_only_certified_experiments_and_keeps_the_proof(small, tmp_path):
    scenario, material = small
    work = Work(1)
    task = Task(scenario, material, work)
    sampling = study.run(scenario.settings(study.SamplingSettings), task)
    assert sampling.first.verdict is Verdict.UNDECIDED
    assert not sampling.is_contradicted
    experiments = [e for each in sampling.rounds for e in each.experiments]
    assert len(experiments) == sampling.counts[-1] > 0
    for e in experiments:
        assert e.is_certified
        assert material.limits.states.contains(material.plant.simulate(e.x0, e.inputs)).all()
    margins = [each.certificate.margin for each in sampling.rounds]
    assert margins[-1] > margins[0]
    assert all(margins[-1] >= found[-1].margin for found in sampling.baselines.values())
    assert all(len(found) == len(margins) for found in sampling.baselines.values())
    result = StudyResult(task, (sampling,))
    assert result.worst_verdict is sampling.last.verdict
    write_results(result, tmp_path)
    assert rc.verify(tmp_path / "certificates" / "sampling.json").accepted
    kept = json.loads((tmp_path / "summary.json").read_text())["sampling"]
    assert [each["margin"] for each in kept["rounds"]] == margins
    plans = rc.load_plans(tmp_path / "experiments.csv", state_names=["c_A", "c_B"], input_names=["u"])
    np.testing.assert_array_equal(plans.x0, [e.x0 for e in experiments])
    assert (tmp_path / "sampling.png").stat().st_size > 10_000


def test_experiments_that_refute_the_assumptions_end_the_loop_with_a_reason(small):
    """A sensor that is far worse than the noise bound says."""
    _, material = small
    worse, _ = load_scenario("cstr_sampling", {**SMALL, "plant.noise": 3.0})
    with pytest.raises((rc.FalsifiedNormBoundError, rc.ContradictoryDataError), match="of round 1 refute the assump"):
        study.run(worse.settings(study.SamplingSettings), Task(worse, material, Work(1)))


def test_sampling_needs_a_simulated_plant_and_a_whole_initial_state():
    scenario, folder = load_scenario("cstr_sampling", {**SMALL, "sampling.initial_state": [1.5]})
    with pytest.raises(rc.InputError, match=r"sampling\.initial_state must hold c_A, c_B"):
        run_study(scenario, folder, Work(1))
    content = {"title": "", "data": {"file": "runs.csv"}, "limits": {}, "sampling": {"initial_state": [1.5, 1.0]}}
    with pytest.raises(ValueError, match="need a simulated"):
        scenario_class().model_validate(content)
