"""The file beside certificates that records how intervals were narrowed: samples, and weights for their slopes.

Nothing in it is assumed: `checker.py` evaluates the weights under the assumptions of a certificate.
"""

from __future__ import annotations

import io
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..prediction.predictor import MultiStepPredictor
from .format import NarrowingPart


def narrowing_part(predictor: MultiStepPredictor, n_steps: int) -> NarrowingPart | None:
    """How a certificate of this many steps refers to the file; None where nothing was narrowed."""
    content = _content(predictor, n_steps)
    if not content:
        return None
    digest = sha256(content).hexdigest()
    return NarrowingPart(name=f"narrowing_{digest[:16]}.npz", sha256=digest)


def write_narrowing(predictor: MultiStepPredictor, n_steps: int, folder: Path) -> None:
    """Write the file; all certificates of a predictor in the same folder share one."""
    part = narrowing_part(predictor, n_steps)
    if part is not None and not (folder / part.name).exists():
        (folder / part.name).write_bytes(_content(predictor, n_steps))


@lru_cache(maxsize=1)  # plans are saved one after another
def _content(predictor: MultiStepPredictor, n_steps: int) -> bytes:
    """The bytes of the file; none where nothing was narrowed."""
    runs, arrays = predictor.runs, dict[str, npt.NDArray[Any]]()
    for n in range(1, n_steps + 1):
        for i, rounds in enumerate(predictor.narrowing[n - 1]):
            if rounds:
                arrays[f"inputs_{n}"] = runs.arguments(n)
                arrays[f"outputs_{n}_{i}"] = runs.states[:, n, i]
            for r, slopes in enumerate(rounds):
                for name, values in (("starts", slopes.starts), ("rows", slopes.indices), ("weights", slopes.weights)):
                    arrays[f"{name}_{n}_{i}_{r}"] = values
    if not arrays:
        return b""
    stream = io.BytesIO()
    plain = {name: np.ascontiguousarray(values, dtype="<f8") for name, values in arrays.items()}
    np.savez_compressed(stream, **plain)  # type: ignore[arg-type]
    return stream.getvalue()
