"""The family of exceptions, and the warnings: each says what is wrong and how to fix it."""

from __future__ import annotations


class RkhsControlError(Exception):
    """Anything that this package refuses to do."""


class InputError(RkhsControlError, ValueError):
    """An argument of the wrong shape, type or range."""


class ContradictoryDataError(RkhsControlError, ValueError):
    """Outputs at one input that no single value can explain within the noise bound."""


class FalsifiedNormBoundError(RkhsControlError, ValueError):
    """No function of such a small norm passes through the intervals: the data refute the norm bound."""


class SolverError(RkhsControlError, RuntimeError):
    """An external solver is missing, unlicensed, or did not end with the status `optimal`."""


class UnsettledNormWarning(UserWarning):
    """A norm estimate still grows with the data: the plant has not shown everything yet, or does not fit the kernel."""


class RowOrderWarning(UserWarning):
    """A recording without a clock is read as one run in row order: missing rows cannot be detected."""
