"""The checker: accepts what is proved, rejects what is not, and never falls over."""

import contextlib
import copy
import csv
import hashlib
import importlib
import io
import json
import math
import re
import subprocess
import sys
import time
import unicodedata
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flint import arb
from forgeries import as_version_2, as_version_3, is_implied, mutate, rewrite, settle
from plants import feedback_inputs, lagged_windows, recorded, swings

import rkhs_control as rc
from rkhs_control.assumptions.priors import fitted_priors
from rkhs_control.certificates.format import CertificateFile
from rkhs_control.cli import app as cli

checker = importlib.import_module("rkhs_control.checker")
SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "certificate.schema.json"

KERNELS = [
    rc.SquaredExponential((5.0, 6.0, 40.0, 40.0)),
    rc.RationalQuadratic(20.0, alpha=0.7),
    rc.Matern(15.0, nu=0.5),
    rc.Matern(20.0, nu=1.5),
    rc.Matern(20.0, nu=2.5),
    2.5 * rc.SquaredExponential(20.0) + rc.Matern(30.0, nu=1.5),
    rc.SquaredExponential(20.0) * rc.RationalQuadratic(30.0),
]
NOT_LOOKED_UP = "samples not looked up: intervals are taken as given"
LIMITS = {
    "state_limits": rc.Box([1.0, 0.5], [3.0, 2.0]),
    "input_limits": rc.Box([3.0], [25.0]),
    "input_rate_limits": rc.Box([-np.inf], [20.0]),
}


@pytest.fixture
def certificate(predictor, plan):
    return rc.certify(predictor, *plan, **LIMITS)


@pytest.fixture
def file(certificate, tmp_path):
    certificate.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_saved_certificate_is_accepted_with_next_to_no_slack(file, certificate):
    result = rc.verify(file)
    assert result.accepted, result.reason
    assert result.verdict == certificate.verdict.name
    assert len(result.slacks) == 12
    assert 0 <= max(row["share"] for row in result.slacks) < 1e-8


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_every_kernel_and_uncertain_initial_states_are_accepted(plant, rng, kernel, noise, tmp_path):
    runs = recorded(plant, rng, n_runs=40, n_steps=2, initial_noise=noise)
    norms = [
        [
            1.1 * rc.least_norm_estimate(rc.Observations(runs.arguments(n), runs.states[:, n, i], 0.06), k).value
            for i in range(2)
        ]
        for n, k in ((1, _cut(kernel, 3)), (2, kernel))
    ]
    model = rc.MultiStepPredictor(runs, [_cut(kernel, 3), kernel], norms, initial_state_noise=noise)
    x0 = np.array([2.2, 1.0])
    certificate = rc.certify(model, x0, feedback_inputs(plant, x0[None], 2)[0], initial_state_noise=noise / 2, **LIMITS)
    certificate.save(tmp_path / "plan.json")
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    result = rc.verify(tmp_path / "plan.json", data=tmp_path / "runs.npz")
    assert result.accepted, result.reason
    assert result.n_samples_found > 0


def _cut(kernel, n_dims):
    """The same kernel for shorter inputs."""
    if isinstance(getattr(kernel, "lengthscale", None), tuple):
        return type(kernel)(kernel.lengthscale[:n_dims])
    return kernel


@pytest.mark.parametrize("verdict", rc.Verdict)
def test_every_verdict_is_accepted(predictor, plan, verdict, tmp_path):
    tube = predictor.boxes(*plan)
    middle = (tube.lower[0, 0] + tube.upper[0, 0]) / 2
    limit = {"CERTIFIED": 5.0, "UNDECIDED": middle, "REFUTED": 0.5}[verdict.name]
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, -np.inf], [limit, np.inf]))
    assert certificate.verdict is verdict
    certificate.save(tmp_path / "plan.json")
    assert rc.verify(tmp_path / "plan.json").accepted


def test_polytopes_and_input_limits_are_accepted(predictor, plan, tmp_path):
    cases = [
        {"state_limits": rc.Polytope([[1.0, 0.3], [-0.7, 1.1]], [3.5, 0.2])},
        {**LIMITS, "input_limits": rc.Box([3.0], [5.0])},
        {**LIMITS, "input_rate_limits": rc.Box([-0.1], [0.1])},
    ]
    for limits in cases:
        rc.certify(predictor, *plan, **limits).save(tmp_path / "plan.json")
        result = rc.verify(tmp_path / "plan.json")
        assert result.accepted, result.reason


