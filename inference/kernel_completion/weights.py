"""Weights of a mixture of kernels, learned from the training block alone.

The paper of `WishartKernelMixture` fixes the weights alpha and calls adapting them an open problem.
Here the weights maximise one of the `OBJECTIVES`, by L-BFGS with exact gradients.

References
----------
Zhang, Yeung and Kwok (2003), Probabilistic kernel matrix learning with a mixture model of kernels:
sections 4.2 and 7.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.optimize import OptimizeResult, minimize
from scipy.special import softmax

from ...validation import Count, check_arguments
from .weight_objectives import OBJECTIVES, Criterion, Given, Objective

__all__ = ["LearnedWeights", "learn_weights"]

type Array = npt.NDArray[np.float64]

_OWNER = "learn_weights"
#: Logarithms of the kernels' shares in the trace, up to a constant, stay within this of zero.
REACH = 8.0
#: Log ratio of the favoured kernel's share to the others' at a start that favours one kernel.
FAVOUR = 4.0


@dataclass(frozen=True)
class LearnedWeights:
    """Weights that maximise an objective.

    Attributes
    ----------
    alpha : DataArray (kernel,)
        Positive weights that add up to 1. The smallest share in the trace is about 1e-7.
    objective : str
    value : float
        Value of the objective at alpha. Larger is better for every objective.
    trajectory : ndarray (iteration,)
        Values along the search that gave alpha, its start first.
    ends : ndarray (start,)
        Final values of all searches, which differ if there are several optima.
    converged : bool
        Whether the search that gave alpha ended before the largest number of iterations.
    """

    alpha: xr.DataArray
    objective: Objective
    value: float
    trajectory: Array
    ends: Array
    converged: bool


def learn_weights(
    theta: Any,
    K11: Any,
    objective: Objective = "leave-one-out log score",
    *,
    labels: npt.ArrayLike | None = None,
    eta: npt.ArrayLike | None = None,
    max_iterations: Count = 200,
) -> LearnedWeights:
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
        ``help("kernelzoo.inference.kernel_completion.weight_objectives")`` has the equations.
    labels : array_like or Series (n1,), optional
        Classes of the training objects, with at least two objects each; required for the log
        score. A Series is aligned by ids, as for the models.
    eta : float or array_like (kernel,), optional
        Degrees of freedom eta_k. Default: n + 1.
    max_iterations : int, default=200
        Largest number of L-BFGS iterations from each start.

    Returns
    -------
    LearnedWeights

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
    >>> learned = kz.completion.learn_weights(theta, K11, labels=y_train)
    >>> model = kz.WishartKernelMixture(theta, K11, alpha=learned.alpha)
    """
    check_arguments(learn_weights, locals())
    given = Given.of(theta, K11, labels, eta)
    evaluate = _Objective(given, OBJECTIVES[objective](given))
    searches = [_search(evaluate, start, max_iterations) for start in evaluate.starts()]
    ends = np.array([search.trajectory[-1] for search in searches])
    best = searches[int(ends.argmax())]
    return LearnedWeights(
        alpha=xr.DataArray(
            evaluate.weights(best.x), dims="kernel", coords={"kernel": given.names}, name="alpha"
        ),
        objective=objective,
        value=float(ends.max()),
        trajectory=np.array(best.trajectory),
        ends=ends,
        converged=bool(best.success),
    )


class _Objective:
    """An objective as a function of the log shares u in the trace."""

    def __init__(self, given: Given, criterion: Criterion):
        self._given, self._criterion = given, criterion
        self._log_trace = np.log(np.trace(given.kernels, axis1=1, axis2=2))

    def weights(self, u: Array) -> Array:
        """Weights alpha (kernel,)."""
        return softmax(u - self._log_trace)

    def starts(self) -> Iterator[Array]:
        n_kernels = len(self._log_trace)
        yield np.zeros(n_kernels)
        yield np.clip(self._log_trace - self._log_trace.mean(), -REACH, REACH)
        yield from FAVOUR * (np.eye(n_kernels) - 1 / n_kernels)

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Value and gradient in u."""
        alpha, given = self.weights(u), self._given
        slope = self._criterion(np.tensordot(alpha * given.etas, given.kernels, axes=1))
        gradient = np.tensordot(given.kernels, slope.theta, axes=2) * given.etas
        return slope.value, alpha * (gradient - alpha @ gradient)


def _search(evaluate: _Objective, start: Array, max_iterations: int) -> OptimizeResult:
    """Maximise from `start`; the field `trajectory` of SciPy's result holds the values."""
    first, _ = evaluate(start)
    trajectory = [first]
    # L-BFGS-B stops by the absolute size of the gradient.
    scale = abs(first) or 1.0

    def descend(u: Array) -> tuple[float, Array]:
        value, gradient = evaluate(u)
        return -value / scale, -gradient / scale

    def record(intermediate_result: OptimizeResult) -> None:
        trajectory.append(-scale * intermediate_result.fun)

    result = minimize(
        descend,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-REACH, REACH)] * len(start),
        callback=record,
        options={"maxiter": max_iterations},
    )
    result.trajectory = trajectory
    return result
