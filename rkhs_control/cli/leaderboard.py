"""All envelopes on the same data: how wide, how often right, how fast.

The truth is known in every contest, so containment can be counted. Each method's promise is stated beside it: a bound
that held at every query here is not therefore a guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..assumptions.norms import norm_growth
from ..assumptions.regression import KernelModel, cross_validate
from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..envelopes.alternating import AlternatingEnvelope
from ..envelopes.base import Envelope
from ..envelopes.closed_form import ClosedFormEnvelope
from ..envelopes.energy import EnergyEnvelope
from ..envelopes.gaussian_process import GaussianProcessEnvelope
from ..envelopes.lipschitz import LipschitzEnvelope
from ..envelopes.optimal import OptimalEnvelope
from ..kernels.radial import Matern52, Radial
from ..models import henon
from ..models.cstr import CSTR
from ..reporting.figures import panels_of
from ..reporting.palette import BLUE, ORANGE, RED
from ..scenarios.material import Work
from .benchmarks import BenchProblem, example_1, timed

CERTAIN, WITH_SLOPE, PROBABLE = "for certain", "if the slope is right", "with 99 %, Gaussian noise"
OPTIMAL = "optimal"
"""The method that the others are compared with; it comes first."""

_MARGIN = 1.5  # norm bounds, as multiples of the norm (or of what is known about it)
_SLOPE_MARGIN = 1.1


@dataclass(frozen=True, eq=False)
class Contest:
    """Data, queries to bound, and the truth at these."""

    problem: BenchProblem
    truth: FloatArray
    steepest: float
    """The largest slope of the true function, with some margin; distances are measured in `scales`."""
    scales: FloatArray


@dataclass(frozen=True)
class Entry:
    """One method in one contest."""

    problem: str
    n_samples: int
    method: str
    holds: str
    """The condition under which the bounds hold, besides those that all methods share."""
    mean_width: float
    times_optimal: float
    """The mean width as a multiple of the optimal bounds' mean width."""
    contained: float
    """Share of the queries where the truth lies within the bounds."""
    setup_s: float
    bound_s: float


@dataclass(frozen=True)
class _Method:
    family: type[Envelope]
    holds: str = CERTAIN
    options: Callable[[Contest], dict[str, Any]] = lambda contest: {}


METHODS = {
    OPTIMAL: _Method(OptimalEnvelope),
    "alternating, 3 turns": _Method(AlternatingEnvelope, options=lambda contest: {"iterations": 3}),
    "closed form": _Method(ClosedFormEnvelope),
    "closed form, nugget 1e-5": _Method(ClosedFormEnvelope, options=lambda contest: {"nugget": 1e-5}),
    "energy of the noise": _Method(EnergyEnvelope),
    "Lipschitz": _Method(LipschitzEnvelope),
    "Lipschitz, slope known": _Method(
        LipschitzEnvelope, WITH_SLOPE, lambda contest: {"constant": contest.steepest, "scales": contest.scales}
    ),
    "Gaussian process": _Method(GaussianProcessEnvelope, PROBABLE),
}


def run(work: Work, n_queries: int = 100) -> list[Entry]:
    """All methods in all contests, narrowest first."""
    entries: list[Entry] = []
    for name, make in CONTESTS.items():
        with work.stage(name) as progress:
            contest = make(work.rng, n_queries)
            measured = []
            for i, entry in enumerate(_compete(contest)):
                measured.append(entry)
                progress(i + 1, len(METHODS))
        entries += sorted(measured, key=lambda entry: entry.mean_width)
    return entries


def _compete(contest: Contest) -> Iterator[Entry]:
    problem, optimal = contest.problem, np.nan
    for name, method in METHODS.items():
        timing = timed(problem, method.family, method.options(contest), queries=problem.queries)
        band = timing.band
        width = float(band.width.mean())
        optimal = width if name == OPTIMAL else optimal
        yield Entry(
            problem=problem.name,
            n_samples=len(problem.data),
            method=name,
            holds=method.holds,
            mean_width=width,
            times_optimal=width / optimal,
            contained=float(np.mean((band.lower <= contest.truth) & (contest.truth <= band.upper))),
            setup_s=timing.setup_s,
            bound_s=timing.bound_s,
        )


def henon_contest(gridded: bool, n_queries: int) -> Contest:
    """The paper's Example 1, with its own norm bound."""
    problem = example_1(gridded, n_queries)
    scales = np.full(2, henon.LENGTHSCALE)
    slope = float(np.hypot(1.6 * henon.LIMIT, 1.0 + 6.4))  # where |z1| = LIMIT and cos(0.8 z2) = 1
    return Contest(
        problem, henon.truth(problem.queries), steepest=_SLOPE_MARGIN * slope * henon.LENGTHSCALE, scales=scales
    )


