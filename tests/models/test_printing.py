"""Models print the numbers of their priors, in plain text and in LaTeX."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import kernelzoo as kz
from certificates.variants import VARIANTS


def printed(model, **options):
    rows = (row.replace("=", "~", 1).split(" ~ ") for row in model.str_repr(**options).splitlines())
    return {name.strip(): told for name, told in rows}


@pytest.mark.parametrize("card", VARIANTS, ids=lambda card: card.slug)
def test_no_number_of_a_model_is_left_out(card):
    model = card.example()
    variables = [*model.data_vars, *model.basic_RVs, *model.deterministics, *model.potentials]
    assert sorted(printed(model)) == sorted(str(variable.name) for variable in variables)
    for told in (model.str_repr(), model._repr_latex_()):
        assert "<" not in told


def test_gamma_and_exponential_print_their_rates():
    rule = kz.combinations.Mean(mu=2, lam=0.3)
    example = kz.MultinomialProbit.example()
    told = printed(example.redeclared(combination=rule, tau=3.0, upsilon=0.2))
    assert told["K"] == told["labels"] == "Data"
    assert told["rho"] == "Gamma(2, 0.3)"
    assert told["zeta"] == "InverseGamma(3, 0.2)"
    assert told["beta"] == "Dirichlet(rho)"
    assert told["W"] == "Normal(0, f(zeta))"
    (product,) = (card for card in VARIANTS if card.slug == "probit-product")
    assert printed(product.example())["beta"] == "Gamma(pi, chi)"


def test_added_terms_are_printed():
    model = kz.MultinomialProbit.example()
    with model:
        a = pm.Exponential("a", [0.25, 8.0])
        pm.Exponential("g", scale=4.0)
        pm.Exponential("h", scale=a[0])
        pm.Normal("b", np.eye(2), pm.Gamma.dist(1, 2), shape=(2, 2))
        pm.Deterministic("c", 2 * a)
        pm.Potential("d_e", -a.sum())
        pm.Potential("constant", pt.constant(2.0) * pt.constant([3.0, 4.0]))
        pm.Censored("e", pm.Truncated.dist(pm.Normal.dist(), lower=0), lower=None, upper=1)
    told = printed(model)
    assert told["e"] == "Censored(f(truncated_normal), -inf, 1)"
    assert told["a"] == "Exponential([0.25, 8])"
    assert told["g"] == "Exponential(0.25)"
    assert told["h"] == "Exponential(f(a))"
    assert told["b"] == "Normal(array (2, 2), f(gamma))"
    assert told["c"] == "Deterministic(f(a))"
    assert told["constant"] == "Potential([6, 8])"
    assert printed(model, include_params=False)["d_e"] == "Potential"
    latex = model._repr_latex_()
    assert r"\text{a} &\sim& \text{Exponential([0.25, 8])} \\" in latex
    assert r"\text{c} &=& \text{Deterministic(f(a))} \\" in latex
    assert r"\text{d\_e} &\sim& \text{Potential(f(a))} \\" in latex
    assert model.copied().str_repr() == model.str_repr()
