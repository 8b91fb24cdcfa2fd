"""Regression and binary classification on a composite kernel (Girolami & Rogers 2005)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.tensor import TensorVariable

from ..validation import (
    Seed,
    argument_error,
    check_flag,
    check_name,
    check_positive,
    check_targets,
    integer_seed,
)
from .combinations.sums import Binary, Combination, DirichletWeights, FixedWeights
from .declaration import CompositeDeclaration, LabelledDeclaration
from .distributions.normal import MultivariateNormal
from .kernels.labels import aligned, as_frame, ids_along, output_names
from .learned_scale import LearnedScale, check_rate, declared_rate, prior_scale
from .operations.arrays import matrix_product

#: Rules of combination by name. Learned weights sum to 1, except those of `Binary`.
COMBINATIONS: dict[str, type[Combination]] = {
    "mean": DirichletWeights,
    "fixed": FixedWeights,
    "binary": Binary,
}


@dataclass(frozen=True)
class Basis:
    """Turns stacks of kernels into `design`; `known` are weights (kernel,) if not random."""

    known: np.ndarray | None
    bias: bool
    bias_apart: bool

    @classmethod
    def of(cls, rule: Combination, known: np.ndarray | None, bias: bool) -> Self:
        """Make that of a rule, with the weights that are `known`."""
        # The weights of a selection do not sum to 1.
        return cls(known, bias, bias and isinstance(rule, Binary))

    def weights(self, beta: np.ndarray) -> np.ndarray:
        """Weights (..., matrix) of the matrices for random beta (..., kernel)."""
        if not self.bias_apart:
            return beta
        return np.concatenate([beta, np.ones((*beta.shape[:-1], 1))], axis=-1)

    def __call__(self, stack: np.ndarray) -> np.ndarray:
        """Matrices (matrix, obs, function) of a stack (kernel, obs, basis)."""
        if self.known is not None:
            stack = np.tensordot(self.known, stack, axes=1)[None]
        if not self.bias:
            return stack
        padded = np.pad(stack, ((0, int(self.bias_apart)), (0, 0), (1, 0)))
        padded[-1 if self.bias_apart else slice(None), :, 0] = 1.0
        return padded


class _CompositeKernel(CompositeDeclaration):
    """Common part of regression and classification: all except the likelihood."""

    rules = COMBINATIONS
    any_rule = False
    any_source = True
    takes = "'mean', DirichletWeights, FixedWeights or Binary (others are for MultinomialProbit)"

    sigma: float
    varsigma: float | LearnedScale
    bias: bool

    def _open(
        self,
        kernels: Any,
        combination: str | Combination,
        sigma: float,
        varsigma: float | LearnedScale,
        bias: bool,
    ) -> xr.DataArray:
        """Check the common arguments, add the coords and return the stack of kernels."""
        owner = type(self).__name__
        self.sigma = check_positive(sigma, "sigma", owner)
        self.varsigma = check_rate(varsigma, "varsigma", owner)
        self.bias = check_flag(bias, "bias", owner)
        stack = self.read_kernels(kernels, combination, prior_scale(self.sigma, self.varsigma))
        if self.kernel_source.parameters:
            without = "without parameters to learn, which MultinomialProbit takes"
            raise argument_error("kernels", owner, without, repr(self.kernel_source.parameters))
        basis = [str(label) for label in stack["basis"].values]
        self.add_coord("function", ["bias", *basis] if bias else basis)
        return stack

    def _declare_precisions(self) -> TensorVariable:
        rate = declared_rate(self.varsigma, "varsigma")
        return pm.Gamma("phi", alpha=self.sigma, beta=rate, dims="function")

    def _declare_response(self, stack: xr.DataArray) -> TensorVariable:
        """Model response y = K_beta alpha (obs), or (obs, output) for several outputs, eq (1)."""
        K: Any = self.kernel_source.declare(stack)
        beta = self.combination.declare()
        phi = self._declare_precisions()
        dims = ("output", "function") if self.several else "function"
        alpha = pm.Normal("alpha", 0.0, 1 / pt.sqrt(phi), dims=dims)
        # Functions first, and the bias by itself.
        coefficients = alpha[..., 1:].T if self.bias else alpha.T
        if self.learned and not self.several:
            # One pass over the kernels, without a composite kernel in memory.
            y = (matrix_product(K, coefficients) * beta[:, None]).sum(0)
        else:
            y = matrix_product(self.combination.combine(K, beta), coefficients)
        return alpha[..., 0] + y if self.bias else y

    @property
    def several(self) -> bool:
        """Whether the response has the dim "output"."""
        return "output" in self.coords

    @property
    def design(self) -> np.ndarray:
        """Matrices (matrix, obs, function) whose weighted sum is the current composite kernel.

        With a bias the first function of each matrix is 1. Selections do not sum to 1: for them it
        is 0, and one more matrix, of weight 1, holds the bias alone. If the weights are not random
        variables, the only matrix is the composite kernel.
        """
        return self.functions(self.kernel_values().copy())

    @property
    def bias_apart(self) -> bool:
        """Whether the last matrix of `design` holds the bias alone, with weight 1."""
        return self.functions.bias_apart

    def matrix_weights(self, beta: np.ndarray) -> np.ndarray:
        """Weights (..., matrix) of the matrices of `design` for random beta (..., kernel)."""
        return self.functions.weights(beta)

    @property
    def functions(self) -> Basis:
        """Function of stacks (kernel, obs, basis) that gives matrices as in `design`."""
        known = None if self.learned else self["beta"].get_value()
        return Basis.of(self.combination, known, self.bias)


class CompositeKernelRegression(_CompositeKernel):
    r"""Regression on a weighted combination of kernels.

    .. math::

        \varphi_k &\sim \mathrm{Gamma}(\tau, \nu), \qquad
            \beta \mid \varphi \sim \mathrm{Dirichlet}(\varphi) \\
        \phi_m &\sim \mathrm{Gamma}(\sigma, \varsigma), \qquad
            \alpha_m \mid \phi_m \sim \mathcal N(0, 1/\phi_m) \\
        \gamma &\sim \mathrm{Gamma}(\rho, \varrho), \qquad
            t_n \mid \alpha, \beta, \gamma \sim \mathcal N(y_n, 1/\gamma), \qquad
            y_n = \textstyle\sum_m \alpha_m \sum_k \beta_k K_k(x_m, x_n)

    All second arguments of Gamma are rates. With a bias, the first function is 1 for every object.
    With several outputs, each output o has its own :math:`\alpha_{om}`, and by default its own
    :math:`\gamma_o`.

    Parameters
    ----------
    kernels : DataArray (kernel, obs, basis), dict of 2-D arrays, or array (2-D or 3-D)
        Training kernels: square Gram matrices, or any basis expansion of the objects as a DataArray
        (``as_stack(functions)`` makes one). The weights are comparable only if the kernels have
        one scale: ``kernels.normalize("trace")``.
    targets : array_like, Series or DataArray (obs,), or a table (obs, output) of several outputs
        Response. Standardise it: the priors assume about unit scale. It is aligned by object ids if
        it and the kernels have ids, otherwise by position. Names of columns are the coordinate
        "output".
    combination : {"mean", "fixed", "binary"} or Combination, default="mean"
        Rule of combination. With "mean" the weight of a single kernel is fixed at 1;
        ``DirichletWeights(varphi=0.1)``, or tau far below nu, expects few kernels of large weight.
        "binary" selects kernels: `inclusion` gives the probability of each.
    bias : bool, default=True
        Whether to add a constant to the basis functions.
    sigma : float, default=1
        Shape of the precisions of the regression weights. Values near zero shrink most weights to
        zero and give the others long tails; chains then mix slowly.
    varsigma : float or LearnedScale, default=1
        Their rate: regression weights have the scale :math:`\sqrt{\varsigma / \sigma}`. With
        ``LearnedScale()`` it is a variable, except for VB (`select` chooses it).
    rho, varrho : float, default=1
        Shape and rate of the noise precision.
    collapsed : bool, default=False
        Integrate alpha out: t ~ N(0, :math:`K_\beta \mathrm{diag}(1/\phi) K_\beta' + I/\gamma`),
        at O(N^3) per gradient, for one output. Chains mix far better; `predict` is exact in alpha.
    shared : {"weights", "all"}, default="weights"
        What several outputs share: weights of the kernels and precisions phi of the functions, or
        the noise too, so that engines factorise one matrix for all outputs, not one per output.

    Attributes
    ----------
    combination : Combination
        Rule in use.

    Raises
    ------
    ValueError
        For kernels that `as_stack` refuses, targets that are not finite or not one per row of the
        kernels, repeated names of outputs, several outputs with `collapsed`, and hyperparameters
        that are not positive.

    Warns
    -----
    KernelWarning
        For Gram matrices that are nearly the identity, and kernels that are so small that they
        hardly matter.
    UserWarning
        For targets with a standard deviation below 0.1 or above 10.

    Notes
    -----
    ============= ==================================== ===========================
    paper         meaning                              code
    ============= ==================================== ===========================
    K, N          kernels, objects                     dims kernel, obs
    K_k(x_m, x_n) base kernels, eq (1)                 ``K``     (kernel, obs, basis)
    alpha_m       regression weights, eq (1)           ``alpha`` (function)
    phi_m         their precisions                     ``phi``   (function)
    beta_k        weights of the kernels, eq (1)       ``beta``  (kernel)
    varphi_k      concentrations of the weights        ``varphi`` (kernel)
    gamma         precision of the noise               ``gamma``
    t_n           target                               ``t``     (obs)
    tau, nu       shape and rate of varphi             ``DirichletWeights(tau, nu)``
    ============= ==================================== ===========================

    The dim "function" is "bias", if there is one, and the labels of "basis" as strings. Targets of
    several outputs add the dim "output" to t and alpha, and to gamma unless all is shared.

    A density evaluation costs O(K N M) for M functions, O(K N M + N^2 M + N^3) when collapsed, and
    O(K N M + P N M) for P outputs.

    References
    ----------
    M. Girolami and S. Rogers (2005), Hierarchic Bayesian models for kernel learning, ICML:
    section 3, Figure 1.

    Examples
    --------
    >>> kernels = (kz.gaussian(0.5) | kz.linear() | kz.polynomial(2)).normalize("trace")
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response)  # standardised
    >>> result = kz.fit(model, "vb", random_seed=1)

    Several outputs, the columns of a DataFrame:

    >>> outputs = X_train[["proline", "hue"]]
    >>> outputs = (outputs - outputs.mean()) / outputs.std()
    >>> model = kz.CompositeKernelRegression(kernels(X_train), outputs)
    >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))["mean"]  # (obs, output)
    """

    def __init__(
        self,
        kernels: Any,
        targets: Any,
        *,
        combination: str | Combination = "mean",
        bias: bool = True,
        sigma: float = 1.0,
        varsigma: float | LearnedScale = 1.0,
        rho: float = 1.0,
        varrho: float = 1.0,
        collapsed: bool = False,
        shared: Literal["weights", "all"] = "weights",
    ):
        super().__init__()
        owner = type(self).__name__
        stack = self._open(kernels, combination, sigma, varsigma, bias)
        targets = aligned(as_frame(targets), ids_along(stack, "obs"), "targets", owner)
        values = check_targets(targets, stack.shape[1], owner)
        self.rho = check_positive(rho, "rho", owner)
        self.varrho = check_positive(varrho, "varrho", owner)
        self.collapsed = check_flag(collapsed, "collapsed", owner)
        self.shared = check_name(shared, ["weights", "all"], "shared", owner)
        several = values.ndim == 2
        if collapsed and several:
            rule = "False for several outputs ('gibbs' integrates alpha out by itself)"
            raise argument_error("collapsed", owner, rule, "True")
        if several:
            self.add_coord("output", output_names(targets, values.shape[1], owner))
        dims = ("obs", "output") if self.several else "obs"
        of_noise = "output" if self.several and shared != "all" else None
        with self:
            observed = pm.Data("targets", values, dims=dims)
            gamma = pm.Gamma("gamma", alpha=self.rho, beta=self.varrho, dims=of_noise)
            if collapsed:
                K: Any = self.kernel_source.declare(stack)
                composite = self.combination.combine(K, self.combination.declare())
                n_obs = composite.shape[0]
                if self.bias:
                    composite = pt.concatenate([pt.ones((n_obs, 1)), composite], axis=1)
                scaled = composite / pt.sqrt(self._declare_precisions())
                covariance = matrix_product(scaled, scaled.T) + pt.eye(n_obs) / gamma
                MultivariateNormal("t", pt.zeros(n_obs), covariance, observed=observed, dims="obs")
            else:
                y = self._declare_response(stack)
                pm.Normal("t", y, 1 / pt.sqrt(gamma), observed=observed, dims=dims)
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0, **options: Any) -> Self:
        """Smallest instance that every engine can fit, with options of the constructor."""
        kernels, response = _example(random_seed)
        return cls(kernels, response, **options)

    @override
    def _options(self) -> list[str]:
        return super()._options() + [f"shared={self.shared!r}"] * self.several

    @property
    def target_values(self) -> np.ndarray:
        """Current targets, array (obs,) or (obs, output)."""
        return self["targets"].get_value()


class CompositeKernelClassification(_CompositeKernel, LabelledDeclaration):
    r"""Two-class classifier on a weighted combination of kernels.

    .. math::

        \varphi_k &\sim \mathrm{Gamma}(\tau, \nu), \qquad
            \beta \mid \varphi \sim \mathrm{Dirichlet}(\varphi) \\
        \phi_m &\sim \mathrm{Gamma}(\sigma, \varsigma), \qquad
            \alpha_m \mid \phi_m \sim \mathcal N(0, 1/\phi_m) \\
        t_n \mid \alpha, \beta &\sim \mathrm{Bernoulli}(1 / (1 + e^{-y_n})), \qquad
            y_n = \textstyle\sum_m \alpha_m \sum_k \beta_k K_k(x_m, x_n)

    All second arguments of Gamma are rates. With a bias, the first function is 1 for every object.

    Parameters
    ----------
    kernels, combination, bias, sigma, varsigma
        As in `CompositeKernelRegression`, and its warnings.
    labels : array_like, Series or DataArray (obs,)
        Class of each training object, one of two sortable values, aligned as targets are.
    classes : sequence of 2, optional
        Classes in the order of the coordinate "class"; t = 1 is the second. Default: the sorted
        labels.

    Raises
    ------
    ValueError
        As for regression, and for labels that are not of two classes.

    Notes
    -----
    Notation as in `CompositeKernelRegression`; t_n is 0 or 1 here, -1 or 1 in the paper (section
    4.4). A density evaluation costs O(K N M) for M functions.

    References
    ----------
    M. Girolami and S. Rogers (2005), Hierarchic Bayesian models for kernel learning, ICML:
    sections 3 and 4.4.

    Examples
    --------
    >>> data = kz.datasets.load("sonar").split(seed=1)
    >>> kernels = (kz.gaussian(0.5) | kz.linear() | kz.polynomial(2)).normalize("trace")
    >>> model = kz.CompositeKernelClassification(kernels(data.X_train), data.y_train)
    >>> result = kz.fit(model, "vb", random_seed=1)
    >>> kz.predict(model, result, kernels(data.X_test, data.X_train))["probability"]
    """

    def __init__(
        self,
        kernels: Any,
        labels: Any,
        *,
        combination: str | Combination = "mean",
        bias: bool = True,
        sigma: float = 1.0,
        varsigma: float | LearnedScale = 1.0,
        classes: Sequence[Hashable] | None = None,
    ):
        super().__init__()
        owner = type(self).__name__
        stack = self._open(kernels, combination, sigma, varsigma, bias)
        codes = self.read_labels(labels, classes, stack)
        if self.n_classes != 2:
            rule = "of two classes (MultinomialProbit takes more)"
            raise argument_error("labels", owner, rule, f"{self.n_classes} classes")
        with self:
            observed = pm.Data("labels", codes, dims="obs")
            y = self._declare_response(stack)
            pm.Bernoulli("t", logit_p=y, observed=observed, dims="obs")
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0, **options: Any) -> Self:
        """Smallest instance that every engine can fit, with options of the constructor."""
        kernels, response = _example(random_seed)
        return cls(kernels, response > np.median(response), **options)


def _example(random_seed: Seed) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Two kernels of eight made-up objects, and a response."""
    rng = np.random.default_rng(integer_seed(random_seed, "random_seed", "example"))
    x = rng.normal(size=(8, 2))
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    linear = x @ x.T
    kernels = {"gaussian": np.exp(-distances), "linear": linear * len(x) / np.trace(linear)}
    return kernels, np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=len(x))
