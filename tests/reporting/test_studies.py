"""Reports of studies without plans: what was found comes first."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.decisions.experiments import Experiment
from rkhs_control.scenarios.material import OPTIMAL, Material, Work
from rkhs_control.scenarios.results import report
from rkhs_control.scenarios.run import StudyResult
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.closed_loop import CERTAINTY_EQUIVALENT, ROBUST
from rkhs_control.scenarios.studies.design import TIGHTENED, DesignOutcome
from rkhs_control.scenarios.studies.kind import Task
from rkhs_control.scenarios.studies.region import Grid, VerdictMap
from rkhs_control.scenarios.studies.sampling import SamplingOutcome, SamplingRound


@pytest.fixture
def task(predictor):
    scenario, _ = load_scenario("cstr_sampling")
    names = predictor.runs.state_names, predictor.runs.input_names
    limits = scenario.limits.over(*names)
    return Task(scenario, Material({OPTIMAL: predictor}, limits, None, None, n_held_out=9), Work(0))


def test_a_study_of_experiments_says_what_the_plan_is_now(certificates, task, plan, plant):
    undecided, kept = certificates["open"], certificates["kept"]
    experiment = Experiment(*plan, 0.1, 0.1, kept)
    for last, ending, text in (
        (kept, "the plan is certified", "certified after 2 experiments; before them it was undecided."),
        (undecided, "the rounds are used up", "still undecided after 2 experiments: the rounds are used up."),
    ):
        rounds = SamplingRound(undecided), SamplingRound(last, (experiment, experiment))
        sampling = SamplingOutcome(task, rounds, {"nearby": (undecided, last)}, plant.simulate(*plan), ending)
        page = report(StudyResult(task, (sampling,))).page()
        assert page.headline.sentence == f"The plan is {text}"
        assert page.headline.numbers == (("150", "recorded runs make the boxes, 9 held out test them"),)


@pytest.mark.parametrize("has_room", [True, False])
def test_a_design_says_where_tightened_limits_leave_no_room(task, has_room):
    names = (CERTAINTY_EQUIVALENT, *([TIGHTENED] if has_room else []), ROBUST)
    grid = Grid((0, 1), np.arange(2.0), np.arange(2.0))
    some = np.full((3, 2), 0.1)
    design = DesignOutcome(
        task,
        half_widths=np.full((4, 3, 2), 0.1),
        tightening=rc.Tightening(some, some),
        tightening_share=0.9,
        region=VerdictMap(grid, dict.fromkeys(names, [rc.Verdict.CERTIFIED] * 4)),
        n_wrong=0,
        effects=[],
        sweep=None,
        trials=[],
    )
    page = report(StudyResult(task, (design,))).page()
    section = page.sections[0]
    assert section.title == "The certifiable region"
    assert ("leave no room: no nominal plan can keep them" in section.blocks[0]) == (not has_room)
