"""What a study leaves behind: a summary, certificates, the plans, the runs, the predictor, and figures."""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .. import __version__, figures
from ..predictor_files import save_predictor
from ..trajectory_files import Plans, save_plans, save_trajectories
from .closed_loop import LoopRun
from .material import OPTIMAL
from .study import JudgedPlan, StudyResult, phase_pairs

_FIGURES_UP_TO = 12  # plans that get a picture of their own


def summary(result: StudyResult) -> dict[str, Any]:
    """All numbers, for a JSON file; a margin beyond what was looked for is null."""
    envelopes = result.material.predictors[OPTIMAL].envelopes
    content: dict[str, Any] = {
        "title": result.scenario.title,
        "version": __version__,
        "seed": result.work.seed,
        "scenario": json.loads(result.scenario.model_dump_json(exclude_none=True)),
        "runs": len(result.material.runs),
        "held_out_runs_without_contradiction": result.material.n_held_out,
        "assumptions": [
            [{"kernel": e.kernel.to_dict(), "norm_bound": vars(e.norm_bound)} for e in row] for row in envelopes
        ],
        "verdict": None if result.worst_verdict is None else result.worst_verdict.name,
        "plans": [_plan_summary(plan) for plan in result.plans],
        "seconds": result.work.timings,
    }
    if result.check is not None:
        content["check"] = {**vars(result.check), "verdicts": {v.name: n for v, n in result.check.verdicts.items()}}
    if result.region is not None:
        content["region"] = {
            "first": result.region.first.tolist(),
            "second": result.region.second.tolist(),
            "verdicts": {m: [[v.name for v in row] for row in grid] for m, grid in result.region.verdicts.items()},
        }
    if result.loops is not None:
        content["closed_loops"] = {name: [_loop_summary(run) for run in runs] for name, runs in result.loops.items()}
    return content


def write_results(result: StudyResult, folder: Path) -> None:
    """Write everything into a folder, which is made if need be: all of it, or nothing.

    What an earlier run left there under the names used here goes.
    """
    with tempfile.TemporaryDirectory(prefix="rkhs-control-") as private:
        scratch = Path(private) / "results"  # which, unlike the private folder, others may read
        scratch.mkdir()
        _write(result, scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in (
            "phase_*.png",
            "phase_*.svg",
            "time_*.png",
            "time_*.svg",
            "region.*",
            "certificates/plan_*.json",
        ):
            for old in folder.glob(pattern):
                old.unlink()
        shutil.copytree(scratch, folder, dirs_exist_ok=True)


def _write(result: StudyResult, folder: Path) -> None:
    (folder / "summary.json").write_text(json.dumps(summary(result), indent=1, allow_nan=False) + "\n")
    runs = result.material.runs
    save_trajectories(runs, folder / "runs.npz")
    save_predictor(result.material.predictors[OPTIMAL], folder / "predictor.npz")
    if result.plans:
        _write_plans(result, folder)
    _draw(result, folder)


def _write_plans(result: StudyResult, folder: Path) -> None:
    runs = result.material.runs
    questions = [plan.certificates[OPTIMAL].question for plan in result.plans]
    plans = Plans(
        tuple(plan.name for plan in result.plans),
        tuple(question.x0 for question in questions),
        tuple(question.inputs for question in questions),
        runs.state_names,
        runs.input_names,
    )
    save_plans(plans, folder / "plans.csv")
    (folder / "certificates").mkdir()
    for number, plan in enumerate(result.plans, start=1):
        file = folder / "certificates" / f"plan_{number}.json"
        plan.certificates[OPTIMAL].save(file, data_file=result.material.data_file, seed=result.work.seed)


def _plan_summary(plan: JudgedPlan) -> dict[str, Any]:
    question = plan.certificates[OPTIMAL].question
    methods = {}
    for method, certificate in plan.certificates.items():
        tube = certificate.tube
        methods[method] = {
            "verdict": certificate.verdict.name,
            "explanation": certificate.explain(),
            "mean_volume": float(tube.volumes.mean()),
            "margin": _finite(certificate.margin),
            **{name: _finite(value) for name, value in plan.margins.get(method, {}).items()},
            "share_of_width_for_unknown_initial_states": _finite(tube.initial_state_share),
            "lower": tube.lower.tolist(),
            "upper": tube.upper.tolist(),
            "steps_with_truth_inside": plan.steps_inside(method),
        }
    return {
        "name": plan.name,
        "x0": question.x0.tolist(),
        "inputs": question.inputs.tolist(),
        "truth": None if plan.truth is None else plan.truth.tolist(),
        "methods": methods,
    }


def _loop_summary(run: LoopRun) -> dict[str, Any]:
    return {
        "states": run.states.tolist(),
        "inputs": run.inputs.tolist(),
        "inside": run.is_inside.tolist(),
        "decisions": [decision.name for decision in run.decisions],
        "cost": run.cost,
        "seconds": run.seconds.tolist(),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _draw(result: StudyResult, folder: Path) -> None:
    names = result.material.runs.state_names
    if result.loops is not None:
        limits = result.material.limits.state_limits
        trajectories = {name: [run.states for run in runs] for name, runs in result.loops.items()}
        figures.save_figure(figures.loops_figure(trajectories, limits, result.material.runs), folder, "closed_loops")
    if not result.plans:
        return
    shown = result.plans[:_FIGURES_UP_TO]
    by_method = {method: [plan.certificates[method] for plan in shown] for method in result.material.predictors}
    truths = [plan.truth for plan in shown if plan.truth is not None]
    for pair in phase_pairs(result.scenario, names):
        figure = figures.phase_figure(by_method, truths or None, pair)
        file_name = re.sub(r"[^\w.-]+", "_", "_".join(["phase", *(names[i] for i in pair)]))
        figures.save_figure(figure, folder, file_name)
    for number, plan in enumerate(shown, start=1):
        figures.save_figure(figures.time_figure(plan.certificates, plan.truth), folder, f"time_{number}")
    if result.region is not None:
        region = result.region
        labels = [figures.state_label(result.material.runs, state) for state in region.states]
        figure = figures.region_figure(region.first, region.second, region.verdicts, labels)
        figures.save_figure(figure, folder, "region")
