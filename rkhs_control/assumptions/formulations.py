"""Formulations: what a predictor can be built from, and how the choices compare on held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..data.arrays import FloatArray, IndexArray
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
        scales = " ".join(["long"] * self.longest + ["per-dimension"] * self.per_dimension) or "scaled"
        kernel = self.kernel if isinstance(self.kernel, str) else getattr(self.kernel, "__name__", "kernel")
        return f"{prior}, {_ARGUMENTS[self.arguments]}, {kernel.replace('_', ' ')}, {scales} lengthscales"


@dataclass(frozen=True, eq=False)
class Trial:
    """How a formulation performed on held-out blocks, at some of the steps; arrays are `(n_steps, n_outputs)`."""

    formulation: Formulation
    steps: tuple[int, ...]
    half_widths: FloatArray
    """Mean half-widths of boxes as shares of each output's range; infinite where none fits."""
    contradicted: IndexArray
    """How many held-out values contradict their box and the noise bound, or nearly do."""
    tested: IndexArray
    """How many held-out values there were."""
    shares: FloatArray
    """For measured histories: the share of the worst held-out error that bounds the residual; otherwise NaN."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """All trials, and which formulation was chosen for each step and output."""

    trials: tuple[Trial, ...] = ()
    chosen: tuple[tuple[Formulation, ...], ...] = ()
    """By compared step, then by output; the steps between follow their neighbours."""
    refused: frozenset[Formulation] = frozenset()
    """Formulations that were better somewhere, and fit the runs used for comparison, but not all runs."""

    def __bool__(self) -> bool:
        return bool(self.trials)

    @property
    def summary(self) -> str:
        """What was chosen, in one line."""
        distinct = {formulation for row in self.chosen for formulation in row}
        if len(distinct) == 1:
            return f"chosen of {len(self.trials)} formulations: {distinct.pop()}"
        return f"{len(distinct)} of {len(self.trials)} formulations were chosen, one per step and output (*)"

    def __str__(self) -> str:
        """A table: mean half-widths on held-out blocks as shares of the range, contradictions, the choice."""
        if not self.trials:
            return ""
        steps = ", ".join(map(str, self.trials[0].steps))
        lines = [f"half-widths of held-out boxes in % of the range, per output at steps {steps}; (nearly) contradicted"]
        for trial in self.trials:
            is_chosen = [[formulation == trial.formulation for formulation in row] for row in self.chosen]
            columns = "  ".join(
                " ".join(f"{100 * width:6.1f}{'*' if mark else ' '}" for width, mark in zip(widths, marks, strict=True))
                for widths, marks in zip(trial.half_widths.T, zip(*is_chosen, strict=True), strict=True)
            )
            is_refused = trial.formulation in self.refused
            mark = "->" if any(map(any, is_chosen)) else "x " if is_refused else "  "
            told = f"{trial.contradicted.sum()} of {trial.tested.sum()}"
            lines.append(f"{mark} {columns} {told}   {trial.formulation}")
        lines.append("*: chosen for this step and output")
        if self.refused:
            lines.append("x: fits the runs that were compared, but not all of them")
        return "\n".join(lines)


NOTHING_COMPARED = Comparison()
