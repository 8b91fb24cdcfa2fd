r"""Overrelaxed draws from conditionals, which suppress random walks (Adler 1981, Neal 1998).

A variable that is a function of normal noise z is moved by replacing z with
:math:`\alpha z + \sqrt{1 - \alpha^2}\,\xi` for new normal :math:`\xi`, which leaves the
distribution of z, and so the conditional, invariant. With negative :math:`\alpha` a variable moves
to the opposite side of its conditional, so that a Gibbs sampler crosses the posterior in a directed
way instead of by a random walk.
"""

import numpy as np
import numpy.typing as npt

from ...numerics.matrix_draws import Bartlett

__all__ = ["fresh_share", "overrelaxed_bartlett"]

type Array = npt.NDArray[np.float64]


def fresh_share(alpha: float) -> float:
    """Factor of the new noise, when the factor of the old noise is alpha."""
    return float(np.sqrt(1 - alpha**2))


def overrelaxed_bartlett(
    start: Array, df: float, alpha: float, rng: np.random.Generator
) -> Bartlett:
    """Draw a Wishart factor, overrelaxed from another one. O(n^2).

    The diagonal is drawn independently: it is not normal, and overrelaxing its normal scores did
    not improve mixing.

    Parameters
    ----------
    start : array (n, n)
        Lower triangular factor of a draw with the same degrees of freedom.
    df : float
    alpha : float
        Correlation of the entries below the diagonal with those of the start.
    rng : numpy.random.Generator
    """
    fresh = Bartlett.draw(df, len(start), rng)
    below = alpha * np.tril(start, -1) + fresh_share(alpha) * np.tril(fresh.a, -1)
    below.flat[:: len(start) + 1] = np.diagonal(fresh.a)
    return Bartlett(below, df)
