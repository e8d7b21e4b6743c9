"""Check a certificate without trusting whoever made it.

    python verify.py plan.json [--data runs.csv]

This file needs python-flint and nothing else: copy it out, read it, run it. For every step, state and side the
certificate holds a *witness*, weights `w` on recorded samples `f(x_i) in [l_i, u_i]`. For any weights whatever,

    f(x) <= norm_bound * || k_x - sum_i w_i k_{x_i} ||  +  sum_i max(w_i u_i, w_i l_i)

for every `f` of norm at most `norm_bound` (reproducing property and Cauchy-Schwarz); a lower bound is one of `-f`. The
right-hand side is enclosed in ball arithmetic and compared with the claimed bound; then verdict and margins are derived
from the claimed bounds and the limits in exact rational arithmetic. With the recordings at hand, the samples are looked
up in them as well. What is *not* proved are the assumptions: the norm bounds and the noise bounds.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import json
import math
import struct
import sys
import zipfile
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from flint import arb, ctx

FORMAT, VERSION = "rkhs_control certificate", 1
MAX_BYTES, MAX_PAIRS, MAX_DATA_BYTES = 2**24, 10**6, 2**30
PRECISIONS = (256, 2048)


class UnreadableError(Exception):
    """The file is not a certificate of a version that is known here."""


class RejectedError(Exception):
    """The certificate does not prove what it claims; the message is the first reason."""


@dataclass(frozen=True)
class Verification:
    """Whether a certificate was accepted; if not, the first reason."""

    accepted: bool
    reason: str = ""
    verdict: str = ""
    slacks: list[dict[str, Any]] = field(default_factory=list)
    """For every bound: by how much more than claimed is proved, absolute and as a share of the bound."""
    n_samples_found: int | None = None
    """How many samples were looked up in the recordings."""


def verify(file: str | Path, data: str | Path | None = None) -> Verification:
    """Check a certificate file and, if they are given, look its samples up in the recordings."""
    content = read(Path(file))
    slacks: list[dict[str, Any]] = []
    try:
        check_structure(content)
        check_bounds(content, slacks)
        check_claim(content)
        found = None if data is None else check_data(content, Path(data))
    except RejectedError as reason:
        return Verification(False, str(reason), slacks=slacks)
    return Verification(True, verdict=content["claim"]["verdict"], slacks=slacks, n_samples_found=found)


# ---- reading


def read(path: Path) -> dict[str, Any]:
    """The content of a file, whose objects have no key twice and whose numbers are finite."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableError(f"{path}: more than {MAX_BYTES} bytes")
        content = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite
        )
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not readable as JSON ({str(error)[:100]})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UnreadableError(f"{path}: not a certificate")
    if content.get("version") != VERSION:
        raise UnreadableError(f"{path}: version {str(content.get('version'))[:20]!r}; this checker knows {VERSION}")
    return content


def digest(content: dict[str, Any]) -> str:
    """Of everything but the digest itself: accidents are found, forgeries are not."""
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


# ---- structure: everything has the type, the shape and the size that it must have


