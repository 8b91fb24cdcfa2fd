r"""EM for `WishartCompletion` (Zhang, Yeung & Kwok, mixture model of kernels, section 3.2).

`WishartKernelMixture` with an inverse-Wishart prior uses it with the matched parameters (section
4.3, Figure 2).

The iterations, eqs (5)-(6), maximise log p(K11, D) over D = Sigma^-1 (the paper's C), with K21 and
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

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky
from scipy.special import multigammaln

from ...models.wishart_completion import CompletionParameters, WishartCompletion
from ...models.wishart_kernel_mixture import WishartKernelMixture
from ...numerics.wishart import Spectrum, log_det_of_factor
from ...validation import Count, Positive, argument_error
from ..engine.engine import Run
from ..engine.outputs import PointOutput

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
    max_iterations: Count | Literal["limit"] = 100,
    tolerance: Positive = 1e-6,
) -> PointOutput:
    """Compute the point after any number of iterations, in O(n^3); `EM` explains the settings.

    K21, K22_1 and K22 are the E-step's values at the last parameters. The objective is log p(K11,
    D).
    """
    given, n = model.parameters, len(model.parameters.theta)
    if np.isclose(given.eta, n + 1, rtol=1e-12, atol=0):
        # Rounding must not decide whether the limit exists.
        given = replace(given, eta=n + 1.0)
    endless = given.eta <= n + 1
    if max_iterations == "limit" and endless:
        owner, rule = f"EM on {type(model).__name__}", f"a number: {_no_fixed_point(given)}"
        raise argument_error("max_iterations", owner, rule, "'limit'")
    spectrum = Spectrum.of(given.theta, given.K11)
    t = np.inf if max_iterations == "limit" else float(max_iterations)
    size, n1 = _size(given, t), given.n_train
    total = given.K11 + given.theta[:n1, :n1]
    K22_1 = (given.r - n1) * size * spectrum.theta22_1
    values = {
        "Sigma11": total / _freedom(given),
        "Sigma22_1": size * spectrum.theta22_1,
        "B": spectrum.coefficients,
        "K21": spectrum.K21_mean,
        "K22_1": K22_1,
        "K22": K22_1 + spectrum.K22_explained,
    }
    iterations = np.array([np.inf]) if np.isinf(t) else np.arange(1.0, t + 1)
    objective = _objective(given, spectrum, total, _size(given, iterations))
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


def _objective(given: CompletionParameters, spectrum: Spectrum, total: Array, size: Array) -> Array:
    """Log p(K11, D) by the numbers S / Theta22.1; `total` is K11 + Theta11."""
    r, eta, c = given.r, given.eta, _freedom(given)
    n2, n1 = spectrum.coefficients.shape
    n = n1 + n2
    log_det = n2 * np.log(size) + spectrum.theta22_1_log_det
    Sigma11_log_det = log_det_of_factor(cholesky(total, lower=True)) - n1 * np.log(c)
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
