"""The report of some certificates: what they say, what that rests on, and how to check it, as one HTML file."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from .. import __version__
from ..arithmetic.printing import NONE, margin_text, outside_text
from ..certificates.certificate import Certificate, Verdict, factor_text
from ..envelopes.methods import method_name
from ..errors import InputError
from ..prediction.predictor import MultiStepPredictor
from .assumptions import assumptions_section
from .inputs import inputs_section
from .page import Block, Headline, Page, Section, Table
from .plans import changes_section, margins_section, plans_section, proofs_section, tubes_section
from .reported import REMARKS_UP_TO, ReportedPlan, deciding_distances, deciding_entry, deciding_state, explanation
from .text import symbols_in
from .widths import widths_section

_MARGINS_UP_TO = 40  # plans whose norm and noise margins are computed

_MEANING = {
    Verdict.CERTIFIED: (
        "At every sampling instant {of_the_plan}, the whole box that contains the true state is within the limits: the "
        "plant keeps them, if the assumptions below hold."
    ),
    Verdict.UNDECIDED: (
        "Some box is partly outside the limits: the bounds prove neither that the plant keeps them nor that it "
        "breaks them. This does not predict a violation. The boxes are right if the assumptions below hold."
    ),
    Verdict.REFUTED: (
        "Some box is wholly outside the limits, or the inputs break their own limits: the plan will not keep "
        "them, if the assumptions below hold."
    ),
}
_NOT_MEANT = (
    "It says nothing about times between sampling instants, plants other than the recorded one, or whether "
    "the assumptions are true: data can refute them, never confirm them."
)


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of a report; `page` puts them in order."""

    title: str
    predictor: MultiStepPredictor
    plans: Sequence[ReportedPlan] = ()
    description: str = ""
    sections: Sequence[Section] = ()
    """Further ones, after what is said of the plans and their assumptions; where there are no plans, they are first."""
    contradiction: str = ""
    """Evidence that an assumption is wrong, if any: no verdict is placed above it."""
    findings: str = ""
    """The findings in a sentence, where there are no plans."""
    phase_states: Sequence[tuple[int, int]] | None = None
    """Pairs of states for phase portraits; by default the first two."""
    data_file: str | None = None
    """Where the runs are, as seen from the folder of the report."""
    facts: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage of the work."""
    n_held_out: int = 0
    """Held-out runs, not used by the predictor, that do not contradict it."""
    n_left_out: int = 0
    """Windows not used at all, because they share samples with held-out ones."""
    doubt: str = ""
    """What makes an assumption doubtful, if anything."""
    explorer: str = ""
    """Where the explorer is, as seen from the folder of the report, if there is one."""
    date: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        names = self.predictor.runs.state_names
        for plan in self.plans:
            other = plan.certificate.predictor.runs.state_names
            if other != names:
                raise InputError(
                    f"plan {plan.name} is about the states {', '.join(other)}, the report about {', '.join(names)}: "
                    "write a report for each plant"
                )

    @property
    def deciding(self) -> ReportedPlan | None:
        """The plan with the worst verdict; among several, the one with the smallest deciding distance."""
        order = list(Verdict)

        def badness(plan: ReportedPlan) -> tuple[int, float]:
            certificate = plan.certificate
            return -order.index(certificate.verdict), float(deciding_distances(certificate).min(initial=np.inf))

        return min(self.plans, key=badness, default=None)

    def page(self) -> Page:
        """The report as sections, the verdict first."""
        plan = self.deciding
        predictor = self.predictor if plan is None else plan.certificate.predictor
        assumptions, making = _assumptions(predictor, plan), self._making(predictor)
        if plan is None:
            sections = [*self.sections, assumptions, making]
        else:
            changes, proofs = changes_section(plan, self.plans), proofs_section(self.plans, self.data_file)
            sections = [*self._about_plans(plan), assumptions, changes, *self.sections, making, proofs]
        return Page(
            self.title,
            self._headline(plan, predictor),
            sections,
            description=self.description,
            warnings=[*([f"{self.doubt[0].upper()}{self.doubt[1:]}."] if self.doubt else []), *_remarks(self.plans)],
            footer=f"Written by rkhs_control {__version__}, {self._when}.",
            date=self._when,
            symbols=symbols_in([*predictor.runs.state_names, *predictor.runs.input_names]),
            explorer=self.explorer,
        )

    @property
    def _when(self) -> str:
        return f"{self.date.day} {self.date:%B %Y, %H:%M %Z}"

    def write(self, file: str | Path) -> None:
        """The page, as an HTML file."""
        self.page().write(file)

    def _headline(self, plan: ReportedPlan | None, predictor: MultiStepPredictor) -> Headline:
        recorded = f"recorded {predictor.runs.kind}"
        roles = f"{recorded} make the boxes, {self.n_held_out:,} held out test them"
        runs = (f"{len(predictor.runs):,}", roles if self.n_held_out else recorded)
        if self.contradiction:
            consequence = "Every certificate mentioned below rests on assumptions that do not hold."
            return Headline("CONTRADICTED", "refuted", self.contradiction, paragraphs=(consequence,), numbers=(runs,))
        if plan is None:
            return Headline("Findings", "plain", self.findings or "No plan was judged.", numbers=(runs,))
        return _verdict_headline(plan, self.plans, runs)

    def _about_plans(self, deciding: ReportedPlan) -> Iterator[Section]:
        yield plans_section(self.plans)
        yield inputs_section(self.plans, deciding)
        yield tubes_section(self.plans, deciding, self.phase_states)
        if deciding.certificate.margins.size:
            yield margins_section(deciding, len(self.plans))
        yield widths_section(deciding)

    def _making(self, predictor: MultiStepPredictor) -> Section:
        runs = predictor.runs
        length = f"{runs.horizon} step{'s' if runs.horizon > 1 else ''}"
        if runs.sampling_time != 1.0:  # which is also what stands for an unknown one
            length += f", {runs.sampling_time:g} s each"
        held_out = f"; {self.n_held_out:,} more were held out" if self.n_held_out else ""
        if self.n_left_out:
            held_out += f", and {self.n_left_out:,} that share samples with these were left out"
        rows = [
            (f"recorded {runs.kind}", f"{len(runs):,} of {length}{held_out}"),
            ("SHA-256 of states and inputs", runs.sha256),
            *self.facts.items(),
            ("report written", self._when),
            ("rkhs_control", __version__),
            ("Python", platform.python_version()),
            *((name, version(name)) for name in ("numpy", "scipy", "numba")),
        ]
        blocks: list[Block] = [Table(("", ""), rows)]
        if self.seconds:
            timed = [(stage, f"{seconds:.2f}") for stage, seconds in self.seconds.items()]
            total = ("together", f"{sum(self.seconds.values()):.2f}")
            blocks.append(Table(("stage", "seconds"), [*timed, total]))
        return Section("Data, versions, timings", blocks)


def write_report(
    file: str | Path,
    certificates: Certificate | Sequence[Certificate] | Mapping[str, Certificate],
    *,
    title: str = "Certified plans",
    description: str = "",
    sections: Sequence[Section] = (),
    certificate_files: Sequence[str | Path] = (),
    data_file: str | Path | None = None,
) -> None:
    """Write a report on one certificate, several, or several by name.

    `sections` are further ones of your own. `certificate_files`, in the order of the certificates, and `data_file` say
    where those were saved: the report tells its readers how to check them. Norm and noise margins, which take longer
    than verdicts, are looked for of up to 40 plans.
    """
    if isinstance(certificates, Certificate):
        certificates = [certificates]
    if not isinstance(certificates, Mapping):
        certificates = {str(number): certificate for number, certificate in enumerate(certificates, start=1)}
    if not certificates:
        raise InputError("a report needs at least one certificate")
    if certificate_files and len(certificate_files) != len(certificates):
        raise InputError(f"{len(certificates)} certificates need as many files; got {len(certificate_files)}")
    files: list[str | None] = [str(f) for f in certificate_files] or [None] * len(certificates)
    plans = []
    for (name, certificate), certificate_file in zip(certificates.items(), files, strict=True):
        method, margins = method_name(certificate.predictor.method).replace("_", " "), {}
        if len(certificates) <= _MARGINS_UP_TO:
            margins = {method: {"norm_margin": certificate.norm_margin, "noise_margin": certificate.noise_margin}}
        plans.append(ReportedPlan(name, {method: certificate}, margins, file=certificate_file))
    source = None if data_file is None else str(data_file)
    report = Report(
        title, plans[0].certificate.predictor, plans, description=description, sections=sections, data_file=source
    )
    report.write(file)


def _verdict_headline(plan: ReportedPlan, plans: Sequence[ReportedPlan], runs: tuple[str, str]) -> Headline:
    certificate = plan.certificate
    verdict, margins = certificate.verdict, plan.margins.get(plan.method, {})
    numbers = []
    if verdict is not Verdict.REFUTED:
        numbers.append((margin_text(certificate.margin), f"smallest distance to a limit{_in_unit(certificate)}"))
        numbers += [_margin_number(name, margins[f"{name}_margin"], verdict) for name in ("norm", "noise") if margins]
    elif certificate.input_violation is None:
        numbers.append(
            (
                outside_text(float(certificate.hopes.min())),
                f"a whole box is this far outside a limit{_in_unit(certificate)}",
            )
        )
    if len(plans) == 1:
        sentence = _sentence(certificate)
    else:
        verdicts = [p.certificate.verdict for p in plans]
        counts = [f"{verdicts.count(v)} {v.name.lower()}" for v in Verdict if v in verdicts]
        which = "nearest to a limit" if verdict is Verdict.CERTIFIED else "worst"
        sentence = f"{len(plans)} plans: {', '.join(counts)}. The {which} is plan {plan.name}: "
        sentence += explanation(certificate).partition(": ")[2]
    start_inside = all(p.certificate.starts_inside for p in plans)
    meaning = _MEANING[verdict].format(of_the_plan="of the plan" if start_inside else "after the first")
    if len(plans) == 1 and not start_inside:
        starts = "may start" if np.any(certificate.question.initial_state_noise) else "starts"
        sentence += f". The plan {starts} outside the limits"
    return Headline(
        word=verdict.name,
        tone=verdict.name.lower(),
        sentence=sentence,
        paragraphs=(meaning, _NOT_MEANT),
        numbers=(*numbers, runs),
    )


def _in_unit(certificate: Certificate) -> str:
    state = deciding_state(certificate) if certificate.margins.size else None
    unit = "" if state is None else certificate.predictor.runs.state_units[state]
    return f", in {unit}" if unit else ""


def _margin_number(name: str, margin: float, verdict: Verdict) -> tuple[str, str]:
    if margin > 0.0:
        may = "may grow to this" if verdict is Verdict.CERTIFIED else "would have to shrink to this"
        return f"{factor_text(margin)}×", f"all {name} bounds {may}"
    return NONE, f"no smaller {name} bound that fits the data would certify it"


def _sentence(certificate: Certificate) -> str:
    """Without the verdict, which is shown above it."""
    text = explanation(certificate).partition(": ")[2]
    return text if certificate.input_violation is not None else text[0].upper() + text[1:]


def _remarks(plans: Sequence[ReportedPlan]) -> Iterator[str]:
    outside = [plan.name for plan in plans if not plan.certificate.starts_inside]
    if outside:
        named = ", ".join(outside[:REMARKS_UP_TO]) + (", ..." if len(outside) > REMARKS_UP_TO else "")
        verdict = "The verdict is about the steps after that, and does not say that the limits are kept at first."
        plural = "s" if len(outside) > 1 else ""
        yield f"Outside the limits at the start, or not certainly inside: plan{plural} {named}. {verdict}"
    if not all(plan.certificate.predictor.method.is_certain for plan in plans):
        yield "Boxes of a Gaussian process hold with some probability, not for certain: they certify nothing."


def _assumptions(predictor: MultiStepPredictor, plan: ReportedPlan | None) -> Section:
    start = None if plan is None else plan.certificate.question.initial_state_noise
    if plan is None or not plan.certificate.margins.size:
        return assumptions_section(predictor, predictor.horizon - 1, 0, why="the last one", start_noise=start)
    certificate = plan.certificate
    step, constraint = deciding_entry(certificate)
    normal, widths = certificate.limits.polytope.normals[constraint], certificate.tube.upper - certificate.tube.lower
    state = int(np.argmax(np.abs(normal) * widths[step]))
    limit = certificate.constraint_names[constraint]
    why = f"where the verdict on plan {plan.name} hangs on {limit}"
    if certificate.input_violation is not None:
        why = f"where plan {plan.name} is worst, at {limit}"
    return assumptions_section(predictor, step, state, why=why, start_noise=start)
