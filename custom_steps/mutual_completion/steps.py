r"""Gibbs steps of `MutualKernelCompletion`: missing blocks given M, and M given completed kernels.

I-step, kernel by kernel, with s and nu known or drawn first. This is Kato & Rivero (2017), eq (40),
for a Wishart matrix instead of one normal vector:

.. math::

    Q_{hv} &\sim \mathrm{MN}(B' Q_{vv}, C, Q_{vv}), \qquad B = M_{vv}^{-1} M_{vh}, \quad
        C = \tfrac{s}{\nu} (M_{hh} - M_{hv} B) \\
    Q_{hh\cdot v} &\sim \mathrm{W}(\nu - n, C)

Scales and degrees of freedom are drawn with the missing blocks integrated out. The missing blocks
must be redrawn immediately afterwards, so one step owns them all. P-step:

.. math::

    M \sim \mathrm{IW}(\lambda' + \ell + 1 + \textstyle\sum_k \nu_k,\
        \lambda' I + \sum_k \tfrac{\nu_k}{s_k} Q^{(k)})

Both steps can be overrelaxed (`overrelaxation`): Q_hv and M then depend on their old values, while
Q_hh.v is drawn independently. With few degrees of freedom Q_hh.v is nearly a quadratic form of its
noise, so that noise of opposite sign gives much the same matrix.

M and Q_hh.v are drawn as Cholesky factors and stay in the packed form of `PositiveDefinite`, the
lower triangle of the factor by rows with the logarithms of its diagonal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
from pytensor.tensor import TensorVariable
from scipy.linalg import blas, cholesky

from ...models.completion.incomplete import IncompleteKernel, half_of_visible
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...numerics.matrix_draws import Bartlett
from ...numerics.packed_factor import triangle
from ...validation import argument_error
from ..block import GibbsBlock, Names, Shared, check_owned
from ..moves.overrelaxation import fresh_share, overrelaxed_bartlett
from .degrees_of_freedom import ModelMatrix, VisibleBlock, draw_excess, draw_scales

__all__ = ["MutualImputation", "MutualPosterior"]

type Array = npt.NDArray[np.float64]

#: Correlation of the noise from sweep to sweep.
ALPHA = -0.9
# Number of first sweeps without overrelaxation: the noise of a chain's first point may be far from
# normal.
FRESH_SWEEPS = 10


class Missing(NamedTuple):
    """Missing blocks of a kernel: Q_hv (m, n), lower Cholesky factor of Q_hh.v (m, m)."""

    hv: Array
    factor: Array


class Known(NamedTuple):
    """A kernel and the lower Cholesky factor (n, n) of its visible block, in Fortran order."""

    kernel: IncompleteKernel
    root: Array

    @classmethod
    def of(cls, kernel: IncompleteKernel) -> "Known":
        """Factorise the visible block. O(n^3)."""
        return cls(kernel, cholesky(kernel.values.T, lower=True, check_finite=False))

    def visible_factor(self, M: Array) -> Array:
        """Lower Cholesky factor of M_vv (n, n). O(n^3 / 3)."""
        visible = self.kernel.visible
        block = M[visible].take(visible, axis=1).T
        return cholesky(block, lower=True, overwrite_a=True, check_finite=False)


class Start(NamedTuple):
    """Old values for an overrelaxed I-step: Q_hv (m, n), and its nu and scale."""

    hv: Array
    nu: float
    scale: float


def impute(
    known: Known,
    M: Array,
    C: Array,
    nu: float,
    scale: float,
    rng: np.random.Generator,
    *,
    alpha: float = 0.0,
    start: Start | None = None,
) -> Missing:
    r"""I-step of one kernel: its missing blocks given M. O(4 n^2 m + 3 n m^2 + m^3).

    For a kernel without visible objects, the Schur complement is Q ~ W(nu, scale M / nu).

    With R and L the lower Cholesky factors of :math:`M_{hh} - M_{hv} B` and of :math:`Q_{vv}`,
    :math:`Q_{hv} = B' Q_{vv} + \sqrt{s / \nu}\, R Z L'`. The noise Z has the same distribution for
    all s and nu, so it can be overrelaxed when they change.

    Parameters
    ----------
    known : Known
    M : array (l, l)
    C : array (n, n)
        Lower Cholesky factor of M_vv.
    nu, scale : float
    rng : numpy.random.Generator
    alpha : float, default=0
        Correlation of Z with the noise of the start, if given.
    start : Start, optional
    """
    visible, hidden = known.kernel.visible, known.kernel.hidden
    n, m = len(visible), len(hidden)
    rows = M[hidden]
    schur, hv = rows.take(hidden, axis=1).T, np.empty((m, 0))
    if n:
        H = blas.dtrsm(1.0, C, rows.take(visible, axis=1).T, lower=1, overwrite_b=1)
        schur = blas.dsyrk(-1.0, H, beta=1.0, c=schur, trans=1, lower=1, overwrite_c=1)
    R = cholesky(schur, lower=True, overwrite_a=True, check_finite=False)
    R *= np.sqrt(scale / nu)
    if n:
        B = blas.dtrsm(1.0, C, H, lower=1, trans_a=1, overwrite_b=1)
        kept, fresh = 0.0, 1.0
        if start is not None:
            kept = alpha * np.sqrt(scale / nu / (start.scale / start.nu))
            fresh = fresh_share(alpha)
        vh = blas.dtrmm(1.0 - kept, known.root, B, lower=1, trans_a=1, overwrite_b=1)
        noise = rng.standard_normal((m, n)).T
        vh += blas.dtrmm(fresh, R, noise, lower=1, side=1, trans_a=1, overwrite_b=1)
        hv = blas.dtrmm(1.0, known.root, vh, lower=1, overwrite_b=1).T
        if start is not None:
            hv += kept * start.hv
    return Missing(hv, blas.dtrmm(1.0, R, Bartlett.draw(nu - n, m, rng).a, lower=1))


def missing_square(known: Known, missing: Missing) -> Array:
    """Lower triangle of Q_hh (m, m) from the missing blocks. O(n^2 m + n m^2 + m^3)."""
    hh = blas.dsyrk(1.0, missing.factor, lower=1)
    if not missing.hv.size:
        return hh
    explained = blas.dtrsm(1.0, known.root, missing.hv.T, lower=1)
    return blas.dsyrk(1.0, explained, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)


def draw_model_matrix(
    half: Array,
    df: float,
    rng: np.random.Generator,
    *,
    alpha: float = 0.0,
    start: Array | None = None,
) -> Array:
    """P-step: lower Cholesky factor of M ~ InverseWishart(df, half + half'). O(l^3).

    AA' ~ Wishart(df, I) with upper triangular A is Bartlett's factor with rows and columns
    reversed. So the factor R A^-T of the draw R A^-T A^-1 R' is lower triangular, as R is, without
    a second factorisation.

    Parameters
    ----------
    half : array (l, l)
    df : float
    rng : numpy.random.Generator
    alpha : float, default=0
        Correlation of A, without its diagonal, with that of the start, if given.
    start : array (l, l), optional
        Lower Cholesky factor of the old M.
    """
    R = cholesky((half + half.T).T, lower=True, overwrite_a=True, check_finite=False)
    if start is None:
        noise = Bartlett.draw(df, len(half), rng)
    else:
        # A of the old M, from L = R A^-T.
        A = blas.dtrsm(1.0, start.T, R, lower=0, trans_a=1).T
        noise = overrelaxed_bartlett(A[::-1, ::-1], df, alpha, rng)
    return blas.dtrsm(1.0, noise.a[::-1, ::-1], R, side=1, lower=0, trans_a=1)


class _MutualStep(GibbsBlock):
    """Base class of both steps."""

    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}
    declarations = (MutualKernelCompletion,)
    owns_M: ClassVar[bool]

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        alpha: float = ALPHA,
        **shared: Unpack[Shared],
    ):
        if not -1 < alpha < 1:
            raise argument_error("alpha", type(self).__name__, "between -1 and 1", repr(alpha))
        self._alpha = alpha
        super().__init__(vars, **shared)

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        owner = type(self).__name__
        if model.collapsed:
            raise ValueError(f"{owner} needs a model that is not collapsed.")
        problem = model.problem
        blocks = [f"{block}_{k.name}" for k in problem.kernels for block in ("Qhv", "Qhh_v")]
        latent = [name for name in (*blocks, "s", "excess") if name in model.named_vars]
        owns, reads = (["M"], latent) if self.owns_M else (latent, ["M"])
        check_owned(given, owns, owner)
        factors = [name for name in latent if name.startswith("Qhh_v_")]
        self.packed = frozenset({"M", *factors})
        self._problem = problem
        self._known = [Known.of(kernel) for kernel in problem.kernels]
        return owns, reads

    def initial_tuning(self) -> int:
        """Return the number of sweeps made, which is counted up to `FRESH_SWEEPS`."""
        return 0

    def _next_alpha(self) -> float:
        """Correlation of the noise in the next sweep."""
        if self.tuning < FRESH_SWEEPS:
            self.tuning += 1
            return 0.0
        return self._alpha

    def _freedom(self, values: Mapping[str, Array]) -> Array:
        """Degrees of freedom (kernel,)."""
        if self._problem.nu is not None:
            return self._problem.nu
        return self._problem.n_objects - 1 + values["excess"]

    def _scales(self, values: Mapping[str, Array]) -> Array:
        """Scales (kernel,), ones if they are not learned."""
        return np.ones(len(self._known)) if self._problem.spread is None else values["s"]


class MutualImputation(_MutualStep):
    """I-step: redraws the missing blocks of the kernels given M.

    The model's kernels are read at construction: make a new step after ``pm.set_data``.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        Qhv_k and Qhh_v_k of every incomplete kernel, and s and excess if the model has them.
    alpha : float, default=-0.9
        Correlation of the noise of Q_hv, and of M in `MutualPosterior`, with that of the previous
        sweep. A negative correlation (overrelaxation) lets the chain cross the posterior in a
        directed way instead of by a random walk. 0 draws independently of the old values, as a
        chain's first sweeps always do.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Raises
    ------
    TypeError
        For another model.
    ValueError
        For a collapsed model, other variables, and an alpha outside (-1, 1).
    """

    name = "mutual_imputation"
    owns_M = False

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw scales and degrees of freedom, then the missing blocks."""
        L = triangle(self._problem.n_objects).unpack(values["M"])
        M = L @ L.T
        factors = [known.visible_factor(M) for known in self._known]
        drawn = self._draw_parameters(values, L, factors, rng)
        both = {**values, **drawn}
        alpha, old_nu, old_scales = self._next_alpha(), self._freedom(values), self._scales(values)
        nu, scales = self._freedom(both), self._scales(both)
        for k, (known, C) in enumerate(zip(self._known, factors, strict=True)):
            kernel, start = known.kernel, None
            if not len(kernel.hidden):
                continue
            if alpha and len(kernel.visible):
                start = Start(values[f"Qhv_{kernel.name}"], old_nu[k], old_scales[k])
            missing = impute(known, M, C, nu[k], scales[k], rng, alpha=alpha, start=start)
            if len(kernel.visible):
                drawn[f"Qhv_{kernel.name}"] = missing.hv
            drawn[f"Qhh_v_{kernel.name}"] = triangle(len(kernel.hidden)).pack(missing.factor)
        return drawn, {}

    def _draw_parameters(
        self,
        values: Mapping[str, Array],
        L: Array,
        factors: Sequence[Array],
        rng: np.random.Generator,
    ) -> dict[str, Array]:
        """Redraw those of the degrees of freedom and scales that are free, by name."""
        problem = self._problem
        drawn: dict[str, Array] = {}
        if problem.nu is not None and problem.spread is None:
            return drawn
        pairs = zip(self._known, factors, strict=True)
        blocks = [VisibleBlock.of(known.root, C) for known, C in pairs]
        if problem.nu is None:
            M, s = ModelMatrix.of(L), self._scales(values)
            drawn["excess"] = draw_excess(problem, blocks, M, values["excess"], s, rng)
        if problem.spread is not None:
            nu = self._freedom({**values, **drawn})
            drawn["s"] = draw_scales(problem.spread, blocks, nu, rng)
        return drawn


class MutualPosterior(_MutualStep):
    """P-step: redraws M given the completed kernels.

    The model's kernels are read at construction: make a new step after ``pm.set_data``.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        M.
    alpha : float, default=-0.9
        Correlation of the noise of M with that of the previous sweep: see `MutualImputation`.
    **shared
        model, rng and blocked: see `GibbsBlock`.

    Raises
    ------
    TypeError
        For another model.
    ValueError
        For a collapsed model, other variables, and an alpha outside (-1, 1).

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[MutualImputation(), MutualPosterior()])
    """

    name = "mutual_posterior"
    owns_M = True

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw M."""
        problem = self._problem
        n, nu = problem.n_objects, self._freedom(values)
        strength, weights = problem.strength(nu), nu / self._scales(values)
        half = half_of_visible(problem.kernels, weights, n, strength)
        for known, weight in zip(self._known, weights, strict=True):
            kernel = known.kernel
            if len(kernel.hidden):
                packed = values[f"Qhh_v_{kernel.name}"]
                factor = triangle(len(kernel.hidden)).unpack(packed)
                hv = values.get(f"Qhv_{kernel.name}", np.empty((len(kernel.hidden), 0)))
                hh = missing_square(known, Missing(hv, factor))
                kernel.add_missing(half, hv, hh, weight)
        alpha, layout = self._next_alpha(), triangle(n)
        start = layout.unpack(values["M"]) if alpha else None
        df = strength + n + 1 + nu.sum()
        L = draw_model_matrix(half, df, rng, alpha=alpha, start=start)
        return {"M": layout.pack(L)}, {}
