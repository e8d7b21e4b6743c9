"""The checker: accepts what is proved, rejects what is not, and never falls over."""

import copy
import csv
import importlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flint import arb, ctx
from problems import ball_kernel
from test_certifier import plan  # noqa: F401
from test_predictor import feedback_inputs, plant, predictor, recorded  # noqa: F401

import rkhs_control as rc
from rkhs_control import cli
from rkhs_control.certificate_format import CertificateFile

checker = importlib.import_module("rkhs_control.verify")
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
LIMITS = {
    "state_limits": rc.Box([1.0, 0.5], [3.0, 2.0]),
    "input_limits": rc.Box([3.0], [25.0]),
    "input_rate_limits": rc.Box([-np.inf], [20.0]),
}


@pytest.fixture
def certificate(predictor, plan):  # noqa: F811
    return rc.certify(predictor, *plan, **LIMITS)


@pytest.fixture
def file(certificate, tmp_path):
    certificate.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def rewrite(file, content, *, with_digest=True):
    digest = checker.digest(content) if with_digest else content["digest"]
    file.write_text(json.dumps({**content, "digest": digest}))


def test_saved_certificate_is_accepted_with_next_to_no_slack(file, certificate):
    result = rc.verify(file)
    assert result.accepted, result.reason
    assert result.verdict == certificate.verdict.name
    assert len(result.slacks) == 12
    assert 0 <= max(row["share"] for row in result.slacks) < 1e-8


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_every_kernel_and_uncertain_initial_states_are_accepted(plant, rng, kernel, noise, tmp_path):  # noqa: F811
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
def test_every_verdict_is_accepted(predictor, plan, verdict, tmp_path):  # noqa: F811
    tube = predictor.boxes(*plan)
    middle = (tube.lower[0, 0] + tube.upper[0, 0]) / 2
    limit = {"CERTIFIED": 5.0, "UNDECIDED": middle, "REFUTED": 0.5}[verdict.name]
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, -np.inf], [limit, np.inf]))
    assert certificate.verdict is verdict
    certificate.save(tmp_path / "plan.json")
    assert rc.verify(tmp_path / "plan.json").accepted


def test_polytopes_input_limits_and_no_limits_are_accepted(predictor, plan, tmp_path):  # noqa: F811
    cases = [
        {"state_limits": rc.Polytope([[1.0, 0.3], [-0.7, 1.1]], [3.5, 0.2])},
        {"state_limits": rc.Box([-np.inf] * 2, [np.inf] * 2)},
        {**LIMITS, "input_limits": rc.Box([3.0], [5.0])},
        {**LIMITS, "input_rate_limits": rc.Box([-0.1], [0.1])},
    ]
    for limits in cases:
        rc.certify(predictor, *plan, **limits).save(tmp_path / "plan.json")
        result = rc.verify(tmp_path / "plan.json")
        assert result.accepted, result.reason


def test_methods_without_witnesses_say_so(predictor, plan, tmp_path):  # noqa: F811
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
    moved = rc.Trajectories(states, runs.inputs, runs.noise_bound)
    rc.save_trajectories(moved, other)
    content["data"]["sha256"] = moved.sha256
    rewrite(file, content)
    assert "does not follow from" in rc.verify(file, data=other).reason
    for name, text in (("text.npz", "nothing"), ("empty.csv", "")):
        (tmp_path / name).write_text(text)
        assert not rc.verify(file, data=tmp_path / name).accepted
    assert not rc.verify(file, data=tmp_path / "missing.csv").accepted


def test_windows_and_repeated_runs_are_found(plant, rng, tmp_path):  # noqa: F811
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
    steps, names = content["steps"], ("lower", "upper")
    component = steps[rng.integers(len(steps))][rng.integers(2)]
    proof = component[names[rng.integers(2)]]
    kind = rng.choice(
        ["leaf", "number", "bound", "weight", "input", "interval", "kernel", "limit", "verdict", "swap", "drop",
         "norm", "margin", "plan", "delete", "type"]
    )  # fmt: skip
    size = 10.0 ** rng.uniform(-9, 1) * rng.choice([-1.0, 1.0])
    if kind == "bound":
        side = names[rng.integers(2)]
        inwards = -1.0 if side == "upper" else 1.0
        component[side]["bound"] += inwards * max(1e-6 * abs(component[side]["bound"]), 1e-12)
    elif kind == "weight":
        proof["weights"][rng.integers(len(proof["weights"]))] *= 1.0 + size
    elif kind == "input":
        point = proof["inputs"][rng.integers(len(proof["inputs"]))]
        point[rng.integers(len(point))] += size
    elif kind == "interval":
        proof["intervals"][rng.integers(len(proof["intervals"]))][rng.integers(2)] += size
    elif kind == "kernel":
        scale = component["kernel"]["lengthscale"]
        component["kernel"]["lengthscale"] = [s * (1.0 + size) for s in scale]
    elif kind == "limit":
        offsets = content["question"]["state_limits"]["offsets"]
        offsets[rng.integers(len(offsets))] += size
    elif kind == "verdict":
        content["claim"]["verdict"] = str(rng.choice(["CERTIFIED", "UNDECIDED", "REFUTED", "certified", ""]))
    elif kind == "swap":
        i, j = rng.integers(len(steps), size=2)
        steps[i], steps[j] = steps[j], steps[i]
    elif kind == "drop":
        for part in proof.values():
            if isinstance(part, list):
                del part[0]
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


