"""The paper's experiments, one module each: our numbers beside the printed ones, and why they differ."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..material import Work
from .result import PaperResult

STUDIES = {
    "henon": "Example 1: surfaces of the optimal bounds, and both kinds of bands on a slice.",
    "tables": "Tables I and II: average widths of optimal, closed-form and Gaussian-process bounds.",
    "frontier": "Figures 1 and 6: how narrow the bounds get, and which norm and noise bounds the data refute.",
    "alternating": "Algorithm 1: alternating bounds against the exact optimum, turn by turn.",
    "rto": "Example 2: optimisation under a constraint known only through samples.",
}
"""Name and description; the module with that name has `run(work)`."""

RUN_SECONDS = {"henon": 20.0, "tables": 240.0, "frontier": 5.0, "alternating": 18.0, "rto": 60.0}
"""Rough measured time of each on two cores, in seconds."""


def paper_study(name: str) -> Callable[[Work], PaperResult]:
    """The function that runs one of `STUDIES`."""
    study: Callable[[Work], PaperResult] = import_module(f".{name}", __package__).run
    return study
