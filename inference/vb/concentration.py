r"""The variational factor of a Dirichlet's concentrations, exactly.

With beta ~ Dirichlet(rho), rho_s ~ Gamma(mu, rate lam) and l_s = E[log beta_s], mean field gives

    Q(rho) = Gamma(sum rho) prod_s Gamma(rho_s | mu, lam) exp((rho_s - 1) l_s) / Gamma(rho_s)

over its normaliser (Damoulas & Girolami 2009, appendix B.4, and Girolami & Rogers 2005 sample it
from the prior, with importance weights). With Gamma(sum rho) written as the integral of
exp(x sum rho - e^x) over x, the rho_s are independent given x: what remains is one integral over x
of a product of one-dimensional integrals. Both use the trapezoid rule on a sinh scale around the
peak, in the coordinates log rho_s and x. The mass falls only as a power of -x for x -> -infinity
(all rho_s near zero), which the sinh scale turns into an exponential.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

__all__ = ["ConcentrationFactor", "concentration_factor"]

type Array = npt.NDArray[np.float64]

NODES = 129
DRAW_NODES = 1025
# Log densities may be neglected this far below their maximum.
DEPTH = 42.0
# Nodes serve while the mass has moved by less than this many standard deviations; they reach 9.
DRIFT = 0.5


def _sinh_grid(
    center: Array, scale: Array, left: Array, right: Array, nodes: int
) -> tuple[Array, Array]:
    """Nodes and log trapezoid weights (..., nodes) from center - left to center + right."""
    start, stop = -np.arcsinh(left / scale), np.arcsinh(right / scale)
    xi = start[..., None] + (stop - start)[..., None] * np.linspace(0, 1, nodes)
    spacing = (stop - start) / (nodes - 1) * scale
    return (
        center[..., None] + scale[..., None] * np.sinh(xi),
        np.log(spacing[..., None] * np.cosh(xi)),
    )


@dataclass(frozen=True)
class ConcentrationFactor:
    """Moments of Q(rho); made by `concentration_factor`.

    Attributes
    ----------
    mean : array of shape (S,)
        E[rho].
    sd : array of shape (S,)
        Standard deviations.
    log_normaliser : float
        Log of the integral of the unnormalised factor, the prior's constants included.
    """

    mean: Array
    sd: Array
    log_normaliser: float
    _mu: float
    _lam: float
    _mean_log_beta: Array
    _grid: "_Grid"

    def log_density(self, rho: Array) -> Array:
        """Log Q at concentrations (n, S)."""
        value = gammaln(rho.sum(axis=1)) + np.sum(
            _log_prior(rho, self._mu, self._lam) + (rho - 1) * self._mean_log_beta - gammaln(rho),
            axis=1,
        )
        return value - self.log_normaliser

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (draws, S): x from its marginal, then rho given x."""
        slope = self._mean_log_beta - self._lam
        grid = _Grid.around_peak(self._mu, slope, DRAW_NODES)
        _, log_mass = grid.integrals(slope)
        x = _inverse(grid.x, np.exp(log_mass - grid.log_width_x)[None], rng.random((1, draws)))[0]
        rho = np.empty((draws, len(self.mean)))
        for s, log_rho in enumerate(grid.log_rho):
            for block in np.array_split(np.arange(draws), max(1, draws // 500)):
                log_density = grid.log_conditional(s, x[block], slope[s])
                density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
                u = rng.random((len(block), 1))
                rho[block, s] = np.exp(_inverse(log_rho, density, u)[:, 0])
        return rho


def _log_prior(rho: Array, mu: float, lam: float) -> Array:
    return mu * np.log(lam) - gammaln(mu) + (mu - 1) * np.log(rho) - lam * rho


def _inverse(nodes: Array, density: Array, u: Array) -> Array:
    """Inverse distribution functions (n, k) of densities (n, nodes), linear between the nodes."""
    width = np.diff(nodes)
    cumulative = np.cumsum(0.5 * (density[:, 1:] + density[:, :-1]) * width, axis=1)
    target = u * cumulative[:, -1:]
    rows = np.arange(len(density))[:, None]
    cell = np.stack(
        [np.searchsorted(c, t, side="left") for c, t in zip(cumulative, target, strict=True)]
    ).clip(0, len(width) - 1)
    low, high = density[rows, cell], density[rows, cell + 1]
    before = np.where(cell > 0, cumulative[rows, cell - 1], 0.0)
    # Root of low z + (high - low) z^2 / 2 = (target - before) / width, free of cancellation.
    area = (target - before) / width[cell]
    z = 2 * area / (low + np.sqrt(np.maximum(low**2 + 2 * (high - low) * area, 0)))
    return nodes[cell] + width[cell] * np.clip(z, 0, 1)


@dataclass(frozen=True)
class _Grid:
    """Nodes for x and for each log rho_s, placed for one slope E[log beta] - lam."""

    x: Array
    log_width_x: Array
    log_rho: Array
    log_width: Array
    log_kernel: Array
    placed_for: Array

    @classmethod
    def around_peak(cls, mu: float, slope: Array, nodes: int) -> "_Grid":
        y, x, scale_y, scale_x = _peak(mu, slope)
        reach = 9 * np.ones_like(y)
        log_rho, log_width = _sinh_grid(
            y, scale_y, reach * scale_y + DEPTH / (mu + 1), reach * scale_y + 3, nodes
        )
        # The mass to the left of x is of the order |x|^(1 - S (mu + 1)).
        power = len(y) * (mu + 1) - 1
        left = 9 * scale_x + 40 * np.expm1(min(DEPTH / 2 / power, 12.0))
        grid_x, log_width_x = _sinh_grid(
            np.array(x), np.array(scale_x), np.array(left), np.array(9 * scale_x + 2), nodes
        )
        log_kernel = mu * log_rho - gammaln(np.exp(log_rho))
        return cls(grid_x, log_width_x, log_rho, log_width, log_kernel, slope)

    def log_conditional(self, s: int, x: Array, slope: float) -> Array:
        """Unnormalised log density (n, nodes) of log rho_s at its nodes, given x (n,)."""
        return self.log_kernel[s] + np.exp(self.log_rho[s]) * (x[:, None] + slope)

    def integrals(self, slope: Array) -> tuple[Array, Array]:
        """E[rho_s | x], E[rho_s^2 | x] (2, S, nodes), and the log mass (nodes,), along x."""
        moments = np.empty((2, len(slope), len(self.x)))
        log_mass = self.log_width_x - np.exp(self.x)
        for s in range(len(slope)):
            log_p = self.log_conditional(s, self.x, slope[s])
            log_p += self.log_width[s]
            peak = log_p.max(axis=1, keepdims=True)
            log_p -= peak
            p = np.exp(log_p, out=log_p)
            rho = np.exp(self.log_rho[s])
            total, first, second = (p @ np.stack([np.ones_like(rho), rho, rho**2], axis=1)).T
            moments[0, s] = first / total
            moments[1, s] = second / total
            log_mass += peak[:, 0] + np.log(total)
        return moments, log_mass


def _peak(mu: float, slope: Array) -> tuple[Array, float, Array, float]:
    """Centres and widths of the mass of log rho and x, on coarse grids.

    Only the placement of the nodes depends on it.
    """
    y = np.linspace(-16, 14, 151)
    x = np.linspace(-12, 14, 53)
    rho = np.exp(y)
    log_p = mu * y - gammaln(rho) + rho * (x[:, None] + slope[:, None, None])
    peak = log_p.max(axis=2)
    p = np.exp(log_p - peak[:, :, None])
    log_f = (peak + np.log(p.sum(axis=2))).sum(axis=0) - np.exp(x)
    best = int(log_f.argmax())
    center, scale = _moments(y, p[:, best])
    _, scale_x = _moments(x, np.exp(log_f - log_f[best])[None])
    return center, float(x[best]), scale, float(scale_x[0].clip(0.1, 1))


def _moments(nodes: Array, mass: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each row, the latter at least half the nodes' spacing."""
    mass = mass / mass.sum(axis=1, keepdims=True)
    mean = mass @ nodes
    sd = np.sqrt(np.maximum(mass @ nodes**2 - mean**2, 0))
    return mean, np.maximum(sd, 0.5 * (nodes[1] - nodes[0]))


def concentration_factor(
    mu: float, lam: float, mean_log_beta: Array, near: ConcentrationFactor | None = None
) -> ConcentrationFactor:
    """Integrate Q(rho) for given E[log beta].

    Parameters
    ----------
    mu, lam : float
        Shape and rate of the gamma prior of every rho_s.
    mean_log_beta : array of shape (S,)
        E[log beta], negative.
    near : ConcentrationFactor, optional
        A factor for the same prior, whose nodes are used again when they fit.

    Returns
    -------
    ConcentrationFactor
        Moments right to about 1e-8. Cost O(S nodes^2), 129 nodes.
    """
    slope = mean_log_beta - lam
    if near is not None and np.all(np.abs(slope - near._grid.placed_for) * near.sd < DRIFT):
        grid = near._grid
    else:
        grid = _Grid.around_peak(mu, slope, NODES)
    moments, log_mass = grid.integrals(slope)
    peak = log_mass.max()
    mass = np.exp(log_mass - peak)
    total = mass.sum()
    mean, square = moments @ mass / total
    constant = len(mean_log_beta) * (mu * np.log(lam) - gammaln(mu)) - mean_log_beta.sum()
    return ConcentrationFactor(
        mean=mean,
        sd=np.sqrt(np.maximum(square - mean**2, 0)),
        log_normaliser=float(peak + np.log(total) + constant),
        _mu=mu,
        _lam=lam,
        _mean_log_beta=mean_log_beta,
        _grid=grid,
    )
