"""Predictions by chunks of a Dask array: those in one piece, with the memory of a chunk."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine import predict as predict_module

da = pytest.importorskip("dask.array")

RNG = np.random.default_rng(5)
X, X_NEW = RNG.normal(size=(30, 4)), RNG.normal(size=(101, 4))
LABELS = np.arange(30) % 3
SPECIFICATIONS = {
    "kernels": (kz.gaussian("median") | kz.linear()).normalize("trace"),
    "features": (kz.gaussian(0.2) | kz.polynomial(2)).normalize("unit").landmarks(9),
    "columns": (kz.gaussian(0.2) | kz.polynomial(2)).normalize("unit").landmarks(9),
    "together": kz.gaussian(0.2).landmarks(12) | kz.linear().landmarks(12),
}


def result_of(model, draws=6):
    """Draws that need no fit."""
    rng = np.random.default_rng(2)
    K = model.coords["kernel"], model.coords["basis"]
    n_kernels, n_basis = map(len, K)
    shape, names = (2, draws), ("chain", "draw")
    W = rng.normal(size=(*shape, 3, n_basis))
    posterior = {"W": ((*names, "class", "basis"), W)}
    if n_kernels > 1:
        beta = rng.dirichlet(np.ones(n_kernels), size=shape)
        posterior["beta"] = ((*names, "kernel"), beta)
    coords = {"class": [0, 1, 2], "kernel": list(K[0]), "basis": list(K[1])}
    tree = DataTree.from_dict({"posterior": xr.Dataset(posterior, coords=coords)})
    tree.attrs.update(model="MultinomialProbit", engine="Gibbs")
    return tree


def chunked(X_new, size):
    return da.from_array(X_new, chunks=(size, -1))


def predict(model, kernels_new, **options):
    return kz.predict(model, result_of(model), kernels_new, progressbar=False, **options)


@pytest.mark.parametrize("keep_draws", [False, True])
@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_blocks_give_the_predictions_in_one_piece(name, keep_draws):
    kernels = SPECIFICATIONS[name]
    model = kz.MultinomialProbit(kernels(X), LABELS)
    whole = predict(model, kernels(X_NEW, X), keep_draws=keep_draws)
    blocks = kernels(chunked(X_NEW, 20), X)
    assert blocks.chunksizes["obs"] == (20, 20, 20, 20, 20, 1)
    # The targets of two chunks would be drawn independently of each other.
    alone = whole.drop_vars("t", errors="ignore")
    xr.testing.assert_allclose(predict(model, blocks, keep_draws=keep_draws), alone, atol=1e-10)
    assert predict(model, blocks).attrs == predict(model, kernels(X_NEW, X)).attrs


def test_regression_in_blocks():
    kernels = SPECIFICATIONS["kernels"]
    model = kz.CompositeKernelRegression(kernels(X), X[:, 0])
    result = kz.fit(model, "vb", draws=20, random_seed=1, progressbar=False)
    whole = kz.predict(model, result, kernels(X_NEW, X))
    blocks = kz.predict(model, result, kernels(chunked(X_NEW, 30), X), progressbar=False)
    xr.testing.assert_allclose(blocks, whole)


def test_ids_of_objects_come_from_a_table_beside_the_dask_array():
    kernels = kz.gaussian(0.2).landmarks(9)
    train = pd.DataFrame(X, [f"t{i}" for i in range(30)], list("abcd"))
    new = pd.DataFrame(X_NEW, [f"object {i}" for i in range(101)], list("abcd"))
    model = kz.MultinomialProbit(kernels({"a": train, "b": X}), pd.Series(LABELS, train.index))
    whole = predict(model, kernels({"a": new, "b": X_NEW}, {"a": train, "b": X}))
    spaces = {"a": new[list("dbca")], "b": chunked(X_NEW, 20)}
    blocks = predict(model, kernels(spaces, {"a": train, "b": X}))
    xr.testing.assert_allclose(blocks, whole, atol=1e-10)
    assert blocks["obs"].values.tolist() == list(new.index)


def test_of_two_predictions_in_one_store_the_second_is_refused(tmp_path):
    """Both have found nothing there."""
    pytest.importorskip("zarr")
    path, block = tmp_path / "p.zarr", xr.Dataset({"p": ("obs", np.arange(3))})
    predict_module._written([block], path)
    with pytest.raises(FileExistsError):
        predict_module._written([block], path)
    assert xr.open_zarr(path, consolidated=False).sizes["obs"] == 3


def test_predictions_in_a_store_are_those_in_memory(tmp_path):
    pytest.importorskip("zarr")
    kernels = SPECIFICATIONS["features"]
    model = kz.MultinomialProbit(kernels(X), np.array(["no", "yes", "perhaps"])[LABELS])
    options = {"keep_draws": True, "random_seed": 1}
    whole = predict(model, kernels(X_NEW, X), **options)
    blocks = kernels(chunked(X_NEW, 20), X)
    stored = predict(model, blocks, store=tmp_path / "blocks.zarr", **options)
    xr.testing.assert_allclose(stored.load(), whole.drop_vars("t"), atol=1e-10)
    assert stored.attrs == {name: whole.attrs[name] for name in ("engine", "model")}
    at_once = predict(model, kernels(X_NEW, X), store=tmp_path / "one.zarr", **options)
    xr.testing.assert_identical(at_once.load(), whole)
    with pytest.raises(ValueError, match="'store' argument of predict must be a path where"):
        predict(model, blocks, store=tmp_path / "one.zarr")


def test_memory_is_that_of_a_block():
    """The 50,000 x 200 stack alone would be 80 MB."""
    many = np.random.default_rng(0).normal(size=(50_000, 4)).astype(np.float32)
    train = np.random.default_rng(1).normal(size=(200, 4))
    kernels = kz.gaussian(0.2).landmarks(200)
    model = kz.MultinomialProbit(kernels(train), np.arange(200) % 3)
    result = result_of(model, draws=1)
    # The first call imports.
    few = kz.predict(model, result, kernels(many[-3:], train))
    tracemalloc.start()
    predictions = kz.predict(model, result, kernels(chunked(many, 1_000), train), progressbar=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = predictions.nbytes + many.shape[0] * 8
    assert peak < 3 * held + 8 * 8 * 1_000 * 200
    assert peak < 0.4 * 50_000 * 200 * 8
    np.testing.assert_allclose(predictions["probability"][-3:], few["probability"], atol=1e-10)


def test_a_value_that_is_not_finite_is_named():
    bad = X_NEW.copy()
    bad[77, 1] = np.nan
    model = kz.MultinomialProbit(kz.linear()(X), LABELS)
    with pytest.raises(ValueError, match=r"position \(77, 1\)"):
        predict(model, kz.linear()(chunked(bad, 9), X))


def test_chunks_of_another_shape_than_promised_are_refused():
    kernels = SPECIFICATIONS["columns"]
    model = kz.MultinomialProbit(kernels(X), LABELS)
    chunks = kernels(chunked(X_NEW, 20), X)
    meta = np.empty((0, 0, 0))
    short = chunks.data.map_blocks(lambda chunk: chunk[:, :-1], dtype=float, meta=meta)
    with pytest.raises(ValueError, match=r"'kernels_new' .* shape \(2, 20, 9\).* \(2, 19, 9\)"):
        predict(model, chunks.copy(data=short))
