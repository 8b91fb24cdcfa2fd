r"""Tanner-Wong data augmentation for `WishartCompletion` (Zhang, Yeung & Kwok 2004, section 3).

I-step, eqs (2) and (5): K21 and K22.1 given Sigma. P-step, eqs (3) and (6): Sigma given the
completed K, either as a whole matrix or block by block. Sigma22.1 is inverse Wishart, and
B = Sigma21 Sigma11^-1 is normal *given the same Sigma22.1*: drawing B from its marginal (matrix-t)
and Sigma22.1 independently would be wrong.

Both forms of the P-step use the Schur complement of K + Theta. It is computed as a sum of positive
definite terms, so that it stays positive definite in floating point: K22.1 + Theta22.1 + (K21
K11^-1 - m) (K11^-1 + Theta11^-1)^-1 (K21 K11^-1 - m)', m = Theta21 Theta11^-1. In the coordinates
of `Spectrum` its middle factor is diagonal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
from pytensor.tensor import TensorVariable
from scipy.linalg import cholesky, solve_triangular

from ...models.wishart_completion import CompletionParameters, WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...numerics.wishart import Bartlett, Spectrum, solve_right
from ...validation import check_name
from ..block import GibbsBlock, Names, Shared

type Array = npt.NDArray[np.float64]


class Parameters(NamedTuple):
    """Sigma in blocks: Sigma11 (n1, n1), Sigma22.1 (n2, n2), B (n2, n1)."""

    Sigma11: Array
    Sigma22_1: Array
    B: Array


class Missing(NamedTuple):
    """Missing blocks of K: K21 (n2, n1) and K22.1 (n2, n2)."""

    K21: Array
    K22_1: Array


class Constants(NamedTuple):
    """Constants of sampling: Theta21, and the lower Cholesky factor (n1, n1) of K11 + Theta11."""

    spectrum: Spectrum
    theta21: Array
    total_factor: Array
    r: float
    eta: float

    @classmethod
    def of(cls, given: CompletionParameters) -> "Constants":
        """Factorise the kernels. O(n^3)."""
        theta = given.theta
        K11 = given.K11
        n1 = len(K11)
        total = np.ascontiguousarray(cholesky(K11 + theta[:n1, :n1], lower=True))
        return cls(Spectrum.of(theta, K11), theta[n1:, :n1].copy(), total, given.r, given.eta)


def impute(constants: Constants, parameters: Parameters, rng: np.random.Generator) -> Missing:
    """I-step, eq (5): K21 and K22.1 given Sigma. O(n2 n1^2 + n2^2 n1 + n2^3)."""
    n2, n1 = parameters.B.shape
    C11 = constants.spectrum.K11_factor
    R = cholesky(parameters.Sigma22_1, lower=True, check_finite=False)
    K21 = (parameters.B @ C11 + R @ rng.standard_normal((n2, n1))) @ C11.T
    W = Bartlett.draw(constants.r - n1, n2, rng).wishart_factor(R)
    return Missing(K21, W @ W.T)


def schur_factor(constants: Constants, missing: Missing, k: Array) -> Array:
    """Lower Cholesky factor (n2, n2) of the Schur complement of K11 + Theta11 in K + Theta.

    `k` (n2, n1) is K21 in the coordinates of the spectrum.
    """
    spectrum = constants.spectrum
    kappa = spectrum.kappa
    gap = (k - spectrum.m * kappa) / np.sqrt(kappa * (1 + kappa))
    schur = missing.K22_1 + spectrum.theta22_1 + gap @ gap.T
    return cholesky(schur, lower=True, overwrite_a=True, check_finite=False)


def draw_joint(constants: Constants, missing: Missing, rng: np.random.Generator) -> Parameters:
    """P-step block by block: Sigma11, Sigma22.1, then B given Sigma22.1. O(n^3).

    Sigma22.1 ~ IW(r + eta, Q22^-1); B | Sigma22.1 ~ MN(-Q22^-1 Q21, Sigma22.1, Q11.2) with
    Q = (K + Theta)^-1, Q11.2 = (K11 + Theta11)^-1; Sigma11 ~ IW(r + eta - n2, K11 + Theta11).
    """
    spectrum = constants.spectrum
    df = constants.r + constants.eta
    n2, n1 = missing.K21.shape
    k = missing.K21 @ spectrum.V_inverse.T
    scale = schur_factor(constants, missing, k)
    F = Bartlett.draw(df, n2, rng).inverse_wishart_factor(scale)
    spread = 1 + spectrum.kappa
    b = (k + spectrum.m) / spread + (F @ rng.standard_normal((n2, n1))) / np.sqrt(spread)
    F11 = Bartlett.draw(df - n2, n1, rng).inverse_wishart_factor(constants.total_factor)
    return Parameters(F11 @ F11.T, F @ F.T, b @ spectrum.V_inverse)


def draw_whole(constants: Constants, missing: Missing, rng: np.random.Generator) -> Parameters:
    """P-step as printed in eq (6): the whole Sigma ~ IW(r + eta, K + Theta), cut into blocks."""
    n2, n1 = missing.K21.shape
    total = constants.total_factor
    factor = np.zeros((n1 + n2, n1 + n2))
    factor[:n1, :n1] = total
    below = missing.K21 + constants.theta21
    factor[n1:, :n1] = solve_triangular(total, below.T, lower=True, check_finite=False).T
    k = missing.K21 @ constants.spectrum.V_inverse.T
    factor[n1:, n1:] = schur_factor(constants, missing, k)
    bartlett = Bartlett.draw(constants.r + constants.eta, n1 + n2, rng)
    F = bartlett.inverse_wishart_factor(factor)
    L = cholesky(F @ F.T, lower=True, overwrite_a=True, check_finite=False)
    L11 = np.ascontiguousarray(L[:n1, :n1])
    L21 = L[n1:, :n1]
    L22 = L[n1:, n1:]
    return Parameters(L11 @ L11.T, L22 @ L22.T, solve_right(np.ascontiguousarray(L21), L11))


P_STEPS = {"joint": draw_joint, "inverse-wishart": draw_whole}


class _TannerWong(GibbsBlock):
    """Base class of both steps."""

    declarations = (WishartCompletion, WishartKernelMixture)
    owns: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]]

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        self._constants = Constants.of(model.parameters)
        return self.owns, self.needs


class TannerWongImputation(_TannerWong):
    """I-step of the Tanner-Wong algorithm, eq (5): redraws K21 and K22_1 given Sigma.

    Kernels are read at construction: make a new step after ``pm.set_data``. ValueError for a
    `WishartKernelMixture` without matched parameters.
    """

    name = "tanner_wong_imputation"
    owns = ("K21", "K22_1")
    needs = ("Sigma22_1", "B")

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the missing blocks."""
        # Given B and Sigma22.1, the missing blocks do not depend on Sigma11.
        parameters = Parameters(np.empty(0), values["Sigma22_1"], values["B"])
        return impute(self._constants, parameters, rng)._asdict(), {}


class TannerWongPosterior(_TannerWong):
    """P-step of the Tanner-Wong algorithm, eq (6): redraws Sigma, in blocks, given K.

    `p_step` "joint" draws block by block, O(n1^3 + n2 n1^2), and "inverse-wishart" the whole matrix
    at once, O(n^3). Both give the same distribution.
    """

    name = "tanner_wong_posterior"
    owns = ("Sigma11", "Sigma22_1", "B")
    needs = ("K21", "K22_1")

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        p_step: str = "joint",
        **shared: Unpack[Shared],
    ):
        self._draw = P_STEPS[check_name(p_step, P_STEPS, "p_step", type(self).__name__)]
        super().__init__(vars, **shared)

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the parameters."""
        missing = Missing(values["K21"], values["K22_1"])
        return self._draw(self._constants, missing, rng)._asdict(), {}
