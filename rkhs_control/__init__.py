"""rkhs_control: guaranteed bounds on an unknown plant from recorded data, and certified control with them.

The map of the package, each module using only those before it:

    sets           boxes and polytopes of states and inputs
    trajectories   recorded runs of a plant and plans, in and out of files
    observations   samples with bounded noise, as intervals
    kernels        squared exponential, Matern, rational quadratic; scales, sums, products
    functionals    what can be bounded: values, differences, derivatives
    active_set     compiled linear algebra of points that enter and leave
    path           the active-set path, compiled
    gram, witness  kernel values among the data; weights that prove a bound, evaluated with outward rounding
    least_norm     the function of least norm through the data, where every path starts; in double-double if need be
    norms          norm bounds, their provenance, the consistency frontier
    consistency    a function that keeps all assumptions: proof that the data do not refute them
    regression     nominal models and cross-validation
    envelope       the bounds: optimal, conic, alternating, closed form, energy, Lipschitz, Gaussian process
    selection      kernels and norm bounds chosen from runs, for every step and state
    optimise       the cheapest point that keeps unknown constraints for certain
    predictor      one envelope a step and a state: boxes for the future states of a plant, in and out of files
    verify         independent checker of certificate files, which uses nothing of the rest
    certifier      whether a plan keeps those boxes within limits
    experiments    which runs of the plant would decide a plan that is undecided
    control        optimal control problems on kernel models, certainty equivalent and robust; tightened limits for
                   nominal ones; certified closed loops
    figures        phase portraits, intervals over time, the certified region
    report         what certificates say, what that rests on and how to check it, as one HTML file
    models         plants to simulate
    scenarios      studies that one command runs
    soundness      a campaign against the bounds: worst-case truths, known exactly, over all kernels and scales

Public names are imported when they are first used, so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .verify import Verification, verify  # now, so that the name stays the function's and not its module's

if TYPE_CHECKING:
    from .certifier import Certificate as Certificate
    from .certifier import Question as Question
    from .certifier import Verdict as Verdict
    from .certifier import certify as certify
    from .certifier import certify_plans as certify_plans
    from .control.certainty_equivalent import CertaintyEquivalentOCP as CertaintyEquivalentOCP
    from .control.certainty_equivalent import Plan as Plan
    from .control.certainty_equivalent import QuadraticCost as QuadraticCost
    from .control.certainty_equivalent import Tightening as Tightening
    from .control.closed_loop import CertifiedMPC as CertifiedMPC
    from .control.closed_loop import Decision as Decision
    from .control.design import half_widths as half_widths
    from .control.design import tightening_for as tightening_for
    from .control.robust import RobustOCP as RobustOCP
    from .control.robust import RobustPlan as RobustPlan
    from .envelope.alternating import AlternatingEnvelope as AlternatingEnvelope
    from .envelope.base import Band as Band
    from .envelope.base import Envelope as Envelope
    from .envelope.closed_form import ClosedFormEnvelope as ClosedFormEnvelope
    from .envelope.conic import ConicEnvelope as ConicEnvelope
    from .envelope.constraint import Constraint as Constraint
    from .envelope.energy import EnergyEnvelope as EnergyEnvelope
    from .envelope.gaussian_process import GaussianProcessEnvelope as GaussianProcessEnvelope
    from .envelope.lipschitz import LipschitzEnvelope as LipschitzEnvelope
    from .envelope.optimal import OptimalEnvelope as OptimalEnvelope
    from .errors import ContradictoryDataError as ContradictoryDataError
    from .errors import FalsifiedNormBoundError as FalsifiedNormBoundError
    from .errors import InputError as InputError
    from .errors import RkhsControlError as RkhsControlError
    from .errors import SolverError as SolverError
    from .errors import UnsettledNormWarning as UnsettledNormWarning
    from .experiments import Experiment as Experiment
    from .experiments import experiments_around as experiments_around
    from .experiments import rank_experiments as rank_experiments
    from .functionals import Derivative as Derivative
    from .functionals import Points as Points
    from .kernels import Kernel as Kernel
    from .kernels import Matern as Matern
    from .kernels import Matern12 as Matern12
    from .kernels import Matern32 as Matern32
    from .kernels import Matern52 as Matern52
    from .kernels import Product as Product
    from .kernels import Radial as Radial
    from .kernels import RationalQuadratic as RationalQuadratic
    from .kernels import Scale as Scale
    from .kernels import SquaredExponential as SquaredExponential
    from .kernels import Sum as Sum
    from .kernels import kernel_from_dict as kernel_from_dict
    from .norms import ConsistencyFrontier as ConsistencyFrontier
    from .norms import NormBound as NormBound
    from .norms import consistency_frontier as consistency_frontier
    from .norms import least_norm_estimate as least_norm_estimate
    from .norms import norm_growth as norm_growth
    from .observations import Observations as Observations
    from .optimise import SafeOptimum as SafeOptimum
    from .optimise import minimise as minimise
    from .predictor import MultiStepPredictor as MultiStepPredictor
    from .predictor import Tube as Tube
    from .predictor_files import load_predictor as load_predictor
    from .predictor_files import save_predictor as save_predictor
    from .regression import KernelModel as KernelModel
    from .regression import cross_validate as cross_validate
    from .regression import cross_validate_per_dimension as cross_validate_per_dimension
    from .regression import kernel_ridge as kernel_ridge
    from .regression import minimum_norm as minimum_norm
    from .report import Report as Report
    from .report import ReportedPlan as ReportedPlan
    from .report import write_report as write_report
    from .selection import Selection as Selection
    from .selection import select_assumptions as select_assumptions
    from .sets import Box as Box
    from .sets import Polytope as Polytope
    from .trajectories import Trajectories as Trajectories
    from .trajectory_files import Plans as Plans
    from .trajectory_files import load_plans as load_plans
    from .trajectory_files import load_trajectories as load_trajectories
    from .trajectory_files import save_plans as save_plans
    from .trajectory_files import save_trajectories as save_trajectories
    from .witness import Witness as Witness

__version__ = "0.1.0"

_HOME = {
    "certifier": ["Certificate", "Question", "Verdict", "certify", "certify_plans"],
    "control.certainty_equivalent": ["CertaintyEquivalentOCP", "Plan", "QuadraticCost", "Tightening"],
    "control.closed_loop": ["CertifiedMPC", "Decision"],
    "control.design": ["half_widths", "tightening_for"],
    "control.robust": ["RobustOCP", "RobustPlan"],
    "envelope.alternating": ["AlternatingEnvelope"],
    "envelope.base": ["Band", "Envelope"],
    "envelope.closed_form": ["ClosedFormEnvelope"],
    "envelope.conic": ["ConicEnvelope"],
    "envelope.constraint": ["Constraint"],
    "envelope.energy": ["EnergyEnvelope"],
    "envelope.gaussian_process": ["GaussianProcessEnvelope"],
    "envelope.lipschitz": ["LipschitzEnvelope"],
    "envelope.optimal": ["OptimalEnvelope"],
    "errors": [
        "ContradictoryDataError",
        "FalsifiedNormBoundError",
        "InputError",
        "RkhsControlError",
        "SolverError",
        "UnsettledNormWarning",
    ],
    "experiments": ["Experiment", "experiments_around", "rank_experiments"],
    "functionals": ["Derivative", "Points"],
    "kernels": [
        "Kernel",
        "Matern",
        "Matern12",
        "Matern32",
        "Matern52",
        "Product",
        "Radial",
        "RationalQuadratic",
        "Scale",
        "SquaredExponential",
        "Sum",
        "kernel_from_dict",
    ],
    "norms": [
        "ConsistencyFrontier",
        "NormBound",
        "consistency_frontier",
        "least_norm_estimate",
        "norm_growth",
    ],
    "observations": ["Observations"],
    "optimise": ["SafeOptimum", "minimise"],
    "predictor": ["MultiStepPredictor", "Tube"],
    "predictor_files": ["load_predictor", "save_predictor"],
    "regression": ["KernelModel", "cross_validate", "cross_validate_per_dimension", "kernel_ridge", "minimum_norm"],
    "report": ["Report", "ReportedPlan", "write_report"],
    "selection": ["Selection", "select_assumptions"],
    "sets": ["Box", "Polytope"],
    "trajectories": ["Trajectories"],
    "trajectory_files": ["Plans", "load_plans", "load_trajectories", "save_plans", "save_trajectories"],
    "witness": ["Witness"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["Verification", "__version__", "verify", *sorted(_MODULE_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
