"""The bounds of two published neighbours, written again: they are what their papers say."""

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.peers import kpc, reachability
from rkhs_control.peers.reachability import LipschitzReachability


@pytest.fixture
def known(rng):
    """Samples of a function whose norm is known to be below the bound, and the function."""
    kernel, X = rc.SquaredExponential(1.0), rng.uniform(-1.0, 1.0, (40, 2))
    centres, weights = rng.uniform(-1.0, 1.0, (5, 2)), rng.normal(size=5)
    y = kernel(X, centres) @ weights + rng.uniform(-kpc.NOISE, kpc.NOISE, 40)
    return rc.Observations(X, y, kpc.NOISE), lambda Z: kernel(Z, centres) @ weights


def test_bound_of_the_paper_holds_the_truth_and_ours_lies_within_it(known, rng):
    data, truth = known
    theirs, queries = kpc.KernelRidgeBound(data, 1.0), rng.uniform(-1.0, 1.0, (50, 2))
    lower, upper = theirs.interval(queries)
    assert (lower <= truth(queries)).all()
    assert (truth(queries) <= upper).all()
    ours = rc.OptimalEnvelope(data, theirs.kernel, theirs.norm_bound).bounds(queries)
    assert ours.width.mean() < (upper - lower).mean()


def test_squared_power_function_of_the_script_is_narrower(known, rng):
    data, _ = known
    queries = rng.uniform(-3.0, 3.0, (20, 2))
    paper, script = (kpc.KernelRidgeBound(data, 1.0, uses).interval(queries) for uses in (False, True))
    assert (script[0] >= paper[0]).all()
    assert (script[0] > paper[0]).any()


def test_smoothing_term_is_the_one_in_the_formula(known, rng):
    data, _ = known
    one, queries = kpc.KernelRidgeBound(data, 1.0), rng.uniform(-1.0, 1.0, (5, 2))
    K, k, n = one._gram, one.kernel(data.X, queries), len(data)
    middle = K + K @ K / (n * kpc.REGULARISATION)
    expected = np.abs(np.linalg.solve(middle, k).T @ data.centre)
    mean = k.T @ np.linalg.solve(K + n * kpc.REGULARISATION * np.eye(n), data.centre)
    np.testing.assert_allclose(np.abs(one._solved(k).T @ data.centre - mean), expected, rtol=1e-2)


def test_reachable_boxes_of_an_affine_system_hold_it(rng):
    A, B = np.array([[0.9, 0.1], [0.0, 0.8]]), np.array([[0.1, 0.0], [0.0, 0.2]])

    def recording(x, inputs):
        states = [x]
        for u in inputs:
            shock = reachability.DISTURBANCE * rng.uniform(-1.0, 1.0, 2)
            states.append(A @ states[-1] + B @ u + shock)
        return np.array(states)

    plans = rng.uniform(-1.0, 1.0, (30, 8, 2))
    recordings = [(recording(rng.uniform(-1.0, 1.0, 2), plan), plan) for plan in plans]
    peer = LipschitzReachability.of(recordings)
    assert (peer.slack > 0).all()
    states = np.array([states for states, _ in recordings])
    lower, upper = peer.boxes(states[:, 0], plans)
    assert (lower <= states[:, 1:]).all()
    assert (states[:, 1:] <= upper).all()
    assert (np.diff((upper - lower).mean(axis=0), axis=0) > 0).all(), "boxes build on boxes"
