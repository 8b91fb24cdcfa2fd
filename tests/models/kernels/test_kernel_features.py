"""Features in place of kernels: exact and random ones, normalised, from arrays and Dask arrays."""

import tracemalloc

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.models.kernels import (
    Theta,
    as_stack,
    cosine,
    covariance,
    gaussian,
    laplace,
    linear,
    polynomial,
    precomputed,
    rows,
)

RNG = np.random.default_rng(3)
X, X_NEW = RNG.normal(size=(40, 4)) + 1.0, RNG.normal(size=(7, 4))
STEPS = [("trace",), ("unit",), ("center",), ("center", "trace"), ("unit", "center", "unit")]


@pytest.fixture
def small_blocks(monkeypatch):
    """A few rows a block, so that sums over blocks are of several."""
    monkeypatch.setattr(rows, "BLOCK", 100)


def inner(features, other=None):
    return features[0] @ (features if other is None else other)[0].T


@pytest.mark.parametrize("steps", [(), *STEPS], ids="-".join)
@pytest.mark.parametrize(
    "kernel", [linear(), polynomial(2), polynomial(3, 0.5, 2.0), polynomial(2, 1.0, 0.0)]
)
@pytest.mark.usefixtures("small_blocks")
def test_exact_features_give_the_normalised_kernel(kernel, steps):
    kernel = kernel.normalize(*steps)
    features = kernel.exact_features()
    train, new = features(X).values, features(X_NEW, X).values
    np.testing.assert_allclose(inner(train), kernel(X).values[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(inner(new, train), kernel(X_NEW, X).values[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("by", ["uniform", "kmeans"])
@pytest.mark.parametrize("steps", STEPS, ids="-".join)
@pytest.mark.usefixtures("small_blocks")
def test_all_landmarks_give_the_normalised_kernel(steps, by):
    kernel = polynomial(2).normalize(*steps)
    features = kernel.nystroem(40, by=by)
    train, new = features(X).values, features(X_NEW, X).values
    np.testing.assert_allclose(inner(train), kernel(X).values[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(inner(new, train), kernel(X_NEW, X).values[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("by", ["uniform", "kmeans"])
def test_self_similarities_of_nystroem_features_are_below_the_kernels(by):
    features = gaussian(0.3).normalize("trace").nystroem(10, by=by)(X).values[0]
    norms = np.sum(features**2, axis=1)
    assert norms.max() < 1 + 1e-9
    assert 15 < norms.sum() < 39


MATERN = {name: covariance(getattr(pm.gp.cov, name)(4, ls=1.7)) for name in
          ("ExpQuad", "Matern12", "Matern32", "Matern52")}  # fmt: skip
STATIONARY = {
    "gaussian": gaussian(0.3),
    "default": gaussian(),
    "laplace": laplace(0.2),
    "columns": covariance(pm.gp.cov.Matern32(4, ls=[1.0, 2.0], active_dims=[1, 3])),
    **MATERN,
}


@pytest.mark.parametrize("name", STATIONARY)
def test_random_features_are_unbiased(name):
    """Entries are means of F cosines, with a standard error of at most F^(-1/2)."""
    n_frequencies = 20_000
    kernel = STATIONARY[name]
    features = kernel.random_features(2 * n_frequencies)
    train, new = features(X[:12]).values, features(X_NEW, X[:12]).values
    error = inner(new, train) - kernel(X_NEW, X[:12]).values[0]
    assert np.abs(error).max() < 4.5 / np.sqrt(n_frequencies)
    assert np.sqrt(np.mean(error**2)) < 1.5 / np.sqrt(n_frequencies)
    np.testing.assert_allclose(np.sum(train[0] ** 2, axis=1), 1.0)


def test_orthogonal_frequencies_err_less():
    """Yu et al. (2016), figure 1: the error of a Gaussian kernel, over many seeds."""
    gamma = 0.05
    exact = gaussian(gamma)(X).values[0]
    rng = np.random.default_rng(4)
    differences = X[:, None] - X
    errors = {"orthogonal": [], "independent": []}
    for seed in range(100):
        features = gaussian(gamma).random_features(8, seed=seed)(X).values
        errors["orthogonal"].append(inner(features) - exact)
        waves = np.cos(differences @ (np.sqrt(2 * gamma) * rng.normal(size=(4, 4))).T)
        errors["independent"].append(waves.mean(axis=-1) - exact)
    squares = {key: np.mean(np.square(value)) for key, value in errors.items()}
    assert squares["orthogonal"] < 0.6 * squares["independent"]


def test_k_means_errs_less_than_uniform_landmarks():
    objects = np.random.default_rng(0).normal(size=(400, 3))
    exact = gaussian(0.2)(objects).values[0]
    errors = {
        by: np.mean([
            np.linalg.norm(inner(gaussian(0.2).nystroem(25, by=by, seed=s)(objects).values) - exact)
            for s in range(3)
        ])
        for by in ("uniform", "kmeans")
    }  # fmt: skip
    assert errors["kmeans"] < 0.8 * errors["uniform"]


SPECIFICATIONS = {
    "uniform": gaussian("median").normalize("center", "trace").nystroem(8),
    "kmeans": polynomial(2).normalize("unit").nystroem(8, by="kmeans"),
    "landmarks": gaussian("median").normalize("center", "unit").landmarks(8, by="kmeans"),
    "random": laplace("median").random_features(8),
    "exact": linear().normalize("trace").exact_features(),
    "together": gaussian(0.1).nystroem(8) | linear().exact_features(),
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_features_of_dask_arrays_are_those_of_arrays(name, monkeypatch):
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(rows, "BLOCK", 3_000)
    kernels = SPECIFICATIONS[name]
    many = np.random.default_rng(1).normal(size=(1_200, 3)).astype(np.float32)
    chunked, expected = da.from_array(many, chunks=(100, 3)), kernels(many.astype(float))
    xr.testing.assert_allclose(kernels(chunked).compute(), expected, atol=1e-12)
    found = kernels(chunked[:9], chunked).compute()
    xr.testing.assert_allclose(found, kernels(many[:9], many), atol=1e-12)


def test_exact_features_are_padded_with_zeros():
    stack = (gaussian(0.1).nystroem(8) | linear().exact_features())(X)
    np.testing.assert_array_equal(stack.values[1, :, :4], X)
    assert not stack.values[1, :, 4:].any()
    as_stack(stack)


@pytest.mark.parametrize("by", ["uniform", "kmeans"])
def test_memory_is_that_of_the_features_and_a_block(by, monkeypatch):
    """Neither an N x N matrix nor a second copy of the features, nor of the objects."""
    n, m, block = 20_000, 60, 60_000
    many = np.random.default_rng(0).normal(size=(n, 20)).astype(np.float32)
    monkeypatch.setattr(rows, "BLOCK", block)
    kernels = gaussian(0.05) | gaussian(0.2)
    kernels = kernels.normalize("center", "unit").nystroem(m, by=by)
    kernels(many[:200])  # imports
    tracemalloc.start()
    stack = kernels(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stack.shape == (2, n, m)
    assert peak < stack.nbytes + 14 * 8 * block < 1.5 * stack.nbytes


def with_nan():
    bad = X.copy()
    bad[31, 2] = np.nan
    return bad


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gaussian().random_features(0), "'n_components' argument of random_features"),
        (lambda: gaussian().random_features(7), "even, a cosine and a sine .* Got 7"),
        (lambda: linear().random_features(4), "gaussian, laplace, .*Matern12.* Got 'linear'"),
        (lambda: covariance(pm.gp.cov.Cosine(4, ls=1)).random_features(4), "Matern32.*'Cosine'"),
        (lambda: precomputed().random_features(4), "'precomputed'"),
        (lambda: gaussian(Theta(1, 1)).random_features(4), "argument of random_features"),
        (lambda: gaussian().random_features(4).random_features(2), "argument of random_features"),
        (lambda: gaussian().exact_features(), "linear or polynomial. Got 'gaussian'"),
        (lambda: cosine().exact_features(), "linear or polynomial"),
        (
            lambda: polynomial(5).exact_features()(np.ones((3, 30))),
            "at most 5000 features .* Got 324632 for 'polynomial.5.' of 30 columns",
        ),
        (lambda: (gaussian().nystroem(4) | gaussian().nystroem(6))(X), "as many basis functions"),
        (lambda: gaussian().random_features(4)(with_nan()), r"position \(31, 2\)"),
        (lambda: gaussian().nystroem(4)(X_NEW[:, :2], X), "of 4 features.* Got 2 features"),
        (lambda: linear().normalize("unit").exact_features()(0 * X), "positive self-similarit"),
        (lambda: linear().normalize("trace").exact_features()(0 * X), "positive trace"),
        (lambda: gaussian().random_features(4).normalize("unit"), "applied to kernels"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small_blocks")
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


MAPS = {
    "uniform": kz.gaussian(0.3).nystroem(6, seed=1),
    "kmeans": kz.gaussian(0.3).nystroem(6, seed=1, by="kmeans"),
    "normalised": kz.gaussian(0.3).normalize("center", "unit", "trace").nystroem(6, seed=1),
    "width": kz.gaussian("median").named("a").random_features(6, seed=1),
    "trace": kz.linear().normalize("trace").exact_features(),
    "beside": kz.gaussian(0.3).nystroem(3, seed=1) | kz.kernels.basis_expansion(np.abs),
}


@pytest.mark.parametrize("name", MAPS)
def test_features_of_another_training_set_are_refused(name):
    rng = np.random.default_rng(3)
    kernels = MAPS[name]
    train = pd.DataFrame(rng.normal(size=(40, 3)), [f"a{i}" for i in range(40)])
    new = pd.DataFrame(rng.normal(size=(4, 3)), [f"n{i}" for i in range(4)])
    like = kernels(train)
    given = kernels(new, train)
    xr.testing.assert_identical(as_stack(given, like=like).drop_attrs(), given.drop_attrs())
    # Of another machine, with other last digits.
    as_stack(kernels(new, train * (1 + 1e-15)), like=like)
    turned = 2 * train if name in ("width", "trace") else train[::-1]
    with pytest.raises(ValueError, match="training objects, in their order"):
        as_stack(kernels(new, turned), like=like)
    if name != "beside":
        with pytest.raises(ValueError, match="training objects, in their order"):
            as_stack(kernels(new, turned).chunk(obs=2).compute(), like=like)


def test_features_go_by_the_names_of_their_kernels():
    one, other = kz.gaussian(0.3).nystroem(4), kz.linear().exact_features()
    X = np.random.default_rng(3).normal(size=(9, 4))
    swapped = as_stack((other | one)(X[:3], X), like=(one | other)(X))
    xr.testing.assert_identical(swapped.drop_attrs(), (one | other)(X[:3], X).drop_attrs())
