"""EM engine: turns the output of a handwritten EM algorithm into a result."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Literal, override

import numpy.typing as npt
import pymc as pm
from xarray import DataTree

from ...user_warnings import warn_user
from ...validation import Count, CountOrZero, Positive
from .engine import Kind, Run
from .outputs import PointOutput
from .paper import Algorithm, Paper, PaperEngine
from .result import point_to_tree, trajectory, with_group

__all__ = ["EM"]


class Default(Enum):
    """Placeholder for the model's default where None is a value."""

    DEFAULT = "the model's default"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT


@dataclass(frozen=True, kw_only=True, repr=False)
class EM(PaperEngine[PointOutput]):
    """Expectation-maximisation by the paper's closed-form updates.

    The result holds the point in ``point`` and, as a single draw, in ``posterior``, and the
    objective by iteration in ``trajectory``. The attribute ``converged`` is "no fixed point" where
    the iterations have no fixed point; ``note`` then says what this means for the point.

    Parameters
    ----------
    iterations : int or None, optional
        Largest number of iterations; `WishartCompletion` and `WishartKernelMixture` do exactly so
        many, each an E- and an M-step. There None computes the limit, which exists when
        eta > n + 1. A mixture's matched eta is larger than n + 1 when all eta_k are at least n + 1
        and at least two kernels have positive weights. The papers stop after 100 iterations, often
        far from the limit. Default: 100; 2,000 for `MutualKernelCompletion`.
    start : {"prior", "mean", "zero"} or array_like (n, n), optional
        `WishartCompletion` and `WishartKernelMixture`: Sigma at the start. "prior" (the default) is
        Theta / eta, the paper's C = eta Theta^-1. Otherwise any positive definite matrix, training
        objects first. `MutualKernelCompletion`: missing entries at the start. "mean" (the default)
        is the mean of the kernel's visible entries, "zero" is the paper's. Zeros need many more
        iterations and can end in a saddle point: objects that no kernel relates stay unrelated.
    tolerance : float, optional
        `WishartCompletion` and `WishartKernelMixture`: largest distance of K21 and K22.1 from their
        limits, relative to the limits' norms, at which the point counts as converged.
        `MutualKernelCompletion`: the iterations end when the norm of the natural gradient of the
        objective, divided by its norm at the identity and by lambda's curvature, is at most this:
        about the relative distance of M from the mode in its flattest direction. Default: 1e-6;
        1e-3 for `MutualKernelCompletion`.
    memory : int, optional
        `MutualKernelCompletion`: number of past iterations that the quasi-Newton acceleration uses;
        0 gives the paper's plain iterations. ``memory=0, start="zero"`` is the paper's Algorithm 1,
        which has no convergence rule; here `tolerance` and `iterations` end it. Default: 5.

    Notes
    -----
    The field ``em`` of a `Paper` is a function (model, run, *, settings) -> PointOutput.

    Examples
    --------
    >>> kz.fit(completion, kz.EM(iterations=100))["point"]["K21"]
    """

    name: ClassVar[str] = "EM"
    kind: ClassVar[Kind] = "point"
    limits: ClassVar[str] = "no uncertainty"

    iterations: Count | Default | None = DEFAULT
    start: Literal["prior", "mean", "zero"] | npt.ArrayLike | None = None
    tolerance: Positive | None = None
    memory: CountOrZero | None = None

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[PointOutput] | None:
        return paper.em

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output = self.implement(model, run)
        tree = point_to_tree(model, output.values)
        with_group(tree, "trajectory", trajectory("objective", [output.objective]))
        tree.attrs["converged"] = output.converged
        if output.note:
            tree.attrs["note"] = output.note
        if output.converged == "no":
            warn_user(output.note or "EM did not converge.")
        return tree
