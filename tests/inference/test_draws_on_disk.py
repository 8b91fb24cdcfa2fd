"""Draws written as they are made: equal to those held in memory, and safe from a kill."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference import draws_on_disk

pytest.importorskip("zarr")
COMMON = {"random_seed": 1, "progressbar": False, "var_names": ["K21", "trace_K22"]}


@pytest.fixture
def model():
    return kz.WishartCompletion.example()


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


def test_an_interrupted_run_keeps_what_was_drawn(model, tmp_path):
    def stop(trace, draw):
        if not draw.tuning and draw.draw_idx >= 30:
            raise KeyboardInterrupt

    run = kz.fit(model, "gibbs", draws=1000, tune=10, chains=1, cores=1, callback=stop,
                 store=tmp_path / "draws.zarr", **COMMON)  # fmt: skip
    assert 10 <= run["posterior"].sizes["draw"] < 1000
    assert np.isfinite(run["posterior"]["K21"]).all()
    assert run.attrs["converged"] == "no"


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


def test_bad_stores_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"'store' argument of fit must be a path where nothing"):
        kz.fit(model, "gibbs", store=tmp_path)
    with pytest.raises(ValueError, match=r"EM writes no store; these engines do: .*Gibbs"):
        kz.fit(model, "em", store=tmp_path / "x.zarr")
    with pytest.raises(ValueError, match=r"PyMC's own samplers only"):
        kz.fit(model, kz.NUTS(backend="nutpie"), store=tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()


def test_a_run_stopped_before_its_first_draw_says_so(model, tmp_path):
    def stop(trace, draw):
        raise KeyboardInterrupt

    with pytest.raises(ValueError, match="Not enough samples"):
        kz.fit(model, "gibbs", draws=10, tune=10, chains=1, cores=1, callback=stop,
               store=tmp_path / "draws.zarr", **COMMON)  # fmt: skip
