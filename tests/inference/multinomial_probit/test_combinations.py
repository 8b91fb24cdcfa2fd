"""The rules of combination and kernel parameters from end to end: engines, predictions."""

import logging
from dataclasses import replace

import arviz as az
import numpy as np
import pytest

import kernelzoo as kz
from family import assert_frequencies, assert_z
from kernelzoo.inference.engine.paper import identified
from kernelzoo.inference.new_objects import _same_objects
from kernelzoo.models.combinations.products import FixedProduct, Product
from kernelzoo.models.combinations.sums import Binary, FixedWeights, Mean
from kernelzoo.models.kernels import Theta

COMMON = {"random_seed": 3, "progressbar": False, "log_likelihood": False}
RULES = {
    "mean": Mean(2.0, 1.0),
    "fixed": FixedWeights([0.4, 0.8]),
    "binary": Binary(),
    "product": Product(2.0, 2.0),
    "fixed product": FixedProduct([0.5, 1.2]),
}


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("pymc").setLevel(logging.ERROR)


def problem(rule, parametric, n_obs=12):
    rng = np.random.default_rng(7)
    labels = np.arange(n_obs) % 3
    centres = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
    X = centres[labels] + 0.8 * rng.normal(size=(n_obs, 2))
    X_new = centres[np.arange(6) % 3] + 0.8 * rng.normal(size=(6, 2))
    first = Theta(3.0, 4.0) if parametric else 0.5
    kernels = kz.gaussian(first) | kz.gaussian(0.05)
    # A basis of four objects keeps the chains short.
    model = kz.MultinomialProbit(
        kernels(X, X[:4]), labels, tau=3.0, upsilon=1.0, combination=RULES[rule]
    )
    return model, kernels(X_new, X[:4])


