r"""Weights of a mixture of kernels, learned from the training block alone.

The paper of `WishartKernelMixture` (Zhang, Yeung and Kwok 2003, sections 4.2 and 7) fixes the
weights alpha and calls adapting them an open problem. Here the weights maximise an objective, by
L-BFGS with exact gradients. Objectives are functions of Theta11, the scale matched by eq (10) up to
a factor that no objective depends on, of K11, and in one case of the training labels. Their
derivatives in Theta11 are exact and cost one inverse and some products of n1 x n1 matrices. Below,
:math:`P = \Theta_{11}^{-1}`, and -i means all training objects except i.

- ``"leave-one-out log score"``: the mean log probability of the labels by a softmax, of learned
  sharpness, of the kernel nearest mean's class scores on row i of K11, predicted from K11 of -i.
- ``"alignment"``: alignment of centred Theta11 and K11 (Cortes, Mohri & Rostamizadeh, 2012), a
  baseline outside the model.

The density of K11 (`log_evidence`) is not a good objective for an ideal kernel of C classes plus
eps I. It has n1 - C eigenvalues eps, and a density gives each of them the weight of a class, so
that it may prefer a kernel of low rank even if the classes do not follow it.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.linalg import lapack
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax

from ...models.completion.input import PartitionedStack
from ...models.completion.moment_matching import check_component_degrees
from ...models.kernels.labels import aligned
from ...validation import Count, argument_error, check_arguments, check_labels

type Array = npt.NDArray[np.float64]
type Objective = Literal["leave-one-out log score", "alignment"]
#: Value of an objective at Theta11, and its derivative.
type Criterion = Callable[[Array], tuple[float, Array]]

_OWNER = "learn_weights"
#: Logarithms of the kernels' shares in the trace, up to a constant, stay within this of zero.
LARGEST_LOG_SHARE = 8.0
#: Log ratio of the favoured kernel's share to the others' at a start that favours one kernel.
FAVOUR = 4.0
#: Largest sharpness of the softmax: odds of e^10 for a difference of 0.1 in unit-scale similarity.
SHARPEST = 100.0


def learn_weights(
    theta: Any,
    K11: Any,
    objective: Objective = "leave-one-out log score",
    *,
    labels: npt.ArrayLike | None = None,
    eta: npt.ArrayLike | None = None,
    max_iterations: Count = 200,
) -> xr.DataArray:
    """Learn the weights of a mixture of kernels.

    Parameters
    ----------
    theta : stack of kernels (kernel, n, n)
        Kernels of all objects, training objects first, as in `WishartKernelMixture`. Only the
        training blocks matter.
    K11 : array_like, DataFrame or DataArray (n1, n1)
        Observed positive definite kernel of the training objects.
    objective : {"leave-one-out log score", "alignment"}, default="leave-one-out log score"
        Objective to maximise: the mean log probability of each label by the kernel nearest mean on
        the row of K11 that is completed from the other objects; or the cosine between the centred
        sum and the centred K11, without a model.
        ``help("kernelzoo.inference.kernel_completion.weights")`` has the equations.
    labels : array_like or Series (n1,), optional
        Classes of the training objects, with at least two objects each; required for the log
        score. A Series is aligned by ids, as for the models.
    eta : float or array_like (kernel,), optional
        Degrees of freedom eta_k. Default: n + 1.
    max_iterations : int, default=200
        Largest number of L-BFGS iterations from each start.

    Returns
    -------
    DataArray (kernel,)
        Positive weights that add up to 1; the smallest share in the trace is about 1e-7. The
        attributes are the ``objective``, its ``value`` at the weights, the larger the better, and
        ``converged``: whether the best search ended before the largest number of iterations.

    Raises
    ------
    ValueError
        For an unknown objective, missing or mismatched labels, a weighted sum of kernels that is
        not positive definite, and any input that `WishartKernelMixture` rejects.

    Notes
    -----
    The coordinates are logarithms of the kernels' shares in the trace of the sum. Searches start
    from equal shares, from equal weights, and from each kernel with the others at e^-4 of its
    share; the best end is kept. An evaluation costs O(n1^3 + K n1^2).

    Examples
    --------
    >>> alpha = kz.completion.learn_weights(theta, K11, labels=y_train)
    >>> model = kz.WishartKernelMixture(theta, K11, alpha=alpha)
    """
    check_arguments(learn_weights, locals())
    stack = PartitionedStack.of(theta, K11, _OWNER)
    n1 = len(stack.K11)
    codes = None
    if labels is not None:
        labels = aligned(labels, stack.labels[:n1], "labels", _OWNER)
        codes, _ = check_labels(labels, "labels", _OWNER, n_objects=n1)
    kernels = np.ascontiguousarray(stack.kernels[:, :n1, :n1])
    traces = np.trace(kernels, axis1=1, axis2=2)
    if len(empty := stack.names[traces <= 0]):
        raise argument_error("theta", _OWNER, "of nonzero kernels", f"zeros for {str(empty[0])!r}")
    etas = check_component_degrees(eta, stack.names, stack.kernels.shape[-1], _OWNER)
    evaluate = _InShares(OBJECTIVES[objective](stack.K11, codes), kernels, etas)
    favouring = FAVOUR * (np.eye(len(traces)) - 1 / len(traces))
    equal_weights = np.clip(
        np.log(traces) - np.log(traces).mean(), -LARGEST_LOG_SHARE, LARGEST_LOG_SHARE
    )
    starts = [np.zeros(len(traces)), equal_weights, *favouring]
    searches = [_search(evaluate, start, max_iterations) for start in starts]
    value, u, converged = max(searches, key=lambda search: search[0])
    found = {"objective": objective, "value": value, "converged": int(converged)}
    coords = {"kernel": stack.names}
    return xr.DataArray(evaluate.weights(u), coords, "kernel", name="alpha", attrs=found)


class _InShares(NamedTuple):
    """An objective as a function of the log shares u (kernel,) in the trace."""

    criterion: Criterion
    kernels: Array
    etas: Array

    def weights(self, u: Array) -> Array:
        """Weights alpha (kernel,)."""
        return softmax(u - np.log(np.trace(self.kernels, axis1=1, axis2=2)))

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Value and gradient in u."""
        alpha = self.weights(u)
        value, slope = self.criterion(np.tensordot(alpha * self.etas, self.kernels, axes=1))
        gradient = np.tensordot(self.kernels, slope, axes=2) * self.etas
        return value, alpha * (gradient - alpha @ gradient)


