"""MAP and Laplace: the gradient vanishes at the answer, the Gaussian is the right one."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import gamma, multivariate_normal

import kernelzoo as kz
from family import assert_mean
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.mode import compile_objective

QUIET = {"random_seed": 1, "progressbar": False}


def conjugate_model():
    """Normal mean with known precision: everything about its posterior is known."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=20)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=3)
        pm.Normal("y", X @ b, 1, observed=y)
    covariance = np.linalg.inv(X.T @ X + np.eye(3) / 4)
    return model, covariance @ X.T @ y, covariance


def test_map_is_the_posterior_mean_of_a_gaussian():
    model, mean, _ = conjugate_model()
    result = kz.fit(model, "map", **QUIET)
    np.testing.assert_allclose(result["point"]["b"], mean, atol=1e-4)
    assert result.attrs["converged"] == "yes"


@pytest.mark.parametrize("space", ["constrained", "unconstrained"])
def test_map_finds_the_mode_of_the_density_it_names(space):
    """Gamma(3, 2): mode 1 of the density, 3/2 of the log's density."""
    with pm.Model() as model:
        pm.Gamma("x", 3, 2)
    result = kz.fit(model, kz.MAP(space=space), **QUIET)
    np.testing.assert_allclose(
        result["point"]["x"], 1.0 if space == "constrained" else 1.5, rtol=1e-4
    )


def test_map_of_fixed_weights_is_stationary_in_the_declaration():
    example = kz.MultinomialProbit.example()
    model = kz.MultinomialProbit(
        example.design, example.label_codes, combination=kz.combinations.FixedWeights([0.5, 0.5])
    )
    result = kz.fit(model, "map", **QUIET)
    assert result.attrs["converged"] == "yes"
    point = {
        "W": result["point"]["W"].values,
        "zeta_log__": np.log(result["point"]["zeta"].values),
    }
    gradient = model.compile_dlogp(jacobian=False)(point)
    assert np.abs(gradient).max() < 1e-2
    # Stationarity of zeta in closed form: its conditional is inverse gamma.
    np.testing.assert_allclose(
        result["point"]["zeta"],
        (model.upsilon + result["point"]["W"] ** 2 / 2) / (model.tau + 1.5),
        rtol=1e-2,
    )


def weights_of_low_concentration():
    """Density unbounded at a corner."""
    with pm.Model() as model:
        pm.Dirichlet("x", [0.3, 0.5, 2.0])
    return model


@pytest.mark.parametrize(
    "make",
    [
        weights_of_low_concentration,
        pytest.param(kz.MultinomialProbit.example, marks=pytest.mark.slow),
    ],
)
def test_map_says_when_there_is_no_mode(make):
    with pytest.warns(UserWarning, match="may have no mode"):
        result = kz.fit(make(), kz.MAP(max_iterations=300), **QUIET)
    assert result.attrs["converged"] == "no"


def test_laplace_is_exact_for_a_gaussian():
    model, mean, covariance = conjugate_model()
    result = kz.fit(model, "laplace", draws=4000, **QUIET)
    draws = result["posterior"]["b"].values[0]
    assert_mean(draws, mean)
    centred = draws - mean
    assert_mean(centred[:, :, None] * centred[:, None, :], covariance)
    # Equal densities up to the evidence: the importance ratio is constant.
    ratio = (result["sample_stats"]["lp"] - result["sample_stats"]["lq"]).values
    np.testing.assert_allclose(ratio, ratio.mean(), atol=1e-3)
    np.testing.assert_allclose(
        result["sample_stats"]["lq"].values[0],
        multivariate_normal(mean, covariance).logpdf(draws),
        atol=1e-3,
    )


def test_laplace_keeps_the_jacobian():
    """Of a Gamma variable: mode and curvature of the log's density, not of the variable's."""
    with pm.Model() as model:
        pm.Gamma("x", 40, 2)
    result = kz.fit(model, "laplace", **QUIET)
    np.testing.assert_allclose(result["variational"]["mean"], np.log(20), rtol=1e-4)
    np.testing.assert_allclose(result["variational"]["sd"], 1 / np.sqrt(40), rtol=1e-3)
    assert list(result["variational"]["coordinate"].values) == ["x_log__"]
    x = result["posterior"]["x"].values[0]
    exact = gamma(40, scale=1 / 2).logpdf(x) + np.log(x)
    np.testing.assert_allclose(result["sample_stats"]["lp"].values[0], exact, atol=1e-4)


def test_no_rewrite_of_an_objective_fails():
    """Hidden blocks of one entry, too: the transform's mask is then a constant."""
    model = kz.MutualKernelCompletion.example()
    assert (1, 1) in {model.eval_rv_shapes()[rv.name] for rv in model.free_RVs}
    start, objective = compile_objective(model, jacobian=True, mode=python_mode())
    assert np.isfinite(objective(start)[1]).all()
