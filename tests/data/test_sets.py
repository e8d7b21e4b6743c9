"""Boxes and polytopes."""

import numpy as np
import pytest

import rkhs_control as rc


def test_box_and_its_polytope_hold_the_same_points(rng):
    box = rc.Box([-1.0, -np.inf, 0.0], [1.0, 0.5, np.inf])
    points = rng.uniform(-2, 2, (500, 3))
    np.testing.assert_array_equal(box.contains(points), box.as_polytope().contains(points))
    assert box.contains(box.clip(points)).all()
    assert 0 < box.contains(points).sum() < 500
    assert len(box.as_polytope().offsets) == 4


def test_ends_belong_to_a_box():
    box = rc.Box([0.0, 0.0], [1.0, 1.0])
    assert box.contains([[0.0, 1.0], [1.0, 0.0]]).all()
    assert not box.contains([np.nextafter(1.0, 2.0), 0.5])
    assert not box.contains([np.nan, 0.5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rc.Box([0.0, 2.0], [1.0, 1.0]), "lower must not exceed upper; entry 1 has 2 and 1"),
        (lambda: rc.Box([0.0], [1.0, 1.0]), "same shape"),
        (lambda: rc.Box([np.nan], [1.0]), "lower must not exceed upper"),
        (lambda: rc.Polytope([[np.inf, 0.0]], [1.0]), "normals must be a finite array"),
        (lambda: rc.Polytope([[1.0, 0.0]], [1.0, 2.0]), r"offsets must have shape \(1,\)"),
        (lambda: rc.Polytope([[1.0, 0.0], [-0.0, 0.0]], [1.0, 2.0]), "normals must not be zero; row 1 is"),
    ],
)
def test_wrong_sets_are_refused_by_name(make, message):
    with pytest.raises(rc.InputError, match=message):
        make()


def test_sets_print_on_one_line():
    assert repr(rc.Box([1.0, 0.5], [3.0, np.inf])) == "Box([1, 0.5], [3, inf])"
    assert repr(rc.Box(np.zeros(50), np.ones(50))).endswith("[1, 1, 1, 1, 1, 1, ... (50 in all)])")
    assert repr(rc.Box([0.0], [1.0]).as_polytope()) == "Polytope(2 inequalities in 1 dimension)"
    assert repr(rc.Polytope([[1.0, 1.0]], [4.0])) == "Polytope(1 inequality in 2 dimensions)"
