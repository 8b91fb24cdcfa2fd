"""Kernels in a Dask array: VB as in memory, refusals of what the chunks hold, one cluster."""

import gc
import os
import signal
import weakref
from threading import Timer

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference import identified
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.combinations.sums import Binary, FixedWeights, Mean
from kernelzoo.models.kernels import dask_stack, specification

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

pytestmark = pytest.mark.filterwarnings("ignore:VB did not converge")

RNG = np.random.default_rng(5)
LABELS = np.arange(50) % 3
X = RNG.normal(size=(50, 4)) + np.eye(3, 4)[LABELS]
X_NEW = RNG.normal(size=(7, 4))
KERNELS = (kz.gaussian(0.3) | kz.linear()).landmarks(9, seed=1)
QUIET = {"progressbar": False, "random_seed": 1, "draws": 60}


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def stack(size=17):
    return KERNELS(da.from_array(X, chunks=(size, -1)))


def in_memory_and_in_blocks(**settings):
    return [kz.MultinomialProbit(K, LABELS, **settings) for K in (KERNELS(X), stack())]


def test_the_blocks_are_those_of_the_kernels():
    found = stack()
    assert found.chunksizes["obs"] == (17, 17, 16)
    xr.testing.assert_allclose(found.compute(), KERNELS(X))
    xr.testing.assert_identical(found.coords.to_dataset(), KERNELS(X).coords.to_dataset())


@pytest.mark.parametrize("size", [50, 7, 3, 1])
def test_the_blocks_are_added_in_any_number(size):
    blocks = kz.MultinomialProbit(stack(size), LABELS).kernel_source
    (number,) = blocks.total(number_of_objects)
    assert number == 50
    assert sum(blocks.each(lambda block: block.shape[1])) == 50


@pytest.mark.parametrize("size", [1, 4, 10])
def test_parts_of_a_block_are_all_of_it(size, monkeypatch):
    """Also where the last is smaller than the others."""
    monkeypatch.setattr(dask_stack, "ROWS", 4)
    block = np.arange(3 * size * 2).reshape(3, size, 2)
    parts = [block[:, part] for part in dask_stack.rows_of(block)]
    assert max(part.shape[1] for part in parts) <= 4
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), block)


def number_of_objects(block):
    return (block.shape[1],)


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


@pytest.mark.parametrize("rule", [Mean(), FixedWeights([0.3, 0.7]), Binary()])
def test_the_answer_is_that_in_memory(rule):
    one, other = (kz.fit(m, "vb", **QUIET) for m in in_memory_and_in_blocks(combination=rule))
    bounds = [found["trajectory"]["elbo"].values for found in (one, other)]
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=1e-8)
    for name in other["variational"].data_vars:
        a, b = (found["variational"][name].values for found in (one, other))
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-8, err_msg=name)
    for name in other["posterior"].data_vars:
        a, b = (found["posterior"][name].values for found in (one, other))
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-7, err_msg=name)
    assert other.attrs["pareto_k"] == pytest.approx(one.attrs["pareto_k"], rel=1e-5)


def test_the_density_is_that_in_memory_and_has_no_gradient(monkeypatch):
    one, other = in_memory_and_in_blocks()
    values = kz.fit(one, "vb", **QUIET)["posterior"].isel(chain=0)
    draws = {name: values[name].values[:3] for name in values.data_vars}
    passes = []
    original = other.kernel_source.each
    monkeypatch.setattr(
        type(other.kernel_source), "each", lambda *a, **k: passes.append(1) or original(*a[1:], **k)
    )
    np.testing.assert_allclose(log_density(other, draws), log_density(one, draws), rtol=1e-10)
    assert len(passes) == 1
    with pytest.raises(ValueError, match="have no gradient: use VB"):
        other.compile_dlogp(mode="FAST_COMPILE")
    with other:
        prior = pm.sample_prior_predictive(5, random_seed=1)
    assert prior["prior_predictive"]["t"].shape == (1, 5, 50)


