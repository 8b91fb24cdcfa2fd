"""MAP engine: turns the output of a search for a mode into a result."""

from typing import Any, ClassVar, Literal, override

import numpy as np
import pymc as pm
from xarray import DataTree

from ...user_warnings import warn_user
from ...validation import check_name
from .engine import Kind, Run
from .handwritten import Handwritten, Implementation
from .outputs import ModeOutput
from .result import point_to_tree, trajectory, with_group
from .settings import DEFAULT, Default

__all__ = ["MAP"]


class MAP(Handwritten):
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
        Largest number of iterations of a start. Default: that of the algorithm.
    **settings
        Further settings of the algorithm for the model, checked at run time:
        ``kz.describe(model, "map")`` explains all.

    Notes
    -----
    An implementation is a function (model, run, *, settings) -> ModeOutput. The one for any
    ``pm.Model`` searches by gradients.

    Examples
    --------
    >>> kz.fit(regression, kz.MAP(method="gradient"))["point"]["alpha"]
    """

    name: ClassVar[str] = "MAP"
    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    def __init__(
        self,
        *,
        method: Literal["gradient"] | None = None,
        max_iterations: int | Default = DEFAULT,
        **settings: Any,
    ) -> None:
        if method is not None:
            check_name(method, ["gradient"], "method", "MAP")
        super().__init__(max_iterations=max_iterations, **settings)
        self._method = method

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return super().settings | {"method": self._method}

    @override
    def defaults_on(self, model: pm.Model) -> dict[str, Any]:
        return super().defaults_on(model) | {"method": None}

    @override
    def candidates(self, model: pm.Model) -> list[Implementation]:
        if self._method == "gradient":
            return [self._implementations[pm.Model]]
        return super().candidates(model)

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 10_000 if self.implementation(model).model_type is pm.Model else None

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output: ModeOutput = self.implement(model, run)
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
