"""Verdicts: what is certified is true, what is refuted is false, and nothing is rounded in anyone's favour."""

import re

import numpy as np
import pytest
from plants import feedback_inputs

import rkhs_control as rc
from rkhs_control.assumptions.priors import fitted_priors
from rkhs_control.certificates.certificate import Verdict


def test_a_plan_far_inside_is_certified_with_its_margins(predictor, plan):
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([0.5, 0.2], [4.0, 3.0]))
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.first_failure is None
    assert certificate.margins.shape == (3, 4)
    expected = min((4.0 - certificate.tube.upper[:, 0]).min(), (certificate.tube.lower[:, 1] - 0.2).min())
    assert certificate.margin <= expected
    assert np.isclose(certificate.margin, expected)
    assert "CERTIFIED: every box is inside" in certificate.explain()


def test_verdicts_flip_exactly_at_the_ends_of_a_box(predictor, plan):
    """No tolerance: one rounding error decides."""
    tube = predictor.boxes(*plan)
    top = tube.upper[:, 0].max()
    for limit, verdict in (
        (top, Verdict.CERTIFIED),
        (np.nextafter(top, 0), Verdict.UNDECIDED),
        (tube.lower[:, 0].max(), Verdict.UNDECIDED),
        (np.nextafter(tube.lower[:, 0].max(), 0), Verdict.REFUTED),
    ):
        limits = rc.Box([-np.inf, -np.inf], [limit, np.inf])
        certificate = rc.certify(predictor, *plan, state_limits=limits)
        assert certificate.verdict is verdict
        same = rc.certify(predictor, *plan, state_limits=rc.Polytope([[2.0, 0.0]], [2.0 * limit]))
        assert same.verdict is verdict or same.verdict is Verdict.UNDECIDED


def test_undecided_names_step_and_constraint(predictor, plan):
    tube = predictor.boxes(*plan)
    middle = float((tube.lower[0, 1] + tube.upper[0, 1]) / 2)
    assert (tube.upper[:, 1] > middle).all()
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, middle], [np.inf, np.inf]))
    step, name = certificate.first_failure
    assert name == f"c_B >= {middle!r}"
    assert certificate.margins[step - 1].min() < 0
    assert f"at step {step} the box passes c_B >=" in certificate.explain()


def test_refuted_names_the_step_that_refutes(predictor, plan):
    tube = predictor.boxes(*plan)
    limit = float(np.nextafter(tube.upper[:, 1].min(), 9.0))
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, limit], [np.inf, np.inf]))
    assert certificate.verdict is Verdict.REFUTED
    step, name = certificate.first_violation
    assert step == int(np.argmin(tube.upper[:, 1])) + 1
    assert f"at step {step} the whole box breaks {name}" in certificate.explain()


def test_explanations_name_the_worst_step_where_that_is_not_the_first(predictor, plan):
    """Both ends of c_B rise from step to step, so that the last one is the worst."""
    tube = predictor.boxes(*plan)
    (_, low2, low3), (_, high2, high3) = tube.lower[:, 1].tolist(), tube.upper[:, 1].tolist()
    assert low2 < low3 < high2 < high3
    for limit, ends, how in (
        ((low3 + high2) / 2.0, (high2, high3), "UNDECIDED: at step {} the box passes"),
        (low2 - 0.001, (low2, low3), "REFUTED: at step {} the whole box breaks"),
    ):
        certificate = rc.certify(predictor, *plan, state_limits=rc.Box([0.0, 0.0], [9.0, limit]))
        name, nearest = re.escape(f"c_B <= {limit!r}"), r"([\d.]+)"
        pattern = f"{how.format(2)} {name} by {nearest} \\(worst at step 3: {name} by {nearest}\\)"
        said = [float(number) for number in re.fullmatch(pattern, certificate.finding()).groups()]
        for number, end in zip(said, ends, strict=True):
            assert number == pytest.approx(end - limit, rel=0.01)
            # certain amounts are rounded down, possible ones up
            assert (number >= end - limit) == (certificate.verdict is Verdict.UNDECIDED)
    for limit, end, how in (
        ((high2 + high3) / 2.0, high3, "UNDECIDED: at step {} the box passes"),
        ((low2 + low3) / 2.0, low3, "REFUTED: at step {} the whole box breaks"),
    ):
        certificate = rc.certify(predictor, *plan, state_limits=rc.Box([0.0, 0.0], [9.0, limit]))
        text, number = certificate.finding().rsplit(" ", 1)
        assert text == f"{how.format(3)} c_B <= {limit!r} by"
        assert float(number) == pytest.approx(end - limit, rel=0.01)


