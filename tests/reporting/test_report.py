"""Reports: they say what the certificates say, and show what that rests on."""

import re
from dataclasses import replace

import numpy as np
import pytest
from reports import WIDE, Reader, page_of, section_of, written

import rkhs_control as rc
from rkhs_control.arithmetic.printing import rounded_down
from rkhs_control.assumptions.norms import least_norm_estimate
from rkhs_control.reporting import Gallery, Picture, Section


@pytest.mark.parametrize(
    ("name", "word", "meaning"),
    [
        ("kept", "CERTIFIED", "the plant keeps them, if the assumptions below hold"),
        ("open", "UNDECIDED", "prove neither that the plant keeps them nor that it breaks them"),
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
    assert page.headline.paragraphs[0].startswith("At every sampling instant after the first, the whole box")
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
    assert "The true initial state of a plan may differ from the stated one: c_A by 0.01, c_B by 0." in blocks


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
    stated = re.search(r"c_B at step 3: with a noise bound of 0.06 the data refute norms below ([\d.]+);", text)
    assert float(stated[1]) <= least < 1.02 * float(stated[1])


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
    assert "hold with some probability, not for certain" in text


@pytest.mark.parametrize("noise", [0.0, 0.02, 5.0])
def test_one_state_no_limits_and_any_noise_bound_make_a_report(noise, rng, tmp_path):
    """With none, the frontier ends at zero; with much, zero fits all data."""
    x0, inputs = rng.uniform(-1, 1, (12, 1)), rng.uniform(-1, 1, (12, 1, 1))
    states = np.stack([x0, 0.8 * x0 + 0.3 * inputs[:, 0]], axis=1)
    runs = rc.Trajectories(states, inputs, noise)
    one = rc.MultiStepPredictor(runs, rc.SquaredExponential(2.0), 50.0)
    text = Reader(written(tmp_path, rc.certify(one, [0.2], [[0.1]], state_limits=rc.Box([-np.inf], [np.inf])))).text
    assert "there are no state limits to break" in text
    assert ("the data refute no norm: zero fits" in text) == (noise > 2.0)


def test_further_sections_stand_where_they_are_told(certificates, tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1])
    section = Section("Offline design", ["Designed at night.", Gallery([Picture(figure, "A line that rises.")])])
    reader = Reader(written(tmp_path, certificates["kept"], sections=[section]))
    assert reader.text.index("What would change") < reader.text.index("Designed at night.")
    assert {"width": "288", "height": "192", "alt": "A line that rises."}.items() <= reader.all("img")[-1].items()


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
