"""Independent tasks with a JSON file each: here, in processes of joblib, or on a Dask cluster."""

import json
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

import cloudpickle

from .progress import stopped_by_ctrl_c, track
from .result import local_path
from .shared_settings import BlasLimits

#: What a task returns, or ``{"error": message}`` if it raised an error.
type Record = Mapping[str, Any]
type Task = Callable[[Any], Record]

# A worker's threads take turns: fits change settings of the whole process.
_TURN = Lock()


def records(
    task: Task,
    arguments: Mapping[str, Any],
    *,
    title: str,
    store: str | PathLike[str] | None = None,
    cores: int = 1,
    progressbar: bool = True,
) -> Generator[tuple[str, Record]]:
    """Run a task with each argument that has no file ``NAME.json`` yet; yield names and records.

    Finished records come first; then the others, as they are finished. A record is on disk before
    it is yielded. That of an error is not written: the next call runs the task again. Callers close
    the generator, which ends the tasks that still run.
    """
    paths: dict[str, Path] = {}
    if store is not None:
        folder = local_path(store, "records")
        paths = {name: folder / f"{name}.json" for name in arguments}
    finished = {name: _read(path) for name, path in paths.items() if path.exists()}
    left = [name for name in arguments if name not in finished]
    failed = 0
    with track(len(arguments), title, visible=progressbar) as bar:
        bar.skip(len(finished))
        yield from finished.items()
        for index, record in outcomes_of(task, [arguments[name] for name in left], cores):
            if "error" in record:
                failed += 1
            elif paths:
                _write(paths[left[index]], record)
            bar.advance(failed=str(failed))
            yield left[index], record


def outcomes_of(task: Task, arguments: Sequence[Any], cores: int) -> Generator[tuple[int, Record]]:
    """Run a task with each argument, on Dask's workers if any; yield indices and records."""
    client = active_client()
    # Tasks within a task of a worker would wait for its turn.
    if client is None and (cores == 1 or _TURN.locked()):
        for index, argument in enumerate(arguments):
            yield index, _attempt(task, argument)
        return
    pickled = cloudpickle.dumps(task)
    if client is None:
        from joblib import Parallel, delayed

        parallel = Parallel(cores, return_as="generator_unordered", batch_size=1)
        yield from parallel(delayed(_run)(each, pickled) for each in enumerate(arguments))
        return
    from distributed import as_completed

    futures = client.map(_run, [*enumerate(arguments)], pickled=pickled, pure=False)
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(futures)


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


def _run(numbered: tuple[int, Any], pickled: bytes) -> tuple[int, Record]:
    """Run a pickled task in a worker process."""
    index, argument = numbered
    with _TURN:
        return index, _attempt(_unpickled(pickled), argument)


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> Task:
    """Task, with the compiled functions that it keeps between its calls."""
    task: Task = cloudpickle.loads(pickled)
    return task


def _attempt(task: Task, argument: Any) -> Record:
    try:
        with stopped_by_ctrl_c(), BlasLimits(1):
            return task(argument)
    except Exception as error:  # any error: the other tasks go on
        return {"error": f"{type(error).__name__}: {error}"}


def _read(path: Path) -> Record:
    try:
        record: Record = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not a record of a finished task: move it away.") from error
    return record


def _write(path: Path, record: Record) -> None:
    """Write a record, which is on disk as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(f"{json.dumps(record, allow_nan=False)}\n", encoding="utf-8")
    partial.replace(path)
