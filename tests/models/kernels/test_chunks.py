"""Features in a Dask array: their kernels are computed by chunks, and what they hold is checked."""

import numpy as np
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.models.kernels import specification

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(50, 4))
KERNELS = (kz.gaussian(0.3) | kz.linear()).landmarks(9, seed=1)


pytestmark = pytest.mark.usefixtures("one_thread")


def stack(size=17):
    return KERNELS(da.from_array(X, chunks=(size, -1)))


def test_the_chunks_are_those_of_the_kernels():
    found = stack()
    assert found.chunksizes["obs"] == (17, 17, 16)
    xr.testing.assert_allclose(found.compute(), KERNELS(X))
    xr.testing.assert_identical(found.coords.to_dataset(), KERNELS(X).coords.to_dataset())


def test_objects_on_disk_are_read_by_the_tasks(tmp_path):
    zarr = pytest.importorskip("zarr")
    store = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(17, 4), dtype=float)
    store[:] = X
    mapped = np.memmap(tmp_path / "x", float, "w+", shape=X.shape)
    mapped[:] = X
    for source in (da.from_zarr(store), da.from_array(mapped, chunks=(20, -1))):
        np.testing.assert_allclose(KERNELS(source).values, KERNELS(X).values, atol=1e-12)
    store[31, 2] = np.nan
    with pytest.raises(ValueError, match=r"position \(31, 2\)"):
        KERNELS(da.from_zarr(store), X).compute()


@pytest.mark.parametrize("kernels", [KERNELS, kz.linear().normalize("trace").landmarks(9)])
@pytest.mark.parametrize("dtype", [float, np.float32, int])
def test_several_spaces_of_which_one_is_in_memory(kernels, dtype):
    both = {"a": X.astype(dtype), "b": X[:, :2]}
    chunked = {"a": da.from_array(both["a"], chunks=(13, -1)), "b": both["b"]}
    found = kernels(chunked)
    assert found.chunksizes["obs"] == (13, 13, 13, 11)
    np.testing.assert_allclose(found.values, kernels(both).values, atol=1e-12)


def test_large_chunks_are_made_smaller(monkeypatch):
    monkeypatch.setattr(specification, "CHUNK_NUMBERS", 2 * 9 * 8)
    found = stack(17)
    assert max(found.chunksizes["obs"]) == 8
    np.testing.assert_allclose(found.values, KERNELS(X).values, atol=1e-12)


def unknown(array):
    keep = np.arange(len(array)) < 25
    return array[da.from_array(keep, chunks=17)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KERNELS(da.from_array(X, chunks=(10, 2))), r"whole rows: \.rechunk\("),
        (lambda: KERNELS(unknown(da.from_array(X, chunks=(17, 4)))), "compute_chunk_sizes"),
        (
            lambda: KERNELS(unknown(da.from_array(X, chunks=(17, 4))).compute_chunk_sizes()),
            r"whole rows: \.rechunk\(",
        ),
        (lambda: KERNELS(da.from_array(X[:, 0], chunks=10)), "objects, features"),
        (lambda: KERNELS(da.from_array(X.astype(str), chunks=(10, -1))), "numbers of shape"),
        (lambda: kz.linear()(da.from_array(X, chunks=(10, -1))), r"training objects in memory"),
        (
            lambda: kz.gaussian(kz.kernels.Theta(1, 1))(da.from_array(X, chunks=(10, -1)), X),
            "without parameters to learn",
        ),
        (
            lambda: kz.kernels.basis_expansion(np.square)(da.from_array(X, chunks=(10, -1)), X),
            "for a Dask array. Got 'square'",
        ),
        (
            lambda: KERNELS(da.from_array(X[:, :2], chunks=(10, -1)), X).compute(),
            "of 4 features.* Got 2 features",
        ),
    ],
)
def test_arrays_that_cannot_be_read_by_rows_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


OTHER_THAN_NUMBERS = {
    "complex": (lambda chunk: chunk + 1j, "real numbers. Got complex"),
    "strings": (lambda chunk: chunk.astype(str), "real numbers. Got str"),
    "dates": (lambda chunk: chunk.astype("datetime64[D]"), "real numbers"),
    "masked": (lambda chunk: np.ma.masked_greater(chunk, 1), "without masked entries"),
}


@pytest.mark.parametrize("kind", OTHER_THAN_NUMBERS)
def test_chunks_of_features_are_the_real_numbers_that_dask_promises(kind):
    """Converted to floats, they lost imaginary parts, units and masks."""
    change, message = OTHER_THAN_NUMBERS[kind]
    chunks = da.from_array(X, chunks=(17, -1)).map_blocks(change, dtype=float, meta=X[:0])
    with pytest.raises(ValueError, match=f"'X' argument of Kernels must be .*{message}"):
        KERNELS(chunks, X).compute()


def test_chunks_of_features_may_be_booleans_and_numbers_of_python():
    expected = KERNELS(da.from_array(1.0 * (X > 0), chunks=(17, -1)), X).values
    for change in (lambda chunk: chunk > 0, lambda chunk: (1.0 * (chunk > 0)).astype(object)):
        chunks = da.from_array(X, chunks=(17, -1)).map_blocks(change, dtype=float, meta=X[:0])
        np.testing.assert_array_equal(KERNELS(chunks, X).values, expected)
