"""Formulations: what a predictor can be built from, and how the choices compare on held-out data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..data.arrays import FloatArray
from ..kernels.families import KernelFamily
from .priors import GivenPrior, as_given

Arguments = Literal["known", "uncertain", "measured"]
_ARGUMENTS = {
    "known": "known initial states",
    "uncertain": "uncertain histories",
    "measured": "measured histories and a residual bound",
}


@dataclass(frozen=True)
class Formulation:
    """One way to state what is assumed."""

    prior: GivenPrior = None
    arguments: Arguments = "known"
    """Histories are known; or within their noise of the measurements; or the measurements are the arguments themselves,
    with an estimated bound on the residual."""
    kernel: str | KernelFamily = "squared_exponential"
    per_dimension: bool = False
    longest: bool = False
    """Among lengthscales that predict nearly as well, take the longest, which assumes more, instead of the shortest."""

    def __str__(self) -> str:
        prior = "no prior" if self.prior is None else f"{as_given(self.prior)} prior"
        scales = "per-dimension" if self.per_dimension else "long" if self.longest else "scaled"
        kernel = self.kernel if isinstance(self.kernel, str) else getattr(self.kernel, "__name__", "kernel")
        return f"{prior}, {_ARGUMENTS[self.arguments]}, {kernel.replace('_', ' ')}, {scales} lengthscales"


@dataclass(frozen=True, eq=False)
class Trial:
    """How a formulation performed on held-out blocks, at some of the steps."""

    formulation: Formulation
    steps: tuple[int, ...]
    half_widths: FloatArray
    """Mean half-widths of boxes as shares of each output's range, `(n_steps, n_outputs)`; infinite where none fits."""
    contradicted: int
    tested: int
    """Held-out values; of these, how many contradict their box and the noise bound, or nearly do."""
    shares: FloatArray = field(default_factory=lambda: np.full((0, 0), np.nan))
    """For measured histories, by step and output: the share of the worst held-out error that bounds the residual."""

    @property
    def width(self) -> float:
        """The mean of all half-widths."""
        return float(self.half_widths.mean())


@dataclass(frozen=True, eq=False)
class Comparison:
    """All trials, and which formulation was chosen."""

    trials: tuple[Trial, ...] = ()
    chosen: Formulation | None = None
    refused: tuple[Formulation, ...] = ()
    """Better formulations that fit the runs used for comparison, but not all runs."""

    def __bool__(self) -> bool:
        return bool(self.trials)

    def __str__(self) -> str:
        """A table: mean half-widths on held-out blocks as shares of the range, contradictions, the choice."""
        if not self.trials:
            return ""
        steps = ", ".join(map(str, self.trials[0].steps))
        lines = [f"half-widths of held-out boxes in % of the range, per output at steps {steps}; (nearly) contradicted"]
        for trial in self.trials:
            columns = "  ".join(" ".join(f"{100 * w:6.1f}" for w in column) for column in trial.half_widths.T)
            is_refused = trial.formulation in self.refused
            mark = "->" if trial.formulation == self.chosen else "x " if is_refused else "  "
            lines.append(f"{mark} {columns}   {trial.contradicted} of {trial.tested}   {trial.formulation}")
        if self.refused:
            lines.append("x: fits the runs that were compared, but not all of them")
        return "\n".join(lines)


NOTHING_COMPARED = Comparison()
