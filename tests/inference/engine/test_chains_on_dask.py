"""Chains on the workers of a Dask cluster: those that this process would sample."""

import asyncio
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from cluster_fixture import mortal_scheduler
from kernelzoo.inference.engine import chains, replicate

OPTIONS = {"draws": 30, "tune": 10, "chains": 3, "cores": 1, "random_seed": 4, "progressbar": False}


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=2, protocol="inproc://", **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def model():
    return kz.WishartCompletion.example()


@pytest.fixture(scope="module")
def here(client, model):
    """Result without the client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "active_client", lambda: None)
        return kz.fit(model, "gibbs", moments=["trace_K22"], **OPTIONS)


GROUPS = ["posterior", "moments"]


def same(one, other, groups=GROUPS):
    for group in groups:
        xr.testing.assert_identical(
            one[group].to_dataset().load().drop_attrs(),
            other[group].to_dataset().load().drop_attrs(),
        )


def test_chains_are_those_of_one_process(model, here, client, monkeypatch):
    numbers = []
    monkeypatch.setattr(chains, "outcomes_of", counting(numbers))
    there = kz.fit(model, "gibbs", moments=["trace_K22"], **OPTIONS)
    assert sorted(numbers) == [0, 1, 2]
    same(here, there)
    names = ["ended_by", "lp_measure", "converged", "random_seed", "engine", "draws", "note"]
    assert {n: here.attrs.get(n) for n in names} == {n: there.attrs.get(n) for n in names}
    assert here.children.keys() == there.children.keys()
    assert here["sample_stats"].to_dataset().keys() == there["sample_stats"].to_dataset().keys()


def counting(numbers):
    def outcomes_of(*arguments):
        for number, outcome in replicate.outcomes_of(*arguments):
            numbers.append(number)
            yield number, outcome

    return outcomes_of


def test_a_store_is_that_of_one_process(model, here, client, tmp_path):
    there = kz.fit(model, "gibbs", moments=["trace_K22"], store=tmp_path / "d.zarr", **OPTIONS)
    same(here, there)
    assert [path.name for path in tmp_path.iterdir()] == ["d.zarr"]
    opened = kz.open_store(tmp_path / "d.zarr")
    same(here, opened, ["posterior"])
    assert opened.attrs["engine"] == "Gibbs"


def test_chains_begin_where_those_of_one_process_do(client, monkeypatch):
    model = kz.CompositeKernelRegression.example()
    vb = kz.fit(model, "vb", draws=20, random_seed=1, progressbar=False)
    there = kz.fit(model, "gibbs", start=vb, **OPTIONS | {"tune": 0, "draws": 2})
    monkeypatch.setattr(chains, "active_client", lambda: None)
    same(
        kz.fit(model, "gibbs", start=vb, **OPTIONS | {"tune": 0, "draws": 2}), there, ["posterior"]
    )


def test_nuts_runs_on_workers(client):
    with pm.Model() as model:
        pm.Normal("x")
    options = OPTIONS | {"compile_kwargs": {"mode": "FAST_COMPILE"}}
    result = kz.fit(model, "nuts", **options)
    x = result["posterior"]["x"]
    assert x.sizes == {"chain": 3, "draw": 30}
    assert len(np.unique(x)) > 50


def test_failed_chains_are_named_and_the_others_kept(model, here, client, monkeypatch):
    run = kz.Gibbs.run

    def failing(self, model, run_):
        if run_.chain == 1:
            raise ArithmeticError("no square root")
        return run(self, model, run_)

    monkeypatch.setattr(kz.Gibbs, "run", failing)
    with pytest.warns(UserWarning, match=r"1 of 3 chains failed. chain 1: ArithmeticError: no sq"):
        there = kz.fit(model, "gibbs", **OPTIONS)
    assert there.attrs["converged"] == "no"
    kept = here["posterior"].to_dataset().isel(chain=[0, 2]).assign_coords(chain=[0, 1])
    xr.testing.assert_identical(there["posterior"].to_dataset().drop_attrs(), kept.drop_attrs())
    monkeypatch.setattr(kz.Gibbs, "implement", lambda *_: 1 / 0)
    with pytest.raises(RuntimeError, match=r"No chain was sampled.*ZeroDivisionError"):
        kz.fit(model, "gibbs", **OPTIONS)


def test_ctrl_c_keeps_finished_chains(model, here, client, monkeypatch):
    def two(*arguments):
        for number, (chain, outcome) in enumerate(replicate.outcomes_of(*arguments)):
            if number == 2:
                raise KeyboardInterrupt
            yield chain, outcome

    monkeypatch.setattr(chains, "outcomes_of", two)
    monkeypatch.setattr(
        "kernelzoo.inference.engine.fit.interruptible",
        pressed,
    )
    with pytest.warns(UserWarning, match="Gibbs was interrupted"):
        there = kz.fit(model, "gibbs", **OPTIONS)
    assert there["posterior"].sizes["chain"] == 2
    assert there.attrs["ended_by"] == "interrupt"


@contextmanager
def pressed(name, clock):
    clock.pressed = True
    yield


def test_a_lost_scheduler_keeps_finished_chains(model, here, client, monkeypatch):
    def one(*arguments):
        yield next(replicate.outcomes_of(*arguments))
        raise ConnectionError("The scheduler was lost.")

    monkeypatch.setattr(chains, "outcomes_of", one)
    with pytest.warns(UserWarning, match=r"2 of 3 chains failed.*ConnectionError: The scheduler"):
        there = kz.fit(model, "gibbs", **OPTIONS)
    assert there.attrs["converged"] == "no"
    assert there["posterior"].sizes == {**here["posterior"].sizes, "chain": 1}


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_a_killed_scheduler_keeps_finished_chains(model, tmp_path, monkeypatch, stored):
    store = tmp_path / "d.zarr" if stored else None
    options = OPTIONS | {"draws": 1000, "chains": 8}
    with mortal_scheduler(tmp_path) as (_, scheduler):

        def killing(*arguments):
            for number, outcome in enumerate(replicate.outcomes_of(*arguments)):
                if number == 1:
                    scheduler.kill()
                yield outcome

        monkeypatch.setattr(chains, "outcomes_of", killing)
        with pytest.warns(UserWarning, match=r"chains failed.*The Dask scheduler at .* was lost"):
            there = kz.fit(model, "gibbs", **options, store=store)
    kept = there["posterior"].to_dataset()
    assert 2 <= kept.sizes["chain"] < 8
    assert there.attrs["converged"] == "no"
    if stored:
        same(there, kz.open_store(store), ["posterior"])
    here = kz.fit(model, "gibbs", **options)["posterior"]["trace_K22"].values
    for chain in kept["trace_K22"].values:
        assert any(np.array_equal(chain, each) for each in here)


def test_a_scheduler_that_is_gone_before_the_fit_is_named_soon(model, client, monkeypatch):
    """Distributed tries again for more than a minute, and then shows a closed connection."""

    async def silent(workers=None):
        await asyncio.sleep(5)

    monkeypatch.setattr(replicate, "ANSWER", 0.2)
    monkeypatch.setattr(client.scheduler, "ncores", silent, raising=False)
    with pytest.raises(ConnectionError, match=r"scheduler at inproc://.* does not answer"):
        kz.fit(model, "gibbs", **OPTIONS)


def test_time_is_shared_by_the_chains_of_a_worker(model, here, client, monkeypatch):
    """Two workers have three chains in two turns."""
    seconds = []

    def ending(task, numbers, *_):
        seconds.append(task.seconds)
        part = xr.DataTree.from_dict({n: here[n].to_dataset().isel(chain=[0]) for n in GROUPS})
        yield from ((n, {"tree": part, "ended": n == 2}) for n in numbers)

    monkeypatch.setattr(chains, "outcomes_of", ending)
    with pytest.warns(UserWarning, match=r"Gibbs was ended by max_seconds=60"):
        result = kz.fit(model, "gibbs", max_seconds=60, **OPTIONS)
    assert seconds == [pytest.approx(30, abs=1)]
    assert result["posterior"].sizes["chain"] == 3
    assert result.attrs["ended_by"] == "max_seconds"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"callback": print}, "'callback' argument of fit must be left out while a Dask client"),
    ],
)
def test_arguments_that_need_one_process_are_refused(
    model, client, tmp_path, monkeypatch, given, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, "gibbs", **given, **OPTIONS)


def test_one_chain_and_other_engines_run_here(model, client, monkeypatch):
    monkeypatch.setattr(chains, "outcomes_of", lambda *_: pytest.fail("on the cluster"))
    assert kz.fit(model, "gibbs", **OPTIONS | {"chains": 1})["posterior"].sizes["chain"] == 1
    assert kz.fit(model, "exact", **OPTIONS)["posterior"].sizes["draw"] == 30
