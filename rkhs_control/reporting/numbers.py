"""Numbers as a report prints them: what is said to be certain is never enlarged by rounding."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context

from ..certificates.certificate import LARGEST_FACTOR

NONE = "–"
"""Where there is no number to print."""


def rounded_down(value: float, digits: int = 3) -> str:
    """To so many digits, which are all shown."""
    rounded = float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal_from_float(value))
    return f"{rounded:#.{digits}g}".removesuffix(".")


def margin_text(margin: float) -> str:
    """A distance with its sign, rounded down."""
    if not math.isfinite(margin):
        return "no limits"
    text = rounded_down(margin)
    return text if margin < 0.0 else f"+{text}"


def outside_text(hope: float) -> str:
    """How far outside a whole box is, as a negative distance that claims no more than was proved."""
    return f"-{rounded_down(-hope)}"


def factor_text(factor: float | None) -> str:
    """Rounded down; nothing where it was not looked for, a dash where none would do, or the end of the search."""
    if factor is None:
        return ""
    if factor == 0.0:
        return NONE
    return f"≥{LARGEST_FACTOR:g}" if math.isinf(factor) else rounded_down(factor)
