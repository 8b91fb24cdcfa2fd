"""What is compiled, by whom, and what a user may say about it."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numba
import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from pytensor.link.c.op import COp
from pytensor.link.numba.linker import NumbaLinker

import kernelzoo as kz
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.groups import log_density

RUN = {"draws": 20, "tune": 10, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}


@pytest.fixture
def compiled(monkeypatch):
    """Linkers of the functions that numba was asked to compile while a test ran."""
    names = []
    original = NumbaLinker.jit_compile

    def note(self, fn):
        names.append(fn)
        return original(self, fn)

    monkeypatch.setattr(NumbaLinker, "jit_compile", note)
    # PyTensor's own default, which compiles whatever is given no mode.
    with pytensor.config.change_flags(mode="Mode"):
        yield names


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        (kz.MultinomialProbit, "vb"),
        (kz.MultinomialProbit, "gibbs"),
        (kz.CompositeKernelClassification, "gibbs"),
        (kz.CompositeKernelRegression, "map"),
        (kz.WishartCompletion, "exact"),
        (kz.WishartCompletion, "gibbs"),
        (kz.WishartCompletion, "em"),
        (kz.MutualKernelCompletion, "gibbs"),
        (kz.MutualKernelCompletion, "em"),
        (kz.DiagonalWishartCompletion, "vb"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_engines_whose_mathematics_is_numpys_compile_no_graph(model, engine, compiled):
    kz.fit(model.example(), engine, **RUN)
    assert not compiled


@pytest.fixture
def small():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), observed=[0.5, 1.0])
    return model


@pytest.mark.filterwarnings("ignore")
def test_nuts_compiles_its_density_alone(small, compiled):
    kz.fit(small, "nuts", **RUN)
    assert len(compiled) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("engine", "draws"), [(kz.ADVI(max_iterations=500), 20), ("smc", 40)])
def test_short_runs_compile_nothing(small, compiled, engine, draws):
    kz.fit(small, engine, **RUN | {"draws": draws})
    assert not compiled


class NumbaIsAsked(Exception):
    """In place of seconds of compilation."""


@pytest.mark.parametrize(("engine", "draws"), [(kz.ADVI(max_iterations=10_001), 20), ("smc", 60)])
def test_long_runs_are_compiled(small, monkeypatch, engine, draws):
    def refuse(*_):
        raise NumbaIsAsked

    monkeypatch.setattr(NumbaLinker, "jit_compile", refuse)
    with pytest.raises(NumbaIsAsked):
        kz.fit(small, engine, **RUN | {"draws": draws})


@pytest.mark.filterwarnings("ignore")
def test_chains_run_in_python_where_numba_is_switched_off(small, compiled, monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    kz.fit(small, "nuts", **RUN)
    assert not compiled


@pytest.mark.filterwarnings("ignore")
def test_a_mode_of_the_users_reaches_the_engine(small, compiled):
    kz.fit(small, "nuts", compile_kwargs={"mode": python_mode()}, **RUN)
    assert not compiled
    kz.fit(small, "nuts", compile_kwargs={"mode": "NUMBA"}, **RUN)
    assert compiled


@pytest.mark.usefixtures("c_compiler")
@pytest.mark.parametrize("engine", ["vb", "gibbs"])
def test_nothing_is_compiled_in_c(engine, monkeypatch):
    """Bug: graphs within random variables were, for what is called once."""
    compiled = []
    monkeypatch.setattr(COp, "make_c_thunk", lambda op, *args, **kwargs: compiled.append(op))
    model = kz.MultinomialProbit.example()
    model.initial_point()
    kz.fit(model, engine, **RUN)
    assert not compiled


SETTINGS = ("mode", "cxx", "traceback__limit", "optdb__max_use_ratio")


def settings():
    return {name: getattr(pytensor.config, name) for name in SETTINGS}


def test_settings_are_not_changed_by_fits():
    """Bug: the default mode was another one while a fit ran."""
    seen = []
    before = settings()
    model = kz.MultinomialProbit.example()
    kz.fit(model, "gibbs", callback=lambda trace, draw: seen.append(settings()), **RUN)
    assert len(seen) == 60
    assert all(each == before for each in [*seen, settings()])


@pytest.mark.usefixtures("c_compiler")
@pytest.mark.filterwarnings("ignore")
def test_fits_in_threads_are_those_of_fits_in_turn():
    """Bug: three Gibbs fits in threads left PyTensor in Python mode, without a C compiler."""
    models = [
        kz.MultinomialProbit.example(),
        kz.CompositeKernelRegression.example(),
        kz.WishartCompletion.example(),
    ]
    fit = partial(kz.fit, engine="gibbs", **RUN)
    with ThreadPoolExecutor(3) as threads, pytensor.config.change_flags(mode="Mode"):
        before = settings()
        found = [*threads.map(fit, models)]
        assert settings() == before
    for model, result in zip(models, found, strict=True):
        xr.testing.assert_equal(
            fit(model)["posterior"].to_dataset(), result["posterior"].to_dataset()
        )


def test_density_by_python_is_the_declarations():
    model = kz.MultinomialProbit.example()
    rng = np.random.default_rng(0)
    point = {
        "rho": rng.gamma(1.0, size=2),
        "beta": rng.dirichlet(np.ones(2)),
        "zeta": rng.gamma(1.0, size=(3, 12)),
        "W": rng.normal(size=(3, 12)),
    }
    (mine,) = log_density(model, {name: value[None] for name, value in point.items()})
    values = {model.rvs_to_values[model[name]]: value for name, value in point.items()}
    terms = {
        value.name: np.log(x)
        if value.name.endswith("log__")
        else (np.log(x) - np.log(x).mean())[:-1]
        if value.name.endswith("simplex__")
        else x
        for value, x in values.items()
    }
    expected = model.compile_logp(jacobian=False, mode=python_mode())(terms)
    np.testing.assert_allclose(mine, expected, rtol=1e-10)
