"""Held-out recordings: how wide their boxes are, compared with a nominal model's error, and contradictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...arithmetic.printing import NONE
from ...control.certainty_equivalent import nominal_models
from ...data.arrays import FloatArray
from ...data.trajectories import Trajectories
from ...errors import InputError
from ...reporting import Gallery, Picture, Section, Table
from ...reporting.held_out import held_out_figure
from ..first_order import FirstOrder, first_order_widths
from ..material import Material, Source
from ..recorded import HeldOut
from ..schema import Count, Scenario, Settings
from .kind import Kind, Listing, Outcome, Run, Task, finite

_HEADER = ("output", "step", "mean", "of\nrange", "most", "error", "of\nrange", "box /\nerror")
_FIRST_ORDER_HEADER = ("first\norder", "narrower\nby")
_CAPTION = (
    "mean: mean half-width of the boxes of held-out {kind}; range: of the recorded values; most: largest half-width "
    "as a share of the range; error: root mean square error of a kernel-ridge model with the same kernels and "
    "priors on the same {kind} as the boxes; box / error: mean divided by error"
)
_FIRST_ORDER_CAPTION = (
    "; first order: mean as a share of the range, for boxes without narrowed histories, without a prior, with one "
    "kernel from interleaved cross-validation, and with the first-order displacement of uncertain histories; "
    "narrower by: how many times wider those are"
)


class RecordingsSettings(Settings):
    """Whether the boxes of held-out data are examined."""

    steps: Annotated[list[Count], Field(default=[])]
    """Steps to examine; by default the first, the middle one and the last."""
    compare_first_order: bool = False
    """Also show the boxes without narrowed histories: no prior, first-order displacements."""


@dataclass(frozen=True)
class Width:
    """The width of the boxes of one output, a given number of steps ahead."""

    output: str
    step: int
    range: float
    """Range of the output over the whole recording."""
    half_width: float
    """On average."""
    largest: float
    error: float
    """Root mean square error of the nominal model."""
    first_order: FirstOrder | None = None
    """Mean half-width of the boxes to compare with, if requested."""

    @property
    def share(self) -> float:
        """As a share of the range."""
        return self.half_width / self.range

    @property
    def ratio(self) -> float:
        """Relative to the nominal model's error."""
        return self.half_width / self.error if self.error else np.inf

    def narrower_by(self, other: FirstOrder) -> float:
        """How many times wider the boxes to compare with are."""
        return other.half_width / self.half_width if self.half_width else np.inf

    def summary(self) -> dict[str, Any]:
        """In JSON types."""
        known = {name: value for name, value in vars(self).items() if name != "first_order"}
        found = {**known, "share_of_range": self.share, "ratio_to_error": finite(self.ratio)}
        if (other := self.first_order) is None:
            return found
        return {
            **found,
            "first_order": finite(other.half_width),
            "first_order_share_of_range": finite(other.half_width / self.range),
            "narrower_by": finite(self.narrower_by(other)),
        }

    def row(self) -> tuple[str, ...]:
        """A table row."""
        other, own = self.first_order, self._own_cells()
        if other is None:
            return own
        if other.reason:
            return *own, NONE, NONE
        return *own, f"{other.half_width / self.range:.1%}", f"{self.narrower_by(other):.1f}"

    def _own_cells(self) -> tuple[str, ...]:
        return (
            self.output,
            str(self.step),
            f"{self.half_width:.3g}",
            f"{self.share:.1%}",
            f"{self.largest / self.range:.1%}",
            f"{self.error:.3g}",
            f"{self.error / self.range:.1%}",
            f"{self.ratio:.1f}",
        )


