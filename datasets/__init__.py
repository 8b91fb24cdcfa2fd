"""Data for examples, tests and benchmarks: ``load(name)``, ``names()``, ``table()``.

Small data sets come with the package or with scikit-learn, or are generated.  The others are read
from the folder in the environment variable KERNELZOO_DATA or from the user's cache folder; if
neither has the file and OpenML holds the same data, they are downloaded.  The checksum of a file is
verified each time.
"""

from difflib import get_close_matches

import pandas as pd

from .catalogue import CATALOGUE
from .dataset import Card, Dataset, Split
from .generators import balance_scale, cohort, neal_three_class, twonorm
from .sources import Cached

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
        One of ``names()``.  The generators take their default arguments.

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
    if name not in CATALOGUE:
        near = get_close_matches(str(name), CATALOGUE, n=1)
        hint = f" (the nearest is {near[0]!r})" if near else ""
        raise ValueError(
            f"The 'name' argument of load must be one of {', '.join(map(repr, CATALOGUE))}. "
            f"Got {name!r}{hint}."
        )
    entry = CATALOGUE[name]
    contents = entry.read(name)
    return Dataset(
        name=name,
        X=contents.X,
        y=contents.y,
        card=entry.card,
        n_published_train=contents.n_published_train,
        similarities=contents.similarities,
        extras=contents.extras,
    )


def table() -> pd.DataFrame:
    """Sizes, location, source and licence of all data sets, one per row; reads no data.

    Examples
    --------
    >>> kz.datasets.table()
    """
    return pd.DataFrame(
        {
            "objects": [entry.objects for entry in CATALOGUE.values()],
            "features": [entry.features for entry in CATALOGUE.values()],
            "classes": [entry.classes for entry in CATALOGUE.values()],
            "where": [
                entry.read.where if isinstance(entry.read, Cached) else "package"
                for entry in CATALOGUE.values()
            ],
            "source": [entry.card.source for entry in CATALOGUE.values()],
            "licence": [entry.card.licence for entry in CATALOGUE.values()],
        },
        index=pd.Index(CATALOGUE, name="name"),
    )