def test_verdicts_agree_with_the_truth_over_random_plans_and_limits(plant, predictor, rng):
    seen = set()
    for _ in range(150):
        x0 = rng.uniform([1.3, 0.7], [2.7, 1.7])
        inputs = feedback_inputs(plant, x0[None], 3)[0]
        states = plant.simulate(x0, inputs)[1:]
        upper = states.max(axis=0) + abs(rng.normal(0, 0.1, 2))
        limits = rc.Box(np.minimum(states.min(axis=0) - rng.normal(0, 0.05, 2), upper), upper)
        certificate = rc.certify(predictor, x0, inputs, state_limits=limits)
        inside = limits.contains(states).all()
        assert inside or certificate.verdict is not Verdict.CERTIFIED
        assert not inside or certificate.verdict is not Verdict.REFUTED
        seen.add(certificate.verdict)
    assert seen == set(Verdict)


def test_polytope_margins_are_those_of_the_worst_corner(predictor, plan):
    normals = np.array([[1.0, 1.0], [-1.0, 2.0]])
    certificate = rc.certify(predictor, *plan, state_limits=rc.Polytope(normals, [10.0, 10.0]))
    tube = certificate.tube
    ends = np.stack([tube.lower, tube.upper])
    corners = np.array([[[ends[i, n, 0], ends[j, n, 1]] for i in (0, 1) for j in (0, 1)] for n in range(3)])
    worst = 10.0 - (corners @ normals.T).max(axis=1)
    np.testing.assert_allclose(certificate.margins, worst, rtol=1e-12)
    assert (certificate.margins <= worst).all()


def test_inputs_that_break_their_own_limits_are_refuted(predictor, plan):
    limits = rc.Box([0.0, 0.0], [9.0, 9.0])
    low = rc.certify(predictor, *plan, state_limits=limits, input_limits=rc.Box([3.0], [plan[1].max() - 1e-9]))
    assert low.verdict is Verdict.REFUTED
    assert "the input u at step" in low.explain()
    rates = rc.certify(predictor, *plan, state_limits=limits, input_rate_limits=rc.Box([-0.1], [0.1]))
    assert rates.verdict is Verdict.REFUTED
    assert "the change of input u at step 0" in rates.explain()
    fine = rc.certify(predictor, *plan, state_limits=limits, input_limits=rc.Box([3.0], [25.0]))
    assert fine.verdict is Verdict.CERTIFIED


def test_an_unknown_initial_state_can_only_make_a_verdict_weaker(predictor, plan):
    limits = rc.Box([0.5, 0.2], [4.0, 3.0])
    exact = rc.certify(predictor, *plan, state_limits=limits)
    blurred = rc.certify(predictor, *plan, state_limits=limits, initial_state_noise=0.02)
    assert (blurred.margins < exact.margins).all()


@pytest.mark.parametrize("assumption", ["norm", "noise"])
@pytest.mark.parametrize("slack", [0.002, -0.002])
def test_margins_are_where_the_verdict_changes(predictor, plan, assumption, slack):
    tube = predictor.boxes(*plan)
    limits = rc.Box([-np.inf, -np.inf], [tube.upper[:, 0].max() + slack, np.inf])
    certificate = rc.certify(predictor, *plan, state_limits=limits)
    margin = getattr(certificate, f"{assumption}_margin")
    assert (margin > 1) == (slack > 0)
    assert margin > 0
    for factor, verdict in ((margin, Verdict.CERTIFIED), (1.01 * margin, Verdict.UNDECIDED)):
        scaled = predictor.scaled(**{assumption: factor})
        assert rc.certify(scaled, *plan, state_limits=limits).verdict is verdict


def test_many_plans_get_the_certificates_of_each(plant, predictor, rng):
    x0 = rng.uniform([1.3, 0.7], [2.7, 1.7], (6, 2))
    inputs = feedback_inputs(plant, x0, 3)
    limits = rc.Box([1.5, 0.8], [2.5, 1.5])
    many = rc.certify_plans(predictor, x0, inputs, limits)
    for certificate, start, sequence in zip(many, x0, inputs, strict=True):
        one = rc.certify(predictor, start, sequence, state_limits=limits)
        assert certificate.verdict is one.verdict
        np.testing.assert_allclose(certificate.margins, one.margins, rtol=1e-6, atol=1e-9)
        again = certificate.question.ask(predictor.with_method(rc.ClosedFormEnvelope))
        assert again.margin <= certificate.margin + 1e-9


