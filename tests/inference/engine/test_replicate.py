"""Independent tasks: order, files, failures, kills, clusters."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.__main__ import main
from kernelzoo.inference.diagnostics.replicates import Replicate
from kernelzoo.inference.engine import cluster, replicate, workers
from kernelzoo.inference.engine.fingerprint import fingerprint
from kernelzoo.inference.engine.held_file import held
from kernelzoo.inference.engine.ledger import Ledger
from kernelzoo.inference.engine.replicate import FILE, Failure

QUIET = {"progressbar": False}


class Log:
    """A list that is no part of the data of a function that names it."""

    def __init__(self):
        self.seeds = []

    def __reduce__(self):
        return Log, ()


#: Seeds of the calls of `counted` in this process.
CALLS = Log()


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.seeds.clear()


def numbers(seed):
    return np.random.default_rng(seed).normal(size=2)


def counted(seed, factor=1):
    CALLS.seeds.append(seed)
    return factor * seed


def failing(seed):
    if seed in (3, 5):
        raise ArithmeticError(f"no answer for {seed}")
    return float(seed)


def written(out):
    return list(Ledger(out / FILE))


def run(task, seeds, **options):
    return kz.replicate(task, seeds, **QUIET | options)


# Order, values and files.


def test_results_are_in_the_order_of_the_seeds(monkeypatch):
    completed = replicate.completed
    monkeypatch.setattr(replicate, "completed", lambda *args: reversed([*completed(*args)]))
    assert run(counted, [7, 2, 5]) == [7, 2, 5]
    assert run(numbers, [4])[0] == numbers(4).tolist()


def test_results_are_the_same_written_or_not(tmp_path):
    def task(seed):
        return {1: (np.float64(0.1), np.arange(2)), "nested": [{"seed": np.int64(seed)}], "x": None}

    fresh = run(task, [3])
    assert fresh == [{"1": [0.1, [0, 1]], "nested": [{"seed": 3}], "x": None}]
    assert run(task, [3], out=tmp_path) == run(task, [3], out=tmp_path) == fresh


def test_finished_tasks_are_not_run_again(tmp_path):
    assert run(counted, range(3), out=tmp_path) == [0, 1, 2]
    assert run(counted, [4, 1, 0], out=tmp_path) == [4, 1, 0]
    assert CALLS.seeds == [0, 1, 2, 4]
    assert [record["seed"] for record in written(tmp_path)] == [0, 1, 2, 4]
    run(counted, [0], out=tmp_path, resume=False)
    assert CALLS.seeds[4:] == [0]


def test_records_of_another_version_are_not_believed(tmp_path, monkeypatch):
    run(counted, [1, 2], out=tmp_path)
    monkeypatch.setattr(replicate, "versions", lambda: {"kernelzoo": "99.0"})
    run(counted, [1, 2], out=tmp_path)
    assert CALLS.seeds == [1, 2, 1, 2]
    assert {record["kernelzoo"] for record in written(tmp_path)} == {kz.__version__, "99.0"}


def test_each_task_is_on_disk_before_the_next_begins(tmp_path):
    def task(seed):
        assert len(written(tmp_path)) == seed
        return seed

    assert not run(task, range(3), out=tmp_path).failures


# Failures.


def test_failures_are_told_recorded_and_run_again(tmp_path):
    with pytest.warns(UserWarning, match="2 of 7 tasks failed: seed 3: ArithmeticError: no answer"):
        results = run(failing, range(7), out=tmp_path)
    assert results.failures == {seed: f"ArithmeticError: no answer for {seed}" for seed in (3, 5)}
    assert results[5] == Failure(5, "ArithmeticError: no answer for 5")
    assert [each for each in results if not isinstance(each, Failure)] == [0.0, 1, 2, 4, 6]
    assert sum("error" in record for record in written(tmp_path)) == 2
    with pytest.warns(UserWarning, match="2 of 7"):
        run(failing, range(7), out=tmp_path)
    assert [record["seed"] for record in written(tmp_path)] == [*range(7), 3, 5]


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
        ({"jobs": 0}, "'jobs' .* must be an integer of 1 or more"),
        (
            {"task": partial(counted, factor=(n for n in ())), "out": "x"},
            "'task' .* whose data can be pickled",
        ),
        ({"task": (n for n in ()).send, "jobs": 2}, "'task' .* that can be pickled"),
    ],
)
def test_arguments(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run(**{"task": counted, "seeds": [1]} | arguments)
    assert not CALLS.seeds


# Fingerprints.

SOURCE = """
from functools import cache
import numpy as np
K = np.arange(6.0)
WIDTH = {width}
def helper(x):
    return x + {added}
