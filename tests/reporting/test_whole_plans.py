"""What reports say of plans besides verdicts: start, inputs, widths and their causes, times, the date."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from reports import WIDE, Reader, page_of, section_of

import rkhs_control as rc
from rkhs_control.reporting import figures
from rkhs_control.reporting.inputs import inputs_figure
from rkhs_control.reporting.labels import Clock, typeset
from rkhs_control.reporting.page import Picture, tables_by_step
from rkhs_control.reporting.text import marked_up
from rkhs_control.reporting.zoom import needs_zoom, zoom_figure
from rkhs_control.scenarios.schema import load_scenario


@pytest.fixture(scope="module")
def timed(predictor):
    runs = replace(predictor.runs, sampling_time=30.0, state_units=("mol/l", "mol/l"), input_units=("1/h",))
    return predictor.with_runs(runs)


@pytest.fixture
def limited(timed, plan):
    x0, inputs = plan
    low = float(np.min(inputs))
    limits = rc.Limits(WIDE, {"u": (low + 1e-9, 100.0)}, {"u": (-1e-6, 1e-6)})
    return rc.certify(timed, x0, inputs, limits, initial_state_noise=0.01)


def test_start_and_inputs_are_those_of_the_plan_and_what_breaks_limits_is_red(limited, plan):
    x0, inputs = plan
    _, starts, table, _ = section_of(page_of(mine=limited), "Start and inputs").blocks
    assert starts.header == ("", "c_A [mol/l]", "c_B [mol/l]")
    assert [float(text) for text in starts.rows[0][1:]] == pytest.approx(x0, rel=1e-4)
    assert starts.rows[1] == ["the true start may be off by", "0.01", "0.01"]
    assert starts.rows[2] == ["lower limit", "0.5", "0.2"]
    assert table.header[1:] == ("step\u00a00, 0\u00a0s", "step\u00a01, 30\u00a0s", "step\u00a02, 60\u00a0s")
    held, changes = (row[1:] for row in table.rows)
    assert [float(cell.text) for cell in held] == pytest.approx(inputs[:, 0], rel=1e-4)
    assert [cell.tone == "refuted" for cell in held] == (inputs[:, 0] == inputs.min()).tolist()
    assert [float(cell.text) for cell in changes[:-1]] == pytest.approx(np.diff(inputs[:, 0]), rel=1e-4)
    assert all(cell.tone == "refuted" for cell in changes[:-1])
    assert "change of u [1/h] from -1e-06 to 1e-06" in table.caption


def test_inputs_are_drawn_with_limits_and_rates_over_time(limited, plan):
    figure = inputs_figure(limited, "mine")
    held, changes = figure.axes
    np.testing.assert_allclose(held.patches[0].get_data().values, plan[1][:, 0])
    np.testing.assert_allclose(held.patches[0].get_data().edges, [0.0, 30.0, 60.0, 90.0])
    assert sum(line.get_linestyle() == "--" for line in held.lines) == 2
    assert sum(line.get_linestyle() == "--" for line in changes.lines) == 2
    assert held.get_title() == "plan mine"
    assert changes.get_xlabel() == "time [s]"


def test_half_widths_are_never_rounded_down_and_have_units(certificates, limited):
    for certificate in (certificates["open"], limited):
        page = page_of(mine=certificate)
        plans = section_of(page, "Plans").blocks[0]
        widths = (certificate.tube.upper - certificate.tube.lower) / 2.0
        shown = np.array([float(text) for text in plans.rows[0][7:9]])
        assert (shown >= widths.max(axis=0)).all()
        np.testing.assert_allclose(shown, widths.max(axis=0), rtol=1e-2)
        table = section_of(page, "How wide the boxes are, and why").blocks[1]
        by_step = np.array([[float(text) for text in row[1:]] for row in table.rows]).T
        assert (by_step >= widths).all()
    assert plans.header[7:9] == ["± c_A [mol/l]", "± c_B [mol/l]"]


def test_shares_of_causes_are_told_for_every_verdict_and_add_up(certificates, limited):
    for certificate in (*certificates.values(), limited):
        *_, table, _ = section_of(page_of(mine=certificate), "How wide the boxes are, and why").blocks
        assert "the noise bound" in table.header
        assert ("the uncertain start of the plan" in table.header) == bool(certificate.initial_state_noise.any())
        for row in table.rows:
            assert sum(float(text.removesuffix(" %")) for text in row[2:]) == pytest.approx(100.0, abs=2.0)


def test_bounds_without_weights_have_widths_but_no_causes(predictor, plan):
    gaussian = predictor.with_method(rc.GaussianProcessEnvelope)
    section = section_of(
        page_of(mine=rc.certify(gaussian, *plan, state_limits=WIDE)), "How wide the boxes are, and why"
    )
    assert len(section.blocks) == 2


def test_time_is_told_in_a_unit_that_suits_and_in_steps_where_it_is_unknown(predictor, limited):
    for seconds, n_steps, label, per_step in (
        (1.0, 8, "step", 1.0),
        (30.0, 8, "time [s]", 30.0),
        (30.0, 40, "time [min]", 0.5),
        (3600.0, 24, "time [h]", 1.0),
    ):
        clock = Clock.of(replace(predictor.runs, sampling_time=seconds), n_steps)
        assert (clock.label, clock.per_step) == (label, per_step)
    (_, axes) = figures.time_figure({"optimal": limited}, name="mine").axes
    assert axes.get_xlabel() == "time [s]"
    assert axes.collections[0].get_paths()[0].vertices[:, 0].max() == 90.0


def test_a_small_box_near_its_limit_is_enlarged(predictor, plan):
    tube = predictor.boxes(*plan)
    near = float(tube.upper[:, 1].max())
    for lowest, is_small in ((-1e3, True), (near - 0.5, False)):
        limits = rc.Box([-np.inf, lowest], [np.inf, near + 1e-3])
        certificate = rc.certify(predictor, *plan, state_limits=limits)
        assert needs_zoom(certificate) == is_small
    limits = rc.Box([-np.inf, -1e3], [np.inf, near + 1e-3])
    (axes,) = zoom_figure(rc.certify(predictor, *plan, state_limits=limits)).axes
    step = int(tube.upper[:, 1].argmax())
    bottom, top = axes.get_ylim()
    assert bottom < tube.lower[step, 1]
    assert near + 1e-3 < top
    assert top - bottom < 2 * (near + 1e-3 - tube.lower[step, 1])


def test_limits_of_several_states_are_not_enlarged(predictor, plan):
    sums = rc.Polytope([[1.0, 1.0]], [1e3])
    assert not needs_zoom(rc.certify(predictor, *plan, state_limits=sums))


def test_the_date_is_said(predictor):
    report = rc.Report("A report", predictor, date=datetime(2024, 2, 9, 7, 5, tzinfo=UTC))
    assert "9 February 2024, 07:05 UTC" in Reader(report.page().html()).text


def test_many_steps_are_broken_into_tables_that_fit_on_paper():
    rows = [["limit", *map(str, range(24))]]
    tables = tables_by_step("", [f"step {n}" for n in range(24)], rows, "Once.")
    assert [len(table.header) for table in tables] == [9, 9, 9]
    assert [text for table in tables for text in table.rows[0][1:]] == rows[0][1:]
    assert [table.caption for table in tables] == ["Once.", "", ""]


def test_indices_and_powers_are_set_and_names_stay_as_they_are_when_copied():
    html = marked_up("c_A <= 3 in mol/m^3; 1.20e-07; rkhs_control, plan_1, c_AB", ["c_A"])
    assert 'c<sub><span class="unseen">_</span>A</sub> &lt;= 3' in html
    assert "mol/m<sup>3</sup>; 1.20 × 10<sup>-7</sup>; rkhs_control, plan_1, c_AB" in html
    assert Reader(html).text.startswith("c_A <= 3")
    assert typeset("T_in [m^3], my_long_name $") == r"$\mathregular{T_{in}}$ [m$^{\mathregular{3}}$], my_long_name \$"
    assert marked_up("3e5a77e-12ab 0123e-4f") == "3e5a77e-12ab 0123e-4f"


def test_drawings_turn_dark_where_the_screen_is():
    import base64

    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1], color="black")
    drawing = base64.b64decode(Picture(figure, "A line that rises.").source.partition(",")[2]).decode()
    assert drawing.count("@media (prefers-color-scheme: dark)") == 1
    assert drawing.index("prefers-color-scheme") < drawing.index("stroke: #000000;")


def test_own_data_are_judged_by_the_optimal_bounds_alone_unless_more_is_asked_for(study):
    (plan,) = json.loads((study / "summary.json").read_text())["plans"]
    assert list(plan["methods"]) == ["optimal"]
    widths = np.subtract(plan["methods"]["optimal"]["upper"], plan["methods"]["optimal"]["lower"])
    largest = plan["methods"]["optimal"]["largest_half_widths"]
    assert largest == pytest.approx(dict(zip(("c_A", "c_B"), widths.max(axis=0) / 2.0, strict=True)))
    assert load_scenario("cstr")[0].predictor.compare_closed_form