def test_margins_are_zero_where_nothing_helps_and_infinite_without_limits(predictor, plan):
    tube = predictor.boxes(*plan)
    middle = (tube.lower[:, 0] + tube.upper[:, 0]).max() / 2.0
    for limit in (tube.lower[:, 0].max() - 0.1, middle - 0.3 * (tube.upper - tube.lower)[0, 0]):
        certificate = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, -np.inf], [limit, np.inf]))
        assert certificate.norm_margin == 0.0
    unlimited = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, -np.inf], [np.inf, np.inf]))
    assert unlimited.norm_margin == unlimited.noise_margin == np.inf


def test_without_limits_nothing_is_promised_and_no_certificate_written(predictor, plan, tmp_path):
    unlimited = rc.certify(predictor, *plan, state_limits=rc.Box([-np.inf, -np.inf], [np.inf, np.inf]))
    assert "there is no limit on the states, so this promises nothing" in unlimited.explain()
    with pytest.raises(rc.InputError, match="would promise nothing"):
        unlimited.save(tmp_path / "plan.json")
    assert not list(tmp_path.iterdir())


def test_wrong_limits_are_refused_by_name(predictor, plan):
    with pytest.raises(rc.InputError, match=r"limits of states must have 2 dimensions \(c_A, c_B\); got 1"):
        rc.certify(predictor, *plan, state_limits=rc.Box([0.0], [1.0]))
    with pytest.raises(rc.InputError, match="certify takes one plan"):
        rc.certify(predictor, plan[0][None], plan[1][None], state_limits=rc.Box([0.0, 0.0], [1.0, 1.0]))


def test_a_start_is_inside_only_where_all_that_it_may_be_is(predictor, plan):
    x0, inputs = plan

    def starts_inside(limits, noise=0.0):
        return rc.certify(predictor, x0, inputs, state_limits=limits, initial_state_noise=noise).starts_inside

    at_the_limit = rc.Box([0.5, 0.2], [x0[0], 3.0])
    assert starts_inside(at_the_limit)
    assert not starts_inside(at_the_limit, 0.02)
    assert starts_inside(rc.Box([0.5, 0.2], [x0[0] + 0.021, 3.0]), 0.02)
    assert not starts_inside(rc.Box([0.5, 0.2], [x0[0] + 0.019, 3.0]), 0.02)
    assert not starts_inside(rc.Box([0.5, 0.2], [x0[0] + 0.03, 3.0]), [0.04, 0.0])


def test_bounds_that_hold_with_a_probability_certify_and_refute_nothing(predictor, plan):
    gaussian = predictor.with_method(rc.GaussianProcessEnvelope, confidence=0.01)
    for limits in (rc.Box([-99.0, -99.0], [99.0, 99.0]), rc.Box([50.0, 50.0], [99.0, 99.0])):
        certificate = rc.certify(gaussian, *plan, state_limits=limits)
        assert certificate.verdict is Verdict.UNDECIDED
        assert "GaussianProcessEnvelope hold with a probability only and certify nothing" in certificate.explain()
        assert certificate.norm_margin == 0.0


def test_explanations_say_that_norm_bounds_were_estimated_and_by_which_factor(predictor, plan):
    bounds = [[rc.NormBound.of(e.norm_bound) for e in row] for row in predictor.envelopes]
    given = [[rc.NormBound(bound.value) for bound in row] for row in bounds]
    estimated = [[rc.NormBound(bound.value, "estimated", 3.0) for bound in row] for row in bounds]
    mixed = [given[0], *estimated[1:]]
    limits = rc.Box([-99.0, -99.0], [99.0, 99.0])
    for norm_bounds, text in (
        (given, ""),
        (estimated, "; norm bounds were estimated from the data, times 3: "),
        (mixed, "; 4 of 6 norm bounds were estimated from the data, times 3: "),
    ):
        certificate = rc.certify(
            rc.MultiStepPredictor(predictor.runs, predictor.kernels, norm_bounds), *plan, state_limits=limits
        )
        assert certificate.explain().startswith(certificate.finding() + text)
    twice = rc.MultiStepPredictor(predictor.runs, predictor.kernels, estimated).scaled(norm=2.0)
    assert "times 6" in twice.assumption_text