def test_methods_without_witnesses_say_so(predictor, plan, tmp_path):
    certificate = rc.certify(predictor.with_method(rc.ClosedFormEnvelope), *plan, **LIMITS)
    with pytest.raises(rc.InputError, match="ClosedFormEnvelope has no witnesses to save"):
        certificate.save(tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_file_is_of_the_published_schema_and_reads_back_to_the_same_bits(file, certificate):
    content = CertificateFile.model_validate_json(file.read_text())
    bounds = [[[c.lower.bound, c.upper.bound] for c in row] for row in content.steps]
    np.testing.assert_array_equal(bounds, np.stack([certificate.tube.lower, certificate.tube.upper], axis=-1))
    np.testing.assert_array_equal(content.question.x0, certificate.question.x0)
    published = json.loads(SCHEMA.read_text())
    assert published == CertificateFile.model_json_schema(), "write docs/certificate.schema.json again"


# ---- recordings


def test_samples_are_looked_up_in_csv_and_npz(file, certificate, tmp_path):
    runs = certificate.predictor.runs
    rc.save_trajectories(runs, tmp_path / "runs.csv")
    certificate.save(file, data_file=tmp_path / "runs.csv")
    result = rc.verify(file, data=tmp_path / "runs.csv")
    assert result.accepted, result.reason
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    assert rc.verify(file, data=tmp_path / "runs.npz").n_samples_found == result.n_samples_found > 0


def test_other_recordings_are_rejected(file, certificate, tmp_path):
    runs = certificate.predictor.runs
    other = tmp_path / "other.npz"
    rc.save_trajectories(runs.subset(np.arange(5)), other)
    assert "the hash differs" in rc.verify(file, data=other).reason
    content = json.loads(file.read_text())
    content["data"]["sha256"] = runs.subset(np.arange(5)).sha256  # a forged hash does not help
    rewrite(file, content)
    assert "is not in" in rc.verify(file, data=other).reason
    states = runs.states.copy()
    states[:, 1:] += 0.5
    moved = replace(runs, states=states)
    rc.save_trajectories(moved, other)
    content["data"]["sha256"] = moved.sha256
    rewrite(file, content)
    assert "does not follow from" in rc.verify(file, data=other).reason


def test_windows_and_repeated_runs_are_found(plant, rng, tmp_path):
    """Long recordings from a CSV file with times, and one of them twice with other noise."""
    x0 = rng.uniform([1.5, 0.8], [2.5, 1.4], (12, 2))
    inputs = feedback_inputs(plant, x0, 5)
    states = plant.simulate(x0, inputs)
    x0, inputs, states = (np.concatenate([a, a[:1]]) for a in (x0, inputs, states))
    states += rng.uniform(-0.01, 0.01, states.shape)
    states[-1, 0] = states[0, 0]
    with (tmp_path / "runs.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["time", "trajectory", "u", "c_B", "c_A"])
        for run in range(13):
            for step in range(6):
                held = inputs[run, step, 0] if step < 5 else ""
                writer.writerow([30.0 * step, f"run {run}", held, *states[run, step, ::-1]])
    runs = rc.load_trajectories(
        tmp_path / "runs.csv", state_names=["c_A", "c_B"], input_names=["u"], noise_bound=0.01, horizon=2
    )
    assert len(runs) == 52
    model = rc.MultiStepPredictor.select(runs, [20.0, 40.0], initial_state_noise=0.01)
    rc.certify(model, x0[0], inputs[0, :2], **LIMITS).save(tmp_path / "plan.json", data_file=tmp_path / "runs.csv")
    result = rc.verify(tmp_path / "plan.json", data=tmp_path / "runs.csv")
    assert result.accepted, result.reason


# ---- tampering


@pytest.fixture(params=["states", "corners", "slopes"])
def any_file(request, tmp_path, file):
    """A certificate from states, and those from uncertain histories with priors and disturbances."""
    if request.param == "states":
        return file
    runs = lagged_windows(output_lags=3 if request.param == "corners" else 5, disturbance_bound=0.01)
    model = rc.MultiStepPredictor(runs, rc.SquaredExponential(3.0), 2.0, priors=fitted_priors(runs))
    rc.certify(model, runs.histories[10], runs.inputs[10], rc.Limits({"y": (-2.0, 2.0)})).save(tmp_path / "sets.json")
    return tmp_path / "sets.json"


def test_changes_are_rejected_or_harmless(any_file, chunk):
    """Each change gets a fresh digest, so that it is the proof that has to find it."""
    file = any_file
    original = json.loads(file.read_text())
    assert is_implied(original)
    rejected = {}
    for number in range(60):
        rng = np.random.default_rng([40, chunk, number])
        content = copy.deepcopy(original)
        kind = mutate(content, rng)
        if content == original:
            continue
        rewrite(file, content, with_digest=False)
        assert not rc.verify(file).accepted
        rewrite(file, content)
        result = rc.verify(file)
        if result.accepted:
            assert is_implied(content), f"{kind}: accepted, but not implied"
        else:
            assert result.reason
        rejected.setdefault(kind, []).append(not result.accepted)
        if kind in ("bound", "swap") or (kind == "verdict" and content["claim"]["verdict"] != "UNDECIDED"):
            assert not result.accepted, kind
    is_a_box = any(original["question"]["initial_state_noise"])  # of its corners only the largest bound counts
    assert sum(map(sum, rejected.values())) > (20 if is_a_box else 30)


def test_a_bound_tightened_by_a_millionth_is_rejected_with_its_place(file):
    original = json.loads(file.read_text())
    content = copy.deepcopy(original)
    content["steps"][1][0]["upper"]["bound"] *= 1.0 - 1e-6
    rewrite(file, content)
    assert rc.verify(file).reason.startswith("step 2, state c_A, upper: for f the witness proves ")


HOSTILE = {
    "nothing": "",
    "half": lambda text: text[: len(text) // 2],
    "deep": "[" * 100_000,
    "deep inside": lambda text: text.replace('"seed": null', '"seed": ' + "[" * 500 + "]" * 500),
    "NaN": lambda text: text.replace('"margin": ', '"margin": NaN, "other": ', 1),
    "infinite": lambda text: text.replace('"margin": ', '"margin": 1e999, "other": ', 1),
    "many digits": lambda text: text.replace('"n_runs": ', '"n_runs": ' + "9" * 100_000, 1),
    "twice": lambda text: text.replace('"claim": ', '"claim": {}, "claim": ', 1),
    "many weights": lambda text: _with_weights(text, 20_000),
    "many bytes": lambda text: text + " " * 2**25,
    "list": "[1, 2]",
    "other version": lambda text: text.replace('"version": 4', '"version": 5'),
    "true as a version": lambda text: text.replace('"version": 4', '"version": true'),
    "version by a point": lambda text: text.replace('"version": 4', '"version": 4.0'),
    "not UTF-8": b"\xff\xfe\x00",
}


def _with_weights(text, n):
    content = json.loads(text)
    proof = content["steps"][0][0]["upper"]
    proof["witnesses"] = [{"rows": [0] * n, "weights": [1e-9] * n}]
    return json.dumps({**content, "digest": checker.digest(content)})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_a_clean_rejection_within_seconds(file, name, capsys):
    change = HOSTILE[name]
    content = change(file.read_text()) if callable(change) else change
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    began = time.perf_counter()
    code = checker.main([str(file)])
    assert time.perf_counter() - began < 10
    assert code in (1, 4)
    assert capsys.readouterr().out.splitlines()[-1].startswith(("rejected: ", "unreadable: "))


def test_exit_codes_and_table(file, capsys, monkeypatch):
    for command in (checker.main, cli_verify):
        assert command([str(file)]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[-1] == f"accepted: CERTIFIED, 12 bounds proved; {NOT_LOOKED_UP}"
        assert sum(line.split()[2:3] in (["lower"], ["upper"]) for line in out) == 12
        assert command([str(file.with_name("missing.json"))]) == 4
        assert "unreadable" in capsys.readouterr().out
    content = json.loads(file.read_text())
    content["claim"]["verdict"] = "REFUTED"
    rewrite(file, content)
    assert cli_verify([str(file), "--quiet"]) == 1
    assert capsys.readouterr().out == "rejected: the verdict that follows is CERTIFIED, not REFUTED\n"


def cli_verify(arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(["verify", *arguments])
    return stop.value.code


def test_checker_runs_alone_and_imports_nothing_of_the_package(file, tmp_path):
    """Copied out, with everything but python-flint hidden from it."""
    lonely = tmp_path / "checker.py"
    lonely.write_text(Path(checker.__file__).read_text())
    program = (
        "import sys, runpy\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('numpy', 'pydantic', 'rkhs_control', 'scipy', 'numba'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"sys.argv = ['checker.py', {str(file)!r}, '--quiet']\n"
        f"runpy.run_path({str(lonely)!r}, run_name='__main__')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == f"accepted: CERTIFIED, 12 bounds proved; {NOT_LOOKED_UP}\n"


def test_slack_of_a_lower_bound_is_measured_on_its_own_side(file):
    content = json.loads(file.read_text())
    component = content["steps"][0][1]
    component["lower"]["bound"] -= 0.25
    content["claim"]["margins"] = [[margin - 0.5 for margin in row] for row in content["claim"]["margins"]]
    content["claim"]["margin"] -= 0.5
    rewrite(file, content)
    result = rc.verify(file)
    slack = next(
        row["slack"] for row in result.slacks if (row["step"], row["state"], row["side"]) == (1, "c_B", "lower")
    )
    assert result.accepted, result.reason
    assert math.isclose(slack, 0.25, rel_tol=1e-6)


# ---- assumptions that the recordings refute


def least_norm_part(content, runs, n, i, noise=None):
    """Of the function of least norm through all intervals: it, the samples that make it up, and its norm."""
    component = content["steps"][n - 1][i]
    bound = component["noise_bound"]["value"] if noise is None else noise
    data = rc.Observations(runs.arguments(n), runs.states[:, n, i], bound)
    kernel = rc.kernel_from_dict(component["kernel"])
    start = rc.OptimalEnvelope(data, kernel, 1e6).least_norm
    samples = {
        "inputs": data.X[start.indices].tolist(),
        "intervals": np.stack([data.lower[start.indices], data.upper[start.indices]], axis=1).tolist(),
    }
    return {"inputs": samples["inputs"], "weights": start.weights.tolist()}, samples, float(start.norm)


def test_from_a_refuted_norm_bound_anything_would_follow_and_nothing_is_accepted(tmp_path, rng):
    """With the real recordings at hand, every norm bound at 0.9 of the least norm, and witnesses for just that."""
    x0, inputs = rng.uniform(-1, 1, (60, 1)), rng.uniform(-1, 1, (60, 1, 1))
    states = np.concatenate([x0[:, None], np.cos(x0[:, None]) + 0.1 * inputs], axis=1)
    runs = rc.Trajectories(states, inputs, 0.01, ["x"], ["u"])
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    model = rc.MultiStepPredictor(runs, rc.SquaredExponential(1.0), 3.0)
    file = tmp_path / "plan.json"
    rc.certify(model, [0.1], [[0.0]], state_limits=rc.Box([-0.05], [0.05])).save(file)
    honest = json.loads(file.read_text())
    assert rc.verify(file, data=tmp_path / "runs.npz").verdict == "REFUTED"  # the truth is 0.995

    content = copy.deepcopy(honest)
    component = content["steps"][0][0]
    least, component["samples"], norm = least_norm_part(content, runs, 1, 0)
    component["norm_bound"]["value"] = 0.9 * norm
    rows = list(range(len(least["weights"])))
    for side, sign in (("lower", 1.0), ("upper", -1.0)):
        component[side]["witnesses"] = [{"rows": rows, "weights": [sign * 100.0 * w for w in least["weights"]]}]
    settle(content)
    assert component["upper"]["bound"] < -1.0 < 1.0 < component["lower"]["bound"]  # whatever one likes
    for side, bound in (("lower", -0.05), ("upper", 0.05)):
        component[side]["bound"] = bound
    content["claim"].update(margins=[[0.0, 0.0]], margin=0.0, verdict="CERTIFIED")
    tries = {
        "the function of the honest certificate": honest["steps"][0][0]["consistency"],
        "that of least norm": least,
        "the same, made smaller": {"inputs": least["inputs"], "weights": [0.8999 * w for w in least["weights"]]},
        "none": {"inputs": [], "weights": []},
    }
    for name, function in tries.items():
        component["consistency"] = function
        rewrite(file, content)
        for data in (None, tmp_path / "runs.npz"):
            result = rc.verify(file, data=data)
            assert not result.accepted, name
            assert result.reason.startswith("step 1, state x: it is not proved that the assumptions agree"), name


def forge(content, runs, rng):
    """Assumptions that the recordings refute, or that are not theirs, with witnesses that are honest about these.

    Returns the kind; each would be accepted if it were only the bounds that counted.
    """
    n = int(rng.integers(1, 1 + len(content["steps"])))
    i = int(rng.integers(2))
    component = content["steps"][n - 1][i]
    function, _, norm = least_norm_part(content, runs, n, i)
    kind = str(
        rng.choice(["norm", "tiny scale", "huge scale", "noise", "intervals", "subset", "start", "names", "values"])
    )
    share = float(rng.uniform(0.3, 0.999))
    if kind == "norm":  # with the function shrunk to the norm
        component["norm_bound"]["value"] = share * norm
        component["consistency"] = {**function, "weights": [share * w for w in function["weights"]]}
    elif kind in ("tiny scale", "huge scale"):  # the same function has another norm
        factor = 10.0 ** (rng.uniform(-45, -1) if kind == "tiny scale" else rng.uniform(1, 45))
        component["kernel"] = {"kind": "Scale", "kernel": component["kernel"], "factor": factor}
        component["norm_bound"]["value"] = share * norm / (1.0 if kind == "tiny scale" else math.sqrt(factor))
        component["consistency"] = {**function, "weights": [w / factor for w in function["weights"]]}
    elif kind == "noise":  # with a function through the narrower intervals
        noise = component["noise_bound"]["value"] * (0.9 + 0.1 * share)
        narrow, _, wanted = least_norm_part(content, runs, n, i, noise)
        component["noise_bound"]["value"] = noise
        component["norm_bound"]["value"] = max(component["norm_bound"]["value"], 1.01 * wanted)
        component["consistency"] = narrow
    elif kind == "intervals":
        component["samples"]["intervals"] = [
            [low + 0.4 * share * (high - low), high - 0.4 * share * (high - low)]
            for low, high in component["samples"]["intervals"]
        ]
    elif kind == "subset":  # a norm bound that only some of the samples refute, and those are left out
        kept = rng.permutation(len(runs))[: len(runs) // 4]
        component["consistency"], _, smaller = least_norm_part(content, runs.subset(kept), n, i)
        component["norm_bound"]["value"] = min(1.0001 * smaller, 0.999 * norm)
        component["samples"] = {"inputs": [], "intervals": []}
        for side in ("lower", "upper"):
            component[side] |= {"method": "displacement", "witnesses": [{"rows": [], "weights": []}]}
    elif kind == "start":
        content["data"]["initial_state_noise"][i] *= share
    elif kind == "names":
        content["question"]["state_names"].reverse()
        content["question"]["state_limits"]["names"] = [str(c) for c in range(4)]
    else:  # samples that nobody recorded
        inputs = component["samples"]["inputs"]
        inputs[int(rng.integers(len(inputs)))][int(rng.integers(2))] += 10.0 ** rng.uniform(-12, 0)
    settle(content)
    return kind


def test_no_forged_assumption_is_accepted_with_the_recordings(plant, chunk, tmp_path):
    runs = replace(recorded(plant, np.random.default_rng(chunk), n_runs=60, n_steps=2), initial_state_noise=1e-4)
    model = rc.MultiStepPredictor.select(runs, [10.0, 30.0], safety_factor=1.5)
    x0 = np.array([2.2, 1.0])
    file, data = tmp_path / "plan.json", tmp_path / "runs.npz"
    rc.certify(model, x0, feedback_inputs(plant, x0[None], 2)[0], **LIMITS).save(file)
    rc.save_trajectories(runs, data)
    assert rc.verify(file, data=data).accepted
    original = json.loads(file.read_text())
    for number in range(20):
        rng = np.random.default_rng([41, chunk, number])
        content = copy.deepcopy(original)
        kind = forge(content, runs, rng)
        rewrite(file, content)
        result = rc.verify(file, data=data)
        assert not result.accepted, kind
        assert "claimed" not in result.reason, f"{kind}: not the assumption was found wrong, but {result.reason}"


def test_every_verdict_needs_a_function_that_keeps_the_assumptions(predictor, plan, tmp_path):
    tube, file = predictor.boxes(*plan), tmp_path / "plan.json"
    middle = float((tube.lower[0, 0] + tube.upper[0, 0]) / 2)
    for verdict, limit in (("CERTIFIED", 5.0), ("UNDECIDED", middle), ("REFUTED", 0.5)):
        rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, -np.inf], [limit, np.inf])).save(file)
        original = json.loads(file.read_text())
        assert original["claim"]["verdict"] == verdict
        for change, reason in (
            (lambda function: function.update(inputs=[], weights=[]), r"misses \d+ of \d+, that at \("),
            (lambda function: function.update(weights=[9.0 * w for w in function["weights"]]), "misses"),
            (lambda function: function.clear(), "consistency must have the keys inputs weights"),
        ):
            content = copy.deepcopy(original)
            change(content["steps"][1][0]["consistency"])
            rewrite(file, content)
            result = rc.verify(file)
            assert result.reason.startswith("step 2, state c_A"), result.reason
            assert re.search(reason, result.reason)


def component_of(kernel, norm_bound, X, weights, intervals):
    """One that touches some samples, for checking a function by hand."""
    return {
        "kernel": kernel.to_dict(),
        "norm_bound": {"value": norm_bound},
        "consistency": {"inputs": X, "weights": weights},
        "samples": {"inputs": X, "intervals": intervals},
    }


def is_consistent(component):
    try:
        checker.check_consistency(component, checker._touched(component), lambda: arb(0), "here", checker.Work(10**8))
    except checker.RejectedError:
        return False
    return True


def test_a_function_that_misses_by_rounding_is_mended_if_there_is_room(rng):
    """Intervals of no width: no double is the weight of a function that meets them."""
    X, kernel = np.sort(rng.uniform(-1, 1, (12, 1)), axis=0), rc.SquaredExponential(0.3)
    y = np.sin(3.0 * X[:, 0])
    weights = np.linalg.solve(kernel(X), y)
    norm = float(np.sqrt(y @ weights))
    points, exact = X.tolist(), [[v, v] for v in y.tolist()]
    assert is_consistent(component_of(kernel, 1.0001 * norm, points, weights.tolist(), exact))
    assert not is_consistent(component_of(kernel, 0.9999 * norm, points, weights.tolist(), exact))
    wider = [[v, v] if i < 6 else [v - 0.1, v + 0.1] for i, v in enumerate(y.tolist())]
    assert is_consistent(component_of(kernel, 1.0001 * norm, points, weights.tolist(), wider))
    narrow = [[v, v] if i < 6 else [v - 1e-15, v + 1e-15] for i, v in enumerate(y.tolist())]
    assert is_consistent(component_of(kernel, 1.0001 * norm, points, weights.tolist(), narrow))
    nowhere = [*exact[:-1], [5.0, 5.0]]
    assert not is_consistent(component_of(kernel, 1.0001 * norm, points, weights.tolist(), nowhere))
    both = component_of(kernel, 1.0001 * norm, points, weights.tolist(), exact)
    both["samples"] = {"inputs": 2 * points, "intervals": [*exact, *([v + 0.1, v + 0.2] for v in y.tolist())]}
    assert not is_consistent(both)


def test_recordings_without_noise_are_accepted(tmp_path, rng):
    x0, inputs = rng.uniform(-1, 1, (25, 1)), rng.uniform(-1, 1, (25, 2, 1))
    states = np.concatenate([x0[:, None], 0.8 * np.sin(x0[:, None]) + 0.3 * np.cumsum(inputs, axis=1)], axis=1)
    runs = rc.Trajectories(states, inputs, 0.0, ["x"], ["u"])
    model = rc.MultiStepPredictor.select(runs, [1.0], safety_factor=2.0)
    rc.certify(model, [0.2], [[0.1], [0.3]], state_limits=rc.Box([-2.0], [2.0])).save(tmp_path / "plan.json")
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    result = rc.verify(tmp_path / "plan.json", data=tmp_path / "runs.npz")
    assert result.accepted, result.reason
    assert "all 50 recorded intervals" in result.samples


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "Scale", "factor": 1e-51}, "factor of a kernel must lie between 1e-50 and 1e\\+50; it is 1e-51"),
        ({"kind": "Scale", "factor": [2.0, 2.0]}, "factor of a kernel must hold finite numbers"),
        ({"kind": "Scale", "factor": 0}, "factor of a kernel must lie between"),
        ({"kind": "RationalQuadratic", "lengthscale": 20.0, "alpha": [1.0] * 3}, "alpha of a kernel must hold finite"),
        ({"kind": "RationalQuadratic", "lengthscale": 20.0, "alpha": 1e7}, "alpha of a kernel must lie between"),
        ({"kind": "SquaredExponential", "lengthscale": [1e-60] * 3}, "lengthscale of a kernel must lie between"),
        ({"kind": "SquaredExponential", "lengthscale": [20.0] * 2}, "must be a list of 3"),
        ({"kind": "SquaredExponential", "lengthscale": 2**53 + 1}, "finite numbers of double precision"),
    ],
)
def test_parameters_of_kernels_beyond_their_range_are_rejected(file, change, reason):
    content = json.loads(file.read_text())
    component = content["steps"][0][0]
    component["kernel"] = {**change, **({"kernel": component["kernel"]} if change["kind"] == "Scale" else {})}
    rewrite(file, content)
    assert re.match(f"step 1, state c_A.*{reason}", rc.verify(file).reason)


