"""Records on disk, one JSON object a line, that survive a killed process."""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...user_warnings import warn_user

__all__ = ["Ledger"]

CHECKSUM = "crc32"


@dataclass(frozen=True)
class Ledger:
    """An append-only file of records.

    A record is on disk when `append` returns. A process that is killed while it writes leaves at
    most one incomplete line, which readers skip; the next record starts on a new line.

    Each line holds the CRC-32 of its record. Readers leave out a line whose record was altered and
    warn, so that its work is done again. Files of versions without checksums are still read, since
    their records may have taken days; but after the first line with a checksum, a line without one
    counts as altered.

    Parameters
    ----------
    path : Path
        Path of the file, which need not exist; the first `append` makes its folder.
    """

    path: Path

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record by one system call, and wait until it is on disk.

        Raises
        ------
        OSError
            When the record cannot be written. The message names the file.
        """
        line = json.dumps({**record, CHECKSUM: _checksum(record)}, allow_nan=False).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+", buffering=0) as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line
                file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(
                error.errno,
                f"A finished unit could not be written ({error.strerror}); those written before "
                "are kept, and the next call goes on from them",
                str(self.path),
            ) from error

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Complete and unaltered records, in the order of writing.

        Raises
        ------
        ValueError
            When the file has lines but no record: it is not a ledger.

        Warns
        -----
        UserWarning
            When lines are left out because they were altered.
        """
        if not self.path.exists():
            return
        records, altered, checked = [], [], False
        lines = self.path.read_bytes().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError:  # incomplete, perhaps within a character
                continue
            if not isinstance(record, dict):
                continue
            checksum = record.pop(CHECKSUM, None)
            checked |= checksum is not None
            if checked and checksum != _checksum(record):
                altered.append(str(number))
            else:
                records.append(record)
        if altered:
            warn_user(
                f"{self.path}: lines {', '.join(altered)} were altered after they were written. "
                "They are left out, and their work is done again."
            )
        elif len(lines) > 1 and not records:
            raise ValueError(
                f"{self.path} is not a ledger: none of its {len(lines)} lines is a record. Move it "
                "away, or choose another folder."
            )
        yield from records


def _checksum(record: Mapping[str, Any]) -> int:
    """CRC-32 of a record as a reader gets it, whatever the order of its keys."""
    # JSON turns all keys into strings, which have another order.
    read = json.loads(json.dumps(record))
    return zlib.crc32(json.dumps(read, sort_keys=True).encode())
