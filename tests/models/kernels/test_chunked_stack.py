"""Kernels at landmarks in a Dask array: what their chunks hold is checked, and whose they are."""

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
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.models.kernels import chunked_stack
from kernelzoo.models.kernels.chunked_stack import Chunks

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

RNG = np.random.default_rng(5)
LABELS = np.arange(50) % 3
X = RNG.normal(size=(50, 4)) + np.eye(3, 4)[LABELS]
X_NEW = RNG.normal(size=(7, 4))
KERNELS = (kz.gaussian(0.3) | kz.linear()).normalize("unit").landmarks(9, seed=1)
KNOWN = {"scale": 5.0, "combination": kz.combinations.FixedWeights([0.3, 0.7])}
QUIET = {"progressbar": False, "random_seed": 1, "draws": 20}
ENGINE = kz.INLA(integrate=False)


pytestmark = pytest.mark.usefixtures("one_thread")


def stack(size=17):
    return KERNELS(da.from_array(X, chunks=(size, -1)))


def declared(kernels, labels=LABELS):
    return kz.GaussianProcessClassification(kernels, labels, **KNOWN)


def with_chunks(blocks):
    return KERNELS(X).copy(data=blocks)


MODELS = [
    kz.MultinomialProbit,
    kz.CompositeKernelClassification,
    kz.CompositeKernelRegression,
]


@pytest.mark.parametrize("declare", MODELS)
def test_other_models_say_what_to_do(declare):
    with pytest.raises(ValueError, match=r"compute\(\) .* loads it.*GaussianProcess.* landmarks"):
        declare(stack(), LABELS % 2)
    declare(stack().compute(), LABELS % 2)


@pytest.mark.parametrize("size", [50, 7, 3, 1])
def test_chunks_are_added_in_any_number(size):
    chunks = Chunks(stack(size))
    (number,) = chunks.total(number_of_objects)
    assert number == 50
    assert sum(chunks.each(lambda block: block.shape[1])) == 50


def number_of_objects(block):
    return (block.shape[1],)


@pytest.mark.parametrize("size", [1, 4, 10])
def test_parts_of_a_chunk_are_all_of_it(size, monkeypatch):
    """Also where the last is smaller than the others."""
    monkeypatch.setattr(chunked_stack, "ROWS", 4)
    block = np.arange(3 * size * 2).reshape(3, size, 2)
    parts = [block[:, part] for part in chunked_stack.rows_of(block)]
    assert max(part.shape[1] for part in parts) <= 4
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), block)


def test_chunks_are_in_memory_one_at_a_time():
    made, used, waiting = [0], [0], []

    def block(x):
        made[0] += 1
        return x[None] + np.ones((1, 1, 4))

    def total(chunk, weight):
        used[0] += 1
        waiting.append(made[0] - used[0])
        return (weight * chunk.sum(),)

    array = da.zeros((80, 1), chunks=(4, 1)).map_blocks(
        block, new_axis=0, chunks=((1,), (4,) * 20, (4,)), dtype=float, meta=np.empty((0, 0, 0))
    )
    chunks = Chunks(xr.DataArray(array, dims=("kernel", "obs", "basis")))
    assert chunks.total(total, 2.0) == (640.0,)
    assert max(waiting) <= 1


def test_some_objects_of_chunks_are_in_their_order():
    rows = np.random.default_rng(1).permutation(50)[:20]
    found = Chunks(stack()).of_objects(rows)
    np.testing.assert_allclose(found, KERNELS(X).to_numpy()[:, rows], atol=1e-12)


def test_the_density_is_that_in_memory_and_has_no_gradient(monkeypatch):
    one, other = declared(KERNELS(X)), declared(stack())
    draws = {"v": np.random.default_rng(1).normal(size=(3, 9, 3))}
    passes = []
    original = Chunks.each
    monkeypatch.setattr(Chunks, "each", lambda *a, **k: passes.append(1) or original(*a, **k))
    np.testing.assert_allclose(log_density(other, draws), log_density(one, draws), rtol=1e-10)
    assert len(passes) == 1
    with pytest.raises(ValueError, match=r"have no gradient: compute\(\)"):
        other.compile_dlogp(mode="FAST_COMPILE")
    with other:
        prior = pm.sample_prior_predictive(5, random_seed=1)
    assert prior["prior_predictive"]["t"].shape == (1, 5, 50)


