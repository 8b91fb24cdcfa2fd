"""Data files outside the package: where they are looked for, and how they are verified."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "KERNELZOO_DATA"


@dataclass(frozen=True)
class CacheFile:
    """A data file that the package does not carry.

    Parameters
    ----------
    name : str
    sha256 : str
        Of the whole file, hexadecimal.
    """

    name: str
    sha256: str

    def find(self) -> Path | None:
        """Path of the file in the first folder that has it, unverified; None where none has."""
        candidates = (folder / self.name for folder in search_folders())
        return next((path for path in candidates if path.is_file()), None)

    def verified(self) -> Path | None:
        """Path of the file, or None where there is none.

        Raises
        ------
        ValueError
            If the file is not the one expected.
        """
        path = self.find()
        if path is None:
            return None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            raise ValueError(
                f"The file {path} must have the SHA-256 {self.sha256}. Got {found}: it is damaged "
                "or of another version. Remove or replace it."
            )
        return path

    def missing(self, dataset: str) -> FileNotFoundError:
        """Return the error that says what to put where."""
        folders = "\n  ".join(str(folder) for folder in search_folders())
        return FileNotFoundError(
            f"The data set {dataset!r} needs the file {self.name} (SHA-256 {self.sha256}). "
            f"Put it into one of these folders, or set the environment variable {VARIABLE} to a "
            f"folder that holds it:\n  {folders}"
        )


def user_folder() -> Path:
    """Return the user's own cache folder of this package, which need not exist."""
    import pooch  # it shows a warning in notebooks without widgets: only those who need it

    return Path(pooch.os_cache("kernelzoo"))


def search_folders() -> list[Path]:
    """Folders that data files are looked for in, in this order.

    The folder that the environment variable KERNELZOO_DATA names, then the user's cache folder;
    of each, files in the folder itself come before those in its ``registry`` and ``public``.
    """
    roots = [Path(os.environ[VARIABLE])] if os.environ.get(VARIABLE) else []
    return [root / part for root in (*roots, user_folder()) for part in ("", "registry", "public")]
