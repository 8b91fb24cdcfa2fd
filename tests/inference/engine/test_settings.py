"""Settings of engines: what a constructor shows, checks and explains, and what algorithms take."""

import inspect
import re
from dataclasses import dataclass
from types import UnionType
from typing import Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo import custom_steps
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.paper import PAPERS, Algorithm, Paper
from kernelzoo.inference.paper_engines import BY_GRADIENTS, PaperEngine
from kernelzoo.validation import Count, CountOrZero

ENGINES = Engine.registry.values()
HANDWRITTEN = [engine for engine in ENGINES if issubclass(engine, PaperEngine)]
ALGORITHMS = [
    *(
        pytest.param(engine, algorithm, id=f"{engine.__name__}-{model.__name__}")
        for engine in HANDWRITTEN
        for model, paper in PAPERS.items()
        if (algorithm := getattr(paper, engine.field)) is not None
    ),
    pytest.param(kz.MAP, BY_GRADIENTS, id="MAP-Model"),
]


def entries(documented):
    """Entries of a docstring's section Parameters, by name."""
    section = re.search(
        r"^Parameters\n-+\n(.*?)\n\n\w+\n-{3,}$",
        inspect.getdoc(documented),
        re.DOTALL | re.MULTILINE,
    )
    listed = re.split(r"\n(?=\S)", section[1]) if section else []
    return {entry.partition(" : ")[0]: entry for entry in listed}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_signature_lists_the_settings_and_the_docstring_explains_each(engine):
    parameters = inspect.signature(engine).parameters
    assert not {p.kind for p in parameters.values()} & {
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
    assert list(entries(engine)) == list(parameters)
    for name, entry in entries(engine).items():
        head, _, text = entry.partition("\n")
        # Whole sentences: half of one explains nothing.
        assert text.strip()[0].isupper() or text.strip()[0] in "\"'`"
        assert entry.endswith(".")
        if ", default=" in head:
            stated = head.partition(", default=")[2].strip('"')
            assert stated == str(parameters[name].default)


@pytest.mark.parametrize(("engine", "algorithm"), ALGORITHMS)
def test_settings_of_an_algorithm_are_those_of_its_engine(engine, algorithm):
    """Bug: an editor offers what no algorithm takes, or mypy refuses what one does."""
    fields, hints = get_type_hints(engine), get_type_hints(algorithm.function)
    for name in algorithm.settings:
        known = types_in(fields[name])
        assert types_in(hints[name]) <= known | ({Count} if CountOrZero in known else set())


@pytest.mark.parametrize(("engine", "algorithm"), ALGORITHMS)
def test_the_docstring_names_the_defaults_of_every_algorithm(engine, algorithm):
    number = r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-\d+)?"
    for name, default in algorithm.settings.items():
        text = entries(engine)[name].partition("\n")[2]
        if isinstance(default, str | bool):
            assert (f'"{default}"' if isinstance(default, str) else str(default)) in text
        elif default is not None:
            named = [float(x.replace(",", "")) for x in re.findall(number, text)]
            assert default in named


@pytest.mark.parametrize("engine", HANDWRITTEN)
def test_every_setting_is_one_of_an_algorithm(engine):
    own = [case.values[1] for case in ALGORITHMS if case.values[0] is engine]
    taken = {name for algorithm in own for name in algorithm.settings}
    assert set(inspect.signature(engine).parameters) == taken


def types_in(hint):
    """Names and types in a union; the values of a Literal count by themselves."""
    if isinstance(hint, TypeAliasType) and get_origin(hint.__value__) in (
        Literal,
        Union,
        UnionType,
    ):
        return types_in(hint.__value__)
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return set.union(*map(types_in, get_args(hint)))
    return {hint}


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (kz.MultinomialProbit, ("MarginalProbit", "AlbertChib")),
        (kz.CompositeKernelRegression, ("CompositeKernelGibbs",)),
        (kz.WishartCompletion, ("TannerWongPosterior",)),
        (kz.DiagonalWishartCompletion, ("DiagonalTannerWongImputation",)),
    ],
)
def test_gibbs_has_the_settings_of_its_steps(model, steps):
    defaults = {
        name: parameter.default
        for step in steps
        for name, parameter in inspect.signature(getattr(custom_steps, step)).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    settings = PAPERS[model].gibbs.settings
    if len(steps) > 1 and "scheme" in settings:
        settings.pop("scheme")  # which of the steps
    assert settings == defaults


def test_settings_in_force_are_the_models_defaults_and_what_is_given():
    model = kz.CompositeKernelRegression.example()
    settings = kz.engines(model).frame["settings"]["VB"]
    assert (settings["tolerance"], settings["max_iterations"]) == (1e-6, 5000)
    engine = kz.VB(tolerance=1e-3, starts=None)
    assert engine.settings_on(model) == settings | {"tolerance": 1e-3}
    assert (repr(engine), engine) == ("VB(tolerance=0.001)", kz.VB(tolerance=1e-3))
    assert kz.EM(max_iterations="limit").settings == {"max_iterations": "limit"}
    assert kz.EM(max_iterations=None).settings == {}


def test_settings_of_the_algorithm_that_is_chosen():
    model = kz.CompositeKernelRegression.example(
        combination=kz.combinations.DirichletWeights(varphi=1), collapsed=False
    )
    assert "starts" in kz.MAP().settings_on(model)
    gradient = kz.MAP(method="gradient").settings_on(model)
    assert gradient.keys() == {"space", "max_iterations", "method"}


def test_settings_of_other_models_are_refused_by_fit():
    model = kz.WishartCompletion.example()
    with pytest.raises(ValueError, match=r"^VB on WishartCompletion has no settings. Got 'starts'"):
        kz.fit(model, kz.VB(starts=3))
    with pytest.raises(ValueError, match=r"EM on WishartCompletion .* 'tolerance'. Got 'memory'"):
        kz.fit(model, kz.EM(memory=3))


class Flip(pm.Model):
    """A model from outside."""


@dataclass(frozen=True, kw_only=True)
class FlipVB(kz.VB):
    """VB with a setting of its own."""

    damping: float | None = None


def test_an_engine_from_outside_adds_settings(monkeypatch):
    def variational(model, run, *, damping: float = 0.5, starts: int = 1):
        raise NotImplementedError

    monkeypatch.setitem(PAPERS, Flip, Paper(Flip, vb=Algorithm(variational)))
    model = Flip()
    assert kz.VB().settings_on(model) == {"damping": 0.5, "starts": 1}
    assert FlipVB(damping=0.1, starts=2).settings_on(model) == {"damping": 0.1, "starts": 2}
    for engine, misspelt in ((FlipVB, "dampng"), (kz.VB, "damping")):
        with pytest.raises(ValueError, match=f"'settings' argument of VB must .* Got '{misspelt}'"):
            engine(**{misspelt: 0.1})
