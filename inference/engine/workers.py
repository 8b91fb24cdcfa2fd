"""Runs of one task with many arguments: here, in processes of this machine, or on a Dask cluster.

A task is shipped once: pickled without its large arrays, which are named by their content. Each
worker process unpickles it once and keeps it, so that compiled functions that the task caches are
compiled once a worker. A worker process runs one task at a time, with one thread of BLAS.
"""

import ctypes
import io
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from threading import Lock, Thread
from typing import Any, override

import cloudpickle
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ...user_warnings import warn_user
from ...validation import argument_error
from .interruption import SIGTERM_STATUS, stopped_by_ctrl_c
from .provenance import versions

__all__ = ["Outcome", "Task", "active_client", "completed", "prepare_workers"]

#: What a task returns, or ``{"error": message}``; and the seconds that it took.
type Outcome = dict[str, Any]
type Task = Callable[[Any], Mapping[str, Any]]

#: Bytes of the arrays that are shipped apart from the task, as joblib maps them into memory.
LARGE = 1 << 20
#: Times that tasks are started again whose processes or workers were killed.
RESTARTS = 3
#: Seconds in which a task closes its files after its client has gone.
GRACE = 10


def completed(
    task: Task, arguments: Sequence[Any], jobs: int, owner: str
) -> Generator[tuple[int, Outcome]]:
    """Run a task with each argument; yield the argument's index and the outcome, as they come.

    Parameters
    ----------
    task : callable (argument) -> mapping
        Its exceptions are outcomes.
    arguments : sequence
    jobs : int
        Number of processes. The workers of an active Dask client take their place.
    owner : str
        Function whose argument the task is, for messages.

    Raises
    ------
    ValueError
        When the task cannot be pickled for other processes.
    ConnectionError
        When the scheduler of the cluster is lost.
    ChildProcessError
        When processes are killed again and again, or workers cannot run the task.
    """
    if not arguments:
        return
    if (client := active_client()) is not None:
        yield from _on_cluster(client, _Shipment.of(task, owner), arguments)
    elif jobs == 1 or _TURN.locked():
        # Within a task of a worker process, whose turn would never end.
        for index, argument in enumerate(arguments):
            yield index, _attempt(task, argument)
    else:
        yield from _in_processes(_Shipment.of(task, owner), arguments, jobs)


def active_client() -> Any:
    """Dask client of this process, or None; always None within a task of a cluster."""
    if (distributed := sys.modules.get("distributed")) is None:
        return None
    with suppress(ValueError):
        distributed.get_worker()
        return None
    with suppress(ValueError):
        client = distributed.default_client()
        # Dask returns a client that was closed while it was not the newest.
        return None if client.status == "closed" else client
    return None


def _attempt(task: Task, argument: Any) -> Outcome:
    """Run the task; an exception is its outcome."""
    start = time.perf_counter()
    try:
        with stopped_by_ctrl_c(), threadpool_limits(1, user_api="blas"):
            outcome = dict(task(argument))
    except (Exception, SystemExit) as error:  # any error: the other tasks go on
        if isinstance(error, SystemExit) and error.code == SIGTERM_STATUS:
            raise
        outcome = {"error": f"{type(error).__name__}: {error}"}
    outcome["seconds"] = round(time.perf_counter() - start, 3)
    return outcome


