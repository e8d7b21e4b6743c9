"""The explorer: one HTML file in which limits can be moved and verdicts follow; it needs nothing else."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..certificates.certificate import Certificate
from ..certificates.region import InvariantRegion
from ..data.arrays import FloatArray
from ..errors import InputError
from .explored import Content, content_of
from .page import rendered

_SCRIPTS = ("explorer_exact.js", "explorer_plots.js", "explorer_region.js", "explorer.js")
_FRAME_HEIGHT = 900  # CSS pixels, in a notebook


@dataclass(frozen=True, eq=False)
class Explorer:
    """What `explore` returns: notebooks show it, `save` writes it to a file."""

    content: Content

    def html(self) -> str:
        """One file, whose policy allows its own script and style, by their hashes, and nothing else."""
        from markupsafe import Markup

        folder = files(__package__) / "templates"
        script = "\n".join(['"use strict";', *((folder / name).read_text(encoding="utf-8") for name in _SCRIPTS)])
        style = (folder / "explorer.css").read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )
        data = json.dumps(_finite(self.content), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        return rendered(
            "explorer.html.j2",
            title=self.content["title"],
            policy=Markup(policy),
            script=Markup(script),
            style=Markup(style),
            data=Markup(data),
        )

    def save(self, file: str | Path) -> Path:
        """Write it, and return where."""
        path = Path(file)
        path.write_text(self.html(), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        """What is in it."""
        n_plans, region = len(self.content["plans"]), self.content["region"]
        cells = "" if region is None else f", a region of {region['count']} cells"
        return f"Explorer({n_plans} plan{'s'[: n_plans != 1]}{cells})"

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, which may run its script and nothing else."""
        return (
            f'<iframe sandbox="allow-scripts" width="100%" height="{_FRAME_HEIGHT}" title="Explorer" '
            f'srcdoc="{escape(self.html())}"></iframe>'
        )


def explore(
    shown: Certificate | Sequence[Certificate] | Mapping[str, Certificate] | InvariantRegion,
    *,
    region: InvariantRegion | None = None,
    truths: Mapping[str, FloatArray] | None = None,
    title: str = "Explorer",
    n_jobs: int | None = None,
) -> Explorer:
    """A page in which limits can be moved, with the verdicts that `certify` would give.

    `shown` is one certificate, some, or some by name (the first 12 are taken), or a region; `region` is one to show
    beside certificates. The boxes are computed once, for five factors on the norm bounds and five on the noise bounds;
    `n_jobs` processes share that. `truths` are true states `(n_steps + 1, n_states)` by the name of a plan.
    """
    if isinstance(shown, InvariantRegion):
        if region is not None:
            raise InputError("explore takes one region: give certificates and region=..., or a region alone")
        return Explorer(content_of({}, shown, {}, title, n_jobs))
    if isinstance(shown, Certificate):
        shown = [shown]
    if not isinstance(shown, Mapping):
        shown = {str(number): certificate for number, certificate in enumerate(shown, start=1)}
    return Explorer(content_of(shown, region, truths or {}, title, n_jobs))


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()


def _finite(value: Any) -> Any:
    """JSON knows no infinity: a sign stands for it. All other numbers are written so that they read back the same."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value)
    return value
