import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--all-cases",
        action="store_true",
        help="all random cases of containment, ties, tampering, loops and campaign, not only the first twentieth",
    )


def pytest_generate_tests(metafunc):
    """`chunk` numbers the batches into which random cases are split; the flag runs twenty times as many."""
    if "chunk" in metafunc.fixturenames:
        n_chunks = 100 if metafunc.config.getoption("--all-cases") else 5
        metafunc.parametrize("chunk", range(n_chunks))


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(20)
