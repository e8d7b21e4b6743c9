"""Numbers as people read them are on the right side of those that are certain."""

import math
from fractions import Fraction

import numpy as np
import pytest

from rkhs_control.arithmetic.printing import margin_text, outside_text, rounded_down, rounded_up


def test_printed_numbers_are_on_their_side(rng):
    values = np.ldexp(rng.uniform(-1.0, 1.0, 2000), rng.integers(-60, 60, 2000)).tolist()
    for value in [*values, 1.99996, 0.0999999, 9.995, 999.5, -1e-300, 1e-300, 1e308]:
        for digits in (2, 3, 6):
            assert Fraction(rounded_down(value, digits)) <= Fraction(value) <= Fraction(rounded_up(value, digits))


@pytest.mark.parametrize(
    ("margin", "text"),
    [(1.99996, "+1.99"), (-0.12345, "-0.124"), (0.0, "+0.00"), (-0.0, "+0.00"), (math.inf, "no limits")],
)
def test_margins_have_a_sign_and_are_rounded_down(margin, text):
    assert margin_text(margin) == text


def test_a_box_without_ends_is_not_taken_for_one_without_limits():
    assert margin_text(-math.inf) == "-inf"


def test_how_far_outside_a_box_is_claims_no_more_than_was_proved():
    assert outside_text(-0.12399) == "-0.123"
