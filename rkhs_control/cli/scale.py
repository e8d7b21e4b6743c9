"""How time and memory grow: with samples, dimensions, active points, queries and workers, beside a physical floor.

The floor is what a bound costs once its active set is known: one kernel row over all data, and the closed form on the
active set. No method that looks at all data and solves with the active ones can be quicker.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..data.arrays import FloatArray
from ..engine.witness import Witness
from ..envelopes.base import Side
from ..envelopes.optimal import OptimalEnvelope
from ..errors import InputError
from ..parallel import end_workers
from ..reporting.figures import panels_of, save_figure
from ..reporting.palette import BLUE, GREY, ORANGE
from ..scenarios.material import Work
from .benchmarks import BenchProblem, large, mean_active, peak_memory_mb, quickest, smooth_sequences
from .tables import progress_bars, scale_table

SAMPLES, DIMENSIONS, ACTIVE, QUERIES, WORKERS = "samples", "dimensions", "active points", "queries", "workers"
AXES = (SAMPLES, DIMENSIONS, ACTIVE, QUERIES, WORKERS)

_FLOORS = 6  # so many bounds have their floor measured


@dataclass(frozen=True)
class Sizes:
    """What each axis goes through, and what stays as it is on the others."""

    samples: tuple[int, ...] = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
    dimensions: tuple[int, ...] = (2, 3, 5, 8, 12)
    lengthscales: tuple[float, ...] = (2.0, 1.0, 0.6, 0.4, 0.25)
    """The shorter, the more points are active."""
    queries: tuple[int, ...] = (1, 4, 16, 64, 256)
    n_fixed: int = 1_500
    """Samples on the axes of dimensions and active points: few enough for a whole kernel matrix."""
    n_plans: int = 800
    """Samples on the axes of queries and workers: smooth input sequences."""
    n_shared: int = 4_096
    """Queries that workers share."""

    def up_to(self, largest: int) -> Sizes:
        """With no more samples than that on any axis."""
        kept = tuple(n for n in self.samples if n <= largest) or (largest,)
        few = {name: min(getattr(self, name), largest) for name in ("n_fixed", "n_plans")}
        return replace(self, samples=kept, **few)


@dataclass(frozen=True)
class Case:
    """One measurement to make."""

    axis: str
    value: float
    """On the axis; of active points, a lengthscale that leads to some number of them."""
    n_samples: int
    n_dims: int = 3
    n_queries: int = 5
    n_jobs: int = 1

    def problem(self) -> BenchProblem:
        """Data and queries."""
        if self.axis in (QUERIES, WORKERS):
            return smooth_sequences(self.n_samples, self.n_queries)
        # In more dimensions points are farther apart, by the root of the number.
        scale = self.value if self.axis == ACTIVE else 0.5 * math.sqrt(self.n_dims / 3.0)
        return large(self.n_samples, self.n_dims, self.n_queries, lengthscale=scale)


@dataclass(frozen=True)
class ScalePoint:
    """One measurement; times in seconds."""

    axis: str
    value: float
    n_samples: int
    n_dims: int
    n_queries: int
    n_jobs: int
    setup_s: float
    bound_s: float
    floor_s: float
    """What a bound takes at least: see the module."""
    largest_relative_gap: float
    mean_active: float
    peak_memory_mb: float
    """Of the process that measures; workers have their own."""


@dataclass(frozen=True)
class Slope:
    """The exponent of a power law, fitted to the measurements on an axis; NaN where there are fewer than two."""

    axis: str
    bound: float
    floor: float


def cases(sizes: Sizes, axes: Sequence[str], jobs: int) -> list[Case]:
    """All measurements, axis by axis."""
    workers = [2**k for k in range(max(jobs, 1).bit_length()) if 2**k <= jobs]
    found = {
        SAMPLES: [Case(SAMPLES, n, n) for n in sizes.samples],
        DIMENSIONS: [Case(DIMENSIONS, d, sizes.n_fixed, d) for d in sizes.dimensions],
        ACTIVE: [Case(ACTIVE, scale, sizes.n_fixed) for scale in sizes.lengthscales],
        QUERIES: [Case(QUERIES, m, sizes.n_plans, 10, m) for m in sizes.queries],
        WORKERS: [Case(WORKERS, w, sizes.n_plans, 10, sizes.n_shared, n_jobs=w) for w in workers],
    }
    return [case for axis in axes for case in found[axis]]


def run(work: Work, sizes: Sizes | None = None, axes: Sequence[str] = AXES) -> list[ScalePoint]:
    """Every measurement in a process of its own, so that the peak memory is its own; workers up to `work.n_jobs`."""
    points: list[ScalePoint] = []
    planned = cases(sizes or Sizes(), axes, work.n_jobs)
    for axis in axes:
        own = [case for case in planned if case.axis == axis]
        with work.stage(f"time against {axis}") as progress:
            for i, case in enumerate(own):
                points.append(_in_fresh_process(case))
                progress(i + 1, len(own))
    return points


def slopes(points: Sequence[ScalePoint]) -> list[Slope]:
    """How time per bound, and its floor, grow on every axis."""
    found = []
    for axis in dict.fromkeys(point.axis for point in points):
        own = [point for point in points if point.axis == axis]
        values = [point.value for point in own]
        found.append(Slope(axis, *(slope(values, [getattr(p, name) for p in own]) for name in ("bound_s", "floor_s"))))
    return found


def slope(values: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent that fits best on log-log axes."""
    if len(set(values)) < 2:
        return math.nan
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def measure(case: Case) -> ScalePoint:
    """One measurement, in this process."""
    problem = case.problem()
    began = time.perf_counter()
    envelope = OptimalEnvelope(problem.data, problem.kernel, problem.norm_bound)
    envelope.bounds(problem.queries[:1])  # compiles, or loads what is compiled
    setup_s = time.perf_counter() - began
    if case.n_jobs > 1:
        envelope.bounds(problem.queries, case.n_jobs)  # starts the workers
    band = envelope.bounds(problem.queries, case.n_jobs)
    call_s = quickest(lambda: envelope.bounds(problem.queries, case.n_jobs))
    if case.n_jobs > 1:
        end_workers()
    pairs = list(zip(problem.queries, band.witnesses, strict=True))[: max(1, _FLOORS // 2)]
    floors = [floor_s(envelope, x, side, witness) for x, pair in pairs for side, witness in _proofs(envelope, pair)]
    active = mean_active(band) or 0.0
    return ScalePoint(
        axis=case.axis,
        value=active if case.axis == ACTIVE else case.value,
        n_samples=case.n_samples,
        n_dims=case.n_dims,
        n_queries=case.n_queries,
        n_jobs=case.n_jobs,
        setup_s=setup_s,
        bound_s=call_s / (2 * len(problem.queries)),
        floor_s=float(np.median(floors)),
        largest_relative_gap=float(band.relative_gap.max()),
        mean_active=active,
        peak_memory_mb=peak_memory_mb(),
    )


def floor_s(envelope: OptimalEnvelope, x: FloatArray, side: Side, witness: Witness) -> float:
    """Seconds of a kernel row over all data and of the closed form on the active set."""

    def least_work() -> float:
        envelope.kernel(x[None, :], envelope.data.X)
        return closed_form(envelope, x, side, witness)

    return quickest(least_work)


def closed_form(envelope: OptimalEnvelope, x: FloatArray, side: Side, witness: Witness) -> float:
    """The upper bound at `x`, seen from a side, given its active set `A` and the ends `b` that it sits on.

    `k'K^-1 b + sqrt((norm_bound^2 - b'K^-1 b) (k(x, x) - k'K^-1 k))`, all over `A`; in plain floating point, to
    compare with, not to rely on.
    """
    from scipy.linalg import cholesky, solve_triangular

    active = witness.indices
    ends = np.where(witness.weights > 0, side.upper[active], side.lower[active])
    row = envelope.kernel(x[None, :], envelope.data.X[active])[0]
    factor = cholesky(envelope.gram.matrix(active), lower=True, check_finite=False)
    k, b = solve_triangular(factor, np.stack([row, ends], axis=1), lower=True, check_finite=False).T
    rest = (envelope.radius**2 - b @ b) * (envelope.kernel.variance - k @ k)
    return float(k @ b + math.sqrt(max(rest, 0.0)))


def show_scale(
    largest: int, axes: Sequence[str] | None, jobs: int, folder: Path, screen: Console
) -> dict[str, list[dict[str, Any]]]:
    """Measure with progress, show a table, leave a figure in the folder; returns the numbers."""
    unknown = [axis for axis in axes or () if axis not in AXES]
    if unknown:
        raise InputError(f"--axis must be one of {', '.join(AXES)}; got {unknown[0]!r}")
    with progress_bars(screen) as announce:
        points = run(Work(1, jobs, announce), Sizes().up_to(largest), tuple(dict.fromkeys(axes or AXES)))
    numbers = {"points": [asdict(p) for p in points], "slopes": [asdict(s) for s in slopes(points)]}
    screen.print(scale_table(**numbers))
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(scale_figure(points), folder, "scale")
    screen.print(f"the figure is in {folder}")
    return numbers


def scale_figure(points: Sequence[ScalePoint]) -> Any:
    """Time per bound against every axis, with slopes and floor; and memory against samples."""
    fits = {fit.axis: fit for fit in slopes(points)}
    figure, axes = panels_of(2, 3, width=4.0, height=3.0)
    for ax, (axis, fit) in zip(axes.flat, fits.items(), strict=False):
        own = sorted((p for p in points if p.axis == axis), key=lambda p: p.value)
        values = [p.value for p in own]
        _draw(ax, values, [p.bound_s for p in own], fit.bound, "a bound", {"color": BLUE, "marker": "o"})
        _draw(ax, values, [p.floor_s for p in own], fit.floor, "the floor", {"color": GREY, "marker": "s"})
        ax.set_xlabel(axis)
        ax.set_ylabel("seconds")
        ax.legend(fontsize="small")
    ax, own = axes.flat[len(fits)], [p for p in points if p.axis == (SAMPLES if SAMPLES in fits else p.axis)]
    ax.plot([p.n_samples for p in own], [p.peak_memory_mb for p in own], "o", color=ORANGE)
    ax.set_xscale("log")
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel("samples")
    ax.set_ylabel("peak memory, MB")
    for unused in axes.flat[len(fits) + 1 :]:
        unused.remove()
    return figure


def _draw(
    ax: Any, values: Sequence[float], seconds: Sequence[float], exponent: float, name: str, look: dict[str, str]
) -> None:
    """Measurements, and the line of their power law through the middle of them."""
    has_line = math.isfinite(exponent)
    ax.loglog(values, seconds, linestyle="", label=f"{name}, slope {exponent:.2f}" if has_line else name, **look)
    if has_line:
        ends = np.array([min(values), max(values)])
        middle = math.exp(float(np.mean(np.log(seconds)) - exponent * np.mean(np.log(values))))
        ax.loglog(ends, middle * ends**exponent, color=look["color"], linewidth=1.0)


def _proofs(envelope: OptimalEnvelope, pair: tuple[Any, Any]) -> list[tuple[Side, Witness]]:
    """The witnesses of both bounds that have active points, each with its side."""
    return [(side, w) for side, w in zip(envelope.sides, pair, strict=True) if w is not None and len(w.indices)]


def _in_fresh_process(case: Case) -> ScalePoint:
    # Not a daemon, as those of a Pool are: it may have workers of its own.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, case).result()
