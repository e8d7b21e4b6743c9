"""Plants and ground truths to try the toolkit on; the plants by name."""

from .cstr import CSTR
from .exothermic_reactor import ExothermicReactor
from .plant import Plant
from .quadruple_tank import QuadrupleTank
from .three_tanks import ThreeTanks

PLANTS: dict[str, type[Plant]] = {plant.name: plant for plant in (CSTR, ExothermicReactor, QuadrupleTank, ThreeTanks)}