@cache
def kept(x):
    return x + {kept}
class Base:
    def inherited(self):
        return {inherited}
class Rule(Base):
    constant = {constant}
    def of(self, seed):
        return seed * {factor}
    @staticmethod
    def static():
        return {static}
    @property
    def found(self):
        return {found}
def task(seed, power={power}):
    return [helper(v) ** power for v in (Rule().of(seed), WIDTH)], kept(1), K{at}
"""
SAME = {"width": 1.0, "added": 2, "factor": 3, "power": 4, "at": "[:2]"}
SAME |= dict.fromkeys(("kept", "inherited", "constant", "static", "found"), 1)


def defined(**changes):
    names = {"__name__": "study"}
    exec(SOURCE.format(**SAME | changes), names)
    return names


def test_a_function_defined_again_is_the_same():
    assert fingerprint(defined()["task"], "") == fingerprint(defined()["task"], "")


@pytest.mark.parametrize(
    "change",
    [
        *({"width": 2.0}, {"added": 3}, {"factor": 4}, {"power": 5}, {"at": "[:3]"}),
        *({"kept": 2}, {"inherited": 2}, {"constant": 2}, {"static": 2}, {"found": 2}),
    ],
)
def test_changed_code_and_data_are_seen(change):
    assert fingerprint(defined()["task"], "") != fingerprint(defined(**change)["task"], "")


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_function_is_the_same_in_every_process(seed):
    source = 'def task(seed):\n    return seed in {"a", "b", "c", "d", "e"}\n'
    here = {"__name__": "study"}
    exec(source, here)
    script = f"""
