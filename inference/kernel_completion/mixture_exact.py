"""Exact posterior of `WishartKernelMixture` through its matched inverse-Wishart prior."""

from ...models.wishart_kernel_mixture import WishartKernelMixture
from ..engines.answers import ExactAnswer
from ..engines.engine import Run
from ..engines.evidence import log_evidence
from ..engines.exact import Exact
from .exact import exact_completion

__all__ = ["evidence_of_wishart_kernel_mixture", "sample_wishart_kernel_mixture"]


@Exact.register(WishartKernelMixture, unless=WishartKernelMixture.not_conjugate)
def sample_wishart_kernel_mixture(model: WishartKernelMixture, run: Run) -> ExactAnswer:
    """Draw as from the `WishartCompletion` with the matched parameters.

    Parameters
    ----------
    model : WishartKernelMixture
        With fixed weights and the inverse-Wishart prior.
    run : Run

    Returns
    -------
    ExactAnswer
        O(n^3) once and O(n^3) a draw.
    """
    return exact_completion(model.parameters)


@log_evidence.register
def evidence_of_wishart_kernel_mixture(model: WishartKernelMixture) -> float:
    """Log density of K11 under the matched inverse-Wishart prior. O(n1^3)."""
    return model.parameters.log_evidence()
