"""Work on a Dask cluster: the same results to the bit, data sent once, and workers that may be killed."""

import os
import re
import signal
import socket
import sys
import time
from importlib import import_module

import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster
from rich.console import Console

import rkhs_control as rc
from rkhs_control import cluster, restart
from rkhs_control.cli.show import kept_parts
from rkhs_control.errors import InputError, RkhsControlError
from rkhs_control.parallel import collect, in_parallel, share_search_path

SCENARIO = """
title = "A heater"
[data]
file = "runs.csv"
states = ["T"]
inputs = ["u"]
noise_bound = 0.1
[limits]
states = { T = [0.0, 60.0] }
inputs = { u = [0.0, 1.0] }
[predictor]
lengthscales = [20.0]
regularisations = [1e-3]
compare_closed_form = false
"""


@pytest.fixture(scope="module")
def client():
    """Of two processes, and joblib's to use."""
    settings = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(n_workers=2, **settings) as local, Client(local) as opened:
        yield opened


@pytest.fixture
def dask(client):
    with joblib.parallel_config(backend="dask"):
        yield client


class Counted:
    """Data that know how often they were pickled."""

    def __init__(self, values):
        self.values = values
        self.n_pickled = 0

    def __getstate__(self):
        self.n_pickled += 1
        return {"values": self.values}


def scaled_sum(data, factor):
    return float(np.sin(data.values * factor).sum()), os.getpid()


def scaled_sum_or_death(data, factor, dying):
    """The first to come here with its file missing takes its process with it."""
    if dying is not None and not dying.exists():
        dying.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return scaled_sum(data, factor)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def jobs_within(wanted):
    return joblib.effective_n_jobs(wanted), list(in_parallel(abs, [(-1,), (-2,)], wanted))


def refuse(number):
    raise InputError(f"not {number}")


def test_results_are_the_serial_ones_and_data_travel_once(dask, rng, monkeypatch):
    sent, submit = [], dask.submit
    monkeypatch.setattr(dask, "submit", lambda task, *more, **how: (sent.append(task), submit(task, *more, **how))[1])
    data, told = Counted(rng.normal(size=100_000)), []
    tasks = [(data, factor) for factor in range(12)]
    found = collect(in_parallel(scaled_sum, tasks), len(tasks), lambda *numbers: told.append(numbers))
    assert [value for value, _ in found] == [scaled_sum(*task)[0] for task in tasks]
    assert os.getpid() not in {process for _, process in found}
    assert told == [(done, 12) for done in range(1, 13)]
    assert data.n_pickled == 1
    again = list(in_parallel(scaled_sum, tasks[:3]))
    assert [value for value, _ in again] == [value for value, _ in found[:3]]
    assert sent.count(cluster._as_it_is) == 1, "the array is on the cluster already"
    data.values[0] += 1.0
    changed = next(in_parallel(scaled_sum, tasks[1:2]))
    assert changed[0] == scaled_sum(*tasks[1])[0] != found[1][0], "what has changed is sent anew"


def test_killed_workers_cost_time_and_nothing_else(dask, rng, tmp_path):
    """Two are killed in the middle of a task: nobody who had the data is left."""
    data = Counted(rng.normal(size=100_000))
    dying = {3: tmp_path / "first", 4: tmp_path / "second"}
    tasks = [(data, factor, dying.get(factor)) for factor in range(8)]
    found = [value for value, _ in in_parallel(scaled_sum_or_death, tasks)]
    assert all(file.exists() for file in dying.values())
    assert found == [scaled_sum(data, factor)[0] for factor in range(8)]
    assert data.n_pickled == 1


