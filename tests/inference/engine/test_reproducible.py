"""The same seed gives the same result, whatever shows or shares the work: each model and engine."""

import hashlib
import os
import subprocess
import sys

import cloudpickle
import numpy as np
import pytensor
import pytest
from xarray.testing import assert_identical

import kernelzoo as kz
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.tasks import outcomes_of

FEW = {"draws": 3, "tune": 2, "chains": 2, "random_seed": 1}
#: Engines that NumPy evaluates; the others compile or iterate for seconds.
QUICK = {"exact", "gibbs", "vb", "em"}
#: Engines that numba compiles. What it compiles and what it reads from its cache round differently.
COMPILED = {"nuts", "advi", "smc", "pathfinder"}
MODELS = {model.__name__: model for model in kz.MODELS}
EXAMPLES = {name: model.example() for name, model in MODELS.items()}
CELLS = [
    (name, engine)
    for name, model in EXAMPLES.items()
    for engine, cls in Engine.registry.items()
    if cls().why_not(model) is None
]
GROUPS = ("posterior", "point", "variational", "trajectory", "sample_stats")

pytestmark = pytest.mark.filterwarnings("ignore")


def fitted(name, engine, **options):
    """Groups of a result that depend on its seed, on a new model."""
    model = MODELS[name].example()
    settings = {"cores": 1, "progressbar": False, "log_likelihood": False}
    result = kz.fit(model, engine, **FEW | settings | options)
    return {group: result[group].to_dataset() for group in GROUPS if group in result.children}


def assert_same(one, other):
    """All numbers are equal, except seconds."""
    assert one.keys() == other.keys()
    for group, values in one.items():
        timed = [n for n in values.data_vars if "time" in str(n) or "perf_counter" in str(n)]
        ours, theirs = (data.drop_vars(timed).drop_attrs() for data in (values, other[group]))
        assert_identical(ours, theirs)


def digest(name, engine):
    """Fingerprint of all draws and points."""
    groups = fitted(name, engine)
    found = hashlib.sha256()
    for group in ("posterior", "point"):
        for variable in sorted(groups.get(group, {})):
            found.update(np.ascontiguousarray(groups[group][variable]).tobytes())
    return found.hexdigest()


def cells(*, quick):
    return pytest.mark.parametrize(
        ("name", "engine"),
        [
            pytest.param(n, e, id=f"{n}-{e}", marks=() if quick else pytest.mark.slow)
            for n, e in CELLS
            if (e in QUICK) is quick
        ],
    )


@cells(quick=True)
@pytest.mark.usefixtures("terminal")
def test_the_progress_bar_changes_nothing(name, engine):
    assert_same(fitted(name, engine), fitted(name, engine, progressbar=True))


@cells(quick=False)
@pytest.mark.usefixtures("terminal")
def test_neither_progress_bar_nor_cores_change_compiled_engines(name, engine):
    assert_same(fitted(name, engine), fitted(name, engine, progressbar=True, cores=2))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, e in CELLS if e == "gibbs"])
def test_cores_change_nothing(name):
    assert_same(fitted(name, "gibbs"), fitted(name, "gibbs", cores=2))


def in_another_process(cells):
    """Fingerprints of cells in a new process, whose strings hash otherwise."""
    here = os.path.dirname(__file__)
    program = (
        f"import sys; sys.path.insert(0, {here!r}); import test_reproducible as test\n"
        f"for cell in {cells!r}: print('digest', test.digest(*cell))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    ended = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    lines = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("digest")]
    return dict(zip(cells, lines, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("engines", [sorted(QUICK), ["laplace", "map"]])
def test_another_process_gives_the_same_draws(engines):
    cells = [cell for cell in CELLS if cell[1] in engines]
    for cell, expected in in_another_process(cells).items():
        assert digest(*cell) == expected, cell


@pytest.fixture(scope="module")
def two_workers():
    """Dask cluster whose workers read compiled code from the cache of this process."""
    distributed = pytest.importorskip("distributed")
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with pytest.MonkeyPatch.context() as patch:
        flags = os.environ.get("PYTENSOR_FLAGS", "")
        own = f"base_compiledir={pytensor.config.base_compiledir}"
        patch.setenv("PYTENSOR_FLAGS", f"{flags},{own}".lstrip(","))
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
            yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize(("name", "engine"), CELLS, ids=map("-".join, CELLS))
def test_a_cluster_gives_the_same_draws(name, engine):
    cell = name, engine
    if engine in COMPILED:
        # The first process compiles.
        _, expected = (in_another_process([cell])[cell] for _ in range(2))
    else:
        with pytest.MonkeyPatch.context() as patch:
            # Chains would run on the cluster here, too.
            patch.setattr("kernelzoo.inference.engine.chains.active_client", lambda: None)
            expected = digest(*cell)
    ((_, found),) = outcomes_of(lambda _: {"digest": digest(*cell)}, [None], 1)
    assert found == {"digest": expected}
