"""EM for `WishartKernelMixture` (Zhang, Yeung & Kwok, mixture model of kernels, section 4.3)."""

from typing import Literal

import numpy.typing as npt

from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engines.answers import PointAnswer
from ..engines.em import EM
from ..engines.engine import Run
from .em import completion_by_em, without_mode

__all__ = ["fit_wishart_kernel_mixture"]


def _why_not(model: WishartKernelMixture) -> str | None:
    return model.not_conjugate() or without_mode(model.parameters)


@EM.register(WishartKernelMixture, unless=_why_not)
def fit_wishart_kernel_mixture(
    model: WishartKernelMixture,
    run: Run,
    *,
    iterations: int | None = 100,
    start: Literal["prior"] | npt.ArrayLike = "prior",
    tolerance: float = 1e-6,
) -> PointAnswer:
    """Compute the point of Figure 2: match eta and Theta, then EM as for `WishartCompletion`.

    Parameters
    ----------
    model : WishartKernelMixture
        With fixed weights and the inverse-Wishart prior.
    run : Run
    iterations : int or None, default=100
        Iterations from the start; an iteration is an E- and an M-step. None: the limit. Where all
        eta_k are n + 1 or more, the matched eta exceeds n + 1 as soon as two kernels have weights,
        so that there is one; the paper stops after 100 iterations, often far from it.
    start : "prior" or array_like (n, n), default="prior"
        Where Sigma starts: the matched Theta / eta; or a positive definite matrix, training
        objects first.
    tolerance : float, default=1e-6
        The point counts as converged when K21 and K22.1 are this close to their limits, relative
        to the limits' norms.

    Returns
    -------
    PointAnswer
        O(n^3), whatever the number of iterations.
    """
    owner = f"EM on {type(model).__name__}"
    return completion_by_em(model.parameters, iterations, start, tolerance, owner)
