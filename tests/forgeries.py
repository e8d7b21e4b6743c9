"""Certificates as forgers would change them, and an independent look at what is left of their proofs."""

from __future__ import annotations

import copy
import hashlib
import importlib
import io
import json
from fractions import Fraction
from itertools import product

import numpy as np
from flint import arb, ctx
from problems import ball_kernel, ball_series

import rkhs_control as rc

checker = importlib.import_module("rkhs_control.checker")
SIDES = ("lower", "upper")


def rewrite(file, content, *, with_digest=True):
    digest = checker.digest(content) if with_digest else content["digest"]
    file.write_text(json.dumps({**content, "digest": digest}))


def as_version_3(content):
    """What version 3 said of the same plan: one witness per side, each with samples of its own."""
    content = copy.deepcopy(content)
    content["version"] = 3
    del content["data"]["narrowing"]
    for component in (component for row in content["steps"] for component in row):
        samples = component.pop("samples")
        for side in SIDES:
            proof = component[side]
            (witness,) = proof["witnesses"]
            own = {key: [samples[key][row] for row in witness["rows"]] for key in samples}
            component[side] = {"bound": proof["bound"], **own, "weights": witness["weights"]}
    return content


def as_version_2(content):
    """Which knew no histories, priors and disturbances either."""
    content = {**as_version_3(content), "version": 2}
    del content["data"]["shape"]
    for component in (component for row in content["steps"] for component in row):
        del component["prior"], component["disturbance_bound"]
    return content


def read_rounds(file):
    """The arrays of a file that narrows intervals, to be changed."""
    with np.load(file) as archive:
        return {name: archive[name].copy() for name in archive.files}


def rewrite_rounds(file, content, arrays):
    """Put other arrays, or bytes, beside a certificate, and the right hashes into it."""
    raw = arrays
    if not isinstance(arrays, bytes):
        stream = io.BytesIO()
        np.savez_compressed(stream, **{name: np.asarray(a, dtype="<f8") for name, a in arrays.items()})
        raw = stream.getvalue()
    file.with_name(content["data"]["narrowing"]["name"]).write_bytes(raw)
    content["data"]["narrowing"]["sha256"] = hashlib.sha256(raw).hexdigest()
    rewrite(file, content)


# ---- random changes


