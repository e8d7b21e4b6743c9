"""Work on a Dask cluster: data travel once, results come in order, and workers may die without changing them."""

from __future__ import annotations

import io
import logging
import pickle
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

from cloudpickle import Pickler
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


def spread(client: Any, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
    """`function(*task)` for every task on the workers of a Dask client, in order, as they finish.

    Objects shared by several tasks are packed once, and large ones are sent once. The scheduler knows all of them, so
    it sends whatever was lost with a worker to another one.
    """
    calls = [(function, *task) for task in tasks]
    mail = _Mail.of(client)
    shared = _shared_by(calls)
    places = {id(part): place for place, part in enumerate(shared)}
    first = mail.packed(tuple(shared), {})
    ahead = max(_AHEAD, 4 * sum(client.ncores().values()))
    waiting: deque[Any] = deque()
    rest = iter(calls)
    while True:
        for call in islice(rest, ahead - len(waiting)):
            waiting.append(client.submit(_run, __version__, first, mail.packed(call, places), pure=False))
        if not waiting:
            return
        yield _result(waiting.popleft())


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
        return opened.enter_context(Client(where, timeout=_CONNECT_SECONDS, set_as_default=False))
    except OSError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cluster {where!r}: no scheduler can be reached there ({reason})") from None


def _require_workers(client: Any, where: str) -> None:
    """Require a worker with this version of the package before any work, or fail with a one-line error."""
    try:
        found = client.submit(_version, pure=False).result(timeout=_FIRST_WORKER_SECONDS)
    except TimeoutError:
        raise InputError(f"cluster {where!r}: no worker answered within {_FIRST_WORKER_SECONDS} seconds") from None
    except Exception as error:  # whatever prevents the package from being imported there
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"cluster {where!r}: rkhs_control cannot be used on its workers ({reason})") from None
    _require_version(found, __version__)


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
        self.sent: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()

    @classmethod
    def of(cls, client: Any) -> _Mail:
        """The client's mail, stored on the client itself, so that it goes away with it."""
        mail: _Mail = vars(client).setdefault("_rkhs_control_mail", cls(client))
        return mail

    def packed(self, content: Any, places: dict[int, int]) -> list[Any]:
        """Pieces of a pickle: its text, then the arrays in it; objects in `places` are only referenced."""
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


class _Packer(Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, places: dict[int, int], is_small: Callable[[Any], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=is_small)
        self.places = places

    def persistent_id(self, found: Any) -> int | None:
        return self.places.get(id(found))


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


def _run(version: str, shared: list[bytes], call: list[bytes]) -> Any:
    """Run a call on its own copies, isolated from others; parallel work inside it runs serially."""
    _require_version(__version__, version)
    with _ONE_AT_A_TIME, parallel_config(backend="sequential"):
        function, *arguments = _unpacked(call, _unpacked(shared, ()))
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


def _require_version(found: str, wanted: str) -> None:
    if found != wanted:
        raise InputError(
            f"a worker of the cluster has rkhs_control {found}, but this is {wanted}: install the same version on all"
        )
