"""Wishart and inverse Wishart against scipy, their transform against numeric derivatives."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.blocking import DictToArrayBijection
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode
from scipy import stats

from family import assert_ks, assert_mean
from kernelzoo.models.distributions.positive_definite import PositiveDefinite
from kernelzoo.models.distributions.wishart import InverseWishart, Wishart

# Compiling to machine code takes longer than these graphs run.
MODE = "FAST_COMPILE"
PAIRS = [(Wishart, stats.wishart), (InverseWishart, stats.invwishart)]
IDS = ["Wishart", "InverseWishart"]


def positive_definite(n, seed=0):
    a = np.random.default_rng([n, seed]).normal(size=(n, n + 1))
    return a @ a.T + 0.1 * np.eye(n)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_log_density_equals_scipy_for_real_degrees_of_freedom(ours, theirs):
    nu, psi, x = pt.dscalar(), pt.dmatrix(), pt.dmatrix()
    density = pytensor.function([nu, psi, x], pm.logp(ours.dist(nu, psi), x), mode=MODE)
    for n in (1, 2, 5):
        scale, value = positive_definite(n), positive_definite(n, seed=1)
        for df in (n + 0.5, 3 * n + 0.1, 400.7):
            exact = theirs(df, scale).logpdf(value)
            np.testing.assert_allclose(density(df, scale, value), exact, rtol=1e-10, atol=1e-10)


def test_density_of_order_one_is_gamma_below_one_degree_of_freedom():
    density = pm.logp(Wishart.dist(0.4, np.array([[2.0]])), np.array([[0.7]])).eval(mode=MODE)
    np.testing.assert_allclose(density, stats.gamma(0.2, scale=4.0).logpdf(0.7), rtol=1e-12)


@pytest.mark.parametrize("ours", [Wishart, InverseWishart])
def test_outside_the_support(ours):
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert pm.logp(ours.dist(3.0, np.eye(2)), indefinite).eval(mode=MODE) == -np.inf
    with pytest.raises(ParameterValueError, match="nu > n - 1"):
        pm.logp(ours.dist(0.9, np.eye(2)), np.eye(2)).eval(mode=MODE)
    with pytest.raises(ValueError, match="must be a square matrix"):
        ours.dist(3.0, np.ones((2, 3)))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_batches(ours, theirs):
    scales = np.stack([positive_definite(2), positive_definite(2, seed=1)])
    df = np.array([3.5, 8.0])
    rv = ours.dist(df, scales)
    values = pm.draw(rv, random_seed=1, mode=MODE)
    assert values.shape == (2, 2, 2)
    exact = [theirs(*row[:2]).logpdf(row[2]) for row in zip(df, scales, values, strict=True)]
    np.testing.assert_allclose(pm.logp(rv, values).eval(mode=MODE), exact, rtol=1e-9)
    sized = ours.dist(3.5, scales[0], size=(4,))
    assert sized.type.shape == (4, 2, 2)
    draws = pm.draw(sized, random_seed=1, mode=MODE)
    assert len({draw.tobytes() for draw in draws}) == 4


def test_draws_have_the_marginal_laws():
    """Bartlett's factors: ratios of leading and of inverse entries are chi-square."""
    n, df, psi = 3, 4.6, positive_definite(3)
    X, S = pm.draw([Wishart.dist(df, psi), InverseWishart.dist(df, psi)], 8_000, 1, mode=MODE)
    for i in range(n):
        assert_ks(X[:, i, i] / psi[i, i], stats.chi2(df).cdf)
        assert_ks(psi[i, i] / S[:, i, i], stats.chi2(df - n + 1).cdf)
    precision = np.linalg.inv(S)
    assert_ks(precision[:, 0, 0] / np.linalg.inv(psi)[0, 0], stats.chi2(df).cdf)
    volume = np.prod(stats.chi2(df - np.arange(n)).rvs((8_000, n), random_state=2), axis=1)
    assert_ks(np.linalg.det(X) / np.linalg.det(psi), volume)
    assert_ks(np.linalg.det(psi) / np.linalg.det(S), volume)
    assert_mean(X, df * psi)
    for wrong in (df - 1, df + 1):
        with pytest.raises(AssertionError):
            assert_ks(X[:, 0, 0] / psi[0, 0], stats.chi2(wrong).cdf)
        with pytest.raises(AssertionError):
            assert_ks(psi[0, 0] / S[:, 0, 0], stats.chi2(wrong - n + 1).cdf)


@pytest.mark.parametrize("known", [True, False], ids=["static order", "order at run time"])
def test_transform_goes_there_and_back(known):
    n = 4
    transform = PositiveDefinite()
    x = pt.tensor("x", shape=(2, n, n) if known else (None, None, None))
    packed = transform.forward(x)
    back = transform.backward(packed)
    assert packed.type.shape[-1] == (10 if known else None)
    there_and_back = pytensor.function([x], [packed, back], mode=MODE)
    values = np.stack([positive_definite(n), positive_definite(n, seed=1)])
    vector, matrices = there_and_back(values)
    assert vector.shape == (2, 10)
    np.testing.assert_allclose(matrices, values, rtol=1e-12)


