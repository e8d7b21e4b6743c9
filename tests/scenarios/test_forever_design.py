"""Offline design for ever: regions with one thing changed, and how far a limit can be tightened."""

import json

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.results import report, write_results
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.forever_design import KIND, ForeverDesignOutcome, Trial, tightest

SMALL = {
    "limits.states.c_B": [0.5, 2.0],
    "plant.horizon": 2,
    "plant.exploration_runs": 60,
    "plant.runs": [8, 8],
    "plant.noise": 0.01,
    "plant.noise_bound": 0.012,
    "predictor.lengthscales": [10],
    "forever_design.cells": [8, 6],
    "forever_design.max_cells": 48,
    "forever_design.checked": 100,
    "forever_design.horizons": [1],
    "forever_design.runs": [12],
    "forever_design.noise_factors": [0.001, 4.0],
    "forever_design.limit.values": [0.8, 1.6],  # no state with c_B above 1.2 can be held by any input
    "forever_design.limit.resolution": 0.3,
}


@pytest.fixture(scope="module")
def study():
    scenario, folder = load_scenario("cstr_forever_design", SMALL)
    return run_study(scenario, folder, Work(scenario.seed))


@pytest.fixture(scope="module")
def outcome(study):
    return study.find(ForeverDesignOutcome)


def shares(outcome, what):
    return {trial.value: trial.share for trial in outcome.trials if trial.what == what}


def test_a_limit_beyond_what_the_plant_can_hold_has_no_region(outcome):
    found = shares(outcome, "c_B >=")
    assert list(found) == sorted(found)
    assert found[0.5] > 0.8
    assert found[0.8] > 0.0
    assert found[1.6] == 0.0


def test_the_tightest_limit_is_between_the_last_with_a_region_and_the_first_without(outcome):
    good, bad = tightest(outcome.limit_trials)
    assert 0.8 <= good.value < bad.value <= 1.6
    assert good.cells > 0
    assert bad.cells == 0
    assert bad.value - good.value <= 0.3
    assert good.value < 1.2
    assert f"the tightest limit with a region is c_B >= {good.value:g}, and none was found for" in outcome.remarks()[0]


def test_less_to_go_by_leaves_smaller_regions(outcome):
    n_runs, present = 60 + 64, shares(outcome, "c_B >=")[0.5]
    assert outcome.present == {"c_B >=": 0.5, "horizon": 2, "runs": n_runs, "noise bound x": 1.0}
    for what in ("horizon", "runs", "noise bound x"):
        assert shares(outcome, what)[outcome.present[what]] == present
    assert shares(outcome, "runs")[12] < present
    assert shares(outcome, "noise bound x")[4.0] < present


def test_a_noise_bound_that_the_data_refute_says_nothing(outcome):
    (refuted,) = [trial for trial in outcome.trials if trial.refutation]
    assert (refuted.what, refuted.value) == ("noise bound x", 0.001)
    assert "refuted by the data" in refuted.row()


def test_no_state_of_any_region_leaves_it_on_the_plant(study, outcome):
    assert not study.is_contradicted
    assert all(trial.checked == (100 if trial.cells else 0) for trial in outcome.trials)
    regions = {(trial.share, trial.seconds) for trial in outcome.trials if trial.cells}
    assert len(regions) >= 3  # as it is, with a tighter limit, with shorter plans
    assert outcome.remarks()[1].startswith(f"of {100 * len(regions):,} random states")  # the present region counts once


def test_its_numbers_figure_and_table_are_kept(study, outcome, tmp_path):
    write_results(study, tmp_path)
    kept = json.loads((tmp_path / "summary.json").read_text())["forever_design"]
    good, bad = tightest(outcome.limit_trials)
    assert kept["tightest_limit_with_a_region"] == good.value
    assert kept["next_limit_without"] == bad.value
    assert len(kept["trials"]) == len(outcome.trials)
    assert {file.name for pattern in KIND.files for file in tmp_path.glob(pattern)} == {
        "forever_design.png",
        "forever_design.svg",
    }
    page = report(study).page()
    assert page.headline.sentence.startswith("The tightest limit with a region is c_B >=")
    assert page.sections[0].title == "What regions for ever depend on"
    panels = outcome.figures()["forever_design"].axes
    assert [axes.get_xlabel() for axes in panels] == ["c_B >=", "horizon", "runs", "noise bound x"]
    drawn = panels[0].lines[0].get_xydata()
    np.testing.assert_allclose(drawn, sorted(shares(outcome, "c_B >=").items()))


def test_a_region_within_tighter_limits_counts_for_looser_ones():
    """A search may miss a region in between: what was found further on is one there, too."""
    none, some, missed, tight, last = (Trial("x >=", k, cells=n) for k, n in enumerate((0, 3, 0, 2, 0)))
    assert tightest([some, missed, tight, last]) == (tight, last)
    assert tightest([some, missed, tight]) == (tight, None)
    assert tightest([none, last]) == (None, none)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"forever_design.cells": [4]}, "forever_design.cells must be one per state"),
        ({"forever_design.horizons": [9]}, "only 3 steps"),
        ({"forever_design.limit.state": "c_C"}, "must be one of c_A, c_B"),
        ({"forever_design.limit.values": [2.5]}, "2.5 is beyond the opposite limit"),
        ({"forever_design.limit.values": [2.0]}, "leaves nothing between them"),
        ({"limits.input_rates": {"u": [-1.0, 1.0]}}, "no limits on input rates"),
        ({"forever_design": {"cells": [4, 4]}}, "needs something to change"),
    ],
)
def test_impossible_designs_are_refused_before_the_work(changes, match):
    with pytest.raises(rc.InputError, match=match):
        run_study(*load_scenario("cstr_forever_design", changes), Work(1))
