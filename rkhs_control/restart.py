"""Long work that resumes where it stopped: finished parts are kept in a folder, identified by their content.

A part is one call of a function. Its name is a digest of the function, its arguments (data, assumptions, settings,
random numbers), the source of this package and the libraries below it, but not of how many workers share the work.
"""

from __future__ import annotations

import os
import pickle
import platform
import shutil
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import numpy as np

from . import ROOMS, __version__
from .errors import RkhsControlError

Result = TypeVar("Result")

_WORTH_KEEPING = 0.1  # seconds: anything shorter is faster to repeat than to look up
_SIZE = 32  # bytes of a digest
_FOLDER = ".parts"
_LIBRARIES = ("numpy", "scipy", "numba", "casadi", "cvxpy", "clarabel", "python-flint")
_ATOMS = (type(None), type(Ellipsis), bool, int, float, complex)
_INSTALLED = tuple(
    os.path.join(folder, "")
    for name in {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *site.getsitepackages()}
    | {site.getusersitepackages()}
    for folder in {name, os.path.realpath(name)}
)
"""Folders of modules that nobody edits."""


@dataclass(eq=False)
class Parts:
    """Finished parts of some work, in their own folder."""

    folder: Path
    n_taken: int = 0
    """Parts reused from an earlier run."""
    n_kept: int = 0
    """Parts that were done and saved."""
    n_damaged: int = 0
    """Parts that were found but could not be read, and were done again."""
    trouble: str = ""
    """Why no more parts could be saved, if so."""
    names: set[str] = field(default_factory=set)
    """Of the files that are there."""
    earlier: frozenset[str] = frozenset()
    """Of those that were there before."""

    def __post_init__(self) -> None:
        with suppress(OSError):
            self.names = {file.name for file in self.folder.iterdir()}
        self.earlier = frozenset(self.names)

    def find(self, name: str) -> tuple[bool, Any]:
        """Whether there is a part of this name, and its result; damaged parts are removed."""
        if name not in self.names:
            return False, None
        file = self.folder / name
        try:
            content = file.read_bytes()
            if content[:_SIZE] != _seal(name, content[_SIZE:]):
                raise ValueError("not what was written")
            found = pickle.loads(content[_SIZE:])
        except Exception:  # whatever prevents it from being read
            self.n_damaged += 1
            self.names.discard(name)
            with suppress(OSError):
                file.unlink()
            return False, None
        self.n_taken += name in self.earlier
        return True, found

    def keep(self, name: str, result: Any) -> None:
        """Write a part to a temporary file and, once it is fully on disk, move it into place."""
        if self.trouble:
            return
        try:
            content = pickle.dumps(result, protocol=5)
        except Exception:  # what cannot be pickled cannot be kept
            return
        beside = self.folder / f"{name}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(_seal(name, content) + content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.folder / name)
        except OSError as error:
            self.trouble = str(error)
            with suppress(OSError):
                beside.unlink()
            return
        self.names.add(name)
        self.n_kept += 1

    def remarks(self) -> Iterator[str]:
        """Remarks on the parts, one line each."""
        if self.n_taken:
            yield f"{self.n_taken} finished parts of an earlier run were reused; --fresh starts over"
        if self.n_damaged:
            yield f"{self.n_damaged} parts of an earlier run could not be read, and were done again"
        if self.trouble:
            yield f"finished parts could not be kept: {self.trouble}"

    def remove(self) -> None:
        """Remove all parts and their folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.names = set()


_ACTIVE: ContextVar[Parts | None] = ContextVar("rkhs_control_parts", default=None)


@contextmanager
def restartable(folder: str | os.PathLike[str], *, fresh: bool = False) -> Iterator[Parts]:
    """Keep finished parts of all parallel work in the block, and reuse those kept by an earlier run.

    Parameters
    ----------
    folder : where the results will go; parts are in a folder `.parts` inside it
    fresh : start over, without the kept parts

    When the block ends without an error, all parts are removed: running finished work again repeats it. A part that
    cannot be read, or was not completely written, is done again as well. Parts are pickles, and reading one can run any
    code in it: let nobody write to the folder whom you would not let edit your scripts.

    What comes from your own modules (plants, kernels, functions) is taken from a part only if the source of all your
    modules that are loaded is unchanged. Their source is read when the block begins: do not edit a module between its
    import and the block. Nothing notices that a file has changed which your code reads by itself, nor a module that
    your code imports only while it runs: start over with `fresh` then.
    """
    kept = Path(folder) / _FOLDER
    if fresh and kept.exists():
        shutil.rmtree(kept)  # or the error says why not
    _surroundings()
    own_code()
    parts = Parts(kept)
    token = _ACTIVE.set(parts)
    try:
        yield parts
    finally:
        _ACTIVE.reset(token)
    parts.remove()


def active_parts() -> Parts | None:
    """The parts of the innermost `restartable` block, if there is one; none inside its tasks."""
    return _ACTIVE.get()


def kept_results(
    parts: Parts,
    function: Callable[..., Result],
    tasks: list[tuple[Any, ...]],
    do: Callable[[Callable[..., Any], list[tuple[Any, ...]]], Iterator[Any]],
) -> Iterator[Result]:
    """`function(*task)` for every task, in order; `do(function, tasks)` computes the others, in any order.

    Each part is kept as soon as it is done, however long an earlier one takes.
    """
    names = _names(function, tasks)
    waiting = [k for k, name in enumerate(names) if name not in parts.names]
    done = do(_measured, [(k, function, tasks[k]) for k in waiting]) if waiting else iter(())
    is_waiting = set(waiting)
    early: dict[int, Any] = {}
    for k, name in enumerate(names):
        found: tuple[bool, Any] = (False, None) if k in is_waiting else parts.find(name)
        is_kept, result = found
        while not is_kept and k not in early:
            place, result, seconds = next(done) if k in is_waiting else _measured(k, function, tasks[k])
            if names[place] and seconds >= _WORTH_KEEPING:
                parts.keep(names[place], result)
            early[place] = result
        yield result if is_kept else early.pop(k)
    next(done, None)  # lets it finish


def _measured(place: int, function: Callable[..., Result], task: tuple[Any, ...]) -> tuple[int, Result, float]:
    """The place of a task, its result, and the seconds it took; parts have no parts of their own."""
    began, token = perf_counter(), _ACTIVE.set(None)
    try:
        return place, function(*task), perf_counter() - began
    finally:
        _ACTIVE.reset(token)


def _seal(name: str, content: bytes) -> bytes:
    """The header before the content, which includes the name, so that no part is mistaken for another."""
    return blake2b(name.encode() + b"\0" + content, digest_size=_SIZE).digest()


# Names of parts: digests of what they depend on


def _names(function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> list[str]:
    """One name per task; empty where something cannot be identified by its content, which is then done but not kept."""
    digests = _Digests()
    names = []
    for task in tasks:
        try:
            whole = blake2b(_surroundings() + digests.of(function) + digests.of(task), digest_size=_SIZE)
            names.append(whole.hexdigest())
        except _UnknownError:
            names.append("")
    return names


class _UnknownError(Exception):
    """Something that cannot be identified by its content."""


class _Digests:
    """Digests by content: the same for equal data in another process, and for copies. Each object is read only once."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, bytes | None]] = {}
        """Digests by identity; the objects are held, so that no other object gets their identity."""
        self.own = own_code()

    def of(self, thing: Any) -> bytes:
        """The digest of an object and everything in it."""
        _, digest = self.known.get(id(thing), (None, b""))
        if digest is None:
            raise _UnknownError("it is a part of itself")
        if not digest:
            self.known[id(thing)] = thing, None
            text, parts = self._taken_apart(thing)
            content = f"{type(thing).__module__}.{type(thing).__qualname__}".encode() + b"\0" + text
            digest = blake2b(b"".join((content, b"\0", *map(self.of, parts))), digest_size=_SIZE).digest()
            self.known[id(thing)] = thing, digest
        return digest

    def _taken_apart(self, thing: Any) -> tuple[bytes, list[Any]]:
        """An object's own content, with its length, and the objects in it, in a fixed order."""
        if isinstance(thing, _ATOMS):
            return _framed(repr(thing).encode()), []
        if isinstance(thing, str):
            return _framed(thing.encode(errors="surrogatepass")), []
        if isinstance(thing, bytes | bytearray):
            return _framed(bytes(thing)), []
        if isinstance(thing, np.ndarray | np.generic) and not thing.dtype.hasobject:
            return _framed(f"{thing.dtype!r} {thing.shape}".encode()) + _framed(thing.tobytes()), []
        if type(thing) in (tuple, list):
            return b"", list(thing)
        if type(thing) is dict:
            return b"", [part for item in thing.items() for part in item]
        if type(thing) in (set, frozenset):
            return _framed(b"".join(sorted(map(self.of, thing)))), []
        if isinstance(thing, type):
            return _origin(thing) + b"".join(self._source(base.__module__) for base in thing.__mro__), []
        if isinstance(thing, FunctionType):
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            given = [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells]
            return _origin(thing) + self._source(thing.__module__), given
        if isinstance(thing, CodeType):
            return _framed(thing.co_code), [thing.co_consts, thing.co_names]
        if isinstance(thing, MethodType):
            return b"", [thing.__func__, thing.__self__]
        if isinstance(thing, BuiltinFunctionType):
            of_object = thing.__self__ is not None and not isinstance(thing.__self__, ModuleType)
            return _origin(thing), [thing.__self__] if of_object else []
        return b"", [type(thing), *_reduced(thing)]

    def _source(self, name: str) -> bytes:
        """Source of a module outside this package; for one of the user's own, also that of all others they loaded."""
        module = sys.modules.get(name)
        if module is None or name.partition(".")[0] == __package__:
            return b""
        file = str(getattr(module, "__file__", None) or "")
        if not file and name == "__main__":
            raise _UnknownError("it was typed in")
        if not file.endswith(".py"):
            return b""
        others = self.own if name == "__main__" or name in self.own else {}
        return _framed(f"{_source_digest(module)} {sorted(others.items())}".encode())


