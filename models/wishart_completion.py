"""Completion of a kernel matrix by a Wishart model (Zhang, Yeung & Kwok 2004, sections 2-3)."""

from dataclasses import dataclass
from typing import Any, Self, override

import numpy as np
import pymc as pm
from scipy.linalg import cholesky
from scipy.special import multigammaln

from ..numerics.wishart import log_det_of_factor
from ..validation import Seed, integer_seed
from .completion.blocks import declare_inverse_wishart, declare_kernel, object_coords
from .completion.input import PartitionedStack, check_degrees_of_freedom
from .declaration import Declaration


@dataclass(frozen=True)
class CompletionParameters:
    """Parameters and data of Sigma ~ IW(eta, theta), K | Sigma ~ W(r, Sigma), K11 observed.

    `theta` (n, n) has the training objects first, `K11` is (n1, n1).
    """

    theta: np.ndarray
    K11: np.ndarray
    r: float
    eta: float

    @property
    def n_train(self) -> int:
        """Number of training objects n1."""
        return len(self.K11)

    @property
    def n_test(self) -> int:
        """Number of test objects n2."""
        return len(self.theta) - len(self.K11)

    def log_evidence(self) -> float:
        r"""Log density of K11 with everything else integrated out. O(n1^3).

        With :math:`e = \eta - n_2`, the matrix-variate beta type II density

        .. math::

            p(K_{11}) =
            \frac{\Gamma_{n_1}(\frac{r+e}2)}{\Gamma_{n_1}(\frac r2)\Gamma_{n_1}(\frac e2)}
            \frac{|\Theta_{11}|^{e/2} |K_{11}|^{(r-n_1-1)/2}}{|K_{11}+\Theta_{11}|^{(r+e)/2}}
        """
        n1 = self.n_train
        r = self.r
        e = self.eta - self.n_test
        matrices = self.theta[:n1, :n1], self.K11, self.K11 + self.theta[:n1, :n1]
        theta11, K11, both = (log_det_of_factor(cholesky(x, lower=True)) for x in matrices)
        gammas = multigammaln((r + e) / 2, n1) - multigammaln(r / 2, n1) - multigammaln(e / 2, n1)
        powers = e * theta11 + (r - n1 - 1) * K11 - (r + e) * both
        return float(gammas + powers / 2)


class Partitioned(Declaration):
    """A model of one kernel matrix whose training block is observed."""

    streamed: tuple[str, ...] = ("K21", "K22")
    #: Variable whose posterior mean is that of K21.
    completed: str = "K21"

    @property
    def n_train(self) -> int:
        """Number of training objects n1."""
        return len(self.coords["train"])

    @property
    def n_test(self) -> int:
        """Number of test objects n2."""
        return len(self.coords["test"])

    @property
    def theta(self) -> np.ndarray:
        """Current kernel of all objects, array ([kernel,] object, object_), training first."""
        return self["theta"].get_value()

    @property
    def K11_values(self) -> np.ndarray:
        """Current observed kernel of the training objects, array (train, train_)."""
        return self["K11_values"].get_value()