def is_implied(content):
    """An independent look at what a file claims: are bounds, verdict and margins implied by the rest of it?"""
    ctx.prec = 400
    question = content["question"]
    for n, row in enumerate(content["steps"], start=1):
        x = np.array([*question["x0"], *np.ravel(question["inputs"][:n])], dtype=float)
        for component in row:
            kernel = rc.kernel_from_dict(component["kernel"])
            for side, sign in (("lower", -1.0), ("upper", 1.0)):
                proof = component[side]
                points = [x, *np.array(proof["inputs"], dtype=float).reshape(-1, len(x))]
                c = [arb(1)] + [-arb(float(w)) for w in proof["weights"]]
                square = sum(
                    (
                        c[i] * c[j] * ball_kernel(kernel, p, q)
                        for i, p in enumerate(points)
                        for j, q in enumerate(points)
                    ),
                    arb(0),
                )
                value = arb(float(component["norm_bound"]["value"])) * square.nonnegative_part().sqrt()
                for w, ends in zip(proof["weights"], proof["intervals"], strict=True):
                    value += max((arb(float(w)) * arb(sign * float(end)) for end in ends), key=float)
                if not value <= arb(sign * float(proof["bound"])):
                    return False
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
        claim["verdict"] == verdict
        and bool((np.array(claim["margins"]) <= margins).all())
        and claim["margin"] <= margins.min()
    )


def _inputs_broken(question):
    inputs = np.array(question["inputs"], np.longdouble)
    for box, values in ((question["input_limits"], inputs), (question["input_rate_limits"], np.diff(inputs, axis=0))):
        if box is not None:
            low = np.array([-np.inf if x is None else x for x in box["lower"]])
            high = np.array([np.inf if x is None else x for x in box["upper"]])
            if ((values < low) | (values > high)).any():
                return True
    return False


def test_changes_are_rejected_or_harmless(file, chunk):
    """Each change gets a fresh digest, so that it is the proof that has to find it."""
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
    for kind in ("bound", "swap", "verdict"):
        assert all(rejected.get(kind, [True])), kind


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
    "other version": lambda text: text.replace('"version": 1', '"version": 2'),
    "not UTF-8": b"\xff\xfe\x00",
}


def _with_weights(text, n):
    content = json.loads(text)
    proof = content["steps"][0][0]["upper"]
    proof["weights"] = [1e-9] * n
    proof["inputs"], proof["intervals"] = [proof["inputs"][0]] * n, [proof["intervals"][0]] * n
    return json.dumps({**content, "digest": checker.digest(content)})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_a_clean_rejection_within_seconds(file, name, capsys):
    change = HOSTILE[name]
    content = change(file.read_text()) if callable(change) else change
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    began = time.perf_counter()
    code = checker.main([str(file)])
    assert time.perf_counter() - began < 10
    assert code in (1, 2)
    assert capsys.readouterr().out.splitlines()[-1].startswith(("rejected: ", "unreadable: "))


def test_exit_codes_and_table(file, capsys, monkeypatch):
    for command in (checker.main, cli_verify):
        assert command([str(file)]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[-1] == "accepted: CERTIFIED, 12 bounds proved"
        assert len(out) == 14
        assert command([str(file.with_name("missing.json"))]) == 2
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
    lonely = tmp_path / "verify.py"
    lonely.write_text(Path(checker.__file__).read_text())
    program = (
        "import sys, runpy\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('numpy', 'pydantic', 'rkhs_control', 'scipy', 'numba'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"sys.argv = ['verify.py', {str(file)!r}, '--quiet']\n"
        f"runpy.run_path({str(lonely)!r}, run_name='__main__')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "accepted: CERTIFIED, 12 bounds proved\n"


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
