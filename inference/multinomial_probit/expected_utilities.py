"""Expected utilities of the multinomial probit, and their products with the kernels, in blocks.

One pass over the objects computes all that an iteration needs from the data; the rest of it does
not depend on the number of objects. Where batches take turns, the sums of the others stay as they
were.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ...numerics.probit import log_probability_and_gradient
from ...numerics.threads import in_blocks

__all__ = [
    "BatchedUtilities",
    "ExpectedUtilities",
    "Sums",
    "added",
    "expected_utilities",
    "sums_of_utilities",
]

type Array = npt.NDArray[np.float64]
#: log_z, square, cross and products of `ExpectedUtilities`.
type Sums = tuple[float, float, float, Array]

# Exponent of the step size of the first pass over batches: 1 weighs all batches alike, and .5 to 1
# are the exponents of Robbins and Monro.
FORGETTING = 0.6


class ExpectedUtilities(NamedTuple):
    """Sums over the objects that an iteration needs, and E[y].

    Attributes
    ----------
    log_z : float
        sum_n log P(t_n | f_n).
    square : float
        sum_nc f_nc^2.
    cross : float
        sum_nc E[y_nc] f_nc.
    mean : array of shape (N, C)
        E[y_nc]; of no objects for kernels in a Dask array.
    products : array of shape (S, C, M)
        E[Y]'K_s.
    """

    log_z: float
    square: float
    cross: float
    mean: Array
    products: Array

    def bound(self, linear: float) -> float:
        """E[log p(Y | F)] and the entropy of q(Y), but for -E[F^2] / 2, at the scores f."""
        return self.log_z + 0.5 * self.square


@dataclass(frozen=True)
class BatchedUtilities:
    """Expected utilities of batches of objects, each at the scores of its own last update.

    Attributes
    ----------
    parts : dict of int to ExpectedUtilities
        The batches that have been updated, by their numbers.
    n_obs : int
        Number of all objects.
    products : array of shape (S, C, M)
        E[Y]'K_s of all objects. Before the first pass is complete: an estimate, the average over
        the batches so far, later ones with larger weights, as in stochastic variational inference.
    """

    parts: Mapping[int, ExpectedUtilities]
    n_obs: int
    products: Array

    @classmethod
    def of(cls, first: ExpectedUtilities, n_obs: int) -> Self:
        """Begin with one batch, which stands for all objects."""
        return cls({0: first}, n_obs, first.products * (n_obs / len(first.mean)))

    @property
    def mean(self) -> Array:
        """E[y_nc] of the objects in `parts`."""
        return np.concatenate([part.mean for _, part in sorted(self.parts.items())])

    def renewed(self, number: int, part: ExpectedUtilities) -> "BatchedUtilities":
        """Replace or add one part."""
        parts = {**self.parts, number: part}
        known = sum(len(each.mean) for each in parts.values())
        if known < self.n_obs:
            rate = len(parts) ** -FORGETTING
            estimate = part.products * (self.n_obs / len(part.mean))
            products = (1 - rate) * self.products + rate * estimate
        elif len(parts) > len(self.parts):
            products = np.sum([each.products for each in parts.values()], axis=0)
        else:
            products = self.products + part.products - self.parts[number].products
        return BatchedUtilities(parts, self.n_obs, products)

    def bound(self, linear: float) -> float:
        """E[log p(Y | F)] and the entropy of q(Y), but for -E[F^2] / 2, once all are updated.

        `linear` is sum_nc E[y_nc] E[f_nc] at the present scores, which are not those of the parts.
        """
        parts = self.parts.values()
        return linear + sum(part.log_z + 0.5 * part.square - part.cross for part in parts)


def expected_utilities(
    kernels: Array, weights: Array, regressors: Array, labels: npt.NDArray[np.integer]
) -> ExpectedUtilities:
    """Expect utilities y_n ~ N(f_n, I) whose largest is that of class t_n (eqs 7-8).

    Parameters
    ----------
    kernels : array of shape (S, N, M)
    weights : array of shape (S,)
        Weights of the kernels in f_n = sum_s beta_s W k_sn.
    regressors : array of shape (C, M)
        W.
    labels : int array of shape (N,)
        Class codes t_n.

    Notes
    -----
    Cost O(S N M C + N C^1.5). Threads share the blocks; sums are in the order of the blocks, so
    that the result does not depend on the number of threads.
    """
    n_obs, n_classes = kernels.shape[1], len(regressors)
    mean = np.empty((n_obs, n_classes))

    def sums(objects: slice) -> Sums:
        rows, y = kernels[:, objects], mean[objects]
        return sums_of_utilities(rows, weights, regressors, labels[objects], y)

    log_z, square, cross, products = added(in_blocks(sums, n_obs))
    return ExpectedUtilities(log_z, square, cross, mean, products)


def added(parts: Iterable[Sums]) -> Sums:
    """Sum over blocks, in their order."""
    log_z, square, cross, products = next(iterator := iter(parts))
    for log_p, squares, crossed, product in iterator:
        log_z += log_p
        square += squares
        cross += crossed
        products += product
    return log_z, square, cross, products


def sums_of_utilities(
    kernels: npt.NDArray[np.floating],
    weights: Array,
    regressors: Array,
    labels: npt.NDArray[np.integer],
    mean: Array | None = None,
) -> Sums:
    """Sum over some objects, whose E[y] is written to `mean`; O(S n M C + n C^1.5)."""
    f = np.tensordot(weights, kernels @ regressors.T, axes=1)
    log_p, gradient = log_probability_and_gradient(f, labels)
    y = np.add(f, gradient, out=mean)
    return float(log_p.sum()), float(np.vdot(f, f)), float(np.vdot(y, f)), y.T @ kernels
