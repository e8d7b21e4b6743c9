"""The explorer in a browser: the verdicts that Python gives, no network, and everything within reach of a keyboard."""

import base64
import json
import re
from fractions import Fraction
from hashlib import sha256

import chromium
import numpy as np
import pytest
from regions import LIMITS, linear_predictor, region_by_hand

import rkhs_control as rc
from rkhs_control.arithmetic.printing import margin_text, rounded_down
from rkhs_control.certificates.margins import _exact

STATES, INPUTS, RATES = rc.Box([-1.0, -1.0], [1.5, 1.5]), rc.Box([-1.0], [1.0]), rc.Box([-0.5], [0.5])
NOISE = 0.01
FACTORS = (0.5, 0.9, 1.0, 1.5, 2.0)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if chromium.program() is None:
        pytest.skip(f"no browser: none of {', '.join(chromium.NAMES)} is installed")
    browser = chromium.Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def predictor():
    return linear_predictor()


@pytest.fixture(scope="module")
def plans(predictor):
    """Two plans within the same limits."""
    limits = rc.Limits(states=STATES, inputs=INPUTS, rates=RATES)
    given = {"first": ([0.5, -0.2], [[0.3], [-0.1]]), "second": ([-0.3, 0.6], [[0.2], [0.7]])}
    return {name: rc.certify(predictor, *plan, limits, initial_state_noise=NOISE) for name, plan in given.items()}


@pytest.fixture
def plan(plans):
    question = plans["first"].question
    return question.x0, question.inputs


@pytest.fixture(scope="module")
def file(plans, tmp_path_factory):
    return rc.explore(plans, title="Two plans").save(tmp_path_factory.mktemp("explorer") / "explorer.html")


def shown(page):
    """What the page says now."""
    words = "['verdict', 'finding', 'start-note'].map(id => document.getElementById(id).textContent)"
    rows = (
        "[...document.querySelectorAll('#margins tbody tr')].map(r => [...r.cells].map(c => [c.textContent, c.title]))"
    )
    return page.value(words), page.value(rows)


def choose(page, element_id, place):
    page.value(
        f"(document.getElementById({element_id!r}).value = {place}, "
        f"document.getElementById({element_id!r}).dispatchEvent(new Event('change')))"
    )


def assert_same(page, certificate):
    """Verdict, sentence, and all digits of the smallest margin of every limit."""
    (verdict, finding, start), rows = shown(page)
    assert f"{verdict}: {finding}" == certificate.finding()
    assert (start == "") == certificate.starts_inside
    assert [row[0][0] for row in rows] == list(certificate.constraint_names)
    for row, column in zip(rows, certificate.margins.T, strict=True):
        assert row[2][0] == margin_text(column.min())
        assert float(row[2][1]) == column.min()
        assert int(row[3][0]) == int(column.argmin()) + 1
    return verdict


def random_limits(rng, certificate):
    """Around the ends of boxes: at an end itself, one double beside it, or anywhere near; sometimes none at all."""
    tube, ends = certificate.tube, []
    for side, box_ends in ((-1.0, tube.lower), (1.0, tube.upper)):
        furthest = side * (side * box_ends).max(axis=0)
        near = furthest if rng.random() < 0.7 else box_ends[rng.integers(len(box_ends))]
        widths = (tube.upper - tube.lower).max(axis=0)
        moved = near + side * rng.uniform(-0.5, 2.0, 2) * widths
        ways = [near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf), moved, np.full(2, side * np.inf)]
        ends.append(np.array([ways[rng.choice(5, p=[0.15, 0.1, 0.1, 0.6, 0.05])][i] for i in range(2)]))
    return rc.Box(np.minimum(*ends), np.maximum(*ends))


def type_limits(page, box, part="states"):
    for side in ("lower", "upper"):
        for i, end in enumerate(getattr(box, side).tolist()):
            page.type(f"{part}-{i}-{side}", repr(end) if np.isfinite(end) else "")


