"""What a plant is: named states and inputs, limits, a sampling time, and an accurate simulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..data.arrays import FloatArray, as_floats, require_finite
from ..data.sets import Box
from ..errors import InputError, SolverError

ACCURACY = 1e-11
"""Error allowed to the integrator per sampling interval, relative and absolute; 1e-9 is promised."""


@dataclass(frozen=True)
class Plant(ABC):
    """An ordinary differential equation `dx/dt = right_hand_side(x, u)` with inputs held between samples."""

    name: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]]
    state_units: ClassVar[tuple[str, ...]]
    input_names: ClassVar[tuple[str, ...]]
    input_units: ClassVar[tuple[str, ...]]
    sampling_time: ClassVar[float]
    """In seconds."""
    state_limits: ClassVar[Box]
    input_limits: ClassVar[Box]

    @abstractmethod
    def right_hand_side(self, x: Any, u: Any, xp: Any) -> list[Any]:
        """`dx/dt`, one entry per state; `x[i]`, `u[j]` are numbers, arrays or CasADi symbols, `xp` numpy or casadi."""

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.state_names)

    @property
    def n_inputs(self) -> int:
        """The number of inputs."""
        return len(self.input_names)

    def casadi_right_hand_side(self) -> Any:
        """`dx/dt` as a CasADi function of a state and an input column."""
        import casadi

        x, u = casadi.SX.sym("x", self.n_states), casadi.SX.sym("u", self.n_inputs)
        return casadi.Function(self.name, [x, u], [casadi.vertcat(*self.right_hand_side(x, u, casadi))])

    def simulate(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> FloatArray:
        """States at the sampling instants, `(M, N + 1, n_states)`, from `x0` `(M, n_states)` and `(M, N, n_inputs)`.

        One initial state and one input sequence, without the leading axis, give one trajectory without it.
        """
        start, sequence = self._checked(x0, inputs)
        n_runs, n_steps = sequence.shape[:2]
        states = np.empty((n_runs, n_steps + 1, self.n_states))
        states[:, 0] = start
        for k in range(n_steps):
            states[:, k + 1] = self._sample(states[:, k], sequence[:, k])
        return states if np.ndim(x0) == 2 else states[0]

    def _sample(self, x: FloatArray, u: FloatArray) -> FloatArray:
        """Advance all runs by one sampling interval, as one stacked system."""
        from scipy.integrate import solve_ivp

        held = u.T

        def stacked(_: float, z: FloatArray) -> FloatArray:
            return np.concatenate(self.right_hand_side(z.reshape(self.n_states, -1), held, np))

        # The integrator controls the mean square error of all runs together: no single run must hide in it.
        tolerance = max(ACCURACY / np.sqrt(x.size), 3e-14)
        solution = solve_ivp(
            stacked, (0.0, self.sampling_time), x.T.ravel(), method="DOP853", rtol=tolerance, atol=tolerance
        )
        if not solution.success:
            raise SolverError(f"the integration of {self.name} failed: {solution.message}")
        last: FloatArray = solution.y[:, -1]
        return last.reshape(self.n_states, -1).T

    def _checked(self, x0: npt.ArrayLike, inputs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        start, sequence = as_floats(x0, "x0"), as_floats(inputs, "inputs")
        if start.ndim == 1:
            start, sequence = start[None], sequence[None]
        if start.ndim != 2 or start.shape[1] != self.n_states:
            raise InputError(f"x0 must have {self.n_states} columns ({', '.join(self.state_names)}); got {start.shape}")
        if sequence.ndim != 3 or sequence.shape[::2] != (len(start), self.n_inputs):
            raise InputError(
                f"inputs must have shape ({len(start)}, n_steps, {self.n_inputs}), a run for each of x0; "
                f"got {sequence.shape}"
            )
        require_finite(start, "x0")
        require_finite(sequence, "inputs")
        return start, sequence
