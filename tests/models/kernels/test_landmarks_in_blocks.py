"""Landmarks on arrays and Dask arrays: memory, refusals, and labels that tell them apart."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.models.kernels import (
    as_stack,
    gaussian,
    linear,
    polynomial,
    rows,
)

RNG = np.random.default_rng(3)
X, X_NEW = RNG.normal(size=(40, 4)) + 1.0, RNG.normal(size=(7, 4))


@pytest.fixture
def small_blocks(monkeypatch):
    """A few rows a block, so that sums over blocks are of several."""
    monkeypatch.setattr(rows, "BLOCK", 100)


SPECIFICATIONS = {
    "uniform": gaussian("median").normalize("center", "trace").landmarks(8),
    "kmeans": polynomial(2).normalize("unit").landmarks(8, by="kmeans"),
    "landmarks": gaussian("median").normalize("center", "unit").landmarks(8, by="kmeans"),
    "together": gaussian(0.1).landmarks(8) | linear().landmarks(8),
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


@pytest.mark.parametrize("by", ["uniform", "kmeans"])
def test_memory_is_that_of_the_features_and_a_block(by, monkeypatch):
    """Neither an N x N matrix nor a second copy of the features, nor of the objects."""
    n, m, block = 20_000, 60, 60_000
    many = np.random.default_rng(0).normal(size=(n, 20)).astype(np.float32)
    monkeypatch.setattr(rows, "BLOCK", block)
    kernels = gaussian(0.05) | gaussian(0.2)
    kernels = kernels.normalize("center", "unit").landmarks(m, by=by)
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
        (lambda: (gaussian().landmarks(4) | gaussian().landmarks(6))(X), "as many basis functions"),
        (lambda: gaussian().landmarks(4)(with_nan()), r"position \(31, 2\)"),
        (lambda: gaussian().landmarks(4)(X_NEW[:, :2], X), "of 4 features.* Got 2 features"),
        (lambda: linear().normalize("unit").landmarks(4)(0 * X), "positive self-similarit"),
        (lambda: linear().normalize("trace").landmarks(4)(0 * X), "positive trace"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small_blocks")
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


MAPS = {
    "uniform": kz.gaussian(0.3).landmarks(6, seed=1),
    "kmeans": kz.gaussian(0.3).landmarks(6, seed=1, by="kmeans"),
    "normalised": kz.gaussian(0.3).normalize("center", "unit", "trace").landmarks(6, seed=1),
    "width": kz.gaussian("median").named("a").landmarks(6, seed=1),
    "trace": kz.linear().normalize("trace").landmarks(4),
    "beside": kz.gaussian(0.3).landmarks(3, seed=1) | kz.kernels.basis_expansion(np.abs),
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


def test_a_trace_of_other_training_objects_is_told():
    kernels = kz.polynomial(2).normalize("trace").landmarks(4)
    others = np.setdiff1d(np.arange(40), np.random.default_rng(0).choice(40, 4, replace=False))
    changed = X.copy()
    changed[others] *= 2
    with pytest.raises(ValueError, match="training objects, in their order"):
        as_stack(kernels(X_NEW, changed), like=kernels(X))


def test_features_go_by_the_names_of_their_kernels():
    one, other = kz.gaussian(0.3).landmarks(4), kz.linear().landmarks(4)
    X = np.random.default_rng(3).normal(size=(9, 4))
    swapped = as_stack((other | one)(X[:3], X), like=(one | other)(X))
    xr.testing.assert_identical(swapped.drop_attrs(), (one | other)(X[:3], X).drop_attrs())