class _Pickler(cloudpickle.Pickler):
    """Leaves large arrays out of the pickle, and collects them by the digest of their content."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.arrays: dict[str, NDArray] = {}

    def persistent_id(self, value: object) -> str | None:
        if type(value) is not np.ndarray or value.nbytes < LARGE or value.dtype.hasobject:
            return None
        layout = "F" if value.flags.f_contiguous else "C"
        content = value.T if layout == "F" else value
        digest = sha256(f"{value.shape} {value.dtype} {layout}".encode())
        digest.update(np.ascontiguousarray(content))
        return self._added(digest.hexdigest(), value)

    def _added(self, name: str, value: NDArray) -> str:
        self.arrays.setdefault(name, value)
        return name


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes, arrays: Mapping[str, NDArray]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._arrays = arrays

    @override
    def persistent_load(self, name: str) -> NDArray:
        # An array that joblib maps into memory becomes a plain one.
        return np.asarray(self._arrays[name])


@dataclass(frozen=True)
class _Shipment:
    """A pickled task, and its large arrays by the digest of their content."""

    digest: str
    pickled: bytes
    arrays: Mapping[str, NDArray]

    @classmethod
    def of(cls, task: Task, owner: str) -> "_Shipment":
        pickler = _Pickler(file := io.BytesIO())
        try:
            pickler.dump(task)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            rule = "a function that can be pickled, with its data, for other processes"
            raise argument_error("task", owner, rule, str(error)) from error
        pickled = file.getvalue()
        return cls(sha256(pickled).hexdigest(), pickled, pickler.arrays)


# A worker's threads take turns: fits change settings of the whole process.
_TURN = Lock()
# Tasks by digest; at most one.
_UNPACKED: dict[str, Task] = {}


def _run(
    argument: Any,
    digest: str,
    pickled: bytes,
    names: Sequence[str],
    arrays: Sequence[NDArray],
    client_has: Mapping[str, str],
) -> Outcome:
    """Run a shipped task in this worker process."""
    if differing := [name for name, own in versions().items() if client_has[name] != own]:
        theirs, own = ({n: v[n] for n in differing} for v in (client_has, versions()))
        raise RuntimeError(f"The client has {theirs}, and the worker has {own}.")
    with _TURN:
        if digest not in _UNPACKED:
            _UNPACKED.clear()
            unpickler = _Unpickler(pickled, dict(zip(names, arrays, strict=True)))
            try:
                _UNPACKED[digest] = unpickler.load()
            except Exception as error:  # any error of a module that the task imports
                raise ChildProcessError(
                    "A worker process cannot read the task: it must be able to import what the "
                    f"task uses. {type(error).__name__}: {error}"
                ) from error
        return _attempt(_UNPACKED[digest], argument)


def _in_processes(
    shipment: _Shipment, arguments: Sequence[Any], jobs: int
) -> Iterator[tuple[int, Outcome]]:
    """Run the tasks in processes of this machine; start them again if one is killed."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # joblib maps large arrays into the memory of all processes.
    names, arrays = [*shipment.arrays], [*shipment.arrays.values()]
    common = shipment.digest, shipment.pickled, names, arrays, versions()
    left = dict(enumerate(arguments))
    for restart in range(1 + RESTARTS):
        parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1, max_nbytes=LARGE)
        parent = os.getpid()
        calls = (delayed(_run_numbered)(parent, index, left[index], *common) for index in [*left])
        try:
            for index, outcome in parallel(calls):
                del left[index]
                yield index, outcome
            return
        except TerminatedWorkerError as error:
            if restart == RESTARTS:
                raise ChildProcessError(
                    f"Worker processes were killed {1 + RESTARTS} times, perhaps for lack of "
                    "memory: fewer jobs need less. Finished tasks are kept."
                ) from error


def _run_numbered(parent: int, index: int, argument: Any, *common: Any) -> tuple[int, Outcome]:
    _end_with(parent)
    return index, _run(argument, *common)


