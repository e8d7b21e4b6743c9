"""Figures show what the certificate says: checked in the artists, and as files."""

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

import rkhs_control as rc
from rkhs_control.reporting import figures
from rkhs_control.reporting.page import Picture


@pytest.fixture
def certificate(predictor, plan):
    return rc.certify(predictor, *plan, state_limits=rc.Box([1.0, 0.5], [3.0, 2.0]))


@pytest.fixture
def truth(plant, plan):
    return plant.simulate(*plan)


@pytest.fixture
def axes():
    return Figure().subplots()


def test_phase_portrait_draws_every_box_where_it_is(certificate, truth, axes):
    assert figures.plot_phase([certificate], truths=[truth], ax=axes) is axes
    tube = certificate.tube
    assert len(axes.patches) == len(tube.lower)
    for patch, low, high in zip(axes.patches, tube.lower, tube.upper, strict=True):
        np.testing.assert_allclose(patch.get_bbox().bounds, [*low, *(high - low)])
    assert axes.get_xlabel() == r"$\mathregular{c_{A}}$"
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    assert 0.5 < left < 1.0  # the limits are in view, and no empty half
    assert right > 3.0
    assert bottom < 0.5
    assert top > 2.0


def test_limits_of_a_polytope_are_drawn_where_they_concern_these_states_alone(predictor, plan, axes):
    polytope = rc.Polytope([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [3.0, -0.5, 5.0])
    figures.plot_phase([rc.certify(predictor, *plan, state_limits=polytope)], ax=axes)
    dashed = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert len(dashed) == 3


def test_intervals_over_time_are_those_of_the_tube(certificate, truth, axes):
    figures.plot_time(certificate, 1, truth=truth, ax=axes)
    (bars,) = [c for c in axes.collections if hasattr(c, "get_segments")]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.stack([certificate.tube.lower[:, 1], certificate.tube.upper[:, 1]], axis=1))


def test_region_says_how_much_of_it_is_certified():
    v = rc.Verdict
    grids = {"one": [[v.CERTIFIED, v.CERTIFIED], [v.UNDECIDED, v.REFUTED]], "other": [[v.UNDECIDED] * 2] * 2}
    figure = figures.region_figure(np.arange(2.0), np.arange(2.0), grids, ("c_A", "c_B"))
    assert [axes.get_title() for axes in figure.axes] == ["one: 50.0% certified", "other: 0.0% certified"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["certified", "undecided", "refuted"]
    codes = figure.axes[0].collections[0].get_array()
    assert codes[0, 1] == 1  # the first axis runs to the right: (1, 0) is undecided


def test_a_region_of_cells_is_drawn_from_limit_to_limit_with_dots_where_only_middles_are_certified():
    v = rc.Verdict
    grids, ends = {"one": [[v.CERTIFIED], [v.UNDECIDED]]}, (np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0]))
    figure = figures.region_figure(*ends, grids, ("c_A", "c_B"), {"one": [(1.5, 0.5)]})
    (axes,) = figure.axes
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.0, 2.0), (0.0, 1.0))
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [(1.5, 0.5)])
    assert figure.legends[0].get_texts()[-1].get_text() == "certified from the midpoint of the cell"


def test_without_axes_new_ones_are_made(certificate):
    pyplot.switch_backend("Agg")
    axes = figures.plot_time(certificate, 0)
    assert axes.figure is not None
    pyplot.close(axes.figure)


def test_figures_compare_methods_side_by_side_and_are_kept_twice(certificate, truth, tmp_path):
    closed = certificate.question.ask(certificate.predictor.with_method(rc.ClosedFormEnvelope))
    figure = figures.time_figure({"optimal": certificate, "closed form": closed}, truth)
    assert [axes.get_title() for axes in figure.axes[:2]] == [
        "optimal: certified",
        f"closed form: {closed.verdict.name.lower()}",
    ]
    figures.save_figure(figure, tmp_path, "time")
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "time.svg").read_text()


def test_many_loops_are_a_drawing_with_few_panels_side_by_side(predictor, rng):
    names = ["first", "first, filtered", "second", "second, filtered"]
    loops = {name: list(rng.uniform(0.4, 3.2, (40, 300, 2))) for name in names}
    figure = figures.loops_figure(loops, rc.Box([1.0, 0.5], [3.0, 2.0]), predictor.runs, per_row=2)
    assert len(figure.axes) == 2 * len(names)
    for number, name in enumerate(names):
        row, column = divmod(number, 2)
        panel = figure.axes[4 * row + column]
        outside = sum(int(((s[1:] < [1.0, 0.5]) | (s[1:] > [3.0, 2.0])).any(axis=1).sum()) for s in loops[name])
        assert panel.get_title() == f"{name}: {outside} violations"
        assert panel.get_ylim() == figure.axes[0].get_ylim()
    assert Picture(figure, "Loops.").source.startswith("data:image/svg+xml")  # so that it can turn dark
