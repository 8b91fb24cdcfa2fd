r"""Exact posterior, VB and EM of `WishartCompletion`, in closed form.

`WishartKernelMixture` with an inverse-Wishart prior uses them with the matched parameters.

**Exact** (Zhang, Yeung & Kwok 2004, sections 2-3). K11 informs only Sigma11: given K11,
(Sigma22.1, B) keep their prior. So the posterior is drawn forwards, without a chain:

| variable | given K11 |
|---|---|
| Sigma11 | IW(r + eta - n2, K11 + Theta11) |
| Sigma22.1, B | prior |
| K21, K22.1 \| Sigma22.1, B | eq (5) |

K21 has a matrix-t distribution with eta - n2 + 1 degrees of freedom.

**VB**. The mean field is q(Sigma11) q(Sigma22.1, B) q(K21, K22.1), the blocks of the Tanner-Wong
algorithm. All factors are conjugate and their fixed point is explicit. With :math:`\nu = r + \eta`,
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

**EM** (Zhang, Yeung & Kwok, mixture model of kernels, sections 3.2 and 4.3, Figure 2). The
iterations, eqs (5)-(6), maximise log p(K11, D) over D = Sigma^-1 (the paper's C), with K21 and
K22.1 missing. The paper begins at C = eta Theta^-1, from which the iterates have a closed form:
with c = r + eta - n - 1 and a = r / c,

.. math::

    B_t = \Theta_{21}\Theta_{11}^{-1}, \qquad
    S_t = \Big(\frac{a^t}{\eta} + \frac{1 - a^t}{c - r}\Big) \Theta_{22\cdot1}

for B = Sigma21 Sigma11^-1 and S = Sigma22.1, and Sigma11 = (K11 + Theta11)/c from the first
iteration on. One iteration of S, the M-step of eq (6), is S_{t+1} = a S_t + Theta22.1 / c; the
fraction (1 - a^t)/(c - r) is t/c when c = r. The point is K21 = B K11 and K22.1 = (r - n1) S. K22.1
converges to (r - n1) Theta22.1 / (eta - n - 1) when eta > n + 1. When eta = n + 1, the paper's
setting, c = r and K22.1 grows by (r - n1)/r Theta22.1 in each iteration without limit; when eta < n
+ 1 it grows exponentially.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import multigammaln, psi

from ...custom_steps.kernel_completion.tanner_wong import Constants
from ...models.wishart_completion import CompletionParameters, WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...numerics.wishart import Bartlett, Spectrum, log_det_of_factor, solve_right, stacked
from ...validation import Count, Positive, argument_error
from ..engine.engine import Run
from ..engine.result import ExactOutput, Moments, PointOutput, VariationalOutput

type Array = npt.NDArray[np.float64]


def sample_completion(model: WishartCompletion | WishartKernelMixture, run: Run) -> ExactOutput:
    """Independent draws of all blocks, moments of K21 and K22, and the evidence.

    O(n^3) once and O(n^3) per draw, by matrix products and triangular solves.
    """
    given = model.parameters
    constants = Constants.of(given)

    def sample(draws: int, rng: np.random.Generator) -> dict[str, Array]:
        return stacked((draw_blocks(constants, rng) for _ in range(draws)), draws)

    moments = posterior_moments(given, constants.spectrum)
    return ExactOutput(sample, moments, given.log_evidence(), tails(given))


def draw_blocks(constants: Constants, rng: np.random.Generator) -> dict[str, Array]:
    """One draw of (Sigma11, Sigma22.1, B, K21, K22.1) given K11, by name. O(n^3)."""
    spectrum, _, total_factor, r, eta = constants
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

    An entry of S ~ IW(df, Psi), n by n, and of a Wishart matrix of scale S, has the tails of 1/chi2
    with df - n + 1 degrees of freedom; normal matrices of row covariance S have those of its root.
    """
    freedom = given.eta - given.n_test + 1
    return {
        "Sigma11": (given.r + freedom - given.n_train) / 2,
        **dict.fromkeys(("B", "K21"), freedom),
        **dict.fromkeys(("Sigma22_1", "K22_1", "K22", "trace_K22"), freedom / 2),
    }


def inverse_wishart_moments(df: float, psi: Array) -> tuple[Array, Array | None, Array | None]:
    """E S_ab, Var S_ab and E[S_ab^2 + S_aa S_bb] (n, n) of S ~ InverseWishart(df, psi).

    The mean needs df > n + 1; the others are None unless df > n + 3.
    """
    n = len(psi)
    mean = psi / (df - n - 1)
    if df <= n + 3:
        return mean, None, None
    squared = psi**2
    product = np.outer(np.diagonal(psi), np.diagonal(psi))
    divisor = (df - n) * (df - n - 1) ** 2 * (df - n - 3)
    variance = ((df - n + 1) * squared + (df - n - 1) * product) / divisor
    covariance = (2 * product + 2 * (df - n - 1) * squared) / divisor
    diagonal = np.diagonal(mean)
    return mean, variance, variance + covariance + mean**2 + np.outer(diagonal, diagonal)


