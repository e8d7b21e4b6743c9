"""Steps in which values were recorded: found where there are some, through decimal rounding, and not elsewhere."""

import numpy as np
import pytest

from rkhs_control.assumptions.quantisation import quantisation_step


@pytest.mark.parametrize("step", [10 / 2048, 0.048876, 1 / 3, 7.0, 1e-7])
@pytest.mark.parametrize("per_step", [0.2, 5.0])
def test_a_step_is_found_through_offset_and_decimal_rounding(rng, step, per_step):
    """Of a slow and of a fast signal: neighbouring values of the second are many steps apart."""
    signal = step * per_step * np.cumsum(rng.normal(size=800))
    values = step * np.round(signal / step) + 0.3217 * step
    digits = 2 - int(np.floor(np.log10(step)))
    assert quantisation_step(np.round(values, digits)) == pytest.approx(step, rel=2e-3)


def test_values_that_are_many_to_a_step_give_it_precisely(rng):
    values = 0.1 * rng.integers(0, 4000, 3000)
    assert quantisation_step(values) == pytest.approx(0.1, rel=1e-9)


def test_continuous_values_have_no_step():
    rng = np.random.default_rng(3)
    for n in (5, 10, 30, 300):
        assert all(quantisation_step(rng.normal(size=n)) == 0.0 for _ in range(100))


def test_a_constant_and_two_levels_say_nothing_of_a_step():
    assert quantisation_step(np.full(50, 3.7)) == 0.0
    assert quantisation_step(np.repeat([1.0, 2.0], 25)) == 0.0


def test_a_few_levels_that_repeat_are_steps():
    assert quantisation_step(np.tile([20.0, 30.0, 50.0], 40)) == pytest.approx(10.0)


def test_one_value_between_the_steps_does_not_hide_them(rng):
    values = 0.5 * rng.integers(0, 300, 2000)
    values[1234] += 0.17
    assert quantisation_step(values) == pytest.approx(0.5, rel=1e-2)
