import pytest

from rkhs_control.scenarios.example import write_example


@pytest.fixture
def mine(tmp_path):
    """An example folder to spoil."""
    write_example(tmp_path / "mine")
    return tmp_path / "mine"
