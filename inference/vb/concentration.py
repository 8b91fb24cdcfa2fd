r"""The variational factor of a Dirichlet's concentrations, exactly.

With beta ~ Dirichlet(rho), rho_s ~ Gamma(mu, rate lam) and l_s = E[log beta_s], mean field gives

    Q(rho) = Gamma(sum rho) prod_s Gamma(rho_s | mu, lam) exp((rho_s - 1) l_s) / Gamma(rho_s)

over its normaliser (Damoulas & Girolami 2009, appendix B.4, and Girolami & Rogers 2005 sample it
from the prior, with importance weights). With Gamma(sum rho) written as the integral of
exp(x sum rho - e^x) over x, the rho_s are independent given x: what remains is one integral over x
of a product of one-dimensional integrals over y_s = log rho_s, whose integrands are

    exp(h), h(y) = mu y - log Gamma(rho) + rho (x + l_s - lam).

Given x, h has one maximum, with curvature -(mu + rho^2 psi'(rho)), and falls with slope mu + 1 for
y -> -infinity. The largest mass in x lies where e^x = sum rho at these maxima; its precision is
e^x - sum rho^2 / (mu + rho^2 psi'(rho)) > 0. To the left the mass falls only as a power of -x. Both
rules are trapezoids on sinh scales, which turn exponentials and powers into light tails, placed at
these maxima with these widths.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln, zeta

__all__ = ["ConcentrationFactor", "concentration_factor"]

type Array = npt.NDArray[np.float64]

# Densities may be neglected this far below their maximum (in logs), and a normal's this far out.
DEPTH = 24.0
REACH = np.sqrt(2 * DEPTH)
# Spacings of the nodes on the sinh scales.
SPACING_X = 0.25
SPACING_Y = 0.25
# Draws invert linear interpolations of the densities, on finer nodes.
DRAW_NODES_X = 1025
DRAW_NODES_Y = 257
DRAWS_AT_ONCE = 1000
# Nodes serve while the mass has moved by less than this many standard deviations.
DRIFT = 0.5
NEWTON_STEPS = 100


def _sinh_nodes(
    center: Array, scale: Array, left: Array, right: Array, nodes: int
) -> tuple[Array, Array]:
    """Nodes and log trapezoid weights (..., nodes), from center - left to center + right."""
    start, stop = -np.arcsinh(left / scale), np.arcsinh(right / scale)
    xi = start[..., None] + (stop - start)[..., None] * np.linspace(0, 1, nodes)
    spacing = (stop - start) / (nodes - 1) * scale
    return (
        center[..., None] + scale[..., None] * np.sinh(xi),
        np.log(spacing[..., None] * np.cosh(xi)),
    )


def _enough(scale: Array, left: Array, right: Array, spacing: float) -> int:
    """Nodes that cover the widest range at a spacing."""
    return int(np.ceil(np.max(np.arcsinh(left / scale) + np.arcsinh(right / scale)) / spacing)) + 1


def _conditional_peak(mu: float, pull: Array) -> tuple[Array, Array]:
    """Maximum of h and its curvature's size there (...), for pulls x + l - lam (...).

    Newton's method on the logarithm of mu / rho - psi(rho) = -pull would divide by what may be
    zero; on the difference itself it climbs from the left without overshooting, as a convex
    decreasing function of rho does.
    """
    # psi(rho) <= log rho - 1 / (2 rho) - 1 / (12 rho^2) ... and psi(rho) >= log rho - 1 / rho.
    rho = np.where(pull < 0, (mu + 0.5) / (1 - np.minimum(pull, 0)), np.exp(np.minimum(pull, 700)))
    for _ in range(NEWTON_STEPS):
        trigamma = zeta(2, rho)
        step = (mu / rho - digamma(rho) + pull) / (mu / rho**2 + trigamma)
        rho = rho + np.maximum(step, -0.9 * rho)
        if np.all(np.abs(step) <= 1e-6 * rho):
            break
    return np.log(rho), mu + rho**2 * zeta(2, rho)
