"""Independent draws from the posterior itself."""

from typing import ClassVar, override

import pymc as pm
from xarray import DataTree

from .engine import Kind, Run
from .independent import independent_draws
from .outputs import ExactOutput
from .paper import Algorithm, Paper, PaperEngine

__all__ = ["Exact"]


class Exact(PaperEngine[ExactOutput]):
    """Independent draws from a posterior of known form.

    The result holds the draws in ``posterior``. Means and standard deviations of variables too
    large to keep are in ``moments``: in closed form where one is known, NaN where they are known to
    be infinite. ``log_evidence`` is in the attributes where it is known.

    Notes
    -----
    The field ``exact`` of a `Paper` is a function (model, run, *, settings) -> ExactOutput.

    Examples
    --------
    >>> exact = kz.fit(completion, kz.Exact(), random_seed=1)
    >>> exact["moments"]["K21_sd"]
    """

    name: ClassVar[str] = "Exact"
    kind: ClassVar[Kind] = "exact"
    limits: ClassVar[str] = "none: the draws are independent"
    stores: ClassVar[bool] = True

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[ExactOutput] | None:
        return paper.exact

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = independent_draws(
            model,
            run,
            lambda draws, rng: (output.sample(draws, rng), None),
            output.moments,
            output.tails,
        )
        if output.log_evidence is not None:
            tree.attrs["log_evidence"] = float(output.log_evidence)
        tree.attrs.setdefault("converged", "yes")
        return tree
