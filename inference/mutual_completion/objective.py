r"""The objective of mutual kernel completion and its natural gradient, from one E-step.

With weights w (nu over its mean), W = sum w, scales s and the completed kernels Q at M, the M-step
gives :math:`N = (\lambda I + \sum_k w_k Q^{(k)} / s_k) / (\lambda + W)`. For w = s = 1 this is Kato
& Rivero (2017), eqs (22) and (30), with the statistics in eqs (15) and (17). The gradient of J with
respect to :math:`M^{-1}` is :math:`(\lambda + W)(N - M)/2`. The traces in J add up to
:math:`(\lambda + W)\,\mathrm{tr}(M^{-1}N) - \sum_k w_k m_k`. So with :math:`M = LL'` both follow
from :math:`L^{-1} N L^{-\top}`.

:math:`\ln|Q_{vv}|` is left out of J, eqs (2) and (23): it does not depend on M, and is infinite for
a singular visible block. Only a square root of a singular block is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, blas, lapack

from ...models.completion.incomplete import IncompleteKernel, half_of_visible, square_root
from ...models.mutual_kernel_completion import CompletionProblem
from ...numerics.matrix_draws import log_det_of_factor

__all__ = ["Completion", "Evaluation", "MutualObjective"]

type Array = npt.NDArray[np.float64]


class Completion(NamedTuple):
    """E-step of one kernel: E[Q | M] in blocks, and terms of the objective.

    Attributes
    ----------
    vh : array (n, m)
    hh : array (m, m)
        Lower triangle.
    scale : float
    log_det : float
        Log determinant of M_vv.
    """

    vh: Array
    hh: Array
    scale: float
    log_det: float


class Evaluation(NamedTuple):
    """Objective and gradient at M = LL', from one E-step.

    Attributes
    ----------
    factor : array (l, l)
        L, lower triangular, in Fortran order.
    target : array (l, l)
        N, the result of the M-step.
    residual : array (l, l)
        L^-1 (N - M) L^-T: the natural gradient of -J, up to (lambda + W) / 2, in the frame of L.
    objective : float
    scales : array (kernel,)
    """

    factor: Array
    target: Array
    residual: Array
    objective: float
    scales: Array


@dataclass(frozen=True)
class _Visible:
    """One kernel: its positions, its weight, and a square root R (n, rank) of Q_vv = RR'."""

    kernel: IncompleteKernel
    weight: float
    root: Array
    triangular: bool

    @classmethod
    def of(cls, kernel: IncompleteKernel, weight: float) -> "_Visible":
        return cls(kernel, weight, *square_root(kernel.values))

    def expectation(self, M: Array, spread: float | None) -> Completion:
        """E-step, eqs (18)-(20). O(n^3 / 3 + 4 n^2 m + 2 n m^2).

        With M_vv = C C', Q_vv = R R', H = C^-1 M_vh, B = C'^-1 H = M_vv^-1 M_vh and G = R'B, the
        missing blocks are Q_vh = R G = Q_vv M_vv^-1 M_vh, eq (19), and Q_hh = s (M_hh - H'H) + G'G,
        eq (20). The paper's appendix writes the same in blocks of M^-1: eqs (27)-(29).
        """
        visible, hidden = self.kernel.visible, self.kernel.hidden
        n = len(visible)
        C = cholesky_factor(M[visible].take(visible, axis=1))
        scale = 1.0
        if spread is not None:
            whitened = blas.dtrsm(1.0, C, self.root, lower=1)
            scale = (spread + float(np.vdot(whitened, whitened))) / (spread + n)
        if not len(hidden):
            return Completion(np.empty((n, 0)), np.empty((0, 0)), scale, log_det_of_factor(C))
        rows = M[hidden]
        H = blas.dtrsm(1.0, C, rows.take(visible, axis=1).T, lower=1, overwrite_b=1)
        hh = rows.take(hidden, axis=1).T
        hh = blas.dsyrk(-scale, H, beta=scale, c=hh, trans=1, lower=1, overwrite_c=1)
        B = blas.dtrsm(1.0, C, H, lower=1, trans_a=1, overwrite_b=1)
        if self.triangular:
            G = blas.dtrmm(1.0, self.root, B, lower=1, trans_a=1, overwrite_b=1)
        else:
            G = blas.dgemm(1.0, self.root, B, trans_a=1)
        hh = blas.dsyrk(1.0, G, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)
        if self.triangular:
            vh = blas.dtrmm(1.0, self.root, G, lower=1, overwrite_b=1)
        else:
            vh = blas.dgemm(1.0, self.root, G)
        return Completion(vh, hh, scale, log_det_of_factor(C))

    def completed(self, M: Array, spread: float | None) -> Array:
        """E[Q | M] (l, l), all objects in their order."""
        kernel = self.kernel
        whole = kernel.with_zeros()
        if len(kernel.hidden):
            done = self.expectation(M, spread)
            whole[np.ix_(kernel.visible, kernel.hidden)] = done.vh
            whole[np.ix_(kernel.hidden, kernel.visible)] = done.vh.T
            hh = np.tril(done.hh)
            whole[np.ix_(kernel.hidden, kernel.hidden)] = hh + np.tril(hh, -1).T
        return whole


