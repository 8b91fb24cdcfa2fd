"""Completion of a kernel matrix with a diagonal parameter (Zhang, Yeung & Kwok 2004, section 4)."""

from typing import Any, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from ..numerics.wishart import Spectrum
from ..validation import Seed, check_flag, check_positive
from .completion.blocks import object_coords
from .completion.input import PartitionedStack, check_degrees_of_freedom
from .distributions.normal import MatrixNormal
from .distributions.wishart import Wishart
from .operations.arrays import cholesky_or_nan, matrix_product, solve_lower
from .wishart_completion import Partitioned, example_kernels


class DiagonalWishartCompletion(Partitioned):
    r"""Kernel matrix in a basis that makes its observed block diagonal.

    The model is :math:`W \sim \mathrm{W}(r, \Delta)`, :math:`\Delta = \mathrm{diag}(\delta)`, eq
    (7), declared in blocks (1 = training, 2 = test). Their joint density is eq (11), which follows
    from eq (10) by Theorem 1:

    .. math::

        \lambda &\sim \mathrm{Gamma}(\zeta, \tau) \\
        1/\delta_j \mid \lambda &\sim \mathrm{Gamma}(\eta, \lambda) \\
        W_{11} \mid \delta &\sim \mathrm{W}(r, \Delta_1) \quad\text{(observed, diagonal)} \\
        W_{21} \mid \delta, W_{11} &\sim \mathrm{MN}(0, \Delta_2, W_{11}) \\
        W_{22\cdot1} \mid \delta &\sim \mathrm{W}(r - n_1, \Delta_2)

    All second arguments of Gamma are rates.

    Parameters
    ----------
    theta, K11, weights
        As in `WishartCompletion`; theta is the paper's A.
    r : float, optional
        Degrees of freedom of W, a real number above n - 1. Default: n + 1.
    eta : float, default=3
        Shape of 1/delta.
    zeta, tau : float, optional
        Shape and rate of lambda. Default: 1/2, and ``alpha n1 / tr(W11)``.
    alpha : float, default=1.2
        Factor of the default rate; the paper recommends 0.9 to 3.
    diagonal_W22_1 : bool, default=False
        Declare only the diagonal of W22.1, as the paper's approximation TW2 (eq 15). The
        distribution of lambda, delta, W21 and that diagonal stays the same; K22 lacks the
        contribution of the off-diagonal entries, whose mean is zero.

    Raises
    ------
    ValueError
        As for `WishartCompletion`, and for hyperparameters out of range.

    Notes
    -----
    ============== ================================================ =============================
    paper          meaning                                          code
    ============== ================================================ =============================
    n1, n2, n      training, test, all objects                      dims train, test, object
    A = C'C        input kernel                                     ``theta``
    C              basis of Theorem 2, eqs (17)-(18)                ``C1``, ``C2``, ``coefficients``
    W11            (I + Lambda1)/2 in the paper, diagonal           ``W11`` (train, train_)
    W21, W22.1     missing blocks, eqs (12), (13), (15)             ``W21`` (test, train), ``W22_1``
    K21, K22       blocks of C'WC                                   ``K21``, ``K22``
    delta_j        diagonal of Delta                                ``delta`` (object)
    lambda         rate of 1/delta, eqs (8), (9)                    ``lambda``
    ============== ================================================ =============================

    :math:`C = \begin{pmatrix} C_1 & C_1 A_{11}^{-1} A_{12} \\ 0 & C_2 \end{pmatrix}`, eq (17), with
    :math:`A_{11} = C_1'C_1`, :math:`K_{11} = C_1'W_{11}C_1`, eq (18), and
    :math:`A_{22.1} = C_2'C_2`, from the eigenproblem of eq (16) on the training block;
    ``coefficients`` is :math:`A_{21}A_{11}^{-1}`. The paper prints :math:`W = C'KC` in section 4.1;
    its algorithm uses :math:`K = C'WC`. The basis costs O(n^3), once, a density evaluation O(n^3),
    or O(n1^3) with `diagonal_W22_1`.

    References
    ----------
    Z. Zhang, D.-Y. Yeung and J. T. Kwok (2004), Bayesian inference for transductive learning of
    kernel matrix using the Tanner-Wong data augmentation algorithm, ICML: section 4.

    Examples
    --------
    >>> theta = kz.gaussian(0.4)(X)  # all objects, training first
    >>> ideal = (y_train[:, None] == y_train).astype(float)
    >>> n1 = len(ideal)
    >>> K11 = (theta.values[0, :n1, :n1] + ideal) / 2
    >>> model = kz.DiagonalWishartCompletion(theta, K11)
    >>> kz.fit(model, "exact")["moments"]["K21_mean"]
    """

    large: frozenset[str] = frozenset({"W21", "W22_1", "K21", "K22"})

    def __init__(
        self,
        theta: Any,
        K11: Any,
        *,
        weights: Any = None,
        r: float | None = None,
        eta: float = 3.0,
        zeta: float = 0.5,
        tau: float | None = None,
        alpha: float = 1.2,
        diagonal_W22_1: bool = False,
    ):
        owner = type(self).__name__
        given = PartitionedStack.of(theta, K11, owner)
        n = len(given.labels)
        n1 = len(given.K11)
        basis = Spectrum.of(given.weighted(weights, owner), given.K11)
        self.r = check_degrees_of_freedom(r, "r", owner, n)
        default_tau = check_positive(alpha, "alpha", owner) * n1 / basis.kappa.sum()
        self.eta = check_positive(eta, "eta", owner)
        self.zeta = check_positive(zeta, "zeta", owner)
        self.tau = check_positive(default_tau if tau is None else tau, "tau", owner)
        self.diagonal_W22_1 = check_flag(diagonal_W22_1, "diagonal_W22_1", owner)
        super().__init__(coords=object_coords(given.labels, n1))

        with self:
            C1 = pm.Data("C1", basis.V.T, dims=("train_", "train"))
            C2 = pm.Data("C2", basis.theta22_1_factor.T, dims=("test_", "test"))
            coefficients = pm.Data("coefficients", basis.coefficients, dims=("test", "train"))
            observed = pm.Data("W11_values", np.diag(basis.kappa), dims=("train", "train_"))

            lam = pm.Gamma("lambda", alpha=self.zeta, beta=self.tau)
            delta = pm.InverseGamma("delta", alpha=self.eta, beta=lam, dims="object")
            W11 = Wishart(
                "W11", self.r, pt.diag(delta[:n1]), observed=observed, dims=("train", "train_")
            )
            L11 = cholesky_or_nan(W11)
            spread = pt.diag(pt.sqrt(delta[n1:]))
            W21 = MatrixNormal("W21", pt.zeros((n - n1, n1)), spread, L11, dims=("test", "train"))
            if diagonal_W22_1:
                shape = (self.r - n1) / 2
                rate = 0.5 / delta[n1:]
                W22_1 = pt.diag(pm.Gamma("W22_1", alpha=shape, beta=rate, dims="test"))
            else:
                W22_1 = Wishart("W22_1", self.r - n1, pt.diag(delta[n1:]), dims=("test", "test_"))

            # K21 = rows C1, K22 = C2' W22.1 C2 + rows W11^-1 rows'.
            projected = matrix_product(C2.T, W21)
            rows = matrix_product(matrix_product(coefficients, C1.T), W11) + projected
            pm.Deterministic("K21", matrix_product(rows, C1), dims=("test", "train"))
            explained = solve_lower(L11, rows.T)
            own = matrix_product(matrix_product(C2.T, W22_1), C2)
            K22_values = own + matrix_product(explained.T, explained)
            pm.Deterministic("K22", K22_values, dims=("test", "test_"))
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0, **options: Any) -> Self:
        """Smallest instance that every engine can fit, with options of the constructor."""
        squared, ideal = example_kernels(random_seed)
        theta = np.exp(-squared / 2)
        options = {"r": 9.5, "eta": 4.0, "zeta": 3.0} | options
        return cls(theta, (theta[:3, :3] + ideal) / 2, **options)

    @property
    @override
    def theta(self) -> np.ndarray:
        """Kernel of all objects C'C, array (object, object), training objects first."""
        C12 = self.C1 @ self.coefficients.T
        A12 = self.C1.T @ C12
        A22 = C12.T @ C12 + self.C2.T @ self.C2
        return np.block([[self.C1.T @ self.C1, A12], [A12.T, A22]])

    @override
    def as_data(self, name: str, value: np.ndarray) -> np.ndarray:
        """Diagonal of a simulated W11: its other entries say nothing of delta and lambda."""
        return np.diag(np.diagonal(value))

    @property
    def w(self) -> np.ndarray:
        """Current diagonal of W11, array (train,)."""
        return np.diagonal(self["W11_values"].get_value())

    @property
    def C1(self) -> np.ndarray:
        r"""Training basis, array (train_, train): :math:`A_{11}=C_1'C_1, K_{11}=C_1'W_{11}C_1`."""
        return self["C1"].get_value()

    @property
    def C2(self) -> np.ndarray:
        """Basis of the residuals of the test objects, array (test_, test): A22.1 = C2'C2."""
        return self["C2"].get_value()

    @property
    def coefficients(self) -> np.ndarray:
        r"""Regression of test on training objects, :math:`A_{21} A_{11}^{-1}` (test, train)."""
        return self["coefficients"].get_value()

    @property
    @override
    def K11_values(self) -> np.ndarray:
        """Observed kernel of the training objects C1'W11 C1, array (train, train)."""
        return (self.C1.T * self.w) @ self.C1
