"""VB engine: turns the output of a handwritten variational algorithm into a result."""

from dataclasses import dataclass
from typing import ClassVar, Literal, override

import pymc as pm
from xarray import DataTree

from ...validation import Count, Positive, PositiveOrInf
from .convergence import convergence_of_ascent
from .engine import Kind, Run
from .independent import independent_draws
from .outputs import VariationalOutput
from .paper import Algorithm, Paper, PaperEngine
from .pareto_k import pareto_k
from .result import trajectory, with_group

__all__ = ["VB"]


@dataclass(frozen=True, kw_only=True, repr=False)
class VB(PaperEngine[VariationalOutput]):
    """Variational Bayes by the paper's closed-form updates.

    The result holds independent draws from q in ``posterior``, their log densities under the
    declaration (``lp``) and under q (``lq``) in ``sample_stats``, the parameters of q in
    ``variational``, and the bound by start and iteration in ``trajectory``.

    Parameters
    ----------
    tolerance : float, optional
        Relative change of the objective below which a start may end (three times in a row where
        iterations are accelerated), if `remaining` allows it. `DiagonalWishartCompletion`: relative
        change of E[lambda] below which the iterations end. Default: 1e-6; 1e-10 for
        `DiagonalWishartCompletion`.
    max_iterations : int, optional
        Largest number of iterations of a start. Default: 5,000; 10,000 for
        `DiagonalWishartCompletion`.
    remaining : float, optional
        `MultinomialProbit` and composite kernels: a start does not end before the estimated
        remaining increase of its objective, in nats, is at most this. The estimate assumes that
        increases keep shrinking at the present rate; it needs 7 iterations, and is rough where
        iterations are accelerated. With inf only `tolerance` counts. Default: 0.01; for
        `MultinomialProbit` 0.01 max(1, N max(C - 1, 2) / 200) for N objects of C classes.
    starts : int, optional
        `MultinomialProbit` and composite kernels: number of starts, which differ in the initial
        kernel weights: uniform, each kernel alone, random. The start with the highest objective
        wins. If there are more kernels than starts, the kernels with the highest objective after
        one iteration alone are taken. Default: uniform and each kernel alone, at most 8, and
        uniform only for more than 16 kernels. The default starts compete: the better half
        continues after 16 iterations, half of these after 32, until one is left. Known weights need
        one start only.
    batch : int, optional
        `MultinomialProbit`: number of objects whose utilities are updated before all other factors
        are. `CompositeKernelClassification`: the same of the points xi. An iteration is then a pass
        over all batches. For very many objects: a few passes come near the answer
        (``VB(batch=2000, max_iterations=3)``). Iterations are not accelerated, and starts compete
        from the first pass on. Default: all objects.
    begin : {"zero", "random"}, optional
        `MultinomialProbit`: scores for the first utilities of every start: "zero" (the default),
        or the scores of random regressors, scaled to variance one. Random scores can lead to other
        maxima of the bound.

    Notes
    -----
    `WishartCompletion` and `WishartKernelMixture` have a closed form and no settings.

    Do not interpret kernel weights or intervals of VB where the attribute ``pareto_k`` of the
    result is above 0.7 (`fit` warns): q is far narrower than the posterior, and may concentrate on
    one kernel where the data cannot tell kernels apart. Class probabilities suffer less: check them
    on held-out data. For weights, run ``"gibbs"`` or another engine that samples.

    The field ``vb`` of a `Paper` is a function (model, run, *, settings) -> VariationalOutput.

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

    tolerance: Positive | None = None
    max_iterations: Count | None = None
    remaining: PositiveOrInf | None = None
    starts: Count | None = None
    batch: Count | None = None
    begin: Literal["zero", "random"] | None = None

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[VariationalOutput] | None:
        return paper.vb

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = independent_draws(model, run, output.sample, output.moments)
        with_group(tree, "variational", output.parameters)
        with_group(tree, "trajectory", trajectory("elbo", output.elbo, output.best))
        tree.attrs["lp_measure"] = "constrained"
        tree.attrs["pareto_k"] = k_hat = pareto_k(tree)
        tree.attrs["converged"] = convergence_of_ascent(tree, model, k_hat, output.converged)
        return tree
