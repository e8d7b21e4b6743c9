"""Benchmarks of bounds and of certificates: all numbers from one run, speed as a ratio to a named alternative."""

from __future__ import annotations

import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..certificates.certificate import certify_plans
from ..data.arrays import FloatArray
from ..data.observations import Observations
from ..envelopes.alternating import AlternatingEnvelope
from ..envelopes.base import Band, Envelope
from ..envelopes.closed_form import ClosedFormEnvelope
from ..envelopes.conic import ConicEnvelope
from ..envelopes.optimal import OptimalEnvelope
from ..kernels.base import Kernel
from ..kernels.radial import SquaredExponential
from ..models import henon
from ..scenarios.material import CLOSED_FORM, OPTIMAL, Source, Work, gather, plan_from
from ..scenarios.schema import load_scenario

_LONG_ENOUGH = 0.3  # seconds that repetitions of a call add up to, at least
_MOST_REPEATS = 20

_Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class BenchProblem:
    """Data and queries to bound."""

    name: str
    data: Observations
    kernel: Kernel
    norm_bound: float
    queries: FloatArray


@dataclass(frozen=True)
class Measurement:
    """One method on one problem; times in seconds. A band takes two bounds per query."""

    problem: str
    n_samples: int
    method: str
    n_bounds: int
    setup_s: float
    bound_s: float
    conic_ratio: float | None
    """How many times faster, per bound, than the faster of the two conic formulations."""
    largest_relative_gap: float | None
    mean_active: float | None
    mean_width: float
    """Over the queries that all methods bounded."""
    peak_memory_mb: float | None


def example_1(gridded: bool, n_queries: int = 100) -> BenchProblem:
    """The paper's Example 1: 100 samples, on a grid or at random."""
    rng = np.random.default_rng(1)
    data = henon.observations(100, 1.0, rng, gridded=gridded)
    queries = rng.uniform(-henon.LIMIT, henon.LIMIT, (n_queries, 2))
    kernel = SquaredExponential(henon.LENGTHSCALE)
    name = f"Example 1, {'grid' if gridded else 'random'}"
    return BenchProblem(name, data, kernel, norm_bound=henon.NORM_BOUND, queries=queries)


def smooth_sequences(n: int = 800, n_queries: int = 100) -> BenchProblem:
    """Two states and the eight inputs with which a controller regulates them, as in the paper's Example 3."""
    rng = np.random.default_rng(2)

    def sequences(count: int) -> FloatArray:
        states = rng.uniform(-1.0, 1.0, (count, 2))
        feedback = np.outer(states @ [0.6, 0.3], 0.7 ** np.arange(8))
        return np.hstack([states, feedback + 0.1 * np.tanh(states[:, :1]) * np.cos(np.arange(8))])

    X, queries = sequences(n), sequences(n_queries)
    return _known_function("smooth sequences, 10-D", rng, X, queries=queries, lengthscale=2.0, norm=5.0)


def random_design(n: int = 800, n_queries: int = 20) -> BenchProblem:
    """Inputs all over a cube in ten dimensions: hundreds of active points."""
    rng = np.random.default_rng(3)
    X, queries = rng.uniform(-1.0, 1.0, (n, 10)), rng.uniform(-1.0, 1.0, (n_queries, 10))
    return _known_function("random design, 10-D", rng, X, queries=queries, lengthscale=1.5, norm=3.0)


def large(n: int, n_dims: int = 3, n_queries: int = 5, lengthscale: float | None = None) -> BenchProblem:
    """Inputs all over a cube in three dimensions, or more, with noise that limits what many samples can reveal."""
    rng = np.random.default_rng(4)
    X, queries = rng.uniform(-1.0, 1.0, (n, n_dims)), rng.uniform(-1.0, 1.0, (n_queries, n_dims))
    name, default = f"large, {n_dims}-D", 0.5 if n_dims <= 3 else 1.5
    return _known_function(name, rng, X, queries=queries, lengthscale=lengthscale or default, norm=5.0, noise_bound=0.3)


