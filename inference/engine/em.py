"""The handwritten EM engine: turns an answer into a point with its history."""

from typing import ClassVar, override

import pymc as pm
from xarray import DataTree

from ...user_warnings import warn_user
from .answers import PointAnswer
from .engine import Kind, Run
from .handwritten import Handwritten
from .result import point_to_tree, trajectory, with_group

__all__ = ["EM"]


class EM(Handwritten):
    """Expectation-maximisation by the paper's closed-form updates.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``; the objective
    by iteration in ``trajectory``. ``converged`` in the attributes is "no fixed point" where the
    iterations have none to go to, and ``note`` says what that means for the point.

    Parameters
    ----------
    **settings
        Settings of the algorithm on the model at hand, checked when it is run:
        ``kz.describe(model, "em")`` explains them.

    Notes
    -----
    An implementation is a function (model, run, *, settings) -> PointAnswer.
    """

    name: ClassVar[str] = "EM"
    kind: ClassVar[Kind] = "point"

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        answer: PointAnswer = self.implement(model, run)
        tree = point_to_tree(model, answer.values)
        with_group(tree, "trajectory", trajectory("objective", [answer.objective]))
        tree.attrs["converged"] = answer.converged
        if answer.note:
            tree.attrs["note"] = answer.note
        if answer.converged == "no":
            warn_user(answer.note or "EM did not converge.")
        return tree
