"""Soundness on recordings: uncertain histories at their worst corners, priors and disturbances let no truth escape."""

import numpy as np
import pytest
from problems import LONG
from uncertain import attained_case, random_case

import rkhs_control as rc
from rkhs_control.prediction import narrowing
from rkhs_control.prediction.arguments import ArgumentBoxes

CASES_PER_CHUNK = 200
"""Of two plans per truth; without --all-cases a quarter of them."""
CERTIFIED = 20
"""One in so many truths has its plans certified, saved and checked."""

pytestmark = pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision for the ground truth")


@pytest.fixture
def numbers(request):
    """Of the truths in a chunk."""
    n_cases = CASES_PER_CHUNK if request.config.getoption("--all-cases") else CASES_PER_CHUNK // 4
    return range(n_cases // 2)


def tight_predictor(case, rng):
    """With the truth's own norm as the bound, given as such or as half of one that rounds of narrowing were for."""
    rounds = int(rng.integers(0, 4))
    if rng.random() < 0.2:
        return case.predictor(rounds=rounds, norm_factor=2.0).scaled(norm=0.5)
    return case.predictor(rounds=rounds)


def test_no_truth_escapes_from_uncertain_histories_priors_and_disturbances(chunk, numbers, record_property):
    """Neither from the boxes of plans nor from the intervals of samples, however narrow these have become."""
    tightest, n_cases, n_narrowed = {}, {}, 0
    for number in numbers:
        rng = np.random.default_rng([77, chunk, number])
        case = random_case(rng)
        predictor = tight_predictor(case, rng)
        is_narrowed, slack = bool(predictor.narrowing[0][0]), case.interval_slack(predictor)
        assert slack >= 0.0, f"the interval of a sample, truth {number}"
        if is_narrowed:
            tightest["narrowed interval"] = min(slack, tightest.get("narrowed interval", 1.0))
        for method, slack in case.slacks(predictor, rng):
            assert slack >= 0.0, f"{method}, truth {number}"
            tightest[method] = min(slack, tightest.get(method, 1.0))
            n_cases[method] = n_cases.get(method, 0) + 1
            n_narrowed += is_narrowed
    record_property("tightest slack", tightest)
    record_property("cases", n_cases)
    record_property("cases with narrowed intervals", n_narrowed)
    assert {"corners", "displacement"} <= n_cases.keys()
    assert n_narrowed


def test_certificates_of_such_cases_are_accepted_with_their_data(chunk, numbers, tmp_path):
    for number in numbers[::CERTIFIED]:
        rng = np.random.default_rng([78, chunk, number])
        case = random_case(rng)
        if case.runs.noise_bound[0, 0] < 1e-12 * np.abs(case.runs.states[:, 1]).max():
            continue  # no function in doubles passes through samples that are exact, to show that one does
        predictor = case.whole_predictor(rounds=int(rng.integers(0, 4)))
        rc.save_trajectories(predictor.runs, tmp_path / "runs.npz")
        query, n = case.queries[0], len(case.queries[0].noise)
        limits = rc.Limits({"x_0": (-1e30, 1e30)})
        certificate = rc.certify(predictor, query.at[:n], query.at[None, n:], limits, initial_state_noise=query.noise)
        certificate.save(tmp_path / "plan.json", data_file=tmp_path / "runs.npz")
        checked = rc.verify(tmp_path / "plan.json", data=tmp_path / "runs.npz")
        assert checked.accepted, f"truth {number}: {checked.reason}"
        (tmp_path / "plan.json").unlink()


def scaled_down(monkeypatch, owner, name, factor):
    """Let a function or method give less than it does."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *arguments: factor * original(*arguments))


def found_out(make, numbers, **options):
    """By how many truths wrong bounds are found out, and how these were found; or refused, because no truth fits."""
    methods = []
    for number in numbers:
        rng = np.random.default_rng([79, number])
        case = make(rng)
        try:
            predictor = case.predictor(**options)
            escapes = [method for method, slack in case.slacks(predictor, rng) if slack < 0.0]
            methods += escapes or ["interval"] * (case.interval_slack(predictor) < 0.0)
        except (rc.FalsifiedNormBoundError, rc.ContradictoryDataError):
            methods.append("refused")
    return methods


@pytest.mark.parametrize("part", ["remainder", "displacement"])
def test_bounds_over_boxes_too_small_by_a_thousandth_are_found_out(part, monkeypatch):
    """A control: with truths that nearly attain bounds, containment is no matter of course."""
    family = rc.SquaredExponential if part == "remainder" else rc.Matern12

    def make(rng):
        return attained_case(rng, kernel=lambda n_dims: family(1.0))

    assert not found_out(make, range(40))
    scaled_down(monkeypatch, ArgumentBoxes, part, 0.999)
    assert ("corners" if part == "remainder" else "displacement") in found_out(make, range(40))


def test_norm_bounds_too_small_by_a_thousandth_are_found_out():
    assert {"corners", "slopes", "displacement"} <= set(found_out(attained_case, range(100), norm_factor=0.999))


def test_slopes_too_small_by_a_tenth_are_found_out(monkeypatch):
    scaled_down(monkeypatch, narrowing.Slopes, "bounds", 0.9)
    assert found_out(random_case, range(100))


def test_first_widenings_too_small_by_a_thousandth_are_found_out(monkeypatch):
    scaled_down(monkeypatch, narrowing, "uncertainty", 0.999)
    assert found_out(random_case, range(40), rounds=0)
