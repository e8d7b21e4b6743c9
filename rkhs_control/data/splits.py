"""Two parts of recorded runs that share no samples, so that one can test what was learnt from the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .arrays import IndexArray

_BLOCKS = 5  # maximum number of held-out blocks of windows

Mask = npt.NDArray[np.bool_]


def held_out(n_held: int, n_runs: int, rng: np.random.Generator) -> tuple[IndexArray, IndexArray]:
    """Which of `n_runs` whole runs are kept and which are held out, at random."""
    shuffled = rng.permutation(n_runs)
    return np.sort(shuffled[n_held:]), np.sort(shuffled[:n_held])


def held_out_windows(n_held: int, origins: IndexArray, horizon: int, rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Which windows are kept and which are held out, so that no sample is in both.

    The smaller part is made of up to five blocks of neighbours, and windows that touch both parts belong to neither.
    """
    n_windows = len(origins)
    blocks, rest = _blocks(min(n_held, n_windows - n_held), origins, horizon, rng)
    return (rest, blocks) if 2 * n_held <= n_windows else (blocks, rest)


def blocks_apart(origins: IndexArray, reach: int, folds: int) -> list[tuple[IndexArray, IndexArray]]:
    """Folds for cross-validation of windows: those held out, and those kept because they share no samples with them.

    Folds are whole recordings where there are enough of them, otherwise blocks of neighbours. `reach` is how many steps
    a window spans, its history included. Where nothing else would be left, all windows that are not held out are kept.
    """
    recordings, group = np.unique(origins[:, 0], return_inverse=True)
    in_order = np.lexsort(origins.T[::-1])
    held = np.array_split(in_order, min(folds, len(origins)))
    if len(recordings) >= folds:
        held = [np.flatnonzero(np.isin(group, part)) for part in np.array_split(np.arange(len(recordings)), folds)]
    parts = []
    for rows in held:
        chosen = np.isin(np.arange(len(origins)), rows)
        kept = np.flatnonzero(~_touched_by(chosen, origins, reach))
        parts.append((np.sort(rows), kept if len(kept) >= 2 else np.flatnonzero(~chosen)))
    return parts


def last_part(share: float, origins: IndexArray, horizon: int) -> tuple[Mask, Mask]:
    """Which runs are kept and which are held out: the last share of each recording's windows.

    For recordings with a single window, such as whole runs, it is the last share of those recordings. Windows that
    touch both parts belong to neither.
    """
    held = np.zeros(len(origins), dtype=bool)
    recordings, sizes = np.unique(origins[:, 0], return_counts=True)
    single = np.flatnonzero(np.isin(origins[:, 0], recordings[sizes == 1]))
    parts = [single, *(np.flatnonzero(origins[:, 0] == recording) for recording in recordings[sizes > 1])]
    for part in parts:
        in_order = part[np.lexsort(origins[part].T[::-1])]
        held[in_order[len(part) - round(share * len(part)) :]] = True
    kept = ~_touched_by(held, origins, horizon)
    if not (held.any() and kept.any()):
        raise InputError(f"the last {share:g} of {len(origins)} windows or runs leaves nothing on one side")
    return kept, held


def _blocks(n: int, origins: IndexArray, horizon: int, rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Which windows belong to blocks of `n` windows in all, and which share no samples with those.

    There are as many blocks as possible without excluding more windows than they contain; a single one is at the end.
    """
    in_order = np.lexsort(origins.T[::-1])
    for n_blocks in range(min(_BLOCKS, n), 0, -1):
        chosen = np.zeros(len(origins), dtype=bool)
        for number, segment in enumerate(np.array_split(in_order, n_blocks)):
            size = (n + number) // n_blocks
            last = len(segment) - size
            first = last if n_blocks == 1 else int(rng.integers(last + 1))
            chosen[segment[first : first + size]] = True
        rest = ~_touched_by(chosen, origins, horizon)
        if (~chosen & ~rest).sum() <= n:
            break
    if not rest.any():
        raise InputError(
            f"all {len(origins)} windows share samples with those to be held out: hold none out, record more, or cut "
            "shorter windows"
        )
    return chosen, rest


def _touched_by(chosen: Mask, origins: IndexArray, horizon: int) -> Mask:
    """Which windows share a sample with a chosen one: same recording, starting at most `horizon` apart."""
    touched = np.zeros(len(origins), dtype=bool)
    for recording in np.unique(origins[chosen, 0]):
        mine = origins[:, 0] == recording
        firsts, taken = origins[mine, 1], np.sort(origins[mine & chosen, 1])
        before = np.searchsorted(taken, firsts - horizon)
        up_to = np.searchsorted(taken, firsts + horizon, side="right")
        touched[mine] = up_to > before
    return touched
