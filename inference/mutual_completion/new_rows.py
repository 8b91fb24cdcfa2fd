r"""Rows of new objects in completed kernels, given the training objects.

`MutualKernelCompletion` of one more object i, given the completed kernels Q_k of the l training
objects and their degrees of freedom :math:`\nu_k`. By the partitions of the inverse Wishart and
Wishart distributions (Gupta and Nagar 2000, Matrix variate distributions, theorems 3.4.2 and
3.3.9), the regression :math:`\beta = M_{tt}^{-1} M_{ti}` and its residual variance
:math:`\sigma = M_{ii} - M_{it}\beta` do not depend on :math:`M_{tt}`, and the new row
:math:`q_k = Q_{k,ti}` is normal:

.. math::

    \sigma \sim \mathrm{InvGamma}\big((\lambda' + l + 2)/2,\ \lambda'/2\big), \quad
    \beta \mid \sigma \sim \mathrm N(0,\ I \sigma/\lambda'), \quad
    q_k \mid \beta, \sigma \sim \mathrm N(Q_k \beta,\ Q_k \sigma/\nu_k)

Known entries of the rows are those with the training objects that kernel k has. Given them, beta
and sigma are normal inverse gamma, and the missing entries are normal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular


@dataclass(frozen=True)
class NewRows:
    """Distribution of the missing entries of new objects' rows.

    `stack` (kernel, l, l) has the completed kernels of the training objects, `visible` (l, kernel)
    those that each kernel has, `strength` is lambda', and `weights` (kernel,) are nu over the
    kernel's unit.
    """

    stack: NDArray
    visible: NDArray
    strength: float
    weights: NDArray

    def mean(self, rows: NDArray) -> NDArray:
        """Rows (kernel, new, l) with NaN replaced by conditional means.

        O(K l^3) for each combination of kernels that new objects lack, O(K l^2) for each object.
        """
        completed = rows.copy()
        for objects, given in self._alike(rows):
            beta, *_ = self._posterior(rows[:, objects], given)
            for k in range(len(rows)):
                completed[k][objects] = self._filled(k, rows[k, objects], given[k], beta)
        return completed

    def draw(self, rows: NDArray, seed: Sequence[int]) -> NDArray:
        """Rows (kernel, new, l) with NaN replaced by a draw.

        All new objects use the same random numbers, so that the draw of one does not depend on
        which others are given.
        """
        completed = rows.copy()
        n = self.stack.shape[1]
        for objects, given in self._alike(rows):
            rng = np.random.default_rng(seed)
            noise = rng.normal(size=(1 + len(rows), n))
            beta, factor, shape, scale = self._posterior(rows[:, objects], given)
            spread = np.sqrt(scale / rng.standard_gamma(shape))
            root = solve_triangular(factor[0], noise[0], lower=True, trans="T")
            beta = beta + root[:, None] * spread
            for k in range(len(rows)):
                filled = self._filled(k, rows[k, objects], given[k], beta)
                hidden = ~given[k]
                K = self.stack[k]
                explained = K[np.ix_(hidden, given[k])] @ self._onto(k, given[k])[:, hidden]
                lower = np.linalg.cholesky(K[np.ix_(hidden, hidden)] - explained)
                residual = np.outer(spread, lower @ noise[1 + k, hidden])
                filled[:, hidden] += residual / np.sqrt(self.weights[k])
                completed[k][objects] = filled
        return completed

    def _alike(self, rows: NDArray) -> Iterator[tuple[NDArray, NDArray]]:
        """Positions of new objects that are in the same kernels, and known entries (kernel, l)."""
        has = ~np.isnan(rows).all(axis=2)
        patterns, which = np.unique(has.T, axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            yield np.flatnonzero(which == p), self.visible.T & pattern[:, None]

    def _onto(self, k: int, given: NDArray) -> NDArray:
        """Regression Q_vv^-1 Q_v (v, l) of all training objects on the known ones."""
        return np.linalg.solve(self.stack[k][np.ix_(given, given)], self.stack[k][given])

    def _posterior(
        self, rows: NDArray, given: NDArray
    ) -> tuple[NDArray, tuple[NDArray, bool], float, NDArray]:
        """Mean of beta (l, new), factor of its precision times sigma; shape and scale of sigma."""
        n = self.stack.shape[1]
        precision = self.strength * np.eye(n)
        moment = np.zeros((n, rows.shape[1]))
        squares = np.full(rows.shape[1], self.strength)
        for k, weight in enumerate(self.weights):
            v = given[k]
            onto = self._onto(k, v)
            known = rows[k][:, v].T
            precision += weight * self.stack[k][:, v] @ onto
            moment += weight * onto.T @ known
            block = self.stack[k][np.ix_(v, v)]
            squares += weight * (known * np.linalg.solve(block, known)).sum(0)
        factor = cho_factor(precision, lower=True)
        beta = cho_solve(factor, moment)
        shape = (self.strength + n + 2 + given.sum()) / 2
        return beta, factor, shape, (squares - (moment * beta).sum(0)) / 2

    def _filled(self, k: int, rows: NDArray, given: NDArray, beta: NDArray) -> NDArray:
        """Rows (new, l) of kernel k with the means of missing entries given beta."""
        expected = (self.stack[k] @ beta).T
        filled = expected + (rows[:, given] - expected[:, given]) @ self._onto(k, given)
        filled[:, given] = rows[:, given]
        return filled


def imputed_rows(rows: NDArray, stack: NDArray, visible: NDArray, *, zero: bool) -> NDArray:
    """Rows (kernel, new, l) with NaN replaced as `impute_kernels` completes training objects.

    `stack` and `visible` are as for `NewRows`. With `zero`, missing objects are the origin;
    otherwise the mean of the visible training objects.
    """
    if zero:
        return np.nan_to_num(rows)
    completed = rows.copy()
    for k, v in enumerate(visible.T):
        absent = np.isnan(rows[k]).all(axis=1)
        completed[k][np.ix_(~absent, ~v)] = rows[k][np.ix_(~absent, v)].mean(axis=1)[:, None]
        completed[k][absent] = stack[k][v].mean(axis=0)
    return completed
