"""A safety filter: any policy, with its inputs replaced where they would leave an invariant region."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..certificates.region import InvariantRegion
from ..data.arrays import FloatArray, as_floats
from ..errors import InputError
from .certified_loop import CertifiedMPC
from .lockstep import Asking, outcomes
from .loop_log import Decision, LoggedStep
from .planners import planner_of
from .robust import RobustOCP


@dataclass(frozen=True, eq=False, init=False)
class SafetyFilter:
    """Applies a policy's input where it is certified to stay in a region for ever, and otherwise one that is.

    Called with a measured state, it asks the policy, checks where its input leads, and returns the input to apply. From
    a state in the region, every input that it returns is certified, whatever the policy wants, as long as the
    assumptions of the predictor hold and measurements are off by at most the region's `initial_state_noise`.

    Parameters
    ----------
    policy : from a state `(n_states,)` to an input `(n_inputs,)` or a plan `(n_steps, n_inputs)`; or a controller
        None if the wanted input is passed with every call, as by `wrap`.
    region : InvariantRegion
    safe_input : `(n_inputs,)`, applied where nothing is certified: outside the region, or when an assumption is refuted
        By default the middle of the input limits.
    repair, repair_seconds : the robust problem that repairs wanted inputs, if any, and its time limit
    """

    region: InvariantRegion
    loop: CertifiedMPC
    """The certified loop that does the work."""
    _wanted: list[npt.ArrayLike] = field(repr=False)

    def __init__(
        self,
        policy: Any,
        region: InvariantRegion,
        *,
        safe_input: npt.ArrayLike | None = None,
        repair: RobustOCP | None = None,
        repair_seconds: float = math.inf,
    ) -> None:
        told: list[npt.ArrayLike] = []
        planner = None if policy is None else planner_of(policy)

        def wanted(state: FloatArray) -> FloatArray:
            if not told and planner is None:
                raise InputError("no input is wanted: give a policy, or inputs with every call")
            given = as_floats(told[0] if told else planner(state), "inputs")  # type: ignore[misc]
            return given if given.ndim == 2 else given.reshape(1, -1)

        box = region.limits.input_box
        if safe_input is None and not np.isfinite([box.lower, box.upper]).all():
            raise InputError("the inputs have no limits, so they have no middle: give a safe_input")
        safe = (box.lower + box.upper) / 2.0 if safe_input is None else safe_input
        loop = CertifiedMPC(
            wanted, region.predictor, region.limits, safe, repair=repair, region=region, repair_seconds=repair_seconds
        )
        for name, value in (("region", region), ("loop", loop), ("_wanted", told)):
            object.__setattr__(self, name, value)

    def __call__(self, state: npt.ArrayLike, wanted: npt.ArrayLike | None = None) -> FloatArray:
        """The input to apply at a measured state, `(n_inputs,)`; `wanted` replaces the policy's output."""
        (applied,) = outcomes([self.deciding(state, wanted)])
        return applied

    def deciding(self, state: npt.ArrayLike, wanted: npt.ArrayLike | None = None) -> Asking[FloatArray]:
        """The same as a generator: the caller certifies the plans; see `make_steps`."""
        self._wanted[:] = [] if wanted is None else [wanted]
        return self.loop.deciding(state)

    @property
    def log(self) -> list[LoggedStep]:
        """What was done at every step, and why."""
        return self.loop.log

    @property
    def decisions(self) -> Counter[Decision]:
        """How often each kind of input was applied."""
        return Counter(step.decision for step in self.log)

    def wrap(self, environment: Any) -> FilteredEnvironment:
        """Wrap a Gymnasium-style environment whose observations are states, so that every action is filtered."""
        return FilteredEnvironment(environment, self)


@dataclass(eq=False)
class FilteredEnvironment:
    """`reset` and `step` as in Gymnasium; other attributes are those of the environment.

    An action is replaced where it does not lead to a state from which the limits can be kept for ever. The applied
    input is in `info["applied"]`, and the reason in `info["decision"]`.
    """

    environment: Any
    filter: SafetyFilter
    _state: Any = None

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """Begin again."""
        self._state, info = self.environment.reset(**settings)
        self.filter.loop.forget()
        return self._state, info

    def step(self, action: npt.ArrayLike) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply an action, or its replacement."""
        applied = self.filter(self._state, action)
        self._state, reward, terminated, truncated, info = self.environment.step(applied)
        told = {**info, "applied": applied, "decision": self.filter.log[-1].decision}
        return self._state, reward, terminated, truncated, told

    def __getattr__(self, name: str) -> Any:
        if "environment" not in vars(self):  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.environment, name)
