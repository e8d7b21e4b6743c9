"""Ball arithmetic by python-flint, for the few numbers that even double-doubles lose.

The module itself is what a kernel's `profile` computes with when its argument is a ball: `exp`, `sqrt`, `log1p`.
python-flint is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .rounding import down, up

Ball = Any
"""A `flint.arb`: a midpoint, and a radius that is never too small."""


def exp(x: Ball) -> Ball:
    """`e^x`."""
    return x.exp()


def sqrt(x: Ball) -> Ball:
    """The square root of `x`."""
    return x.sqrt()


def log1p(x: Ball) -> Ball:
    """`ln(1 + x)`."""
    return x.log1p()


def ball(x: float) -> Ball:
    """A double, exactly."""
    from flint import arb

    return arb(float(x))


def column(entries: list[Ball]) -> Any:
    """A matrix of one column."""
    from flint import arb_mat

    return arb_mat(len(entries), 1, entries)


def square(rows: list[list[Ball]]) -> Any:
    """A matrix of as many columns as rows."""
    from flint import arb_mat

    return arb_mat(rows)


@contextmanager
def bits(n: int) -> Iterator[None]:
    """How many bits midpoints carry inside the block."""
    from flint import ctx

    before, ctx.prec = ctx.prec, n
    try:
        yield
    finally:
        ctx.prec = before


def middle(x: Ball) -> float:
    """The midpoint, to the nearest double."""
    return float(x.mid())


def radius(x: Ball) -> float:
    """The radius, to the nearest double."""
    return float(x.rad())


def float_down(x: Ball) -> float:
    """A double that no number in the ball is below."""
    return down(float(x.lower()))


def float_up(x: Ball) -> float:
    """A double that no number in the ball is above."""
    return up(float(x.upper()))
