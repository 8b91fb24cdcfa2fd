"""Independent tasks by seed, whose results are kept on disk as they are finished."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...user_warnings import warn_user
from ...validation import Count, argument_error, check_arguments, check_count
from .fingerprint import fingerprint
from .held_file import held
from .interruption import ending_at_sigterm
from .ledger import Ledger
from .progress import track
from .provenance import versions
from .workers import Task, completed

__all__ = ["Failure", "Results", "records", "replicate"]

OWNER = "replicate"
FILE = "replicates.jsonl"
#: Fields of a record that tell tasks apart.
FIELDS = ("task", "kernelzoo", "seed")
#: Failures whose messages a warning repeats.
LISTED = 3

type Key = tuple[Any, ...]
type Record = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """Stands in the place of the result of a task that raised an error.

    Attributes
    ----------
    seed : int
    error : str
        Type and message of the error.
    """

    seed: int
    error: str


class Results(list[Any]):
    """Results in the order of the seeds; a `Failure` where the task raised an error.

    Attributes
    ----------
    failures : dict of int to str
        Errors by seed.
    """

    @property
    def failures(self) -> dict[int, str]:
        """Errors by seed."""
        return {each.seed: each.error for each in self if isinstance(each, Failure)}


def replicate(
    task: Callable[[int], Any],
    seeds: Iterable[int],
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = True,
    jobs: Count | None = None,
    progressbar: bool = True,
) -> Results:
    """Run a function of a seed for many seeds, on this machine or on a Dask cluster.

    Parameters
    ----------
    task : callable (int) -> value
        Returns what JSON can hold: finite numbers, strings, None, lists and dicts of them, and
        NumPy's numbers and arrays, which become numbers and lists. A task with a large result
        writes it to a file of its own. The result must depend on the seed alone, not on earlier
        calls.
    seeds : iterable of int
        Different integers, 0 or more.
    out : path, optional
        Folder for the file ``replicates.jsonl`` of the finished tasks. Each is on disk before the
        next is counted as finished.
    resume : bool, default=True
        Use the finished tasks in `out` of the same function, with the same code and data, and of
        the same version of this package. A call with more seeds goes on from them. False runs all
        again.
    jobs : int, optional
        Number of processes on this machine, by default 1. If a ``dask.distributed.Client`` is
        active in this process, the tasks run on its workers instead. The results do not depend on
        either.
    progressbar : bool, default=True

    Returns
    -------
    Results
        A list of the results in the order of the seeds, whichever task was finished first. In the
        place of the result of a task that raised an error is a `Failure`; ``failures`` lists the
        errors by seed. The next call runs these tasks again.

    Raises
    ------
    ValueError
        When an argument is not as described, when the task or its data cannot be pickled, and when
        another process works in `out`; the message names it.
    KeyboardInterrupt, SystemExit
        At Ctrl-C and SIGTERM. The finished tasks are in `out`.
    ConnectionError
        When the cluster's scheduler is lost. The finished tasks are in `out`.
    ChildProcessError
        When processes of this machine are killed repeatedly, and when the workers of a cluster
        have other versions of the packages.

    Warns
    -----
    UserWarning
        When tasks failed, and when workers of a cluster have threads that are not used.

    Notes
    -----
    Each worker process runs one task at a time with one thread of BLAS. It gets the function and
    its data once; arrays of 1 MiB or more are shipped apart and known by their content, so that a
    kernel that is used twice is shipped once, and may be read-only there. On a cluster each worker
    process keeps compiled code in a folder of its own, and Dask's profile of the workers is off.

    Tasks of a killed process or worker are run again. A task during which workers were killed again
    and again has failed.

    Data of the function are the values that it holds and the globals of its module that it names.
    Changes in other modules than that of the function are not seen: choose another folder then, or
    ``resume=False``.

    Cost: one call of the task for each seed.

    Examples
    --------
    >>> def accuracy(seed):
    ...     split = kz.datasets.load("wine").split(seed=seed)
    ...     kernels = kz.gaussian("median") | kz.linear()
    ...     model = kz.MultinomialProbit(kernels(split.X_train), split.y_train)
    ...     vb = kz.fit(model, "vb", draws=50, random_seed=seed, progressbar=False)
    ...     predicted = kz.predict(model, vb, kernels(split.X_test, split.X_train))["label"]
    ...     return (predicted.values == split.y_test).mean()
    >>> accuracies = kz.replicate(accuracy, range(3), out="accuracies")
    >>> sum(accuracies) / len(accuracies)
    """
    check_arguments(replicate, locals())
    if not callable(task):
        raise argument_error("task", OWNER, "a function of a seed", repr(task))
    seeds = _checked_seeds(seeds)
    code = "" if out is None else fingerprint(task, OWNER)
    seed_of = {(code, versions()["kernelzoo"], seed): seed for seed in seeds}
    ledger = None if out is None else Ledger(Path(out) / FILE)
    found = records(
        lambda: _Valued(task),
        seed_of,
        FIELDS,
        title=getattr(task, "__name__", "Tasks"),
        owner=OWNER,
        ledger=ledger,
        resume=resume,
        jobs=jobs or 1,
        progressbar=progressbar,
    )
    with closing(found):
        by_key = dict(found)
    results = Results(
        record["value"] if "error" not in record else Failure(seed, record["error"])
        for seed, record in ((seed, by_key[key]) for key, seed in seed_of.items())
    )
    if failures := results.failures:
        listed = "; ".join(f"seed {seed}: {error}" for seed, error in [*failures.items()][:LISTED])
        more = "; ..." if len(failures) > LISTED else ""
        warn_user(f"{len(failures)} of {len(results)} tasks failed: {listed}{more}")
    return results


def records(
    make_task: Callable[[], Task],
    arguments: Mapping[Key, Any],
    fields: Sequence[str],
    *,
    title: str,
    owner: str,
    ledger: Ledger | None = None,
    resume: bool = True,
    jobs: int = 1,
    progressbar: bool = True,
    defaults: Mapping[str, Any] | None = None,
) -> Generator[tuple[Key, Record]]:
    """Run a task with each argument that has no record yet; yield keys and records.

    Finished records come first, in the order of the ledger; then the others, as they are finished.
    A record is on disk before it is yielded. Callers close the generator, which ends the tasks
    that still run.

    Parameters
    ----------
    make_task : callable () -> callable (argument) -> mapping
        Makes the task; called only if a record is missing. The task returns a record of JSON
        values. An exception gives the record ``{"error": message}``, and the next call runs the
        task again.
    arguments : mapping
        Arguments by the key of their records.
    fields : sequence of str
        Names of the parts of a key.
    title, owner : str
        Title of the progress bar; function that messages name.
    ledger : Ledger, optional
    resume : bool, default=True
        Whether records of the ledger count.
    jobs : int, default=1
    progressbar : bool, default=True
    defaults : mapping, optional
        Parts of the key that records of earlier versions lack.
    """
    with (
        nullcontext() if ledger is None else held(ledger.path, owner),
        ending_at_sigterm(),
        track(len(arguments), title, visible=progressbar) as bar,
    ):
        finished = {}
        for record in ledger if ledger is not None and resume else ():
            key = key_of(record, fields, defaults)
            if key in arguments and "error" not in record:
                finished[key] = record
        bar.skip(len(finished))
        yield from finished.items()
        if not (left := [key for key in arguments if key not in finished]):
            return
        task, failed = make_task(), 0
        for index, outcome in completed(task, [arguments[key] for key in left], jobs, owner):
            record = dict(zip(fields, left[index], strict=True)) | outcome
            if ledger is not None:
                ledger.append(record)
            failed += "error" in record
            bar.advance(failed=str(failed))
            yield left[index], record


def key_of(record: Record, fields: Sequence[str], defaults: Mapping[str, Any] | None = None) -> Key:
    """Key of a record."""
    known = {**(defaults or {}), **record}
    return tuple(known.get(field) for field in fields)


@dataclass(frozen=True)
class _Valued:
    """A task whose results are as the ledger returns them, written or not."""

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