def test_variances_of_kernels_beyond_their_range_are_rejected(file):
    content = json.loads(file.read_text())
    tiny = {"kind": "Scale", "factor": 1e-40, "kernel": content["steps"][0][0]["kernel"]}
    content["steps"][0][0]["kernel"] = {"kind": "Product", "a": tiny, "b": tiny}
    rewrite(file, content)
    assert "the variance of a kernel must lie between" in rc.verify(file).reason


# ---- recordings that say more


def test_less_than_the_recordings_say_of_their_own_noise_is_rejected(file, certificate, tmp_path):
    runs, data = certificate.predictor.runs, tmp_path / "runs.npz"
    for change, reason in (
        ({"noise_bound": 1.01 * runs.noise_bound}, "the noise bound is 0.06, but the recordings say 0.0606"),
        ({"initial_state_noise": 0.01}, "assumed to be within 0, but the recordings say 0.01"),
        ({"state_names": ("c_B", "c_A")}, "the state_names are not those of the certificate"),
        ({"input_names": ("v",)}, "the input_names are not those of the certificate"),
    ):
        rc.save_trajectories(replace(runs, **change), data)
        assert reason in rc.verify(file, data=data).reason
    rc.save_trajectories(replace(runs, noise_bound=0.9 * runs.noise_bound), data)
    assert rc.verify(file, data=data).accepted
    np.savez(data, states=runs.states, inputs=runs.inputs)  # which say nothing of it
    assert rc.verify(file, data=data).accepted


