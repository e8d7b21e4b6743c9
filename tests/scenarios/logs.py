"""A log of one output of a plant whose other state is hidden, and a scenario that reads it."""

import csv

import numpy as np

SCENARIO = """\
title = "A heated block"

[data]
file = "log.csv"
states = ["T"]
inputs = ["Q"]
noise_bound = 0.05
horizon = 3
output_lags = 2
input_lags = 1
every = 4

[predictor]
prior = "affine"
selection_share = 1.0
held_out = 0.25
held_out_part = "end"
compare_closed_form = false

[limits]
states = { T = [20.0, 60.0] }
inputs = { Q = [0.0, 100.0] }

[recordings]
"""


def simulated(n, rng, noise=0.05):
    """`n` samples of the surface, measured, and of the heater; the core is not in the log."""
    heater = np.repeat(rng.uniform(20.0, 60.0, n // 12 + 1), 12)[:n]
    core = surface = 30.0
    surfaces = [surface]
    for u in heater:
        core, surface = core + 0.08 * (20.0 + 0.5 * u - core), surface + 0.15 * (core - surface)
        surfaces.append(surface)
    outputs = np.array(surfaces)[:, None]
    return outputs + rng.uniform(-noise, noise, outputs.shape), heater[:, None]


def write_log(file, recordings, clock="time"):
    """One row per instant; several recordings have a column that tells them apart."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["trajectory", clock, "T", "Q"])
        for number, (outputs, inputs) in enumerate(recordings):
            for k, (y, u) in enumerate(zip(outputs.tolist(), [*inputs.tolist(), [0.0]], strict=True)):
                writer.writerow([number, k, *y, *u])
