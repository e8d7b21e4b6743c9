"""Plants: right equations, accurate and vectorised simulation, the same equations in CasADi."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import rkhs_control as rc
from rkhs_control.models.cstr import CSTR
from rkhs_control.models.exothermic_reactor import ExothermicReactor
from rkhs_control.models.quadruple_tank import QuadrupleTank
from rkhs_control.models.three_tanks import ThreeTanks

PLANTS = [CSTR(), ExothermicReactor(), QuadrupleTank(), ThreeTanks()]


def random_runs(plant, rng, n_runs, n_steps):
    x0 = rng.uniform(plant.state_limits.lower, plant.state_limits.upper, (n_runs, plant.n_states))
    return x0, rng.uniform(plant.input_limits.lower, plant.input_limits.upper, (n_runs, n_steps, plant.n_inputs))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_simulation_of_many_equals_each_alone_by_another_integrator(plant, rng):
    x0, inputs = random_runs(plant, rng, 200, 5)
    states = plant.simulate(x0, inputs)
    for run in (0, 57, 199):
        x = x0[run]
        for k in range(5):
            x = solve_ivp(
                lambda _, z, u=inputs[run, k]: np.array(plant.right_hand_side(z, u, np)),
                (0, plant.sampling_time),
                x,
                method="Radau",
                rtol=1e-12,
                atol=1e-12,
            ).y[:, -1]
            assert np.abs(states[run, k + 1] - x).max() < 1e-9


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_reference_is_an_equilibrium_within_the_limits(plant):
    inputs = np.broadcast_to(plant.reference_input, (20, plant.n_inputs))
    states = plant.simulate(plant.reference, inputs)
    assert np.abs(states - plant.reference).max() < 1e-3
    assert plant.state_limits.contains(states).all()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_casadi_has_the_same_equations(plant, rng):
    x0, inputs = random_runs(plant, rng, 5, 1)
    function = plant.casadi_right_hand_side()
    for x, u in zip(x0, inputs[:, 0], strict=True):
        np.testing.assert_allclose(np.array(function(x, u))[:, 0], plant.right_hand_side(x, u, np), rtol=1e-12)


def test_sampling_twice_as_often_does_not_change_the_states(rng):
    """Samples are taken exactly at the instants: two half intervals are a whole one."""

    class Faster(CSTR):
        sampling_time = 15.0

    x0, inputs = random_runs(CSTR(), rng, 20, 4)
    twice = Faster().simulate(x0, np.repeat(inputs, 2, axis=1))
    np.testing.assert_allclose(twice[:, ::2], CSTR().simulate(x0, inputs), atol=1e-10)


@pytest.mark.parametrize(
    ("x0", "inputs", "message"),
    [
        ([2.0], [[14.0]], r"x0 must have 2 columns \(c_A, c_B\)"),
        ([2.0, 1.0], [14.0], r"inputs must have shape \(1, n_steps, 1\)"),
        ([[2.0, 1.0]], np.ones((2, 3, 1)), r"a run for each of x0; got \(2, 3, 1\)"),
        ([2.0, np.nan], [[14.0]], "x0 must be finite"),
    ],
)
def test_wrong_runs_are_refused_by_name(x0, inputs, message):
    with pytest.raises(rc.InputError, match=message):
        CSTR().simulate(x0, inputs)
