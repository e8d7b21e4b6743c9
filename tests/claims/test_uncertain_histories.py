"""Soundness on recordings: uncertain histories at their worst corners, priors and disturbances let no truth escape."""

import numpy as np
import pytest
from problems import LONG, long_kernel, random_radial, round_up

import rkhs_control as rc
from rkhs_control.assumptions.priors import AffinePrior

PROBLEMS_PER_CHUNK = 40


class Plant:
    """`f = m + g`: an affine function and one of known norm, of a history of two entries and one or two inputs."""

    def __init__(self, rng, n_steps):
        self.kernels, self.centres, self.weights, self.priors, self.norms = [], [], [], [], []
        for n in range(1, n_steps + 1):
            n_dims = 2 + n
            kernel = random_radial(rng, n_dims)
            centres = rng.uniform(-1, 1, (4, n_dims))
            weights = np.asarray(rng.normal(size=4) * 10.0 ** rng.uniform(-1, 1), LONG)
            self.kernels.append(kernel)
            self.centres.append(centres)
            self.weights.append(weights)
            self.norms.append(float(np.sqrt(np.maximum(weights @ long_kernel(kernel, centres, centres) @ weights, 0))))
            self.priors.append(AffinePrior(float(rng.normal()), tuple(rng.normal(size=n_dims).tolist())))

    def value(self, Z):
        n = Z.shape[1] - 2
        g = long_kernel(self.kernels[n - 1], Z, self.centres[n - 1]) @ self.weights[n - 1]
        prior = self.priors[n - 1]
        return LONG(prior.offset) + np.asarray(Z, LONG) @ np.asarray(prior.slopes, LONG) + g


@pytest.mark.skipif(np.finfo(LONG).eps > 1e-18, reason="needs extended precision for the ground truth")
def test_no_truth_escapes_from_uncertain_histories_priors_and_disturbances(chunk):
    """A norm bound that is tight, samples and queries at the corners of what is allowed."""
    for number in range(PROBLEMS_PER_CHUNK):
        rng = np.random.default_rng([77, chunk, number])
        n_steps, n_runs = 2, int(rng.integers(5, 25))
        plant = Plant(rng, n_steps)
        noise, disturbance = 10.0 ** rng.uniform(-4, -1, 2)
        start_noise = rng.choice([0.0, 1e-3, 0.05]) * np.array([1.0, rng.choice([0.0, 1.0])])
        true_starts = rng.uniform(-1, 1, (n_runs, 2))
        inputs = rng.uniform(-1, 1, (n_runs, n_steps, 1))
        states = np.empty((n_runs, n_steps + 1, 1))
        recorded = true_starts + rng.choice([-1.0, 1.0], (n_runs, 2)) * start_noise * (1.0 - 1e-12)
        states[:, 0, 0] = recorded[:, 0]
        for n in range(1, n_steps + 1):
            truth = plant.value(np.hstack([true_starts, inputs[:, :n, 0]]))
            wrong = rng.choice([-1.0, 1.0], n_runs) * noise + rng.choice([-1.0, 1.0], n_runs) * disturbance
            states[:, n, 0] = np.asarray(truth + wrong * (1.0 - 1e-9), float)
        runs = rc.Trajectories(
            states,
            inputs,
            noise_bound=noise,
            disturbance_bound=disturbance,
            histories=recorded,
            shape=(2, 0, 1),
            initial_state_noise=start_noise,
        )
        predictor = rc.MultiStepPredictor(
            runs,
            [[kernel] for kernel in plant.kernels],
            [[max(round_up(norm * (1.0 + 1e-12)), 1e-9)] for norm in plant.norms],
            priors=[[prior] for prior in plant.priors],
        )
        start, plan = rng.uniform(-1, 1, 2), rng.uniform(-1, 1, (n_steps, 1))
        tube = predictor.boxes(start, plan)
        for corner in np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * start_noise * (1.0 - 1e-12):
            for n in range(1, n_steps + 1):
                value = plant.value(np.hstack([start + corner, plan[:n, 0]])[None])[0]
                assert LONG(tube.lower[n - 1, 0]) <= value - LONG(disturbance) * LONG(1.0 - 1e-12)
                assert value + LONG(disturbance) * LONG(1.0 - 1e-12) <= LONG(tube.upper[n - 1, 0])
