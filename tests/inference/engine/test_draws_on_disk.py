"""Draws written as they are made: equal to those held in memory, and safe from a kill."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pymc.backends.base import _choose_chains

import kernelzoo as kz
from kernelzoo.inference.engine import draws_on_disk, independent
from kernelzoo.inference.engine.clock import Clock, interruptible
from kernelzoo.inference.engine.result import check_fitted
from kernelzoo.inference.kernel_completion import exact as wishart_completion

zarr = pytest.importorskip("zarr")
COMMON = {"random_seed": 1, "progressbar": False, "var_names": ["K21", "trace_K22"]}


@pytest.fixture
def model():
    return kz.WishartCompletion.example()


def test_where_zarr_is_missing_the_extra_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(draws_on_disk, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"'store' argument of fit .* kernelzoo\[zarr\]"):
        kz.fit(model, "exact", store=tmp_path / "draws.zarr")


@pytest.mark.parametrize("chunk", [1, 1 << 24], ids=["every draw", "at the end"])
@pytest.mark.parametrize("cores", [1, 2])
def test_chains_on_disk_are_those_in_memory(model, tmp_path, monkeypatch, cores, chunk):
    monkeypatch.setattr(draws_on_disk, "CHUNK", chunk)
    options = COMMON | {"draws": 25, "tune": 10, "chains": 2, "cores": cores}
    memory = kz.fit(model, "gibbs", **options)
    disk = kz.fit(model, "gibbs", **options, store=tmp_path / "draws.zarr")
    assert disk["posterior"].sizes["draw"] == 25
    xr.testing.assert_allclose(
        disk["posterior"].to_dataset().drop_attrs(), memory["posterior"].to_dataset().drop_attrs()
    )
    xr.testing.assert_allclose(disk["moments"].to_dataset(), memory["moments"].to_dataset())
    assert disk.attrs["converged"] == memory.attrs["converged"]
    disk.to_netcdf(tmp_path / "result.nc")


def test_exact_draws_on_disk_are_those_in_memory(model, tmp_path):
    memory = kz.fit(model, "exact", draws=40, **COMMON)
    disk = kz.fit(model, "exact", draws=40, **COMMON, store=tmp_path / "draws.zarr")
    for name in ("K21", "trace_K22"):
        np.testing.assert_array_equal(disk["posterior"][name], memory["posterior"][name])
        assert disk["posterior"][name].dims == memory["posterior"][name].dims
    opened = kz.open_store(tmp_path / "draws.zarr")
    assert opened.attrs == disk.attrs
    assert "note" not in opened.attrs


def test_an_interrupted_run_keeps_what_was_drawn(model, tmp_path):
    def stop(trace, draw):
        if not draw.tuning and draw.draw_idx >= 30:
            raise KeyboardInterrupt

    run = kz.fit(model, "gibbs", draws=1000, tune=10, chains=1, cores=1, callback=stop,
                 store=tmp_path / "draws.zarr", **COMMON)  # fmt: skip
    assert 10 <= run["posterior"].sizes["draw"] < 1000
    assert np.isfinite(run["posterior"]["K21"]).all()
    assert run.attrs["converged"] == "no"


def test_interrupted_chains_are_the_same_on_disk_and_in_memory(model, tmp_path):
    """Chains of 30, 2 and 40 draws: two chains of 30 are the most, as PyMC reckons."""

    def stop(trace, draw):
        if draw.draw_idx + 1 == 10 + {0: 30, 1: 2}.get(draw.chain, 40):
            raise KeyboardInterrupt

    options = {"draws": 40, "tune": 10, "chains": 3, "cores": 1, "callback": stop, **COMMON}
    memory = kz.fit(model, "gibbs", **options)
    disk = kz.fit(model, "gibbs", **options, store=tmp_path / "draws.zarr")
    assert disk["posterior"].sizes["chain"] == 2
    assert disk["posterior"].sizes["draw"] == 30
    xr.testing.assert_allclose(
        disk["posterior"].to_dataset().drop_attrs(), memory["posterior"].to_dataset().drop_attrs()
    )
    for tree in (memory, disk):
        assert tree["moments"]["draws"].values.tolist() == [30, 2, 40]
    group = xr.open_zarr(tmp_path / "draws.zarr", group="posterior", consolidated=False)
    assert group.attrs["draws"] == {"0": 30, "1": 2, "2": 40}


@pytest.mark.parametrize("lengths", [(3, 3), (9, 1), (1, 9, 5), (2, 4, 4), (4, 2, 1), (6, 3, 2)])
def test_chains_are_chosen_by_pymcs_rule(model, tmp_path, lengths):
    """Ties too: 9 draws of one chain or 2 x 5; 2 x 4 or 3 x 2; 4 x 1, 2 x 2 or 1 x 3; 6 always."""
    store = draws_on_disk.DrawsOnDisk(tmp_path / "draws.zarr", model, ["x"], 3, 9)
    for chain, length in enumerate(lengths):
        store.append(chain, {"x": 10.0 * chain + np.arange(length)})
    store.close()
    chains, draws = _choose_chains([range(10 * c, 10 * c + n) for c, n in enumerate(lengths)], 0)
    np.testing.assert_array_equal(
        store.dataset()["x"], [c[:draws] for c in sorted(chains, key=min)]
    )


def written(store):
    """Draws of K21 of the first chain that a store says it has."""
    group = xr.open_zarr(store, group="posterior", consolidated=False, chunks=None)
    assert np.isnan(group["K21"][0, group.attrs["draws"]["0"] :]).all()
    return group["K21"][0, : group.attrs["draws"]["0"]].values


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_leaves_all_draws_made_so_far(model, tmp_path, cores):
    def fail(trace, draw):
        if not draw.tuning and draw.chain == 0 and draw.draw_idx + 1 == 10 + 33:
            raise RuntimeError("planted")

    store = tmp_path / "draws.zarr"
    options = {"draws": 1000, "tune": 10, "chains": 2, "cores": cores, **COMMON}
    with pytest.raises(RuntimeError, match="planted"):
        kz.fit(model, "gibbs", **options, callback=fail, store=store)
    draws = written(store)
    assert len(np.unique(draws[:, 0, 0])) == len(draws) == 33


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("n", [1, 45, 70])
def test_a_signal_while_exact_draws_are_written_loses_none(
    model, tmp_path, monkeypatch, signal_number, n
):
    """While the store is made, and while draws are written."""
    path, put, calls = tmp_path / "draws.zarr", zarr.storage._local._put, itertools.count(1)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)

    def send(*arguments, **options):
        if next(calls) == n:
            signal.pthread_kill(threading.main_thread().ident, signal_number)
            # This write ends after the interrupt: it must not undo those of `close`.
            time.sleep(0.2)
        return put(*arguments, **options)

    try:
        with monkeypatch.context() as patch:
            patch.setattr("zarr.storage._local._put", send)
            if signal_number == signal.SIGTERM:
                with pytest.raises(SystemExit):
                    kz.fit(model, "exact", draws=40, **COMMON, store=path)
            else:
                try:
                    with pytest.warns(UserWarning, match="Exact was interrupted"):
                        result = kz.fit(model, "exact", draws=40, **COMMON, store=path)
                except KeyboardInterrupt:
                    pytest.fail("no result")
                assert result.attrs["ended_by"] == "interrupt"
                assert result["posterior"].sizes["draw"] == 40
    finally:
        signal.signal(signal.SIGINT, previous)
    opened = kz.open_store(path)
    whole = kz.fit(model, "exact", draws=40, **COMMON)
    np.testing.assert_array_equal(opened["posterior"]["K21"], whole["posterior"]["K21"])
    finished = signal_number == signal.SIGINT
    assert opened.attrs["note"].startswith("Exact was" if finished else "unfinished")
    assert opened.attrs["converged"] == "no"


def test_ctrl_c_without_result_names_the_store(model, tmp_path):
    def interrupted():
        with draws_on_disk.DrawsOnDisk(tmp_path / "draws.zarr", model, ["n"], 1, 9) as store:
            store.append(0, {"n": np.arange(3)})
            raise KeyboardInterrupt

    needed = r"before it had a result.*kz.open_store\('.*draws.zarr'\) reads the draws"
    with pytest.raises(KeyboardInterrupt, match=needed), interruptible("Gibbs", Clock()):
        interrupted()


def test_an_error_leaves_exact_draws(model, tmp_path, monkeypatch):
    monkeypatch.setattr(independent, "BLOCK", 1)
    calls = iter(range(10**6))
    draw_blocks = wishart_completion.draw_blocks

    def fail(*arguments):
        if next(calls) == 33:
            raise RuntimeError("planted")
        return draw_blocks(*arguments)

    monkeypatch.setattr(wishart_completion, "draw_blocks", fail)
    store = tmp_path / "draws.zarr"
    with pytest.raises(RuntimeError, match="planted"):
        kz.fit(model, "exact", draws=1000, **COMMON, store=store)
    monkeypatch.setattr(wishart_completion, "draw_blocks", draw_blocks)
    complete = kz.fit(model, "exact", draws=33, **COMMON)
    np.testing.assert_array_equal(written(store), complete["posterior"]["K21"][0])


def test_a_failed_write_is_made_good(model, tmp_path):
    """When the second array cannot be written, the first one's draws are not lost."""
    names = ["K21", "trace_K22"]
    store = draws_on_disk.DrawsOnDisk(tmp_path / "draws.zarr", model, names, 1, 10)
    draws = {"K21": np.arange(60.0).reshape(10, 2, 3), "trace_K22": np.arange(10.0)}
    store.append(0, {name: values[:4] for name, values in draws.items()})
    array = store._arrays["trace_K22"]
    store._arrays["trace_K22"] = None
    with pytest.raises(AttributeError):
        store.append(0, {name: values[4:] for name, values in draws.items()})
    store._arrays["trace_K22"] = array
    store.close()
    kept = store.dataset()
    for name, values in draws.items():
        np.testing.assert_array_equal(kept[name][0], values)


