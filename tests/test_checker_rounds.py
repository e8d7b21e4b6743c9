"""The second file of a certificate, which tells how intervals were narrowed: what is proved with it, what is not."""

import contextlib
import copy
import importlib
import io
import json
import struct
import time
import zipfile

import numpy as np
import pytest
from forgeries import as_version_3, read_rounds, rewrite, rewrite_rounds, settle
from plants import lagged_windows

import rkhs_control as rc
from rkhs_control.envelopes.optimal import OptimalEnvelope
from rkhs_control.prediction.narrowing import Slopes, UncertainSamples

checker = importlib.import_module("rkhs_control.checker")
LIMITS = rc.Limits({"y": (-2.0, 2.0)})


def saved(folder, runs, kernel=None, norm=4.0, name="plan.json"):
    """A certificate with its second file, and the windows it was made from."""
    model = rc.MultiStepPredictor(runs, rc.SquaredExponential(3.0) if kernel is None else kernel, norm)
    rc.certify(model, runs.histories[10], runs.inputs[10], LIMITS).save(folder / name)
    rc.save_trajectories(runs, folder / "runs.npz")
    return folder / name


@pytest.fixture
def file(tmp_path):
    return saved(tmp_path, lagged_windows(35))


@pytest.fixture
def content(file):
    return json.loads(file.read_text())


@pytest.fixture
def rounds(file, content):
    return read_rounds(file.with_name(content["data"]["narrowing"]["name"]))


def looked_up(file):
    return rc.verify(file, data=file.with_name("runs.npz"))


def test_narrowed_intervals_are_proved_with_the_recordings(file):
    result = looked_up(file)
    assert result.accepted, result.reason
    assert not any("narrow" in line for line in result.assumptions)
    assert "taken as given" not in result.samples
    alone = rc.verify(file)
    assert alone.accepted
    assert sum("are as narrow as the rounds in" in line for line in alone.assumptions) == 1


def test_without_the_second_file_the_assumption_is_named(file, content):
    file.with_name(content["data"]["narrowing"]["name"]).unlink()
    result = looked_up(file)
    assert result.accepted, result.reason
    assert sum("are as narrow as the rounds in" in line for line in result.assumptions) == 1
    assert ", how narrow their intervals are is taken as given, " in result.samples


def test_what_is_taken_as_given_is_no_more_than_what_uncertain_histories_do(file, content):
    """Noise alone makes intervals of a certain width, whoever narrows them."""
    file.with_name(content["data"]["narrowing"]["name"]).unlink()
    half = content["steps"][0][0]["noise_bound"]["value"]
    for share, is_accepted in ((1.0 + 1e-9, True), (0.99, False)):
        forged = copy.deepcopy(content)
        samples = forged["steps"][0][0]["samples"]
        samples["intervals"] = [
            [(low + high) / 2 - share * half, (low + high) / 2 + share * half] for low, high in samples["intervals"]
        ]
        settle(forged)
        rewrite(file, forged)
        reason = looked_up(file).reason
        assert ("does not follow from the recordings" not in reason) is is_accepted, reason


def test_a_narrower_interval_than_the_rounds_prove_is_rejected(file, content):
    for row in content["steps"]:
        for side in (0, 1):
            forged = copy.deepcopy(content)
            samples = forged["steps"][content["steps"].index(row)][0]["samples"]
            samples["intervals"][3][side] += (1e-9, -1e-9)[side]
            settle(forged)
            rewrite(file, forged)
            assert "does not follow from the recordings" in looked_up(file).reason


def changed_weight(rounds):
    rounds["weights_1_0_0"][:] *= 1.1


def changed_rows(rounds):
    rounds["rows_2_0_1"][:] = rounds["rows_2_0_1"][::-1].copy()


def swapped_rounds(rounds):
    for key in ("starts", "rows", "weights"):
        first, second = f"{key}_1_0_0", f"{key}_1_0_1"
        rounds[first], rounds[second] = rounds[second], rounds[first]


def dropped_round(rounds):
    for key in ("starts", "rows", "weights"):
        del rounds[f"{key}_2_0_1"]


def no_rounds(rounds):
    for key in list(rounds):
        if not key.startswith(("inputs", "outputs")):
            del rounds[key]


def other_outputs(rounds):
    rounds["outputs_1_0"][5] += 1e-6


def other_inputs(rounds):
    rounds["inputs_1"][5, 0] += 1e-6


def fewer_samples(rounds):
    rounds["inputs_1"], rounds["outputs_1_0"] = rounds["inputs_1"][1:], rounds["outputs_1_0"][1:]


def more_outputs(rounds):
    rounds["outputs_1_0"] = np.append(rounds["outputs_1_0"], 0.0)


