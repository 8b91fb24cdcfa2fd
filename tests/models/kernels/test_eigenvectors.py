"""Rank-one kernels of eigenvectors: together they are the kernel again."""

import numpy as np
import pandas as pd
import pytest

import kernelzoo as kz
from kernelzoo.models.kernels.eigenvectors import eigenvector_kernels


def gram(n=12, n_features=30, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, n_features))
    return X @ X.T


def test_kernels_have_rank_and_trace_one_and_make_up_the_kernel():
    K = gram()
    kernels = eigenvector_kernels(K)
    assert kernels.dims == ("kernel", "obs", "basis")
    assert kernels.shape == (12, 12, 12)
    np.testing.assert_allclose(np.trace(kernels.values, axis1=1, axis2=2), 1)
    np.testing.assert_allclose(kernels.values @ kernels.values, kernels.values, atol=1e-12)
    again = np.tensordot(kernels["eigenvalue"], kernels, axes=1)
    np.testing.assert_allclose(again, K / np.trace(K), atol=1e-14)


def test_largest_eigenvalues_come_first():
    K = gram()
    kernels = eigenvector_kernels(K, 4)
    assert list(kernels["kernel"].values) == ["1", "2", "3", "4"]
    largest = np.linalg.eigvalsh(K)[::-1][:4]
    # Shares of all, not of the four.
    np.testing.assert_allclose(kernels["eigenvalue"], largest / np.trace(K))
    np.testing.assert_allclose(np.sum(kernels * K, axis=(1, 2)), largest)


def test_eigenvectors_of_nothing_are_left_out():
    K = gram(n_features=3)
    assert eigenvector_kernels(K).sizes["kernel"] == 3
    np.testing.assert_allclose(eigenvector_kernels(K)["eigenvalue"].sum(), 1)
    with pytest.raises(ValueError, match=r"'count' argument of eigenvector_kernels .* most 3.* 4"):
        eigenvector_kernels(K, 4)


def test_labels_are_kept_and_a_model_takes_the_stack():
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(6, 2)), index=list("abcdef"))
    kernels = eigenvector_kernels(kz.gaussian(0.5)(X), 3)
    assert list(kernels["obs"].values) == list(kernels["basis"].values) == list("abcdef")
    model = kz.CompositeKernelClassification(kernels, [0, 1] * 3)
    assert list(model.coords["kernel"]) == ["1", "2", "3"]
    assert list(model.coords["function"]) == ["bias", *"abcdef"]


@pytest.mark.parametrize(
    ("given", "count", "message"),
    [
        (np.stack([gram(), gram()]), None, r"'gram' .* one square kernel.*\(2, 12, 12\)"),
        (np.ones((3, 2)), None, r"'gram' .* one square kernel.*\(1, 3, 2\)"),
        (-gram(), None, "gram.* positive semidefinite"),
        (np.zeros((3, 3)), None, "'gram' argument .* an eigenvalue above 0"),
        (np.zeros((3, 3)), 1, "'gram' argument .* an eigenvalue above 0"),
        (gram(), 0, "'count' argument .* 1 or more"),
        (gram(), 2.5, "'count' argument .* integer"),
    ],
)
def test_bad_input_is_refused(given, count, message):
    with pytest.raises(ValueError, match=message):
        eigenvector_kernels(given, count)
