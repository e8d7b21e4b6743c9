"""Numbers for people to read: a guaranteed number is never enlarged by rounding."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

NONE = "–"
"""Where there is no number to print."""


def rounded_down(value: float, digits: int = 3) -> str:
    """To the given number of digits, all shown; never above the number."""
    return _rounded(value, digits, ROUND_FLOOR)


def rounded_up(value: float, digits: int = 3) -> str:
    """To the given number of digits, all shown; never below the number."""
    return _rounded(value, digits, ROUND_CEILING)


def _rounded(value: float, digits: int, rounding: str) -> str:
    rounded = float(Context(prec=digits, rounding=rounding).create_decimal_from_float(value))
    return f"{rounded + 0.0:#.{digits}g}".removesuffix(".")  # plus zero: no sign where there is none


def margin_text(margin: float) -> str:
    """A distance with its sign, rounded down; infinite where there is no limit."""
    if margin == math.inf:
        return "no limits"
    text = rounded_down(margin)
    return text if margin < 0.0 else f"+{text}"


def outside_text(hope: float) -> str:
    """How far outside a whole box is, as a negative distance that claims no more than was proved."""
    return f"-{rounded_down(-hope)}"
