"""What settings mean is told: of every engine on every model, with the defaults there are."""

import ast
import inspect

import pytest

import kernelzoo as kz
from kernelzoo.inference.engine.description import explained_parameters
from kernelzoo.inference.engine.engine import Engine

MODELS = {model.__name__: model for model in kz.MODELS}
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
            for setting, entry in description.settings.items():
                kind, text = kind_and_text(entry)
                assert kind.startswith(f"{setting} : ")
                assert text
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
            assert ast.literal_eval(stated) == parameter.default


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
    with pytest.raises(ValueError, match=r"EM on WishartCompletion.*nearest is 'iterations'"):
        kz.describe(model, kz.EM(iteration=3))
    with pytest.raises(TypeError, match="'model' argument of describe"):
        kz.describe("wine", "vb")
