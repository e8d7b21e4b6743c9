"""Algorithm 1 of the paper, turn by turn: how far its bounds are from the exact optimum given by the path."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.arrays import FloatArray
from ...data.observations import Observations
from ...envelopes.alternating import AlternatingEnvelope
from ...envelopes.closed_form import ClosedFormEnvelope
from ...envelopes.optimal import OptimalEnvelope
from ...kernels.radial import SquaredExponential
from ...models import henon
from ...reporting.figures import panels_of
from ...reporting.palette import BLUE, RED
from ..material import Work
from .result import Comparison, PaperResult

TURNS = (1, 2, 3, 5, 8, 12, 20, 40)
_PRINTED_TURNS = (1, 2, 5, 12, 40)
_COLOURS = (BLUE, RED)
_SHOWN_FROM = 1e-12  # smaller differences are rounding


@dataclass(frozen=True, eq=False)
class Convergence:
    """On one design: widths after each turn, and of the optimum and the closed form, at the same queries."""

    design: str
    widths: FloatArray
    """Shape `(n_turns, n_queries)`."""
    optimal: FloatArray
    largest_gap: float
    """How far the computed optimum may be from the true one."""
    closed_form: FloatArray
    seconds: FloatArray
    """Time per bound, after each number of turns."""
    optimal_seconds: float

    @property
    def excess(self) -> FloatArray:
        """Excess width relative to the optimum, `(n_turns, n_queries)`."""
        return self.widths / self.optimal - 1.0

    @property
    def is_sound(self) -> bool:
        """No turn goes below the optimum (as far as it is known), and none widens a bound."""
        floor = self.optimal - 2.0 * self.largest_gap
        return bool((self.widths >= floor).all() and (np.diff(self.widths, axis=0) <= 1e-9 * self.optimal).all())


def run(work: Work, n_queries: int = 60) -> PaperResult:
    """Example 1 with a noise bound of 1, on a grid and at random."""
    data = {design: Observations(Z, y, 1.0) for design, (Z, y) in sorted(henon.table_data(1.0).items())}
    queries = work.rng.uniform(-henon.LIMIT, henon.LIMIT, (n_queries, 2))
    convergences = [_converge(design, observations, queries, work) for design, observations in data.items()]
    return PaperResult(
        "Algorithm 1: alternating bounds against the exact optimum",
        [row for convergence in convergences for row in _rows(convergence)],
        {"alternating": _figure(convergences)},
        [
            f"{c.design}: a bound takes {1e3 * c.seconds[0]:.1f} ms with one turn, {1e3 * c.seconds[-1]:.1f} ms with "
            f"{TURNS[-1]}, and {1e3 * c.optimal_seconds:.1f} ms by the path, which reaches the optimum"
            for c in convergences
        ],
        {
            "turns": list(TURNS),
            "designs": {
                c.design: {
                    "mean_excess": c.excess.mean(axis=1).tolist(),
                    "largest_excess": c.excess.max(axis=1).tolist(),
                    "optimal_mean_width": float(c.optimal.mean()),
                    "closed_form_mean_width": float(c.closed_form.mean()),
                    "seconds": c.seconds.tolist(),
                    "optimal_seconds": c.optimal_seconds,
                }
                for c in convergences
            },
        },
    )


def _converge(design: str, data: Observations, queries: FloatArray, work: Work) -> Convergence:
    kernel = SquaredExponential(henon.LENGTHSCALE)
    n_bounds = 2 * len(queries)
    with work.stage(f"alternating, {design}") as progress:
        optimum = OptimalEnvelope(data, kernel, henon.NORM_BOUND)
        optimum.bounds(queries[:1])  # compiles
        began = time.perf_counter()
        optimal = optimum.bounds(queries)
        optimal_seconds = (time.perf_counter() - began) / n_bounds
        closed_form = ClosedFormEnvelope(data, kernel, henon.NORM_BOUND).bounds(queries)
        widths, seconds = np.empty((len(TURNS), len(queries))), np.empty(len(TURNS))
        for t, turns in enumerate(TURNS):
            envelope = AlternatingEnvelope(data, kernel, henon.NORM_BOUND, iterations=turns)
            began = time.perf_counter()
            widths[t] = envelope.bounds(queries).width
            seconds[t] = (time.perf_counter() - began) / n_bounds
            progress(t + 1, len(TURNS))
    return Convergence(
        design, widths, optimal.width, float(optimal.gap.max()), closed_form.width, seconds, optimal_seconds
    )


def _rows(convergence: Convergence) -> list[Comparison]:
    rows = [
        Comparison(
            f"{convergence.design}: width beyond the optimum after {turns} turn{'s' if turns > 1 else ''}, %",
            100.0 * float(convergence.excess[TURNS.index(turns)].mean()),
            agrees=convergence.is_sound,
        )
        for turns in _PRINTED_TURNS
    ]
    beyond = 100.0 * float((convergence.closed_form / convergence.optimal - 1.0).mean())
    return [*rows, Comparison(f"{convergence.design}: the closed form, for comparison, %", beyond)]


def _figure(convergences: list[Convergence]) -> Any:
    figure, axes = panels_of(1, 2, width=5.2, height=3.8, sharey=True)
    left, right = axes[0]
    for convergence, colour in zip(convergences, _COLOURS, strict=True):
        excess = np.maximum(convergence.excess, _SHOWN_FROM)
        closed = float((convergence.closed_form / convergence.optimal - 1.0).mean())
        left.loglog(TURNS, excess.mean(axis=1), "o-", color=colour, markersize=3, label=f"{convergence.design}: mean")
        left.loglog(TURNS, excess.max(axis=1), ":", color=colour, label=f"{convergence.design}: largest")
        left.axhline(closed, color=colour, linewidth=0.8, linestyle="--", label=f"{convergence.design}: closed form")
        milliseconds = 1e3 * convergence.seconds
        right.loglog(
            milliseconds, excess.mean(axis=1), "o-", color=colour, markersize=3, label=f"{convergence.design}: turns"
        )
        optimal_ms, label = 1e3 * convergence.optimal_seconds, f"{convergence.design}: path"
        right.plot(optimal_ms, _SHOWN_FROM, "*", color=colour, markersize=11, label=label)
    left.set_xticks(TURNS, [str(turns) for turns in TURNS])
    left.minorticks_off()
    left.set_xlabel("turns")
    left.set_ylabel("width beyond the optimum, relative")
    right.set_xlabel("milliseconds per bound")
    for ax in (left, right):
        ax.legend(fontsize="small")
    return figure
