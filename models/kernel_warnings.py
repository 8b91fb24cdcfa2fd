"""Warnings about kernels and features that are valid, and hardly ever what was meant."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .user_warnings import warn_user

__all__ = ["KernelWarning", "warn_of_near_identity", "warn_of_unequal_scales"]

# Entries off the diagonal that are smaller than this part of the diagonal count as none.
NEGLIGIBLE = 1e-6
# Ratio of standard deviations from which the features of the smaller ones hardly count.
LARGEST_RATIO = 100.0
# Part of the features that are of the smaller scale, from which a warning is given.
LEAST_PART = 0.25


class KernelWarning(UserWarning):
    """Kernels, or features of kernels, from which a model can learn little.

    ``warnings.filterwarnings("ignore", category=kz.KernelWarning)`` silences it where they are
    meant as they are.
    """


def warn_of_near_identity(stack: xr.DataArray, owner: str) -> None:
    """Warn of Gram matrices whose median absolute entry off the diagonal is negligible.

    Parameters
    ----------
    stack : DataArray (kernel, obs, basis)
        As `as_stack` returns it. Basis expansions have no diagonal, and pass.
    owner : str
        The model, for the message.

    Notes
    -----
    Costs O(N^2) a kernel.
    """
    if not np.array_equal(stack["obs"].values, stack["basis"].values):
        return
    names = [
        str(name)
        for name, gram in zip(stack["kernel"].values, stack.values, strict=True)
        if _is_nearly_identity(gram)
    ]
    if not names:
        return
    one = len(names) == 1
    warn_user(
        f"The {'kernel' if one else 'kernels'} {', '.join(map(repr, names))} given to {owner} "
        f"{'is' if one else 'are'} nearly the identity: more than half of the entries off the "
        f"diagonal are below {NEGLIGIBLE:g} of it, so that most pairs of objects have nothing in "
        "common, and little can be learned about new ones. Take a wider kernel, such as "
        "gaussian('median'), on z-scored features.",
        KernelWarning,
    )


def _is_nearly_identity(gram: NDArray) -> bool:
    """Whether more than half of the entries off the diagonal are negligible beside it."""
    n = len(gram)
    diagonal = np.abs(np.diagonal(gram))
    threshold = NEGLIGIBLE * np.median(diagonal)
    small = (gram < threshold) & (gram > -threshold)
    off_diagonal = int(np.count_nonzero(small)) - int(np.count_nonzero(diagonal < threshold))
    return 2 * off_diagonal > n * (n - 1)


def warn_of_unequal_scales(features: Mapping[str | None, NDArray]) -> None:
    """Warn where a quarter of the features or more hardly count beside the one of largest scale.

    Scales are standard deviations; features without spread are left out. A quarter, because images
    have some pixels that are nearly constant, which is no mistake.

    Parameters
    ----------
    features : mapping of feature space to ndarray (n, D)
        Those that kernels read which add features up.
    """
    found = [text for space, X in features.items() if (text := _unequal_scales(X, space))]
    if found:
        warn_user(
            f"Features are of very different scales: {'; '.join(found)}. A kernel that adds "
            "features up sees little but the largest. z-score the features on the training part: "
            "kz.datasets.load(name).split() does, and so does "
            "sklearn.preprocessing.StandardScaler.",
            KernelWarning,
        )


def _unequal_scales(X: NDArray, space: str | None) -> str | None:
    """Say which feature outweighs others by far, if there is one."""
    # Rounding gives a column of equal numbers a deviation of its own.
    deviations, sizes = X.std(axis=0), np.abs(X).max(axis=0)
    spread = np.sort(deviations[deviations > 1e-12 * sizes])
    if len(spread) < 2:
        return None
    low = spread[int(np.ceil(LEAST_PART * len(spread))) - 1]
    if spread[-1] <= LARGEST_RATIO * low:
        return None
    where = "" if space is None else f" of X[{space!r}]"
    return (
        f"column {int(deviations.argmax())}{where} has a standard deviation of {spread[-1]:.3g}, a "
        f"quarter of the columns or more at most {low:.3g}"
    )
