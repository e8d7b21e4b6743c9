"""Checks of array arguments, with messages that name the argument, the row and the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from ..errors import InputError

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

LARGEST = 1e50
"""Numbers beyond this are refused: products of a few of them could overflow."""

SMALLEST = 1.0 / LARGEST
"""Multipliers (lengthscales, factors and variances of kernels, coefficients of functionals) are refused below this:
products of a few could underflow, and bounds on their rounding errors with them."""


def as_points(points: npt.ArrayLike, name: str, n_dims: int | None = None) -> FloatArray:
    """`points` as a finite array `(n_points, n_dims)`; a flat one is read as one dimension.

    Where `n_dims` is known and greater than one, a flat array of that length is one point.
    Negative zeros become zeros, so that equal points have equal bits.
    """
    array = as_floats(points, name)
    if array.ndim == 1:
        array = array[None, :] if n_dims is not None and n_dims > 1 else array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"{name} must have shape (n_points, n_dims), one row per point; got {array.shape}")
    if n_dims is not None and array.shape[1] != n_dims:
        raise InputError(f"{name} must have {n_dims} columns, like the data; got {array.shape[1]}")
    require_finite(array, name)
    return np.ascontiguousarray(array + 0.0)


def as_vector(values: npt.ArrayLike, name: str, size: int | None = None) -> FloatArray:
    """`values` as a finite array `(size,)`."""
    array = as_floats(values, name)
    if array.ndim != 1 or (size is not None and array.size != size):
        wanted = "(n,)" if size is None else f"({size},)"
        raise InputError(f"{name} must have shape {wanted}; got {array.shape}")
    require_finite(array, name)
    return array


def read_only(array: FloatArray) -> FloatArray:
    """The same array, made read-only."""
    array.setflags(write=False)
    return array


def positive(value: float, name: str) -> float:
    """`value` as a finite number above zero."""
    return _number(value, name, "above zero", lambda number: number > 0)


def within_range(value: float, name: str) -> float:
    """`value` as a number between `SMALLEST` and `LARGEST`."""
    number = positive(value, name)
    if number < SMALLEST:
        raise InputError(f"{name} must be at least {SMALLEST:g}; got {number}")
    return number


def non_negative(value: float, name: str) -> float:
    """`value` as a finite number, zero or more."""
    return _number(value, name, "zero or more", lambda number: number >= 0)


def require_finite(array: FloatArray, name: str) -> None:
    """Refuse NaN, infinity and excessively large numbers, naming the first offending row."""
    if array.size == 0 or (array.max() <= LARGEST and array.min() >= -LARGEST):  # neither holds for NaN
        return
    bad = np.argwhere(~(np.abs(array) <= LARGEST))
    if array.ndim == 0:
        raise InputError(f"{name} must be finite (at most {LARGEST:g}); got {array}")
    first = tuple(int(i) for i in bad[0])
    where = f"row {first[0]}" + (f", column {first[1]}" if len(first) > 1 else "")
    raise InputError(
        f"{name} must be finite (at most {LARGEST:g}); {where} is {array[first]}"
        + (f" ({len(bad)} such entries in all)" if len(bad) > 1 else "")
    )


def as_floats(values: npt.ArrayLike, name: str) -> FloatArray:
    """`values` as an array of doubles; lossy conversions are refused."""
    if np.ma.is_masked(values):
        raise InputError(f"{name} has masked entries; leave those rows out")
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"got {array.dtype}")
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of real numbers ({error})") from None
    doubles = array.astype(np.float64)
    # Rounding to nearest could move an interval off the truth; casting back shows it for long integers and floats.
    if array.dtype.itemsize >= 8 and array.dtype != np.float64:
        changed = np.isfinite(doubles) & (doubles.astype(array.dtype) != array)
        if changed.any() or (array.dtype.kind in "iu" and (np.abs(doubles) > 2.0**53).any()):
            raise InputError(
                f"{name} has {array.dtype} entries that are not doubles; round them, and count that as noise"
            )
    return doubles


def as_rows(rows: npt.ArrayLike, size: int, name: str) -> IndexArray:
    """`rows`, indices or a mask, as indices below `size`."""
    try:
        chosen: IndexArray = np.arange(size)[np.asarray(rows)]
        return chosen
    except (IndexError, TypeError) as error:
        raise InputError(f"{name} must be indices below {size} or a mask of that length ({error})") from None


def distinct_rows(points: FloatArray) -> tuple[IndexArray, IndexArray]:
    """The first row of every distinct point, in order, and the number of the point that each row has."""
    numbers: dict[bytes, int] = {}
    signless = points + 0.0  # 0 and -0 are the same point
    number = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in signless], dtype=np.intp)
    return np.unique(number, return_index=True)[1], number


def listed(values: Iterable[float | str], most: int = 6) -> str:
    """`0.06, 0.05`: the first few, to keep a `repr` short, with the total number if there are more."""
    texts = [value if isinstance(value, str) else f"{value:.6g}" for value in values]
    return ", ".join(texts[:most]) + (f", ... ({len(texts)} in all)" if len(texts) > most else "")


def _number(value: float, name: str, wanted: str, holds: Callable[[float], bool]) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number {wanted}; got {value!r}") from None
    if not (number <= LARGEST and holds(number)):
        raise InputError(f"{name} must be a number {wanted}, at most {LARGEST:g}; got {number}")
    return number
