r"""Variational Bayes for `DiagonalWishartCompletion`.

W11 informs only lambda and the training objects' delta; given these, all other variables keep their
prior. So q factorises only where the posterior is not explicit:

.. math::

    q = q(\lambda)\, \textstyle\prod_{j \le n_1} q(\delta_j)\,
        \prod_{j > n_1} p(\delta_j \mid \lambda)\;
        p(W_{21}, W_{22\cdot1} \mid \delta, W_{11})

| factor | law |
|---|---|
| lambda | Gamma(n1 eta + zeta, tau + sum of E[1/delta_j], j <= n1) |
| 1/delta_j, j <= n1 | Gamma(eta + r/2, E[lambda] + w_j / 2) |

The bound has one maximum: with the second row substituted into the first, it is a concave function
of log E[lambda]. q neglects the dependence between lambda and the training objects' delta and is
too narrow in both, the more so the larger eta is relative to r / 2. As r exceeds n - 1, the loss is
small with many objects. The imputed blocks are affected only through lambda.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import gammaln

from ...models.completion.diagonal_draws import log_constant_of_W11, moments_of_K
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...numerics.wishart import Bartlett
from ...validation import Count, Positive
from ..engine.engine import Run
from ..engine.result import Moments, VariationalOutput

__all__ = ["fit_diagonal_wishart_completion"]

type Array = npt.NDArray[np.float64]


def fit_diagonal_wishart_completion(
    model: DiagonalWishartCompletion,
    run: Run,
    *,
    max_iterations: Count = 10_000,
    tolerance: Positive = 1e-10,
) -> VariationalOutput:
    """Update q(delta) and q(lambda) in turn; `VB` explains the settings.

    O(n1) per iteration; O(n^2) per draw, plus O(n2^3) unless W22.1 is diagonal.
    """
    mean, bounds, converged = model.zeta / model.tau, [], False
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
    w: Array
    lam_rate: float
    rates: Array

    @classmethod
    def after(cls, lam_mean: float, model: DiagonalWishartCompletion) -> "_Approximation":
        """Update q(delta) for a mean of lambda, then q(lambda). O(n1)."""
        w = model.w
        rates = lam_mean + w / 2
        return cls(model, w, model.tau + (model.eta + model.r / 2) * np.sum(1 / rates), rates)

    @property
    def lam_shape(self) -> float:
        """Shape of q(lambda)."""
        return len(self.w) * self.model.eta + self.model.zeta

    @property
    def shape(self) -> float:
        """Shape of q(1/delta_j), j <= n1."""
        return self.model.eta + self.model.r / 2

    @property
    def lam_mean(self) -> float:
        """E lambda."""
        return self.lam_shape / self.lam_rate

    @property
    def lam_square(self) -> float:
        """E lambda^2."""
        return self.lam_shape * (self.lam_shape + 1) / self.lam_rate**2

    def bound(self) -> float:
        """E log p - E log q at the factors' optimal shapes. O(n1)."""
        model, n1, a, c = self.model, len(self.w), self.lam_shape, self.shape
        lam = (
            model.zeta * np.log(model.tau)
            - gammaln(model.zeta)
            + gammaln(a)
            + a * (1 - np.log(self.lam_rate))
            - model.tau * self.lam_mean
        )
        expected = (self.lam_mean + self.w / 2) / self.rates
        delta = n1 * (gammaln(c) - gammaln(model.eta)) + c * np.sum(
            1 - np.log(self.rates) - expected
        )
        return float(log_constant_of_W11(self.w, model.r) + lam + delta)

    def moments(self) -> dict[str, Moments]:
        """Means and standard deviations of K21 and K22 under q, where they exist. O(n^3)."""
        return moments_of_K(self.model, self.lam_mean, self.lam_square)

    def parameters(self) -> xr.Dataset:
        """Parameters of q(lambda) and of the training objects' q(1/delta)."""
        return xr.Dataset(
            {
                "lambda_shape": self.lam_shape,
                "lambda_rate": self.lam_rate,
                "precision_shape": self.shape,
                "precision_rate": ("train", self.rates),
            },
            coords={"train": list(self.model.coords["train"])},
        )

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of all variables, and log q. O(n^2) or O(n1 n2 + n2^3) a draw."""
        model, n1, n2 = self.model, self.model.n_train, self.model.n_test
        lam = rng.standard_gamma(self.lam_shape, draws) / self.lam_rate
        shapes = np.repeat([self.shape, model.eta], [n1, n2])
        rates = np.hstack(
            [np.broadcast_to(self.rates, (draws, n1)), np.repeat(lam[:, None], n2, axis=1)]
        )
        precision = rng.standard_gamma(shapes, (draws, n1 + n2)) / rates
        # The density of delta = 1/x is x^2 times the density of x.
        log_delta = _log_gamma_density(precision, shapes, rates) + 2 * np.log(precision)
        test = 1 / precision[:, n1:]
        noise = rng.standard_normal((draws, n2, n1))
        scale = np.sqrt(test[:, :, None] * self.w)
        log_W21 = -0.5 * noise**2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
        W22_1, log_W22_1 = _impute_W22_1(model, test, rng)
        log_q = (
            _log_gamma_density(lam, self.lam_shape, self.lam_rate)
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
    df, n2 = model.r - model.n_train, model.n_test
    if model.diagonal_W22_1:
        W22_1 = 2 * test * rng.standard_gamma(df / 2, test.shape)
        return W22_1, _log_gamma_density(W22_1, df / 2, 0.5 / test).sum(axis=1)
    factors = [Bartlett.draw(df, n2, rng) for _ in test]
    F = np.sqrt(test)[:, :, None] * np.array([factor.a for factor in factors])
    log_dets = np.log(test).sum(axis=1)
    log_density = [f.wishart_log_density(x) for f, x in zip(factors, log_dets, strict=True)]
    return F @ F.mT, np.array(log_density)