def test_a_killed_process_leaves_its_chunks(tmp_path):
    store = tmp_path / "draws.zarr"
    program = f"""
        import kernelzoo as kz
        kz.fit(kz.WishartCompletion.example(), "gibbs", draws=50 * 200, tune=1, chains=1, cores=1,
               random_seed=1, progressbar=False, var_names=["K21"], store={str(store)!r})
    """
    process = subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(program)])
    chunk = store / "posterior" / "K21" / "c" / "0" / "3"
    deadline = time.monotonic() + 240
    while not chunk.exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    group = xr.open_zarr(store, group="posterior", consolidated=False, chunks=None)
    count = group.attrs["draws"]["0"]
    assert 3 * 200 <= count < 10_000
    first, rest = group["K21"][0, :count].values, group["K21"][0, count + 200 :].values
    assert np.isfinite(first).all()
    assert len(np.unique(first[:, 0, 0])) == count
    assert np.isnan(rest).all()


def test_a_store_of_unequal_chains_opens_without_draws_not_made(model, tmp_path):
    """As a killed writer leaves it: chains of 7, 3 and 8 draws, whose last ones were in memory."""
    path = tmp_path / "draws.zarr"
    store = draws_on_disk.DrawsOnDisk(path, model, ["x", "n"], 4, 9)
    for chain, length in enumerate((7, 3, 8)):
        values = 10.0 * chain + np.arange(length)
        store.append(chain, {"x": values, "n": values.astype(int)})
    opened = kz.open_store(path)["posterior"]
    assert dict(opened.sizes) == {"chain": 2, "draw": 7}
    for name in ("x", "n"):
        np.testing.assert_array_equal(opened[name], [np.arange(7), 20 + np.arange(7)])


