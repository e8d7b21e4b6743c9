"""A small region for ever, made by hand; its file as forgers would change it; and an independent look at what is left.

The plant is `x+ = A x + b u`, so slow and so well known that cells of a coarse grid have plans that end inside.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
from flint import ctx
from forgeries import SIDES, at, gram_of, implied_end, is_consistent, leaves, put

import rkhs_control as rc
from rkhs_control.certificates.region import Cell, InvariantRegion, is_covered, start_of, widened

A, B = np.array([[0.6, 0.1], [-0.1, 0.5]]), np.array([0.2, 0.3])
LIMITS = rc.Limits(states=rc.Box([-1.0, -1.0], [1.0, 1.0]), inputs=rc.Box([-1.0], [1.0]))


def linear_runs(n_runs=40, initial_state_noise=0.0):
    """Of two steps, measured with a little noise."""
    rng = np.random.default_rng(3)
    truth, inputs = rng.uniform(-1.2, 1.2, (n_runs, 1, 2)), rng.uniform(-1.0, 1.0, (n_runs, 2, 1))
    for n in range(2):
        truth = np.concatenate([truth, truth[:, -1:] @ A.T + B * inputs[:, n : n + 1]], axis=1)
    noise = np.array([initial_state_noise, 0.005, 0.005])[:, None]
    states = truth + rng.uniform(-noise, noise, truth.shape)
    return rc.Trajectories(states, inputs, 0.005, ["x", "y"], ["u"], initial_state_noise=initial_state_noise)


def linear_predictor(**runs):
    return rc.MultiStepPredictor(linear_runs(**runs), rc.SquaredExponential(8.0), 12.0)


def region_by_hand(predictor, edges=(-1.0, -0.3, 0.4, 1.0), noise=0.0, limits=LIMITS):
    """The greatest set of cells of a grid whose plans, of one or two steps in turn, lead into it."""
    e, placed = np.full(2, noise), limits.over(("x", "y"), ("u",))
    boxes = [rc.Box(*np.array(pairs).T) for pairs in product(pairwise(edges), repeat=2)]
    cells = []
    for k, box in enumerate(boxes):
        x0, reach = start_of(box, e)
        inputs = np.clip(-(x0 @ A.T @ B) / (B @ B) * np.ones((1 + k % 2, 1)), -1.0, 1.0)
        tube = predictor.boxes(x0, inputs, initial_state_noise=reach)
        if np.all((tube.lower >= placed.states.lower) & (tube.upper <= placed.states.upper)):
            cells.append(Cell(box, x0, reach, inputs, tube))
    while True:
        lower, upper = (np.array([getattr(cell.box, end) for cell in cells]) for end in SIDES)
        kept = [c for c in cells if is_covered(*widened(c.tube.lower[-1], c.tube.upper[-1], e), lower, upper)]
        if len(kept) == len(cells):
            return InvariantRegion(predictor, placed, e, tuple(cells))
        cells = kept


# ---- random changes


def mutate(content, rng):
    """One random change, of any kind, anywhere; returns what it was."""
    cells = content["cells"]
    cell, other = (cells[k] for k in rng.integers(len(cells), size=2))
    n, i = int(rng.integers(len(cell["bounds"]))), int(rng.integers(2))
    component, proof = content["steps"][n][i], cell["bounds"][n][i][SIDES[rng.integers(2)]]
    witness, samples = proof["witnesses"][rng.integers(len(proof["witnesses"]))], component["samples"]
    size = 10.0 ** rng.uniform(-9, 1) * rng.choice([-1.0, 1.0])
    kind = rng.choice([
        "bound", "end", "weight", "input", "interval", "kernel", "limit", "norm", "cell", "reach", "start", "plan",
        "swap", "drop cell", "twice", "share", "noise", "row", "method", "longer", "consistency", "leaf", "delete",
        "type", "shorter",
    ])  # fmt: skip
    if kind == "bound":
        side = SIDES[rng.integers(2)]
        cell["bounds"][n][i][side]["bound"] += -1e-6 if side == "upper" else 1e-6
    elif kind == "end":
        proof["bound"] += size
    elif kind == "weight":
        witness["weights"][rng.integers(len(witness["weights"]))] *= 1.0 + size
    elif kind == "input":
        point = samples["inputs"][rng.integers(len(samples["inputs"]))]
        point[rng.integers(len(point))] += size
    elif kind == "interval":
        samples["intervals"][rng.integers(len(samples["intervals"]))][rng.integers(2)] += size
    elif kind == "kernel":
        component["kernel"]["lengthscale"] *= 1.0 + size
    elif kind == "limit":
        content["question"]["state_limits"]["offsets"][rng.integers(4)] += size
        content["question"]["state_limits"]["names"] = ["a", "b", "c", "d"]  # which say nothing that could be wrong
    elif kind == "norm":
        component["norm_bound"]["value"] *= 1.0 + size
    elif kind == "cell":
        cell[SIDES[rng.integers(2)]][i] += size
    elif kind == "reach":
        cell["reach"][i] *= float(rng.choice([0.0, 0.5, 1.0 + size]))
    elif kind == "start":
        cell["x0"][i] += size
    elif kind == "plan":
        cell["inputs"][n][0] += size
    elif kind == "swap":
        key = str(rng.choice(["lower", "upper", "x0", "reach", "inputs", "bounds"]))
        cell[key], other[key] = other[key], cell[key]
    elif kind == "drop cell":
        cells.remove(cell)
    elif kind == "twice":
        cells.append(cell)
    elif kind == "share":
        content["claim"]["share"] += size
    elif kind == "noise":
        content["question"]["initial_state_noise"][i] += abs(size)
    elif kind == "row":
        witness["rows"][rng.integers(len(witness["rows"]))] = int(rng.integers(-1, len(samples["inputs"]) + 1))
    elif kind == "method":
        proof["method"] = str(rng.choice(["point", "displacement", "corners", "slopes", "other"]))
    elif kind in ("longer", "shorter"):
        for key in ("inputs", "bounds"):
            cell[key] = [*cell[key], *cell[key][-1:]] if kind == "longer" else cell[key][:-1]
    elif kind == "consistency":
        component["consistency"]["weights"][0] *= 1.0 + size
    else:
        paths = [path for path in leaves(content) if path[0] not in ("digest", "format", "version")]
        path = paths[rng.integers(len(paths))]
        if kind == "delete":
            del at(content, path[:-1])[path[-1]]
        elif kind == "type":
            choices = [None, "text", True, [], {}, [[]], -1, 10**400, 1e308, "NaN"]
            put(content, path, choices[rng.integers(len(choices))])
        else:
            put(content, path, at(content, path) * (1.0 + size) if isinstance(at(content, path), float) else "other")
    return str(kind)


# ---- an independent look


def is_implied(content):
    """Whether a region follows from the rest of its file: bounds, limits, where plans end, the share."""
    ctx.prec = 400
    return _cells_are_invariant(content) and _bounds_are_implied(content)


def _bounds_are_implied(content):
    for n, row in enumerate(content["steps"]):
        for i, assumed in enumerate(row):
            kernel = rc.kernel_from_dict(assumed["kernel"])
            gram = gram_of(assumed, kernel)
            if not is_consistent(assumed, kernel):
                return False
            for cell in content["cells"]:
                for side, sign in zip(SIDES, (-1.0, 1.0), strict=True):
                    if n >= len(cell["bounds"]):
                        continue
                    proof = cell["bounds"][n][i][side]
                    x = [*map(float, cell["x0"]), *np.ravel(cell["inputs"][: n + 1]).astype(float).tolist()]
                    reach = [float(h) for h in cell["reach"]]
                    end = implied_end(assumed, kernel, proof, sign, x, reach, gram)
                    if not end + assumed["disturbance_bound"]["value"] <= sign * float(proof["bound"]):
                        return False
    return True


def exact(values):
    return [Fraction(v) for v in values]


def _cells_are_invariant(content):
    """In rational arithmetic: every piece of the limits, cut along all faces, is in one cell at most."""
    question, cells = content["question"], content["cells"]
    e, offsets = exact(question["initial_state_noise"]), exact(question["state_limits"]["offsets"])
    lowest, highest = [-offset for offset in offsets[2:]], offsets[:2]  # uppers come first
    boxes = [(exact(cell["lower"]), exact(cell["upper"])) for cell in cells]
    volume = Fraction(0)
    for cell, (low, high) in zip(cells, boxes, strict=True):
        x0, reach = exact(cell["x0"]), exact(cell["reach"])
        ends = [[exact(proofs[side]["bound"] for proofs in row) for side in SIDES] for row in cell["bounds"]]
        inputs = [u for row in cell["inputs"] for u in row]
        box = question["input_limits"]
        ok = [
            *(a < b for a, b in zip(low, high, strict=True)),
            *(x - r <= a - d for x, r, a, d in zip(x0, reach, low, e, strict=True)),
            *(x + r >= b + d for x, r, b, d in zip(x0, reach, high, e, strict=True)),
            *(box["lower"][0] <= u <= box["upper"][0] for u in (inputs if box is not None else ())),
            *(a <= v for a, v in zip(lowest, low, strict=True)),
            *(v <= b for b, v in zip(highest, high, strict=True)),
            *(a <= v for row in ends for a, v in zip(lowest, row[0], strict=True)),
            *(v <= b for row in ends for b, v in zip(highest, row[1], strict=True)),
        ]
        last = [
            [v - d for v, d in zip(ends[-1][0], e, strict=True)],
            [v + d for v, d in zip(ends[-1][1], e, strict=True)],
        ]
        if not all(ok) or not in_union(*last, boxes):
            return False
        volume += (high[0] - low[0]) * (high[1] - low[1])
    meets = (
        all(max(a, c) < min(b, d) for a, b, c, d in zip(*one, *two, strict=True))
        for k, one in enumerate(boxes)
        for two in boxes[:k]
    )
    whole = (highest[0] - lowest[0]) * (highest[1] - lowest[1])
    return bool(cells) and not any(meets) and Fraction(content["claim"]["share"]) * whole <= volume


def in_union(low, high, boxes):
    """Whether the middle of every piece of a box, cut along the faces of others, is in one of these."""
    cuts = [
        sorted({a, b, *(v for box in boxes for v in (box[0][j], box[1][j]) if a < v < b)})
        for j, (a, b) in enumerate(zip(low, high, strict=True))
    ]
    middles = product(*([(a + b) / 2 for a, b in pairwise(row)] or row for row in cuts))
    return all(
        any(all(a <= v <= b for a, v, b in zip(box[0], point, box[1], strict=True)) for box in boxes)
        for point in middles
    )
