"""Check a certificate of a plan, or of a region for ever, without trusting its author.

    python checker.py plan.json [--data runs.csv]
    python checker.py region.json [--data runs.csv] [--jobs 2]

This file needs only python-flint: copy it, read it, run it. For every step, state and side, the certificate contains
*witnesses*, weights `w` on recorded samples `f(x_i) in [l_i, u_i]`. For any weights whatsoever,

    f(x) <= norm_bound * || k_x - sum_i w_i k_{x_i} ||  +  sum_i max(w_i u_i, w_i l_i)

for every `f` of norm at most `norm_bound` (reproducing property and Cauchy-Schwarz); a lower bound on `f` is an upper
bound on `-f`. The right-hand side is enclosed in ball arithmetic and compared with the claimed bound; then verdict and
margins are derived from the claimed bounds and the limits in exact rational arithmetic.

Anything follows from contradictory assumptions. So for every step and state, the certificate also contains a function
of norm at most `norm_bound` that passes through the intervals, and this is proved as well: through the samples that the
witnesses use or, with the recordings at hand, through everything recorded. The samples are then also looked up.

With a *prior*, an affine function `m`, all of this is about `f - m`, and `m` is added back: its values are proved as
well. A *disturbance bound* widens intervals and bounds alike. Where states were not recorded, `x` begins with a
*history*: the last outputs, latest first, and the past inputs.

Where the plan's history is uncertain, a bound must hold over a box of arguments: by witnesses at all its corners, or at
its centre and for the slopes there, plus a second-order remainder, `norm_bound / 2 sum_j b_j h_j^2`, where `b_j` is how
much functions of the kernel can bend. Where the recorded histories are uncertain as well, a second file shows how
witnesses for the slopes at every sample narrow its interval, round by round; the function above must then pass through
all of these.

A *region* consists of cells, boxes of measured states, each with a plan. The plan of a cell is proved as above, over
all true states that may be there. If all boxes of all plans are within the limits, and the last box of each, widened by
the measurement error, is covered by the cells, then the limits are kept for ever, by induction.

The assumptions themselves, the norm bounds and the bounds on noise and disturbances, are *not* proved. They are
printed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import re
import struct
import sys
import unicodedata
import zipfile
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise, product
from multiprocessing import get_context
from operator import add, mul
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from flint import arb, arb_mat, ctx

FORMAT, VERSION = "rkhs_control certificate", 4
REGION_FORMAT, REGION_VERSION = "rkhs_control region", 1
MAX_BYTES, MAX_REGION_BYTES, MAX_DATA_BYTES = 2**24, 2**28, 2**27
WORK, REGION_WORK = 30_000_000, 3_000_000_000
"""Work limit for one certificate, or one region, in units of about a tenth of a microsecond."""
PRECISIONS = (256, 2048)
"""In bits; the second is for comparisons that the first leaves open."""
MOST_IN_MATRIX = 1000
"""Up to this many samples, all kernel values among them are computed once."""
MAX_REPAIRED = 200
"""Maximum number of intervals that may be missed by rounding."""
ROUNDING = 1e-10
"""Possible effect of rounding on a function's values, as a share of the sum of all its weights."""
PER_PIECE = 500
"""Units of work for a piece of a cell: for its memory rather than its time."""
CELLS_AT_ONCE = 50
"""Number of a region's cells handed to a process at a time."""
SMALLEST, LARGEST = 1e-50, 1e50
EXIT_CODES = "Exit codes: 0 accepted, whatever the verdict, which is printed; 1 rejected; 4 unreadable."


class UnreadableError(Exception):
    """The file is not a certificate of a supported version, or the recordings are not readable."""


class RejectedError(Exception):
    """The certificate does not prove what it claims; the message is the first reason."""


@dataclass(frozen=True)
class Verification:
    """Whether a certificate was accepted; if not, the first reason; if so, what acceptance promises."""

    accepted: bool
    reason: str = ""
    verdict: str = ""
    slacks: list[dict[str, Any]] = field(default_factory=list)
    """For every bound: how much more than claimed is proved, absolute and as a share of the bound."""
    n_samples_found: int | None = None
    """Number of samples looked up in the recordings."""
    plan: list[str] = field(default_factory=list)
    """The initial state and the inputs that the verdict is about, in words."""
    limits: list[str] = field(default_factory=list)
    """The limits of states, inputs and rates as inequalities, made from the numbers in the file alone."""
    assumptions: list[str] = field(default_factory=list)
    """What is assumed, not proved."""
    samples: str = ""
    """Whether the samples were looked up in the recordings."""
    n_cells: int = 0
    """Number of cells of a region, whose verdict is INVARIANT: from each of them the limits are kept for ever."""
    share: float | None = None
    """Lower bound on the share of the limits' volume in these cells; None for a plan."""


class Work:
    """Counts work before it is done, and refuses to do too much."""

    def __init__(self, limit: int, done: int = 0) -> None:
        self.limit, self.done = limit, done

    def take(self, units: int) -> None:
        """Count `units` of work, and refuse to go on beyond the limit."""
        self.done += units
        if self.done > self.limit:
            raise RejectedError(
                f"checking this takes {self.done:,} units of work or more, and {self.limit:,} are allowed; to wait for "
                f"it, about a second per ten million, raise the limit: --work {self.done} or more"
            )


def verify(
    file: str | Path,
    data: str | Path | None = None,
    work: int | None = None,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check the file of a certificate or region and, if recordings are given, look its samples up in them.

    Where histories are uncertain, the file that shows how intervals were narrowed is expected beside this one. `work`
    limits the work, in units of about a tenth of a microsecond; by default `WORK` for a certificate, and `REGION_WORK`
    for a region. The cells of a region are spread over `n_jobs` fresh processes: a script that asks for several needs
    the usual `if __name__ == "__main__":`. `progress` is called with the number of bounds proved and their total.
    """
    content = read(Path(file))
    is_region = content["format"] == REGION_FORMAT
    slacks: list[dict[str, Any]] = []
    precision = ctx.prec
    try:
        (check_region_structure if is_region else check_structure)(content)
        index_models(content)
        budget = Work((REGION_WORK if is_region else WORK) if work is None else work)
        budget.take((region_work if is_region else work_of)(content))
        recordings = None if data is None else read_recordings(Path(data), content, budget)
        narrowing = None if data is None else read_narrowing(Path(file).parent, content, budget)
        if is_region:
            check_cells(content, budget)
            check_region_bounds(content, slacks, budget, n_jobs, progress)
        else:
            check_claim(content)
            check_bounds(content, slacks, budget)
        samples, found = check_samples(content, recordings, narrowing, budget)
    except RejectedError as reason:
        return Verification(False, str(reason), slacks=slacks)
    finally:
        ctx.prec = precision
    return Verification(
        True,
        verdict="INVARIANT" if is_region else content["claim"]["verdict"],
        slacks=slacks,
        n_samples_found=found,
        plan=plans_in_words(content) if is_region else plan_in_words(content),
        limits=limits_in_words(content["question"]),
        assumptions=assumptions_in_words(content, is_narrowed=narrowing is not None),
        samples=samples,
        n_cells=len(content["cells"]) if is_region else 0,
        share=float(content["claim"]["share"]) if is_region else None,
    )


# ---- reading


def read(path: Path) -> dict[str, Any]:
    """The content of a file, which must have no duplicate keys and only finite numbers."""
    name = plain(path, 200)
    try:
        text = _text(path, name)
        content = json.loads(
            text.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite
        )
    except OSError as error:
        raise UnreadableError(f"{name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{name}: not readable as JSON ({plain(error)})") from None
    if not isinstance(content, dict) or content.get("format") not in (FORMAT, REGION_FORMAT):
        raise UnreadableError(f"{name}: not a certificate")
    version = content.get("version")
    if content["format"] == REGION_FORMAT:
        if type(version) is not int or version != REGION_VERSION:
            raise UnreadableError(f"{name}: version {quoted(version)}; this checker knows {REGION_VERSION} of regions")
        return content
    if version == 1:
        raise UnreadableError(
            f"{name}: version 1 does not prove that the recordings do not refute its assumptions; certify the plan "
            f"again to get version {VERSION}"
        )
    if type(version) is int and version in (2, 3):
        return _upgraded(content)
    if type(version) is not int or version != VERSION:
        raise UnreadableError(f"{name}: version {quoted(version)}; this checker knows {VERSION}")
    return content


def _text(path: Path, name: str) -> bytes:
    """All bytes of a file; only a file that declares itself a region at the beginning may be large."""
    with path.open("rb") as stream:
        text = stream.read(MAX_BYTES + 1)
        most = MAX_BYTES
        if len(text) > most and re.match(rb'\s*\{\s*"format"\s*:\s*"' + REGION_FORMAT.encode() + b'"', text[:1000]):
            most = MAX_REGION_BYTES
            text += stream.read(most + 1 - len(text))
    if len(text) > most:
        raise UnreadableError(f"{name}: more than {most} bytes")
    return text


def _upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """Version 2, without histories, priors or disturbances, and version 3, with one witness per bound, as version 4."""
    try:
        is_right = content.get("digest") == digest(content)
        if content["version"] == 2:
            none = {"disturbance_bound": {"value": 0.0, "provenance": "none"}, "prior": None}
            rows = [[{**component, **none} for component in row] for row in content["steps"]]
            is_right &= not any(key in component for row in content["steps"] for component in row for key in none)
            is_right &= "shape" not in content["data"]
            content = {**content, "data": {"shape": [1, 0, 1], **content["data"]}, "steps": rows}
        steps = [[_with_samples(component) for component in row] for row in content["steps"]]
        newer = {**content, "version": VERSION, "data": {**content["data"], "narrowing": None}, "steps": steps}
    except (KeyError, TypeError, AttributeError, RecursionError):
        return content
    return {**newer, "digest": digest(newer) if is_right else ""}


def _with_samples(component: dict[str, Any]) -> dict[str, Any]:
    """A component of version 3, whose two bounds had their own samples."""
    samples: dict[str, list[Any]] = {"inputs": [], "intervals": []}
    newer = dict(component)
    for side in ("lower", "upper"):
        proof, first = component[side], len(samples["inputs"])
        witness = {"rows": list(range(first, first + len(proof["inputs"]))), "weights": proof["weights"]}
        newer[side] = {"bound": proof["bound"], "method": "displacement", "witnesses": [witness]}
        for key in samples:
            samples[key] += proof[key]
    if component["prior"] is not None:
        newer["prior"] = {"kind": "affine", **component["prior"]}
    return {**newer, "samples": samples}


def digest(content: dict[str, Any]) -> str:
    """Digest of everything but the digest itself: it detects accidents, not forgeries."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is too large")
    return value


# ---- text from files, which must not forge lines, colours or the order of the surrounding output


def plain(text: object, most: int = 100) -> str:
    """One line of at most `most` characters; non-printing, combining and right-to-left characters are escaped."""
    composed = unicodedata.normalize("NFC", str(text)[: 4 * most])
    shown = "".join(
        c
        if c.isprintable() and not unicodedata.combining(c) and unicodedata.bidirectional(c) not in ("R", "AL", "AN")
        else c.encode("unicode_escape").decode()
        for c in composed
    )
    return shown if len(shown) <= most and len(str(text)) <= 4 * most else shown[: most - 3] + "..."


def quoted(text: object) -> str:
    """In quotation marks, with none inside."""
    return '"' + plain(text).replace('"', "'") + '"'


def named(text: str) -> str:
    """Unchanged if it is one word of letters and digits, otherwise in quotation marks."""
    return text if re.fullmatch(r"\w{1,40}", text) and text == plain(text) else quoted(text)


def number(value: float) -> str:
    """Exactly; whole numbers without a decimal point."""
    return repr(float(value) + 0.0).removesuffix(".0")


# ---- structure: everything has the required type, shape and size


def check_structure(content: dict[str, Any]) -> None:
    """Also check that limits limit something and are named correctly, and that the digest is right."""
    _keys(content, "the certificate", "format version question data steps claim made_with digest")
    question, claim = content["question"], content["claim"]
    _keys(
        question,
        "question",
        "state_names input_names x0 inputs initial_state_noise state_limits input_limits input_rate_limits",
    )
    _keys(claim, "claim", "verdict margin margins")
    n_history = _check_data(content)
    _numbers(question["x0"], "question.x0", n_history)
    n_steps = _check_plan(question["inputs"], "question.inputs", len(question["input_names"]))
    for part in ("question", "data"):
        _check_noises(content[part]["initial_state_noise"], f"{part}.initial_state_noise", n_history)
    n_limits = _check_limits(question)
    n_uncertain = sum(map(bool, question["initial_state_noise"]))
    for where, component, n_dims in _components(content, n_steps):
        _keys(component, where, f"{_ASSUMED_KEYS} lower upper")
        _check_assumptions(component, where, n_dims, n_history)
        for side in ("lower", "upper"):
            _check_proof(component[side], f"{where}, {side}", len(component["samples"]["inputs"]), n_uncertain)
    if claim["verdict"] not in ("CERTIFIED", "UNDECIDED", "REFUTED"):
        raise RejectedError("claim.verdict must be CERTIFIED, UNDECIDED or REFUTED")
    for row in _list(claim["margins"], "claim.margins", n_steps):
        _numbers(row, "claim.margins", n_limits)
    _numbers([claim["margin"]], "claim.margin")
    _check_digest(content)


