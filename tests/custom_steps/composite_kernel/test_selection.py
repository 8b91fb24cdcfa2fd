"""Selections of kernels: the sweep keeps the declaration's joint law, and finds its posterior."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_ks, assert_z
from kernelzoo.custom_steps.composite_kernel import steps as composite_sweep
from kernelzoo.custom_steps.composite_kernel.steps import CompositeKernelGibbs
from kernelzoo.models.combinations import Binary, DirichletWeights

SIGMA, VARSIGMA, RHO, VARRHO = 2.0, 1.0, 3.0, 1.0
PROBABILITY = (0.3, 0.6, 0.5)


def declared(cls, n_obs=4, n_basis=2, **options):
    """Three kernels of random basis functions, whose selection the data hardly tell."""
    rng = np.random.default_rng(2)
    stack, y = rng.normal(size=(3, n_obs, n_basis)), rng.normal(size=n_obs)
    kernels = kz.kernels.as_stack(stack)
    rule = Binary(PROBABILITY, empty=options.pop("empty", False))
    if cls is kz.CompositeKernelRegression:
        return cls(kernels, y, combination=rule, sigma=SIGMA, varsigma=VARSIGMA, rho=RHO, **options)
    return cls(kernels, y > 0, combination=rule, sigma=SIGMA, varsigma=VARSIGMA, **options)


def response_of(state, model, rng):
    """Targets, or labels less one half, given the state; by the paper's formula."""
    composite = np.tensordot(state.beta, model["K"].get_value(), axes=1)
    f = composite @ state.alpha[-composite.shape[1] :] + (state.alpha[0] if model.bias else 0.0)
    if isinstance(model, kz.CompositeKernelRegression):
        return f + rng.standard_normal(len(f)) / np.sqrt(state.gamma)
    return (rng.random(len(f)) < 1 / (1 + np.exp(-f))) - 0.5


def functionals(state, response):
    selected, shrunk = state.beta.astype(float), np.arcsinh(state.alpha)
    log_phi, t = np.log(state.phi), np.arcsinh(response)
    pairs = [selected[0] * selected[1], selected[1] * selected[2], selected.prod()]
    scalars = [np.log(state.gamma), np.log(state.gamma) * selected[0], t @ t, (t @ t) * selected[1]]
    products = np.outer(selected, np.concatenate([shrunk**2, log_phi])).ravel()
    return np.concatenate([selected, pairs, log_phi, shrunk, shrunk**2, products, t, scalars])


def joint_test(model, replicates=700, block=2, seed=1):
    """As in `test_sweep`, from prior draws of the declaration."""
    rng = np.random.default_rng(seed)
    quick = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "random_seed": seed}
    prior = pm.sample_prior_predictive(replicates, model=model, **quick)["prior"]
    step = CompositeKernelGibbs(model=model)
    regression = isinstance(model, kz.CompositeKernelRegression)
    likelihood = composite_sweep.Regression if regression else composite_sweep.Classification
    drawn = {rv.name: prior[rv.name].values[0] for rv in model.free_RVs}
    redraw, differences, last = frozenset(drawn), [], []
    for i in range(replicates):
        values = {name: value[i] for name, value in drawn.items()}
        state = composite_sweep.State(**{**step._constants, **values})
        start = functionals(state, response_of(state, model, rng))
        for _ in range(2):
            response = response_of(state, model, rng)
            state, _ = composite_sweep.sweep(
                *(state, likelihood(response), step._design, step._prior, rng),
                redraw=redraw,
                block=block,
            )
        differences.append(functionals(state, response) - start)
        last.append(state)
    differences = np.array(differences)
    differences = differences[:, differences.any(axis=0)]
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    for column in np.array([state.phi for state in last]).T:
        assert_ks(column, stats.gamma(SIGMA, scale=1 / VARSIGMA).cdf)


@pytest.mark.parametrize("cls", [kz.CompositeKernelRegression, kz.CompositeKernelClassification])
@pytest.mark.parametrize(
    ("options", "block"),
    [({}, 2), ({"bias": False, "empty": True}, 1), ({"n_obs": 3, "n_basis": 4}, 3)],
    ids=["bias", "no bias, empty", "wide"],
)
def test_joint_law_is_invariant(cls, options, block):
    joint_test(declared(cls, **options), block=block)


