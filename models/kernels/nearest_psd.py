"""Positive semidefinite kernels in place of indefinite similarities."""

from typing import Any

import numpy as np
import xarray as xr

from ...validation import check_finite, check_square_symmetric
from .source import DIMS
from .stack import check_gram, labelled, precision_of


def nearest_psd(similarities: Any, train: Any = None) -> xr.DataArray:
    r"""Set negative eigenvalues of similarities to zero, which makes them kernels.

    Scores of alignments, similarity network fusion and many kernels of graphs and strings have
    negative eigenvalues. With :math:`K = U \Lambda U'` the similarities of the training objects,
    :math:`U \max(\Lambda, 0) U'` is the nearest positive semidefinite matrix. The similarities k of
    a new object to the training objects become :math:`k'U\, 1(\Lambda \ge 0)\, U'`, so that a copy
    of a training object gets its row.

    Parameters
    ----------
    similarities : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        Similarities among the training objects, symmetric; or of new objects (rows) to the training
        objects, with `train`. Frames are aligned by label, as models do it.
    train : the same, optional
        Similarities among the training objects, if `similarities` are those of new objects.

    Returns
    -------
    DataArray (kernel, obs, basis)
        The coordinates ``smallest`` and ``negative`` (kernel) have the smallest eigenvalue and the
        number of negative ones before, and ``change`` the Frobenius norm of the difference to the
        similarities, relative to theirs. Kernels without negative eigenvalues are unchanged.

    Raises
    ------
    ValueError
        For similarities that are not finite or not symmetric (take the mean with the transpose),
        and new ones of other kernels or training objects.

    Notes
    -----
    One eigendecomposition per kernel, O(N^3).

    References
    ----------
    Y. Chen, E. K. Garcia, M. R. Gupta, A. Rahimi and L. Cazzanti (2009), Similarity-based
    classification: concepts and algorithms, JMLR 10: section 3.

    Examples
    --------
    >>> scores = truth["a"] - 0.1 * np.eye(len(truth["a"]))
    >>> kernels = kz.kernels.nearest_psd({"alignment": scores})
    >>> kernels["change"]
    >>> new = kz.kernels.nearest_psd({"alignment": scores[:2]}, {"alignment": scores})
    """
    owner = "nearest_psd"
    argument = "similarities" if train is None else "train"
    whole = labelled(similarities if train is None else train, None, owner, argument)
    check_gram(whole, owner, argument)
    given = whole if train is None else labelled(similarities, whole, owner, "similarities")
    for stack, name in ((whole, argument), (given, "similarities")):
        labels = [stack.indexes[dim].tolist() for dim in DIMS]
        values = np.asarray(stack.values, dtype=float)
        check_finite(values, name, owner, labels, similarities=True)
    changed = given.astype(float)
    found: dict[str, list[float]] = {"smallest": [], "negative": [], "change": []}
    for new, K in zip(changed.values, whole.values.astype(float), strict=True):
        check_square_symmetric(K, argument, owner, tolerance=precision_of(whole))
        eigenvalues, U = np.linalg.eigh((K + K.T) / 2)
        rounding = len(K) * np.finfo(float).eps * np.abs(eigenvalues).max()
        negative, before = U[:, eigenvalues < -rounding], new.copy()
        if negative.size:
            new[:] = new - (new @ negative) @ negative.T
        found["smallest"].append(float(eigenvalues[0]))
        found["negative"].append(negative.shape[1])
        found["change"].append(float(np.linalg.norm(new - before) / (np.linalg.norm(before) or 1)))
    return changed.assign_coords({name: ("kernel", values) for name, values in found.items()})