def check_structure(content: dict[str, Any]) -> None:
    _keys(content, "the certificate", "format version question data steps claim made_with digest")
    question, data, claim = content["question"], content["data"], content["claim"]
    _keys(
        question,
        "question",
        "state_names input_names x0 inputs initial_state_noise state_limits input_limits input_rate_limits",
    )
    _keys(data, "data", "n_runs sha256 file initial_state_noise")
    _keys(claim, "claim", "verdict margin margins")
    _keys(content["made_with"], "made_with", "rkhs_control python numpy seed")
    if data["file"] is not None:
        _keys(data["file"], "data.file", "name sha256")
    _plain([*(data["file"] or {}).values(), data["n_runs"], data["sha256"], *content["made_with"].values()])
    for key in ("state_names", "input_names"):
        names = _list(question[key], key)
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise RejectedError(f"question.{key} must be different names")
    n_states, n_inputs = len(question["state_names"]), len(question["input_names"])
    _numbers(question["x0"], "question.x0", n_states)
    n_steps = len(_list(question["inputs"], "question.inputs"))
    if n_steps == 0:
        raise RejectedError("question.inputs has no steps")
    for row in question["inputs"]:
        _numbers(row, "question.inputs", n_inputs)
    for noise, what in ((question["initial_state_noise"], "question"), (data["initial_state_noise"], "data")):
        if min(_numbers(noise, f"{what}.initial_state_noise", n_states)) < 0:
            raise RejectedError(f"{what}.initial_state_noise is negative")
    n_limits = _check_limits(question, n_states, n_inputs)
    if len(_list(content["steps"], "steps", n_steps)) != n_steps:
        raise RejectedError("steps must have one entry a step")
    pairs = 0
    for n, row in enumerate(content["steps"], start=1):
        for component in _list(row, f"steps[{n}]", n_states):
            pairs += _check_component(component, f"step {n}", n_states + n * n_inputs)
    if pairs > MAX_PAIRS:
        raise RejectedError(f"{pairs} pairs of samples are more than are checked here, {MAX_PAIRS}")
    if claim["verdict"] not in ("CERTIFIED", "UNDECIDED", "REFUTED"):
        raise RejectedError("claim.verdict must be CERTIFIED, UNDECIDED or REFUTED")
    for row in _list(claim["margins"], "claim.margins", n_steps):
        _numbers(row, "claim.margins", n_limits)
    if claim["margin"] is not None:
        _numbers([claim["margin"]], "claim.margin")
    if content["digest"] != digest(content):
        raise RejectedError("the digest does not match: the file was changed")


def _check_limits(question: dict[str, Any], n_states: int, n_inputs: int) -> int:
    limits = question["state_limits"]
    _keys(limits, "state_limits", "names normals offsets")
    n_limits = len(_numbers(limits["offsets"], "state_limits.offsets"))
    _plain(_list(limits["names"], "state_limits.names", n_limits))
    for normal in _list(limits["normals"], "state_limits.normals", n_limits):
        _numbers(normal, "state_limits.normals", n_states)
    for key in ("input_limits", "input_rate_limits"):
        if question[key] is not None:
            _keys(question[key], key, "lower upper")
            for end in question[key].values():
                _numbers([x for x in _list(end, key, n_inputs) if x is not None], key)
    return n_limits


def _check_component(component: Any, where: str, n_dims: int) -> int:
    """One state at one step; returns how many pairs of samples its witnesses have."""
    _keys(component, where, "kernel norm_bound noise_bound lower upper")
    _check_kernel(component["kernel"], where, n_dims)
    for key in ("norm_bound", "noise_bound"):
        _keys(component[key], f"{where}, {key}", "value provenance")
        _plain([component[key]["provenance"]])
        if _numbers([component[key]["value"]], f"{where}, {key}")[0] < 0:
            raise RejectedError(f"{where}: {key} is negative")
    pairs = 0
    for side in ("lower", "upper"):
        proof, what = component[side], f"{where}, {side}"
        _keys(proof, what, "bound inputs intervals weights")
        _numbers([proof["bound"]], what)
        n = len(_numbers(proof["weights"], what))
        for x in _list(proof["inputs"], what, n):
            _numbers(x, what, n_dims)
        for interval in _list(proof["intervals"], what, n):
            low, high = _numbers(interval, what, 2)
            if low > high:
                raise RejectedError(f"{what}: the interval [{low}, {high}] is empty")
        pairs += (n + 1) ** 2 // 2
    return pairs


def _check_kernel(kernel: Any, where: str, n_dims: int, depth: int = 0) -> None:
    kind = kernel.get("kind") if isinstance(kernel, dict) else None
    if depth > 20 or not isinstance(kind, str) or kind not in _KERNEL_KEYS:
        raise RejectedError(f"{where}: there is no such kernel")
    _keys(kernel, f"{where}, kernel", "kind " + _KERNEL_KEYS[kind])
    for key in _KERNEL_KEYS[kind].split():
        value = kernel[key]
        if key in ("kernel", "a", "b"):
            _check_kernel(value, where, n_dims, depth + 1)
        elif min(_numbers(value, where, n_dims) if isinstance(value, list) else _numbers([value], where)) <= 0:
            raise RejectedError(f"{where}: {key} of a kernel must be positive")


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
    for x in _list(value, what, size):
        if isinstance(x, bool) or not isinstance(x, (int, float)) or abs(x) > sys.float_info.max:
            raise RejectedError(f"{what} must hold finite numbers")
    return value


