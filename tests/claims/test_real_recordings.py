"""Recordings of real plants: nobody knows the truth, but held-out windows must not contradict boxes that are narrow."""

import numpy as np
import pytest
from problems import REFERENCE

import rkhs_control as rc

RECORDINGS = REFERENCE.parent / "recordings"


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore::rkhs_control.errors.UnsettledNormWarning")
def test_boxes_of_the_recorded_tanks_are_narrow_and_not_contradicted():
    """The formulation that the default choice arrives at; it is named here, and fewer steps, to save time."""
    if not (RECORDINGS / "tank.csv").exists():
        pytest.skip("the recordings are not here")
    table = np.genfromtxt(RECORDINGS / "tank.csv", delimiter=",", names=True)
    outputs = np.stack([table["level_upper"], table["level_lower"]], axis=1)
    inputs, cut, spread = table["pump"][:, None], 3 * len(table) // 4, np.ptp(outputs, axis=0)
    settings = {
        "output_lags": 2,
        "every": 8,
        "noise_bound": 0.01 * spread,
    }
    runs, held_out = (
        rc.Trajectories.from_recordings([(outputs[part], inputs[part][:-1])], 3, **settings)
        for part in (slice(cut), slice(cut, None))
    )
    named = {"prior": "affine", "arguments": "measured", "kernel": "squared_exponential", "per_dimension": True}
    predictor = rc.MultiStepPredictor.select(runs, **named)
    assert not predictor.contradictions(held_out).any()
    tube = predictor.boxes_of(held_out)
    shares = ((tube.upper - tube.lower) / 2.0 / spread).mean(axis=0)
    assert (shares[0] < 0.15).all()
    assert (shares[2] < 0.20).all()
