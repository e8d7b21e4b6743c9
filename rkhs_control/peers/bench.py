"""All methods on the reactor of the paper's Example 3: the same recordings, plans and starts for each, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..control.certainty_equivalent import QuadraticCost
from ..data.arrays import IndexArray
from ..data.sets import Box
from ..models.cstr import CSTR
from ..scenarios.material import AFFINE_PRIOR, OPTIMAL, Material, Source, Work, gather, plan_from
from ..scenarios.schema import BoxLimits, load_scenario
from . import hankel, multi_stage, ours
from .base import Bounds, Controller, require_extra
from .conformal import conformal_bounds
from .contest import HOLDING, NO_CHECK, Questions, Score, Track, drive, judge
from .gaussian import gaussian_bounds, learn
from .set_membership import lipschitz_bounds

SCENARIO = "cstr"
MARGIN = 0.05
"""Plans are judged by limits that lie this near to what the true plant reaches: half of them violate theirs."""
TIGHT_LIMIT = 2.2
"""Of `c_A` in the loops, mol/l. The controller wants more; held at the reference input, the plant settles at 2.14."""


@dataclass(frozen=True)
class Size:
    """How much is asked; by default 10,000 true states, since each plan has eight."""

    n_plans: int = 1250
    n_conic: int = 2
    """Plans for the conic programme, which takes a minute or more for each."""
    n_loops: int = 50
    n_steps: int = 40


def run(work: Work, size: Size = Size()) -> list[Score]:  # frozen
    """A row per method, ours first."""
    require_extra()
    scenario, folder = load_scenario(SCENARIO, {"predictor.compare_closed_form": False})
    material = gather(scenario, Source.of(scenario, folder), work)
    questions, track = _asked(material, size, work)
    scores = []
    for peer in _methods(material, work):
        with work.stage(peer.card.name) as progress:
            score = judge(peer, questions)
            progress(1, 2)
            scores.append(replace(score, n_violating=track.run(peer), n_loop_states=track.n_states))
            progress(2, 2)
    scores.insert(2, _conic(material, questions.first(size.n_conic), work))
    for controller in _controllers(material, work):
        with work.stage(controller.card.name) as progress:
            scores.append(drive(controller, track, work.seed))
            progress(1, 1)
    for card, trusts_all in ((NO_CHECK, True), (HOLDING, False)):
        with work.stage(card.name) as progress:
            found = track.run(None, trusts_all=trusts_all)
            scores.append(Score(**vars(card), n_violating=found, n_loop_states=track.n_states))
            progress(1, 1)
    return scores


def _asked(material: Material, size: Size, work: Work) -> tuple[Questions, Track]:
    """Plans of the controller from random initial states; loops of one that pushes against a limit."""
    control, plant, limits = material.control, material.plant, material.limits.states
    assert control is not None
    assert plant is not None
    x0 = work.rng.uniform(limits.lower, limits.upper, (size.n_plans, limits.n_dims))
    inputs = np.array([plan.inputs for plan in plan_from(control, x0, "plans to judge", work)])
    margins = work.rng.uniform(-MARGIN, MARGIN, size.n_plans)
    questions = Questions.close(x0, inputs, plant.simulate(x0, inputs)[:, 1:], limits.lower, margins)
    pushing = replace(control, cost=_pushing(material), limits=_tight(material))
    starts = work.rng.uniform(limits.lower, pushing.state_limits.upper, (size.n_loops, limits.n_dims))
    track = Track(plant, pushing, pushing.state_limits, _cost(material).input_reference, starts, size.n_steps)
    return questions, track


def _pushing(material: Material) -> QuadraticCost:
    """The cost of a controller that wants more of A than the limit allows, and pays next to nothing for the input."""
    cost = _cost(material)
    return replace(
        cost,
        state_reference=np.array([TIGHT_LIMIT + 0.2, cost.state_reference[1]]),
        state_weight=np.diag([1.0, 0.1]),
        terminal_weight=np.diag([1.0, 0.1]),
        input_weight=np.array([[1e-3]]),
    )


def _tight(material: Material) -> BoxLimits:
    states = material.limits.states
    return replace(material.limits, states=Box(states.lower, [TIGHT_LIMIT, states.upper[1]]))


def _methods(material: Material, work: Work) -> Iterator[Bounds]:
    """Those that judge plans, but for the conic programme."""
    yield ours.PredictorBounds(ours.OPTIMAL, material.predictors[OPTIMAL])
    yield ours.PredictorBounds(ours.AFFINE, material.predictors[AFFINE_PRIOR])
    runs = material.runs.subset(_shuffled(len(material.runs), work.seed))
    with work.stage("fitting Gaussian processes") as progress:
        learned = learn(runs, work.n_jobs, progress)
    yield from gaussian_bounds(runs, learned)
    yield from conformal_bounds(runs, learned)
    yield lipschitz_bounds(runs)
    assert isinstance(material.plant, CSTR)
    yield multi_stage.ScenarioBounds(multi_stage.BOXES_CARD, material.plant)


def _controllers(material: Material, work: Work) -> Iterator[Controller]:
    """Those that decide themselves."""
    assert isinstance(material.plant, CSTR)
    plant, cost, limits = material.plant, _pushing(material), _tight(material)
    yield multi_stage.MultiStageController(multi_stage.CARD, plant, cost, limits, work.n_jobs)
    scenario, _ = load_scenario(SCENARIO)
    assert scenario.plant is not None
    assert isinstance(scenario.plant.noise, float)
    for name, weights in hankel.WEIGHTS.items():
        yield hankel.HankelController(
            hankel.card(name), plant, cost, limits, scenario.plant.noise, weights, work.n_jobs
        )


def _conic(material: Material, questions: Questions, work: Work) -> Score:
    """On a few plans only, and in no loop: the verdicts are ours, a few thousand times later."""
    with work.stage(ours.CONIC.name) as progress:
        score = judge(ours.conic(material.predictors[OPTIMAL]), questions)
        progress(1, 1)
    return score


def _cost(material: Material) -> QuadraticCost:
    assert material.control is not None
    cost = material.control.cost
    assert isinstance(cost, QuadraticCost)
    return cost


def _shuffled(n: int, seed: int) -> IndexArray:
    """A random order of the runs, which are on a grid: halves and quarters of them are then alike."""
    return np.random.default_rng(seed).permutation(n)
