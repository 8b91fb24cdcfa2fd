"""The declaration: its density, its dims, what PyMC does with it, and what it refuses."""

import re

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

from family import assert_mean, assert_z
from kernelzoo import MultinomialProbit, gaussian, linear
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.combinations import FixedWeights, Mean
from kernelzoo.models.kernels import as_stack
from probit_moments import log_probability


@pytest.fixture(scope="module")
def model():
    return MultinomialProbit.example()


def reference_log_density(model, rho, beta, zeta, W):
    """The density as the paper writes it, from scipy's distributions."""
    mu, lam = model.combination.mu, model.combination.lam
    f = np.einsum("s,snm,cm->nc", beta, model.design, W)
    return (
        stats.gamma.logpdf(rho, mu, scale=1 / lam).sum()
        + stats.dirichlet.logpdf(beta, rho)
        + stats.invgamma.logpdf(zeta, model.tau, scale=model.upsilon).sum()
        + stats.norm.logpdf(W, 0, np.sqrt(zeta)).sum()
        + log_probability(f, model.label_codes).sum()
    )


@pytest.mark.usefixtures("quick_compilation")
def test_density_is_the_papers(model):
    example = MultinomialProbit(
        model.design, model.label_codes, combination=Mean(2.0, 0.7), tau=1.5, upsilon=0.4
    )
    prior = pm.sample_prior_predictive(5, model=example, random_seed=1)["prior"]
    draws = {name: prior[name].values[0] for name in ("rho", "beta", "zeta", "W")}
    expected = [
        reference_log_density(example, *(draws[v][i] for v in ("rho", "beta", "zeta", "W")))
        for i in range(5)
    ]
    # PyMC's log(2 pi) in single precision adds some 1e-9 for each of the 36 regressors.
    np.testing.assert_allclose(log_density(example, draws), expected, atol=5e-7)


def test_dims_and_coords_name_everything():
    kernels = {"near": np.eye(3), "far": np.ones((3, 3))}
    stack = as_stack({s: pd.DataFrame(K, list("xyz"), list("xyz")) for s, K in kernels.items()})
    model = MultinomialProbit(stack, ["dog", "cat", "dog"])
    assert model.named_vars_to_dims == {
        "K": ("kernel", "obs", "basis"),
        "labels": ("obs",),
        "rho": ("kernel",),
        "beta": ("kernel",),
        "zeta": ("class", "basis"),
        "W": ("class", "basis"),
        "t": ("obs",),
    }
    assert list(model.coords["kernel"]) == ["near", "far"]
    assert list(model.coords["obs"]) == ["x", "y", "z"]
    assert list(model.coords["class"]) == ["cat", "dog"]
    assert model.label_codes.tolist() == [1, 0, 1]


def test_prior_draws_follow_the_prior(model):
    prior = pm.sample_prior_predictive(4000, model=model, random_seed=2)["prior"]
    beta = prior["beta"].values[0]
    assert_mean(beta, 0.5)
    precision = 1 / prior["zeta"].values[0]
    assert_mean(precision, model.tau / model.upsilon)
    # W / sd is standard normal whatever zeta is; the coupling to zeta is what is tested.
    standardised = prior["W"].values[0] / np.sqrt(prior["zeta"].values[0])
    assert_mean(standardised, 0.0)
    assert_mean(standardised**2, 1.0)


def test_single_kernel_and_fixed_weights_have_no_free_weights():
    gram = np.eye(4)
    labels = [0, 1, 0, 1]
    single = MultinomialProbit(gram, labels)
    assert [rv.name for rv in single.free_RVs] == ["zeta", "W"]
    fixed = MultinomialProbit(
        {"a": gram, "b": 2 * gram}, labels, combination=FixedWeights([0.25, 0.5])
    )
    assert [rv.name for rv in fixed.free_RVs] == ["zeta", "W"]
    point = {"zeta": np.ones((1, 2, 4)), "W": np.ones((1, 2, 4))}
    other = MultinomialProbit(1.25 * gram, labels)
    np.testing.assert_allclose(log_density(fixed, point), log_density(other, point))


@pytest.mark.usefixtures("quick_compilation")
def test_basis_expansion_may_be_narrower_than_the_data():
    features = np.random.default_rng(0).normal(size=(9, 3))
    model = MultinomialProbit(as_stack(features), np.arange(9) % 3)
    assert model["W"].type.ndim == 2
    assert model.design.shape == (1, 9, 3)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


def test_pymc_works_on_it_untouched(model):
    """Sampling and what follows it; engines call PyMC for the rest."""
    with model:
        trace = pm.sample(
            5, tune=5, chains=2, cores=1, random_seed=1, progressbar=False, nuts_sampler="pymc"
        )
        pm.compute_log_likelihood(trace, progressbar=False)
        pm.sample_posterior_predictive(
            trace, random_seed=1, progressbar=False, extend_inferencedata=True
        )
    assert trace["log_likelihood"]["t"].dims == ("chain", "draw", "obs")
    assert trace["posterior_predictive"]["t"].dims == ("chain", "draw", "obs")
    assert set(np.unique(trace["posterior_predictive"]["t"])) <= {0, 1, 2}
    f = np.einsum(
        "s,snm,cm->nc",
        trace["posterior"]["beta"].values[0, 0],
        model.design,
        trace["posterior"]["W"].values[0, 0],
    )
    np.testing.assert_allclose(
        trace["log_likelihood"]["t"].values[0, 0], log_probability(f, model.label_codes), atol=1e-7
    )


