"""Rounding is outwards: every function against exact rational arithmetic, over random and special numbers."""

import itertools
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from rkhs_control.arithmetic import rounding
from rkhs_control.arithmetic.balls import float_down, float_up
from rkhs_control.arithmetic.rounding import (
    UNIT_ROUNDOFF,
    dot_down,
    dot_up,
    down,
    enlarged,
    product_up,
    sqrt_up,
    sum_up,
)

LEAST, LARGEST, NORMAL = math.ulp(0.0), sys.float_info.max, sys.float_info.min
SPECIAL = [
    *(0.0, -0.0, LEAST, 2.0 * LEAST, 3.0 * LEAST, NORMAL - LEAST, NORMAL, 1.5 * NORMAL, 1e-200, 1e-154, 0.1, 0.5),
    *(1.0 - UNIT_ROUNDOFF, 1.0, 1.0 + 2.0 * UNIT_ROUNDOFF, 2.0 - 2.0 * UNIT_ROUNDOFF, 3.0, 1e16 + 2.0, 1e154, 1e200),
    *(1e308, LARGEST / 2.0, math.nextafter(LARGEST, 0.0), LARGEST),
]
NUMBERS = SPECIAL + [-x for x in SPECIAL]
NOT_FINITE = [math.inf, -math.inf, math.nan]


def random_numbers(rng, n):
    """Of both signs and all magnitudes, many of them close to one another in size."""
    exponents = np.where(rng.random(n) < 0.5, rng.integers(-1074, 1024, n), rng.integers(-3, 3, n))
    return np.clip(np.ldexp(rng.uniform(-1.0, 1.0, n), exponents), -LARGEST, LARGEST).tolist()


@pytest.fixture
def pairs(rng):
    """All pairs of special numbers, and many of random ones; some nearly cancel."""
    a, b = random_numbers(rng, 3000), random_numbers(rng, 3000)
    nearly = [-math.nextafter(x, math.inf) for x in a[:200]]
    return [*itertools.product(NUMBERS, NUMBERS), *zip(a, b, strict=True), *zip(a, nearly, strict=False)]


def successor(value, steps):
    for _ in range(steps):
        value = math.nextafter(value, math.inf)
    return value


def is_at_least(value, exact):
    """Whether a double, infinite ones included, is not below a rational number."""
    return value == math.inf or (value > -math.inf and Fraction(value) >= exact)


def is_at_most(value, exact):
    return is_at_least(-value, -exact)


def columns(pairs):
    a, b = np.array(pairs).T
    return a, b, [(Fraction(x), Fraction(y)) for x, y in pairs]


# One operation


def test_the_next_double_is_on_the_right_side_of_every_operation(pairs):
    a, b, exact = columns(pairs)
    with np.errstate(all="ignore"):
        for results, wanted in [
            (a + b, [x + y for x, y in exact]),
            (a - b, [x - y for x, y in exact]),
            (a * b, [x * y for x, y in exact]),
        ]:
            lower, upper = rounding.outwards(results, results)
            assert all(map(is_at_most, lower.tolist(), wanted))
            assert all(map(is_at_least, upper.tolist(), wanted))


@pytest.mark.parametrize("value", [*NUMBERS, *NOT_FINITE])
def test_numbers_and_arrays_are_rounded_alike(value):
    for f, end in ((rounding.up, np.inf), (down, -np.inf)):
        np.testing.assert_array_equal(f(np.array([value])), [f(value)])
        np.testing.assert_array_equal(f(value), math.nextafter(value, end))
        assert type(f(value)) is float
        assert type(f(np.float64(value))) is float
    if not value < 0.0:
        np.testing.assert_array_equal(enlarged(np.array([value]), 3), [enlarged(value, 3)])


