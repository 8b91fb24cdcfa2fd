"""Runs of one task with many arguments: here, in processes of joblib, or on a Dask cluster."""

import pickle
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from ...validation import argument_error
from .interruption import SIGTERM_STATUS, stopped_by_ctrl_c

__all__ = ["Outcome", "Task", "active_client", "completed", "count_workers"]

#: Seconds that a scheduler has to answer: distributed itself tries for more than a minute.
ANSWER = 10.0

#: What a task returns, or ``{"error": message}``; and the seconds that it took.
type Outcome = dict[str, Any]
type Task = Callable[[Any], Mapping[str, Any]]

# A worker's threads take turns: fits change settings of the whole process.
_TURN = Lock()


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
        When a process of this machine is killed.
    """
    client = active_client()
    # Tasks within a task of a worker would wait for its turn.
    if client is None and (jobs == 1 or _TURN.locked()):
        for index, argument in enumerate(arguments):
            yield index, _attempt(task, argument)
        return
    try:
        pickled = cloudpickle.dumps(task)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        rule = "a function that can be pickled, with its data, for other processes"
        raise argument_error("task", owner, rule, str(error)) from error
    if client is not None:
        yield from _on_cluster(client, pickled, arguments)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1)
    try:
        yield from parallel(delayed(_run)(each, pickled) for each in enumerate(arguments))
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "A process was killed, perhaps for lack of memory: fewer jobs need less. Finished "
            "tasks are kept."
        ) from error


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


def count_workers(client: Any) -> int:
    """Return the number of workers of a Dask client, at least 1.

    Raises
    ------
    ConnectionError
        When the scheduler does not answer within `ANSWER` seconds.
    """
    try:
        return max(len(client.nthreads(callback_timeout=ANSWER)), 1)
    except OSError as error:
        raise ConnectionError(
            f"The Dask scheduler at {client.scheduler.address} does not answer: connect a client "
            "to one that runs, or close this client to fit on this machine."
        ) from error


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


def _run(numbered: tuple[int, Any], pickled: bytes) -> tuple[int, Outcome]:
    """Run a pickled task in a worker process."""
    index, argument = numbered
    with _TURN:
        return index, _attempt(_unpickled(pickled), argument)


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> Task:
    """Task, with the compiled functions that it keeps between its calls."""
    task: Task = cloudpickle.loads(pickled)
    return task


def _on_cluster(
    client: Any, pickled: bytes, arguments: Sequence[Any]
) -> Generator[tuple[int, Outcome]]:
    """Run the tasks on the workers of a Dask client, which repeats those of a killed worker."""
    from distributed import as_completed

    futures = client.map(_run, [*enumerate(arguments)], pickled=pickled, pure=False)
    index_of = {future.key: index for index, future in enumerate(futures)}
    address = client.scheduler.address
    try:
        for future in as_completed(futures):
            if future.status == "finished":
                yield future.result()
            elif future.status == "error":
                error = future.exception()
                yield index_of[future.key], {"error": f"{type(error).__name__}: {error}"}
            else:
                raise ConnectionError(
                    f"The Dask scheduler at {address} was lost. Finished tasks are kept."
                )
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)
