r"""Variational Bayes for `WishartCompletion`, in closed form.

`WishartKernelMixture` with an inverse-Wishart prior uses it with the matched parameters.

The mean field is q(Sigma11) q(Sigma22.1, B) q(K21, K22.1), the blocks of the Tanner-Wong algorithm.
All factors are conjugate and their fixed point is explicit. With :math:`\nu = r + \eta`,
:math:`m = \Theta_{21}\Theta_{11}^{-1}`, :math:`\kappa` the eigenvalues of
:math:`\Theta_{11}^{-1}K_{11}` and :math:`S = \Theta_{22\cdot1} / \eta`:

| factor | law |
|---|---|
| Sigma11 | IW(nu - n2, K11 + Theta11), exact |
| Sigma22.1 | IW(nu, nu S) |
| B \| Sigma22.1 | MN(m, Sigma22.1, (K11 + Theta11)^-1) |
| K21 | MN(m K11, S, K11) |
| K22.1 | W(r - n1, S) |

The evidence exceeds the bound by the mutual information of the last two blocks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.linalg import cholesky
from scipy.special import multigammaln, psi

from ...models.wishart_completion import CompletionParameters, WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...numerics.wishart import Bartlett, Spectrum, log_det_of_factor, solve_right, stacked
from ..engine.engine import Run
from ..engine.outputs import Moments, VariationalOutput

type Array = npt.NDArray[np.float64]


def completion_by_vb(
    model: WishartCompletion | WishartKernelMixture, run: Run
) -> VariationalOutput:
    """Compute the mean field's fixed point in closed form. O(n^3), and O(n^3) per draw."""
    given = model.parameters
    q = _Approximation.of(given)
    return VariationalOutput(
        elbo=[np.array([given.log_evidence() - q.missed_information()])],
        best=0,
        converged=True,
        parameters=q.parameters(),
        sample=q.sample,
        moments=q.moments(),
    )


