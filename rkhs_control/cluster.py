"""Work on a Dask cluster: data travel once, results come in order, and workers may die without changing them."""

from __future__ import annotations

import asyncio
import io
import logging
import pickle
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from itertools import islice
from threading import Lock
from types import ModuleType
from typing import Any, TypeVar

import cloudpickle
from joblib import parallel_config

from . import __version__
from .errors import InputError, RkhsControlError

Result = TypeVar("Result")

_LARGE = 1 << 14  # bytes: larger objects are sent once, not with every task
_KEPT = 1 << 29  # bytes that a cluster keeps for later tasks
_AHEAD = 64  # minimum number of tasks sent before earlier results are collected
_CONNECT_SECONDS = 10
_FIRST_WORKER_SECONDS = 60
_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_ONE_AT_A_TIME = Lock()  # in a worker: neither solvers nor compiled code are thread-safe


@contextmanager
def on_cluster(where: str) -> Iterator[None]:
    """Run all parallel work in the block on a Dask cluster, instead of in processes on this machine.

    Parameters
    ----------
    where : `local:4` for four processes on this machine, which end with the block, or the address of a scheduler,
        `tcp://host:8786`

    `joblib.parallel_config(backend="dask")` does the same with your own client.
    """
    _require_dask()
    with _silenced_logs(), ExitStack() as opened:
        client = _local_client(where, opened) if where.startswith("local:") else _distant_client(where, opened)
        _require_workers(client, where)
        opened.enter_context(parallel_config(backend="dask", client=client))
        yield


def spread(
    client: Any,
    function: Callable[..., Result],
    tasks: Iterable[tuple[Any, ...]],
    *,
    check: Callable[..., None],
    by_value: Sequence[ModuleType] = (),
    in_order: bool = True,
) -> Iterator[Result]:
    """`function(*task)` for every task on the workers of a Dask client, as they finish, in order or not.

    Objects shared by several tasks are packed once, and large ones are sent once. The scheduler knows all of them, so
    it sends whatever was lost with a worker to another one. Whatever the modules `by_value` define is sent itself: a
    worker may have an older module of that name. Workers call `check(drop=True)` before they read a task, to drop such
    modules, and `check()` before they do it.
    """
    from distributed import as_completed

    calls = [(function, *task) for task in tasks]
    mail = _Mail.of(client)
    mail.by_value = by_value
    shared = _shared_by(calls)
    places = {id(part): place for place, part in enumerate(shared)}
    first = mail.packed(tuple(shared), {})
    ahead = max(_AHEAD, 4 * sum(client.ncores().values()))
    waiting: dict[Any, None] = {}
    finished = as_completed(loop=client.loop)
    rest = iter(calls)
    try:
        while True:
            for call in islice(rest, ahead - len(waiting)):
                future = client.submit(_run, check, first, mail.packed(call, places), pure=False)
                waiting[future] = None
                if not in_order:
                    finished.add(future)
            if not waiting:
                return
            future = next(iter(waiting) if in_order else finished)
            del waiting[future]
            yield _result(future)
    finally:
        for future in waiting:
            future.release()


def add_search_path(client: Any, folders: list[str]) -> None:
    """Let all workers, including those that start later, search these folders for modules, after all others."""
    from distributed import WorkerPlugin

    class SearchPath(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            import sys

            sys.path += [folder for folder in folders if folder not in sys.path]

    client.register_plugin(SearchPath(), name=f"search path {folders}")


# Opening a cluster


def _require_dask() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise InputError("a cluster needs Dask: pip install 'rkhs_control[dask]'") from None


def _local_client(where: str, opened: ExitStack) -> Any:
    from distributed import Client, LocalCluster

    number = where.removeprefix("local:")
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"cluster {where!r}: local: is followed by a number of processes, such as local:4")
    cluster = opened.enter_context(
        LocalCluster(
            n_workers=int(number),
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
    )
    return opened.enter_context(Client(cluster, set_as_default=False))


def _distant_client(where: str, opened: ExitStack) -> Any:
    from distributed import Client

    if not re.fullmatch(r"(tcp|tls|ws|wss|ucx)://\S+:\d+", where):
        raise InputError(f"cluster {where!r}: local:4 or the address of a scheduler, tcp://host:8786, is expected")
    try:
        with ThreadPoolExecutor(1) as beside:  # where no event loop runs, as it does in a notebook
            beside.submit(asyncio.run, _greet(where)).result()
        return opened.enter_context(Client(where, timeout=_CONNECT_SECONDS, set_as_default=False))
    except Exception as error:  # whatever the transport or another server comes up with
        reason = " ".join(str(error).split()) or "no answer"
        raise InputError(f"cluster {where!r}: no scheduler can be reached there ({reason})") from None


async def _greet(where: str) -> None:
    """Shake hands with a scheduler, within a deadline; a client itself waits for an answer for ever."""
    from distributed.comm.core import connect
    from distributed.security import Security

    ours = Security().get_connection_args("client")
    hands = connect(where, timeout=_CONNECT_SECONDS, **ours)
    await (await asyncio.wait_for(hands, _CONNECT_SECONDS + 1)).close()  # its own reason, if any, comes first


def _require_workers(client: Any, where: str) -> None:
    """Require a worker with this version of the package before any work, or fail with a one-line error."""
    try:
        found = client.submit(_version, pure=False).result(timeout=_FIRST_WORKER_SECONDS)
    except TimeoutError:
        raise InputError(f"cluster {where!r}: no worker answered within {_FIRST_WORKER_SECONDS} seconds") from None
    except Exception as error:  # whatever prevents the package from being imported there
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"cluster {where!r}: rkhs_control cannot be used on its workers ({reason})") from None
    if found != __version__:
        raise InputError(
            f"a worker of the cluster has rkhs_control {found}, but this is {__version__}: install the same on all"
        )


