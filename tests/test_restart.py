"""Work that goes on where it stopped: what is finished is not done again, and nothing else is taken for finished."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module, reload
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
from rich.console import Console

import rkhs_control as rc
from rkhs_control import restart
from rkhs_control.cli.show import kept_parts
from rkhs_control.errors import InputError
from rkhs_control.parallel import collect, in_parallel

STUDY = """
import os, signal, sys
from pathlib import Path
from rkhs_control import restart
from rkhs_control.cli import app
from rkhs_control.control import certainty_equivalent
from rkhs_control.scenarios import results

def solved(problem, starts, right=certainty_equivalent._solve_each):
    with open("calls", "a") as calls:
        print(starts.tolist(), file=calls)
    if "kill" in sys.argv and len(Path("calls").read_text().splitlines()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return right(problem, starts)

def proofs_alone(result, folder):
    for outcome in result.outcomes:
        outcome.write(folder)

restart._WORTH_KEEPING = 0.0
certainty_equivalent._solve_each = solved
results._write = proofs_alone
small = ("study.initial_states=[[2.64, 1.33]]", "plant.horizon=2", "plant.exploration_runs=12",
         "plant.runs=[8, 7]", "study.check=0", "study.region=[3, 3]",
         "predictor.compare_affine_prior=false", "predictor.compare_closed_form=false", "predictor.lengthscales=[20]")
app.main(["run", "cstr", "--jobs", "1", "--out", "kept", *(word for key in small for word in ("--set", key))])
"""


@pytest.fixture(autouse=True)
def keep_all(monkeypatch):
    """Parts of tests take no time."""
    monkeypatch.setattr(restart, "_WORTH_KEEPING", 0.0)


def files(folder):
    return sorted((folder / ".parts").glob("*"))


def square(x):
    return x * x


def some_of(n, function, tasks):
    for k, _ in enumerate(in_parallel(function, tasks), start=1):
        if k == n:
            raise KeyboardInterrupt


def stopped_after(n, folder, tasks, function=square):
    """Work that is interrupted once so many results are there."""
    with pytest.raises(KeyboardInterrupt), rc.restartable(folder):
        some_of(n, function, tasks)


def counted(monkeypatch):
    """Which tasks are done from now on."""
    done, right = [], restart._measured

    def measured(place, function, task):
        done.append(task)
        return right(place, function, task)

    monkeypatch.setattr(restart, "_measured", measured)
    return done


TASKS = [(k,) for k in range(6)]


def test_finished_parts_are_not_done_again_and_go_in_the_end(tmp_path, monkeypatch):
    stopped_after(4, tmp_path, TASKS)
    assert len(files(tmp_path)) == 4
    done, told = counted(monkeypatch), []
    with rc.restartable(tmp_path) as parts:
        found = collect(in_parallel(square, TASKS), 6, lambda *numbers: told.append(numbers))
    assert found == [square(*task) for task in TASKS]
    assert done == TASKS[4:]
    assert told == [(k, 6) for k in range(1, 7)]
    assert (parts.n_taken, parts.n_kept, parts.n_damaged) == (4, 2, 0)
    assert not list(tmp_path.iterdir())


def test_fresh_begins_again(tmp_path, monkeypatch):
    stopped_after(4, tmp_path, TASKS)
    done = counted(monkeypatch)
    with rc.restartable(tmp_path, fresh=True) as parts:
        list(in_parallel(square, TASKS))
    assert done == TASKS
    assert parts.n_taken == 0


def test_fresh_takes_no_part_that_cannot_be_removed(tmp_path, monkeypatch):
    stopped_after(4, tmp_path, TASKS)

    def refused(folder, ignore_errors=False):
        if not ignore_errors:
            raise PermissionError(f"Permission denied: {folder}")

    monkeypatch.setattr(restart.shutil, "rmtree", refused)
    with pytest.raises(PermissionError), rc.restartable(tmp_path, fresh=True):
        pass


@pytest.mark.parametrize("damage", ["cut", "one bit", "empty", "of another part", "not written to its end"])
def test_damaged_parts_are_done_again_and_it_is_said(tmp_path, monkeypatch, damage):
    stopped_after(4, tmp_path, TASKS)
    first, second, *_ = files(tmp_path)
    content = first.read_bytes()
    if damage == "cut":
        first.write_bytes(content[:-1])
    elif damage == "one bit":
        first.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif damage == "empty":
        first.write_bytes(b"")
    elif damage == "of another part":
        first.write_bytes(second.read_bytes())
    else:
        first.rename(first.with_name(f"{first.name}.123"))
    done = counted(monkeypatch)
    with rc.restartable(tmp_path) as parts:
        assert list(in_parallel(square, TASKS)) == [square(*task) for task in TASKS]
    assert len(done) == 3
    is_left_over = damage.startswith("not")
    assert parts.n_damaged == (0 if is_left_over else 1)
    assert any("could not be read" in remark for remark in parts.remarks()) != is_left_over


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_parts_do_not_depend_on_how_many_workers_there_are(tmp_path, monkeypatch, n_jobs):
    stopped_after(6, tmp_path, TASKS)
    with rc.restartable(tmp_path) as parts:
        list(in_parallel(square, TASKS, n_jobs))
    assert parts.n_taken == 6


def test_a_task_that_is_there_twice_does_not_move_the_others(tmp_path):
    with rc.restartable(tmp_path):
        assert list(in_parallel(square, [(1,), (1,), (2,), (1,), (3,)])) == [1, 1, 4, 1, 9]


def test_errors_of_tasks_are_raised_and_what_was_done_before_is_kept(tmp_path):
    with pytest.raises(ZeroDivisionError), rc.restartable(tmp_path):
        list(in_parallel(divmod, [(1, 2), (1, 0)]))
    assert len(files(tmp_path)) == 1


def inner_sum(n):
    return sum(in_parallel(square, [(k,) for k in range(n)]))


def test_there_are_no_parts_of_parts(tmp_path):
    stopped_after(3, tmp_path, TASKS, inner_sum)
    assert len(files(tmp_path)) == 3


def test_what_takes_no_time_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(restart, "_WORTH_KEEPING", 10.0)
    stopped_after(3, tmp_path, TASKS)
    assert not files(tmp_path)


def test_a_full_disk_ends_nothing(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(restart.os, "fsync", full)
    with rc.restartable(tmp_path) as parts:
        assert list(in_parallel(square, TASKS)) == [square(*task) for task in TASKS]
    assert list(parts.remarks()) == ["finished parts could not be kept: No space left on device"]
    assert not files(tmp_path)


# The command


@pytest.mark.parametrize("is_refused", [True, False])
def test_no_folder_is_left_that_was_there_for_parts_alone_and_no_other_is_removed(tmp_path, is_refused):
    (tmp_path / "theirs" / "empty").mkdir(parents=True)
    for out in (tmp_path / "results" / "new", tmp_path / "theirs" / "empty"):
        with suppress(InputError), kept_parts(out, False, Console(quiet=True)):
            list(in_parallel(square, TASKS))
            if is_refused:
                raise InputError("refused")
    assert [file.name for file in tmp_path.rglob("*")] == ["theirs", "empty"]


def test_numbers_that_could_not_be_written_are_refused_before_the_work(run, tmp_path):
    for file, why in (("/proc/x.json", "cannot be written"), ("missing/x.json", "does not exist")):
        code, text = run("bench", "soundness", "--cases", "1", "--jobs", "1", "--json", file)
        assert code == 1
        assert why in text
        assert text.count("\n") == 1


# Names


@dataclass(frozen=True, eq=False)
class Thing:
    values: np.ndarray
    more: object = None

    @cached_property
    def total(self):
        return self.values.sum()


def name_of(*task, function=square):
    (name,) = restart._names(function, [task])
    return name


def enclosing(bound):
    return lambda: bound


def things():
    """No two of these are the same."""
    values = np.arange(4.0)
    yield from (0, 0.0, -0.0, False, None, "", "0", b"", (), [], {}, set(), {1, 2}, {1, 3}, (0,), ((0,),), (0, 0))
    yield from (values, values.astype(np.float32), values.reshape(2, 2), values + 1e-300, values[:3], np.float64(0.0))
    yield from ({"a": 1}, {"a": 1.0}, {"b": 1}, square, inner_sum, partial(square, 1), partial(square, 2), Thing)
    yield from (Thing(values), Thing(values, 1), Thing(values + 1.0), Thing(values).values.sum, lambda: 1, lambda: 2)
    yield from (np.random.default_rng(1), np.random.default_rng(2), rc.Box([0.0], [1.0]), rc.Box([0.0], [2.0]))
    yield from (rc.SquaredExponential(1.0), rc.SquaredExponential(2.0), rc.Matern52(1.0), 2.0 * rc.Matern52(1.0))
    yield from (rc.Verdict.CERTIFIED, rc.Verdict.REFUTED, rc.OptimalEnvelope, Path("a"), Path("b"), "ab", ("a", "b"))
    yield from (enclosing(1.0), enclosing(2.0))


def test_names_differ_where_anything_does():
    names = [name_of(thing) for thing in things()]
    assert all(names)
    assert len(set(names)) == len(names)
    assert name_of(1) != name_of(1, function=abs)
    advanced = np.random.default_rng(1)
    advanced.normal()
    assert name_of(advanced) != name_of(np.random.default_rng(1))


def test_names_are_those_of_copies_and_of_what_has_computed_something(predictor):
    values = np.arange(3.0)
    thing, other = Thing(values), Thing(values.copy())
    assert other.total == 3.0
    assert name_of(thing, thing) == name_of(thing, other)
    copy = replace(predictor)
    before = name_of(copy)
    copy.boxes([2.3, 0.9], np.full((3, 1), 14.0))
    assert name_of(copy) == before == name_of(replace(predictor)) != name_of(predictor.scaled(norm=1.1))


def test_names_are_the_same_in_another_process(tmp_path):
    """Where texts have other hashes."""
    script = tmp_path / "script.py"
    script.write_text(
        "import rkhs_control as rc, numpy as np\nfrom rkhs_control import restart\n"
        "task = ({'b', 'a', 'c'}, {'x': np.ones(3)}, rc.Matern52(1.0), np.random.default_rng(1), rc.Verdict.REFUTED)\n"
        "print(*restart._names(abs, [task]))\n"
    )
    names = {
        subprocess.check_output([sys.executable, script], env={**os.environ, "PYTHONHASHSEED": seed}) for seed in "12"
    }
    assert len(names) == 1
    assert names != {b"\n"}


def test_what_cannot_be_told_by_its_content_is_done_and_not_kept(tmp_path):
    cyclic = []
    cyclic.append(cyclic)
    assert name_of(cyclic) == name_of(sys) == name_of(Lock()) == ""
    stopped_after(1, tmp_path, [(cyclic,), (sys,)], id)
    assert not files(tmp_path)


def test_the_source_of_a_plant_of_ones_own_is_part_of_its_name(tmp_path, monkeypatch):
    """As it was when it was loaded, with that of the modules beside it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    plant, helper = tmp_path / "own_plant_of_restart.py", tmp_path / "own_helper_of_restart.py"
    helper.write_text("y = 1")
    plant.write_text("from own_helper_of_restart import y\nclass Plant:\n    x = 1\n")
    module = import_module(plant.stem)

    def name():
        return name_of(module.Plant())

    names = [name()]
    helper.write_text("y = 2")
    plant.write_text("class Plant:\n    x = 2\n")
    assert name() == names[0], "what runs is what was loaded"
    for edited in (plant.stem, helper.stem):
        reload(sys.modules[edited])
        names.append(name())
    assert len(set(names)) == 3
    del sys.modules[plant.stem], sys.modules[helper.stem]


# A whole study


def test_killed_study_goes_on_and_ends_the_same(tmp_path):
    (tmp_path / "study.py").write_text(STUDY)

    def study(*more):
        done = subprocess.run(
            [sys.executable, "study.py", *more], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        calls = (tmp_path / "calls").read_text().splitlines()
        (tmp_path / "calls").unlink()
        return done.returncode, re.sub(r"\d+ s; all results", "all results", done.stdout), calls, done.stderr

    def proofs():
        return {file.name: file.read_bytes() for file in (tmp_path / "kept" / "certificates").iterdir()}

    code, text, calls, said = study()
    assert code == 0, said
    whole = proofs()
    code, _, begun, _ = study("kill")
    assert (code, len(begun)) == (-signal.SIGKILL, 3)
    code, again, rest, _ = study()
    assert code == 0
    assert calls == begun[:2] + rest, "the third was killed"
    taken = re.search(r"(\d+) finished parts of an earlier run were reused", again)
    assert int(taken[1]) >= 2
    assert [line for line in again.splitlines() if "of an earlier run were reused" not in line] == text.splitlines()
    assert proofs() == whole
    assert not (tmp_path / "kept" / ".parts").exists()