def halves(rounds):
    rounds["rows_1_0_0"] += 0.25


def negative_row(rounds):
    rounds["rows_1_0_0"][7] = -1


def starts_behind(rounds):
    rounds["starts_1_0_0"] -= 5


def huge_starts(rounds):
    rounds["starts_1_0_0"][1:] = 1e300


def huge_weights(rounds):
    rounds["weights_1_0_0"][:] = 1e300


def not_numbers(rounds):
    rounds["weights_1_0_0"][3] = np.nan


def other_axes(rounds):
    rounds["inputs_1"] = rounds["inputs_1"].ravel()


def no_samples(rounds):
    rounds["inputs_1"], rounds["outputs_1_0"] = np.zeros((0, 4)), np.zeros(0)
    rounds["starts_1_0_0"] = np.zeros(1)


def no_weights(rounds):
    del rounds["weights_1_0_0"]


@pytest.mark.parametrize(
    "change",
    [changed_weight, changed_rows, swapped_rounds, dropped_round, no_rounds, other_outputs, other_inputs, fewer_samples,
     more_outputs, halves, negative_row, starts_behind, huge_starts, huge_weights, not_numbers, other_axes, no_samples,
     no_weights],
)  # fmt: skip
def test_changed_rounds_are_rejected_even_with_the_right_hash(file, content, rounds, change):
    change(rounds)
    rewrite_rounds(file, content, rounds)
    result = looked_up(file)
    assert not result.accepted
    assert result.reason.startswith("step ")


def test_rounds_of_another_predictor_are_rejected(file, content, tmp_path):
    (tmp_path / "other").mkdir()
    others = (
        saved(tmp_path / "other", lagged_windows(35), norm=8.0),
        saved(tmp_path / "other", lagged_windows(40)),
        saved(tmp_path / "other", lagged_windows(35), rc.SquaredExponential(4.0)),
    )
    for other in others:
        name = json.loads(other.read_text())["data"]["narrowing"]["name"]
        rewrite_rounds(file, content, (tmp_path / "other" / name).read_bytes())
        assert not looked_up(file).accepted


def test_rounds_with_another_hash_are_rejected(file, content):
    beside = file.with_name(content["data"]["narrowing"]["name"])
    raw = beside.read_bytes()
    for changed in (raw[:-100], raw + b" ", b"", raw[:500] + bytes([raw[500] ^ 1]) + raw[501:]):
        beside.write_bytes(changed)
        assert looked_up(file).reason.endswith("the hash differs from that in the certificate")


