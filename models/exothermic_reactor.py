r"""An exothermic stirred-tank reactor with a jacket, under a fixed feedback: that of data-driven reachability.

Equations and numbers are those that Bravo, Alamo and Camacho use in "Robust MPC of constrained discrete-time nonlinear
systems based on approximated reachable sets" (Automatica, 2006), as the scripts of Alanwar et al. on data-driven
reachability have them: states are deviations from 0.5 mol/l and 350 K, a linear feedback moves the jacket's
temperature, and two inputs are added to the derivatives. Their scripts take a semi-implicit step per sample; here the
same differential equation is integrated accurately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..data.sets import Box
from .plant import Plant

_MINUTE = 60.0
_RENEWAL = 1.0  # of the content, per minute: 100 l/min through 100 l
_FEED, _FEED_TEMPERATURE = 1.0, 350.0  # mol/l, K
_RATE, _ACTIVATION = 7.2e10, 8750.0  # 1/min, K
_HEATING = 5e4 / (1000.0 * 0.239)  # K l/mol of A
_COOLING = 5e4 / (100.0 * 1000.0 * 0.239)  # per minute, by the jacket
_CENTRE, _CENTRE_TEMPERATURE, _JACKET = 0.5, 350.0, 300.0
_FEEDBACK = (-3.0, -6.9)  # of the jacket's temperature, K per mol/l and per K


@dataclass(frozen=True)
class ExothermicReactor(Plant):
    """Deviations of concentration and temperature, with what is added to their derivatives as inputs."""

    name: ClassVar[str] = "exothermic_reactor"
    state_names: ClassVar[tuple[str, ...]] = ("c", "T")
    state_units: ClassVar[tuple[str, ...]] = ("mol/l", "K")
    input_names: ClassVar[tuple[str, ...]] = ("w_c", "w_T")
    input_units: ClassVar[tuple[str, ...]] = ("mol/(l min)", "K/min")
    sampling_time: ClassVar[float] = 0.015 * _MINUTE
    state_limits: ClassVar[Box] = Box([-2.0, -25.0], [0.5, 10.0])
    input_limits: ClassVar[Box] = Box([-0.1, -0.2], [0.1, 0.2])
    reference: ClassVar[tuple[float, ...]] = (0.0, 0.0)
    reference_input: ClassVar[tuple[float, ...]] = (0.0, 0.0)

    def right_hand_side(self, x: Any, u: Any, xp: Any) -> list[Any]:
        c, temperature = x[0] + _CENTRE, x[1] + _CENTRE_TEMPERATURE
        jacket = _JACKET + _FEEDBACK[0] * x[0] + _FEEDBACK[1] * x[1]
        reaction = _RATE * xp.exp(-_ACTIVATION / temperature) * c
        cooling = _COOLING * (jacket - temperature)
        return [
            (_RENEWAL * (_FEED - c) - reaction + u[0]) / _MINUTE,
            (_RENEWAL * (_FEED_TEMPERATURE - temperature) + _HEATING * reaction + cooling + u[1]) / _MINUTE,
        ]
