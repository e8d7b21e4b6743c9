"""The command line: `rkhs-control --help`."""

from __future__ import annotations

import json
import os
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from .. import __version__
from ..errors import InputError, RkhsControlError, RowOrderWarning
from .doctor import doctor, show_doubts
from .explore import explore
from .first import example, list_scenarios
from .options import ALL_CORES, Cluster, Commands, Fresh, Jobs, Set, parsed, workers
from .peers import bench_peers

app = typer.Typer(
    cls=Commands,
    help="Will this planned input sequence keep the real plant within its limits? Answers from recorded data.",
    epilog="Start with `rkhs-control run cstr`. For your own data: `rkhs-control example my_plant` writes a scenario, "
    "recorded runs and a plan to start from; then `rkhs-control certify my_plant/scenario.toml --plan "
    "my_plant/plan.csv`.\n\nExit codes: 0 certified, 2 undecided, 3 refuted, 1 error, or a study that did not come "
    "out as it should, 130 interrupted; `verify` has its own: 0 accepted, 1 rejected, 4 unreadable; `doctor`: 0 no "
    "problems, 1 some.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(
    cls=Commands, help="Measure speed against named alternatives, all in one run.", no_args_is_help=True
)
app.add_typer(bench_app, name="bench")

INTERRUPTED = 130

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the numbers to this file.", dir_okay=False)]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the results; results/NAME by default.", file_okay=False)
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Random seed, instead of the scenario's.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """The commands are below."""


def _scenario_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from ..scenarios.paper import STUDIES
    from ..scenarios.schema import builtin_scenarios

    return [name for name in (*builtin_scenarios(), *STUDIES) if name.startswith(incomplete)]


app.command("list")(list_scenarios)


@app.command()
def run(
    context: typer.Context,
    scenario: Annotated[
        str,
        typer.Argument(
            help="A name from `rkhs-control list`, or a TOML file of your own.", autocompletion=_scenario_names
        ),
    ],
    out: Out = None,
    seed: Seed = None,
    jobs: Jobs = ALL_CORES,
    cluster: Cluster = None,
    fresh: Fresh = False,
    changes: Set = None,
) -> None:
    """Run a scenario: record or load runs, build predictors, certify plans, draw figures.

    Finished parts are kept in the results folder until the run is complete: after an interruption, the same command
    resumes from there.

    The exit code is that of the worst verdict: 0 certified, 2 undecided, 3 refuted; 1 is an error,
    or a study that did not come out as it should.
    """
    from ..scenarios.paper import STUDIES, paper_study
    from ..scenarios.results import ResultFolder
    from ..scenarios.run import run_study
    from ..scenarios.schema import load_scenario
    from .show import show_paper, show_study

    folder = ResultFolder.of(scenario, out)
    if scenario in STUDIES:
        if changes:
            raise InputError(f"{scenario} is one of the paper's experiments: it has no keys to set")
        with workers(jobs, cluster, context) as n_jobs:
            raise typer.Exit(
                show_paper(paper_study(scenario), 1 if seed is None else seed, n_jobs, folder, fresh=fresh)
            )
    loaded, base = load_scenario(scenario, parsed(changes), STUDIES)
    seed = loaded.seed if seed is None else seed
    with workers(jobs, cluster, context) as n_jobs:
        raise typer.Exit(show_study(partial(run_study, loaded, base), seed, n_jobs, folder, fresh=fresh))


@app.command()
def certify(
    context: typer.Context,
    scenario: Annotated[str, typer.Argument(help="A TOML file with your data and limits, or a name from `list`.")],
    plan: Annotated[
        Path,
        typer.Option(
            "--plan",
            help="CSV with the columns step (or time), the states and the inputs: the initial state in the first row, "
            "inputs in every row. With several plans, a column `plan` says which row belongs to which.",
        ),
    ],
    out: Out = None,
    seed: Seed = None,
    jobs: Jobs = ALL_CORES,
    cluster: Cluster = None,
    fresh: Fresh = False,
    changes: Set = None,
) -> None:
    """Certify the plans in a file against the data and limits of a scenario.

    Any doubts that `doctor` has are printed first. Exit code 0 if all are certified, 3 if any is refuted, else 2; 1 is
    an error, and then nothing is written.
    """
    from ..scenarios.paper import STUDIES
    from ..scenarios.results import ResultFolder
    from ..scenarios.run import certify_file
    from ..scenarios.schema import load_scenario
    from .show import show_study

    if scenario in STUDIES:
        raise InputError(f"{scenario} is one of the paper's experiments and has no data to certify a plan with")
    folder = ResultFolder.of(scenario, out)
    loaded, base = load_scenario(scenario, parsed(changes))
    seed = loaded.seed if seed is None else seed
    with workers(jobs, cluster, context) as n_jobs:
        study = partial(certify_file, loaded, base, plan, heed=show_doubts)
        raise typer.Exit(show_study(study, seed, n_jobs, folder, fresh=fresh))


