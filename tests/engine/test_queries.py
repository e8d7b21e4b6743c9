"""Many queries at once: what is compiled says the same as the way that takes one at a time."""

import numpy as np
import pytest
from problems import random_problem

import rkhs_control as rc
from rkhs_control.engine.functionals import Points
from rkhs_control.engine.path import Workspace
from rkhs_control.engine.queries import PointFunctionals, follow_queries, neighbours_in_turn


def random_envelopes(nugget):
    for number in range(40):
        rng = np.random.default_rng([31, number])
        problem = random_problem(rng, n_queries=6, n_most=40)
        bound = problem.norm * np.exp(rng.uniform(0, 2))
        envelope = rc.OptimalEnvelope(problem.data, problem.kernel, bound, nugget=nugget)
        if envelope.least_norm.gram is envelope.gram:
            yield envelope, problem.queries


@pytest.mark.parametrize("n_points", [1, 2])
@pytest.mark.parametrize("nugget", [0.0, 1e-6])
def test_compiled_values_are_those_of_their_witnesses(nugget, n_points):
    n_found = 0
    for envelope, queries in random_envelopes(nugget):
        points = np.stack([queries[k : k - n_points or None] for k in range(n_points)], axis=1)
        coefficients = np.tile([1.0, -1.0][:n_points], (len(points), 1))
        functionals = PointFunctionals.of(envelope.kernel, envelope.data.X, points, coefficients)
        space = Workspace.of(len(envelope.data))
        for side, start in zip(envelope.sides, envelope._side_starts, strict=True):
            ends = follow_queries(envelope.gram, start, functionals, envelope.radius, space)
            for end, own, c in zip(ends, points, coefficients, strict=True):
                if end is None:
                    continue
                n_found += 1
                gram, functional = envelope.gram, Points(own, c)
                norm = end.witness.residual_norm_up(functional, gram)
                assert end.norm == pytest.approx(norm, rel=1e-14)
                value, _ = end.witness.upper_value(functional, gram, side.lower, side.upper, envelope.radius)
                off = envelope.radius * (end.norm - np.sqrt(max(end.norm**2 - 2.0 * end.error, 0.0)))
                assert -1e-13 * abs(value) <= end.value - value <= off + 1e-13 * abs(value)
    assert n_found > 100


def test_all_at_once_bounds_as_well_as_one_by_one():
    for envelope, queries in random_envelopes(0.0):
        for side, found in zip(envelope.sides, envelope.value_bounds(envelope.sides, queries), strict=True):
            alone = envelope._one_by_one(side, [Points.value(x) for x in queries])
            for quick, slow in zip(found, alone, strict=True):
                assert abs(quick.value - slow.value) <= quick.gap + slow.gap + 1e-11 * abs(slow.value)


def test_neighbours_come_in_turn():
    rng = np.random.default_rng(5)
    points = rng.permutation(np.arange(20.0))[:, None]
    order = neighbours_in_turn(rc.SquaredExponential(3.0), points)
    assert sorted(order) == list(range(20))
    assert np.abs(np.diff(points[order, 0])).sum() <= 3 * 20
