"""What is compiled, by whom, and what a user may say about it."""

from threading import Event, Thread

import numba
import numpy as np
import pymc as pm
import pytensor
import pytest
from pytensor.compile.mode import Mode
from pytensor.link.c.op import COp
from pytensor.link.numba.linker import NumbaLinker

import kernelzoo as kz
from kernelzoo.inference.engine.evaluation import compiling_with, python_mode
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
    return names


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


def fail_while_compiling_with(mode):
    with compiling_with(mode):
        assert isinstance(pytensor.config.mode, Mode)
        raise RuntimeError("planted")


def test_the_default_mode_is_as_before_once_a_fit_is_over():
    before = pytensor.config.mode
    with pytest.raises(RuntimeError, match="planted"):
        fail_while_compiling_with(python_mode())
    assert pytensor.config.mode is before


def test_blocks_that_overlap_in_threads_leave_the_default_as_it_was():
    """Bug: the second to open found the mode of the first, and put that back for good."""
    before = pytensor.config.mode
    first, second = python_mode(), python_mode()
    opened, closed = Event(), Event()

    def overlap():
        with compiling_with(second):
            opened.set()
            assert closed.wait(60)
            # The other block, which is over, has not put the default back.
            seen.append(pytensor.config.mode)

    seen = []
    thread = Thread(target=overlap)
    with compiling_with(first):
        thread.start()
        assert opened.wait(60)
        assert pytensor.config.mode is second
    closed.set()
    thread.join(60)
    assert seen == [second]
    assert pytensor.config.mode is before


def test_a_block_inside_another_is_followed_by_the_outer_one():
    before = pytensor.config.mode
    outer, inner = python_mode(), python_mode()
    with compiling_with(outer):
        with compiling_with(inner):
            assert pytensor.config.mode is inner
        assert pytensor.config.mode is outer
    assert pytensor.config.mode is before


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
