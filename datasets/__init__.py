"""Data for examples, tests and benchmarks: ``load(name)``, ``names()``, ``table()``.

Small data sets come with the package or with scikit-learn, or are generated. The others are read
from the folder in the environment variable KERNELZOO_DATA or from the user's cache folder; if
neither has the file and OpenML holds the same data, they are downloaded. The checksum of a file is
verified each time.
"""

import pandas as pd

from ..validation import check_name
from .catalogue import read, where
from .dataset import CATALOGUE, Card, Dataset, Split
from .generators import balance_scale, cohort, neal_three_class, twonorm

__all__ = [
    "Card",
    "Dataset",
    "Split",
    "balance_scale",
    "cohort",
    "load",
    "names",
    "neal_three_class",
    "table",
    "twonorm",
]


def names() -> list[str]:
    """Names of all data sets.

    Examples
    --------
    >>> kz.datasets.names()
    """
    return list(CATALOGUE)


def load(name: str) -> Dataset:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        One of ``names()``. The generators take their default arguments.

    Returns
    -------
    Dataset
        ``load("wine").split(seed=1)`` has X_train, X_test, y_train and y_test.

    Raises
    ------
    ValueError
        For an unknown name, or a file with a wrong checksum.
    FileNotFoundError
        If the data are not found and cannot be downloaded; the message names the file and folders.

    Examples
    --------
    >>> data = kz.datasets.load("wine").split(test_size=0.3, seed=1)
    >>> data.X_train.shape
    """
    return read(check_name(name, CATALOGUE, "name", "load"))


def table() -> pd.DataFrame:
    """Sizes, location, source and licence of all data sets, one per row; reads no data.

    Examples
    --------
    >>> kz.datasets.table()
    """
    rows = pd.DataFrame.from_dict(CATALOGUE, orient="index").rename_axis("name")
    rows["where"] = [where(name) for name in CATALOGUE]
    return rows[["objects", "features", "classes", "where", "source", "licence"]]
