"""Independent tasks by seed: here, in processes of joblib, or on a Dask cluster."""

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

import cloudpickle
import numpy as np
from threadpoolctl import threadpool_limits

from ...user_warnings import warn_user
from ...validation import Count, argument_error, check_arguments, check_count
from .clock import SIGTERM_STATUS, stopped_by_ctrl_c, track
from .result import versions

__all__ = [
    "Failure",
    "Outcome",
    "Results",
    "Task",
    "active_client",
    "count_workers",
    "outcomes_of",
    "records",
    "replicate",
]

#: Seconds that a scheduler has to answer: distributed itself tries for more than a minute.
ANSWER = 10.0

#: What a task returns, or ``{"error": message}``; and the seconds that it took.
type Outcome = dict[str, Any]
type Task = Callable[[Any], Mapping[str, Any]]

# A worker's threads take turns: fits change settings of the whole process.
_TURN = Lock()


def outcomes_of(
    task: Task, arguments: Sequence[Any], cores: int, owner: str
) -> Generator[tuple[int, Outcome]]:
    """Run a task with each argument; yield the argument's index and the outcome, as they come.

    Exceptions of the task are outcomes. The workers of an active Dask client take the place of the
    processes. A task that cannot be pickled is a ValueError, a lost scheduler a ConnectionError, a
    killed process of this machine a ChildProcessError.
    """
    client = active_client()
    # Tasks within a task of a worker would wait for its turn.
    if client is None and (cores == 1 or _TURN.locked()):
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

    parallel = Parallel(cores, return_as="generator_unordered", batch_size=1)
    try:
        yield from parallel(delayed(_run)(each, pickled) for each in enumerate(arguments))
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "A process was killed, perhaps for lack of memory: fewer cores need less. Finished "
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
    """Count the workers of a Dask client; ConnectionError if its scheduler is silent."""
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
    from distributed.comm import CommClosedError

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
                raise CancelledError(f"{future.key} is {future.status}")
    except (CancelledError, CommClosedError) as error:
        # Also of a finished task, whose result the scheduler fetches.
        raise ConnectionError(
            f"The Dask scheduler at {address} was lost. Finished tasks are kept."
        ) from error
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)


OWNER = "replicate"
#: Failures whose messages a warning repeats.
LISTED = 3

type Record = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """Stands in the place of the result of a task that raised an error: its seed and message."""

    seed: int
    error: str


class Results(list[Any]):
    """Results in the order of the seeds; a `Failure` where the task raised an error."""

    @property
    def failures(self) -> dict[int, str]:
        """Errors by seed."""
        return {each.seed: each.error for each in self if isinstance(each, Failure)}


def replicate(
    task: Callable[[int], Any],
    seeds: Iterable[int],
    *,
    store: str | PathLike[str] | None = None,
    cores: Count | None = None,
    progressbar: bool = True,
) -> Results:
    """Run a function of a seed for many seeds, on this machine or on a Dask cluster.

    Parameters
    ----------
    task : callable (int) -> value
        Returns what JSON can hold: finite numbers, strings, None, lists and dicts of them, and
        NumPy's numbers and arrays, which become numbers and lists. The result must depend on the
        seed alone, not on earlier calls.
    seeds : iterable of int
        Different integers, 0 or more.
    store : path, optional
        Folder for a file ``SEED.json`` for each finished task. The tasks whose files are there are
        not run again: the same call goes on after Ctrl-C or a crash, and so does a call with more
        seeds. Choose another folder for a function that you have changed, or for other data: only
        its name and the version of this package are compared.
    cores : int, optional
        Number of processes on this machine (``joblib.Parallel``), by default 1, each with one
        thread of BLAS. If a ``dask.distributed.Client`` is active in this process, the tasks run on
        its workers instead. The results do not depend on either.
    progressbar : bool, default=True

    Returns
    -------
    Results
        A list of the results in the order of the seeds. In the place of the result of a task that
        raised an error is a `Failure`; ``failures`` lists the errors by seed. The next call runs
        these tasks again.

    Raises
    ------
    ValueError
        When an argument is not as described, when the task or its data cannot be pickled, and when
        `store` has files of another task or of another version of this package.
    KeyboardInterrupt, ConnectionError, ChildProcessError
        At Ctrl-C, when the cluster's scheduler is lost, and when a process of this machine is
        killed (Dask runs the tasks of a killed worker again). The finished tasks are in `store`.

    Warns
    -----
    UserWarning
        When tasks failed.

    Examples
    --------
    >>> def accuracy(seed):
    ...     split = kz.datasets.load("wine").split(seed=seed)
    ...     kernels = kz.gaussian("median") | kz.linear()
    ...     model = kz.MultinomialProbit(kernels(split.X_train), split.y_train)
    ...     vb = kz.fit(model, "vb", draws=50, random_seed=seed, progressbar=False)
    ...     predicted = kz.predict(model, vb, kernels(split.X_test, split.X_train))["label"]
    ...     return (predicted.values == split.y_test).mean()
    >>> accuracies = kz.replicate(accuracy, range(3), store="accuracies")
    >>> sum(accuracies) / len(accuracies)
    """
    check_arguments(replicate, locals())
    if not callable(task):
        raise argument_error("task", OWNER, "a function of a seed", repr(task))
    seeds = _checked_seeds(seeds)
    name = getattr(task, "__qualname__", type(task).__qualname__)
    found = records(
        lambda: _Valued(task),
        {str(seed): seed for seed in seeds},
        title=name,
        owner=OWNER,
        store=store,
        recipe={"task": name, "kernelzoo": versions()["kernelzoo"]},
        cores=cores or 1,
        progressbar=progressbar,
    )
    with closing(found):
        by_seed = dict(found)
    results = Results(
        record["value"] if "error" not in record else Failure(seed, record["error"])
        for seed, record in ((seed, by_seed[str(seed)]) for seed in seeds)
    )
    if failures := results.failures:
        listed = "; ".join(f"seed {seed}: {error}" for seed, error in [*failures.items()][:LISTED])
        more = "; ..." if len(failures) > LISTED else ""
        warn_user(f"{len(failures)} of {len(results)} tasks failed: {listed}{more}")
    return results


