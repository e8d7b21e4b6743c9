"""What all envelopes share: what a method can do is declared on its class, and what is declared is there."""

import pickle

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.envelopes.base import Envelope
from rkhs_control.envelopes.methods import METHODS

KERNEL = rc.SquaredExponential(0.8)
ALL = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (20, 2))
    return rc.Observations(X, np.sin(2 * X[:, 0]) * X[:, 1] + rng.uniform(-0.1, 0.1, 20), 0.1)


@ALL
def test_bounds_have_witnesses_where_the_class_says_so(method, data, rng):
    band = method(data, KERNEL, 6.0).bounds(rng.uniform(-1, 1, (3, 2)))
    assert {witness is not None for pair in band.witnesses for witness in pair} == {method.has_witnesses}


@ALL
def test_bounds_have_gradients_where_the_class_says_so(method, data, rng):
    assert method.has_gradients == (method.upper_gradient is not Envelope.upper_gradient)
    envelope, step = method(data, KERNEL, 6.0), 1e-5
    for z in rng.uniform(-0.9, 0.9, (4, 2)):
        witnesses = envelope.bounds([z]).witness(0)
        if not method.has_gradients:
            with pytest.raises(rc.InputError, match=f"{method.__name__} has no gradients"):
                envelope.end_gradient(z, 1, witnesses[1])
            continue
        shifted = envelope.bounds(np.concatenate([z + step * np.eye(2), z - step * np.eye(2)]))
        for side, ends in enumerate((shifted.lower, shifted.upper)):
            gradient = envelope.end_gradient(z, side, witnesses[side])
            assert gradient.shape == (2,)
            np.testing.assert_allclose(gradient, (ends[:2] - ends[2:]) / (2 * step), rtol=2e-3, atol=2e-3)


def test_a_constraint_has_the_gradient_of_the_bound_that_it_is_judged_by(data, rng):
    envelope, x, step = rc.OptimalEnvelope(data, KERNEL, 6.0), rng.uniform(-0.9, 0.9, 2), 1e-5
    for constraint in (envelope <= 1.0, envelope >= -1.0):
        gradient = constraint.gradient(x, constraint.bounds(x[None])[0])
        ahead, behind = (constraint.margins(x + sign * step * np.eye(2)) for sign in (1.0, -1.0))
        np.testing.assert_allclose(gradient, (behind - ahead) / (2 * step), rtol=1e-3, atol=1e-3)


def test_an_optimal_gradient_without_its_witness_is_refused(data):
    with pytest.raises(rc.InputError, match="needs the witness"):
        rc.OptimalEnvelope(data, KERNEL, 6.0).end_gradient(np.zeros(2), 1, None)


def test_an_envelope_travels_without_what_was_compiled_for_its_gradients(data):
    envelope, z = rc.ClosedFormEnvelope(data, KERNEL, 6.0), np.array([0.1, 0.2])
    gradient = envelope.end_gradient(z, 0, None)
    copy = pickle.loads(pickle.dumps(envelope))
    assert "_gradients" not in vars(copy)
    np.testing.assert_array_equal(copy.end_gradient(z, 0, None), gradient)


@ALL
def test_a_norm_bound_is_brought_to_one_type(method, data):
    given = rc.NormBound(6.0, "a guess")
    assert method(data, KERNEL, 6.0).norm_bound == rc.NormBound(6.0, "given")
    envelope = method(data, KERNEL, given)
    assert envelope.norm_bound is given
    assert envelope.with_assumptions(data, 7.0).norm_bound == rc.NormBound(7.0)
    assert pickle.loads(pickle.dumps(envelope)).norm_bound == given
    with pytest.raises(TypeError, match="norm_bound"):
        method(data, KERNEL)


@ALL
def test_envelopes_and_bands_are_shown_in_a_line(method, data, rng):
    envelope = method(data, KERNEL, 6.0)
    assert repr(envelope) == f"{method.__name__}(20 inputs, n_dims=2, {KERNEL!r}, norm_bound=6.0 (given))"
    assert len(repr(envelope.bounds(rng.uniform(-1, 1, (50, 2))))) < 100


def test_options_that_were_given_are_shown(data):
    model = rc.kernel_ridge(data, KERNEL, 0.1)
    envelopes = [
        rc.ClosedFormEnvelope(data, KERNEL, rc.NormBound(6.0, "a guess"), nugget=0.1, model=model),
        rc.AlternatingEnvelope(data, KERNEL, 6.0, iterations=3),
    ]
    assert [repr(envelope).partition("norm_bound=")[2] for envelope in envelopes] == [
        "6.0 (a guess), nugget=0.1)",
        "6.0 (given), iterations=3)",
    ]


def test_a_shown_band_is_rounded_outwards():
    band = rc.Band(np.array([-0.12341, 0.0]), np.array([0.5, 0.99991]), np.zeros(2), ((None, None),) * 2)
    assert repr(band) == "Band(2 queries, from -0.124 to 1.00, widest 1.00)"
    assert repr(rc.Band(np.empty(0), np.empty(0), np.empty(0), ())) == "Band(no queries)"
