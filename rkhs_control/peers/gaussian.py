"""Gaussian processes of scikit-learn, with the bands that people draw around their means.

One process per step and state, from the initial state and the inputs up to that step, as for our predictors. Inputs are
standardised; a squared-exponential kernel with a lengthscale per dimension and the noise are fitted by the likelihood.
That takes most of the time, so that half of the runs fit and all of them condition.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.trajectories import Trajectories
from ..parallel import Progress, collect, in_parallel
from .base import Bounds, Card, from_extra

FITTING_SHARE = 0.5
"""Of the runs that fit kernels and noise by the likelihood."""


@dataclass(frozen=True)
class Learned:
    """What the likelihood chose for one step and state, in units of standardised arguments and outputs."""

    signal: Any
    """A kernel of scikit-learn without the noise."""
    noise: float
    """The variance of the noise."""
    centre: FloatArray
    scale: FloatArray

    def regressor(self, Z: FloatArray, y: FloatArray) -> Any:
        """A process with these, conditioned on some data; its deviations are those of the function, without noise."""
        process = from_extra("sklearn.gaussian_process").GaussianProcessRegressor
        pipeline = from_extra("sklearn.pipeline").make_pipeline
        scaling = from_extra("sklearn.preprocessing").FunctionTransformer(self._standardised)
        gp = process(self.signal, alpha=self.noise, optimizer=None, normalize_y=True)
        return pipeline(scaling, gp).fit(Z, y)

    def _standardised(self, Z: FloatArray) -> FloatArray:
        return (Z - self.centre) / self.scale


def learn(runs: Trajectories, n_jobs: int | None = None, progress: Progress | None = None) -> list[list[Learned]]:
    """Kernels and noises by step and state, from the first half of some runs, which should be in random order."""
    n_fit = int(FITTING_SHARE * len(runs))
    steps, states = range(1, runs.horizon + 1), range(runs.n_states)
    tasks = [(runs.arguments(n)[:n_fit], runs.states[:n_fit, n, i]) for n in steps for i in states]
    found = collect(in_parallel(_learned, tasks, n_jobs), len(tasks), progress)
    return [found[first : first + runs.n_states] for first in range(0, len(found), runs.n_states)]


def _learned(Z: FloatArray, y: FloatArray) -> Learned:
    kernels = from_extra("sklearn.gaussian_process.kernels")
    process = from_extra("sklearn.gaussian_process").GaussianProcessRegressor
    centre, scale = Z.mean(axis=0), Z.std(axis=0)
    signal = kernels.ConstantKernel(10.0, (1e-3, 1e6)) * kernels.RBF(np.full(Z.shape[1], 3.0), (1e-1, 1e4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lengthscale at its upper bound is a dimension that does not matter
        gp = process(signal + kernels.WhiteKernel(1e-2, (1e-8, 1.0)), normalize_y=True).fit((Z - centre) / scale, y)
    return Learned(gp.kernel_.k1, float(gp.kernel_.k2.noise_level), centre, scale)


@dataclass(frozen=True, eq=False)
class GaussianBounds(Bounds):
    """Mean and so many standard deviations: of the function, or of what would be measured."""

    processes: list[list[Any]]
    n_deviations: float
    of_measurements: bool = False

    def boxes(self, x0: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        means, deviations = np.empty((2, len(x0), len(self.processes), len(self.processes[0])))
        for n, row in enumerate(self.processes):
            Z = stacked(x0, inputs[:, : n + 1])
            for i, pipeline in enumerate(row):
                means[:, n, i], deviations[:, n, i] = pipeline.predict(Z, return_std=True)
                if self.of_measurements:
                    gp = pipeline[-1]
                    noise = gp.alpha * float(gp._y_train_std) ** 2
                    deviations[:, n, i] = np.sqrt(deviations[:, n, i] ** 2 + noise)
        reach = self.n_deviations * deviations
        return means - reach, means + reach


def gaussian_bounds(runs: Trajectories, learned: list[list[Learned]]) -> list[GaussianBounds]:
    """Two and three standard deviations of the function, and two of a measurement, as `return_std` has it."""
    processes = [
        [one.regressor(runs.arguments(n), runs.states[:, n, i]) for i, one in enumerate(row)]
        for n, row in enumerate(learned, start=1)
    ]
    return [
        GaussianBounds(_card("2 sigma", "95.4 %"), processes, 2.0),
        GaussianBounds(_card("3 sigma", "99.7 %"), processes, 3.0),
        GaussianBounds(_card("2 sigma + noise", "95.4 % (of measurements)"), processes, 2.0, of_measurements=True),
    ]


def _card(band: str, share: str) -> Card:
    return Card(
        f"Gaussian process, {band}",
        "Gaussian noise; truth drawn from the prior, with the fitted kernel",
        f"each interval holds with {share}",
        "no norm or noise bound to state; averages noise out; kernels by likelihood",
    )
