"""What a design asks of a predictor and a controller: plans over a region, and how they change with one setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field

from ...certificates.certificate import Certificate, certify_plans
from ...control.certainty_equivalent import CertaintyEquivalentOCP, QuadraticCost
from ...control.robust import RobustOCP, RobustPlan
from ...control.tightening import half_widths
from ...data.arrays import FloatArray, IndexArray
from ...data.sets import Box
from ...errors import ContradictoryDataError, FalsifiedNormBoundError, InputError
from ...parallel import Progress
from ...prediction.predictor import MultiStepPredictor
from ..material import Material, Source, Work
from ..schema import BoxLimits, Finite, Settings
from .closed_loop import CERTAINTY_EQUIVALENT, ROBUST
from .kind import finite
from .region import certified_share

Changed = TypeVar("Changed")


class MovedLimit(Settings):
    """One limit of a state, and where it is moved to."""

    state: str
    end: Literal["lower", "upper"]
    values: Annotated[list[Finite], Field(min_length=1)]

    @property
    def text(self) -> str:
        """The limit without its value."""
        return f"{self.state} {'>=' if self.end == 'lower' else '<='}"

    def moved(self, limits: BoxLimits, names: tuple[str, ...], value: float) -> BoxLimits:
        """The limits with this one at a value."""
        ends = {end: getattr(limits.states, end).copy() for end in ("lower", "upper")}
        ends[self.end][names.index(self.state)] = value
        return replace(limits, states=Box(**ends))

    def require_fits(self, source: Source, section: str) -> None:
        """Refuse an unknown state, and values beyond its opposite limit."""
        if self.state not in source.state_names:
            raise InputError(f"{section}.state must be one of {', '.join(source.state_names)}")
        for value in self.values:
            try:
                self.moved(source.limits, source.state_names, value)
            except InputError:
                raise InputError(f"{section}.values: {value:g} is beyond the opposite limit") from None


@dataclass(frozen=True)
class Effect:
    """What becomes of the certifiable region when one setting changes."""

    what: str
    value: float
    half_widths: tuple[float, ...]
    """Per state after the last step, averaged over the certainty-equivalent plans."""
    shares: dict[str, float]
    """Certifiable share of the initial states, by way of planning."""
    refutation: str = ""
    """Why there is no result: the data refute the assumption."""

    def row(self) -> tuple[str, ...]:
        """Of a table."""
        if self.refutation:
            return self.what, f"{self.value:g}", "refuted by the data"
        widths, shares = (f"{w:.4f}" for w in self.half_widths), (f"{s:.1%}" for s in self.shares.values())
        return self.what, f"{self.value:g}", *widths, *shares


@dataclass(frozen=True, eq=False)
class LimitTrial:
    """One initial state under one value of a limit, planned with and without regard to the boxes."""

    limit: float
    believing: Certificate
    plan: RobustPlan
    seconds: float
    """That robust planning took."""

    @property
    def certificates(self) -> dict[str, Certificate]:
        """By planning."""
        return {"certainty_equivalent": self.believing, "robust": self.plan.certificate}

    def summary(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            "limit": self.limit,
            **{
                name: {"verdict": found.verdict.name, "margin": found.margin, "inputs": found.question.inputs.tolist()}
                for name, found in self.certificates.items()
            },
            "price": finite(self.plan.price),
            "plans_tried": self.plan.iterations,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False)
class Designer:
    """A predictor and a controller, and what they can do from initial states."""

    material: Material
    predictor: MultiStepPredictor
    control: CertaintyEquivalentOCP
    noise: FloatArray
    """How far the true initial states may be from those that plans start from."""

    def certified_plans(
        self, control: CertaintyEquivalentOCP, x0: FloatArray, work: Work, progress: Progress | None = None
    ) -> list[Certificate]:
        """Plans that trust the model, certified afterwards."""
        plans = control.solve_many(x0, work.n_jobs, progress)
        return certify_plans(
            self.predictor,
            x0,
            np.array([plan.inputs for plan in plans]),
            limits=self.material.limits,
            initial_state_noise=self.noise,
            n_jobs=work.n_jobs,
        )

    def robust_plans(self, x0: FloatArray, work: Work, progress: Progress | None = None) -> list[Certificate]:
        """Plans with the boxes as constraints."""
        plans = self.robust(self.material.limits).solve_many(x0, work.n_jobs, progress)
        return [plan.certificate for plan in plans]

    def robust(self, limits: BoxLimits) -> RobustOCP:
        """The robust problem under these limits."""
        nominal = replace(self.control, limits=limits)
        return RobustOCP(self.predictor, nominal, limits, initial_state_noise=self.noise)

    def effect(self, what: str, value: float, x0: FloatArray, work: Work) -> Effect:
        """What can be certified from these initial states."""
        believing = self.certified_plans(self.control, x0, work)
        found = {CERTAINTY_EQUIVALENT: believing, ROBUST: self.robust_plans(x0, work)}
        shares = {name: certified_share(c.verdict for c in certificates) for name, certificates in found.items()}
        return Effect(what, value, tuple(half_widths(believing)[:, -1].mean(axis=0).tolist()), shares)

    def limit_trial(self, x0: Sequence[float], limits: BoxLimits, value: float) -> LimitTrial:
        """One initial state under one value of a limit, as set in `limits`."""
        problem = self.robust(limits)
        began = time.perf_counter()
        found = problem.solve(x0)
        seconds = time.perf_counter() - began
        question = replace(found.certificate.question, inputs=found.start.inputs)
        return LimitTrial(value, question.ask(self.predictor), found, seconds)

    def shorter(self, horizon: int) -> Designer:
        """As if only the first steps had been recorded."""
        cost = self.control.cost
        assert isinstance(cost, QuadraticCost)
        control = replace(self.control, models=self.control.models[:horizon], cost=replace(cost, horizon=horizon))
        return replace(self, predictor=self.predictor.with_runs(self.material.runs.shortened(horizon)), control=control)

    def with_fewer(self, rows: IndexArray) -> Designer:
        """As if only these runs had been recorded."""
        return replace(self, predictor=self.predictor.with_runs(self.material.runs.subset(np.sort(rows))))

    def scaled(self, **factors: float) -> Designer:
        """With other noise or norm bounds."""
        return replace(self, predictor=self.predictor.scaled(**factors))


@dataclass(frozen=True, eq=False)
class Change(Generic[Changed]):
    """One setting, the value to try, its present value, and how to change it."""

    what: str
    value: float
    present: float
    changed: Callable[[], Changed]


def effects_of(changes: Sequence[Change[Designer]], base: Designer, x0: FloatArray, work: Work) -> list[Effect]:
    """The effects of changing one setting at a time."""
    effects: list[Effect] = []
    if not changes:
        return effects
    with work.stage("what the region depends on") as progress:
        unchanged = base.effect("", 0.0, x0, work)
        for change in changes:
            try:
                is_present = change.value == change.present
                effect = unchanged if is_present else change.changed().effect(change.what, change.value, x0, work)
            except (FalsifiedNormBoundError, ContradictoryDataError) as error:
                effect = Effect(change.what, change.value, (), {}, str(error))
            effects.append(replace(effect, what=change.what, value=change.value))
            progress(len(effects), len(changes))
    return effects
