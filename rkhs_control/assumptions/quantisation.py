"""The quantisation step of recorded values: the largest step that nearly all differences are multiples of."""

from __future__ import annotations

import numpy as np

from ..data.arrays import FloatArray

_SAME = 1e-9
"""Values closer to each other than this share of the largest come from the same reading."""
_OFF = 0.1
"""Rounding to decimals may change a difference by this share of a step."""
_UNSURE = 0.25
"""Differences further than this from a multiple of a roughly known step do not count towards it."""
_AGREEING = 0.99
"""The share of the differences that must be multiples of a step."""
_SMALLEST_GAPS, _DIVISORS = 5, 4
"""The step is searched among this many of the smallest differences, and their halves, thirds, ..."""
_FEW = 8
"""Fewer differences than this may agree by chance, unless values repeat."""


def quantisation_step(values: FloatArray) -> float:
    """The quantisation step of the values; 0.0 where none is found.

    Distinct values are sorted; all gaps between neighbours are multiples of the step, up to what printing decimals may
    have lost. A step that is right for small gaps is then refined by their sum, the range of the values, which contains
    so many steps that rounding hardly matters. A step much finer than the gaps is not found; it is small compared with
    whatever else moves the values.
    """
    distinct = np.unique(values)
    gaps = np.diff(distinct)
    gaps = gaps[gaps > _SAME * np.abs(distinct).max(initial=0.0)]
    repeats = len(gaps) + 1 <= len(values) // 2
    if len(gaps) < 2 or not (repeats or len(gaps) >= _FEW):
        return 0.0
    smallest = np.sort(gaps)[:_SMALLEST_GAPS]
    for candidate in sorted({gap / d for gap in smallest.tolist() for d in range(1, _DIVISORS + 1)}, reverse=True):
        step = _refined(gaps, candidate)
        counts = np.round(gaps / step)
        if np.mean((counts >= 1.0) & (np.abs(gaps - counts * step) <= _OFF * step)) >= _AGREEING:
            return step
    return 0.0


def _refined(gaps: FloatArray, step: float) -> float:
    """Refine the step with longer and longer gaps, each short enough for the previous estimate to count its steps."""
    for longest in (4.0, 16.0, 64.0, np.inf):
        counts = np.round(gaps / step)
        known = (counts >= 1.0) & (counts <= longest) & (np.abs(gaps / step - counts) <= _UNSURE)
        if known.any():
            step = float(gaps[known].sum() / counts[known].sum())
    return step
