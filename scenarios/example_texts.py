"""The contents of the example files: two scenarios and a script."""

RECORDED_RUNS = """\
title = "A reactor, from recorded runs"

[data]
file = "runs.csv"               # columns: trajectory, step (or time), the states, the inputs
states = ["c_A", "c_B"]
inputs = ["u"]
noise_bound = 0.06              # the recorded states are within this of the true ones
# initial_state_noise = 0.0     # set this if the first state of a run is measured with noise
# horizon = 3                   # cuts long recordings into windows, which begin with states measured within noise_bound
# stride = 1                    # steps between the starts of windows

[limits]
states = { c_A = [1.0, 3.0], c_B = [0.5, 2.0] }
inputs = { u = [3.0, 25.0] }
# input_rates = { u = [-5.0, 5.0] }

# All keys have defaults. These matter most for what is assumed:
[predictor]
safety_factor = 3.0             # on the norm estimated from the runs
held_out = 0.1                  # share of the runs used to test the boxes
"""

LONG_RECORDING = """\
title = "A heated block, from one long log"
plan = "plan.csv"               # the plan that `rkhs-control run` certifies

[data]
file = "log.csv"                # columns: time (seconds or dates), the measured outputs, the inputs
states = ["T"]                  # the surface; the core is not measured
inputs = ["Q"]
state_units = ["°C"]
input_units = ["%"]
noise_bound = 0.06              # the logged temperatures are within this of the true ones
every = 4                       # samples per step; inputs are averaged over a step
horizon = 4                     # steps per window, and in the longest plan
output_lags = 2                 # a window begins with a history: the last two outputs,
input_lags = 1                  # and the last input. In plan.csv these are the columns T, T[-1] and Q[-1]
# disturbance_bound = 0.1       # what draughts and the like can do to T; this also widens the boxes

[predictor]
held_out = 0.25                 # share of the log used to test the boxes,
held_out_part = "end"           # its last part

[limits]
states = { T = [20.0, 45.0] }
inputs = { Q = [0.0, 100.0] }

[recordings]                    # `rkhs-control run` shows how wide the boxes of the held-out windows are
"""

WITH_DO_MPC = '''\
"""A do-mpc controller with its own model: certify its plans from recorded runs, and filter its inputs.

The model is yours, and wrong by a few percent. The certificates do not rest on it: only on the runs, a bound on
their noise, and a bound on how complex the plant is.
"""

import warnings
from pathlib import Path

import numpy as np

import rkhs_control as rc
from rkhs_control.control.do_mpc import planned_inputs
from rkhs_control.models.cstr import CSTR

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # do-mpc warns about packages that are not needed here
    import do_mpc
warnings.filterwarnings("ignore", category=FutureWarning, module="casadi")

START = np.array([2.0, 1.0])
STEPS = 40


def controller() -> do_mpc.controller.MPC:
    """Set up as do-mpc documents it: a reactor whose cheapest operating point lies on the limit c_A >= 1."""
    model = do_mpc.model.Model("continuous")
    c_A, c_B = model.set_variable("_x", "c_A"), model.set_variable("_x", "c_B")
    u = model.set_variable("_u", "u")
    rate_1, rate_3 = 3.7e-3, 6.3e-4  # per second; the plant's first rate is 11 % higher
    model.set_rhs("c_A", u / 3600.0 * (5.1 - c_A) - rate_1 * c_A - rate_3 * c_A**2)
    model.set_rhs("c_B", -u / 3600.0 * c_B + rate_1 * c_A - rate_1 * c_B)
    model.setup()

    mpc = do_mpc.controller.MPC(model)
    mpc.settings.n_horizon = 3
    mpc.settings.t_step = 30.0
    mpc.settings.store_full_solution = False
    mpc.settings.supress_ipopt_output()
    mpc.set_objective(lterm=(c_A - 1.0) ** 2, mterm=(c_A - 1.0) ** 2)
    mpc.set_rterm(u=1e-4)
    for name, lower, upper in (("c_A", 1.0, 3.0), ("c_B", 0.5, 2.0)):
        mpc.bounds["lower", "_x", name], mpc.bounds["upper", "_x", name] = lower, upper
    mpc.bounds["lower", "_u", "u"], mpc.bounds["upper", "_u", "u"] = 3.0, 25.0
    mpc.setup()
    mpc.x0 = START
    mpc.set_initial_guess()
    return mpc


def plant(state: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """The next state. A simulation stands in for the plant: put yours here."""
    return CSTR().simulate(state, np.reshape(inputs, (1, -1)))[-1]


def followed(policy) -> np.ndarray:
    """The states of a loop, `(STEPS + 1, 2)`."""
    states = [START]
    for _ in range(STEPS):
        states.append(plant(states[-1], policy(states[-1])))
    return np.array(states)


runs = rc.load_trajectories(
    Path(__file__).with_name("runs.csv"), state_names=["c_A", "c_B"], input_names=["u"], noise_bound=0.025
)
limits = rc.Limits(states={"c_A": (1.0, 3.0), "c_B": (0.5, 2.0)}, inputs={"u": (3.0, 25.0)})
predictor = rc.MultiStepPredictor.select(runs, [10.0, 20.0], prior="affine")

# 1. One plan of the controller: is it certified?
for start in (START, np.array([1.3, 1.0])):
    inputs = rc.Box([3.0], [25.0]).clip(planned_inputs(controller(), start))  # solvers overstep by a rounding error
    certificate = rc.certify(predictor, start, inputs, limits)
    print(f"plan from {start.tolist()}: {certificate.explain()}")

# 2. A region where the limits can be kept for ever, and a safety filter that keeps any controller in it.
region = rc.invariant_region(predictor, limits, cells=(8, 6))
print(region)
mpc = controller()
alone = followed(lambda state: mpc.make_step(state.reshape(-1, 1)))
guard = rc.SafetyFilter(controller(), region)
filtered = followed(guard)
for name, states in (("do-mpc alone", alone), ("do-mpc filtered", filtered)):
    broken = int((~rc.Box([1.0, 0.5], [3.0, 2.0]).contains(states)).sum())
    print(f"{name}: {broken} of {STEPS} steps outside the limits, lowest c_A {states[:, 0].min():.3f}")
print({decision.name: count for decision, count in guard.decisions.items()})
assert all(step.is_certified for step in guard.log)
'''