def example_kernels(random_seed: Seed) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances (5, 5) of made-up objects, and the ideal kernel (3, 3) of the first."""
    seed = integer_seed(random_seed, "random_seed", "example")
    x = np.random.default_rng(seed).normal(size=(5, 2))
    ideal = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    return ((x[:, None] - x[None]) ** 2).sum(-1), ideal


class WishartCompletion(Partitioned):
    r"""Kernel matrix of training and test objects whose training block is observed.

    The model is :math:`\Sigma \sim \mathrm{IW}(\eta, \Theta)` and
    :math:`K \mid \Sigma \sim \mathrm{W}(r, \Sigma)`. It is declared in blocks (1 = training,
    2 = test, :math:`X_{22\cdot1} = X_{22} - X_{21} X_{11}^{-1} X_{12}`), eq (4), that do not
    constrain each other:

    .. math::

        \Sigma_{11} &\sim \mathrm{IW}(\eta - n_2, \Theta_{11}) \\
        \Sigma_{22\cdot1} &\sim \mathrm{IW}(\eta, \Theta_{22\cdot1}) \\
        B = \Sigma_{21}\Sigma_{11}^{-1} \mid \Sigma_{22\cdot1} &\sim
            \mathrm{MN}(\Theta_{21}\Theta_{11}^{-1}, \Sigma_{22\cdot1}, \Theta_{11}^{-1}) \\
        K_{11} \mid \Sigma_{11} &\sim \mathrm{W}(r, \Sigma_{11}) \quad\text{(observed)} \\
        K_{21} \mid K_{11}, B, \Sigma_{22\cdot1} &\sim
            \mathrm{MN}(B K_{11}, \Sigma_{22\cdot1}, K_{11}) \\
        K_{22\cdot1} \mid \Sigma_{22\cdot1} &\sim \mathrm{W}(r - n_1, \Sigma_{22\cdot1})

    Parameters
    ----------
    theta : array_like, DataFrame or DataArray (n, n), or stack of kernels
        Positive definite kernel of all objects, the training objects first. If `K11` has labels,
        they identify the training objects instead. A stack (see `as_stack`) is replaced by the
        weighted sum of its kernels.
    K11 : array_like, DataFrame or DataArray (n1, n1)
        Observed positive definite kernel of the training objects.
    weights : array_like (kernel,), optional
        Non-negative weights of a stack's kernels. Default: equal weights that sum to 1.
    r, eta : float, optional
        Degrees of freedom of K and of Sigma, real numbers above n - 1. Default: n + 1, the paper's.

    Raises
    ------
    ValueError
        For matrices that are not finite, symmetric and positive definite (the message suggests a
        jitter), sizes or labels that disagree, a `K11` of all objects, and degrees of freedom out
        of range.

    Notes
    -----
    ============= =============================================== =================================
    paper         meaning                                         code
    ============= =============================================== =================================
    n1, n2, n     training, test, all objects                     dims train, test, object
    Theta         input kernel, parameter of the prior            ``theta`` (object, object_)
    K11           kernel of the training objects, eq (1)          ``K11`` (train, train_)
    K21, K22.1    missing blocks, eqs (4)-(5)                     ``K21`` (test, train), ``K22_1``
    K22           K22.1 + K21 K11^-1 K12                          ``K22`` (test, test_)
    D^-1 = Sigma  parameter of the Wishart distribution           blocks below
    D11.2^-1      Sigma11                                         ``Sigma11`` (train, train_)
    D22^-1        Sigma22.1                                       ``Sigma22_1`` (test, test_)
    -D22^-1 D21   Sigma21 Sigma11^-1                              ``B`` (test, train)
    r, eta        degrees of freedom of K and of Sigma            ``r``, ``eta``
    ============= =============================================== =================================

    Chains are monitored on ``trace_K22``, ``log_det_Sigma22_1`` and the moments of all entries.
    Dims with an underscore are those of columns. A density evaluation costs O(n^3).

    References
    ----------
    Z. Zhang, D.-Y. Yeung and J. T. Kwok (2004), Bayesian inference for transductive learning of
    kernel matrix using the Tanner-Wong data augmentation algorithm, ICML: sections 2-3.

    Examples
    --------
    >>> theta = kz.gaussian(0.4)(X)  # all objects, training first
    >>> ideal = (y_train[:, None] == y_train).astype(float)
    >>> n1 = len(ideal)
    >>> K11 = (theta.values[0, :n1, :n1] + ideal) / 2
    >>> model = kz.WishartCompletion(theta, K11)
    >>> kz.fit(model, "exact")["moments"]["K21_mean"]
    """

    large: frozenset[str] = frozenset({"Sigma11", "Sigma22_1", "B", "K21", "K22_1", "K22"})

    def __init__(
        self,
        theta: Any,
        K11: Any,
        *,
        weights: Any = None,
        r: float | None = None,
        eta: float | None = None,
    ):
        owner = type(self).__name__
        given = PartitionedStack.of(theta, K11, owner)
        whole = given.weighted(weights, owner)
        n = len(whole)
        n1 = len(given.K11)
        self.r = check_degrees_of_freedom(r, "r", owner, n)
        self.eta = check_degrees_of_freedom(eta, "eta", owner, n)
        super().__init__(coords=object_coords(given.labels, n1))

        with self:
            theta_data = pm.Data("theta", whole, shape=(n, n), dims=("object", "object_"))
            observed = pm.Data("K11_values", given.K11, shape=(n1, n1), dims=("train", "train_"))
            Sigma = declare_inverse_wishart(theta_data, self.eta, n1)
            declare_kernel(Sigma, self.r, observed, n1)
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0) -> Self:
        """Smallest instance that every engine can fit: 3 training and 2 test objects."""
        squared, ideal = example_kernels(random_seed)
        theta = np.exp(-squared / 2)
        return cls(10 * theta, 10 * (theta[:3, :3] + ideal) / 2, r=10.5, eta=12.5)

    @property
    def parameters(self) -> CompletionParameters:
        """Current parameters and data."""
        return CompletionParameters(self.theta, self.K11_values, self.r, self.eta)
