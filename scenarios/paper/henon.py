"""Example 1 of the paper: surfaces of the optimal upper bound, and both kinds of bands on a slice.

Where ours differ from the printed numbers, the reason is the nugget that the authors add to the diagonal of the kernel
matrix: with it, ours match the printed ones to the digit. A row agrees only if that is so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...assumptions.regression import kernel_ridge
from ...data.arrays import FloatArray
from ...data.observations import Observations
from ...engine.functionals import Points
from ...envelopes.base import Band
from ...envelopes.closed_form import ClosedFormEnvelope
from ...envelopes.optimal import OptimalEnvelope
from ...kernels.base import Kernel
from ...kernels.radial import SquaredExponential
from ...models import henon
from ...parallel import collect, in_parallel
from ...reporting.figures import panels_of
from ...reporting.palette import BLUE, DARK_GREY, GREEN
from ..material import Work
from .result import Comparison, PaperResult

DISTANCES = {1.0: {"grid": 3.01, "random": 8.02}, 5.0: {"grid": 9.57, "random": 18.97}}
"""As printed: noise level -> design -> average of `C - f` over the domain."""
WIDTHS = {"grid": {"optimal": 8.93, "closed form": 21.13}, "random": {"optimal": 18.96, "closed form": 34.62}}
"""As printed: design -> method -> average width on the slice, with the noise level 1."""

PYTHON_NUGGET = 1e-8
"""On the whole diagonal in the authors' Python, including the query's entry: surfaces and tables."""
MATLAB_NUGGET = 1e-5
"""On the diagonal of the data in the authors' MATLAB: the slice."""
CONIC_ACCURACY = 1e-5
"""Relative accuracy granted to the solver of their optimal bounds."""
QUERIES_PER_AXIS, QUERIES_ON_SLICE = 50, 100
SLICED_AT = -3.0
SLICE_RIDGE = 100 * 1e-2
"""Regularisation of the nominal model at the centre of the closed form."""

_TOP = 50.0  # of the drawn surfaces, as in the paper


@dataclass(frozen=True, eq=False)
class RegularisedValue(Points):
    """`f(x)` with a nugget on `k(x, x)`, as in the authors' Python: bounds hold, but are wider than necessary."""

    added: float = 0.0

    @classmethod
    def many(cls, queries: FloatArray, added: float) -> list[RegularisedValue]:
        """One per row of `queries`."""
        return [cls(x[None, :], np.ones(1), added) for x in queries]

    def squared_norm(self, kernel: Kernel) -> float:
        return super().squared_norm(kernel) + self.added

    def residual(self, kernel: Kernel, X: FloatArray, fall: FloatArray, weights: FloatArray) -> tuple[float, float]:
        value, error = super().residual(kernel, X, fall, weights)
        return value + self.added, error

    def precise_residual(self, kernel: Kernel, X: FloatArray, weights: FloatArray) -> tuple[float, float] | None:
        precise = super().precise_residual(kernel, X, weights)
        return None if precise is None else (precise[0] + self.added, precise[1])


def rounds_to(value: float, printed: float, accuracy: float = 0.0) -> bool:
    """Whether `value` rounds to the two printed decimals, given the relative accuracy of a solver."""
    return abs(value - printed) <= 0.005 + accuracy * abs(printed)


@dataclass(frozen=True, eq=False)
class Surface:
    """The optimal upper bound over the domain, for one design and noise level."""

    noise: float
    design: str
    samples: FloatArray
    upper: FloatArray
    """At the rows of `henon.grid`."""
    truth: FloatArray
    distance_as_coded: float
    """The average distance with the authors' nugget."""

    @property
    def distance(self) -> float:
        """The average distance from the bound to the truth."""
        return float(np.mean(self.upper - self.truth))

    def row(self) -> Comparison:
        """The average distance beside the printed one."""
        printed = DISTANCES[self.noise][self.design]
        return Comparison(
            f"{self.design}, noise {self.noise:g}: average distance from C to the truth",
            self.distance,
            printed,
            rounds_to(self.distance_as_coded, printed, CONIC_ACCURACY) and self.distance <= self.distance_as_coded,
            f"{self.distance_as_coded:.2f} with their nugget, {PYTHON_NUGGET:.0e}",
        )


def compute_surface(noise: float, design: str, n_per_axis: int) -> Surface:
    """One of the paper's surfaces, for a noise level and a design."""
    Z, y = henon.surface_data(noise)[design]
    data, kernel = Observations(Z, y, noise), SquaredExponential(henon.LENGTHSCALE)
    queries = henon.grid(n_per_axis)
    truth = henon.truth(queries)

    def upper(nugget: float) -> FloatArray:
        envelope = OptimalEnvelope(data, kernel, henon.NORM_BOUND, nugget=nugget)
        bounds = envelope.upper_bounds(envelope.sides[1], RegularisedValue.many(queries, nugget))
        return np.array([bound.value for bound in bounds])

    as_coded = float(np.mean(upper(PYTHON_NUGGET) - truth))
    return Surface(noise, design, Z, upper(0.0), truth, as_coded)


