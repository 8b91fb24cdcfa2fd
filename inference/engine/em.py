"""EM engine: turns the output of a handwritten EM algorithm into a result."""

from typing import Any, ClassVar, override

import numpy.typing as npt
import pymc as pm
from xarray import DataTree

from ...user_warnings import warn_user
from .engine import Kind, Run
from .handwritten import Handwritten
from .outputs import PointOutput
from .result import point_to_tree, trajectory, with_group
from .settings import DEFAULT, Default

__all__ = ["EM"]


class EM(Handwritten):
    """Expectation-maximisation by the paper's closed-form updates.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, and the
    objective by iteration in ``trajectory``. The attribute ``converged`` is "no fixed point" where
    the iterations have no fixed point; ``note`` then says what this means for the point.

    Parameters
    ----------
    iterations : int or None, optional
        Largest number of iterations. None gives the limit, on models that have it in closed form.
        Default: that of the model.
    start : str or array_like, optional
        Where the iterations start. Default: that of the model.
    tolerance : float, optional
        Distance to the limit below which a point counts as converged. Default: that of the model.
    **settings
        Further settings of the algorithm for the model, checked at run time:
        ``kz.describe(model, "em")`` explains all.

    Notes
    -----
    An implementation is a function (model, run, *, settings) -> PointOutput.

    Examples
    --------
    >>> kz.fit(completion, kz.EM(iterations=100))["point"]["K21"]
    """

    name: ClassVar[str] = "EM"
    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    def __init__(
        self,
        *,
        iterations: int | Default | None = DEFAULT,
        start: str | npt.ArrayLike | Default = DEFAULT,
        tolerance: float | Default = DEFAULT,
        **settings: Any,
    ) -> None:
        super().__init__(iterations=iterations, start=start, tolerance=tolerance, **settings)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output: PointOutput = self.implement(model, run)
        tree = point_to_tree(model, output.values)
        with_group(tree, "trajectory", trajectory("objective", [output.objective]))
        tree.attrs["converged"] = output.converged
        if output.note:
            tree.attrs["note"] = output.note
        if output.converged == "no":
            warn_user(output.note or "EM did not converge.")
        return tree
