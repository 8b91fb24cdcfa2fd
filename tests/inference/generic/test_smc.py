"""Sequential Monte Carlo starts at the prior given the data, and ends at the posterior."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import kernelzoo as kz
from family import ALPHA, assert_mean
from kernelzoo.inference.engine.paper import identified
from kernelzoo.inference.generic import _prior_population

QUIET = {"random_seed": 3, "progressbar": False, "log_likelihood": False}
KERNELS = ["IMH", "MH"]

# What a chain is judged on, where that leaves out matrices: of these the draws are kept.
MATRICES = {
    "WishartCompletion": ["K21", "K22", "B"],
    "DiagonalWishartCompletion": ["K21", "K22", "lambda"],
    "WishartKernelMixture": ["K21", "K22", "B"],
    "MutualKernelCompletion": ["Q_far", "M"],
}


def constrained(model, population):
    """Free variables (draw, ...) of points in unconstrained coordinates."""
    values = {}
    for rv in model.free_RVs:
        points = population[model.rvs_to_values[rv].name]
        transform = model.rvs_to_transforms[rv]
        values[rv.name] = (
            points if transform is None else transform.backward(points).eval(mode="FAST_COMPILE")
        )
    return values


def test_the_population_is_the_prior_given_the_data():
    with pm.Model() as model:
        data = pm.Data("data", [100.0, 200.0])
        scale = pm.HalfNormal("scale")
        y = pm.Normal("y", 0, scale, observed=data)
        pm.Normal("after", y[1], 1)
        labels = pm.Bernoulli("labels", 0.5, observed=[1, 0, 1])
        pm.Normal("count", labels.sum(), 0.1)
    for observed in ([100.0, 200.0], [-3.0, 7.0]):
        pm.set_data({"data": observed}, model=model)
        population = _prior_population(model, 500, np.random.default_rng(0))
        assert_mean(population["after"], observed[1])
        assert_mean(population["count"], 2)
        assert_mean(np.exp(population["scale_log__"]), np.sqrt(2 / np.pi))
    assert _prior_population(model, 1, np.random.default_rng(0))["after"].shape == (1,)


def test_a_likelihood_that_is_never_a_number_is_an_error():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", pt.log(-(x**2) - 1), 1, observed=1.0)
    with pytest.raises(ValueError, match=r"only 0 of \d+ have a finite prior density"):
        _prior_population(model, 500, np.random.default_rng(0))


def test_the_population_of_a_completion_is_one_of_its_blocks_together():
    """Each block is drawn given the same draws of the others, and given K11 as observed."""
    model, n = kz.WishartCompletion.example(), 700
    x = constrained(model, _prior_population(model, n, np.random.default_rng(1)))
    K11, theta = model.K11_values, model.theta
    coefficients = np.linalg.solve(theta[:3, :3], theta[:3, 3:]).T
    rows = np.linalg.cholesky(x["Sigma22_1"])
    of_B = np.linalg.solve(rows, x["B"] - coefficients) @ np.linalg.cholesky(theta[:3, :3])
    columns = np.linalg.inv(np.linalg.cholesky(K11)).T
    of_K21 = np.linalg.solve(rows, x["K21"] - x["B"] @ K11) @ columns
    for standard in (of_B, of_K21):
        assert_mean(standard, 0)
        assert_mean(standard**2, 1)
    whitened = np.linalg.solve(x["Sigma22_1"], x["K22_1"])
    assert_mean(np.trace(whitened, axis1=1, axis2=2), 2 * (model.r - 3))


def assert_same_law(found, reference, names):
    """How often each chain exceeds the reference's quantiles; chains are independent."""
    z, chains = [], found.sizes["chain"]
    for name in names:
        values = found[name].transpose("chain", "draw", ...).values
        truth = reference[name].transpose("chain", "draw", ...).values
        levels = np.quantile(truth, [0.05, 0.25, 0.5, 0.75, 0.95], axis=(0, 1))
        for level in levels:
            below = values < level
            known = az.convert_to_dataset({"x": (truth < level).astype(float)})
            frequency = below.mean(1)
            error = frequency.std(0, ddof=1) / np.sqrt(chains)
            known_error = az.mcse(known)["x"].values
            z.append(
                (frequency.mean(0) - known["x"].mean(("chain", "draw")).values)
                / np.hypot(error, known_error)
            )
    z = np.concatenate([np.ravel(values) for values in z])
    bound = stats.t.isf(ALPHA / (2 * z.size), chains - 1)
    assert np.abs(z).max() < bound, f"{np.abs(z).max():.1f} of {z.size}; the bound is {bound:.1f}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_smc_completes_a_kernel_of_two_objects(kernel):
    """A population with simulated observations doubles the spread of K21 (random walk)."""
    model = kz.WishartCompletion([[1.0, 0.5], [0.5, 1.0]], [[0.05]], r=6, eta=9)
    options = QUIET | {"var_names": ["K21", "K22"]}
    exact = kz.fit(model, "exact", draws=20_000, **options)
    found = kz.fit(model, kz.SMC(kernel=kernel), draws=500, chains=12, cores=1, **options)
    assert_same_law(found["posterior"], exact["posterior"], ["K21", "K22"])
    # Another population's evidence is off by 0.06.
    assert abs(found.attrs["log_evidence"] - kz.log_evidence(model)) < 0.03


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [model.__name__ for model in kz.MODELS])
def test_smc_agrees_with_draws_from_the_posterior(name):
    model = {model.__name__: model for model in kz.MODELS}[name].example()
    if name == "MultinomialProbit":
        # Its example has more coordinates than particles cover.
        rng = np.random.default_rng(5)
        functions = kz.kernels.as_stack(rng.normal(size=(2, 8, 2)))
        model = kz.MultinomialProbit(functions, np.arange(8) % 2, tau=2.0)
    options = QUIET | ({"var_names": MATRICES[name]} if name in MATRICES else {})
    exact = kz.Exact().why_not(model) is None
    draws = {"exact": 10_000} if exact else {"gibbs": 3_000}
    ((engine, size),) = draws.items()
    reference = kz.fit(model, engine, draws=size, chains=4, cores=1, **options)
    for kernel in KERNELS:
        found = kz.fit(model, kz.SMC(kernel=kernel), draws=500, chains=12, cores=1, **options)
        if name in MATRICES:
            judged = found["posterior"], reference["posterior"]
        else:
            judged = identified(found, model), identified(reference, model)
        assert_same_law(*judged, list(judged[0].data_vars))