def test_verdicts_are_those_of_python_for_fifty_limits(page, file, plans, predictor, rng):
    page.open(file)
    verdicts = []
    for k in range(50):
        certificate = list(plans.values())[k % 2]
        choose(page, "plan", k % 2)
        states = random_limits(rng, certificate)
        low = float(certificate.question.inputs.min())
        inputs = rc.Box([rng.choice([-1.0, low, np.nextafter(low, np.inf)], p=[0.6, 0.3, 0.1])], [1.0])
        type_limits(page, states)
        type_limits(page, inputs, "inputs")
        limits = rc.Limits(states=states, inputs=inputs, rates=RATES)
        question = certificate.question
        asked = rc.certify(predictor, question.x0, question.inputs, limits, initial_state_noise=NOISE)
        verdicts.append(assert_same(page, asked))
    assert {verdict.name for verdict in rc.Verdict} == set(verdicts)
    assert min(map(verdicts.count, set(verdicts))) >= 5
    assert page.console == []


def test_verdicts_under_factors_are_those_of_scaled_predictors(page, file, plans, predictor):
    page.open(file)
    certificate = next(iter(plans.values()))
    seen = 0
    for k, norm in enumerate(FACTORS):
        choose(page, "noise", 2)
        choose(page, "norm", k)
        for m, noise in enumerate(FACTORS):
            try:
                scaled = predictor.scaled(norm=norm, noise=noise)
                question = certificate.question
                tube = scaled.boxes(question.x0, question.inputs, initial_state_noise=noise * NOISE)
            except (rc.FalsifiedNormBoundError, rc.ContradictoryDataError):
                assert page.value(f"document.getElementById('noise').options[{m}].disabled")
                continue
            choose(page, "noise", m)
            tight = rc.Box(tube.lower.min(axis=0), [1.5, np.nextafter(tube.upper[:, 1].max(), -np.inf)])
            type_limits(page, tight)
            limits = rc.Limits(states=tight, inputs=INPUTS, rates=RATES)
            asked = rc.certify(scaled, question.x0, question.inputs, limits, initial_state_noise=noise * NOISE)
            assert assert_same(page, asked) == "UNDECIDED"
            seen += 1
    assert seen > 5


def test_a_limit_is_moved_by_the_keyboard(page, file, plans, predictor):
    page.open(file)
    certificate = next(iter(plans.values()))
    page.value("(document.getElementById('states-1-upper').focus(), null)")
    step = page.value("Number(document.activeElement.step)")
    for _ in range(3):
        page.press("ArrowDown")
    value = page.value("Number(document.activeElement.value)")
    assert value == pytest.approx(1.5 - 3 * step)
    page.press("Tab")
    assert page.value("document.activeElement.id") == "states-1-upper-slider"
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for _ in range(400):
        page.press("ArrowLeft")
        if page.value("document.getElementById('verdict').textContent") == "UNDECIDED":
            break
    value = page.value("Number(document.getElementById('states-1-upper').value)")
    question = certificate.question
    limits = rc.Limits(states=rc.Box([-1.0, -1.0], [1.5, value]), inputs=INPUTS, rates=RATES)
    asked = rc.certify(predictor, question.x0, question.inputs, limits, initial_state_noise=NOISE)
    assert asked.verdict is rc.Verdict.UNDECIDED
    assert_same(page, asked)


def test_limits_that_make_no_sense_get_no_answer(page, file):
    page.open(file)
    page.type("states-0-lower", "2.5")
    assert shown(page)[0][:2] == ["NO ANSWER", "the lower limit of x is above the upper one"]
    page.type("states-0-lower", "")
    assert shown(page)[0][0] == "CERTIFIED"
    page.type("states-0-lower", "1e")
    assert shown(page)[0][:2] == ["NO ANSWER", "the lower limit of x is not a number"]
    page.value("(document.getElementById('reset').click(), null)")
    assert shown(page)[0][0] == "CERTIFIED"


