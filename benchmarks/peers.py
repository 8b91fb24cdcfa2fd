"""Log loss and CPU seconds of other packages and ours, on the same objects, in one run.

Each fit has a process of its own with one BLAS thread, which first fits an eighth of the objects:
imports and compilation are not counted. CPU seconds are those of the fit and of predicting all new
objects, R's start included. The last column has those after which the log loss is at most 0.01
above that of "kernelzoo"; only SVGP is asked before its end, every 50 steps.

Features are standardised. BEMKL, EasyMKL, himalaya and "three kernels" have Gaussian kernels, gamma
a quarter, one and four times the inverse of the median squared distance; the others have the
features. "kernelzoo" is `KernelProbitClassifier` by default, on 300 landmarks for 20,000 objects.
Others are set as their documentation shows: SVGP with 500 inducing points, minibatches of 1,024 and
1,000 steps of Adam at a rate of 0.01; vbmp with the median width; himalaya with 10 weights of
kernels, and labels -1 and 1. SVC, Gaussian process and boosting are those of `heldout`.

KERNELZOO_PEERS names a Python with GPyTorch, MKLpy and himalaya; KERNELZOO_BEMKL and KERNELZOO_VBMP
name folders with their source for Rscript.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.preprocessing import StandardScaler

from kernelzoo.datasets import load

from .columns import Data, objects
from .peer_fits import DENSE, PEERS, obstacle
from .record import markdown_table

SPLITS, WITHIN, WIDTHS = 3, 0.01, (0.25, 1.0, 4.0)


def ionosphere() -> list[Data]:
    """Split 351 radar echoes several times."""
    splits = [load("ionosphere").split(test_size=0.3, seed=seed) for seed in range(SPLITS)]
    return [
        (np.asarray(each.X_train), np.asarray(each.X_test), each.y_train, each.y_test)
        for each in splits
    ]


def simulated(n: int, classes: int) -> list[Data]:
    """Simulate ten clusters, and join every second or third to a class."""
    X, clusters = objects(n)
    labels = clusters % classes
    return [(X[:n], X[n:], labels[:n], labels[n:])]


SETS: dict[str, Callable[[], list[Data]]] = {
    f"ionosphere, 245 ({SPLITS} splits)": ionosphere,
    "simulated, 500, three classes": lambda: simulated(500, 3),
    "simulated, 2,000": lambda: simulated(2000, 2),
    "simulated, 20,000": lambda: simulated(20_000, 2),
}


def prepared(data: Data) -> dict[str, Any]:
    """Standardise features, number the classes, and compute the kernels where they are dense."""
    X, X_new = map(StandardScaler().fit(data[0]).transform, data[:2])
    y, y_new = (np.unique(labels, return_inverse=True)[1] for labels in data[2:])
    gamma = 1 / np.median(cdist(X[:1000], X[:1000], "sqeuclidean"))
    K = K_new = np.empty((3, 0, 0))
    if len(X) <= DENSE:
        K, K_new = (
            np.exp([-width * gamma * cdist(rows, X, "sqeuclidean") for width in WIDTHS])
            for rows in (X, X_new)
        )
    return {"X": X, "X_new": X_new, "y": y, "y_new": y_new, "gamma": gamma, "K": K, "K_new": K_new}


def fitted(name: str, data: dict[str, Any]) -> Any:
    """Seconds, loss and accuracy after each prediction, or a line that says why there are none."""
    if told := obstacle(name, len(data["y"]), data["y"].max() + 1):
        return told
    needs = PEERS[name][1]
    python = os.environ[needs] if needs == "KERNELZOO_PEERS" else sys.executable
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.npz")
        np.savez(path, **data)
        command = [python, "-W", "ignore", "-m", "benchmarks.peer_fits", name, str(path)]
        done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        return "failed: " + done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout.splitlines()[-1])


def run() -> Iterator[str]:
    """Table of every peer on every data set."""
    rows, load_before = [], os.getloadavg()[0]
    for title, read in SETS.items():
        splits, ours = [*map(prepared, read())], np.nan
        for name in PEERS:
            runs = [fitted(name, data) for data in splits]
            if told := [each for each in runs if isinstance(each, str)]:
                rows.append((title, name, "", "", "", told[0]))
                continue
            seconds, losses, right = np.mean(runs, axis=0).T
            ours = losses[-1] if name == "kernelzoo" else ours
            reached = [f"{s:.2f}" for s in seconds[losses <= ours + WITHIN]]
            loss, after = f"{losses[-1]:.3f}", [*reached, "not reached"][0]
            if np.isnan(losses[-1]):
                loss = after = ""
            rows.append((title, name, loss, f"{right[-1]:.3f}", f"{seconds[-1]:.2f}", after))
    header = ("data", "classifier", "log loss", "accuracy", "CPU s", "CPU s to our log loss")
    yield markdown_table(header, rows)
    loads = f"{load_before:.1f} at the start and {os.getloadavg()[0]:.1f} at the end"
    yield f"The load of the machine was {loads}."
