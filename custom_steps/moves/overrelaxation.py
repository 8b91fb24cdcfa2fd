r"""Overrelaxed draws: exact moves that keep going where they went (Adler 1981, Neal 1998).

What is drawn as a map of normal noise z is moved to that of
:math:`\alpha z + \sqrt{1 - \alpha^2}\,\xi` with fresh normal :math:`\xi`, which leaves the law of
z, and with it the conditional, as it is. A negative :math:`\alpha` throws a variable over to the
other side of its conditional: the blocks of a Gibbs sampler then cross what is likely in steps,
where fresh draws walk at random.
"""

import numpy as np
import numpy.typing as npt

from ...numerics.matrix_draws import Bartlett

__all__ = ["fresh_share", "overrelaxed_bartlett"]

type Array = npt.NDArray[np.float64]


def fresh_share(alpha: float) -> float:
    """Size of the fresh noise beside alpha times the old."""
    return float(np.sqrt(1 - alpha**2))


def overrelaxed_bartlett(
    start: Array, df: float, alpha: float, rng: np.random.Generator
) -> Bartlett:
    """Factor of a Wishart draw that goes on from another one. O(n^2).

    The diagonal is drawn afresh: it is not normal, and with it moved likewise in normal scores
    chains mixed no better.

    Parameters
    ----------
    start : array (n, n)
        Lower triangular factor of a draw with the same degrees of freedom.
    df : float
    alpha : float
        Correlation of what is below the diagonal with the start's.
    rng : numpy.random.Generator
    """
    fresh = Bartlett.draw(df, len(start), rng)
    below = alpha * np.tril(start, -1) + fresh_share(alpha) * np.tril(fresh.a, -1)
    below.flat[:: len(start) + 1] = np.diagonal(fresh.a)
    return Bartlett(below, df)