app.command()(doctor)


@app.command()
def verify(
    certificate: Annotated[
        Path, typer.Argument(help="A JSON file written by `run`, `certify`, Certificate.save or InvariantRegion.save.")
    ],
    data: Annotated[
        Path | None, typer.Option("--data", help="The recordings, CSV or NPZ: do they contain the proof's samples?")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the last line.", metavar="")] = False,
    work: Annotated[
        int | None, typer.Option("--work", min=1, help="Limit on the work; ten million units take about a second.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes for the cells of a region.")] = 1,
) -> None:
    """Prove every bound in a certificate again, in ball arithmetic and without the code that made it.

    For a region, also prove again that the limits are kept for ever.

    Has its own exit codes: 0 accepted, whatever the printed verdict is; 1 rejected; 4 unreadable. The checker is a
    single file that needs only python-flint, rkhs_control/checker.py: copy it anywhere and run `python checker.py
    plan.json`.
    """
    from ..checker import main as check

    recordings = [] if data is None else [f"--data={data}"]
    limit = [] if work is None else [f"--work={work}"]
    spread = f"--jobs={jobs}"
    raise typer.Exit(check([*recordings, *limit, spread, *(["--quiet"] if quiet else []), "--", str(certificate)]))


app.command()(explore)
app.command()(example)


@bench_app.command("envelope")
def bench_envelope(json_file: JsonFile = None) -> None:
    """Time one bound by the path, the conic programmes, the alternating method and the closed form.

    Takes a few minutes, nearly all of it in the conic solver at 800 samples.
    """
    from . import benchmarks as bench
    from . import tables as console
    from .show import require_writable

    require_writable(json_file)
    screen = Console()
    with screen.status("") as status:
        result = bench.run(lambda message: status.update(f"measuring: {message}"))
    screen.print(console.bench_table(result["measurements"]))
    _keep(result, json_file, screen)


@bench_app.command("certify")
def bench_certify(
    context: typer.Context,
    plans: Annotated[int, typer.Option("--plans", min=20, help="How many plans to certify.")] = 1000,
    jobs: Jobs = ALL_CORES,
    cluster: Cluster = None,
    json_file: JsonFile = None,
) -> None:
    """Time the certification of CSTR plans: one plan, and plans per second for many. Takes about two minutes."""
    from dataclasses import asdict

    from ..scenarios.material import Work
    from . import benchmarks as bench
    from . import tables as console
    from .show import require_writable

    require_writable(json_file)
    screen = Console()
    with workers(jobs, cluster, context) as n_jobs, console.progress_bars(screen) as announce:
        rows = [asdict(row) for row in bench.run_plans(Work(1, n_jobs, announce), plans)]
    screen.print(console.plans_table(rows))
    _keep(rows, json_file, screen)


@bench_app.command("leaderboard")
def bench_leaderboard(
    queries: Annotated[int, typer.Option("--queries", min=2, help="How many queries to bound in every contest.")] = 100,
    out: Out = None,
    json_file: JsonFile = None,
) -> None:
    """Compare all envelopes on the same data: width, how often they contain the truth, time per bound.

    Takes less than a minute.
    """
    from dataclasses import asdict

    from ..reporting.figures import save_figure
    from ..scenarios.material import Work
    from ..scenarios.results import ResultFolder
    from . import leaderboard
    from . import tables as console
    from .show import require_writable

    require_writable(json_file)
    folder = ResultFolder.of("leaderboard", out).folder
    screen = Console()
    with console.progress_bars(screen) as announce:
        entries = leaderboard.run(Work(1, 1, announce), queries)
    screen.print(console.leaderboard_table([asdict(entry) for entry in entries]))
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(leaderboard.leaderboard_figure(entries), folder, "leaderboard")
    screen.print(f"the figure is in {folder}")
    _keep([asdict(entry) for entry in entries], json_file, screen)


@bench_app.command("scale")
def bench_scale(
    largest: Annotated[int, typer.Option("--largest", min=50, help="Samples to go up to.")] = 100_000,
    axis: Annotated[
        list[str] | None, typer.Option("--axis", help="This axis alone, such as samples. Repeatable.")
    ] = None,
    jobs: Jobs = ALL_CORES,
    out: Out = None,
    json_file: JsonFile = None,
) -> None:
    """Measure how time and memory grow with samples, dimensions, active points, queries and workers.

    Beside each time stands its floor: one kernel row and the closed form on the active set. Takes two to five minutes;
    less with --largest 5000.
    """
    from ..scenarios.results import ResultFolder
    from .scale import show_scale
    from .show import require_writable

    require_writable(json_file)
    screen = Console()
    _keep(show_scale(largest, axis, jobs, ResultFolder.of("scale", out).folder, screen), json_file, screen)


bench_app.command("peers")(bench_peers)


@bench_app.command("soundness")
def bench_soundness(
    context: typer.Context,
    cases: Annotated[
        int, typer.Option("--cases", min=1, help="Problems of about 145 bounds each; 7,000 make a million bounds.")
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    jobs: Jobs = ALL_CORES,
    cluster: Cluster = None,
    fresh: Fresh = False,
    json_file: JsonFile = None,
    norm_factor: Annotated[
        float,
        typer.Option("--norm-factor", min=0.5, max=2.0, help="Scales all norm bounds: 0.999999999 must find escapes."),
    ] = 1.0,
    case: Annotated[int | None, typer.Option("--case", min=0, help="Run only this problem.")] = None,
) -> None:
    """Attack the bounds with worst-case truths in exact arithmetic: all kernels and envelopes, scales 1e-40 to 1e40.

    Truths that escape a bound, and assumptions called refuted although they hold, are defects. Exit code 1 if
    there are any. Takes about half a minute for 200 problems on two cores. Finished problems are kept in
    results/soundness: after an interruption, the same command resumes from there.
    """
    from dataclasses import asdict

    from ..soundness.campaign import Campaign, run_case
    from . import tables as console
    from .show import kept_parts, require_writable

    require_writable(json_file)
    screen = Console()
    if case is not None:
        total = run_case(seed, case, norm_factor)
    else:
        with (
            workers(jobs, cluster, context) as n_jobs,
            kept_parts(Path("results") / "soundness", fresh, screen),
            console.progress_bars(screen) as announce,
        ):
            total = Campaign(cases, seed, norm_factor).run(n_jobs, announce("problems"))
    screen.print(console.soundness_table(asdict(total)))
    for remark in console.soundness_remarks(asdict(total), seed, norm_factor):
        screen.print(remark, highlight=False, soft_wrap=True)
    settings = {"version": __version__, "cases": cases, "seed": seed, "norm_factor": norm_factor}
    _keep({"settings": settings, "total": asdict(total)}, json_file, screen)
    raise typer.Exit(0 if total.is_clean else 1)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: an error that the user can fix is one line, not a traceback, and exits with 1."""
    # The work is shared by processes; threads inside the linear algebra would only wait for each other.
    for library in ("OPENBLAS", "MKL", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=RowOrderWarning)
        warnings.showwarning = lambda message, *place, **more: _show_note(str(message))
        raise SystemExit(_exit_code(arguments))


def _exit_code(arguments: list[str] | None) -> int:
    usage_error: Any = typer.BadParameter.__base__
    try:
        code = app(arguments, prog_name="rkhs-control", standalone_mode=False)
    except usage_error as error:
        text, code = error.format_message(), 1
        message = f"{text} (see --help)" if text else ""  # empty where the help itself was shown
    except (RkhsControlError, OSError) as error:
        message, code = str(error), 1
    except (typer.Abort, KeyboardInterrupt):
        message, code = "interrupted; no results were written", INTERRUPTED
    else:
        message = "interrupted; no results were written" if code == INTERRUPTED else ""
    if message:
        Console(stderr=True).print(f"[red]error:[/red] {escape(message)}", highlight=False, soft_wrap=True)
    return code or 0


def _show_note(message: str) -> None:
    """A warning on one line, without its location in the code."""
    Console(stderr=True).print(f"[yellow]note:[/yellow] {escape(message)}", highlight=False, soft_wrap=True)


def _keep(content: Any, file: Path | None, screen: Console) -> None:
    if file is not None:
        file.write_text(json.dumps(content, indent=2) + "\n")
        screen.print(f"written to {file}")
