"""Run a study with progress bars, print its findings and save them, for `run` and `certify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ..restart import Parts, restartable
from ..scenarios.material import Work
from ..scenarios.paper.result import PaperResult
from ..scenarios.results import ResultFolder, write_results
from ..scenarios.run import StudyResult
from . import tables as console

EXIT_CODES = {"CERTIFIED": 0, "UNDECIDED": 2, "REFUTED": 3}


@contextmanager
def kept_parts(folder: Path, fresh: bool, screen: Console) -> Iterator[Parts]:
    """Keep finished parts in the folder until all the work is done, and say so if there were any.

    No folder is left that was created for them alone.
    """
    began = None
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        with restartable(folder, fresh=fresh) as began:
            yield began
    except (ContradictoryDataError, FalsifiedNormBoundError, InputError):
        if began is not None and not began.earlier:
            began.remove()  # work that was refused would be again
        raise
    except BaseException:
        if began is not None and (began.n_kept or began.n_taken):
            text = f"finished parts are kept in {began.folder}: the same command resumes there, --fresh starts over"
            Console(stderr=True).print(escape(text), highlight=False, soft_wrap=True)
        raise
    finally:
        if began is not None:
            for remark in began.remarks():
                screen.print(f"[yellow]{escape(remark)}[/yellow]", highlight=False, soft_wrap=True)
        with suppress(OSError):  # they are not empty
            for each in missing:
                each.rmdir()


def require_writable(file: Path | None) -> None:
    """Refuse a file, before the work, that could not be written after it."""
    if file is None:
        return
    if not file.resolve().parent.is_dir():
        raise InputError(f"the folder of {file} does not exist")
    is_new = not file.exists()
    try:
        file.open("a").close()
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None
    if is_new:
        file.unlink()


def show_study(
    study: Callable[[Work], StudyResult], seed: int, jobs: int, results: ResultFolder, *, fresh: bool = False
) -> int:
    """Run a study with progress bars, print its findings, save them, and return the exit code."""
    screen, folder = Console(), results.folder
    with kept_parts(folder, fresh, screen), console.progress_bars(screen) as announce:
        work = Work(seed, jobs, announce)
        result = study(work)
        with work.stage("figures and files") as progress:
            write_results(result, folder)
            progress(1, 1)
    for outcome in result.outcomes:
        for listing in outcome.listings():
            screen.print(console.listing_table(listing))
    for remark in console.study_remarks(result):
        screen.print(remark, highlight=False, soft_wrap=True)
    _claim(results, screen)
    screen.print(
        f"{sum(work.timings.values()):.0f} s; all results are in {folder}: start with {folder / 'report.html'}",
        soft_wrap=True,
    )
    verdict = result.worst_verdict
    return 1 if result.is_contradicted else EXIT_CODES["CERTIFIED" if verdict is None else verdict.name]


def _claim(results: ResultFolder, screen: Console) -> None:
    """Record which scenario these results belong to, and say so if they replaced another's."""
    if results.other_owner:
        replaced = escape(
            f"{results.folder} had results of {results.other_owner}; they were replaced by those of this run"
        )
        screen.print(f"[yellow]{replaced}[/yellow]", highlight=False, soft_wrap=True)
    results.claim()


def show_paper(
    study: Callable[[Work], PaperResult], seed: int, jobs: int, results: ResultFolder, *, fresh: bool = False
) -> int:
    """Run one of the paper's experiments, print its numbers beside ours, save them; 1 if any differs unexplained."""
    screen = Console()
    with kept_parts(results.folder, fresh, screen), console.progress_bars(screen) as announce:
        work = Work(seed, jobs, announce)
        result = study(work)
        result.write(results.folder)
    screen.print(console.paper_table(result))
    for remark in result.remarks:
        screen.print(remark, highlight=False, soft_wrap=True)
    _claim(results, screen)
    screen.print(f"{sum(work.timings.values()):.0f} s; numbers and figures are in {results.folder}")
    return 0 if result.agrees else 1
