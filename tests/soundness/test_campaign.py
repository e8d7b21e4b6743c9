"""The campaign against the bounds: its truths are exact, it finds faults that are there, and none in the bounds."""

import importlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from flint import arb, ctx
from problems import ball_kernel, random_kernel, random_radial

import rkhs_control as rc
from rkhs_control import restart
from rkhs_control.arithmetic.balls import float_up
from rkhs_control.cli import app as cli
from rkhs_control.cli import tables as console
from rkhs_control.engine.functionals import Derivative, Points
from rkhs_control.engine.gram import Gram
from rkhs_control.engine.witness import Witness
from rkhs_control.soundness import campaign, problems
from rkhs_control.soundness.campaign import Campaign, Tally, run_case
from rkhs_control.soundness.truths import Truth, combination, inner, root, value_at

# Truths


def test_values_are_those_of_the_kernel(rng):
    ctx.prec = 256
    for _ in range(50):
        kernel, (x, y) = random_kernel(rng, 3), rng.normal(size=(2, 3))
        product = inner(kernel, value_at(x.tolist()), value_at(y.tolist()))
        assert product.overlaps(ball_kernel(kernel, x, y))
        assert product.rel_accuracy_bits() > 200


@pytest.mark.parametrize("product", [False, True])
def test_derivatives_are_limits_of_differences(rng, product):
    """Of values and, for two derivatives, of derivatives; with steps so small that nothing but rounding is left."""
    ctx.prec = 512
    step = arb(2) ** -150
    for _ in range(20):
        kernel = random_radial(rng, 2, smooth=True)
        kernel = 0.3 * kernel * random_radial(rng, 2, smooth=True) + kernel if product else kernel
        x, y = rng.normal(size=(2, 2))
        for i in range(2):
            ends = [[arb(v) + sign * step * (j == i) for j, v in enumerate(x.tolist())] for sign in (-1, 1)]
            for other in (value_at(y.tolist()), combination(Derivative(y, 0)), combination(Derivative(y, 1))):
                below, above = (inner(kernel, value_at(end), other) for end in ends)
                exact = inner(kernel, combination(Derivative(x, i)), other)
                assert abs((above - below) / (2 * step) - exact) < arb(1e-60)


def test_derivative_at_the_same_point_has_the_norm_that_the_engine_uses(rng):
    ctx.prec = 256
    for kernel in (rc.Matern32(0.7), 2.0 * rc.Matern52([0.3, 2.0]), rc.RationalQuadratic(1.0) * rc.Matern32(0.2)):
        functional = combination(Derivative(rng.normal(size=2), 1))
        square = inner(kernel, functional, functional)
        assert math.isclose(float(square), kernel.derivative_variance(2)[1], rel_tol=1e-12)


def test_rounding_up_a_ball_is_up():
    ctx.prec = 256
    assert arb(float_up(arb(1) / 3)) > arb(1) / 3
    assert arb(float_up(arb("0.1 +/- 0.01"))) > arb("0.11")


def test_norms_of_residuals_are_rounded_up_for_every_functional_at_every_scale():
    """Derivatives with lengthscales from 1e-50 to 1e50, and combinations with coefficients as far apart."""
    ctx.prec = 2000
    for number in range(60):
        rng = np.random.default_rng([34, number])
        scale = 10.0 ** rng.uniform(-45, 45)
        kernel = 10.0 ** rng.uniform(-50, 50) * [rc.SquaredExponential, rc.Matern32, rc.Matern52][number % 3](scale)
        X, x = scale * rng.normal(size=(6, 2)), scale * rng.normal(size=(2, 2))
        coefficients = rng.choice([-1.0, 1.0], 2) * 10.0 ** rng.uniform(-50, 50, 2)
        for functional in (Derivative(x[0], 1), Points(x, coefficients), Points(x, [1.0, -1.0])):
            # the best weights, others as far from them as weights can be, and none to speak of
            row = functional.row(kernel, X) / kernel.variance
            best = np.linalg.lstsq(kernel(X) / kernel.variance, row, rcond=1e-8)[0]
            for weights in (best, best * (1 + 1e-9), best * 10.0 ** rng.uniform(-200, 100, 6), np.full(6, 1e-300)):
                sections = combination(functional) + combination(Points(X, np.ones(6)))
                signed = [arb(1)] * (len(sections) - 6) + [arb(-float(w)) for w in weights]
                residual = [(a * w, section) for (a, section), w in zip(sections, signed, strict=True)]
                exact = root(inner(kernel, residual, residual))
                witness, gram = Witness(np.arange(6), weights), Gram(X, kernel)
                assert arb(witness.residual_norm_up(functional, gram)) >= exact.lower()
                assert arb(witness.precise_norm_up(functional, gram)) >= exact.lower()


