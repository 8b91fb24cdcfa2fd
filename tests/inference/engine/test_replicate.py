"""Independent tasks: order, files, failures, kills, clusters."""

import errno
import os
import signal
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference.diagnostics.calibrate import Replicates
from kernelzoo.inference.engine import replicate
from kernelzoo.inference.engine.replicate import Failure

QUIET = {"progressbar": False}

#: Seeds of the calls of `counted` in this process.
CALLS = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def numbers(seed):
    return np.random.default_rng(seed).normal(size=2)


def counted(seed, factor=1):
    CALLS.append(seed)
    return factor * seed


def failing(seed):
    if seed in (3, 5):
        raise ArithmeticError(f"no answer for {seed}")
    return float(seed)


def written(out):
    return sorted(int(path.stem) for path in out.glob("*.json"))


def run(task, seeds, **options):
    return kz.replicate(task, seeds, **QUIET | options)


# Order, values and files.


def test_results_are_in_the_order_of_the_seeds(monkeypatch):
    outcomes_of = replicate.outcomes_of
    monkeypatch.setattr(replicate, "outcomes_of", lambda *args: reversed([*outcomes_of(*args)]))
    assert run(counted, [7, 2, 5]) == [7, 2, 5]
    assert run(numbers, [4])[0] == numbers(4).tolist()


def test_results_are_the_same_written_or_not(tmp_path):
    def task(seed):
        return {1: (np.float64(0.1), np.arange(2)), "nested": [{"seed": np.int64(seed)}], "x": None}

    fresh = run(task, [3])
    assert fresh == [{"1": [0.1, [0, 1]], "nested": [{"seed": 3}], "x": None}]
    assert run(task, [3], store=tmp_path) == run(task, [3], store=tmp_path) == fresh


def test_finished_tasks_are_not_run_again(tmp_path):
    assert run(counted, range(3), store=tmp_path) == [0, 1, 2]
    assert run(counted, [4, 1, 0], store=tmp_path) == [4, 1, 0]
    assert CALLS == [0, 1, 2, 4]
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.json" for n in (0, 1, 2, 4)}


def test_a_folder_of_another_recipe_is_refused(tmp_path, monkeypatch):
    run(counted, [1, 2], store=tmp_path)
    with pytest.raises(ValueError, match=r"'store' .* a folder of its own .*'numbers'.*'counted'"):
        run(numbers, [1], store=tmp_path)
    monkeypatch.setattr(replicate, "versions", lambda: {"kernelzoo": "99.0"})
    with pytest.raises(ValueError, match=r"'kernelzoo': '99.0'"):
        run(counted, [1], store=tmp_path)
    (tmp_path / "3.json").write_text("[1,")
    with pytest.raises(ValueError, match=r"3.json, which is no record"):
        run(counted, [3], store=tmp_path)
    assert CALLS == [1, 2]


def test_each_task_is_on_disk_before_the_next_begins(tmp_path):
    def task(seed):
        assert len(written(tmp_path)) == seed
        return seed

    assert not run(task, range(3), store=tmp_path).failures


