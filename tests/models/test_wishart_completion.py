"""The declaration in blocks against the whole-matrix densities, and its input."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

from family import assert_ks, assert_mean
from kernelzoo.models.wishart_completion import WishartCompletion

MODE = "FAST_COMPILE"
FREE = ("Sigma11", "Sigma22_1", "B", "K21", "K22_1")


def whole(x11, x21, x22_1, coefficients):
    """Matrix of its blocks; `coefficients` is x21 x11^-1."""
    return np.block([[x11, x21.T], [x21, x22_1 + coefficients @ x21.T]])


def blocks(matrix, n1):
    """(x11, x21, x22.1, x21 x11^-1) of a matrix."""
    x11, x21 = matrix[:n1, :n1], matrix[n1:, :n1]
    coefficients = np.linalg.solve(x11, x21.T).T
    return x11, x21, matrix[n1:, n1:] - coefficients @ x21.T, coefficients


def constrained_density(model):
    """Log density of the declaration as a function of the free blocks."""
    value = model.compile_logp(jacobian=False, mode=MODE)
    names = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
    transforms = {rv.name: model.rvs_to_transforms[rv] for rv in model.free_RVs}

    def density(**given):
        point = {
            names[name]: x if transforms[name] is None else packed(x) for name, x in given.items()
        }
        return float(value(point))

    return density


def packed(matrix):
    factor = np.linalg.cholesky(matrix)
    diagonal = np.diag_indices(len(matrix))
    factor[diagonal] = np.log(factor[diagonal])
    return factor[np.tril_indices(len(matrix))]


@pytest.fixture(scope="module")
def model():
    return WishartCompletion.example()


@pytest.fixture(scope="module")
def prior(model):
    """Draws from the declaration, K11 included, of the free blocks and deterministics."""
    names = [*FREE, "K11", "K22", "trace_K22", "log_det_Sigma22_1"]
    draws = pm.draw([model[name] for name in names], 2_000, random_seed=1, mode=MODE)
    return dict(zip(names, draws, strict=True))


def test_density_in_blocks_equals_the_density_of_the_whole_matrices(model):
    """Of K the change to blocks has no Jacobian; of Sigma it has |Sigma11|^n2."""
    n1, n2 = model.n_train, model.n_test
    n = n1 + n2
    density = constrained_density(model)
    rng = np.random.default_rng(1)
    for _ in range(5):
        Sigma = stats.invwishart(model.eta, model.theta).rvs(random_state=rng)
        S11, _, S22_1, B = blocks(Sigma, n1)
        K21, C = rng.normal(size=(n2, n1)), rng.normal(size=(n2, n2))
        K22_1 = C @ C.T + np.eye(n2)
        K11 = model.K11_values
        K = whole(K11, K21, K22_1, np.linalg.solve(K11, K21.T).T)
        assert K.shape == (n, n)
        exact = (
            stats.invwishart(model.eta, model.theta).logpdf(Sigma)
            + n2 * np.linalg.slogdet(S11)[1]
            + stats.wishart(model.r, Sigma).logpdf(K)
        )
        ours = density(Sigma11=S11, Sigma22_1=S22_1, B=B, K21=K21, K22_1=K22_1)
        np.testing.assert_allclose(ours, exact, rtol=1e-10)


def test_prior_draws_have_the_law_of_the_whole_matrices(model, prior):
    """Block by block, forward sampling agrees with Sigma ~ IW, K | Sigma ~ W in one piece."""
    n1 = model.n_train
    rng = np.random.default_rng(2)
    Sigma = stats.invwishart(model.eta, model.theta).rvs(4_000, random_state=rng)
    root = np.linalg.cholesky(Sigma)
    K = root @ stats.wishart(model.r, np.eye(5)).rvs(4_000, random_state=rng) @ root.mT
    theta_log_det = np.linalg.slogdet(model.theta)[1]
    K12 = prior["K21"].swapaxes(1, 2)
    whole_K = np.block([[prior["K11"], K12], [prior["K21"], prior["K22"]]])
    for statistic in (
        lambda k: np.linalg.slogdet(k)[1] - theta_log_det,
        lambda k: np.trace(np.linalg.solve(model.theta, k), axis1=-2, axis2=-1),
        lambda k: k[..., n1, 0] / np.sqrt(k[..., n1, n1] * k[..., 0, 0]),
        lambda k: np.log(k[..., n1 + 1, n1 + 1]),
    ):
        assert_ks(statistic(whole_K), statistic(K))
    assert_mean(whole_K, model.r * model.theta / (model.eta - 5 - 1))
    np.testing.assert_allclose(prior["trace_K22"], np.trace(prior["K22"], axis1=1, axis2=2))
    np.testing.assert_allclose(
        prior["log_det_Sigma22_1"], np.linalg.slogdet(prior["Sigma22_1"])[1], rtol=1e-8
    )


def test_kernels_can_be_exchanged_and_predicted():
    model = WishartCompletion.example()
    with model:
        pm.set_data({"theta": 2 * model.theta})
        options = {"random_seed": 1, "compile_kwargs": {"mode": MODE}}
        before = pm.sample_prior_predictive(50, var_names=["K11", "K22"], **options)
        Sigma11 = np.tile(np.eye(3), (1, 200, 1, 1))
        trace = xr.Dataset({"Sigma11": (("chain", "draw", "train", "train_"), Sigma11)})
        after = pm.sample_posterior_predictive(
            xr.DataTree.from_dict({"posterior": trace}),
            var_names=["K11"],
            freeze_vars=["Sigma11"],
            progressbar=False,
            **options,
        )
    assert before["prior"]["K22"].dims == ("chain", "draw", "test", "test_")
    assert_mean(after["posterior_predictive"]["K11"].values[0], model.r * np.eye(3))
    np.testing.assert_array_equal(model.theta, 2 * WishartCompletion.example().theta)


def test_defaults_are_the_papers():
    small = WishartCompletion.example()
    model = WishartCompletion(small.theta, small.K11_values)
    assert (model.r, model.eta) == (6.0, 6.0)
    np.testing.assert_array_equal(model.coords["test"], [3, 4])


def test_labels_say_who_is_observed():
    small = WishartCompletion.example()
    names = list("abcde")
    theta = pd.DataFrame(small.theta, index=names, columns=names)
    K11 = pd.DataFrame(np.diag([1.0, 2.0]), index=["d", "b"], columns=["d", "b"])
    model = WishartCompletion(theta, K11)
    coords = {dim: list(model.coords[dim]) for dim in ("object", "train", "test")}
    assert coords == {"object": list("dbace"), "train": list("db"), "test": list("ace")}
    order = [3, 1, 0, 2, 4]
    np.testing.assert_array_equal(model.theta, small.theta[np.ix_(order, order)])
    np.testing.assert_array_equal(model.K11_values, K11)


def test_weighted_sum_of_a_stack():
    small = WishartCompletion.example()
    stack = {"a": small.theta, "b": np.eye(5)}
    mean = WishartCompletion(stack, small.K11_values)
    weighted = WishartCompletion(stack, small.K11_values, weights=[0.5, 2.0])
    np.testing.assert_allclose(mean.theta, (small.theta + np.eye(5)) / 2)
    np.testing.assert_allclose(weighted.theta, 0.5 * small.theta + 2 * np.eye(5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K11": -np.eye(3)}, "'K11' argument of WishartCompletion .* positive semidefinite"),
        ({"theta": np.ones((5, 5))}, "'theta' argument of WishartCompletion .* positive definite"),
        ({"eta": 4}, r"'eta' argument .* above n - 1 = 4\. Got 4"),
        ({"r": 3.5}, r"'r' argument .* above n - 1 = 4\. Got 3\.5"),
        ({"weights": [1.0, 2.0]}, "'weights' argument .* 1 finite"),
    ],
)
def test_bad_input_is_refused(change, message):
    small = WishartCompletion.example()
    with pytest.raises(ValueError, match=message):
        WishartCompletion(**({"theta": small.theta, "K11": small.K11_values} | change))
