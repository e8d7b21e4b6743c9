"""Compiled rounding: sums to the bit those of `math.fsum`, and the rest on the right side of the exact number."""

import math
from fractions import Fraction

import numpy as np

from rkhs_control.arithmetic import compiled_rounding, rounding


def random_terms(rng):
    """Of very different sizes, many of which cancel; ties of rounding among them."""
    size = rng.integers(0, 20)
    terms = rng.normal(size=size) * 2.0 ** rng.integers(-60, 60, size)
    ties = 2.0 ** rng.integers(-110, 60, rng.integers(0, 6)) * rng.choice([-1.0, 1.0])
    return rng.permutation(np.concatenate([terms, -terms[: size // 2], ties]))


def test_sums_are_those_of_python_to_the_bit():
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        terms = random_terms(rng)
        assert compiled_rounding.exact_sum(terms) == math.fsum(terms)


def test_ties_are_rounded_by_what_is_left():
    for sign in (1.0, -1.0):
        for rest in (0.0, 2.0**-200, -(2.0**-200), 5e-324):
            terms = np.array([sign, sign * 2.0**-53, rest])
            assert compiled_rounding.exact_sum(terms) == math.fsum(terms)


def test_sums_that_could_overflow_or_are_no_number_are_infinite():
    for terms in ([1e308, 1e308, -1e308], [math.inf, -math.inf], [math.nan, 1.0]):
        assert compiled_rounding.exact_sum(np.array(terms)) == math.inf


def test_products_are_rounded_up_as_in_python():
    rng = np.random.default_rng(1)
    for _ in range(2_000):
        a = random_terms(rng)
        b = rng.normal(size=len(a)) * 10.0 ** rng.integers(-170, 5, len(a))
        exact = sum((Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)), Fraction(0))
        found, known = compiled_rounding.dot_up(a, b), rounding.dot_up(a, b)
        assert Fraction(found) >= exact
        assert abs(found - known) <= 2.0 * math.ulp(known)


def test_roots_are_those_of_python():
    for value in (0.0, 5e-324, 0.1, 1.0, 2.0, 1e300):
        assert compiled_rounding.sqrt_up(value) == rounding.sqrt_up(value)