CASES = [(rule, parametric) for rule in RULES for parametric in (False, True)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rule", "parametric"), CASES)
def test_engines_and_predictions(rule, parametric):
    """Draws of all variables, and probabilities that are those of the draws, one by one."""
    model, kernels_new = problem(rule, parametric)
    for engine, options in (
        (kz.VB(max_iterations=5, starts=1), {"draws": 40}),
        (kz.Gibbs(), {"draws": 20, "tune": 20, "chains": 2, "cores": 1}),
    ):
        result = kz.fit(model, engine, **options, **COMMON)
        posterior = result["posterior"].to_dataset().stack(sample=("chain", "draw"))
        assert set(posterior.data_vars) == {rv.name for rv in model.free_RVs}
        assert all(np.isfinite(posterior[name]).all() for name in posterior.data_vars)
        predictions = kz.predict(model, result, kernels_new, keep_draws=True)
        assert_predicts(model, posterior, kernels_new, predictions)
        compared = {"theta", "beta"} & set(posterior.data_vars)
        assert set(identified(result)) == compared | (set() if parametric else {"contrast"})


def assert_predicts(model, posterior, kernels_new, predictions):
    """Frequencies of the largest of simulated utilities, for one draw of the posterior."""
    each = predictions["probability_draws"].stack(sample=("chain", "draw"))
    np.testing.assert_allclose(predictions["probability"], each.mean("sample"))
    draw = posterior.isel(sample=5)
    K = kernels_new
    if model.kernel_source.parameters:
        K = kernels_new.evaluate(draw["theta"].values)
    beta = draw["beta"].values if "beta" in draw else model["beta"].get_value()
    rule = model.combination
    if isinstance(rule, (Product, FixedProduct)):
        composite = np.prod([k**b for k, b in zip(np.asarray(K), beta, strict=True)], axis=0)
    else:
        composite = sum(b * k for k, b in zip(np.asarray(K), beta, strict=True))
    f = composite @ draw["W"].values.T
    y = f + np.random.default_rng(1).normal(size=(20_000, *f.shape))
    won = (y.argmax(-1)[..., None] == np.arange(3)).sum(axis=0)
    exact = each.isel(sample=5).transpose("obs", "class").values
    assert_frequencies(won, len(y), exact)
    # Classes of one another are told apart, wherever their probabilities differ.
    with pytest.raises(AssertionError, match="binomial"):
        assert_frequencies(won, len(y), np.roll(exact, 1, axis=1))


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.5, 1 - 1e-12, 1.0])
def test_frequencies_are_bounded_at_both_ends(p):
    """None and all of the trials are as likely as they are; a tenth of them off never is."""
    n = 20_000
    assert_frequencies(np.array([round(n * p)]), n, p)
    off = round(n * p) + (n // 10 if p < 0.6 else -n // 10)
    with pytest.raises(AssertionError, match="binomial"):
        assert_frequencies(np.array([off]), n, p)


@pytest.mark.filterwarnings("ignore:VB did not converge")
@pytest.mark.parametrize("parametric", [False, True])
def test_kernels_of_new_objects_are_checked(parametric):
    model, _ = problem("product", parametric)
    result = kz.fit(model, kz.VB(max_iterations=2, starts=1), draws=3, **COMMON)
    with pytest.raises(ValueError, match="'kernels_new' argument of predict"):
        kz.predict(model, result, None)
    other = (kz.gaussian(Theta(1.0, 1.0)) | kz.gaussian(0.05)).normalize("unit")
    with pytest.raises(ValueError, match="kernels"):
        kz.predict(model, result, other(np.ones((3, 2)), np.zeros((4, 2))))


@pytest.mark.filterwarnings("ignore:VB did not converge")
def test_kernels_with_parameters_of_other_objects_are_refused():
    """The parameters' names do not tell the training objects."""
    model, kernels_new = problem("product", True)
    result = kz.fit(model, kz.VB(max_iterations=2, starts=1), draws=3, **COMMON)
    (first,) = kernels_new.learned
    for columns in (first.columns + 0.1, first.columns[:3]):
        other = replace(kernels_new, learned=(replace(first, columns=columns),))
        message = r"'kernels_new' argument .* Got other training objects of gaussian"
        with pytest.raises(ValueError, match=message):
            kz.predict(model, result, other)
    kernels = kz.gaussian(Theta(3.0, 4.0)).normalize("trace") | kz.gaussian(0.05)
    other = kernels(first.rows, first.columns)
    with pytest.raises(ValueError, match=r"normalised as .*not at all.* Got gaussian: trace"):
        kz.predict(model, result, other)


@pytest.mark.filterwarnings("ignore:VB did not converge")
def test_training_objects_are_the_same_up_to_rounding():
    """Stored in single precision, or scaled anew; a feature of small numbers is not rounding."""
    model, kernels_new = problem("mean", True)
    result = kz.fit(model, kz.VB(max_iterations=2, starts=1), draws=3, **COMMON)
    (first,) = kernels_new.learned
    exact = kz.predict(model, result, kernels_new)["probability"]
    for columns in (first.columns.astype(np.float32), np.nextafter(first.columns, np.inf)):
        rounded = replace(kernels_new, learned=(replace(first, columns=columns),))
        p = kz.predict(model, result, rounded)["probability"]
        np.testing.assert_allclose(p, exact, rtol=0, atol=1e-5)
    own = replace(first, columns=first.columns * [1.0, 1e-9])
    moved = replace(own, columns=own.columns * [1.0, 1.001])
    assert not _same_objects(moved, own)
    far = replace(first, columns=first.columns + 1e8)
    assert not _same_objects(replace(far, columns=far.columns[::-1]), far)
    assert _same_objects(replace(far, columns=np.nextafter(far.columns, np.inf)), far)


def test_reasons_of_engines_for_discrete_weights():
    model, _ = problem("binary", False)
    reasons = kz.engines(model).frame["reason"]
    assert reasons["Gibbs"] == ""
    assert reasons["VB"] == ""
    assert "beta is discrete" in reasons["NUTS"]


def moments(result, transform):
    values = transform(result["posterior"].to_dataset()).to_dataset(name="x")
    mean = values["x"].mean(("chain", "draw"))
    return mean, az.mcse(values, method="mean")["x"], az.ess(values, method="mean")["x"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rule", "parametric"), [("product", False), ("mean", True)])
def test_samplers_agree(rule, parametric):
    """NUTS on the marginal declaration against Gibbs with utilities."""
    model, _ = problem(rule, parametric)
    nuts = kz.fit(model, "nuts", draws=1500, tune=1000, chains=2, cores=1, **COMMON)
    gibbs = kz.fit(model, kz.Gibbs(), draws=15_000, tune=2_000, chains=2, cores=1, **COMMON)

    def bounded(name):
        return lambda posterior: np.arctan(np.log(posterior[name]))

    def contrasts(posterior):
        difference = posterior["W"].isel({"class": 0}) - posterior["W"].isel({"class": 1})
        return np.arctan(difference)

    learned = ["beta", "pi"] if rule == "product" else ["beta", "theta"]
    for transform in (contrasts, *(bounded(name) for name in learned)):
        (a, a_error, a_ess), (b, b_error, b_ess) = (
            moments(result, transform) for result in (nuts, gibbs)
        )
        assert min(float(a_ess.min()), float(b_ess.min())) > 100
        assert_z(((a - b) / np.hypot(a_error, b_error)).values)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_nuts_runs_on_products_with_parameters():
    model, kernels_new = problem("product", True)
    result = kz.fit(model, "nuts", draws=60, tune=60, chains=1, cores=1, **COMMON)
    assert set(result["posterior"].data_vars) == {"theta", "pi", "chi", "beta", "zeta", "W"}
    assert np.isfinite(kz.predict(model, result, kernels_new)["probability"]).all()
