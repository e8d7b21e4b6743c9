"""Work in parallel, with progress: the one place that asks joblib for processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""`progress(done, total)`, called as the work goes on."""

_A_MOMENT = 2.0  # seconds


def in_parallel(
    function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], n_jobs: int | None = None
) -> Iterator[Result]:
    """`function(*task)` for every task, in their order, as they get done; `n_jobs` as joblib has it."""
    from joblib import Parallel, delayed, effective_n_jobs

    if effective_n_jobs(n_jobs) == 1:
        return (function(*task) for task in tasks)
    results: Iterator[Result] = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(function)(*task) for task in tasks
    )
    return results


def collect(results: Iterable[Result], total: int, progress: Progress | None = None) -> list[Result]:
    """All results of `in_parallel` in a list, with a word to `progress` after each."""
    found: list[Result] = []
    for result in results:
        found.append(result)
        if progress is not None:
            progress(len(found), total)
    return found


@contextmanager
def shown_progress(given: Progress | None, title: str) -> Iterator[Progress | None]:
    """What is given or, for people at a terminal, a bar that appears once the work takes more than a moment."""
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


def end_idle_workers() -> None:
    """Let processes that wait for work go, so that new ones start with the search path as it is now."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
