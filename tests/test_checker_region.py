"""The checker of regions for ever: accepts what is proved, rejects what is not, and never falls over."""

import copy
import importlib
import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from forgeries import rewrite
from regions import LIMITS, in_union, is_implied, linear_predictor, mutate, region_by_hand

import rkhs_control as rc
from rkhs_control.certificates.region import is_covered
from rkhs_control.certificates.region_file import RegionFile, share_below

checker = importlib.import_module("rkhs_control.checker")
SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "region.schema.json"
COARSE = (-1.0, 0.1, 1.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A region of four cells, its file, and the recordings beside it."""
    folder = tmp_path_factory.mktemp("region")
    region = region_by_hand(linear_predictor(n_runs=20), COARSE)
    assert len(region) == 4
    region.save(folder / "region.json")
    rc.save_trajectories(region.predictor.runs, folder / "runs.npz")
    return region, folder


@pytest.fixture
def region(saved):
    return saved[0]


@pytest.fixture
def runs(saved):
    return saved[1] / "runs.npz"


@pytest.fixture
def file(saved, tmp_path):
    return Path(shutil.copy(saved[1] / "region.json", tmp_path / "region.json"))


@pytest.fixture
def content(file):
    return json.loads(file.read_text())


def reason(file, content, **more):
    """Why a changed file is rejected; the digest is right, so that it is not what finds it."""
    rewrite(file, content)
    result = rc.verify(file, **more)
    assert not result.accepted
    return result.reason


# ---- what is proved is accepted


def test_region_is_accepted_with_and_without_recordings(file, runs, region):
    for data in (None, runs):
        result = rc.verify(file, data)
        assert result.accepted, result.reason
        assert (result.verdict, result.n_cells) == ("INVARIANT", 4)
        assert len(result.slacks) == 2 * 2 * sum(len(cell.inputs) for cell in region.cells)
        assert 0 <= max(row["share"] for row in result.slacks) < 1e-8
    assert result.n_samples_found > 0
    assert "the plant stays for ever as it was recorded" in result.assumptions
    assert result.limits == ["x <= 1", "y <= 1", "x >= -1", "y >= -1", "u >= -1", "u <= 1"]


def test_region_is_accepted_in_parallel_as_serially(file, monkeypatch):
    monkeypatch.setattr(checker, "CELLS_AT_ONCE", 2)
    told = []
    result = rc.verify(file, n_jobs=2, progress=lambda *numbers: told.append(numbers))
    assert result.accepted, result.reason
    assert result == rc.verify(file)
    assert told == sorted(told)
    assert told[-1] == (len(result.slacks), len(result.slacks))


def test_unproved_bound_is_found_in_parallel_as_well(file, content, monkeypatch):
    monkeypatch.setattr(checker, "CELLS_AT_ONCE", 2)
    proof = content["cells"][3]["bounds"][0][1]["upper"]
    proof["bound"] -= 1e-6
    place = "cell 4, step 1, state y, upper: for f the witness proves "
    assert reason(file, content).startswith(place)
    assert reason(file, content, n_jobs=2).startswith(place)


def test_measurement_errors_are_honoured(region, tmp_path):
    """Plans serve cells widened by the error; without one, the same file says less than it needs to."""
    file = tmp_path / "region.json"
    noisy = region_by_hand(region.predictor, COARSE, noise=0.04)
    noisy.save(file)
    result = rc.verify(file)
    assert result.accepted, result.reason
    assert "states as a plan is chosen: x within 0.04, y within 0.04" in result.assumptions
    content = json.loads(file.read_text())
    content["question"]["initial_state_noise"][0] = 0.04 + 1e-15
    assert "cell 1: its plan is not proved from all states that may be in it" in reason(file, content)
    region.save(file)
    content = json.loads(file.read_text())
    content["question"]["initial_state_noise"] = [0.04, 0.04]
    assert "not proved from all states" in reason(file, content)


def test_last_box_must_be_covered_with_the_measurement_error(file, content):
    """With cells that would serve, only where plans end is left to be refused."""
    for cell in content["cells"]:
        cell["reach"] = [r + 0.9 for r in cell["reach"]]
        for row in cell["bounds"]:
            for proofs in row:
                proofs["lower"]["bound"], proofs["upper"]["bound"] = -0.5, 0.5
    content["question"]["initial_state_noise"] = [0.25, 0.5]
    checker.check_cells(content, checker.Work(10**9))
    content["question"]["initial_state_noise"] = [0.25, math.nextafter(0.5, 1.0)]
    with pytest.raises(checker.RejectedError, match="the box that its plan ends with is not covered"):
        checker.check_cells(content, checker.Work(10**9))


def test_uncertain_recordings_bring_a_second_file(tmp_path):
    predictor = linear_predictor(n_runs=20, initial_state_noise=0.01)
    region = region_by_hand(predictor, COARSE, noise=0.01)
    assert len(region)
    region.save(tmp_path / "region.json")
    rc.save_trajectories(predictor.runs, tmp_path / "runs.npz")
    (second,) = tmp_path.glob("narrowing_*.npz")
    result = rc.verify(tmp_path / "region.json", tmp_path / "runs.npz")
    assert result.accepted, result.reason
    assert not any(second.name in line for line in result.assumptions)


def test_models_as_priors_are_accepted(region, tmp_path):
    """Their values at the middles of all cells are in the file."""

    def believed(history, inputs):
        return history * 0.5 ** np.arange(1, len(inputs) + 1)[:, None] + 0.2 * np.cumsum(inputs, axis=0)

    model = rc.PriorModel(believed, steepness=(0.5, 0.5), name="halved")
    predictor = rc.MultiStepPredictor(region.predictor.runs, rc.SquaredExponential(8.0), 4.0, priors=model)
    small = region_by_hand(predictor)
    assert len(small)
    small.save(tmp_path / "region.json")
    result = rc.verify(tmp_path / "region.json")
    assert result.accepted, result.reason
    content = json.loads((tmp_path / "region.json").read_text())
    values = content["steps"][0][0]["prior"]["values"]
    content["steps"][0][0]["prior"]["values"] = [value + 0.01 for value in values]
    assert "the witness proves" in reason(tmp_path / "region.json", content)


def test_file_is_of_the_published_schema_and_reads_back_to_the_same_bits(file, region):
    content = RegionFile.model_validate_json(file.read_text())
    for cell, written in zip(region.cells, content.cells, strict=True):
        bounds = [[[proofs.lower.bound, proofs.upper.bound] for proofs in row] for row in written.bounds]
        np.testing.assert_array_equal(bounds, np.stack([cell.tube.lower, cell.tube.upper], axis=-1))
        np.testing.assert_array_equal(written.upper, cell.box.upper)
    published = json.loads(SCHEMA.read_text())
    assert published == RegionFile.model_json_schema(), "write docs/region.schema.json again"


def test_share_is_rounded_down(region):
    cell = region.cells[0]
    third = replace(cell, box=rc.Box([-1.0, -1.0], [-1.0 + 2.0 / 3.0, 1.0]))
    part = replace(region, cells=(third,))
    width = Fraction(-1.0 + 2.0 / 3.0) + 1
    assert Fraction(share_below(part)) <= width / 2 < Fraction(math.nextafter(share_below(part), 1.0))


def test_what_a_file_cannot_hold_is_refused_in_a_sentence(region, tmp_path):
    file = tmp_path / "region.json"
    rates = replace(region, limits=replace(region.limits, rates=rc.Box([-1.0], [1.0])))
    half = rc.Limits(rc.Box([-1.0, -1.0], [1.0, np.inf]), LIMITS.inputs).over(("x", "y"), ("u",))
    kernels, norms = region.predictor.kernels, region.predictor.norm_bounds
    measured = rc.MultiStepPredictor(replace(region.predictor.runs, has_residual_bound=True), kernels, norms)
    for refused, why in (
        (replace(region, cells=()), "an empty region proves nothing"),
        (rates, "rates must be None"),
        (replace(region, limits=half), "a Box of finite width"),
        (replace(region, predictor=measured), "must be the noise bound of states or more"),
    ):
        with pytest.raises(rc.InputError, match=why):
            refused.save(file)
    assert not file.exists()


# ---- what is not proved is rejected


def test_a_cell_that_others_end_in_is_missed(file, content):
    for k in range(4):
        rest = {
            **content,
            "cells": [cell for c, cell in enumerate(content["cells"]) if c != k],
            "claim": {"share": 0.1},
        }
        assert "not covered by the cells" in reason(file, rest)


def test_nothing_is_not_a_region(file, content):
    assert "there must be cells" in reason(file, {**content, "cells": []})
    assert "there must be cells" in reason(file, {**content, "cells": [], "steps": []})
    short = [cell for cell in content["cells"] if len(cell["inputs"]) == 1]
    assert "as many steps as the longest" in reason(file, {**content, "cells": short})


def test_overlapping_cells_are_rejected(file, content):
    content["cells"].append(copy.deepcopy(content["cells"][1]))
    assert reason(file, content) == "the cells 2 and 5 overlap"
    content["cells"][4].update(lower=[-0.5, -0.5], upper=[-0.4, 0.5], x0=[-0.45, 0.0], reach=[0.1, 0.6])
    assert reason(file, content) == "the cells 1 and 5 overlap"


def moved(path, by):
    """A change of one number, by where it is."""

    def change(content):
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] += by

    return change


def unnamed(change):
    """With limits whose names say nothing."""

    def both(content):
        content["question"]["state_limits"]["names"] = ["a", "b", "c", "d"]
        change(content)

    return both


BOUND = ("cells", 2, "bounds", 0, 1)
CHANGES = {
    "cell end": (moved(("cells", 0, "upper", 0), 1e-9), "not proved from all states"),
    "cell end inwards": (moved(("cells", 3, "lower", 0), 1e-9), "not covered by"),
    "cell beyond the limits": (moved(("cells", 3, "upper", 0), 1e-9), "within the limits"),
    "empty cell": (lambda content: content["cells"][0].update(upper=content["cells"][0]["lower"]), "has a volume"),
    "bound": (moved((*BOUND, "upper", "bound"), -1e-9), "cell 3, step 1, state y, upper: for f the witness proves"),
    "bound outside": (moved((*BOUND, "lower", "bound"), -2.0), "the box is not within the limits"),
    "bounds crossed": (moved((*BOUND, "lower", "bound"), 1.0), "the lower bound is above the upper"),
    "limit": (unnamed(moved(("question", "state_limits", "offsets", 0), -1e-9)), "within the limits"),
    "larger limits": (unnamed(moved(("question", "state_limits", "offsets", 0), 1e-9)), "of the limits, not 1"),
    "limit by another name": (moved(("question", "state_limits", "offsets", 0), 1.0), "is called"),
    "input": (moved(("cells", 1, "inputs", 0, 0), 0.01), "the witness proves"),
    "input limits": (lambda c: c["question"]["input_limits"].update(upper=[0.01]), "breaks the limits of the inputs"),
    "start": (moved(("cells", 1, "x0", 0), 1e-9), "not proved from all states"),
    "reach": (moved(("cells", 1, "reach", 0), -1e-9), "not proved from all states"),
    "certain": (lambda c: c["cells"][1].update(reach=[0.0, 0.0]), "must be a list of 1"),
    "negative reach": (lambda c: c["cells"][1].update(reach=[-1.0, 1.0]), "cell 2, reach is negative"),
    "measurements": (moved(("question", "initial_state_noise", 1), 1e-9), "not proved from all states"),
    "share": (moved(("claim", "share"), 1e-12), "of the limits, not"),
    "negative share": (moved(("claim", "share"), -2.0), "claim.share is negative"),
    "norm": (moved(("steps", 0, 0, "norm_bound", "value"), 0.1), "the witness proves"),
    "disturbances": (moved(("steps", 0, 0, "disturbance_bound", "value"), 1e-6), "the witness proves"),
    "interval": (moved(("steps", 0, 0, "samples", "intervals", 1, 1), 0.1), "the witness proves"),
    "histories": (lambda c: c["data"].update(shape=[1, 1, 1], initial_state_noise=[0.0] * 3), "a region needs states"),
    "longer plan": (lambda c: c["cells"][1]["inputs"].append([0.0]), "longer than what is assumed"),
    "no limits below": (
        lambda c: c["question"]["state_limits"].update(
            {key: c["question"]["state_limits"][key][:2] for key in ("names", "normals", "offsets")}
        ),
        "not those of a finite box",
    ),
    "a slanted limit": (
        unnamed(moved(("question", "state_limits", "normals", 0, 1), 1.0)),
        "1 x + 1 y <= 1: a region must have lower and upper limits alone",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_is_rejected_with_its_reason(file, content, name):
    change, why = CHANGES[name]
    change(content)
    assert why in reason(file, content)


def test_weaker_claims_are_accepted(file, content):
    content["claim"]["share"] = 0.2
    content["cells"][0]["bounds"][0][0]["upper"]["bound"] += 0.01
    rewrite(file, content)
    result = rc.verify(file)
    assert result.accepted, result.reason
    assert result.share == 0.2


def test_changed_bytes_do_not_match_the_digest(file, content):
    content["claim"]["share"] = 0.2
    rewrite(file, content, with_digest=False)
    assert rc.verify(file).reason == "the digest does not match: the file was changed"


def test_intervals_must_follow_from_the_recordings(file, content, runs):
    low, high = content["steps"][0][0]["samples"]["intervals"][0]
    content["steps"][0][0]["samples"]["intervals"][0] = [low + 1e-4, high]
    rewrite(file, content)
    assert rc.verify(file).accepted
    assert "does not follow from the recordings" in rc.verify(file, runs).reason


def test_changes_are_rejected_or_harmless(file, content, chunk):
    """Each change gets a fresh digest, so that it is the proof that has to find it."""
    rejected = 0
    for number in range(20):
        changed = copy.deepcopy(content)
        kind = mutate(changed, np.random.default_rng([41, chunk, number]))
        rewrite(file, changed)
        result = rc.verify(file)
        if result.accepted:
            assert is_implied(changed), f"{kind}: accepted, but not implied"
        else:
            assert result.reason
            rejected += 1
        if kind in ("bound", "drop cell", "twice"):
            assert not result.accepted, kind
    assert rejected >= 8


def test_the_independent_look_agrees_about_the_region_itself(content):
    assert is_implied(content)


# ---- coverage


def geometry(*boxes):
    cells = [{"lower": list(low), "upper": list(high)} for low, high in boxes]
    return checker.Geometry.of(cells, checker.Work(10**9))


def covers(boxes, low, high):
    """Whether a box is covered, which the engine and rational arithmetic must say as well."""
    answer = geometry(*boxes).covers(list(low), list(high), checker.Work(10**9))
    ends = np.array(boxes, dtype=float)
    assert answer == is_covered(np.array(low), np.array(high), ends[:, 0], ends[:, 1])
    exact = [[[Fraction(v) for v in end] for end in box] for box in boxes]
    assert answer == in_union([Fraction(v) for v in low], [Fraction(v) for v in high], exact)
    return answer


def test_boxes_across_shared_faces_are_covered():
    cells = [((0.0, 0.0), (0.1, 1.0)), ((0.1, 0.0), (0.3, 1.0))]
    assert covers(cells, (0.05, 0.2), (0.25, 0.8))
    assert covers(cells, (0.0, 0.0), (0.3, 1.0))
    assert not covers(cells, (0.0, 0.0), (math.nextafter(0.3, 1.0), 1.0))
    assert not covers(cells, (-5e-324, 0.0), (0.3, 1.0))


def test_gaps_of_one_ulp_are_found():
    gap = math.nextafter(0.1, 1.0)
    cells = [((0.0, 0.0), (0.1, 1.0)), ((gap, 0.0), (0.3, 1.0))]
    assert not covers(cells, (0.05, 0.2), (0.25, 0.8))
    assert covers(cells, (gap, 0.2), (0.25, 0.8))
    assert covers([*cells, ((0.1, 0.0), (gap, 1.0))], (0.05, 0.2), (0.25, 0.8))


def test_t_junctions_are_covered_and_their_holes_are_found():
    left, top, bottom = ((0.0, 0.0), (1.0, 2.0)), ((1.0, 0.7), (2.0, 2.0)), ((1.0, 0.0), (2.0, 0.7))
    assert covers([left, top, bottom], (0.5, 0.2), (1.5, 1.8))
    assert not covers([left, top], (0.5, 0.2), (1.5, 1.8))
    assert covers([left, top], (0.5, 0.7), (1.5, 1.8))
    assert not covers([left, top], (0.5, math.nextafter(0.7, 0.0)), (1.5, 1.8))
    ring = [((0.0, 0.0), (2.0, 1.0)), ((2.0, 0.0), (3.0, 2.0)), ((1.0, 2.0), (3.0, 3.0)), ((0.0, 1.0), (1.0, 3.0))]
    assert not covers(ring, (0.5, 0.5), (2.5, 2.5))
    assert covers([*ring, ((1.0, 1.0), (2.0, 2.0))], (0.5, 0.5), (2.5, 2.5))


def test_coverage_by_random_cells_is_that_of_rational_arithmetic(rng):
    answers = []
    for _ in range(150):
        cuts = [np.unique(rng.uniform(0, 1, 4)) for _ in range(2)]
        cells = [((a, c), (b, d)) for a, b in pairwise(cuts[0]) for c, d in pairwise(cuts[1]) if rng.uniform() < 0.8]
        low, high = np.sort(rng.choice([*cuts[0], *rng.uniform(0, 1, 3)], (2, 2), replace=False), axis=0)
        if cells:
            answers.append(covers(cells, low.tolist(), high.tolist()))
    assert 10 < sum(answers) < len(answers) - 10


def test_cells_may_touch_but_not_overlap_by_an_ulp():
    below = math.nextafter(0.1, 0.0)
    geometry(((0.0, 0.0), (0.1, 1.0)), ((0.1, 0.0), (0.3, 1.0)))
    with pytest.raises(checker.RejectedError, match="the cells 1 and 2 overlap"):
        geometry(((0.0, 0.0), (0.1, 1.0)), ((below, 0.0), (0.3, 1.0)))


def test_widened_ends_compare_as_exact_numbers_do():
    third = Fraction(0.1) + Fraction(0.2)
    assert checker._double_below(third) < third < Fraction(math.nextafter(checker._double_below(third), 1.0))
    assert checker._double_below(Fraction(0.5)) == 0.5
    with pytest.raises(checker.RejectedError, match="too large for doubles"):
        checker._double_below(-Fraction(1e308) * 10)


def test_thousands_of_cells_are_looked_at_quickly():
    edges = np.linspace(0.0, 1.0, 71).tolist()
    boxes = [((edges[a], edges[b]), (edges[a + 1], edges[b + 1])) for a in range(70) for b in range(70)]
    started = time.perf_counter()
    found = geometry(*boxes)
    assert all(found.covers([0.4, 0.4], [0.6, 0.6], checker.Work(10**9)) for _ in range(500))
    assert time.perf_counter() - started < 10.0


# ---- hostile files


def test_stalling_files_are_refused_in_bounded_time(file, content):
    started = time.perf_counter()
    heavy = copy.deepcopy(content)
    proof = heavy["cells"][0]["bounds"][0][0]["upper"]
    proof["witnesses"][0] = {"rows": [0] * 40_000, "weights": [1e-9] * 40_000}
    assert "units of work or more, and 3,000,000,000 are allowed" in reason(file, heavy)
    edges = np.linspace(0.0, 1.0, 1001).tolist()  # of slivers that cut each other into a million pieces
    slivers = [((a, 0.0), (b, 1.0)) for a, b in pairwise(edges)] + [((1.0, a), (2.0, b)) for a, b in pairwise(edges)]
    cells = [{"lower": list(low), "upper": list(high)} for low, high in slivers]
    with pytest.raises(checker.RejectedError, match="units of work"):
        checker.Geometry.of(cells, checker.Work(10**8))
    many = {**content, "cells": content["cells"] * 100}
    assert "units of work or more, and 100,000 are allowed" in reason(file, many, work=100_000)
    assert time.perf_counter() - started < 30.0


def test_only_regions_may_be_large(file, content, monkeypatch):
    size = len(file.read_text())
    monkeypatch.setattr(checker, "MAX_BYTES", size // 2)
    assert rc.verify(file).accepted
    monkeypatch.setattr(checker, "MAX_REGION_BYTES", size - 1)
    with pytest.raises(checker.UnreadableError, match=f"more than {size - 1} bytes"):
        rc.verify(file)
    file.write_text(json.dumps({"version": 1, **content}))  # which is not what it begins with
    with pytest.raises(checker.UnreadableError, match=f"more than {size // 2} bytes"):
        rc.verify(file)


def test_other_versions_of_regions_are_unreadable(file, content):
    for version in (0, 2, True, 1.0, "1"):
        rewrite(file, {**content, "version": version})
        with pytest.raises(checker.UnreadableError, match="this checker knows 1 of regions"):
            rc.verify(file)


# ---- command line


def test_checker_alone_says_what_is_promised(file, runs, tmp_path):
    """One file, copied out, in a process that does not know the package; cells spread over processes."""
    alone = Path(shutil.copy(checker.__file__, tmp_path / "checker.py"))
    done = subprocess.run(
        [sys.executable, "-I", str(alone), str(file), "--data", str(runs), "--jobs", "2"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "limits, kept for ever, from step 1 on:" in lines
    assert (
        "  from every measured state in one of 4 cells, which have 100.0 % of the volume of the limits, the plan of "
        in done.stdout
    )
    assert lines[-1].startswith("accepted: INVARIANT, 4 cells, 24 bounds proved, 100.0 % of the limits; ")
    assert "samples found in the recordings" in lines[-1]
    assert not done.stderr


def test_command_verifies_regions(file, content, run):
    code, text = run("verify", str(file), "--quiet", "--jobs", "1")
    assert code == 0
    assert text.startswith(
        "accepted: INVARIANT, 4 cells, 24 bounds proved, 100.0 % of the limits; samples not looked up"
    )
    content["cells"].pop()
    rewrite(file, content)
    code, text = run("verify", str(file))
    assert code == 1
    assert "rejected: cell 1: the box that its plan ends with is not covered by the cells" in text
