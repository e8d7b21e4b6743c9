"""Figures 1 and 6 of the paper, the consistency frontier, and Algorithm 1 turn by turn."""

import json
from dataclasses import replace
from itertools import pairwise

import cvxpy
import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.paper import STUDIES, alternating, frontier, paper_study


@pytest.fixture(scope="module")
def growth():
    rng = np.random.default_rng(3)
    return frontier._Growth.of(frontier._Expansion.draw(rng), rng, lambda done, total: None)


@pytest.mark.parametrize("seed", [1, 20])
def test_frontier_study_comes_out_for_any_function(seed, tmp_path):
    """Seed 20 among them, where rounding carries the paper's estimate above the norm."""
    result = paper_study("frontier")(Work(seed))
    assert result.agrees, [row for row in result.rows if not row.agrees]
    result.write(tmp_path)
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert len(kept["rows"]) == len(result.rows)
    assert {"figure_1.png", "figure_6.png", "consistency_frontier.png"} <= {file.name for file in tmp_path.iterdir()}


def test_sample_outside_the_envelope_leaves_less_width_than_its_noise_bound():
    panel = frontier._sample_outside()
    assert panel.is_outside
    assert panel.width < panel.noise_bound
    data = rc.Observations(panel.inputs, panel.outputs, panel.noise_bound)
    conic = rc.ConicEnvelope(data, panel.truth.kernel, 1.1 * panel.truth.norm)
    assert conic.bounds(panel.inputs[[panel.chosen]]).width[0] == pytest.approx(panel.width, rel=1e-4)


def test_two_opposite_outputs_leave_the_truth_alone_and_one_of_them_does_not():
    panel = frontier._opposite_outputs()
    assert panel.has_truth
    assert panel.width < 1e-14
    outputs = list(panel.outputs)
    outputs[panel.chosen] = outputs[panel.chosen][:1]
    assert replace(panel, outputs=outputs).width > 0.5 * panel.noise_bound


def test_a_panel_that_misses_the_truth_does_not_agree():
    panel = frontier._opposite_outputs()
    elsewhere = rc.KernelModel(panel.truth.X, panel.truth.kernel, 1.01 * panel.truth.weights)
    assert not replace(panel, truth=elsewhere).rows()[0].agrees


def test_estimates_with_noise_bound_never_exceed_the_norm_and_never_fall(growth):
    norm = growth.f.model.norm
    assert (growth.noise_aware <= norm).all()
    assert (np.diff(growth.noise_aware) >= -1e-9 * norm).all()
    assert (np.diff(growth.noise_free) >= 0.0).all()
    assert (growth.noise_aware <= growth.noise_free + 1e-9 * norm).all()
    assert growth.as_exact[-1] > 10.0 * norm
    assert growth.noise_aware[-1] < growth.rounding_aware <= norm * (1 + 1e-9)


def test_least_norm_is_that_of_a_quadratic_programme(growth):
    data, kernel = growth.data, growth.f.model.kernel
    values, vectors = np.linalg.eigh(kernel(data.X))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    z = cvxpy.Variable(len(data))
    limits = [root @ z <= data.upper, root @ z >= data.lower]
    least = cvxpy.Problem(cvxpy.Minimize(cvxpy.norm2(z)), limits).solve(solver="CLARABEL")
    assert growth.noise_aware[-1] == pytest.approx(least, rel=1e-5)


def test_chosen_pair_lies_on_the_frontier_between_its_breakpoints(growth):
    corner = frontier._Corner.of(growth)
    noise_bounds, least_norms = corner.frontier
    before = np.flatnonzero(noise_bounds >= growth.data.noise_bound)[-1]
    assert least_norms[before] <= corner.least_norm <= least_norms[before + 1]
    assert not corner.frontier.refutes(growth.data.noise_bound, growth.f.model.norm)
    assert corner.frontier.refutes(growth.data.noise_bound, 0.9 * corner.least_norm)
    assert corner.least_noise_bound <= growth.data.noise_bound


def test_alternating_study_converges_to_the_optimum_from_above(tmp_path):
    result = alternating.run(Work(1), n_queries=5)
    assert result.agrees
    designs = result.numbers["designs"]
    assert set(designs) == {"grid", "random"}
    for numbers in designs.values():
        excess = numbers["mean_excess"]
        assert excess[0] > 1e-3
        assert all(later <= earlier + 1e-9 for earlier, later in pairwise(excess))
        assert abs(excess[-1]) < 1e-6
    result.write(tmp_path)
    assert (tmp_path / "alternating.png").stat().st_size > 0


def test_bounds_below_the_optimum_or_wider_with_more_turns_do_not_agree():
    optimal = np.full(3, 2.0)
    widths = 2.0 + np.outer(1.0 / np.array(alternating.TURNS), np.ones(3))
    good = alternating.Convergence("grid", widths, optimal, 1e-9, 2 * optimal, np.ones(len(widths)), 1.0)
    assert good.is_sound
    assert not replace(good, widths=widths - 0.1).is_sound
    assert not replace(good, widths=widths[::-1]).is_sound
    assert not alternating._rows(replace(good, widths=widths[::-1]))[0].agrees


def test_every_study_has_a_module():
    for name in ("frontier", "alternating"):
        assert name in STUDIES
        assert callable(paper_study(name))
