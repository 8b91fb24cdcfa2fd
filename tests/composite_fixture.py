"""A composite-kernel problem so small that its posterior is integrated by brute force.

Six objects, two kernels, a bias and one basis function: f_n = alpha_0 + alpha_1 (beta_1 k_1n +
beta_2 k_2n). The precisions phi and gamma are integrated out by hand, which leaves Student t
densities of alpha and of the residuals; the concentrations varphi on a grid of their own. What is
left, the logit of beta_1 and alpha, is a sum over a three-dimensional grid.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import betaln, gammaln

import kernelzoo as kz

SIGMA, VARSIGMA, RHO, VARRHO, TAU, NU = 1.5, 1.0, 2.0, 1.0, 4.0, 2.0
STACK = np.random.default_rng(3).normal(size=(2, 6, 1))
KERNELS = kz.kernels.as_stack(STACK)
RESPONSE = 0.5 + 1.5 * STACK[0, :, 0] + 0.5 * np.random.default_rng(4).normal(size=6)
OPTIONS = {
    "combination": kz.combinations.DirichletWeights(TAU, NU),
    "sigma": SIGMA,
    "varsigma": VARSIGMA,
}


def regression(**options) -> kz.CompositeKernelRegression:
    return kz.CompositeKernelRegression(
        KERNELS, RESPONSE, rho=RHO, varrho=VARRHO, **OPTIONS, **options
    )


def classification() -> kz.CompositeKernelClassification:
    return kz.CompositeKernelClassification(KERNELS, RESPONSE > 0.5, **OPTIONS)


@dataclass(frozen=True)
class BruteForce:
    """Log evidence, and posterior means of functions of beta_1 and alpha."""

    log_evidence: float
    moments: dict[str, float]


def _sinh_grid(reach: float, scale: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and trapezoid weights, fine near 0."""
    xi = np.linspace(-np.arcsinh(reach / scale), np.arcsinh(reach / scale), nodes)
    return scale * np.sinh(xi), scale * np.cosh(xi) * (xi[1] - xi[0])


def _log_prior_of_logit(z: np.ndarray) -> np.ndarray:
    """log p(z), z = log(beta_1 / beta_2), with varphi integrated out on a grid."""
    log_varphi = np.linspace(-12.0, 4.5, 400)
    varphi = np.exp(log_varphi)
    log_p = stats.gamma.logpdf(varphi, TAU, scale=1 / NU) + log_varphi
    pair = log_p[:, None] + log_p - betaln(varphi[:, None], varphi)
    log_first, log_second = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    # sum_ab exp(pair_ab) beta_1^a beta_2^b with the logit's Jacobian beta_1 beta_2.
    one, other = np.exp(np.outer(log_first, varphi)), np.exp(np.outer(log_second, varphi))
    step = log_varphi[1] - log_varphi[0]
    return np.log(np.einsum("za,ab,zb->z", one, np.exp(pair), other)) + 2 * np.log(step)


def _log_likelihood_regression(f: np.ndarray) -> np.ndarray:
    """log p(t | f) with gamma ~ Gamma(rho, varrho) integrated out; f (..., object)."""
    half = len(RESPONSE) / 2
    squares = 0.5 * ((RESPONSE - f) ** 2).sum(-1)
    constant = gammaln(RHO + half) - gammaln(RHO) + RHO * np.log(VARRHO) - half * np.log(2 * np.pi)
    return constant - (RHO + half) * np.log(VARRHO + squares)


def _log_likelihood_classification(f: np.ndarray) -> np.ndarray:
    sign = np.where(RESPONSE > 0.5, 1.0, -1.0)
    return -np.logaddexp(0, -sign * f).sum(-1)


def brute_force(model) -> BruteForce:
    """Integrate over the logit of beta_1 (241 nodes) and alpha (201 x 201)."""
    log_likelihood = {
        "CompositeKernelRegression": _log_likelihood_regression,
        "CompositeKernelClassification": _log_likelihood_classification,
    }[type(model).__name__]
    z, z_width = _sinh_grid(60.0, 2.0, 241)
    a, a_width = _sinh_grid(2e3, 1.0, 201)
    prior = stats.t.logpdf(a, 2 * SIGMA, scale=np.sqrt(VARSIGMA / SIGMA)) + np.log(a_width)
    log_mass = np.empty((len(z), len(a), len(a)))
    for row, zi, weight in zip(log_mass, z, _log_prior_of_logit(z) + np.log(z_width), strict=True):
        beta = 1 / (1 + np.exp(-zi))
        k = beta * STACK[0, :, 0] + (1 - beta) * STACK[1, :, 0]
        f = a[:, None, None] + a[None, :, None] * k
        row[:] = log_likelihood(f) + prior[:, None] + prior + weight
    peak = log_mass.max()
    mass = np.exp(log_mass - peak)
    total = mass.sum()
    mass /= total
    beta = 1 / (1 + np.exp(-z))
    of_beta, of_bias, of_slope = mass.sum((1, 2)), mass.sum((0, 2)), mass.sum((0, 1))
    clipped = np.tanh(a)
    moments = {
        "beta": of_beta @ beta,
        "beta squared": of_beta @ beta**2,
        "tanh bias": of_bias @ clipped,
        "tanh slope": of_slope @ clipped,
        "beta tanh slope": beta @ mass.sum(1) @ clipped,
    }
    return BruteForce(float(peak + np.log(total)), {k: float(v) for k, v in moments.items()})
