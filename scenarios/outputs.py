"""What a study leaves behind: a report, a summary, certificates, the plans, the runs, the predictor, and figures."""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .. import __version__
from ..data.files import Plans, save_plans, save_trajectories
from ..prediction.files import save_predictor
from ..reporting import figures
from .closed_loop import LoopRun
from .design import DesignResult
from .material import OPTIMAL
from .region import Region, phase_pairs
from .sampling import SamplingResult
from .study import JudgedPlan, StudyResult
from .study_report import study_report

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
        "runs_are_windows": result.material.runs.is_windowed,
        "held_out_runs_without_contradiction": result.material.n_held_out,
        "windows_left_out": result.material.n_left_out,
        "initial_state_noise": {
            "of_recorded_states": result.material.runs.initial_state_noise.tolist(),
            "of_plans": result.material.start_noise(result.scenario).tolist(),
        },
        "assumptions": [
            [{"kernel": e.kernel.to_dict(), "norm_bound": vars(e.norm_bound)} for e in row] for row in envelopes
        ],
        "norm_estimates_in_doubt": result.material.doubt,
        "verdict": None if result.worst_verdict is None else result.worst_verdict.name,
        "plans": [_plan_summary(plan) for plan in result.plans],
        "seconds": result.work.timings,
    }
    if result.check is not None:
        content["check"] = {**vars(result.check), "verdicts": {v.name: n for v, n in result.check.verdicts.items()}}
    if result.region is not None:
        content["region"] = _region_summary(result.region)
    if result.loops is not None:
        content["closed_loops"] = {name: [_loop_summary(run) for run in runs] for name, runs in result.loops.items()}
    if result.design is not None:
        content["design"] = _design_summary(result.design)
    if result.sampling is not None:
        content["sampling"] = _sampling_summary(result.sampling)
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
            "certificates/limit_*.json",
            "certificates/sampling.json",
            "experiments.csv",
            "runs_with_experiments.npz",
            "sampling.*",
            "design_*",
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
    if result.design is not None:
        for number, trial in enumerate(result.design.trials, start=1):
            (folder / "certificates").mkdir(exist_ok=True)
            trial.plan.certificate.save(folder / "certificates" / f"limit_{number}.json", seed=result.work.seed)
    if result.sampling is not None:
        _write_sampling(result, result.sampling, folder)
    _draw(result, folder)
    study_report(result).write(folder / "report.html")


def _write_sampling(result: StudyResult, sampling: SamplingResult, folder: Path) -> None:
    """The last certificate, the runs it rests on, and the experiments in the order they were run."""
    (folder / "certificates").mkdir(exist_ok=True)
    sampling.last.save(folder / "certificates" / "sampling.json", seed=result.work.seed)
    save_trajectories(sampling.last.predictor.runs, folder / "runs_with_experiments.npz")
    experiments = [experiment for each in sampling.rounds for experiment in each.experiments]
    if experiments:
        plans = Plans(
            tuple(f"experiment {number}" for number in range(1, len(experiments) + 1)),
            tuple(experiment.x0 for experiment in experiments),
            tuple(experiment.inputs for experiment in experiments),
            result.material.runs.state_names,
            result.material.runs.input_names,
        )
        save_plans(plans, folder / "experiments.csv")


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


def _design_summary(design: DesignResult) -> dict[str, Any]:
    return {
        "half_widths": {
            "mean": design.half_widths.mean(axis=0).tolist(),
            "largest": design.half_widths.max(axis=0).tolist(),
        },
        "tightening": {"below": design.tightening.below.tolist(), "above": design.tightening.above.tolist()},
        "region": _region_summary(design.region),
        "robust_region_contains_the_other": design.is_nested,
        "certified_plans_that_violate_a_limit": design.n_wrong,
        "effects": [vars(effect) for effect in design.effects],
        "limit": [
            {
                "limit": trial.limit,
                **{
                    name: {
                        "verdict": found.verdict.name,
                        "margin": found.margin,
                        "inputs": found.question.inputs.tolist(),
                    }
                    for name, found in (("certainty_equivalent", trial.believing), ("robust", trial.plan.certificate))
                },
                "price": _finite(trial.plan.price),
                "plans_tried": trial.plan.iterations,
                "seconds": trial.seconds,
            }
            for trial in design.trials
        ],
    }


def _region_summary(region: Region) -> dict[str, Any]:
    return {
        "first": region.first.tolist(),
        "second": region.second.tolist(),
        "verdicts": {name: [[v.name for v in row] for row in grid] for name, grid in region.verdicts.items()},
    }


def _sampling_summary(sampling: SamplingResult) -> dict[str, Any]:
    baselines = sampling.baselines.items()
    return {
        "x0": sampling.first.question.x0.tolist(),
        "inputs": sampling.first.question.inputs.tolist(),
        "truth": sampling.truth.tolist(),
        "ending": sampling.ending,
        "rounds": [
            {
                "experiments": [
                    {
                        "x0": experiment.x0.tolist(),
                        "inputs": experiment.inputs.tolist(),
                        "expected_gain": experiment.gain,
                        "is_certified": experiment.is_certified,
                    }
                    for experiment in each.experiments
                ],
                "verdict": each.certificate.verdict.name,
                "explanation": each.certificate.explain(),
                "margin": _finite(each.certificate.margin),
                "margin_by_other_choices": {name: _finite(found[number].margin) for name, found in baselines},
            }
            for number, each in enumerate(sampling.rounds)
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _draw(result: StudyResult, folder: Path) -> None:
    names = result.material.runs.state_names
    if result.loops is not None:
        limits = result.material.limits.state_limits
        trajectories = {name: [run.states for run in runs] for name, runs in result.loops.items()}
        figures.save_figure(figures.loops_figure(trajectories, limits, result.material.runs), folder, "closed_loops")
    if result.sampling is not None:
        figures.save_figure(result.sampling.figure(), folder, "sampling")
    if result.design is not None:
        for name, figure in result.design.figures(result.material.runs).items():
            figures.save_figure(figure, folder, name)
    if not result.plans:
        return
    shown = result.plans[:_FIGURES_UP_TO]
    by_method = {method: [plan.certificates[method] for plan in shown] for method in result.material.predictors}
    truths = [plan.truth for plan in shown if plan.truth is not None]
    for pair in phase_pairs(result.scenario, names):
        figure = figures.phase_figure(by_method, truths or None, pair, [plan.name for plan in shown])
        file_name = re.sub(r"[^\w.-]+", "_", "_".join(["phase", *(names[i] for i in pair)]))
        figures.save_figure(figure, folder, file_name)
    for number, plan in enumerate(shown, start=1):
        figures.save_figure(figures.time_figure(plan.certificates, plan.truth), folder, f"time_{number}")
    if result.region is not None:
        figures.save_figure(result.region.figure(result.material.runs), folder, "region")