def test_no_rounding_makes_an_open_end_or_a_missing_number_known():
    lower, upper = rounding.outwards(np.array([-np.inf, np.nan]), np.array([np.inf, np.nan]))
    np.testing.assert_array_equal(lower, [-np.inf, np.nan])
    np.testing.assert_array_equal(upper, [np.inf, np.nan])


def test_products_and_quotients_of_numbers_are_rounded_outwards(pairs):
    for a, b in pairs:
        x, y = Fraction(a), Fraction(b)
        assert is_at_least(product_up(a, b), x * y)
        if b != 0.0:
            assert is_at_least(rounding.quotient_up(a, b), x / y)
        if b > 0.0:
            assert is_at_most(rounding.quotient_down(a, b), max(x / y, Fraction(0)))


@pytest.mark.parametrize("inner", [*NUMBERS, *NOT_FINITE])
def test_a_quotient_that_is_no_number_proves_nothing(inner):
    """A least norm is one of these: what nobody knows must count as zero."""
    assert rounding.quotient_down(math.nan, 1.0) == rounding.quotient_down(inner, math.nan) == 0.0
    assert rounding.quotient_down(inner, math.inf) == 0.0


def test_roots_are_rounded_up(rng):
    for value in [*SPECIAL, *map(abs, random_numbers(rng, 3000))]:
        assert Fraction(sqrt_up(value)) ** 2 >= Fraction(value)
    assert math.copysign(1.0, sqrt_up(-0.0)) == 1.0
    assert sqrt_up(math.inf) == math.inf
    assert np.isnan(sqrt_up(math.nan))  # which sum_up makes infinite


# Sums


def test_sums_are_rounded_up(rng, pairs):
    triples = np.array(random_numbers(rng, 9000)).reshape(-1, 3).tolist()
    for terms in [*pairs, *triples, [x for pair in pairs[:50] for x in pair]]:
        exact = sum(map(Fraction, terms))
        assert is_at_least(sum_up(*terms), exact)


@pytest.mark.parametrize(
    "values", [[1e308, 1e308], [np.nan, 1.0], [np.inf, -np.inf], [1e300, -np.inf], [-1e308, -1e308]]
)
def test_sums_that_overflow_are_infinite_bounds_and_no_error(values):
    a = np.array(values)
    assert sum_up(*values) == np.inf
    assert dot_up(a, np.ones(2)) == np.inf
    assert dot_down(a, np.ones(2)) == -np.inf
    assert dot_up(np.full(2, 1e200), np.full(2, 1e200)) == np.inf


def test_sums_entry_by_entry_are_the_nearest_doubles_on_the_right_side(pairs):
    a, b, exact = columns(pairs)
    upper, lower = rounding.add_up(a, b), rounding.add_down(a, b)
    for low, high, (x, y) in zip(lower.tolist(), upper.tolist(), exact, strict=True):
        assert is_at_most(low, x + y)
        assert is_at_least(high, x + y)
        assert not is_at_most(math.nextafter(low, math.inf), x + y)
        assert not is_at_least(math.nextafter(high, -math.inf), x + y)


def test_exact_sums_and_open_ends_stay_as_they_are():
    a, b = np.array([0.5, 1.0, np.inf, -np.inf, 0.0]), np.array([0.25, -1.0, 1.0, LARGEST, 0.0])
    for f in (rounding.add_up, rounding.add_down):
        total = f(a, b)
        np.testing.assert_array_equal(total, a + b)
        assert not np.signbit(total[[1, 4]]).any()
    assert np.isnan(rounding.add_up(np.array([np.inf, np.nan]), np.array([-np.inf, 1.0]))).all()


def test_a_difference_has_the_sign_of_the_comparison(pairs):
    for a, b in pairs:
        difference = rounding.difference_down(a, b)
        assert is_at_most(difference, Fraction(a) - Fraction(b))
        assert (difference >= 0.0) == (a >= b)
    for a, b in itertools.product([*NUMBERS, math.inf, -math.inf], repeat=2):
        assert (rounding.difference_down(a, b) >= 0.0) == (a >= b)
    assert not rounding.difference_down(math.nan, 1.0) >= 0.0