def test_a_task_that_kills_all_its_workers_is_given_up_in_one_line(dask, monkeypatch):
    monkeypatch.setattr(dask.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(RkhsControlError, match="enough memory") as caught:
        list(in_parallel(die, [()]))
    assert "\n" not in str(caught.value)


def test_errors_of_tasks_are_those_of_serial_work(dask):
    with pytest.raises(InputError, match="not 1"):
        list(in_parallel(refuse, [(1,), (2,)]))


def test_work_within_a_task_is_done_in_turn(dask):
    assert list(in_parallel(jobs_within, [(2,), (None,)])) == [(1, [1, 2])] * 2


def test_one_job_stays_here(dask):
    assert next(in_parallel(scaled_sum, [(Counted(np.ones(3)), 1)], n_jobs=1))[1] == os.getpid()


BESIDE = """
from functools import lru_cache
factor = {0}
def times(x):
    return factor * x
@lru_cache
def imported_by_name(x):
    return factor * x
"""


def test_workers_use_the_module_beside_a_scenario_as_it_is_now(dask, tmp_path, monkeypatch):
    def loaded(folder, factor):
        (folder / "beside_the_scenario.py").write_text(BESIDE.format(factor))
        sys.modules.pop("beside_the_scenario", None)
        return import_module("beside_the_scenario")

    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    share_search_path([str(tmp_path)], are_new=True)
    for factor in (2, 300):
        module = loaded(tmp_path, factor)
        for function in (module.times, module.imported_by_name):
            assert list(in_parallel(function, [(1,), (2,)])) == [factor, 2 * factor]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere"), *sys.path])
    module = loaded(tmp_path / "elsewhere", 40000)
    assert list(in_parallel(module.times, [(1,), (2,)])) == [40000, 80000]
    with pytest.raises(RkhsControlError, match=r"a worker of the cluster has beside_the_scenario .*, but this is"):
        list(in_parallel(module.imported_by_name, [(1,), (2,)]))
    del sys.modules["beside_the_scenario"]


def test_workers_with_other_code_end_the_run_in_one_line_and_keep_its_parts(dask, tmp_path, monkeypatch):
    monkeypatch.setattr(restart, "_WORTH_KEEPING", 0.0)
    monkeypatch.setattr("rkhs_control.parallel.package_code", lambda: restart.package_code() | {"numpy": "0.1"})
    refused = pytest.raises(RkhsControlError, match=r"^a worker of the cluster has numpy .*, but this is 0\.1: .*$")
    with refused as error, kept_parts(tmp_path / "out", False, Console(quiet=True)):
        assert list(in_parallel(abs, [(-1,)], 1)) == [1]
        list(in_parallel(abs, [(-2,)]))
    assert not isinstance(error.value, InputError), "what was refused would be forgotten"
    assert len(list((tmp_path / "out" / ".parts").iterdir())) == 1


def seen_by_the_first(number, folder, n_parts):
    """The first task waits until the others are kept."""
    ends = time.monotonic() + 20
    while number == 0 and time.monotonic() < ends and len(list(folder.glob("*"))) < n_parts:
        time.sleep(0.01)
    return len(list(folder.glob("*"))) if number == 0 else -number


@pytest.mark.parametrize("n_jobs", [2, None], ids=["processes", "cluster"])
def test_parts_are_kept_while_the_first_still_runs(request, tmp_path, monkeypatch, n_jobs):
    monkeypatch.setattr(restart, "_WORTH_KEEPING", 0.0)
    if n_jobs is None:
        request.getfixturevalue("dask")
    with rc.restartable(tmp_path):
        tasks = [(k, tmp_path / ".parts", 5) for k in range(6)]
        assert list(in_parallel(seen_by_the_first, tasks, n_jobs)) == [5, -1, -2, -3, -4, -5]


def test_command_finds_the_same_on_a_cluster(run, client, tmp_path, rng, monkeypatch):
    """Without figures, to be quick."""

    def proofs_alone(result, folder):
        for outcome in result.outcomes:
            outcome.write(folder)

    monkeypatch.setattr("rkhs_control.scenarios.results._write", proofs_alone)
    rows = ["trajectory,step,T,u"]
    for k, (start, heat) in enumerate(rng.uniform([10.0, 0.0], [50.0, 1.0], (12, 2))):
        rows += [f"{k},0,{start},{heat}", f"{k},1,{0.94 * start + 8.0 * heat},"]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    (tmp_path / "plan.csv").write_text("step,T,u\n0,30.0,0.5\n")
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    here, there = (
        run("certify", "scenario.toml", "--plan", "plan.csv", "--out", out, *more)
        for out, *more in (("here", "--jobs", "1"), ("there", "--cluster", client.scheduler.address))
    )
    seconds = r"\d+ s; all results are in .*"
    assert here[0] == there[0] == 0, there[1]
    assert re.sub(seconds, "", here[1]) == re.sub(seconds, "", there[1])
    kept = [(tmp_path / out / "certificates" / "plan_1.json").read_bytes() for out in ("here", "there")]
    assert kept[0] == kept[1]


def test_local_cluster_has_as_many_processes_as_it_is_told_and_leaves_none(capfd):
    with cluster.on_cluster("local:2"):
        assert joblib.effective_n_jobs(None) == 2
        _, process = next(in_parallel(scaled_sum, [(Counted(np.ones(3)), 1)]))
        assert process != os.getpid()
    assert joblib.effective_n_jobs(None) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("tcp://127.0.0.1:9", "no scheduler can be reached there"),
        ("tls://127.0.0.1:9", "no scheduler can be reached there"),
        ("tcp://127.0.0.1:{silent}", "no scheduler can be reached there (no answer)"),
        ("local:none", "local: is followed by a number of processes"),
        ("somewhere", "the address of a scheduler, tcp://host:8786, is expected"),
    ],
)
def test_cluster_that_cannot_be_reached_is_one_line(run, monkeypatch, where, message):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = where.format(silent=silent.getsockname()[1])
        code, text = run("bench", "soundness", "--cluster", where)
    assert code == 1
    assert text.startswith(f"error: cluster '{where}': ")
    assert message in text
    assert text.count("\n") == 1


def test_cluster_and_jobs_are_not_given_both(run):
    assert run("bench", "soundness", "--cluster", "local:2", "--jobs", "2")[0] == 1


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'rkhs_control\[dask\]'"), cluster.on_cluster("local:2"):
        pass
