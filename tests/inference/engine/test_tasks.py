"""Independent tasks: files, failures, Ctrl-C, kills, clusters."""

import os
import signal
from contextlib import closing
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference.diagnostics.calibrate import Replicates
from kernelzoo.inference.engine import tasks as runner

#: Arguments of the calls of `counted` in this process.
CALLS = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def counted(number):
    CALLS.append(number)
    return {"value": number}


def failing(number):
    if number in (3, 5):
        raise ArithmeticError(f"no answer for {number}")
    return {"value": number}


def written(out):
    return sorted(int(path.stem) for path in out.glob("*.json"))


def run(task, numbers, **options):
    """Records by number, in the order in which they come."""
    arguments = {str(number): number for number in numbers}
    options = {"title": "tasks", "progressbar": False} | options
    with closing(runner.records(task, arguments, **options)) as found:
        return {int(name): record for name, record in found}


def values(task, numbers, **options):
    return {number: record["value"] for number, record in run(task, numbers, **options).items()}


# Files.


def test_finished_tasks_are_not_run_again(tmp_path):
    assert values(counted, range(3), store=tmp_path) == {0: 0, 1: 1, 2: 2}
    assert values(counted, [4, 1, 0], store=tmp_path) == {4: 4, 1: 1, 0: 0}
    assert CALLS == [0, 1, 2, 4]
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.json" for n in (0, 1, 2, 4)}


def test_another_file_is_refused(tmp_path):
    (tmp_path / "3.json").write_text("[1,")
    with pytest.raises(ValueError, match=r"3.json is not a record of a finished task"):
        run(counted, [3], store=tmp_path)
    assert not CALLS


def test_each_task_is_on_disk_before_the_next_begins(tmp_path):
    def task(number):
        assert len(written(tmp_path)) == number
        return {"value": number}

    assert values(task, range(3), store=tmp_path) == {0: 0, 1: 1, 2: 2}


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_a_file_cannot_hold_leaves_none(tmp_path, value):
    with pytest.raises((ValueError, TypeError)):
        run(lambda number: {"value": value}, [1], store=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_leaves_no_part_of_a_record(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    run(counted, [1], store=tmp_path)
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space left"):
        run(counted, [1, 2], store=tmp_path)
    assert written(tmp_path) == [1]


# Failures.


def test_failures_are_records_and_run_again(tmp_path):
    for _ in range(2):
        found = run(failing, range(7), store=tmp_path)
        errors = {number: each["error"] for number, each in found.items() if "error" in each}
        assert errors == {number: f"ArithmeticError: no answer for {number}" for number in (3, 5)}
        assert written(tmp_path) == [0, 1, 2, 4, 6]


def test_ctrl_c_leaves_the_finished_tasks(tmp_path):
    def task(number):
        if number == 2:
            signal.raise_signal(signal.SIGINT)
        return {"value": number}

    with pytest.raises(KeyboardInterrupt):
        run(task, range(4), store=tmp_path)
    assert written(tmp_path) == [0, 1]


def test_a_partial_result_after_ctrl_c_is_not_finished(tmp_path):
    def task(number):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return {"value": "partial"}

    with pytest.raises(KeyboardInterrupt):
        run(task, range(4), store=tmp_path)
    assert not written(tmp_path)


def test_tasks_within_a_task_run_in_its_process(monkeypatch):
    """They would wait for the turn of the task, which waits for them."""
    monkeypatch.setattr("joblib.Parallel", lambda *_, **__: pytest.fail("Processes were started."))
    with runner._TURN:
        found = values(lambda _: {"value": os.getpid()}, [1, 2], cores=2)
    assert found == dict.fromkeys([1, 2], os.getpid())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_leaves_the_finished_tasks(tmp_path):
    from concurrent.futures.process import BrokenProcessPool

    def killed(number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"value": number}

    assert values(killed, [1], store=tmp_path, cores=2) == {1: 1}
    with pytest.raises(BrokenProcessPool):
        run(killed, [1, 2], store=tmp_path, cores=2)
    assert written(tmp_path) == [1]


# What is shipped.


def test_models_are_shipped_without_compiled_functions():
    model, options = kz.CompositeKernelRegression.example(), {"draws": 40, "chains": 1}
    task = Replicates(model, kz.VB(), 1, options)
    first = task(0)
    assert {"simulator", "_log_likelihood"} <= vars(task).keys()
    again = cloudpickle.loads(cloudpickle.dumps(task))
    assert not {"simulator", "_log_likelihood"} & vars(again).keys()
    assert again(0) == first


def test_workers_keep_what_a_task_compiles():
    pickled = cloudpickle.dumps(SimpleNamespace(kept=[]))
    assert runner._unpickled(pickled) is runner._unpickled(pickled)


# Dask in this process.


@pytest.fixture(scope="module")
def in_process():
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=2, protocol="inproc://", **options) as started:
        yield started


@pytest.fixture
def client(in_process):
    from distributed import Client

    with Client(in_process) as client:
        yield client


def test_dask_runs_the_tasks_of_this_machine(client, tmp_path):
    def task(number):
        from distributed import get_worker

        return {"worker": get_worker().id, "nested": runner.active_client() is None}

    assert runner.active_client() is client
    found = run(task, range(4), store=tmp_path).values()
    workers = {worker.id for worker in client.cluster.workers.values()}
    assert {record["worker"] for record in found} <= workers
    assert all(record["nested"] for record in found)
    failed = run(failing, range(4))
    assert failed.pop(3) == {"error": "ArithmeticError: no answer for 3"}
    assert failed == {number: {"value": number} for number in range(3)}


def test_a_closed_client_is_not_active(monkeypatch):
    distributed = pytest.importorskip("distributed")
    closed = SimpleNamespace(status="closed")
    monkeypatch.setattr(distributed, "default_client", lambda: closed)
    assert runner.active_client() is None


def test_without_a_client_tasks_run_here():
    assert runner.active_client() is None
    assert values(lambda _: {"value": os.getpid()}, [1]) == {1: os.getpid()}


@pytest.mark.parametrize("engine", ["vb", "gibbs", "exact"])
def test_the_same_seed_gives_the_same_draws_under_dask(client, engine):
    model = kz.WishartCompletion.example()

    def draws(seed):
        options = {"draws": 20, "tune": 5, "chains": 2, "cores": 1, "progressbar": False}
        result = kz.fit(model, engine, random_seed=seed, **options)
        return {"value": result["posterior"]["trace_K22"].to_numpy()}

    there = values(draws, [1, 2])
    for seed in (1, 2):
        np.testing.assert_array_equal(there[seed], draws(seed)["value"])