def test_a_full_disk_names_the_file_and_leaves_no_part_of_it(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run(counted, [1], store=tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be written \(No space left.*2\.json"):
        run(counted, [1, 2], store=tmp_path)
    assert written(tmp_path) == [1]


# Failures.


def test_failures_are_told_and_run_again(tmp_path):
    with pytest.warns(UserWarning, match="2 of 7 tasks failed: seed 3: ArithmeticError: no answer"):
        results = run(failing, range(7), store=tmp_path)
    assert results.failures == {seed: f"ArithmeticError: no answer for {seed}" for seed in (3, 5)}
    assert results[5] == Failure(5, "ArithmeticError: no answer for 5")
    assert [each for each in results if not isinstance(each, Failure)] == [0.0, 1, 2, 4, 6]
    assert written(tmp_path) == [0, 1, 2, 4, 6]
    with pytest.warns(UserWarning, match="2 of 7"):
        run(failing, range(7), store=tmp_path)


@pytest.mark.parametrize("value", [float("nan"), np.array([1, np.inf]), object(), {1j}])
def test_what_a_file_cannot_hold_is_a_failure(value):
    with pytest.warns(UserWarning, match="task' argument of replicate must be a function that ret"):
        assert run(lambda seed: value, [0]).failures


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": 3}, "'task' .* must be a function of a seed. Got 3"),
        ({"seeds": 30}, r"'seeds' .* must be a sequence of integers, such as range\(30\). Got 30"),
        ({"seeds": "12"}, "'seeds' .* must be a sequence"),
        ({"seeds": []}, "'seeds' .* must be one integer or more. Got none"),
        ({"seeds": [1, 2, 1]}, "'seeds' .* must be different from each other. Got 1 twice"),
        ({"seeds": [1.5]}, "'seeds' .* must be an integer of 0 or more"),
        ({"seeds": [-1]}, "'seeds' .* must be an integer of 0 or more"),
        ({"cores": 0}, "'cores' .* must be an integer of 1 or more"),
        ({"task": (n for n in ()).send, "cores": 2}, "'task' .* that can be pickled"),
    ],
)
def test_arguments(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run(**{"task": counted, "seeds": [1]} | arguments)
    assert not CALLS


def test_ctrl_c_leaves_the_finished_tasks(tmp_path):
    def task(seed):
        if seed == 2:
            signal.raise_signal(signal.SIGINT)
        return seed

    with pytest.raises(
        KeyboardInterrupt, match=r"after 2 of 4 tasks: .* goes on from them"
    ) as told:
        run(task, range(4), store=tmp_path)
    assert told.value.__suppress_context__
    assert written(tmp_path) == [0, 1]


def test_a_partial_result_after_ctrl_c_is_not_finished(tmp_path):
    def task(seed):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return "partial"

    with pytest.raises(KeyboardInterrupt):
        run(task, range(4), store=tmp_path)
    assert not written(tmp_path)


def test_tasks_within_a_task_run_in_its_process(monkeypatch):
    """They would wait for the turn of the task, which waits for them."""

    def others(*_, **__):
        pytest.fail("Processes were started.")

    monkeypatch.setattr("joblib.Parallel", others)
    with replicate._TURN:
        assert run(lambda seed: os.getpid(), [1, 2], cores=2) == [os.getpid()] * 2


def test_sigterm_within_a_task_is_no_failure():
    def ended(seed):
        raise SystemExit(143)

    with pytest.raises(SystemExit, match="143"):
        run(ended, [1, 2])


# What is shipped.


def test_models_are_shipped_without_compiled_functions():
    model, options = kz.CompositeKernelRegression.example(), {"draws": 40, "chains": 1}
    task = Replicates(model, kz.VB(), 1, options)
    first = task(0)
    assert {"simulator", "_log_likelihood"} <= vars(task).keys()
    again = cloudpickle.loads(cloudpickle.dumps(task))
    assert not {"simulator", "_log_likelihood"} & vars(again).keys()
    assert again(0) == first


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
    def task(seed):
        from distributed import get_worker

        return [get_worker().id, replicate.active_client() is None]

    assert replicate.active_client() is client
    results = run(task, range(4), store=tmp_path)
    assert {worker for worker, _ in results} <= {w.id for w in client.cluster.workers.values()}
    assert all(nested for _, nested in results)
    with pytest.warns(UserWarning, match="1 of 4 tasks failed: seed 3: ArithmeticError"):
        assert run(failing, range(4))[:3] == [0, 1, 2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_task_that_exits_has_failed(jobs):
    def exiting(seed):
        if seed == 3:
            raise SystemExit("no licence")
        return seed

    with pytest.warns(UserWarning, match="1 of 2 tasks failed: seed 3: SystemExit: no licence"):
        assert run(exiting, [3, 4], cores=jobs)[1] == 4


def test_a_closed_client_is_not_active(monkeypatch):
    distributed = pytest.importorskip("distributed")
    closed = SimpleNamespace(status="closed")
    monkeypatch.setattr(distributed, "default_client", lambda: closed)
    assert replicate.active_client() is None


def test_without_a_client_tasks_run_here():
    assert replicate.active_client() is None
    assert run(lambda seed: os.getpid(), [1]) == [os.getpid()]


def test_a_task_that_killed_its_workers_has_failed(client, monkeypatch):
    from distributed import KilledWorker

    def killing(numbered, pickled):
        if numbered[1] == 2:
            raise KilledWorker("task", SimpleNamespace(address="there"), 3)
        return numbered[0], {"value": numbered[1]}

    monkeypatch.setattr(replicate, "_run", killing)
    with pytest.warns(UserWarning, match="1 of 3 tasks failed: seed 2: KilledWorker"):
        assert run(counted, [1, 2, 3])[::2] == [1, 3]


@pytest.mark.parametrize("found", ["cancelled", "finished"])
@pytest.mark.parametrize("raised", ["CommClosedError", "FutureCancelledError"])
def test_a_lost_scheduler_is_told(client, monkeypatch, tmp_path, found, raised):
    """Also when it is lost between the end of a task and the fetching of its result."""
    distributed = pytest.importorskip("distributed")
    error = {
        "CommClosedError": distributed.comm.CommClosedError("Connection reset by peer"),
        "FutureCancelledError": distributed.client.FutureCancelledError("key", "lost"),
    }[raised]

    def fetch():
        raise error

    def lost(futures):
        yield next(iter(distributed.wait(futures[:1]).done))
        yield SimpleNamespace(status=found, key=futures[1].key, result=fetch)

    monkeypatch.setattr(distributed, "as_completed", lost)
    with pytest.raises(ConnectionError, match="Finished tasks are kept"):
        run(counted, [1, 2, 3], store=tmp_path)
    assert written(tmp_path) == [1]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_is_told_and_finished_tasks_are_kept(tmp_path):
    def killed(seed):
        if seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return seed

    assert run(killed, [1], store=tmp_path, cores=2) == [1]
    with pytest.raises(ChildProcessError, match="A process was killed, perhaps for lack of memory"):
        run(killed, [1, 2], store=tmp_path, cores=2)
    assert written(tmp_path) == [1]


@pytest.mark.parametrize("engine", ["vb", "gibbs", "exact"])
def test_the_same_seed_gives_the_same_draws_under_dask(client, engine):
    model = kz.WishartCompletion.example()

    def draws(seed):
        options = {"draws": 20, "tune": 5, "chains": 2, "cores": 1}
        return kz.fit(model, engine, random_seed=seed, **options, **QUIET)["posterior"][
            "trace_K22"
        ].to_numpy()

    assert run(draws, [1, 2]) == [draws(1).tolist(), draws(2).tolist()]
