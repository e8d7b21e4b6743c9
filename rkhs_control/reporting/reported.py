"""A plan as reports describe it: its certificates, what decides the verdict, and that in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..arithmetic.printing import rounded_down
from ..certificates.certificate import Certificate, Verdict
from ..data.arrays import FloatArray

FIGURES_UP_TO = 12
"""Maximum number of plans that are drawn."""
REMARKS_UP_TO = 20
"""Maximum number of plans that are discussed one by one."""


@dataclass(frozen=True, eq=False)
class ReportedPlan:
    """A plan and what is known about it; of several methods, the first decides."""

    name: str
    certificates: Mapping[str, Certificate]
    margins: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By method, `norm_margin` and `noise_margin`, where they were computed."""
    truth: FloatArray | None = None
    """`(n_steps + 1, n_states)`, where known."""
    file: str | None = None
    """Path of the certificate, relative to the folder of the report."""

    @property
    def method(self) -> str:
        """The deciding method."""
        return next(iter(self.certificates))

    @property
    def certificate(self) -> Certificate:
        """The certificate of the deciding method."""
        return self.certificates[self.method]


def explanation(certificate: Certificate) -> str:
    """The verdict in a sentence, with the numbers as tables show them."""
    if certificate.verdict is Verdict.CERTIFIED:
        if not certificate.margins.size:
            return "CERTIFIED: there are no state limits to break"
        return f"CERTIFIED: every box is inside the limits by at least {rounded_down(certificate.margin)}"
    return certificate.finding()


def deciding_distances(certificate: Certificate) -> FloatArray:
    """The distances that decide, by step and constraint: those of boxes wholly outside, if there are any."""
    return certificate.hopes if (certificate.hopes < 0.0).any() else certificate.margins


def deciding_entry(certificate: Certificate) -> tuple[int, int]:
    """The deciding step and constraint: the worst violation, or else the smallest margin."""
    distances = deciding_distances(certificate)
    return divmod(int(distances.argmin()), int(distances.shape[1]))


def deciding_state(certificate: Certificate) -> int | None:
    """The state that the deciding limit is about, if it is about only one."""
    normal = certificate.limits.polytope.normals[deciding_entry(certificate)[1]]
    (concerned,) = normal.nonzero()
    return int(concerned[0]) if len(concerned) == 1 else None
