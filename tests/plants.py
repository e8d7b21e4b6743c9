"""Plants that several tests share: how they are driven and recorded, and the costs of their controllers."""

import numpy as np

import rkhs_control as rc
from rkhs_control.models.plant import Plant

LENGTHSCALES = [(3.0, 3.0, 30.0, 30.0, 30.0), (6.0, 6.0, 60.0, 60.0, 60.0)]


ROBUST_START = np.array([2.7, 0.6])


def feedback_inputs(plant, x0, n_steps):
    """Inputs like those of a controller: smooth in the initial state, within the limits."""
    gain = (plant.reference_input - 4.0 * (x0[:, :1] - plant.reference[0])) * np.ones((1, n_steps))
    return plant.input_limits.clip(gain[..., None] + 2.0 * np.cos(np.arange(n_steps))[None, :, None])


def recorded(plant, rng, n_runs=150, n_steps=3, noise=0.05, initial_noise=0.0):
    x0 = rng.uniform([1.2, 0.6], [2.8, 1.8], (n_runs, 2))
    inputs = feedback_inputs(plant, x0, n_steps)
    states = plant.simulate(x0, inputs)
    states[:, 1:] += rng.uniform(-noise, noise, states[:, 1:].shape)
    states[:, 0] += rng.uniform(-initial_noise, initial_noise, x0.shape)
    return rc.Trajectories(states, inputs, 1.2 * noise, plant.state_names, plant.input_names)


def quadratic(plant, horizon=3):
    """The weights of the paper's reactor."""
    return rc.QuadraticCost(
        state_weight=np.diag([0.2, 1.0]),
        input_weight=np.array([[0.1]]),
        terminal_weight=np.array([[14.46, 13.56], [13.56, 62.22]]),
        state_reference=np.array(plant.reference),
        input_reference=np.array([plant.reference_input]),
        horizon=horizon,
    )


def raised(predictor, nominal, share):
    """Limits with the lower one of c_B above what the certainty-equivalent plan can be certified for."""
    tube = predictor.boxes(ROBUST_START, nominal.solve(ROBUST_START).inputs)
    end = float(tube.lower[0, 1] + share * (tube.upper[0, 1] - tube.lower[0, 1]))
    return rc.Box([1.0, end], [3.0, 2.0])


class Pendulum(Plant):
    """A damped pendulum under a torque."""

    state_names, input_names = ("angle", "rate"), ("torque",)
    sampling_time = 0.1
    state_limits = rc.Box([-2.0, -5.0], [2.0, 5.0])
    input_limits = rc.Box([-1.0], [1.0])

    def right_hand_side(self, x, u, xp):
        return [x[1], -9.81 * xp.sin(x[0]) - 0.2 * x[1] + 3.0 * u[0]]


def swings(rng, n_steps, noise):
    """One long run of a pendulum: the true states, the measured ones, the torques."""
    torques = np.repeat(rng.uniform(-1.0, 1.0, (n_steps // 3 + 1, 1)), 3, axis=0)[:n_steps]
    states = Pendulum().simulate(rng.uniform(-0.3, 0.3, 2), torques)
    return states, states + rng.uniform(-noise, noise, states.shape), torques


def lagged(rng, n_steps, noise):
    """One run of a plant whose future depends on its last three outputs: these as measured, and the inputs."""
    inputs, outputs = rng.uniform(-1.0, 1.0, (n_steps, 1)), [0.1, 0.2, 0.0]
    for held in inputs[2:, 0]:
        outputs.append(0.6 * outputs[-1] + 0.2 * np.sin(outputs[-2]) - 0.1 * outputs[-3] + 0.4 * held)
    truth = np.array(outputs)[:, None]
    return truth + rng.uniform(-noise, noise, truth.shape), inputs


def lagged_windows(n_steps=45, noise=0.01, **options):
    """Windows of two steps of that plant, with three outputs for a history."""
    recording = lagged(np.random.default_rng(1), n_steps, noise)
    names = {"state_names": ["y"], "input_names": ["u"]}
    return rc.Trajectories.from_recordings(
        [recording], 2, **({"noise_bound": noise, "output_lags": 3} | names | options)
    )
