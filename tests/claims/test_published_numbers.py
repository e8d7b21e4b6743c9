"""Numbers published by the paper's authors; they live beside the project, not in it."""

import json

import numpy as np
import pytest
from problems import henon, henon_envelope, reference_file

import rkhs_control as rc
from rkhs_control.scenarios.material import Source, Work, gather
from rkhs_control.scenarios.schema import load_scenario

pytestmark = pytest.mark.reference

FILES = ["grid", "random", "slice_grid"]


@pytest.mark.parametrize("name", FILES)
def test_nugget_reproduces_the_published_arrays(name):
    arrays = henon(name)
    band = henon_envelope(arrays, nugget=float(arrays["nugget"])).bounds(arrays["queries"])
    assert np.abs(band.upper - arrays["upper"]).max() < 1e-3
    assert np.abs(band.lower - arrays["lower"]).max() < 1e-3


@pytest.mark.parametrize("name", FILES)
def test_without_nugget_the_band_lies_inside_and_holds_the_truth(name):
    arrays = henon(name)
    band = henon_envelope(arrays).bounds(arrays["queries"])
    assert (band.upper <= arrays["upper"]).all()
    assert (band.lower >= arrays["lower"]).all()
    assert (band.lower <= arrays["truth"]).all()
    assert (arrays["truth"] <= band.upper).all()
    assert band.relative_gap.max() < 1e-6
    if name == "grid":
        assert np.mean(band.upper - arrays["truth"]) < 2.84


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("formulation", ["primal", "dual"])
@pytest.mark.filterwarnings("ignore:CLARABEL ended")
def test_conic_programmes_agree_where_they_end_optimal(name, formulation):
    arrays = henon(name)
    queries = arrays["queries"][::40]
    optimal = henon_envelope(arrays).bounds(queries)
    conic = henon_envelope(arrays, rc.ConicEnvelope, formulation=formulation).bounds(queries)
    ended = np.isfinite(conic.upper) & np.isfinite(conic.lower)
    assert ended.sum() >= len(queries) // 2
    np.testing.assert_allclose(conic.upper[ended], optimal.upper[ended], rtol=1e-5)
    np.testing.assert_allclose(conic.lower[ended], optimal.lower[ended], rtol=1e-5)


def test_closed_form_reproduces_the_published_slice():
    arrays = henon("slice_grid")
    data = rc.Observations(arrays["X"], arrays["y"], 1.0)
    nugget = float(arrays["nugget"])
    ridge = rc.kernel_ridge(data, rc.SquaredExponential(5.0), 100 * 1e-2 + nugget)
    band = henon_envelope(arrays, rc.ClosedFormEnvelope, nugget=nugget, model=ridge).bounds(arrays["queries"])
    assert np.abs(band.upper - arrays["closed_form_upper"]).max() < 1e-6
    assert np.abs(band.lower - arrays["closed_form_lower"]).max() < 1e-6


def test_alternating_is_sound_after_one_turn_and_within_a_percent_after_ten():
    arrays = henon("grid")
    optimal = henon_envelope(arrays).bounds(arrays["queries"])
    for turns in (1, 10):
        band = henon_envelope(arrays, rc.AlternatingEnvelope, iterations=turns).bounds(arrays["queries"])
        assert (band.upper >= arrays["truth"]).all()
        assert (band.lower <= arrays["truth"]).all()
        assert (band.width >= optimal.width - 2 * optimal.gap).all()
    assert (band.width <= 1.01 * optimal.width).all()


def test_sensitivities_are_three_times_narrower_than_the_crude_bound():
    arrays = henon("grid")
    envelope = henon_envelope(arrays)
    band = envelope.derivative_bounds(arrays["queries"])
    crude = 2 * envelope.radius * np.sqrt(envelope.kernel.derivative_variance(2))
    assert np.median(crude / band.width) >= 3
    z = arrays["queries"]
    gradient = np.stack([-1.6 * z[:, 0], 1 + 6.4 * np.cos(0.8 * z[:, 1])], axis=1)
    assert (band.lower <= gradient).all()
    assert (gradient <= band.upper).all()


def test_cstr_plan_leads_where_the_published_one_did():
    """The controller of the scenario, on exploration alone, and the true trajectory that its plan leads to."""
    published = json.loads(reference_file("cstr_published_figure.json").read_text())
    scenario, folder = load_scenario("cstr", {"plant.runs": [2, 2], "predictor.compare_closed_form": False})
    material = gather(scenario, Source.of(scenario, folder), Work(scenario.seed))
    start = np.array(published["initial_state"])
    states = material.plant.simulate(start, material.control.solve(start).inputs)
    expected = np.stack([published["truth"][name] for name in material.plant.state_names], axis=1)
    assert np.abs(states - expected).max() < 0.03