def records(
    make_task: Callable[[], Task],
    arguments: Mapping[str, Any],
    *,
    title: str,
    owner: str,
    store: str | PathLike[str] | None = None,
    recipe: Record | None = None,
    cores: int = 1,
    progressbar: bool = True,
) -> Generator[tuple[str, Record]]:
    """Run a task with each argument that has no record yet; yield names and records.

    Finished records come first; then the others, as they are finished. A record is on disk before
    it is yielded, as a file ``NAME.json`` with the `recipe` that all records of the folder share.
    ``{"error": message}``, the record of an exception, is not written: the next call runs the task
    again. The task is made only if a record is missing. Callers close the generator, which ends the
    tasks that still run.
    """
    recipe = dict(recipe or {})
    paths = {} if store is None else {name: Path(store) / f"{name}.json" for name in arguments}
    finished = {name: read(path, recipe, owner) for name, path in paths.items() if path.exists()}
    left = [name for name in arguments if name not in finished]
    done, failed = len(finished), 0
    try:
        with track(len(arguments), title, visible=progressbar) as bar:
            bar.skip(done)
            yield from finished.items()
            task = make_task() if left else None
            given = [arguments[name] for name in left]
            for index, outcome in outcomes_of(task, given, cores, owner) if task else ():
                record = {**recipe, **outcome}
                if "error" in record:
                    failed += 1
                elif paths:
                    write(paths[left[index]], record)
                done += 1
                bar.advance(failed=str(failed))
                yield left[index], record
    except KeyboardInterrupt:
        kept = "with 'store', finished tasks are kept"
        if paths:
            kept = f"the finished ones are in {store}, and the same call goes on from them"
        raise KeyboardInterrupt(
            f"{owner} was interrupted after {done} of {len(arguments)} tasks: {kept}."
        ) from None


def read(path: Path, recipe: Record, owner: str) -> Record:
    """Record in a file; raise ValueError unless it is one of the recipe."""
    try:
        record = json.loads(path.read_bytes())
        found = {name: record.get(name) for name in recipe}
    except (ValueError, AttributeError) as error:
        rule = "a folder of finished tasks: move other files away"
        raise argument_error("store", owner, rule, f"{path}, which is no record") from error
    if found != recipe:
        rule = f"a folder of its own for the recipe {recipe}"
        raise argument_error("store", owner, rule, f"{path}, a record of {found}")
    return dict(record)


def write(path: Path, record: Record) -> None:
    """Write a record, which is on disk as a whole or not at all."""
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            file.write(f"{json.dumps(record, allow_nan=False)}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(
            error.errno,
            f"A finished task could not be written ({error.strerror}); those written before are "
            "kept, and the next call goes on from them",
            str(path),
        ) from error


@dataclass(frozen=True)
class _Valued:
    """A task whose results are as a file returns them, written or not."""

    task: Callable[[int], Any]

    def __call__(self, seed: int) -> Record:
        value = self.task(seed)
        try:
            return {"value": json.loads(json.dumps(value, allow_nan=False, default=_plain))}
        except (TypeError, ValueError) as error:
            rule = "a function that returns finite numbers, strings, lists or dicts"
            raise argument_error("task", OWNER, rule, str(error)) from error


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a result with a {type(value).__name__}")


def _checked_seeds(seeds: Iterable[int]) -> list[int]:
    """Seeds as integers; raise ValueError unless they are different integers of 0 or more."""
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        rule = "a sequence of integers, such as range(30)"
        raise argument_error("seeds", OWNER, rule, repr(seeds))
    checked = [check_count(seed, "seeds", OWNER, least=0) for seed in seeds]
    if not checked:
        raise argument_error("seeds", OWNER, "one integer or more", "none")
    if len(set(checked)) < len(checked):
        twice = next(seed for seed in checked if checked.count(seed) > 1)
        raise argument_error("seeds", OWNER, "different from each other", f"{twice} twice")
    return checked
