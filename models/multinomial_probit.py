"""Multinomial probit over several feature spaces (Damoulas & Girolami 2009)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from ..numerics.kernel_products import Design
from ..validation import Seed, check_positive, integer_seed
from .combinations.normal_coordinates import NormalCoordinates
from .combinations.products import FixedProduct, Product
from .combinations.sums import Binary, Combination, FixedWeights, Mean, WeightedSum
from .declaration import LabelledDeclaration
from .distributions.categorical_probit import CategoricalProbit
from .kernels.source import IN_MEMORY, KernelSource
from .learned_scale import LearnedScale, check_rate, declared_rate, prior_scale
from .operations.arrays import matrix_product

#: Rules of combination by name.
COMBINATIONS: dict[str, type[Combination]] = {
    "mean": Mean,
    "fixed": FixedWeights,
    "product": Product,
    "fixed product": FixedProduct,
    "binary": Binary,
}


@dataclass(frozen=True)
class Composition:
    """Composite kernel as a function of weights and kernel parameters.

    `known` are the weights (S,) unless they are `learned`. `stack` (S, N, M) is None if the kernels
    of the `source` have parameters.
    """

    rule: Combination
    known: np.ndarray
    stack: np.ndarray | None = None
    source: KernelSource = IN_MEMORY
    learned: bool = True

    def kernels(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Kernels (S, N, M)."""
        return self.source.evaluate(values["theta"]) if self.stack is None else self.stack

    def terms(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Matrices (S, N, M) that the weights multiply."""
        return self.rule.terms(self.kernels(values)) if self.stack is None else self._terms

    def composite(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Composite kernel (N, M); O(S N M), plus O(N M D) per kernel with parameters."""
        terms = self.terms(values)
        s, n, m = terms.shape
        beta = np.asarray(values.get("beta", self.known), dtype=float)
        return self.rule.from_terms(beta @ terms.reshape(s, n * m)).reshape(n, m)

    def gram(self, values: Mapping[str, np.ndarray], composite: np.ndarray) -> np.ndarray:
        """K'K (M, M) of the composite K; O(S^2 M^2) with precomputed products, else O(N M^2)."""
        if self._design is None:
            return composite.T @ composite
        return self._design.gram(np.asarray(values.get("beta", self.known), dtype=float), composite)

    @cached_property
    def coordinates(self) -> NormalCoordinates:
        """Normal coordinates of learned exponents and parameters."""
        return NormalCoordinates.of(self.rule, len(self.known), self.source)

    @cached_property
    def _design(self) -> Design | None:
        """Kernels of a weighted sum; None for other rules and kernels with parameters."""
        is_sum = self.stack is not None and isinstance(self.rule, WeightedSum)
        return Design.of(self._terms) if is_sum else None

    @cached_property
    def _terms(self) -> np.ndarray:
        assert self.stack is not None
        return self.rule.terms(self.stack)


class MultinomialProbit(LabelledDeclaration):
    r"""Multiclass classifier on a weighted combination of kernels.

    .. math::

        \rho_s &\sim \mathrm{Gamma}(\mu, \lambda) \\
        \beta \mid \rho &\sim \mathrm{Dirichlet}(\rho) \\
        1/\zeta_{cm} &\sim \mathrm{Gamma}(\tau, \upsilon) \\
        w_{cm} \mid \zeta_{cm} &\sim \mathcal N(0, \zeta_{cm}) \\
        t_n \mid w, \beta &\sim \mathrm{CategoricalProbit}(f_n), \qquad
            f_{nc} = w_c^\top \textstyle\sum_s \beta_s k_{sn}

    All second arguments of Gamma are rates. The paper's latent utilities y are integrated out (eq
    4); engines that need them draw or average them. The first two lines and the sum are the rule
    ``"mean"``; other rules replace them:

    =================== ===================================== =================================
    ``combination``     composite kernel                      weights
    =================== ===================================== =================================
    ``"mean"``          sum_s beta_s K_s                      as above
    ``"fixed"``         sum_s beta_s K_s                      given: 1/S each
    ``"binary"``        sum of the K_s with beta_s = 1        beta_s ~ Bernoulli(1/2), not all zero
    ``"product"``       prod_s K_s^beta_s, entry by entry     beta_s ~ Gamma(pi_s, chi_s),
                                                              pi_s, chi_s ~ Exponential(1)
    ``"fixed product"`` prod_s K_s^beta_s, entry by entry     given: 1 each
    =================== ===================================== =================================

    Parameters
    ----------
    kernels : DataArray, dict of 2-D arrays, 2-D or 3-D array, ParametricStack or CompletedRows
        Training kernels (kernel, obs, basis), as `CompositeKernelRegression` takes them; also
        kernels with parameters, theta ~ Gamma(omega, phi), see `Theta`, and with missing rows,
        ``complete_kernels(...).of(train)``.
    labels : array_like, Series or DataArray (obs,)
        Class of each training object; any sortable values. They are aligned by object ids if
        they and the kernels have ids, otherwise by position.
    combination : str or Combination, default="mean"
        A name of the table above, or a rule with its own settings, such as `Mean`. With "mean", the
        weight of a single kernel is fixed at 1.
    tau : float, default=1
        Shape of the regressors' precisions. The prior is almost improper for values near zero.
    upsilon : float or LearnedScale, default=1
        Rate of their precisions: regressors have the scale :math:`\sqrt{\upsilon / \tau}`. With
        ``LearnedScale()`` it is a variable.
    classes : sequence, optional
        Classes in the order of the coordinate "class". Default: the distinct labels, sorted, or in
        the order of an ordered Categorical.

    Attributes
    ----------
    combination : Combination
        Rule in use.

    Raises
    ------
    ValueError
        For kernels that `as_stack` refuses, labels of one class, labels whose number or ids differ
        from those of the kernels' rows, hyperparameters that are not positive, and products of
        kernels with negative entries (kernels with parameters: at the prior means).

    Warns
    -----
    KernelWarning
        As `CompositeKernelRegression`.

    Notes
    -----
    =========== ==================================== ==========================
    paper       meaning                              code
    =========== ==================================== ==========================
    S, N, C     kernels, objects, classes            dims kernel, obs, class
    K^s         base kernel, N x M (M = N for Gram)  ``K``      (kernel, obs, basis)
    theta       parameters of the kernels            ``theta``  (parameter)
    omega, phi  shape and rate of theta              ``Theta(omega, phi)``
    w_cm        regressors                           ``W``      (class, basis)
    zeta_cm     variance of a regressor              ``zeta``   (class, basis)
    beta_s      weights of the kernels               ``beta``   (kernel)
    rho_s       concentrations of the weights        ``rho``    (kernel)
    pi_s, chi_s shape and rate of an exponent        ``pi``, ``chi`` (kernel)
    t_n         class                                ``t``      (obs)
    tau, v      shape and rate of 1/zeta             ``tau``, ``upsilon`` (variable if learned)
    mu, lambda  shape and rate of rho                ``Mean(mu, lam)``
    =========== ==================================== ==========================

    The data inform only contrasts of `W` between classes, and class probabilities: compare engines
    on these. With parameters, ``X`` (obs, feature) holds the features that they act on, one array
    per feature space. A density evaluation costs O(S N M + N M C + N C q) with q quadrature nodes;
    each kernel with parameters adds O(N M D).

    References
    ----------
    T. Damoulas and M. A. Girolami (2009), Combining feature spaces for classification, Pattern
    Recognition 42: section 3, eqs (3)-(4), Figure 1.

    Examples
    --------
    >>> data = kz.datasets.load("wine").split(seed=1)
    >>> kernels = kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)
    >>> model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
    >>> result = kz.fit(model, "gibbs", random_seed=1)

    A learned width of the Gaussian kernel, and a product:

    >>> kernels = kz.gaussian(kz.kernels.Theta(1, 13)) | kz.polynomial(2)
    >>> model = kz.MultinomialProbit(kernels(data.X_train), data.y_train, combination="product")
    >>> kz.engines(model)
    """

    rules = COMBINATIONS
    any_source = True
    takes = f"a rule such as Mean(), or one of {', '.join(map(repr, COMBINATIONS))}"

    def __init__(
        self,
        kernels: Any,
        labels: Any,
        *,
        combination: str | Combination = "mean",
        tau: float = 1.0,
        upsilon: float | LearnedScale = 1.0,
        classes: Sequence[Hashable] | None = None,
    ):
        super().__init__()
        owner = type(self).__name__
        self.tau = check_positive(tau, "tau", owner)
        self.upsilon = check_rate(upsilon, "upsilon", owner)
        stack = self.read_kernels(kernels, combination, prior_scale(self.tau, self.upsilon))
        codes = self.read_labels(labels, classes, stack)

        with self:
            K: Any = self.kernel_source.declare(stack)
            observed = pm.Data("labels", codes, dims="obs")
            beta = self.combination.declare()
            W = declare_regressors(self.tau, self.upsilon)
            f = matrix_product(self.combination.combine(K, beta), W.T)
            CategoricalProbit("t", f, observed=observed, dims="obs")
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0) -> Self:
        """Smallest instance that every engine can fit: 12 objects, 3 classes, 2 kernels."""
        rng = np.random.default_rng(integer_seed(random_seed, "random_seed", "example"))
        labels = np.arange(12) % 3
        x = rng.normal(size=(12, 2)) + np.eye(3)[labels, :2]
        distances = ((x[:, None] - x[None]) ** 2).sum(-1)
        return cls({"gaussian": np.exp(-distances), "linear": x @ x.T}, labels)

    @override
    def _options(self) -> list[str]:
        return super()._options() + ["kernel parameters"] * bool(self.kernel_source.parameters)

    @property
    def design(self) -> np.ndarray:
        """Kernels (kernel, obs, basis), read-only; ValueError unless they are data."""
        return self.kernel_values()

    @property
    def composition(self) -> Composition:
        """NumPy function of weights and kernel parameters that gives the composite kernel."""
        source = self.kernel_source
        learned = self.learned
        # Weights that nobody gives must not pass for known ones.
        unknown = np.full(len(self.coords["kernel"]), np.nan)
        known = unknown if learned else self["beta"].get_value()
        stack = None if source.not_data else self.design
        return Composition(self.combination, known, stack, source, learned)


def declare_regressors(tau: float, upsilon: float | LearnedScale) -> TensorVariable:
    """Declare W (class, basis) and the variances zeta of its entries in the open model."""
    rate = declared_rate(upsilon, "upsilon")
    zeta = pm.InverseGamma("zeta", alpha=tau, beta=rate, dims=("class", "basis"))
    return pm.Normal("W", 0.0, pt.sqrt(zeta), dims=("class", "basis"))