def test_windows_are_as_uncertain_as_the_recordings_that_they_were_cut_from(plant, rng, tmp_path):
    long, file = recorded(plant, rng, n_runs=15, n_steps=4, noise=0.005, initial_noise=0.005), tmp_path / "plan.json"
    rc.save_trajectories(long, tmp_path / "long.npz")
    x0 = np.array([2.2, 1.0])
    plan = x0, feedback_inputs(plant, x0[None], 2)[0]
    for noise, reason in ((None, ""), (0.0, "assumed to be within 0, but the recordings say 0.006")):
        runs = rc.load_trajectories(tmp_path / "long.npz", horizon=2, initial_state_noise=noise)
        model = rc.MultiStepPredictor.select(runs, [20.0])
        rc.certify(model, *plan, state_limits=rc.Box([0.0, 0.0], [9.0, 9.0])).save(
            file, data_file=tmp_path / "long.npz"
        )
        result = rc.verify(file, data=tmp_path / "long.npz")
        assert result.accepted is (noise is None), result.reason
        assert reason in result.reason
        rc.save_trajectories(runs, tmp_path / "windows.npz")  # which say themselves how uncertain they are
        again = rc.verify(file, data=tmp_path / "windows.npz")
        assert again.accepted, again.reason
        assert again.samples.endswith("intervals of 45 runs, from their first instants on")
        if noise is None:
            assert result.samples.endswith("all 210 recorded intervals of 15 runs, from any instant on")


