"""Gibbs steps of `MutualKernelCompletion`."""

from pymc.step_methods.compound import BlockedStep

from ...custom_steps.mutual_completion.steps import ALPHA, MutualImputation, MutualPosterior
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...validation import check_name
from ..engine.applicability import setting_of_no_use
from ..engine.engine import Run
from ..engine.mcmc import Gibbs

__all__ = ["mutual_kernel_completion_steps"]

_SCHEMES = ("overrelaxed", "plain")


def _collapsed(model: MutualKernelCompletion) -> str | None:
    return "it draws the missing blocks, which a collapsed model lacks" if model.collapsed else None


@Gibbs.register(MutualKernelCompletion, unless=_collapsed)
def mutual_kernel_completion_steps(
    model: MutualKernelCompletion,
    run: Run,
    *,
    scheme: str = "overrelaxed",
    alpha: float = ALPHA,
) -> list[BlockedStep]:
    r"""Alternate between the missing blocks and the model matrix.

    Parameters
    ----------
    model : MutualKernelCompletion
        Declaration.
    run : Run
        Unused: the steps get their generators from PyMC.
    scheme : {"overrelaxed", "plain"}, default="overrelaxed"
        "plain" draws all variables independently of their old values in each sweep. "overrelaxed"
        draws from the same conditionals, but puts M and the rows Q_hv on the opposite side of the
        conditional mean, so that they cross the posterior in a directed way instead of by a random
        walk.
    alpha : float, default=-0.9
        Correlation of the noise of M and Q_hv between sweeps in the overrelaxed scheme.

    Returns
    -------
    list of BlockedStep
        Steps for ``pm.sample``. A sweep costs O(K l^3).

    Raises
    ------
    ValueError
        For settings out of range, and for `alpha` with the plain scheme.

    Notes
    -----
    Effective draws a processor second of the sweeps (K = 6, half of all rows missing, lambda = 0.1,
    nu = l + 1), for 72 missing entries and 40 correlations in M of pairs that no kernel has
    observed together:

    === =========== ======== ============= ============ ============ ===========
    l   scheme      ms/sweep entry, median entry, least pair, median pair, least
    === =========== ======== ============= ============ ============ ===========
    40  overrelaxed 1.3      81            5.2          11           1.0
    \   plain       1.1      27            2.3          4.1          0.7
    100 overrelaxed 3.0      52            1.0          7.6          0.7
    \   plain       2.3      14            0.6          3.1          0.2
    200 overrelaxed 11       13            1.4          3.0          0.3
    \   plain       8.2      4.0           0.2          1.1          0.2
    === =========== ======== ============= ============ ============ ===========

    The columns "least" are rough: at l = 100 and 200 they come from a few effective draws in 3,000
    sweeps. Hamiltonian Monte Carlo on M with the completed kernels integrated out gave 29 and 9.5
    (medians) at l = 40, and 6.7 and 3.7 at l = 100: no fixed metric fits the weakly identified
    directions of M, which rotate with M.
    """
    check_name(scheme, _SCHEMES, "scheme", "Gibbs")
    if scheme == "plain":
        if alpha != ALPHA:
            raise setting_of_no_use(
                "alpha", "Gibbs on MutualKernelCompletion", "scheme='plain' draws everything afresh"
            )
        alpha = 0.0
    steps: list[BlockedStep] = [MutualPosterior(alpha=alpha, model=model)]
    if len(model.free_RVs) > 1:
        steps.insert(0, MutualImputation(alpha=alpha, model=model))
    return steps
