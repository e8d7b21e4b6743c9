"""The certificate file: versioned JSON, self-contained, checked by `checker.py`, which knows nothing of this module.

Its JSON Schema is `docs/certificate.schema.json`, made from the classes below. Floats are written by their shortest
decimal that reads back to the same bits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Literal["rkhs_control certificate"] = "rkhs_control certificate"


class Part(BaseModel):
    """What all parts share: no other fields than these, and only finite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Halfspaces(Part):
    """`normals @ x <= offsets`, with a name for every row; one that is an inequality must be that of its row."""

    names: list[str]
    normals: list[list[float]]
    offsets: list[float]


class Ends(Part):
    """A box; null is no limit."""

    lower: list[float | None]
    upper: list[float | None]


class QuestionPart(Part):
    """The plan, and what it is to keep."""

    state_names: list[str]
    input_names: list[str]
    x0: list[float] = Field(description="the initial state, or a history: see data.shape")
    inputs: list[list[float]] = Field(description="one row per step")
    initial_state_noise: list[float] = Field(description="how far the true one may be from x0, entry by entry")
    state_limits: Halfspaces
    input_limits: Ends | None
    input_rate_limits: Ends | None = Field(description="of the change from one step to the next")


class FilePart(Part):
    """The file that the recordings were read from."""

    name: str
    sha256: str
    is_windowed: bool = Field(description="whether samples begin at any instant of a recording, not only at its first")


class NarrowingPart(Part):
    """The file that tells how intervals of samples with uncertain arguments were narrowed."""

    name: str
    sha256: str


class DataPart(Part):
    """The recordings behind the samples."""

    n_runs: int
    sha256: str = Field(
        description="of the bytes of all states, all inputs, and histories with lags, as little-endian doubles"
    )
    file: FilePart | None = Field(description="the file that they were read from")
    initial_state_noise: list[float] = Field(description="how far recorded initial states may be from the true ones")
    shape: tuple[int, int, int] = Field(
        description="how many outputs, the latest first, and then inputs before make a history; samples per step"
    )
    narrowing: NarrowingPart | None = Field(description="null where samples rest on nothing but the recordings")


class Assumed(Part):
    """A bound that is assumed, and where it comes from."""

    value: float = Field(ge=0)
    provenance: str


class Samples(Part):
    """`g(inputs[i])` lies in `intervals[i]`, where `g` is the plant less the prior."""

    inputs: list[list[float]] = Field(description="the history, then the inputs of all steps so far")
    intervals: list[tuple[float, float]]


class Weights(Part):
    """Weights on samples, by the rows of these."""

    rows: list[int]
    weights: list[float]


class Proof(Part):
    """A bound, and what proves it: for a lower bound, an upper one of `-g`.

    One witness for the argument itself (`point`, and `displacement`, which adds what uncertainty can do); one per
    corner of the box of arguments, the last coordinate changing fastest (`corners`); or one for its centre and two per
    uncertain coordinate, for the derivative and for minus it (`slopes`).
    """

    bound: float
    method: Literal["point", "corners", "slopes", "displacement"]
    witnesses: list[Weights]


class Function(Part):
    """`sum_j weights_j k(., inputs_j)`, of norm at most the norm bound: it passes through all recorded intervals.

    That is, within the noise bound of what was recorded, and what uncertain initial states can do.
    """

    inputs: list[list[float]]
    weights: list[float]


class AffineFunction(Part):
    """`offset + slopes . z`."""

    kind: Literal["affine"] = "affine"
    offset: float
    slopes: list[float]


class ModelValues(Part):
    """What a model says at some arguments, and how steep it is in a history: assumed, not proved."""

    kind: Literal["model"] = "model"
    name: str
    steepness: list[float] | None = Field(description="per unit of each entry of a history; null: these are known")
    inputs: list[list[float]]
    values: list[float]


class Assumptions(Part):
    """What is assumed of one state after one step, that it is no contradiction, and the samples that bounds rest on."""

    kernel: dict[str, Any] = Field(description="`kind`, its parameters, and kernels in it")
    norm_bound: Assumed
    noise_bound: Assumed
    disturbance_bound: Assumed = Field(description="of what may happen to the plant: widens intervals and bounds")
    prior: AffineFunction | ModelValues | None = Field(
        description="is taken off the samples and added to the bounds again"
    )
    consistency: Function = Field(description="proves that the samples do not refute the assumptions")
    samples: Samples = Field(description="those that the bounds rest on")


class Component(Assumptions):
    """One state after one step."""

    lower: Proof
    upper: Proof


class Claim(Part):
    """What the certificate says of the plan."""

    verdict: Literal["CERTIFIED", "UNDECIDED", "REFUTED"]
    margin: float | None = Field(description="the smallest of all; null without limits")
    margins: list[list[float]] = Field(
        description="one row per step, one entry per limit: how far inside it the box is, at least"
    )


class MadeWith(Part):
    """The versions, and the seed, that it was made with."""

    rkhs_control: str
    python: str
    numpy: str
    seed: int | None


class CertificateFile(Part):
    """A certificate: what was asked, what is assumed, what is claimed, and the proof."""

    format: Literal["rkhs_control certificate"] = FORMAT
    version: Literal[4] = 4
    question: QuestionPart
    data: DataPart
    steps: list[list[Component]] = Field(description="one row per step, one entry per state")
    claim: Claim
    made_with: MadeWith
    digest: str = Field(default="", description="SHA-256 of everything else as JSON with sorted keys and no spaces")

    def write(self, file: str | Path) -> None:
        """With its digest."""
        write_with_digest(self, file)


def write_with_digest(content: Part, file: str | Path) -> None:
    """As JSON, with the digest of everything else."""
    from ..checker import digest

    fields = content.model_dump(mode="json")
    Path(file).write_text(json.dumps({**fields, "digest": digest(fields)}, allow_nan=False) + "\n")
