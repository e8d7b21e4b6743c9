"""The checker on plans whose history is only known to lie in a box."""

import copy
import importlib
import json
import re

import numpy as np
import pytest
from forgeries import SIDES, is_implied, rewrite, settle
from plants import lagged, lagged_windows

import rkhs_control as rc
from rkhs_control.assumptions.priors import fitted_priors

checker = importlib.import_module("rkhs_control.checker")
LIMITS = rc.Limits({"y": (-2.0, 2.0)})
COMPOSITE = 0.5 * rc.SquaredExponential(3.0) + rc.RationalQuadratic(3.0, alpha=2.0) * rc.Matern(5.0, nu=2.5)
SMOOTH = [rc.SquaredExponential(3.0), rc.RationalQuadratic(3.0), rc.Matern(4.0, nu=2.5), COMPOSITE]
ROUGH = [rc.Matern(4.0, nu=1.5), rc.Matern(4.0, nu=0.5), rc.SquaredExponential(3.0) + rc.Matern(4.0, nu=1.5)]
CASES = [
    *(("corners", kernel, [0.01, *noise]) for kernel, noise in zip(SMOOTH, ([0.0, 0.0], [0.02, 0.0]) * 2, strict=True)),
    *(("corners", SMOOTH[n], [0.01] * (n + 1)) for n in (2, 3)),
    *(("slopes", kernel, [0.01] * 5) for kernel in SMOOTH),
    ("slopes", rc.SquaredExponential((3.0, 4.0, 5.0, 3.0, 4.0, 5.0, 2.0, 2.0)), [0.01, 0.02, 0.01, 0.02, 0.01, 0.02]),
    *(("displacement", kernel, [0.01] * 3) for kernel in ROUGH),
    ("point", rc.SquaredExponential(3.0), [0.0] * 3),
]


def predictor_of(kernel, noise, *, with_prior, runs=None):
    runs = lagged_windows(35, output_lags=len(noise), initial_state_noise=noise) if runs is None else runs
    kernels = [kernel] * 2
    if isinstance(getattr(kernel, "lengthscale", None), tuple):
        kernels = [rc.SquaredExponential(kernel.lengthscale[: len(noise) + n]) for n in (1, 2)]
    norm = 30.0 if kernel in ROUGH else 4.0
    return rc.MultiStepPredictor(runs, kernels, norm, priors=fitted_priors(runs) if with_prior else None)


def certified(model, **options):
    runs = model.runs
    return rc.certify(model, runs.histories[10], runs.inputs[10], LIMITS, **options)


def methods(content):
    return {component[side]["method"] for row in content["steps"] for component in row for side in SIDES}


@pytest.mark.parametrize(
    ("method", "kernel", "noise"), CASES, ids=[f"{m}-{len(h)}-{type(k).__name__}" for m, k, h in CASES]
)
def test_every_way_to_bound_a_box_of_histories_is_accepted(method, kernel, noise, tmp_path):
    """With and without a prior and a disturbance, in turn."""
    place = next(k for k, case in enumerate(CASES) if case[1] is kernel and case[2] is noise)
    disturbance = 0.02 if place % 3 == 0 else 0.0
    runs = lagged_windows(35, output_lags=len(noise), initial_state_noise=noise, disturbance_bound=disturbance)
    model = predictor_of(kernel, noise, with_prior=bool(place % 2), runs=runs)
    certificate = certified(model)
    certificate.save(tmp_path / "plan.json")
    rc.save_trajectories(model.runs, tmp_path / "runs.npz")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert methods(content) == {method}
    assert is_implied(content)
    for data in (None, tmp_path / "runs.npz"):
        result = rc.verify(tmp_path / "plan.json", data=data)
        assert result.accepted, result.reason
        assert result.verdict == certificate.verdict.name
        assert max(row["share"] for row in result.slacks) < 1e-8