def check_region_structure(content: dict[str, Any]) -> None:
    """The same for a region; its cells are checked one by one."""
    _keys(content, "the region", "format version question data steps cells claim made_with digest")
    question = content["question"]
    _keys(question, "question", "state_names input_names initial_state_noise state_limits input_limits")
    _keys(content["claim"], "claim", "share")
    n_states = _check_data(content)
    if content["data"]["shape"][:2] != [1, 0]:
        raise RejectedError("boxes of outputs do not tell the history that comes next: a region needs states")
    for part in ("question", "data"):
        _check_noises(content[part]["initial_state_noise"], f"{part}.initial_state_noise", n_states)
    _check_limits(question)
    n_steps = len(_list(content["steps"], "steps"))
    for where, component, n_dims in _components(content, n_steps):
        _keys(component, where, _ASSUMED_KEYS)
        _check_assumptions(component, where, n_dims, n_states)
    for c, cell in enumerate(_list(content["cells"], "cells"), start=1):
        _check_cell(cell, f"cell {c}", content)
    if not content["cells"] or n_steps != max(len(cell["inputs"]) for cell in content["cells"]):
        raise RejectedError("there must be cells, and as many steps as the longest of their plans has")
    if _numbers([content["claim"]["share"]], "claim.share")[0] < 0:
        raise RejectedError("claim.share is negative")
    _check_digest(content)


def _check_cell(cell: Any, where: str, content: dict[str, Any]) -> None:
    """A box of states, a plan, and proofs of bounds for every step of it."""
    _keys(cell, where, "lower upper x0 reach inputs bounds")
    names, steps = content["question"]["state_names"], content["steps"]
    for key in ("lower", "upper", "x0"):
        _numbers(cell[key], f"{where}, {key}", len(names))
    _check_noises(cell["reach"], f"{where}, reach", len(names))
    n_steps = _check_plan(cell["inputs"], f"{where}, inputs", len(content["question"]["input_names"]))
    if n_steps > len(steps):
        raise RejectedError(f"{where}: its plan is longer than what is assumed of the plant")
    n_uncertain = sum(map(bool, cell["reach"]))
    for n, row in enumerate(_list(cell["bounds"], f"{where}, bounds", n_steps)):
        for i, proofs in enumerate(_list(row, f"{where}, bounds", len(names))):
            _keys(proofs, f"{where}, bounds", "lower upper")
            for side in ("lower", "upper"):
                what = f"{where}, step {n + 1}, state {named(names[i])}, {side}"
                _check_proof(proofs[side], what, len(steps[n][i]["samples"]["inputs"]), n_uncertain)


def _check_data(content: dict[str, Any]) -> int:
    """What certificates and regions share: names, recordings, versions; returns the number of entries in a history."""
    question, data = content["question"], content["data"]
    _keys(data, "data", "n_runs sha256 file initial_state_noise shape narrowing")
    _keys(content["made_with"], "made_with", "rkhs_control python numpy seed")
    if data["file"] is not None:
        _keys(data["file"], "data.file", "name sha256 is_windowed")
        _plain([data["file"]["name"], data["file"]["sha256"]])
        if not isinstance(data["file"]["is_windowed"], bool):
            raise RejectedError("data.file.is_windowed must be true or false")
    if data["narrowing"] is not None:
        _keys(data["narrowing"], "data.narrowing", "name sha256")
        _plain(list(data["narrowing"].values()))
        if not re.fullmatch(r"narrowing_[0-9a-f]{1,64}\.npz", str(data["narrowing"]["name"])):
            raise RejectedError("data.narrowing.name must be narrowing_, part of its hash, and .npz")
    _plain([data["n_runs"], data["sha256"], *content["made_with"].values()])
    for key in ("state_names", "input_names"):
        names = _list(question[key], key)
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise RejectedError(f"question.{key} must be different names")
    return _check_shape(data["shape"], len(question["state_names"]), len(question["input_names"]))


def _components(content: dict[str, Any], n_steps: int) -> Iterator[tuple[str, Any, int]]:
    """The component of every step and state, with its location and the dimension of its arguments."""
    names, n_history = content["question"]["state_names"], history_size(content)
    for n, row in enumerate(_list(content["steps"], "steps", n_steps), start=1):
        for name, component in zip(names, _list(row, f"steps[{n}]", len(names)), strict=True):
            n_dims = n_history + n * len(content["question"]["input_names"])
            yield f"step {n}, state {named(name)}", component, n_dims


def history_size(content: dict[str, Any]) -> int:
    """The number of entries in a history."""
    question, (outputs, inputs, _) = content["question"], content["data"]["shape"]
    return int(outputs * len(question["state_names"]) + inputs * len(question["input_names"]))


def _check_plan(inputs: Any, what: str, n_inputs: int) -> int:
    """Numbers for every step and input; returns the number of steps."""
    for row in _list(inputs, what):
        _numbers(row, what, n_inputs)
    if not inputs:
        raise RejectedError(f"{what} has no steps")
    return len(inputs)


def _check_noises(noise: Any, what: str, size: int) -> None:
    if min(_numbers(noise, what, size)) < 0:
        raise RejectedError(f"{what} is negative")


def _check_digest(content: dict[str, Any]) -> None:
    if content["digest"] != digest(content):
        raise RejectedError("the digest does not match: the file was changed")


def _check_shape(shape: Any, n_states: int, n_inputs: int) -> int:
    """Lags of outputs and inputs, and samples per step; returns the number of entries in a history."""
    for value, least in zip(_list(shape, "data.shape", 3), (1, 0, 1), strict=True):
        if type(value) is not int or not least <= value <= 10_000:
            raise RejectedError("data.shape must be how many outputs, how many inputs, and samples per step")
    return int(shape[0] * n_states + shape[1] * n_inputs)


def _check_limits(question: dict[str, Any]) -> int:
    """Every limit limits something and is named correctly; returns the number of state limits."""
    limits, n_states, n_inputs = question["state_limits"], len(question["state_names"]), len(question["input_names"])
    _keys(limits, "state_limits", "names normals offsets")
    n_limits = len(_numbers(limits["offsets"], "state_limits.offsets"))
    if n_limits == 0:
        raise RejectedError("there is no limit on the states: such a certificate promises nothing")
    rows = zip(
        _list(limits["names"], "state_limits.names", n_limits),
        _list(limits["normals"], "state_limits.normals", n_limits),
        limits["offsets"],
        strict=True,
    )
    for c, (name, normal, offset) in enumerate(rows, start=1):
        _plain([name])
        if not any(_numbers(normal, "state_limits.normals", n_states)):
            raise RejectedError(f"limit {c} of the states has a zero normal: it limits nothing")
        stated = inequality(question["state_names"], normal, offset)
        if any(unicodedata.category(character) == "Sm" for character in str(name)) and name != stated:
            raise RejectedError(f"limit {c} of the states is called {quoted(name)}, but it is {quoted(stated)}")
    for key in ("input_limits", "input_rate_limits"):
        if question.get(key) is not None:
            _keys(question[key], key, "lower upper")
            for end in question[key].values():
                _numbers([x for x in _list(end, key, n_inputs) if x is not None], key)
            for low, high in zip(question[key]["lower"], question[key]["upper"], strict=True):
                if low is not None and high is not None and low > high:
                    raise RejectedError(f"{key}: nothing lies between {number(low)} and {number(high)}")
    return n_limits


_ASSUMED_KEYS = "kernel norm_bound noise_bound disturbance_bound prior consistency samples"


def _check_assumptions(component: dict[str, Any], where: str, n_dims: int, n_history: int) -> None:
    """What bounds on one state after one step rest on."""
    _check_kernel(component["kernel"], where, n_dims)
    _check_prior(component["prior"], f"{where}, prior", n_dims, n_history)
    for key in ("norm_bound", "noise_bound", "disturbance_bound"):
        _keys(component[key], f"{where}, {key}", "value provenance")
        _plain([component[key]["provenance"]])
        if _numbers([component[key]["value"]], f"{where}, {key}")[0] < 0:
            raise RejectedError(f"{where}: {key} is negative")
    samples, function = component["samples"], component["consistency"]
    _keys(samples, f"{where}, samples", "inputs intervals")
    _keys(function, f"{where}, consistency", "inputs weights")
    n_samples = len(_list(samples["intervals"], f"{where}, samples"))
    n_weights = len(_numbers(function["weights"], f"{where}, consistency"))
    for part, n in ((samples, n_samples), (function, n_weights)):
        for x in _list(part["inputs"], where, n):
            _numbers(x, where, n_dims)
    for interval in samples["intervals"]:
        low, high = _numbers(interval, f"{where}, samples", 2)
        if low > high:
            raise RejectedError(f"{where}: the interval [{number(low)}, {number(high)}] is empty")


def _check_prior(prior: Any, what: str, n_dims: int, n_history: int) -> None:
    """None, an affine function, or a model's values."""
    if prior is None:
        return
    if not isinstance(prior, dict) or prior.get("kind") not in ("affine", "model"):
        raise RejectedError(f"{what} must be null, affine, or of a model")
    if prior["kind"] == "affine":
        _keys(prior, what, "kind offset slopes")
        _numbers([prior["offset"]], what)
        _numbers(prior["slopes"], what, n_dims)
        return
    _keys(prior, what, "kind name steepness inputs values")
    _plain([prior["name"]])
    if prior["steepness"] is not None and min(_numbers(prior["steepness"], what, n_history)) < 0:
        raise RejectedError(f"{what}: a steepness is negative")
    for x in _list(prior["inputs"], what, len(_numbers(prior["values"], what))):
        _numbers(x, what, n_dims)
    if len({tuple(map(float, x)) for x in prior["inputs"]}) < len(prior["inputs"]):
        raise RejectedError(f"{what}: a model has two values at one argument")


def index_models(content: dict[str, Any]) -> None:
    """Index the values of models by their arguments."""
    for prior in (component["prior"] for row in content["steps"] for component in row):
        if prior is not None and prior["kind"] == "model":
            prior["at"] = dict(zip((tuple(map(float, x)) for x in prior["inputs"]), prior["values"], strict=True))


def _check_proof(proof: Any, what: str, n_samples: int, n_uncertain: int) -> None:
    """A bound has as many witnesses as its method needs, on existing samples."""
    _keys(proof, what, "bound method witnesses")
    _numbers([proof["bound"]], what)
    needed = {"point": 1, "displacement": 1, "corners": 2 ** min(n_uncertain, 20), "slopes": 1 + 2 * n_uncertain}
    if not isinstance(proof["method"], str) or proof["method"] not in needed:
        raise RejectedError(f"{what}: the method must be one of {', '.join(needed)}")
    if proof["method"] == "point" and n_uncertain:
        raise RejectedError(f"{what}: the plan's history is uncertain, and one witness alone does not bound that")
    for witness in _list(proof["witnesses"], what, needed[proof["method"]]):
        _keys(witness, what, "rows weights")
        for row in _list(witness["rows"], what, len(_numbers(witness["weights"], what))):
            if type(row) is not int or not 0 <= row < n_samples:
                raise RejectedError(f"{what}: a witness rests on a sample that is not there")


def _check_kernel(kernel: Any, where: str, n_dims: int, depth: int = 0) -> float:
    """All parameters of a kernel are within their ranges; returns its variance `k(x, x)`."""
    kind = kernel.get("kind") if isinstance(kernel, dict) else None
    if depth > 20 or not isinstance(kind, str) or kind not in _KERNEL_KEYS:
        raise RejectedError(f"{where}: there is no such kernel")
    _keys(kernel, f"{where}, kernel", "kind " + _KERNEL_KEYS[kind])
    parts = []
    for key in _KERNEL_KEYS[kind].split():
        value = kernel[key]
        if key in ("kernel", "a", "b"):
            parts.append(_check_kernel(value, where, n_dims, depth + 1))
            continue
        is_list = key == "lengthscale" and isinstance(value, list)
        low, high = (1e-6, 1e6) if key == "alpha" else (SMALLEST, LARGEST)
        for x in _numbers(value, where, n_dims) if is_list else _numbers([value], f"{where}: {key} of a kernel"):
            _require_range(x, f"{where}: {key} of a kernel", low, high)
    if kind == "Scale":
        parts.append(float(kernel["factor"]))
    variance = sum(parts) if kind == "Sum" else math.prod(parts)
    _require_range(variance, f"{where}: the variance of a kernel", SMALLEST, LARGEST)
    return variance


def _require_range(value: float, what: str, low: float, high: float) -> None:
    if not low <= value <= high:
        raise RejectedError(f"{what} must lie between {low:g} and {high:g}; it is {number(value)}")


def _keys(value: Any, what: str, names: str) -> None:
    if not isinstance(value, dict) or set(value) != set(names.split()):
        raise RejectedError(f"{what} must have the keys {names}, and no others")


def _plain(values: list[Any]) -> None:
    if not all(value is None or type(value) in (str, int) for value in values):
        raise RejectedError("names, hashes and provenances must be texts or whole numbers")