from {fingerprint.__module__} import fingerprint
names = {{"__name__": "study"}}
exec({source!r}, names)
print(fingerprint(names["task"], ""))
"""
    found = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == fingerprint(here["task"], "")


def test_changed_arrays_and_models_are_seen():
    first, second = (kz.CompositeKernelRegression.example(seed) for seed in (1, 2))
    again = kz.CompositeKernelRegression.example(1)

    def holding(data):
        return [lambda seed: data, partial(max, data), SimpleNamespace(data=data)]

    pairs = [(np.ones(3), np.ones(3), np.zeros(3)), (first, again, second)]
    assert fingerprint([3].count, "") == fingerprint([3].count, "") != fingerprint([4].count, "")
    pairs += [(kz.Gibbs(), kz.Gibbs(), kz.Gibbs(scheme="paper")), (kz.VB(), kz.VB(), kz.EM())]
    for one, same, other in pairs:
        for a, b, c in zip(holding(one), holding(same), holding(other), strict=True):
            assert fingerprint(a, "") == fingerprint(b, "") != fingerprint(c, "")


def test_changed_data_are_not_believed_from_the_file(tmp_path):
    tasks = [partial(counted, factor=factor) for factor in (1, 2)]
    assert [run(task, [3], out=tmp_path)[0] for task in tasks] == [3, 6]
    assert [run(task, [3], out=tmp_path)[0] for task in tasks] == [3, 6]
    assert CALLS.seeds == [3, 3]


# One process a file.


def test_a_second_client_is_refused_by_name(tmp_path):
    own = f"held by process {os.getpid()} on .* since 20"
    refused = pytest.raises(ValueError, match=f"'out' argument of replicate must be .*{own}")
    with held(tmp_path / FILE, "replicate"), refused:
        run(counted, [1], out=tmp_path)
    assert run(counted, [1], out=tmp_path) == [1]
    assert run(counted, [1], out=tmp_path) == [1]


def test_an_error_of_the_caller_releases_the_file(tmp_path):
    model = kz.WishartCompletion.example()
    options = QUIET | {"draws": 2, "random_seed": 1, "replicates": 20, "out": tmp_path}
    with pytest.raises(ValueError, match="'quantities' argument"):
        kz.calibrate(model, "exact", quantities="height", **options)
    assert kz.calibrate(model, "exact", **options).attrs["draws"] == 2


@contextmanager
def forked(function, *arguments):
    """Process that runs a function; its exit status is `status` once it has ended."""
    if not (pid := os.fork()):
        try:
            function(*arguments)
            os._exit(0)
        except BaseException as error:
            os._exit(error.code if isinstance(error, SystemExit) else 1)
    ended = SimpleNamespace(pid=pid, status=None)
    yield ended
    ended.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def slowly(seed):
    time.sleep(0.05)
    return seed


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)]
)
def test_a_stopped_client_leaves_its_finished_tasks(tmp_path, number, status):
    client = partial(kz.replicate, slowly, range(1000), out=tmp_path, **QUIET)
    with forked(client) as process:
        while len(written(tmp_path)) < 3:
            time.sleep(0.01)
        with pytest.raises(ValueError, match=f"held by process {process.pid} on"):
            run(slowly, [0], out=tmp_path)
        os.kill(process.pid, number)
    assert process.status == status
    left = [record["seed"] for record in written(tmp_path)]
    assert left == [*range(len(left))]
    assert 3 <= len(left) < 1000
    assert run(slowly, [0], out=tmp_path) == [0]


CLIENT = """
import os, sys, time
from pathlib import Path
import kernelzoo as kz
def task(seed):
    (Path(sys.argv[1]) / f"{os.getpid()}").touch()
    time.sleep(300)
if __name__ == "__main__":
    kz.replicate(task, range(2), jobs=2, progressbar=False)
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a parent that has gone is not seen here")
def test_no_worker_outlives_its_client(tmp_path):
    (tmp_path / "client.py").write_text(CLIENT)
    (pids := tmp_path / "pids").mkdir()
    with subprocess.Popen([sys.executable, "-P", tmp_path / "client.py", pids]) as client:
        wait_for(lambda: len(list(pids.iterdir())) == 2)
        client.kill()
    workers_of = [int(path.name) for path in pids.iterdir()]
    wait_for(lambda: not any(map(is_alive, workers_of)))


def wait_for(condition, seconds=60):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_ctrl_c_leaves_the_finished_tasks(tmp_path):
    def task(seed):
        if seed == 2:
            signal.raise_signal(signal.SIGINT)
        return seed

    with pytest.raises(KeyboardInterrupt, match=r"after 2 of 4 tasks: .* goes on from them") as told:
        run(task, range(4), out=tmp_path)
    assert told.value.__suppress_context__
    assert [record["seed"] for record in written(tmp_path)] == [0, 1]


def test_a_partial_result_after_ctrl_c_is_not_finished(tmp_path):
    def task(seed):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return "partial"

    with pytest.raises(KeyboardInterrupt):
        run(task, range(4), out=tmp_path)
    assert not written(tmp_path)


def test_tasks_within_a_task_run_in_its_process(monkeypatch):
    """They would wait for the turn of the task, which waits for them."""
    monkeypatch.setattr(workers, "_in_processes", lambda *_: pytest.fail("other processes"))
    with workers._TURN:
        assert run(lambda seed: os.getpid(), [1, 2], jobs=2) == [os.getpid()] * 2


# What is shipped.


