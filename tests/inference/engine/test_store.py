"""Draws written as they are made: equal to those held in memory, and safe from a kill."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from pymc.backends.base import _choose_chains

import kernelzoo as kz
from kernelzoo.inference.engine import independent
from kernelzoo.inference.engine.result import Store
from kernelzoo.inference.kernel_completion import wishart as wishart_completion

COMMON = {"random_seed": 1, "progressbar": False, "var_names": ["K21", "trace_K22"]}


@pytest.fixture
def model():
    return kz.WishartCompletion.example()


@pytest.mark.parametrize("cores", [1, 2])
def test_chains_on_disk_are_those_in_memory(model, tmp_path, cores):
    options = COMMON | {"draws": 25, "tune": 10, "chains": 2, "cores": cores}
    memory = kz.fit(model, "gibbs", **options)
    disk = kz.fit(model, "gibbs", **options, store=tmp_path / "draws")
    assert disk["posterior"].sizes["draw"] == 25
    xr.testing.assert_allclose(
        disk["posterior"].to_dataset().drop_attrs(), memory["posterior"].to_dataset().drop_attrs()
    )
    xr.testing.assert_allclose(disk["moments"].to_dataset(), memory["moments"].to_dataset())
    assert disk.attrs["converged"] == memory.attrs["converged"]
    disk.to_netcdf(tmp_path / "result.nc")


def test_exact_draws_on_disk_are_those_in_memory(model, tmp_path):
    memory = kz.fit(model, "exact", draws=40, **COMMON)
    disk = kz.fit(model, "exact", draws=40, **COMMON, store=tmp_path / "draws")
    for name in ("K21", "trace_K22"):
        np.testing.assert_array_equal(disk["posterior"][name], memory["posterior"][name])
        assert disk["posterior"][name].dims == memory["posterior"][name].dims


@pytest.mark.filterwarnings("ignore:Gibbs was interrupted")
def test_an_interrupted_run_keeps_what_was_drawn(model, tmp_path):
    def stop(trace, draw):
        if not draw.tuning and draw.draw_idx >= 30:
            raise KeyboardInterrupt

    run = kz.fit(model, "gibbs", draws=1000, tune=10, chains=1, cores=1, callback=stop,
                 store=tmp_path / "draws", **COMMON)  # fmt: skip
    assert 10 <= run["posterior"].sizes["draw"] < 1000
    assert np.isfinite(run["posterior"]["K21"]).all()
    assert run.attrs["converged"] == "no"


@pytest.mark.filterwarnings("ignore:Gibbs was interrupted")
def test_interrupted_chains_are_the_same_on_disk_and_in_memory(model, tmp_path):
    """Chains of 40 and 30 draws, and none: two chains of 30 are the most, as PyMC reckons."""

    def stop(trace, draw):
        if draw.chain == 1 and draw.draw_idx + 1 == 10 + 30:
            raise KeyboardInterrupt

    options = {"draws": 40, "tune": 10, "chains": 3, "cores": 1, "callback": stop, **COMMON}
    memory = kz.fit(model, "gibbs", **options)
    disk = kz.fit(model, "gibbs", **options, store=tmp_path / "draws")
    assert disk["posterior"].sizes["chain"] == 2
    assert disk["posterior"].sizes["draw"] == 30
    xr.testing.assert_allclose(
        disk["posterior"].to_dataset().drop_attrs(), memory["posterior"].to_dataset().drop_attrs()
    )
    for tree in (memory, disk):
        assert tree["moments"]["draws"].values.tolist() == [40, 30]
    assert np.load(tmp_path / "draws" / "counts").tolist() == [40, 30, 0]


@pytest.mark.parametrize("lengths", [(3, 3), (9, 1), (1, 9, 5), (2, 4, 4), (4, 2, 1), (6, 3, 2)])
def test_chains_are_chosen_by_pymcs_rule(model, tmp_path, lengths):
    """Ties too: 9 draws of one chain or 2 x 5; 2 x 4 or 3 x 2; 4 x 1, 2 x 2 or 1 x 3; 6 always."""
    store = Store(tmp_path / "draws", model, ["trace_K22"], 3, 9)
    for chain, length in enumerate(lengths):
        store.append(chain, {"trace_K22": 10.0 * chain + np.arange(length)})
    chains, draws = _choose_chains([range(10 * c, 10 * c + n) for c, n in enumerate(lengths)], 0)
    kept = [c[:draws] for c in sorted(chains, key=min)]
    np.testing.assert_array_equal(store.dataset()["trace_K22"], kept)


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_leaves_all_draws_made_so_far(model, tmp_path, cores):
    def fail(trace, draw):
        if not draw.tuning and draw.chain == 0 and draw.draw_idx + 1 == 10 + 33:
            raise RuntimeError("planted")

    store = tmp_path / "draws"
    options = {"draws": 1000, "tune": 10, "chains": 2, "cores": cores, **COMMON}
    with pytest.raises(RuntimeError, match="planted"):
        kz.fit(model, "gibbs", **options, callback=fail, store=store)
    count = np.load(store / "counts")[0]
    draws = np.load(store / "K21.npy", mmap_mode="r")[0, :count]
    assert len(np.unique(draws[:, 0, 0])) == count == 33


def test_an_error_leaves_exact_draws(model, tmp_path, monkeypatch):
    monkeypatch.setattr(independent, "BLOCK_BYTES", 1)
    calls = iter(range(10**6))
    draw_blocks = wishart_completion.draw_blocks

    def fail(*arguments):
        if next(calls) == 33:
            raise RuntimeError("planted")
        return draw_blocks(*arguments)

    monkeypatch.setattr(wishart_completion, "draw_blocks", fail)
    store = tmp_path / "draws"
    with pytest.raises(RuntimeError, match="planted"):
        kz.fit(model, "exact", draws=1000, **COMMON, store=store)
    monkeypatch.setattr(wishart_completion, "draw_blocks", draw_blocks)
    complete = kz.fit(model, "exact", draws=33, **COMMON)
    assert np.load(store / "counts") == 33
    kept = np.load(store / "K21.npy")[:, :33]
    np.testing.assert_array_equal(kept, complete["posterior"]["K21"])


def test_a_killed_process_leaves_its_draws(tmp_path):
    store = tmp_path / "draws"
    program = f"""
        import kernelzoo as kz
        kz.fit(kz.WishartCompletion.example(), "gibbs", draws=50 * 200, tune=1, chains=1, cores=1,
               random_seed=1, progressbar=False, var_names=["K21"], store={str(store)!r})
    """
    process = subprocess.Popen([sys.executable, "-P", "-c", textwrap.dedent(program)])
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None
        if (store / "counts").exists() and np.load(store / "counts").sum() > 500:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    draws = np.load(store / "K21.npy", mmap_mode="r")[0, : np.load(store / "counts")[0]]
    assert 500 < len(draws) < 10_000
    assert len(np.unique(draws[:, 0, 0])) == len(draws)


def write_two_chains(store, shape):
    for number in range(2):
        for chain in range(2):
            draw = np.full((1, *shape), 10.0 * chain + number)
            store.append(chain, {"K21": draw, "trace_K22": draw[:, 0, 0]})


@pytest.mark.parametrize("n", range(8))
def test_a_full_disk_at_any_write_leaves_the_counted_draws(model, tmp_path, monkeypatch, n):
    """Two chains of two draws of two variables: each draw is two writes, and one of its count."""
    write, writes = Store._write, iter(range(100))

    def full(*arguments):
        if next(writes) >= n:
            raise OSError(28, "No space left on device")
        write(*arguments)

    names = ["K21", "trace_K22"]
    store = Store(tmp_path / "draws", model, names, 2, 5)
    monkeypatch.setattr(Store, "_write", full)
    with pytest.raises(
        OSError, match=f"No space left.*it holds {n >= 3:d}, {n >= 6:d} whole draws"
    ):
        write_two_chains(store, model["K21"].shape.eval())
    counts = np.load(tmp_path / "draws" / "counts")
    assert counts.tolist() == [n >= 3, n >= 6]
    for name in names:
        kept = np.load(tmp_path / "draws" / f"{name}.npy")
        for chain in np.flatnonzero(counts):
            np.testing.assert_array_equal(kept[chain, 0], np.full(kept.shape[2:], 10.0 * chain))


def test_a_store_of_unequal_chains_has_no_draws_that_were_not_made(model, tmp_path):
    """As a killed writer leaves it: chains of 7, 3, 8 and 0 draws."""
    store = Store(tmp_path / "draws", model, ["trace_K22"], 4, 9)
    for chain, length in enumerate((7, 3, 8)):
        store.append(chain, {"trace_K22": 10 * chain + np.arange(length)})
    kept = store.dataset()["trace_K22"]
    np.testing.assert_array_equal(kept, [np.arange(7), 20 + np.arange(7)])


def test_draws_stay_on_disk(model, tmp_path):
    store = Store(tmp_path / "draws", model, ["trace_K22"], 2, 10**10)
    for chain in range(2):
        store.append(chain, {"trace_K22": np.arange(3.0)})
    np.testing.assert_array_equal(store.dataset()["trace_K22"], [np.arange(3)] * 2)


def test_of_two_fits_that_begin_in_one_folder_the_second_is_refused(model, tmp_path):
    """Both have found nothing there."""
    path, name = tmp_path / "draws", "trace_K22"
    first, second = (Store(path, model, [name], 1, 9) for _ in range(2))
    first.append(0, {name: np.arange(3)})
    needed = "'store' argument of fit must be a path where nothing is yet.*another process has"
    with pytest.raises(ValueError, match=needed):
        second.append(0, {name: np.arange(10, 13)})
    first.append(0, {name: np.arange(3, 5)})
    np.testing.assert_array_equal(first.dataset()[name], [np.arange(5)])


def test_a_variable_may_have_any_name(tmp_path):
    """Bug: the file that counts the draws was that of a variable named counts."""
    with pm.Model() as model:
        pm.Normal("counts", shape=3)
        pm.Normal("y", model["counts"][0], observed=1.0)
    quick = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "random_seed": 1, "progressbar": False}
    options = {"draws": 5, "tune": 5, "chains": 2, "cores": 1, **quick}
    disk = kz.fit(model, "nuts", store=tmp_path / "draws", **options)
    memory = kz.fit(model, "nuts", **options)
    np.testing.assert_array_equal(disk["posterior"]["counts"], memory["posterior"]["counts"])


def test_a_change_of_folder_leaves_the_store_in_its_place(model, tmp_path, monkeypatch):
    """Bug: the second draw was written relative to the new folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def leave(trace, draw):
        os.chdir(tmp_path / "elsewhere")

    options = COMMON | {"draws": 5, "tune": 0, "chains": 2, "cores": 1}
    found = kz.fit(model, "gibbs", callback=leave, store="draws", **options)
    assert found["posterior"].sizes["draw"] == 5
    assert np.load(tmp_path / "draws" / "counts").tolist() == [5, 5]


