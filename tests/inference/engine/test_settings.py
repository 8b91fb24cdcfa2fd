"""Settings of engines: what a constructor shows, checks and explains, and what algorithms take."""

import copy
import inspect
import re
from ast import literal_eval

import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo import custom_steps
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.paper import PAPERS, Algorithm, Paper
from kernelzoo.inference.paper_engines import BY_GRADIENTS, PaperEngine

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
        r"^Parameters\n-+\n(.*?)(?:\n\n\w+\n-{3,}$|\Z)",
        inspect.getdoc(documented),
        re.DOTALL | re.MULTILINE,
    )
    listed = re.split(r"\n(?=\S)", section[1]) if section else []
    return {entry.partition(" : ")[0]: entry for entry in listed}


DOCUMENTED = [
    *(
        pytest.param(engine, [*inspect.signature(engine).parameters.values()], id=engine.__name__)
        for engine in ENGINES
        if engine not in HANDWRITTEN
    ),
    *(
        pytest.param(
            algorithm.values[1].function,
            [
                parameter
                for parameter in inspect.signature(algorithm.values[1].function).parameters.values()
                if parameter.kind is parameter.KEYWORD_ONLY
            ],
            id=algorithm.id,
        )
        for algorithm in ALGORITHMS
    ),
]


@pytest.mark.parametrize(("documented", "parameters"), DOCUMENTED)
def test_a_docstring_explains_each_setting_and_names_its_default(documented, parameters):
    if not parameters:
        return
    explained = entries(documented)
    assert set(explained) == {parameter.name for parameter in parameters}
    for parameter in parameters:
        entry = explained[parameter.name]
        head, _, text = entry.partition("\n")
        # Whole sentences: half of one explains nothing.
        assert text.strip()[0].isupper() or text.strip()[0] in "\"'`"
        assert entry.endswith(".")
        if ", default=" in head:
            assert literal_eval(head.partition(", default=")[2]) == parameter.default
        else:
            assert "optional" in head
            assert parameter.default is None


@pytest.mark.parametrize("engine", HANDWRITTEN)
def test_a_signature_lists_the_settings_of_all_algorithms(engine):
    own = [case.values[1] for case in ALGORITHMS if case.values[0] is engine]
    taken = {name for algorithm in own for name in algorithm.settings}
    assert set(inspect.signature(engine).parameters) == taken


def test_the_table_of_engines_explains_the_settings_of_its_model(capsys):
    kz.engines(kz.WishartCompletion.example()).help("gibbs")
    assert "p_step : " in capsys.readouterr().out
    kz.recommend(kz.MultinomialProbit.example()).help("NUTS")
    assert "target_accept : " in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"'engine' argument of help must be one of .*'exact'"):
        kz.engines(kz.WishartCompletion.example()).help("inla")


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
    other = r"^VB on WishartCompletion does not take 'scheme', a setting for MultinomialProbit\. "
    with pytest.raises(ValueError, match=other + "It has no settings"):
        kz.fit(model, kz.VB(scheme="paper"))
    other = r"'memory', a setting for MutualKernelCompletion\. It takes max_iterations, tolerance"
    with pytest.raises(ValueError, match=other):
        kz.fit(model, kz.EM(memory=3))
    with pytest.raises(ValueError, match="a setting for MultinomialProbit"):
        kz.calibrate(model, kz.Gibbs(length=3), replicates=20)


def test_values_are_refused_by_fit_with_the_name_of_the_model():
    with pytest.raises(ValueError, match="'length' argument of Gibbs on MultinomialProbit must be"):
        kz.fit(kz.MultinomialProbit.example(), kz.Gibbs(length=-1))


def test_an_engine_does_not_change():
    engine = kz.VB(starts=3)
    with pytest.raises(AttributeError, match=r"make another, VB\(starts=\.\.\.\)"):
        engine.starts = 4
    assert engine == kz.VB(starts=3) != kz.VB(starts=True)
    assert len({engine, kz.VB(starts=3), copy.deepcopy(engine)}) == 1


def test_a_setting_needs_a_default():
    def variational(model, run, *, depth):
        raise NotImplementedError

    with pytest.raises(ValueError, match=r"'depth' argument of Algorithm\(variational\) must be"):
        Algorithm(variational)


class Flip(pm.Model):
    """A model from outside."""


def test_an_algorithm_from_outside_adds_settings(monkeypatch):
    def variational(model, run, *, damping: float = 0.5, starts: int = 1):
        raise NotImplementedError

    with pytest.raises(ValueError, match=r"'settings' argument of VB must .* Got 'damping'"):
        kz.VB(damping=0.1)
    monkeypatch.setitem(PAPERS, Flip, Paper(Flip, vb=Algorithm(variational)))
    model = Flip()
    assert kz.VB().settings_on(model) == {"damping": 0.5, "starts": 1}
    assert kz.VB(damping=0.1, starts=2).settings_on(model) == {"damping": 0.1, "starts": 2}
    with pytest.raises(ValueError, match=r"Got 'dampng' \(the nearest is 'damping'\)"):
        kz.VB(dampng=0.1)
