"""Records on disk, one JSON object a line, that survive a killed process."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Ledger"]


@dataclass(frozen=True)
class Ledger:
    """An append-only file of records.

    A record is on disk when `append` returns. A process that is killed while it writes leaves at
    most one incomplete line, which readers skip; the next record starts on a new line.

    Parameters
    ----------
    path : Path
        Path of the file, which need not exist; the first `append` makes its folder.
    """

    path: Path

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record by one system call, and wait until it is on disk."""
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
        """Complete records, in the order of writing."""
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # incomplete, perhaps within a character
                continue
            if isinstance(record, dict):
                yield record