def test_a_truncated_file_with_the_right_hash_is_unreadable(file, content):
    raw = file.with_name(content["data"]["narrowing"]["name"]).read_bytes()
    for size in (0, 10, len(raw) // 2, len(raw) - 1):
        rewrite_rounds(file, content, raw[:size])
        with pytest.raises(checker.UnreadableError):
            looked_up(file)


def widths_by(rounds, n, norm, half, noise, scale=3.0):
    """How little uncertain histories do after all rounds, by plain arithmetic: for every sample of step `n`."""
    X, y = rounds[f"inputs_{n}"], rounds[f"outputs_{n}_0"]
    apart = X[:, None] - X[None]
    K = np.exp(-(apart**2).sum(axis=-1) / (2.0 * scale**2))
    uncertain = np.flatnonzero(noise)
    widths = np.full(len(X), norm * np.sqrt(2.0 - 2.0 * np.exp(-(noise @ noise) / (2.0 * scale**2))))
    bent = norm / 2.0 * np.sqrt(3.0) / scale**2 * (noise @ noise)
    for r in range(sum(name.startswith(f"starts_{n}_") for name in rounds)):
        low, high = y - half - widths, y + half + widths
        starts, rows = (rounds[f"{key}_{n}_0_{r}"].astype(int) for key in ("starts", "rows"))
        further = np.full(len(X), bent)
        for q, (j, k) in enumerate(np.ndindex(len(uncertain), len(X))):
            bounds = []
            for sign, first, last in ((1, *starts[2 * q : 2 * q + 2]), (-1, *starts[2 * q + 1 : 2 * q + 3])):
                used, w = rows[first:last], rounds[f"weights_{n}_0_{r}"][first:last]
                slope = -apart[k, used, uncertain[j]] / scale**2 * K[k, used]
                square = 1.0 / scale**2 - 2.0 * slope @ w + w @ K[np.ix_(used, used)] @ w
                ends = np.maximum(sign * w * low[used], sign * w * high[used])
                bounds.append(norm * np.sqrt(max(0.0, square)) + ends.sum())
            further[k] += noise[uncertain[j]] * max(bounds)
        widths = np.minimum(widths, further)
    return widths


def follows(content, rounds):
    """Whether all intervals in a certificate of one state are as wide as the rounds leave them, within rounding."""
    noise = np.array(content["data"]["initial_state_noise"])
    for n, (component,) in enumerate(content["steps"], start=1):
        half, inputs = component["noise_bound"]["value"], rounds[f"inputs_{n}"]
        widths = half + widths_by(rounds, n, component["norm_bound"]["value"], half, noise)
        place = {tuple(x): k for k, x in enumerate(inputs.tolist())}
        for x, (low, high) in zip(*component["samples"].values(), strict=True):
            k, y = place[tuple(x)], rounds[f"outputs_{n}_0"]
            if low > y[k] - widths[k] + 1e-9 or high < y[k] + widths[k] - 1e-9:
                return False
    return True


def test_random_changes_of_the_rounds_are_rejected_or_harmless(file, content, rounds, chunk):
    """Every file has the right hash. Half of the changes are to packed bytes, half to numbers in the arrays."""
    packed = file.with_name(content["data"]["narrowing"]["name"]).read_bytes()
    assert follows(content, rounds)
    n_rejected = 0
    for number in range(16):
        rng = np.random.default_rng([42, chunk, number])
        changed = {name: values.copy() for name, values in rounds.items()}
        if number % 2:
            raw = bytearray(packed)
            for place in rng.integers(len(raw), size=rng.integers(1, 4)):
                raw[place] ^= int(rng.integers(1, 256))
            rewrite_rounds(file, content, bytes(raw))
        else:
            values = changed[str(rng.choice(list(changed)))].reshape(-1)
            value = values[(place := rng.integers(len(values)))]
            values[place] = rng.choice([value + 1.0, value - 1.0, 2.0 * value, -value, 0.5 * value, 1e300, 1e-300])
            rewrite_rounds(file, content, changed)
        try:
            result = looked_up(file)
        except checker.UnreadableError:
            n_rejected += 1
            continue
        if result.accepted:
            assert follows(content, changed)
        else:
            assert result.reason
            n_rejected += 1
    assert n_rejected > 8


# ---- from contradictions nothing follows


def test_rounds_that_end_in_a_contradiction_prove_nothing(tmp_path):
    """Both 0.09 and -0.09 were recorded near 0. A function of norm 1 is that steep, but not one that is 0 at -1 and 1.

    Before the first round zero fits all intervals. Thereafter nothing does, and by weights on an interval that is empty
    any slope is as small as one likes. So is then any interval, unless a function must pass through all of them.
    """
    starts = np.array([0.0, 0.0, -1.0, 1.0, 3.0])[:, None]
    outputs = np.array([0.09, -0.09, 0.0, 0.0, 0.05])[:, None]
    states = np.stack([starts, outputs], axis=1)
    runs = rc.Trajectories(states, np.zeros((5, 1, 1)), 0.0, ["y"], ["u"], initial_state_noise=0.1)
    rc.save_trajectories(runs, tmp_path / "runs.npz")
    kernel, file = rc.SquaredExponential(1.0), tmp_path / "plan.json"
    with pytest.raises(rc.RkhsControlError, match="step 1, state y: "):
        rc.MultiStepPredictor(runs, kernel, 1.0)
    model = rc.MultiStepPredictor(runs, kernel, 9.0, rounds=0)
    rc.certify(model, [3.0], [[0.0]], LIMITS, initial_state_noise=0.0).save(file)

    samples = UncertainSamples.of(runs, 1, 0, kernel, 1.0, None)
    first = Slopes.of(OptimalEnvelope(samples.observations(samples.widest), kernel, 1.0), samples.boxes)
    n_bounds = len(first.starts) - 1
    arrays = {"inputs_1": runs.arguments(1), "outputs_1_0": runs.states[:, 1, 0]}
    arrays |= {"starts_1_0_0": first.starts, "rows_1_0_0": first.indices, "weights_1_0_0": first.weights}
    arrays |= {"starts_1_0_1": 2 * np.arange(n_bounds + 1), "rows_1_0_1": np.zeros(2 * n_bounds)}
    arrays["weights_1_0_1"] = np.tile([1e6, -1e6], n_bounds)
    content = json.loads(file.read_text())
    component = content["steps"][0][0]
    component["norm_bound"]["value"] = 1.0
    component["consistency"] = {"inputs": [], "weights": []}
    component["samples"] = {"inputs": [[3.0, 0.0]], "intervals": [[-1e-9, 1e-9]]}
    for side in ("lower", "upper"):
        component[side].update(method="point", witnesses=[{"rows": [0], "weights": [1.0]}])
    settle(content)
    assert component["upper"]["bound"] < 1e-8
    content["data"]["narrowing"] = {"name": "narrowing_0.npz", "sha256": ""}
    rewrite_rounds(file, content, arrays)
    result = looked_up(file)
    assert not result.accepted
    assert result.reason.endswith("contradicts the noise bound") or "not proved that" in result.reason


# ---- files that would stall or crash the checker


def zipped(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, values in members:
            body = io.BytesIO()
            np.save(body, values)
            archive.writestr(f"{name}.npy", body.getvalue())
    return stream.getvalue()


def beyond_the_end(raw):
    """The first member begins, as the directory says, where no file can."""
    place = raw.index(b"PK\x01\x02")
    n_name, n_extra = struct.unpack("<HH", raw[place + 28 : place + 32])
    extra = struct.pack("<HHQ", 1, 8, 2**63 + 5)
    rest = raw[place + 46 + n_name + n_extra :]
    head = raw[: place + 30] + struct.pack("<H", len(extra)) + raw[place + 32 : place + 42] + b"\xff" * 4
    whole = head + raw[place + 46 : place + 46 + n_name] + extra + rest
    end = whole.rindex(b"PK\x05\x06")
    size = struct.unpack("<I", whole[end + 12 : end + 16])[0] + len(extra) - n_extra
    return whole[: end + 12] + struct.pack("<I", size) + whole[end + 16 :]


HOSTILE = {
    "unpacks to far more": lambda rounds: zipped((f"a{k}", np.zeros(2**21)) for k in range(20)),
    "many members": lambda rounds: zipped(((f"a{k}", np.zeros(1)) for k in range(29_000)), zipfile.ZIP_STORED),
    "texts": lambda rounds: zipped({**rounds, "starts_1_0_0": np.array(["a"])}.items()),
    "integers": lambda rounds: zipped({**rounds, "starts_1_0_0": rounds["starts_1_0_0"].astype(int)}.items()),
    "no arrays": lambda rounds: zipped(()),
    "beyond the end": lambda rounds: beyond_the_end(zipped(rounds.items())),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_second_files_end_within_seconds(file, content, rounds, name):
    rewrite_rounds(file, content, HOSTILE[name](rounds))
    began = time.perf_counter()
    with contextlib.suppress(checker.UnreadableError):
        assert not looked_up(file).accepted
    assert time.perf_counter() - began < 5


def test_recordings_that_begin_beyond_their_end_are_unreadable(file):
    data = file.with_name("runs.npz")
    data.write_bytes(beyond_the_end(data.read_bytes()))
    with pytest.raises(checker.UnreadableError):
        looked_up(file)


def nested(n_leaves):
    if n_leaves == 1:
        return {"kind": "Matern52", "lengthscale": 3.0}
    return {"kind": "Product", "a": nested(n_leaves // 2), "b": nested(n_leaves - n_leaves // 2)}


def test_slopes_of_products_are_counted_before_they_are_computed(file, content, rounds):
    """The slope of a product takes the values of all its factors, level by level."""
    for row in content["steps"]:
        row[0].update(kernel=nested(60), consistency={"inputs": [], "weights": []})
        row[0]["samples"] = {key: values[:1] for key, values in row[0]["samples"].items()}
        for side in ("lower", "upper"):
            row[0][side].update(method="displacement", witnesses=[{"rows": [], "weights": []}])
            row[0][side]["bound"] = -99.0 if side == "lower" else 99.0
    content["claim"] = {"verdict": "UNDECIDED", "margin": -999.0, "margins": [[-999.0] * 2] * 2}
    rewrite_rounds(file, content, rounds)
    began = time.perf_counter()
    assert "units of work or more" in looked_up(file).reason
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("name", ["x" * 300, "narrowing_0.npz\0", "\ud800", "../narrowing_0.npz", ".", "", None, 7])
def test_only_names_of_second_files_are_looked_for(file, content, name):
    content["data"]["narrowing"]["name"] = name
    rewrite(file, content)
    assert "data.narrowing.name must be" in looked_up(file).reason


def test_deep_nesting_in_older_versions_is_no_certificate(file):
    model = rc.MultiStepPredictor(lagged_windows(initial_state_noise=0.0), rc.SquaredExponential(3.0), 4.0)
    rc.certify(model, [0.1, 0.2, 0.0], [[0.1]], LIMITS).save(file)
    rewrite(file, as_version_3(json.loads(file.read_text())))
    assert rc.verify(file).accepted
    text = file.read_text()
    for depth in range(900, 1000):
        file.write_text(text.replace('"seed": null', '"seed": ' + "[" * depth + "]" * depth))
        with contextlib.suppress(checker.UnreadableError):
            assert not rc.verify(file).accepted
