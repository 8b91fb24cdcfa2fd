"""Warnings about kernels and features that are valid, and hardly ever what was meant."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...user_warnings import warn_user

__all__ = ["KernelWarning", "warn_of_near_identity", "warn_of_unequal_scales"]

# Entries off the diagonal that are smaller than this part of the diagonal count as none.
NEGLIGIBLE = 1e-6
# From this part of the diagonal two objects are alike; an object that is so to fewer others than
# these stands alone.
ALIKE, NEIGHBOURS = 0.01, 3
# Ratio of standard deviations from which the features of the smaller ones hardly count.
LARGEST_RATIO = 100.0
# Part of the features that are of the smaller scale, from which a warning is given.
LEAST_PART = 0.25


class KernelWarning(UserWarning):
    """Kernels, or features of kernels, from which a model can learn little.

    ``warnings.filterwarnings("ignore", category=kz.kernels.KernelWarning)`` silences it where they
    are meant as they are.
    """


def warn_of_near_identity(stack: xr.DataArray, owner: str) -> None:
    """Warn of Gram matrices of whose objects most have next to nothing in common with any other.

    That is, the median absolute entry off the diagonal is negligible, and more than half of the
    objects have fewer than three that they are alike to. A block-diagonal kernel of clusters has
    many entries of zero as well, and objects that are alike.

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
        f"diagonal are below {NEGLIGIBLE:g} of it, and most objects have fewer than {NEIGHBOURS} "
        f"others with entries above {ALIKE:g} of it, so that little can be learned about new ones. "
        "Take a wider kernel, such as gaussian('median'), on z-scored features.",
        KernelWarning,
    )


def _is_nearly_identity(gram: NDArray) -> bool:
    """Whether most entries off the diagonal are negligible, and most objects stand alone."""
    n = len(gram)
    diagonal = np.abs(np.diagonal(gram))
    unit = np.median(diagonal)
    threshold = NEGLIGIBLE * unit
    small = (gram < threshold) & (gram > -threshold)
    off_diagonal = int(np.count_nonzero(small)) - int(np.count_nonzero(diagonal < threshold))
    if 2 * off_diagonal <= n * (n - 1):
        return False
    alike = (gram > ALIKE * unit) | (gram < -ALIKE * unit)
    neighbours = np.count_nonzero(alike, axis=1) - np.diagonal(alike)
    return 2 * int(np.count_nonzero(neighbours < NEIGHBOURS)) > n


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
