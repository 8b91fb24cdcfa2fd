"""Data sets for the studies."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import pandas as pd

from kernelzoo.datasets import Dataset, load
from kernelzoo.validation import check_name


def objects(name: str, standardize: bool, classes: Sequence[str] | None = None) -> Dataset:
    """Load all objects of a data set, or those of some classes; they are cached in memory."""
    return _objects(name, standardize, None if classes is None else tuple(map(str, classes)))


@cache
def _objects(name: str, standardize: bool, classes: tuple[str, ...] | None) -> Dataset:
    data = load(name)
    X, y = cast(pd.DataFrame, data.X), np.asarray(data.y)
    if classes is not None:
        labels = y.astype(str)
        for label in classes:
            check_name(label, np.unique(labels).tolist(), "classes", "objects")
        kept = np.isin(labels, classes)
        X, y = X[kept], y[kept]
    if standardize:
        sd = X.std(ddof=1)
        X = (X - X.mean()) / sd.where(X.nunique() > 1, 1.0)
    return replace(data, X=X, y=y, n_published_train=None)


def absence(name: str) -> str | None:
    """Why a data set is not available; None when it is."""
    try:
        load(name)
    except FileNotFoundError as error:
        return str(error).partition(" (")[0]  # without the hint where to put the file
    return None
