"""`bench scale`: the slopes are those of the times, and the floor is a bound's own closed form."""

import json
import math
import multiprocessing

import numpy as np
import pytest

from rkhs_control.cli import app as cli
from rkhs_control.cli import scale
from rkhs_control.envelopes.optimal import OptimalEnvelope
from rkhs_control.scenarios.material import Work

TINY = scale.Sizes(
    samples=(60, 120),
    dimensions=(2, 4),
    lengthscales=(1.0, 0.3),
    queries=(1, 3),
    n_fixed=60,
    n_plans=50,
    n_shared=4,
)


def test_every_axis_is_planned_for_and_workers_double_up_to_those_there_are():
    planned = scale.cases(TINY, scale.AXES, jobs=5)
    assert {case.axis for case in planned} == set(scale.AXES)
    assert [case.n_jobs for case in planned if case.axis == scale.WORKERS] == [1, 2, 4]
    assert max(case.n_samples for case in scale.cases(scale.Sizes().up_to(700), scale.AXES, jobs=1)) <= 700


@pytest.mark.parametrize("case", [c for c in scale.cases(TINY, scale.AXES, jobs=1) if c.axis != scale.SAMPLES])
def test_measurements_are_of_tight_bounds(case):
    point = scale.measure(case)
    assert point.largest_relative_gap < 1e-6
    assert 0.0 < point.floor_s < math.inf
    assert point.bound_s > 0.0
    assert point.value == (point.mean_active if case.axis == scale.ACTIVE else case.value)


@pytest.mark.parametrize("n_dims", [2, 3])
def test_closed_form_on_the_active_set_is_the_bound(n_dims):
    problem = scale.Case(scale.DIMENSIONS, n_dims, 300, n_dims).problem()
    envelope = OptimalEnvelope(problem.data, problem.kernel, problem.norm_bound)
    band = envelope.bounds(problem.queries)
    below, above = envelope.sides
    for i, x in enumerate(problem.queries):
        low, high = band.witness(i)
        assert scale.closed_form(envelope, x, above, high) == pytest.approx(band.upper[i], rel=1e-7)
        assert -scale.closed_form(envelope, x, below, low) == pytest.approx(band.lower[i], rel=1e-7)


def test_a_power_law_has_its_exponent_as_slope():
    values = np.array([1.0, 2.0, 8.0])
    assert scale.slope(values, 3.0 * values**1.5) == pytest.approx(1.5)
    assert math.isnan(scale.slope([4.0], [1.0]))


def test_points_come_from_fresh_processes_and_are_drawn():
    points = scale.run(Work(1), TINY, [scale.SAMPLES])
    assert [point.value for point in points] == [60, 120]
    assert all(point.peak_memory_mb > 10.0 for point in points)
    (fit,) = scale.slopes(points)
    figure = scale.scale_figure(points)
    labels = [text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().get_texts()]
    assert f"a bound, slope {fit.bound:.2f}" in labels


def test_workers_are_gone_when_their_measurement_is_done():
    before = set(multiprocessing.active_children())
    points = scale.run(Work(1, 2), TINY, [scale.WORKERS])
    assert [point.n_jobs for point in points] == [1, 2]
    assert set(multiprocessing.active_children()) <= before


def test_command_keeps_numbers_and_a_figure(tmp_path, capsys):
    numbers = tmp_path / "scale.json"
    arguments = ["bench", "scale", "--largest", "60", "--axis", "samples", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--json", str(numbers)])
    assert ended.value.code == 0
    assert [point["n_samples"] for point in json.loads(numbers.read_text())["points"]] == [60]
    assert (tmp_path / "scale.svg").exists()
    assert "floor" in capsys.readouterr().out


def test_an_unknown_axis_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "scale", "--axis", "sample", "--out", str(tmp_path)])
    assert ended.value.code == 1
    assert "--axis must be one of samples" in capsys.readouterr().err
