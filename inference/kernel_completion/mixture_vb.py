"""Variational Bayes for `WishartKernelMixture` through its matched inverse-Wishart prior."""

from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engines.answers import VariationalAnswer
from ..engines.engine import Run
from ..engines.vb import VB
from .vb import mean_field_completion

__all__ = ["fit_wishart_kernel_mixture"]


@VB.register(WishartKernelMixture, unless=WishartKernelMixture.not_conjugate)
def fit_wishart_kernel_mixture(model: WishartKernelMixture, run: Run) -> VariationalAnswer:
    """Give the mean field of the `WishartCompletion` with the matched parameters.

    Parameters
    ----------
    model : WishartKernelMixture
        With fixed weights and the inverse-Wishart prior.
    run : Run

    Returns
    -------
    VariationalAnswer
        O(n^3), and O(n^3) a draw.
    """
    return mean_field_completion(model.parameters)