NAMES = ("K21", "n")


def values_of(chain, numbers):
    """Draws of these numbers: each tells its chain, its number and its variable."""
    at = 100 * chain + np.asarray(numbers)
    return {"K21": np.tile(at[:, None, None] + 0.5, (1, 2, 3)), "n": at}


def write_chains(path, model):
    """Two chains of 3 and 2 draws, two in a chunk, which take turns."""
    with draws_on_disk.DrawsOnDisk(path, model, NAMES, 2, 2 * draws_on_disk.CHUNKS) as store:
        for number, chain in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]:
            store.append(chain, values_of(chain, [number]))


def holds_prefix(path):
    """Check that a store opens exactly as far as it counts; return the counts."""
    metadata = path / "posterior" / "zarr.json"
    counts = json.loads(metadata.read_text())["attributes"].get("draws") if metadata.exists() else 0
    if not counts:
        with pytest.raises(ValueError, match="'path' argument of open_store must be"):
            kz.open_store(path)
        return []
    opened = kz.open_store(path)
    assert opened.attrs["converged"] == "no"
    assert opened.attrs["note"].startswith("unfinished")
    lengths = [*counts.values()]
    draws = max(lengths, key=lambda n: (n * sum(m >= n for m in lengths), -n))
    kept = [int(chain) for chain, n in counts.items() if n >= draws]
    for name in NAMES:
        expected = [values_of(chain, range(draws))[name] for chain in kept]
        np.testing.assert_array_equal(opened["posterior"][name], expected)
    return lengths