# ---- bounds, in ball arithmetic

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


def kernel_value(kernel: dict[str, Any], difference: list[arb]) -> arb:
    """`k(x, y)` as a ball, for `x - y`."""
    kind = kernel["kind"]
    if kind == "Scale":
        return arb(kernel["factor"]) * kernel_value(kernel["kernel"], difference)
    if kind == "Sum":
        return kernel_value(kernel["a"], difference) + kernel_value(kernel["b"], difference)
    if kind == "Product":
        return kernel_value(kernel["a"], difference) * kernel_value(kernel["b"], difference)
    given = kernel["lengthscale"]
    scales = given if isinstance(given, list) else [given] * len(difference)
    s = sum(((d / arb(scale)) ** 2 for d, scale in zip(difference, scales, strict=True)), arb(0))
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


def displacement(kernel: dict[str, Any], norm_bound: float, noise: list[float], n_dims: int) -> arb:
    """How much `f` can differ between two inputs whose first coordinates differ by up to `noise`.

    `norm_bound * || k_x - k_x' ||`, largest at the corner, because these kernels fall with every coordinate.
    """
    corner = [arb(e) for e in noise] + [arb(0)] * (n_dims - len(noise))
    fall = kernel_value(kernel, [arb(0)] * n_dims) - kernel_value(kernel, corner)
    return arb(norm_bound) * (2 * fall).nonnegative_part().sqrt()


def witness_value(component: dict[str, Any], side: str, x: list[float]) -> arb:
    """The bound that a witness proves: an upper one of `f(x)`, or of `-f(x)` for the lower side."""
    proof, kernel = component[side], component["kernel"]
    points = [[arb(v) for v in point] for point in [x, *proof["inputs"]]]
    weights = [arb(-1)] + [arb(w) for w in proof["weights"]]
    square = arb(0)
    for i, (p, w) in enumerate(zip(points, weights, strict=True)):
        row = sum(
            (weights[j] * kernel_value(kernel, [a - b for a, b in zip(p, points[j], strict=True)]) for j in range(i)),
            arb(0),
        )
        square += w * (2 * row + w * kernel_value(kernel, [arb(0)] * len(p)))
    value = arb(component["norm_bound"]["value"]) * square.nonnegative_part().sqrt()
    for w, (low, high) in zip(proof["weights"], proof["intervals"], strict=True):
        ends = (low, high) if side == "upper" else (-high, -low)
        value += arb(w) * arb(ends[1] if w > 0 else ends[0])
    return value


def check_bounds(content: dict[str, Any], slacks: list[dict[str, Any]]) -> None:
    """Every claimed bound is at least (upper) or at most (lower) what its witness proves."""
    question = content["question"]
    for n, row in enumerate(content["steps"], start=1):
        x = [*question["x0"], *(u for inputs in question["inputs"][:n] for u in inputs)]
        for name, component in zip(question["state_names"], row, strict=True):
            for side in ("lower", "upper"):
                claimed = component[side]["bound"] * (1 if side == "upper" else -1)
                for precision in PRECISIONS:
                    ctx.prec = precision
                    proved = witness_value(component, side, x) + displacement(
                        component["kernel"], component["norm_bound"]["value"], question["initial_state_noise"], len(x)
                    )
                    if proved <= arb(claimed):
                        break
                else:
                    raise RejectedError(
                        f"step {n}, state {name}, {side}: for {'f' if side == 'upper' else '-f'} the witness proves "
                        f"{float(proved.mid())!r}, but {claimed!r} is claimed"
                    )
                slack = max(0.0, float((arb(claimed) - proved).mid()))
                share = slack / abs(claimed) if claimed else slack
                slacks.append({"step": n, "state": name, "side": side, "slack": slack, "share": share})
            if component["lower"]["bound"] > component["upper"]["bound"]:
                raise RejectedError(f"step {n}, state {name}: the lower bound is above the upper: no such plant")


