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
from rich.table import Column, Table

from ..certificates.certificate import LARGEST_FACTOR
from ..reporting.figures import printable

if TYPE_CHECKING:
    from ..data.trajectories import Trajectories
    from ..scenarios.closed_loop import LoopRun
    from ..scenarios.design import DesignResult
    from ..scenarios.paper.result import PaperResult
    from ..scenarios.sampling import SamplingResult
    from ..scenarios.schema import LimitSweep
    from ..scenarios.study import StudyResult

_COMPACT: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
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
        **_COMPACT,
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    for plan in result.plans:
        for method, certificate in plan.certificates.items():
            inside, margins = plan.steps_inside(method), plan.margins.get(method, {})
            table.add_row(
                _text(plan.name) if method == next(iter(plan.certificates)) else "",
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
    refuted = sum(run.is_refuted for runs in loops.values() for run in runs)
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
        "rest, safe: steps with a certified plan, a repaired one, what was left of one, the safe input"
        + (f"; loops in which a measurement refuted an assumption: {refuted:,}" if refuted else ""),
        **_COMPACT,
    )
    for column in table.columns[1:]:
        column.no_wrap = True
    for name, runs in loops.items():
        decisions = [decision.name for run in runs for decision in run.decisions]
        shares = [
            f"{sum(decision in kinds for decision in decisions) / len(decisions):.1%}" if decisions else ""
            for kinds in (("CERTIFIED",), ("REPAIRED",), ("REMAINDER",), ("SAFE_INPUT", "REFUTED"))
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


def design_tables(design: DesignResult, runs: Trajectories) -> Iterator[Table]:
    """Widths and tightened limits by step, what the region depends on, and how far a limit can be moved."""
    tightening = design.tightening
    table = Table(
        "step",
        title="Half-widths of boxes, and tightened limits",
        caption="tightened: how far inside its lower and upper limit a prediction must stay; each "
        f"suffices by itself for {design.tightening_share:.0%} of the plans",
        **_COMPACT,
    )
    for name in runs.state_names:
        for header in ("mean", "most", "lower", "upper"):
            table.add_column(f"{escape(name)}\n{header}", justify="right", no_wrap=True)
    for n in range(design.half_widths.shape[1]):
        cells = []
        for i in range(runs.n_states):
            mine = design.half_widths[:, n, i]
            cells += [mine.mean(), mine.max(), tightening.below[n, i], tightening.above[n, i]]
        table.add_row(str(n + 1), *(f"{value:.4f}" for value in cells))
    yield table
    if design.effects:
        yield _effects_table(design, runs)
    if design.sweep is not None:
        yield _trials_table(design, design.sweep)


def _effects_table(design: DesignResult, runs: Trajectories) -> Table:
    plannings: dict[str, float] = next((effect.shares for effect in design.effects if effect.shares), {})
    table = Table(
        "change",
        "",
        *(f"half-width\n{escape(name)}" for name in runs.state_names),
        *(f"{name}\ncertified" for name in plannings),
        title="What the certifiable region depends on",
        caption="half-width: after the last step, on average",
        **_COMPACT,
    )
    previous = None
    for effect in design.effects:
        if previous not in (None, effect.what):
            table.add_section()
        previous = effect.what
        if effect.refutation:
            table.add_row(effect.what, f"{effect.value:g}", "refuted by the data")
        else:
            widths, shares = (f"{w:.4f}" for w in effect.half_widths), (f"{s:.1%}" for s in effect.shares.values())
            table.add_row(effect.what, f"{effect.value:g}", *widths, *shares)
    return table


def _trials_table(design: DesignResult, sweep: LimitSweep) -> Table:
    sign = ">=" if sweep.end == "lower" else "<="
    start = ", ".join(f"{x:g}" for x in sweep.initial_state)
    table = Table(
        f"{escape(sweep.state)} {sign}",
        "certainty\nequivalent",
        "\nmargin",
        "\nrobust",
        "\nmargin",
        "\nprice",
        "plans\ntried",
        "\ntime",
        title=f"From ({start}), as a limit moves",
        caption="price: how much dearer the robust plan is",
        **_COMPACT,
    )
    for trial in design.trials:
        table.add_row(
            f"{trial.limit:g}",
            _verdict(trial.believing.verdict.name),
            _signed(trial.believing.margin),
            _verdict(trial.plan.certificate.verdict.name),
            _signed(trial.plan.certificate.margin),
            f"{trial.plan.price:.0%}" if trial.plan.success else "",
            str(trial.plan.iterations),
            _seconds(trial.seconds),
        )
    return table


def sampling_table(sampling: SamplingResult) -> Table:
    """Experiments for an undecided plan, a row a round."""
    table = Table(
        "runs",
        "cert.",
        "verdict",
        "worst bound",
        "margin",
        *(name.replace(" ", "\n") for name in sampling.baselines),
        title="Experiments that decide a plan",
        caption="runs: experiments so far; cert.: how many of the round's are certified to keep the limits; margin: of "
        "the plan; then what it would be after as many random experiments",
        **_COMPACT,
    )
    table.columns[3].no_wrap = True
    for number, (each, count) in enumerate(zip(sampling.rounds, sampling.counts, strict=True)):
        certificate = each.certificate
        step, constraint = divmod(int(certificate.margins.argmin()), certificate.margins.shape[1])
        table.add_row(
            str(count),
            f"{sum(e.is_certified for e in each.experiments)}/{len(each.experiments)}" if number else "",
            _verdict(certificate.verdict.name),
            escape(f"step {step + 1}, {certificate.constraint_names[constraint]}"),
            _signed(certificate.margin),
            *(_signed(found[number].margin) for found in sampling.baselines.values()),
        )
    return table


def study_remarks(result: StudyResult) -> Iterator[str]:
    """What else there is to say, a line each."""
    material, runs = result.material, result.material.runs
    if result.plans:
        yield from _plan_remarks(result)
    if text := material.predictors[next(iter(material.predictors))].assumption_text:
        yield text
    if material.doubt:
        yield f"[yellow]{_text(material.doubt)}[/yellow]"
    if material.n_held_out:
        yield f"{material.n_held_out} {runs.kind} that were held out do not contradict the assumptions"
    if material.n_left_out:
        yield f"{material.n_left_out} windows that share samples with those were left out"
    if runs.initial_state_text:
        yield _text(runs.initial_state_text)
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
    if result.sampling is not None:
        yield f"experiments ended after {result.sampling.counts[-1]}: {result.sampling.ending}"
    if result.design is not None:
        design = result.design
        by_planning = [f"{name} {design.region.certified(name).mean():.1%}" for name in design.region.verdicts]
        yield f"certified share of the initial states within the limits, by planning: {', '.join(by_planning)}"
        if "tightened limits" not in design.region.verdicts:
            yield "tightened limits leave no room: no nominal plan can keep them"
        contains = "contains" if design.is_nested else "does not contain"
        yield f"the region with robust planning {contains} that without"
        if design.n_wrong is not None:
            yield f"{design.n_wrong} certified plans violate a limit on the simulated plant"
    if result.is_contradicted:
        yield "[red]a true state lies outside its box or a verdict is wrong: an assumption does not hold[/red]"


def _plan_remarks(result: StudyResult) -> Iterator[str]:
    for plan in result.plans[:_REMARKS_UP_TO]:
        certificates = plan.certificates
        if not next(iter(certificates.values())).starts_inside:
            yield f"plan {_text(plan.name)} starts outside the limits; its verdict is about the steps after that"
        for method, certificate in certificates.items():
            if certificate.verdict.name != "CERTIFIED":
                yield _text(f"plan {plan.name}, {method}: {certificate.finding()}")
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


def paper_table(result: PaperResult) -> Table:
    """Numbers of the paper beside ours, with a line on every difference."""
    table = Table("", "printed", "ours", "", "", title=escape(result.title), box=box.SIMPLE_HEAD)
    for row in result.rows:
        table.add_row(
            escape(row.what),
            "" if row.printed is None else f"{row.printed:.2f}",
            f"{row.ours:.2f}",
            "[green]ok[/green]" if row.agrees else "[red]differs[/red]",
            escape(row.remark),
        )
    return table


def bench_table(measurements: list[dict[str, Any]]) -> Table:
    """A row a problem and method."""
    table = Table(
        "problem",
        "samples",
        "method",
        "a bound",
        "times\nfaster",
        "gap",
        "width",
        "memory",
        caption="times faster: than the faster conic programme; gap: the largest, relative; --json keeps more",
        **_COMPACT,
    )
    for column in (table.columns[1], *table.columns[3:]):
        column.no_wrap = True
    previous = None
    for m in measurements:
        if previous not in (None, m["problem"]):
            table.add_section()
        previous = m["problem"]
        table.add_row(
            m["problem"],
            f"{m['n_samples']:,}",
            m["method"],
            _seconds(m["bound_s"]),
            "" if m["conic_ratio"] is None else f"{m['conic_ratio']:,.{0 if m['conic_ratio'] >= 10 else 2}f}",
            "" if m["largest_relative_gap"] is None else f"{m['largest_relative_gap']:.0e}",
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


def leaderboard_table(entries: list[dict[str, Any]]) -> Table:
    """A row a contest and method, the narrowest first."""
    table = Table(
        "contest",
        "method",
        "width",
        "x optimal",
        "truth in",
        "a bound",
        "holds",
        caption="width: of the bounds, on average; truth in: share of the queries; holds: beyond what all methods "
        "assume, a noise and a norm bound",
        **_COMPACT,
    )
    for column in table.columns[2:6]:
        column.justify, column.no_wrap = "right", True
    previous = None
    for entry in entries:
        if previous not in (None, entry["problem"]):
            table.add_section()
        is_first, previous = previous != entry["problem"], entry["problem"]
        table.add_row(
            entry["problem"] if is_first else "",
            entry["method"],
            f"{entry['mean_width']:.4g}",
            f"{entry['times_optimal']:.3g}",
            f"{entry['contained']:.1%}",
            _seconds(entry["bound_s"]),
            entry["holds"],
        )
    return table


def soundness_table(total: dict[str, Any]) -> Table:
    """What came out of a campaign against the bounds."""
    table = Table(
        "problems",
        Column("bounds", no_wrap=True),
        Column("of those close", min_width=8),
        "escapes",
        "false refusals",
        "other errors",
        "tightest miss",
        "seconds",
        caption="close: a truth comes within 1e-9 of the bound, as a share of it; tightest miss: the nearest that any "
        "came, negative if it escaped; seconds: of work, by all processes together",
        **_COMPACT,
    )
    table.add_row(
        *(f"{total[name]:,}" for name in ("problems", "bounds", "close", "escapes", "false_refusals", "other_errors")),
        f"{total['tightest']:.1e}",
        f"{total['seconds']:,.0f}",
    )
    return table


def soundness_remarks(total: dict[str, Any], seed: int, norm_factor: float) -> Iterator[str]:
    """The first escapes, refusals and errors, and how to run them again."""
    for found in total["described"]:
        again = f"--seed {seed} --case {found['case']}" + (
            "" if norm_factor == 1.0 else f" --norm-factor {norm_factor!r}"
        )
        said = (
            f"{found['what']}, {found['side']} bound {found['bound']!r}, missed by {-found['miss']:.1e} of it"
            if found["kind"] == "escape"
            else f"{found['error']}: {found['message']}"
        )
        yield _text(f"{found['kind']}, {found['method']}: {said}; again: rkhs-control bench soundness {again}")
    if norm_factor < 1.0:
        yield f"norm bounds were multiplied by {norm_factor!r}: truths must escape, and refusals are right"
    if total["undecided"]:
        yield f"bounds that are as good as equal to a truth, on whichever side: {total['undecided']:,}"
    if total["infinite"]:
        yield f"bounds that are infinite, and so say nothing: {total['infinite']:,}"


def _text(given: str) -> str:
    """A user's words, with nothing in them that would change the terminal."""
    return escape(printable(given))


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
