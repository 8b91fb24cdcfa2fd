"""MAP by gradients or by the paper's algorithm; which implementation a handwritten engine takes."""

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference.engine import paper
from kernelzoo.inference.engine.engine import Engine, Run
from kernelzoo.inference.engine.paper import Algorithm, Paper
from kernelzoo.inference.mode import search_by_gradients
from kernelzoo.inference.paper_engines import PaperEngine

QUIET = {"random_seed": 1, "progressbar": False}
UNIFORM = kz.combinations.DirichletWeights(varphi=1)


class Parent(kz.CompositeKernelRegression):
    """A model, and below one that descends from it."""


class Child(Parent):
    """Its own implementation does not apply to every one."""


class Heir(Child):
    """It has no implementation of its own."""


@pytest.fixture
def engine_type(monkeypatch):
    """An engine that calls functions of both; the registry and the table forget them again."""
    monkeypatch.setattr(Engine, "registry", dict(Engine.registry))
    monkeypatch.setattr(paper, "PAPERS", papers := {})

    class Tried(PaperEngine):
        name, kind = "Tried", "point"
        field = "em"

        def run(self, model, run):
            return self.implement(model, run)

    def of_parent(model, run, *, width=1):
        return "parent", width

    def of_child(model, run, *, depth=2):
        return "child", depth

    for model_type, function, unless in (
        (Parent, of_parent, lambda model: "no bias" if not model.bias else None),
        (Child, of_child, lambda model: None if model.sigma == 1 else "its sigma is not 1"),
    ):
        monkeypatch.setitem(papers, model_type, Paper(model_type, em=Algorithm(function, unless)))
    return Tried


@pytest.mark.parametrize(
    ("model_type", "taken", "settings"),
    [
        (Child, "child", {"depth": 2}),
        (Parent, "parent", {"width": 1}),
        (Heir, "child", {"depth": 2}),
    ],
)
def test_the_implementation_of_the_nearest_ancestor_is_taken(
    engine_type, model_type, taken, settings
):
    model, engine = model_type.example(), engine_type()
    assert engine.why_not(model) is None
    assert engine.settings_on(model) == settings
    assert engine.run(model, Run()) == (taken, *settings.values())
    name, *_ = settings
    assert engine_type(**{name: 9}).run(model, Run()) == (taken, 9)
    other = {"depth": "width", "width": "depth"}[name]
    with pytest.raises(ValueError, match=f"does not take '{other}', a setting for"):
        engine_type(**{other: 9}).run(model, Run())


def test_reason_is_that_of_the_nearest_ancestor(engine_type):
    assert engine_type().why_not(Child.example(sigma=2, bias=False)) == "its sigma is not 1"
    assert engine_type().why_not(Parent.example(bias=False)) == "no bias"
    stranger = engine_type().why_not(kz.MultinomialProbit.example())
    assert stranger == "not available for MultinomialProbit (available for Parent, Child)"


def test_amended_model_is_no_longer_what_an_implementation_was_written_for(engine_type):
    model = Child.example()
    with model:
        pm.Potential("pull", -model["gamma"])
    assert "not available for Child with added terms: 'pull'" in engine_type().why_not(model)


def test_amended_model_keeps_the_search_by_gradients():
    model = kz.CompositeKernelRegression.example(combination=UNIFORM)
    with model:
        pm.Potential("pull", -model["gamma"])
    assert kz.MAP().why_not(model) is None
    assert kz.MAP().algorithm(model).function is search_by_gradients


def test_gradients_can_be_asked_for_where_the_paper_has_an_algorithm():
    model = kz.CompositeKernelClassification.example(combination=UNIFORM)
    engine = kz.MAP(method="gradient", space="unconstrained")
    assert repr(engine) == "MAP(method='gradient', space='unconstrained')"
    assert engine != kz.MAP(space="unconstrained")
    assert engine.algorithm(model).function is search_by_gradients
    settings = {"space": "unconstrained", "max_iterations": 5000, "method": "gradient"}
    assert engine.settings_on(model) == settings
    settings = kz.engines(model).frame["settings"]
    assert set(settings["MAP"]) == {"max_iterations", "tolerance", "starts"}
    settings = kz.engines(kz.MultinomialProbit.example()).frame["settings"]
    assert set(settings["MAP"]) == {"space", "max_iterations", "method"}
    with pytest.raises(ValueError, match=r"'method' argument of MAP on .* of 'gradient'"):
        kz.fit(model, kz.MAP(method="newton"))
    search = r"does not take 'space', a setting for MAP\(method='gradient'\)"
    with pytest.raises(ValueError, match=search):
        kz.fit(model, kz.MAP(space="unconstrained"))


def test_search_by_gradients_keeps_its_climb():
    with pm.Model() as model:
        pm.Gamma("x", 3, 2)
    result = kz.fit(model, "map", **QUIET)
    climb = result["trajectory"]["objective"].values[0]
    assert (np.diff(climb) >= 0).all()
    np.testing.assert_allclose(climb[-1], result["sample_stats"]["lp"], rtol=1e-9)
    assert result.attrs["lp_measure"] == "constrained"
    assert result.attrs["gradient_norm"] < 1e-3


def test_setting_of_an_algorithm_that_does_not_apply_is_refused():
    model = kz.CompositeKernelRegression.example()
    with pytest.raises(ValueError, match=r"^MAP on Comp.* take 'starts'\. .*must be uniform"):
        kz.fit(model, kz.MAP(starts=3), progressbar=False)


def test_a_point_has_the_variables_that_are_asked_for():
    model = kz.CompositeKernelRegression.example(combination=UNIFORM)
    result = kz.fit(model, "map", var_names=["alpha"], **QUIET)
    assert list(result["posterior"].data_vars) == list(result["point"].data_vars) == ["alpha"]
    with pytest.raises(ValueError, match="'moments' argument of fit must be left out for MAP"):
        kz.fit(model, "map", moments=["alpha"], **QUIET)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", ["constrained", "unconstrained"])
def test_a_search_without_an_end_advises_another(space):
    engine = kz.MAP(space=space, max_iterations=1)
    model = kz.CompositeKernelRegression.example()
    result = kz.fit(model, engine, random_seed=1, progressbar=False)
    assert result.attrs["converged"] == "no"
    advised = "Try MAP(space='unconstrained')" in result.attrs["note"]
    assert advised is (space == "constrained"), result.attrs["note"]
