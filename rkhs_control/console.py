"""What the command line shows: progress bars, tables, closing lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from .certifier import LARGEST_FACTOR

if TYPE_CHECKING:
    from .scenarios.closed_loop import LoopRun
    from .scenarios.study import StudyResult
    from .scenarios.tables import Cell

_REMARKS_UP_TO = 20  # plans that are spoken of one by one
_COLOURS = {"CERTIFIED": "green", "UNDECIDED": "yellow", "REFUTED": "red"}


@contextmanager
def progress_bars(console: Console) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Yields `announce(stage)`, which adds a bar and returns what to report `(done, total)` to.

    Where there is no terminal, a line a quarter of every stage.
    """
    if not console.is_terminal:
        yield lambda stage: _lines(console, stage)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:

        def announce(stage: str) -> Callable[[int, int], None]:
            task = progress.add_task(stage, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield announce


def _lines(console: Console, stage: str) -> Callable[[int, int], None]:
    quarters = [0]

    def report(done: int, total: int) -> None:
        if 4 * done // total > quarters[0]:
            quarters[0] = 4 * done // total
            console.print(f"{stage}: {done} of {total}", highlight=False)

    return report


def study_table(result: StudyResult) -> Table:
    """A row a plan and method."""
    volume = {1: "width", 2: "area"}.get(result.material.runs.n_states, "volume")
    table = Table(
        "plan",
        "method",
        "verdict",
        volume,
        "margin",
        "norm x",
        "noise x",
        "truth in",
        title=escape(result.scenario.title),
        caption=f"{volume}: of a box, on average; margin: the smallest to any limit; norm x, noise x: by which factor "
        "all those bounds may grow with the plan still certified",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    for plan in result.plans:
        for method, certificate in plan.certificates.items():
            inside, margins = plan.steps_inside(method), plan.margins.get(method, {})
            table.add_row(
                escape(plan.name) if method == next(iter(plan.certificates)) else "",
                method,
                _verdict(certificate.verdict.name),
                f"{certificate.tube.volumes.mean():.3g}",
                _signed(certificate.margin),
                _factor(margins.get("norm_margin")),
                _factor(margins.get("noise_margin")),
                "" if inside is None else f"{inside}/{len(certificate.tube.lower)}",
            )
        table.add_section()
    return table


def loops_table(loops: dict[str, list[LoopRun]]) -> Table:
    """Closed loops, a row a controller."""
    table = Table(
        "controller",
        "steps",
        "out",
        "broken",
        "cost",
        "cert.",
        "repair",
        "rest",
        "safe",
        "a step",
        title="Closed loops on the true plant",
        caption="out: true states outside the limits; broken: those after steps that were certified; cert., repair, "
        "rest, safe: steps with a certified plan, a repaired one, what was left of one, the safe input",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in table.columns[1:]:
        column.no_wrap = True
    for name, runs in loops.items():
        decisions = [decision.name for run in runs for decision in run.decisions]
        shares = [
            f"{decisions.count(kind) / len(decisions):.1%}" if decisions else ""
            for kind in ("CERTIFIED", "REPAIRED", "REMAINDER", "SAFE_INPUT")
        ]
        table.add_row(
            name,
            f"{sum(len(run.inputs) for run in runs):,}",
            str(sum(int((~run.is_inside).sum()) for run in runs)),
            str(sum(run.broken_promises for run in runs)) if decisions else "",
            f"{sum(run.cost for run in runs) / len(runs):.4g}",
            *shares,
            _seconds(sum(float(run.seconds.mean()) for run in runs) / len(runs)),
        )
    return table


def study_remarks(result: StudyResult) -> Iterator[str]:
    """What else there is to say, a line each."""
    if result.plans:
        yield from _plan_remarks(result)
    if result.material.n_held_out:
        yield f"{result.material.n_held_out} runs that were held out do not contradict the assumptions"
    if result.check is not None:
        check = result.check
        counts = ", ".join(f"{n} {verdict.name.lower()}" for verdict, n in check.verdicts.items())
        yield (
            f"{check.n_plans} plans from random initial states: {check.n_inside:,} of {check.n_states:,} true states "
            f"in their boxes; {counts}; {check.n_wrong} of these verdicts wrong; {check.plans_per_second:.0f} plans "
            "certified a second"
        )
    if result.region is not None:
        shares = [
            f"{method} {sum(v.name == 'CERTIFIED' for row in grid for v in row) / (len(grid) * len(grid[0])):.1%}"
            for method, grid in result.region.verdicts.items()
        ]
        yield f"certified share of the initial states within the limits: {', '.join(shares)}"
    if result.is_contradicted:
        yield "[red]a true state lies outside its box or a verdict is wrong: an assumption does not hold[/red]"


def _plan_remarks(result: StudyResult) -> Iterator[str]:
    for plan in result.plans[:_REMARKS_UP_TO]:
        certificates = plan.certificates
        if not next(iter(certificates.values())).starts_inside:
            yield f"plan {escape(plan.name)} starts outside the limits; its verdict is about the steps after that"
        for method, certificate in certificates.items():
            if certificate.verdict.name != "CERTIFIED":
                yield escape(f"plan {plan.name}, {method}: {certificate.explain()}")
    means = {
        method: sum(plan.certificates[method].tube.volumes.mean() for plan in result.plans) / len(result.plans)
        for method in result.material.predictors
    }
    if len(means) == 2:
        (first, small), (second, large) = means.items()
        yield f"mean box over all plans: {first} {small:.4g}, {second} {large:.4g}, {large / small:.3g} times as large"
    share = max(plan.certificates[next(iter(means))].tube.initial_state_share for plan in result.plans)
    if share > 0:
        yield f"unknown initial states make up to {share:.0%} of the widths of the boxes"


def cells_table(cells: list[Cell]) -> Table:
    """Tables I and II, ours beside the printed ones."""
    table = Table("noise", "design", "norm bound", "noise bound", "printed", "ours", "gap", "", title="Rows `opt`")
    for cell in cells:
        table.add_row(
            f"{cell.noise:g}",
            cell.design,
            f"{cell.norm_bound:g}",
            f"{cell.noise_bound:g}",
            f"{cell.printed:.2f}",
            f"{cell.width:.2f}",
            f"{cell.largest_relative_gap:.0e}",
            "[green]ok[/green]" if cell.agrees else "[red]differs[/red]",
        )
    return table


def bench_table(measurements: list[dict[str, Any]]) -> Table:
    """A row a problem and method."""
    table = Table(
        "problem",
        "samples",
        "method",
        "set-up",
        "a bound",
        "faster than conic",
        "largest gap",
        "active",
        "width",
        "memory",
    )
    previous = None
    for m in measurements:
        if previous not in (None, m["problem"]):
            table.add_section()
        previous = m["problem"]
        table.add_row(
            m["problem"],
            f"{m['n_samples']:,}",
            m["method"],
            _seconds(m["setup_s"]),
            _seconds(m["bound_s"]),
            "" if m["conic_ratio"] is None else f"{m['conic_ratio']:,.{0 if m['conic_ratio'] >= 10 else 2}f} x",
            "" if m["largest_relative_gap"] is None else f"{m['largest_relative_gap']:.0e}",
            "" if m["mean_active"] is None else f"{m['mean_active']:.0f}",
            f"{m['mean_width']:.4g}",
            "" if m["peak_memory_mb"] is None else f"{m['peak_memory_mb']:.0f} MB",
        )
    return table


def plans_table(rows: list[dict[str, Any]]) -> Table:
    """Certifying plans, a row a method."""
    table = Table("method", "samples", "one plan", "a bound", "plans a second", "faster than conic, a bound")
    for row in rows:
        table.add_row(
            row["method"],
            f"{row['n_samples']:,}",
            "" if row["plan_s"] is None else _seconds(row["plan_s"]),
            _seconds(row["bound_s"]),
            "" if row["plans_per_second"] is None else f"{row['plans_per_second']:.0f}",
            f"{row['conic_ratio']:,.0f} x",
        )
    return table


def _verdict(name: str) -> str:
    return f"[{_COLOURS[name]}]{name}[/{_COLOURS[name]}]"


def _signed(margin: float) -> str:
    if not math.isfinite(margin):
        return "no limits"
    return f"{margin:+.4f}" if margin == 0.0 or 1e-3 <= abs(margin) < 1e3 else f"{margin:+.1e}"


def _factor(value: float | None) -> str:
    if value is None:
        return ""
    return f">{LARGEST_FACTOR:g}" if math.isinf(value) else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{1e3 * value:.2f} ms"
