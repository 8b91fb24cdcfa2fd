r"""Gibbs steps of `MutualKernelCompletion`: missing blocks given M, and M given completed kernels.

I-step, kernel by kernel, with s and nu known or drawn first:

.. math::

    Q_{hv} &\sim \mathrm{MN}(B' Q_{vv}, C, Q_{vv}), \qquad B = M_{vv}^{-1} M_{vh}, \quad
        C = \tfrac{s}{\nu} (M_{hh} - M_{hv} B) \\
    Q_{hh\cdot v} &\sim \mathrm{W}(\nu - n, C)

Scales and degrees of freedom are drawn with the missing blocks integrated out, which only their
being redrawn at once makes right: so one step owns them all. P-step:

.. math::

    M \sim \mathrm{IW}(\lambda' + \ell + 1 + \textstyle\sum_k \nu_k,\
        \lambda' I + \sum_k \tfrac{\nu_k}{s_k} Q^{(k)})

M and Q_hh.v stay in the packed form of `PositiveDefinite`, the lower triangle of the Cholesky
factor by rows with the logarithms of its diagonal: they are drawn as such factors.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
from pymc.util import RandomGenerator
from pytensor.tensor import TensorVariable
from scipy.linalg import blas, cholesky

from ..models.incomplete_kernels import IncompleteKernel, half_of_visible
from ..models.matrix_draws import Bartlett
from ..models.mutual_kernel_completion import MutualKernelCompletion
from .block import GibbsBlock, check_declaration, check_owned
from .mutual_freedom import ModelMatrix, VisibleBlock, draw_excess, draw_scales
from .packed_factor import Triangle

__all__ = ["MutualImputation", "MutualPosterior"]

type Array = npt.NDArray[np.float64]


class Missing(NamedTuple):
    """What a kernel lacks: Q_hv (m, n), and the lower Cholesky factor of Q_hh.v (m, m)."""

    hv: Array
    factor: Array


class Known(NamedTuple):
    """A kernel and the lower Cholesky factor (n, n) of its visible block, in Fortran order."""

    kernel: IncompleteKernel
    root: Array

    @classmethod
    def of(cls, kernel: IncompleteKernel) -> "Known":
        """Factor the visible block. O(n^3)."""
        return cls(kernel, cholesky(kernel.values.T, lower=True, check_finite=False))

    def visible_factor(self, M: Array) -> Array:
        """Lower Cholesky factor of M_vv (n, n). O(n^3 / 3)."""
        visible = self.kernel.visible
        block = M[visible].take(visible, axis=1).T
        return cholesky(block, lower=True, overwrite_a=True, check_finite=False)


def impute(
    known: Known, M: Array, C: Array, nu: float, scale: float, rng: np.random.Generator
) -> Missing:
    """I-step of one kernel: its missing blocks given M. O(4 n^2 m + 3 n m^2 + m^3).

    A kernel without visible objects gets Q ~ W(nu, scale M / nu) as its Schur complement.

    Parameters
    ----------
    known : Known
    M : array (l, l)
    C : array (n, n)
        Lower Cholesky factor of M_vv.
    nu, scale : float
    rng : numpy.random.Generator
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
        vh = blas.dtrmm(1.0, known.root, B, lower=1, trans_a=1, overwrite_b=1)
        noise = rng.standard_normal((m, n)).T
        vh += blas.dtrmm(1.0, R, noise, lower=1, side=1, trans_a=1, overwrite_b=1)
        hv = blas.dtrmm(1.0, known.root, vh, lower=1, overwrite_b=1).T
    return Missing(hv, blas.dtrmm(1.0, R, Bartlett.draw(nu - n, m, rng).a, lower=1))


def missing_square(known: Known, missing: Missing) -> Array:
    """Q_hh (m, m) of the missing blocks, its lower triangle. O(n^2 m + n m^2 + m^3)."""
    hh = blas.dsyrk(1.0, missing.factor, lower=1)
    if not missing.hv.size:
        return hh
    explained = blas.dtrsm(1.0, known.root, missing.hv.T, lower=1)
    return blas.dsyrk(1.0, explained, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)


def draw_model_matrix(half: Array, df: float, rng: np.random.Generator) -> Array:
    """P-step: lower Cholesky factor of M ~ InverseWishart(df, half + half'). O(l^3).

    With the upper triangular A of AA' ~ Wishart(df, I), which is Bartlett's with rows and columns
    reversed, the factor of the draw R A^-T A^-1 R' is triangular as R is: nothing is factored.
    """
    R = cholesky((half + half.T).T, lower=True, overwrite_a=True, check_finite=False)
    A = Bartlett.draw(df, len(half), rng).a[::-1, ::-1]
    return blas.dtrsm(1.0, A, R, side=1, lower=0, trans_a=1)


