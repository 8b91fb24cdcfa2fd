"""What a first fit costs: in a process of its own, with caches of compiled code that are empty.

Processor seconds of the process and of those it started (compilers, chains), so that they mean the
same on a machine with other work; the second fit is what remains once all is compiled.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ..inference import engines
from ..models import MODELS

__all__ = ["first_and_second", "run"]

# Settings of every fit: the defaults but for fewer draws where a chain or an ascent is long.
SHORT: dict[str, object] = {"chains": 2, "tune": 100, "draws": 200, "cores": 1}
RUNS: dict[str, dict[str, object]] = {
    "NUTS": SHORT | {"tune": 20, "draws": 20},
    "SMC": SHORT | {"draws": 100},
}
ENGINES: dict[str, str] = {"ADVI": "ADVI(iterations=1000)"}

_SCRIPT = """
import json, os, time, warnings
warnings.simplefilter("ignore")
def used():
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system
start = used()
import pymc, arviz
pymc_seconds = used() - start
import kernelzoo as kz
import_seconds = used() - start
model = kz.{model}.example()
seconds = []
for _ in range(2):
    before = used()
    kz.fit(model, kz.{engine}, random_seed=1, progressbar=False, **{options!r})
    seconds.append(used() - before)
print(json.dumps([pymc_seconds, import_seconds, *seconds]))
"""


def first_and_second(
    model: str, engine: str, options: Mapping[str, object]
) -> tuple[float, float, float, float]:
    """Processor seconds with empty caches.

    Parameters
    ----------
    model, engine : str
        Name of a model, and an engine as it is written in Python.
    options : dict
        Of `fit`.

    Returns
    -------
    tuple of float
        Of ``import pymc, arviz``, of that and ``import kernelzoo``, of the first fit of the model's
        example, and of a second one.
    """
    script = _SCRIPT.format(model=model, engine=engine, options=options)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTENSOR_FLAGS": f"base_compiledir={folder}",
            "NUMBA_CACHE_DIR": folder,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    pymc, both, first, second = json.loads(done.stdout.splitlines()[-1])
    return pymc, both, first, second


def run(console: Console) -> None:
    """Print what the first and the second fit of every model's example cost, by engine."""
    table = Table(title="processor seconds, empty caches of compiled code")
    for column in ("model", "engine", "import pymc, arviz", "and kernelzoo", "first fit", "second"):
        table.add_column(column, justify="left" if column in ("model", "engine") else "right")
    for model in MODELS:
        for row in engines(model.example()).rows:
            if row.reason is not None:
                continue
            engine = ENGINES.get(row.engine, f"{row.engine}()")
            seconds = first_and_second(model.__name__, engine, RUNS.get(row.engine, SHORT))
            table.add_row(model.__name__, engine, *(f"{value:.1f}" for value in seconds))
    console.print(table)
