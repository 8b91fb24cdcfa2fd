"""Gaussian-process regression and classification on a weighted sum of kernels."""

from collections.abc import Hashable, Sequence
from typing import Any, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from ..validation import Seed, argument_error, check_targets, integer_seed
from .combinations.sums import Combination, DirichletWeights, FixedWeights
from .declaration import CompositeDeclaration, LabelledDeclaration
from .kernels.chunked_stack import ChunkedStack, chunked_scores
from .kernels.labels import aligned, as_frame, ids_along, output_names
from .kernels.source import KernelSource
from .kernels.stack import check_landmarks, rows_of_landmarks
from .learned_scale import LEARNED, LearnedScale, check_rate, declared_rate, prior_scale
from .operations.arrays import cholesky_or_nan, matrix_product, solve_lower

#: Rules of combination by name.
COMBINATIONS: dict[str, type[Combination]] = {"mean": DirichletWeights, "fixed": FixedWeights}
#: Most objects with landmarks whose scores' draws are kept without being asked for.
KEPT = 10_000
#: Variance added to that of every score, relative to the mean variance of the scores. Gram matrices
#: of few features, or of copies of objects, have no Cholesky factor without it.
JITTER = 1e-6


class _GaussianProcess(CompositeDeclaration):
    """Common part of regression and classification: all except the likelihood."""

    rules = COMBINATIONS
    any_rule = False
    any_source = True
    takes = "'mean', 'fixed', DirichletWeights or FixedWeights (a sum of covariances is one)"

    scale: float | LearnedScale
    #: Rows (M,) of the objects whose kernels are the columns, the landmarks.
    landmarks: NDArray[np.intp]

    @property
    def whole(self) -> bool:
        """Whether the kernels are Gram matrices: every object is a landmark."""
        return np.array_equal(self.coords["obs"], self.coords["basis"])

    def _open(
        self, kernels: Any, combination: str | Combination, scale: float | LearnedScale
    ) -> xr.DataArray:
        """Check the common arguments, add the coords and return the stack of kernels."""
        owner = type(self).__name__
        self.scale = check_rate(scale, "scale", owner)
        if isinstance(combination, str) and combination == "mean":
            combination = DirichletWeights(varphi=1.0)
        stack = self.read_kernels(kernels, combination, prior_scale(1.0, self.scale))
        if isinstance(source := self.kernel_source, ChunkedStack):
            self.landmarks = source.landmarks
        else:
            self.landmarks = rows_of_landmarks(stack, owner, "kernels")
            if not self.whole:
                check_landmarks(stack.isel(obs=self.landmarks), owner, "kernels")
        if not self.whole and stack.sizes["obs"] > KEPT:
            self.large = frozenset({"f"})
        return stack

    @override
    def _stack_and_source(self, kernels: Any) -> tuple[xr.DataArray, KernelSource]:
        """Check kernels in any form; those at landmarks may be in chunks."""
        if isinstance(kernels, xr.DataArray) and kernels.chunks is not None:
            source = ChunkedStack.of(kernels, type(self).__name__)
            return source.stack, source
        return super()._stack_and_source(kernels)

    @override
    def check_data(self) -> None:
        super().check_data()
        if isinstance(source := self.kernel_source, ChunkedStack):
            n_objects = source.stack.sizes["obs"]
            length = int(self.dim_lengths["obs"].eval())
            if length != n_objects:
                rule = f"of the {n_objects} objects of the kernels, which stay in their chunks"
                raise argument_error("data", "pm.set_data", rule, f"{length} objects")

    def _declare_scores(self, stack: xr.DataArray, *functions: str) -> TensorVariable:
        """Declare the scores f (obs, *functions) of independent functions."""
        source = self.kernel_source
        K: Any = source.declare(stack)
        beta = self.combination.declare()
        composite = self.combination.combine(K, beta)
        # Of kernels in chunks, those between landmarks are the data.
        of_landmarks_alone = self.whole or isinstance(source, ChunkedStack)
        own = composite if of_landmarks_alone else composite[self.landmarks]
        jitter = JITTER * pt.diagonal(own).mean()
        root = cholesky_or_nan(own + jitter * pt.eye(own.shape[0]))
        scale = declared_rate(self.scale, "scale")
        v = pm.Normal("v", 0.0, 1.0, dims=("obs" if self.whole else "basis", *functions))
        if self.whole:
            f = matrix_product(root, v)
        else:
            columns = v if functions else v[:, None]
            weights = solve_lower(root, columns, transposed=True)
            if isinstance(source, ChunkedStack):
                f = chunked_scores(source, beta, weights.T)
            else:
                f = matrix_product(composite, weights)
            # The jitter is part of the landmarks' own variances, as if all objects were landmarks.
            f = pt.inc_subtensor(f[self.landmarks], jitter * weights)
            f = f if functions else f[:, 0]
        return pm.Deterministic("f", pt.sqrt(scale) * f, dims=("obs", *functions))


