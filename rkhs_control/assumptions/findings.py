"""Findings of a diagnosis: one sentence each on what was seen, why it matters and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import InputError

Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One observation about recorded runs, a plan or limits."""

    severity: Severity
    """A problem is most likely a mistake, a warning makes boxes wide or bounds doubtful, a note is good to know."""
    subject: str
    """The output, input or plan that it is about."""
    text: str

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise InputError(f"severity must be one of {', '.join(SEVERITIES)}; got {self.severity!r}")

    def __str__(self) -> str:
        """On one line."""
        return f"{self.severity}: {self.text}"


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found, worst first; true if there are problems."""

    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        in_order = sorted(self.findings, key=lambda finding: SEVERITIES.index(finding.severity))
        object.__setattr__(self, "findings", tuple(in_order))

    def __bool__(self) -> bool:
        """Whether there are problems."""
        return self.has_problems

    def __repr__(self) -> str:
        """One line per finding."""
        return self.explain()

    @property
    def has_problems(self) -> bool:
        """Whether something is most likely a mistake."""
        return bool(self.of("problem"))

    def of(self, *severities: Severity) -> tuple[Finding, ...]:
        """The findings of the given severities."""
        return tuple(finding for finding in self.findings if finding.severity in severities)

    def explain(self) -> str:
        """All findings, one line each."""
        return "\n".join(map(str, self.findings)) or "nothing stands out"
