"""The one family of exceptions, and the warnings: each names what is wrong and what would mend it."""

from __future__ import annotations


class RkhsControlError(Exception):
    """Anything that this package refuses to do."""


class InputError(RkhsControlError, ValueError):
    """An argument of the wrong shape, type or range."""


class ContradictoryDataError(RkhsControlError, ValueError):
    """Outputs at one input that no single value can explain under the noise bound."""


class FalsifiedNormBoundError(RkhsControlError, ValueError):
    """No function of so small a norm passes through the intervals: the data refute the norm bound."""


class SolverError(RkhsControlError, RuntimeError):
    """An external solver is missing, unlicensed, or did not end with the status `optimal`."""


class UnsettledNormWarning(UserWarning):
    """A norm estimate still grows with the data: the plant has not shown all that it does, or fits no such kernel."""


class RowOrderWarning(UserWarning):
    """A recording without a clock is read as one run in the order of its rows: nothing tells whether some are lost."""
