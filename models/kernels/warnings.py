"""Warnings about kernels and features that are valid but most likely unintended."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...user_warnings import warn_user

# Off-diagonal entries below this fraction of the diagonal are negligible.
NEGLIGIBLE = 1e-6
# Objects are alike if their entry is above this fraction of the diagonal; an object with fewer
# alike objects than `NEIGHBOURS` is isolated.
ALIKE = 0.01
NEIGHBOURS = 3
# Ratio of standard deviations above which the features of the smaller scale hardly matter.
LARGEST_RATIO = 100.0
# Fraction of features of the smaller scale that triggers the warning: images have some pixels that
# are nearly constant, which is not a mistake.
LEAST_PART = 0.25
# Entries of a kernel are equal up to rounding if they differ by this fraction of the largest.
EQUAL_SHARE = 1e-12
# Kernels hardly matter whose largest entry is below this fraction of another kernel's, or whose
# scores have a prior scale below this number: on 40 and 150 objects of two classes, probabilities
# then were within 0.02 of one half, and predicted responses explained at most 3 % of the variance.
LEAST_OF_LARGEST = 1e-6
LEAST_SCORE = 0.05


class KernelWarning(UserWarning):
    """Kernels, or features of kernels, from which a model can learn little.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", category=kz.kernels.KernelWarning)
    ...     stack = kz.gaussian(100.0)(X_train)
    """


def warn_of_near_identity(stack: xr.DataArray, owner: str) -> None:
    """Warn of Gram matrices in which most objects are similar to hardly any other; O(N^2) each."""
    if not np.array_equal(stack["obs"].values, stack["basis"].values):
        return
    pairs = zip(stack["kernel"].values, stack.values, strict=True)
    names = [repr(str(name)) for name, gram in pairs if _is_nearly_identity(gram)]
    if names:
        warn_user(
            f"Kernels given to {owner} are nearly the identity: {', '.join(names)}. Relative to "
            f"the diagonal, more than half of the other entries are below {NEGLIGIBLE:g}, and most "
            f"objects have fewer than {NEIGHBOURS} entries above {ALIKE:g}, so that little can be "
            "learned about new objects. Use a wider kernel, such as gaussian('median'), on "
            "z-scored features.",
            KernelWarning,
        )


def warn_of_constant(values: NDArray, X: NDArray, name: str) -> None:
    """Warn if a kernel (obs, basis) of training objects' features X (n, D) is the same for all."""
    largest = float(values.max())
    if len(X) > 1 and largest > 0 and largest - values.min() <= EQUAL_SHARE * largest:
        warn_user(
            f"All entries of the kernel {name!r} are {largest:.3g}: it tells no training objects "
            f"apart, whose features differ by at most {np.ptp(X, axis=0).max():.3g}. z-score the "
            "features, or take the width from them, as gaussian('median') does.",
            KernelWarning,
        )


def warn_of_negligible(stack: xr.DataArray, owner: str, spread: float) -> None:
    """Warn of kernels (kernel, obs, basis) whose entries are so small that they hardly matter."""
    # The prior scale of an object's score is the norm of its row, times the `spread` of regressors.
    sizes = np.abs(stack.values).max(axis=(1, 2))
    with np.errstate(under="ignore"):
        norms = np.linalg.norm(stack.values, axis=(1, 2))
    scores = spread * norms / stack.sizes["obs"] ** 0.5
    small = (sizes < LEAST_OF_LARGEST * sizes.max()) | (scores < LEAST_SCORE)
    if small.any():
        named = ", ".join(f"{name!r}" for name in map(str, stack["kernel"].values[small]))
        warn_user(
            f"Kernels given to {owner} are so small that they hardly matter: {named}, with entries "
            f"of at most {sizes[small].max():.2g}, of {sizes.max():.2g} in the largest kernel. "
            "kernels.normalize('trace') brings kernels to one scale.",
            KernelWarning,
        )


def warn_of_strangers(new: NDArray, known: NDArray, owner: str) -> None:
    """Warn if most `new` rows (kernel, n, basis) are negligible beside a known one."""
    least = NEGLIGIBLE * np.abs(known).max(axis=1)
    strangers = (np.abs(new) <= least[:, None, None]).all(axis=(0, 2))
    if 2 * strangers.sum() > len(strangers):
        warn_user(
            f"{strangers.sum()} of {len(strangers)} new objects given to {owner} are like no "
            "training object in any kernel: their predictions are those of the prior. Are their "
            "features in the units of the training objects?",
            KernelWarning,
        )


def _is_nearly_identity(gram: NDArray) -> bool:
    """Whether most off-diagonal entries are negligible and most objects are isolated."""
    # Block-diagonal kernels of clusters, with many entries of zero, have no isolated objects.
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


def warn_of_unequal_scales(X: Any, space: str | None) -> None:
    """Warn if a quarter of the features (n, D) or more are negligible beside that of largest sd."""
    # Rounding can give a constant column a nonzero deviation.
    deviations = np.asarray(X.std(axis=0))
    sizes = np.asarray(abs(X).max(axis=0))
    spread = np.sort(deviations[deviations > 1e-12 * sizes])
    if len(spread) < 2:
        return
    low = spread[int(np.ceil(LEAST_PART * len(spread))) - 1]
    if spread[-1] > LARGEST_RATIO * low:
        where = "" if space is None else f" of X[{space!r}]"
        warn_user(
            f"Features are of very different scales: column {int(deviations.argmax())}{where} has "
            f"a standard deviation of {spread[-1]:.3g}, a quarter of the columns or more at most "
            f"{low:.3g}. The largest features dominate kernels that sum over features. z-score the "
            "features on the training part, as kz.datasets.load(name).split() or "
            "sklearn.preprocessing.StandardScaler do.",
            KernelWarning,
        )
