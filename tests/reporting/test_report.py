"""Reports: they say what the certificates say, show what that rests on, and need nothing but themselves."""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.arithmetic.printing import rounded_down
from rkhs_control.assumptions.norms import least_norm_estimate
from rkhs_control.decisions.experiments import Experiment
from rkhs_control.reporting import Cell, Commands, Gallery, Picture, Section, Table, figures
from rkhs_control.scenarios.design import TIGHTENED, DesignResult
from rkhs_control.scenarios.example import write_example
from rkhs_control.scenarios.material import OPTIMAL, Limits, Material, Work
from rkhs_control.scenarios.outputs import write_results
from rkhs_control.scenarios.region import Region
from rkhs_control.scenarios.sampling import SamplingResult, SamplingRound
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.study import StudyResult, certify_file
from rkhs_control.scenarios.study_report import study_report

HOSTILE = "\"><script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)> & {{ 7 * 7 }} $x$"
WIDE = rc.Box([0.5, 0.2], [4.0, 3.0])


class Reader(HTMLParser):
    """All tags with their attributes, and the text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def written(folder, certificates, **settings):
    rc.write_report(folder / "report.html", certificates, **settings)
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def certificates(predictor, plant):
    """One of each verdict, by name."""
    from test_predictor import feedback_inputs

    x0 = np.array([2.3, 0.9])
    inputs = feedback_inputs(plant, x0[None], 3)[0]
    tube = predictor.boxes(x0, inputs)
    low, high = tube.lower[2, 1], tube.upper[2, 1]
    limits = {"kept": 3.0, "open": (low + high) / 2.0, "broken": low - 0.01}
    return {
        name: rc.certify(predictor, x0, inputs, state_limits=rc.Box([0.5, 0.2], [4.0, top]))
        for name, top in limits.items()
    }


@pytest.fixture(scope="module")
def texts(certificates, tmp_path_factory):
    """What the report of each of them says."""
    folder = tmp_path_factory.mktemp("reports")
    return {name: Reader(written(folder, {name: certificate})) for name, certificate in certificates.items()}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The results of `rkhs-control certify` on the example."""
    folder = tmp_path_factory.mktemp("study")
    write_example(folder / "plant")
    scenario, base = load_scenario(str(folder / "plant" / "scenario.toml"))
    write_results(certify_file(scenario, base, folder / "plant" / "plan.csv", Work(0)), folder / "results")
    return folder / "results"


@pytest.mark.parametrize(
    ("name", "word", "meaning"),
    [
        ("kept", "CERTIFIED", "the plant keeps them, if the assumptions below hold"),
        ("open", "UNDECIDED", "neither prove that the plant keeps them nor that it breaks them"),
        ("broken", "REFUTED", "the plan will not keep them, if the assumptions below hold"),
    ],
)
def test_the_verdict_comes_first_and_in_words(certificates, texts, name, word, meaning):
    reader = texts[name]
    assert certificates[name].verdict.name == word
    text = " ".join(reader.text.split())
    assert text.index(word) < text.index(meaning) < text.index("Plans")
    assert "data can refute them, never confirm them" in text
    assert reader.all("header")[0]["class"] == word.lower()


def test_of_several_plans_the_worst_decides(certificates, tmp_path):
    text = Reader(written(tmp_path, certificates)).text
    assert "3 plans: 1 certified, 1 undecided, 1 refuted. The worst is plan broken" in text


def test_what_would_change_the_verdict_is_said_in_words(certificates, texts):
    kept, undecided, broken = (reader.text for reader in texts.values())
    assert "It stays certified with all noise bounds" in kept
    assert f"up to {rounded_down(certificates['kept'].noise_margin)} times as large" in kept
    amount = -float(rounded_down(certificates["open"].margin))
    limit = certificates["open"].first_failure[1]
    assert re.fullmatch(r"c_B <= 1\.0302\d+", limit)
    assert f"UNDECIDED: at step 3 the box passes {limit} by {amount:#.3g}." in undecided
    hope = certificates["open"].hopes.min()
    assert f"keeps every limit by at least {rounded_down(hope, 4)}" in undecided
    assert "never certified: change the plan or the limits" in broken


