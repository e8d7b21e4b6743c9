"""The file of a region: versioned JSON, self-contained, checked by `checker.py`, which knows nothing of this module.

Its JSON Schema is `docs/region.schema.json`, made from the classes below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from ..data.arrays import FloatArray, IndexArray
from ..data.fields import stacked
from ..data.sets import Box
from ..errors import InputError
from ..prediction.arguments import SetProof
from .format import Assumptions, DataPart, Ends, Halfspaces, MadeWith, Part, Proof, write_with_digest
from .margins import constraint_names
from .proof import Recorded, assumptions, data_part, ends_of, halfspaces, made_with, proof_part, touched_by

if TYPE_CHECKING:
    from .region import Cell, InvariantRegion

FORMAT: Literal["rkhs_control region"] = "rkhs_control region"


class RegionQuestion(Part):
    """What is kept for ever."""

    state_names: list[str]
    input_names: list[str]
    initial_state_noise: list[float] = Field(description="how far true states may be from measured ones")
    state_limits: Halfspaces = Field(description="a finite box")
    input_limits: Ends | None


class BothProofs(Part):
    """Of one state after one step of a cell's plan."""

    lower: Proof
    upper: Proof


class CellPart(Part):
    """A box of measured states, and a plan for all of them."""

    lower: list[float]
    upper: list[float]
    x0: list[float]
    reach: list[float] = Field(description="true states are within this of x0")
    inputs: list[list[float]] = Field(description="one row per step")
    bounds: list[list[BothProofs]] = Field(
        description="one row per step, one entry per state; witnesses refer to the samples of that step and state"
    )


class RegionClaim(Part):
    """From every cell the limits are kept for ever; that is never said, because there is no other claim."""

    share: float = Field(ge=0, description="of the volume of the limits that the cells have, at least")


class RegionFile(Part):
    """A region: what is kept for ever, what is assumed, and the proof, cell by cell."""

    format: Literal["rkhs_control region"] = FORMAT
    version: Literal[1] = 1
    question: RegionQuestion
    data: DataPart
    steps: list[list[Assumptions]] = Field(
        description="one row per step, up to those of the longest plan; one entry per state"
    )
    cells: list[CellPart]
    claim: RegionClaim
    made_with: MadeWith
    digest: str = Field(default="", description="SHA-256 of everything else as JSON with sorted keys and no spaces")

    def write(self, file: str | Path) -> None:
        """With its digest."""
        write_with_digest(self, file)


def region_file(region: InvariantRegion, data_file: str | Path | None, seed: int | None) -> RegionFile:
    """The content of `InvariantRegion.save`."""
    _refuse_unprovable(region)
    predictor, limits = region.predictor, region.limits
    recorded = Recorded.of(predictor, region.longest, data_file)
    states = range(predictor.runs.n_states)
    touched = [[touched_by(predictor, _proofs(region, n, i)) for i in states] for n in range(region.longest)]
    return RegionFile(
        question=RegionQuestion(
            state_names=list(predictor.runs.state_names),
            input_names=list(predictor.runs.input_names),
            initial_state_noise=region.initial_state_noise.tolist(),
            state_limits=halfspaces(limits, constraint_names(limits.states, predictor.runs.state_names)),
            input_limits=ends_of(limits.inputs),
        ),
        data=data_part(predictor, region.longest, recorded),
        steps=[
            [assumptions(predictor, n, i, recorded, _plans(region, n), touched[n][i]) for i in states]
            for n in range(region.longest)
        ],
        cells=[_cell_part(cell, touched) for cell in region.cells],
        claim=RegionClaim(share=share_below(region)),
        made_with=made_with(seed),
    )


def _refuse_unprovable(region: InvariantRegion) -> None:
    """Refuse what the file of a region cannot contain."""
    states = region.limits.states
    if not len(region):
        raise InputError("an empty region proves nothing, and is not written")
    if region.limits.rates is not None:
        raise InputError("limits.rates must be None: a region does not limit changes from one plan to the next")
    widths = states.upper - states.lower if isinstance(states, Box) else np.array(np.inf)
    if not (np.isfinite(widths) & (widths > 0.0)).all():
        raise InputError("the limits of the states must be a Box of finite width: a region is a share of it")
    runs = region.predictor.runs
    if not runs.has_states:
        raise InputError("a region needs recorded states: boxes of outputs do not tell the history that comes next")
    if runs.has_residual_bound and (region.initial_state_noise < runs.noise_bound.max(axis=0)).any():
        raise InputError(
            "histories are taken as measured: initial_state_noise must be the noise bound of states or more"
        )


def share_below(region: InvariantRegion) -> float:
    """The share of the limits' volume that the cells cover, rounded down."""
    assert isinstance(region.limits.states, Box)
    exact = sum((_volume(cell.box) for cell in region.cells), Fraction(0)) / _volume(region.limits.states)
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)


def _volume(box: Box) -> Fraction:
    """Exactly."""
    sides = zip(box.lower.tolist(), box.upper.tolist(), strict=True)
    return math.prod((Fraction(high) - Fraction(low) for low, high in sides), start=Fraction(1))


def _proofs(region: InvariantRegion, n: int, i: int) -> Iterator[SetProof]:
    """Of state `i` after `n + 1` steps, in all cells whose plans are as long."""
    return (proof for cell in region.cells if n < len(cell.inputs) for proof in cell.tube.witnesses[n, i])


def _plans(region: InvariantRegion, n: int) -> FloatArray:
    """The arguments of all bounds after `n + 1` steps, `(n_plans, n_dims)`."""
    cells = [cell for cell in region.cells if n < len(cell.inputs)]
    return stacked(np.array([cell.x0 for cell in cells]), np.array([cell.inputs[: n + 1] for cell in cells]))


def _cell_part(cell: Cell, touched: list[list[IndexArray]]) -> CellPart:
    """A cell, whose witnesses refer to the written samples."""
    tube = cell.tube
    return CellPart(
        lower=cell.box.lower.tolist(),
        upper=cell.box.upper.tolist(),
        x0=cell.x0.tolist(),
        reach=cell.reach.tolist(),
        inputs=cell.inputs.tolist(),
        bounds=[
            [
                BothProofs(
                    lower=proof_part(tube.lower[n, i], tube.witnesses[n, i][0], touched[n][i]),
                    upper=proof_part(tube.upper[n, i], tube.witnesses[n, i][1], touched[n][i]),
                )
                for i in range(len(cell.x0))
            ]
            for n in range(len(cell.inputs))
        ],
    )
