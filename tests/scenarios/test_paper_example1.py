"""Example 1 of the paper: every number it prints, and what makes ours differ."""

from dataclasses import replace

import numpy as np
import pytest
from problems import henon as published
from scipy.optimize import minimize_scalar

import rkhs_control as rc
from rkhs_control.models import henon
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.paper import henon as example
from rkhs_control.scenarios.paper import tables

ALL_CELLS = [(noise, design) for noise, designs in tables.PRINTED.items() for design in designs]


@pytest.mark.reference
@pytest.mark.parametrize("design", ["grid", "random"])
def test_slice_data_are_the_published_ones(design):
    arrays, (Z, y) = published(design), henon.slice_data(1.0)[design]
    np.testing.assert_allclose(Z, arrays["X"], atol=1e-12)
    np.testing.assert_allclose(y, arrays["y"], atol=1e-12)


@pytest.mark.parametrize("draw", [henon.table_data, henon.surface_data, henon.slice_data])
@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_noise_is_within_its_bound_and_comes_near_it(draw, noise):
    for Z, y in draw(noise).values():
        assert Z.shape == (100, 2)
        assert abs(Z).max() <= henon.LIMIT
        assert 0.9 * noise < abs(y - henon.truth(Z)).max() <= noise + 1e-12


def test_tables_and_surfaces_share_the_first_random_input_alone():
    """The draws of the noise differ in number and kind, and with them all that follows."""
    first, second = (draw(1.0)["random"][0] for draw in (henon.table_data, henon.surface_data))
    np.testing.assert_array_equal(first[0], second[0])
    assert not np.isclose(first[1:], second[1:]).any()


def test_value_with_an_addition_trades_norm_for_it(rng):
    """The norm bound is shared between the function and the addition: the best of all shares, by search."""
    X = rng.uniform(-3.0, 3.0, (12, 2))
    data, kernel = rc.Observations(X, np.sin(X[:, 0]), 0.1), rc.SquaredExponential(2.0)
    x, added, radius = np.array([[0.5, -1.0]]), 0.03, 9.0
    envelope = rc.OptimalEnvelope(data, kernel, radius)
    band = envelope.functional_bounds(example.RegularisedValue.many(x, added))
    largest = 0.999 * np.sqrt(1.0 - (envelope.least_norm.norm / radius) ** 2)

    def upper(share):
        rest = rc.OptimalEnvelope(data, kernel, radius * np.sqrt(1.0 - share**2))
        return rest.bounds(x).upper[0] + np.sqrt(added) * radius * share

    best = minimize_scalar(lambda share: -upper(share), bounds=(0.0, largest), options={"xatol": 1e-7})
    assert 0.1 * largest < best.x < 0.99 * largest
    assert band.upper[0] == pytest.approx(-best.fun, rel=1e-8)
    assert band.upper[0] > upper(0.0)


@pytest.mark.parametrize(("noise", "design"), [(1.0, "grid"), (5.0, "random")])
def test_surface_is_the_printed_one_with_the_nugget_and_closer_without(noise, design):
    surface = example.compute_surface(noise, design, example.QUERIES_PER_AXIS)
    row = surface.row()
    assert row.agrees, row
    assert example.rounds_to(surface.distance_as_coded, example.DISTANCES[noise][design])
    assert (surface.upper >= surface.truth).all()
    assert not replace(surface, distance_as_coded=surface.distance_as_coded + 0.02).row().agrees
    assert not replace(surface, upper=surface.upper + 1.0).row().agrees


@pytest.mark.parametrize("design", ["grid", "random"])
def test_slice_is_the_printed_one_with_the_nugget_and_narrower_without(design):
    s = example.compute_slice(design, example.QUERIES_ON_SLICE)
    assert all(row.agrees for row in s.rows()), s.rows()
    assert s.optimal.width.mean() < 0.8 * s.optimal_as_coded.width.mean()
    assert s.n_misses == 0
    assert s.n_outside == 0
    assert replace(s, truth=s.truth + 30.0).n_misses > 0
    assert replace(s, optimal=s.closed_form_plain, closed_form_plain=s.optimal).n_outside == len(s.z2)


def test_example_says_where_it_does_not_agree(monkeypatch, tmp_path):
    """At other queries than the paper's the averages are others; what holds at every query still holds."""
    monkeypatch.setattr(example, "QUERIES_PER_AXIS", 6)
    monkeypatch.setattr(example, "QUERIES_ON_SLICE", 5)
    result = example.run(Work(1))
    assert [row.agrees for row in result.rows] == [False] * 8 + [True] * 2
    result.write(tmp_path)
    assert {file.name for file in tmp_path.glob("*.png")} == {"surfaces.png", "distances.png", "slice.png"}


@pytest.mark.parametrize(("noise", "design"), ALL_CELLS)
def test_closed_form_and_process_of_the_tables_come_out_to_the_digit(noise, design):
    queries, printed = henon.grid(tables.QUERIES_PER_AXIS), tables.PRINTED[noise][design]
    for column in range(9):
        bounds = tables.NORM_BOUNDS[column // 3], tables.NOISE_FACTORS[column % 3] * noise
        assert example.rounds_to(tables.closed_form_as_coded(noise, design, *bounds, queries), printed["sub"][column])
        assert example.rounds_to(tables.process_as_coded(noise, design, *bounds, queries), printed["gp"][column])


@pytest.mark.parametrize(("noise", "design", "number"), [(1.0, "grid", 0), (5.0, "random", 8)])
def test_column_of_a_table_is_the_printed_one(noise, design, number):
    column = tables.compute(noise, design, number, tables.QUERIES_PER_AXIS)
    assert all(column.agrees(kind) for kind in tables.KINDS), column
    assert column.largest_relative_gap < 1e-6


def test_column_agrees_only_if_reproduced_and_in_order():
    widths = {"opt": 6.0, "sub": 11.0, "gp": 600.0}
    column = tables.Column(1.0, "grid", 1200.0, 1.0, widths, widths, widths, 0.0)
    assert all(column.agrees(kind) for kind in tables.KINDS)
    for kind in tables.KINDS:
        assert not replace(column, as_coded={**widths, kind: widths[kind] + 0.01}).agrees(kind)
    assert not replace(column, ours={**widths, "opt": 6.1}).agrees("opt")
    assert not replace(column, ours={**widths, "sub": 5.9}).agrees("sub")
    assert not replace(column, ours={**widths, "gp": 59.0}).agrees("gp")