def _search(evaluate: _InShares, start: Array, max_iterations: int) -> tuple[float, Array, bool]:
    """Maximise from `start`: the value, where it is, and whether the search converged."""
    # L-BFGS-B stops by the absolute size of the gradient.
    scale = abs(evaluate(start)[0]) or 1.0

    def descend(u: Array) -> tuple[float, Array]:
        value, gradient = evaluate(u)
        return -value / scale, -gradient / scale

    result = minimize(
        descend,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-LARGEST_LOG_SHARE, LARGEST_LOG_SHARE)] * len(start),
        options={"maxiter": max_iterations},
    )
    return -scale * float(result.fun), result.x, bool(result.success)


def leave_one_out_rows(theta11: Array, K11: Array) -> Array:
    r"""Rows of K11, each predicted from the other training objects; NaN on the diagonal. O(n1^3).

    The posterior mean of K21 with object i alone as the test object; the scale of theta11 does not
    matter:

    .. math::

        \hat K_{i,-i} = \Theta_{i,-i} \Theta_{-i,-i}^{-1} K_{-i,-i}, \qquad
        \hat K_{ij} = K_{ij} - (P K)_{ij} / P_{ii} \quad (j \ne i).
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


def _leave_one_out_log_score(K11: Array, codes: npt.NDArray[np.int64] | None) -> Criterion:
    """Make mean_i log softmax(c s_i)[y_i] at the best sharpness 0 <= c <= `SHARPEST` / scale.

    Scores s_ic are half the scores of `KernelNearestMean` learned from the objects -i. The
    derivative of a maximum over c is the derivative at the maximiser.
    """
    n1 = len(K11)
    if codes is None:
        raise argument_error("labels", _OWNER, "given for 'leave-one-out log score'", "None")
    members = np.eye(codes.max() + 1)[codes]
    others = members.sum(axis=0) - members  # members of each class without i
    if not others.all():
        smallest = int(members.sum(axis=0).min())
        rule = "of at least two objects in each class"
        raise argument_error("labels", _OWNER, rule, f"a class of {smallest}")
    sums = K11 @ members
    diagonal = np.diagonal(K11)[:, None]
    within = np.diagonal(members.T @ sums) - members * (2 * sums - diagonal)
    norms = within / others**2
    sharpest = SHARPEST / float(diagonal.mean())

    def criterion(theta: Array) -> tuple[float, Array]:
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
        return float(np.vdot(members, log_probability)) / n1, rows.slope(by_rows)

    return criterion


def _alignment(K11: Array, codes: npt.NDArray[np.int64] | None) -> Criterion:
    target = _centred(K11)
    target /= np.linalg.norm(target)

    def criterion(theta: Array) -> tuple[float, Array]:
        centred = _centred(theta)
        size = np.linalg.norm(centred)
        value = np.vdot(centred, target) / size
        return float(value), (target - value * centred / size) / size

    return criterion


def _centred(kernel: Array) -> Array:
    means = kernel.mean(axis=0)
    return kernel - means - means[:, None] + means.mean()


def _inverse(matrix: Array) -> Array:
    """Inverse (n, n) of a positive definite matrix."""
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        rule = (
            "of kernels whose weighted sums are positive definite; as_stack(theta, jitter=...) "
            "adds to their diagonals"
        )
        raise argument_error("theta", _OWNER, rule, "a sum that is not, up to rounding")
    inverse, _ = lapack.dpotri(factor, lower=1)
    lower = np.tril(inverse, -1)
    return lower + lower.T + np.diag(np.diagonal(inverse))


#: Objectives by name: functions of K11 and the codes of the training labels.
OBJECTIVES: dict[Objective, Callable[[Array, npt.NDArray[np.int64] | None], Criterion]] = {
    "leave-one-out log score": _leave_one_out_log_score,
    "alignment": _alignment,
}