@dataclass(frozen=True, eq=False)
class Slice:
    """Bands along `z2` at a fixed `z1`, for one design."""

    design: str
    samples: FloatArray
    outputs: FloatArray
    z2: FloatArray
    truth: FloatArray
    optimal: Band
    optimal_as_coded: Band
    """With the authors' nugget."""
    closed_form: Band
    """With the authors' nugget, which is part of the method here."""
    closed_form_plain: Band
    """Without one."""

    @property
    def bands(self) -> list[Band]:
        """The optimal band, ours and as coded; then the closed form, as coded and without a nugget."""
        return [self.optimal, self.optimal_as_coded, self.closed_form, self.closed_form_plain]

    @property
    def n_misses(self) -> int:
        """Queries where some band does not contain the truth."""
        missed = [(band.lower > self.truth) | (band.upper < self.truth) for band in self.bands]
        return int(np.any(missed, axis=0).sum())

    @property
    def n_outside(self) -> int:
        """Queries where an optimal band leaves the closed form with the same nugget."""
        pairs = [(self.optimal_as_coded, self.closed_form), (self.optimal, self.closed_form_plain)]
        left = [(inner.lower < outer.lower) | (inner.upper > outer.upper) for inner, outer in pairs]
        return int(np.any(left, axis=0).sum())

    def rows(self) -> list[Comparison]:
        """The mean widths beside the printed ones."""
        optimal, as_coded, closed_form, plain = (float(band.width.mean()) for band in self.bands)
        printed = WIDTHS[self.design]
        return [
            Comparison(
                f"slice, {self.design}: width of the optimal band",
                optimal,
                printed["optimal"],
                rounds_to(as_coded, printed["optimal"], CONIC_ACCURACY) and optimal <= as_coded,
                f"{as_coded:.2f} with their nugget, {MATLAB_NUGGET:.0e}",
            ),
            Comparison(
                f"slice, {self.design}: width of the closed form",
                closed_form,
                printed["closed form"],
                rounds_to(closed_form, printed["closed form"]),
                f"with their nugget and ridge model; {plain:.2f} without a nugget",
            ),
        ]


def compute_slice(design: str, n_queries: int) -> Slice:
    """At `z1 = -3`, with noise level 1."""
    Z, y = henon.slice_data(1.0)[design]
    data, kernel = Observations(Z, y, 1.0), SquaredExponential(henon.LENGTHSCALE)
    z2 = np.linspace(-henon.LIMIT, henon.LIMIT, n_queries)
    queries = np.column_stack([np.full(n_queries, SLICED_AT), z2])

    def optimal(nugget: float) -> Band:
        return OptimalEnvelope(data, kernel, henon.NORM_BOUND, nugget=nugget).bounds(queries, n_jobs=1)

    def closed_form(nugget: float) -> Band:
        model = kernel_ridge(data, kernel, SLICE_RIDGE + nugget)
        return ClosedFormEnvelope(data, kernel, henon.NORM_BOUND, nugget=nugget, model=model).bounds(queries, n_jobs=1)

    return Slice(
        design,
        Z,
        y,
        z2,
        henon.truth(queries),
        optimal(0.0),
        optimal(MATLAB_NUGGET),
        closed_form(MATLAB_NUGGET),
        closed_form(0.0),
    )


def run(work: Work) -> PaperResult:
    """Surfaces and slice, on the paper's data: the seed plays no part."""
    settings = [(noise, design, QUERIES_PER_AXIS) for noise, designs in DISTANCES.items() for design in designs]
    with work.stage("surfaces") as progress:
        surfaces = collect(in_parallel(compute_surface, settings, work.n_jobs), len(settings), progress)
    slices: list[Slice] = []
    with work.stage("slice") as progress:
        for design in WIDTHS:
            slices.append(compute_slice(design, QUERIES_ON_SLICE))
            progress(len(slices), len(WIDTHS))
    misses = sum(int((s.upper < s.truth).sum()) for s in surfaces) + sum(s.n_misses for s in slices)
    outside = sum(s.n_outside for s in slices)
    rows = [
        *(surface.row() for surface in surfaces),
        *(row for s in slices for row in s.rows()),
        Comparison("queries where a bound misses the truth", misses, None, misses == 0, "there must be none"),
        Comparison(
            "slice: queries where the optimal band leaves the closed form", outside, None, outside == 0, "likewise"
        ),
    ]
    return PaperResult(
        "Example 1: optimal bounds of a function of two variables",
        rows,
        {"surfaces": _surfaces(surfaces), "distances": _distances(surfaces), "slice": _slices(slices)},
        [
            "The data are the authors' own, drawn again from their seeds. Ours have nothing on the diagonal of the "
            f"kernel matrix; theirs have {PYTHON_NUGGET:.0e} there for the surfaces (and as much on k(x, x)), and "
            f"{MATLAB_NUGGET:.0e} for the slice, which nearly doubles the width of their optimal band on the grid.",
            "The closed form is another matter: it inverts the kernel matrix, and at random inputs only a nugget "
            "keeps the inverse from amplifying the noise. So ours uses their nugget.",
        ],
        {"distances_as_coded": [[s.noise, s.design, s.distance_as_coded] for s in surfaces]},
    )