def test_a_large_array_is_shipped_once():
    K = np.asfortranarray(np.random.default_rng(0).normal(size=(400, 500)))
    shipment = workers._Shipment.of(partial(counted, factor=[K, K.copy(order="F"), K.T]), "")
    assert len(shipment.arrays) == 2
    assert len(shipment.pickled) < 2000
    task = workers._Unpickler(shipment.pickled, shipment.arrays).load()
    first, second, third = task.keywords["factor"]
    np.testing.assert_array_equal(first, K)
    np.testing.assert_array_equal(third, K.T)
    assert first is second
    assert first.flags.f_contiguous


def test_models_are_shipped_without_compiled_functions():
    model, options = kz.CompositeKernelRegression.example(), {"draws": 40, "chains": 1}
    task = Replicate(model, kz.VB(), None, 1, options)
    first = task(0)
    assert {"simulator", "_log_likelihood"} <= vars(task).keys()
    again = cloudpickle.loads(cloudpickle.dumps(task))
    assert not {"simulator", "_log_likelihood"} & vars(again).keys()
    assert again(0) == first


def test_a_worker_of_another_version_is_refused():
    client_has = workers.versions() | {"numpy": "1.0"}
    with pytest.raises(RuntimeError, match=r"The client has {'numpy': '1.0'}, and the worker has"):
        workers._run(1, "digest", cloudpickle.dumps(counted), [], [], client_has)


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

        return [get_worker().id, workers.active_client() is None]

    assert workers.active_client() is client
    results = run(task, range(4), out=tmp_path)
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
        assert run(exiting, [3, 4], jobs=jobs)[1] == 4


@pytest.mark.parametrize("jobs", [2])
def test_a_task_that_workers_cannot_read_is_told(jobs):
    class Unreadable:
        def __reduce__(self):
            return exec, ("import not_here",)

    task = partial(lambda held, seed: seed, Unreadable())
    told = r"it must be able to import what the task uses. ModuleNotFoundError: No module named"
    with pytest.raises(ChildProcessError, match=told):
        run(task, [1, 2], jobs=jobs)


def test_a_closed_client_is_not_active(monkeypatch):
    distributed = pytest.importorskip("distributed")
    closed = SimpleNamespace(status="closed")
    monkeypatch.setattr(distributed, "default_client", lambda: closed)
    assert workers.active_client() is None


def test_without_a_client_tasks_run_here():
    assert workers.active_client() is None
    assert run(lambda seed: os.getpid(), [1]) == [os.getpid()]


def test_a_task_that_killed_its_workers_has_failed(client, monkeypatch, tmp_path):
    from distributed import KilledWorker

    # Dask copies the function: its calls are counted in a file.
    calls = tmp_path / "calls"
    calls.touch()

    def killing(argument, **common):
        with calls.open("a") as file:
            file.write(f"{argument}")
        if argument == 2 or (argument == 3 and calls.read_text().count("3") < 3):
            raise KilledWorker("task", SimpleNamespace(address="there"), 3)
        return {"value": argument}

    monkeypatch.setattr(workers, "_run", killing)
    with pytest.warns(UserWarning, match="1 of 3 tasks failed: seed 2: KilledWorker"):
        assert run(counted, [1, 2, 3], out=tmp_path)[::2] == [1, 3]
    assert "KilledWorker" in {r["seed"]: r for r in written(tmp_path)}[2]["error"]
    assert [calls.read_text().count(seed) for seed in "123"] == [1, 1 + workers.RESTARTS, 3]


def test_workers_without_the_package_are_told(client, monkeypatch):
    def missing(argument, **common):
        raise ModuleNotFoundError("No module named 'kernelzoo'")

    monkeypatch.setattr(workers, "_run", missing)
    with pytest.raises(ChildProcessError, match=r"same packages. ModuleNotFoundError: No module"):
        run(counted, [1])


def test_unused_threads_are_told(client, monkeypatch):
    monkeypatch.setattr(client, "nthreads", lambda: {"a": 4})
    with pytest.warns(UserWarning, match="workers have 4 threads each, of which one is used"):
        run(counted, [1])