def cstr_contest(rng: np.random.Generator, n_queries: int, n_runs: int = 300) -> Contest:
    """`c_B` of the reactor after eight steps, from two initial states and eight inputs.

    The norm of that function is unknown; the bound is 1.5 times the least norm that 1,000 noise-free simulations imply.
    """
    plant, n_steps, noise, noise_bound = CSTR(), 8, 0.05, 0.06
    lower = np.concatenate([plant.state_limits.lower, np.tile(plant.input_limits.lower, n_steps)])
    upper = np.concatenate([plant.state_limits.upper, np.tile(plant.input_limits.upper, n_steps)])

    def truth(Z: FloatArray) -> FloatArray:
        states: FloatArray = plant.simulate(Z[:, : plant.n_states], Z[:, plant.n_states :, None])[:, -1, 1]
        return states

    X, queries, more = (rng.uniform(lower, upper, (n, len(lower))) for n in (n_runs, n_queries, 1000))
    data = Observations(X, truth(X) + rng.uniform(-noise, noise, n_runs), noise_bound)
    spread = X.std(axis=0)
    kernel = cross_validate(data, [tuple(m * spread) for m in (2.0, 4.0, 8.0)], (1e-3, 1e-2, 1e-1), rng=rng).kernel
    assert isinstance(kernel, Radial)
    norm_bound = norm_growth(more, truth(more), kernel).estimate.times(_MARGIN).value
    scales = np.asarray(kernel.lengthscale)
    steepest = _SLOPE_MARGIN * largest_slope(truth, more[:300], scales)
    problem = BenchProblem("CSTR, c_B after 8 steps", data, kernel, norm_bound=norm_bound, queries=queries)
    return Contest(problem, truth(queries), steepest=steepest, scales=scales)


def known_norm_contest(rng: np.random.Generator, n_queries: int, n: int = 150) -> Contest:
    """A random sum of kernels in three dimensions; the bound is 1.5 times its norm."""
    kernel, noise_bound = Matern52(1.0), 0.1
    f = KernelModel(rng.uniform(-1.0, 1.0, (40, 3)), kernel, rng.normal(size=40))
    X, queries, more = (rng.uniform(-1.0, 1.0, (count, 3)) for count in (n, n_queries, 2000))
    data = Observations(X, f(X) + rng.uniform(-noise_bound, noise_bound, n), noise_bound)
    scales = np.ones(3)
    problem = BenchProblem("sum of kernels, norm known", data, kernel, norm_bound=_MARGIN * f.norm, queries=queries)
    return Contest(problem, f(queries), steepest=_SLOPE_MARGIN * largest_slope(f, more, scales), scales=scales)


def largest_slope(f: Callable[[FloatArray], FloatArray], points: FloatArray, scales: FloatArray) -> float:
    """The largest gradient of `f` at some points, by central differences, per unit of the scaled distance."""
    step = 1e-4
    squares = np.zeros(len(points))
    for j, scale in enumerate(scales):
        aside = np.zeros(len(scales))
        aside[j] = step * scale
        squares += ((f(points + aside) - f(points - aside)) / (2.0 * step)) ** 2
    return float(np.sqrt(squares.max()))


CONTESTS: dict[str, Callable[[np.random.Generator, int], Contest]] = {
    "Example 1, grid": lambda rng, n_queries: henon_contest(True, n_queries),
    "Example 1, random": lambda rng, n_queries: henon_contest(False, n_queries),
    "CSTR": cstr_contest,
    "sum of kernels": known_norm_contest,
}


def leaderboard_figure(entries: list[Entry]) -> Any:
    """Mean widths, one panel per contest; bounds that need a further condition are hatched."""
    from matplotlib.patches import Patch

    problems = list(dict.fromkeys(entry.problem for entry in entries))
    figure, axes = panels_of(2, (len(problems) + 1) // 2, width=6.0, height=3.0)
    looks = {
        CERTAIN: {"facecolor": BLUE},
        WITH_SLOPE: {"facecolor": ORANGE, "hatch": "//", "edgecolor": "white"},
        PROBABLE: {"facecolor": RED, "hatch": "xx", "edgecolor": "white"},
    }
    for ax, problem in zip(axes.flat, problems, strict=False):
        rows = [entry for entry in entries if entry.problem == problem][::-1]
        for place, entry in enumerate(rows):
            ax.barh(place, entry.mean_width, alpha=0.85, **looks[entry.holds])
            ax.annotate(
                f"{entry.mean_width:,.{0 if entry.mean_width >= 100 else 2}f}, {1e3 * entry.bound_s:.2g} ms",
                (entry.mean_width, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
        ax.set_yticks(range(len(rows)), [entry.method for entry in rows])
        ax.set_xscale("log")
        widths = [entry.mean_width for entry in rows]
        ax.set_xlim(0.5 * min(widths), 12.0 * max(widths))
        ax.set_title(f"{problem}: {rows[0].n_samples} samples")
        ax.set_xlabel("mean width")
    for ax in axes.flat[len(problems) :]:
        ax.remove()
    handles = [Patch(label=holds, alpha=0.85, **look) for holds, look in looks.items()]  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, title="bounds hold")
    return figure