def test_a_kill_after_any_write_leaves_the_counted_draws(model, tmp_path, monkeypatch):
    """The files are written once more, one by one, and the store is opened after each."""
    put, files = zarr.storage._local._put, []

    def recorded(path, value, exclusive=False):
        if not (exclusive and path.exists()):
            files.append((path.relative_to(tmp_path / "draws.zarr"), value.to_bytes()))
        return put(path, value, exclusive)

    with monkeypatch.context() as patch:
        patch.setattr("zarr.storage._local._put", recorded)
        write_chains(tmp_path / "draws.zarr", model)
    begun = next(i for i, (path, _) in enumerate(files) if "posterior" in path.parts)
    copy, seen = tmp_path / "killed.zarr", []
    for i, (path, content) in enumerate(files):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(content)
        if i >= begun:
            seen.append(holds_prefix(copy))
    assert list(dict.fromkeys(map(tuple, seen))) == [(), (2,), (2, 2), (3, 2)]


@pytest.mark.parametrize("again", [False, True], ids=["stays full", "has room again"])
@pytest.mark.parametrize("n", [1, 40, 56, 60, 63, 66])
def test_a_full_disk_at_any_write_leaves_the_counted_draws(model, tmp_path, monkeypatch, n, again):
    put, calls = zarr.storage._local._put, itertools.count(1)

    def full(*arguments, **options):
        number = next(calls)
        if number == n or (number > n and not again):
            raise OSError(28, "No space left on device")
        return put(*arguments, **options)

    path = tmp_path / "draws.zarr"
    with monkeypatch.context() as patch:
        patch.setattr("zarr.storage._local._put", full)
        with pytest.raises(OSError, match="No space left on device") as caught:
            write_chains(path, model)
    lengths = holds_prefix(path)
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("open_store" in line for line in told) == bool(lengths)
    if again:
        # `close` has written what was in memory.
        assert lengths


def test_a_plain_reader_of_equal_chains_sees_the_draws_made(model, tmp_path):
    store = draws_on_disk.DrawsOnDisk(tmp_path / "draws.zarr", model, ["x"], 4, 9)
    for chain in (0, 1):
        store.append(chain, {"x": np.arange(5.0)})
    plain = xr.open_datatree(tmp_path / "draws.zarr", engine="zarr", consolidated=False)
    np.testing.assert_array_equal(plain["posterior"]["x"], [np.arange(5.0)] * 2)