def _list(value: Any, what: str, size: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise RejectedError(f"{what} must be a list" + ("" if size is None else f" of {size}"))
    return value


def _numbers(value: Any, what: str, size: int | None = None) -> list[float]:
    """Finite doubles: whole numbers count only if they are exactly representable as a double."""
    values = _list(value, what, size)
    for x in values:
        if type(x) is not float and (type(x) is not int or abs(x) > sys.float_info.max or x != float(x)):
            raise RejectedError(f"{what} must hold finite numbers of double precision")
    return values


def work_of(content: dict[str, Any]) -> int:
    """In units of about a tenth of a microsecond: all kernel evaluations, and the sums of the claim."""
    question = content["question"]
    n_states, n_inputs = len(question["state_names"]), len(question["input_names"])
    units = 200 * len(question["inputs"]) * (n_states * len(question["state_limits"]["offsets"]) + n_inputs)
    for _, component, n_dims in _components(content, len(content["steps"])):
        units += consistency_work(component, n_dims)
        units += sum(proof_work(component, component[side], n_dims) for side in ("lower", "upper"))
    return units


def region_work(content: dict[str, Any]) -> int:
    """The same for a region: the kernel matrix of its samples is computed once, where that is less work."""
    n_states, n_inputs = len(content["question"]["state_names"]), len(content["question"]["input_names"])
    per_cell = 300 * n_states + 10 * n_states**2
    units = sum(per_cell + 60 * (n_states + n_inputs) * len(cell["inputs"]) for cell in content["cells"])
    places, components = proofs_by_place(content), _components(content, len(content["steps"]))
    for proofs, (_, component, n_dims) in zip(places.values(), components, strict=True):
        is_known = matrix_is_worth_it(component, proofs)
        n_samples = len(component["samples"]["inputs"])
        units += consistency_work(component, n_dims)
        units += kernel_work(component["kernel"], n_dims, (n_samples, n_samples)) if is_known else 0
        sides = (proof for _, both in proofs for proof in both.values())
        units += sum(proof_work(component, proof, n_dims, is_known=is_known) for proof in sides)
    return units


Proofs = list[tuple[int, dict[str, Any]]]


def proofs_by_place(content: dict[str, Any]) -> dict[tuple[int, int], Proofs]:
    """For every step, from 0, and state: the cells whose plans are that long, and the proofs of both ends."""
    states = range(len(content["question"]["state_names"]))
    found: dict[tuple[int, int], Proofs] = {(n, i): [] for n in range(len(content["steps"])) for i in states}
    for c, cell in enumerate(content["cells"]):
        for n, row in enumerate(cell["bounds"]):
            for i, both in enumerate(row):
                found[n, i].append((c, both))
    return found


def matrix_is_worth_it(component: dict[str, Any], proofs: Proofs) -> bool:
    """Whether proofs need more kernel values than the full matrix has, and the samples are not too many."""
    n_samples, sides = len(component["samples"]["inputs"]), (proof for _, both in proofs for proof in both.values())
    n_values = sum(len(witness["weights"]) ** 2 for proof in sides for witness in proof["witnesses"])
    return n_samples <= MOST_IN_MATRIX and n_samples**2 < n_values


def consistency_work(component: dict[str, Any], n_dims: int) -> int:
    """Work for a function through all samples that bounds rest on."""
    support, n_samples = len(component["consistency"]["weights"]), len(component["samples"]["inputs"])
    return kernel_work(component["kernel"], n_dims, (n_samples, support), (support, support))


def recorded_work(content: dict[str, Any], n_recorded: dict[int, int]) -> int:
    """Additional work for recordings, given how many reach each step."""
    units = 0
    for n, row in enumerate(content["steps"], start=1):
        n_dims = history_size(content) + n * len(content["question"]["input_names"])
        for component in row:
            units += n_recorded[n] * n_dims * (1 if component["prior"] is None else 9)
            units += kernel_work(component["kernel"], n_dims, (n_recorded[n], len(component["consistency"]["weights"])))
    return units


def proof_work(component: dict[str, Any], proof: dict[str, Any], n_dims: int, *, is_known: bool = False) -> int:
    """Work for one bound; less where the kernel matrix of the samples is known."""
    sizes = [len(witness["weights"]) + 1 for witness in proof["witnesses"]]
    shapes = [(1, size) if is_known else (size, size) for size in sizes]
    units = kernel_work(component["kernel"], n_dims, *shapes, (2, 1)) + slopes_work(component, proof, n_dims)
    units += 0 if component["prior"] is None else 16 * len(sizes) * n_dims
    return units + (3 * sum(size**2 for size in sizes) if is_known else 0)


def slopes_work(component: dict[str, Any], proof: dict[str, Any], n_dims: int) -> int:
    """Additional work for bounds on slopes, and on how much functions bend."""
    if proof["method"] not in ("corners", "slopes"):
        return 0
    sizes = [len(witness["weights"]) for witness in proof["witnesses"]]
    if proof["method"] == "corners":
        return 40 * _n_evaluated(component["kernel"]) * (len(sizes).bit_length() - 1)
    return sum(slope_work(component["kernel"], n_dims, size) for size in sizes)


def slope_work(kernel: dict[str, Any], n_dims: int, size: int) -> int:
    """Work of `weighted_bound` for a slope with this many weights, where the kernel matrix is known."""
    return 3 * size**2 + _n_evaluated(kernel) * (150 + size * (60 + 10 * n_dims))


def _n_evaluated(kernel: dict[str, Any]) -> int:
    """Number of radial kernels evaluated for a slope; those in products also for the other factor's slope."""
    n_parts = sum(_n_evaluated(kernel[key]) for key in ("kernel", "a", "b") if key in kernel)
    return (n_parts or 1) + (_size(kernel)[1] if kernel["kind"] == "Product" else 0)


def kernel_work(kernel: dict[str, Any], n_dims: int, *shapes: tuple[int, int]) -> int:
    """Work of `kernel_rows` for these numbers of points, at the lower precision."""
    per_pair, n_radial = _size(kernel)
    per_pair += n_radial * n_dims // 2
    return sum(n * m * per_pair + n_radial * (5 * (n + m) * n_dims + 300) for n, m in shapes)


def _size(kernel: dict[str, Any]) -> tuple[int, int]:
    """Work for one value apart from the distance, and the number of radial kernels."""
    sizes = [_size(kernel[key]) for key in ("kernel", "a", "b") if key in kernel]
    if sizes:
        return 2 + sum(units for units, _ in sizes), sum(n for _, n in sizes)
    return 20 if kernel["kind"] in ("SquaredExponential", "Matern12") else 35, 1


# ---- kernels, in ball arithmetic

_KERNEL_KEYS = {
    "SquaredExponential": "lengthscale",
    "RationalQuadratic": "lengthscale alpha",
    "Matern12": "lengthscale",
    "Matern32": "lengthscale",
    "Matern52": "lengthscale",
    "Scale": "kernel factor",
    "Sum": "a b",
    "Product": "a b",
}
State = tuple[float, ...]
Points = Sequence[Sequence[float]]


def profile(kernel: dict[str, Any], s: arb) -> arb:
    """`k(x, y)` of a radial kernel, as a function of the squared distance in lengthscales."""
    kind = kernel["kind"]
    if kind == "SquaredExponential":
        return (-s / 2).exp()
    if kind == "RationalQuadratic":
        alpha = arb(kernel["alpha"])
        return (-alpha * (1 + s / (2 * alpha)).log()).exp()
    if kind == "Matern12":
        return (-s.sqrt()).exp()
    if kind == "Matern32":
        r = (3 * s).sqrt()
        return (1 + r) * (-r).exp()
    r = (5 * s).sqrt()
    return (1 + r + 5 * s / 3) * (-r).exp()


def kernel_rows(kernel: dict[str, Any], X: Points, Y: Points) -> list[list[arb]]:
    """`k(x, y)` as balls: one row per `x`, one entry per `y`."""
    kind = kernel["kind"]
    if kind == "Scale":
        factor = arb(kernel["factor"])
        return [[factor * k for k in row] for row in kernel_rows(kernel["kernel"], X, Y)]
    if kind in ("Sum", "Product"):
        parts = (kernel_rows(kernel[part], X, Y) for part in ("a", "b"))
        return [list(map(add if kind == "Sum" else mul, *rows)) for rows in zip(*parts, strict=True)]
    return [[profile(kernel, s) for s in row] for row in squared_distances(kernel["lengthscale"], X, Y)]


def squared_distances(lengthscale: float | list[float], X: Points, Y: Points) -> list[list[arb]]:
    """`sum_j (x_j - y_j)^2 / lengthscale_j^2` as balls, by `|x|^2 + |y|^2 - 2 x . y`; exactly zero for equal points."""
    if not X or not Y:
        return [[] for _ in X]
    origin = [arb(v) for v in Y[0]]  # distances do not depend on the origin, and from here they cancel less
    scales = [arb(v) for v in (lengthscale if isinstance(lengthscale, list) else [lengthscale] * len(origin))]

    def scaled(points: Points) -> list[list[arb]]:
        return [[(arb(v) - o) / s for v, o, s in zip(x, origin, scales, strict=True)] for x in points]

    A, B = scaled(X), scaled(Y)
    norms_a, norms_b = ([sum(map(mul, row, row), arb(0)) for row in rows] for rows in (A, B))
    products = (arb_mat(A) * arb_mat(B).transpose()).tolist()
    places = {tuple(y): j for j, y in enumerate(Y)}
    rows = []
    for x, a, row in zip(X, norms_a, products, strict=True):
        distances = [(a + b - (ab + ab)).nonnegative_part() for b, ab in zip(norms_b, row, strict=True)]
        if (j := places.get(tuple(x))) is not None:
            distances[j] = arb(0)
        rows.append(distances)
    return rows


def function_values(kernel: dict[str, Any], inputs: Points, weights: list[arb], X: Points) -> list[arb]:
    """`sum_j weights_j k(x, inputs_j)` at every `x`; in batches, to save memory."""
    blocks = (kernel_rows(kernel, X[first : first + 256], inputs) for first in range(0, len(X), 256))
    return [sum(map(mul, row, weights), arb(0)) for block in blocks for row in block]


def displacement(kernel: dict[str, Any], norm_bound: float, noise: list[float], n_dims: int) -> arb:
    """How much `f` can differ between two inputs whose first coordinates differ by up to `noise`.

    `norm_bound * || k_x - k_x' ||`, largest at the corner, because these kernels fall with every coordinate.
    """
    if not any(noise):
        return arb(0)
    here, corner = [0.0] * n_dims, [*noise, *[0.0] * (n_dims - len(noise))]
    ((at_here,), (at_corner,)) = kernel_rows(kernel, [here, corner], [here])
    return arb(norm_bound) * (2 * (at_here - at_corner)).nonnegative_part().sqrt()


def profile_slope(kernel: dict[str, Any], s: arb) -> arb:
    """The derivative of `profile`, for kernels whose functions have one."""
    kind = kernel["kind"]
    if kind == "SquaredExponential":
        return -(-s / 2).exp() / 2
    if kind == "RationalQuadratic":
        alpha = arb(kernel["alpha"])
        return -(-(alpha + 1) * (1 + s / (2 * alpha)).log()).exp() / 2
    if kind == "Matern32":
        return -3 * (-(3 * s).sqrt()).exp() / 2
    if kind == "Matern52":
        r = (5 * s).sqrt()
        return -5 * (1 + r) * (-r).exp() / 6
    raise RejectedError(f"functions in the space of {kind} need not have slopes")


def slope_row(kernel: dict[str, Any], x: Sequence[float], j: int, Y: Points) -> list[arb]:
    """`d k(x, y) / dx_j` for every `y`."""
    kind = kernel["kind"]
    if kind == "Scale":
        return [arb(kernel["factor"]) * k for k in slope_row(kernel["kernel"], x, j, Y)]
    if kind in ("Sum", "Product"):
        a, b = (slope_row(kernel[part], x, j, Y) for part in ("a", "b"))
        if kind == "Sum":
            return list(map(add, a, b))
        (at_a,), (at_b,) = (kernel_rows(kernel[part], [x], Y) for part in ("a", "b"))
        return [da * kb + ka * db for da, db, ka, kb in zip(a, b, at_a, at_b, strict=True)]
    (distances,), scale = squared_distances(kernel["lengthscale"], [x], Y), _lengthscale(kernel, j)
    return [
        2 * profile_slope(kernel, s) * (arb(x[j]) - arb(y[j])) / scale**2 for s, y in zip(distances, Y, strict=True)
    ]


def _lengthscale(kernel: dict[str, Any], j: int) -> arb:
    scale = kernel["lengthscale"]
    return arb(scale[j] if isinstance(scale, list) else scale)


def variance(kernel: dict[str, Any]) -> arb:
    """`k(x, x)`."""
    if kernel["kind"] == "Scale":
        return arb(kernel["factor"]) * variance(kernel["kernel"])
    if kernel["kind"] in ("Sum", "Product"):
        a, b = variance(kernel["a"]), variance(kernel["b"])
        return a + b if kernel["kind"] == "Sum" else a * b
    return arb(1)


def slope_variance(kernel: dict[str, Any], j: int) -> arb:
    """`d^2 k(x, y) / dx_j dy_j` at `y = x`: the squared norm of `f -> df/dx_j`."""
    kind = kernel["kind"]
    if kind == "Scale":
        return arb(kernel["factor"]) * slope_variance(kernel["kernel"], j)
    if kind in ("Sum", "Product"):
        a, b = (slope_variance(kernel[part], j) for part in ("a", "b"))
        return a + b if kind == "Sum" else a * variance(kernel["b"]) + variance(kernel["a"]) * b
    return -2 * profile_slope(kernel, arb(0)) / _lengthscale(kernel, j) ** 2


def bend(kernel: dict[str, Any], j: int) -> arb:
    """`b_j`: in every direction `d`, `|d^2/dt^2 f(x + t d)| <= ||f|| sum_j b_j d_j^2`.

    For a radial kernel the norm of that functional is `sqrt(12 profile''(0)) sum_j d_j^2 / l_j^2`. Squared norms of
    sums of kernels add up. All kernels here are mixtures of Gaussians, whose fourth moments are at least three times
    the squared second ones; so for products norms add up, each times the root of the other's variance.
    """
    kind = kernel["kind"]
    if kind == "Scale":
        return arb(kernel["factor"]).sqrt() * bend(kernel["kernel"], j)
    if kind in ("Sum", "Product"):
        a, b = (bend(kernel[part], j) for part in ("a", "b"))
        if kind == "Sum":
            return (a * a + b * b).sqrt()
        return variance(kernel["b"]).sqrt() * a + variance(kernel["a"]).sqrt() * b
    if kind == "SquaredExponential":
        curvature = arb(1) / 4
    elif kind == "RationalQuadratic":
        curvature = (arb(kernel["alpha"]) + 1) / (4 * arb(kernel["alpha"]))
    elif kind == "Matern52":
        curvature = arb(25) / 12
    else:
        raise RejectedError(f"functions in the space of {kind} need not have two derivatives")
    return (12 * curvature).sqrt() / _lengthscale(kernel, j) ** 2


def remainder(component: dict[str, Any], reach: dict[int, arb]) -> arb:
    """How far functions can bend away over a box that extends this far from its centre."""
    bent = sum((bend(component["kernel"], j) * h * h for j, h in reach.items()), arb(0))
    return arb(component["norm_bound"]["value"]) * bent / 2


def prior_value(component: dict[str, Any], x: Sequence[float]) -> arb:
    """The prior's value at `x`; zero where there is none."""
    prior = component["prior"]
    if prior is None:
        return arb(0)
    if prior["kind"] == "affine":
        return arb(prior["offset"]) + sum((arb(a) * arb(v) for a, v in zip(prior["slopes"], x, strict=True)), arb(0))
    if (value := prior["at"].get(tuple(x))) is None:
        raise RejectedError(f"what the prior {quoted(prior['name'])} says at {plain(x)} is not in the certificate")
    return arb(value)


def prior_change(component: dict[str, Any], noise: list[float], *, is_blur: bool = False) -> arb:
    """How much the prior can change where histories are off by up to `noise`; `blur` is what slopes do not explain."""
    prior = component["prior"]
    if prior is None or not any(noise) or (is_blur and prior["kind"] == "affine"):
        return arb(0)
    if prior["kind"] == "model" and prior["steepness"] is None:
        raise RejectedError(
            f"histories are uncertain, but the steepness of the prior {quoted(prior['name'])} is not stated"
        )
    steep = prior["slopes"] if prior["kind"] == "affine" else prior["steepness"]
    return sum((abs(arb(a)) * arb(e) for a, e in zip(steep, noise, strict=False)), arb(0))


def uncertainty(component: dict[str, Any], noise: list[float], n_dims: int) -> arb:
    """How far the plant's value can be from that at an argument whose first entries are off by up to `noise`."""
    change = displacement(component["kernel"], component["norm_bound"]["value"], noise, n_dims)
    return change + prior_change(component, noise)


def set_precision(precision: int, work: Work, units: int) -> None:
    """Set the precision for already counted work of this many units; at the second precision it takes longer."""
    if precision > PRECISIONS[0]:
        work.take(units * precision // 128)
    ctx.prec = precision


# ---- bounds


Matrix = list[list[arb]]


def witness_value(
    component: dict[str, Any],
    witness: dict[str, Any],
    x: Sequence[float],
    is_mirrored: bool,
    j: int | None = None,
    matrix: Matrix | None = None,
) -> arb:
    """The upper bound on `g(x)` that a witness proves, or on `dg/dx_j`; mirrored, on minus that.

    `matrix` holds the kernel values of all samples, if these have been computed.
    """
    rows = witness["rows"]
    inputs, intervals = ([component["samples"][key][row] for row in rows] for key in ("inputs", "intervals"))
    known = None if matrix is None else half_of(matrix, rows)
    return weighted_bound(component, inputs, intervals, witness["weights"], x, is_mirrored, j, known)


def half_of(matrix: Matrix, rows: list[int]) -> Matrix:
    """The entries of a symmetric matrix at these rows and columns, up to the diagonal."""
    return [[matrix[a][b] for b in rows[: k + 1]] for k, a in enumerate(rows)]


def weighted_bound(
    component: dict[str, Any],
    inputs: Points,
    intervals: Sequence[Sequence[float | arb]],
    weights: Sequence[float],
    x: Sequence[float],
    is_mirrored: bool,
    j: int | None,
    known: Matrix | None = None,
) -> arb:
    """`norm_bound || L - sum_i w_i k_{x_i} || + sum_i max(w_i u_i, w_i l_i)` for the value at `x`, or its slope.

    `known` is the kernel matrix of the inputs, up to its diagonal, if it has been computed.
    """
    kernel, w = component["kernel"], [arb(v) for v in weights]
    rows = kernel_rows(kernel, inputs, inputs) if known is None else known
    square = arb(0)
    for k, (a, row) in enumerate(zip(w, rows, strict=True)):
        square += a * (2 * sum(map(mul, w, row[:k]), arb(0)) + a * row[k])
    across = kernel_rows(kernel, [x], inputs)[0] if j is None else slope_row(kernel, x, j, inputs)
    square += (variance(kernel) if j is None else slope_variance(kernel, j)) - 2 * sum(map(mul, w, across), arb(0))
    value = arb(component["norm_bound"]["value"]) * square.nonnegative_part().sqrt()
    for weight, (low, high) in zip(weights, intervals, strict=True):
        ends = (-arb(high), -arb(low)) if is_mirrored else (arb(low), arb(high))
        value += arb(weight) * ends[1 if weight > 0 else 0]
    return value


def proved_end(
    component: dict[str, Any], side: str, x: Sequence[float], noise: list[float], matrix: Matrix | None = None
) -> arb:
    """The upper bound on the plant over all arguments within `noise` of `x` or, for the lower side, on minus it."""
    proof, is_lower = component[side], side == "lower"

    is_model = component["prior"] is not None and component["prior"]["kind"] == "model"

    def at(point: Sequence[float], witness: dict[str, Any]) -> arb:
        middle = prior_value(component, x if is_model else point)
        value = witness_value(component, witness, point, is_lower, matrix=matrix)
        return value + (-middle if is_lower else middle)

    if proof["method"] == "corners":
        box = {j: _around(x[j], h) for j, h in enumerate(noise) if h}
        corners = ([*map(dict(zip(box, ends, strict=True)).get, range(len(x)), x)] for ends in product(*box.values()))
        values = [at(corner, witness) for corner, witness in zip(corners, proof["witnesses"], strict=True)]
        largest = values[0]
        for value in values[1:]:
            largest = largest.max(value)
        largest += prior_change(component, noise, is_blur=True)
        return largest + remainder(component, {j: (arb(high) - arb(low)) / 2 for j, (low, high) in box.items()})
    value = at(x, proof["witnesses"][0])
    if proof["method"] != "slopes":
        return value + uncertainty(component, noise, len(x))
    uncertain = [j for j, h in enumerate(noise) if h]
    for k, j in enumerate(uncertain):
        rising, falling = proof["witnesses"][1 + 2 * k : 3 + 2 * k]
        value += arb(noise[j]) * steepest(
            component,
            j,
            *(
                witness_value(component, witness, x, is_mirrored, j, matrix)
                for witness, is_mirrored in ((rising, False), (falling, True))
            ),
        )
    value += prior_change(component, noise, is_blur=True)
    return value + remainder(component, {j: arb(noise[j]) for j in uncertain})


def steepest(component: dict[str, Any], j: int, rising: arb, falling: arb) -> arb:
    """A bound on `|d(m + g)/dx_j|`, from upper bounds on `dg/dx_j` and on `-dg/dx_j`."""
    prior = component["prior"]
    own = arb(prior["slopes"][j]) if prior is not None and prior["kind"] == "affine" else arb(0)
    return (rising + own).max(falling - own)


def _around(x: float, h: float) -> tuple[float, float]:
    """Doubles next to `x - h` and `x + h`, but not between them."""
    low, high = math.nextafter(x - h, -math.inf), math.nextafter(x + h, math.inf)
    is_finite = math.isfinite(low) and math.isfinite(high)
    if not (is_finite and Fraction(low) <= Fraction(x) - Fraction(h) and Fraction(high) >= Fraction(x) + Fraction(h)):
        raise RejectedError("a history is too uncertain for doubles")
    return low, high


def check_bounds(content: dict[str, Any], slacks: list[dict[str, Any]], work: Work) -> None:
    """Every claimed bound is at least (upper) or at most (lower) what its witness proves."""
    question = content["question"]
    for n, row in enumerate(content["steps"], start=1):
        x = [*question["x0"], *(u for inputs in question["inputs"][:n] for u in inputs)]
        for name, component in zip(question["state_names"], row, strict=True):
            where = f"step {n}, state {named(name)}"
            for side in ("lower", "upper"):
                bound = component[side]["bound"]
                slack = _slack(component, side, x, question["initial_state_noise"], f"{where}, {side}", work)
                slacks.append({"step": n, "state": name, **_told(bound, side, slack)})
            if component["lower"]["bound"] > component["upper"]["bound"]:
                raise RejectedError(f"{where}: the lower bound is above the upper: no such plant")


def _told(bound: float, side: str, slack: float) -> dict[str, Any]:
    """What to report about a proved bound."""
    return {"side": side, "bound": bound, "slack": slack, "share": slack / abs(bound) if bound else slack}


def _slack(
    component: dict[str, Any],
    side: str,
    x: Sequence[float],
    noise: list[float],
    where: str,
    work: Work,
    matrix: Matrix | None = None,
) -> float:
    """How much more than claimed is proved; `matrix` holds kernel values of the first precision."""
    claimed = component[side]["bound"] * (1 if side == "upper" else -1)
    units = proof_work(component, component[side], len(x))
    for precision in PRECISIONS:
        set_precision(precision, work, units)
        known = matrix if precision == PRECISIONS[0] else None
        proved = proved_end(component, side, x, noise, known) + arb(component["disturbance_bound"]["value"])
        if proved <= arb(claimed):
            return max(0.0, float((arb(claimed) - proved).mid()))
    raise RejectedError(
        f"{where}: for {'f' if side == 'upper' else '-f'} the witness proves {float(proved.mid())!r}, but "
        f"{number(claimed)} is claimed"
    )


# ---- regions: cells whose plans keep the limits and end in cells again


Limits = tuple[list[float], list[float]]
"""Limits of the states: lower ones, and upper ones."""


class Geometry(NamedTuple):
    """Cells, cut along all their faces into pieces: a piece lies in one cell, or in none."""

    faces: list[list[float]]
    """Faces of all cells, per dimension, in ascending order."""
    owned: dict[tuple[int, ...], int]
    """The cell that contains a piece; pieces are numbered by the face below them."""

    @classmethod
    def of(cls, cells: list[dict[str, Any]], work: Work) -> Geometry:
        """Cells that overlap are refused."""
        n_dims = len(cells[0]["lower"])
        faces = [sorted({float(cell[end][j]) for cell in cells for end in ("lower", "upper")}) for j in range(n_dims)]
        places = [{face: k for k, face in enumerate(row)} for row in faces]
        owned: dict[tuple[int, ...], int] = {}
        for c, cell in enumerate(cells):
            ends = zip(places, cell["lower"], cell["upper"], strict=True)
            spans = [range(place[float(low)], place[float(high)]) for place, low, high in ends]
            work.take(PER_PIECE * math.prod(map(len, spans)))
            for piece in product(*spans):
                if owned.setdefault(piece, c) != c:
                    raise RejectedError(f"the cells {owned[piece] + 1} and {c + 1} overlap")
        return cls(faces, owned)

    def covers(self, lower: list[float], upper: list[float], work: Work) -> bool:
        """Whether every piece that intersects a box lies in some cell."""
        spans = []
        for row, low, high in zip(self.faces, lower, upper, strict=True):
            if not row[0] <= low <= high <= row[-1]:
                return False
            first = min(bisect_right(row, low), len(row) - 1) - 1
            spans.append(range(first, max(bisect_left(row, high), first + 1)))
        work.take(10 * len(spans) * math.prod(map(len, spans)))
        return all(piece in self.owned for piece in product(*spans))


def check_cells(content: dict[str, Any], work: Work) -> None:
    """Everything about a region except the proofs of its bounds, by exact comparisons and in rational arithmetic.

    Cells and boxes are within the limits, plans within theirs, and the states that plans are proved for contain the
    cells widened by the measurement error. The last boxes, widened as much, are covered by the cells. These do not
    overlap, and have the claimed share.
    """
    question, cells = content["question"], content["cells"]
    limits, noise = limit_box(question), question["initial_state_noise"]
    for c, cell in enumerate(cells, start=1):
        _check_extent(cell, f"cell {c}", limits, noise)
        if _breaks_input_limits({**question, "inputs": cell["inputs"]}):
            raise RejectedError(f"cell {c}: its plan breaks the limits of the inputs")
        _check_boxes(cell, f"cell {c}", limits, question["state_names"])
    geometry = Geometry.of(cells, work)
    for c, cell in enumerate(cells, start=1):
        ends = [(proofs["lower"]["bound"], proofs["upper"]["bound"]) for proofs in cell["bounds"][-1]]
        lower = [_double_below(Fraction(low) - Fraction(e)) for (low, _), e in zip(ends, noise, strict=True)]
        upper = [-_double_below(-Fraction(high) - Fraction(e)) for (_, high), e in zip(ends, noise, strict=True)]
        if not geometry.covers(lower, upper, work):
            raise RejectedError(f"cell {c}: the box that its plan ends with is not covered by the cells")
    volume, whole = sum(_volume(cell["lower"], cell["upper"]) for cell in cells), _volume(*limits)
    claimed = Fraction(content["claim"]["share"])
    if claimed.numerator * whole > claimed.denominator * volume:
        raise RejectedError(f"the cells have {volume / whole!r} of the limits, not {number(content['claim']['share'])}")


def limit_box(question: dict[str, Any]) -> Limits:
    """The lower and upper limits of the states of a region; every state must have both."""
    limits, names = question["state_limits"], [named(name) for name in question["state_names"]]
    lower, upper = [-math.inf] * len(names), [math.inf] * len(names)
    for normal, offset in zip(limits["normals"], limits["offsets"], strict=True):
        (j, *others) = (j for j, a in enumerate(normal) if a)
        if others or abs(normal[j]) != 1:
            raise RejectedError(f"{inequality(names, normal, offset)}: a region must have lower and upper limits alone")
        if normal[j] > 0:
            upper[j] = min(upper[j], float(offset))
        else:
            lower[j] = max(lower[j], -float(offset))
    for name, low, high in zip(names, lower, upper, strict=True):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise RejectedError(f"the limits of {name} are not those of a finite box that has a volume")
    return lower, upper


def _check_extent(cell: dict[str, Any], where: str, limits: Limits, noise: list[float]) -> None:
    """A cell is a box within the limits, and its plan is proved from all true states that may be there."""
    ends = zip(cell["lower"], cell["upper"], *limits, strict=True)
    if not all(least <= low < high <= most for low, high, least, most in ends):
        raise RejectedError(f"{where} must be a box that has a volume, within the limits")
    rows = ([Fraction(v) for v in row] for row in (cell["lower"], cell["upper"], cell["x0"], cell["reach"], noise))
    for low, high, x, reach, e in zip(*rows, strict=True):
        if not (x - reach <= low - e and high + e <= x + reach):
            raise RejectedError(f"{where}: its plan is not proved from all states that may be in it")


def _check_boxes(cell: dict[str, Any], where: str, limits: Limits, names: list[str]) -> None:
    """Every box of a plan is within the limits, and not empty."""
    for n, row in enumerate(cell["bounds"], start=1):
        for name, proofs, least, most in zip(names, row, *limits, strict=True):
            low, high = (proofs[side]["bound"] for side in ("lower", "upper"))
            if low > high:
                raise RejectedError(f"{where}, step {n}, state {named(name)}: the lower bound is above the upper")
            if not least <= low <= high <= most:
                raise RejectedError(f"{where}, step {n}, state {named(name)}: the box is not within the limits")


def _volume(lower: Sequence[float], upper: Sequence[float]) -> int:
    """Exactly, with sides in units of which every double is a multiple."""
    ends = ([Fraction(v) * 2**1074 for v in row] for row in (lower, upper))
    return math.prod((high - low).numerator for low, high in zip(*ends, strict=True))


def _double_below(value: Fraction) -> float:
    """The largest double that is not above: compared with doubles from below, it acts like the number itself."""
    try:
        nearest = float(value)
    except OverflowError:
        raise RejectedError("a box, widened by what measurements may be off, is too large for doubles") from None
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


class Batch(NamedTuple):
    """Bounds of a region that a process proves together: one step and state, in some of its cells."""

    n: int
    i: int
    first: int
    last: int


class Prover:
    """Proves bounds of a region, batch by batch; keeps the kernel values of the latest step and state."""

    def __init__(self, content: dict[str, Any], work: Work) -> None:
        self.content, self.work = content, work
        self.proofs = proofs_by_place(content)
        self.matrix = lru_cache(maxsize=1)(self._matrix)

    def batches(self) -> list[Batch]:
        """All bounds, step by step and state by state."""
        return [
            Batch(n, i, first, first + CELLS_AT_ONCE)
            for (n, i), proofs in self.proofs.items()
            for first in range(0, len(proofs), CELLS_AT_ONCE)
        ]

    def _matrix(self, n: int, i: int) -> Matrix | None:
        component = self.content["steps"][n][i]
        if not matrix_is_worth_it(component, self.proofs[n, i]):
            return None
        ctx.prec = PRECISIONS[0]
        return kernel_rows(component["kernel"], component["samples"]["inputs"], component["samples"]["inputs"])

    def prove(self, batch: Batch) -> tuple[list[dict[str, Any]], str]:
        """What to report about every bound, and why one of them is not proved, if so."""
        slacks: list[dict[str, Any]] = []
        try:
            for c, both in self.proofs[batch.n, batch.i][batch.first : batch.last]:
                slacks += self._cell(batch.n, batch.i, c, both)
        except RejectedError as reason:
            return slacks, str(reason)
        return slacks, ""

    def _cell(self, n: int, i: int, c: int, both: dict[str, Any]) -> Iterator[dict[str, Any]]:
        name, cell = self.content["question"]["state_names"][i], self.content["cells"][c]
        component = {**self.content["steps"][n][i], **both}
        x = [*cell["x0"], *(u for inputs in cell["inputs"][: n + 1] for u in inputs)]
        place = {"cell": c + 1, "step": n + 1, "state": name}
        for side in ("lower", "upper"):
            where = f"cell {c + 1}, step {n + 1}, state {named(name)}, {side}"
            slack = _slack(component, side, x, cell["reach"], where, self.work, self.matrix(n, i))
            yield {**place, **_told(both[side]["bound"], side, slack)}


_provers: list[Prover] = []
"""The prover of a process that was started to prove batches of a region."""


def _start(content: dict[str, Any], limit: int, done: int) -> None:
    _provers[:] = [Prover(content, Work(limit, done))]


def _prove(batch: Batch) -> tuple[list[dict[str, Any]], str]:
    return _provers[0].prove(batch)


def check_region_bounds(
    content: dict[str, Any],
    slacks: list[dict[str, Any]],
    work: Work,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Every claimed bound of every cell is at least (upper) or at most (lower) what its witnesses prove.

    Each process may use the remaining work limit, so that the total time is bounded.
    """
    prover = Prover(content, work)
    batches = prover.batches()
    total = 2 * len(content["question"]["state_names"]) * sum(len(cell["bounds"]) for cell in content["cells"])
    if min(n_jobs, len(batches)) <= 1:
        _gather(map(prover.prove, batches), slacks, total, progress)
        return
    arguments = (content, work.limit, work.done)
    with ProcessPoolExecutor(min(n_jobs, len(batches)), get_context("spawn"), _start, arguments) as pool:
        try:
            _gather(pool.map(_prove, batches), slacks, total, progress)
        finally:
            pool.shutdown(cancel_futures=True)


def _gather(
    results: Iterator[tuple[list[dict[str, Any]], str]],
    slacks: list[dict[str, Any]],
    total: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """What was proved, batch by batch, up to the first bound that was not."""
    for proved, reason in results:
        slacks += proved
        if reason:
            raise RejectedError(reason)
        if progress is not None:
            progress(len(slacks), total)
    if len(slacks) != total:
        raise RejectedError("some bounds were not looked at")


# ---- consistency: some function satisfies the assumptions, so they do not contradict each other


class Sample(NamedTuple):
    """`f(x)` lies between `least` and `most`, each moved outwards by the same amount."""

    x: State
    least: float | arb
    most: float | arb
    widening: arb | None = None
    """That amount, where it differs from the common one."""


def check_samples(
    content: dict[str, Any], recordings: Recordings | None, narrowing: Narrowing | None, work: Work
) -> tuple[str, int | None]:
    """The assumptions are consistent with all samples, and these are in the recordings, if there are any.

    Returns a description of what was done, and the number of samples found.
    """
    question, data = content["question"], content["data"]
    n_history = history_size(content)
    is_given = recordings is not None and data["narrowing"] is not None and narrowing is None
    n_found = n_intervals = 0
    for n, row in enumerate(content["steps"], start=1):
        n_dims = n_history + n * len(question["input_names"])
        recorded = None if recordings is None else recordings.samples(n)
        for i, (name, component) in enumerate(zip(question["state_names"], row, strict=True)):
            where = f"step {n}, state {named(name)}"
            if recorded is None:
                check_consistency(component, _touched(component), lambda: arb(0), where, work)
                continue

            def widening(component: dict[str, Any] = component, n_dims: int = n_dims) -> arb:
                return _half(component) + uncertainty(component, data["initial_state_noise"], n_dims)

            if not recorded:
                raise RejectedError(f"{where}: no recording has that many steps")
            outputs = {x: [state[i] for state in states] for x, states in recorded.items()}
            samples = _residuals(component, outputs)
            narrowed = {}
            if narrowing is not None:
                narrowed = narrowing.samples(component, n, i, outputs, data["initial_state_noise"], where, work)
            n_found += _look_up(component, samples, widening, narrowed, where, is_given=is_given)
            if is_given:
                check_consistency(component, _touched(component), lambda: arb(0), where, work)
            work.take(
                kernel_work(component["kernel"], n_dims, (len(narrowed), len(component["consistency"]["inputs"])))
            )
            check_consistency(component, _all_intervals(samples, narrowed), widening, where, work)
            n_intervals += len(samples)
    if recordings is None:
        return "samples not looked up: intervals are taken as given", None
    begin = "from any instant on"
    if not recordings.is_windowed:
        begin = "from their first instants on"
        if any(len(states) - 1 > len(content["steps"]) for states, _ in recordings.runs):
            begin += " (what begins at later ones was not used)"
    found = f"{n_found:,} samples found in the recordings"
    if is_given:
        found += ", how narrow their intervals are is taken as given"
    return (
        f"{found}, consistency proved through all {n_intervals:,} recorded intervals of {len(recordings.runs):,} "
        f"runs, {begin}"
    ), n_found


def _all_intervals(samples: dict[State, Sample], narrowed: dict[State, Sample]) -> list[Sample]:
    """The intervals of all recordings, and the narrowed ones: each once, if they belong to the same outputs.

    The narrowing of some intervals rests on all the others. A function through all of them rules out a contradiction.
    """
    kept = dict(samples)
    more = []
    for x, sample in narrowed.items():
        if (sample.least, sample.most) == (samples[x].least, samples[x].most):
            kept[x] = sample
        else:
            more.append(sample)
    return [*kept.values(), *more]


def _half(component: dict[str, Any]) -> arb:
    """How far a recorded value may be from the plant's value at the true argument."""
    return arb(component["noise_bound"]["value"]) + arb(component["disturbance_bound"]["value"])


def _residuals(component: dict[str, Any], outputs: dict[State, list[float]]) -> dict[State, Sample]:
    """Recorded values minus the prior, with enough digits to lose nothing."""
    if component["prior"] is None:
        return {x: Sample(x, max(values), min(values)) for x, values in outputs.items()}
    ctx.prec = PRECISIONS[-1]
    middles = {x: prior_value(component, x) for x in outputs}
    return {x: Sample(x, max(values) - middles[x], min(values) - middles[x]) for x, values in outputs.items()}


def _touched(component: dict[str, Any]) -> list[Sample]:
    """The samples that bounds rest on, each once."""
    found: dict[State, Sample] = {}
    for x, (low, high) in zip(component["samples"]["inputs"], component["samples"]["intervals"], strict=True):
        key = tuple(map(float, x))
        before = found.get(key, Sample(key, low, high))
        found[key] = Sample(key, max(before.least, low), min(before.most, high), arb(0))
    return list(found.values())


def _look_up(
    component: dict[str, Any],
    samples: dict[State, Sample],
    widening: Callable[[], arb],
    narrowed: dict[State, Sample],
    where: str,
    *,
    is_given: bool,
) -> int:
    """Every sample that bounds rest on was recorded, and its interval follows; returns how many there are.

    `narrowed` says which of them are widened by less. The effect of uncertain histories is taken as given, and may be
    zero.
    """
    ctx.prec = PRECISIONS[0]
    wider, touched = _half(component) if is_given else widening(), _touched(component)
    for x, low, high, _ in touched:
        sample = samples.get(x)
        if sample is None:
            raise RejectedError(f"{where}: the sample at {plain(x)} is not in the recordings")
        own = narrowed[x].widening if x in narrowed else None
        by = wider if own is None else own
        if not (arb(sample.least) - by >= arb(low) and arb(sample.most) + by <= arb(high)):
            raise RejectedError(f"{where}: the interval at {plain(x)} does not follow from the recordings")
    return len(touched)


def check_consistency(
    component: dict[str, Any], samples: list[Sample], widening: Callable[[], arb], where: str, work: Work
) -> None:
    """A function of norm at most the norm bound passes through all intervals, `widening` further out than they say.

    It is the one in the certificate or, where that misses a few of them by rounding, one close to it.
    """
    kernel, inputs = component["kernel"], component["consistency"]["inputs"]
    norm_bound, n_dims = component["norm_bound"]["value"], max((len(x) for x in inputs), default=0)
    missed, values = list(range(len(samples))), [arb(0)] * len(samples)
    for precision in PRECISIONS:
        units = kernel_work(kernel, n_dims, (len(inputs), len(inputs)), (len(missed), len(inputs)))
        set_precision(precision, work, units)
        weights = [arb(w) for w in component["consistency"]["weights"]]
        square = sum(map(mul, weights, function_values(kernel, inputs, weights, inputs)), arb(0))
        fit = Fit(component, samples, values, square, widening())
        open_values = function_values(kernel, inputs, weights, [samples[i].x for i in missed])
        for i, value in zip(missed, open_values, strict=True):
            low, high = fit.ends(i)
            if low > high:
                raise RejectedError(f"{where}: what was recorded at {plain(samples[i].x)} contradicts the noise bound")
            values[i] = value
        missed = [i for i in missed if not fit.slack(i, values[i]) >= 0]
        if (not missed and square <= arb(norm_bound) ** 2) or (missed and fit.is_repaired(work)):
            return
    problem = f"has norm {float(square.nonnegative_part().sqrt().mid())!r}, above the norm bound {number(norm_bound)}"
    if missed:
        misses = {i: -float(fit.slack(i, values[i]).mid()) for i in missed}
        worst = max(missed, key=misses.__getitem__)
        problem = f"misses {len(missed)} of {len(samples)}, that at {plain(samples[worst].x)} by {misses[worst]:.3g}"
    raise RejectedError(
        f"{where}: it is not proved that the assumptions agree with the intervals: the function that shall show it "
        + problem
    )


class Fit(NamedTuple):
    """A function given by its values at the samples and its squared norm."""

    component: dict[str, Any]
    samples: list[Sample]
    values: list[arb]
    square: arb
    widening: arb

    def slack(self, i: int, value: arb) -> arb:
        """How far inside its interval a value at a sample is; negative outside."""
        low, high = self.ends(i)
        return (value - low).min(high - value)

    def ends(self, i: int) -> tuple[arb, arb]:
        """The interval of one sample, widened."""
        _, least, most, own = self.samples[i]
        wider = self.widening if own is None else own
        return arb(least) - wider, arb(most) + wider

    def is_repaired(self, work: Work) -> bool:
        """Whether a sum of kernels at some samples, added to the function `g`, makes it pass through all intervals.

        Let `K c = r`, with `K` the kernel matrix of these samples and `r` what `g` lacks there to a target inside the
        interval. Then `g + sum_v c_v k_v` meets the targets, and its squared norm is `||g||^2 + 2 g . c + r . c`.
        Elsewhere it differs from `g` by at most `|| sum_v c_v k_v || sqrt(k(x, x))`, and where that is too much, it is
        evaluated. First come the samples where `g` was meant to be at an end of the interval; then, one by one, those
        that are missed.
        """
        kernel, bound = self.component["kernel"], arb(self.component["norm_bound"]["value"])
        size = partial(kernel_work, kernel, len(self.samples[0].x))
        values, targets = list(self.values), dict[int, arb]()
        chosen = self._touching()
        while chosen and len(targets) + len(chosen) <= MAX_REPAIRED:
            targets |= {v: self._target(v, values[v]) for v in chosen}
            X = [self.samples[v].x for v in targets]
            work.take(size((len(X), len(X))) * ctx.prec // 128 + len(X) ** 3 * ctx.prec // 512 + 20 * len(values))
            K, r = kernel_rows(kernel, X, X), [target - self.values[v] for v, target in targets.items()]
            try:
                c = [entry for (entry,) in arb_mat(K).solve(arb_mat([[entry] for entry in r])).tolist()]
            except ZeroDivisionError:  # singular, or indistinguishable from it at this precision
                return False
            grown = sum((w * (2 * self.values[v] + e) for v, w, e in zip(targets, c, r, strict=True)), arb(0))
            if not self.square + grown <= bound**2:
                return False
            change = (sum(map(mul, r, c), arb(0)) * K[0][0]).nonnegative_part().sqrt()
            others = [i for i, g in enumerate(self.values) if i not in targets and not self.slack(i, g) >= change]
            work.take(size((len(others), len(X))) * ctx.prec // 128)
            moved = function_values(kernel, X, c, [self.samples[i].x for i in others])
            for i, change_here in zip(others, moved, strict=True):
                values[i] = self.values[i] + change_here
            missed = [i for i in others if not self.slack(i, values[i]) >= 0]
            if not missed:
                return all(self.slack(v, target) >= 0 for v, target in targets.items())
            chosen = [min(missed, key=lambda i: float(self.slack(i, values[i]).mid()))]
        return False

    def _touching(self) -> list[int]:
        """The samples whose kernels make up the function and that it passes about as closely as it misses the worst.

        There are none where it misses one by more than rounding: that is not repaired.
        """
        misses = [-float(self.slack(i, value).mid()) for i, value in enumerate(self.values)]
        worst, function = max(misses), self.component["consistency"]
        ((variance,),) = kernel_rows(self.component["kernel"], [self.samples[0].x], [self.samples[0].x])
        if not worst <= ROUNDING * float(variance.mid()) * sum(map(abs, function["weights"])):
            return []
        support = set(map(tuple, function["inputs"]))
        near = [i for i, s in enumerate(self.samples) if s.x in support and abs(misses[i]) <= 2.0 * worst]
        return near or [misses.index(worst)]

    def _target(self, i: int, value: arb) -> arb:
        """The closest number inside the interval to a value, off the end by a small share of the miss."""
        low, high = (end.mid() for end in self.ends(i))
        inset = (-self.slack(i, value).mid() / 1024).nonnegative_part().min((high - low) / 2)
        return value.mid().max(low + inset).min(high - inset).mid()


# ---- narrowing: how small the effect of uncertain histories on recorded samples is, in rounds


@dataclass(frozen=True)
class Narrowing:
    """By step and state: samples, and for every round the weights that bound the slopes at each of them.

    A round has bounds for every uncertain entry of the history and every distinct sample, on the slope and on minus it.
    """

    arrays: dict[str, Array]

    def samples(
        self,
        component: dict[str, Any],
        n: int,
        i: int,
        outputs: dict[State, list[float]],
        noise: list[float],
        where: str,
        work: Work,
    ) -> dict[State, Sample]:
        """The samples in it, and by how much the intervals are wider than what was recorded: what is proved of that."""
        if f"starts_{n}_{i}_0" not in self.arrays or not component["samples"]["inputs"]:
            return {}
        try:
            return self._narrowed(component, n, i, outputs, noise, where, work)
        except (ValueError, KeyError) as error:
            raise RejectedError(f"{where}: what narrows its samples is not readable ({plain(error)})") from None

    def _narrowed(
        self,
        component: dict[str, Any],
        n: int,
        i: int,
        outputs: dict[State, list[float]],
        noise: list[float],
        where: str,
        work: Work,
    ) -> dict[State, Sample]:
        n_dims = len(component["samples"]["inputs"][0])
        inputs, recorded = self.arrays[f"inputs_{n}"].rows(n_dims), self.arrays[f"outputs_{n}_{i}"].numbers()
        found: dict[State, list[float]] = {}
        known = {x: set(values) for x, values in outputs.items()}
        for x, y in zip(inputs, recorded, strict=True):
            if y not in known.get(x, ()):
                raise RejectedError(f"{where}: a sample that narrows others, at {plain(x)}, is not in the recordings")
            found.setdefault(x, []).append(y)
        samples = _residuals(component, found)
        ctx.prec = PRECISIONS[0]
        points = list(samples)
        half = _half(component)
        widths = [uncertainty(component, noise, n_dims)] * len(points)
        matrix = None
        if len(points) <= MOST_IN_MATRIX:
            work.take(kernel_work(component["kernel"], n_dims, (len(points), len(points))))
            matrix = kernel_rows(component["kernel"], points, points)
        for r in range(len(self.arrays)):
            if f"starts_{n}_{i}_{r}" not in self.arrays:
                break
            ends = [
                (arb(samples[x].least) - half - width, arb(samples[x].most) + half + width)
                for x, width in zip(points, widths, strict=True)
            ]
            proved = self._round(f"{n}_{i}_{r}", component, points, matrix, ends, noise, work)
            widths = [old.min(new) for old, new in zip(widths, proved, strict=True)]
        return {x: samples[x]._replace(widening=half + width) for x, width in zip(points, widths, strict=True)}

    def _round(
        self,
        name: str,
        component: dict[str, Any],
        points: list[State],
        matrix: list[list[arb]] | None,
        ends: list[tuple[arb, arb]],
        noise: list[float],
        work: Work,
    ) -> list[arb]:
        """What one round proves, from the intervals of the previous one."""
        uncertain = [j for j, h in enumerate(noise) if h]
        starts, rows = (self.arrays[f"{key}_{name}"].whole_numbers() for key in ("starts", "rows"))
        weights = self.arrays[f"weights_{name}"].numbers()
        if len(starts) != 2 * len(uncertain) * len(points) + 1 or any(a > b for a, b in pairwise(starts)):
            raise ValueError("a round has not as many bounds as there are slopes")
        if (starts[0], starts[-1]) != (0, len(weights)):
            raise ValueError("a round has not as many weights as its bounds")
        if not 0 <= min(rows, default=0) <= max(rows, default=0) < len(points) or len(rows) != len(weights):
            raise ValueError("a weight is on a sample that is not there")
        kernel, n_dims = component["kernel"], len(component["samples"]["inputs"][0])
        sizes = [b - a for a, b in pairwise(starts)]
        work.take(sum(slope_work(kernel, n_dims, size) for size in sizes))
        if matrix is None:
            work.take(kernel_work(kernel, n_dims, *((size, size) for size in sizes)))
        bent = remainder(component, {j: arb(noise[j]) for j in uncertain})
        widths = [bent + prior_change(component, noise, is_blur=True)] * len(points)
        for q, (j, k) in enumerate(product(uncertain, range(len(points)))):
            bounds = []
            for is_mirrored, (first, last) in enumerate(pairwise(starts[2 * q : 2 * q + 3])):
                used = rows[first:last]
                parts = ([points[row] for row in used], [ends[row] for row in used], weights[first:last])
                known = None if matrix is None else half_of(matrix, used)
                bounds.append(weighted_bound(component, *parts, points[k], bool(is_mirrored), j, known))
            widths[k] += arb(noise[j]) * steepest(component, j, bounds[0], bounds[1])
        return widths


def read_narrowing(folder: Path, content: dict[str, Any], work: Work) -> Narrowing | None:
    """The file beside the certificate that it refers to; none if it is missing, or no file is referred to."""
    part = content["data"]["narrowing"]
    if part is None:
        return None
    name, path = str(part["name"]), folder / str(part["name"])
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_DATA_BYTES + 1)
        if len(raw) > MAX_DATA_BYTES or hashlib.sha256(raw).hexdigest() != part["sha256"]:
            raise RejectedError(f"{plain(name)}: the hash differs from that in the certificate")
        if raw.count(b"PK\x01\x02") > 100_000:
            raise ValueError("too many members")
        work.take(len(raw))
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = archive.infolist()
            work.take(sum(member.file_size for member in members) + 1000 * len(members))
            names = [member.filename.removesuffix(".npy") for member in members]
            return Narrowing({key: Array.read(archive, key) for key in names})
    except OSError as error:
        raise UnreadableError(f"{plain(name)}: {error.strerror or plain(error)}") from None
    except _BROKEN as error:
        raise UnreadableError(f"{plain(name)}: not readable ({plain(error)})") from None


# ---- verdict and margins, in rational arithmetic


def check_claim(content: dict[str, Any]) -> None:
    """The verdict follows from the bounds and limits, or is weaker; margins are not larger than they are."""
    question, claim = content["question"], content["claim"]
    limits = question["state_limits"]
    found, is_outside = [], _breaks_input_limits(question)
    for n, (row, margins) in enumerate(zip(content["steps"], claim["margins"], strict=True), start=1):
        ends = [[Fraction(component[side]["bound"]) for side in ("lower", "upper")] for component in row]
        for normal, offset, claimed in zip(limits["normals"], limits["offsets"], margins, strict=True):
            reached = [sorted(Fraction(a) * end for end in pair) for a, pair in zip(normal, ends, strict=True)]
            best, worst = (sum(part, Fraction(0)) for part in zip(*reached, strict=True))
            margin, is_outside = Fraction(offset) - worst, is_outside or best > Fraction(offset)
            if Fraction(claimed) > margin:
                stated = inequality([named(name) for name in question["state_names"]], normal, offset)
                raise RejectedError(f"step {n}, {stated}: the margin is {_rounded(margin)}, not {number(claimed)}")
            found.append(margin)
    verdict = "REFUTED" if is_outside else "CERTIFIED" if min(found) >= 0 else "UNDECIDED"
    if claim["verdict"] not in (verdict, "UNDECIDED"):
        raise RejectedError(f"the verdict that follows is {verdict}, not {claim['verdict']}")
    if Fraction(claim["margin"]) > min(found):
        raise RejectedError(f"the smallest margin is {_rounded(min(found))}, not {number(claim['margin'])}")


def _rounded(value: Fraction) -> str:
    try:
        return repr(float(value))
    except OverflowError:
        return "beyond the doubles"


def _breaks_input_limits(question: dict[str, Any]) -> bool:
    plan = [[Fraction(u) for u in row] for row in question["inputs"]]
    changes = [[after - before for before, after in zip(*pair, strict=True)] for pair in pairwise(plan)]
    for key, rows in (("input_limits", plan), ("input_rate_limits", changes)):
        if (box := question.get(key)) is None:
            continue
        for row in rows:
            for value, low, high in zip(row, box["lower"], box["upper"], strict=True):
                if (low is not None and value < Fraction(low)) or (high is not None and value > Fraction(high)):
                    return True
    return False


# ---- recordings

Runs = list[tuple[list[State], list[State]]]
_BROKEN = (ValueError, EOFError, OverflowError, RuntimeError, struct.error, csv.Error, zlib.error, zipfile.BadZipFile)
"""Errors that reading a forged file can raise."""


@dataclass(frozen=True)
class Recordings:
    """Recorded runs: states, and the inputs held between them."""

    runs: Runs
    is_windowed: bool
    """Whether samples begin at any instant of a run, not only at its first."""
    shape: tuple[int, int] = (1, 0)
    """Numbers of outputs and inputs in a history."""
    histories: list[State] | None = None
    """Histories of the runs, where these are windows that do not contain them."""

    @property
    def lead(self) -> int:
        """The first instant of a run that has a history."""
        return max(self.shape[0] - 1, self.shape[1])

    def n_samples(self, n_steps: int) -> dict[int, int]:
        """Maximum number of samples of the state after 1, 2, ... steps."""
        lengths = Counter(len(states) - 1 for states, _ in self.runs)
        return {
            n: sum(count * (size - n + 1 if self.is_windowed else 1) for size, count in lengths.items() if size >= n)
            for n in range(1, n_steps + 1)
        }

    def samples(self, n: int) -> dict[State, list[State]]:
        """The states after `n` steps, by argument: the history before them, then the inputs."""
        found: dict[State, list[State]] = {}
        for number, (states, inputs) in enumerate(self.runs):
            end = len(states) - n
            for first in range(self.lead, end) if self.is_windowed else range(min(1, max(0, end))):
                x = (*self._history(number, first), *(u for held in inputs[first : first + n] for u in held))
                found.setdefault(x, []).append(states[first + n])
        return found

    def _history(self, number: int, first: int) -> State:
        if self.histories is not None:
            return self.histories[number]
        states, inputs = self.runs[number]
        past = [states[first - k] for k in range(self.shape[0])]
        return tuple(v for row in (*past, *(inputs[first - k] for k in range(1, self.shape[1] + 1))) for v in row)


def in_steps(runs: Runs, every: int) -> Runs:
    """Runs in steps of several samples: states at their ends, inputs averaged over them."""
    if every == 1:
        return runs
    found = []
    for states, inputs in runs:
        n_steps = len(inputs) // every
        steps = [inputs[k * every : (k + 1) * every] for k in range(n_steps)]
        means = [tuple(math.fsum(column) / every for column in zip(*rows, strict=True)) for rows in steps]
        found.append((states[: n_steps * every + 1 : every], means))
    return found


def read_recordings(path: Path, content: dict[str, Any], work: Work) -> Recordings:
    """The recordings that the certificate was made from, identified by the hash of the file, or of the arrays in it.

    Nothing in a file is read before a hash was found right, except the location of its arrays.
    """
    name, data, question = plain(path, 200), content["data"], content["question"]
    file = data["file"] or {"sha256": None, "is_windowed": False}
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_DATA_BYTES + 1)
        if len(raw) > MAX_DATA_BYTES:
            raise ValueError(f"more than {MAX_DATA_BYTES} bytes")
        is_file = hashlib.sha256(raw).hexdigest() == file["sha256"]
        if path.suffix.lower() == ".csv":
            if data["file"] is None:
                raise RejectedError(
                    f"{name}: the certificate names no file of recordings; save it with data_file=, the file that its "
                    "runs were read from"
                )
            _require_hash(name, is_file)
            work.take(len(raw) + 40 * (raw.count(b"\n") + raw.count(b"\r")))
            runs = _csv_runs(raw.decode("utf-8-sig"), question["state_names"], question["input_names"])
            recordings = _cut(runs, file["is_windowed"], data["shape"])
        elif path.suffix.lower() == ".npz":
            recordings = _npz_recordings(name, raw, is_file, content, work)
        else:
            raise ValueError("the ending must be .csv or .npz")
    except OSError as error:
        raise UnreadableError(f"{name}: {error.strerror or plain(error)}") from None
    except _BROKEN as error:
        raise UnreadableError(f"{name}: not readable as recordings ({plain(error)})") from None
    work.take(recorded_work(content, recordings.n_samples(len(content["steps"]))))
    return recordings


def _cut(runs: Runs, is_windowed: bool, shape: list[int]) -> Recordings:
    """The samples of whole recordings; only windows have a past."""
    if not is_windowed and shape != [1, 0, 1]:
        raise RejectedError("only windows of recordings have histories, or steps of several samples")
    return Recordings(in_steps(runs, shape[2]), is_windowed, (shape[0], shape[1]))


def _require_hash(name: str, is_right: bool) -> None:
    if not is_right:
        raise RejectedError(f"{name}: the certificate was made from other data, the hash differs")


def _csv_runs(text: str, state_names: list[str], input_names: list[str]) -> Runs:
    """One row per instant; inputs of the last instant of a run are not read.

    Columns are separated by commas, or by semicolons or tabs where the header has none. Without a clock and names of
    runs, rows are one run in their order.
    """
    header = re.split("[\r\n]", text.lstrip(), maxsplit=1)[0]
    mark = "," if "," in header else ";" if ";" in header else "\t" if "\t" in header else ","
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    rows = ((reader.line_num, [" ".join(cell.split()) for cell in cells]) for cells in reader)
    rows = ((line, cells) for line, cells in rows if any(cells))
    _, columns = next(rows, (0, []))
    clock = next((name for name in ("time", "step", "sample") if name in columns), "step")
    has_clock = clock in columns or "trajectory" in columns
    wanted = {name: " ".join(name.split()) for name in (*state_names, *input_names, *([clock] if has_clock else []))}
    places = {}
    for name, column in wanted.items():
        if columns.count(column) != 1:
            raise ValueError(f"{columns.count(column)} columns are called {column!r}")
        places[name] = columns.index(column)
    which = columns.index("trajectory") if "trajectory" in columns else None
    by_run: dict[str, list[tuple[int, list[str]]]] = {}
    for line, cells in rows:
        if len(cells) != len(columns):
            raise ValueError(f"row {line} has {len(cells)} cells for {len(columns)} columns")
        by_run.setdefault("" if which is None else cells[which], []).append((line, cells))
    texts = [cells for run in by_run.values() for _, cells in run]
    _write_points(texts, set(places.values()))
    if clock == "time" and len({_seconds(cells[places[clock]]) is None for cells in texts}) > 1:
        raise ValueError("times are dates in some rows only")

    def numbers(row: tuple[int, list[str]], names: list[str]) -> State:
        line, cells = row
        try:
            values = tuple(float(cells[places[name]]) for name in names)
        except ValueError:
            values = (math.nan,)
        if not all(map(math.isfinite, values)):
            raise ValueError(f"row {line} holds something else than finite numbers")
        return values

    def instant(row: tuple[int, list[str]]) -> float | Fraction:
        date = _seconds(row[1][places[clock]]) if clock == "time" else None
        return numbers(row, [clock])[0] if date is None else date

    runs, spacing = [], None
    for run in by_run.values():
        if has_clock:
            run.sort(key=instant)
        for before, after in pairwise(map(instant, run) if has_clock else range(len(run))):
            spacing = (float(after - before) if clock == "time" else 1.0) if spacing is None else spacing
            if not abs(after - before - spacing) <= 0.003 * spacing:
                times = f"{float(before):g} to {float(after):g}"
                raise ValueError(f"{clock} goes from {times}, where steps of {spacing:g} are expected")
        states = [numbers(row, state_names) for row in run]
        runs.append((states, [numbers(row, input_names) for row in run[:-1]]))
    return runs


def _write_points(rows: list[list[str]], places: set[int]) -> None:
    """Replace decimal commas by points; refused unless the commas are clearly decimal."""
    commas, is_plain, has_points = [], False, False
    for cells in rows:
        for place in places:
            found = re.fullmatch(r"[+-]?([0-9]*)([.,])([0-9]*)([eE][+-]?[0-9]+)?", cells[place])
            if found and found[2] == ",":
                commas.append((cells, place))
                grouped = 1 <= len(found[1]) <= 3 and found[1][0] != "0" and len(found[3]) == 3 and not found[4]
                is_plain = is_plain or not grouped
            has_points = has_points or (found is not None and found[2] == ".")
    if commas and (has_points or not is_plain):
        raise ValueError("numbers have commas that may not be decimal ones")
    for cells, place in commas:
        cells[place] = cells[place].replace(",", ".")


def _seconds(text: str) -> Fraction | None:
    """The instant of an ISO date such as 2024-05-01T12:00:03.5+02:00; fractions of a second to any digit."""
    date, time, zone = r"(\d{4}-\d\d-\d\d)", r"(\d\d:\d\d)(?::(\d\d)(?:[.,](\d+))?)?", r"(Z|[+-]\d\d(?::?\d\d)?)"
    found = re.fullmatch(f"{date}(?:[T ]{time} ?{zone}?)?", text)
    if found is None:
        return None
    moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}:{found[3] or '00'}{found[5] or 'Z'}")
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return whole + Fraction(int(found[4] or 0), 10 ** len(found[4] or ""))


def _npz_recordings(name: str, raw: bytes, is_file: bool, content: dict[str, Any], work: Work) -> Recordings:
    """From arrays; names and bounds in the file must match those of the certificate."""
    data, question = content["data"], content["question"]
    if raw.count(b"PK\x01\x02") > 1000:
        raise ValueError("too many members")
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        states, inputs, there = Array.read(archive, "states"), Array.read(archive, "inputs"), set(archive.namelist())
        has_past = data["shape"][:2] != [1, 0] and "histories.npy" in there
        histories = Array.read(archive, "histories") if has_past else None
        past = b"" if histories is None else histories.content
        is_same = hashlib.sha256(states.content + inputs.content + past).hexdigest() == data["sha256"]
        _require_hash(name, is_file or is_same)
        further = {
            key: Array.read(archive, key)
            for key in ("state_names", "input_names", "noise_bound", "disturbance_bound", "initial_state_noise")
            if f"{key}.npy" in there
        }
    work.take(len(states.content) + len(inputs.content))
    n_runs, n_instants, n_states = states.shape_of(3)
    sizes = (n_runs, n_instants - 1, inputs.shape_of(3)[2])
    if n_instants < 2 or inputs.shape != sizes:
        raise ValueError(f"states {states.shape} and inputs {inputs.shape} do not go together")
    for key, size in (("state_names", n_states), ("input_names", sizes[2])):
        names = further[key].texts() if key in further else question[key]
        if len(question[key]) != size or names != question[key]:
            raise RejectedError(f"{name}: the {key} are not those of the certificate")
    # Arrays that are exactly the certificate's runs have one sample each; a file may contain what they were cut from.
    is_windowed = not is_same and data["file"]["is_windowed"]
    n_entries = history_size(content) if is_same else n_states
    bounds = {
        key: further[key].by_row(n_instants - 1, n_states) if key in further else []
        for key in ("noise_bound", "disturbance_bound")
    }
    start = further["initial_state_noise"].by_row(1, n_entries) if "initial_state_noise" in further else []
    if is_windowed:  # any instant may be the first or the last of a sample
        largest = {key: [tuple(map(max, zip(*rows, strict=True)))] if rows else [] for key, rows in bounds.items()}
        start = [*start, *largest["noise_bound"]]
        bounds = {key: rows * len(content["steps"]) for key, rows in largest.items()}
    _check_noise(content, bounds, start)
    runs = list(zip(states.nested(), inputs.nested(), strict=True))
    if not is_same:
        return _cut(runs, is_windowed, data["shape"])
    if data["shape"][:2] == [1, 0]:
        return Recordings(runs, False)
    if histories is None or histories.shape_of(2) != (n_runs, n_entries):
        raise ValueError("the histories of its windows are missing")
    values = histories.numbers()
    rows = [values[k : k + n_entries] for k in range(0, len(values), n_entries)]
    return Recordings(runs, False, histories=rows)


def _check_noise(content: dict[str, Any], bounds: dict[str, list[State]], start: list[State]) -> None:
    """The certificate's bounds on noise, disturbances and initial states are no smaller than in the recordings."""
    names, assumed = content["question"]["state_names"], content["data"]["initial_state_noise"]
    n_outputs = content["data"]["shape"][0] * len(names)
    for said in start:
        for i, within in enumerate(assumed if len(said) == len(assumed) else assumed[:n_outputs]):
            if said[i % len(said)] > within:
                raise RejectedError(
                    f"state {named(names[i % len(names)])}: recorded initial states are assumed to be within "
                    f"{number(within)}, but the recordings say {number(said[i % len(said)])}"
                )
    for key, rows in bounds.items():
        for n, (step, said) in enumerate(zip(content["steps"], rows, strict=False), start=1):
            for i, name in enumerate(map(named, names)):
                if said[i] > step[i][key]["value"]:
                    raise RejectedError(
                        f"step {n}, state {name}: the {key.replace('_', ' ')} is {number(step[i][key]['value'])}, but "
                        f"the recordings say {number(said[i])}"
                    )


class Array(NamedTuple):
    """An array in an NPZ file: its type, its shape, and the bytes of its entries."""

    kind: str
    shape: tuple[int, ...]
    content: bytes

    @classmethod
    def read(cls, archive: zipfile.ZipFile, name: str) -> Array:
        """Only the header is interpreted here."""
        try:
            info = archive.getinfo(f"{name}.npy")
        except KeyError:
            raise ValueError(f"there are no {name} in it") from None
        if info.file_size > MAX_DATA_BYTES or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is too large, or packed in an unusual way")
        with archive.open(info) as stream:  # in chunks: a small file can unpack to a large one
            content = b"".join(iter(lambda: stream.read(2**20), b""))
        if content[:6] != b"\x93NUMPY" or content[6:7] not in (b"\x01", b"\x02", b"\x03"):
            raise ValueError(f"{name} is not an array")
        size, start = (*struct.unpack("<H", content[8:10]), 10)
        if content[6] > 1:
            size, start = (*struct.unpack("<I", content[8:12]), 12)
        header = re.fullmatch(
            rb"\{'descr': '(<f8|<U\d{1,4})', 'fortran_order': False, 'shape': \(([\d, ]{0,40})\), \}\s*",
            content[start : start + min(size, 4096)],
        )
        if header is None or start + size > len(content):
            raise ValueError(f"{name} has a header that is not understood here, or is not an array of doubles or texts")
        kind, shape = header[1].decode(), tuple(int(part) for part in header[2].split(b",") if part.strip())
        width = 8 if kind == "<f8" else 4 * int(kind[2:])
        if width * math.prod(shape) != len(content) - start - size:
            raise ValueError(f"{name} has not as many entries as its header says")
        return cls(kind, shape, content[start + size :])

    def shape_of(self, n_axes: int) -> tuple[int, ...]:
        """The shape of an array of doubles, which must have this many axes."""
        if self.kind != "<f8" or len(self.shape) != n_axes:
            raise ValueError(f"an array of doubles with {n_axes} axes is needed; there is {self.kind} {self.shape}")
        return self.shape

    def numbers(self) -> State:
        """All entries in the order of the file; each must be finite."""
        self.shape_of(len(self.shape))
        values = struct.unpack(f"<{len(self.content) // 8}d", self.content)
        if not all(map(math.isfinite, values)):
            raise ValueError("a number is not finite")
        return values

    def whole_numbers(self) -> list[int]:
        """All entries, which must be whole numbers."""
        values = self.numbers()
        if not all(map(float.is_integer, values)):
            raise ValueError("a number is not whole")
        return list(map(int, values))

    def rows(self, n_columns: int) -> list[State]:
        """The rows of a table with this many columns."""
        if self.shape_of(2)[1] != n_columns:
            raise ValueError(f"a table of {n_columns} columns is needed; there is {self.shape}")
        values = self.numbers()
        return [values[k : k + n_columns] for k in range(0, len(values), n_columns)]

    def nested(self) -> list[list[State]]:
        """Runs of instants of columns."""
        _, n_instants, n_columns = self.shape_of(3)
        values = self.numbers()
        rows = [values[k : k + n_columns] for k in range(0, len(values), n_columns)]
        return [rows[k : k + n_instants] for k in range(0, len(rows), n_instants)]

    def by_row(self, n_rows: int, n_columns: int) -> list[State]:
        """One bound for all, one per column, or one per row and column."""
        values = self.numbers()
        if self.shape not in ((), (n_columns,), (n_rows, n_columns)):
            raise ValueError(f"bounds of shape {self.shape} do not go with {n_rows} steps and {n_columns} states")
        table = values * n_columns if self.shape == () else values
        rows = [table[k : k + n_columns] for k in range(0, len(table), n_columns)]
        return rows if len(self.shape) == 2 else rows * n_rows

    def texts(self) -> list[str]:
        """The entries of an array of names."""
        if self.kind == "<f8" or len(self.shape) != 1:
            raise ValueError("names must be texts")
        width = 4 * int(self.kind[2:])
        parts = [self.content[k : k + width] for k in range(0, len(self.content), width or 1)]
        return [part.decode("utf-32-le").rstrip("\0") for part in parts]


# ---- what acceptance promises, in words; everything but names and provenances is derived from numbers


def inequality(names: list[str], normal: list[float], offset: float) -> str:
    """`normal . x <= offset`; a plain limit on one state has that state on the left."""
    terms = [(a, name) for a, name in zip(normal, names, strict=True) if a]
    if len(terms) == 1 and abs(terms[0][0]) == 1:
        ((a, name),) = terms
        return f"{name} <= {number(offset)}" if a > 0 else f"{name} >= {number(-offset)}"
    signed = [f"{'-' if a < 0 else '+'} {number(abs(a))} {name}" for a, name in terms]
    return f"{' '.join(signed).removeprefix('+ ')} <= {number(offset)}"


def limits_in_words(question: dict[str, Any]) -> list[str]:
    """One line per limit on a state, an input or an input change."""
    limits, names = question["state_limits"], [named(name) for name in question["state_names"]]
    lines = [inequality(names, *row) for row in zip(limits["normals"], limits["offsets"], strict=True)]
    for key, what in (("input_limits", ""), ("input_rate_limits", "change of ")):
        box = question.get(key) or {"lower": [], "upper": []}
        for name, low, high in zip(question["input_names"], box["lower"], box["upper"], strict=False):
            lines += [f"{what}{named(name)} >= {number(low)}"] if low is not None else []
            lines += [f"{what}{named(name)} <= {number(high)}"] if high is not None else []
    return lines


def plan_in_words(content: dict[str, Any]) -> list[str]:
    """The initial state, then one line per input with its values at all steps."""
    question = content["question"]
    start = (f"{name} = {number(x)}" for name, x in zip(history_names(content), question["x0"], strict=True))
    held = zip(*question["inputs"], strict=True)
    return [
        f"from {', '.join(start)}",
        *(
            f"{named(name)} = {', '.join(map(number, values))}"
            for name, values in zip(question["input_names"], held, strict=True)
        ),
    ]


def plans_in_words(content: dict[str, Any]) -> list[str]:
    """The number of cells, the lengths of their plans, and the share they cover."""
    cells, sizes = content["cells"], Counter(len(cell["inputs"]) for cell in content["cells"])
    lengths = ", ".join(f"{count:,} of {_steps(n)}" for n, count in sorted(sizes.items()))
    share = f"{percent(content['claim']['share'])} of the volume of the limits"
    return [
        f"from every measured state in one of {len(cells):,} cells, which have {share}, the plan of that cell",
        f"and from where that ends, in a cell again, the next one (plans: {lengths})",
    ]


def _steps(n: int) -> str:
    return f"{n} step{'s'[: n != 1]}"


def percent(share: float) -> str:
    """With one digit, rounded down."""
    return f"{math.floor(Fraction(share) * 1000) / 10:.1f} %"


def history_names(content: dict[str, Any]) -> list[str]:
    """`T, T[-1], Q[-1]`: the present states, past ones, and past inputs."""
    question, (outputs, inputs, _) = content["question"], content["data"]["shape"]
    names = [
        name if k == 0 else f"{name}[-{k}]" for k in range(outputs) for name in map(named, question["state_names"])
    ]
    return names + [f"{name}[-{k}]" for k in range(1, inputs + 1) for name in map(named, question["input_names"])]


def assumptions_in_words(content: dict[str, Any], *, is_narrowed: bool = False) -> list[str]:
    """What must hold for the claim to be true: one line per step and state, then the initial states."""
    question, data = content["question"], content["data"]
    lines = []
    for n, row in enumerate(content["steps"], start=1):
        for name, component in zip(question["state_names"], row, strict=True):
            norm, noise, disturbance = (
                f"{number(component[key]['value'])} ({quoted(component[key]['provenance'])})"
                for key in ("norm_bound", "noise_bound", "disturbance_bound")
            )
            what = _prior_in_words(component["prior"])
            kernel = plain(_kernel_in_words(component["kernel"]), 300)
            line = f"step {n}, {named(name)}: {kernel}, norm{what} at most {norm}, noise at most {noise}"
            lines.append(
                line + (f", disturbances at most {disturbance}" if component["disturbance_bound"]["value"] else "")
            )
    is_region = content["format"] == REGION_FORMAT
    for what, noises in (
        ("states as a plan is chosen" if is_region else "initial states of the plan", question["initial_state_noise"]),
        ("initial states of the recordings", data["initial_state_noise"]),
    ):
        known = (
            f"{name} within {number(noise)}" if noise else f"{name} taken as exactly known"
            for name, noise in zip(history_names(content), noises, strict=True)
        )
        lines.append(f"{what}: {', '.join(known)}")
    if is_region:
        lines.append("the plant stays for ever as it was recorded")
    if data["file"] is not None and data["file"]["is_windowed"]:
        lines.append("samples are windows of recordings, which begin with measured states")
    if data["narrowing"] is not None and not is_narrowed:
        lines.append(
            "intervals of samples, where the histories of the recordings are uncertain, are as narrow as the rounds in "
            f"{quoted(data['narrowing']['name'])} say, which were not looked at (they are with recordings, beside the "
            "certificate)"
        )
    outputs, inputs, every = data["shape"]
    if (outputs, inputs) != (1, 0):
        lines.append(
            f"the future depends on the last {outputs} outputs, {inputs} inputs before, and the inputs to come"
        )
    if every > 1:
        lines.append(f"a step is {every} samples of the recordings, over which inputs are averaged")
    return lines


def _prior_in_words(prior: dict[str, Any] | None) -> str:
    if prior is None:
        return ""
    if prior["kind"] == "affine":
        return f" of what {'an affine' if any(prior['slopes']) else 'a constant'} prior leaves"
    steep = "" if prior["steepness"] is None else f", at most {', '.join(map(number, prior['steepness']))} steep,"
    return f" of what the prior {quoted(prior['name'])}, with its values as given{steep} leaves"


def _kernel_in_words(kernel: dict[str, Any]) -> str:
    kind = kernel["kind"]
    if kind == "Scale":
        return f"{number(kernel['factor'])} * {_kernel_in_words(kernel['kernel'])}"
    if kind in ("Sum", "Product"):
        return f"({_kernel_in_words(kernel['a'])} {'+' if kind == 'Sum' else '*'} {_kernel_in_words(kernel['b'])})"
    scale = kernel["lengthscale"]
    scales = list(dict.fromkeys(map(number, scale if isinstance(scale, list) else [scale])))
    shown = ", ".join(scales if len(scales) == 1 else map(number, scale))
    return f"{kind}(lengthscale {shown}" + (f", alpha {number(kernel['alpha'])})" if "alpha" in kernel else ")")


# ---- command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(4, f"{self.prog}: {plain(message)} (see --help)\n")


def say(text: str) -> None:
    """Print text that any terminal can show."""
    encoding = sys.stdout.encoding or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 accepted, 1 rejected, 4 unreadable."""
    parser = _Parser(description=f"Check a certificate of a plan or of a region. {EXIT_CODES}")
    parser.add_argument("certificate", help="a JSON file")
    parser.add_argument("--data", help="the recordings, CSV or NPZ, to look the samples up in")
    parser.add_argument("--quiet", action="store_true", help="print only the last line")
    parser.add_argument(
        "--work",
        type=int,
        help=f"limit on the work, ten million units being about a second; {WORK} for a plan, {REGION_WORK} for a "
        "region",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes for the cells of a region; %(default)s")
    given = parser.parse_args(arguments)
    progress = _show_progress if sys.stderr.isatty() else None
    try:
        result = verify(given.certificate, given.data, given.work, given.jobs, progress)
    except UnreadableError as error:
        say(f"unreadable: {error}")
        return 4
    if not given.quiet:
        for line in _report(result):
            say(line)
    if not result.accepted:
        say(f"rejected: {result.reason}")
        return 1
    proved = f"{len(result.slacks):,} bounds proved"
    if result.share is not None:
        proved = f"{result.n_cells:,} cells, {proved}, {percent(result.share)} of the limits"
    say(f"accepted: {result.verdict}, {proved}; {result.samples}")
    return 0


def _show_progress(done: int, total: int) -> None:
    """One line on a terminal, which disappears at the end."""
    text = f"{done:,} of {total:,} bounds proved" if done < total else ""
    print(f"\r{text:60}\r", end="", file=sys.stderr, flush=True)


def _report(result: Verification) -> Iterator[str]:
    """What was proved, bound by bound or, for a region, step by step, and what it promises."""
    is_region = any("cell" in row for row in result.slacks[:1])
    yield from (_by_step if is_region else _by_bound)(result.slacks)
    if result.accepted:
        steps = f"the steps 1 to {result.slacks[-1]['step']}"
        kept = {
            "CERTIFIED": f"limits, kept at {steps}",
            "REFUTED": f"limits, not all of which are kept at {steps}",
            "UNDECIDED": f"limits, of which it is not decided whether they are kept at {steps}",
            "INVARIANT": "limits, kept for ever, from step 1 on",
        }[result.verdict]
        for title, lines in (
            ("the plan" if result.share is None else "the plans", result.plan),
            (kept, result.limits),
            ("assumed, not proved", result.assumptions),
        ):
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)


def _by_bound(slacks: list[dict[str, Any]]) -> Iterator[str]:
    yield "step  state         side                    bound  proved beyond it  as a share"
    for row in slacks:
        place = f"{row['step']:4d}  {plain(row['state'], 12):12}  {row['side']}"
        yield f"{place}  {number(row['bound']):>22}  {row['slack']:16.3e}  {row['share']:10.1e}"


def _by_step(slacks: list[dict[str, Any]]) -> Iterator[str]:
    yield "step  state         bounds  proved beyond them, at most  as a share"
    rows: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for row in slacks:
        rows.setdefault((row["step"], row["state"]), []).append((row["slack"], row["share"]))
    for (step, state), values in rows.items():
        slack, share = (max(column) for column in zip(*values, strict=True))
        yield f"{step:4d}  {plain(state, 12):12}  {len(values):6,}  {slack:27.3e}  {share:10.1e}"


if __name__ == "__main__":
    sys.exit(main())
