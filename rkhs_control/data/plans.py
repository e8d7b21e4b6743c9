"""Planned input sequences, each with its initial state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy.typing as npt

from ..errors import InputError
from .arrays import FloatArray, as_floats, as_vector, require_finite
from .fields import checked_names
from .tables import one_line


@dataclass(frozen=True, eq=False)
class Plans:
    """Input sequences to be applied, of any lengths, each with its initial state."""

    names: tuple[str, ...]
    x0: tuple[FloatArray, ...]
    """Initial states, `(n_states,)` each."""
    inputs: tuple[FloatArray, ...]
    """`(n_steps, n_inputs)` each."""
    state_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()

    if TYPE_CHECKING:  # more may be given than is kept

        def __init__(
            self,
            names: Sequence[str],
            x0: Sequence[npt.ArrayLike],
            inputs: Sequence[npt.ArrayLike],
            state_names: Sequence[str] = (),
            input_names: Sequence[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        names = tuple(one_line(str(name)) for name in self.names)
        if not 0 < len(names) == len(self.x0) == len(self.inputs):
            sizes = f"{len(names)}, {len(self.x0)} and {len(self.inputs)}"
            raise InputError(f"names, x0 and inputs must have one entry per plan, and at least one; got {sizes}")
        if len(set(names)) < len(names):
            raise InputError(f"names must differ from each other; got {names}")
        x0 = tuple(as_vector(x, f"x0 of plan {name}") for name, x in zip(names, self.x0, strict=True))
        inputs = tuple(as_floats(u, f"inputs of plan {name}") for name, u in zip(names, self.inputs, strict=True))
        for name, x, u in zip(names, x0, inputs, strict=True):
            if x.size == 0 or x.size != x0[0].size:
                raise InputError(f"x0 of plan {name} must have one entry per state, as the others do; got {x.size}")
            if u.ndim != 2 or u.size == 0 or u.shape[1] != inputs[0].shape[1]:
                raise InputError(f"inputs of plan {name} must have shape (n_steps, n_inputs); got {u.shape}")
            require_finite(u, f"inputs of plan {name}")
        values = {
            "names": names,
            "x0": x0,
            "inputs": inputs,
            "state_names": checked_names(self.state_names, "state_names", "x", x0[0].size),
            "input_names": checked_names(self.input_names, "input_names", "u", inputs[0].shape[1]),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """The number of plans."""
        return len(self.names)
