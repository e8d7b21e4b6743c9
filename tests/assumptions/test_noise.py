"""Proposed noise bounds: near the truth on smooth signals, never below half a step, and honest about what they are."""

import numpy as np
import pytest
from problems import REFERENCE

import rkhs_control as rc

RECORDINGS = REFERENCE.parent / "recordings"


def heated(n, rng, held=60):
    """Temperature of a block that follows its heater within some 40 samples, without noise."""
    heater = np.repeat(rng.uniform(20.0, 60.0, n // held + 1), held)[:n]
    temperature = [30.0]
    for u in heater:
        temperature.append(temperature[-1] + 0.025 * (20.0 + 0.5 * u - temperature[-1]))
    return np.array(temperature)[:, None], heater[:, None]


@pytest.mark.parametrize("noise", [0.02, 1.0])
@pytest.mark.parametrize("n", [100, 1000])
def test_uniform_noise_on_a_smooth_signal_is_found_within_a_factor_of_two(n, noise):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth, heater = heated(n, rng)
        measured = truth + rng.uniform(-noise, noise, truth.shape)
        (bound,) = rc.propose_noise_bound([(measured, heater)]).bounds
        assert 0.8 * noise <= bound <= 2.0 * noise


@pytest.mark.parametrize("step", [0.05, 0.2, 1.0])
def test_no_proposal_is_below_half_a_step(step):
    for seed in range(5):
        truth, heater = heated(600, np.random.default_rng(seed))
        proposal = rc.propose_noise_bound([(step * np.round(truth / step), heater)])
        assert proposal.quantisation[0] == pytest.approx(step, rel=1e-6)
        assert 0.5 * step <= proposal.bounds[0] <= 1.0 * step
        assert f"steps of {step:g}" in proposal.explain()


def test_inputs_that_change_bend_the_fit(rng):
    """Without knowing of them, the smoother takes every bend for noise."""
    truth, heater = heated(800, rng, held=30)
    measured = truth + rng.uniform(-0.01, 0.01, truth.shape)
    informed = rc.propose_noise_bound([(measured, heater)]).bounds[0]
    assert informed < 0.7 * rc.propose_noise_bound([(measured, np.zeros_like(heater))]).bounds[0]


def test_every_output_and_every_recording_counts(rng):
    """The second output is as noisy as its noisiest recording."""
    recordings = []
    for noise in (0.02, 0.3):
        truth, heater = heated(300, rng)
        both = np.hstack([truth, 5.0 - truth])
        recordings.append((both + rng.uniform(-1, 1, both.shape) * [0.02, noise], heater))
    proposal = rc.propose_noise_bound(recordings, state_names=["T", "S"])
    assert (np.array([0.02, 0.3]) * 0.8 <= proposal.bounds).all()
    assert (proposal.bounds <= np.array([0.02, 0.3]) * 2.0).all()
    assert proposal.residuals[1].where.recording == 1
    assert repr(proposal).startswith("NoiseProposal(T: 0.0")


def test_the_maximum_counts_and_outliers_are_named_beside_it(rng):
    truth, heater = heated(1000, rng)
    measured = truth + rng.uniform(-0.1, 0.1, truth.shape)
    measured[812] += 5.0
    proposal = rc.propose_noise_bound([(measured, heater)])
    found = proposal.residuals[0]
    assert found.far == ((0, 812),)
    assert found.where == (0, 812)
    assert 4.8 <= found.largest <= proposal.bounds[0] <= 5.4
    assert 0.08 <= found.rest <= 0.2
    assert found.typical < 1.0
    assert "One sample (recording 0, sample 812) lies far beyond the rest" in proposal.explain()


def test_the_explanation_says_what_it_is_and_what_it_cannot_see(rng):
    truth, heater = heated(300, rng)
    text = rc.propose_noise_bound([(truth + rng.normal(size=truth.shape), heater)], state_names=["T"]).explain()
    assert text.startswith("T: ")
    for said in ("starting points", "without any guarantee", "drift", "bias", "disturbance_bound"):
        assert said in text


def test_a_bias_and_a_slow_drift_are_not_seen(rng):
    """What the explanation says of a smoother is so."""
    truth, heater = heated(600, rng)
    noise = rng.uniform(-0.1, 0.1, truth.shape)
    drift = 3.0 + np.linspace(0.0, 5.0, len(truth))[:, None]
    plain, drifting = (rc.propose_noise_bound([(truth + noise + d, heater)]).bounds[0] for d in (0.0, drift))
    assert drifting == pytest.approx(plain, rel=0.1)


def test_a_constant_output_gets_no_proposal_and_the_others_theirs(rng):
    truth, heater = heated(300, rng)
    outputs = np.hstack([truth + rng.uniform(-0.1, 0.1, truth.shape), np.full_like(truth, 21.37)])
    proposal = rc.propose_noise_bound([(outputs, heater)], state_names=["T", "stuck"])
    assert proposal.bounds[0] > 0.08
    assert proposal.bounds[1] == 0.0
    assert "stuck: nothing is proposed" in proposal.explain()
    assert proposal.frontiers[1] is None


def test_rounding_errors_of_a_parabola_are_no_noise():
    t = 0.1 * np.arange(200.0)[:, None]
    assert rc.propose_noise_bound([(t**2 + np.pi * t + 7.0, np.zeros((199, 1)))]).bounds[0] == 0.0


def test_whole_runs_are_taken_as_recordings(rng):
    parts = [heated(20, rng) for _ in range(40)]
    states = np.stack([y for y, _ in parts])
    runs = rc.Trajectories(
        states + rng.uniform(-0.1, 0.1, states.shape), np.stack([u for _, u in parts]), 0.1, state_names=["T"]
    )
    proposal = rc.propose_noise_bound(runs)
    assert 0.08 <= proposal.bounds[0] <= 0.28
    assert proposal.state_names == ("T",)


def test_windows_are_refused_because_they_share_samples(rng):
    truth, heater = heated(100, rng)
    windows = rc.Trajectories.from_recordings([(truth, heater)], 5, noise_bound=0.1)
    with pytest.raises(rc.InputError, match="whole runs, but these are windows"):
        rc.propose_noise_bound(windows)


def test_recordings_that_are_too_short_are_refused():
    with pytest.raises(rc.InputError, match="too short to tell noise from signal: the longest has 4 samples"):
        rc.propose_noise_bound([(np.arange(4.0)[:, None], np.zeros((3, 1))), (np.zeros((3, 1)), np.zeros((2, 1)))])
    with pytest.raises(rc.InputError, match="at least one"):
        rc.propose_noise_bound([])


def test_a_missing_value_is_refused_with_its_row(rng):
    truth, heater = heated(100, rng)
    truth[17, 0] = np.nan
    with pytest.raises(rc.InputError, match=r"states of run 1 must be finite.*row 17, column 0 is nan"):
        rc.propose_noise_bound([heated(100, rng), (truth, heater)])


def test_recordings_with_other_columns_are_refused(rng):
    truth, heater = heated(100, rng)
    with pytest.raises(rc.InputError, match="run 1 must have 1 outputs and 1 inputs, as run 0 has; got 2 and 1"):
        rc.propose_noise_bound([(truth, heater), (np.hstack([truth, truth]), heater)])


def test_the_frontier_bends_at_the_noise(rng):
    """Just above the noise a norm of the signal's size is enough; well below it takes a hundred times as much."""
    truth, heater = heated(400, rng)
    proposal = rc.propose_noise_bound([(truth + rng.uniform(-0.1, 0.1, truth.shape), heater)])
    (frontier,) = proposal.frontiers
    assert frontier.noise_bounds[-1] <= 0.5 * proposal.bounds[0]
    above, below = frontier.least_norm_at(0.11), frontier.least_norm_at(0.085)
    assert frontier.least_norm_at(0.3) > 0.1 * above
    assert below > 100.0 * above


@pytest.mark.reference
@pytest.mark.parametrize(
    ("file", "outputs", "inputs", "step"),
    [
        ("tank.csv", ["level_lower", "level_upper"], ["pump"], 10 / 2048),
        ("tclab.csv", ["T_1", "T_2"], ["Q_1", "Q_2"], 0.048876),
    ],
)
def test_real_recordings_get_bounds_of_a_few_percent_of_their_range(file, outputs, inputs, step):
    if not (RECORDINGS / file).exists():
        pytest.skip("the recordings are not here")
    table = np.genfromtxt(RECORDINGS / file, delimiter=",", names=True)
    y, u = (np.stack([table[name] for name in names], axis=1) for names in (outputs, inputs))
    proposal = rc.propose_noise_bound([(y, u[:-1])], state_names=outputs)
    assert proposal.quantisation == pytest.approx(step, rel=1e-4)
    assert (proposal.bounds >= step / 2.0).all()
    assert (proposal.bounds <= 0.12 * np.ptp(y, axis=0)).all()