def test_inputs_that_break_their_own_limits_are_named(predictor, plan, tmp_path):
    certificate = rc.certify(predictor, *plan, state_limits=WIDE, input_limits=rc.Box([100.0], [200.0]))
    text = Reader(written(tmp_path, certificate)).text
    assert certificate.input_violation in text
    assert "does not rest on the data or the assumptions at all" in text


def test_margins_by_step_are_those_of_the_certificate_and_never_rounded_up(certificates):
    for name, certificate in certificates.items():
        reported = rc.ReportedPlan(name, {"optimal": certificate})
        page = rc.Report("A report", certificate.predictor, [reported]).page()
        (section,) = [s for s in page.sections if s.title == "Distance to the limits"]
        table = section.blocks[-1]
        shown = np.array([[float(cell.text) for cell in row[1:]] for row in table.rows]).T
        outside = certificate.hopes < 0.0
        assert outside.any() == (name == "broken")
        assert (shown <= certificate.margins)[~outside].all()
        assert (shown >= certificate.hopes)[outside].all()  # no larger a violation than was proved
        expected = np.where(outside, certificate.hopes, certificate.margins)
        np.testing.assert_allclose(shown, expected, rtol=1e-2)
        for (n, c), margin in np.ndenumerate(certificate.margins):
            tone = "certified" if margin >= 0 else "refuted" if certificate.hopes[n, c] < 0 else "undecided"
            assert table.rows[c][n + 1].tone == tone
        assert sum(cell.is_marked for row in table.rows for cell in row[1:]) == 1


def page_of(**certificates):
    plans = [rc.ReportedPlan(name, {"optimal": c}, {"optimal": MARGINS[c.verdict]}) for name, c in certificates.items()]
    return rc.Report("A report", plans[0].certificate.predictor, plans).page()


MARGINS = {
    verdict: {"norm_margin": factor, "noise_margin": factor}
    for verdict, factor in zip(rc.Verdict, (2.0, 0.5, 0.0), strict=True)
}


def section_of(page, title):
    return next(section for section in page.sections if section.title == title)


@pytest.mark.parametrize("name", ["kept", "open", "broken", "worse later"])
def test_one_plan_has_one_number_and_place_in_the_whole_report(certificates, predictor, plan, name):
    if name == "worse later":  # all of the boxes at steps 2 and 3 is outside, and the far corners are elsewhere
        low = float(predictor.boxes(*plan).lower[1, 1])
        certificate = rc.certify(predictor, *plan, state_limits=rc.Box([2.2, 0.2], [4.0, low - 0.001]))
        assert certificate.verdict is rc.Verdict.REFUTED
    else:
        certificate = certificates[name]
    page = page_of(plan=certificate)
    ((_, _, _, margin, where, *_),) = section_of(page, "Plans").blocks[0].rows
    table = section_of(page, "Distance to the limits").blocks[-1]
    ((framed, place),) = [
        (cell.text, f"step {n}, {row[0]}") for row in table.rows for n, cell in enumerate(row[1:], 1) if cell.is_marked
    ]
    assert (margin, where) == (framed, place)
    assert page.headline.numbers[0][0] == margin
    assert f"by {margin.removeprefix('-')}" in page.headline.sentence or name == "kept"
    if name == "worse later":
        assert "At step 2 the whole box breaks" in page.headline.sentence
        assert "(worst at step 3: " in page.headline.sentence


def test_factors_that_cannot_help_are_dashes_and_those_below_one_must_shrink(certificates):
    page = page_of(**certificates)
    assert [row[5] for row in section_of(page, "Plans").blocks[0].rows] == ["2.00", "0.500", "–"]
    labels = {name: [label for _, label in page_of(**{name: c}).headline.numbers] for name, c in certificates.items()}
    assert "all norm bounds may grow to this" in labels["kept"]
    assert "all norm bounds would have to shrink to this" in labels["open"]
    assert not any("norm" in label for label in labels["broken"])


def test_inputs_that_decide_leave_nothing_framed(predictor, plan):
    page = page_of(inputs=rc.certify(predictor, *plan, state_limits=WIDE, input_limits=rc.Box([100.0], [200.0])))
    text, table = section_of(page, "Distance to the limits").blocks
    assert "The inputs refute the plan" in text
    assert not any(cell.is_marked for row in table.rows for cell in row[1:])
    assert section_of(page, "Plans").blocks[0].rows[0][3:5] == ["–", "the inputs"]