def test_engines_say_that_they_need_memory():
    _, model = in_memory_and_in_blocks()
    reasons = kz.engines(model).frame["reason"]
    assert [engine for engine, reason in reasons.items() if not reason] == ["VB"]
    for engine in ("Gibbs", "NUTS", "SMC", "MAP", "ADVI", "Laplace", "Pathfinder"):
        assert "compute()" in reasons[engine] or "installed" in reasons[engine]
    with pytest.raises(ValueError, match=r"compute\(\)"):
        kz.fit(model, "gibbs", **QUIET)
    with pytest.raises(ValueError, match="weighted sum"):
        kz.MultinomialProbit(abs(stack()), LABELS, combination="product")


def test_results_predict_compare_and_save(tmp_path):
    one, other = in_memory_and_in_blocks()
    K_new = KERNELS(X_NEW, X)
    found, in_memory = (kz.fit(model, "vb", **QUIET) for model in (other, one))
    contrasts = (identified(result)["contrast"] for result in (found, in_memory))
    xr.testing.assert_allclose(*contrasts, rtol=1e-5)
    expected = kz.predict(one, in_memory, K_new)["probability"]
    xr.testing.assert_allclose(kz.predict(other, found, K_new)["probability"], expected, rtol=1e-5)
    found.to_netcdf(tmp_path / "found.nc")
    loaded = xr.load_datatree(tmp_path / "found.nc")
    again = kz.predict(other, loaded, KERNELS(da.from_array(X_NEW, chunks=(3, -1)), X))[
        "probability"
    ]
    xr.testing.assert_allclose(again, expected, rtol=1e-5)
    table = kz.compare_engines({"a": found, "b": loaded}, model=other)
    assert {"contrast", "beta"} <= set(table.variables.reset_index()["variable"])
    with pytest.raises(ValueError, match="in memory and one on kernels in a Dask array"):
        kz.predict(one, loaded, K_new)


def test_results_of_other_data_are_refused():
    """Also the same objects in another order."""
    values = KERNELS(X).values
    centred = values - values.mean(axis=1, keepdims=True)
    shuffled = centred[:, RNG.permutation(50)]

    def model_of(array, size=17):
        blocks = da.from_array(array, chunks=(-1, size, -1))
        return kz.MultinomialProbit(KERNELS(X).copy(data=blocks), LABELS)

    found = kz.fit(model_of(centred), "vb", **QUIET)
    K_new = KERNELS(X_NEW, X)
    kz.predict(model_of(centred, size=20), found, K_new)
    for other in (2 * centred, shuffled):
        with pytest.raises(ValueError, match="other values of K_rows"):
            kz.predict(model_of(other), found, K_new)
    table = kz.compare_engines({"a": found, "b": found}, model=model_of(centred))
    in_memory = kz.MultinomialProbit(KERNELS(X).copy(data=centred), LABELS)
    fitted = kz.fit(in_memory, "vb", **QUIET)
    expected = kz.compare_engines({"a": fitted, "b": fitted}, model=in_memory)
    assert len(table.elements) == len(expected.elements)


def test_kernels_go_with_their_model():
    model = kz.MultinomialProbit(stack(), LABELS)
    kz.fit(model, "vb", **QUIET)
    function, point = model.compile_logp(mode="FAST_COMPILE"), model.initial_point()
    blocks = weakref.ref(model.kernel_source)
    amended = cloudpickle.loads(cloudpickle.dumps(model_with_a_term(model)))
    assert np.isfinite(amended.compile_logp(mode="FAST_COMPILE")(point))
    del model, amended
    gc.collect()
    assert blocks() is None
    with pytest.raises(RuntimeError, match="keep the model"):
        function(point)


def model_with_a_term(model):
    amended = model.copied()
    with amended:
        pm.Potential("prefers small regressors", -(amended["W"] ** 2).sum())
    return amended


def test_data_that_stand_for_kernels_cannot_be_set():
    _, model = in_memory_and_in_blocks()
    with model:
        pm.set_data({"K_rows": np.zeros((2, 40, 9))})
    with pytest.raises(ValueError, match="stands for kernels as they were declared"):
        kz.fit(model, "vb", **QUIET)


def test_labels_of_more_objects_than_the_blocks_have_are_refused():
    _, model = in_memory_and_in_blocks()
    with model:
        pm.set_data({"labels": np.arange(60) % 3}, coords={"obs": range(60)})
    with pytest.raises(ValueError, match="one of each of the 50 objects"):
        kz.fit(model, "vb", **QUIET)