class GaussianProcessRegression(_GaussianProcess):
    r"""Regression by Gaussian processes whose covariance is a weighted sum of kernels.

    .. math::

        s &\sim \mathrm{LogNormal}, \qquad \gamma_o \sim \mathrm{LogNormal}, \qquad
            \beta \sim \mathrm{Dirichlet}(1) \\
        f_o &\sim \mathcal N\bigl(0, s \textstyle\sum_k \beta_k K_k\bigr), \qquad
            t_{no} \mid f \sim \mathcal N(f_{no}, 1/\gamma_o)

    Parameters
    ----------
    kernels : DataArray, dict of 2-D arrays, 2-D or 3-D array, or ParametricStack
        Gram matrices of the training objects, positive semidefinite (`nearest_psd` makes them so);
        also kernels with parameters, theta ~ Gamma(omega, phi), see `Theta`. The weights are
        comparable only if the kernels have one scale: ``kernels.normalize("trace")``. For
        thousands of objects, kernels with some of them, the landmarks: ``kernels.landmarks(300)``,
        or a DataArray whose labels of "basis" are among those of "obs".
    targets : array_like, Series or DataArray (obs,), or a table (obs, output) of several outputs
        Response. Standardise it: the mean of the process is zero, and the priors assume about unit
        scale. It is aligned by object ids if it and the kernels have ids, otherwise by position.
        Names of columns are the coordinate "output".
    combination : {"mean", "fixed"}, DirichletWeights or FixedWeights, default="mean"
        "mean": learned weights with a uniform prior on the simplex, ``DirichletWeights(varphi=1)``;
        the weight of a single kernel is 1. Of many kernels of which few count,
        ``DirichletWeights(varphi=5 / K)`` or less. "fixed": 1/K each, or those of ``FixedWeights``.
    scale : float or LearnedScale, default=LearnedScale()
        Variance s of the functions, relative to the kernels' diagonal.
    gamma : float or LearnedScale, default=LearnedScale()
        Precision of the noise, one per output.

    Attributes
    ----------
    combination : Combination
        Rule in use.

    Raises
    ------
    ValueError
        For kernels that are neither Gram matrices nor of objects with landmarks among them, or not
        positive semidefinite, Gram matrices in chunks, products and selections of kernels, targets
        that are not finite or not one per row of the kernels, repeated names of outputs, and
        hyperparameters that are not positive.

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
    book          meaning                              code
    ============= ==================================== ===========================
    n             objects                              dim obs
    K             covariance of the scores             ``K`` (kernel, obs, basis) with ``beta``
    f             scores                               ``f`` (obs, output)
    L^-1 f / s^.5 whitened scores, LL' = K             ``v`` (obs, output)
    sigma_f^2     variance of the scores               ``scale``
    1/sigma_n^2   precision of the noise               ``gamma``
    theta         parameters of the kernels            ``theta`` (parameter)
    y             target                               ``t`` (obs, output)
    ============= ==================================== ===========================

    A millionth of the mean variance is added to that of every score, so that the covariance has a
    Cholesky factor. A density evaluation costs O(K N^2 + N^3 + N^2 P) for P outputs.

    With M landmarks, f = s^.5 K_nm L^-T v with LL' = K_mm and v (basis, output), the deterministic
    training conditional (Quinonero-Candela & Rasmussen 2005, section 5): O(K N M + M^3 + N M P). It
    is the same model if all objects are landmarks. Scores of new objects have their exact variance
    given those of the landmarks. Kernels at landmarks in a Dask array are read by chunks of
    objects.

    References
    ----------
    C. E. Rasmussen and C. K. I. Williams (2006), Gaussian processes for machine learning, MIT
    Press: chapters 2 and 5. J. Quinonero-Candela and C. E. Rasmussen (2005), A unifying view of
    sparse approximate Gaussian process regression, JMLR 6, for landmarks.

    Examples
    --------
    >>> kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    >>> model = kz.GaussianProcessRegression(kernels(X_train), response)  # standardised
    >>> result = kz.fit(model, "inla", random_seed=1)
    >>> kz.predict(model, result, kernels(X_test, X_train))["mean"]
    """

    gamma: float | LearnedScale

    def __init__(
        self,
        kernels: Any,
        targets: Any,
        *,
        combination: str | Combination = "mean",
        scale: float | LearnedScale = LEARNED,
        gamma: float | LearnedScale = LEARNED,
    ):
        super().__init__()
        owner = type(self).__name__
        self.gamma = check_rate(gamma, "gamma", owner)
        stack = self._open(kernels, combination, scale)
        targets = aligned(as_frame(targets), ids_along(stack, "obs"), "targets", owner)
        values = check_targets(targets, stack.shape[1], owner)
        outputs: tuple[str, ...] = ()
        if values.ndim == 2:
            outputs = ("output",)
            self.add_coord("output", output_names(targets, values.shape[1], owner))
        with self:
            observed = pm.Data("targets", values, dims=("obs", *outputs))
            f = self._declare_scores(stack, *outputs)
            precision = declared_rate(self.gamma, "gamma", outputs)
            pm.Normal("t", f, 1 / pt.sqrt(precision), observed=observed, dims=("obs", *outputs))
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0, **options: Any) -> Self:
        """Smallest instance that every engine can fit, with options of the constructor."""
        rng = np.random.default_rng(integer_seed(random_seed, "random_seed", "example"))
        x = rng.normal(size=(8, 2))
        response = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=len(x))
        return cls(_example_kernels(x), response, **options)

    @property
    def several(self) -> bool:
        """Whether the response has the dim "output"."""
        return "output" in self.coords

    @property
    def target_values(self) -> np.ndarray:
        """Current targets, array (obs,) or (obs, output)."""
        return self["targets"].get_value()