# ---- verdict and margins, in rational arithmetic


def check_claim(content: dict[str, Any]) -> None:
    """The verdict is the one that follows from the bounds and limits; margins are not larger than they are."""
    question, claim = content["question"], content["claim"]
    limits = question["state_limits"]
    is_inside, is_outside = True, _breaks_input_limits(question)
    least: Fraction | None = None
    for n, (row, margins) in enumerate(zip(content["steps"], claim["margins"], strict=True), start=1):
        for c, (normal, offset) in enumerate(zip(limits["normals"], limits["offsets"], strict=True)):
            worst, best = Fraction(0), Fraction(0)
            for a, component in zip(map(Fraction, normal), row, strict=True):
                ends = [a * Fraction(component[side]["bound"]) for side in ("lower", "upper")]
                worst, best = worst + max(ends), best + min(ends)
            margin = Fraction(offset) - worst
            if Fraction(margins[c]) > margin:
                raise RejectedError(
                    f"step {n}, {limits['names'][c]}: the margin is {float(margin)!r}, not {margins[c]!r}"
                )
            least = margin if least is None else min(least, margin)
            is_inside, is_outside = is_inside and margin >= 0, is_outside or best > Fraction(offset)
    verdict = "REFUTED" if is_outside else "CERTIFIED" if is_inside else "UNDECIDED"
    if claim["verdict"] != verdict:
        raise RejectedError(f"the verdict that follows is {verdict}, not {claim['verdict']}")
    if (claim["margin"] is None) != (least is None) or (least is not None and Fraction(claim["margin"]) > least):
        raise RejectedError(
            f"the smallest margin is {None if least is None else float(least)}, not {claim['margin']!r}"
        )


def _breaks_input_limits(question: dict[str, Any]) -> bool:
    plan = [[Fraction(u) for u in row] for row in question["inputs"]]
    changes = [[after - before for before, after in zip(*pair, strict=True)] for pair in pairwise(plan)]
    for box, rows in ((question["input_limits"], plan), (question["input_rate_limits"], changes)):
        for row in rows if box is not None else ():
            for value, low, high in zip(row, box["lower"], box["upper"], strict=True):
                if (low is not None and value < Fraction(low)) or (high is not None and value > Fraction(high)):
                    return True
    return False


# ---- recordings


def check_data(content: dict[str, Any], path: Path) -> int:
    """The file is the one that the certificate was made from, and every touched sample is in it."""
    data, question = content["data"], content["question"]
    runs, hashes = read_runs(path, question["state_names"], question["input_names"])
    if not hashes & {data["sha256"], (data["file"] or {}).get("sha256")}:
        raise RejectedError(f"{path}: the certificate was made from other data, the hash differs")
    n_found = 0
    for n, row in enumerate(content["steps"], start=1):
        recorded: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
        for states, inputs in runs:
            for first in range(len(states) - n):
                key = (*states[first], *(u for held in inputs[first : first + n] for u in held))
                recorded.setdefault(key, []).append(states[first + n])
        for i, component in enumerate(row):
            noise = arb(component["noise_bound"]["value"]) + displacement(
                component["kernel"],
                component["norm_bound"]["value"],
                data["initial_state_noise"],
                len(question["x0"]) + n * len(question["input_names"]),
            )
            for side in ("lower", "upper"):
                for x, (low, high) in zip(component[side]["inputs"], component[side]["intervals"], strict=True):
                    values = [arb(state[i]) for state in recorded.get(tuple(map(float, x)), ())]
                    where = f"step {n}, state {question['state_names'][i]}, {side}"
                    if not values:
                        raise RejectedError(f"{where}: the sample at {x} is not in {path}")
                    if not any(v - noise >= arb(low) for v in values) or not any(
                        v + noise <= arb(high) for v in values
                    ):
                        raise RejectedError(f"{where}: the interval at {x} does not follow from {path}")
                    n_found += 1
    return n_found


Runs = list[tuple[list[tuple[float, ...]], list[tuple[float, ...]]]]


