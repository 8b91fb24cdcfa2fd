"""What is shown while numba compiles: before a sampler's progress bar, and only then."""

import numba
import pymc as pm
import pytensor
import pytest
from pytensor.link.numba.linker import NumbaLinker
from rich.console import Console
from rich.progress import Progress

import kernelzoo as kz
from kernelzoo.inference.engine.compilation import python_mode
from kernelzoo.inference.engine.compilation_status import USUAL, compilation_shown

RUN = {"draws": 5, "tune": 5, "chains": 1, "cores": 1, "random_seed": 1}


@pytest.fixture
def small():
    with pm.Model() as model:
        pm.Normal("x")
    return model


@pytest.fixture
def displays(monkeypatch):
    """Starts and stops of progress bars, and compilations, in the order that they come in."""
    told = []

    def note(cls, name, what):
        original = getattr(cls, name)

        def noted(self, *args, **kwargs):
            told.append((type(self).__name__, what))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(cls, name, noted)

    note(Progress, "start", "starts")
    note(Progress, "stop", "stops")
    note(NumbaLinker, "jit_compile", "prepares")
    return told


@pytest.mark.filterwarnings("ignore")
def test_compilation_of_the_gradient_is_shown_before_the_bar(small, displays):
    with pytensor.config.change_flags(numba__cache=False):
        kz.fit(small, "nuts", **RUN)
    assert displays[:4] == [
        ("NumbaLinker", "prepares"),
        ("Progress", "starts"),
        ("Progress", "stops"),
        ("CustomProgress", "starts"),
    ]
    assert displays.count(("Progress", "starts")) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options", [{"progressbar": False}, {"compile_kwargs": {"mode": python_mode()}}]
)
def test_nothing_is_shown_where_it_is_not_wanted_or_nothing_compiles(options, small, displays):
    with pytensor.config.change_flags(numba__cache=False):
        kz.fit(small, "nuts", **RUN | options)
    assert ("Progress", "starts") not in displays


def test_line_names_the_usual_time_and_vanishes(monkeypatch):
    console = Console(force_terminal=True, width=80)
    monkeypatch.setattr("rich.progress.get_console", lambda: console)
    x = pytensor.tensor.dvector("x")
    with console.capture() as capture, pytensor.config.change_flags(numba__cache=False):
        function = pytensor.function([x], x.sum(), mode="NUMBA")
        with compilation_shown(True):
            function([1.0, 2.0])
            console.print("sampling")
    shown, _, after = capture.get().partition("sampling")
    assert f"usually {USUAL}" in shown
    assert "0:00:0" in shown
    assert "…" not in shown
    assert "\x1b[2K" in shown.rpartition(USUAL)[2]
    assert USUAL not in after


def test_functions_that_are_no_graphs_are_compiled_in_silence(displays):
    with compilation_shown(True):
        assert numba.njit(lambda x: x + 1)(1) == 2
    assert displays == []


def test_blocks_in_object_mode_are_compiled_in_silence(displays):
    @numba.njit
    def printed(x):
        with numba.objmode(y="float64"):
            y = float(str(x))
        return y

    with compilation_shown(True):
        assert printed(1.5) == 1.5
    assert displays == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        kz.MultinomialProbit,
        *(
            pytest.param(model, marks=pytest.mark.slow)
            for model in kz.MODELS
            if model is not kz.MultinomialProbit
        ),
    ],
    ids=lambda model: model.__name__,
)
def test_nuts_runs_with_its_progress_bar(model):
    """The probit compiles a block in object mode, unlike the others."""
    found = kz.fit(model.example(), "nuts", **RUN)
    assert found["posterior"].sizes["draw"] == 5


def test_the_line_goes_when_compilation_is_interrupted(monkeypatch, displays):
    def interrupt(*args):
        raise KeyboardInterrupt

    x = pytensor.tensor.dvector("x")
    with pytensor.config.change_flags(numba__cache=False):
        function = pytensor.function([x], x.sum(), mode="NUMBA")
        monkeypatch.setattr("numba.core.compiler.CompilerBase.compile_extra", interrupt)
        with pytest.raises(KeyboardInterrupt), compilation_shown(True):
            function([1.0, 2.0])
    assert displays[1:] == [("Progress", "starts"), ("Progress", "stops")]
