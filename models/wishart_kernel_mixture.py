"""Completion of a kernel matrix by a mixture of kernels (Zhang, Yeung & Kwok, 2003)."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from ..validation import Seed, argument_error, check_flag, check_name
from .completion.blocks import (
    Blocks,
    declare_inverse_wishart,
    declare_kernel,
    object_coords,
    partition,
)
from .completion.input import (
    PartitionedStack,
    check_degrees_of_freedom,
    check_positive_definite,
    check_weights,
)
from .completion.moment_matching import (
    check_component_degrees,
    matched_by_trace,
    matched_degrees,
    traces_of_products,
)
from .distributions.dirichlet import Dirichlet
from .distributions.wishart import MatrixF, Wishart
from .kernels.labels import numbers_by_kernel
from .operations.arrays import cholesky_or_nan, matrix_product, weighted_sum
from .wishart_completion import (
    CompletionParameters,
    Partitioned,
    WishartCompletion,
    example_kernels,
)


class WishartKernelMixture(Partitioned):
    r"""Kernel matrix whose Wishart parameter is a weighted sum of random kernel matrices.

    .. math::

        M_k &\sim \mathrm{W}(\eta_k, \Theta_k), \qquad
            \Sigma = \textstyle\sum_k \alpha_k M_k \\
        K \mid \Sigma &\sim \mathrm{W}(\rho, \Sigma), \qquad K_{11} \text{ observed}

    with K in blocks as in `WishartCompletion`. The weights :math:`\alpha` are fixed or
    Dirichlet-distributed. `prior` is the declared prior of :math:`\Sigma`:

    ``"mixture"``
        The sum with all :math:`M_k`. Exact; :math:`K n(n+1)/2` free numbers, for small n.
    ``"wishart"``
        :math:`\mathrm{W}(\eta, \Theta)`, eq (9), matched to the sum by eqs (10) and (13).
    ``"inverse-wishart"``
        :math:`\mathrm{IW}(\eta, \Theta)` of the same parameters. The paper's EM and tables use it,
        although the mean of Sigma is then not that of the sum. With fixed weights the model is a
        `WishartCompletion` with the matched parameters, and all its engines apply.

    Parameters
    ----------
    theta : stack of kernels (kernel, n, n)
        Positive semidefinite kernels Theta_k of all objects, ordered as in `WishartCompletion`.
    K11 : array_like, DataFrame or DataArray (n1, n1)
        Observed positive definite kernel of the training objects.
    alpha : array_like (kernel,), optional
        Fixed non-negative weights. Default: equal weights that sum to 1.
    concentration : float or array_like (kernel,), optional
        Learn the weights: alpha ~ Dirichlet(concentration). Excludes `alpha`.
    eta : float or array_like (kernel,), optional
        Degrees of freedom eta_k above n - 1. Default: n + 1.
    rho : float, optional
        Degrees of freedom of K above n - 1. Default: n + 1.
    prior : {"inverse-wishart", "wishart", "mixture"}, default="inverse-wishart"
        Prior of Sigma.
    collapsed : bool, default=False
        Integrate Sigma and the missing blocks out and declare only p(K11 | alpha), a `MatrixF`.
        Only alpha is then sampled, at O(n1^3) per gradient. Needs the inverse-Wishart prior.

    Raises
    ------
    ValueError
        As for `WishartCompletion`.

    Notes
    -----
    ============ ================================================ ================================
    paper        meaning                                          code
    ============ ================================================ ================================
    n1, n2, n    training, test, all objects                      dims train, test, object
    Theta_k      hyperparameter kernels, eq (8)                   ``theta`` (kernel, object, ...)
    eta_k        degrees of freedom, eq (8)                       ``etas``
    alpha_k      mixing coefficients, eq (7)                      ``alpha`` (kernel)
    M_k          components, eq (8)                               ``M`` (kernel, object, object_)
    eta, Theta   matched parameters, eqs (9), (10), (13)          ``parameters``
    rho          degrees of freedom of K, eq (4)                  ``rho``
    K11          target kernel of the training objects, eq (3)    ``K11`` (train, train_)
    K21, K22.1   missing blocks, eq (5)                           ``K21`` (test, train), ``K22_1``
    ============ ================================================ ================================

    If `collapsed`, ``K21_mean_given_alpha`` is
    :math:`E[K_{21} \mid \alpha, K_{11}] = \Theta_{21} \Theta_{11}^{-1} K_{11}`, which has the same
    posterior mean as K21. The evidence of an ideal kernel has modes in alpha that are narrower than
    0.01 and differ by thousands of nats: start chains (``initvals``) at the best of several modes,
    ``fit(model, "map")`` with different seeds. ``kz.completion.learn_weights`` gives weights that
    predict better. A density evaluation costs O(n^3), K times that for the mixture.

    References
    ----------
    Z. Zhang, D.-Y. Yeung and J. T. Kwok (2003), Probabilistic kernel matrix learning with a mixture
    model of kernels, Hong Kong University of Science and Technology.

    Examples
    --------
    >>> theta = (kz.gaussian(2 / 3) | kz.polynomial(2) | kz.linear())(X)  # training objects first
    >>> K11 = (y_train[:, None] == y_train) + 0.05 * np.eye(len(y_train))
    >>> model = kz.WishartKernelMixture(theta, K11)
    >>> kz.fit(model, kz.EM(max_iterations=100))["point"]["K21"]

    Weights from the evidence:

    >>> model = kz.WishartKernelMixture(theta, K11, concentration=1, collapsed=True)
    >>> kz.fit(model, "nuts")
    """

    large: frozenset[str] = WishartCompletion.large | {"M", "Sigma", "K21_mean_given_alpha"}

    def __init__(
        self,
        theta: Any,
        K11: Any,
        *,
        alpha: Any = None,
        concentration: Any = None,
        eta: Any = None,
        rho: float | None = None,
        prior: str = "inverse-wishart",
        collapsed: bool = False,
    ):
        owner = type(self).__name__
        super().__init__()
        self.prior = check_name(prior, _PRIORS, "prior", owner)
        self.collapsed = collapsed = check_flag(collapsed, "collapsed", owner)
        self.learned = concentration is not None
        # By the law of total expectation, both variables have the posterior mean of K21.
        self.completed = "K21_mean_given_alpha" if collapsed else "K21"
        self.streamed = (self.completed,) if collapsed else (self.completed, "K22")
        if self.learned and alpha is not None:
            raise argument_error("alpha", owner, "left out when `concentration` is given", "both")
        if collapsed and prior != "inverse-wishart":
            raise argument_error("collapsed", owner, "False for this prior", f"True, {prior!r}")
        if collapsed and not self.learned:
            rule = "False if nothing is learned: log_evidence gives the density then"
            raise argument_error("collapsed", owner, rule, "True")
        given = PartitionedStack.of(theta, K11, owner)
        n = given.kernels.shape[-1]
        n1 = len(given.K11)
        self.rho = check_degrees_of_freedom(rho, "rho", owner, n)
        self.etas = check_component_degrees(eta, given.names, n, owner)
        weights = check_weights(alpha, given.names, "alpha", owner)
        # The scales of the prior's Wishart distributions.
        scales = given.kernels if prior == "mixture" else [np.tensordot(weights, given.kernels, 1)]
        for scale in scales:
            check_positive_definite(scale, "theta", owner)
        self.add_coords(object_coords(given.labels, n1) | {"kernel": given.names})

        with self:
            dims = ("kernel", "object", "object_")
            kernels = pm.Data("theta", given.kernels, shape=given.kernels.shape, dims=dims)
            observed = pm.Data("K11_values", given.K11, shape=(n1, n1), dims=("train", "train_"))
            if concentration is not None:
                shape = numbers_by_kernel(
                    *(concentration, given.names, "concentration", owner),
                    *("finite and above 0", lambda each: each > 0, 1.0),
                )
                alpha = Dirichlet("alpha", shape, dims="kernel")
            else:
                alpha = pm.Data("alpha", weights, dims="kernel")
            mixture = _Mixture(kernels, pt.as_tensor(self.etas), alpha)
            if collapsed:
                _declare_evidence(mixture, self.rho, observed, n1)
            else:
                declare_kernel(_PRIORS[self.prior](mixture, n1), self.rho, observed, n1)
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0, **options: Any) -> Self:
        """Smallest instance that every engine can fit, with options of the constructor."""
        squared, ideal = example_kernels(random_seed)
        theta = {"near": np.exp(-2 * squared), "far": np.exp(-squared / 2)}
        K11 = (theta["far"][:3, :3] + ideal) / 2
        return cls(theta, K11, **({"rho": 10.5, "eta": 9.5} | options))

    @override
    def _options(self) -> list[str]:
        return [self.prior, "learned weights" if self.learned else "fixed weights"]

    @property
    def parameters(self) -> CompletionParameters:
        """Matched Theta and eta, K11 and rho, if the model is a `WishartCompletion` with them."""
        if reason := self.not_conjugate():
            raise ValueError(f"This WishartKernelMixture has no matched parameters: {reason}.")
        theta = self.theta
        weights = self["alpha"].get_value() * self.etas
        eta = matched_by_trace(theta, self.etas, weights)
        matched = np.tensordot(weights / eta, theta, axes=1)
        return CompletionParameters(matched, self.K11_values, self.rho, eta)

    def not_conjugate(self) -> str | None:
        """Reason why the model is not a `WishartCompletion` with matched parameters, or None."""
        if self.learned:
            return "its weights are learned"
        if self.prior != "inverse-wishart":
            return f"its prior {self.prior!r} is not conjugate, as 'inverse-wishart' is"
        return None


class _Mixture(NamedTuple):
    """Kernels (kernel, n, n), their degrees of freedom and weights (kernel,)."""

    kernels: TensorVariable
    etas: TensorVariable
    alpha: TensorVariable

    def matched(self) -> tuple[TensorVariable, TensorVariable]:
        """Match eta and Theta (n, n), eqs (10) and (13). O(K^2 n^2)."""
        weights = self.alpha * self.etas
        eta = matched_degrees(*traces_of_products(self.kernels), self.etas, weights)
        return eta, weighted_sum(self.kernels, weights / eta)


def _sum_of_components(mixture: _Mixture, n1: int) -> Blocks:
    dims = ("kernel", "object", "object_")
    M = Wishart("M", mixture.etas, mixture.kernels, dims=dims)
    return _blocks_of(weighted_sum(M, mixture.alpha), n1)


def _matched_wishart(mixture: _Mixture, n1: int) -> Blocks:
    eta, theta = mixture.matched()
    return _blocks_of(Wishart("Sigma", eta, theta, dims=("object", "object_")), n1)


def _matched_inverse_wishart(mixture: _Mixture, n1: int) -> Blocks:
    eta, theta = mixture.matched()
    return declare_inverse_wishart(theta, eta, n1)


def _blocks_of(sigma: TensorVariable, n1: int) -> Blocks:
    parts = partition(sigma, n1)
    return Blocks(
        pm.Deterministic("Sigma11", parts.block11, dims=("train", "train_")),
        pm.Deterministic("Sigma22_1", parts.schur, dims=("test", "test_")),
        cholesky_or_nan(parts.schur),
        pm.Deterministic("B", parts.coefficients, dims=("test", "train")),
    )


_PRIORS: dict[str, Callable[[_Mixture, int], Blocks]] = {
    "inverse-wishart": _matched_inverse_wishart,
    "wishart": _matched_wishart,
    "mixture": _sum_of_components,
}


def _declare_evidence(mixture: _Mixture, rho: float, observed: TensorVariable, n1: int) -> None:
    """Declare K11 with Sigma and the missing blocks integrated out, and the mean of K21."""
    eta, theta = mixture.matched()
    parts = partition(theta, n1)
    delta = eta - (theta.type.shape[0] - n1)
    K11 = MatrixF("K11", rho, delta, parts.block11, observed=observed, dims=("train", "train_"))
    pm.Deterministic("eta", eta)
    mean = matrix_product(parts.coefficients, K11)
    pm.Deterministic("K21_mean_given_alpha", mean, dims=("test", "train"))
