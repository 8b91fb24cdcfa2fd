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

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...models.completion.diagonal_draws import draw_missing, log_constant_of_W11, moments_of_K
from ...models.diagonal_wishart_completion import DiagonalWishartCompletion
from ...numerics.matrix_draws import stacked
from ..engine.engine import Run
from ..engine.outputs import ExactOutput
from .log_concave import LogConcave

__all__ = ["evidence_of_diagonal_completion", "log_lambda", "sample_diagonal_completion", "tails"]

type Array = npt.NDArray[np.float64]

# Size of the largest array (points, n1) in one evaluation of the density.
BLOCK = 1 << 18


def log_lambda(model: DiagonalWishartCompletion) -> LogConcave:
    """Unnormalised posterior of log lambda, by the module's formula without constants."""
    half = model.w / 2
    power = model.n_train * model.eta + model.zeta
    each = model.eta + model.r / 2
    size = max(1, BLOCK // len(half))

    def log_density(x: Array) -> tuple[Array, Array]:
        lam = np.exp(x)
        logs, shares = np.empty_like(lam), np.empty_like(lam)
        for block in (slice(start, start + size) for start in range(0, len(x), size)):
            shifted = lam[block, None] + half
            logs[block] = np.log(shifted).sum(axis=1)
            shares[block] = (lam[block, None] / shifted).sum(axis=1)
        value = power * x - model.tau * lam - each * logs
        return value, power - model.tau * lam - each * shares

    return LogConcave(log_density, start=float(np.log(model.zeta / model.tau)))


def sample_diagonal_completion(model: DiagonalWishartCompletion, run: Run) -> ExactOutput:
    """Independent draws of all variables, moments of K21 and K22, and the evidence.

    Parameters
    ----------
    model : DiagonalWishartCompletion
    run : Run

    Returns
    -------
    ExactOutput
        A draw costs O(n1) for lambda, O(n) for delta, O(n1 n2) for W21 and, unless W22.1 is
        declared diagonal, O(n2^3) for W22.1.
    """
    posterior = log_lambda(model)
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

    x, p = posterior.nodes()
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
    return float(constant + log_lambda(model).log_integral)
