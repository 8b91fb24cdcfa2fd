"""Data sets for the studies."""

from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import pandas as pd

from kernelzoo.datasets import Dataset, load
from kernelzoo.validation import check_name


@cache
def objects(name: str, standardize: bool, classes: tuple[str, ...] | None = None) -> Dataset:
    """Load all objects of a data set, or those of some classes; they are kept in memory."""
    data = load(name)
    X = cast(pd.DataFrame, data.X)
    y = np.asarray(data.y)
    if classes is not None:
        labels = y.astype(str)
        for label in classes:
            check_name(label, np.unique(labels).tolist(), "classes", "objects")
        kept = np.isin(labels, classes)
        X = X[kept]
        y = y[kept]
    if standardize:
        X = (X - X.mean()) / X.std(ddof=1).where(X.nunique() > 1, 1.0)
    return replace(data, X=X, y=y, n_published_train=None)


def absence(name: str) -> str | None:
    """Why a data set is not available; None when it is."""
    try:
        load(name)
    except FileNotFoundError as error:
        return str(error).partition(" (")[0]  # without the hint where to put the file
    return None