def _reduced(thing: Any) -> list[Any]:
    """What pickle would write for an object, without its cached values."""
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception as error:
        raise _UnknownError(str(error)) from None
    if isinstance(reduced, str):
        return [reduced]
    make, arguments, state, *items = (*reduced, None, None, None)[:5]
    if isinstance(state, dict):
        state = {name: value for name, value in state.items() if not _is_cached(type(thing), name)}
    return [make, arguments, state, *(None if some is None else list(some) for some in items)]


def _is_cached(kind: type, name: Any) -> bool:
    return isinstance(name, str) and isinstance(getattr(kind, name, None), cached_property)


def _framed(text: bytes) -> bytes:
    return f"{len(text)}:".encode() + text


def _origin(thing: Any) -> bytes:
    return _framed(f"{thing.__module__} {thing.__qualname__}".encode())


# Code: this package's, and the user's own


@lru_cache
def package_code() -> dict[str, str]:
    """Versions of this package, of its exact source when this was first called, and of what it computes with."""
    files = []
    for room in ROOMS:
        spec = find_spec(f"{__package__}.{room}")
        assert spec is not None
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
        files += [Path(spec.origin or "")] if not folders else sorted(f for d in folders for f in d.rglob("*.py"))
    source = blake2b(b"".join(_framed(file.read_bytes()) for file in files), digest_size=16).hexdigest()
    versions = {"rkhs_control": __version__, "source of rkhs_control": source, "Python": platform.python_version()}
    return versions | {library: _version(library) for library in _LIBRARIES}


