"""k-hat tells a good approximation from one that is too narrow."""

import warnings
from typing import ClassVar

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import norm
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine.convergence import k_hat_of, k_hat_of_ratios, pareto_k
from kernelzoo.inference.engine.engine import Engine


def result(sd):
    draws = np.random.default_rng(1).normal(0, sd, size=(1, 4000))
    stats = {"lp": norm.logpdf(draws), "lq": norm.logpdf(draws, 0, sd)}
    return DataTree.from_dict(
        {"sample_stats": xr.Dataset({k: (("chain", "draw"), v) for k, v in stats.items()})}
    )


def test_k_hat_is_low_for_a_wider_approximation():
    assert pareto_k(result(1.5)) < 0.3


def test_k_hat_is_high_for_a_narrower_approximation():
    """The ratio p/q of N(0, 1) to N(0, s) has Pareto tail index 1 - s^2 for s < 1."""
    assert pareto_k(result(0.45)) > 0.6


def test_k_hat_of_densities_that_are_not_finite_is_infinite():
    tree = result(1.0)
    tree["sample_stats"]["lp"][0, 3] = -np.inf
    assert pareto_k(tree) == np.inf


@pytest.mark.parametrize("ties", [1000, 3000])
def test_k_hat_of_equal_largest_ratios_is_infinite(ties):
    """Bug: ArviZ refuses to fit a Pareto tail to them."""
    ratios = np.random.default_rng(1).normal(size=4000)
    ratios[:ties] = 10.0
    assert k_hat_of_ratios(ratios) == np.inf


def test_results_without_a_density_have_none():
    assert np.isnan(pareto_k(DataTree.from_dict({"posterior": xr.Dataset()})))


def test_the_k_hat_of_a_result_is_the_engines_own():
    """Bug: Pathfinder gives one, and its result has no density of q."""
    tree = DataTree()
    tree.attrs["pareto_k"] = 0.9
    assert k_hat_of(tree) == 0.9
    assert k_hat_of(result(1.5)) == pareto_k(result(1.5))


# --- Warnings of fit ------------------------------------------------------------------------------


@pytest.fixture
def model():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), observed=1.0)
    return model


@pytest.fixture
def approximate(monkeypatch):
    """Engine whose results have a given k-hat."""
    monkeypatch.setattr(Engine, "registry", dict(Engine.registry))

    class Approximate(Engine):
        name: ClassVar[str] = "Approximate"
        kind = "vb"

        def __init__(self, k_hat):
            self.k_hat = k_hat

        def why_not(self, model):
            return None

        def run(self, model, run):
            tree = DataTree(xr.Dataset(attrs={"converged": "yes", "pareto_k": self.k_hat}))
            tree["posterior"] = DataTree(xr.Dataset({"x": (("chain", "draw"), np.zeros((1, 3)))}))
            return tree

    del Engine.registry["approximate"]
    return Approximate


@pytest.mark.parametrize("k_hat", [0.71, 4.1, np.inf])
def test_fit_warns_once_of_draws_that_are_no_stand_in(model, approximate, k_hat):
    with pytest.warns(kz.ApproximationWarning) as caught:
        fitted = kz.fit(model, approximate(k_hat), log_likelihood=False)
    assert fitted.attrs["pareto_k"] == k_hat
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith(f"The Pareto k-hat of Approximate is {k_hat:.2g}, above 0.7")
    assert "its predictions may be good" in text
    assert "are unreliable" in text
    # At the user's line, which filters by module go by.
    assert warning.filename == __file__


@pytest.mark.parametrize(("k_hat", "noted"), [(9.2, True), (0.71, True), (0.7, False)])
def test_a_result_says_what_has_converged(model, approximate, k_hat, noted):
    """Bug: converged "yes" beside a k-hat of 9.2, and no word of what each speaks of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kz.ApproximationWarning)
        fitted = kz.fit(model, approximate(k_hat), log_likelihood=False)
    assert fitted.attrs["converged"] == "yes"
    note = fitted.attrs.get("note", "")
    assert note.startswith("What has converged is the search") == noted
    assert (f"k-hat is {k_hat:.2g}" in note) == noted


@pytest.mark.parametrize("k_hat", [-0.2, 0.7, np.nan])
def test_fit_does_not_warn_of_usable_or_unknown_draws(model, approximate, k_hat):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kz.fit(model, approximate(k_hat), log_likelihood=False)


def test_the_warning_names_the_best_engine_that_samples_this_model(model, approximate):
    """From the table of engines, in two lines: users see it after every fit."""
    for declared, named in (
        (model, r'"nuts"\)\.$'),
        # SMC serves fewer coordinates.
        (kz.MultinomialProbit.example(), r'"gibbs"\)\.$'),
        (kz.WishartCompletion.example(), r'"exact"\)\.$'),
    ):
        with pytest.warns(kz.ApproximationWarning, match=rf"kz\.fit\(model, {named}"):
            kz.fit(declared, approximate(1.0), log_likelihood=False)
    with pytest.warns(kz.ApproximationWarning) as seen:
        kz.fit(declared, approximate(1.0), log_likelihood=False)
    assert len(str(seen[0].message)) < 200


def test_the_warning_can_be_silenced_by_its_class(model, approximate):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", kz.ApproximationWarning)
        kz.fit(model, approximate(1.0), log_likelihood=False)


@pytest.mark.parametrize(
    "engine",
    [
        kz.Laplace(),
        pytest.param(kz.ADVI(max_iterations=2000), marks=pytest.mark.slow),
        pytest.param(kz.Pathfinder(paths=2), marks=pytest.mark.slow),
    ],
    ids=lambda engine: engine.name,
)
def test_every_engine_of_approximations_warns(engine):
    """A funnel, which no Gaussian is like."""
    if isinstance(engine, kz.Pathfinder):
        pytest.importorskip("pymc_extras")
    with pm.Model() as funnel:
        width = pm.Normal("width", 0.0, 3.0)
        pm.Normal("x", 0.0, pm.math.exp(width), shape=4)
        pm.Normal("y", width, 3.0, observed=0.0)
    with pytest.warns(kz.ApproximationWarning, match=f"k-hat of {engine.name}"):
        kz.fit(funnel, engine, draws=1000, random_seed=1, progressbar=False)


def test_an_approximation_that_is_the_posterior_has_no_tail():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, observed=np.zeros(50))
    for seed in range(4):
        result = kz.fit(model, "laplace", draws=200, random_seed=seed, progressbar=False)
        assert result.attrs["pareto_k"] < 0