class GaussianProcessClassification(_GaussianProcess, LabelledDeclaration):
    r"""Classification by Gaussian processes whose covariance is a weighted sum of kernels.

    .. math::

        s &\sim \mathrm{LogNormal}, \qquad \beta \sim \mathrm{Dirichlet}(1) \\
        f_c &\sim \mathcal N\bigl(0, s \textstyle\sum_k \beta_k K_k\bigr), \qquad
            t_n \mid f \sim \mathrm{Categorical}(\mathrm{softmax}(f_n))

    With two classes there is one function, and t_n ~ Bernoulli(1 / (1 + exp(-f_n))).

    Parameters
    ----------
    kernels, combination, scale
        As in `GaussianProcessRegression`, and its warnings of kernels.
    labels : array_like, Series or DataArray (obs,)
        Class of each training object; any sortable values, aligned as targets are.
    classes : sequence, optional
        Classes in the order of the coordinate "class"; of two, f is the log odds of the second.
        Default: the sorted distinct labels.

    Attributes
    ----------
    combination : Combination
        Rule in use.

    Raises
    ------
    ValueError
        As for regression, and for labels of one class.

    Notes
    -----
    Notation as in `GaussianProcessRegression`, with classes in place of outputs. The data inform
    only differences of f between classes: compare engines on these and on class probabilities. If
    the classes can be separated, the likelihood has no maximum in s, and the posterior of s has the
    tail of its prior. A density evaluation costs O(K N^2 + N^3 + N^2 C), with M landmarks
    O(K N M + M^3 + N M C).

    References
    ----------
    C. E. Rasmussen and C. K. I. Williams (2006), Gaussian processes for machine learning, MIT
    Press: chapters 3 and 5. M. Girolami and S. Rogers (2006), Variational Bayesian multinomial
    probit regression with Gaussian process priors, Neural Computation 18, for several classes.

    Examples
    --------
    >>> data = kz.datasets.load("wine").split(seed=1)
    >>> kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    >>> model = kz.GaussianProcessClassification(kernels(data.X_train), data.y_train)
    >>> result = kz.fit(model, "inla", random_seed=1)
    >>> kz.predict(model, result, kernels(data.X_test, data.X_train))["probability"]
    """

    def __init__(
        self,
        kernels: Any,
        labels: Any,
        *,
        combination: str | Combination = "mean",
        scale: float | LearnedScale = LEARNED,
        classes: Sequence[Hashable] | None = None,
    ):
        super().__init__()
        stack = self._open(kernels, combination, scale)
        codes = self.read_labels(labels, classes, stack)
        with self:
            observed = pm.Data("labels", codes, dims="obs")
            if self.n_classes == 2:
                f = self._declare_scores(stack)
                pm.Bernoulli("t", logit_p=f, observed=observed, dims="obs")
            else:
                f = self._declare_scores(stack, "class")
                pm.Categorical("t", logit_p=f, observed=observed, dims="obs")
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0, **options: Any) -> Self:
        """Smallest instance that every engine can fit: 12 objects, 3 classes, 2 kernels."""
        rng = np.random.default_rng(integer_seed(random_seed, "random_seed", "example"))
        labels = np.arange(12) % 3
        x = rng.normal(size=(12, 2)) + np.eye(3)[labels, :2]
        return cls(_example_kernels(x), labels, **options)


def _example_kernels(x: np.ndarray) -> dict[str, np.ndarray]:
    """Two kernels of made-up objects."""
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    return {"near": np.exp(-2 * distances), "far": np.exp(-distances / 8)}