def test_a_plan_that_starts_outside_is_not_said_to_keep_the_limits_from_the_start(predictor, plan):
    x0, inputs = plan
    limits = rc.Box([0.5, 0.2], [float(np.nextafter(x0[0], 0.0)), 3.0])
    certificate = rc.certify(predictor, x0, inputs, state_limits=limits)
    assert certificate.verdict is rc.Verdict.CERTIFIED
    page = page_of(late=certificate)
    assert "The plan starts outside the limits" in page.headline.sentence
    assert page.headline.paragraphs[0].startswith("At every sampling instant after the first the whole box")
    assert "plan late. The verdict is about the steps after that" in page.warnings[0]
    inside = page_of(kept=rc.certify(predictor, x0, inputs, state_limits=WIDE))
    assert inside.headline.paragraphs[0].startswith("At every sampling instant of the plan")
    assert not inside.warnings


def test_sampling_times_are_said_where_somebody_gave_them(predictor):
    for seconds, text in ((1.0, "150 of 3 steps"), (30.0, "150 of 3 steps, 30 s each")):
        timed = predictor.with_runs(replace(predictor.runs, sampling_time=seconds))
        page = rc.Report("A report", timed).page()
        assert section_of(page, "Data, versions, timings").blocks[0].rows[0] == ("recorded runs", text)


def test_windows_are_called_windows_and_their_starts_are_spoken_of(windows):
    cut = windows[0]
    for noise, text in (
        (
            None,
            "The windows begin with measured states, which may be off by the noise bound: x_0 by 0.02, x_1 by 0.02.",
        ),
        ([0.0, 0.01], "The windows begin with measured states, which may be off: x_0 by 0, x_1 by 0.01."),
        (0.0, "The windows begin with measured states, which are taken as exact."),
    ):
        model = rc.MultiStepPredictor(cut, rc.SquaredExponential(1.0), 1e7, initial_state_noise=noise)
        report = rc.Report("A report", model, n_held_out=9, n_left_out=1)
        page = report.page()
        assert page.headline.numbers[0] == ("99", "recorded windows make the boxes, 9 held out test them")
        assert text in section_of(page, "Assumptions").blocks
        (name, value), *_ = section_of(page, "Data, versions, timings").blocks[0].rows
        assert name == "recorded windows"
        assert value == "99 of 2 steps; 9 more were held out, and 1 that share samples with these were left out"


def test_runs_with_known_initial_states_need_no_word_about_them(certificates, predictor, plan):
    text = " ".join(
        block for block in section_of(page_of(**certificates), "Assumptions").blocks if isinstance(block, str)
    )
    assert "initial states" not in text
    measured = rc.certify(predictor, *plan, state_limits=WIDE, initial_state_noise=[0.01, 0.0])
    blocks = section_of(page_of(plan=measured), "Assumptions").blocks
    assert "The true initial state of a plan may differ from the one in it: c_A by 0.01, c_B by 0." in blocks


def test_without_plans_what_was_found_comes_before_what_it_rests_on(predictor):
    page = rc.Report("A report", predictor, sections=[Section("What was found", ["Much."])], findings="Much.").page()
    assert [section.title for section in page.sections[:2]] == ["What was found", "Assumptions"]


@pytest.mark.parametrize("value", [1.0999, -0.22191, 7.0, 123456.0, 1.0996e-7, -1e-17, 0.0])
def test_printing_never_enlarges(value):
    assert float(rounded_down(value)) <= value
    assert float(rounded_down(value)) >= value - 0.01 * abs(value)


