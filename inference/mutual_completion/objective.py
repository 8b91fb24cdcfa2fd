r"""The objective of mutual kernel completion and its natural gradient, from one E-step.

With weights w (nu over its mean), W = sum w and the completed kernels Q at M, the M-step gives
:math:`N = (\lambda I + \sum_k w_k Q^{(k)}) / (\lambda + W)`. For w = 1 this is Kato & Rivero
(2017), eqs (22) and (30), with the statistics in eqs (15) and (17). The gradient of J with respect
to :math:`M^{-1}` is :math:`(\lambda + W)(N - M)/2`. The traces in J add up to
:math:`(\lambda + W)\,\mathrm{tr}(M^{-1}N) - \sum_k w_k m_k`. So with :math:`M = LL'` both follow
from :math:`L^{-1} N L^{-\top}`.

:math:`\ln|Q_{vv}|` is left out of J, eqs (2) and (23): it does not depend on M, and is infinite for
a singular visible block. Only a square root of a singular block is used.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, blas, lapack

from ...models.completion.incomplete import IncompleteKernel, half_of_visible, square_root
from ...models.mutual_kernel_completion import CompletionProblem
from ...numerics.wishart import log_det_of_factor

__all__ = ["Evaluation", "MutualObjective", "cholesky_factor"]

type Array = npt.NDArray[np.float64]


class Completion(NamedTuple):
    """E-step of one kernel: blocks (n, m) and (m, m), lower triangle, of E[Q | M]; log|M_vv|."""

    vh: Array
    hh: Array
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
    """

    factor: Array
    target: Array
    residual: Array
    objective: float


@dataclass(frozen=True)
class _Visible:
    """One kernel: its positions, its weight, and a square root R (n, rank) of Q_vv = RR'."""

    kernel: IncompleteKernel
    weight: float
    root: Array
    triangular: bool

    def expectation(self, M: Array) -> Completion:
        """E-step, eqs (18)-(20). O(n^3 / 3 + 4 n^2 m + 2 n m^2).

        With M_vv = C C', Q_vv = R R', H = C^-1 M_vh, B = C'^-1 H = M_vv^-1 M_vh and G = R'B, the
        missing blocks are Q_vh = R G = Q_vv M_vv^-1 M_vh, eq (19), and Q_hh = M_hh - H'H + G'G,
        eq (20). The paper's appendix writes the same in blocks of M^-1: eqs (27)-(29).
        """
        visible, hidden = self.kernel.visible, self.kernel.hidden
        C = cholesky_factor(M[visible].take(visible, axis=1))
        log_det = log_det_of_factor(C)
        if not len(hidden):
            return Completion(np.empty((len(visible), 0)), np.empty((0, 0)), log_det)
        rows = M[hidden]
        H = blas.dtrsm(1.0, C, rows.take(visible, axis=1).T, lower=1, overwrite_b=1)
        hh = rows.take(hidden, axis=1).T
        hh = blas.dsyrk(-1.0, H, beta=1.0, c=hh, trans=1, lower=1, overwrite_c=1)
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
        return Completion(vh, hh, log_det)

    def completed(self, M: Array) -> Array:
        """E[Q | M] (l, l), all objects in their order."""
        kernel = self.kernel
        whole = kernel.with_zeros()
        if len(kernel.hidden):
            done = self.expectation(M)
            whole[np.ix_(kernel.visible, kernel.hidden)] = done.vh
            whole[np.ix_(kernel.hidden, kernel.visible)] = done.vh.T
            hh = np.tril(done.hh)
            whole[np.ix_(kernel.hidden, kernel.hidden)] = hh + np.tril(hh, -1).T
        return whole


@dataclass(frozen=True)
class MutualObjective:
    """J of a problem as a function of M.

    Attributes
    ----------
    parts : tuple of _Visible
        Kernels with visible objects; the others do not enter J.
    lam : float
    n : int
        Number of objects l.
    total : float
        W.
    """

    parts: tuple[_Visible, ...]
    lam: float
    n: int
    total: float

    @cached_property
    def fixed(self) -> Array:
        """Half of lambda I and of the weighted visible blocks (l, l)."""
        kernels, weights = zip(*((part.kernel, part.weight) for part in self.parts), strict=True)
        return half_of_visible(kernels, weights, self.n, self.lam)

    @classmethod
    def of(cls, problem: CompletionProblem) -> "MutualObjective":
        """Factor the visible blocks. O(K l^3)."""
        kernels = [problem.kernels[k] for k in problem.informative]
        nu = problem.nu[problem.informative]
        weights = nu / nu.mean()
        parts = tuple(
            _Visible(kernel, float(weight), *square_root(kernel.values))
            for kernel, weight in zip(kernels, weights, strict=True)
        )
        return cls(parts, problem.lam, problem.n_objects, float(weights.sum()))

    def start(self, *, means: bool) -> Array:
        """M-step, eq (22), with means or zeros for the kernels' missing entries."""
        M = self.lam * np.eye(self.n)
        for part in self.parts:
            kernel = part.kernel
            M += part.weight * (kernel.with_means() if means else kernel.with_zeros())
        return M / (self.lam + self.total)

    def evaluate(self, factor: Array, M: Array | None = None) -> Evaluation:
        """E-step, eq (17), and M-step, eq (22), at M = LL', from L in Fortran order. O(K l^3)."""
        if M is None:
            M = factor @ factor.T
        half = np.zeros((self.n, self.n))
        traces, log_dets = 0.0, self.lam * log_det_of_factor(factor) - self.lam * self.n
        for part in self.parts:
            kernel, w = part.kernel, part.weight
            done = part.expectation(M)
            kernel.add_missing(half, done.vh.T, done.hh, w)
            traces -= w * len(kernel.hidden)
            log_dets += w * (done.log_det - len(kernel.visible))
        half += self.fixed
        target = half + half.T
        target /= self.lam + self.total
        residual, _ = lapack.dsygst(target.T, factor, lower=1)
        residual = np.tril(residual)
        residual += np.tril(residual, -1).T
        traces += (self.lam + self.total) * float(np.trace(residual))
        residual.flat[:: self.n + 1] -= 1
        return Evaluation(factor, target, residual, (traces + log_dets) / 2)


def cholesky_factor(matrix: Array) -> Array:
    """Lower Cholesky factor of a symmetric matrix, in Fortran order."""
    factor, info = lapack.dpotrf(matrix.T, lower=1, clean=1)
    if info:
        raise LinAlgError("The matrix is not positive definite.")
    return factor