@pytest.mark.parametrize(("every", "disturbance"), [(1, 0.04), (2, 0.2)])
@pytest.mark.parametrize("with_prior", [False, True])
def test_windows_of_recordings_in_files_are_looked_up(every, disturbance, with_prior, tmp_path):
    """From CSV and NPZ, with disturbances, and steps of several samples; some windows were held out."""
    measured, inputs = lagged(np.random.default_rng(1), 42 * every, 0.01)
    names = {"state_names": ["y"], "input_names": ["u"]}
    whole = rc.Trajectories(measured[None], inputs[None], 0.01, **names)
    for name in ("recording.csv", "recording.npz"):
        data, file = tmp_path / name, tmp_path / "plan.json"
        rc.save_trajectories(whole, data)
        runs = rc.load_trajectories(
            data, horizon=2, noise_bound=0.01, disturbance_bound=disturbance, output_lags=3, every=every, **names
        )
        model = predictor_of(
            rc.SquaredExponential(3.0), [0.01] * 3, with_prior=with_prior, runs=runs.subset(np.arange(30))
        )
        certified(model).save(file, data_file=data)
        assert json.loads(file.read_text())["data"]["narrowing"] is not None
        for given in (None, data):
            result = rc.verify(file, data=given)
            assert result.accepted, result.reason
        assert "taken as given" not in result.samples
        assert f'disturbances at most {disturbance} ("given with the runs")' in result.assumptions[0]


# ---- tampering


@pytest.fixture(scope="module", params=["corners", "slopes", "displacement"])
def honest(request):
    kernel = rc.Matern(4.0, nu=1.5) if request.param == "displacement" else rc.SquaredExponential(3.0)
    noise = [0.01] * (5 if request.param == "slopes" else 3)
    content = certified(predictor_of(kernel, noise, with_prior=True)).to_file().model_dump(mode="json")
    assert methods(content) == {request.param}
    return content


def verified(content, tmp_path):
    rewrite(tmp_path / "plan.json", content)
    return rc.verify(tmp_path / "plan.json")


def each_proof(content):
    """Every bound in turn, in a certificate of its own, with the component that it is of."""
    for n in range(len(content["steps"])):
        for side in SIDES:
            forged = copy.deepcopy(content)
            yield forged, forged["steps"][n][0], forged["steps"][n][0][side]


def test_a_bound_over_a_box_tightened_by_a_millionth_is_rejected(honest, tmp_path):
    for side, inwards in (("lower", 1.0), ("upper", -1.0)):
        forged = copy.deepcopy(honest)
        forged["steps"][1][0][side]["bound"] += inwards * 1e-6
        assert re.search(r"step 2, state y, \w+: .* is claimed", verified(forged, tmp_path).reason)


def test_another_method_with_the_same_bound_is_rejected(honest, tmp_path):
    """With as many witnesses as it needs: the first one over and over, or those that there are."""
    for method, n_witnesses in (("point", 1), ("displacement", 1), ("corners", 8), ("slopes", 7), ("other", 1)):
        for forged, _, proof in each_proof(honest):
            if proof["method"] != method:
                witnesses = (proof["witnesses"] * 8)[:n_witnesses]
                proof.update(method=method, witnesses=witnesses)
                assert not verified(forged, tmp_path).accepted, method


def test_witnesses_that_are_missing_or_too_many_are_rejected(honest, tmp_path):
    for change in (list.pop, list.clear, lambda witnesses: witnesses.append(witnesses[0])):
        for forged, _, proof in each_proof(honest):
            change(proof["witnesses"])
            assert re.search("must be a list of", verified(forged, tmp_path).reason)


def test_changed_weights_are_rejected_unless_the_bound_still_follows(honest, tmp_path):
    n_rejected = 0
    for forged, _, proof in each_proof(honest):
        for witness in proof["witnesses"]:
            witness["weights"] = [1.001 * weight for weight in witness["weights"]]
        result = verified(forged, tmp_path)
        assert not result.accepted or is_implied(forged)
        n_rejected += not result.accepted
    assert n_rejected > 0