def test_steps_that_nobody_recorded_are_rejected_with_the_recordings(file, certificate, tmp_path):
    runs = certificate.predictor.runs.shortened(2)
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    content = json.loads(file.read_text())
    content["data"]["sha256"] = runs.sha256
    rewrite(file, content)
    assert rc.verify(file).accepted
    assert rc.verify(file, data=tmp_path / "runs.npz").reason == "step 3, state c_A: no recording has that many steps"


def test_recordings_that_contradict_the_noise_bound_are_rejected(file, certificate, tmp_path):
    """A run twice, with other states: no function has two values."""
    runs = certificate.predictor.runs
    again = replace(runs.subset([0]), states=runs.states[:1] + np.array([0.0, 0.0, 0.0, 0.2])[:, None])
    more = runs.joined(again)
    rc.save_trajectories(more, tmp_path / "runs.npz")
    content = json.loads(file.read_text())
    content["data"]["sha256"] = more.sha256
    rewrite(file, content)
    result = rc.verify(file, data=tmp_path / "runs.npz")
    assert result.reason.startswith("step 3, state c_A: what was recorded at (")
    assert result.reason.endswith("contradicts the noise bound")


def test_held_out_runs_count_as_recorded(plant, rng, tmp_path):
    """The function that keeps the assumptions passes through everything in the file, not only what boxes rest on."""
    runs = recorded(plant, rng, n_runs=60, n_steps=2)
    rc.save_trajectories(runs, tmp_path / "runs.csv")
    model = rc.MultiStepPredictor.select(runs.subset(np.arange(40)), [20.0, 40.0], safety_factor=3.0)
    x0 = np.array([2.2, 1.0])
    certificate = rc.certify(model, x0, feedback_inputs(plant, x0[None], 2)[0], **LIMITS)
    file, data = tmp_path / "plan.json", tmp_path / "runs.csv"
    certificate.save(file, data_file=data)
    assert "all 240 recorded intervals" in rc.verify(file, data=data).samples
    few = json.loads(file.read_text())
    certificate.save(file)  # through the 40 runs alone
    alone = json.loads(file.read_text())
    for row, others in zip(few["steps"], alone["steps"], strict=True):
        for component, other in zip(row, others, strict=True):
            component["consistency"] = other["consistency"]
    rewrite(file, few)
    assert rc.verify(file).accepted
    assert "it is not proved that the assumptions agree" in rc.verify(file, data=data).reason

    states = runs.states.copy()
    states[50:, 2, 0] += 1.0
    rc.save_trajectories(replace(runs, states=states), data)
    with pytest.raises(rc.RkhsControlError, match="also those that were held out: step 2, state c_A: "):
        certificate.save(file, data_file=data)
    rc.save_trajectories(runs.subset(np.arange(30)), data)
    with pytest.raises(rc.InputError, match="the runs are not in it"):
        certificate.save(file, data_file=data)


# ---- what acceptance promises