def test_engines_say_that_they_need_memory():
    model = declared(stack())
    reasons = kz.engines(model).frame["reason"]
    assert [engine for engine, reason in reasons.items() if not reason] == ["INLA", "MAP"]
    for engine in ("NUTS", "SMC", "ADVI", "Laplace", "Pathfinder"):
        assert "compute()" in reasons[engine] or "installed" in reasons[engine]
    for fit in (kz.scores.loo_kfold, lambda model: kz.fit(model, "nuts")):
        with pytest.raises(ValueError, match=r"compute\(\)"):
            fit(model)
    with pytest.raises(ValueError, match="a Dask array"):
        model.kernel_values()


def test_results_predict_compare_and_save(tmp_path):
    one, other = declared(KERNELS(X)), declared(stack())
    K_new = KERNELS(X_NEW, X)
    found, in_memory = (kz.fit(model, ENGINE, **QUIET) for model in (other, one))
    expected = kz.predict(one, in_memory, K_new)["probability"]
    found.to_netcdf(tmp_path / "found.nc")
    loaded = xr.load_datatree(tmp_path / "found.nc")
    chunks = KERNELS(da.from_array(X_NEW, chunks=(3, -1)), X)
    for result, kernels_new in ((found, K_new), (loaded, chunks)):
        again = kz.predict(other, result, kernels_new)["probability"]
        xr.testing.assert_allclose(again, expected, rtol=1e-5)
    table = kz.compare_engines({"a": found, "b": loaded}, model=other)
    assert "scores" in set(table.variables.reset_index()["variable"])
    for model, result in ((one, loaded), (other, in_memory)):
        with pytest.raises(ValueError, match="other values of K"):
            kz.predict(model, result, K_new)


def test_results_of_other_data_are_refused():
    """Also the same objects in another order, of which the landmarks are where they were."""
    values = KERNELS(X).values
    stack = KERNELS(X)
    landmarks = declared(stack).landmarks
    others = np.setdiff1d(np.arange(50), landmarks)
    order = np.arange(50)
    order[others] = np.roll(others, 1)

    def model_of(array, size=17):
        return declared(with_chunks(da.from_array(array, chunks=(-1, size, -1))))

    found = kz.fit(model_of(values), ENGINE, **QUIET)
    K_new = KERNELS(X_NEW, X)
    kz.predict(model_of(values, size=20), found, K_new)
    for other, names in ((2 * values, "K, K_rows"), (values[:, order], "K_rows")):
        with pytest.raises(ValueError, match=f"other values of {names}"):
            kz.predict(model_of(other), found, K_new)


def test_kernels_go_with_their_model():
    model = declared(stack())
    kz.fit(model, ENGINE, **QUIET)
    function, point = model.compile_logp(mode="FAST_COMPILE"), model.initial_point()
    chunks = weakref.ref(model.kernel_source.chunks)
    amended = cloudpickle.loads(cloudpickle.dumps(model_with_a_term(model)))
    assert np.isfinite(amended.compile_logp(mode="FAST_COMPILE")(point))
    del model, amended
    gc.collect()
    assert chunks() is None
    with pytest.raises(RuntimeError, match="keep the model"):
        function(point)


def model_with_a_term(model):
    amended = model.copied()
    with amended:
        pm.Potential("prefers small scores", -(amended["v"] ** 2).sum())
    return amended


@pytest.mark.parametrize("name", ["K", "K_rows"])
def test_data_that_stand_for_kernels_cannot_be_set(name):
    model = declared(stack())
    with model:
        pm.set_data({name: 2 * model[name].get_value()})
    with pytest.raises(ValueError, match="stands for kernels as they were declared"):
        kz.fit(model, ENGINE, **QUIET)


@pytest.mark.parametrize("number", [40, 60])
def test_labels_of_other_objects_than_those_in_chunks_are_refused(number):
    model = declared(stack())
    with model:
        pm.set_data({"labels": np.arange(number) % 3}, coords={"obs": range(number)})
    with pytest.raises(ValueError, match=f"of the 50 objects of the kernels.* Got {number}"):
        kz.fit(model, ENGINE, **QUIET)


