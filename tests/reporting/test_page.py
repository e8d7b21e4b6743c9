"""A report as a file: nothing but itself, whatever names are in it, and words for those who do not see pictures."""

import base64
import json
import re
import shlex
import warnings

from reports import WIDE, Reader, written

import rkhs_control as rc
from rkhs_control.reporting import Cell, Commands, Picture, Section, Table, figures

HOSTILE = "\"><script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)> & {{ 7 * 7 }} $x$"


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
    names = ["kept", "a name that is much too long", "broken"]
    (axes,) = figures.phase_figure({"optimal": list(certificates.values())}, names=names).axes
    (label,) = axes.texts  # they start from the same state
    assert label.get_text() == "kept\na name …too long\nbroken"
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
        assert address.startswith(("data:", "#")) or address == "explorer.html"
    assert len(html) < 2_000_000


def test_pictures_are_drawings_with_words_for_those_who_do_not_see_them(study):
    images = Reader((study / "report.html").read_text()).all("img")
    assert len(images) == 7  # inputs, portrait, intervals over time, the binding limit, causes of widths, two frontiers
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
    assert {a["href"].removeprefix("#") for a in reader.all("a")} <= targets | {"explorer.html"}


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


def test_many_dots_become_a_picture_of_dots(rng):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot(*rng.normal(size=(2, 30_000)), ".")
    assert Picture(figure, "Dots.").source.startswith("data:image/png;base64,")