def _known_function(
    name: str,
    rng: np.random.Generator,
    X: FloatArray,
    *,
    queries: FloatArray,
    lengthscale: float,
    norm: float,
    noise_bound: float = 0.06,
) -> BenchProblem:
    """Samples of a random kernel expansion of the given norm; the norm bound is 1.2 times that."""
    kernel = SquaredExponential(lengthscale)
    centres = rng.uniform(X.min(axis=0), X.max(axis=0), (60, X.shape[1]))
    weights = rng.normal(size=60)
    weights *= norm / np.sqrt(weights @ kernel(centres) @ weights)
    y = kernel(X, centres) @ weights + rng.uniform(-noise_bound, noise_bound, len(X))
    return BenchProblem(name, Observations(X, y, noise_bound), kernel, norm_bound=1.2 * norm, queries=queries)


@dataclass(frozen=True, eq=False)
class Timing:
    """A band, with the setup time and the time per bound, in seconds."""

    band: Band
    setup_s: float
    bound_s: float


def timed(problem: BenchProblem, family: type[Envelope], options: dict[str, Any], queries: FloatArray) -> Timing:
    """One method on some queries of a problem."""
    began = time.perf_counter()
    envelope = family(problem.data, problem.kernel, problem.norm_bound, **options)
    envelope.bounds(problem.queries[-1:])  # compiles, factorises, and does whatever else is done only once
    setup_s = time.perf_counter() - began
    bands: list[Band] = []
    seconds = quickest(lambda: bands.append(envelope.bounds(queries)))
    return Timing(bands[0], setup_s, bound_s=seconds / (2 * len(queries)))


def quickest(call: Callable[[], Any]) -> float:
    """Seconds of the quickest of some calls: on a shared machine, what others do only adds to them."""
    seconds: list[float] = []
    while sum(seconds) < _LONG_ENOUGH and len(seconds) < _MOST_REPEATS:
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


_METHODS: dict[str, tuple[type[Envelope], dict[str, Any]]] = {
    "path": (OptimalEnvelope, {}),
    "conic primal (Clarabel)": (ConicEnvelope, {"formulation": "primal"}),
    "conic dual (Clarabel)": (ConicEnvelope, {"formulation": "dual"}),
    "alternating, 10 turns": (AlternatingEnvelope, {"iterations": 10}),
    "closed form": (ClosedFormEnvelope, {}),
}


def run(progress: _Progress = lambda message: None) -> dict[str, Any]:
    """The whole benchmark: the machine, and one measurement per method and problem."""
    measurements: list[Measurement] = []
    for problem, n_conic in (
        (example_1(gridded=True), 10),
        (example_1(gridded=False), 10),
        (smooth_sequences(), 1),
        (random_design(), 1),
    ):
        measurements += _compare(problem, n_conic, progress)
    for n, n_dims in ((5_000, 3), (20_000, 3), (100_000, 3), (100_000, 10)):
        progress(f"path, {n} samples, {n_dims}-D")
        measurements.append(_in_fresh_process(n, n_dims))
    machine = {
        "version": __version__,
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "numpy": np.__version__,
    }
    return {"machine": machine, "measurements": [asdict(m) for m in measurements]}


@dataclass(frozen=True)
class PlanMeasurement:
    """One method on the plans of the CSTR scenario; times in seconds."""

    method: str
    n_samples: int
    bound_s: float
    conic_ratio: float
    """How many times faster, per bound, than the conic programme."""
    plan_s: float | None = None
    """One plan: two bounds per step and state."""
    plans_per_second: float | None = None
    """Many plans, on all processes."""


