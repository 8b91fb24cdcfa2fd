r"""Tanner-Wong data augmentation for `DiagonalWishartCompletion` (Zhang et al. 2004, section 4.2).

I-step, eqs (12)-(15): W21 and W22.1 given delta. P-step: lambda given delta, then delta given
lambda and the diagonal of W.

The P-step reads only the diagonal of W22.1. Hence the I-step has two forms: TW1 draws the Wishart
matrix W22.1, eq (13); TW2 draws its diagonal, eq (15), whose entries are independent because the
scale is diagonal. (lambda, delta, W21, diag W) is the same Markov chain in both. For a declaration
with the whole W22.1, TW2 also draws the correlations, which are independent of the diagonal.

No matrix is factorised: with a diagonal scale, W22.1 = LL' is drawn by the rows of L. W22.1 stays
in the packed form of `PositiveDefinite`, the lower triangle of L by rows with the logarithms of its
diagonal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
from pytensor.tensor import TensorVariable

from ...models.completion.diagonal_draws import Missing, draw_diagonal, draw_W21
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...numerics.packed_factor import triangle, triangle_of
from ...validation import argument_error, check_name
from ..block import GibbsBlock, Names, Shared

type Array = npt.NDArray[np.float64]


class Constants(NamedTuple):
    """Constants of sampling: the diagonal w (n1,) of W11; r, degrees of freedom of W; the priors.

    1/delta has the shape eta, lambda the shape zeta and the rate tau.
    """

    w: Array
    r: float
    eta: float
    zeta: float
    tau: float


def draw_wishart(delta: Array, df: float, rng: np.random.Generator) -> Array:
    """W22.1 ~ Wishart(df, diag(delta)), eq (13), packed. O(n2^2)."""
    _, lengths, _, last, *_ = triangle(len(delta))
    packed = rng.standard_normal(lengths.sum())
    packed *= np.repeat(np.sqrt(delta), lengths)
    packed[last] = 0.5 * np.log(delta * rng.chisquare(df - np.arange(len(delta))))
    return packed


def draw_around_diagonal(delta: Array, df: float, rng: np.random.Generator) -> Array:
    """Packed W22.1 of the same distribution: diagonal by eq (15), then correlations. O(n2^2)."""
    _, lengths, first, last, *_ = triangle(len(delta))
    diagonal = draw_diagonal(delta, df, rng)
    packed = rng.standard_normal(lengths.sum())
    packed[last] = np.sqrt(rng.chisquare(df - np.arange(len(delta))))
    # Rows of unit length make LL' a correlation matrix.
    packed *= np.repeat(np.sqrt(diagonal / np.add.reduceat(packed**2, first)), lengths)
    packed[last] = np.log(packed[last])
    return packed


def diagonal_of_packed(packed: Array) -> Array:
    """Diagonal (n2,) of the packed W22.1: the squared lengths of the rows of L. O(n2^2)."""
    _, _, first, last, *_ = triangle_of(len(packed))
    rows = packed.copy()
    rows[last] = np.exp(rows[last])
    return np.add.reduceat(np.square(rows, out=rows), first)


type DrawW22_1 = Callable[[Array, float, np.random.Generator], Array]

WHOLE: dict[str, DrawW22_1] = {"TW1": draw_wishart, "TW2": draw_around_diagonal}


def impute(
    constants: Constants, delta: Array, draw_W22_1: DrawW22_1, rng: np.random.Generator
) -> dict[str, Array]:
    """I-step: W21, eq (12), and W22.1 given delta. O(n1 n2 + n2^2)."""
    n1 = len(constants.w)
    test = delta[n1:]
    W21 = draw_W21(test, constants.w, rng)
    return {"W21": W21, "W22_1": draw_W22_1(test, constants.r - n1, rng)}


def draw_parameters(
    constants: Constants, delta: Array, diagonal_of_W22: Array, rng: np.random.Generator
) -> tuple[float, Array]:
    """P-step: lambda given delta, then delta given lambda and the diagonal of W. O(n)."""
    w, r, eta, zeta, tau = constants
    lam = rng.standard_gamma(len(delta) * eta + zeta) / (tau + np.sum(1 / delta))
    diagonal = np.concatenate([w, diagonal_of_W22])
    return lam, (lam + diagonal / 2) / rng.standard_gamma(eta + r / 2, len(delta))


class _DiagonalTannerWong(GibbsBlock):
    """Base class of both steps."""

    declarations = (DiagonalWishartCompletion,)
    owns: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]]

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        self._constants = Constants(model.w.copy(), model.r, model.eta, model.zeta, model.tau)
        # A diagonal W22_1 is not packed.
        self.packed = frozenset() if model.diagonal_W22_1 else frozenset({"W22_1"})
        return self.owns, self.needs


class DiagonalTannerWongImputation(_DiagonalTannerWong):
    """I-step of the simplified model, eqs (12)-(15): redraws W21 and W22_1 given delta.

    `variant` "TW1" draws W22_1 as a Wishart matrix, eq (13); "TW2" its diagonal, eq (15), and its
    correlations separately, with the same distribution. A W22_1 that is declared diagonal needs
    "TW2". Kernels are read at construction.
    """

    name = "diagonal_tanner_wong_imputation"
    owns = ("W21", "W22_1")
    needs = ("delta",)

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        variant: str | None = None,
        **shared: Unpack[Shared],
    ):
        super().__init__(vars, **shared)
        owner = type(self).__name__
        whole = bool(self.packed)
        name = check_name(variant or ("TW1" if whole else "TW2"), WHOLE, "variant", owner)
        if name == "TW1" and not whole:
            raise argument_error(
                "variant", owner, "'TW2' for a model with diagonal_W22_1=True", repr(name)
            )
        self._draw = WHOLE[name] if whole else draw_diagonal

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the missing blocks."""
        return impute(self._constants, values["delta"], self._draw, rng), {}


class DiagonalTannerWongPosterior(_DiagonalTannerWong):
    """P-step of the simplified model: redraws lambda given delta, then delta given lambda and W.

    Kernels are read at construction: make a new step after ``pm.set_data``. The chain moves slowly,
    because lambda depends on delta only; ``fit(model, "exact")`` needs no chain.
    """

    name = "diagonal_tanner_wong_posterior"
    owns = ("lambda", "delta")
    needs = ("W21", "W22_1")

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the parameters."""
        W22_1 = values["W22_1"]
        diagonal = diagonal_of_packed(W22_1) if self.packed else W22_1
        diagonal_of_W22 = Missing(values["W21"], diagonal).diagonal_of_W22(self._constants.w)
        lam, delta = draw_parameters(self._constants, values["delta"], diagonal_of_W22, rng)
        return {"lambda": np.asarray(lam), "delta": delta}, {}
