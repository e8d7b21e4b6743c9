"""Invariant regions: from every state in them the limits are kept, and the end is in them again."""

import numpy as np
import pytest
from regions import LIMITS, A, B, linear_predictor, linear_runs

import rkhs_control as rc
from rkhs_control.certificates.region import is_covered
from rkhs_control.control.partition import Partition


@pytest.fixture(scope="module")
def predictor():
    return linear_predictor()


@pytest.fixture(scope="module")
def region(predictor):
    return rc.invariant_region(predictor, LIMITS, cells=4)


def simulate(states, inputs, disturbance=lambda shape: 0.0):
    """True states after every step, `(n, n_steps, 2)`."""
    found = []
    for u in inputs:
        states = states @ A.T + B * u + disturbance(states.shape)
        found.append(states)
    return np.stack(found, axis=1)


def corners_and_more(cell, noise, rng):
    """True states whose measurements may be in a cell: its corners, widened, and random ones."""
    low, high = cell.box.lower - noise, cell.box.upper + noise
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 2)
    return np.concatenate([corners, rng.uniform(low, high, (50, 2))])


def assert_invariant(region, rng, disturbance=0.0):
    noise = region.initial_state_noise
    for cell in region.cells:
        states = simulate(
            corners_and_more(cell, noise, rng),
            cell.inputs,
            lambda shape: rng.choice([-1.0, 1.0], shape) * disturbance,
        )
        assert LIMITS.states.contains(states).all()
        for error in np.stack(np.meshgrid([-1.0, 1.0], [-1.0, 1.0]), axis=-1).reshape(-1, 2):
            assert region.contains(states[:, -1] + 0.999 * error * noise).all()


def test_from_every_state_of_a_region_its_plan_keeps_the_limits_and_ends_in_it(region, rng):
    assert region.share > 0.9
    assert_invariant(region, rng)


def test_states_that_are_only_measured_stay_where_measurements_are_served(predictor, rng):
    region = rc.invariant_region(predictor, LIMITS, cells=4, initial_state_noise=0.05)
    assert region.share > 0.5
    assert_invariant(region, rng)


def test_disturbances_are_met_again_at_every_step(rng):
    from dataclasses import replace

    runs = linear_runs()
    runs = replace(runs, disturbance_bound=np.full_like(runs.noise_bound, 0.05))
    region = rc.invariant_region(rc.MultiStepPredictor(runs, rc.SquaredExponential(8.0), 12.0), LIMITS, cells=4)
    assert region.share > 0.3
    assert all((cell.tube.upper - cell.tube.lower).min() > 0.1 for cell in region.cells)
    assert_invariant(region, rng, disturbance=0.05 / 2.0)  # over two steps, no more than the bound


def test_cells_share_nothing_but_faces_and_lie_within_the_limits(region):
    lower, upper = region.lower, region.upper
    for k in range(len(region)):
        inner = (lower < upper[k]).all(axis=1) & (lower[k] < upper).all(axis=1)
        assert inner.sum() == 1
    assert (lower >= -1.0).all()
    assert (upper <= 1.0).all()


def test_merging_leaves_the_region_as_it_is_with_fewer_cells(predictor, monkeypatch):
    merged = rc.invariant_region(predictor, LIMITS, cells=4)
    monkeypatch.setattr("rkhs_control.control.invariance._Search._merge", lambda self, dimension: 0.0)
    fine = rc.invariant_region(predictor, LIMITS, cells=4)
    assert len(merged) < len(fine)
    assert merged.share == pytest.approx(fine.share)
    for one, other in ((merged, fine), (fine, merged)):
        assert all(one.covers(cell.box.lower, cell.box.upper) for cell in other.cells)


def test_cells_that_fail_are_split(predictor):
    coarse = rc.invariant_region(predictor, LIMITS, cells=1, max_cells=1)
    fine = rc.invariant_region(predictor, LIMITS, cells=2, max_cells=60)
    assert fine.share > coarse.share


def test_where_no_input_can_hold_the_plant_there_is_no_region(rng):
    x0, inputs = rng.uniform(-1.0, 1.0, (60, 2)), rng.uniform(-1.0, 1.0, (60, 1, 1))
    away = np.stack([x0, 1.8 * x0 + 0.01 * inputs[:, 0]], axis=1)
    predictor = rc.MultiStepPredictor(rc.Trajectories(away, inputs, 0.001), rc.SquaredExponential(8.0), 30.0)
    region = rc.invariant_region(predictor, LIMITS, cells=4)
    assert region.share == 0.0
    assert len(region) == 0
    assert not region.contains([0.5, 0.5])
    with pytest.raises(rc.InputError, match="not in the region"):
        region.plan([0.5, 0.5])


def test_plans_of_ones_own_are_tried_first(predictor):
    def steer(x):
        return np.clip(-(x @ A.T @ B) / (B @ B), -1.0, 1.0) * np.ones((1, 1))

    by_function = rc.invariant_region(predictor, LIMITS, cells=(2, 2), candidates=steer)
    by_array = rc.invariant_region(predictor, LIMITS, cells=(2, 2), candidates=np.zeros((1, 1, 1)))
    assert by_function.share > 0.5
    assert any((cell.inputs == 0.0).all() for cell in by_array.cells)
    assert rc.invariant_region(predictor, LIMITS, cells=np.array([2, 2]), candidates=lambda x: []).share > 0.5