@cache
def _end_with(parent: int) -> None:
    """End this worker process once its parent has gone: nobody waits for what it computes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(SIGTERM_STATUS)

    Thread(target=watch, daemon=True).start()


def _on_cluster(
    client: Any, shipment: _Shipment, arguments: Sequence[Any]
) -> Iterator[tuple[int, Outcome]]:
    """Run the tasks on the workers of a Dask client.

    Dask runs the tasks of a killed worker elsewhere. It gives up those that were on several killed
    workers, running or waiting; they are submitted again, after the others.
    """
    threads = max(client.nthreads().values(), default=0)
    if not threads:
        warn_user("The Dask cluster has no workers yet: the tasks wait for the first one.")
    if threads > 1:
        warn_user(
            f"Dask's workers have {threads} threads each, of which one is used: start workers "
            "with one thread (threads_per_worker=1, or dask worker --nthreads 1)."
        )
    prepare_workers(client)
    left = dict(enumerate(arguments))
    for attempt in range(1 + RESTARTS):
        given_up: dict[int, Outcome] = {}
        with closing(_submitted(client, shipment, left, attempt)) as outcomes:
            for index, outcome, killed in outcomes:
                if killed:
                    given_up[index] = outcome
                else:
                    yield index, outcome
        left = {index: left[index] for index in given_up}
        if not left:
            return
    yield from given_up.items()


def _submitted(
    client: Any, shipment: _Shipment, arguments: Mapping[int, Any], attempt: int
) -> Generator[tuple[int, Outcome, bool]]:
    """Submit tasks; yield their indices, outcomes, and whether killed workers were the reason.

    The large arrays are results of tasks, not scattered: Dask forms those anew that it has lost
    with a worker.
    """
    from distributed import KilledWorker, as_completed

    again = f"-{attempt}" if attempt else ""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        key = f"kernelzoo-task-{shipment.digest}{again}"
        task = client.submit(_same, shipment.pickled, key=key)
        arrays = [
            client.submit(_same, array, key=f"kernelzoo-array-{name}{again}")
            for name, array in shipment.arrays.items()
        ]
    common = {"digest": shipment.digest, "names": [*shipment.arrays], "client_has": versions()}
    values = [*arguments.values()]
    futures = client.map(_run, values, pickled=task, arrays=arrays, pure=False, **common)
    index_of = {future.key: index for future, index in zip(futures, arguments, strict=True)}
    address = client.scheduler.address
    try:
        for future in as_completed(futures):
            index = index_of[future.key]
            if future.status == "finished":
                yield index, future.result(), False
            elif future.status != "error":
                raise ConnectionError(
                    f"The Dask scheduler at {address} was lost. Finished tasks are kept."
                )
            elif isinstance(error := future.exception(), KilledWorker):
                yield index, {"error": f"KilledWorker: {error}"}, True
            else:
                raise ChildProcessError(
                    "Dask's workers cannot run the task; client and workers need the same "
                    f"packages. {type(error).__name__}: {error}"
                ) from error
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)


def _same[T](value: T) -> T:
    return value


def prepare_workers(client: Any) -> None:
    """Prepare the worker processes of a Dask client, those that start later too."""
    client.register_plugin(_preparation(), name="kernelzoo")


def _preparation() -> Any:
    """Make the plugin of Dask that prepares a worker process.

    It gives the process its own folder of compiled code: processes of one home directory, perhaps
    on a network's disk, would wait for each other's locks. Folders that the user has chosen by
    PYTENSOR_FLAGS stay.

    And it ends what takes the time of tasks: Dask's profile, which walks the stacks of running
    tasks 100 times a second (those of PyMC are deep, and 7 % of the time went there); the watch on
    the event loop, which asks for Python's lock 50 times a second (2 %); and Dask's setting that
    glibc returns freed memory at once (5 % went to new pages): up to 256 MB are kept.
    """
    from distributed.diagnostics.plugin import WorkerPlugin

    # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h.
    trim_threshold, mmap_threshold = -1, -3

    # Defined here, so that it is shipped by value: its import would import PyTensor, which reads
    # the folder only once.
    class Preparation(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            for name in ("profile", "tick"):
                if (callback := worker.periodic_callbacks.get(name)) is not None:
                    callback.stop()
            # Other C libraries have no mallopt.
            with suppress(OSError, AttributeError, TypeError):
                mallopt = ctypes.CDLL(None).mallopt
                mallopt(trim_threshold, 256 << 20)
                mallopt(mmap_threshold, 32 << 20)
            flags = os.environ.get("PYTENSOR_FLAGS", "")
            if "pytensor" in sys.modules or "compiledir" in flags:
                return
            folder = os.path.join(worker.local_directory, "compiled")
            os.environ["PYTENSOR_FLAGS"] = f"{flags},base_compiledir={folder}".lstrip(",")
            os.environ.setdefault("NUMBA_CACHE_DIR", folder)

    return Preparation()
