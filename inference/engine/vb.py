"""VB engine: turns the output of a handwritten variational algorithm into a result."""

from typing import Any, ClassVar, override

import pymc as pm
from xarray import DataTree

from .convergence import convergence_of_ascent
from .engine import Kind, Run
from .handwritten import Handwritten
from .independent import independent_draws
from .outputs import VariationalOutput
from .pareto_k import pareto_k
from .result import trajectory, with_group
from .settings import DEFAULT, Default

__all__ = ["VB"]


class VB(Handwritten):
    """Variational Bayes by the paper's closed-form updates.

    The result holds independent draws from q in ``posterior``, their log densities under the
    declaration (``lp``) and under q (``lq``) in ``sample_stats``, the parameters of q in
    ``variational``, and the bound by start and iteration in ``trajectory``.

    Parameters
    ----------
    tolerance : float, optional
        Relative change of the bound, or of the solution, below which the iterations end. Default:
        that of the model.
    max_iterations : int, optional
        Largest number of iterations of a start. Default: that of the model.
    starts : int, optional
        Number of starts of a multistart coordinate ascent. Default: by the number of kernels.
    remaining : float, optional
        A start does not end before the bound's estimated remaining increase, in nats, is at most
        this. Default: that of the model.
    **settings
        Further settings of the algorithm for the model, checked at run time:
        ``kz.describe(model, "vb")`` explains all. Closed forms have none.

    Notes
    -----
    Do not interpret kernel weights or intervals of VB where the attribute ``pareto_k`` of the
    result is above 0.7 (`fit` warns): q is far narrower than the posterior, and may concentrate on
    one kernel where the data cannot tell kernels apart. Class probabilities suffer less: check them
    on held-out data. For weights, run ``"gibbs"`` or another engine that samples.

    An implementation is a function (model, run, *, settings) -> VariationalOutput.

    Examples
    --------
    >>> vb = kz.fit(model, kz.VB(starts=3), random_seed=1)
    >>> vb["trajectory"]
    >>> vb.attrs["pareto_k"]
    """

    name: ClassVar[str] = "VB"
    kind: ClassVar[Kind] = "vb"
    limits: ClassVar[str] = (
        "ignores dependence: intervals are too narrow, those of kernel weights most"
    )

    def __init__(
        self,
        *,
        tolerance: float | Default = DEFAULT,
        max_iterations: int | Default | None = DEFAULT,
        starts: int | Default | None = DEFAULT,
        remaining: float | Default | None = DEFAULT,
        **settings: Any,
    ) -> None:
        shared = {
            "tolerance": tolerance,
            "max_iterations": max_iterations,
            "starts": starts,
            "remaining": remaining,
        }
        super().__init__(**shared, **settings)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output: VariationalOutput = self.implement(model, run)
        tree = independent_draws(model, run, output.sample, output.moments)
        with_group(tree, "variational", output.parameters)
        with_group(tree, "trajectory", trajectory("elbo", output.elbo, output.best))
        tree.attrs["lp_measure"] = "constrained"
        tree.attrs["pareto_k"] = k_hat = pareto_k(tree)
        tree.attrs["converged"] = convergence_of_ascent(tree, model, k_hat, output.converged)
        return tree