def test_corners_that_are_swapped_or_replaced_by_that_of_the_centre_are_rejected(tmp_path):
    """Each corner has the witness of another, or all of them that for the centre, which proves less there."""
    model = predictor_of(rc.SquaredExponential(3.0), [0.05] * 3, with_prior=True)
    runs = model.runs
    content = certified(model).to_file().model_dump(mode="json")
    at_centre = rc.certify(model, runs.histories[10], runs.inputs[10], LIMITS, initial_state_noise=0.0)
    centre = at_centre.to_file().model_dump(mode="json")
    for n, side in np.ndindex(2, 2):
        for name in ("swapped", "centre"):
            forged = copy.deepcopy(content)
            component, other = forged["steps"][n][0], centre["steps"][n][0]
            proof = component[SIDES[side]]
            if name == "swapped":
                proof["witnesses"].reverse()
            else:
                first = len(component["samples"]["inputs"])
                for key, values in other["samples"].items():
                    component["samples"][key] += values
                (witness,) = other[SIDES[side]]["witnesses"]
                proof["witnesses"] = [{**witness, "rows": [first + row for row in witness["rows"]]}] * 8
            assert "is claimed" in verified(forged, tmp_path).reason, name


def test_a_plan_that_begins_elsewhere_or_less_certainly_is_rejected(honest, tmp_path):
    for change in (
        lambda question: question["x0"].__setitem__(0, question["x0"][0] + 0.01),
        lambda question: question["initial_state_noise"].__setitem__(1, 0.02),
        lambda question: question.update(initial_state_noise=[1.001 * h for h in question["initial_state_noise"]]),
    ):
        forged = copy.deepcopy(honest)
        change(forged["question"])
        assert "is claimed" in verified(forged, tmp_path).reason
    for noise in (-0.01, -1e-300):
        forged["question"]["initial_state_noise"][0] = noise
        assert "is negative" in verified(forged, tmp_path).reason


def test_a_plan_that_is_better_known_needs_fewer_witnesses(honest, tmp_path):
    """Zero noise of either sign is none; then the witnesses are too many."""
    for zero in (0.0, -0.0, 0):
        forged = copy.deepcopy(honest)
        forged["question"]["initial_state_noise"][0] = zero
        result = verified(forged, tmp_path)
        assert result.accepted is (methods(honest) == {"displacement"}), result.reason


def test_narrower_intervals_are_no_samples_of_the_recordings(tmp_path):
    """The same sample twice in the table counts with both its intervals."""
    model = predictor_of(rc.SquaredExponential(3.0), [0.01] * 3, with_prior=False)
    rc.save_trajectories(model.runs, tmp_path / "runs.npz")
    certified(model).save(tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    for n in (0, 1):
        forged = copy.deepcopy(content)
        component = forged["steps"][n][0]
        samples, middle = component["samples"], sum(component["samples"]["intervals"][2]) / 2
        samples["inputs"].append(samples["inputs"][2])
        samples["intervals"].append([middle - 0.005, middle + 0.005])
        for side in SIDES:
            for witness in component[side]["witnesses"]:
                witness["rows"] = [len(samples["inputs"]) - 1 if row == 2 else row for row in witness["rows"]]
        settle(forged)
        rewrite(tmp_path / "plan.json", forged)
        assert "does not follow from" in rc.verify(tmp_path / "plan.json", data=tmp_path / "runs.npz").reason


def test_histories_that_are_too_uncertain_for_doubles_are_rejected(honest, tmp_path):
    for x0, noise in ((1.7e308, 1.7e308), (0.0, 1.7e308), (-1.7e308, 1e308)):
        forged = copy.deepcopy(honest)
        forged["question"]["x0"][0], forged["question"]["initial_state_noise"][0] = x0, noise
        assert verified(forged, tmp_path).reason


def test_slopes_and_bends_of_functions_without_them_are_rejected(honest, tmp_path):
    for kind in ("Matern12", "Matern32"):
        for forged, component, _ in each_proof(honest):
            component["kernel"] = {"kind": kind, "lengthscale": 50.0}
            for side in SIDES:
                component[side]["bound"] = -1e9 if side == "lower" else 1e9
            forged["claim"] = {"verdict": "UNDECIDED", "margin": -1e12, "margins": [[-1e12] * 2] * 2}
            reason = verified(forged, tmp_path).reason
            if methods(honest) != {"displacement"}:
                assert re.search("need not have (slopes|two derivatives)", reason)