def test_a_certificate_always_says_how_uncertain_its_start_is(windows):
    """Windows begin with measured states, and so does a plan, unless it is told otherwise."""
    model = rc.MultiStepPredictor(windows[0], rc.SquaredExponential(2.0), 1e3, rounds=0)
    x0, inputs, limits = np.array([0.1, 0.2]), np.zeros((2, 1)), rc.Box([-9.0, -9.0], [9.0, 9.0])
    for given, wanted in ((None, [0.02, 0.02]), (0.0, [0.0, 0.0]), (0.5, [0.5, 0.5]), ([0.0, 0.1], [0.0, 0.1])):
        question = rc.Question(x0, inputs, limits, initial_state_noise=given)
        answers = [
            question.ask(model),
            rc.certify(model, x0, inputs, state_limits=limits, initial_state_noise=given),
            *rc.certify_plans(model, x0[None], inputs[None], limits, initial_state_noise=given),
        ]
        for answer in answers:
            assert answer.question.initial_state_noise.tolist() == wanted
            tube = model.boxes(x0, inputs, initial_state_noise=wanted)
            np.testing.assert_array_equal(answer.tube.upper, tube.upper)
            again = answer.question.ask(model.with_runs(windows[1]))
            assert again.question.initial_state_noise.tolist() == wanted
    assert question.initial_state_noise.tolist() == [0.0, 0.1]
    exact = rc.certify(model, x0, inputs, state_limits=rc.Box(x0, [9.0, 9.0]), initial_state_noise=0.0)
    assert exact.starts_inside
    assert not rc.certify(model, x0, inputs, state_limits=rc.Box(x0, [9.0, 9.0])).starts_inside


def test_certificates_say_how_uncertain_recorded_initial_states_are(windows):
    model = rc.MultiStepPredictor(windows[0], rc.SquaredExponential(2.0), 1e3)
    limits = rc.Box([-9.0, -9.0], [9.0, 9.0])
    content = rc.certify(model, [0.1, 0.2], np.zeros((2, 1)), state_limits=limits).to_file()
    assert content.data.initial_state_noise == [0.02, 0.02]
    assert content.question.initial_state_noise == [0.02, 0.02]


def test_assumptions_that_nobody_can_judge_add_nothing_to_a_margin(predictor, plan, monkeypatch):
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([-99.0, -99.0], [99.0, 99.0]))

    def lost(self, **factors):
        raise rc.SolverError("lost")

    monkeypatch.setattr(rc.MultiStepPredictor, "scaled", lost)
    assert 1.0 <= certificate.norm_margin < 1.01
    assert 1.0 <= certificate.noise_margin < 1.01


def test_questions_refuse_what_is_no_plan_or_no_limit():
    box = rc.Box([0.0, 0.0], [1.0, 1.0])
    asked = rc.Question([0.5, 0.5], [[1.0], [2.0]], ([0.0, 0.0], [1.0, 1.0]))  # lists and pairs are fine
    np.testing.assert_array_equal(asked.limits.states.upper, box.upper)
    for arguments, message in (
        (([0.5, 0.5], [1.0, 2.0], box), r"inputs must have shape \(n_steps, n_inputs\); got \(2,\)"),
        (([0.5, np.nan], [[1.0]], box), "x0 must be finite"),
        (([0.5, 0.5], [[np.inf]], box), "inputs must be finite"),
        (([0.5, 0.5], [[1.0]], 3.0), "states must be a Box, a Polytope, a pair"),
        (([0.5, 0.5], [[1.0]], {"a": 1.0}), r"states\['a'\] must be a lower and an upper end"),
        (([0.5, 0.5], [[1.0]], box, -0.1), "must be"),
    ):
        with pytest.raises(rc.InputError, match=message):
            rc.Question(*arguments)


def test_limits_by_name_are_those_by_place(predictor, plan):
    by_place = rc.certify(predictor, *plan, rc.Limits(rc.Box([1.0, -np.inf], [3.0, 2.0]), rc.Box([3.0], [25.0])))
    by_name = rc.certify(
        predictor, *plan, rc.Limits({"c_B": (-np.inf, 2.0), "c_A": (1.0, 3.0)}, inputs={"u": (3.0, 25.0)})
    )
    assert by_name.constraint_names == by_place.constraint_names
    np.testing.assert_array_equal(by_name.margins, by_place.margins)
    with pytest.raises(rc.InputError, match=r"name 'c_b' \(did you mean 'c_B'\?\), but there is only c_A, c_B"):
        rc.certify(predictor, *plan, {"c_b": (0.0, 1.0)})
    with pytest.raises(rc.InputError, match="give either limits or state_limits"):
        rc.certify(predictor, *plan, by_place.limits, input_limits=rc.Box([3.0], [25.0]))


def test_certificates_predictors_and_tubes_print_on_a_few_lines(predictor, plan):
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([0.5, 0.2], [4.0, 3.0]))
    for thing in (certificate, predictor, certificate.tube, predictor.boxes(plan[0][None], plan[1][None])):
        assert len(repr(thing)) < 400
        assert repr(thing).count("\n") <= 2
    assert "CERTIFIED" in repr(certificate)
    html = certificate._repr_html_()
    assert "<table>" in html
    assert "c_B &gt;= 0.2" in html
    assert "<script" not in html