def run_plans(work: Work, n_plans: int = 1000) -> list[PlanMeasurement]:
    """How long it takes to certify plans of the CSTR scenario once the predictors are built."""
    scenario, folder = load_scenario("cstr")
    material = gather(scenario, Source.of(scenario, folder), work)
    assert material.control is not None
    limits = material.limits
    x0 = work.rng.uniform(limits.states.lower, limits.states.upper, (n_plans, material.runs.n_states))
    inputs = np.array([plan.inputs for plan in plan_from(material.control, x0, "plans to certify", work)])
    n_bounds = 2 * material.runs.horizon * material.runs.n_states
    rows: list[PlanMeasurement] = []
    with work.stage("one bound by the conic programme") as progress:
        last = material.predictors[OPTIMAL].envelopes[-1][0]
        conic = ConicEnvelope(last.data, last.kernel, last.norm_bound)
        began = time.perf_counter()
        conic.bounds(np.concatenate([x0[0], inputs[0].ravel()])[None])
        conic_s = (time.perf_counter() - began) / 2.0
        rows.append(PlanMeasurement("conic dual (Clarabel)", len(last.data), bound_s=conic_s, conic_ratio=1.0))
        progress(1, 1)
    for method in (OPTIMAL, CLOSED_FORM):
        predictor = material.predictors[method]
        with work.stage(f"certifying {n_plans} plans, {method}") as progress:
            seconds = []
            for i in range(20):  # the first ones warm up
                began = time.perf_counter()
                certify_plans(predictor, x0[i : i + 1], inputs[i : i + 1], limits=limits, n_jobs=1)
                seconds.append(time.perf_counter() - began)
            plan_s = float(np.median(seconds[5:]))
            began = time.perf_counter()
            certify_plans(predictor, x0, inputs, limits=limits, n_jobs=work.n_jobs)
            rate = n_plans / (time.perf_counter() - began)
            bound_s = plan_s / n_bounds
            rows.append(
                PlanMeasurement(
                    method,
                    len(last.data),
                    bound_s=bound_s,
                    conic_ratio=conic_s / bound_s,
                    plan_s=plan_s,
                    plans_per_second=rate,
                )
            )
            progress(1, 1)
    return rows


def _compare(problem: BenchProblem, n_conic: int, progress: _Progress) -> Iterator[Measurement]:
    """All methods on one problem; the slow conic ones only on its first few queries."""
    raw = {}
    for method in _METHODS:
        progress(f"{method}, {len(problem.data)} samples, {problem.name}")
        queries = problem.queries[:n_conic] if method.startswith("conic") else problem.queries
        raw[method] = _measure(problem, method, queries, n_shared=n_conic)
    conic = min(m.bound_s for name, m in raw.items() if name.startswith("conic"))
    for measurement in raw.values():
        yield Measurement(**{**asdict(measurement), "conic_ratio": conic / measurement.bound_s})


def _measure(problem: BenchProblem, method: str, queries: FloatArray, n_shared: int) -> Measurement:
    timing = timed(problem, *_METHODS[method], queries)
    band = timing.band
    has_gap = not np.isnan(band.gap).all()
    return Measurement(
        problem=problem.name,
        n_samples=len(problem.data),
        method=method,
        n_bounds=2 * len(queries),
        setup_s=timing.setup_s,
        bound_s=timing.bound_s,
        conic_ratio=None,
        largest_relative_gap=float(np.nanmax(band.relative_gap)) if has_gap else None,
        mean_active=mean_active(band),
        mean_width=float(band.width[:n_shared].mean()),
        peak_memory_mb=None,
    )


def mean_active(band: Band) -> float | None:
    """How many data a bound rests on, on average; None where a method does not say."""
    sizes = [len(w.indices) for pair in band.witnesses for w in pair if w is not None]
    return float(np.mean(sizes)) if sizes else None


def _in_fresh_process(n: int, n_dims: int) -> Measurement:
    """The path alone on many samples, in a process of its own so that the peak memory is its own too."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure_large, (n, n_dims))


def _measure_large(n: int, n_dims: int) -> Measurement:
    problem = large(n, n_dims)
    measurement = _measure(problem, "path", problem.queries, n_shared=len(problem.queries))
    return Measurement(**{**asdict(measurement), "peak_memory_mb": peak_memory_mb()})


def peak_memory_mb() -> float:
    """Of this process alone: on Linux, `getrusage` starts from the parent's value."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) / 1024.0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2.0**20  # bytes on macOS
