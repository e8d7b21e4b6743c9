"""Kinds of studies: one module each, and all that is told of them from there."""

import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

import rkhs_control as rc
from rkhs_control.cli.tables import listing_table
from rkhs_control.reporting import Section
from rkhs_control.scenarios import schema, studies
from rkhs_control.scenarios.material import OPTIMAL, Material, Work
from rkhs_control.scenarios.results import report, summary, write_results
from rkhs_control.scenarios.run import StudyResult, run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.kind import Kind, Listing, Outcome, Task
from rkhs_control.scenarios.studies.plans import JudgedPlan, PlansOutcome
from rkhs_control.scenarios.studies.region import Grid, VerdictMap, certified_share

CERTIFIED, UNDECIDED = rc.Verdict.CERTIFIED, rc.Verdict.UNDECIDED


def printed(listing):
    console = Console(width=120)
    with console.capture() as shown:
        console.print(listing_table(listing))
    return shown.get()


@pytest.fixture
def task(predictor):
    scenario, _ = load_scenario("cstr")
    limits = scenario.limits.over(predictor.runs.state_names, predictor.runs.input_names)
    return Task(scenario, Material({OPTIMAL: predictor}, limits, None, None), Work(0))


def test_a_margin_is_never_printed_larger_than_it_is(task, predictor, plan):
    """A norm margin of 1.99996 is less than two, on the terminal as in the report."""
    certificate = rc.certify(predictor, *plan, task.material.limits)
    certificate = replace(certificate, margins=np.full_like(certificate.margins, 0.29999))
    margins = {OPTIMAL: {"norm_margin": 1.99996, "noise_margin": np.inf}}
    outcome = PlansOutcome(task, [JudgedPlan("the plan", {OPTIMAL: certificate}, margins)], [(0, 1)])
    (listing,) = outcome.listings()
    ((row,),) = listing.groups
    assert row[4:7] == ["+0.299", "1.99", "≥16"]
    text = printed(listing)
    assert "1.99 " in text
    assert "0.2999" not in text
    assert "1.99" in report(StudyResult(task, (outcome,))).page().html()


def test_names_in_tables_are_only_names():
    text = printed(Listing(("[b]name[/b]",), [[("[/b] \x1b[31mx",), (CERTIFIED,)]], title="[bold]t[/foo]"))
    assert "[b]name[/b]" in text
    assert "[/b] \\x1b[31mx" in text
    assert "[bold]t[/foo]" in text
    assert "CERTIFIED" in text


def test_a_map_of_verdicts_is_built_complete_and_stays_as_it_is():
    grid = Grid((0, 1), np.arange(2.0), np.arange(3.0))
    found = VerdictMap(grid, {"optimal": [CERTIFIED] * 3 + [UNDECIDED] * 3})
    np.testing.assert_array_equal(found.certified("optimal"), [[True] * 3, [False] * 3])
    assert found.shares == {"optimal": 0.5}
    assert found.summary()["verdicts"]["optimal"] == [["CERTIFIED"] * 3, ["UNDECIDED"] * 3]
    assert not hasattr(found, "add")
    with pytest.raises(FrozenInstanceError):
        found.verdicts = {}


def test_the_certified_share_counts_nothing_but_certified():
    assert certified_share([CERTIFIED, UNDECIDED, rc.Verdict.REFUTED, CERTIFIED]) == 0.5


class WeatherSettings(schema.Settings):
    sun: float


@dataclass(frozen=True, eq=False)
class WeatherOutcome(Outcome):
    sun: float
    name = "weather"

    def summary(self):
        return {"sun": self.sun}

    @property
    def is_contradicted(self):
        return self.sun < 0

    @property
    def verdicts(self):
        return [UNDECIDED]

    def sections(self):
        return [Section("The weather", ["It shone."])]

    def finding(self):
        return "It shone."

    def write(self, folder):
        (folder / "weather.txt").write_text("sun")


@pytest.fixture
def weather(monkeypatch):
    """A kind that is one module and one line of the registry."""
    module = ModuleType("rkhs_control.scenarios.studies.weather")
    module.KIND = Kind(
        "weather",
        WeatherSettings,
        lambda settings, scenario, source: lambda task: WeatherOutcome(task, settings.sun),
        lambda settings, scenario: "[weather] needs [plant]" if scenario.plant is None else "",
        files=("weather*",),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(studies, "MODULES", (*studies.MODULES, "weather"))
    for cached in (studies.kinds, schema.scenario_class):
        cached.cache_clear()
    yield
    for cached in (studies.kinds, schema.scenario_class):
        cached.cache_clear()


def test_a_new_kind_is_one_module_and_one_line(weather, tmp_path):
    small = {"plant.horizon": 1, "plant.exploration_runs": 40, "plant.runs": 20, "predictor.compare_closed_form": False}
    with pytest.raises(rc.InputError, match=r"section \[weather\] has no key 'sum' \(did you mean 'sun'\?\)"):
        load_scenario("cstr", {"weather.sum": 1.0, "weather.sun": 1.0})
    with pytest.raises(rc.InputError, match=r"weather\.sun is missing"):
        load_scenario("cstr", {"weather": {}})
    scenario, folder = load_scenario("cstr_design", {**small, "weather.sun": 2.0})
    scenario = scenario.model_copy(update={"design": None})
    result = run_study(scenario, folder, Work(0))
    assert result.find(WeatherOutcome).sun == 2.0
    assert result.worst_verdict is UNDECIDED
    assert not result.is_contradicted
    assert summary(result)["weather"] == {"sun": 2.0}
    page = report(result).page()
    assert page.headline.sentence == "It shone."
    assert page.sections[0].title == "The weather"
    (tmp_path / "weather_of_yesterday.txt").write_text("rain")
    write_results(result, tmp_path)
    assert [file.name for file in tmp_path.glob("weather*")] == ["weather.txt"]


def test_every_file_that_a_kind_writes_is_one_that_it_names(tmp_path):
    """So that nothing of an earlier run stays beside the results of a later one."""
    small = {"plant.horizon": 1, "plant.exploration_runs": 40, "plant.runs": 20, "predictor.compare_closed_form": False}
    study = {"study.initial_states": [[2.0, 1.1]], "study.region": [2, 2], "study.check": 2}
    loops = {"closed_loop": {"runs": 1, "steps": 1, "safe_input": [14.19]}}
    sampling = {"sampling": {"initial_state": [2.0, 1.1], "rounds": 1, "candidates": 20}}
    design = {"design.region": [2, 2], "design.sweep.values": [0.5]}
    for key in ("horizons", "runs", "noise_factors", "norm_factors"):
        design[f"design.{key}"] = []
    design["design.effects_region"] = [2, 2]
    design["design.norm_factors"] = [2.0]
    forever = {"forever_design": {"cells": [2, 2], "noise_factors": [2.0]}}
    scenario, folder = load_scenario("cstr_design", {**small, **study, **loops, **sampling, **design, **forever})
    result = run_study(scenario, folder, Work(0))
    # all but that of recordings, which need a log, and that for ever, which refuses to go on without a region
    assert len(result.outcomes) == len(studies.MODULES) - 2
    write_results(result, tmp_path)
    always = {"summary.json", "runs.npz", "predictor.npz", "report.html", "explorer.html"}
    named = {file for kind in studies.kinds() for pattern in kind.files for file in tmp_path.glob(pattern)}
    assert {file for file in tmp_path.rglob("*") if file.is_file()} - named == {tmp_path / name for name in always}