def test_graph_without_graphviz_has_every_variable(model):
    nodes = pm.model_to_mermaid(model).partition("%% Edges")[0].splitlines()
    assert {re.match(r"\w+", node)[0] for node in nodes if "~" in node} == {*model.named_vars}


def test_graph_shows_the_plates(model):
    pytest.importorskip("graphviz")
    source = model.to_graphviz().source
    for name in ("rho", "beta", "zeta", "W", "labels"):
        assert name in source


@pytest.mark.usefixtures("quick_compilation")
def test_new_objects_by_set_data():
    """What predict computes from draws is what PyMC draws for new data."""
    example = MultinomialProbit.example()
    rng = np.random.default_rng(5)
    n_new, n_draws = 2, 3000
    new = rng.normal(size=(2, n_new, 12))
    W = rng.normal(size=(3, 12))
    beta = np.array([0.3, 0.7])
    posterior = xr.Dataset(
        {
            "W": (("chain", "draw", "class", "basis"), np.broadcast_to(W, (1, n_draws, 3, 12))),
            "zeta": (("chain", "draw", "class", "basis"), np.ones((1, n_draws, 3, 12))),
            "beta": (("chain", "draw", "kernel"), np.broadcast_to(beta, (1, n_draws, 2))),
            "rho": (("chain", "draw", "kernel"), np.ones((1, n_draws, 2))),
        }
    )
    with example:
        pm.set_data({"K": new, "labels": np.zeros(n_new, int)}, coords={"obs": ["p", "q"]})
        drawn = pm.sample_posterior_predictive(
            posterior,
            var_names=["t"],
            freeze_vars=["rho", "beta", "zeta", "W"],
            predictions=True,
            random_seed=1,
            progressbar=False,
        )["predictions"]["t"].values[0]
    f = np.einsum("s,snm,cm->nc", beta, new, W)
    p = np.exp([log_probability(f, np.full(n_new, c)) for c in range(3)]).T
    frequency = np.stack([(drawn == c).mean(0) for c in range(3)], axis=1)
    assert_z((frequency - p) / np.sqrt(p * (1 - p) / n_draws + 1e-12))


@pytest.mark.usefixtures("quick_compilation")
def test_survives_pickling(model):
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert type(copy) is MultinomialProbit
    assert copy.combination == model.combination
    point = model.initial_point()
    np.testing.assert_allclose(copy.compile_logp()(point), model.compile_logp()(point))


GRAM = np.eye(4)
LABELS = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.array([[1.0, 2.0], [2.0, 1.0]]), [0, 1]), "positive semidefinite.*eigenvalue of -1"),
        ((np.array([[1.0, 0.5], [0.1, 1.0]]), [0, 1]), "symmetric"),
        ((np.full((4, 4), np.nan), LABELS), "finite"),
        ((np.where(np.eye(4) > 0, np.inf, 0), LABELS), "finite"),
        (({"a": GRAM, "b": np.eye(3)}, LABELS), "shape"),
        (({}, LABELS), "kernels"),
        ((np.zeros(4), LABELS), "kernels"),
        ((GRAM, [0, 1, 0]), "'labels'.*length 4"),
        ((GRAM, [0, 0, 0, 0]), "at least two classes"),
        ((GRAM, [[0, 1], [0, 1]]), "one-dimensional"),
        ((GRAM, [0, 1, None, 1]), "missing"),
        ((GRAM, [0.0, 1.0, np.nan, 1.0]), "missing"),
    ],
)
def test_bad_kernels_and_labels_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        MultinomialProbit(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.0}, "'tau'.*above 0"),
        ({"tau": -1.0}, "'tau'.*above 0"),
        ({"upsilon": np.nan}, "'upsilon'.*above 0"),
        ({"upsilon": "one"}, "'upsilon'.*above 0"),
        ({"combination": "maen"}, "'combination'.*nearest is 'mean'"),
        ({"classes": [0, 2]}, "unseen class 1"),
        ({"classes": [0]}, "at least two distinct classes"),
        ({"classes": [0, 0, 1]}, "distinct"),
        ({"combination": FixedWeights([0.5, 0.5])}, "1 number"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultinomialProbit(GRAM, LABELS, **options)


@pytest.mark.parametrize("weights", [[-0.1, 1.1], [0.0, 0.0], [np.nan, 1.0], [[1.0]]])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match="'weights' argument of FixedWeights"):
        FixedWeights(weights)


@pytest.mark.parametrize("prior", [{"mu": 0.0}, {"lam": -1.0}])
def test_bad_concentration_priors_are_refused(prior):
    with pytest.raises(ValueError, match="of Mean must be"):
        Mean(**prior)


def test_kernels_and_spec_agree_with_the_declaration():
    X = np.random.default_rng(1).normal(size=(6, 2))
    kernels = gaussian(0.5) | linear()
    model = MultinomialProbit(kernels(X), np.arange(6) % 2)
    np.testing.assert_allclose(model.design[1], X @ X.T)
    assert list(model.coords["kernel"]) == list(kernels(X)["kernel"].values)