@dataclass(frozen=True)
class _Approximation:
    """The approximate posterior q.

    `total_factor` (n1, n1) is the lower Cholesky factor of K11 + Theta11, and `shrinkage` the
    number S / Theta22.1.
    """

    spectrum: Spectrum
    total_factor: Array
    r: float
    eta: float
    shrinkage: float

    @classmethod
    def of(cls, given: CompletionParameters) -> "_Approximation":
        spectrum = Spectrum.of(given.theta, given.K11)
        n1 = given.n_train
        total = spectrum.K11 + given.theta[:n1, :n1]
        factor = np.ascontiguousarray(cholesky(total, lower=True))
        return cls(spectrum, factor, given.r, given.eta, 1 / given.eta)

    @property
    def df(self) -> float:
        """Degrees of freedom nu of Sigma22.1."""
        return self.r + self.eta

    @property
    def S_factor(self) -> Array:
        """Lower Cholesky factor of S."""
        return np.sqrt(self.shrinkage) * self.spectrum.theta22_1_factor

    def missed_information(self) -> float:
        """Kullback-Leibler divergence of q from the posterior; it does not depend on Theta22.1."""
        kappa, df, eta = self.spectrum.kappa, self.df, self.eta
        n2, n1 = self.spectrum.coefficients.shape
        log_S = n2 * np.log(self.shrinkage)
        log_psi = log_S + n2 * np.log(df)
        # E log|Sigma22.1| and the trace of E Sigma22.1^-1, in units of Theta22.1.
        log_det = log_psi - n2 * np.log(2) - psi((df - np.arange(n2)) / 2).sum()
        trace = n2 / self.shrinkage
        Sigma22_1 = (
            0.5 * (eta - df) * (-n2 * np.log(2) - log_det)
            - 0.5 * df * log_psi
            + multigammaln(df / 2, n2)
            - multigammaln(eta / 2, n2)
            - 0.5 * (trace - df * n2)
        )
        B = 0.5 * n2 * np.sum(kappa / (1 + kappa) - np.log1p(kappa))
        K21 = 0.5 * n1 * (log_S - log_det) - 0.5 * n2 * np.sum(kappa / (1 + kappa))
        K22_1 = 0.5 * (self.r - n1) * (log_S - log_det)
        return float(-(Sigma22_1 + B + K21 + K22_1))

    def moments(self) -> dict[str, Moments]:
        """Means and standard deviations of K21 and K22 under q."""
        spectrum = self.spectrum
        S = self.shrinkage * spectrum.theta22_1
        diagonal = np.diagonal(S)
        K21_sd = np.sqrt(np.outer(diagonal, np.diagonal(spectrum.K11)))
        unit = np.ones_like(spectrum.kappa)
        square = S**2 + np.outer(diagonal, diagonal)
        K22_sd = np.sqrt(spectrum.K22_variance(self.r, unit, S, square))
        return {
            "K21": (spectrum.K21_mean, K21_sd),
            "K22": (spectrum.K22_explained + self.r * S, K22_sd),
        }

    def parameters(self) -> xr.Dataset:
        """Parameters of q, with scales as in the module's table."""
        n2 = len(self.spectrum.theta22_1_factor)
        S = self.shrinkage * self.spectrum.theta22_1
        return xr.Dataset(
            {
                "Sigma11_df": self.df - n2,
                "Sigma11_scale": (("train", "train_"), self.total_factor @ self.total_factor.T),
                "Sigma22_1_df": self.df,
                "Sigma22_1_scale": (("test", "test_"), self.df * S),
                "B_mean": (("test", "train"), self.spectrum.coefficients),
                "K21_mean": (("test", "train"), self.spectrum.K21_mean),
                "K22_1_scale": (("test", "test_"), S),
            }
        )

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of all blocks, and log q. O(n^3) a draw."""
        rows = stacked((self._draw(rng) for _ in range(draws)), draws)
        log_q = rows.pop("log_q")
        return rows, log_q

    def _draw(self, rng: np.random.Generator) -> dict[str, Array]:
        """One draw of all blocks, with ``log_q``."""
        spectrum, df = self.spectrum, self.df
        n2, n1 = spectrum.coefficients.shape
        total_log_det = log_det_of_factor(self.total_factor)
        S_factor = self.S_factor
        S_log_det = log_det_of_factor(S_factor)
        scale_factor = np.sqrt(df) * S_factor
        scale_log_det = S_log_det + n2 * np.log(df)

        A11 = Bartlett.draw(df - n2, n1, rng)
        F11 = A11.inverse_wishart_factor(self.total_factor)
        A = Bartlett.draw(df, n2, rng)
        F = A.inverse_wishart_factor(scale_factor)
        F_log_det = scale_log_det - log_det_of_factor(A.a)
        noise = rng.standard_normal((2, n2, n1))
        B = spectrum.coefficients + solve_right(F @ noise[0], self.total_factor)
        K21 = spectrum.K21_mean + S_factor @ noise[1] @ spectrum.K11_factor.T
        A22 = Bartlett.draw(self.r - n1, n2, rng)
        F22 = A22.wishart_factor(S_factor)
        log_q = (
            A11.inverse_wishart_log_density(total_log_det)
            + A.inverse_wishart_log_density(scale_log_det)
            + A22.wishart_log_density(S_log_det)
            - 0.5 * np.sum(noise**2)
            - n1 * n2 * np.log(2 * np.pi)
            - 0.5 * (n1 * F_log_det - n2 * total_log_det)
            - 0.5 * (n1 * S_log_det + n2 * log_det_of_factor(spectrum.K11_factor))
        )
        return {
            "log_q": np.asarray(log_q),
            "Sigma11": F11 @ F11.T,
            "Sigma22_1": F @ F.T,
            "B": B,
            "K21": K21,
            "K22_1": F22 @ F22.T,
        }
