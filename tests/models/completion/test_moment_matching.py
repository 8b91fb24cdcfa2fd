"""Matched moments against simulation and against brute force; Theorem 4."""

import numpy as np
import pandas as pd
import pytensor.tensor as pt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from family import assert_z
from kernelzoo.models.completion.moment_matching import (
    match_wishart,
    matched_degrees,
    traces_of_products,
)


def random_kernels(n_kernels, n, seed=0):
    """Kernels of different shape and scale."""
    rng = np.random.default_rng([n_kernels, n, seed])
    factors = rng.normal(size=(n_kernels, n, n + 2)) * 10 ** rng.uniform(-1, 1, (n_kernels, 1, 1))
    return factors @ factors.swapaxes(1, 2) / n


KERNELS = random_kernels(3, 4)
ETAS = np.array([5.0, 7.3, 12.0])
ALPHA = np.array([0.2, 0.5, 0.3])
CROSSED = xr.DataArray(
    KERNELS,
    dims=("kernel", "obs", "basis"),
    coords={"kernel": list("abc"), "obs": list("pqrs"), "basis": range(4)},
)


def trace_of_covariance(eta, theta):
    """Of vec(W), W ~ Wishart(eta, theta)."""
    return eta * (np.trace(theta @ theta) + np.trace(theta) ** 2)


@pytest.fixture(scope="module")
def sums():
    """Draws of sum_k alpha_k M_k."""
    rng = np.random.default_rng(1)
    components = [
        weight * stats.wishart(df, kernel).rvs(40_000, random_state=rng)
        for weight, df, kernel in zip(ALPHA, ETAS, KERNELS, strict=True)
    ]
    return np.sum(components, axis=0)


def z_of_trace(draws, eta, theta):
    """z-score of the covariance's trace against that of a Wishart distribution."""
    squared = ((draws - draws.mean(0)) ** 2).sum((1, 2))
    error = squared.std(ddof=1) / np.sqrt(len(draws))
    return (squared.mean() - trace_of_covariance(eta, theta)) / error


def test_mean_is_kept_exactly():
    eta, theta = match_wishart(KERNELS, ETAS, ALPHA)
    mean = np.tensordot(ALPHA * ETAS, KERNELS, axes=1)
    np.testing.assert_allclose(eta * theta, mean, rtol=1e-12)


def test_trace_of_the_covariance_is_that_of_simulated_sums(sums):
    assert_z(z_of_trace(sums, *match_wishart(KERNELS, ETAS, ALPHA)))


def test_printed_equation_13_fails_the_same_test(sums):
    """It squares the trace in the second term of the numerator where the square is traced."""
    weights = ALPHA * ETAS
    mean = np.tensordot(weights, KERNELS, axes=1)
    traces, products = traces_of_products(KERNELS)
    denominator = (weights**2 / ETAS * (traces**2 + np.diagonal(products))).sum()
    printed = ((weights @ traces) ** 2 + np.trace(mean) ** 2) / denominator
    with pytest.raises(AssertionError):
        assert_z(z_of_trace(sums, printed, mean / printed))


def test_a_sum_that_is_wishart_is_found():
    """Theorem 2: equal alpha_k Theta_k add up their degrees of freedom."""
    kernel = KERNELS[0]
    scaled = np.stack([kernel / weight for weight in ALPHA])
    eta, theta = match_wishart(scaled, ETAS, ALPHA)
    np.testing.assert_allclose(eta, ETAS.sum(), rtol=1e-12)
    np.testing.assert_allclose(theta, kernel, rtol=1e-12)


def test_one_component_is_itself():
    for j in range(3):
        eta, theta = match_wishart(KERNELS, ETAS, np.eye(3)[j])
        np.testing.assert_allclose(eta, ETAS[j], rtol=1e-12)
        np.testing.assert_allclose(theta, KERNELS[j], rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 10_000))
def test_theorem_4(n_kernels, n, seed):
    """Matched degrees of freedom are at least n when every component's are."""
    rng = np.random.default_rng(seed)
    etas = n + rng.exponential(3, size=n_kernels) * rng.integers(0, 2, size=n_kernels)
    alpha = rng.exponential(size=n_kernels) * np.append(1, rng.integers(0, 2, n_kernels - 1))
    kernels = random_kernels(n_kernels, n, seed)
    eta, _ = match_wishart(kernels, etas, alpha)
    assert eta >= n * (1 - 1e-12)


def test_scale_of_the_weights_does_not_change_eta():
    eta, theta = match_wishart(KERNELS, ETAS, ALPHA)
    again, scaled = match_wishart(KERNELS, ETAS, 7 * ALPHA)
    np.testing.assert_allclose(again, eta, rtol=1e-12)
    np.testing.assert_allclose(scaled, 7 * theta, rtol=1e-12)


def test_tensors_give_the_numbers_of_arrays():
    kernels, etas, weights = pt.as_tensor(KERNELS), pt.as_tensor(ETAS), pt.as_tensor(ALPHA * ETAS)
    ours = matched_degrees(*traces_of_products(kernels), etas, weights).eval()
    np.testing.assert_allclose(ours, match_wishart(KERNELS, ETAS, ALPHA)[0], rtol=1e-12)


def test_defaults():
    eta, _ = match_wishart(KERNELS)
    np.testing.assert_allclose(eta, match_wishart(KERNELS, 5.0, [1 / 3, 1 / 3, 1 / 3])[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta": 2.9}, "'eta' argument .* a finite number above n - 1 = 3, .* Got 2.9"),
        ({"eta": [5.0, 5.0]}, "'eta' argument .* one number or one per kernel"),
        ({"alpha": [0.5, -0.1, 0.6]}, "'alpha' argument .* 3 finite non-negative numbers"),
        ({"alpha": [0.0, 0.0, 0.0]}, "'alpha' argument .* not all zero"),
        ({"alpha": [0.5, 0.5]}, "'alpha' argument .* one per kernel"),
        ({"theta": np.ones((2, 3, 4))}, "'theta' argument .* must be square"),
        ({"theta": CROSSED}, "'theta' argument .* labelled alike in rows and columns"),
        ({"theta": [np.diag([1.0, 1.0, 1.0, np.nan])]}, "'theta' argument .* finite"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        match_wishart(**({"theta": KERNELS} | arguments))


def test_degrees_of_freedom_with_names_go_by_the_kernels():
    kernels = {"a": np.eye(3), "b": 2 * np.eye(3) + 1}
    by_name = pd.Series({"b": 9.0, "a": 5.0})
    for numbers in (by_name, by_name.to_dict()):
        found, expected = match_wishart(kernels, numbers), match_wishart(kernels, [5.0, 9.0])
        assert found[0] == expected[0]
        np.testing.assert_array_equal(found[1], expected[1])
    with pytest.raises(ValueError, match=r"'eta' .* \(a, b\). Got the names \['b', 'c'\]"):
        match_wishart(kernels, by_name.rename({"a": "c"}))