def _mesh(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    n = round(len(values) ** 0.5)
    axis = np.linspace(-henon.LIMIT, henon.LIMIT, n)
    return *np.meshgrid(axis, axis, indexing="ij"), values.reshape(n, n)


def _surfaces(surfaces: Sequence[Surface]) -> Any:
    """The bound above the truth."""
    from matplotlib.patches import Patch

    figure, panels = panels_of(2, 2, width=4.6, height=3.7, subplot_kw={"projection": "3d"})
    for axes, surface in zip(panels.flat, surfaces, strict=True):
        shown = np.minimum(surface.upper, _TOP)
        for values, colour, alpha in ((surface.truth, DARK_GREY, 0.6), (shown, BLUE, 0.35)):
            axes.plot_surface(
                *_mesh(values), color=colour, alpha=alpha, linewidth=0, rcount=50, ccount=50, rasterized=True
            )
        axes.set_title(_title(surface), y=0.97)
        axes.set(xlabel="z1", ylabel="z2", zlabel="f", zlim=(-100.0, _TOP))
        axes.view_init(23, -58)
        axes.set_box_aspect(None, zoom=0.86)
    label = f"upper bound C, cut at {_TOP:g}"
    handles = [Patch(color=DARK_GREY, alpha=0.6, label="truth"), Patch(color=BLUE, alpha=0.35, label=label)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _distances(surfaces: Sequence[Surface]) -> Any:
    """How far above the truth the bound is, and where: one colour scale per noise level."""
    figure, panels = panels_of(2, 2, width=4.6, height=3.7, sharex=True, sharey=True)
    for row, noise in zip(panels, DISTANCES, strict=True):
        shown = [surface for surface in surfaces if surface.noise == noise]
        top = float(np.percentile([s.upper - s.truth for s in shown], 97.0))
        for axes, surface in zip(row, shown, strict=True):
            mesh = axes.pcolormesh(
                *_mesh(surface.upper - surface.truth), cmap="viridis", vmin=0.0, vmax=top, rasterized=True
            )
            axes.plot(*surface.samples.T, ".", color="white", markersize=3)
            axes.set_title(_title(surface))
            axes.set_aspect("equal")
        row[0].set_ylabel("z2")
        figure.colorbar(mesh, ax=list(row), label="C - f", extend="max")
    for axes in panels[-1]:
        axes.set_xlabel("z1")
    return figure


def _title(surface: Surface) -> str:
    return f"{surface.design}, noise {surface.noise:g}: distance {surface.distance:.2f}"


def _slices(slices: Sequence[Slice]) -> Any:
    figure, panels = panels_of(1, len(slices), width=5.4, height=3.8, sharex=True, sharey=True)
    for axes, s in zip(panels[0], slices, strict=True):
        for band, colour, alpha, label in (
            (s.closed_form, GREEN, 0.2, "closed form, their nugget"),
            (s.optimal_as_coded, BLUE, 0.2, "optimal, their nugget"),
            (s.optimal, BLUE, 0.45, "optimal"),
        ):
            axes.fill_between(s.z2, band.lower, band.upper, color=colour, alpha=alpha, linewidth=0.0, label=label)
        axes.plot(s.z2, s.truth, "k--", linewidth=1.2, label="truth")
        near = np.abs(s.samples[:, 0] - SLICED_AT) <= 0.5
        axes.plot(s.samples[near, 1], s.outputs[near], "k.", markersize=5, label="samples within 0.5 of the slice")
        widths = f"{s.optimal.width.mean():.2f} optimal, {s.closed_form.width.mean():.2f} closed form"
        axes.set_title(f"{s.design}: widths {widths}")
        axes.set_xlabel("z2")
    panels[0][0].set_ylabel(f"f({SLICED_AT:g}, z2)")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
