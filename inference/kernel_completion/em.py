r"""EM for `WishartCompletion` (Zhang, Yeung & Kwok, mixture model of kernels, section 3.2).

`WishartKernelMixture` with an inverse-Wishart prior uses it with the matched parameters (section
4.3, Figure 2).

The iterations, eqs (5)-(6), maximise log p(K11, D) over D = Sigma^-1 (the paper's C), with K21 and
K22.1 missing. In coordinates in which Theta11 and K11 are diagonal (`Spectrum`: b = B V, m its
prior mean, kappa) the iterates have a closed form. With q = kappa / (1 + kappa), c = r + eta - n -
1 and a = r / c:

.. math::

    b_t - m &= (b_0 - m)\, \mathrm{diag}(q^t) \\
    S_t &= a^t S_0 + \frac{1 - a^t}{c - r} \Theta_{22\cdot1} + (b_0 - m)\, \mathrm{diag}(w_t)
        (b_0 - m)', \qquad w_t = \frac{q}{c} \sum_{s<t} a^{t-1-s} q^{2s}

for S = Sigma22.1, and Sigma11 = (K11 + Theta11)/c from the first iteration on. One iteration of S,
the M-step of eq (6), is S_{t+1} = a S_t + Theta22.1 / c + (b_t - m) diag(q / c) (b_t - m)'; the
fraction (1 - a^t)/(c - r) is t/c when c = r. The point is K21 = B K11 and K22.1 = (r - n1) S. K21
converges to Theta21 Theta11^-1 K11. K22.1 converges to (r - n1) Theta22.1 / (eta - n - 1) when
eta > n + 1. When eta = n + 1, the paper's setting, c = r and K22.1 grows by (r - n1)/r Theta22.1 an
iteration without limit; when eta < n + 1 it grows exponentially.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.special import multigammaln

from ...models.wishart_completion import CompletionParameters, WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...numerics.wishart import Spectrum, log_det_of_factor
from ...validation import (
    Count,
    Positive,
    argument_error,
    check_finite,
    check_real,
    check_square_symmetric,
)
from ..engine.engine import Run
from ..engine.outputs import PointOutput

__all__ = ["completion_by_em"]

type Array = npt.NDArray[np.float64]


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
    max_iterations: Count | None = 100,
    start: Literal["prior"] | npt.ArrayLike = "prior",
    tolerance: Positive = 1e-6,
) -> PointOutput:
    """Compute the point after any number of iterations; `EM` explains the settings.

    K21, K22_1 and K22 are the E-step's values at the last parameters. The objective is log p(K11,
    D). O(n^3) for any number of iterations; a start given as a matrix adds O(n2^3) per iteration
    for the objective.
    """
    owner = f"EM on {type(model).__name__}"
    given = model.parameters
    if np.isclose(given.eta, len(given.theta) + 1, rtol=1e-12, atol=0):
        # Rounding must not decide whether the limit exists.
        given = replace(given, eta=len(given.theta) + 1.0)
    if max_iterations is None and given.eta <= len(given.theta) + 1:
        raise argument_error(
            "max_iterations",
            owner,
            f"a number: {_no_fixed_point(given)}",
            "None, which is the limit",
        )
    path = _Path.of(given, start, owner)
    t = np.inf if max_iterations is None else float(max_iterations)
    values = path.values(t)
    if given.eta <= len(given.theta) + 1:
        note = (
            f"{_no_fixed_point(given)}; K21 has a limit. Stopped after {max_iterations} iterations."
        )
        return PointOutput(values, path.objective(max_iterations), "no fixed point", note)
    limit = path.values(np.inf)
    gap = float(np.max([_relative(values[name], limit[name]) for name in ("K21", "K22_1")]))
    if gap <= tolerance:
        return PointOutput(values, path.objective(max_iterations), "yes")
    note = (
        f"After {max_iterations} iterations the point is {gap:.1e} from its limit, relative to the "
        "limit's norm: use max_iterations=None for the limit."
    )
    return PointOutput(values, path.objective(max_iterations), "no", note)


def _no_fixed_point(given: CompletionParameters) -> str:
    n = len(given.theta)
    growth = "linearly" if given.eta == n + 1 else "exponentially"
    return (
        f"K22_1 has no fixed point at eta = {given.eta:g} <= n + 1 = {n + 1}: it grows {growth} "
        "with the iterations, so their number is a tuning constant"
    )


def _relative(value: Array, limit: Array) -> float:
    scale = np.linalg.norm(limit)
    return float(np.linalg.norm(value - limit) / scale) if scale else float(np.abs(value).max())


def _geometric(log_ratio: Any, terms: Any) -> Any:
    """Sum of ratio^s over 0 <= s < terms."""
    safe = np.where(log_ratio == 0, 1.0, log_ratio)
    with np.errstate(over="ignore"):
        return np.where(log_ratio == 0, terms, np.expm1(safe * terms) / np.expm1(safe))


@dataclass(frozen=True)
class _Path:
    """The iterates of eqs (5)-(6), by their number t (a float, possibly infinite).

    `total` (n1, n1) is K11 + Theta11, S_start (n2, n2) is S at the start and `gap_start` (n2, n1)
    is b - m there, or None if b - m is zero and S_start is a multiple of Theta22.1.
    """

    spectrum: Spectrum
    total: Array
    r: float
    eta: float
    c: float
    S_start: Array
    gap_start: Array | None

    @classmethod
    def of(cls, given: CompletionParameters, start: Any, owner: str) -> "_Path":
        n1 = given.n_train
        spectrum = Spectrum.of(given.theta, given.K11)
        if isinstance(start, str):
            if start != "prior":
                raise argument_error("start", owner, "'prior' or a matrix", repr(start))
            S, gap = spectrum.theta22_1 / given.eta, None
        else:
            factor = _checked_start(start, len(given.theta), owner)
            S = factor[n1:, n1:] @ factor[n1:, n1:].T
            B = solve_triangular(factor[:n1, :n1], factor[n1:, :n1].T, lower=True, trans="T").T
            gap = (B - spectrum.coefficients) @ spectrum.V
        total = spectrum.K11 + given.theta[:n1, :n1]
        return cls(spectrum, total, given.r, given.eta, _freedom(given), S, gap)

    @cached_property
    def log_q(self) -> Array:
        """Log of kappa / (1 + kappa) (n1,)."""
        return -np.log1p(1 / self.spectrum.kappa)

    @property
    def log_a(self) -> float:
        """Log of r / c; exactly 0 at eta = n + 1."""
        return float(np.log(self.r / self.c))

    def B(self, t: float) -> Array:
        """Sigma21 Sigma11^-1 (n2, n1) after t iterations: the first of the module's formulas."""
        if self.gap_start is None:
            return self.spectrum.coefficients
        gap = self.gap_start * np.exp(t * self.log_q)
        return self.spectrum.coefficients + gap @ self.spectrum.V_inverse

    def growth(self, t: Any) -> Any:
        """Factor of Theta22.1 in the increase of S after t iterations."""
        return _geometric(self.log_a, t) / self.c

    def S(self, t: float) -> Array:
        """Sigma22.1 (n2, n2) after t iterations: the second of the module's formulas."""
        S = self.growth(t) * self.spectrum.theta22_1 + np.exp(t * self.log_a) * self.S_start
        if self.gap_start is None or np.isinf(t):
            return S
        sums = np.exp((t - 1) * self.log_a) * _geometric(2 * self.log_q - self.log_a, t)
        weights = np.exp(self.log_q) / self.c * sums
        return S + (self.gap_start * weights) @ self.gap_start.T

    def values(self, t: float) -> dict[str, Array]:
        """Blocks of Sigma, and the E-step at them, eq (5)."""
        spectrum = self.spectrum
        n1 = len(self.total)
        S, B = self.S(t), self.B(t)
        K21 = B @ spectrum.K11
        K22_1 = (self.r - n1) * S
        K22 = K22_1 + K21 @ B.T
        return {
            "Sigma11": self.total / self.c,
            "Sigma22_1": S,
            "B": B,
            "K21": K21,
            "K22_1": K22_1,
            "K22": K22,
        }

    def objective(self, iterations: int | None) -> Array:
        """Log p(K11, D) after each iteration (iterations,), or at the limit (1,)."""
        t = np.array([np.inf]) if iterations is None else np.arange(1.0, iterations + 1)
        spectrum = self.spectrum
        n2, n1 = spectrum.coefficients.shape
        n = n1 + n2
        if self.gap_start is None:
            scale = self.growth(t) + np.exp(t * self.log_a) / self.eta
            log_det, trace = n2 * np.log(scale) + spectrum.theta22_1_log_det, n2 / scale
        else:
            log_det, trace = np.array([self._terms(number) for number in t]).T
        total_log_det = log_det_of_factor(cholesky(self.total, lower=True))
        Sigma11_log_det = total_log_det - n1 * np.log(self.c)
        theta_log_det = log_det_of_factor(spectrum.theta11_factor) + spectrum.theta22_1_log_det
        # tr Sigma11^-1 (K11 + Theta11) is c n1 from the first iteration on.
        constant = (
            (self.r - n1 - 1) * log_det_of_factor(spectrum.K11_factor)
            - (self.r * n1 + self.eta * n) * np.log(2)
            - self.r * Sigma11_log_det
            + self.eta * theta_log_det
            - (self.eta - n - 1) * Sigma11_log_det
            - self.c * n1
        )
        gammas = multigammaln(self.r / 2, n1) + multigammaln(self.eta / 2, n)
        return 0.5 * (constant - (self.eta - n - 1) * log_det - trace) - gammas

    def _terms(self, t: float) -> tuple[float, float]:
        """Give log|S| and tr S^-1 [Theta22.1 + (b - m)(b - m)'] after t iterations."""
        assert self.gap_start is not None
        factor = cholesky(self.S(t), lower=True)
        gap = self.gap_start * np.exp(t * self.log_q)
        whitened = solve_triangular(
            factor, np.hstack([self.spectrum.theta22_1_factor, gap]), lower=True
        )
        return log_det_of_factor(factor), float(np.sum(whitened**2))


def _checked_start(start: Any, n: int, owner: str) -> Array:
    """Lower Cholesky factor of the start (n, n)."""
    matrix = check_real(start, "start", owner)
    if matrix.shape != (n, n):
        raise argument_error("start", owner, f"'prior' or of shape {(n, n)}", str(matrix.shape))
    check_finite(matrix, "start", owner)
    check_square_symmetric(matrix, "start", owner)
    try:
        return cholesky(matrix, lower=True)
    except LinAlgError:
        raise argument_error("start", owner, "positive definite", "another matrix") from None