def test_the_frontier_is_drawn_from_below_and_meets_its_breakpoints(rng):
    X = rng.uniform(-3, 3, (40, 1))
    y = np.sin(2 * X[:, 0]) + rng.uniform(-0.1, 0.1, 40)
    kernel = rc.SquaredExponential(0.8)
    frontier = rc.consistency_frontier(rc.Observations(X, y, 0.15), kernel, 0.065)
    assert len(frontier.noise_bounds) <= 100  # of more, not each is proved
    middles = np.sqrt(frontier.noise_bounds[1:] * frontier.noise_bounds[:-1])
    exact = np.array([least_norm_estimate(rc.Observations(X, y, d), kernel).value for d in middles])
    middles, exact = middles[exact < 1e3], exact[exact < 1e3]  # beyond, doubles do not tell
    drawn = frontier.least_norms_at(middles)
    assert len(middles) > 40
    assert (drawn <= exact * (1 + 1e-6) + 1e-9).all()
    assert np.median(drawn / exact) > 0.99
    told = frontier.least_norms < 1e3
    at = frontier.least_norms_at(frontier.noise_bounds[told])
    np.testing.assert_allclose(at, frontier.least_norms[told], rtol=1e-6, atol=1e-9)


def test_assumptions_say_where_they_are_from_and_what_the_data_refute(certificates, texts):
    certificate, text = certificates["open"], texts["open"].text
    for row in certificate.predictor.envelopes:
        for envelope in row:
            assert envelope.norm_bound.provenance in text
    least = certificate.predictor.envelopes[2][1].least_norm.norm  # c_B at step 3 decides
    stated = re.search(r"c_B at step 3: with the noise bound 0.06 the data refute norms below ([\d.]+);", text)
    assert float(stated[1]) <= least < 1.02 * float(stated[1])


def test_names_are_text_and_nothing_else(predictor, plan, tmp_path):
    runs = predictor.runs
    renamed = rc.Trajectories(runs.states, runs.inputs, runs.noise_bound, (HOSTILE, "b"), (HOSTILE,))
    hostile = rc.MultiStepPredictor(renamed, predictor.kernels, predictor.norm_bounds)
    certificate = rc.certify(hostile, *plan, state_limits=WIDE)
    section = Section(
        HOSTILE, [HOSTILE, Table((HOSTILE,), [(Cell(HOSTILE, "certified"),)], HOSTILE), Commands([HOSTILE])]
    )
    html = written(
        tmp_path,
        {HOSTILE: certificate},
        title=HOSTILE,
        description=HOSTILE,
        sections=[section],
        certificate_files=[HOSTILE],
    )
    reader = Reader(html)
    assert not reader.all("script")
    assert all(image["src"].startswith("data:image/svg+xml;base64,") for image in reader.all("img"))
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert reader.text.count(HOSTILE) > 10
    assert "49" not in re.findall(r"& (\S+) \$x", reader.text)


def test_names_cannot_control_a_terminal_or_turn_text_round(predictor, plan, tmp_path):
    runs = predictor.runs
    renamed = rc.Trajectories(runs.states, runs.inputs, runs.noise_bound, ("a\x1b[31m", "b\u202e"))
    certificate = rc.certify(
        rc.MultiStepPredictor(renamed, predictor.kernels, predictor.norm_bounds), *plan, state_limits=WIDE
    )
    html = written(tmp_path, {"x\x1b]0;owned\x07": certificate, "two": certificate}, description="two\nlines")
    drawings = [base64.b64decode(image["src"].partition(",")[2]).decode() for image in Reader(html).all("img")]
    for text in (html, *drawings):
        assert not set("\x1b\x07\u202e") & set(text)
    assert r"x\x1b]0;owned\x07" in html
    assert "two\nlines" in html


