"""Kernels that do not fit are refused before they are computed."""

from types import SimpleNamespace

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.models.kernels import memory

X = np.random.default_rng(0).normal(size=(300, 4))
KERNELS = kz.gaussian(0.3) | kz.linear()


@pytest.fixture
def little(monkeypatch):
    """A process that can have 1 MB; kernels of 300 objects take 1.44 MB."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10**6, 10**6))


def test_the_least_limit_counts(monkeypatch, tmp_path):
    resource = pytest.importorskip("resource")
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda which: (unlimited, unlimited))
    cgroup = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUPS", (tmp_path / "none", cgroup))
    machine = memory.memory_limit()
    assert 1e8 < machine < 1e15
    for text, expected in (("max\n", machine), ("5000000\n", 5e6), (f"{2 * machine:.0f}", machine)):
        cgroup.write_text(text)
        assert memory.memory_limit() == expected
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10**6, unlimited))
    assert memory.memory_limit() == 10**6


def test_kernels_that_need_more_name_what_they_need(little):
    with pytest.raises(ValueError, match=r"\(2, 300, 300\), which need 0.00144 GB"):
        KERNELS(X)
    with pytest.raises(ValueError, match=r"\(2, 300, 210\), which need"):
        KERNELS.landmarks(210)(X)
    assert KERNELS.landmarks(10)(X).shape == (2, 300, 10)
    assert KERNELS(X[:5], X).shape == (2, 5, 300)


def workers(monkeypatch, limit, used):
    used = {"memory": used + 300_000, "managed_bytes": 300_000}
    info = {"workers": {"tcp://a": {"memory_limit": limit, "metrics": used}}}
    client = SimpleNamespace(scheduler_info=lambda: info)
    fake = SimpleNamespace(default_client=lambda: client)
    monkeypatch.setitem(memory.sys.modules, "distributed", fake)


def test_blocks_that_workers_cannot_hold_are_refused_before_they_are_read(monkeypatch):
    pytest.importorskip("dask")
    stack = KERNELS.landmarks(20).in_blocks(X, size=100).to_dask()
    labels = np.arange(300) % 3
    # A block has 32 kB, twice which and 100 kB are 164, of 95 %.
    workers(monkeypatch, limit=170_000, used=100_000)
    with pytest.raises(ValueError, match=r"memory_limit=0.2 MB at tcp://a.*which need 0.2 MB"):
        kz.MultinomialProbit(stack, labels)
    for limit in (175_000, 0):
        workers(monkeypatch, limit=limit, used=100_000)
        assert kz.MultinomialProbit(stack, labels).blocks is not None


def test_without_a_client_no_worker_is_asked(monkeypatch):
    def none():
        raise ValueError("No clients found")

    monkeypatch.setitem(memory.sys.modules, "distributed", SimpleNamespace(default_client=none))
    memory.check_workers(1e15, "kernels", "a test")
    monkeypatch.delitem(memory.sys.modules, "distributed")
    memory.check_workers(1e15, "kernels", "a test")
