"""Algorithm 1 of damoulas2009 as printed, against loops and inverses."""

from functools import partial

import numpy as np
import pytest

from family import assert_mean
from kernelzoo.inference import Run
from kernelzoo.inference.multinomial_probit.vb_kernels import KernelFamily
from kernelzoo.models.kernels import as_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_moments import log_probability
from probit_slow_reference import (
    RULES,
    parametric_problem,
    prior_sample,
    slow_problem,
    slow_reference,
)
from probit_vb_fixture import problem
from studies.damoulas2009_printed import ascend, draws, iterate, printed_objective, start

RUN = Run(random_seed=1, progressbar=False)
LEARNED = [
    *((rule, False) for rule in ("binary", "binary, empty", "product", "fixed product")),
    *((rule, True) for rule in RULES),
]


def iterated(model, weights, iterations):
    state, objectives = start(model, weights), []
    for _ in range(iterations):
        state = iterate(model, state)
        objectives.append(state.objective)
    return state, objectives


def test_printed_objective_for_fixed_z():
    """E.5-E.7 = sum log Z_n - sum k'Vk / 2 - KL(q(W) || N(0, Z)), for any V, Z and mean."""
    rng = np.random.default_rng(0)
    n_classes, n_basis = 3, 6
    design = rng.normal(size=(8, n_basis))
    W_mean = rng.normal(size=(n_classes, n_basis))
    roots = rng.normal(size=(n_classes, n_basis, n_basis))
    V = roots @ roots.transpose(0, 2, 1) + np.eye(n_basis)
    precision = rng.gamma(2.0, size=(n_classes, n_basis))
    log_z = log_probability(design @ W_mean.T, np.arange(8) % n_classes).sum()
    divergence = 0.0
    for mean, covariance, Z in zip(W_mean, V, 1 / precision, strict=True):
        divergence += 0.5 * (
            np.trace(np.diag(1 / Z) @ covariance)
            + mean @ np.diag(1 / Z) @ mean
            - n_basis
            + np.log(np.linalg.det(np.diag(Z)) / np.linalg.det(covariance))
        )
    spread = sum(k @ covariance @ k for k in design for covariance in V)
    found = printed_objective(
        log_z,
        np.linalg.slogdet(V)[1].sum(),
        precision,
        W_mean,
        np.einsum("cii->ci", V),
        spread,
    )
    np.testing.assert_allclose(found, log_z - 0.5 * spread - divergence, rtol=1e-12)


@pytest.mark.parametrize("gram", [True, False])
def test_one_kernel_agrees_with_a_direct_transcription(gram):
    kernels, labels = problem(3, 1, 3, n_obs=15, gram=gram)
    model = MultinomialProbit(as_stack(kernels), labels, tau=0.7, upsilon=1.3)
    W, objectives = slow_reference(kernels[0], labels, 3, 0.7, 1.3, iterations=8)
    state, found = iterated(model, np.ones(1), 8)
    np.testing.assert_allclose(found, objectives, rtol=1e-7)
    np.testing.assert_allclose(state.W, W, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("rule", "parametric"), LEARNED)
def test_learned_kernels_agree_with_a_direct_transcription(rule, parametric, monkeypatch):
    """On the same samples of the prior; but for rounding."""
    monkeypatch.setattr(KernelFamily, "start", prior_sample)
    model = parametric_problem(rule, parametric)
    weights = model.composition.known if rule == "fixed" else np.ones(2)
    first = start(model, weights)
    psi = first.psi.samples if first.psi is not None else np.zeros((1, 0))
    slow = slow_problem(rule, parametric, psi, plug_in=True).run(iterations=6)
    state, objectives = iterated(model, weights, 6)
    close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10)
    close(objectives, slow["objectives"])
    close(state.W, slow["W"])
    close(state.zeta_rate, slow["zeta_rate"])
    close(state.y, slow["y"])
    if state.psi is not None:
        close(state.psi.weights, slow["r"])
    if rule.startswith("binary"):
        close(state.beta.probability[rule == "binary" :], slow["q"])


def test_weights_are_of_the_means_alone():
    """Q(beta) from the means alone, by a dense grid over two weights."""
    kernels, labels = problem(4, 2, 3, n_obs=18)
    model = MultinomialProbit(kernels, labels)
    q = ascend(model, RUN, {"max_iterations": 3000, "tolerance": 1e-13})
    beta = np.linspace(0, 1, 200_001)[1:-1]
    f = kernels @ q.W.T
    residual = q.y - f[1]
    slope = f[0] - f[1]
    log_p = -0.5 * (beta**2 * np.sum(slope**2) - 2 * beta * np.sum(residual * slope))
    rho = q.rho_mean
    log_p += (rho[0] - 1) * np.log(beta) + (rho[1] - 1) * np.log1p(-beta)
    p = np.exp(log_p - log_p.max())
    np.testing.assert_allclose(q.weights[0], p @ beta / p.sum(), atol=2e-3)


def test_draws_have_the_moments_of_the_factors():
    kernels, labels = problem(4, 2, 3, n_obs=18)
    model = MultinomialProbit(kernels, labels, tau=2.0, upsilon=0.7)
    state = ascend(model, RUN, {"max_iterations": 30, "tolerance": 1e-3, "starts": 3})
    drawn = draws(model, state, 4000, np.random.default_rng(0))
    assert set(drawn) == {"rho", "beta", "zeta", "W"}
    assert_mean(drawn["W"], state.W)
    assert_mean((drawn["W"] - state.W) ** 2, state.W_var)
    assert_mean(1 / drawn["zeta"], (model.tau + 0.5) / state.zeta_rate)


def test_the_highest_of_the_starts_is_taken():
    kernels, labels = problem(4, 2, 3, n_obs=18)
    model = MultinomialProbit(kernels, labels)
    settings = {"max_iterations": 4, "tolerance": 1e-300}
    best = ascend(model, RUN, settings | {"starts": 3})
    ends = [iterated(model, w, 4)[1][-1] for w in np.array([[0.5, 0.5], [1, 0], [0, 1]])]
    assert best.objective == max(ends)
    random = ascend(model, RUN, settings | {"begin": "random"})
    assert abs(random.objective - ends[0]) > 1e-6
