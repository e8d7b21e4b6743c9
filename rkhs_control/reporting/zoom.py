"""The figure of the binding limit: the box nearest to it, enlarged where it would be only a few pixels high."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..certificates.certificate import Certificate
from ..data.arrays import FloatArray
from ..data.sets import Box
from .figures import panels_of, plot_time
from .labels import Clock, typeset
from .reported import deciding_entry, deciding_state

_SMALL = 0.06  # of the height of a panel


def needs_zoom(certificate: Certificate) -> bool:
    """Whether the deciding box is hardly visible in a panel of its state that spans the limits.

    Only limits on a single state are drawn over time, so only those are enlarged.
    """
    state = deciding_state(certificate) if certificate.margins.size else None
    if state is None:
        return False
    step, limit = _binding(certificate, state)
    lower, upper = certificate.tube.lower[:, state], certificate.tube.upper[:, state]
    box = certificate.limits.states
    limits = [box.lower[state], box.upper[state]] if isinstance(box, Box) else [limit]
    ends = np.concatenate([lower, upper, [end for end in limits if np.isfinite(end)]])
    return bool(upper[step] - lower[step] < _SMALL * np.ptp(ends))


def zoom_figure(certificate: Certificate, truth: FloatArray | None = None) -> Any:
    """The intervals around the deciding step, scaled from the limit to the box."""
    state = deciding_state(certificate)
    assert state is not None
    step, limit = _binding(certificate, state)
    constraint = deciding_entry(certificate)[1]
    figure, ((axes,),) = panels_of(1, 1, width=5.0, height=3.0)
    plot_time(certificate, state, truth=truth, ax=axes)
    clock = Clock.of(certificate.predictor.runs, len(certificate.margins))
    axes.set_xlim(clock.per_step * (step + 0.4), clock.per_step * (step + 1.6))
    shown = np.array([limit, certificate.tube.lower[step, state], certificate.tube.upper[step, state]])
    room = 0.15 * np.ptp(shown)
    axes.set_ylim(shown.min() - room, shown.max() + room)
    axes.set_xticks([clock.per_step * (step + 1)])
    axes.set_title(f"enlarged: step {step + 1}, {typeset(certificate.constraint_names[constraint])}")
    return figure


def _binding(certificate: Certificate, state: int) -> tuple[int, float]:
    """The deciding step, and the deciding limit of this state."""
    step, constraint = deciding_entry(certificate)
    polytope = certificate.limits.polytope
    return step, float(polytope.offsets[constraint] / polytope.normals[constraint, state])
