r"""Exact posterior of `WishartCompletion` (Zhang, Yeung & Kwok 2004, sections 2-3).

`WishartKernelMixture` with an inverse-Wishart prior uses it with the matched parameters.

K11 informs only Sigma11: given K11, (Sigma22.1, B) keep their prior. So the posterior is drawn
forwards, without a chain:

| variable | given K11 |
|---|---|
| Sigma11 | IW(r + eta - n2, K11 + Theta11) |
| Sigma22.1, B | prior |
| K21, K22.1 \| Sigma22.1, B | eq (5) |

K21 has a matrix-t distribution with eta - n2 + 1 degrees of freedom.
"""

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky

from ...models.wishart_completion import CompletionParameters, WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...numerics.wishart import Bartlett, Spectrum, solve_right, stacked
from ..engine.engine import Run
from ..engine.outputs import ExactOutput, Moments

type Array = npt.NDArray[np.float64]


def sample_completion(model: WishartCompletion | WishartKernelMixture, run: Run) -> ExactOutput:
    """Independent draws of all blocks, moments of K21 and K22, and the evidence.

    O(n^3) once and O(n^3) per draw, by matrix products and triangular solves.
    """
    given = model.parameters
    spectrum = Spectrum.of(given.theta, given.K11)
    total_factor, r, eta = _total_factor(given, spectrum), given.r, given.eta

    def sample(draws: int, rng: np.random.Generator) -> dict[str, Array]:
        rows = (draw_blocks(spectrum, total_factor, r, eta, rng) for _ in range(draws))
        return stacked(rows, draws)

    return ExactOutput(
        sample, posterior_moments(given, spectrum), given.log_evidence(), tails(given)
    )


def draw_blocks(
    spectrum: Spectrum, total_factor: Array, r: float, eta: float, rng: np.random.Generator
) -> dict[str, Array]:
    """One draw of (Sigma11, Sigma22.1, B, K21, K22.1) given K11, by name. O(n^3).

    `total_factor` is the lower Cholesky factor of K11 + Theta11.
    """
    n2, n1 = spectrum.coefficients.shape
    F11 = Bartlett.draw(r + eta - n2, n1, rng).inverse_wishart_factor(total_factor)
    F = Bartlett.draw(eta, n2, rng).inverse_wishart_factor(spectrum.theta22_1_factor)
    noise = rng.standard_normal((2, n2, n1))
    B = spectrum.coefficients + solve_right(F @ noise[0], spectrum.theta11_factor)
    K21 = (B @ spectrum.K11_factor + F @ noise[1]) @ spectrum.K11_factor.T
    W = Bartlett.draw(r - n1, n2, rng).wishart_factor(F)
    return {"Sigma11": F11 @ F11.T, "Sigma22_1": F @ F.T, "B": B, "K21": K21, "K22_1": W @ W.T}


def posterior_moments(given: CompletionParameters, spectrum: Spectrum) -> dict[str, Moments]:
    r"""Posterior means, and standard deviations where they exist, in closed form.

    With :math:`\kappa` the eigenvalues of :math:`\Theta_{11}^{-1} K_{11}`:

    .. math::

        E K_{21} &= \Theta_{21}\Theta_{11}^{-1} K_{11} \\
        E K_{22} &= \Theta_{21}\Theta_{11}^{-1} K_{11}\Theta_{11}^{-1}\Theta_{12}
            + (r + \textstyle\sum\kappa)\, E\Sigma_{22\cdot1}, \qquad
            E\Sigma_{22\cdot1} = \Theta_{22\cdot1} / (\eta - n_2 - 1)

    The mean of K22 and the standard deviation of K21 exist for eta > n2 + 1 (otherwise they are
    left out), the standard deviation of K22 for eta > n2 + 3.
    """
    n2 = given.n_test
    moments: dict[str, Moments] = {}
    if given.eta <= n2 + 1:
        return {"K21": (spectrum.K21_mean, None)}
    S_mean, S_variance, S_square = inverse_wishart_moments(given.eta, spectrum.theta22_1)
    # K21 given S has the covariances S and K11 + K11 Theta11^-1 K11 = V (kappa + kappa^2) V'.
    kappa = spectrum.kappa
    columns = np.square(spectrum.V) @ (kappa + kappa**2)
    K21_sd = np.sqrt(np.outer(np.diagonal(S_mean), columns))
    moments["K21"] = spectrum.K21_mean, K21_sd
    K22_sd = None
    scale = given.r + kappa.sum()
    if S_variance is not None and S_square is not None:
        within = spectrum.K22_variance(given.r, 1 + kappa, S_mean, S_square)
        K22_sd = np.sqrt(within + scale**2 * S_variance)
    moments["K22"] = spectrum.K22_explained + scale * S_mean, K22_sd
    return moments


def tails(given: CompletionParameters) -> dict[str, float | Array]:
    """Powers p from which on E|x|^p is infinite, by variable.

    An entry of S ~ IW(df, Psi), n by n, has the tails of 1/chi2 with df - n + 1 degrees of freedom,
    and so does an entry of a Wishart matrix of scale S. Normal matrices of row covariance S, such
    as B and K21, have the tails of its root.
    """
    freedom = given.eta - given.n_test + 1
    scale, root = freedom / 2, freedom
    return {
        "Sigma11": (given.r + freedom - given.n_train) / 2,
        "Sigma22_1": scale,
        "B": root,
        "K21": root,
        "K22_1": scale,
        "K22": scale,
        "trace_K22": scale,
    }


def inverse_wishart_moments(df: float, psi: Array) -> tuple[Array, Array | None, Array | None]:
    """E S_ab, Var S_ab and E[S_ab^2 + S_aa S_bb] (n, n) of S ~ InverseWishart(df, psi).

    The mean needs df > n + 1; the others are None unless df > n + 3.
    """
    n = len(psi)
    mean = psi / (df - n - 1)
    if df <= n + 3:
        return mean, None, None
    squared, product = psi**2, np.outer(np.diagonal(psi), np.diagonal(psi))
    divisor = (df - n) * (df - n - 1) ** 2 * (df - n - 3)
    variance = ((df - n + 1) * squared + (df - n - 1) * product) / divisor
    covariance = (2 * product + 2 * (df - n - 1) * squared) / divisor
    diagonal = np.diagonal(mean)
    return mean, variance, variance + covariance + mean**2 + np.outer(diagonal, diagonal)


def evidence_of_completion(model: WishartCompletion | WishartKernelMixture) -> float:
    """Log density of K11 with all else integrated out. O(n1^3)."""
    return model.parameters.log_evidence()


def _total_factor(given: CompletionParameters, spectrum: Spectrum) -> Array:
    n1 = given.n_train
    total = given.theta[:n1, :n1] + spectrum.K11
    return np.ascontiguousarray(cholesky(total, lower=True))
