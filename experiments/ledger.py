"""Records on disk that outlive the process which wrote them: one JSON object a line."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Ledger"]


@dataclass(frozen=True)
class Ledger:
    """A file that records are appended to and never taken from.

    A record is on the disk when `append` returns. A process that is killed while it writes leaves
    at most one torn line, which readers pass over and the next record does not run into.

    Parameters
    ----------
    path : Path
        Need not exist; its folder is made by the first `append`.
    """

    path: Path

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, by one call to the system, and wait until the disk has it."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    line = b"\n" + line
            file.write(line)
            os.fsync(file.fileno())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Whole records, in the order they were written."""
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # torn, perhaps within a character
                continue
            if isinstance(record, dict):
                yield record
