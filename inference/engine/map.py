"""MAP engine: turns the output of a search for a mode into a result."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
from xarray import DataTree

from ...user_warnings import warn_user
from ...validation import Count, Positive
from .applicability import discrete_variables
from .engine import Kind, Run
from .mode import Space, search_by_gradients
from .outputs import ModeOutput
from .paper import Algorithm, Paper, PaperEngine
from .result import point_to_tree, trajectory, with_group

__all__ = ["MAP"]

#: For every model without discrete variables.
BY_GRADIENTS = Algorithm(search_by_gradients, unless=discrete_variables)


@dataclass(frozen=True, kw_only=True, repr=False)
class MAP(PaperEngine[ModeOutput]):
    """Mode of a density of the declaration: the paper's own algorithm, or a search by gradients.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, and the
    objective by start and iteration in ``trajectory``. There, ``beta_of_start`` holds the final
    weights of each start, for models with learned weights. ``sample_stats`` holds the declaration's
    log density at the point; the attribute ``lp_measure`` names its measure.

    Parameters
    ----------
    method : {"gradient"}, optional
        "gradient": search by gradients even where the model's paper has its own algorithm.
    max_iterations : int, optional
        Largest number of iterations of a start. Default: 2,000; 5,000 of L-BFGS for a search by
        gradients.
    tolerance : float, optional
        Composite kernels: a start ends when an iteration has at most this to gain, in nats.
        Default: 1e-6.
    starts : int, optional
        Composite kernels: number of initial weights: uniform, each kernel alone, random. From each
        of them the algorithm climbs four times: alpha starts at ridge regressions with penalties of
        1 to 0.001 times the mean diagonal of K_beta' W K_beta. The highest mode wins; sparse priors
        (sigma and varsigma far below 1) have many, and a higher one may exist. If there are more
        kernels than starts, the kernels that stand highest after one iteration alone are taken.
        Default: uniform and each kernel alone, 8 at most. Known weights are the only ones started
        from.
    space : {"constrained", "unconstrained"}, optional
        Search by gradients: the density to maximise. "constrained" (the default) is that of the
        variables as declared, as in ``pm.find_MAP``, "unconstrained" that of their transforms,
        Jacobians included. Where the first is unbounded (a Dirichlet with learned concentrations, a
        variance that can shrink together with the variables that it scales), the second often has a
        mode.

    Notes
    -----
    The field ``map`` of a `Paper` is a function (model, run, *, settings) -> ModeOutput. Models
    without it are searched by gradients.

    Examples
    --------
    >>> kz.fit(regression, kz.MAP(method="gradient"))["point"]["alpha"]
    """

    name: ClassVar[str] = "MAP"
    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    method: Literal["gradient"] | None = None
    max_iterations: Count | None = None
    tolerance: Positive | None = None
    starts: Count | None = None
    space: Space | None = None

    @property
    @override
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in super().given.items() if name != "method"}

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return self.given | {"method": self.method}

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[ModeOutput] | None:
        return paper.map

    @override
    def verdicts(self, model: pm.Model) -> list[tuple[Algorithm[ModeOutput], str | None]]:
        own = [] if self.method == "gradient" else super().verdicts(model)
        return [*own, (BY_GRADIENTS, BY_GRADIENTS.unless(model))]

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 10_000 if self.algorithm(model) is BY_GRADIENTS else None

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = point_to_tree(model, output.values, {"lp": np.array([output.log_density])})
        climbs = trajectory("objective", output.climbs, output.best)
        for name, values in output.ends.items():
            dims = model.named_vars_to_dims[name]
            climbs[f"{name}_of_start"] = (("start", *dims), values)
            climbs = climbs.assign_coords({dim: list(model.coords[dim]) for dim in dims})
        with_group(tree, "trajectory", climbs)
        tree.attrs.update(output.attributes)
        tree.attrs["converged"] = "yes" if output.converged else "no"
        if output.note:
            tree.attrs["note"] = output.note
            warn_user(output.note)
        return tree