def test_chunks_that_split_columns_or_are_empty_or_unknown_are_refused():
    values, keep = KERNELS(X), np.arange(50) < 25
    blocks = da.from_array(values.values, chunks=(2, 17, 9))
    unknown_rows = blocks[:, da.from_array(keep, chunks=17)]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        declared(xr.DataArray(unknown_rows, dims=values.dims), LABELS[keep])
    empty = values[:, keep].copy(data=unknown_rows.compute_chunk_sizes())
    assert 0 in empty.chunksizes["obs"]
    split = [values.copy(data=blocks.rechunk(chunks)) for chunks in ((1, 17, 9), (2, 17, 4))]
    for K, labels in ((empty, LABELS[keep]), *((each, LABELS) for each in split)):
        with pytest.raises(ValueError, match=r"whole rows: \.chunk\("):
            declared(K, labels)


def test_models_are_pickled_with_their_chunks():
    model = declared(stack())
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.kernel_source.stack.shape == (2, 50, 9)
    np.testing.assert_allclose(copy.kernel_source.own, model.kernel_source.own)


def with_entry(value):
    values = KERNELS(X).values
    values[1, 20, 3] = value
    return with_chunks(da.from_array(values, chunks=(2, 17, 9)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_first_entry_that_is_not_finite_is_named(value, monkeypatch):
    monkeypatch.setattr(chunked_stack, "ROWS", 2)
    with pytest.raises(ValueError, match=r"kernel landmarks .*linear.*row 20, column 3"):
        declared(with_entry(value))


def test_other_chunks_than_promised_are_refused():
    short = da.from_delayed(dask.delayed(np.ones)((2, 16, 9)), (2, 17, 9), dtype=float)
    blocks = da.concatenate([short, da.ones((2, 33, 9), chunks=(2, 33, 9))], axis=1)
    with pytest.raises(ValueError, match=r"shape \(2, 17, 9\).*\(2, 16, 9\) in rows 0 to 16"):
        declared(with_chunks(blocks))
    with pytest.raises(ValueError, match="labels"):
        declared(stack(), LABELS[:-1])
    with pytest.raises(ValueError, match="in memory if they are Gram"):
        declared(kz.gaussian(0.3)(X).chunk({"obs": 10}))


@pytest.mark.parametrize("dtype", [complex, str])
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "not promised"])
def test_chunks_without_real_numbers_are_refused(dtype, promised):
    """Converted to floats, strings would be taken, and imaginary parts lost."""
    values = KERNELS(X).values.astype(dtype)
    dtype = values.dtype if promised else float
    blocks = da.from_delayed(dask.delayed(lambda: values)(), values.shape, dtype=dtype)
    with pytest.raises(ValueError, match=r"'kernels' argument .* numbers.* Got .*(complex128|<U)"):
        declared(with_chunks(blocks))


def test_masked_chunks_of_kernels_are_refused():
    values = KERNELS(X).values
    masked = dask.delayed(np.ma.masked_greater)(values, np.median(values))
    blocks = da.from_delayed(masked, values.shape, dtype=float)
    with pytest.raises(ValueError, match=r"'kernels' argument .* without masked entries"):
        declared(with_chunks(blocks))


@pytest.mark.slow
def test_a_cluster_gives_the_same_answer_also_when_a_worker_is_killed():
    distributed = pytest.importorskip("distributed")
    expected = kz.fit(declared(KERNELS(X)), ENGINE, **QUIET)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    killed = []

    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
        dask.config.set(scheduler=None),
    ):
        model = declared(stack(1).persist())

        def kill():
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

        timer = Timer(0.5, kill)
        for disturbed in (False, True):
            if disturbed:
                timer.start()
            found = kz.fit(model, ENGINE, **QUIET)
            if disturbed:
                assert not timer.is_alive()
                assert killed
            for name in ("v", "f"):
                a, b = (each["posterior"][name].values for each in (expected, found))
                np.testing.assert_allclose(b, a, atol=1e-7)
