"""rkhs_control: guaranteed bounds on an unknown plant from recorded data, and certified control with them.

The package is built of rooms, each using only those before it; `ROOMS` is their order, and each room's own docstring
says what it is for. One datum's way through them, with no step back: row of a file, recording, window, interval, kernel
matrix, path, weights, bound, box, verdict, certificate; then on to the checker, which uses nothing of the rest, and to
the report.

Public names are imported when they are first used, so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assumptions.norms import ConsistencyFrontier as ConsistencyFrontier
    from .assumptions.norms import NormBound as NormBound
    from .assumptions.norms import consistency_frontier as consistency_frontier
    from .assumptions.norms import least_norm_estimate as least_norm_estimate
    from .assumptions.norms import norm_growth as norm_growth
    from .assumptions.regression import KernelModel as KernelModel
    from .assumptions.regression import cross_validate as cross_validate
    from .assumptions.regression import cross_validate_per_dimension as cross_validate_per_dimension
    from .assumptions.regression import kernel_ridge as kernel_ridge
    from .assumptions.regression import minimum_norm as minimum_norm
    from .assumptions.selection import Selection as Selection
    from .assumptions.selection import select_assumptions as select_assumptions
    from .certificates.certificate import Certificate as Certificate
    from .certificates.certificate import Question as Question
    from .certificates.certificate import Verdict as Verdict
    from .certificates.certificate import certify as certify
    from .certificates.certificate import certify_plans as certify_plans
    from .checker import Verification as Verification
    from .checker import verify as verify
    from .control.certainty_equivalent import CertaintyEquivalentOCP as CertaintyEquivalentOCP
    from .control.certainty_equivalent import Plan as Plan
    from .control.certainty_equivalent import QuadraticCost as QuadraticCost
    from .control.certainty_equivalent import Tightening as Tightening
    from .control.certified_loop import CertifiedMPC as CertifiedMPC
    from .control.certified_loop import Decision as Decision
    from .control.robust import RobustOCP as RobustOCP
    from .control.robust import RobustPlan as RobustPlan
    from .control.tightening import half_widths as half_widths
    from .control.tightening import tightening_for as tightening_for
    from .data.files import Plans as Plans
    from .data.files import load_plans as load_plans
    from .data.files import load_trajectories as load_trajectories
    from .data.files import save_plans as save_plans
    from .data.files import save_trajectories as save_trajectories
    from .data.observations import Observations as Observations
    from .data.sets import Box as Box
    from .data.sets import Polytope as Polytope
    from .data.trajectories import Trajectories as Trajectories
    from .decisions.experiments import Experiment as Experiment
    from .decisions.experiments import experiments_around as experiments_around
    from .decisions.experiments import rank_experiments as rank_experiments
    from .decisions.optimise import SafeOptimum as SafeOptimum
    from .decisions.optimise import minimise as minimise
    from .engine.functionals import Derivative as Derivative
    from .engine.functionals import Points as Points
    from .engine.witness import Witness as Witness
    from .envelopes.alternating import AlternatingEnvelope as AlternatingEnvelope
    from .envelopes.base import Band as Band
    from .envelopes.base import Envelope as Envelope
    from .envelopes.closed_form import ClosedFormEnvelope as ClosedFormEnvelope
    from .envelopes.conic import ConicEnvelope as ConicEnvelope
    from .envelopes.constraint import Constraint as Constraint
    from .envelopes.energy import EnergyEnvelope as EnergyEnvelope
    from .envelopes.gaussian_process import GaussianProcessEnvelope as GaussianProcessEnvelope
    from .envelopes.lipschitz import LipschitzEnvelope as LipschitzEnvelope
    from .envelopes.optimal import OptimalEnvelope as OptimalEnvelope
    from .errors import ContradictoryDataError as ContradictoryDataError
    from .errors import FalsifiedNormBoundError as FalsifiedNormBoundError
    from .errors import InputError as InputError
    from .errors import RkhsControlError as RkhsControlError
    from .errors import SolverError as SolverError
    from .errors import UnsettledNormWarning as UnsettledNormWarning
    from .kernels.base import Kernel as Kernel
    from .kernels.composite import Product as Product
    from .kernels.composite import Scale as Scale
    from .kernels.composite import Sum as Sum
    from .kernels.files import kernel_from_dict as kernel_from_dict
    from .kernels.radial import Matern as Matern
    from .kernels.radial import Matern12 as Matern12
    from .kernels.radial import Matern32 as Matern32
    from .kernels.radial import Matern52 as Matern52
    from .kernels.radial import Radial as Radial
    from .kernels.radial import RationalQuadratic as RationalQuadratic
    from .kernels.radial import SquaredExponential as SquaredExponential
    from .prediction.files import load_predictor as load_predictor
    from .prediction.files import save_predictor as save_predictor
    from .prediction.predictor import MultiStepPredictor as MultiStepPredictor
    from .prediction.predictor import Tube as Tube
    from .reporting import Report as Report
    from .reporting import ReportedPlan as ReportedPlan
    from .reporting import write_report as write_report

__version__ = "0.1.0"

ROOMS = (
    "errors",
    "checker",
    "parallel",
    "arithmetic",
    "data",
    "kernels",
    "engine",
    "assumptions",
    "envelopes",
    "prediction",
    "certificates",
    "decisions",
    "control",
    "reporting",
    "models",
    "scenarios",
    "soundness",
    "cli",
)
"""The order of the rooms: a test holds it."""

_HOME = {
    "checker": ["Verification", "verify"],
    "assumptions.norms": [
        "ConsistencyFrontier",
        "NormBound",
        "consistency_frontier",
        "least_norm_estimate",
        "norm_growth",
    ],
    "assumptions.regression": [
        "KernelModel",
        "cross_validate",
        "cross_validate_per_dimension",
        "kernel_ridge",
        "minimum_norm",
    ],
    "assumptions.selection": ["Selection", "select_assumptions"],
    "certificates.certificate": ["Certificate", "Question", "Verdict", "certify", "certify_plans"],
    "control.certainty_equivalent": ["CertaintyEquivalentOCP", "Plan", "QuadraticCost", "Tightening"],
    "control.certified_loop": ["CertifiedMPC", "Decision"],
    "control.robust": ["RobustOCP", "RobustPlan"],
    "control.tightening": ["half_widths", "tightening_for"],
    "data.files": ["Plans", "load_plans", "load_trajectories", "save_plans", "save_trajectories"],
    "data.observations": ["Observations"],
    "data.sets": ["Box", "Polytope"],
    "data.trajectories": ["Trajectories"],
    "decisions.experiments": ["Experiment", "experiments_around", "rank_experiments"],
    "decisions.optimise": ["SafeOptimum", "minimise"],
    "engine.functionals": ["Derivative", "Points"],
    "engine.witness": ["Witness"],
    "envelopes.alternating": ["AlternatingEnvelope"],
    "envelopes.base": ["Band", "Envelope"],
    "envelopes.closed_form": ["ClosedFormEnvelope"],
    "envelopes.conic": ["ConicEnvelope"],
    "envelopes.constraint": ["Constraint"],
    "envelopes.energy": ["EnergyEnvelope"],
    "envelopes.gaussian_process": ["GaussianProcessEnvelope"],
    "envelopes.lipschitz": ["LipschitzEnvelope"],
    "envelopes.optimal": ["OptimalEnvelope"],
    "errors": [
        "ContradictoryDataError",
        "FalsifiedNormBoundError",
        "InputError",
        "RkhsControlError",
        "SolverError",
        "UnsettledNormWarning",
    ],
    "kernels.base": ["Kernel"],
    "kernels.composite": ["Product", "Scale", "Sum"],
    "kernels.files": ["kernel_from_dict"],
    "kernels.radial": [
        "Matern",
        "Matern12",
        "Matern32",
        "Matern52",
        "Radial",
        "RationalQuadratic",
        "SquaredExponential",
    ],
    "prediction.files": ["load_predictor", "save_predictor"],
    "prediction.predictor": ["MultiStepPredictor", "Tube"],
    "reporting": ["Report", "ReportedPlan", "write_report"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
