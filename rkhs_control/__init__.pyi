"""Every public name and the module that it comes from, once: read by type checkers, and by `__init__.py`.

One line per name, `from .module import Name as Name`.
"""

from .assumptions.diagnosis import diagnose as diagnose
from .assumptions.findings import Diagnosis as Diagnosis
from .assumptions.findings import Finding as Finding
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
from .data.files import load_plans as load_plans
from .data.files import load_trajectories as load_trajectories
from .data.files import save_plans as save_plans
from .data.files import save_trajectories as save_trajectories
from .data.limits import Limits as Limits
from .data.observations import Observations as Observations
from .data.plans import Plans as Plans
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
from .errors import RowOrderWarning as RowOrderWarning
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
from .prediction.tube import Tube as Tube
from .reporting import Report as Report
from .reporting import ReportedPlan as ReportedPlan
from .reporting import write_report as write_report

__version__: str
ROOMS: tuple[str, ...]
__all__: list[str]
