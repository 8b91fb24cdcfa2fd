r"""Exact posterior of `DiagonalWishartCompletion` (Zhang, Yeung & Kwok 2004, section 4).

W11 informs only delta of the training part and lambda. With delta integrated out,

.. math::

    p(\lambda \mid W_{11}) \propto \lambda^{n_1 \eta + \zeta - 1} e^{-\tau\lambda}
        \prod_{j \le n_1} (\lambda + w_j/2)^{-(\eta + r/2)}

which is log-concave in log lambda. All other variables are drawn forwards:

| variable | given lambda and W11 |
|---|---|
| 1/delta_j, training | Gamma(eta + r/2, rate lambda + w_j/2) |
| 1/delta_j, test | Gamma(eta, rate lambda) |
| W21, W22.1 \| delta | eqs (12), (13) or (15) |
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln

from ...models.completion.diagonal_draws import draw_missing, log_constant_of_W11, moments_of_K
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...numerics.wishart import stacked
from ..engine.engine import Run
from ..engine.result import ExactOutput

__all__ = ["LogLambda", "evidence_of_diagonal_completion", "sample_diagonal_completion", "tails"]

type Array = npt.NDArray[np.float64]

# Size of the largest array (points, n1) in one evaluation of the density.
BLOCK = 1 << 18
NODES = 1025
# The range ends where the log density has fallen by this much, a neglected mass of about 1e-18.
DEPTH = 42.0


@dataclass(frozen=True)
class LogLambda:
    """Posterior of x = log lambda, by the module's formula without constants."""

    model: DiagonalWishartCompletion

    def log_density(self, x: Array) -> tuple[Array, Array]:
        """Unnormalised log density and its derivative at points x (n,)."""
        model, half = self.model, self.model.w / 2
        power, each = self._powers
        size = max(1, BLOCK // len(half))
        lam = np.exp(x)
        logs, shares = np.empty_like(lam), np.empty_like(lam)
        for block in (slice(start, start + size) for start in range(0, len(x), size)):
            shifted = lam[block, None] + half
            logs[block] = np.log(shifted).sum(axis=1)
            shares[block] = (lam[block, None] / shifted).sum(axis=1)
        value = power * x - model.tau * lam - each * logs
        return value, power - model.tau * lam - each * shares

    @property
    def _powers(self) -> tuple[float, float]:
        """Exponents of lambda, with the Jacobian, and of each lambda + w_j/2."""
        model = self.model
        return model.n_train * model.eta + model.zeta, model.eta + model.r / 2

    @cached_property
    def mode(self) -> float:
        """Zero of the decreasing derivative."""
        (power, each), tau = self._powers, self.model.tau
        # The derivative lies between power - lam (tau + each sum_j 2/w_j) and power - lam tau.
        low = np.log(power / (tau + each * np.sum(2 / self.model.w)))
        return float(brentq(lambda x: self._at(x)[1], low - 1e-6, np.log(power / tau) + 1e-6))

    @cached_property
    def top(self) -> float:
        """Log density at the mode."""
        return self._at(self.mode)[0]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Points below and above the mode where the log density is `DEPTH` or more below `top`."""
        distances = []
        for direction in (-1.0, 1.0):
            far = 1e-3
            while self.top - self._at(self.mode + direction * far)[0] < DEPTH:
                far *= 1.25
            distances.append(far)
        return self.mode - distances[0], self.mode + distances[1]

    def _at(self, x: float) -> tuple[float, float]:
        value, slope = self.log_density(np.array([x]))
        return float(value[0]), float(slope[0])

    @cached_property
    def _masses(self) -> tuple[Array, Array]:
        """Points of a trapezoid rule, and their masses relative to the density's maximum.

        Evenly spaced in asinh, because one tail may be hundreds of times as long as the other. The
        error is only that of the neglected tails, because the density and all its derivatives
        vanish at both ends.
        """
        left, right = self.mode - self.ends[0], self.ends[1] - self.mode
        width = min(left, right) / 4
        between = -np.arcsinh(left / width), np.arcsinh(right / width)
        u, step = np.linspace(*between, NODES, retstep=True)
        x = self.mode + width * np.sinh(u)
        return x, width * np.cosh(u) * step * np.exp(self.log_density(x)[0] - self.top)

    @property
    def nodes(self) -> tuple[Array, Array]:
        """Points and probabilities for expectations of smooth functions."""
        x, mass = self._masses
        return x, mass / mass.sum()

    @property
    def log_integral(self) -> float:
        """Log of the integral of the unnormalised density."""
        return self.top + float(np.log(self._masses[1].sum()))

    def pdf(self, x: float) -> float:
        """Density at a point relative to the mode, over the density's maximum."""
        return float(np.exp(self._at(self.mode + x)[0] - self.top))

    def dpdf(self, x: float) -> float:
        """Differentiate `pdf`."""
        return self._at(self.mode + x)[1] * self.pdf(x)

    def sample(self, draws: int, rng: np.random.Generator) -> Array:
        """Independent draws (n,), by rejection sampling from tangents."""
        # Nothing else needs this library, which takes a while to import.
        from scipy.stats.sampling import TransformedDensityRejection

        domain = self.ends[0] - self.mode, self.ends[1] - self.mode
        relative = TransformedDensityRejection(self, mode=0.0, domain=domain, random_state=rng)
        return self.mode + relative.rvs(draws)


def sample_diagonal_completion(model: DiagonalWishartCompletion, run: Run) -> ExactOutput:
    """Independent draws of all variables, moments of K21 and K22, and the evidence.

    A draw costs O(n1) for lambda, O(n) for delta, O(n1 n2) for W21 and, unless W22.1 is declared
    diagonal, O(n2^3) for W22.1.
    """
    posterior = LogLambda(model)
    w, r, n1 = model.w, model.r, model.n_train

    def sample(draws: int, rng: np.random.Generator) -> dict[str, Array]:
        lam = np.exp(posterior.sample(draws, rng))
        delta = np.empty((draws, n1 + model.n_test))
        gammas = rng.standard_gamma(model.eta + r / 2, size=(draws, n1))
        delta[:, :n1] = (lam[:, None] + w / 2) / gammas
        delta[:, n1:] = lam[:, None] / rng.standard_gamma(model.eta, size=(draws, model.n_test))
        rows = (
            draw_missing(row[n1:], w, r, rng, diagonal=model.diagonal_W22_1)._asdict()
            for row in delta
        )
        return {"lambda": lam, "delta": delta, **stacked(rows, draws)}

    x, p = posterior.nodes
    moments = moments_of_K(model, float(np.exp(x) @ p), float(np.exp(2 * x) @ p))
    return ExactOutput(sample, moments, evidence_of_diagonal_completion(model), tails(model))


def tails(model: DiagonalWishartCompletion) -> dict[str, float | Array]:
    """Powers p from which on E|x|^p is infinite, by variable.

    For delta these are the inverse-gamma shapes. An entry of W scales as the root of the product of
    its two delta, which are independent given lambda.
    """
    eta, n1, n2 = model.eta, model.n_train, model.n_test
    return {
        "delta": np.repeat([eta + model.r / 2, eta], [n1, n2]),
        "W21": 2 * eta,
        "W22_1": eta if model.diagonal_W22_1 else eta * (2 - np.eye(n2)),
        "K21": 2 * eta,
        "K22": eta,
    }


def evidence_of_diagonal_completion(model: DiagonalWishartCompletion) -> float:
    """Log density of W11 with all else integrated out, by one integral over log lambda."""
    eta, n1 = model.eta, model.n_train
    constant = log_constant_of_W11(model.w, model.r)
    constant += n1 * (gammaln(eta + model.r / 2) - gammaln(eta))
    constant += model.zeta * np.log(model.tau) - gammaln(model.zeta)
    return float(constant + LogLambda(model).log_integral)
