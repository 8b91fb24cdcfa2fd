"""Data files outside the package: search folders and verification."""

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
        Checksum of the whole file, hexadecimal.
    """

    name: str
    sha256: str

    def find(self) -> Path | None:
        """Unverified path of the file in the first folder that has it, or None."""
        candidates = (folder / self.name for folder in search_folders())
        return next((path for path in candidates if path.is_file()), None)

    def verified(self) -> Path | None:
        """Path of the file after verification, or None if no folder has it.

        Raises
        ------
        ValueError
            If the file has another checksum.
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
        """Return the error that names the file needed and the folders searched."""
        folders = "\n  ".join(str(folder) for folder in search_folders())
        return FileNotFoundError(
            f"The data set {dataset!r} needs the file {self.name} (SHA-256 {self.sha256}). "
            f"Put it into one of these folders, or set the environment variable {VARIABLE} to a "
            f"folder that holds it:\n  {folders}"
        )


def user_folder() -> Path:
    """Return the user's cache folder of this package, which need not exist."""
    import pooch  # imported late: it shows a warning in notebooks without widgets

    return Path(pooch.os_cache("kernelzoo"))


def search_folders() -> list[Path]:
    """Folders searched for data files, in this order.

    The folder in the environment variable KERNELZOO_DATA, then the user's cache folder; each is
    followed by its subfolders ``registry`` and ``public``.
    """
    roots = [Path(os.environ[VARIABLE])] if os.environ.get(VARIABLE) else []
    return [root / part for root in (*roots, user_folder()) for part in ("", "registry", "public")]
