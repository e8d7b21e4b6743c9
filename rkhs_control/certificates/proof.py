"""The file of a certificate: everything that a checker needs, without trusting anything here.

What it shares with the file of a region is also here.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import __version__
from ..assumptions.consistency import consistent_function
from ..assumptions.priors import AffinePrior, Prior
from ..data.arrays import FloatArray, IndexArray
from ..data.fields import stacked
from ..data.files import load_trajectories
from ..data.limits import PlacedLimits
from ..data.observations import Observations
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import InputError, RkhsControlError
from ..prediction.arguments import SetProof
from ..prediction.narrowing import UncertainSamples
from ..prediction.predictor import MultiStepPredictor
from .format import (
    AffineFunction,
    Assumed,
    Assumptions,
    CertificateFile,
    Claim,
    Component,
    DataPart,
    Ends,
    FilePart,
    Function,
    Halfspaces,
    MadeWith,
    ModelValues,
    Proof,
    QuestionPart,
    Samples,
    Weights,
)
from .narrowing_file import narrowing_part

if TYPE_CHECKING:
    from .certificate import Certificate

_GIVEN = "given with the runs"
_OF_RESIDUAL_BOUNDS = "estimated: what measured histories leave open in predictions of held-out data"


def certificate_file(certificate: Certificate, data_file: str | Path | None, seed: int | None) -> CertificateFile:
    """The content of `Certificate.save`."""
    predictor, question, tube = certificate.predictor, certificate.question, certificate.tube
    if not certificate.constraint_names:
        raise InputError("without a limit on the states a certificate would promise nothing, and is not written")
    n_steps, n_states = tube.lower.shape
    recorded = Recorded.of(predictor, n_steps, data_file)
    return CertificateFile(
        question=QuestionPart(
            state_names=list(predictor.runs.state_names),
            input_names=list(predictor.runs.input_names),
            x0=question.x0.tolist(),
            inputs=question.inputs.tolist(),
            initial_state_noise=certificate.initial_state_noise.tolist(),
            state_limits=halfspaces(certificate.limits, certificate.constraint_names),
            input_limits=ends_of(certificate.limits.inputs),
            input_rate_limits=ends_of(certificate.limits.rates),
        ),
        data=data_part(predictor, n_steps, recorded),
        steps=[[_component(certificate, n, i, recorded) for i in range(n_states)] for n in range(n_steps)],
        claim=Claim(
            verdict=certificate.verdict.name,  # type: ignore[arg-type]
            margin=certificate.margin if certificate.margins.size else None,
            margins=certificate.margins.tolist(),
        ),
        made_with=made_with(seed),
    )


@dataclass(frozen=True, eq=False)
class Recorded:
    """All recordings, the functions that fit them by step and state, and the file they were read from, if any."""

    file: FilePart | None
    functions: list[list[Function]]
    runs: list[Trajectories]
    """By steps."""

    @classmethod
    def of(cls, predictor: MultiStepPredictor, n_steps: int, data_file: str | Path | None) -> Recorded:
        """What is in a file, or the runs of the predictor."""
        file = None if data_file is None else Path(data_file)
        content = "" if file is None else sha256(file.read_bytes()).hexdigest()
        is_windowed, functions, runs = _consistent_functions(predictor, n_steps, file, content)
        source = None if file is None else FilePart(name=file.name, sha256=content, is_windowed=is_windowed)
        return cls(source, functions, runs)


def data_part(predictor: MultiStepPredictor, n_steps: int, recorded: Recorded) -> DataPart:
    """The recordings behind proofs of this many steps."""
    return DataPart(
        narrowing=narrowing_part(predictor, n_steps),
        n_runs=len(predictor.runs),
        sha256=predictor.runs.sha256,
        file=recorded.file,
        initial_state_noise=predictor.initial_state_noise.tolist(),
        shape=predictor.runs.shape,
    )


def halfspaces(limits: PlacedLimits, names: Sequence[str]) -> Halfspaces:
    """The limits of the states."""
    polytope = limits.polytope
    return Halfspaces(names=list(names), normals=polytope.normals.tolist(), offsets=polytope.offsets.tolist())


def made_with(seed: int | None) -> MadeWith:
    """These versions."""
    return MadeWith(rkhs_control=__version__, python=platform.python_version(), numpy=np.__version__, seed=seed)


def _prior_part(prior: Prior, plans: FloatArray, recorded: FloatArray) -> AffineFunction | ModelValues | None:
    """The prior; for a model, its values at the plans and at all recorded arguments that will be looked up."""
    if prior is None:
        return None
    if isinstance(prior, AffinePrior):
        return AffineFunction(offset=prior.offset, slopes=list(prior.slopes))
    Z, model = np.unique(np.concatenate([plans, recorded]), axis=0), prior.model
    steepness = None if model.steepness is None else list(model.steepness)
    return ModelValues(name=model.name, steepness=steepness, inputs=Z.tolist(), values=prior(Z).tolist())


def _component(certificate: Certificate, n: int, i: int, recorded: Recorded) -> Component:
    """State `i` after `n + 1` steps, as it is written to a file."""
    tube, question = certificate.tube, certificate.question
    pair = tube.witnesses[n, i]
    touched = touched_by(certificate.predictor, pair)
    plan = stacked(question.x0[None], question.inputs[None, : n + 1])
    assumed = assumptions(certificate.predictor, n, i, recorded, plan, touched)
    lower, upper = (
        proof_part(bound, proof, touched)
        for bound, proof in zip((tube.lower[n, i], tube.upper[n, i]), pair, strict=True)
    )
    return Component(**dict(assumed), lower=lower, upper=upper)


def touched_by(predictor: MultiStepPredictor, proofs: Iterable[SetProof]) -> IndexArray:
    """The rows of the samples that some witness uses, in order; refused where there are no witnesses."""
    found = [np.empty(0, dtype=np.intp)]
    for witness in (witness for proof in proofs for witness in proof.witnesses):
        if witness is None:
            raise InputError(f"{predictor.method.__name__} has no witnesses to save; OptimalEnvelope has")
        found.append(witness.indices)
    return np.unique(np.concatenate(found))


def proof_part(bound: float, proof: SetProof, touched: IndexArray) -> Proof:
    """A bound, with witnesses that refer to the rows of the written samples."""
    return Proof(
        bound=float(bound),
        method=proof.method,
        witnesses=[
            Weights(rows=np.searchsorted(touched, w.indices).tolist(), weights=w.weights.tolist())
            for w in proof.witnesses
            if w is not None
        ],
    )


def assumptions(
    predictor: MultiStepPredictor, n: int, i: int, recorded: Recorded, plans: FloatArray, touched: IndexArray
) -> Assumptions:
    """What the bounds on state `i` after `n + 1` steps rest on; `plans` are the arguments they are for."""
    envelope, norm, runs = predictor.envelope(n + 1, i), predictor.norm_bounds[n][i], predictor.runs
    data = envelope.data
    return Assumptions(
        kernel=envelope.kernel.to_dict(),
        norm_bound=Assumed(value=norm.value, provenance=norm.provenance),
        noise_bound=Assumed(value=float(runs.noise_bound[n, i]), provenance=_GIVEN),
        disturbance_bound=Assumed(
            value=float(runs.disturbance_bound[n, i]),
            provenance=_OF_RESIDUAL_BOUNDS if runs.has_residual_bound else _GIVEN,
        ),
        prior=_prior_part(predictor.priors[n][i], plans, recorded.runs[n].arguments(n + 1)),
        consistency=recorded.functions[n][i],
        samples=Samples(
            inputs=data.X[touched].tolist(),
            intervals=list(zip(data.lower[touched].tolist(), data.upper[touched].tolist(), strict=True)),
        ),
    )


def ends_of(box: Box | None) -> Ends | None:
    """For a file: infinite ends become null."""
    if box is None:
        return None
    lower, upper = ([x if math.isfinite(x) else None for x in end.tolist()] for end in (box.lower, box.upper))
    return Ends(lower=lower, upper=upper)


@lru_cache(maxsize=1)  # they do not depend on the plan, and plans are saved one after another
def _consistent_functions(
    predictor: MultiStepPredictor, n_steps: int, file: Path | None, content: str
) -> tuple[bool, list[list[Function]], list[Trajectories]]:
    """For every step and state, a function that satisfies the assumptions: through all runs, or all data in the file.

    Also whether the runs are windows of the file's recordings, whose `content` has this hash, and these runs or
    windows.
    """
    runs = predictor.runs
    is_windowed, recorded = (False, [runs] * n_steps) if file is None else _recorded(file, runs, n_steps)
    rows: list[list[Function]] = []
    for n, all_of_them in enumerate(recorded):
        rows.append([])
        for i in range(runs.n_states):
            kernel, norm = predictor.kernels[n][i], predictor.norm_bounds[n][i].value
            try:
                data = predictor.envelope(n + 1, i).data
                if all_of_them is not runs:
                    every = UncertainSamples.of(all_of_them, n + 1, i, kernel, norm, predictor.priors[n][i])
                    data = _both(data, every.observations(every.widest))
                witness = consistent_function(data, kernel, norm)
            except RkhsControlError as error:
                where = "" if file is None else f"all recordings in {file}, also those that were held out: "
                raise type(error)(f"{where}step {n + 1}, state {runs.state_names[i]}: {error}") from None
            rows[n].append(Function(inputs=data.X[witness.indices].tolist(), weights=witness.weights.tolist()))
    return is_windowed, rows, recorded


def _both(narrowed: Observations, recorded: Observations) -> Observations:
    """The intervals of the runs, and of all recordings."""
    parts = ((part.X, part.lower, part.upper) for part in (narrowed, recorded))
    return Observations.from_intervals(*map(np.concatenate, zip(*parts, strict=True)))


def _recorded(file: Path, runs: Trajectories, n_steps: int) -> tuple[bool, list[Trajectories]]:
    """Whether runs are windows of a file's recordings, and all its runs or windows of 1, 2, ... steps."""
    load = partial(
        load_trajectories,
        file,
        state_names=runs.state_names,
        input_names=runs.input_names,
        sampling_time=runs.sampling_time / runs.shape.every,
        noise_bound=0.0,
        initial_state_noise=runs.initial_state_noise,
    )
    whole = None
    with suppress(InputError):  # runs of several lengths, or a file whose fault the next attempt will report
        whole = load() if runs.has_states and runs.shape.every == 1 else None
    if not (runs.has_states and runs.shape.every == 1):
        load = partial(load, **runs.shape._asdict())
    if whole is not None and whole.horizon >= runs.horizon and _rows(runs) <= _rows(whole.shortened(runs.horizon)):
        if len(whole) == len(runs):
            return False, [runs] * n_steps
        return False, [_with_noise(whole.shortened(runs.horizon), runs)] * n_steps
    if not _rows(runs) <= _rows(load(horizon=runs.horizon)):
        raise InputError(
            f"{file}: the runs are not in it; data_file is the file that they were read from (without one, the "
            "certificate rests on the runs alone)"
        )
    return True, [_with_noise(load(horizon=n), runs) for n in range(1, n_steps + 1)]


def _with_noise(recorded: Trajectories, runs: Trajectories) -> Trajectories:
    """The recordings, with the noise bounds of the runs, which a file may not contain."""
    bounds = {name: getattr(runs, name)[: recorded.horizon] for name in ("noise_bound", "disturbance_bound")}
    return replace(recorded, **bounds)


def _rows(runs: Trajectories) -> set[bytes]:
    """The runs, so that they can be looked up."""
    parts = zip(runs.states, runs.inputs, runs.histories, strict=True)
    return {b"".join(part.tobytes() for part in run) for run in parts}