def test_jacobian_equals_numeric_derivatives():
    n = 3
    transform = PositiveDefinite()
    y = pt.dvector()
    outputs = [transform.backward(y), transform.log_jac_det(y)]
    function = pytensor.function([y], outputs, mode=MODE)
    point = np.random.default_rng(1).normal(size=6)
    lower, step = np.tril_indices(n), 1e-5
    numeric = [
        (function(point + h)[0][lower] - function(point - h)[0][lower]) / (2 * step)
        for h in step * np.eye(6)
    ]
    np.testing.assert_allclose(function(point)[1], np.linalg.slogdet(numeric)[1], rtol=1e-8)


def test_starting_points_and_modes():
    """The gradient on the constrained space vanishes at the mode, where an IW starts."""
    psi = positive_definite(3)
    with pm.Model() as model:
        InverseWishart("S", 5.5, psi)
        Wishart("X", 7.5, psi)
    point = model.initial_point()
    backward = PositiveDefinite().backward
    np.testing.assert_allclose(
        backward(point["S_cholesky__"]).eval(mode=MODE), psi / (5.5 + 3 + 1), rtol=1e-12
    )
    np.testing.assert_allclose(backward(point["X_cholesky__"]).eval(mode=MODE), 7.5 * psi)
    forward = PositiveDefinite().forward
    point["X_cholesky__"] = forward((7.5 - 3 - 1) * psi).eval(mode=MODE)
    gradient = model.compile_dlogp(jacobian=False, mode=MODE)(point)
    np.testing.assert_allclose(gradient, 0, atol=1e-9)


def test_random_parameters_and_observed_values():
    with pm.Model() as model:
        nu = pm.Exponential("nu", 0.1)
        S = InverseWishart("S", 3 + nu, np.eye(2))
        Wishart("X", 2.5, S, observed=positive_definite(2))
    value = model.compile_logp(mode=MODE, jacobian=False)(
        {"nu_log__": np.log(1.2), "S_cholesky__": np.zeros(3)}
    )
    exact = (
        stats.expon(scale=10).logpdf(1.2)
        + stats.invwishart(4.2, np.eye(2)).logpdf(np.eye(2))
        + stats.wishart(2.5, np.eye(2)).logpdf(positive_definite(2))
    )
    np.testing.assert_allclose(value, exact, rtol=1e-10)


@pytest.mark.slow
def test_nuts_finds_the_moments():
    psi = positive_definite(2)
    with pm.Model():
        InverseWishart("S", 12.5, psi)
        trace = pm.sample(
            1000,
            tune=1000,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            nuts_sampler="pymc",
        )
    ess = float(az.ess(trace)["S"].min())
    draws = trace["posterior"]["S"].values.reshape(-1, 2, 2)
    assert_mean(draws, psi / (12.5 - 3), ess=ess)


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_a_batch_is_rewritten_without_complaint(ours, theirs, data, caplog, capfd):
    """All of PyTensor's rewrites on what NUTS evaluates: a failed one logs a traceback."""
    scales = np.stack([positive_definite(3, seed) for seed in range(4)])
    with pm.Model() as model:
        X = ours("X", np.array([3.5, 5.0, 8.0, 9.0]), pm.Data("psi", scales) if data else scales)
        pm.Normal("y", X[:, 0, 1], 1.0, observed=np.zeros(4))
    everything = Mode("py", "fast_run")
    slope = model.logp_dlogp_function(ravel_inputs=True, mode=everything)
    point = DictToArrayBijection.map(model.initial_point())
    slope.set_extra_values({})
    value, gradient = slope(point)
    assert np.isfinite(gradient).all()
    assert value == pytest.approx(float(model.compile_logp(mode=everything)(model.initial_point())))
    density = model.compile_logp(vars=[X], jacobian=False, sum=False, mode=everything)
    (found,) = density(model.initial_point())
    values = (
        model.rvs_to_transforms[X].backward(pt.as_tensor(point.data.reshape(4, 6))).eval(mode=MODE)
    )
    exact = [
        theirs(df, psi).logpdf(x) for df, psi, x in zip((3.5, 5, 8, 9), scales, values, strict=True)
    ]
    np.testing.assert_allclose(found, exact, rtol=1e-10)
    assert not [record for record in caplog.records if record.levelname != "INFO"]
    assert "rror" not in capfd.readouterr().err


@pytest.mark.parametrize("distribution", [Wishart, InverseWishart])
@pytest.mark.parametrize(
    ("nu", "psi", "message"),
    [
        (1.9, np.eye(3), "degrees of freedom must be above n - 1"),
        (4.0, np.diag([1.0, 1.0, -1.0]), "psi must be positive definite"),
    ],
)
def test_draws_refuse_parameters_without_a_density(distribution, nu, psi, message):
    parameter = pt.scalar("nu")
    draw = distribution.dist(nu=parameter, psi=psi)
    function = pytensor.function([parameter], draw)
    with pytest.raises(ValueError, match=message):
        function(nu)
    if np.linalg.det(psi) > 0:
        assert np.isfinite(function(2.1)).all()
