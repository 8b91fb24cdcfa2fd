"""Positive semidefinite kernels in place of indefinite similarities."""

from typing import Any, Literal

import numpy as np
import xarray as xr

from ...validation import check_finite, check_name, check_square_symmetric
from .source import DIMS
from .stack import check_gram, labelled, precision_of

#: How many times the part along an eigenvector with a negative eigenvalue is taken off.
TAKEN_OFF = {"clip": 1.0, "flip": 2.0, "shift": 0.0}


def nearest_psd(
    similarities: Any, train: Any = None, *, method: Literal["clip", "flip", "shift"] = "clip"
) -> xr.DataArray:
    r"""Change indefinite similarities into positive semidefinite kernels.

    Scores of alignments, similarity network fusion and many kernels of graphs and strings have
    negative eigenvalues. With :math:`K = U \Lambda U'` the similarities of the training objects and
    k those of a new object to them:

    ======= ==================================== =======================================
    method  training objects                     new objects
    ======= ==================================== =======================================
    "clip"  :math:`U \max(\Lambda, 0) U'`        :math:`k'U\, 1(\Lambda \ge 0)\, U'`
    "flip"  :math:`U |\Lambda| U'`               :math:`k'U\, \mathrm{sign}(\Lambda)\, U'`
    "shift" :math:`K - \min(\Lambda) I`          :math:`k'`
    ======= ==================================== =======================================

    "clip" gives the nearest positive semidefinite matrix. A copy of a training object gets its row
    ("shift": but for the diagonal).

    Parameters
    ----------
    similarities : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        Similarities among the training objects, symmetric; or of new objects (rows) to the training
        objects, with `train`. Frames are aligned by label, as models do it.
    train : the same, optional
        Similarities among the training objects, if `similarities` are those of new objects.
    method : {"clip", "flip", "shift"}, default="clip"
        What becomes of negative eigenvalues.

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
    check_name(method, TAKEN_OFF, "method", owner)
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
        negative, before = eigenvalues < -rounding, new.copy()
        if negative.any() and method != "shift":
            new[:] = new - (new @ U[:, negative]) @ (TAKEN_OFF[method] * U[:, negative].T)
        elif negative.any() and train is None:
            new.flat[:: len(K) + 1] -= eigenvalues[0]
        found["smallest"].append(float(eigenvalues[0]))
        found["negative"].append(int(negative.sum()))
        found["change"].append(float(np.linalg.norm(new - before) / (np.linalg.norm(before) or 1)))
    return changed.assign_coords({name: ("kernel", values) for name, values in found.items()})
