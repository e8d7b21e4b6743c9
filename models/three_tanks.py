"""Three tanks in a cascade: each drains into the next, and pumps feed the first and the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..data.sets import Box
from .plant import Plant

_AREA = 28.0  # cross-section of every tank, cm^2
_OUTLETS = (0.071, 0.071, 0.1)  # cm^2
_PUMP = 3.33  # cm^3 / (V s)
_GRAVITY = 981.0  # cm / s^2


def _equilibrium(v_1: float, v_2: float) -> tuple[float, ...]:
    """The levels at which inflow and outflow of every tank balance."""
    flows = (_PUMP * v_1, _PUMP * v_1, _PUMP * (v_1 + v_2))
    return tuple((flow / outlet) ** 2 / (2.0 * _GRAVITY) for flow, outlet in zip(flows, _OUTLETS, strict=True))


@dataclass(frozen=True)
class ThreeTanks(Plant):
    """Levels of three tanks under two pump voltages."""

    name: ClassVar[str] = "three_tanks"
    state_names: ClassVar[tuple[str, ...]] = ("h_1", "h_2", "h_3")
    state_units: ClassVar[tuple[str, ...]] = ("cm", "cm", "cm")
    input_names: ClassVar[tuple[str, ...]] = ("v_1", "v_2")
    input_units: ClassVar[tuple[str, ...]] = ("V", "V")
    sampling_time: ClassVar[float] = 10.0
    state_limits: ClassVar[Box] = Box([5.0, 5.0, 5.0], [16.0, 16.0, 16.0])
    input_limits: ClassVar[Box] = Box([1.5, 0.0], [4.5, 3.0])
    reference: ClassVar[tuple[float, ...]] = _equilibrium(3.0, 1.5)
    """Near (10.1, 10.1, 11.4) cm."""
    reference_input: ClassVar[tuple[float, ...]] = (3.0, 1.5)

    def right_hand_side(self, x: Any, u: Any, xp: Any) -> list[Any]:
        out = [_OUTLETS[i] * xp.sqrt(2.0 * _GRAVITY * xp.fmax(x[i], 0.0)) for i in range(3)]
        return [
            (_PUMP * u[0] - out[0]) / _AREA,
            (out[0] - out[1]) / _AREA,
            (out[1] + _PUMP * u[1] - out[2]) / _AREA,
        ]