def completion_by_vb(
    model: WishartCompletion | WishartKernelMixture, run: Run
) -> VariationalOutput:
    """Compute the mean field's fixed point in closed form. O(n^3), and O(n^3) per draw."""
    given = model.parameters
    q = _Approximation(Constants.of(given), 1 / given.eta)
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
    """The approximate posterior q; `shrinkage` is the number S / Theta22.1."""

    constants: Constants
    shrinkage: float

    def missed_information(self) -> float:
        """Kullback-Leibler divergence of q from the posterior; it does not depend on Theta22.1."""
        spectrum, _, _, r, eta = self.constants
        kappa = spectrum.kappa
        df = r + eta
        n2, n1 = spectrum.coefficients.shape
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
        K22_1 = 0.5 * (r - n1) * (log_S - log_det)
        return float(-(Sigma22_1 + B + K21 + K22_1))

    def moments(self) -> dict[str, Moments]:
        """Means and standard deviations of K21 and K22 under q."""
        spectrum = self.constants.spectrum
        r = self.constants.r
        S = self.shrinkage * spectrum.theta22_1
        diagonal = np.diagonal(S)
        K21_sd = np.sqrt(np.outer(diagonal, np.diagonal(spectrum.K11)))
        unit = np.ones_like(spectrum.kappa)
        square = S**2 + np.outer(diagonal, diagonal)
        K22_sd = np.sqrt(spectrum.K22_variance(r, unit, S, square))
        return {"K21": (spectrum.K21_mean, K21_sd), "K22": (spectrum.K22_explained + r * S, K22_sd)}

    def parameters(self) -> xr.Dataset:
        """Parameters of q, with scales as in the module's table."""
        spectrum, _, total_factor, r, eta = self.constants
        S = self.shrinkage * spectrum.theta22_1
        df = r + eta
        return xr.Dataset(
            {
                "Sigma11_df": df - len(S),
                "Sigma11_scale": (("train", "train_"), total_factor @ total_factor.T),
                "Sigma22_1_df": df,
                "Sigma22_1_scale": (("test", "test_"), df * S),
                "B_mean": (("test", "train"), spectrum.coefficients),
                "K21_mean": (("test", "train"), spectrum.K21_mean),
                "K22_1_scale": (("test", "test_"), S),
            }
        )

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of all blocks, and log q. O(n^3) per draw."""
        rows = stacked((self._draw(rng) for _ in range(draws)), draws)
        log_q = rows.pop("log_q")
        return rows, log_q

    def _draw(self, rng: np.random.Generator) -> dict[str, Array]:
        """One draw of all blocks, with ``log_q``."""
        spectrum, _, total_factor, r, eta = self.constants
        n2, n1 = spectrum.coefficients.shape
        df = r + eta
        total_log_det = log_det_of_factor(total_factor)
        S_factor = np.sqrt(self.shrinkage) * spectrum.theta22_1_factor
        S_log_det = log_det_of_factor(S_factor)
        scale_factor = np.sqrt(df) * S_factor
        scale_log_det = S_log_det + n2 * np.log(df)

        A11 = Bartlett.draw(df - n2, n1, rng)
        F11 = A11.inverse_wishart_factor(total_factor)
        A = Bartlett.draw(df, n2, rng)
        F = A.inverse_wishart_factor(scale_factor)
        F_log_det = scale_log_det - log_det_of_factor(A.a)
        noise = rng.standard_normal((2, n2, n1))
        B = spectrum.coefficients + solve_right(F @ noise[0], total_factor)
        K21 = spectrum.K21_mean + S_factor @ noise[1] @ spectrum.K11_factor.T
        A22 = Bartlett.draw(r - n1, n2, rng)
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


def _freedom(given: CompletionParameters) -> float:
    """Degrees of freedom c = r + eta - n - 1 of the M-step."""
    return given.r + given.eta - len(given.theta) - 1


def without_mode(model: WishartCompletion | WishartKernelMixture) -> str | None:
    """Why no inverse-Wishart prior matches, or the M-step has no maximum; None otherwise."""
    if isinstance(model, WishartKernelMixture) and (reason := model.not_conjugate()):
        return reason
    c = _freedom(model.parameters)
    return None if c > 0 else f"its M-step needs r + eta > n + 1; here r + eta - n - 1 = {c:g}"


def completion_by_em(
    model: WishartCompletion | WishartKernelMixture,
    run: Run,
    *,
    max_iterations: Count | Literal["limit"] = 100,
    tolerance: Positive = 1e-6,
) -> PointOutput:
    """Compute the point after any number of iterations, in O(n^3).

    K21, K22_1 and K22 are the E-step's values at the last parameters. The objective is log p(K11,
    D).

    Parameters
    ----------
    max_iterations : int or "limit", default=100
        Number of iterations, an E- and an M-step each. "limit" computes the limit, which exists
        when eta > n + 1, as for a mixture's matched eta when all eta_k are at least n + 1 and at
        least two kernels have positive weights. The papers' 100 iterations are often far from it.
    tolerance : float, default=1e-6
        Largest distance of K22.1 from its limit, relative to the limit's norm, at which the point
        counts as converged.
    """
    given = model.parameters
    n = len(model.parameters.theta)
    if np.isclose(given.eta, n + 1, rtol=1e-12, atol=0):
        # Rounding must not decide whether the limit exists.
        given = replace(given, eta=n + 1.0)
    endless = given.eta <= n + 1
    if max_iterations == "limit" and endless:
        owner = f"EM on {type(model).__name__}"
        rule = f"a number: {_no_fixed_point(given)}"
        raise argument_error("max_iterations", owner, rule, "'limit'")
    constants = Constants.of(given)
    n1 = given.n_train
    spectrum = constants.spectrum
    t = np.inf if max_iterations == "limit" else float(max_iterations)
    size = _size(given, t)
    K22_1 = (given.r - n1) * size * spectrum.theta22_1
    values = {
        "Sigma11": (given.K11 + given.theta[:n1, :n1]) / _freedom(given),
        "Sigma22_1": size * spectrum.theta22_1,
        "B": spectrum.coefficients,
        "K21": spectrum.K21_mean,
        "K22_1": K22_1,
        "K22": K22_1 + spectrum.K22_explained,
    }
    iterations = np.array([np.inf]) if np.isinf(t) else np.arange(1.0, t + 1)
    objective = _objective(given, constants, _size(given, iterations))
    if endless:
        note = (
            f"{_no_fixed_point(given)}; K21 has a limit. Stopped after {max_iterations} iterations."
        )
        return PointOutput(values, [objective], "no fixed point", note)
    gap = abs(size / _size(given, np.inf) - 1)
    if gap <= tolerance:
        return PointOutput(values, [objective], "yes")
    note = (
        f"After {max_iterations} iterations the point is {gap:.1e} from its limit, relative to the "
        "limit's norm: max_iterations='limit' computes the limit."
    )
    return PointOutput(values, [objective], "no", note)


def _no_fixed_point(given: CompletionParameters) -> str:
    n = len(given.theta)
    growth = "linearly" if given.eta == n + 1 else "exponentially"
    return (
        f"K22_1 has no fixed point at eta = {given.eta:g} <= n + 1 = {n + 1}: it grows {growth} "
        "with the iterations, so their number is a tuning constant"
    )


def _size(given: CompletionParameters, t: float | Array) -> Array:
    """Give the number S_t / Theta22.1 after t iterations, by the module's formula."""
    c = _freedom(given)
    log_a = np.log(given.r / c)
    # Exactly 0 at eta = n + 1.
    growth = np.asarray(t) if log_a == 0 else np.expm1(log_a * t) / np.expm1(log_a)
    return growth / c + np.exp(log_a * t) / given.eta


def _objective(given: CompletionParameters, constants: Constants, size: Array) -> Array:
    """Log p(K11, D) by the numbers S / Theta22.1."""
    spectrum = constants.spectrum
    r = given.r
    eta = given.eta
    c = _freedom(given)
    n2, n1 = spectrum.coefficients.shape
    n = n1 + n2
    log_det = n2 * np.log(size) + spectrum.theta22_1_log_det
    Sigma11_log_det = log_det_of_factor(constants.total_factor) - n1 * np.log(c)
    theta_log_det = log_det_of_factor(spectrum.theta11_factor) + spectrum.theta22_1_log_det
    # tr Sigma11^-1 (K11 + Theta11) is c n1 from the first iteration on.
    constant = (
        (r - n1 - 1) * log_det_of_factor(spectrum.K11_factor)
        - (r * n1 + eta * n) * np.log(2)
        - r * Sigma11_log_det
        + eta * theta_log_det
        - (eta - n - 1) * Sigma11_log_det
        - c * n1
    )
    gammas = multigammaln(r / 2, n1) + multigammaln(eta / 2, n)
    return 0.5 * (constant - (eta - n - 1) * log_det - n2 / size) - gammas