def test_rows_of_a_polytope_count_and_stay(page, predictor, plan, tmp_path):
    x0, inputs = plan
    tube = predictor.boxes(x0, inputs)
    for share, verdict in ((-0.5, "REFUTED"), (0.5, "UNDECIDED"), (2.0, "CERTIFIED")):
        low, high = tube.lower.sum(axis=1).max(), tube.upper.sum(axis=1).max()
        rows = rc.Polytope([[1.0, 1.0], [0.3, -0.7]], [low + share * (high - low), 2.0])
        certificate = rc.certify(predictor, x0, inputs, state_limits=rows)
        page.open(certificate.explore().save(tmp_path / "rows.html"))
        assert assert_same(page, certificate) == verdict
    page.type("states-0-upper", "-0.5")
    assert shown(page)[0][0] == "REFUTED"


def test_bounds_that_hold_with_a_probability_certify_nothing(page, predictor, plan, tmp_path):
    certificate = rc.certify(predictor.with_method(rc.GaussianProcessEnvelope), *plan, state_limits=STATES)
    page.open(certificate.explore().save(tmp_path / "process.html"))
    assert assert_same(page, certificate) == "UNDECIDED"
    assert "does not tell which samples" in page.value("document.getElementById('why').textContent")


def test_samples_that_carry_an_end_are_those_of_its_witness(page, file, plans, predictor):
    page.open(file)
    certificate = next(iter(plans.values()))
    page.value("(document.getElementById('step').focus(), null)")
    page.press("ArrowRight")
    choose(page, "end", 3)
    drawn = page.value("[...document.querySelectorAll('#phase .sample')].map(dot => Number(dot.dataset.run))")
    witness = certificate.tube.witnesses[1, 1][1].witness
    largest = np.argsort(-np.abs(witness.weights), kind="stable")[:12]
    X = predictor.envelope(2, 1).data.X[witness.indices[largest]]
    assert np.array_equal(predictor.runs.arguments(2)[drawn], X)
    assert f"{len(witness.weights)} recorded samples" in page.value("document.getElementById('why').textContent")


def test_pointing_at_a_box_tells_its_ends_and_a_click_chooses_its_step(page, file, plans):
    page.open(file)
    tube = next(iter(plans.values())).tube
    place = page.value("(r => [r.x + r.width / 2, r.y + r.height / 2])("
                       "document.querySelector('#phase [data-step=\"2\"]').getBoundingClientRect())")  # fmt: skip
    page.point(*place)
    text = page.value("document.getElementById('tip').textContent")
    low, high = (float(end) for end in re.search(r"y: (\S+) to (\S+)", text).groups())
    assert low <= tube.lower[1, 1]
    assert high >= tube.upper[1, 1]
    assert [low, high] == pytest.approx([tube.lower[1, 1], tube.upper[1, 1]], rel=2e-5)
    page.value("(document.querySelector('#phase [data-step=\"2\"]').dispatchEvent(new Event('click')), null)")
    assert page.value("document.getElementById('step').value") == "2"


def test_the_cell_under_the_keys_has_the_plan_of_the_region(page, predictor, tmp_path):
    region = region_by_hand(predictor, limits=LIMITS)
    page.open(region.explore().save(tmp_path / "region.html"))
    page.value("(document.getElementById('region').focus(), null)")
    page.press("ArrowRight")
    page.press("ArrowUp")
    text = page.value("document.getElementById('cell').textContent")
    at = page.value("[...document.querySelectorAll('#region .cell.chosen')].length")
    assert at == 1
    x = [sum(map(float, pair.replace("−", "-").split(", "))) / 2 for pair in re.findall(r"\[(.*?)\]", text)[:2]]
    said = re.search(r"u = (.*?) for", text)[1].replace("−", "-")
    assert [float(u) for u in said.split(", ")] == pytest.approx(region.plan(x)[:, 0].tolist(), rel=1e-3, abs=1e-9)
    assert page.console == []


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_nothing_is_wider_than_the_screen_and_nothing_is_loaded(page, file, width, scheme):
    page.open(file, width, scheme=scheme)
    sizes = page.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert sizes == [width, width]
    assert page.requests == [file.as_uri()]
    assert page.console == []