def test_the_promise_is_printed_and_made_of_numbers(file, certificate, capsys):
    content = json.loads(file.read_text())
    content["question"]["state_limits"]["names"] = ["safe", "safe", "also safe", ""]
    content["steps"][0][0]["norm_bound"]["provenance"] = "measured by an authority"
    rewrite(file, content)
    assert checker.main([str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    limits = ["c_A <= 3", "c_B <= 2", "c_A >= 1", "c_B >= 0.5", "u >= 3", "u <= 25", "change of u <= 20"]
    begin = lines.index("limits, kept at the steps 1 to 3:")
    assert [line.strip() for line in lines[begin + 1 : begin + 8]] == limits == rc.verify(file).limits
    component = content["steps"][0][0]
    kernel = f"SquaredExponential(lengthscale {', '.join(f'{s:g}' for s in component['kernel']['lengthscale'])})"
    norm = component["norm_bound"]["value"]
    assert any(
        line.startswith(
            f'  step 1, c_A: {kernel}, norm at most {norm!r} ("measured by an authority"), noise at most 0.06'
        )
        for line in lines
    )
    assert "  initial states of the plan: c_A taken as exactly known, c_B taken as exactly known" in lines
    assert lines[-1].endswith(NOT_LOOKED_UP)
    assert "from c_A = 2.3, c_B = 0.9" in lines[begin - 2]


def test_uncertain_initial_states_and_windows_are_printed(file):
    content = json.loads(file.read_text())
    content["data"].update(initial_state_noise=[0.01, 0], file={"name": "runs.csv", "sha256": "", "is_windowed": True})
    lines = checker.assumptions_in_words(content)
    assert "initial states of the recordings: c_A within 0.01, c_B taken as exactly known" in lines
    assert lines[-1] == "samples are windows of recordings, which begin with measured states"


def test_limits_that_promise_nothing_or_are_called_something_else_are_rejected(file, predictor, plan, tmp_path):
    original = json.loads(file.read_text())
    for change, reason in (
        ({"names": [], "normals": [], "offsets": []}, "there is no limit on the states"),
        ({"normals": [[0.0, 0]] * 4}, "limit 1 of the states has a zero normal"),
        ({"names": ["c_A <= 1", "c_B <= 2", "c_A >= 1", "c_B >= 0.5"]}, 'called "c_A <= 1", but it is "c_A <= 3"'),
        ({"names": ["c_A ≤ 1", "b", "c", "d"]}, 'is called "c_A ≤ 1", but it is "c_A <= 3"'),
        ({"names": ["a", "b", "c_A >= 1 ", "d"]}, 'is called "c_A >= 1 ", but'),
        ({"names": [3.5, "b", "c", "d"]}, "must be texts"),
    ):
        content = copy.deepcopy(original)
        content["question"]["state_limits"].update(change)
        content["claim"]["margins"] = [
            row[: len(content["question"]["state_limits"]["offsets"])] for row in content["claim"]["margins"]
        ]
        rewrite(file, content)
        assert reason in rc.verify(file).reason
    content = copy.deepcopy(original)
    content["question"]["input_limits"] = {"lower": [9.0], "upper": [8.0]}  # which no plan keeps
    content["claim"]["verdict"] = "REFUTED"
    rewrite(file, content)
    assert rc.verify(file).reason == "input_limits: nothing lies between 9 and 8"
    with pytest.raises(rc.InputError, match="normals must not be zero; row 1 is"):
        rc.Polytope([[1.0, 0.0], [0.0, -0.0]], [1.0, 1.0])


def test_names_of_limits_are_those_of_the_checker(predictor, plan, tmp_path):
    """Whatever the numbers are."""
    ends = [(0.1 + 0.2, 1e22), (-0.0, 2.0**60), (1.0 / 3.0, 123456.789), (-1e-7, 5.0)]
    for low, high in ends:
        rc.certify(predictor, *plan, state_limits=rc.Box([low, -9.0], [high, np.inf])).save(tmp_path / "plan.json")
        result = rc.verify(tmp_path / "plan.json")
        assert result.accepted, result.reason
        assert json.loads((tmp_path / "plan.json").read_text())["question"]["state_limits"]["names"] == result.limits
    rc.certify(predictor, *plan, state_limits=rc.Polytope([[1.0, -0.5], [0.0, -2.0]], [9.0, 1.0])).save(
        tmp_path / "plan.json"
    )
    assert rc.verify(tmp_path / "plan.json").limits == ["1 c_A - 0.5 c_B <= 9", "- 2 c_B <= 1"]


def test_weaker_claims_than_what_is_proved_are_accepted(predictor, plan, tmp_path):
    """The certifier itself makes them: it rounds the margin of a polytope down, and zero becomes less."""
    top, file = float(predictor.boxes(*plan).upper[:, 0].max()), tmp_path / "plan.json"
    certificate = rc.certify(
        predictor, *plan, state_limits=rc.Polytope([[0.3, 0.0]], [float(np.nextafter(0.3 * top, 9))])
    )
    for verdict, is_accepted in (("UNDECIDED", True), ("CERTIFIED", True), ("REFUTED", False)):
        content = json.loads(certificate.to_file().model_dump_json())
        content["claim"].update(verdict=verdict, margin=-0.1, margins=[[-0.1]] * 3)
        rewrite(file, content)
        assert rc.verify(file).accepted is is_accepted


HOSTILE_TEXTS = [
    "x\naccepted: CERTIFIED, 99 bounds proved",
    "x\r\x1b[2K\x1b[32maccepted\x1b[0m",
    "x\u202eDEIFITREC",
    "x\u2066\u200f\u061c",
    "x\x9b31m\x00\x07\x08",
    "x\u2028\u2029\x85",
    "\ud800",
    "\u05d0 <= 1",
    "l\u0338" + "\u0338" * 20,
    "y" * 100_000,
    'quote" <= 5, "',
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_texts_from_a_file_cannot_forge_lines_or_colours(file, text, capsys):
    original = json.loads(file.read_text())
    for change in range(4):
        content = copy.deepcopy(original)
        content["question"]["state_limits"]["names"] = [str(c) for c in range(4)]
        content["question"]["state_names"][0] = text
        for component in content["steps"][0]:
            component["norm_bound"]["provenance"] = text
        content["made_with"]["python"] = text
        if change == 1:
            content["steps"][1][0]["upper"]["bound"] *= 1.0 - 1e-6
        if change == 2:
            content["question"]["state_limits"]["names"][0] = text + " = 1"
        if change == 3:
            content["steps"][1][0]["consistency"] = {"inputs": [], "weights": []}
        rewrite(file, content)
        code = checker.main([str(file)])
        lines = capsys.readouterr().out.split("\n")[:-1]
        assert code == (change > 0)
        assert all(line.isprintable() and len(line) < 1200 for line in lines)
        assert not any(unicodedata.combining(c) or unicodedata.bidirectional(c) == "R" for c in "".join(lines))
        assert [line for line in lines if line.startswith(("accepted", "rejected"))] == lines[-1:]
        assert len(lines) == (34, 7, 2, 14)[change]
        if change == 0:
            (limit,) = (line for line in lines if line.endswith(" <= 3"))
            assert re.fullmatch(r'  "[^"]*" <= 3', limit)


def test_output_needs_no_more_than_a_terminal_for_plain_letters(file):
    content = json.loads(file.read_text())
    content["question"]["state_names"][0] = "θ"
    content["question"]["state_limits"]["names"] = ["a", "b", "c", "d"]
    rewrite(file, content)
    command = [sys.executable, checker.__file__, str(file)]
    for encoding, shown in (("ascii", b"\\u03b8 <= 3"), ("utf-8", "θ <= 3".encode())):
        result = subprocess.run(command, capture_output=True, check=False, env={"PYTHONIOENCODING": encoding})
        assert result.returncode == 0, result.stderr
        assert shown in result.stdout


# ---- files that would stall or crash the checker


def deep_sum(n_leaves):
    if n_leaves == 1:
        return {"kind": "SquaredExponential", "lengthscale": 20.0}
    return {"kind": "Sum", "a": deep_sum(n_leaves // 2), "b": deep_sum(n_leaves - n_leaves // 2)}


def with_many_nodes(content):
    """A kernel of a thousand parts under witnesses of a hundred weights: less than 100 kB."""
    component = content["steps"][0][0]
    component["kernel"] = deep_sum(1000)
    inputs, weights = [[float(k), 0.0, 0.0] for k in range(100)], [1e-9] * 100
    component["consistency"] = {"inputs": inputs, "weights": weights}
    component["samples"] = {"inputs": inputs, "intervals": [[0, 1]] * 100}
    for side in ("lower", "upper"):
        component[side]["witnesses"] = [{"rows": list(range(100)), "weights": weights}]


def with_many_steps(content):
    """Six thousand steps, each a component without a sample."""
    n_steps = 6000
    nothing = {"method": "displacement", "witnesses": [{"rows": [], "weights": []}]}
    component = {
        "kernel": {"kind": "SquaredExponential", "lengthscale": 2.0},
        "norm_bound": {"value": 1.0, "provenance": ""},
        "noise_bound": {"value": 0.1, "provenance": ""},
        "disturbance_bound": {"value": 0.0, "provenance": ""},
        "prior": None,
        "consistency": {"inputs": [], "weights": []},
        "samples": {"inputs": [], "intervals": []},
        "lower": {**nothing, "bound": -2.0},
        "upper": {**nothing, "bound": 2.0},
    }
    content["question"].update(state_names=["x"], x0=[0.0], inputs=[[0.5]] * n_steps, initial_state_noise=[0.1])
    content["question"]["state_limits"] = {"names": ["x"], "normals": [[1.0]], "offsets": [3.0]}
    content["data"]["initial_state_noise"] = [0.0]
    content["steps"] = [[component]] * n_steps
    content["claim"] = {"verdict": "CERTIFIED", "margin": 1.0, "margins": [[1.0]] * n_steps}


def with_close_samples(content):
    """Witnesses that prove what is claimed, but not at the first precision: means of values 1e-30 to either side."""
    question = content["question"]
    question.update(x0=[0.0, 0.0], inputs=[[0.0]] * 3, input_limits=None, input_rate_limits=None)
    for n, row in enumerate(content["steps"], start=1):
        for component in row:
            component["kernel"] = {"kind": "SquaredExponential", "lengthscale": 1.0}
            component["norm_bound"]["value"] = 1.0
            component["consistency"] = {"inputs": [], "weights": []}
            inputs = [[1e-30 * k] + [0.0] * (n + 1) for k in range(-64, 65) if k]
            component["samples"] = {"inputs": inputs, "intervals": [[0, 0]] * 128}
            witness = {"rows": list(range(128)), "weights": [1.0 / 128.0] * 128}
            for side, sign in (("lower", -1.0), ("upper", 1.0)):
                component[side] = {"bound": sign * 1e-50, "method": "point", "witnesses": [witness]}
    content["claim"] = {"verdict": "UNDECIDED", "margin": -9.0, "margins": [[-9.0] * 4] * 3}


@pytest.mark.parametrize("change", [with_many_nodes, with_many_steps, with_close_samples])
def test_work_is_counted_before_it_is_done(file, change, capsys):
    content = json.loads(file.read_text())
    change(content)
    rewrite(file, content)
    assert checker.main([str(file), "--quiet"]) == 1
    out = capsys.readouterr().out
    pattern = r"rejected: .* takes ([\d,]+) units of work or more, and ([\d,]+) are allowed; .*: --work (\d+) or more\n"
    needed, allowed, option = re.fullmatch(pattern, out).groups()
    assert allowed == f"{checker.WORK:,}"
    assert int(needed.replace(",", "")) == int(option) > checker.WORK


def test_the_limit_of_work_can_be_raised(file, capsys):
    for command in (checker.main, cli_verify):
        assert command([str(file), "--quiet", "--work", "1000"]) == 1
        needed = int(re.search(r"--work (\d+)", capsys.readouterr().out)[1])
        assert command([str(file), "--quiet", "--work", str(needed)]) == 0
        capsys.readouterr()
    assert rc.verify(file, work=needed).accepted
    assert not rc.verify(file, work=needed - 1).accepted


def npz(**members):
    """An NPZ file of raw members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def npy(shape, content=None, descr="<f8", order="False"):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    body = bytes(8 * int(np.prod(shape))) if content is None else content
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


GOOD = npy((2, 2, 2))
BROKEN = npz(states=GOOD, inputs=GOOD)
BAD_RECORDINGS = {
    "nothing.npz": b"",
    "text.npz": b"nothing",
    "half.npz": BROKEN[: len(BROKEN) // 2],
    "flipped.npz": BROKEN[:60] + bytes([BROKEN[60] ^ 255]) + BROKEN[61:],
    "other members.npz": npz(a=GOOD),
    "no header.npz": npz(states=b"\x93NUMPY", inputs=GOOD),
    "no array.npz": npz(states=b"PK" * 20, inputs=GOOD),
    "code.npz": npz(states=b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, inputs=GOOD),
    "long header.npz": npz(states=b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"{" * 99, inputs=GOOD),
    "integers.npz": npz(states=npy((2, 2, 2), descr="<i8"), inputs=GOOD),
    "objects.npz": npz(states=npy((2, 2, 2), descr="|O"), inputs=GOOD),
    "other order.npz": npz(states=npy((2, 2, 2), order="True"), inputs=GOOD),
    "too few.npz": npz(states=npy((9, 9, 9), b"\0" * 8), inputs=GOOD),
    "huge shape.npz": npz(states=npy((10**12, 10**12, 10**12), b""), inputs=GOOD),
    "other axes.npz": npz(states=npy((8,)), inputs=npy((8,))),
    "no columns.npz": npz(states=npy((2, 3, 0)), inputs=npy((2, 2, 0))),
    "no runs.npz": npz(states=npy((0, 4, 2)), inputs=npy((0, 3, 1))),
    "unfit.npz": npz(states=npy((2, 4, 2)), inputs=npy((2, 4, 1))),
    "not a number.npz": npz(states=npy((1, 4, 2), np.full(8, np.nan).tobytes()), inputs=npy((1, 3, 1))),
    "odd noise.npz": npz(states=npy((1, 4, 2)), inputs=npy((1, 3, 1)), noise_bound=npy((5, 5))),
    "odd names.npz": npz(states=npy((1, 4, 2)), inputs=npy((1, 3, 1)), state_names=npy((2,), b"\xff" * 8, "<U1")),
    "nothing.csv": b"",
    "binary.csv": b"\xff\xfe\x00",
    "header.csv": b"step,c_A,c_B,u",
    "other columns.csv": b"step,a,b\n0,1,2\n",
    "twice.csv": b"step,c_A,c_A,c_B,u\n0,1,2,3,4\n",
    "short row.csv": b"step,c_A,c_B,u\n0,1,2,3\n1,2\n",
    "long row.csv": b"step,c_A,c_B,u\n0,1,2,3\n1,2,3,4,5\n",
    "word.csv": b"step,c_A,c_B,u\n0,one,2,3\n1,1,2,3\n",
    "not a number.csv": b"step,c_A,c_B,u\n0,nan,2,3\n1,1,2,3\n",
    "infinite.csv": b"step,c_A,c_B,u\n0,1e999,2,3\n1,1,2,3\n",
    "no clock.csv": b"c_A,c_B,u\n1,2,3\n",
    "gap.csv": b"step,c_A,c_B,u\n0,1,2,3\n1,1,2,3\n3,1,2,3\n",
    "same time.csv": b"time,c_A,c_B,u\n0,1,2,3\n0,1,2,3\n",
    "quote.csv": b'step,c_A,c_B,u\n0,"1,2,3\n',
    "long cell.csv": b"step,c_A,c_B,u\n0," + b"1" * 200_000 + b",2,3\n",
    "recordings.mat": b"anything",
}


@pytest.mark.parametrize("name", BAD_RECORDINGS)
def test_recordings_that_cannot_be_read_are_one_line(file, name, capsys):
    """Known by their hash, so that it is not that which keeps them out."""
    data = file.with_name(name)
    data.write_bytes(BAD_RECORDINGS[name])
    content = json.loads(file.read_text())
    sha256 = hashlib.sha256(BAD_RECORDINGS[name]).hexdigest()
    content["data"]["file"] = {"name": name, "sha256": sha256, "is_windowed": False}
    rewrite(file, content)
    code = checker.main([str(file), "--data", str(data), "--quiet"])
    out = capsys.readouterr().out
    assert code in (1, 4)
    assert re.fullmatch(r"(rejected|unreadable): .+\n", out), out


def test_recordings_that_are_missing_are_unreadable(file, tmp_path, capsys):
    for name in ("missing.csv", "missing.npz", "."):
        assert checker.main([str(file), "--data", str(tmp_path / name)]) == 4
        assert capsys.readouterr().out.startswith("unreadable: ")


def test_hashes_are_compared_before_anything_is_parsed(file, certificate, tmp_path, monkeypatch):
    def parsed(*_):
        raise AssertionError("parsed")

    for name in ("_csv_runs", "work_of"):
        monkeypatch.setattr(checker, name, parsed if name == "_csv_runs" else lambda *_: 0)
    for name in ("numbers", "texts", "nested", "by_row"):
        monkeypatch.setattr(checker.Array, name, parsed)
    runs = certificate.predictor.runs
    rc.save_trajectories(runs, tmp_path / "named.csv")
    assert "names no file of recordings; save it with data_file=" in rc.verify(file, data=tmp_path / "named.csv").reason
    certificate.save(file, data_file=tmp_path / "named.csv")
    for name in ("other.csv", "other.npz"):
        rc.save_trajectories(runs.subset(np.arange(5)), tmp_path / name)
        assert rc.verify(file, data=tmp_path / name).reason.endswith("made from other data, the hash differs")
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    with pytest.raises(AssertionError, match="parsed"):
        rc.verify(file, data=tmp_path / "runs.npz")


def test_files_that_unpack_to_far_more_are_refused_before(file, tmp_path, capsys):
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("states.npy", "w") as stream:
            for _ in range(200):
                stream.write(bytes(2**20))
        archive.writestr("inputs.npy", GOOD)
    assert checker.main([str(file), "--data", str(bomb)]) == 4
    assert "states is too large" in capsys.readouterr().out
    with zipfile.ZipFile(bomb, "w") as archive:
        for number in range(5000):
            archive.writestr(str(number), b"")
    assert checker.main([str(file), "--data", str(bomb)]) == 4
    assert "too many members" in capsys.readouterr().out


def test_exit_codes_are_in_the_help_and_those_of_wrong_use_are_none_of_the_verdicts(capsys):
    for command in (checker.main, cli_verify):
        with pytest.raises(SystemExit) if command is checker.main else contextlib.nullcontext():
            command(["--help"])
        out = " ".join(capsys.readouterr().out.split())
        assert all(words in out for words in ("0 accepted", "1 rejected", "4 unreadable"))
    with pytest.raises(SystemExit) as stop:
        checker.main(["--nonsense"])
    assert stop.value.code == 4


def test_certificates_of_version_1_say_what_to_do(file, capsys):
    file.write_text(file.read_text().replace('"version": 4', '"version": 1', 1))
    assert checker.main([str(file)]) == 4
    assert "certify the plan again" in capsys.readouterr().out


# ---- histories, priors and disturbances


@pytest.fixture(scope="module")
def of_histories(tmp_path_factory):
    """A certificate of a plan on windows of a recording with lags, and the file with the recording."""
    rng = np.random.default_rng(3)
    _, measured, torques = swings(rng, 180, 0.01)
    names = {"state_names": ["angle", "rate"], "input_names": ["torque"]}
    file = tmp_path_factory.mktemp("recording") / "recording.csv"
    whole = rc.Trajectories(measured[None], torques[None], 0.011, **names)
    rc.save_trajectories(whole, file)
    shape = {"output_lags": 2, "input_lags": 1, "every": 2}
    runs = rc.load_trajectories(
        file, horizon=3, noise_bound=0.011, disturbance_bound=0.01, initial_state_noise=0.001, **names, **shape
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.UnsettledNormWarning)  # whether they hold is not the question here
        predictor = rc.MultiStepPredictor.select(runs, [2.0, 4.0], prior="affine")
    limits = rc.Limits({"angle": (-9.0, 9.0), "rate": (-9.0, 9.0)}, inputs={"torque": (-1.0, 1.0)})
    return rc.certify(predictor, runs.histories[40], runs.inputs[40], limits), file, runs


def test_histories_priors_and_disturbances_are_proved(of_histories, tmp_path):
    certificate, recording, runs = of_histories
    certificate.save(tmp_path / "plan.json", data_file=recording)
    for data in (None, recording):
        result = rc.verify(tmp_path / "plan.json", data=data)
        assert result.accepted, result.reason
        assert max(row["share"] for row in result.slacks) < 1e-8
    assert "consistency proved through all" in result.samples
    assert result.plan[0].startswith("from angle = ")
    assert "torque[-1] = " in result.plan[0]
    assert "norm of what an affine prior leaves at most" in result.assumptions[0]
    assert 'disturbances at most 0.01 ("given with the runs")' in result.assumptions[0]
    assert "the future depends on the last 2 outputs, 1 inputs before, and the inputs to come" in result.assumptions
    assert "a step is 2 samples of the recordings, over which inputs are averaged" in result.assumptions
    rc.save_trajectories(runs, tmp_path / "windows.npz")
    certificate.save(tmp_path / "plan.json")
    result = rc.verify(tmp_path / "plan.json", data=tmp_path / "windows.npz")
    assert result.accepted, result.reason


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_a_constant_prior_is_proved_and_called_so(of_histories, tmp_path):
    certificate, recording, runs = of_histories
    predictor = rc.MultiStepPredictor.select(runs, [2.0, 4.0], prior="constant")
    question = certificate.question
    rc.certify(predictor, question.x0, question.inputs, question.limits).save(tmp_path / "p.json", data_file=recording)
    result = rc.verify(tmp_path / "p.json", data=recording)
    assert result.accepted, result.reason
    assert "norm of what a constant prior leaves at most" in result.assumptions[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content["steps"][0][0]["prior"].update(offset=0.3), "the witness proves|is claimed|follow"),
        (lambda content: content["steps"][1][1]["prior"]["slopes"].__setitem__(0, 0.0), "is claimed|not follow"),
        (lambda content: content["steps"][1][1].update(prior=None), "is claimed|does not follow"),
        (
            lambda content: content["steps"][2][0]["disturbance_bound"].update(value=0.0),
            "does not follow|not proved that",
        ),
        (lambda content: content["data"].update(shape=[2, 1, 1]), "is not in the recordings"),
        (lambda content: content["data"].update(shape=[1, 3, 2]), "is not in the recordings"),
        (lambda content: content["data"].update(shape=[2, 1]), "data.shape must be a list of 3"),
        (lambda content: content["data"].update(shape=[2, 1, 2.0]), "data.shape must be how many"),
        (lambda content: content["data"].update(shape=[1, 0, 2]), "question.x0 must be a list of 2"),
        (lambda content: content["data"].update(initial_state_noise=[0.0] * 5), "does not follow|not proved that"),
    ],
)
def test_forged_histories_priors_and_disturbances_are_found(of_histories, tmp_path, change, reason):
    certificate, recording, _ = of_histories
    certificate.save(tmp_path / "plan.json", data_file=recording)
    content = json.loads((tmp_path / "plan.json").read_text())
    change(content)
    rewrite(tmp_path / "plan.json", content)
    result = rc.verify(tmp_path / "plan.json", data=recording)
    assert not result.accepted
    assert re.search(reason, result.reason), result.reason


@pytest.mark.parametrize("older", [as_version_2, as_version_3])
def test_a_certificate_of_versions_2_and_3_is_still_accepted(file, older):
    content = older(json.loads(file.read_text()))
    rewrite(file, content)
    assert rc.verify(file).accepted
    rewrite(file, {**content, "digest": "0"}, with_digest=False)
    assert "the digest does not match" in rc.verify(file).reason
    content["steps"][0][0]["upper"]["bound"] -= 0.01
    rewrite(file, content)
    assert "is claimed" in rc.verify(file).reason
    content["steps"][0][0].update(prior=None, disturbance_bound={"value": 0.0, "provenance": ""})
    rewrite(file, content)
    assert ("the digest does not match" if older is as_version_2 else "is claimed") in rc.verify(file).reason
