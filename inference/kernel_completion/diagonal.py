r"""Exact posterior and VB of `DiagonalWishartCompletion` (Zhang, Yeung & Kwok 2004, section 4).

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

In variational Bayes, q factorises only where the posterior is not explicit:

.. math::

    q = q(\lambda)\, \textstyle\prod_{j \le n_1} q(\delta_j)\,
        \prod_{j > n_1} p(\delta_j \mid \lambda)\;
        p(W_{21}, W_{22\cdot1} \mid \delta, W_{11})

| factor | law |
|---|---|
| lambda | Gamma(n1 eta + zeta, tau + sum of E[1/delta_j], j <= n1) |
| 1/delta_j, j <= n1 | Gamma(eta + r/2, E[lambda] + w_j / 2) |

The bound has one maximum: with the second row substituted into the first, it is a concave function
of log E[lambda]. q is too narrow in lambda and the training objects' delta, the more so the larger
eta is relative to r / 2; the imputed blocks are affected only through lambda.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.optimize import brentq
from scipy.special import gammaln

from ...models.completion.diagonal_draws import draw_missing, log_constant_of_W11, moments_of_K
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...numerics.wishart import Bartlett, stacked
from ...validation import Count, Positive
from ..engine.engine import Run
from ..engine.result import ExactOutput, Moments, VariationalOutput

type Array = npt.NDArray[np.float64]

GRID_NODES = 1025
# The range ends where the log density has fallen by this much, a neglected mass of about 1e-18.
NEGLECTED_LOG_DENSITY = 42.0


def powers(model: DiagonalWishartCompletion) -> tuple[float, float]:
    """Exponents of lambda, with the Jacobian, and of each lambda + w_j/2: shapes of q's factors."""
    return model.n_train * model.eta + model.zeta, model.eta + model.r / 2


class LogLambda:
    """Posterior of x = log lambda, by the module's formula without constants.

    `nodes` are points and probabilities for expectations of smooth functions, by a trapezoid rule
    that is evenly spaced in asinh, because one tail may be hundreds of times as long as the other.
    Its error is only that of the neglected tails, because the density and all its derivatives
    vanish at both `ends`. `log_integral` is that of the unnormalised density.
    """

    def __init__(self, model: DiagonalWishartCompletion):
        self.model = model
        (power, each) = powers(model)
        tau = model.tau
        # The derivative lies between power - lam (tau + each sum_j 2/w_j) and power - lam tau.
        low = np.log(power / (tau + each * np.sum(2 / model.w)))
        high = np.log(power / tau)
        self.mode = float(brentq(lambda x: self._at(x)[1], low - 1e-6, high + 1e-6))
        self.top = self._at(self.mode)[0]
        left = self._reach(-1.0)
        right = self._reach(1.0)
        self.ends = self.mode - left, self.mode + right
        width = min(left, right) / 4
        between = -np.arcsinh(left / width), np.arcsinh(right / width)
        u, step = np.linspace(*between, GRID_NODES, retstep=True)
        x = self.mode + width * np.sinh(u)
        mass = width * np.cosh(u) * step * np.exp(self.log_density(x)[0] - self.top)
        self.nodes = x, mass / mass.sum()
        self.log_integral = self.top + float(np.log(mass.sum()))

    def log_density(self, x: Array) -> tuple[Array, Array]:
        """Unnormalised log density and its derivative at points x (n,)."""
        power, each = powers(self.model)
        tau = self.model.tau
        lam = np.exp(x)
        shifted = lam[:, None] + self.model.w / 2
        value = power * x - tau * lam - each * np.log(shifted).sum(axis=1)
        return value, power - tau * lam - each * (lam[:, None] / shifted).sum(axis=1)

    def _at(self, x: float) -> tuple[float, float]:
        value, slope = self.log_density(np.array([x]))
        return float(value[0]), float(slope[0])

    def _reach(self, direction: float) -> float:
        """Distance from the mode beyond which the density is neglected."""
        far = 1e-3
        while self.top - self._at(self.mode + direction * far)[0] < NEGLECTED_LOG_DENSITY:
            far *= 1.25
        return far

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
    w = model.w
    r = model.r
    n1 = model.n_train

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
    """Powers p from which on E|x|^p is infinite: for delta, the inverse-gamma shapes.

    An entry of W scales as the root of the product of its two delta, independent given lambda.
    """
    eta = model.eta
    n1 = model.n_train
    n2 = model.n_test
    return {
        "delta": np.repeat([eta + model.r / 2, eta], [n1, n2]),
        "W21": 2 * eta,
        "W22_1": eta if model.diagonal_W22_1 else eta * (2 - np.eye(n2)),
        "K21": 2 * eta,
        "K22": eta,
    }


def evidence_of_diagonal_completion(model: DiagonalWishartCompletion) -> float:
    """Log density of W11 with all else integrated out, by one integral over log lambda."""
    eta = model.eta
    n1 = model.n_train
    constant = log_constant_of_W11(model.w, model.r)
    constant += n1 * (gammaln(eta + model.r / 2) - gammaln(eta))
    constant += model.zeta * np.log(model.tau) - gammaln(model.zeta)
    return float(constant + LogLambda(model).log_integral)