@dataclass(frozen=True, eq=False)
class RecordingsOutcome(Outcome):
    """Widths of boxes on data that played no part in any choice."""

    held_out: HeldOut
    widths: list[list[Width]]
    """By output, then by step."""

    name: ClassVar[str] = "recordings"

    def summary(self) -> dict[str, Any]:
        return {
            "held_out": len(self.held_out.runs),
            "contradicted": self.held_out.n_contradicting,
            "widths": [width.summary() for widths in self.widths for width in widths],
        }

    @property
    def is_contradicted(self) -> bool:
        return self.held_out.n_contradicting > 0

    @property
    def contradiction(self) -> str:
        text = self.held_out.contradiction
        return f"{text}." if text else ""

    @property
    def _result(self) -> str:
        runs = self.held_out.runs
        return self.held_out.contradiction or f"none of {len(runs)} held-out {runs.kind} contradicts its boxes"

    @property
    def _compared(self) -> list[FirstOrder]:
        """The boxes to compare with; none if no comparison was requested."""
        return [width.first_order for widths in self.widths for width in widths if width.first_order is not None]

    @property
    def _header(self) -> tuple[str, ...]:
        return (*_HEADER, *(_FIRST_ORDER_HEADER if self._compared else ()))

    @property
    def _caption(self) -> str:
        text = _CAPTION.format(kind=self.held_out.runs.kind)
        return text + _FIRST_ORDER_CAPTION if self._compared else text

    def listings(self) -> list[Listing]:
        runs, header = self.held_out.runs, self._header
        return [
            Listing(
                header,
                [[width.row() for width in widths] for widths in self.widths],
                title=f"Boxes of {len(runs)} held-out {runs.kind}",
                caption=self._caption,
                whole=frozenset(range(len(header))),
                is_numeric=True,
            )
        ]

    def remarks(self) -> Iterator[str]:
        if self.is_contradicted:  # that nothing is contradicted is said elsewhere, for all recordings
            yield f"CONTRADICTED: {self._result}"
        if reasons := [other.reason for other in self._compared if other.reason]:
            more = f" ({len(reasons) - 1} more of the kind)" if len(reasons) > 1 else ""
            yield f"first-order boxes to compare with could not be made: {reasons[0]}{more}"

    def finding(self) -> str:
        return f"{self._result[0].upper()}{self._result[1:]}."

    def sections(self) -> list[Section]:
        runs = self.held_out.runs
        text = (
            f"{len(runs)} {runs.kind} played no part in kernels, norm bounds or boxes. {self.finding()} The truth "
            "is unknown here: measurements can contradict the boxes, but never confirm them."
        )
        rows = [width.row() for widths in self.widths for width in widths]
        (figure,) = self.figures().values()
        caption = (
            "Boxes one step ahead and the full horizon ahead, each drawn at the time that it predicts. A "
            "measurement may lie outside its box by up to the noise bound without contradicting it."
        )
        if self.is_contradicted:
            caption += " Red: contradicted by the measurement."
        pictures = Gallery([Picture(figure, "Held-out outputs over time and the boxes around them.", caption)])
        return [Section("Held-out recordings", [text, Table(self._header, rows, self._caption), pictures])]

    def figures(self) -> dict[str, Any]:
        found = self.held_out
        return {"recordings": held_out_figure(found.runs, found.tube, found.contradicted)}


def prepare(settings: RecordingsSettings, scenario: Scenario, source: Source) -> Run | None:
    """Check that the steps were recorded."""
    last = source.horizon
    if settings.steps and max(settings.steps) > last:
        raise InputError(f"recordings.steps: the recorded {source.kind} have only {last} steps")
    steps = sorted(set(settings.steps)) or sorted({1, (last + 1) // 2, last})
    return partial(run, steps, source.recorded if settings.compare_first_order else None)


def run(steps: list[int], compared: Trajectories | None, task: Task) -> RecordingsOutcome:
    """Compare the boxes from the test of the assumptions with a nominal model, built here.

    First-order boxes to compare with are also built here, if all recordings are given for them.
    """
    held_out = task.material.held_out
    if held_out is None:
        raise InputError("[recordings]: with so few runs, predictor.held_out holds out none; raise it")
    with task.work.stage("a nominal model on held-out data") as progress:
        errors = _nominal_errors(task.material, held_out)
        progress(1, 1)
    others = None if compared is None else _first_order(steps, compared, held_out, task)
    runs = held_out.runs
    recorded = np.concatenate([part.states.reshape(-1, runs.n_states) for part in (task.material.runs, runs)])
    spread = np.ptp(recorded, axis=0)
    half = (held_out.tube.upper - held_out.tube.lower) / 2.0

    def width(n: int, i: int) -> Width:
        mine, error = half[:, n - 1, i], float(np.sqrt(np.mean(errors[:, n - 1, i] ** 2)))
        other = None if others is None else others[i][steps.index(n)]
        return Width(runs.state_names[i], n, float(spread[i]), float(mine.mean()), float(mine.max()), error, other)

    return RecordingsOutcome(task, held_out, [[width(n, i) for n in steps] for i in range(runs.n_states)])


def _first_order(steps: list[int], recorded: Trajectories, held_out: HeldOut, task: Task) -> list[list[FirstOrder]]:
    """By output, then by step; from the runs as recorded, whatever formulation was chosen."""
    kept, tested = (
        replace(
            runs,
            initial_state_noise=recorded.initial_state_noise,
            disturbance_bound=recorded.disturbance_bound,
            has_residual_bound=False,
        )
        for runs in (task.material.runs, held_out.runs)
    )
    with task.work.stage("first-order boxes to compare with") as progress:
        return first_order_widths(kept, tested, steps, task.work.n_jobs, progress)


def _nominal_errors(material: Material, held_out: HeldOut) -> FloatArray:
    """Recorded values minus kernel-ridge predictions, `(n_runs, n_steps, n_states)`."""
    chosen, runs = material.selection, held_out.runs
    assert chosen is not None
    models = nominal_models(material.runs, chosen.kernels, chosen.regularisations, chosen.priors)
    said = [[model(runs.arguments(n)) for model in row] for n, row in enumerate(models, start=1)]
    errors: FloatArray = runs.states[:, 1:] - np.moveaxis(np.array(said), -1, 0)
    return errors


def complaint(settings: RecordingsSettings, scenario: Scenario) -> str:
    """There must be recordings, some of them held out."""
    if scenario.data is None or scenario.predictor.held_out == 0.0:
        return "[recordings] needs [data] with recorded runs, and predictor.held_out to hold out a share of them"
    return ""


KIND = Kind(
    "recordings",
    RecordingsSettings,
    prepare,
    complaint,
    files=("recordings.png", "recordings.svg"),
    tells_contradictions=True,
)