# Problems


def test_assumptions_of_every_problem_hold_for_certain():
    for number in range(40):
        problem = problems.draw_problem(np.random.default_rng([1, number]))
        data = problem.observations()
        with ctx.workprec(1024):
            assert problem.truth.norm() <= arb(problem.norm_bound)
            for x, lower, upper in zip(data.X, data.lower, data.upper, strict=True):
                value = problem.truth.apply(value_at(x.tolist()))
                assert arb(float(lower)) <= value <= arb(float(upper))


def test_a_truth_attains_the_bound_that_the_weights_of_its_target_prove(rng):
    kernel, X = rc.Matern52(0.7), rng.uniform(-1, 1, (8, 2))
    with ctx.workprec(256):
        for side in (-1.0, 1.0):
            target = problems.ridge_target(rng, kernel, X, functional=Points.value(np.zeros(2)), side=side)
            truth = problems.attaining(kernel, X, target, norm=3.0)
            assert math.isclose(float(truth.norm()), 3.0, rel_tol=1e-12)
            values = np.array([float(truth.apply(value_at(x))) for x in X.tolist()])
            residual = Truth(kernel, [(w / truth.sections[0][0], section) for w, section in truth.sections]).norm()
            proved = side * 3.0 * float(residual) + target.weights @ values
            assert math.isclose(float(truth.apply(combination(target.functional))), proved, rel_tol=1e-9)


# The campaign


def test_no_truth_escapes_and_none_is_called_impossible(chunk):
    total = Campaign(10, seed=chunk).run()
    assert total.bounds > 90 * total.problems
    assert total.close > total.bounds / 50
    assert total.is_clean, total.described


def test_norm_bounds_too_small_by_one_in_a_billion_let_truths_escape():
    """The control: what finds nothing here would find nothing anywhere."""
    total = Campaign(8, seed=0, norm_factor=1.0 - 1e-9).run()
    assert total.escapes >= 5
    assert not total.is_clean
    assert -2e-9 < total.tightest < -1e-10
    first = next(found for found in total.described if found["kind"] == "escape")
    again = run_case(0, first["case"], 1.0 - 1e-9)
    assert first in again.described


@pytest.mark.parametrize("method", ["closed form", "energy, given"])
def test_faults_of_one_in_a_trillion_are_found(method, monkeypatch):
    """Truths attain the bounds of methods that have no witness, too."""
    part = importlib.import_module(campaign._METHODS[method][0].__module__)
    right = part.distance_up
    monkeypatch.setattr(part, "distance_up", lambda *numbers: right(*numbers) * (1.0 - 1e-12))

    def methods(problem, rng):
        fits = problem.has_one_output_per_input and not problem.has_open_ends and problem.energy < 1e50
        return [method] if fits else []

    monkeypatch.setattr(campaign, "_methods", methods)
    assert sum(run_case(0, number).escapes for number in range(1, 30)) > 0


@pytest.mark.parametrize("fault", [math.nan, -math.inf])
def test_bounds_that_are_no_numbers_do_not_pass(fault, monkeypatch):
    right = rc.OptimalEnvelope.upper_bounds

    def wrong(self, side, functionals):
        return [replace(bound, value=fault) for bound in right(self, side, functionals)]

    monkeypatch.setattr(rc.OptimalEnvelope, "upper_bounds", wrong)
    monkeypatch.setattr(campaign, "_methods", lambda problem, rng: ["optimal"])
    total = run_case(0, 1)
    assert total.escapes + total.false_refusals + total.other_errors > 0


