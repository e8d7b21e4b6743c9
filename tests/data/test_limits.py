"""Limits: however they are given, they come to the same boxes, and what does not fit is refused by name."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.data.limits import PlacedLimits

NAMES = (("c_A", "c_B"), ("u",))


@pytest.mark.parametrize(
    "states",
    [
        rc.Box([1.0, 0.5], [3.0, 2.0]),
        ([1.0, 0.5], [3.0, 2.0]),
        [np.array([1.0, 0.5]), np.array([3.0, 2.0])],
        {"c_A": (1.0, 3.0), "c_B": [0.5, 2.0]},
        {"c_B": np.array([0.5, 2.0]), "c_A": (1, 3)},
    ],
    ids=["box", "tuple", "list", "names", "names in another order"],
)
def test_all_ways_to_give_limits_are_the_same_box(states):
    limits = rc.Limits(states=states, inputs=(3.0, 25.0), rates={"u": (-2.0, 2.0)}).over(*NAMES)
    assert isinstance(limits, PlacedLimits)
    assert limits.states.lower.tolist() == [1.0, 0.5]
    assert limits.states.upper.tolist() == [3.0, 2.0]
    assert limits.inputs.lower.tolist() == [3.0]
    assert limits.rates.upper.tolist() == [2.0]


def test_what_is_not_named_has_no_limit():
    placed = rc.Limits({"c_B": (0.5, 2.0)}).over(*NAMES)
    assert placed.states.lower.tolist() == [-np.inf, 0.5]
    assert placed.states.upper.tolist() == [np.inf, 2.0]
    assert placed.inputs is None
    assert placed.rates is None
    assert not np.isfinite(rc.Limits({}).over(*NAMES).states.upper).any()


def test_states_may_be_limited_by_a_polytope_and_by_one_end():
    polytope = rc.Polytope([[1.0, 1.0]], [4.0])
    assert rc.Limits(polytope).over(*NAMES).states is polytope
    assert rc.Limits({"c_A": (-np.inf, 3.0)}).over(*NAMES).states.lower[0] == -np.inf


def test_limits_by_name_cannot_be_changed_from_outside():
    given = {"c_A": [1.0, 3.0]}
    limits = rc.Limits(given)
    given["c_A"][1] = 9.0
    given["c_B"] = [0.0, 1.0]
    assert limits.over(*NAMES).states.upper.tolist() == [3.0, np.inf]


def test_either_way_to_say_limits_gives_one_object():
    box, inputs = rc.Box([1.0, 0.5], [3.0, 2.0]), rc.Box([3.0], [25.0])
    limits = rc.Limits(box, inputs)
    assert rc.Limits.of(limits, None, None, None) is limits
    assert rc.Limits.of(box, None, None, None).states is box
    assert rc.Limits.of(None, box, inputs, None).inputs is inputs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rc.Limits(None), "limits need states"),
        (
            lambda: rc.Limits(3.0),
            r"states must be a Box, a Polytope, a pair \(lower, upper\) or intervals by name; got 3",
        ),
        (lambda: rc.Limits("c_A"), "states must be a Box"),
        (lambda: rc.Limits(([1.0], [2.0], [3.0])), "states must be a Box"),
        (lambda: rc.Limits(([3.0], [1.0])), "lower must not exceed upper; entry 0 has 3 and 1"),
        (lambda: rc.Limits(([1.0], [2.0, 3.0])), "same shape"),
        (lambda: rc.Limits({"c_A": (3.0, 1.0)}), r"states\['c_A'\] must be a lower and an upper end, in that order"),
        (lambda: rc.Limits({"c_A": (np.nan, 1.0)}), r"states\['c_A'\] must be a lower and an upper end"),
        (lambda: rc.Limits({"c_A": 3.0}), r"states\['c_A'\] must be a lower and an upper end"),
        (lambda: rc.Limits({"c_A": ("low", "high")}), r"states\['c_A'\] must be an array of real numbers"),
        (lambda: rc.Limits({}, rc.Polytope([[1.0]], [1.0])), "inputs must be a Box, a pair .* got Polytope"),
        (lambda: rc.Limits({}, {}, {"u": (1.0, -1.0)}), r"rates\['u'\] must be a lower and an upper end"),
        (lambda: rc.Limits({"c_a": (1.0, 3.0)}).over(*NAMES), r"limits of states name 'c_a' \(did you mean 'c_A'\?\)"),
        (lambda: rc.Limits({"T": (1.0, 3.0)}).over(*NAMES), "name 'T', but there is only c_A, c_B"),
        (lambda: rc.Limits({}, {"c_A": (1.0, 3.0)}).over(*NAMES), "limits of inputs name 'c_A', but there is only u"),
        (lambda: rc.Limits({}, {}, {"v": (1.0, 3.0)}).over(*NAMES), "limits of rates name 'v'"),
        (
            lambda: rc.Limits(([1.0], [2.0])).over(*NAMES),
            r"limits of states must have 2 dimensions \(c_A, c_B\); got 1",
        ),
        (
            lambda: rc.Limits({}, ([0, 0], [1, 1])).over(*NAMES),
            r"limits of inputs must have 1 dimensions? \(u\); got 2",
        ),
        (lambda: rc.Limits(rc.Polytope([[1.0]], [1.0])).over(*NAMES), "limits of states must have 2 dimensions"),
        (lambda: rc.Limits.of(None, None, None, None), "give limits=Limits"),
        (lambda: rc.Limits.of(rc.Limits({}), {}, None, None), "give either limits or state_limits"),
    ],
)
def test_limits_that_do_not_fit_are_refused_by_name(make, message):
    with pytest.raises(rc.InputError, match=message):
        make()
