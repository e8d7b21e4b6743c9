import os

import numpy as np
import pytest
from plants import LENGTHSCALES, feedback_inputs, quadratic, recorded, swings

import rkhs_control as rc
from rkhs_control.models.cstr import CSTR


def pytest_addoption(parser):
    parser.addoption(
        "--all-cases",
        action="store_true",
        help="all random cases of containment, ties, tampering, loops and campaign, not only the first 3 %%",
    )


def pytest_configure():
    """Processes that run tests inherit this: threads inside their linear algebra would only wait for each other."""
    for library in ("OPENBLAS", "MKL", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    """Files go to processes as wholes. Those with the longest tests come first, so that none is waited for."""
    items.sort(key=lambda item: item.path.name not in ("test_documentation.py", "test_package.py"))


def pytest_generate_tests(metafunc):
    """`chunk` numbers the batches into which random cases are split; the flag runs all hundred."""
    if "chunk" in metafunc.fixturenames:
        n_chunks = 100 if metafunc.config.getoption("--all-cases") else 3
        metafunc.parametrize("chunk", range(n_chunks))


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def plant():
    return CSTR()


@pytest.fixture(scope="session")
def predictor(plant):
    return rc.MultiStepPredictor.select(recorded(plant, np.random.default_rng(5)), LENGTHSCALES, safety_factor=3.0)


@pytest.fixture
def plan(plant):
    x0 = np.array([2.3, 0.9])
    return x0, feedback_inputs(plant, x0[None], 3)[0]


@pytest.fixture(scope="session")
def windows():
    """Of one long recording, every state of which was measured; and another one, with the truth, to test them with."""
    rng, noise = np.random.default_rng(5), 0.02
    (_, recorded_states, torques), (truth, measured, others) = (swings(rng, n_steps, noise) for n_steps in (100, 150))
    cut, test = (
        rc.Trajectories.from_recordings([recording], 2, noise_bound=noise)
        for recording in ((recorded_states, torques), (measured, others))
    )
    return cut, test, np.array([truth[first + 1 : first + 3] for _, first in test.origins])


@pytest.fixture(scope="session")
def exploring_predictor(plant):
    """From runs with inputs all over their range: only what was tried can be relied on."""
    rng = np.random.default_rng(11)
    x0 = rng.uniform([1.2, 0.55], [2.9, 1.8], (200, 2))
    inputs = rng.uniform(3.0, 25.0, (200, 3, 1))
    states = plant.simulate(x0, inputs)
    states[:, 1:] += rng.uniform(-0.02, 0.02, states[:, 1:].shape)
    runs = rc.Trajectories(states, inputs, 0.02, plant.state_names, plant.input_names)
    return rc.MultiStepPredictor.select(runs, [20.0, 40.0])


@pytest.fixture(scope="session")
def nominal(plant, exploring_predictor):
    return rc.CertaintyEquivalentOCP.from_predictor(
        exploring_predictor,
        regularisations=1e-2,
        cost=quadratic(plant),
        input_limits=plant.input_limits,
        state_limits=rc.Box([0.0, 0.0], [9.0, 9.0]),
    )


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """The command in an empty folder: its exit code, and what it printed."""
    from rkhs_control.cli import app as cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(list(arguments))
        out, err = capfd.readouterr()
        return stop.value.code, out + err

    return command
