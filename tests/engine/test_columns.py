"""Columns of a kernel matrix that is too large to be kept."""

from __future__ import annotations

import numpy as np
import pytest

from rkhs_control.engine import columns
from rkhs_control.engine.columns import Columns
from rkhs_control.kernels.radial import SquaredExponential


@pytest.mark.parametrize("kept", [0, 1, 50, 1000])
def test_sums_of_columns_do_not_depend_on_which_are_kept(rng, monkeypatch, kept):
    X, kernel = rng.uniform(-1.0, 1.0, (300, 3)), SquaredExponential(0.7)
    monkeypatch.setattr(columns, "_BYTES", 8 * len(X) * kept)
    used, store = [rng.permutation(300)[:n] for n in (40, 150, 90, 200, 40)], Columns()
    for rows in used:
        weights = rng.normal(size=len(rows))
        found = store.combine(kernel, X, rows, weights)
        np.testing.assert_array_equal(found, Columns().combine(kernel, X, rows, weights))
        np.testing.assert_allclose(found, kernel(X, X[rows]) @ weights, rtol=0.0, atol=1e-12 * len(rows))
        assert len(store._place) <= kept


def test_an_interrupt_leaves_the_kept_columns_as_they_were(rng, monkeypatch):
    X, kernel = rng.uniform(-1.0, 1.0, (50, 2)), SquaredExponential(0.7)
    monkeypatch.setattr(columns, "_BYTES", 8 * len(X) * 4)  # room for four
    store = Columns()
    store.combine(kernel, X, np.arange(4), np.ones(4))

    def interrupted(*points):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.combine(interrupted, X, np.array([10]), np.ones(1))
    store.combine(kernel, X, np.array([11]), np.ones(1))
    for row in (3, 2, 11, 10):
        found = store.combine(kernel, X, np.array([row]), np.ones(1))
        np.testing.assert_array_equal(found, Columns().combine(kernel, X, np.array([row]), np.ones(1)))
