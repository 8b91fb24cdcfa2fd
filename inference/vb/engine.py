"""The handwritten variational engine: turns an answer into draws, densities and a bound."""

from typing import ClassVar, override

import numpy as np
import pymc as pm
import xarray as xr
from xarray import DataTree

from ..density import log_density
from ..diagnostics import pareto_k
from ..engines import Handwritten, Kind, Run
from ..result import draws_to_tree, with_group
from .answer import VariationalAnswer

__all__ = ["VB"]


class VB(Handwritten):
    """Variational Bayes by the paper's closed-form updates.

    An implementation is a function (model, run, *, settings) -> VariationalAnswer.

    The result holds independent draws from q in ``posterior``, their log densities under the
    declaration (``lp``) and under q (``lq``) in ``sample_stats``, the parameters of q in
    ``variational``, and the bound by start and iteration in ``trajectory``.
    """

    name: ClassVar[str] = "VB"
    kind: ClassVar[Kind] = "vb"

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        answer: VariationalAnswer = self.implement(model, run)
        # A stream of its own: the answer's starts have used the seed's first one.
        draws, log_q = answer.sample(run.draws, np.random.default_rng([run.random_seed, 1]))
        stats = {"lp": log_density(model, draws), "lq": log_q}
        tree = draws_to_tree(model, draws, stats)
        with_group(tree, "variational", answer.parameters)
        with_group(tree, "trajectory", _trajectory(answer))
        tree.attrs["converged"] = "yes" if answer.converged else "no"
        tree.attrs["pareto_k"] = pareto_k(tree)
        return tree


def _trajectory(answer: VariationalAnswer) -> xr.Dataset:
    longest = max(len(history) for history in answer.elbo)
    elbo = np.full((len(answer.elbo), longest), np.nan)
    for row, history in zip(elbo, answer.elbo, strict=True):
        row[: len(history)] = history
    return xr.Dataset(
        {"elbo": (("start", "iteration"), elbo)},
        coords={"start": np.arange(len(elbo)), "iteration": np.arange(1, longest + 1)},
        attrs={"best_start": answer.best},
    )
