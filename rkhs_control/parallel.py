"""Parallel work with progress: the only place that asks joblib for processes or a cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from .restart import active_parts, kept_results, own_code, own_modules, package_code, require_code

Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""`progress(done, total)`, called as the work proceeds."""

_A_MOMENT = 2.0  # seconds


def in_parallel(
    function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], n_jobs: int | None = None
) -> Iterator[Result]:
    """`function(*task)` for every task, in order, as they finish; `n_jobs` as in joblib.

    On a cluster (joblib's Dask backend), all workers share them, unless `n_jobs` is 1. In a `restartable` block,
    finished tasks are kept and not repeated.
    """
    parts = active_parts()
    if parts is None:
        return _shared_out(function, tasks, n_jobs)
    return kept_results(parts, function, list(tasks), partial(_shared_out, n_jobs=n_jobs, in_order=False))


def _shared_out(
    function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], n_jobs: int | None, *, in_order: bool = True
) -> Iterator[Result]:
    from joblib import Parallel, delayed

    client = _cluster_client(n_jobs)
    if client is not None:
        from .cluster import spread

        check = partial(require_code, package_code(), own_code())
        return spread(client, function, tasks, check=check, by_value=own_modules(), in_order=in_order)
    if n_workers(n_jobs) == 1:
        return (function(*task) for task in tasks)
    results: Iterator[Result] = Parallel(n_jobs=n_jobs, return_as="generator" if in_order else "generator_unordered")(
        delayed(function)(*task) for task in tasks
    )
    return results


def n_workers(n_jobs: int | None = None) -> int:
    """How many processes share the work."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


def collect(results: Iterable[Result], total: int, progress: Progress | None = None) -> list[Result]:
    """All results of `in_parallel` in a list, calling `progress` after each."""
    found: list[Result] = []
    for result in results:
        found.append(result)
        if progress is not None:
            progress(len(found), total)
    return found


@contextmanager
def shown_progress(given: Progress | None, title: str) -> Iterator[Progress | None]:
    """The given callback or, at a terminal, a bar that appears once the work takes more than a moment."""
    if given is not None or not sys.stderr.isatty():
        yield given
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    began = time.monotonic()
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, visible=False)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=time.monotonic() > began + _A_MOMENT)

        yield tell


def share_search_path(folders: list[str], *, are_new: bool) -> None:
    """Let workers search these folders for modules; the folders are at the end of the search path.

    Idle processes are ended, so that new ones start with the current path; workers of a cluster are told.
    """
    client = _cluster_client()
    if client is not None:
        from .cluster import add_search_path

        add_search_path(client, folders)
    elif are_new:
        end_workers()


def end_workers() -> None:
    """Let processes go that wait for work; they stay for minutes, and whoever started them cannot end before them."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def _cluster_client(n_jobs: int | None = None) -> Any | None:
    """The Dask client that joblib is set to use, if there is one and more than one job may run."""
    from joblib.parallel import get_active_backend

    backend, configured = get_active_backend()
    is_dask = type(backend).__module__ == "joblib._dask"
    return backend.client if is_dask and (configured if n_jobs is None else n_jobs) != 1 else None
