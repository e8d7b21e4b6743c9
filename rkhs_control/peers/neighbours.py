"""The settings of KPC and of data-driven reachability, as published: their bounds beside ours on equal data."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.arrays import FloatArray
from ..data.fields import stacked
from ..data.observations import Observations
from ..data.trajectories import Trajectories
from ..envelopes.optimal import OptimalEnvelope
from ..errors import UnsettledNormWarning
from ..models.cstr import CSTR
from ..models.exothermic_reactor import ExothermicReactor
from ..prediction.predictor import MultiStepPredictor
from ..scenarios.material import Work
from . import kpc, reachability
from .reachability import LipschitzReachability

KPC, REACHABILITY = "KPC", "data-driven reachability"
PRINTED = {
    KPC: "no number for widths or coverage found in its repository; its script draws boxes and prints none",
    REACHABILITY: "no number for widths found in its repository; its script draws sets and prints a computing time",
}
GROWTH = 2.0
"""Assumed by ours: a disturbance of one step is at most so many times as large in any state up to four steps later."""

SPREADS = (2.0, 4.0, 8.0, 16.0)
"""Candidates for the lengthscales of ours, in standard deviations of each coordinate."""

Interval = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Neighbour:
    """One method in one setting."""

    setting: str
    method: str
    n_samples: str
    coverage: float
    """Share of the intervals, one per state and step, that hold the true value."""
    half_widths: tuple[tuple[float, ...], ...]
    """By step and state, the mean over all plans."""
    milliseconds: float
    """Per plan, of many at once."""
    printed: str
    """What their paper or script prints of this."""


def run(work: Work, n_plans: int = 50) -> list[Neighbour]:
    """Both settings."""
    rng = np.random.default_rng(work.seed)
    with work.stage("the setting of KPC") as progress:
        found = _kpc(rng, n_plans, work)
        progress(1, 1)
    with work.stage("the setting of data-driven reachability") as progress:
        found += _reachability(rng, n_plans, work)
        progress(1, 1)
    return found


def _kpc(rng: np.random.Generator, n_plans: int, work: Work) -> list[Neighbour]:
    """Random starts and inputs, three steps; a data set of its own per step.

    Ours once with their kernels and norm bounds on their data, and once with its own from as few runs as their first
    step has, all of three steps.
    """
    plant, steps, states = CSTR(), range(kpc.HORIZON), range(2)

    def drawn(n: int, n_steps: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        x0 = rng.uniform(plant.state_limits.lower, plant.state_limits.upper, (n, 2))
        inputs = rng.uniform(*kpc.INPUTS, (n, n_steps, 1))
        return x0, inputs, plant.simulate(x0, inputs)[:, 1:]

    data = []
    for n, count in enumerate(kpc.N_SAMPLES):
        x0, inputs, after = drawn(count, n + 1)
        measured = after[:, -1] + rng.uniform(-kpc.NOISE, kpc.NOISE, (count, 2))
        data.append([Observations(stacked(x0, inputs), measured[:, i], kpc.NOISE) for i in states])
    theirs, scripted = (
        [[kpc.KernelRidgeBound(data[n][i], kpc.LENGTHSCALES[n][i], uses) for i in states] for n in steps]
        for uses in (False, True)
    )
    optimal = [[OptimalEnvelope(one.data, one.kernel, one.norm_bound) for one in row] for row in theirs]

    def by_bounds(Z: FloatArray, n: int, i: int) -> tuple[FloatArray, FloatArray]:
        band = optimal[n][i].bounds(Z)
        return band.lower, band.upper

    x0, inputs, after = drawn(min(kpc.N_SAMPLES), kpc.HORIZON)
    recorded = np.concatenate([x0[:, None], after + rng.uniform(-kpc.NOISE, kpc.NOISE, after.shape)], axis=1)
    own = _selected(Trajectories(recorded, inputs, kpc.NOISE), work)

    def by_tubes(x: FloatArray, plans: FloatArray) -> tuple[FloatArray, FloatArray]:
        tube = own.boxes(x, plans)
        return tube.lower, tube.upper

    methods: dict[str, Callable[[FloatArray, int, int], tuple[FloatArray, FloatArray]]] = {
        "ours, their kernels and norm bounds": by_bounds,
        "KPC, as in the paper": lambda Z, n, i: theirs[n][i].interval(Z),
        "KPC, as in the script": lambda Z, n, i: scripted[n][i].interval(Z),
    }
    x0, inputs, truth = drawn(n_plans, kpc.HORIZON)
    samples, fewer = "/".join(map(str, kpc.N_SAMPLES)), f"{min(kpc.N_SAMPLES)}"
    found = [_measured(KPC, "ours, own kernels and norm bounds", fewer, by_tubes, x0, inputs, truth)]
    for name, ends in methods.items():

        def boxes(x: FloatArray, plans: FloatArray, ends: object = ends) -> tuple[FloatArray, FloatArray]:
            pairs = [[ends(stacked(x, plans[:, : n + 1]), n, i) for i in states] for n in steps]  # type: ignore[operator]
            both = np.array(pairs)
            return np.moveaxis(both[:, :, 0], -1, 0), np.moveaxis(both[:, :, 1], -1, 0)

        found.append(_measured(KPC, name, samples, boxes, x0, inputs, truth))
    return found


def _reachability(rng: np.random.Generator, n_plans: int, work: Work) -> list[Neighbour]:
    """Recordings of 20 steps from a small set, disturbed at every step; plans of five steps from that set."""
    plant = ExothermicReactor()

    def disturbed(n: int, n_steps: int) -> tuple[FloatArray, FloatArray]:
        box, inputs = reachability.STARTS, reachability.INPUTS
        states = [rng.uniform(box.lower, box.upper, (n, 2))]
        u = rng.uniform(inputs.lower, inputs.upper, (n, n_steps, 2))
        for k in range(n_steps):
            shock = reachability.DISTURBANCE * rng.uniform(-1.0, 1.0, (n, 1))  # the same in both states, as there
            states.append(plant.simulate(states[-1], u[:, k : k + 1])[:, -1] + shock)
        return np.stack(states, axis=1), u

    states, inputs = disturbed(reachability.N_RECORDINGS, reachability.N_STEPS)
    recordings = list(zip(states, inputs, strict=True))
    horizon = reachability.HORIZON
    effects = reachability.DISTURBANCE * (1.0 + GROWTH * np.arange(horizon))
    runs = Trajectories.from_recordings(
        recordings,
        horizon,
        noise_bound=0.0,
        disturbance_bound=np.repeat(effects[:, None], 2, axis=1),
        initial_state_noise=0.0,
    )
    predictor = _selected(runs, work, prior="affine")
    theirs = LipschitzReachability.of(recordings)

    def boxes(x: FloatArray, plans: FloatArray) -> tuple[FloatArray, FloatArray]:
        tube = predictor.boxes(x, plans)
        return tube.lower, tube.upper

    after, plans = disturbed(n_plans, horizon)
    samples = f"{reachability.N_RECORDINGS * reachability.N_STEPS}"
    return [
        _measured(REACHABILITY, name, samples, ends, after[:, 0], plans, after[:, 1:])
        for name, ends in (("ours, affine prior", boxes), ("their Lipschitz sets", theirs.boxes))
    ]


def _selected(runs: Trajectories, work: Work, **settings: Any) -> MultiStepPredictor:
    """Kernels by cross-validation, as long as some spreads of each coordinate; norm bounds estimated, times 1.2."""
    spread = runs.arguments(runs.horizon).std(axis=0)
    candidates = [tuple(factor * spread) for factor in SPREADS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsettledNormWarning)
        return MultiStepPredictor.select(
            runs, candidates, n_jobs=work.n_jobs, progress=lambda done, total: None, **settings
        )


def _measured(
    setting: str,
    method: str,
    n_samples: str,
    boxes: Interval,
    x0: FloatArray,
    inputs: FloatArray,
    truth: FloatArray,
) -> Neighbour:
    boxes(x0[:2], inputs[:2])  # compiles, factorises, and whatever else is done once
    began = time.process_time()
    lower, upper = boxes(x0, inputs)
    seconds = time.process_time() - began
    return Neighbour(
        setting,
        method,
        n_samples,
        coverage=float(np.mean((lower <= truth) & (truth <= upper))),
        half_widths=tuple(map(tuple, ((upper - lower) / 2.0).mean(axis=0).tolist())),
        milliseconds=1e3 * seconds / len(x0),
        printed=PRINTED[setting],
    )
