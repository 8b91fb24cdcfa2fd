"""Nothing that is finished is lost when workers or the client are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from threading import Event, Thread

import numpy as np
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine import records
from studies.study import Study, Task, run_study

pytestmark = pytest.mark.slow
KILLS = 20


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as started:
        yield started


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as client:
        yield client


def a_task():
    # Defined here, so that it is shipped by value: workers cannot import the tests.
    def task(seed):
        time.sleep(0.2)
        return {"value": np.random.default_rng(seed).normal(size=3).tolist()}

    return task


def a_fit():
    kernels = np.stack([np.eye(12), np.full((12, 12), 0.5) + 0.5 * np.eye(12)])

    def task(seed):
        y = np.random.default_rng(seed).integers(3, size=12)
        y[:3] = range(3)
        model = kz.MultinomialProbit(kernels, y)
        found = kz.fit(model, "vb", draws=20, random_seed=seed, progressbar=False)
        return {"value": found["posterior"]["beta"].mean(("chain", "draw")).values.tolist()}

    return task


def run(task, seeds, out, cores=1):
    """Values by seed, in the order of the seeds."""
    options = {"title": "tasks", "store": out, "cores": cores, "progressbar": False}
    with closing(records(task, {str(seed): seed for seed in seeds}, **options)) as found:
        return dict(sorted((int(name), record["value"]) for name, record in found))


def lines(out):
    """Values by seed."""
    return {int(p.stem): json.loads(p.read_text())["value"] for p in out.glob("*.json")}


def test_two_processes_a_cluster_and_none_give_the_same_bytes(tmp_path, cluster):
    from distributed import Client

    serial = run(a_fit(), range(6), tmp_path / "serial")
    assert run(a_fit(), range(6), tmp_path / "two", cores=2) == serial
    with Client(cluster):
        assert run(a_fit(), range(6), tmp_path / "cluster") == serial
    assert lines(tmp_path / "serial") == lines(tmp_path / "two") == lines(tmp_path / "cluster")


def test_a_calibration_is_the_same_on_a_cluster(tmp_path, cluster):
    from distributed import Client

    def ranks(**options):
        return kz.calibrate(
            kz.WishartCompletion.example(),
            "exact",
            replicates=20,
            draws=20,
            random_seed=3,
            progressbar=False,
            **options,
        )

    serial = ranks()
    assert ranks(cores=2).identical(serial)
    with Client(cluster):
        assert ranks().identical(serial)


def test_workers_killed_at_random_moments(tmp_path, client):
    rng, over, killed = np.random.default_rng(1), Event(), []

    def kill():
        while len(killed) < KILLS and not over.wait(rng.uniform(1, 4)):
            # Dask gives up a worker that dies while it starts, and starts another when asked.
            client.cluster.scale(2)
            known = client.scheduler_info(n_workers=-1)["workers"]
            nannies = [*client.cluster.workers.values()]
            alive = [nanny.pid for nanny in nannies if nanny.worker_address in known]
            if alive:
                killed.append(int(rng.choice(alive)))
                os.kill(killed[-1], signal.SIGKILL)

    thread = Thread(target=kill)
    seeds, rounds = range(40), 0
    expected = {seed: a_task()(seed)["value"] for seed in seeds}
    thread.start()
    try:
        # As many folders as it takes until all kills have happened.
        while len(killed) < KILLS:
            out = tmp_path / str(rounds)
            assert run(a_task(), seeds, out) == lines(out) == expected
            rounds += 1
    finally:
        over.set()
        thread.join()
    assert len(killed) == KILLS


CLIENT = """
import sys, time
import numpy as np
from kernelzoo.inference.engine import records

def task(seed):
    time.sleep(0.05)
    return {"value": np.random.default_rng(seed).normal(size=3).tolist()}

if __name__ == "__main__":
    seeds = {str(seed): seed for seed in range(int(sys.argv[2]))}
    [*records(task, seeds, title="tasks", store=sys.argv[1], cores=2, progressbar=False)]
"""


def test_clients_killed_at_random_moments(tmp_path):
    script, out, rng = tmp_path / "client.py", tmp_path / "out", np.random.default_rng(2)
    script.write_text(CLIENT, encoding="utf-8")
    number, finished = 1000, 0
    command = [sys.executable, str(script), str(out), str(number)]
    for _ in range(KILLS):
        process = subprocess.Popen(command)
        wanted = finished + rng.integers(1, 20)
        while len(lines(out)) < wanted:
            assert process.poll() is None, "the client ended by itself"
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.wait()
        finished = len(lines(out))
        assert finished >= wanted
    assert finished < number
    subprocess.run([*command[:-1], str(finished + 20)], check=True)
    expected = {seed: np.random.default_rng(seed).normal(size=3).tolist() for seed in lines(out)}
    assert lines(out) == expected
    assert expected.keys() >= set(range(finished + 20))


def test_a_study_is_the_same_on_a_cluster(tmp_path, cluster):
    from distributed import Client

    def unit(column, seed, width):
        return {"score": float(np.random.default_rng(seed).normal(width))}

    tasks = tuple(Task(column, ("score",), unit, {"width": 2.0}) for column in ("a", "b"))
    study = Study("toy", "A toy", "a score", tasks, splits=10, seed=1)
    run_study(study, tmp_path / "serial", progressbar=False)
    with Client(cluster):
        run_study(study, tmp_path / "cluster", progressbar=False)
    tables = [(tmp_path / name / "toy.csv").read_bytes() for name in ("serial", "cluster")]
    assert tables[0] == tables[1]


FIT = """
import sys
import kernelzoo as kz

def made(trace, draw):
    print(draw.draw_idx, flush=True)

if __name__ == "__main__":
    options = {"draws": 10**6, "tune": 0, "chains": 2, "cores": 2, "progressbar": False}
    model = kz.MultinomialProbit.example()
    kz.fit(model, "gibbs", callback=made, mp_ctx=sys.argv[1], **options)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_chains_end_with_the_process_that_is_killed(tmp_path, method):
    """Bug: both workers slept for ever."""
    psutil = pytest.importorskip("psutil")
    script = tmp_path / "fit.py"
    script.write_text(FIT, encoding="utf-8")
    command = [sys.executable, str(script), method]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for _ in range(10):
            assert process.stdout.readline()
        workers = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait()
        assert len(workers) >= 2
        _, alive = psutil.wait_procs(workers, timeout=20)
        for worker in alive:
            worker.kill()
        assert not alive
