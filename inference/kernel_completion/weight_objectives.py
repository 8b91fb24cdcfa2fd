r"""Objectives for learning the weights of a mixture of kernels.

An objective is a function of

.. math::

    \Theta_{11}(\alpha) = \sum_k \alpha_k \eta_k \Theta_{k,11} / \eta(\alpha), \qquad
    \delta(\alpha) = \eta(\alpha) - n_2,

eqs (10) and (13) of the paper of `WishartKernelMixture`, of K11, and in one case of the training
labels. The derivatives in Theta11 and delta are exact and cost one to four inverses and some
products of n1 x n1 matrices.

Below, :math:`P = \Theta_{11}^{-1}`, :math:`Q = (\Theta_{11} + K_{11})^{-1}`, -i means all training
objects except i, and F is a fold.

Densities of K11, which measure how well the whole matrix is explained:

- ``"evidence"``: log p(K11 | alpha) for the inverse-Wishart prior, as in `log_evidence`.
- ``"leave-one-out density"``: sum_i log p(row i of K11 | K11 of -i), the diagonal entry included.
- ``"held-out density"``: the same for five folds of objects, i mod 5, in place of single objects.
- ``"scaled likelihood"``: log W(K11; rho, s Theta11) at the best s. This is the evidence if Sigma11
  may differ from Theta11 in scale only; the maximiser does not depend on rho.

Errors of prediction, which measure how well the completed kernel predicts:

- ``"leave-one-out error"``: minus the mean squared error of predicting K11_ij, j != i, from K11 of
  -i.
- ``"leave-one-out log score"``: the mean log probability of the labels by a softmax, of learned
  sharpness, of the kernel nearest mean's class scores on the predicted row.

A baseline outside the model:

- ``"alignment"``: alignment of centred Theta11 and K11 (Cortes, Mohri & Rostamizadeh, 2012).

An ideal kernel of C classes plus eps I has n1 - C eigenvalues eps, and a density gives each of them
the weight of a class. So with a small eps the densities may prefer a kernel of low rank, such as a
linear kernel, even if the classes do not follow it. The errors of prediction do not have this
defect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, log_softmax, multigammaln, softmax

from ...models.completion.input import PartitionedStack, check_degrees_of_freedom
from ...models.completion.moment_matching import (
    check_component_degrees,
    matched_degrees,
    traces_of_products,
)
from ...models.kernels.alignment import aligned
from ...validation import argument_error, check_labels

__all__ = ["OBJECTIVES", "Criterion", "Given", "Slope", "leave_one_out_rows"]

type Array = npt.NDArray[np.float64]

_OWNER = "learn_weights"
#: Number of folds of "held-out density".
FOLDS = 5
#: Largest sharpness of the softmax: odds of e^10 for a difference of 0.1 in unit-scale similarity.
SHARPEST = 100.0


@dataclass(frozen=True)
class Given:
    """Validated input: training blocks, and figures of the whole kernels for eta(alpha).

    Attributes
    ----------
    kernels : array (kernel, n1, n1)
        Training blocks of the kernels.
    names : array (kernel,)
    K11 : array (n1, n1)
    codes : array of int (n1,) or None
        Classes of the training objects.
    traces : array (kernel,)
    products : array (kernel, kernel)
        tr(Theta_k Theta_l) of the whole kernels.
    etas : array (kernel,)
    rho : float
    n_test : int
    """

    kernels: Array
    names: npt.NDArray[Any]
    K11: Array
    codes: npt.NDArray[np.int64] | None
    traces: Array
    products: Array
    etas: Array
    rho: float
    n_test: int

    @classmethod
    def of(cls, theta: Any, K11: Any, labels: Any, eta: Any, rho: Any) -> "Given":
        """Validate the arguments of `learn_weights`."""
        stack = PartitionedStack.of(theta, K11, _OWNER)
        n = stack.kernels.shape[-1]
        n1 = len(stack.K11)
        codes = None
        if labels is not None:
            labels = aligned(labels, stack.labels[:n1], "labels", _OWNER)
            codes, _ = check_labels(labels, "labels", _OWNER, n_objects=n1)
        empty = stack.names[np.trace(stack.kernels[:, :n1, :n1], axis1=1, axis2=2) <= 0]
        if len(empty):
            raise argument_error(
                "theta", _OWNER, "of kernels that are not zero", f"zeros for {str(empty[0])!r}"
            )
        traces, products = traces_of_products(stack.kernels)
        return cls(
            kernels=np.ascontiguousarray(stack.kernels[:, :n1, :n1]),
            names=stack.names,
            K11=stack.K11,
            codes=codes,
            traces=traces,
            products=products,
            etas=check_component_degrees(eta, stack.names, n, _OWNER),
            rho=check_degrees_of_freedom(n + 1 if rho is None else rho, "rho", _OWNER, above=n - 1),
            n_test=n - n1,
        )

    def matched(self, alpha: Array) -> tuple[float, Array]:
        """Compute the matched eta, eq (13), and its gradient in alpha."""
        weights = alpha * self.etas
        eta = float(matched_degrees(self.traces, self.products, self.etas, weights))
        squares = self.traces**2 + np.diagonal(self.products)
        half = (weights @ self.traces) * self.traces + self.products @ weights
        size = (weights**2 / self.etas) @ squares
        return eta, 2 * (half * self.etas - eta * weights * squares) / size


class Slope(NamedTuple):
    """Value of an objective, and its derivatives in Theta11 and delta."""

    value: float
    theta: Array
    delta: float = 0.0


type Criterion = Callable[[Array, float], Slope]


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


def _evidence(given: Given) -> Criterion:
    """Make log p(K11 | alpha), a matrix-variate beta type II density."""
    K11, rho, n1 = given.K11, given.rho, len(given.K11)
    constant = (rho - n1 - 1) / 2 * _log_det(K11) - multigammaln(rho / 2, n1)
    halves = np.arange(n1) / 2

    def criterion(theta: Array, delta: float) -> Slope:
        (P, log_theta), (Q, log_sum) = _inverse(theta), _inverse(theta + K11)
        a, b = (rho + delta) / 2, delta / 2
        change = log_theta.sum() - log_sum.sum()
        gammas = multigammaln(a, n1) - multigammaln(b, n1)
        value = constant + gammas + b * log_theta.sum() - a * log_sum.sum()
        by_delta = digamma(a - halves).sum() - digamma(b - halves).sum() + change
        return Slope(value, b * P - a * Q, by_delta / 2)

    return criterion


def _leave_one_out_density(given: Given) -> Criterion:
    return _density_of_folds(given, np.arange(len(given.K11)))


def _held_out_density(given: Given) -> Criterion:
    return _density_of_folds(given, np.arange(len(given.K11)) % FOLDS)


def _density_of_folds(given: Given, fold: npt.NDArray[np.intp]) -> Criterion:
    r"""Make sum_F [log p(K11) - log p(K11 of -F)] for the fold (n1,) of each object.

    Without the m objects of F, delta falls by m. :math:`|A_{-F}| = |A| |(A^{-1})_{FF}|` for each of
    the three determinants; the blocks of all folds are factorised together, as one matrix.
    """
    K11, rho, n1 = given.K11, given.rho, len(given.K11)
    same = fold[:, None] == fold
    m = same.sum(axis=1)
    # Half the index of an object within its fold, for the arguments of the gamma functions.
    halves = np.tril(same, -1).sum(axis=1) / 2
    K_inverse, log_K = _inverse(K11)
    constant = -n1 / 2 * log_K.sum() - (rho - n1 + m - 1) / 2 @ _inverse(K_inverse * same)[1]
    for size in np.bincount(fold):
        constant -= multigammaln(rho / 2, n1) - multigammaln(rho / 2, n1 - size)

    def criterion(theta: Array, delta: float) -> Slope:
        (P, log_theta), (Q, log_sum) = _inverse(theta), _inverse(theta + K11)
        (P_blocks, log_P), (Q_blocks, log_Q) = _inverse(P * same), _inverse(Q * same)
        a, b = (rho + delta) / 2, delta / 2
        left_a, left_b = a - m / 2, b - m / 2
        value = constant + (gammaln(a - halves) - gammaln(b - halves)).sum()
        value += n1 / 2 * (log_theta.sum() - log_sum.sum()) + left_a @ log_Q - left_b @ log_P
        by_theta = n1 / 2 * (P - Q)
        by_theta += P @ (left_b * P_blocks) @ P - Q @ (left_a * Q_blocks) @ Q
        by_delta = (digamma(a - halves) - digamma(b - halves) + log_Q - log_P).sum()
        return Slope(value, by_theta, by_delta / 2)

    return criterion


def _scaled_likelihood(given: Given) -> Criterion:
    """Make max_s log W(K11; rho, s Theta11), where s = tr(Theta11^-1 K11) / (rho n1)."""
    K11, rho, n1 = given.K11, given.rho, len(given.K11)
    size = rho * n1
    constant = (rho - n1 - 1) / 2 * _log_det(K11) - multigammaln(rho / 2, n1)
    constant -= size / 2 * (1 + np.log(2 / size))

    def criterion(theta: Array, delta: float) -> Slope:
        P, log_theta = _inverse(theta)
        PK = P @ K11
        trace = np.trace(PK)
        value = constant - rho / 2 * log_theta.sum() - size / 2 * np.log(trace)
        return Slope(value, size / (2 * trace) * PK @ P - rho / 2 * P)

    return criterion


class _Rows(NamedTuple):
    """Leave-one-out predictions of the rows of K11, and terms for their derivative."""

    K11: Array
    P: Array
    residual: Array  # K11_ij minus its prediction, for j != i
    predicted: Array

    @classmethod
    def of(cls, theta11: Array, K11: Array) -> "_Rows":
        P, _ = _inverse(theta11)
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


def _leave_one_out_error(given: Given) -> Criterion:
    K11, n1 = given.K11, len(given.K11)
    entries = n1 * (n1 - 1)

    def criterion(theta: Array, delta: float) -> Slope:
        rows = _Rows.of(theta, K11)
        error = rows.residual.copy()
        np.fill_diagonal(error, 0.0)
        return Slope(-(error**2).sum() / entries, rows.slope(2 * error / entries))

    return criterion


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
            "of two objects or more in each class",
            f"a class of {smallest}",
        )
    sums, diagonal = K11 @ members, np.diagonal(K11)[:, None]
    within = np.diagonal(members.T @ sums) - members * (2 * sums - diagonal)
    norms = within / others**2
    sharpest = SHARPEST / float(diagonal.mean())

    def criterion(theta: Array, delta: float) -> Slope:
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

    def criterion(theta: Array, delta: float) -> Slope:
        centred = _centred(theta)
        size = np.linalg.norm(centred)
        value = np.vdot(centred, target) / size
        return Slope(float(value), (target - value * centred / size) / size)

    return criterion


def _centred(kernel: Array) -> Array:
    means = kernel.mean(axis=0)
    return kernel - means - means[:, None] + means.mean()


def _log_det(matrix: Array) -> float:
    return float(_inverse(matrix)[1].sum())


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverse (n, n) of a positive definite matrix, and terms (n,) of its log determinant.

    For a block-diagonal matrix in any order of rows, the terms of a block add up to its log
    determinant.
    """
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise argument_error(
            "theta",
            _OWNER,
            "of kernels whose weighted sums are positive definite; as_stack(theta, jitter=...) "
            "adds to their diagonals",
            "a sum that is not, to rounding",
        )
    inverse, _ = lapack.dpotri(factor, lower=1)
    lower = np.tril(inverse, -1)
    return lower + lower.T + np.diag(np.diagonal(inverse)), 2 * np.log(np.diagonal(factor))


#: Objectives by name.
OBJECTIVES: dict[str, Callable[[Given], Criterion]] = {
    "evidence": _evidence,
    "leave-one-out density": _leave_one_out_density,
    "held-out density": _held_out_density,
    "scaled likelihood": _scaled_likelihood,
    "leave-one-out error": _leave_one_out_error,
    "leave-one-out log score": _leave_one_out_log_score,
    "alignment": _alignment,
}