class _MutualStep(GibbsBlock):
    """What both steps read of the model."""

    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}
    owns_M: ClassVar[bool]

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        blocked: bool = True,
    ):
        model = pm.modelcontext(model)
        owner = type(self).__name__
        check_declaration(model, owner, MutualKernelCompletion)
        if model.collapsed:
            raise ValueError(f"{owner} needs a model that is not collapsed.")
        problem = model.problem
        blocks = [f"{block}_{k.name}" for k in problem.kernels for block in ("Qhv", "Qhh_v")]
        latent = [name for name in (*blocks, "s", "excess") if name in model.named_vars]
        owns, reads = (["M"], latent) if self.owns_M else (latent, ["M"])
        check_owned(vars, owns, model, owner)
        factors = [name for name in latent if name.startswith("Qhh_v_")]
        self.packed = frozenset({"M", *factors})
        self._problem = problem
        self._known = [Known.of(kernel) for kernel in problem.kernels]
        sizes = {problem.n_objects, *(len(kernel.hidden) for kernel in problem.kernels)}
        self._triangles = {n: Triangle(n) for n in sizes}
        super().__init__(
            [model[name] for name in owns],
            reads=[model[name] for name in reads],
            model=model,
            rng=rng,
            blocked=blocked,
        )

    def _freedom(self, values: Mapping[str, Array]) -> Array:
        """Degrees of freedom (kernel,)."""
        if self._problem.nu is not None:
            return self._problem.nu
        return self._problem.n_objects - 1 + values["excess"]

    def _scales(self, values: Mapping[str, Array]) -> Array:
        """Scales (kernel,), ones where they are not learned."""
        return np.ones(len(self._known)) if self._problem.spread is None else values["s"]


class MutualImputation(_MutualStep):
    """I-step: redraws all that is missing of the kernels given M.

    The model's kernels are read when the step is made: make it anew after ``pm.set_data``.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        Qhv_k and Qhh_v_k of every incomplete kernel, s and excess where the model has them.
    model : MutualKernelCompletion, optional
        Default: the model on the context stack.
    rng : seed or Generator, optional
        Used until PyMC hands over the chain's generator.
    blocked : bool, default=True
        As PyMC passes it; the step is always one block.

    Raises
    ------
    TypeError
        For another model.
    ValueError
        For a collapsed model, and for other variables.
    """

    name = "mutual_imputation"
    owns_M = False

    def sweep(
        self, values: Mapping[str, Array], rng: np.random.Generator
    ) -> tuple[Mapping[str, Array], dict[str, Any]]:
        """Redraw scales and degrees of freedom, then the missing blocks."""
        L = self._triangles[self._problem.n_objects].unpack(values["M"])
        M = L @ L.T
        factors = [known.visible_factor(M) for known in self._known]
        drawn = self._draw_parameters(values, L, factors, rng)
        both = {**values, **drawn}
        nu, scales = self._freedom(both), self._scales(both)
        for known, C, v, s in zip(self._known, factors, nu, scales, strict=True):
            kernel = known.kernel
            if not len(kernel.hidden):
                continue
            missing = impute(known, M, C, v, s, rng)
            if len(kernel.visible):
                drawn[f"Qhv_{kernel.name}"] = missing.hv
            triangle = self._triangles[len(kernel.hidden)]
            drawn[f"Qhh_v_{kernel.name}"] = triangle.pack(missing.factor)
        return drawn, {}

    def _draw_parameters(
        self,
        values: Mapping[str, Array],
        L: Array,
        factors: Sequence[Array],
        rng: np.random.Generator,
    ) -> dict[str, Array]:
        """Redraw the degrees of freedom and the scales that are free, by name."""
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

    The model's kernels are read when the step is made: make it anew after ``pm.set_data``.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        M.
    model, rng, blocked
        As `MutualImputation` takes them.

    Raises
    ------
    TypeError
        For another model.
    ValueError
        For a collapsed model, and for other variables.

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
                factor = self._triangles[len(kernel.hidden)].unpack(packed)
                hv = values.get(f"Qhv_{kernel.name}", np.empty((len(kernel.hidden), 0)))
                hh = missing_square(known, Missing(hv, factor))
                kernel.add_missing(half, hv, hh, weight)
        L = draw_model_matrix(half, strength + n + 1 + nu.sum(), rng)
        return {"M": self._triangles[n].pack(L)}, {}
