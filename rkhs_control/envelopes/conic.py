"""The paper's conic programmes through cvxpy: the primal P1 (with P1') and the dual D1."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ..data.arrays import FloatArray
from ..engine.functionals import Functional
from ..engine.witness import Witness
from ..errors import InputError, SolverError
from .base import Envelope, Side, UpperBound


@dataclass(frozen=True, eq=False, repr=False)
class ConicEnvelope(Envelope):
    """Optimal bounds by an interior-point solver: Clarabel by default, MOSEK where it is licensed.

    With a factor `K = F F'` of the kernel matrix of data and query, functions are `F z`, `||z||` is their norm, and
    both programmes do without an inverse, so that P1 and P1' (a query at a datum) are one:

    - primal: maximise `F_x z` subject to `||z|| <= Gamma` and the intervals; the multipliers are the witness,
    - dual: minimise `Gamma ||F' (e_x - nu)|| + sum_i (upper_i nu_i^+ - lower_i nu_i^-)`, which is D1 with its
      `lambda` at the best value.

    The reported bound is the witness, evaluated and rounded outwards as everywhere. Only the status `optimal` counts:
    otherwise the bound is infinite and a warning says why.
    """

    has_witnesses: ClassVar[bool] = True
    solver: str = "CLARABEL"
    formulation: Literal["primal", "dual"] = "dual"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.formulation not in ("primal", "dual"):
            raise InputError(f"formulation must be 'primal' or 'dual'; got {self.formulation!r}")
        require_solver(self.solver)

    def upper_bounds(self, side: Side, functionals: Sequence[Functional]) -> list[UpperBound]:
        solve = self._primal if self.formulation == "primal" else self._dual
        return [solve(side, functional) for functional in functionals]

    def _primal(self, side: Side, functional: Functional) -> UpperBound:
        import cvxpy as cp

        factor = self._factor(functional)
        z = cp.Variable(factor.shape[1])
        low, high = np.isfinite(side.lower), np.isfinite(side.upper)
        above = factor[:-1][high] @ z <= side.upper[high]
        below = factor[:-1][low] @ z >= side.lower[low]
        problem = cp.Problem(cp.Maximize(factor[-1] @ z), [cp.norm(z) <= self.radius, above, below])
        if not self._solve(problem):
            return UpperBound(math.inf, math.inf)
        weights = np.zeros(len(self.data))
        weights[high] += above.dual_value
        weights[low] -= below.dual_value
        bound, norm = self._evaluate(weights, side, functional)
        solution: FloatArray = np.asarray(z.value)
        values = factor @ solution
        violation = np.maximum(values[:-1] - side.upper, side.lower - values[:-1]).max()
        slack = max(violation, 0.0) * np.abs(weights).sum() + norm * max(
            0.0, float(np.linalg.norm(solution)) - self.radius
        )
        return UpperBound(bound.value, max(0.0, bound.value - values[-1]) + slack, bound.witness)

    def _dual(self, side: Side, functional: Functional) -> UpperBound:
        import cvxpy as cp

        factor = self._factor(functional)
        low, high = np.isfinite(side.lower), np.isfinite(side.upper)
        plus, minus = cp.Variable(int(high.sum()), nonneg=True), cp.Variable(int(low.sum()), nonneg=True)
        combination = factor[-1] - factor[:-1][high].T @ plus + factor[:-1][low].T @ minus
        objective = self.radius * cp.norm(combination) + side.upper[high] @ plus - side.lower[low] @ minus
        if not self._solve(cp.Problem(cp.Minimize(objective))):
            return UpperBound(math.inf, math.inf)
        weights = np.zeros(len(self.data))
        weights[high] += np.asarray(plus.value)
        weights[low] -= np.asarray(minus.value)
        return self._evaluate(weights, side, functional)[0]

    def _evaluate(self, weights: FloatArray, side: Side, functional: Functional) -> tuple[UpperBound, float]:
        witness = Witness.sparse(np.arange(len(weights), dtype=np.int64), weights)
        value, norm = self._evaluated(witness, side, functional)
        return UpperBound(value, witness=witness), norm

    def _factor(self, functional: Functional) -> FloatArray:
        """`F` with `F F'` the kernel matrix of data and query, the query last."""
        n = len(self.data)
        K = np.empty((n + 1, n + 1))
        K[:n, :n] = self.gram.whole
        K[n, :n] = K[:n, n] = functional.row(self.kernel, self.data.X)
        K[n, n] = functional.squared_norm(self.kernel)
        values, vectors = np.linalg.eigh(K)
        factor: FloatArray = vectors * np.sqrt(np.maximum(values, 0.0))
        return factor

    def _solve(self, problem: Any) -> bool:
        """Whether the solver ended with the status `optimal`."""
        import cvxpy as cp

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # cvxpy's warning about inaccurate solutions: ours follows
                problem.solve(solver=self.solver)
        except (cp.SolverError, ArithmeticError) as error:
            warnings.warn(f"{self.solver} failed ({error}); the bound is infinite", stacklevel=5)
            return False
        except Exception as error:
            if type(error).__module__.startswith("mosek"):
                raise SolverError(_MOSEK_UNLICENSED.format(error=error)) from None
            raise
        if problem.status != cp.OPTIMAL:
            warnings.warn(
                f"{self.solver} ended with status {problem.status!r}, not 'optimal'; the bound is infinite",
                stacklevel=5,
            )
            return False
        return True


_MOSEK_UNLICENSED = (
    "MOSEK is installed but could not be used ({error}); put a licence where MOSEK looks for it, or use "
    "solver='CLARABEL'"
)


def require_solver(solver: str) -> None:
    """Refuse a solver that is not installed, or MOSEK without a licence, and say what to do about it."""
    import cvxpy as cp

    if solver not in cp.installed_solvers():
        raise SolverError(
            f"solver {solver!r} is not installed; installed are {', '.join(sorted(cp.installed_solvers()))}"
            + (" (MOSEK comes with `pip install rkhs_control[mosek]` and needs a licence)" if solver == "MOSEK" else "")
        )
    if solver == "MOSEK":
        import mosek

        try:
            with mosek.Env() as environment:
                environment.checkoutlicense(mosek.feature.pts)
        except mosek.Error as error:
            raise SolverError(_MOSEK_UNLICENSED.format(error=error)) from None
