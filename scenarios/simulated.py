"""Runs of a simulated plant: where they start, and what is recorded."""

from __future__ import annotations

import numpy as np

from ..data.arrays import FloatArray
from ..data.sets import Box
from ..data.trajectories import Trajectories
from ..errors import InputError
from ..models.plant import Plant
from .schema import PlantData, by_name


def uniform(box: Box, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Random points in a box."""
    return rng.uniform(box.lower, box.upper, (*shape, box.n_dims))


def measured(values: FloatArray, noise: float | FloatArray, rng: np.random.Generator) -> FloatArray:
    """Values with noise; where its bound is zero, no random numbers are drawn, and all other ones stay as they are."""
    return values + rng.uniform(-1.0, 1.0, values.shape) * noise if np.any(noise) else values


def spread(settings: PlantData, limits: Box) -> FloatArray:
    """Initial states inside the limits: on a grid, or evenly spread."""
    room = settings.inset * (limits.upper - limits.lower)
    lower, upper = limits.lower + room, limits.upper - room
    if isinstance(settings.runs, int):
        from scipy.stats.qmc import Halton

        shares: FloatArray = Halton(limits.n_dims, scramble=False).random(settings.runs)
        return lower + shares * (upper - lower)
    if len(settings.runs) != limits.n_dims:
        raise InputError(f"plant.runs must be a number or one per state, {limits.n_dims}; got {settings.runs}")
    axes = [np.linspace(*ends) for ends in zip(lower, upper, settings.runs, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, limits.n_dims)


def record(
    plant: Plant, settings: PlantData, starts: FloatArray, inputs: FloatArray, rng: np.random.Generator
) -> Trajectories:
    """Simulated runs, with noise on all states; on the initial ones, only if they are said to be measured."""
    states = plant.simulate(starts, inputs)
    noise = by_name(settings.noise, plant.state_names, "plant.noise")
    states[:, 1:] += rng.uniform(-1.0, 1.0, states[:, 1:].shape) * noise
    start_noise = by_name(settings.initial_state_noise, plant.state_names, "plant.initial_state_noise")
    states[:, 0] = measured(starts, start_noise, rng)
    return Trajectories(
        states,
        inputs,
        noise_bound=by_name(settings.noise_bound, plant.state_names, "plant.noise_bound"),
        initial_state_noise=start_noise,
        state_names=plant.state_names,
        input_names=plant.input_names,
        state_units=plant.state_units,
        input_units=plant.input_units,
        sampling_time=plant.sampling_time,
    )