def test_draws_that_the_data_rule_out_count_in_the_evidence():
    """Nine tenths of the prior cannot have made the observation; without them it would be 0.05."""
    with pm.Model() as model:
        theta = pm.Uniform("theta", 0, 1)
        pm.Uniform("y", 0, theta, observed=0.9)
    result = kz.fit(model, "smc", draws=2000, chains=2, cores=1, random_seed=1, progressbar=False)
    truth = np.log(-np.log(0.9))
    # One part in e^2.25 of 4,000 particles survives: the estimate has a relative error of .046.
    assert abs(result.attrs["log_evidence"] - truth) < 4.5 * 0.046


def conjugate():
    """Twenty observations of a normal mean, and the mean, sd and log evidence that they have."""
    y = np.random.default_rng(0).normal(1, 1, 20)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 3), 1, observed=y)
    precision = 20 + 1 / 9
    evidence = stats.multivariate_normal.logpdf(y, cov=np.eye(20) + 9)
    return model, y.sum() / precision, precision**-0.5, evidence


def test_each_chain_starts_with_particles_of_its_own(monkeypatch):
    def begun(*args, start, **kwargs):
        first, second = (set(chain["mu"]) for chain in start)
        assert len(first) == len(second) == 20
        assert not first & second
        raise InterruptedError

    monkeypatch.setattr(pm, "sample_smc", begun)
    with pytest.raises(InterruptedError):
        kz.fit(conjugate()[0], "smc", draws=20, chains=2, cores=1, **QUIET)


def test_the_evidence_is_the_mean_over_the_chains_of_their_evidences():
    result = kz.fit(conjugate()[0], "smc", draws=50, chains=3, cores=1, **QUIET)
    logs = result["sample_stats"]["log_marginal_likelihood"].max("stage").values
    assert np.ptp(logs) > 0.1
    assert result.attrs["log_evidence"] == pytest.approx(np.log(np.exp(logs).mean()))
