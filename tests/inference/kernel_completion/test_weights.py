"""Learning of a mixture's weights: gradients, invariances, known answers, bad input."""

import numpy as np
import pytest
import xarray as xr

from kernelzoo.inference.kernel_completion import weights as kernel_weights
from kernelzoo.inference.kernel_completion.weights import OBJECTIVES, learn_weights
from kernelzoo.models.wishart_kernel_mixture import WishartKernelMixture

N1 = 24


@pytest.fixture(scope="module")
def problem():
    """Two classes that overlap in the first feature; the second is noise. Kernels of either."""
    rng = np.random.default_rng(0)
    y = np.arange(36) % 2
    x = rng.normal(size=(36, 2))
    x[:, 0] += 3 * y

    def near(feature):
        return np.exp(-(np.subtract.outer(feature, feature) ** 2) / 2) + 0.5 * np.eye(36)

    theta = {"noise": 50 * near(x[:, 1]), "signal": near(x[:, 0])}
    ideal = np.equal.outer(y[:N1], y[:N1]) + 0.05 * np.eye(N1)
    return theta, ideal, y[:N1]


def learn(problem, objective, **options):
    theta, K11, y = problem
    return learn_weights(theta, K11, objective, labels=y, **options)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradient_in_the_coordinates_of_the_search(name, problem):
    theta, K11, y = problem
    kernels = np.array([kernel[:N1, :N1] for kernel in theta.values()])
    criterion = OBJECTIVES[name](K11, y)
    evaluate = kernel_weights._InShares(criterion, kernels, np.array([37.0, 52.0]))
    u, h = np.array([0.4, -0.3]), 1e-5
    numeric = [(evaluate(u + s)[0] - evaluate(u - s)[0]) / (2 * h) for s in h * np.eye(2)]
    np.testing.assert_allclose(evaluate(u)[1], numeric, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_search_climbs(name, problem):
    learned = learn(problem, name)
    assert learned.attrs["converged"]
    theta, K11, y = problem
    kernels = np.array([kernel[:N1, :N1] for kernel in theta.values()])
    evaluate = kernel_weights._InShares(OBJECTIVES[name](K11, y), kernels, np.full(2, 42.0))
    assert learned.attrs["value"] > max(evaluate(u)[0] for u in np.vstack([np.zeros(2), np.eye(2)]))
    np.testing.assert_allclose(learned.sum(), 1)
    assert learned["kernel"].values.tolist() == ["noise", "signal"]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_kernel_that_knows_the_classes_is_found(name, problem):
    """Equal weights are nearly all noise, whose kernel is 50 times as large."""
    alpha = learn(problem, name)
    share = 50 * alpha.sel(kernel="noise") / alpha.sel(kernel="signal")
    assert share < 0.1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_order_of_kernels_does_not_matter(name, problem):
    theta, K11, y = problem
    reverse = dict(reversed(theta.items()))
    alpha = learn((reverse, K11, y), name).sel(kernel=["noise", "signal"])
    np.testing.assert_allclose(alpha, learn(problem, name), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_size_of_a_kernel_only_divides_its_weight(name, problem):
    theta, K11, y = problem
    alpha = learn((theta | {"noise": theta["noise"] / 50}, K11, y), name).values
    rescaled = alpha / [50, 1]
    expected = learn(problem, name)
    np.testing.assert_allclose(rescaled / rescaled.sum(), expected, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_degrees_of_freedom_of_a_kernel_only_divide_its_weight(name, problem):
    """Objectives depend on the mean of Sigma, the sum of alpha_k eta_k Theta_k."""
    degrees = np.array([37.0, 74.0])
    rescaled = learn(problem, name, eta=degrees).values * degrees
    expected = learn(problem, name)
    np.testing.assert_allclose(rescaled / rescaled.sum(), expected, rtol=1e-2, atol=1e-4)


def test_one_kernel_has_weight_one(problem):
    theta, K11, _ = problem
    learned = learn_weights({"signal": theta["signal"]}, K11, "alignment")
    assert learned.values.tolist() == [1.0]


def test_weights_are_those_of_a_mixture(problem):
    theta, K11, _ = problem
    learned = learn(problem, "alignment")
    model = WishartKernelMixture(theta, K11, alpha=learned)
    np.testing.assert_array_equal(model["alpha"].get_value(), learned)


def test_labelled_training_objects_are_found(problem):
    theta, K11, _ = problem
    names = [f"object {i}" for i in range(36)]
    stack = xr.DataArray(
        np.array(list(theta.values())),
        dims=("kernel", "obs", "basis"),
        coords={"kernel": list(theta), "obs": names, "basis": names},
    )
    observed = xr.DataArray(
        K11, dims=("a", "b"), coords={"a": names[:N1], "b": names[:N1]}
    ).to_pandas()
    expected = learn_weights(stack, observed, "alignment")
    np.testing.assert_allclose(learn_weights(stack[:, ::-1, ::-1], observed, "alignment"), expected)


BAD = {
    "unknown objective": ({"objective": "aligment"}, "nearest is 'alignment'"),
    "no labels": ({"objective": "leave-one-out log score"}, "'labels' .* must be given .* None"),
    "too few labels": ({"labels": [0, 1]}, "'labels' .* of length 24"),
    "small eta": ({"eta": 35.0}, "'eta' argument of learn_weights .* above n - 1 = 35"),
    "no iterations": ({"max_iterations": 0}, "'max_iterations' .* integer of 1 or more"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(options, message, problem):
    theta, K11, _ = problem
    with pytest.raises(ValueError, match=message):
        learn_weights(theta, K11, **options)


def test_singular_kernels_are_refused_with_advice(problem):
    _, K11, y = problem
    x = np.random.default_rng(0).normal(size=(36, 2))
    with pytest.raises(ValueError, match=r"positive definite; as_stack.*jitter"):
        learn_weights({"a": x @ x.T, "b": np.outer(x[:, 0], x[:, 0])}, K11, labels=y)


def test_a_kernel_of_zeros_is_refused():
    theta = {"zero": np.zeros((4, 4)), "one": np.eye(4)}
    with pytest.raises(ValueError, match=r"'theta' argument .* zeros for 'zero'"):
        learn_weights(theta, np.eye(3), "alignment")