def fit_diagonal_wishart_completion(
    model: DiagonalWishartCompletion,
    run: Run,
    *,
    max_iterations: Count = 10_000,
    tolerance: Positive = 1e-10,
) -> VariationalOutput:
    """Update q(delta) and q(lambda) in turn.

    O(n1) per iteration; O(n^2) per draw, plus O(n2^3) unless W22.1 is diagonal.

    Parameters
    ----------
    max_iterations : int, default=10000
        Largest number of iterations.
    tolerance : float, default=1e-10
        Relative change of E[lambda] below which the iterations end.
    """
    mean = model.zeta / model.tau
    bounds = []
    converged = False
    for _ in range(max_iterations):
        q = _Approximation.after(mean, model)
        bounds.append(q.bound())
        converged = abs(q.lam_mean - mean) <= tolerance * mean
        mean = q.lam_mean
        if converged:
            break
    return VariationalOutput(
        elbo=[np.array(bounds)],
        best=0,
        converged=converged,
        parameters=q.parameters(),
        sample=q.sample,
        moments=q.moments(),
    )


@dataclass(frozen=True)
class _Approximation:
    """The approximate posterior q: rates of q(lambda), and of q(1/delta_j) (n1,)."""

    model: DiagonalWishartCompletion
    lam_rate: float
    rates: Array

    @classmethod
    def after(cls, lam_mean: float, model: DiagonalWishartCompletion) -> Self:
        """Update q(delta) for a mean of lambda, then q(lambda). O(n1)."""
        rates = lam_mean + model.w / 2
        return cls(model, model.tau + (model.eta + model.r / 2) * np.sum(1 / rates), rates)

    @property
    def lam_mean(self) -> float:
        """E lambda."""
        return powers(self.model)[0] / self.lam_rate

    def bound(self) -> float:
        """E log p - E log q at the factors' optimal shapes. O(n1)."""
        model = self.model
        n1 = self.model.n_train
        (a, c) = powers(self.model)
        lam = (
            model.zeta * np.log(model.tau)
            - gammaln(model.zeta)
            + gammaln(a)
            + a * (1 - np.log(self.lam_rate))
            - model.tau * self.lam_mean
        )
        expected = (self.lam_mean + model.w / 2) / self.rates
        delta = n1 * (gammaln(c) - gammaln(model.eta)) + c * np.sum(
            1 - np.log(self.rates) - expected
        )
        return float(log_constant_of_W11(model.w, model.r) + lam + delta)

    def moments(self) -> dict[str, Moments]:
        """Means and standard deviations of K21 and K22 under q, where they exist. O(n^3)."""
        shape, _ = powers(self.model)
        square = shape * (shape + 1) / self.lam_rate**2
        return moments_of_K(self.model, self.lam_mean, square)

    def parameters(self) -> xr.Dataset:
        """Parameters of q(lambda) and of the training objects' q(1/delta)."""
        of_lambda, of_delta = powers(self.model)
        return xr.Dataset(
            {
                "lambda_shape": of_lambda,
                "lambda_rate": self.lam_rate,
                "precision_shape": of_delta,
                "precision_rate": ("train", self.rates),
            },
            coords={"train": list(self.model.coords["train"])},
        )

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of all variables, and log q. O(n^2) or O(n1 n2 + n2^3) a draw."""
        model = self.model
        n1 = self.model.n_train
        n2 = self.model.n_test
        of_lambda, of_delta = powers(model)
        lam = rng.standard_gamma(of_lambda, draws) / self.lam_rate
        shapes = np.repeat([of_delta, model.eta], [n1, n2])
        rates = np.hstack(
            [np.broadcast_to(self.rates, (draws, n1)), np.repeat(lam[:, None], n2, axis=1)]
        )
        precision = rng.standard_gamma(shapes, (draws, n1 + n2)) / rates
        # The density of delta = 1/x is x^2 times the density of x.
        log_delta = _log_gamma_density(precision, shapes, rates) + 2 * np.log(precision)
        test = 1 / precision[:, n1:]
        noise = rng.standard_normal((draws, n2, n1))
        scale = np.sqrt(test[:, :, None] * model.w)
        log_W21 = -0.5 * noise**2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
        W22_1, log_W22_1 = _impute_W22_1(model, test, rng)
        log_q = (
            _log_gamma_density(lam, of_lambda, self.lam_rate)
            + log_delta.sum(axis=1)
            + log_W21.sum(axis=(1, 2))
            + log_W22_1
        )
        drawn = {"lambda": lam, "delta": 1 / precision, "W21": noise * scale, "W22_1": W22_1}
        return drawn, log_q


def _log_gamma_density(x: Array, shape: Array | float, rate: Array | float) -> Array:
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x


def _impute_W22_1(
    model: DiagonalWishartCompletion, test: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """W22.1 given the test objects' delta (draw, n2), and its log density (draw,)."""
    df = model.r - model.n_train
    n2 = model.n_test
    if model.diagonal_W22_1:
        W22_1 = 2 * test * rng.standard_gamma(df / 2, test.shape)
        return W22_1, _log_gamma_density(W22_1, df / 2, 0.5 / test).sum(axis=1)
    factors = [Bartlett.draw(df, n2, rng) for _ in test]
    F = np.sqrt(test)[:, :, None] * np.array([factor.a for factor in factors])
    log_dets = np.log(test).sum(axis=1)
    log_density = [f.wishart_log_density(x) for f, x in zip(factors, log_dets, strict=True)]
    return F @ F.mT, np.array(log_density)