def test_chunks_that_split_columns_or_are_empty_or_unknown_are_refused():
    values, keep = KERNELS(X), np.arange(50) < 25
    blocks = da.from_array(values.values, chunks=(2, 17, 9))
    unknown_rows = blocks[:, da.from_array(keep, chunks=17)]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        kz.MultinomialProbit(xr.DataArray(unknown_rows, dims=values.dims), LABELS[keep])
    empty = values[:, keep].copy(data=unknown_rows.compute_chunk_sizes())
    assert 0 in empty.chunksizes["obs"]
    split = [values.copy(data=blocks.rechunk(chunks)) for chunks in ((1, 17, 9), (2, 17, 4))]
    for K, labels in ((empty, LABELS[keep]), *((each, LABELS) for each in split)):
        with pytest.raises(ValueError, match=r"whole rows: \.chunk\("):
            kz.MultinomialProbit(K, labels)


def test_models_are_pickled_with_their_blocks():
    _, model = in_memory_and_in_blocks()
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.kernel_source.stack.shape == (2, 50, 9)
    np.testing.assert_allclose(copy.kernel_source.rows, model.kernel_source.rows)


def with_entry(value):
    values = KERNELS(X).values
    values[1, 20, 3] = value
    return KERNELS(X).copy(data=da.from_array(values, chunks=(2, 17, 9)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_first_entry_that_is_not_finite_is_named(value, monkeypatch):
    monkeypatch.setattr(dask_stack, "ROWS", 2)
    with pytest.raises(ValueError, match=r"kernel landmarks linear.*row 20, column 3"):
        kz.MultinomialProbit(with_entry(value), LABELS)


def test_other_chunks_than_promised_are_refused():
    short = da.from_delayed(dask.delayed(np.ones)((2, 16, 9)), (2, 17, 9), dtype=float)
    blocks = da.concatenate([short, da.ones((2, 33, 9), chunks=(2, 33, 9))], axis=1)
    with pytest.raises(ValueError, match=r"shape \(2, 17, 9\).*\(2, 16, 9\) in rows 0 to 16"):
        kz.MultinomialProbit(KERNELS(X).copy(data=blocks), LABELS)
    with pytest.raises(ValueError, match="labels"):
        kz.MultinomialProbit(stack(), LABELS[:-1])
    with pytest.raises(ValueError, match="in memory if they are Gram"):
        kz.MultinomialProbit(kz.gaussian(0.3)(X).chunk({"obs": 10}), LABELS)


@pytest.mark.parametrize("dtype", [complex, str])
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "not promised"])
def test_blocks_without_real_numbers_are_refused(dtype, promised):
    """Converted to floats, strings would be taken, and imaginary parts lost."""
    values = KERNELS(X).values.astype(dtype)
    dtype = values.dtype if promised else float
    blocks = da.from_delayed(dask.delayed(lambda: values)(), values.shape, dtype=dtype)
    with pytest.raises(ValueError, match=r"'kernels' argument .* numbers.* Got .*(complex128|<U)"):
        kz.MultinomialProbit(KERNELS(X).copy(data=blocks), LABELS)


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


def test_masked_chunks_of_kernels_are_refused():
    values = KERNELS(X).values
    masked = dask.delayed(np.ma.masked_greater)(values, np.median(values))
    blocks = da.from_delayed(masked, values.shape, dtype=float)
    with pytest.raises(ValueError, match=r"'kernels' argument .* without masked entries"):
        kz.MultinomialProbit(KERNELS(X).copy(data=blocks), LABELS)


@pytest.mark.slow
def test_a_cluster_gives_the_same_answer_also_when_a_worker_is_killed():
    distributed = pytest.importorskip("distributed")
    engine = kz.VB(tolerance=1e-10, starts=1)
    expected = kz.fit(kz.MultinomialProbit(KERNELS(X), LABELS), engine, **QUIET)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    killed = []

    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
        dask.config.set(scheduler=None),
    ):
        model = kz.MultinomialProbit(stack().persist(), LABELS)

        def kill():
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

        timer = Timer(0.5, kill)
        for disturbed in (False, True):
            if disturbed:
                timer.start()
            found = kz.fit(model, engine, **QUIET)
            if disturbed:
                assert not timer.is_alive()
                assert killed
            for name in ("W_mean", "beta_mean"):
                a, b = (each["variational"][name].values for each in (expected, found))
                np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-8)
