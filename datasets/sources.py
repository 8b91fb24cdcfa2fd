"""Readers of data from scikit-learn, from files of this package and from the cache folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .cache import CacheFile
from .dataset import Dataset, Features
from .openml import OpenMLTable


@dataclass(frozen=True)
class Contents:
    """Result of a reader: the data fields of a ``Dataset``."""

    X: Features
    y: NDArray | None
    n_published_train: int | None = None
    similarities: frozenset[str] = frozenset()
    extras: Mapping[str, NDArray] = field(default_factory=dict)


type Reader = Callable[[str], Contents]


def from_scikit_learn(name: str) -> Contents:
    """Read a data set of scikit-learn, which has the same `name` there."""
    return Contents(*_load(name))


def iris_uci(name: str) -> Contents:
    """Read scikit-learn's corrected iris and put the two errors of the UCI file back in."""
    X, y = _load("iris")
    # Rows 35 and 38, counted from 1.  Fisher has 4.9, 3.1, 1.5, 0.2 and 4.9, 3.6, 1.4, 0.1.
    X.iloc[[34, 37]] = [4.9, 3.1, 1.5, 0.1]
    return Contents(X, y)


def _load(name: str) -> tuple[pd.DataFrame, NDArray]:
    # Imported late: scikit-learn takes half a second to import.
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    return bunch.data.astype(float), np.asarray(bunch.target_names)[bunch.target]


def generated(make: Callable[[], Dataset]) -> Reader:
    """Return a reader that calls a generator with its default arguments."""

    def read(name: str) -> Contents:
        dataset = make()
        return Contents(dataset.X, dataset.y)

    return read


def downloaded(table: OpenMLTable, columns: Sequence[str]) -> Callable[[], Contents]:
    """Return a download of one table, whose columns get the given names."""

    def read() -> Contents:
        X, codes = table.fetch()
        X.columns = list(columns)
        return Contents(X, np.asarray(table.classes)[codes])

    return read


def bundled(name: str) -> Contents:
    """Read a table that is part of the package."""
    with (files(__package__) / f"{name}.csv.gz").open("rb") as file:
        frame = pd.read_csv(file, compression="gzip")
    return Contents(*_features_and_labels(frame))


@dataclass(frozen=True)
class Cached:
    """Data set in a file of the cache folder or, if the file is missing, at OpenML.

    Parameters
    ----------
    file : CacheFile
    read : callable
        Maps the path of the file to ``Contents``.
    download : callable, optional
        Makes ``Contents`` from a download; given only if OpenML holds the data in the same form.
    """

    file: CacheFile
    read: Callable[[Path], Contents]
    download: Callable[[], Contents] | None = None

    @property
    def where(self) -> str:
        """Path of the file, "to be downloaded" or "missing"."""
        path = self.file.find()
        if path is not None:
            return str(path)
        return "missing" if self.download is None else "to be downloaded"

    def __call__(self, name: str) -> Contents:
        """Read the file, or download the data; `name` is for messages.

        Raises
        ------
        FileNotFoundError
            If there is no file, and either no known download or no connection.
        ValueError
            If the verification of the file or download fails.
        """
        path = self.file.verified()
        if path is not None:
            return self.read(path)
        if self.download is None:
            raise self.file.missing(name)
        try:
            return self.download()
        except OSError as error:
            raise self.file.missing(name) from error


def csv(
    columns: Sequence[str] | None = None, labels: Sequence[str] | None = None
) -> Callable[[Path], Contents]:
    """Return a reader of tables whose last column is the label.

    Parameters
    ----------
    columns : sequence of str, optional
        Names of the features; by default those of the file.
    labels : sequence of str, optional
        Names of the classes 1, 2, ...; by default as in the file.
    """

    def read(path: Path) -> Contents:
        X, y = _features_and_labels(pd.read_csv(path))
        if columns is not None:
            X.columns = list(columns)
        return Contents(X, y if labels is None else np.asarray(labels)[y - 1])

    return read


def _features_and_labels(frame: pd.DataFrame) -> tuple[pd.DataFrame, NDArray]:
    return frame.drop(columns="label").astype(float), np.array(frame["label"].tolist())