def leaves(content, path=()):
    """Where every number, text and null of a certificate is."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from leaves(value, (*path, key))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from leaves(value, (*path, index))
    else:
        yield path


def at(content, path):
    for key in path:
        content = content[key]
    return content


def put(content, path, value):
    at(content, path[:-1])[path[-1]] = value


def mutate(content, rng):
    """One random change, of any kind, anywhere; returns what it was."""
    steps = content["steps"]
    component = steps[rng.integers(len(steps))][rng.integers(len(steps[0]))]
    proof, samples = component[SIDES[rng.integers(2)]], component["samples"]
    witness = proof["witnesses"][rng.integers(len(proof["witnesses"]))]
    kinds = [
        "leaf", "number", "bound", "weight", "input", "interval", "kernel", "limit", "verdict", "swap", "drop",
        "norm", "margin", "plan", "delete", "type", "consistency", "less consistency", "row", "method", "history",
    ]  # fmt: skip
    kind = rng.choice(
        [*kinds, "witnesses", "history noise"] if any(content["question"]["initial_state_noise"]) else kinds
    )
    size = 10.0 ** rng.uniform(-9, 1) * rng.choice([-1.0, 1.0])
    if kind == "bound":
        side = SIDES[rng.integers(2)]
        inwards = -1.0 if side == "upper" else 1.0
        component[side]["bound"] += inwards * max(1e-6 * abs(component[side]["bound"]), 1e-12)
    elif kind == "weight":
        if witness["weights"]:
            witness["weights"][rng.integers(len(witness["weights"]))] *= 1.0 + size
    elif kind == "input":
        point = samples["inputs"][rng.integers(len(samples["inputs"]))]
        point[rng.integers(len(point))] += size
    elif kind == "interval":
        samples["intervals"][rng.integers(len(samples["intervals"]))][rng.integers(2)] += size
    elif kind == "kernel":
        scale = component["kernel"]["lengthscale"]
        component["kernel"]["lengthscale"] = (np.array(scale) * (1.0 + size)).tolist()
    elif kind == "limit":
        offsets = content["question"]["state_limits"]["offsets"]
        offsets[rng.integers(len(offsets))] += size
    elif kind == "verdict":
        content["claim"]["verdict"] = str(rng.choice(["CERTIFIED", "UNDECIDED", "REFUTED", "certified", ""]))
    elif kind == "swap":
        i, j = rng.integers(len(steps), size=2)
        steps[i], steps[j] = steps[j], steps[i]
    elif kind == "drop":
        for part in witness.values():
            del part[:1]
    elif kind == "row":
        if witness["rows"]:
            witness["rows"][rng.integers(len(witness["rows"]))] = int(rng.integers(-1, len(samples["inputs"]) + 1))
    elif kind == "method":
        proof["method"] = str(rng.choice(["point", "displacement", "corners", "slopes", "other"]))
    elif kind == "witnesses":
        i, j = rng.integers(len(proof["witnesses"]), size=2)
        proof["witnesses"][i], proof["witnesses"][j] = proof["witnesses"][j], proof["witnesses"][rng.choice([i, j])]
    elif kind == "history":
        content["question"]["x0"][rng.integers(len(content["question"]["x0"]))] += size
    elif kind == "history noise":
        noise = content["question"]["initial_state_noise"]
        noise[rng.integers(len(noise))] *= float(rng.choice([0.0, 0.5, 1.0 + size]))
    elif kind == "consistency":
        if weights := component["consistency"]["weights"]:
            weights[rng.integers(len(weights))] *= 1.0 + size
    elif kind == "less consistency":
        for part in component["consistency"].values():
            del part[:1]
    elif kind == "norm":
        component["norm_bound"]["value"] *= 1.0 + size
    elif kind == "margin":
        row = content["claim"]["margins"][rng.integers(len(steps))]
        row[rng.integers(len(row))] += size
    elif kind == "plan":
        content["question"]["inputs"][rng.integers(len(steps))][0] += size
    else:
        paths = [path for path in leaves(content) if path[0] not in ("digest", "format", "version")]
        path = paths[rng.integers(len(paths))]
        if kind == "delete":
            del at(content, path[:-1])[path[-1]]
        elif kind == "type":
            choices = [None, "text", True, [], {}, [[]], -1, 10**400, 1e308, "NaN"]
            put(content, path, choices[rng.integers(len(choices))])
        elif isinstance(at(content, path), float):
            put(content, path, at(content, path) * (1.0 + size))
        else:
            put(content, path, "other")
    return str(kind)


# ---- an independent look


def is_implied(content):
    """An independent look at what a file claims: are bounds, verdict and margins implied by the rest of it?

    And is there a function that keeps its assumptions?
    """
    ctx.prec = 400
    question = content["question"]
    noise = [float(h) for h in question["initial_state_noise"]]
    for n, row in enumerate(content["steps"], start=1):
        x = [*map(float, question["x0"]), *np.ravel(question["inputs"][:n]).astype(float).tolist()]
        for component in row:
            kernel = rc.kernel_from_dict(component["kernel"])
            if not is_consistent(component, kernel):
                return False
            for side, sign in zip(SIDES, (-1.0, 1.0), strict=True):
                value = implied_end(component, kernel, component[side], sign, x, noise)
                value += arb(float(component["disturbance_bound"]["value"]))
                if not value <= arb(sign * float(component[side]["bound"])):
                    return False
    return _claims_follow(content)


def implied_end(component, kernel, proof, sign, x, noise, gram=None):
    """The largest value of `sign` times the plant within `noise` of `x`, as its witnesses imply."""
    gram = gram_of(component, kernel) if gram is None else gram
    norm, witnesses = arb(float(component["norm_bound"]["value"])), proof["witnesses"]
    reach = [h if j < len(noise) and (h := noise[j]) else 0.0 for j in range(len(x))]
    if proof["method"] == "corners":
        ends = [
            (v,) if h == 0.0 else (float(np.nextafter(v - h, -np.inf)), float(np.nextafter(v + h, np.inf)))
            for v, h in zip(x, reach, strict=True)
        ]
        values = [
            _value(component, kernel, gram, witness, sign, corner)
            for witness, corner in zip(witnesses, product(*ends), strict=True)
        ]
        halves = [(arb(pair[-1]) - arb(pair[0])) / 2 for pair in ends]
        bent = [
            fourth_moment(kernel, [arb(i == j) for i in range(len(x))]).sqrt() * h * h for j, h in enumerate(halves)
        ]
        return max(values, key=lambda v: v.mid()) + norm * sum(bent, arb(0)) / 2
    value = _value(component, kernel, gram, witnesses[0], sign, x)
    if proof["method"] in ("point", "displacement"):
        moved = ball_kernel(kernel, [0.0] * len(x), [0.0] * len(x)) - ball_kernel(kernel, [0.0] * len(x), reach)
        slopes = [] if component["prior"] is None else component["prior"]["slopes"]
        prior = sum((abs(arb(a)) * arb(h) for a, h in zip(slopes, reach, strict=False)), arb(0))
        return value + norm * (2 * moved).nonnegative_part().sqrt() + prior
    uncertain = [j for j, h in enumerate(reach) if h]
    for j, rising, falling in zip(uncertain, witnesses[1::2], witnesses[2::2], strict=True):
        steep = [_value(component, kernel, gram, w, s, x, j) for w, s in ((rising, 1.0), (falling, -1.0))]
        value += arb(reach[j]) * max(steep, key=lambda v: v.mid())
    return value + norm * fourth_moment(kernel, [arb(h) for h in reach]).sqrt() / 2


def fourth_moment(kernel, direction):
    """The squared norm of the functional that takes two derivatives in a direction."""
    return 24 * ball_series(kernel, [0.0] * len(direction), [0.0] * len(direction), direction)[4]


def gram_of(component, kernel):
    """The kernel matrix of all samples that a component rests on."""
    points = [list(map(float, x)) for x in component["samples"]["inputs"]]
    half = [[ball_kernel(kernel, p, q) for q in points[: i + 1]] for i, p in enumerate(points)]
    return [[half[max(i, j)][min(i, j)] for j in range(len(points))] for i in range(len(points))]


def _value(component, kernel, gram, witness, sign, x, j=None):
    """The upper bound of `sign` times the plant at `x`, or of its slope, that a witness implies."""
    rows, weights = witness["rows"], [arb(float(w)) for w in witness["weights"]]
    points = [list(map(float, component["samples"]["inputs"][row])) for row in rows]
    along = [arb(i == j) for i in range(len(x))]
    if j is None:
        square, cross = ball_kernel(kernel, x, x), [ball_kernel(kernel, x, p) for p in points]
    else:
        square = -2 * ball_series(kernel, x, x, along)[2]
        cross = [ball_series(kernel, x, p, along)[1] for p in points]
    square -= 2 * sum((w * k for w, k in zip(weights, cross, strict=True)), arb(0))
    for w, p in zip(weights, rows, strict=True):
        square += w * sum((v * gram[p][q] for v, q in zip(weights, rows, strict=True)), arb(0))
    value = arb(float(component["norm_bound"]["value"])) * square.nonnegative_part().sqrt()
    for w, row in zip(weights, rows, strict=True):
        ends = [w * arb(sign * float(end)) for end in component["samples"]["intervals"][row]]
        value += max(ends, key=lambda v: v.mid())
    if component["prior"] is None:
        return value
    slopes = [arb(float(a)) for a in component["prior"]["slopes"]]
    if j is not None:
        return value + sign * slopes[j]
    offset = arb(float(component["prior"]["offset"]))
    return value + sign * sum((a * arb(float(v)) for a, v in zip(slopes, x, strict=True)), offset)


def _claims_follow(content):
    question = content["question"]
    boxes = np.array(
        [[[c["lower"]["bound"], c["upper"]["bound"]] for c in row] for row in content["steps"]], np.longdouble
    )
    limits = question["state_limits"]
    far = np.where(np.array(limits["normals"])[None] > 0, boxes[:, None, :, 1], boxes[:, None, :, 0])
    near = np.where(np.array(limits["normals"])[None] > 0, boxes[:, None, :, 0], boxes[:, None, :, 1])
    offsets = np.array(limits["offsets"], np.longdouble)
    margins = offsets - (far * np.array(limits["normals"])).sum(axis=-1)
    outside = bool(((near * np.array(limits["normals"])).sum(axis=-1) > offsets).any()) or _inputs_broken(question)
    verdict = "REFUTED" if outside else "CERTIFIED" if (margins >= 0).all() else "UNDECIDED"
    claim = content["claim"]
    return (
        claim["verdict"] in (verdict, "UNDECIDED")
        and bool((np.array(claim["margins"]) <= margins).all())
        and claim["margin"] <= margins.min()
    )


def is_consistent(component, kernel):
    """Within a millionth: weights near those of a function that fits stand for that."""
    points, weights = component["consistency"]["inputs"], [arb(w) for w in component["consistency"]["weights"]]

    def value(x):
        return sum((w * ball_kernel(kernel, x, p) for w, p in zip(weights, points, strict=True)), arb(0))

    square = sum((w * value(p) for w, p in zip(weights, points, strict=True)), arb(0))
    pairs = zip(component["samples"]["inputs"], component["samples"]["intervals"], strict=True)
    fits = all(low - 1e-6 <= float(value(x).mid()) <= high + 1e-6 for x, (low, high) in pairs)
    return fits and float(square.mid()) <= component["norm_bound"]["value"] ** 2 * (1 + 1e-6)


def _inputs_broken(question):
    inputs = np.array(question["inputs"], np.longdouble)
    for box, values in ((question["input_limits"], inputs), (question["input_rate_limits"], np.diff(inputs, axis=0))):
        if box is not None:
            low = np.array([-np.inf if x is None else x for x in box["lower"]])
            high = np.array([np.inf if x is None else x for x in box["upper"]])
            if ((values < low) | (values > high)).any():
                return True
    return False


# ---- forgeries whose rest is honest


def settle(content):
    """Claim what the witnesses prove under the assumptions in a file, and no more: the honest rest of a forgery."""
    ctx.prec = 256
    question, limits = content["question"], content["question"]["state_limits"]
    content["claim"]["margins"], outside = [], checker._breaks_input_limits(question)
    for n, row in enumerate(content["steps"], start=1):
        x = [*question["x0"], *(u for inputs in question["inputs"][:n] for u in inputs)]
        for component in row:
            for side, sign in zip(SIDES, (-1.0, 1.0), strict=True):
                end = checker.proved_end(component, side, x, question["initial_state_noise"])
                proved = float((end + arb(component["disturbance_bound"]["value"])).upper())
                component[side]["bound"] = sign * (proved + 1e-9 * abs(proved) + 1e-300)
        margins = []
        for normal, offset in zip(limits["normals"], limits["offsets"], strict=True):
            ends = [
                sorted(Fraction(a) * Fraction(c[side]["bound"]) for side in SIDES)
                for a, c in zip(normal, row, strict=True)
            ]
            margins.append(float(np.nextafter(float(offset - sum(high for _, high in ends)), -np.inf)))
            outside |= sum(low for low, _ in ends) > offset
        content["claim"]["margins"].append(margins)
    least = min(map(min, content["claim"]["margins"]))
    verdict = "REFUTED" if outside else "CERTIFIED" if least >= 0 else "UNDECIDED"
    content["claim"].update(margin=least, verdict=verdict)