def test_names_in_any_script_are_drawn_without_warnings(predictor, plan, tmp_path):
    runs = predictor.runs
    renamed = rc.Trajectories(runs.states, runs.inputs, runs.noise_bound, ("浓度", "温度"))
    certificate = rc.certify(
        rc.MultiStepPredictor(renamed, predictor.kernels, predictor.norm_bounds), *plan, state_limits=WIDE
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        html = written(tmp_path, {"计划": certificate})
        figures.save_figure(figures.time_figure({"计划": certificate}), tmp_path, "time")
    assert "计划" in html
    assert "浓度" in html


def test_portraits_name_plans_and_hide_no_certified_box(certificates):
    names = ["kept", "a name that is far too long", "broken"]
    (axes,) = figures.phase_figure({"optimal": list(certificates.values())}, names=names).axes
    assert [text.get_text() for text in axes.texts] == ["kept\nbroken"]  # they start from the same state
    kept, undecided, broken = (
        {patch.get_zorder() for patch in axes.patches[3 * k : 3 * k + 3]} for k in range(len(certificates))
    )
    assert min(kept) > max(undecided) > max(broken)


def test_long_labels_are_broken_into_lines(predictor, plan):
    runs = predictor.runs
    name = "the $ concentration behind the second reactor, the heat exchanger and the filter, as measured twice"
    renamed = rc.Trajectories(runs.states, runs.inputs, runs.noise_bound, (name, "b"))
    certificate = rc.certify(
        rc.MultiStepPredictor(renamed, predictor.kernels, predictor.norm_bounds), *plan, state_limits=WIDE
    )
    label = figures.time_figure({"optimal": certificate}).axes[0].get_ylabel()
    assert label.startswith(r"the \$ concentration")
    lines = label.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 25


def addresses(reader):
    return [a[key] for _, a in reader.tags for key in ("src", "href", "srcset", "data", "action") if key in a]


def test_a_report_needs_nothing_but_itself(study):
    html = (study / "report.html").read_text()
    reader = Reader(html)
    assert "://" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert not reader.all("script")
    for address in addresses(reader):
        assert address.startswith(("data:", "#"))
    assert len(html) < 2_000_000


def test_pictures_are_drawings_with_words_for_those_who_do_not_see_them(study):
    images = Reader((study / "report.html").read_text()).all("img")
    assert len(images) == 6  # a portrait and intervals over time by two methods, two frontiers
    for image in images:
        assert len(image["alt"]) > 30
        drawing = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,"))
        assert b"<svg" in drawing
    assert sum("Consistency frontier" in image["alt"] for image in images) == 2


def test_headings_are_in_order_and_the_language_is_said(study):
    reader = Reader((study / "report.html").read_text())
    assert reader.all("html")[0]["lang"].startswith("en")
    headings = [tag for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1"
    assert set(headings[1:]) == {"h2"}
    targets = {a["id"] for _, a in reader.tags if "id" in a}
    assert {a["href"].removeprefix("#") for a in reader.all("a")} <= targets


def test_commands_in_the_report_check_what_it_reports(study):
    lines = [
        line for line in Reader((study / "report.html").read_text()).text.splitlines() if "rkhs-control verify" in line
    ]
    assert len(lines) == 1
    _, _, certificate, _, data = shlex.split(lines[0])
    result = rc.verify(study / certificate, data=study / data)
    assert result.accepted
    text = Reader((study / "report.html").read_text()).text
    assert json.loads((study / certificate).read_text())["data"]["sha256"] in text
    assert rc.__version__ in text
    assert "certifying, optimal" in text


def test_held_out_runs_are_not_counted_among_those_that_make_the_boxes(study):
    text = Reader((study / "report.html").read_text()).text
    summary = json.loads((study / "summary.json").read_text())
    held_out = summary["held_out_runs_without_contradiction"]
    assert held_out > 0
    assert f"recorded runs make the boxes, {held_out} held out test them{summary['runs']}" in "".join(text.split("\n"))
    assert re.search(rf"{summary['runs']} of \d steps; {held_out} more were held out", text)


def test_no_verdict_stands_above_a_contradiction(certificates):
    kept = certificates["kept"]
    plans = [rc.ReportedPlan("kept", {"optimal": kept})]
    page = rc.Report("A report", kept.predictor, plans, contradiction="A true state is outside.").page()
    assert page.headline.word == "CONTRADICTED"
    assert page.headline.tone == "refuted"
    assert "assumptions that do not hold" in page.headline.paragraphs[0]


def test_bounds_with_a_probability_say_so(predictor, plan, tmp_path):
    gaussian = predictor.with_method(rc.GaussianProcessEnvelope)
    text = Reader(written(tmp_path, rc.certify(gaussian, *plan, state_limits=WIDE))).text
    assert "hold with a probability, not for certain" in text


@pytest.mark.parametrize("noise", [0.0, 0.02, 5.0])
def test_one_state_no_limits_and_any_noise_bound_make_a_report(noise, rng, tmp_path):
    """With none, the frontier ends at zero; with much, zero fits all data."""
    x0, inputs = rng.uniform(-1, 1, (12, 1)), rng.uniform(-1, 1, (12, 1, 1))
    states = np.stack([x0, 0.8 * x0 + 0.3 * inputs[:, 0]], axis=1)
    runs = rc.Trajectories(states, inputs, noise)
    one = rc.MultiStepPredictor(runs, rc.SquaredExponential(2.0), 50.0)
    text = Reader(written(tmp_path, rc.certify(one, [0.2], [[0.1]], state_limits=rc.Box([-np.inf], [np.inf])))).text
    assert "there are no limits of states to break" in text
    assert ("the data refute no norm: zero fits" in text) == (noise > 2.0)


def study_of(predictor, **found):
    """A study without plans."""
    scenario, _ = load_scenario("cstr_sampling")
    names = predictor.runs.state_names, predictor.runs.input_names
    material = Material({OPTIMAL: predictor}, Limits.of(scenario.limits, *names), None, None, n_held_out=9)
    return StudyResult(scenario, material, Work(0), [], **found)


def test_a_study_of_experiments_says_what_the_plan_is_now(certificates, predictor, plan, plant):
    undecided, kept = certificates["open"], certificates["kept"]
    experiment = Experiment(*plan, 0.1, 0.1, kept)
    for last, ending, text in (
        (kept, "the plan is certified", "certified after 2 experiments; before them it was undecided."),
        (undecided, "the rounds are used up", "still undecided after 2 experiments: the rounds are used up."),
    ):
        rounds = SamplingRound(undecided), SamplingRound(last, (experiment, experiment))
        sampling = SamplingResult(rounds, {"nearby": (undecided, last)}, plant.simulate(*plan), ending)
        page = study_report(study_of(predictor, sampling=sampling)).page()
        assert page.headline.sentence == f"The plan is {text}"
        assert page.headline.numbers == (("150", "recorded runs make the boxes, 9 held out test them"),)


@pytest.mark.parametrize("has_room", [True, False])
def test_a_design_says_where_tightened_limits_leave_no_room(predictor, has_room):
    region = Region((0, 1), np.arange(2.0), np.arange(2.0))
    for name in ("certainty equivalent", *([TIGHTENED] if has_room else []), "robust"):
        region.add(name, [rc.Verdict.CERTIFIED] * 4)
    some = np.full((3, 2), 0.1)
    design = DesignResult(np.full((4, 3, 2), 0.1), rc.Tightening(some, some), 0.9, region, 0, [], None, [])
    page = study_report(study_of(predictor, design=design)).page()
    section = page.sections[0]
    assert section.title == "The certifiable region"
    assert ("leave no room: no nominal plan can keep them" in section.blocks[0]) == (not has_room)


def test_further_sections_stand_where_they_are_told(certificates, tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1])
    section = Section("Offline design", ["Designed at night.", Gallery([Picture(figure, "A line that rises.")])])
    reader = Reader(written(tmp_path, certificates["kept"], sections=[section]))
    assert reader.text.index("What would change") < reader.text.index("Designed at night.")
    assert {"width": "288", "height": "192", "alt": "A line that rises."}.items() <= reader.all("img")[-1].items()


def test_many_dots_become_a_picture_of_dots(rng):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot(*rng.normal(size=(2, 30_000)), ".")
    assert Picture(figure, "Dots.").source.startswith("data:image/png;base64,")


def test_misuse_is_named(certificates, predictor, plan, tmp_path):
    with pytest.raises(rc.InputError, match="at least one certificate"):
        rc.write_report(tmp_path / "report.html", [])
    with pytest.raises(rc.InputError, match="3 certificates need as many files; got 1"):
        rc.write_report(tmp_path / "report.html", certificates, certificate_files=["one.json"])
    runs = predictor.runs
    renamed = rc.Trajectories(runs.states, runs.inputs, runs.noise_bound, ("other", "b"))
    other = rc.certify(
        rc.MultiStepPredictor(renamed, predictor.kernels, predictor.norm_bounds), *plan, state_limits=WIDE
    )
    with pytest.raises(rc.InputError, match="plan 2 is about the states other, b"):
        rc.write_report(tmp_path / "report.html", [certificates["kept"], other])


# In a browser

MEASURE = """<script>
addEventListener("load", () => {
  const images = [...document.images].map(image => [image.complete && image.naturalWidth, image.clientWidth]);
  const page = document.documentElement;
  const rows = [...document.querySelectorAll("tbody th")].map(head => head.clientWidth);
  const sizes = {images: images, rows: rows, room: page.clientWidth, content: page.scrollWidth};
  parent.postMessage(JSON.stringify(sizes), "*");
});
</script>"""
FRAME = """<!DOCTYPE html><body>
<script>addEventListener("message", event => document.body.append("measured " + event.data));</script>
<iframe style="border:0;width:WIDTHpx;height:2000px" src="inner.html"></iframe>
</body>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Opens a file: the page in the end, what it says on the console, what it asks the network for."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is installed")
    profile = tmp_path_factory.mktemp("profile")

    def show(file, width=1200):
        log = profile / "net.json"
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={profile / 'data'}",
            "--enable-logging=stderr",
            "--log-level=0",
            f"--log-net-log={log}",
            f"--window-size={width},900",
            "--virtual-time-budget=5000",
            "--dump-dom",
            file.as_uri(),
        ]
        environment = {**os.environ, "HOME": str(profile)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
        by_pages = [e["url"] for e in events if e.get("initiator", "not an origin") != "not an origin"]
        return done.stdout, console, [url for url in by_pages if not url.startswith(("file:", "data:"))]

    return show


def test_a_browser_shows_it_without_errors_and_without_the_network(study, browser):
    dom, console, requests = browser(study / "report.html")
    assert console == []
    assert requests == []
    text = Reader(dom).text
    assert "CERTIFIED" in text
    assert "Data cannot confirm these bounds" in text


def test_a_browser_notices_what_a_report_must_not_do(browser, study, tmp_path):
    """So that the test above can fail; and a report forbids it, whatever got into it."""
    stranger = '<img src="http://127.0.0.1:9/x.png"><script>console.log("here")</script>'
    (tmp_path / "page.html").write_text(f"<body>{stranger}</body>")
    _, console, requests = browser(tmp_path / "page.html")
    assert len(console) == 1
    assert requests == ["http://127.0.0.1:9/x.png"]
    html = (study / "report.html").read_text()
    (tmp_path / "page.html").write_text(html.replace("<main>", f"<main>{stranger}"))
    _, console, requests = browser(tmp_path / "page.html")
    assert requests == []
    assert all("Content Security Policy" in line for line in console)


def measured_in(browser, html, folder, width):
    """A report in a frame as wide as a phone or a desk: browser windows are not as narrow as the first."""
    html = re.sub("<meta http-equiv.*>", "", html)  # which forbids the script
    (folder / "inner.html").write_text(html.replace("</body>", MEASURE + "</body>"))
    (folder / "outer.html").write_text(FRAME.replace("WIDTH", str(width)))
    dom, console, _ = browser(folder / "outer.html", 1400)
    assert console == []
    return json.loads(re.search(r"measured (\{.*\})", dom)[1])


@pytest.mark.parametrize("width", [390, 1200])
def test_long_names_and_wide_pictures_leave_room_for_the_rest(certificates, browser, tmp_path, width):
    from matplotlib.figure import Figure

    wide = Section("Wide", [Gallery([Picture(Figure(figsize=(12, 3)), "Four panels.")])])
    html = written(tmp_path, {"n" * 160: certificates["kept"]}, sections=[wide])
    measured = measured_in(browser, html, tmp_path, width)
    assert max(measured["rows"]) < 400
    assert measured["content"] <= measured["room"]
    assert measured["images"][-1][1] > 700  # to be scrolled rather than shrunk


@pytest.mark.parametrize("width", [390, 1200])
def test_pictures_have_a_size_and_the_page_does_not_scroll_sideways(study, browser, tmp_path, width):
    measured = measured_in(browser, (study / "report.html").read_text(), tmp_path, width)
    assert width - 30 < measured["room"] <= width
    assert measured["content"] <= measured["room"]
    assert len(measured["images"]) == 6
    for natural, shown in measured["images"]:
        assert natural > 0
        assert 200 < shown < width
