"""What a study leaves behind: a report, an explorer, a summary, certificates, plans, runs, the predictor, figures."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import __version__
from ..data.files import save_trajectories
from ..errors import InputError
from ..prediction.files import save_predictor
from ..reporting import Report, figures
from ..reporting.explorer import Explorer, explore
from .material import OPTIMAL
from .run import StudyResult
from .schema import builtin_scenarios
from .studies import kinds
from .studies.forever import ForeverOutcome
from .studies.plans import PlansOutcome

_OWNER = ".scenario"
"""File in a results folder with the scenario they belong to: a relative path, or the name of a built-in one."""

_BUILT_IN = "the built-in"

EXPLORER = "explorer.html"


def summary(result: StudyResult) -> dict[str, Any]:
    """All numbers, for a JSON file; a margin beyond the searched range is null."""
    material = result.material
    plans = result.find(PlansOutcome)
    return {
        "title": result.scenario.title,
        "version": __version__,
        "seed": result.work.seed,
        "scenario": json.loads(result.scenario.model_dump_json(exclude_none=True)),
        "runs": len(material.runs),
        "runs_are_windows": material.runs.is_windowed,
        "held_out_runs_without_contradiction": material.n_held_out,
        "windows_left_out": material.n_left_out,
        "initial_state_noise": {
            "of_recorded_states": material.runs.initial_state_noise.tolist(),
            "of_plans": material.start_noise(result.scenario).tolist(),
        },
        "assumptions": material.assumptions(),
        "norm_estimates_in_doubt": material.doubt,
        "verdict": None if result.worst_verdict is None else result.worst_verdict.name,
        "plans": [] if plans is None else plans.summary(),
        "seconds": result.work.timings,
        **{outcome.name: outcome.summary() for outcome in result.outcomes if outcome is not plans},
    }


def explorer(result: StudyResult) -> Explorer | None:
    """Of the plans and the region for ever that were found; none where there is neither."""
    plans, forever = result.find(PlansOutcome), result.find(ForeverOutcome)
    if plans is None and forever is None:
        return None
    judged = [] if plans is None else plans.plans
    count = Counter(plan.name for plan in judged)
    named = {p.name if count[p.name] == 1 else f"{p.name} (plan {k})": p for k, p in enumerate(judged, start=1)}
    return explore(
        {name: plan.certificates[OPTIMAL] for name, plan in named.items()},
        region=None if forever is None else forever.region,
        truths={name: plan.truth for name, plan in named.items() if plan.truth is not None},
        title=result.scenario.title,
        n_jobs=result.work.n_jobs,
    )


def report(result: StudyResult, *, has_explorer: bool = False) -> Report:
    """The plans, and the sections of everything else that was looked into."""
    material, plans = result.material, result.find(PlansOutcome)
    facts = {"seed": str(result.work.seed)}
    if material.data_file is not None:
        digest = sha256(material.data_file.read_bytes()).hexdigest()
        facts["recordings"] = f"{material.data_file.name}, SHA-256 {digest}"
    if material.n_held_out:
        facts[f"held-out {material.runs.kind} that do not contradict the assumptions"] = str(material.n_held_out)
    return Report(
        result.scenario.title,
        material.predictors[OPTIMAL],
        plans=[] if plans is None else plans.reported(),
        description=result.scenario.description,
        sections=[section for outcome in result.outcomes for section in outcome.sections()],
        contradiction=next((text for outcome in result.outcomes if (text := outcome.contradiction)), ""),
        findings=" ".join(filter(None, (outcome.finding() for outcome in result.outcomes))),
        phase_states=None if plans is None else plans.phase_pairs,
        data_file="runs.npz",
        facts=facts,
        seconds=result.work.timings,
        n_held_out=material.n_held_out,
        n_left_out=material.n_left_out,
        doubt=material.doubt,
        explorer=EXPLORER if has_explorer else "",
    )


def write_results(result: StudyResult, folder: Path) -> None:
    """Write everything into a folder, which is made if need be: all of it, or nothing.

    Files of an earlier run with the names used here are removed.
    """
    with tempfile.TemporaryDirectory(prefix="rkhs-control-") as private:
        scratch = Path(private) / "results"  # which, unlike the private folder, others may read
        scratch.mkdir()
        _write(result, scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in (EXPLORER, *(pattern for kind in kinds() for pattern in kind.files)):
            for old in folder.glob(pattern):
                old.unlink()
        shutil.copytree(scratch, folder, dirs_exist_ok=True)


def _write(result: StudyResult, folder: Path) -> None:
    (folder / "summary.json").write_text(json.dumps(summary(result), indent=1, allow_nan=False) + "\n")
    save_trajectories(result.material.runs, folder / "runs.npz")
    save_predictor(result.material.predictors[OPTIMAL], folder / "predictor.npz")
    for outcome in result.outcomes:
        outcome.write(folder)
        for name, figure in outcome.figures().items():
            figures.save_figure(figure, folder, name)
    page = explorer(result)
    if page is not None:
        page.save(folder / EXPLORER)
    report(result, has_explorer=page is not None).write(folder / "report.html")


@dataclass(frozen=True)
class ResultFolder:
    """Where the results of a scenario go, and which scenario's results are already there."""

    folder: Path
    scenario: str
    """A built-in name, or a file."""

    @classmethod
    def of(cls, scenario: str, out: Path | None = None) -> ResultFolder:
        """Named after the built-in scenario or the file; for a file called scenario.toml, after its folder.

        What could not be written after a long run, or would replace another scenario's results, is refused; into a
        folder that was chosen, `out`, it is written all the same.
        """
        file = Path(scenario)
        name = (
            file.resolve().parent.name if file.name == "scenario.toml" and scenario not in builtin_scenarios() else ""
        )
        found = cls(Path("results") / (name or file.stem) if out is None else out, scenario)
        nearest = next(path for path in (found.folder, *found.folder.resolve().parents) if path.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise InputError(
                f"results cannot be written to {found.folder}: {nearest} is not a folder that can be written to"
            )
        if out is None and found.other_owner:
            raise InputError(
                f"{found.folder} has the results of {found.other_owner}, which would be lost: choose another folder "
                "with --out, or remove this one"
            )
        return found

    @property
    def owner(self) -> str:
        """The name of this scenario in its results."""
        if not Path(self.scenario).is_file() or self.scenario in builtin_scenarios():
            return f"{_BUILT_IN} {self.scenario}"
        try:
            return Path(os.path.relpath(Path(self.scenario).resolve(), self.folder.resolve())).as_posix()
        except ValueError:  # on another drive
            return Path(self.scenario).resolve().as_posix()

    @property
    def other_owner(self) -> str:
        """The scenario whose results are there, if it is another one."""
        try:
            there = (self.folder / _OWNER).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        if there == self.owner or there.startswith(_BUILT_IN):
            return "" if there == self.owner else there
        return os.path.normpath(self.folder / there)

    def claim(self) -> None:
        """Record which scenario these results belong to, once they are written."""
        (self.folder / _OWNER).write_text(self.owner + "\n", encoding="utf-8")
