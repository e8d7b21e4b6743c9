r"""The continuous stirred-tank reactor of the paper's Example 3.

Cyclopentadiene (A) reacts to cyclopentenol (B) and on; the feed of A is the input. The equations are those of the
authors' simulations, which differ from what the paper prints in three ways:

- the reaction rates are per *second*: `rho_1 = rho_2 = 4.1e-3 / s`, `rho_3 = 6.3e-4 / s` (printed: per hour),
- the feed `u` is per hour, so that it acts as `u / 3600`,
- the equation of `c_B` is linear: `- rho_2 c_B`, not `- rho_2 c_B^2`.

Only so is (2.14, 1.09) with `u = 14.19` the equilibrium that the paper steers to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..data.sets import Box
from .plant import Plant

_TEMPERATURE = 273.15 + 114.191  # K


@dataclass(frozen=True)
class CSTR(Plant):
    """Concentrations of cyclopentadiene and cyclopentenol under a feed of cyclopentadiene."""

    name: ClassVar[str] = "cstr"
    state_names: ClassVar[tuple[str, ...]] = ("c_A", "c_B")
    state_units: ClassVar[tuple[str, ...]] = ("mol/l", "mol/l")
    input_names: ClassVar[tuple[str, ...]] = ("u",)
    input_units: ClassVar[tuple[str, ...]] = ("1/h",)
    sampling_time: ClassVar[float] = 30.0
    state_limits: ClassVar[Box] = Box([1.0, 0.5], [3.0, 2.0])
    input_limits: ClassVar[Box] = Box([3.0], [25.0])
    reference: ClassVar[tuple[float, float]] = (2.14, 1.09)
    reference_input: ClassVar[float] = 14.19

    feed_concentration: float = 5.1
    rate_1: float = 1.287e12 * math.exp(-9758.3 / _TEMPERATURE) / 3600.0
    """A to B, and B on, per second."""
    rate_3: float = 9.043e9 * math.exp(-8560.0 / _TEMPERATURE) / 3600.0
    """Two A to something else, per second."""

    def right_hand_side(self, x: Any, u: Any, xp: Any) -> list[Any]:
        c_a, c_b, feed = x[0], x[1], u[0] / 3600.0
        return [
            feed * (self.feed_concentration - c_a) - self.rate_1 * c_a - self.rate_3 * c_a**2,
            -feed * c_b + self.rate_1 * c_a - self.rate_1 * c_b,
        ]
