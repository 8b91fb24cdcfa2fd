"""Chains on the workers of a Dask cluster: those that this process would sample."""

from contextlib import contextmanager
from itertools import islice

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference.engine import chains, tasks

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
    def outcomes_of(*arguments, **options):
        for number, outcome in tasks.outcomes_of(*arguments, **options):
            numbers.append(number)
            yield number, outcome

    return outcomes_of


def test_a_store_is_that_of_one_process(model, here, client, tmp_path):
    there = kz.fit(model, "gibbs", moments=["trace_K22"], store=tmp_path / "draws", **OPTIONS)
    same(here, there)
    assert [path.name for path in tmp_path.iterdir()] == ["draws"]


def test_nuts_runs_on_workers(client):
    with pm.Model() as model:
        pm.Normal("x")
    options = OPTIONS | {"compile_kwargs": {"mode": "FAST_COMPILE"}}
    result = kz.fit(model, "nuts", **options)
    x = result["posterior"]["x"]
    assert x.sizes == {"chain": 3, "draw": 30}
    assert len(np.unique(x)) > 50


@pytest.fixture
def ended(monkeypatch):
    """All chains end before the first is read: threads of one process share its warnings."""

    def outcomes_of(*arguments, **options):
        yield from [*tasks.outcomes_of(*arguments, **options)]

    monkeypatch.setattr(chains, "outcomes_of", outcomes_of)
    return outcomes_of


def test_a_failed_chain_is_named(model, client, ended, monkeypatch):
    run = kz.Gibbs.run

    def failing(self, model, run_):
        if run_.chain == 1:
            raise ArithmeticError("no square root")
        return run(self, model, run_)

    monkeypatch.setattr(kz.Gibbs, "run", failing)
    with pytest.raises(RuntimeError, match=r"Chain 1 failed: ArithmeticError: no square root"):
        kz.fit(model, "gibbs", **OPTIONS)


def test_ctrl_c_keeps_finished_chains(model, here, client, ended, monkeypatch):
    def two(*arguments, **options):
        yield from islice(ended(*arguments, **options), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(chains, "outcomes_of", two)
    monkeypatch.setattr("kernelzoo.inference.engine.fit.interruptible", pressed)
    with pytest.warns(UserWarning, match="Gibbs was interrupted"):
        there = kz.fit(model, "gibbs", **OPTIONS)
    assert there["posterior"].sizes["chain"] == 2
    assert there.attrs["ended_by"] == "interrupt"


@contextmanager
def pressed(name, clock):
    clock.pressed = True
    yield


def test_time_is_shared_by_the_chains_of_a_worker(model, here, client, monkeypatch):
    """Two workers have three chains in two turns."""
    seconds = []

    def ending(task, numbers, **_):
        seconds.append(task.args[-1])
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
        (
            {"callback": print},
            "'callback' argument of fit must be left out while chains run on the workers",
        ),
    ],
)
def test_arguments_that_need_one_process_are_refused(
    model, client, tmp_path, monkeypatch, given, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        kz.fit(model, "gibbs", **given, **OPTIONS)


def test_one_chain_and_other_engines_run_here(model, client, monkeypatch):
    monkeypatch.setattr(chains, "outcomes_of", lambda *_, **__: pytest.fail("on the cluster"))
    assert kz.fit(model, "gibbs", **OPTIONS | {"chains": 1})["posterior"].sizes["chain"] == 1
    assert kz.fit(model, "exact", **OPTIONS)["posterior"].sizes["draw"] == 30