@pytest.mark.parametrize("engine", ["vb", "gibbs", "exact"])
def test_the_same_seed_gives_the_same_draws_under_dask(client, engine):
    model = kz.WishartCompletion.example()

    def draws(seed):
        options = {"draws": 20, "tune": 5, "chains": 2, "cores": 1}
        return kz.fit(model, engine, random_seed=seed, **options, **QUIET)["posterior"][
            "trace_K22"
        ].to_numpy()

    assert run(draws, [1, 2]) == [draws(1).tolist(), draws(2).tolist()]


def test_workers_have_their_own_folders_of_compiled_code_and_no_profile(monkeypatch, tmp_path):
    plugin = workers._preparation()
    # Shipped by value: a reference would import the package first.
    assert b"_preparation" in cloudpickle.dumps(plugin)
    stopped = []
    callbacks = {
        name: SimpleNamespace(stop=partial(stopped.append, name)) for name in ("profile", "tick")
    } | {"heartbeat": SimpleNamespace()}
    worker = SimpleNamespace(local_directory=str(tmp_path), periodic_callbacks=callbacks)
    monkeypatch.setenv("PYTENSOR_FLAGS", "floatX=float64")
    plugin.setup(worker)
    assert os.environ["PYTENSOR_FLAGS"] == "floatX=float64"
    monkeypatch.setattr(sys, "modules", {k: v for k, v in sys.modules.items() if k != "pytensor"})
    plugin.setup(worker)
    own = f"floatX=float64,base_compiledir={tmp_path}{os.sep}compiled"
    assert os.environ["PYTENSOR_FLAGS"] == own
    plugin.setup(SimpleNamespace(local_directory="elsewhere", periodic_callbacks={}))
    assert os.environ["PYTENSOR_FLAGS"] == own
    assert stopped == 2 * ["profile", "tick"]


def test_workers_of_a_client_have_no_profile(client):
    assert run(counted, [1]) == [1]
    running = {
        name: callback.is_running()
        for worker in client.cluster.workers.values()
        for name, callback in worker.periodic_callbacks.items()
    }
    assert not running["profile"]
    assert not running["tick"]
    assert running["heartbeat"]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc alone has mallopt")
def test_workers_keep_freed_memory(monkeypatch, tmp_path):
    """Dask sets a threshold of 64 kB, above which all that is freed costs new pages."""
    options = []
    library = SimpleNamespace(mallopt=lambda option, value: options.append((option, value)))
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: library)
    worker = SimpleNamespace(local_directory=str(tmp_path), periodic_callbacks={})
    workers._preparation().setup(worker)
    assert options == [(-1, 1 << 28), (-3, 1 << 25)]
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: SimpleNamespace())
    workers._preparation().setup(worker)


# The command line.


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "slurm"])
@pytest.mark.parametrize(
    "command", ["calibrate WishartCompletion exact", "reproduce zhang2004-table1", "certify"]
)
def test_without_dask_the_command_says_what_to_install(monkeypatch, capsys, address, command):
    for name in ("distributed", "dask_jobqueue"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([*command.split(), "--cluster", address]) == 2
    assert "pip install kernelzoo[dask]" in capsys.readouterr().err
    assert run(counted, [1]) == [1]


def test_cluster_of_the_command_line(in_process):
    with cluster.on_cluster(in_process.scheduler_address, 1):
        assert workers.active_client().scheduler.address == in_process.scheduler_address
    assert workers.active_client() is None
    with cluster.on_cluster(None, 1):
        assert workers.active_client() is None


@pytest.mark.filterwarnings("ignore:Port 8787 is already in use")
@pytest.mark.skipif(find_spec("dask_jobqueue") is None, reason="dask-jobqueue is not installed")
def test_jobs_of_slurm_have_one_core_and_ctrl_c_is_what_it_was(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dask_jobqueue")]:
        monkeypatch.delitem(sys.modules, name)
    handler = signal.getsignal(signal.SIGINT)
    with cluster._slurm() as started:
        script = started.job_script()
    assert signal.getsignal(signal.SIGINT) is handler
    assert "#SBATCH --cpus-per-task=1" in script
    assert "--nthreads 1" in script