def test_what_is_certain_is_never_enlarged_in_print(predictor, plan):
    tube = predictor.boxes(*plan)
    limit = float(tube.upper[:, 0].max()) + 0.0199996
    certificate = rc.certify(predictor, *plan, state_limits=rc.Box([0.0, 0.0], [limit, 9.0]))
    assert certificate.finding().endswith("the nearest by 0.0199")


def test_a_method_that_is_not_certain_certifies_and_refutes_nothing(predictor, plan):
    gaussian = predictor.with_method(rc.GaussianProcessEnvelope, confidence=0.01)
    for limits in (rc.Box([-9.0, -9.0], [9.0, 9.0]), rc.Box([8.0, 8.0], [9.0, 9.0])):
        certificate = rc.certify(gaussian, *plan, limits)
        assert certificate.verdict is Verdict.UNDECIDED
        assert "hold with a probability only and certify nothing" in certificate.explain()


def test_an_undecided_plan_names_what_its_box_is_due_to(plant, predictor, plan):
    """The parts are what a small change of each assumption changes."""
    tube = predictor.boxes(*plan)
    limits = rc.Box([0.0, 0.0], [9.0, float(tube.lower[2, 1] + tube.upper[2, 1]) / 2.0])
    certificate = rc.certify(predictor, *plan, state_limits=limits)
    shares = {cause.name: cause.share for cause in certificate.causes}
    assert set(shares) <= {"the noise bound", "the norm bound", "too few data near the plan"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert f"mainly due to {certificate.causes[0].name} (" in certificate.explain()
    n = int(certificate.margins.argmin()) // certificate.margins.shape[1]
    gained = [
        (other.upper - other.lower - tube.upper + tube.lower)[n, 1]
        for other in (predictor.scaled(**{by: 1.001}).boxes(*plan) for by in ("noise", "norm"))
    ]
    by_noise = shares.pop("the noise bound")
    assert gained[0] / sum(gained) == pytest.approx(by_noise, abs=0.02)
    decided = rc.certify(predictor, *plan, state_limits=rc.Box([0.0, 0.0], [9.0, 9.0]))
    assert decided.causes == ()
    assert decided.reason == ""


def test_a_plan_far_from_the_data_is_told_so(predictor, plan):
    x0, inputs = plan
    certificate = rc.certify(predictor, x0 + 3.0, inputs, state_limits=rc.Box([0.0, 0.0], [6.0, 6.0]))
    assert certificate.causes[0].name == "too few data near the plan"


def test_an_uncertain_start_acts_by_the_slopes_of_the_prior_and_by_the_rest(rng):
    """Of a plant that is nearly affine nearly all of it is the prior's; without a prior there are no such slopes."""
    x0, inputs = rng.uniform(-1.0, 1.0, (80, 2)), rng.uniform(-1.0, 1.0, (80, 1, 1))
    states = 0.6 * x0 - 0.4 * x0[:, ::-1] + 0.5 * inputs[:, 0]
    runs = rc.Trajectories(np.stack([x0, states + rng.uniform(-0.01, 0.01, (80, 2))], axis=1), inputs, 0.01)
    priors, limits = fitted_priors(runs), rc.Box([-9.0, -9.0], [9.0, 0.0])
    start, slopes = "the uncertain start of the plan", "the prior's slopes at the uncertain start"

    def shares(norm, given):
        predictor = rc.MultiStepPredictor(runs, rc.SquaredExponential(2.0), norm, priors=given)
        certificate = rc.certify(predictor, [0.0, 0.0], [[0.0]], limits, initial_state_noise=0.05)
        found = {cause.name: cause.share for cause in certificate.causes}
        assert sum(found.values()) == pytest.approx(1.0)
        return found, certificate.tube

    smooth, tube = shares(0.05, priors)
    assert smooth[slopes] > 5.0 * smooth.get(start, 0.0)
    by_noise = 0.01 * sum(np.abs(proof.witness.weights).sum() for proof in tube.witnesses[0, 1])
    by_slopes = 2.0 * 0.05 * np.abs(priors[0][1].slopes)[:2].sum()
    assert smooth[slopes] / smooth["the noise bound"] == pytest.approx(by_slopes / by_noise)
    rough, _ = shares(5.0, priors)
    assert 0.0 < rough[slopes] < smooth[slopes]
    assert rough[start] > smooth.get(start, 0.0)
    alone, _ = shares(5.0, None)
    assert slopes not in alone
    assert alone[start] > 0.0
