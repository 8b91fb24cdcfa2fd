"""Dask clusters for the command line."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ...validation import argument_error

__all__ = ["on_cluster"]


@contextmanager
def on_cluster(cluster: str | None, jobs: int) -> Iterator[None]:
    """Make a Dask client active while the context is open.

    Parameters
    ----------
    cluster : str or None
        Address of a running scheduler, such as ``tcp://10.0.0.1:8786``; "slurm" to start `jobs`
        workers of one core each as jobs of Slurm, with the settings of dask-jobqueue's
        configuration files; None for no client.
    jobs : int
        Number of workers that are started.

    Raises
    ------
    ValueError
        When Dask is not installed, or dask-jobqueue for "slurm".
    OSError
        When there is no scheduler at the address.
    """
    if cluster is None:
        yield
        return
    needed = ["distributed", "dask_jobqueue"] if cluster == "slurm" else ["distributed"]
    if missing := [name for name in needed if find_spec(name) is None]:
        raise argument_error(
            "cluster",
            "the command",
            "left out: Dask is not installed (pip install kernelzoo[dask])",
            f"{cluster!r} without {', '.join(missing)}",
        )
    from distributed import Client

    if cluster != "slurm":
        with Client(cluster):
            yield
        return
    with _slurm() as started, Client(started):
        started.scale(jobs=jobs)
        yield


def _slurm() -> Any:
    import dask

    with _ctrl_c_kept():
        from dask_jobqueue import SLURMCluster

    # Files of settings may give the memory of a job; dask-jobqueue has no default.
    memory = dask.config.get("jobqueue.slurm.memory", None) or "4GB"
    return SLURMCluster(cores=1, processes=1, memory=memory)


@contextmanager
def _ctrl_c_kept() -> Iterator[None]:
    """Keep the handler of Ctrl-C: dask-jobqueue's import replaces it by one that exits."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