def read_runs(path: Path, state_names: list[str], input_names: list[str]) -> tuple[Runs, set[str]]:
    """Runs, and the hashes that the file may be known by: of its bytes and of its arrays."""
    try:
        content = path.read_bytes()
        hashes = {hashlib.sha256(content).hexdigest()}
        if path.suffix.lower() == ".csv":
            return _csv_runs(content.decode("utf-8-sig"), state_names, input_names), hashes
        with zipfile.ZipFile(path) as archive:
            states, inputs = (_npy(archive, name) for name in ("states", "inputs"))
    except KeyError as error:
        raise RejectedError(f"{path}: there is no {error.args[0]!r} in it; are these the recordings?") from None
    except (OSError, ValueError, SyntaxError, struct.error, zipfile.BadZipFile) as error:
        raise RejectedError(f"{path}: not readable as CSV or NPZ ({str(error)[:100]})") from None
    hashes.add(hashlib.sha256(states[1] + inputs[1]).hexdigest())
    return list(zip(_nested(*states), _nested(*inputs), strict=True)), hashes


def _csv_runs(text: str, state_names: list[str], input_names: list[str]) -> Runs:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    clock = "time" if "time" in columns else "step"
    by_run: dict[str, list[dict[str, str]]] = {}
    for row in reader:
        if any((cell or "").strip() for cell in row.values()):
            by_run.setdefault((row.get("trajectory") or "0").strip(), []).append(row)
    runs = []
    for rows in by_run.values():
        rows.sort(key=lambda row: float(row[clock]))
        states = [tuple(float(row[name]) for name in state_names) for row in rows]
        runs.append((states, [tuple(float(row[name]) for name in input_names) for row in rows[:-1]]))
    return runs


def _npy(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], bytes]:
    """Shape and bytes of an array of doubles."""
    if archive.getinfo(f"{name}.npy").file_size > MAX_DATA_BYTES:
        raise ValueError(f"{name} is too large")
    content = archive.read(f"{name}.npy")
    if content[:6] != b"\x93NUMPY":
        raise ValueError(f"{name} is not an array")
    size, start = struct.unpack("<H", content[8:10])[0], 10
    if content[6] > 1:
        size, start = struct.unpack("<I", content[8:12])[0], 12
    header = ast.literal_eval(content[start : start + size].decode("latin1"))
    if header["descr"] != "<f8" or header["fortran_order"] or len(header["shape"]) != 3:
        raise ValueError(f"{name} must be an array of doubles, runs by steps by columns")
    return header["shape"], content[start + size :]


def _nested(shape: tuple[int, ...], content: bytes) -> list[list[tuple[float, ...]]]:
    n_runs, n_steps, n_columns = shape
    values = struct.unpack(f"<{n_runs * n_steps * n_columns}d", content)
    rows = [values[k : k + n_columns] for k in range(0, len(values), n_columns)]
    return [rows[k : k + n_steps] for k in range(0, len(rows), n_steps)]


# ---- command line


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 accepted, 1 rejected, 2 unreadable."""
    parser = argparse.ArgumentParser(description="Check a certificate; exit code 0 accepted, 1 rejected, 2 unreadable.")
    parser.add_argument("certificate", help="a JSON file")
    parser.add_argument("--data", help="the recordings, CSV or NPZ, to look the samples up in")
    parser.add_argument("--quiet", action="store_true", help="the last line only")
    given = parser.parse_args(arguments)
    try:
        result = verify(given.certificate, given.data)
    except UnreadableError as error:
        print(f"unreadable: {error}")
        return 2
    if not given.quiet:
        print("step  state         side   proved beyond the claim   as a share")
        for row in result.slacks:
            print(f"{row['step']:4d}  {row['state']:12.12}  {row['side']}  {row['slack']:23.3e}  {row['share']:11.1e}")
    if not result.accepted:
        print(f"rejected: {result.reason}")
        return 1
    looked_up = "" if result.n_samples_found is None else f"; {result.n_samples_found} samples found in the recordings"
    print(f"accepted: {result.verdict}, {len(result.slacks)} bounds proved{looked_up}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
