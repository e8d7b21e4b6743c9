"""What the explorer knows, as plain numbers: boxes under every factor, what carries their ends, cells of a region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import __version__
from ..arithmetic.printing import rounded_down, rounded_up
from ..arithmetic.rounding import further_out
from ..certificates.certificate import Certificate, Question
from ..certificates.margins import box_margins
from ..certificates.region import InvariantRegion
from ..data.arrays import FloatArray
from ..data.limits import PlacedLimits
from ..data.sets import Box, Polytope
from ..data.trajectories import Trajectories
from ..errors import ContradictoryDataError, FalsifiedNormBoundError, InputError, SolverError
from ..parallel import in_parallel
from ..prediction.predictor import MultiStepPredictor
from ..prediction.tube import Tube
from .labels import Clock
from .text import printable, symbols_in

FACTORS = (0.5, 0.9, 1.0, 1.5, 2.0)
"""On all norm bounds, and on all noise bounds."""
PLANS_UP_TO = 12
"""Plans in one explorer."""
SAMPLES_UP_TO = 12
"""Recorded samples that are named for every end of a box, those with the largest weights."""
CELLS_UP_TO = 4000
"""Cells of a region that are drawn."""

Content = dict[str, Any]
"""As JSON has it."""
Variant = tuple[float, float]
"""Factors on the norm bounds and on the noise bounds."""
Ends = tuple[FloatArray, FloatArray]
"""Lower and upper ends of boxes, `(n_steps, n_states)` each."""


def content_of(
    certificates: Mapping[str, Certificate],
    region: InvariantRegion | None,
    truths: Mapping[str, FloatArray],
    title: str,
    n_jobs: int | None,
) -> Content:
    """All that goes into the file."""
    shown = dict(list(certificates.items())[:PLANS_UP_TO])
    runs = _common_runs(shown, region)
    notes = []
    if len(certificates) > len(shown):
        notes.append(f"The first {len(shown)} of {len(certificates)} plans are here.")
    tubes = _tubes(list(shown.values()), n_jobs)
    sets: list[Content] = []
    samples: list[dict[str, list[float]]] = [{} for _ in range(runs.horizon)]
    plans = [
        {
            "name": printable(name),
            "method": certificate.predictor.method.__name__,
            "isCertain": certificate.predictor.method.is_certain,
            "limits": _place(_limits(certificate.limits), sets),
            "x0": certificate.question.x0.tolist(),
            "inputs": certificate.question.inputs.tolist(),
            "truth": _short(truths[name]) if name in truths else None,
            "boxes": [[_boxes(certificate, noise, tubes[norm, noise][k]) for noise in FACTORS] for norm in FACTORS],
            "ends": _ends(certificate, samples),
        }
        for k, (name, certificate) in enumerate(shown.items())
    ]
    n_steps = max((len(c.tube.lower) for c in shown.values()), default=0 if region is None else region.longest)
    clock = Clock.of(runs, n_steps)
    if region is not None and len(region) > CELLS_UP_TO:
        notes.append(f"Of the region's {len(region):,} cells, no more than {CELLS_UP_TO:,} are drawn.")
    return {
        "title": printable(title),
        "version": __version__,
        "states": _named(runs.state_names, runs.state_units),
        "inputs": _named(runs.input_names, runs.input_units),
        "symbols": symbols_in([*runs.state_names, *runs.input_names]),
        "kind": runs.kind.removesuffix("s"),
        "clock": {"unit": clock.unit, "perStep": clock.per_step},
        "factors": FACTORS,
        "limits": sets,
        "plans": plans,
        "samples": samples,
        "region": None if region is None else _region(region),
        "notes": notes,
    }


def _common_runs(certificates: Mapping[str, Certificate], region: InvariantRegion | None) -> Trajectories:
    """Of the first predictor; refused where another one is about another plant."""
    found = [c.predictor.runs for c in certificates.values()] + ([] if region is None else [region.predictor.runs])
    if not found:
        raise InputError("an explorer needs at least one certificate, or a region")
    for runs in found:
        if (runs.state_names, runs.input_names) != (found[0].state_names, found[0].input_names):
            raise InputError(
                f"one certificate is about {', '.join(found[0].state_names)}, another about "
                f"{', '.join(runs.state_names)}: explore the certificates of one plant at a time"
            )
    return found[0]


def _named(names: Sequence[str], units: Sequence[str]) -> list[Content]:
    return [{"name": printable(name), "unit": printable(unit)} for name, unit in zip(names, units, strict=True)]


def _short(values: FloatArray) -> Any:
    """Numbers that are only drawn, with five digits."""
    return [_short(row) for row in values] if np.ndim(values) else float(f"{float(values):.5g}")


# ---- limits


def _limits(limits: PlacedLimits) -> Content:
    """A box that can be moved, and the rows of a polytope, which stay."""
    is_polytope = isinstance(limits.states, Polytope)
    states = Box.unbounded(limits.states.n_dims) if is_polytope else limits.states
    rows = limits.polytope if is_polytope else None
    return {
        "states": _ends_of(states),  # type: ignore[arg-type]
        "inputs": _ends_of(limits.input_box),
        "rates": _ends_of(limits.rate_box),
        "rows": [] if rows is None else [[*n, o] for n, o in zip(rows.normals.tolist(), rows.offsets, strict=True)],
    }


def _ends_of(box: Box) -> Content:
    return {"lower": box.lower.tolist(), "upper": box.upper.tolist()}


def _place(limits: Content, sets: list[Content]) -> int:
    """Where these limits are among those met so far, to which new ones are added."""
    if limits not in sets:
        sets.append(limits)
    return sets.index(limits)


# ---- boxes


def _tubes(certificates: list[Certificate], n_jobs: int | None) -> dict[Variant, list[Ends | str]]:
    """Under all factors, by certificate; where there are no boxes, the reason."""
    variants = [(norm, noise) for norm in FACTORS for noise in FACTORS]
    predictors = {id(c.predictor): c.predictor for c in certificates}
    asked = {key: [k for k, c in enumerate(certificates) if id(c.predictor) == key] for key in predictors}
    tasks = [
        (predictors[key], variant, [certificates[k].question for k in asked[key]])
        for key in predictors
        for variant in variants
        if variant != (1.0, 1.0)
    ]
    found: dict[Variant, list[Ends | str]] = {variant: [""] * len(certificates) for variant in variants}
    found[1.0, 1.0] = [(certificate.tube.lower, certificate.tube.upper) for certificate in certificates]
    for (predictor, variant, _), tubes in zip(tasks, in_parallel(ends_under, tasks, n_jobs), strict=True):
        for k, tube in zip(asked[id(predictor)], tubes, strict=True):
            found[variant][k] = tube
    return found


def ends_under(predictor: MultiStepPredictor, variant: Variant, questions: list[Question]) -> list[Ends | str]:
    """Boxes of some plans with scaled bounds, those of their own starts included; where there are none, the reason."""
    norm, noise = variant
    try:
        scaled = predictor.scaled(norm=norm, noise=noise)
        reach = [noise * np.asarray(question.initial_state_noise) for question in questions]
        tubes = (scaled.boxes(q.x0, q.inputs, initial_state_noise=e) for q, e in zip(questions, reach, strict=True))
        return [(tube.lower, tube.upper) for tube in tubes]
    except (FalsifiedNormBoundError, ContradictoryDataError):
        return ["the recorded data refute these bounds"] * len(questions)
    except SolverError:
        return ["nobody can tell whether the recorded data refute these bounds"] * len(questions)


def _boxes(certificate: Certificate, noise: float, ends: Ends | str) -> Content:
    """Ends of boxes, distances to rows that stay, and the start; or why there are none."""
    if isinstance(ends, str):
        return {"why": ends}
    n_states = ends[0].shape[1]  # a history begins with the present states
    x0, reach = certificate.question.x0[:n_states], noise * certificate.initial_state_noise[:n_states]
    start = _distances(further_out(x0, -reach)[None], further_out(x0, reach)[None], certificate.limits)
    return {**_distances(*ends, certificate.limits), "start": start}


def _distances(lower: FloatArray, upper: FloatArray, limits: PlacedLimits) -> Content:
    ends = {"lower": lower.tolist(), "upper": upper.tolist()}
    if not isinstance(limits.states, Polytope):
        return ends
    margins, hopes = box_margins(lower, upper, limits.polytope)
    return {**ends, "margins": margins.tolist(), "hopes": hopes.tolist()}


def _ends(certificate: Certificate, samples: list[dict[str, list[float]]]) -> Any:
    """By step, state and side: how many samples carry an end, and the largest weights `[run, weight, ...]`.

    Their coordinates go into `samples`, by step and run: the recorded start, then the recorded state.
    """
    predictor, tube = certificate.predictor, certificate.tube
    n_states = predictor.runs.n_states
    found = []
    for n in range(len(tube.lower)):
        Z = predictor.runs.arguments(n + 1)
        owners = {Z[k].tobytes(): k for k in reversed(range(len(Z)))}
        found.append([[_end(predictor, tube, n, i, side, owners, samples) for side in (0, 1)] for i in range(n_states)])
    return found


def _end(
    predictor: MultiStepPredictor,
    tube: Tube,
    n: int,
    i: int,
    side: int,
    owners: dict[bytes, int],
    samples: list[dict[str, list[float]]],
) -> list[float] | None:
    witness, runs = tube.witnesses[n, i][side].witness, predictor.runs
    if witness is None:
        return None
    largest = np.argsort(-np.abs(witness.weights), kind="stable")[:SAMPLES_UP_TO]
    entry: list[float] = [len(witness.weights)]
    for k in largest:
        run = owners[predictor.envelope(n + 1, i).data.X[witness.indices[k]].tobytes()]
        entry += [run, float(f"{witness.weights[k]:.4g}")]
        samples[n].setdefault(str(run), _short(np.concatenate([runs.states[run, 0], runs.states[run, n + 1]])))
    return entry


# ---- regions


def _region(region: InvariantRegion) -> Content:
    """Cells by the places of their ends, in the plane of the first two states through the middle of the limits."""
    whole = region.limits.states
    assert isinstance(whole, Box)
    middle = (whole.lower + whole.upper) / 2.0
    meets = ((region.lower <= middle) & (middle <= region.upper))[:, 2:].all(axis=1)
    cells = [region.cells[k] for k in np.flatnonzero(meets)[:CELLS_UP_TO]]
    n_shown = min(2, len(middle))
    edges = [np.unique([e for c in cells for e in (c.box.lower[j], c.box.upper[j])]) for j in range(n_shown)]
    rows = []
    for cell in cells:
        ends = [[int(np.searchsorted(edges[j], box_end[j])) for j in range(n_shown)] for box_end in _both(cell.box)]
        boxes = [
            [[float(rounded(end, 6)) for end in row[:n_shown]] for row in ends_of_boxes]
            for rounded, ends_of_boxes in ((rounded_down, cell.tube.lower), (rounded_up, cell.tube.upper))
        ]
        rows.append([*ends, _short(cell.inputs), *boxes])
    return {
        "limits": _ends_of(whole),
        "share": region.share,
        "count": len(region),
        "edges": [edge.tolist() for edge in edges],
        "cells": rows,
        "through": _short(middle[2:]),
    }


def _both(box: Box) -> tuple[FloatArray, FloatArray]:
    return box.lower, box.upper