def test_the_policy_allows_its_own_script_and_style_alone(page, file, tmp_path):
    html = file.read_text(encoding="utf-8")
    assert "://" not in html
    assert "url(" not in html.replace("url(#", "")
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', html)[1]
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)
        digest = base64.b64encode(sha256(text.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    stranger = '<img src="http://127.0.0.1:9/x.png"><script>document.title = "mine"</script><p style="color: red">'
    (tmp_path / "page.html").write_text(html.replace("<main>", f"<main>{stranger}"))
    page.open(tmp_path / "page.html")
    assert page.value("document.title") == "Two plans"
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.console) == 3
    assert all("Content Security Policy" in line for line in page.console)


def test_names_from_anywhere_stay_text(predictor, plan):
    certificate = rc.certify(predictor, *plan, state_limits=STATES)
    html = rc.explore({"</script><script>alert(1)</script>": certificate}, title="<b>&").html()
    assert "alert(1)</script>" not in html
    assert "<title>&lt;b&gt;&amp;</title>" in html
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, flags=re.DOTALL)[1])
    assert data["plans"][0]["name"] == "</script><script>alert(1)</script>"


def test_numbers_in_the_file_are_those_of_the_certificate(plans, file):
    data = json.loads(re.search(r'id="data">(.*?)</script>', file.read_text(), flags=re.DOTALL)[1])
    for plan, certificate in zip(data["plans"], plans.values(), strict=True):
        boxes = plan["boxes"][2][2]
        assert np.array_equal(boxes["lower"], certificate.tube.lower)
        assert np.array_equal(boxes["upper"], certificate.tube.upper)
    assert file.stat().st_size < 200_000


def test_notebooks_show_it_in_a_frame_of_its_own(plans):
    shown = next(iter(plans.values())).explore()
    assert isinstance(shown, rc.Explorer)
    assert repr(shown) == "Explorer(1 plan)"
    frame = shown._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    assert frame.count("<") == 2


def test_many_plans_are_cut_with_a_word_on_it(predictor):
    certificate = rc.certify(predictor, [0.1, 0.1], [[0.2]], state_limits=STATES)
    content = rc.explore([certificate] * 13).content
    assert len(content["plans"]) == 12
    assert content["notes"] == ["The first 12 of 13 plans are here."]
    with pytest.raises(rc.InputError, match="at least one certificate"):
        rc.explore([])


def test_numbers_are_written_as_python_writes_them(page, file, rng):
    page.open(file)
    scales = 10.0 ** rng.uniform(-20, 20, 400)
    numbers = [*(rng.normal(size=400) * scales), *rng.normal(size=200).round(3), 0.0, -0.0, 1e16, 1e-5, 123456.0, 999.6]
    numbers = [float(x) for x in numbers]
    written = page.value(
        f"{numbers!r}.map(x => [exact(x), roundedDown(x), down(x), Number(outward(x, 0)), Number(outward(x, 1))])"
    )
    for x, (exact, rounded, below, low, high) in zip(numbers, written, strict=True):
        assert exact == _exact(x)
        assert rounded == rounded_down(x)
        assert below == np.nextafter(x, -np.inf)
        assert low <= x <= high
        assert high - low <= 2.1e-5 * abs(x)


def test_changes_of_inputs_are_compared_exactly(page, file):
    """0.3 - 0.1 is above 0.2 as doubles are rounded, and below it exactly; and the other way round."""
    page.open(file)
    cases = [(0.3, 0.1, 0.2), (0.8, 0.6, 0.2), (1.0, 1e-17, 1.0), (1.0, -1e-17, 1.0), (0.5, 0.25, 0.25)]
    for a, b, end in cases:
        change = Fraction(a) - Fraction(b)
        assert page.value(f"changeLeaves({a!r}, {b!r}, -9, {end!r})") == (change > Fraction(end))
        assert page.value(f"changeLeaves({a!r}, {b!r}, {end!r}, 9)") == (change < Fraction(end))
