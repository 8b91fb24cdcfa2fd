r"""Tanner-Wong data augmentation for `DiagonalWishartCompletion` (Zhang et al. 2004, section 4.2).

I-step, eqs (12)-(15): W21 and W22.1 given delta. P-step: lambda given delta, then delta given
lambda and the diagonal of W.

The P-step reads only the diagonal of W22.1. The paper's TW1 draws the Wishart matrix W22.1, eq
(13); its TW2, of a model with ``diagonal_W22_1=True``, draws only the diagonal, eq (15). As the
Wishart scale is diagonal, both have the same distribution of the diagonal, so that (lambda, delta,
W21, diag W) is the same Markov chain.

No matrix is factorised: with a diagonal scale, W22.1 = LL' is drawn by the rows of L. W22.1 stays
in the packed form of `PositiveDefinite`, the lower triangle of L by rows with the logarithms of its
diagonal.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ...models.completion.diagonal_draws import draw_diagonal, draw_W21
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...numerics.packed_factor import order_of_packed, triangle
from ..block import GibbsBlock, Names, check_owned

__all__ = ["DiagonalTannerWongImputation", "DiagonalTannerWongPosterior"]

type Array = npt.NDArray[np.float64]


class Constants(NamedTuple):
    """What is constant: diagonal w (n1,) of W11, and r, eta, zeta, tau as in the model."""

    w: Array
    r: float
    eta: float
    zeta: float
    tau: float


def draw_wishart(delta: Array, df: float, rng: np.random.Generator) -> Array:
    """W22.1 ~ Wishart(df, diag(delta)), eq (13), packed. O(n2^2)."""
    _, lengths, _, last = triangle(len(delta))
    packed = rng.standard_normal(lengths.sum())
    packed *= np.repeat(np.sqrt(delta), lengths)
    packed[last] = 0.5 * np.log(delta * rng.chisquare(df - np.arange(len(delta))))
    return packed


def diagonal_of_packed(packed: Array) -> Array:
    """Diagonal (n2,) of the packed W22.1: the squared lengths of the rows of L. O(n2^2)."""
    _, _, first, last = triangle(order_of_packed(len(packed)))
    rows = packed.copy()
    rows[last] = np.exp(rows[last])
    return np.add.reduceat(np.square(rows, out=rows), first)


def impute(
    constants: Constants,
    delta: Array,
    draw_W22_1: Callable[[Array, float, np.random.Generator], Array],
    rng: np.random.Generator,
) -> dict[str, Array]:
    """I-step: W21, eq (12), and W22.1 given delta. O(n1 n2 + n2^2)."""
    n1 = len(constants.w)
    test = delta[n1:]
    W21 = draw_W21(test, constants.w, rng)
    return {"W21": W21, "W22_1": draw_W22_1(test, constants.r - n1, rng)}


def draw_parameters(
    constants: Constants, delta: Array, W21: Array, own: Array, rng: np.random.Generator
) -> dict[str, Array]:
    """P-step: lambda given delta, then delta given lambda and the diagonal of W. O(n1 n2).

    `own` (n2,) is the diagonal of W22.1.
    """
    w, r, eta, zeta, tau = constants
    lam = rng.standard_gamma(len(delta) * eta + zeta) / (tau + np.sum(1 / delta))
    # The diagonal of W22 = W22.1 + W21 W11^-1 W12.
    diagonal = np.concatenate([w, own + np.square(W21) @ (1 / w)])
    delta = (lam + diagonal / 2) / rng.standard_gamma(eta + r / 2, len(delta))
    return {"lambda": np.asarray(lam), "delta": delta}


class _DiagonalTannerWong(GibbsBlock):
    """Base class of both steps."""

    declarations = (DiagonalWishartCompletion,)
    owns: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]]
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        check_owned(given, self.owns, type(self).__name__)
        self._constants = Constants(model.w.copy(), model.r, model.eta, model.zeta, model.tau)
        # A diagonal W22_1 is not packed.
        self.packed = frozenset() if model.diagonal_W22_1 else frozenset({"W22_1"})
        return self.owns, self.needs


class DiagonalTannerWongImputation(_DiagonalTannerWong):
    """I-step of the simplified model, eqs (12)-(15): redraws W21 and W22_1 given delta.

    The model's kernels are read at construction: make a new step after ``pm.set_data``.
    """

    name = "diagonal_tanner_wong_imputation"
    owns = ("W21", "W22_1")
    needs = ("delta",)

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the missing blocks."""
        draw = draw_wishart if self.packed else draw_diagonal
        return impute(self._constants, values["delta"], draw, rng), {}


class DiagonalTannerWongPosterior(_DiagonalTannerWong):
    """P-step of the simplified model: redraws lambda given delta, then delta given lambda and W.

    The chain moves slowly, because lambda depends on delta only, and the test objects' part of
    delta on lambda and imputed entries only. The posterior has a closed form:
    ``fit(model, "exact")``. The model's kernels are read at construction: make a new step after
    ``pm.set_data``.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[DiagonalTannerWongImputation(), DiagonalTannerWongPosterior()])
    """

    name = "diagonal_tanner_wong_posterior"
    owns = ("lambda", "delta")
    needs = ("W21", "W22_1")

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the parameters."""
        W22_1 = values["W22_1"]
        own = diagonal_of_packed(W22_1) if self.packed else W22_1
        return draw_parameters(self._constants, values["delta"], values["W21"], own, rng), {}