def test_problems_depend_on_their_numbers_alone():
    first, again = run_case(3, 11), run_case(3, 11)
    first.seconds = again.seconds = 0.0
    assert first == again
    assert run_case(3, 12).tightest != first.tightest


def test_refusals_and_other_errors_are_counted_apart(monkeypatch):
    def refuse(error):
        def raising(self, *arguments):
            raise error("no")

        monkeypatch.setattr(problems.Problem, "observations", raising)
        return run_case(0, 1)

    assert refuse(rc.FalsifiedNormBoundError).false_refusals == 2
    assert refuse(rc.ContradictoryDataError).false_refusals == 2
    other = refuse(ZeroDivisionError)
    assert (other.false_refusals, other.other_errors, other.bounds) == (0, 2, 0)
    assert other.is_clean
    assert other.described[0]["error"] == "ZeroDivisionError"


@pytest.fixture
def quick(monkeypatch):
    """Problems that take no time; returns which ones were run."""
    numbers = []

    def run(seed, number, norm_factor=1.0):
        numbers.append(number)
        escapes = 1 if number == 30 else 0
        described = [
            {"kind": "escape", "case": 30, "method": "m", "what": "w", "side": "upper", "bound": 1.0, "miss": -1.0}
        ]
        return Tally(problems=1, bounds=2, escapes=escapes, tightest=0.5, described=described[:escapes])

    monkeypatch.setattr(campaign, "run_case", run)
    return numbers


def interrupting(reports):
    def progress(done, total):
        reports.append((done, total))
        if done == 40:
            raise KeyboardInterrupt

    return progress


def test_a_campaign_goes_on_where_it_stopped(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(restart, "_WORTH_KEEPING", 0.0)
    campaign, reports = Campaign(50, seed=1), []
    with pytest.raises(KeyboardInterrupt), rc.restartable(tmp_path):
        campaign.run(progress=interrupting(reports))
    assert reports == [(20, 50), (40, 50)]
    quick.clear()
    with rc.restartable(tmp_path):
        Campaign(40, seed=2).run(progress=lambda done, total: None)
        assert quick == list(range(40)), "another seed has other problems"
        quick.clear()
        total = campaign.run()
    assert quick == list(range(40, 50))
    assert (total.problems, total.bounds, total.escapes, total.tightest) == (50, 100, 1, 0.5)


def test_the_command_prints_what_was_found_and_how_to_run_it_again(quick, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(["bench", "soundness", "--jobs", "1", *arguments])
        return stop.value.code, "".join(capfd.readouterr())

    code, text = command("--cases", "20", "--seed", "7")
    assert code == 0
    assert "false refusals" in text
    code, text = command("--cases", "50", "--seed", "7", "--json", str(tmp_path / "kept.json"))
    assert code == 1
    assert "rkhs-control bench soundness --seed 7 --case 30" in text
    assert json.loads((tmp_path / "kept.json").read_text())["settings"]["cases"] == 50
    code, text = command("--case", "30", "--norm-factor", "0.9")
    assert code == 1
    assert "--case 30 --norm-factor 0.9" in text
    assert "refusals are right" in text


def test_an_interrupted_command_says_that_its_work_is_kept(quick, run, monkeypatch):
    monkeypatch.setattr(restart, "_WORTH_KEEPING", 0.0)
    monkeypatch.setattr(console, "_lines", lambda screen, stage: interrupting([]))
    code, text = run("bench", "soundness", "--cases", "50", "--jobs", "1")
    assert code == cli.INTERRUPTED
    assert "the same command resumes there" in text
    monkeypatch.setattr(console, "_lines", lambda screen, stage: lambda done, total: None)
    code, text = run("bench", "soundness", "--cases", "50", "--jobs", "1")
    assert code == 1
    assert "2 finished parts of an earlier run were reused" in text


def test_texts_of_errors_cannot_change_the_terminal():
    found = {"kind": "error", "case": 1, "method": "m", "error": "E", "message": "\x1b[31m[red]"}
    (line,) = console.soundness_remarks({"described": [found], "infinite": 0, "undecided": 0}, 0, 1.0)
    assert "\x1b" not in line