def test_inner_products_are_rounded_outwards(rng):
    for n in [0, 1, 2, 3, 10, 100]:
        for _ in range(200):
            a, b = (np.array(random_numbers(rng, n)) for _ in range(2))
            if rng.random() < 0.5:  # nearly orthogonal
                a, b = np.concatenate([a, -a * (1.0 + UNIT_ROUNDOFF * rng.integers(-2, 3))]), np.concatenate([b, b])
            exact = sum((Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)), Fraction(0))
            assert is_at_least(dot_up(a, b), exact)
            assert is_at_most(dot_down(a, b), exact)


def test_inner_products_of_special_numbers_are_rounded_outwards(pairs):
    for a, b in pairs:
        x, y = np.array([a, 1.0, b]), np.array([b, 1.0, -a])
        exact = Fraction(1)
        assert is_at_least(dot_up(x, y), exact)
        assert is_at_most(dot_down(x, y), exact)


def test_rounding_up_is_up_where_numbers_underflow():
    assert product_up(LEAST, 0.4) >= LEAST
    assert dot_up(np.array([1e-200]), np.array([1e-200])) > 0.0
    assert sqrt_up(LEAST) ** 2 >= LEAST


# Widening


def test_ends_are_moved_by_at_least_the_shift_and_in_its_direction(pairs):
    ends, shift, exact = columns(pairs)
    with np.errstate(over="ignore"):
        moved = rounding.further_out(ends, shift)
    for end, by, value, (x, y) in zip(ends, shift, moved.tolist(), exact, strict=True):
        if by == 0.0:
            assert value == end
        else:
            assert (is_at_least if by > 0.0 else is_at_most)(value, x + y)


@pytest.mark.parametrize("roundings", [1, 2, 3, 4, 8, 64])
def test_enlarged_numbers_are_so_many_doubles_larger_and_zero_stays_zero(roundings, rng):
    for value in [*SPECIAL, *map(abs, random_numbers(rng, 1000))]:
        larger = enlarged(value, roundings)
        if value == 0.0:
            assert larger == 0.0
        else:
            assert larger >= successor(value, roundings)
    assert enlarged(math.inf, roundings) == math.inf
    assert np.isnan(enlarged(math.nan, roundings))


def test_the_sum_of_positive_numbers_is_covered_by_as_many_roundings(rng):
    for n in (2, 3, 5, 9):
        for _ in range(500):
            terms = np.abs(random_numbers(rng, n)) / 2.0**8
            total = 0.0
            for term in terms.tolist():
                total += term
            assert is_at_least(enlarged(total, n - 1), sum(map(Fraction, terms.tolist())))


# Rational numbers and balls


def test_rational_numbers_become_the_least_double_that_is_not_below(rng):
    halves = [Fraction(x) + sign * Fraction(math.ulp(x)) / 2 for x in NUMBERS for sign in (-1, 1)]
    thirds = [Fraction(x) / 3 for x in random_numbers(rng, 500)]
    beyond = [Fraction(10) ** 400, -(Fraction(10) ** 400), Fraction(10) ** -400, -(Fraction(10) ** -400)]
    for exact in [*map(Fraction, NUMBERS), *halves, *thirds, *beyond]:
        value = rounding.fraction_up(exact)
        assert is_at_least(value, exact)
        assert not is_at_least(math.nextafter(value, -math.inf), exact)


def test_balls_lie_between_their_doubles(rng):
    for value in [*NUMBERS, *random_numbers(rng, 300)]:
        for third in (
            arb(value),
            arb(value) / 3,
            arb(value) * arb("1e-30"),
            arb(value) ** 2,
            arb(value, abs(value) / 8),
        ):
            assert arb(float_down(third)) < third or float_down(third) == -math.inf
            assert arb(float_up(third)) > third or float_up(third) == math.inf
