"""`Nested` on the composite-kernel models: exact answers, and what it refuses."""

import numpy as np
import pytest

import composite_fixture as fixture
import kernelzoo as kz
from family import assert_z
from kernelzoo.inference.nested import engine

MODELS = {"regression": fixture.regression, "classification": fixture.classification}
QUIET = {"progressbar": False, "log_likelihood": False}
ENGINE = kz.Nested(particles=200, nodes=24)
DRAWS = {"draws": 200} | QUIET
# Draws that are worth as many independent ones, at least.
WORTH = 100


@pytest.fixture(scope="module")
def results():
    return {name: kz.fit(model(), ENGINE, random_seed=3, **DRAWS) for name, model in MODELS.items()}


def functions(result):
    """The functions of beta_1 and alpha whose expectations `BruteForce` has."""
    draws = result["posterior"].isel(chain=0)
    beta = draws["beta"].values[:, 0]
    bias, slope = np.tanh(draws["alpha"].values).T
    return {
        "beta": beta,
        "beta squared": beta**2,
        "tanh bias": bias,
        "tanh slope": slope,
        "beta tanh slope": beta * slope,
    }


@pytest.mark.parametrize("name", MODELS)
def test_moments_and_evidence_are_those_of_brute_force(results, name):
    exact, result = fixture.brute_force(MODELS[name]()), results[name]
    for key, values in functions(result).items():
        assert_z((values.mean() - exact.moments[key]) / (values.std() / np.sqrt(WORTH)))
    # Four seeds missed the exact value by .03 to .43 with 300 particles.
    assert result.attrs["log_evidence"] == pytest.approx(exact.log_evidence, abs=0.7)
    assert result.attrs["converged"] == "yes"


def test_three_kernels_agree_with_prior_draws_weighted_by_the_likelihood():
    """Regression with one function: its evidence given the weights is an integral over alpha."""
    rng = np.random.default_rng(8)
    stack = rng.normal(size=(3, 6, 1))
    response = 1.5 * stack[2, :, 0] + 0.3 * rng.normal(size=6)
    rule = kz.combinations.DirichletWeights(2.0, 1.0)
    model = kz.CompositeKernelRegression(
        kz.kernels.kernel_stack(stack), response, combination=rule, bias=False, sigma=2.0, rho=2.0
    )
    result = kz.fit(model, ENGINE, random_seed=1, **DRAWS)
    rho = rng.gamma(2.0, size=(5_000, 3))
    g = rng.gamma(rho)
    beta = g / g.sum(axis=1, keepdims=True)
    xi = np.linspace(-8, 8, 201)
    alpha, width = np.sinh(xi), np.cosh(xi)
    prior = (1 + alpha**2 / 2) ** -2.5 * width
    residual = response - alpha[:, None, None] * (beta @ stack[:, :, 0])
    likelihood = (1 + 0.5 * np.sum(residual**2, axis=2)) ** -5.0
    weight = prior @ likelihood
    mean = weight @ beta / weight.sum()
    draws = result["posterior"]["beta"].values[0]
    ess = weight.sum() ** 2 / (weight @ weight)
    error = draws.std(axis=0) * np.sqrt(1 / WORTH + 1 / ess)
    assert_z((draws.mean(axis=0) - mean) / error)


def test_order_of_kernels_does_not_matter():
    stack, response = fixture.KERNELS, fixture.RESPONSE
    beta = []
    for order in ([0, 1], [1, 0]):
        model = kz.CompositeKernelRegression(stack[order], response, **fixture.OPTIONS)
        draws = kz.fit(model, ENGINE, random_seed=2, **DRAWS)["posterior"]["beta"].values[0]
        beta.append(draws[:, order])
    error = np.hypot(*(draws.std(axis=0) for draws in beta)) / np.sqrt(WORTH)
    assert_z((beta[0].mean(axis=0) - beta[1].mean(axis=0)) / error)


def test_seed_repeats_the_answer(results):
    again = kz.fit(fixture.regression(), ENGINE, random_seed=3, **DRAWS)
    assert again["posterior"].equals(results["regression"]["posterior"])
    other = kz.fit(fixture.regression(), ENGINE, random_seed=4, **DRAWS)
    assert not other["posterior"].equals(again["posterior"])


def test_a_known_concentration_is_not_drawn():
    rule = kz.combinations.DirichletWeights(varphi=1.0)
    model = kz.CompositeKernelRegression(fixture.KERNELS, fixture.RESPONSE, combination=rule)
    result = kz.fit(model, kz.Nested(particles=60, nodes=6), random_seed=1, draws=60, **QUIET)
    assert "varphi" not in result["posterior"]


def test_an_interrupted_fit_has_the_particles_there_are(monkeypatch):
    whole = engine.anneal

    def interrupted(*arguments):
        def advance(steps, b):
            if b > 0:
                raise KeyboardInterrupt

        return whole(*arguments[:-1], advance)

    monkeypatch.setattr(engine, "anneal", interrupted)
    options = {"random_seed": 1, "draws": 150, **QUIET}
    result = kz.fit(fixture.regression(), kz.Nested(particles=60, nodes=6), **options)
    assert result["posterior"].sizes["draw"] == 60
    assert np.isnan(result.attrs["log_evidence"])
    assert result.attrs["converged"] == "no"


def test_declared_density_of_the_draws_is_in_the_result(results):
    stats = results["regression"]["sample_stats"]
    assert set(stats.data_vars) == {"lp"}
    assert np.isfinite(stats["lp"]).all()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: fixture.regression(collapsed=True), "collapsed=False"),
        (
            lambda: kz.CompositeKernelRegression(fixture.KERNELS[:1], fixture.RESPONSE),
            "learned weights of several kernels",
        ),
        (
            lambda: kz.CompositeKernelClassification(
                fixture.KERNELS, fixture.RESPONSE > 0.5, combination="fixed"
            ),
            "learned weights of several kernels",
        ),
        (
            lambda: kz.CompositeKernelRegression(
                kz.kernels.kernel_stack(np.tile(fixture.STACK, (5, 1, 1))), fixture.RESPONSE
            ),
            "8 kernels at most, not 10: take Gibbs",
        ),
        (
            lambda: kz.CompositeKernelClassification(
                fixture.KERNELS, fixture.RESPONSE > 0.5, combination="binary"
            ),
            "Binary is not registered",
        ),
    ],
    ids=["collapsed", "one kernel", "known weights", "ten kernels", "selections"],
)
def test_what_it_is_not_for_is_refused(build, reason):
    with pytest.raises(ValueError, match=rf"Nested does not apply: .*({reason})"):
        kz.fit(build(), "nested", **QUIET)


@pytest.mark.parametrize("setting", ["particles", "nodes", "moves"])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"'{setting}' argument of Nested on CompositeKernelReg"):
        kz.fit(fixture.regression(), kz.Nested(**{setting: 0}), **QUIET)
