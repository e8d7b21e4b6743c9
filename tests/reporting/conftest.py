import numpy as np
import pytest
from plants import feedback_inputs
from reports import Reader, written

import rkhs_control as rc
from rkhs_control.scenarios.example import write_example
from rkhs_control.scenarios.material import Work
from rkhs_control.scenarios.results import write_results
from rkhs_control.scenarios.run import certify_file
from rkhs_control.scenarios.schema import load_scenario


@pytest.fixture(scope="module")
def certificates(predictor, plant):
    """One of each verdict, by name."""
    x0 = np.array([2.3, 0.9])
    inputs = feedback_inputs(plant, x0[None], 3)[0]
    tube = predictor.boxes(x0, inputs)
    low, high = tube.lower[2, 1], tube.upper[2, 1]
    limits = {"kept": 3.0, "open": (low + high) / 2.0, "broken": low - 0.01}
    return {
        name: rc.certify(predictor, x0, inputs, state_limits=rc.Box([0.5, 0.2], [4.0, top]))
        for name, top in limits.items()
    }


@pytest.fixture(scope="module")
def texts(certificates, tmp_path_factory):
    """What the report of each of them says."""
    folder = tmp_path_factory.mktemp("reports")
    return {name: Reader(written(folder, {name: certificate})) for name, certificate in certificates.items()}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The results of `rkhs-control certify` on the example."""
    folder = tmp_path_factory.mktemp("study")
    write_example(folder / "plant")
    scenario, base = load_scenario(str(folder / "plant" / "scenario.toml"))
    write_results(certify_file(scenario, base, folder / "plant" / "plan.csv", Work(0)), folder / "results")
    return folder / "results"
