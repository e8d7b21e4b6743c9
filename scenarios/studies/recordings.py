"""Recordings that were held out: how wide their boxes are, beside a nominal model's error, and what contradicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ...control.certainty_equivalent import nominal_models
from ...data.arrays import FloatArray
from ...errors import InputError
from ...reporting import Gallery, Picture, Section, Table
from ...reporting.held_out import held_out_figure
from ..material import Material, Source
from ..recorded import HeldOut
from ..schema import Count, Scenario, Settings
from .kind import Kind, Listing, Outcome, Run, Task

_HEADER = ("output", "step", "half-width", "of range", "most", "error", "of range", "box / error")
_CAPTION = (
    "half-width: of the boxes of held-out {kind}, on average, and at most; range: of what was recorded; error: "
    "of a kernel-ridge model with the same kernels and priors on the same {kind} as the boxes, root mean square; "
    "box / error: half-width by error"
)


class RecordingsSettings(Settings):
    """Whether the boxes of what was held out are looked at."""

    steps: Annotated[list[Count], Field(default=[])]
    """Of which; by default the first, the middle one, and the last."""


@dataclass(frozen=True)
class Width:
    """Of the boxes of one output, so many steps ahead."""

    output: str
    step: int
    range: float
    """Of the output in all that was recorded."""
    half_width: float
    """On average."""
    largest: float
    error: float
    """Of the nominal model, root mean square."""

    @property
    def share(self) -> float:
        """Of the range."""
        return self.half_width / self.range

    @property
    def ratio(self) -> float:
        """To the nominal model's error."""
        return self.half_width / self.error if self.error else np.inf

    def summary(self) -> dict[str, Any]:
        """As JSON knows it."""
        ratio = self.ratio if np.isfinite(self.ratio) else None
        return {**vars(self), "share_of_range": self.share, "ratio_to_error": ratio}

    def row(self) -> tuple[str, ...]:
        """Of a table."""
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
    """Widths of boxes that nothing was chosen for."""

    held_out: HeldOut
    widths: list[list[Width]]
    """By output, then step."""

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

    def listings(self) -> list[Listing]:
        kind = self.held_out.runs.kind
        return [
            Listing(
                _HEADER,
                [[width.row() for width in widths] for widths in self.widths],
                title=f"Boxes of {len(self.held_out.runs)} held-out {kind}",
                caption=_CAPTION.format(kind=kind),
                whole=frozenset(range(len(_HEADER))),
                is_numeric=True,
            )
        ]

    def remarks(self) -> Iterator[str]:
        if self.is_contradicted:  # that nothing is contradicted is said of all recordings
            yield f"CONTRADICTED: {self._result}"

    def finding(self) -> str:
        return f"{self._result[0].upper()}{self._result[1:]}."

    def sections(self) -> list[Section]:
        runs = self.held_out.runs
        text = (
            f"{len(runs)} {runs.kind} had no part in kernels, norm bounds and boxes. {self.finding()} Nobody knows the "
            "truth here: what was measured can contradict the boxes, and never confirm them."
        )
        rows = [width.row() for widths in self.widths for width in widths]
        (figure,) = self.figures().values()
        caption = (
            "Boxes one step and the most steps ahead, each where what it predicts was measured. A measurement may lie "
            "outside its box by the noise bound without contradicting it."
        )
        if self.is_contradicted:
            caption += " Red: contradicted by the measurement."
        pictures = Gallery([Picture(figure, "Held-out outputs over time and the boxes around them.", caption)])
        return [Section("Held-out recordings", [text, Table(_HEADER, rows, _CAPTION.format(kind=runs.kind)), pictures])]

    def figures(self) -> dict[str, Any]:
        found = self.held_out
        return {"recordings": held_out_figure(found.runs, found.tube, found.contradicted)}


def prepare(settings: RecordingsSettings, scenario: Scenario, source: Source) -> Run | None:
    """Steps that were recorded."""
    last = source.horizon
    if settings.steps and max(settings.steps) > last:
        raise InputError(f"recordings.steps: the recorded {source.kind} have only {last} steps")
    return partial(run, sorted(set(settings.steps)) or sorted({1, (last + 1) // 2, last}))


def run(steps: list[int], task: Task) -> RecordingsOutcome:
    """Boxes were made when the assumptions were tested; the nominal model is made here."""
    held_out = task.material.held_out
    if held_out is None:
        raise InputError("[recordings]: predictor.held_out of so few runs is none; raise it")
    with task.work.stage("a nominal model on what was held out") as progress:
        errors = _nominal_errors(task.material, held_out)
        progress(1, 1)
    runs = held_out.runs
    recorded = np.concatenate([part.states.reshape(-1, runs.n_states) for part in (task.material.runs, runs)])
    spread = np.ptp(recorded, axis=0)
    half = (held_out.tube.upper - held_out.tube.lower) / 2.0

    def width(n: int, i: int) -> Width:
        mine, error = half[:, n - 1, i], float(np.sqrt(np.mean(errors[:, n - 1, i] ** 2)))
        return Width(runs.state_names[i], n, float(spread[i]), float(mine.mean()), float(mine.max()), error)

    return RecordingsOutcome(task, held_out, [[width(n, i) for n in steps] for i in range(runs.n_states)])


def _nominal_errors(material: Material, held_out: HeldOut) -> FloatArray:
    """What was recorded less what kernel-ridge models say of it, `(n_runs, n_steps, n_states)`."""
    chosen, runs = material.selection, held_out.runs
    assert chosen is not None
    models = nominal_models(material.runs, chosen.kernels, chosen.regularisations, chosen.priors)
    said = [[model(runs.arguments(n)) for model in row] for n, row in enumerate(models, start=1)]
    errors: FloatArray = runs.states[:, 1:] - np.moveaxis(np.array(said), -1, 0)
    return errors


def complaint(settings: RecordingsSettings, scenario: Scenario) -> str:
    """There must be recordings, and a part of them that is held out."""
    if scenario.data is None or scenario.predictor.held_out == 0.0:
        return "[recordings] needs [data] with recorded runs, and a share of them that predictor.held_out keeps back"
    return ""


KIND = Kind(
    "recordings",
    RecordingsSettings,
    prepare,
    complaint,
    files=("recordings.png", "recordings.svg"),
    tells_contradictions=True,
)