@contextmanager
def _silenced_logs() -> Iterator[None]:
    """Dask logs workers that come and go, even when all leave at the end; here that only costs time."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]  # each has its own level
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


# Sending


class _Mail:
    """What a client has sent to its cluster: pieces identified by their content, the latest of which are kept there."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.by_value: Sequence[ModuleType] = ()
        self.sent: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()

    @classmethod
    def of(cls, client: Any) -> _Mail:
        """The client's mail, stored on the client itself, so that it goes away with it."""
        mail: _Mail = vars(client).setdefault("_rkhs_control_mail", cls(client))
        return mail

    def packed(self, content: Any, places: dict[int, int]) -> list[Any]:
        """Pieces of a pickle: its text, then the arrays in it; objects in `places` are only referenced."""
        try:
            with _sent_by_value(self.by_value):
                return self._packed(content, places)
        except Exception:  # a lock, for example, in a module by value
            return self._packed(content, places)

    def _packed(self, content: Any, places: dict[int, int]) -> list[Any]:
        file, arrays = io.BytesIO(), []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _LARGE:
                return True
            arrays.append(self._piece(bytes(raw)))
            return False

        _Packer(file, places, is_small).dump(content)
        return [self._piece(file.getvalue()), *arrays]

    def _piece(self, content: bytes) -> Any:
        """The piece itself or, if it is large, a future: a trivial task that can be given to any worker again."""
        import dask

        if len(content) < _LARGE:
            return content
        name = blake2b(content).digest()
        future, _ = self.sent.pop(name, (None, 0))
        if future is None or future.status not in ("pending", "finished"):
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                future = self.client.submit(_as_it_is, content, pure=False)
        self.sent[name] = future, len(content)
        while len(self.sent) > 1 and sum(size for _, size in self.sent.values()) > _KEPT:
            self.sent.popitem(last=False)
        return future


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, places: dict[int, int], is_small: Callable[[Any], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=is_small)
        self.places = places

    def persistent_id(self, found: Any) -> int | None:
        return self.places.get(id(found))


@contextmanager
def _sent_by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    before = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in before]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _shared_by(calls: list[tuple[Any, ...]]) -> list[Any]:
    """Objects that appear in more than one call."""
    parts = [part for call in calls for part in {id(part): part for part in call}.values()]
    counts = Counter(map(id, parts))
    return list({id(part): part for part in parts if counts[id(part)] > 1 and not isinstance(part, _ATOMS)}.values())


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise RkhsControlError(
            "a task was lost with every worker that it was given to, one after another, the last at "
            f"{error.last_worker.address}: do they have enough memory?"
        ) from None
    except CancelledError:
        raise RkhsControlError("the connection to the scheduler of the cluster was lost") from None


# On a worker


def _run(check: Callable[..., None], shared: list[bytes], call: list[bytes]) -> Any:
    """Run a call on its own copies, isolated from others; parallel work inside it runs serially."""
    check(drop=True)
    with _ONE_AT_A_TIME, parallel_config(backend="sequential"):
        function, *arguments = _unpacked(call, _unpacked(shared, ()))
        check()  # what was imported just now
        return function(*arguments)


def _unpacked(pieces: list[bytes], shared: tuple[Any, ...]) -> Any:
    text, *arrays = pieces
    return _Unpacker(io.BytesIO(text), shared, [bytearray(array) for array in arrays]).load()


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: tuple[Any, ...], arrays: list[bytearray]) -> None:
        super().__init__(file, buffers=arrays)
        self.shared = shared

    def persistent_load(self, place: int) -> Any:
        return self.shared[place]


def _as_it_is(content: bytes) -> bytes:
    return content


def _version() -> str:
    return __version__
