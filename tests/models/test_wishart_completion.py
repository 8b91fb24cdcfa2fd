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
    draws = pm.draw([model[name] for name in names], 4_000, random_seed=1, mode=MODE)
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
    K = np.array([stats.wishart(model.r, S).rvs(random_state=rng) for S in Sigma])
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


def test_whole_matrix_on_request():
    small = WishartCompletion.example()
    model = WishartCompletion(
        small.theta, small.K11_values, r=small.r, eta=small.eta, deterministic_K=True
    )
    assert "K" not in small.named_vars
    K11, K21, K22, K = pm.draw([model[x] for x in ("K11", "K21", "K22", "K")], 1, 1, mode=MODE)
    np.testing.assert_allclose(K, np.block([[K11, K21.T], [K21, K22]]))
    assert model.named_vars_to_dims["K"] == ("object", "object_")


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
    for labelled in (theta, xr.DataArray(theta.rename_axis(index="object", columns="object_"))):
        model = WishartCompletion(labelled, K11)
        assert list(model.coords["object"]) == ["d", "b", "a", "c", "e"]
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


def bad_inputs():
    small = WishartCompletion.example()
    theta, K11 = small.theta, small.K11_values
    twins = [0, 1, 2, 3, 3]
    missing = K11.copy()
    missing[0, 1] = np.nan
    unknown = pd.DataFrame(K11, index=[0, 1, 9], columns=[0, 1, 9])
    crossed = pd.DataFrame(K11, index=[0, 1, 2], columns=[2, 1, 0])
    return {
        "K11 not PD": (theta, -K11, {}, "'K11' argument .* positive definite"),
        "K11 singular": (theta, np.ones((3, 3)), {}, r"rows 0 and 1 are equal.*np.eye\(3\)"),
        "K11 not square": (theta, K11[:2], {}, "'K11' argument .* square"),
        "K11 not symmetric": (theta, np.triu(K11), {}, "'K11' argument .* symmetric"),
        "K11 with NaN": (theta, missing, {}, "'K11' argument .* finite"),
        "K11 no matrix": (theta, [1.0, 2.0], {}, "'K11' argument .* matrix of numbers"),
        "K11 unknown labels": (theta, unknown, {}, "objects of theta.*9"),
        "K11 crossed labels": (theta, crossed, {}, "alike in rows and columns"),
        "theta too small": (theta[:2, :2], K11, {}, "'theta' argument .* 3 of K11"),
        "no test objects": (theta[:3, :3], K11, {}, "n2 = 0"),
        "theta not square": (theta[:4], K11, {}, "'theta' argument .* square"),
        "theta with NaN": (np.full((5, 5), np.nan), K11, {}, "'theta' argument .* finite"),
        "duplicates": (
            theta[np.ix_(twins, twins)],
            K11,
            {},
            r"rows 3 and 4 are equal: duplicated objects\); theta \+ 1e-0\d \* np.eye\(5\)",
        ),
        "eta": (theta, K11, {"eta": 4}, "'eta' argument .* above n - 1 = 4. Got 4"),
        "r": (theta, K11, {"r": 3.5}, "'r' argument .* above n - 1 = 4. Got 3.5"),
        "r is NaN": (theta, K11, {"r": np.nan}, "'r' argument"),
        "weights": (theta, K11, {"weights": [1.0, 2.0]}, "'weights' argument .* 1 finite"),
    }


@pytest.mark.parametrize("case", bad_inputs())
def test_bad_input_is_refused(case):
    theta, K11, options, message = bad_inputs()[case]
    with pytest.raises(ValueError, match=message):
        WishartCompletion(theta, K11, **options)


def test_suggested_jitter_is_enough():
    small = WishartCompletion.example()
    twins = small.theta[np.ix_([0, 1, 2, 3, 3], [0, 1, 2, 3, 3])]
    with pytest.raises(ValueError, match="positive definite") as error:
        WishartCompletion(twins, small.K11_values)
    jitter = float(str(error.value).split("theta + ")[1].split(" *")[0])
    WishartCompletion(twins + jitter * np.eye(5), small.K11_values)