def test_a_tilde_is_the_users_folder(model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    kz.fit(model, "exact", draws=5, store="~/new/draws", **COMMON)
    assert np.load(tmp_path / "new" / "draws" / "counts") == 5


def cut(file):
    os.truncate(file, file.stat().st_size - 8)


def replace(file):
    other = file.with_suffix(".other")
    other.write_bytes(file.read_bytes())
    other.replace(file)


@pytest.mark.parametrize("damage", [cut, replace, os.remove])
@pytest.mark.parametrize("file", ["K21.npy", "counts"])
@pytest.mark.parametrize("number", [3, 4])
def test_a_store_that_is_damaged_during_the_run_says_so(model, tmp_path, damage, file, number):
    """Bug: a file that was cut gave an error of NumPy's about its header, or draws of zero."""
    store = Store(tmp_path / "draws", model, ["K21"], 1, 4)
    values = {"K21": np.ones((1, *model["K21"].shape.eval()))}
    for _ in range(number):
        store.append(0, values)
    damage(tmp_path / "draws" / file)
    message = rf"{tmp_path}/draws' failed: .*By its counts it holds {number} whole draws"
    if number == 3:
        with pytest.raises(OSError, match=message):
            store.append(0, values)
    elif file == "K21.npy":
        with pytest.raises(OSError, match=message):
            store.dataset()


def test_bad_stores_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"'store' argument of fit must be a path where nothing"):
        kz.fit(model, "gibbs", store=tmp_path)
    with pytest.raises(ValueError, match=r"EM cannot write a store; these engines can: .*Gibbs"):
        kz.fit(model, "em", store=tmp_path / "x")
    with pytest.raises(ValueError, match=r"Only PyMC's own samplers"):
        kz.fit(model, kz.NUTS(backend="nutpie"), store=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_run_stopped_before_its_first_draw_says_so(model, tmp_path):
    def stop(trace, draw):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="Gibbs was interrupted before"):
        kz.fit(model, "gibbs", draws=10, tune=10, chains=1, cores=1, callback=stop,
               store=tmp_path / "draws", **COMMON)  # fmt: skip


def test_a_result_on_disk_is_as_any_other(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    kernels = (kz.gaussian(0.5) | kz.linear()).normalize("trace")
    train = pd.DataFrame(X, [f"P{i}" for i in range(9)])
    model = kz.CompositeKernelRegression(kernels(train), y, combination="binary")
    options = COMMON | {"draws": 20, "tune": 5, "chains": 2, "cores": 1, "var_names": None}
    disk = kz.fit(model, "gibbs", **options, store=tmp_path / "draws")
    memory = kz.fit(model, "gibbs", **options)
    for group in ("posterior", "observed_data", "constant_data"):
        one, other = (tree[group].to_dataset().drop_attrs() for tree in (disk, memory))
        xr.testing.assert_identical(one.load(), other.load())
    xr.testing.assert_identical(kz.inclusion(disk), kz.inclusion(memory))
    new = kernels(train[:3] + 0.1, train)
    xr.testing.assert_identical(kz.predict(model, disk, new), kz.predict(model, memory, new))
    disk.to_netcdf(tmp_path / "result.nc")
