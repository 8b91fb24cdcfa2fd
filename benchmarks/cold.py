"""Cost of a first fit, in a new process with empty caches of compiled code.

The models are their examples, and the README's wines, with four chains of 200 draws.
Figures are processor seconds of the process and its children (compilers, chains), so that they are
comparable on a busy machine. The second fit has all code compiled.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from kernelzoo import engines
from kernelzoo.models import MODELS

from .record import markdown_table

# Settings of every fit: defaults, with fewer draws for long chains or ascents.
SHORT: dict[str, object] = {"chains": 2, "tune": 100, "draws": 200, "cores": 1}
RUNS: dict[str, dict[str, object]] = {
    "NUTS": SHORT | {"tune": 20, "draws": 20},
    "SMC": SHORT | {"draws": 100},
}
ENGINES: dict[str, str] = {"ADVI": "ADVI(max_iterations=1000)"}

#: The README's model of wines, as code, and what is measured of it.
WINE = """
data = kz.datasets.load("wine").split(test_size=0.3, seed=1)
kernels = (kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)).normalize("trace")
model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
"""
WINE_ENGINES = ("VB()", "Gibbs()")
WINE_OPTIONS = SHORT | {"chains": 4, "tune": 200}

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
{declaration}
seconds = []
for _ in range(2):
    before = used()
    kz.fit(model, kz.{engine}, random_seed=1, progressbar=False, **{options!r})
    seconds.append(used() - before)
print(json.dumps([pymc_seconds, import_seconds, *seconds]))
"""


def first_and_second(declaration: str, engine: str, options: Mapping[str, object]) -> list[float]:
    """Processor seconds with empty caches of the imports, of PyMC and of all, and of two fits.

    `declaration` is code that assigns ``model``, and `engine` that of an engine of ``kz``.
    """
    script = _SCRIPT.format(declaration=declaration, engine=engine, options=options)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTENSOR_FLAGS": f"base_compiledir={folder}",
            "NUMBA_CACHE_DIR": folder,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            # Installers compile packages to bytecode: the time of that is none of the import's.
            "PYTHONDONTWRITEBYTECODE": "",
        }
        command = [sys.executable, "-P", "-c", script]
        told = subprocess.check_output(command, env=environment, stderr=subprocess.DEVNULL)
    return [float(seconds) for seconds in json.loads(told.splitlines()[-1])]


def cases() -> Iterator[tuple[str, str, str, Mapping[str, object]]]:
    """Yield the name of each case, the declaration of its model, its engine, and options of fit."""
    for model in MODELS:
        declaration = f"model = kz.{model.__name__}.example()"
        for name in engines(model.example()).frame.query("applies != 'no'").index:
            engine = ENGINES.get(name, f"{name}()")
            yield model.__name__, declaration, engine, RUNS.get(name, SHORT)
    for engine in WINE_ENGINES:
        yield "124 wines, MultinomialProbit", WINE, engine, WINE_OPTIONS


def run() -> Iterator[str]:
    """Table of the cost of the first and the second fit of every case."""
    yield "**Processor seconds, empty caches of compiled code**"
    rows = []
    for name, declaration, engine, options in cases():
        seconds = first_and_second(declaration, engine, options)
        rows.append((name, engine, *(f"{value:.1f}" for value in seconds)))
    header = ("model", "engine", "import pymc, arviz", "and kernelzoo", "first fit", "second")
    yield markdown_table(header, rows)
