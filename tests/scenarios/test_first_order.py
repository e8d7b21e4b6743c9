"""Boxes as they were before histories were narrowed: by the recipe, beside the others, and never in their way."""

from dataclasses import replace

import numpy as np
from logs import SCENARIO, simulated, write_log

import rkhs_control as rc
from rkhs_control.assumptions.intervals import displacement, step_observations
from rkhs_control.assumptions.nominal import Settings, nominal
from rkhs_control.scenarios import first_order
from rkhs_control.scenarios.first_order import first_order_widths
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.run import run_study
from rkhs_control.scenarios.schema import load_scenario
from rkhs_control.scenarios.studies.recordings import RecordingsOutcome


def windows(n, seed):
    shape = {"output_lags": 2, "input_lags": 1, "every": 4}
    recording = simulated(n, np.random.default_rng(seed))
    return rc.Trajectories.from_recordings([recording], 2, noise_bound=0.05, disturbance_bound=0.01, **shape)


def outcome(folder, changes):
    write_log(folder / "log.csv", [simulated(600, np.random.default_rng(4))])
    (folder / "block.toml").write_text(SCENARIO)
    said = {"data.horizon": 2, "predictor.arguments": "measured", "predictor.kernel": "squared_exponential", **changes}
    scenario, base = load_scenario(str(folder / "block.toml"), said)
    return run_study(scenario, base, Work(0)).find(RecordingsOutcome)


def test_first_order_boxes_are_those_of_a_predictor_without_rounds():
    """The norm is the least that needs no more than itself: it widens the intervals that it has to fit."""
    runs, held = windows(320, 1), windows(120, 2)
    apart = replace(runs, origins=None)
    models = [nominal(apart, n, 0, None, Settings()) for n in (1, 2)]
    norms = [first_order._least_norm(apart, n, 0, model) for n, model in enumerate(models, start=1)]
    for n, (norm, (kernel, *_)) in enumerate(zip(norms, models, strict=True), start=1):
        by_norm = displacement(kernel, 1.0, runs.initial_state_noise, n)
        for factor, fits in ((1.001, True), (0.99, False)):
            given = step_observations(apart, n, 0, 0.06 + factor * norm * by_norm)
            assert (rc.least_norm_estimate(given, kernel).value <= factor * norm) == fits
    kernels = [model.kernel for model in models]
    predictor = rc.MultiStepPredictor(runs, kernels, [3.0 * norm for norm in norms], rounds=0)
    tube = predictor.boxes(held.histories, held.inputs, initial_state_noise=0.0)
    wanted = (tube.upper - tube.lower).mean(axis=0) / 2.0 + predictor.displacements(held.initial_state_noise, 2)
    (found,) = first_order_widths(runs, held, [1, 2])
    np.testing.assert_allclose([width.half_width for width in found], wanted[:, 0], rtol=1e-6)
    assert all(not width.reason for width in found)
    corners = predictor.boxes_of(held)
    assert (wanted > (corners.upper - corners.lower).mean(axis=0) / 2.0).all()


def test_no_norm_fits_what_equal_and_exact_histories_contradict():
    outputs, inputs = np.zeros((41, 1)), np.zeros((40, 1))
    inputs[::3], outputs[20] = 1.0, 5.0
    runs = rc.Trajectories.from_recordings([(outputs, inputs)], 1, noise_bound=0.1, initial_state_noise=0.0)
    ((width,),) = first_order_widths(runs, runs, [1])
    assert np.isnan(width.half_width)
    assert width.reason.startswith("x_0 at step 1: no norm up to ")


def test_first_order_boxes_stand_beside_ours_and_change_nothing(tmp_path):
    alone, compared = (outcome(tmp_path, {"recordings.compare_first_order": asked}) for asked in (False, True))
    for before, after in zip(alone.widths[0], compared.widths[0], strict=True):
        assert replace(after, first_order=None) == before
        assert after.row()[:-2] == before.row()
        told = after.summary()
        assert told["narrower_by"] == told["first_order"] / told["half_width"] > 1.0
        assert told["first_order_share_of_range"] == told["first_order"] / told["range"]
        assert "first_order" not in before.summary()
        assert after.row()[-2:] == (f"{told['first_order_share_of_range']:.1%}", f"{told['narrower_by']:.1f}")
    for found, is_told in ((alone, False), (compared, True)):
        (listing,), (section,) = found.listings(), found.sections()
        table = section.blocks[1]
        for header, caption in ((listing.header, listing.caption), (table.header, table.caption)):
            assert ("narrower\nby" in header) == ("without narrowed histories" in caption) == is_told
        assert {len(row) for row in table.rows} == {len(listing.header)} == {10 if is_told else 8}
        assert not list(found.remarks())


def test_first_order_boxes_that_cannot_be_made_are_dashes_and_a_remark(tmp_path, monkeypatch):
    def refuse(*_):
        raise rc.SolverError("no norm fits")

    monkeypatch.setattr(first_order, "_least_norm", refuse)
    found = outcome(tmp_path, {"recordings.compare_first_order": True})
    assert [width.row()[-2:] for width in found.widths[0]] == [("–", "–")] * 2
    assert [width.summary()["narrower_by"] for width in found.widths[0]] == [None, None]
    (remark,) = found.remarks()
    assert remark.endswith("could not be made: T at step 1: no norm fits (1 more of the kind)")
