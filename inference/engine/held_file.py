"""Files that one process at a time may write to."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from ...validation import argument_error

__all__ = ["held"]


@contextmanager
def held(file: Path, owner: str) -> Iterator[None]:
    """Keep other processes from a file while the context is open, killed ones included.

    The operating system releases the lock when a process ends, however it ends.

    Raises
    ------
    ValueError
        When another process holds the file. The message names the process, its host and its start.
    OSError
        When the folder cannot be written to.
    """
    # Imported here: most sessions hold no file.
    from filelock import FileLock, Timeout

    file.parent.mkdir(parents=True, exist_ok=True)
    holder = file.with_name(f".{file.name}.held")
    lock = FileLock(file.with_name(f".{file.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        rule = "a folder in whose file no other process works"
        raise argument_error("out", owner, rule, f"{file}, held by {_holder(holder)}") from error
    try:
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        own = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        holder.write_text(json.dumps(own), encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            holder.unlink()
        lock.release()


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return f"process {found['process']} on {found['host']} since {found['since']}"
    return "a process that has just begun"