@dataclass(frozen=True)
class MutualObjective:
    """J of a problem with fixed degrees of freedom, as a function of M.

    Attributes
    ----------
    parts : tuple of _Visible
        Kernels with visible objects; the others do not enter J.
    lam : float
    spread : float or None
    n : int
        Number of objects l.
    total : float
        W.
    """

    parts: tuple[_Visible, ...]
    lam: float
    spread: float | None
    n: int
    total: float

    @cached_property
    def fixed(self) -> Array:
        """Half of lambda I and of the weighted visible blocks (l, l), for scales of 1."""
        return self._half_of_visible([1.0] * len(self.parts))

    def _half_of_visible(self, scales: Sequence[float]) -> Array:
        kernels = [part.kernel for part in self.parts]
        weights = [part.weight / s for part, s in zip(self.parts, scales, strict=True)]
        return half_of_visible(kernels, weights, self.n, self.lam)

    @classmethod
    def of(cls, problem: CompletionProblem) -> "MutualObjective":
        """Factor the visible blocks. O(K l^3)."""
        assert problem.nu is not None
        chosen = problem.informative
        weights = problem.nu[chosen] / problem.nu[chosen].mean()
        parts = tuple(
            _Visible.of(problem.kernels[k], float(w)) for k, w in zip(chosen, weights, strict=True)
        )
        total = float(weights.sum())
        return cls(parts, problem.lam, problem.spread, problem.n_objects, total)

    def start(self, *, means: bool) -> Array:
        """M-step, eq (22), with means or zeros for the kernels' missing entries."""
        M = self.lam * np.eye(self.n)
        for part in self.parts:
            kernel = part.kernel
            M += part.weight * (kernel.with_means() if means else kernel.with_zeros())
        return M / (self.lam + self.total)

    def evaluate(self, factor: Array, M: Array | None = None) -> Evaluation:
        """E-step, eq (17), and M-step, eq (22), at M = LL'. O(K l^3).

        Parameters
        ----------
        factor : array (l, l)
            L, in Fortran order.
        M : array (l, l), optional
            LL', if already known.
        """
        if M is None:
            M = factor @ factor.T
        half = np.zeros((self.n, self.n))
        scales, traces, log_dets = [], 0.0, self.lam * log_det_of_factor(factor) - self.lam * self.n
        for part in self.parts:
            kernel, w = part.kernel, part.weight
            done = part.expectation(M, self.spread)
            n, m, s = len(kernel.visible), len(kernel.hidden), done.scale
            kernel.add_missing(half, done.vh.T, done.hh, w / s)
            scales.append(s)
            traces -= w * m
            log_dets += w * (done.log_det + n * (np.log(s) - 1))
            if self.spread is not None:
                log_dets += w * self.spread * (1 / s + np.log(s) - 1)
        half += self.fixed if self.spread is None else self._half_of_visible(scales)
        target = half + half.T
        target /= self.lam + self.total
        residual, _ = lapack.dsygst(target.T, factor, lower=1)
        residual = np.tril(residual)
        residual += np.tril(residual, -1).T
        traces += (self.lam + self.total) * float(np.trace(residual))
        residual.flat[:: self.n + 1] -= 1
        return Evaluation(factor, target, residual, (traces + log_dets) / 2, np.array(scales))


def cholesky_factor(matrix: Array) -> Array:
    """Lower Cholesky factor of a symmetric matrix, in Fortran order."""
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=1)
    if info:
        raise LinAlgError("The matrix is not positive definite.")
    return factor
