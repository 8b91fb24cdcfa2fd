"""What settings mean is told: of every engine on every model, with the defaults there are."""

import ast
import inspect
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.description import explained_parameters, settings_of
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.handwritten import Handwritten
from kernelzoo.inference.engine.settings import DEFAULT, Default

MODELS = {model.__name__: model for model in kz.MODELS}
UNIONS = {Union, UnionType}
# Engines and implementations: all that takes settings.
TAKERS = {
    f"{taker.__module__}.{taker.__qualname__}": taker
    for engine in Engine.registry.values()
    for taker in (engine, *(i.function for i in getattr(engine, "_implementations", {}).values()))
}


def kind_and_text(entry):
    """First line of an entry, and what is said below it."""
    kind, _, text = entry.partition("\n")
    assert all(line.startswith("    ") for line in text.splitlines() if line)
    return kind, text.strip()


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_is_explained(name):
    model = MODELS[name].example()
    for row in kz.engines(model).rows:
        if row.reason is None:
            description = kz.describe(model, row.engine)
            assert description.settings.keys() == row.settings.keys()
            assert description.summary
            assert description.paper
            for name, setting in description.settings.items():
                assert setting.name == name
                assert setting.type
                assert setting.value == row.settings[name]
                # Whole sentences: half of one explains nothing.
                assert setting.explanation[0].isupper() or setting.explanation[0] in "\"'`"
                assert setting.explanation.endswith(".")
        else:
            with pytest.raises(ValueError, match=f"^{row.engine} does not apply: .*that do: "):
                kz.describe(model, row.engine)


@pytest.mark.parametrize("name", TAKERS)
def test_docstrings_name_every_setting_with_its_default(name):
    """Also those of implementations that no example of a model chooses."""
    parameters = inspect.signature(TAKERS[name]).parameters.values()
    entries = explained_parameters(TAKERS[name])
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            kind, text = kind_and_text(entries[parameter.name])
            assert text
            stated = "None" if kind.endswith(", optional") else kind.partition("default=")[2]
            default = None if parameter.default is DEFAULT else parameter.default
            assert ast.literal_eval(stated) == default


def types_in(hint):
    """Types in a union; the values of a Literal count by theirs."""
    if get_origin(hint) is Literal:
        return {type(value) for value in get_args(hint)}
    return set.union(*map(types_in, get_args(hint))) if get_origin(hint) in UNIONS else {hint}


@pytest.mark.parametrize("engine", Handwritten.__subclasses__())
def test_hints_of_shared_settings_are_those_of_the_implementations(engine):
    """Bug: an editor offers what no implementation takes, or mypy refuses what one does."""
    shared = get_type_hints(engine.__init__)
    taken = [get_type_hints(i.function) for i in engine._implementations.values()]
    for name in shared.keys() - {"settings", "return", "method"}:
        hints = [types_in(hint[name]) for hint in taken if name in hint]
        assert hints
        assert set.union(*hints) <= types_in(shared[name]) - {Default}


def test_a_setting_has_its_default_and_its_value_in_force():
    model = kz.CompositeKernelRegression.example()
    setting = kz.describe(model, kz.VB(tolerance=1e-3)).settings["tolerance"]
    assert (setting.default, setting.value) == (1e-6, 1e-3)
    assert kz.VB(tolerance=DEFAULT) == kz.VB()


def test_a_description_reads_like_a_docstring():
    text = repr(kz.describe(kz.MultinomialProbit.example(), kz.Gibbs()))
    assert text.startswith(
        "Gibbs on MultinomialProbit: One block for all variables.\n\nSettings\n-"
    )
    assert 'scheme : {"auto", "marginal", "paper"}, default="auto"\n    "marginal" integ' in text
    assert "run : Run" not in text
    assert "\n\nNotes\n-----\nEffective draws" in text
    assert "Damoulas & Girolami 2009" in text
    assert text.endswith('More: help("kernelzoo.inference.multinomial_probit.gibbs")')


def test_settings_of_the_algorithm_that_is_chosen():
    model = kz.CompositeKernelRegression.example(
        combination=kz.combinations.DirichletWeights(varphi=1), collapsed=False
    )
    assert "starts" in kz.describe(model, "map").settings
    gradient = kz.describe(model, kz.MAP(method="gradient"))
    assert gradient.settings.keys() == {"space", "max_iterations", "method"}
    assert "\nNone." in repr(kz.describe(kz.WishartCompletion.example(), "exact"))


def test_unknown_engines_and_models_are_refused():
    model = kz.WishartCompletion.example()
    with pytest.raises(ValueError, match=r"'engine' argument of describe.*nearest is 'nuts'"):
        kz.describe(model, "nutz")
    with pytest.raises(ValueError, match=r"VB on WishartCompletion must be none. Got 'starts'"):
        kz.describe(model, kz.VB(starts=3))
    with pytest.raises(ValueError, match=r"argument of EM .*nearest is 'iterations'"):
        kz.describe(model, kz.EM(iteration=3))
    with pytest.raises(TypeError, match="'model' argument of describe"):
        kz.describe("wine", "vb")


class _Step:
    """A step.

    Parameters
    ----------
    vars : sequence of str
        Variables.
    moves : int, default=3
        Moves of a sweep.
    """

    def __init__(self, vars, *, moves=3, **shared):
        pass


def test_a_function_takes_the_settings_of_its_step():
    @settings_of(_Step)
    def gibbs(model, *, exact=False, **settings):
        """Sample.

        Parameters
        ----------
        exact : bool, default=False
            Whether draws are exact.
        """

    taken = inspect.signature(gibbs).parameters
    assert list(taken) == ["model", "exact", "moves"]
    assert taken["moves"].default == 3
    explained = explained_parameters(gibbs)
    assert list(explained) == ["exact", "moves"]
    assert "Moves of a sweep." in explained["moves"]