@pytest.mark.slow
def test_stale_regression_weights_are_detected(monkeypatch):
    """Planted bug: alpha is drawn given the selection before its move."""
    correct = composite_sweep.conditional
    first = {}

    def stale(design, beta, terms, phi):
        law = correct(design, beta, terms, phi)
        if first.get("terms") is not terms:
            first.update(terms=terms, law=law)
        return SimpleNamespace(log_evidence=law.log_evidence, draw=first["law"].draw)

    monkeypatch.setattr(composite_sweep, "conditional", stale)
    with pytest.raises(AssertionError):
        joint_test(declared(kz.CompositeKernelRegression), 1_500)


def log_evidence(model, beta, nodes=24):
    """Log p(t | beta) of a regression: phi and gamma integrated out by Gauss-Legendre quantiles."""
    t, K = model.target_values, np.tensordot(beta, model["K"].get_value(), axes=1)
    features = np.column_stack([np.ones(len(t)), K]) if model.bias else K
    u, weight = np.polynomial.legendre.leggauss(nodes)
    u, weight = (u + 1) / 2, weight / 2
    phi = stats.gamma.ppf(u, SIGMA, scale=1 / VARSIGMA)
    gamma = stats.gamma.ppf(u, RHO, scale=1 / VARRHO)
    total = 0.0
    for chosen in product(range(nodes), repeat=features.shape[1]):
        scaled = features / np.sqrt(phi[list(chosen)])
        covariance = scaled @ scaled.T + np.eye(len(t)) / gamma[:, None, None]
        half = np.linalg.solve(covariance, t[:, None])[..., 0] @ t
        log_p = -0.5 * (half + np.linalg.slogdet(2 * np.pi * covariance)[1])
        total += weight[list(chosen)].prod() * (weight @ np.exp(log_p))
    return np.log(total)


def enumerated(model, empty):
    """Posterior probability of each kernel, from all selections."""
    p, log_p, states = np.array(PROBABILITY), [], list(product((0, 1), repeat=3))
    states = np.array(states if empty else states[1:])
    for state in states:
        prior = state @ np.log(p) + (1 - state) @ np.log1p(-p)
        log_p.append(prior + log_evidence(model, state))
    posterior = np.exp(log_p - np.logaddexp.reduce(log_p))
    return posterior @ states


@pytest.mark.parametrize(("empty", "collapsed"), [(False, False), (True, True)])
def test_inclusion_is_that_of_all_selections_enumerated(empty, collapsed):
    model = declared(kz.CompositeKernelRegression, 6, 1, empty=empty, collapsed=collapsed)
    run = {"draws": 1_200, "tune": 50, "chains": 1, "log_likelihood": False}
    found = kz.inclusion(kz.fit(model, kz.Gibbs(), **run, random_seed=1, progressbar=False))
    exact = enumerated(model, empty)
    # The bug to be found: the prior probabilities.
    assert np.abs(exact - PROBABILITY).max() > 0.1
    assert_z((found["probability"] - exact) / found["mcse"])


@pytest.mark.parametrize("varphi", [0.2, 0.6])
def test_sparse_weights_exceed_a_threshold_as_often_as_quadrature_says(varphi):
    rng = np.random.default_rng(2)
    stack = rng.normal(size=(2, 6, 1))
    y = 0.6 * stack.sum(0)[:, 0] + 0.8 * rng.normal(size=6)
    options = {"bias": False, "sigma": SIGMA, "varsigma": VARSIGMA, "rho": RHO, "varrho": VARRHO}
    rule = DirichletWeights(varphi=varphi)
    kernels = kz.kernels.as_stack(stack)
    model = kz.CompositeKernelRegression(kernels, y, combination=rule, **options)
    first = stats.beta(varphi, varphi).ppf((np.arange(200) + 0.5) / 200)
    p = np.exp([log_evidence(model, np.array([b, 1 - b])) for b in first])
    exact = np.array([p @ (first > 0.3), p @ (1 - first > 0.3)]) / p.sum()
    run = {"draws": 1_200, "tune": 50, "chains": 1, "log_likelihood": False}
    result = kz.fit(model, kz.Gibbs(), **run, random_seed=1, progressbar=False)
    found = kz.inclusion(result, threshold=0.3)
    # The quadrature's step adds to the error.
    assert_z((found["probability"] - exact) / np.hypot(found["mcse"], 1 / 400))


def test_selections_do_not_move_given_alpha():
    model = declared(kz.CompositeKernelRegression)
    with pytest.raises(ValueError, match=r"'scheme' argument .* must be 'marginal' for Binary"):
        CompositeKernelGibbs(model=model, scheme="paper")
    with pytest.raises(ValueError, match="'block' argument of CompositeKernelGibbs"):
        CompositeKernelGibbs(model=model, block=0)
