"""Tests of samplers of the multinomial probit: joint with its prior, and with one another."""

from dataclasses import dataclass
from typing import NamedTuple

import arviz as az
import numpy as np
from scipy import stats

from family import assert_ks, assert_z
from kernelzoo.models.combinations.sums import FixedWeights, Mean
from kernelzoo.models.kernels import as_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_moments import log_probability


class State(NamedTuple):
    """Position of a chain: W, zeta (C, M); beta, rho (S,)."""

    W: np.ndarray
    zeta: np.ndarray
    beta: np.ndarray
    rho: np.ndarray


@dataclass(frozen=True)
class Prior:
    """Hyperparameters: 1/zeta ~ Gamma(tau, rate upsilon), rho ~ Gamma(mu, rate lam)."""

    tau: float = 1.0
    upsilon: float = 1.0
    mu: float = 1.0
    lam: float = 1.0


PRIOR = Prior(tau=1.0, upsilon=0.7, mu=2.0, lam=1.5)
# No two sizes are equal, kernels differ in scale and classes in size: exchanged indices show.
N_CLASSES, N_KERNELS, N_OBJECTS, N_BASIS = 3, 2, 6, 4
STACK = np.random.default_rng(0).normal(size=(N_KERNELS, N_OBJECTS, N_BASIS))
STACK *= np.array([1.0, 0.5])[:, None, None]
LABELS = np.array([0, 0, 1, 2, 0, 1])
WEIGHTS = np.array([0.3, 0.7])


def declaration(*, learn_weights=True, prior=PRIOR):
    """The problem as a model."""
    rule = Mean(prior.mu, prior.lam) if learn_weights else FixedWeights(WEIGHTS)
    stack = as_stack(STACK)
    return MultinomialProbit(stack, LABELS, tau=prior.tau, upsilon=prior.upsilon, combination=rule)


def prior_draw(rng):
    rho = rng.gamma(PRIOR.mu, 1 / PRIOR.lam, N_KERNELS)
    log_g = np.log(rng.gamma(rho + 1)) - rng.exponential(size=N_KERNELS) / rho
    zeta = PRIOR.upsilon / rng.gamma(PRIOR.tau, size=(N_CLASSES, N_BASIS))
    W = np.sqrt(zeta) * rng.standard_normal(zeta.shape)
    return State(W, zeta, np.exp(log_g - np.logaddexp.reduce(log_g)), rho)


def scores(state):
    return np.einsum("s,snm,cm->nc", state.beta, STACK, state.W)


def draw_labels(state, rng):
    f = scores(state)
    return (f + rng.standard_normal(f.shape)).argmax(axis=1)


def functionals(states, labels):
    """Joint functionals (replicate, functional) of parameters and labels (replicate, object).

    They have light tails under the prior.
    """
    W, zeta, beta, rho = (np.array(each) for each in zip(*states, strict=True))
    labels, flat = np.array(labels), (len(W), -1)
    u, log_zeta = W / np.sqrt(zeta), np.log(zeta)
    f = np.einsum("rs,snm,rcm->rnc", beta, STACK, W)
    log_beta = np.log(beta.clip(1e-9))
    contrast = np.arcsinh(W[:, 0] - W[:, 1])
    own = np.take_along_axis(f, labels[:, :, None], axis=2)[:, :, 0]
    deviations = f - f.mean(axis=1, keepdims=True)
    covariance = deviations.mT @ deviations / (N_OBJECTS - 1)
    level = log_probability(f.reshape(-1, N_CLASSES), labels.ravel())
    determinants = (np.linalg.slogdet(np.eye(N_CLASSES) + x)[1] for x in (W @ W.mT, covariance))
    return np.hstack(
        [
            *(x.reshape(flat) for x in (log_zeta, u**2, u * log_zeta, u**2 * log_zeta)),
            u[:, 0] * u[:, 1],
            u[:, 1] * u[:, 2],
            contrast,
            contrast**2,
            contrast * beta[:, :1],
            log_beta,
            np.log(rho),
            rho * log_beta,
            np.arcsinh(f).reshape(flat),
            np.arcsinh(f).reshape(flat) ** 2,
            np.arcsinh(own - f.mean(axis=2)),
            level.clip(-20).reshape(flat),
            f.argmax(axis=2) == labels,
            np.stack([*determinants, log_zeta.sum((1, 2)) * beta[:, 0]], axis=1),
        ]
    )


def joint_test(transition, replicates=1_000, seed=1):
    """Getting it right (Geweke 2004): labels given parameters, sweep given labels, twice.

    `transition` takes (state, labels, rng). From a draw of the prior the joint law never changes.
    Replicates are independent: paired differences of the functionals have mean zero, and margins
    have the prior's distribution.
    """
    rng = np.random.default_rng(seed)
    starts, first, ends, last = [], [], [], []
    for _ in range(replicates):
        state = prior_draw(rng)
        starts.append(state)
        first.append(draw_labels(state, rng))
        for _ in range(2):
            labels = draw_labels(state, rng)
            state = transition(state, labels, rng)
        ends.append(state)
        last.append(labels)
    assert_prior(functionals(ends, last) - functionals(starts, first), ends)


def assert_prior(differences, last):
    """Paired differences of the functionals have mean zero, states have the prior's margins."""
    replicates = len(last)
    differences = differences[:, differences.any(axis=0)]
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    precision = 1 / np.array([state.zeta for state in last]).reshape(replicates, -1).T
    for column in precision:
        assert_ks(column, stats.gamma(PRIOR.tau, scale=1 / PRIOR.upsilon).cdf)
    W = np.array([state.W for state in last]).reshape(replicates, -1).T
    for column in W:
        student = stats.t(2 * PRIOR.tau, scale=np.sqrt(PRIOR.upsilon / PRIOR.tau))
        assert_ks(column, student.cdf)
    for column in np.array([state.rho for state in last]).T:
        assert_ks(column, stats.gamma(PRIOR.mu, scale=1 / PRIOR.lam).cdf)


def expansion(**options):
    """Eleven objects in classes of five, four and two, two kernels of four basis functions."""
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1, 2], [5, 4, 2])
    stack = rng.normal(size=(2, 11, 4)) + np.eye(3, 4)[labels]
    stack[1] *= 0.5
    return MultinomialProbit(as_stack(stack), labels, tau=2.0, upsilon=2.0, **options)


def posterior_functionals(tree):
    """Class contrasts, variances and weights."""
    posterior = tree["posterior"]
    W = posterior["W"].transpose("chain", "draw", "class", "basis").values
    out = [np.arcsinh(W[:, :, 0] - W[:, :, 1]), np.arcsinh(W[:, :, 1] - W[:, :, 2])]
    out.append(np.log(posterior["zeta"].values[:, :, 0]))
    if "beta" in posterior:
        out += [posterior["beta"].values[..., :1], np.log(posterior["rho"].values)]
    return np.concatenate(out, axis=-1)


def assert_samplers_agree(a, b):
    """Means of the functionals differ by no more than their Monte Carlo errors allow."""
    a, b = posterior_functionals(a), posterior_functionals(b)
    z = []
    for i in range(a.shape[-1]):
        error = np.hypot(float(az.mcse(a[..., i])), float(az.mcse(b[..., i])))
        z.append((a[..., i].mean() - b[..., i].mean()) / error)
    assert_z(z)