def test_states_plans_and_size_can_be_asked_for(region):
    inside = region.cells[0].x0
    assert region.contains(inside) is True
    np.testing.assert_array_equal(region.contains([inside, [5.0, 5.0]]), [True, False])
    assert region.plan(inside).shape[1] == 1
    assert "for ever" in repr(region)
    assert region.cell_at([np.nan, 0.0]) is None
    for wrong in (0.5, [0.5], [0.0, 0.0, 0.0], region.lower):
        with pytest.raises(rc.InputError, match=r"x must have shape \(2,\)"):
            region.plan(wrong)


def test_progress_is_told_of(predictor):
    told = []
    rc.invariant_region(predictor, LIMITS, cells=2, progress=lambda done, total: told.append((done, total)))
    assert told
    assert all(done <= total for done, total in told)


@pytest.mark.parametrize(
    ("limits", "options", "match"),
    [
        (rc.Limits(LIMITS.states, LIMITS.inputs, rc.Box([-0.1], [0.1])), {}, "how fast inputs change"),
        (rc.Limits({"x": (-1.0, 1.0)}, LIMITS.inputs), {}, "finite lower and upper limit"),
        (rc.Limits(rc.Polytope([[1.0, 1.0]], [1.0])), {}, "finite lower and upper limit"),
        (LIMITS, {"cells": (4, 4, 4)}, "one per state"),
        (rc.Limits({"x": (0.0, 0.0), "y": (-1.0, 1.0)}), {}, "room between them"),
        (LIMITS, {"cells": 0}, "one per state"),
        (LIMITS, {"cells": 2.0}, "one per state"),
        (LIMITS, {"max_steps": 3}, "between 1 and the horizon 2"),
        (LIMITS, {"max_steps": 1.5}, "between 1 and the horizon 2"),
        (LIMITS, {"candidates": np.zeros((1, 1))}, "n_plans, n_steps, 1"),
        (LIMITS, {"candidates": np.zeros((1, 1, 2))}, "n_plans, n_steps, 1"),
        (LIMITS, {"candidates": lambda x: [0.1]}, "n_plans, n_steps, 1"),
        (LIMITS, {"candidates": lambda x: [[np.nan]]}, "must be finite"),
        (LIMITS, {"candidates": 3}, "a controller or a function"),
    ],
)
def test_what_makes_no_sense_is_refused(predictor, limits, options, match):
    with pytest.raises(rc.InputError, match=match):
        rc.invariant_region(predictor, limits, **{"cells": 2, **options})


def test_bounds_that_only_hold_with_a_probability_make_no_region(predictor):
    doubtful = predictor.with_method(rc.GaussianProcessEnvelope)
    with pytest.raises(rc.InputError, match="probability"):
        rc.invariant_region(doubtful, LIMITS, cells=2)


def test_histories_make_no_region(rng):
    outputs, inputs = rng.uniform(size=(40, 1)), rng.uniform(size=(39, 1))
    runs = rc.Trajectories.from_recordings([(outputs, inputs)], 1, output_lags=2, noise_bound=1.0)
    predictor = rc.MultiStepPredictor(runs, rc.SquaredExponential(5.0), 10.0, rounds=0)
    with pytest.raises(rc.InputError, match="an invariant region"):
        rc.invariant_region(predictor, rc.Box([0.0], [1.0]), cells=2)


def test_a_box_is_covered_by_cells_that_touch_and_not_across_a_gap_of_one_ulp():
    low, high = np.array([0.0, 0.0]), np.array([2.0, 1.0])
    left, right = ([0.0, 0.0], [1.0, 1.0]), ([1.0, 0.0], [2.0, 1.0])
    lower, upper = (np.array(ends) for ends in zip(left, right, strict=True))
    assert is_covered(low, high, lower, upper)
    lower[1, 0] = np.nextafter(1.0, 2.0)
    assert not is_covered(low, high, lower, upper)
    junction = Partition.grid(rc.Box(low, high), (2, 1))
    halves = junction.take([1]).halves(rc.Box(low, high))
    both = junction.take([0]).joined(halves)
    assert is_covered(low, high, both.lower, both.upper)
    assert not is_covered(low, high, both.lower[:2], both.upper[:2])


def test_the_halves_of_a_partition_are_found_again_as_pairs():
    whole = rc.Box([0.0, 0.0], [1.0, 3.0])
    cells = Partition.grid(whole, (3, 2))
    split = cells.halves(whole)
    pairs = split.pairs(range(split.size), 1)
    assert len(pairs) == cells.size
    merged = split.unions(pairs, 1)
    np.testing.assert_array_equal(np.sort(merged.lower, axis=0), np.sort(cells.lower, axis=0))
    np.testing.assert_array_equal(np.sort(merged.level, axis=0), 0)


def test_robust_plans_are_tried_where_no_other_leads_back(predictor, monkeypatch, rng):
    """Recorded plans, and those of a model that is simply believed, are taken away."""
    from rkhs_control.control.invariance import _Search

    monkeypatch.setattr("rkhs_control.control.invariance.recorded_plans", lambda *arguments: iter(()))
    monkeypatch.setattr(_Search, "_steered", lambda *arguments: [])

    def in_the_middle(x):
        return np.zeros((int(np.abs(x).max() < 0.5), 1, 1))

    def found():
        return rc.invariant_region(predictor, LIMITS, cells=4, max_cells=16, candidates=in_the_middle)

    more = found()
    assert_invariant(more, rng)
    monkeypatch.setattr(_Search, "_robust", lambda *arguments: [])
    assert more.share > found().share > 0.0
