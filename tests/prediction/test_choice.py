"""The default choice: what is not said is compared on held-out blocks, and what is said is kept."""

from dataclasses import replace

import numpy as np
import pytest

import rkhs_control as rc
from rkhs_control.assumptions import selection
from rkhs_control.assumptions.formulations import Formulation
from rkhs_control.assumptions.priors import is_flat
from rkhs_control.data.splits import blocks_apart
from rkhs_control.kernels.families import FAMILIES
from rkhs_control.prediction.choice import LONGER, _Measured, _rank_of_way, _ranked, _worth


def block(n, rng, noise, disturbance=0.0):
    """A heated block whose core is hidden: the surface as measured, and the heater."""
    heater = np.repeat(rng.uniform(20.0, 60.0, n // 6 + 1), 6)[:n]
    core = surface = 30.0
    true = [surface]
    for u in heater:
        core, surface = core + 0.2 * (20.0 + 0.5 * u - core), surface + 0.4 * (core - surface)
        surface += rng.uniform(-disturbance, disturbance)
        true.append(surface)
    return np.array(true)[:, None] + rng.uniform(-noise, noise, (n + 1, 1)), heater[:, None]


def windows(rng, n=200, noise=0.1, **more):
    shape = {"horizon": 2, "output_lags": 2, "input_lags": 1, "noise_bound": noise}
    return rc.Trajectories.from_recordings([block(n, rng, noise, **more)], **shape)


def test_folds_of_windows_share_no_sample_with_what_they_are_judged_by():
    origins = np.array([[r, t] for r in range(2) for t in range(40)])
    for held, kept in blocks_apart(origins, 5, 4):
        for r, t in origins[held]:
            mine = origins[kept][origins[kept][:, 0] == r]
            assert (np.abs(mine[:, 1] - t) > 5).all()
    by_recording = blocks_apart(np.array([[r, t] for r in range(6) for t in range(3)]), 5, 3)
    assert [len(held) for held, _ in by_recording] == [6, 6, 6]
    assert all(len(held) + len(kept) == 18 for held, kept in by_recording)


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_disturbed_recordings_are_taken_as_measured_and_fresh_ones_do_not_contradict(rng):
    """Noise alone explains nothing here: norms through such narrow intervals would be enormous."""
    runs = windows(rng, noise=0.02, disturbance=0.5)
    predictor = rc.MultiStepPredictor.select(runs)
    chosen = predictor.comparison.chosen
    assert {formulation.arguments for row in chosen for formulation in row} == {"measured"}
    assert predictor.runs.has_residual_bound
    assert (predictor.runs.disturbance_bound > 0.1).all()
    assert (predictor.initial_state_noise == 0.0).all()
    assert "what measured histories leave open" in predictor.assumption_text
    fresh = windows(rng, noise=0.02, disturbance=0.5)
    assert not predictor.contradictions(fresh).any()
    lines = str(predictor.comparison).splitlines()
    assert sum(line.count("*") for line in lines[1:-1]) == 2  # one output after one step and two
    assert len(lines) == 2 + len(predictor.comparison.trials)


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_what_is_said_is_kept(rng):
    runs = windows(rng, n=90)
    told = rc.choose_assumptions(runs, prior=None, arguments="uncertain", kernel="matern52")
    assert not told.comparison
    assert told.residual_bound is None
    assert all(prior is None for row in told.priors for prior in row)
    assert all(isinstance(kernel, rc.Matern52) for row in told.kernels for kernel in row)
    affine = rc.choose_assumptions(runs, prior="affine", arguments="measured")
    assert {trial.formulation.prior for trial in affine.comparison.trials} == {"affine"}
    assert {trial.formulation.arguments for trial in affine.comparison.trials} == {"measured"}
    assert affine.runs_like(runs).has_residual_bound
    given = rc.MultiStepPredictor.select(runs, [20.0])
    assert not given.comparison
    assert np.array_equal(given.initial_state_noise, runs.initial_state_noise)


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_windows_are_centred_so_that_their_boxes_are_the_same_in_celsius_and_kelvin(rng):
    celsius = windows(rng, n=120, noise=0.05, disturbance=0.1)
    histories = celsius.histories + np.array([273.15, 273.15, 0.0])
    kelvin = replace(celsius, states=celsius.states + 273.15, histories=histories)
    one, other = (rc.MultiStepPredictor.select(runs, kernel="matern52") for runs in (celsius, kelvin))
    assert {trial.formulation.prior for trial in one.comparison.trials} == {"constant", "affine"}
    assert str(one.comparison) == str(other.comparison)
    widths = [tube.upper - tube.lower for tube in (one.boxes_of(celsius), other.boxes_of(kelvin))]
    np.testing.assert_allclose(*widths, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
@pytest.mark.parametrize("kernel", FAMILIES)
def test_every_kernel_makes_boxes_in_every_way(kernel, rng):
    """Also where functions need not have slopes."""
    outputs, inputs = block(60, rng, 0.05)
    shape = {"horizon": 2, "output_lags": 2, "input_lags": 1, "noise_bound": 0.1}
    runs = rc.Trajectories.from_recordings([(outputs, inputs)], **shape)
    for arguments in ("uncertain", "measured"):
        predictor = rc.MultiStepPredictor.select(runs, kernel=kernel, arguments=arguments)
        assert all(np.isfinite(trial.half_widths).all() for trial in predictor.comparison.trials)
        assert {trial.formulation.arguments for trial in predictor.comparison.trials} == {arguments}
        assert np.isfinite(predictor.boxes_of(runs).upper).all()


def best(*measured):
    """Ranks formulations after one step, given as pairs with half-widths and contradictions of ten tests."""
    results = {(one, (1, 0)): _Measured(width, contradicted, 10, np.nan) for one, width, contradicted in measured}
    ways = sorted({one.arguments for one, _ in results}, key=lambda way: _rank_of_way(results, way, [(1, 0)]))
    return _ranked(results, ways[0], [(1, 0)])[0]


def test_an_estimated_residual_bound_must_make_boxes_clearly_narrower():
    uncertain, measured = Formulation(arguments="uncertain"), Formulation(arguments="measured")
    assert best((uncertain, 1.0, 0), (measured, 0.8, 0)) is uncertain
    assert best((uncertain, 1.0, 0), (measured, 0.5, 0)) is measured
    assert best((uncertain, 1.0, 0), (measured, 0.1, 1)) is uncertain
    assert best((uncertain, np.inf, 0), (measured, 3.0, 2)) is measured


def test_long_lengthscales_must_make_narrower_boxes_that_are_contradicted_no_more_often():
    for arguments, enough in (("measured", 0.8), ("uncertain", 0.6), ("known", 0.6)):
        scaled, long = Formulation(arguments=arguments), Formulation(arguments=arguments, longest=True)
        assert best((scaled, 1.0, 0), (long, enough + 0.1, 0)) is scaled
        assert best((scaled, 1.0, 0), (long, enough, 0)) is long
        assert best((scaled, 1.0, 0), (long, 0.1, 1)) is scaled
        assert best((scaled, np.inf, 0), (long, 5.0, 3)) is long


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_known_states_have_one_formulation_for_all_steps_and_outputs(rng):
    """The best of each would owe more to luck: with 100 runs of a cubic spring, true states were outside."""
    x, inputs = rng.uniform(-1.5, 1.5, (60, 2)), rng.uniform(-1.0, 1.0, (60, 3, 1))
    states = [x]
    for k in range(3):
        position, speed = states[-1].T
        states.append(
            np.stack([position + 0.2 * speed, 0.9 * speed - 0.1 * position**3 + 0.3 * inputs[:, k, 0]], axis=1)
        )
    runs = rc.Trajectories(np.stack(states, axis=1) + rng.uniform(-0.02, 0.02, (60, 4, 2)), inputs, 0.02)
    comparison = rc.choose_assumptions(runs).comparison
    assert len(comparison.trials) == 6
    assert len({one for row in comparison.chosen for one in row}) == 1
    assert comparison.summary.startswith("chosen of 6 formulations: ")


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_a_plant_that_saturates_gets_a_kernel_that_its_truth_does_not_leave(rng):
    """No smooth function saturates; the smoothest kernel left 2 in 100 true states outside."""

    def record(n):
        x, inputs = [rng.uniform(-1.0, 1.0, n)], rng.uniform(-1.0, 1.0, (n, 3, 1))
        for k in range(3):
            x.append(0.8 * x[-1] + 0.5 * np.clip(2.5 * inputs[:, k, 0], -1.0, 1.0))
        return np.stack(x, axis=1)[:, :, None], inputs

    states, inputs = record(100)
    measured = states + rng.uniform(-0.02, 0.02, states.shape) * (np.arange(4) > 0)[:, None]
    predictor = rc.MultiStepPredictor.select(rc.Trajectories(measured, inputs, 0.024))
    assert {one.kernel for row in predictor.comparison.chosen for one in row} == {"matern52"}
    truth, plans = record(200)
    assert predictor.boxes(truth[:, 0], plans).contains(truth[:, 1:]).all()


def test_every_step_and_output_gets_its_own_narrowest_uncontradicted_formulation(rng):
    outputs, inputs = block(200, rng, 0.1)
    bent = np.column_stack([outputs[:, 0], np.tanh((outputs[:, 0] - 38.0) / 4.0)])
    runs = rc.Trajectories.from_recordings([(bent, inputs)], 2, output_lags=2, input_lags=1, noise_bound=[0.1, 0.03])
    predictor = rc.MultiStepPredictor.select(runs, arguments="measured", selection_runs=90)
    trials, chosen = predictor.comparison.trials, predictor.comparison.chosen
    assert len({one for row in chosen for one in row}) > 1
    for s, i in np.ndindex(2, 2):
        ranks = {
            trial.formulation: (
                trial.contradicted[s, i] / trial.tested[s, i],
                trial.half_widths[s, i] * (LONGER if trial.formulation.longest else 1.0),
            )
            for trial in trials
            if np.isfinite(trial.half_widths[s, i])
        }
        assert chosen[s][i] == min(ranks, key=ranks.get)
        assert is_flat(predictor.priors[s][i]) == (chosen[s][i].prior == "constant")
        assert isinstance(predictor.kernels[s][i], rc.Matern52) == (chosen[s][i].kernel == "matern52")


def test_boxes_that_could_not_be_made_are_worth_less_than_contradicted_ones():
    failed, poor = _Measured(np.inf, 0, 0, 0.5), _Measured(0.3, 1, 100, 0.7)
    assert min((failed, poor), key=_worth) is poor


def test_progress_is_told_and_few_runs_choose(rng):
    seen = []
    runs = windows(rng, n=90)
    rc.choose_assumptions(
        runs,
        prior="affine",
        arguments="measured",
        kernel="squared_exponential",
        selection_runs=40,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1][0] == seen[-1][1]
    assert len(seen) >= 4


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_residual_bounds_grow_where_windows_that_had_no_part_in_the_choice_are_further_off(rng):
    """A jolt within the part of the recording that `selection_runs` skip would ask for a very steep function."""
    outputs, inputs = block(121, rng, 0.02, disturbance=0.2)
    said = {"prior": "affine", "arguments": "measured", "kernel": "squared_exponential", "selection_runs": 60}
    shape = {"horizon": 1, "output_lags": 1, "input_lags": 1, "noise_bound": 0.02}
    runs = rc.Trajectories.from_recordings([(outputs, inputs)], **shape)
    calm = rc.choose_assumptions(runs, **said)
    chosen = set(np.linspace(0, len(runs) - 1, 60).astype(np.int64).tolist())
    skipped = next(k for k in range(40, len(runs)) if not {k, k + 1} & chosen)
    jolted = outputs.copy()
    jolted[skipped + 2] += 3.0 * calm.residual_bound.max()  # the end of one window, and the history of the next
    grown = rc.choose_assumptions(rc.Trajectories.from_recordings([(jolted, inputs)], **shape), **said)
    assert (grown.residual_bound > 1.1 * calm.residual_bound).all()
    assert grown.norm_bounds[0][0].value < 10.0 * calm.norm_bounds[0][0].value


@pytest.mark.filterwarnings("ignore::rkhs_control.UnsettledNormWarning")
def test_a_formulation_that_does_not_fit_all_runs_gives_way_to_the_next_and_the_table_says_so(rng, monkeypatch):
    runs, tried = windows(rng, n=90), []

    def refusing(runs, n, i, attempt, generator):
        tried.append(attempt)
        if len(tried) == 1:
            raise rc.SolverError("so steep that rounding hides them")
        return choose(runs, n, i, attempt, generator)

    choose = selection._choose
    monkeypatch.setattr(selection, "_choose", refusing)
    comparison = rc.choose_assumptions(runs, arguments="measured", kernel="squared_exponential").comparison
    assert len(tried) == 3  # one more than there are pairs of steps and outputs
    (refused,) = comparison.refused
    assert comparison.chosen[0][0] != refused
    assert "x: fits the runs that were compared, but not all of them" in str(comparison)


def test_if_no_attempt_succeeds_the_last_error_is_told(rng, monkeypatch):
    def refusing(*args):
        raise rc.SolverError("so steep that rounding hides them")

    monkeypatch.setattr(selection, "_choose", refusing)
    with pytest.raises(rc.SolverError, match="so steep"):
        rc.choose_assumptions(windows(rng, n=90), kernel="squared_exponential")
