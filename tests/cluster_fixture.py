"""A Dask cluster of processes whose scheduler can be killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def mortal_scheduler(folder: Path) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """Client, the active one, of a scheduler with two workers, and the scheduler's process."""
    distributed = pytest.importorskip("distributed")
    file = folder / "scheduler.json"
    shared = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
    commands = [
        ["distributed.cli.dask_scheduler", "--port", "0"],
        *2 * [["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"]],
    ]
    with ExitStack() as stack:
        processes = []
        for command in commands:
            line = [sys.executable, "-m", *command, *shared]
            process = subprocess.Popen(line, cwd=folder, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        client = distributed.Client(scheduler_file=str(file))
        try:
            client.wait_for_workers(2, timeout=60)
            with client.as_current():
                yield client, processes[0]
        finally:
            # Which takes its time where the scheduler is gone.
            with suppress(TimeoutError):
                client.close(timeout=1)
