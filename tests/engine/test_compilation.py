"""Compiled code that numba keeps on disk."""

import os

from rkhs_control.engine.compilation import forget_stale_code


def test_what_was_compiled_before_any_source_changed_is_forgotten(tmp_path):
    """A compiled function contains those of other files, which numba does not compare."""
    times = {"arithmetic/rounding.py": 20, "engine/queries.py": 5, "cli/app.py": 99}
    kept = {"engine/__pycache__/queries.new.nbi": 21, "cli/__pycache__/app.nbi": 1}
    stale = {"engine/__pycache__/queries.old.nbi": 19, "kernels/__pycache__/radial.nbi": 10}
    for name, time in {**times, **kept, **stale}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time, time))
    forget_stale_code(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.nbi")}
    assert left == set(kept)


def test_a_package_without_files_of_its_own_has_nothing_to_forget(tmp_path):
    forget_stale_code(tmp_path / "package.zip")
