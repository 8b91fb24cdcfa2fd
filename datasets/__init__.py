"""Data for examples, tests and benchmarks: ``load(name)``, ``names()``, ``table()``.

Small sets come with the package or with scikit-learn, or are made by their rule.  The others are
read from the folder that the environment variable KERNELZOO_DATA names, else from the user's cache
folder, else they are downloaded from OpenML where they are the same there; a file is compared with
its checksum each time.
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
    """Names of all data sets."""
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
        On an unknown name, or a file that has not the right checksum.
    FileNotFoundError
        If the data are not here and cannot be downloaded; says which file to put where.
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
    """Sizes, place, source and licence of all data sets, one a row; reads no data."""
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
