"""One small problem, every engine: they agree within Monte Carlo error or their stated bias.

The quick suite compares the Gibbs sampler with the declaration in test_kernels_reference.
"""

import arviz as az
import numpy as np
import pytest

import kernelzoo as kz
from family import assert_z
from kernelzoo.inference.engine.paper import identified

QUIET = {"random_seed": 11, "progressbar": False, "log_likelihood": False}

# What mean field costs on this problem, in the reference's standard deviations: contrasts are
# drawn towards zero, their spread is a fraction of the truth, probabilities move by a few points.
VB_CONTRAST_BIAS = 0.8
VB_PROBABILITY_BIAS = 0.12


def problem():
    rng = np.random.default_rng(7)
    labels = np.arange(24) % 3
    centres = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
    X = centres[labels] + rng.normal(size=(24, 2))
    X_new = centres[np.arange(9) % 3] + rng.normal(size=(9, 2))
    kernels = (kz.gaussian(0.5) | kz.linear()).normalize("trace")
    model = kz.MultinomialProbit(
        kernels(X), labels, tau=3.0, upsilon=1.0, combination=kz.combinations.Mean(2.0, 1.0)
    )
    return model, kernels(X_new, X)


@pytest.fixture(scope="module")
def handwritten():
    model, kernels_new = problem()
    results = {
        "Gibbs": kz.fit(model, "gibbs", chains=2, draws=500, tune=100, cores=1, **QUIET),
        "VB": kz.fit(model, "vb", draws=2000, **QUIET),
    }
    return model, kernels_new, results


@pytest.fixture(scope="module")
def fits():
    model, kernels_new = problem()
    results = {
        "NUTS": kz.fit(model, "nuts", chains=2, draws=1000, tune=700, cores=1, **QUIET),
        "Gibbs": kz.fit(model, "gibbs", chains=2, draws=2_000, tune=300, cores=1, **QUIET),
    }
    return model, kernels_new, results


def mean_and_error(values):
    values = values.to_dataset(name="x")
    return (
        values["x"].mean(("chain", "draw")),
        az.mcse(values, method="mean")["x"],
        az.ess(values, method="mean")["x"],
    )


@pytest.mark.slow
@pytest.mark.parametrize("quantity", ["contrast", "beta"])
def test_samplers_agree_on_what_is_identified(fits, quantity):
    """Catches a Gibbs step that targets another posterior than the declaration's."""
    _, _, results = fits
    (a, a_error, a_ess), (b, b_error, b_ess) = (
        mean_and_error(identified(results[name])[quantity]) for name in ("NUTS", "Gibbs")
    )
    assert min(float(a_ess.min()), float(b_ess.min())) > 50
    assert_z(((a - b) / np.hypot(a_error, b_error)).values)


@pytest.mark.slow
def test_samplers_agree_on_spread(fits):
    """Squared deviations from a common centre: a wrong scale shows even when means agree."""
    _, _, results = fits
    samples = {name: identified(results[name])["contrast"] for name in ("NUTS", "Gibbs")}
    centre = samples["NUTS"].mean(("chain", "draw"))
    (a, a_error, _), (b, b_error, _) = (
        mean_and_error(abs(sample - centre)) for sample in samples.values()
    )
    assert_z(((a - b) / np.hypot(a_error, b_error)).values)


@pytest.mark.slow
def test_samplers_agree_on_predictions(fits):
    model, kernels_new, results = fits
    (a, a_error, _), (b, b_error, _) = (
        mean_and_error(
            kz.predict(model, results[name], kernels_new, keep_draws=True)["probability_draws"]
        )
        for name in ("NUTS", "Gibbs")
    )
    assert_z(((a - b) / np.hypot(a_error, b_error)).values)


def test_vb_stays_within_its_stated_bias(handwritten):
    model, kernels_new, results = handwritten
    vb, gibbs = (identified(results[name])["contrast"] for name in ("VB", "Gibbs"))
    sd = gibbs.std(("chain", "draw"))
    mean, error, _ = mean_and_error(gibbs)
    bias = abs(vb.mean(("chain", "draw")) - mean)
    assert float(((bias - 4 * error) / sd).max()) < VB_CONTRAST_BIAS
    # Mean field is overconfident: its spread never exceeds the posterior's.
    assert float((vb.std(("chain", "draw")) / sd).max()) < 1
    p = [kz.predict(model, results[name], kernels_new)["probability"] for name in ("VB", "Gibbs")]
    assert float(abs(p[0] - p[1]).max()) < VB_PROBABILITY_BIAS


def test_comparison_tells_the_same(handwritten):
    model, kernels_new, results = handwritten
    labels = np.arange(9) % 3
    comparison = kz.compare_engines(
        results, model=model, kernels_new=kernels_new, labels_new=labels, reference="Gibbs"
    )
    assert list(comparison.engines.index) == ["Gibbs", "VB"]
    assert comparison.variables.loc[("contrast", "VB"), "largest_sd_ratio"] < 1
    assert comparison.engines.loc["VB", "pareto_k"] > 0.7


@pytest.mark.slow
def test_comparison_says_that_samplers_agree(fits):
    model, _, results = fits
    comparison = kz.compare_engines(results, model=model, reference="Gibbs")
    assert comparison.variables.loc[("contrast", "NUTS"), "z"] < 6
