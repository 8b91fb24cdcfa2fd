r"""Objectives for learning the weights of a mixture of kernels.

An objective is a function of

.. math::

    \Theta_{11}(\alpha) = \sum_k \alpha_k \eta_k \Theta_{k,11},

eqs (10) and (13) of the paper of `WishartKernelMixture` up to a scale that no objective depends on,
of K11, and in one case of the training labels. The derivatives in Theta11 are exact and cost one
inverse and some products of n1 x n1 matrices. Below, :math:`P = \Theta_{11}^{-1}`, and -i means all
training objects except i.

- ``"leave-one-out log score"``: the mean log probability of the labels by a softmax, of learned
  sharpness, of the kernel nearest mean's class scores on row i of K11, predicted from K11 of -i.
- ``"alignment"``: alignment of centred Theta11 and K11 (Cortes, Mohri & Rostamizadeh, 2012), a
  baseline outside the model.

The density of K11, of which `log_evidence` is the value, is no good objective for an ideal kernel
of C classes plus eps I. It has n1 - C eigenvalues eps, and a density gives each of them the weight
of a class, so that it may prefer a kernel of low rank even if the classes do not follow it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from ...models.completion.input import PartitionedStack
from ...models.completion.moment_matching import check_component_degrees
from ...models.kernels.labels import aligned
from ...validation import argument_error, check_labels

__all__ = ["OBJECTIVES", "Criterion", "Given", "Objective", "Slope", "leave_one_out_rows"]

type Array = npt.NDArray[np.float64]
type Objective = Literal["leave-one-out log score", "alignment"]

_OWNER = "learn_weights"
#: Largest sharpness of the softmax: odds of e^10 for a difference of 0.1 in unit-scale similarity.
SHARPEST = 100.0


@dataclass(frozen=True)
class Given:
    """Validated input.

    Attributes
    ----------
    kernels : array (kernel, n1, n1)
        Training blocks of the kernels.
    names : array (kernel,)
    K11 : array (n1, n1)
    codes : array of int (n1,) or None
        Classes of the training objects.
    etas : array (kernel,)
    """

    kernels: Array
    names: npt.NDArray[Any]
    K11: Array
    codes: npt.NDArray[np.int64] | None
    etas: Array

    @classmethod
    def of(cls, theta: Any, K11: Any, labels: Any, eta: Any) -> "Given":
        """Validate the arguments of `learn_weights`."""
        stack = PartitionedStack.of(theta, K11, _OWNER)
        n1 = len(stack.K11)
        codes = None
        if labels is not None:
            labels = aligned(labels, stack.labels[:n1], "labels", _OWNER)
            codes, _ = check_labels(labels, "labels", _OWNER, n_objects=n1)
        kernels = np.ascontiguousarray(stack.kernels[:, :n1, :n1])
        empty = stack.names[np.trace(kernels, axis1=1, axis2=2) <= 0]
        if len(empty):
            raise argument_error(
                "theta", _OWNER, "of nonzero kernels", f"zeros for {str(empty[0])!r}"
            )
        etas = check_component_degrees(eta, stack.names, stack.kernels.shape[-1], _OWNER)
        return cls(kernels, stack.names, stack.K11, codes, etas)


class Slope(NamedTuple):
    """Value of an objective, and its derivative in Theta11."""

    value: float
    theta: Array


type Criterion = Callable[[Array], Slope]


def leave_one_out_rows(theta11: Array, K11: Array) -> Array:
    r"""Predict each training object's row of K11 from the other training objects.

    The posterior mean of K21 with object i alone as the test object,

    .. math::

        \hat K_{i,-i} = \Theta_{i,-i} \Theta_{-i,-i}^{-1} K_{-i,-i}, \qquad
        \hat K_{ij} = K_{ij} - (P K)_{ij} / P_{ii} \quad (j \ne i).

    Parameters
    ----------
    theta11, K11 : array (n1, n1)
        The scale of theta11 does not matter.

    Returns
    -------
    array (n1, n1)
        Row i is the prediction for object i; the diagonal, which is not predicted, is NaN.

    Notes
    -----
    O(n1^3) for all n1 predictions: one inverse and one product.
    """
    rows = _Rows.of(theta11, K11).predicted.copy()
    np.fill_diagonal(rows, np.nan)
    return rows


class _Rows(NamedTuple):
    """Leave-one-out predictions of the rows of K11, and terms for their derivative."""

    K11: Array
    P: Array
    residual: Array  # K11_ij minus its prediction, for j != i
    predicted: Array

    @classmethod
    def of(cls, theta11: Array, K11: Array) -> "_Rows":
        P = _inverse(theta11)
        residual = P @ K11 / np.diagonal(P)[:, None]
        return cls(K11, P, residual, K11 - residual)

    def slope(self, by_rows: Array) -> Array:
        """Differentiate in Theta11 a function whose derivative in `predicted` is `by_rows`.

        The diagonal of `by_rows`, which is not predicted, must be zero.
        """
        by_rows = by_rows / np.diagonal(self.P)[:, None]
        by_P = -by_rows @ self.K11
        by_P.flat[:: len(by_P) + 1] += (by_rows * self.residual).sum(axis=1)
        half = self.P @ by_P @ self.P
        return -(half + half.T) / 2


def _leave_one_out_log_score(given: Given) -> Criterion:
    """Make mean_i log softmax(c s_i)[y_i] at the best sharpness 0 <= c <= `SHARPEST` / scale.

    Scores s_ic are half the scores of `KernelNearestMean` learned from the objects -i. The
    derivative of a maximum over c is the derivative at the maximiser.
    """
    K11, codes, n1 = given.K11, given.codes, len(given.K11)
    if codes is None:
        raise argument_error("labels", _OWNER, "given for 'leave-one-out log score'", "None")
    members = np.eye(codes.max() + 1)[codes]
    others = members.sum(axis=0) - members  # members of each class without i
    if not others.all():
        smallest = int(members.sum(axis=0).min())
        raise argument_error(
            "labels",
            _OWNER,
            "of at least two objects in each class",
            f"a class of {smallest}",
        )
    sums, diagonal = K11 @ members, np.diagonal(K11)[:, None]
    within = np.diagonal(members.T @ sums) - members * (2 * sums - diagonal)
    norms = within / others**2
    sharpest = SHARPEST / float(diagonal.mean())

    def criterion(theta: Array) -> Slope:
        rows = _Rows.of(theta, K11)
        own = members * np.diagonal(rows.predicted)[:, None]
        scores = (rows.predicted @ members - own) / others - norms / 2

        def rise(sharpness: float) -> float:
            return float(((members - softmax(sharpness * scores, axis=1)) * scores).sum())

        if rise(sharpest) >= 0:
            sharpness = sharpest
        else:
            sharpness = float(brentq(rise, 0.0, sharpest)) if rise(0.0) > 0 else 0.0
        log_probability = log_softmax(sharpness * scores, axis=1)
        by_scores = sharpness / n1 * (members - np.exp(log_probability))
        by_rows = (by_scores / others) @ members.T
        np.fill_diagonal(by_rows, 0.0)
        return Slope(float(np.vdot(members, log_probability)) / n1, rows.slope(by_rows))

    return criterion


def _alignment(given: Given) -> Criterion:
    target = _centred(given.K11)
    target /= np.linalg.norm(target)

    def criterion(theta: Array) -> Slope:
        centred = _centred(theta)
        size = np.linalg.norm(centred)
        value = np.vdot(centred, target) / size
        return Slope(float(value), (target - value * centred / size) / size)

    return criterion


def _centred(kernel: Array) -> Array:
    means = kernel.mean(axis=0)
    return kernel - means - means[:, None] + means.mean()


def _inverse(matrix: Array) -> Array:
    """Inverse (n, n) of a positive definite matrix."""
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise argument_error(
            "theta",
            _OWNER,
            "of kernels whose weighted sums are positive definite; as_stack(theta, jitter=...) "
            "adds to their diagonals",
            "a sum that is not, up to rounding",
        )
    inverse, _ = lapack.dpotri(factor, lower=1)
    lower = np.tril(inverse, -1)
    return lower + lower.T + np.diag(np.diagonal(inverse))


#: Objectives by name.
OBJECTIVES: dict[Objective, Callable[[Given], Criterion]] = {
    "leave-one-out log score": _leave_one_out_log_score,
    "alignment": _alignment,
}