def test_of_two_fits_that_begin_in_one_folder_the_second_is_refused(model, tmp_path):
    """Both have found nothing there."""
    path = tmp_path / "draws.zarr"
    first, second = (draws_on_disk.DrawsOnDisk(path, model, ["n"], 1, 9) for _ in range(2))
    needed = "'store' argument of fit must be a path where nothing is yet.*another process has"
    with first:
        first.append(0, {"n": np.arange(3)})
        with pytest.raises(ValueError, match=needed), second:
            second.append(0, {"n": np.arange(10, 13)})
        first.append(0, {"n": np.arange(3, 5)})
    np.testing.assert_array_equal(kz.open_store(path)["posterior"]["n"], [np.arange(5)])


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'path' argument of open_store must be the folder"):
        kz.open_store(tmp_path)
    with pytest.raises(ValueError, match=r"'path' argument of open_store must be the folder"):
        kz.open_store(tmp_path / "nothing")


def test_bad_stores_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"'store' argument of fit must be a path where nothing"):
        kz.fit(model, "gibbs", store=tmp_path)
    with pytest.raises(ValueError, match=r"EM cannot write a store; these engines can: .*Gibbs"):
        kz.fit(model, "em", store=tmp_path / "x.zarr")
    with pytest.raises(ValueError, match=r"Only PyMC's own samplers"):
        kz.fit(model, kz.NUTS(backend="nutpie"), store=tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()


def test_a_run_stopped_before_its_first_draw_says_so(model, tmp_path):
    def stop(trace, draw):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="Gibbs was interrupted before"):
        kz.fit(model, "gibbs", draws=10, tune=10, chains=1, cores=1, callback=stop,
               store=tmp_path / "draws.zarr", **COMMON)  # fmt: skip


def test_an_opened_store_is_the_result(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    kernels = (kz.gaussian(0.5) | kz.linear()).normalize("trace")
    train = pd.DataFrame(X, [f"P{i}" for i in range(9)])
    model = kz.CompositeKernelRegression(kernels(train), y, combination="binary")
    options = COMMON | {"draws": 20, "tune": 5, "chains": 2, "cores": 1, "var_names": None}
    result = kz.fit(model, "gibbs", **options, store=tmp_path / "draws.zarr")
    opened = kz.open_store(tmp_path / "draws.zarr")
    assert opened.attrs == result.attrs
    for group in ("posterior", "observed_data", "constant_data"):
        one, other = (tree[group].to_dataset().drop_attrs() for tree in (opened, result))
        xr.testing.assert_identical(one.load(), other.load())
    xr.testing.assert_identical(kz.inclusion(opened), kz.inclusion(result))
    new = kernels(train[:3] + 0.1, train)
    xr.testing.assert_identical(kz.predict(model, opened, new), kz.predict(model, result, new))
    opened.load().to_netcdf(tmp_path / "result.nc")
    other = kz.CompositeKernelRegression(kernels(train), y[::-1], combination="binary")
    with pytest.raises(ValueError, match="other values of"):
        kz.predict(other, opened, new)


def test_a_store_of_a_killed_fit_knows_its_model(model, tmp_path):
    """Attributes that a finished fit adds are missing."""
    path = tmp_path / "draws.zarr"
    store = draws_on_disk.DrawsOnDisk(path, model, ["K21"], 1, 9)
    store.append(0, {"K21": np.zeros((2, *model["K21"].shape.eval()))})
    opened = kz.open_store(path)
    check_fitted(model, opened, "predict")
    with pytest.raises(ValueError, match="'result' argument of predict"):
        check_fitted(kz.WishartKernelMixture.example(), opened, "predict")
    del zarr.open_group(path, mode="r+").attrs["declared"]
    with pytest.raises(ValueError, match="'path' argument of open_store"):
        kz.open_store(path)