@lru_cache
def _surroundings() -> bytes:
    return blake2b(f"{platform.machine()} {package_code()}".encode(), digest_size=_SIZE).digest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def own_modules() -> list[ModuleType]:
    """The user's own: loaded modules that are neither installed nor of this package, without the script itself."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] not in (__package__, "__main__", "__mp_main__")
        and str(file := getattr(module, "__file__", None)).endswith(".py")
        and not str(file).startswith(_INSTALLED)
        and getattr(module, "__name__", None) == name
    ]


def own_code() -> dict[str, str]:
    """Digests of the user's own modules by name: of their source when this was first called after they were loaded."""
    return {module.__name__: _source_digest(module) for module in own_modules()}


def require_code(package: dict[str, str], own: dict[str, str], *, drop: bool = False) -> None:
    """Require a worker to have the same code as its client, as far as it is loaded; `drop` the user's own if not."""
    loaded = {name: _source_digest(sys.modules[name]) for name in own if name in sys.modules}
    if drop and any(own[name] != digest for name, digest in loaded.items()):
        for name in loaded:  # all, since they may have imported each other
            del sys.modules[name]
        loaded = {}
    found = package_code() | loaded
    for name, wanted in (package | own).items():
        if wanted and found.get(name, wanted) not in ("", wanted):
            raise RkhsControlError(
                f"a worker of the cluster has {name} {found[name]}, but this is {wanted}: install the same on all, and "
                "restart its workers"
            )


_DIGESTS: dict[str, tuple[Any, str]] = {}
"""Of sources, by module, with the specification, which is another one once the module is reloaded."""


def _source_digest(module: ModuleType) -> str:
    spec = getattr(module, "__spec__", None)
    known = _DIGESTS.get(module.__name__)
    if known is None or known[0] is not spec:
        try:
            text = Path(str(module.__file__)).read_bytes()
        except OSError:
            text = b""
        known = _DIGESTS[module.__name__] = spec, blake2b(text, digest_size=16).hexdigest()
    return known[1]
