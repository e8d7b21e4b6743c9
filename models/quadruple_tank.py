"""The quadruple-tank process (Johansson, 2000): four levels, two pumps, in its minimum-phase setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..data.sets import Box
from .plant import Plant

_AREAS = (28.0, 32.0, 28.0, 32.0)  # cross-sections of the tanks, cm^2
_OUTLETS = (0.071, 0.057, 0.071, 0.057)  # of their outlets, cm^2
_PUMPS = (3.33, 3.35)  # cm^3 / (V s)
_VALVES = (0.70, 0.60)  # shares of the pumps that go to the lower tanks
_GRAVITY = 981.0  # cm / s^2


def _equilibrium(v_1: float, v_2: float) -> tuple[float, ...]:
    """The levels at which inflow and outflow of every tank balance."""
    upper = ((1.0 - _VALVES[1]) * _PUMPS[1] * v_2, (1.0 - _VALVES[0]) * _PUMPS[0] * v_1)
    lower = (_VALVES[0] * _PUMPS[0] * v_1 + upper[0], _VALVES[1] * _PUMPS[1] * v_2 + upper[1])
    return tuple((flow / outlet) ** 2 / (2.0 * _GRAVITY) for flow, outlet in zip(lower + upper, _OUTLETS, strict=True))


@dataclass(frozen=True)
class QuadrupleTank(Plant):
    """Levels of two lower tanks (1, 2) fed by two upper ones (3, 4), under two pump voltages."""

    name: ClassVar[str] = "quadruple_tank"
    state_names: ClassVar[tuple[str, ...]] = ("h_1", "h_2", "h_3", "h_4")
    state_units: ClassVar[tuple[str, ...]] = ("cm", "cm", "cm", "cm")
    input_names: ClassVar[tuple[str, ...]] = ("v_1", "v_2")
    input_units: ClassVar[tuple[str, ...]] = ("V", "V")
    sampling_time: ClassVar[float] = 10.0
    state_limits: ClassVar[Box] = Box([8.0, 8.0, 0.8, 0.6], [17.0, 17.0, 4.0, 4.0])
    input_limits: ClassVar[Box] = Box([1.5, 1.5], [4.5, 4.5])
    reference: ClassVar[tuple[float, ...]] = _equilibrium(3.0, 3.0)
    """Near (12.3, 12.8, 1.6, 1.4) cm: at the printed (12.4, 12.7, 1.8, 1.4) its equations are not at rest."""
    reference_input: ClassVar[tuple[float, ...]] = (3.0, 3.0)

    def right_hand_side(self, x: Any, u: Any, xp: Any) -> list[Any]:
        out = [_OUTLETS[i] * xp.sqrt(2.0 * _GRAVITY * xp.fmax(x[i], 0.0)) for i in range(4)]
        flows = [_PUMPS[j] * u[j] for j in range(2)]
        return [
            (-out[0] + out[2] + _VALVES[0] * flows[0]) / _AREAS[0],
            (-out[1] + out[3] + _VALVES[1] * flows[1]) / _AREAS[1],
            (-out[2] + (1.0 - _VALVES[1]) * flows[1]) / _AREAS[2],
            (-out[3] + (1.0 - _VALVES[0]) * flows[0]) / _AREAS[3],
        ]
