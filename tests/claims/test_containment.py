"""Soundness: no true function may escape. One violation here is a defect of the product."""

import importlib
import json

import numpy as np
import pytest
from flint import arb
from problems import LONG, random_problem

import rkhs_control as rc
from rkhs_control.assumptions.consistency import consistent_function

checker = importlib.import_module("rkhs_control.checker")

PROBLEMS_PER_CHUNK = 200
DERIVATIVE_PROBLEMS_PER_CHUNK = 20
CONSISTENCY_PROBLEMS_PER_CHUNK = 30


def envelope_of(problem, rng, family=rc.OptimalEnvelope, **options):
    """With the norm bound tight for some, loose for others."""
    factor = 1.0 if rng.random() < 0.4 else np.exp(rng.uniform(0, 2))
    return family(problem.data, problem.kernel, problem.norm * factor, **options)


def passes_through(function, envelope):
    """Whether a function passes through all intervals by more than rounding."""
    values = envelope.gram.combine(function.indices, function.weights)
    room = np.minimum(values - envelope.data.lower, envelope.data.upper - values).min()
    return room > 1e-13 * envelope.kernel.variance * np.abs(function.weights).sum()


def assert_contains(band, truth):
    below, above = np.asarray(band.lower, LONG), np.asarray(band.upper, LONG)
    assert (below <= truth).all()
    assert (truth <= above).all()


@pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision for the ground truth")
def test_optimal_band_contains_every_ground_truth(chunk):
    for number in range(PROBLEMS_PER_CHUNK):
        rng = np.random.default_rng([chunk, number])
        problem = random_problem(rng)
        band = envelope_of(problem, rng).bounds(problem.queries)
        assert_contains(band, problem.truth(problem.queries))


def component_of(envelope, **parts):
    """What a certificate would say of one state after one step."""
    return {
        "kernel": json.loads(json.dumps(envelope.kernel.to_dict())),
        "norm_bound": {"value": envelope.radius},
        "disturbance_bound": {"value": 0.0},
        "prior": None,
        **parts,
    }


def test_bounds_are_proved_by_the_checker(chunk):
    """Every bound lies at or outside the ball-arithmetic value of its witness."""
    for number in range(PROBLEMS_PER_CHUNK):
        rng = np.random.default_rng([6, chunk, number])
        problem = random_problem(rng, n_queries=1)
        envelope = envelope_of(problem, rng)
        band, x = envelope.bounds(problem.queries), problem.queries[0]
        data = envelope.data
        intervals = np.stack([data.lower, data.upper], axis=1).tolist()
        parts = {"samples": {"inputs": data.X.tolist(), "intervals": intervals}}
        for side, bound, witness in zip(
            ("lower", "upper"), (band.lower[0], band.upper[0]), band.witness(0), strict=True
        ):
            weights = {"rows": witness.indices.tolist(), "weights": witness.weights.tolist()}
            parts[side] = {"bound": float(bound), "method": "point", "witnesses": [weights]}
        question = {"x0": x.tolist(), "inputs": [[]], "initial_state_noise": [], "state_names": ["f"]}
        content = {"question": question, "steps": [[component_of(envelope, **parts)]]}
        checker.check_bounds(content, [], checker.Work(10**9))


def test_assumptions_that_hold_are_proved_to_be_consistent_by_the_checker(chunk):
    """But where inputs nearly coincide: truths on the ends of intervals there leave less room than rounding needs."""
    n_refused = 0
    for number in range(CONSISTENCY_PROBLEMS_PER_CHUNK):
        rng = np.random.default_rng([7, chunk, number])
        envelope = envelope_of(random_problem(rng), rng)
        data, function = envelope.data, consistent_function(envelope.data, envelope.kernel, envelope.radius)
        parts = {"inputs": data.X[function.indices].tolist(), "weights": function.weights.tolist()}
        intervals = zip(map(tuple, data.X.tolist()), data.lower.tolist(), data.upper.tolist(), strict=True)
        samples = [checker.Sample(*interval) for interval in intervals]
        component = component_of(envelope, consistency=parts)
        try:
            checker.check_consistency(component, samples, lambda: arb(0), f"problem {number}", checker.Work(10**9))
        except checker.RejectedError:
            n_refused += 1
            assert not passes_through(function, envelope)
    assert n_refused <= 0.4 * CONSISTENCY_PROBLEMS_PER_CHUNK


@pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision for the ground truth")
def test_derivative_band_contains_every_true_gradient(chunk):
    for number in range(DERIVATIVE_PROBLEMS_PER_CHUNK):
        rng = np.random.default_rng([1, chunk, number])
        problem = random_problem(rng, smooth=True, n_queries=2)
        band = envelope_of(problem, rng).derivative_bounds(problem.queries)
        assert_contains(band, problem.truth_gradient(problem.queries))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (rc.ClosedFormEnvelope, {}),
        (rc.EnergyEnvelope, {}),
        (rc.AlternatingEnvelope, {"iterations": 1}),
        (rc.AlternatingEnvelope, {"iterations": 4}),
    ],
)
def test_other_deterministic_bands_contain_every_ground_truth(family, options):
    for number in range(150):
        rng = np.random.default_rng([2, number])
        problem = random_problem(rng)
        band = envelope_of(problem, rng, family, **options).bounds(problem.queries)
        assert_contains(band, problem.truth(problem.queries))


def test_nugget_keeps_containment():
    for number in range(100):
        rng = np.random.default_rng([3, number])
        problem = random_problem(rng)
        nugget = 10.0 ** rng.uniform(-10, -2)
        band = envelope_of(problem, rng, nugget=nugget).bounds(problem.queries)
        assert_contains(band, problem.truth(problem.queries))


def test_difference_band_contains_the_true_difference():
    for number in range(100):
        rng = np.random.default_rng([4, number])
        problem = random_problem(rng)
        a, b = problem.queries[:2], problem.queries[2:]
        band = envelope_of(problem, rng).difference_bounds(a, b)
        assert_contains(band, problem.truth(a) - problem.truth(b))


def test_one_sided_intervals_contain_the_ground_truth():
    for number in range(100):
        rng = np.random.default_rng([5, number])
        problem = random_problem(rng)
        lower, upper = problem.data.lower.copy(), problem.data.upper.copy()
        lower[rng.random(len(lower)) < 0.4] = -np.inf
        upper[rng.random(len(upper)) < 0.4] = np.inf
        data = rc.Observations.from_intervals(problem.data.X, lower, upper)
        band = rc.OptimalEnvelope(data, problem.kernel, 1.5 * problem.norm).bounds(problem.queries)
        assert_contains(band, problem.truth(problem.queries))
