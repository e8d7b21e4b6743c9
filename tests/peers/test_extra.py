"""Peers that the extra brings: they are called as their own users call them."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.models.cstr import CSTR


@pytest.fixture
def runs(rng):
    plant = CSTR()
    x0 = rng.uniform(plant.state_limits.lower, plant.state_limits.upper, (400, 2))
    inputs = rng.uniform(3.0, 25.0, (400, 1, 1))
    states = plant.simulate(x0, inputs)
    states[:, 1:] += rng.uniform(-0.05, 0.05, states[:, 1:].shape)
    return rc.Trajectories(states, inputs, 0.06)


def test_gaussian_bands_are_nested_and_conformal_ones_hold_most_of_the_truth(runs, rng):
    pytest.importorskip("sklearn")
    pytest.importorskip("mapie")
    from rkhs_control.peers.conformal import conformal_bounds
    from rkhs_control.peers.gaussian import gaussian_bounds, learn

    learned = learn(runs, n_jobs=1)
    plant = CSTR()
    x0 = rng.uniform(plant.state_limits.lower, plant.state_limits.upper, (200, 2))
    inputs = rng.uniform(3.0, 25.0, (200, 1, 1))
    truth = plant.simulate(x0, inputs)[:, 1:]
    two, three, measured = ([*peer.boxes(x0, inputs)] for peer in gaussian_bounds(runs, learned))
    assert (three[0] < two[0]).all()
    assert (two[1] < three[1]).all()
    # A measurement is less certain than the function, by the noise, whose deviation is 0.05 / sqrt(3).
    added = np.sqrt(((measured[1] - measured[0]) / 4) ** 2 - ((two[1] - two[0]) / 4) ** 2)
    assert added == pytest.approx(0.05 / np.sqrt(3), rel=0.25)
    for peer in conformal_bounds(runs, learned):
        lower, upper = peer.boxes(x0, inputs)
        assert np.mean((lower <= truth) & (truth <= upper)) > 0.9


def test_direct_data_driven_mpc_goes_to_the_reference_without_noise():
    pytest.importorskip("direct_data_driven_mpc")
    from rkhs_control.control.certainty_equivalent import QuadraticCost
    from rkhs_control.peers.hankel import WEIGHTS, HankelController, card
    from rkhs_control.scenarios.schema import LimitSettings

    plant, name = CSTR(), "weights tuned here"
    states, inputs = {"c_A": (1.0, 3.0), "c_B": (0.5, 2.0)}, {"u": (3.0, 25.0)}
    limits = LimitSettings(states=states, inputs=inputs).over(plant.state_names, plant.input_names)
    weights = np.diag([0.2, 1.0]), np.array([[0.1]]), np.array([[14.46, 13.56], [13.56, 62.22]])
    cost = QuadraticCost(*weights, np.array([2.14, 1.09]), np.array([14.19]), 8)
    peer = HankelController(card(name), plant, cost, limits, 0.0, WEIGHTS[name], 1)
    (loop,) = peer.loops(np.array([[2.0, 1.0]]), 25, seed=1)
    assert loop.n_failed == 0
    assert np.abs(loop.states[-5:] - [2.14, 1.09]).max() < 0.1
