"""From where plans are certified: a statement about whole cells of initial states."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.scenarios.material import OPTIMAL, Work, plan_from
from rkhs_control.scenarios.results import report, write_results
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.region import Grid, RegionOutcome

SMALL = {
    "plant.horizon": 2,
    "plant.exploration_runs": 80,
    "plant.runs": [9, 9],
    "predictor.compare_closed_form": False,
    "predictor.compare_affine_prior": False,
    "limits.states.c_B": [0.8, 1.8],
    "study.initial_states": [[2.0, 1.1]],
    "study.check": 0,
}


def small(region, **changes):
    scenario, folder = load_scenario("cstr", {**SMALL, "study.region": region, **changes})
    return run_study(scenario, folder, Work(scenario.seed))


@pytest.fixture(scope="module")
def study():
    return small([8, 6])


def certified_boxes(outcome):
    grid = outcome.map.grid
    boxes = grid.boxes(np.zeros(2))
    return [box for box, good in zip(boxes, outcome.map.certified(OPTIMAL).ravel(), strict=True) if good]


def test_cells_fill_the_limits():
    limits = rc.Box([1.0, 0.0, 0.5], [3.0, 9.0, 2.0])
    grid = Grid.of_cells(limits, (0, 2), (4, 3))
    boxes = grid.boxes(np.array([7.0, 7.0, 7.0]))
    assert sum(float(np.prod((box.upper - box.lower)[[0, 2]])) for box in boxes) == pytest.approx(2.0 * 1.5)
    assert {(float(box.lower[1]), float(box.upper[1])) for box in boxes} == {(7.0, 7.0)}
    np.testing.assert_array_equal(np.min([box.lower for box in boxes], axis=0)[[0, 2]], limits.lower[[0, 2]])
    np.testing.assert_array_equal(np.max([box.upper for box in boxes], axis=0)[[0, 2]], limits.upper[[0, 2]])
    np.testing.assert_allclose([box.around()[0] for box in boxes], grid.initial_states(np.array([7.0, 7.0, 7.0])))


def test_a_plan_is_certified_from_every_state_of_a_certified_cell(study, rng):
    outcome, material = study.find(RegionOutcome), study.material
    boxes = certified_boxes(outcome)
    assert 0 < len(boxes) < 48
    plans = plan_from(material.control, np.array([box.around()[0] for box in boxes]), "again", study.work)
    for box, plan in zip(boxes, plans, strict=True):
        for x in (box.lower, box.upper, rng.uniform(box.lower, box.upper)):
            found = rc.certify(material.predictors[OPTIMAL], x, plan.inputs, material.limits)
            assert found.verdict is rc.Verdict.CERTIFIED


def test_a_dot_is_in_a_cell_that_is_undecided_as_a_whole(study):
    outcome = study.find(RegionOutcome)
    found, grid = outcome.map.summary(), outcome.map.grid
    dots = outcome.map.middles[OPTIMAL]
    assert dots
    for x, y in dots:
        i, j = np.abs(grid.first - x).argmin(), np.abs(grid.second - y).argmin()
        assert (x, y) == pytest.approx((grid.first[i], grid.second[j]))
        assert found["verdicts"][OPTIMAL][i][j] == "UNDECIDED"
    assert len(found["cells_end_at"][0]) == 9


def test_true_states_of_certified_cells_keep_the_limits(study):
    outcome = study.find(RegionOutcome)
    assert outcome.checked == 10 * len(certified_boxes(outcome))
    assert outcome.escaped == 0
    assert not study.is_contradicted


def test_smaller_cells_certify_more_and_uncertain_states_less(study):
    share = study.find(RegionOutcome).map.shares[OPTIMAL]
    assert small([2, 2]).find(RegionOutcome).map.shares[OPTIMAL] < share
    uncertain = small([8, 6], initial_state_noise=0.05).find(RegionOutcome)
    assert uncertain.map.shares[OPTIMAL] < share
    assert uncertain.escaped == 0


def test_the_report_speaks_of_cells(study, tmp_path):
    section = next(s for s in report(study).page().sections if s.title == "From where it is certified")
    assert "8 by 6 cells" in section.blocks[0]
    assert "random states in certified cells" in section.blocks[1]
    write_results(study, tmp_path)
    assert (tmp_path / "region.png").exists()
