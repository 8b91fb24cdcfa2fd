r"""Gibbs steps of `MutualKernelCompletion`: missing blocks given M, and M given completed kernels.

I-step, kernel by kernel. This is Kato & Rivero (2017), eq (40), for a Wishart matrix instead of one
normal vector:

.. math::

    Q_{hv} &\sim \mathrm{MN}(B' Q_{vv}, C, Q_{vv}), \qquad B = M_{vv}^{-1} M_{vh}, \quad
        C = \tfrac{1}{\nu} (M_{hh} - M_{hv} B) \\
    Q_{hh\cdot v} &\sim \mathrm{W}(\nu - n, C)

P-step:

.. math::

    M \sim \mathrm{IW}(\lambda' + \ell + 1 + \textstyle\sum_k \nu_k,\
        \lambda' I + \sum_k \nu_k Q^{(k)})

Both steps are overrelaxed (Adler 1981, Neal 1998): normal noise z is replaced by
:math:`\alpha z + \sqrt{1 - \alpha^2}\,\xi` for new normal :math:`\xi`, which leaves its law
invariant. With negative :math:`\alpha` a variable moves to the opposite side of its conditional, so
that the chain crosses the posterior in a directed way. Q_hv and M then depend on their old values,
while Q_hh.v is drawn independently: with few degrees of freedom it is nearly a quadratic form of
its noise, so that noise of opposite sign gives much the same matrix.

M and Q_hh.v are drawn as Cholesky factors and stay in the packed form of `PositiveDefinite`, the
lower triangle of the factor by rows with the logarithms of its diagonal.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, cholesky

from ...models.completion.incomplete import IncompleteKernel, half_of_visible
from ...models.mutual_kernel_completion import MutualKernelCompletion
from ...numerics.packed_factor import triangle
from ...numerics.wishart import Bartlett
from ..block import GibbsBlock, Names

type Array = npt.NDArray[np.float64]

#: Correlation of the noise from sweep to sweep, and the factor of the new noise.
ALPHA = -0.9
FRESH = np.sqrt(1 - ALPHA**2)
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


def impute(
    known: Known, M: Array, nu: float, rng: np.random.Generator, *, start: Array | None = None
) -> Missing:
    r"""I-step of one kernel: its missing blocks given M (l, l). O(n^3 / 3 + 4 n^2 m + 3 n m^2).

    For a kernel without visible objects, the Schur complement is Q ~ W(nu, M / nu).

    With R and L the lower Cholesky factors of :math:`(M_{hh} - M_{hv} B) / \nu` and of
    :math:`Q_{vv}`, :math:`Q_{hv} = B' Q_{vv} + R Z L'`. The noise Z is overrelaxed from that of the
    old Q_hv (m, n), if given as `start`.
    """
    visible = known.kernel.visible
    hidden = known.kernel.hidden
    n = len(visible)
    m = len(hidden)
    rows = M[hidden]
    schur = rows.take(hidden, axis=1).T
    hv = np.empty((m, 0))
    if n:
        block = M[visible].take(visible, axis=1).T
        C = cholesky(block, lower=True, overwrite_a=True, check_finite=False)
        H = blas.dtrsm(1.0, C, rows.take(visible, axis=1).T, lower=1, overwrite_b=1)
        schur = blas.dsyrk(-1.0, H, beta=1.0, c=schur, trans=1, lower=1, overwrite_c=1)
    R = cholesky(schur, lower=True, overwrite_a=True, check_finite=False)
    R /= np.sqrt(nu)
    if n:
        B = blas.dtrsm(1.0, C, H, lower=1, trans_a=1, overwrite_b=1)
        kept, fresh = (0.0, 1.0) if start is None else (ALPHA, FRESH)
        vh = blas.dtrmm(1.0 - kept, known.root, B, lower=1, trans_a=1, overwrite_b=1)
        noise = rng.standard_normal((m, n)).T
        vh += blas.dtrmm(fresh, R, noise, lower=1, side=1, trans_a=1, overwrite_b=1)
        hv = blas.dtrmm(1.0, known.root, vh, lower=1, overwrite_b=1).T
        if start is not None:
            hv += kept * start
    return Missing(hv, blas.dtrmm(1.0, R, Bartlett.draw(nu - n, m, rng).a, lower=1))


def missing_square(known: Known, missing: Missing) -> Array:
    """Lower triangle of Q_hh (m, m) from the missing blocks. O(n^2 m + n m^2 + m^3)."""
    hh = blas.dsyrk(1.0, missing.factor, lower=1)
    if not missing.hv.size:
        return hh
    explained = blas.dtrsm(1.0, known.root, missing.hv.T, lower=1)
    return blas.dsyrk(1.0, explained, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)


def draw_model_matrix(
    half: Array, df: float, rng: np.random.Generator, *, start: Array | None = None
) -> Array:
    """P-step: lower Cholesky factor of M ~ InverseWishart(df, half + half'). O(l^3).

    AA' ~ Wishart(df, I) with upper triangular A is Bartlett's factor with rows and columns
    reversed, so that the factor R A^-T of the draw is lower triangular. The entries of A off its
    diagonal are overrelaxed from those of the old M, if its lower Cholesky factor is given as
    `start`. (Overrelaxing the diagonal's normal scores did not improve mixing.)
    """
    R = cholesky((half + half.T).T, lower=True, overwrite_a=True, check_finite=False)
    noise = Bartlett.draw(df, len(half), rng).a
    if start is not None:
        # A of the old M, from L = R A^-T.
        old = blas.dtrsm(1.0, start.T, R, lower=0, trans_a=1).T[::-1, ::-1]
        below = ALPHA * np.tril(old, -1) + FRESH * np.tril(noise, -1)
        noise = below + np.diag(np.diagonal(noise))
    return blas.dtrsm(1.0, noise[::-1, ::-1], R, side=1, lower=0, trans_a=1)


class _MutualStep(GibbsBlock):
    """Base class of both steps; `tuning` is the number of sweeps made, up to `FRESH_SWEEPS`."""

    declarations = (MutualKernelCompletion,)
    owns_M: ClassVar[bool]

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        owner = type(self).__name__
        if model.collapsed:
            raise ValueError(f"{owner} needs a model that is not collapsed.")
        problem = model.problem
        blocks = [f"{block}_{k.name}" for k in problem.kernels for block in ("Qhv", "Qhh_v")]
        latent = [name for name in blocks if name in model.named_vars]
        owns, reads = (["M"], latent) if self.owns_M else (latent, ["M"])
        factors = [name for name in latent if name.startswith("Qhh_v_")]
        self.packed = frozenset({"M", *factors})
        self._problem = problem
        self._known = [Known.of(kernel) for kernel in problem.kernels]
        return owns, reads

    def initial_tuning(self) -> int:
        return 0

    def _is_overrelaxed(self) -> bool:
        """Whether the next sweep is."""
        self.tuning = min(self.tuning + 1, FRESH_SWEEPS + 1)
        return self.tuning > FRESH_SWEEPS


class MutualImputation(_MutualStep):
    """I-step: redraws the missing blocks of the kernels given M; see `MutualPosterior`."""

    name = "mutual_imputation"
    owns_M = False

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw the missing blocks."""
        L = triangle(self._problem.n_objects).unpack(values["M"])
        M = L @ L.T
        drawn = {}
        overrelaxed = self._is_overrelaxed()
        for known, nu in zip(self._known, self._problem.nu, strict=True):
            kernel = known.kernel
            if not len(kernel.hidden):
                continue
            start = values.get(f"Qhv_{kernel.name}") if overrelaxed else None
            missing = impute(known, M, nu, rng, start=start)
            if len(kernel.visible):
                drawn[f"Qhv_{kernel.name}"] = missing.hv
            drawn[f"Qhh_v_{kernel.name}"] = triangle(len(kernel.hidden)).pack(missing.factor)
        return drawn, {}


class MutualPosterior(_MutualStep):
    """P-step: redraws M given the completed kernels, which are read at construction."""

    name = "mutual_posterior"
    owns_M = True

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw M."""
        problem = self._problem
        n = problem.n_objects
        nu = problem.nu
        strength = problem.strength
        half = half_of_visible(problem.kernels, nu, n, strength)
        for known, weight in zip(self._known, nu, strict=True):
            kernel = known.kernel
            if len(kernel.hidden):
                packed = values[f"Qhh_v_{kernel.name}"]
                factor = triangle(len(kernel.hidden)).unpack(packed)
                hv = values.get(f"Qhv_{kernel.name}", np.empty((len(kernel.hidden), 0)))
                hh = missing_square(known, Missing(hv, factor))
                kernel.add_missing(half, hv, hh, weight)
        layout = triangle(n)
        start = layout.unpack(values["M"]) if self._is_overrelaxed() else None
        df = strength + n + 1 + nu.sum()
        return {"M": layout.pack(draw_model_matrix(half, df, rng, start=start))}, {}
