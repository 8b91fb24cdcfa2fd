"""Variants of the papers' models, with a small problem each on which engines can be proved right.

A problem has the objects of the model's example and priors from which data can be simulated: under
the defaults, which are vague, simulated data are often so extreme that no engine fits them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelzoo.models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    DiagonalWishartCompletion,
    GaussianProcessClassification,
    GaussianProcessRegression,
    LearnedScale,
    MultinomialProbit,
    MutualKernelCompletion,
    WishartCompletion,
    WishartKernelMixture,
    combinations,
    kernels,
)
from kernelzoo.models.declaration import Declaration
from kernelzoo.models.kernels import gaussian, linear, polynomial

__all__ = ["VARIANTS", "Variant", "probit_problem"]

type Make = Callable[[], Declaration]


@dataclass(frozen=True)
class Variant:
    """A variant of a model.

    Attributes
    ----------
    slug : str
        Short name, for files.
    told : str
        Description; empty for the model's defaults.
    model : type
    example : callable
        Makes a small instance with the model's default priors.
    simulated : callable, optional
        Makes a small instance with priors from which data can be simulated. Default: `example`,
        whose priors are proper enough.
    twin : str
        Slug of a variant whose problem has the same posterior, or empty. Its reference serves both.
    """

    slug: str
    told: str
    model: type[Declaration]
    example: Make
    simulated: Make | None = None
    twin: str = ""

    @property
    def problem(self) -> Make:
        """Constructor of the instance on which engines are proved."""
        return self.simulated or self.example

    @property
    def title(self) -> str:
        """Name of the model and description."""
        return f"{self.model.__name__}{', ' if self.told else ''}{self.told}"


def _with(model: type[Declaration], **changes: Any) -> Make:
    """Make a constructor of the model's example with other arguments."""

    def make() -> Declaration:
        given, named = model.example()._arguments
        return model(*given, **(named | changes))

    return make


def _probit(specification: Any, combination: Any, objects: int, **priors: Any) -> Make:
    """Make a constructor of a classifier of three classes on made-up objects."""

    def make() -> Declaration:
        X = np.random.default_rng(0).normal(size=(objects, 2))
        stack, labels = specification(X), np.arange(objects) % 3
        return MultinomialProbit(stack, labels, combination=combination, **priors)

    return make


def probit_problem(combination: Any = None, **changes: Any) -> MultinomialProbit:
    """Ten objects, three classes, two kernels, and a prior under which chains mix."""
    x = np.random.default_rng(1).normal(size=(10, 2))
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    return MultinomialProbit(
        {"near": np.exp(-2 * distances), "far": np.exp(-distances / 8)},
        np.arange(10) % 3,
        combination=combinations.Mean(2.0, 1.0) if combination is None else combination,
        **_PROPER | changes,
    )


# Kernels without negative entries, for products, and kernels with parameters.
_POSITIVE = gaussian(0.5) | polynomial(2)
_UNIT = gaussian(0.5) | gaussian(0.05)
_WIDTHS = gaussian(kernels.Theta(ard=True)) | linear()
_PROPER_WIDTHS = gaussian(kernels.Theta(ard=True, omega=4.0, phi=4.0)) | gaussian(0.05)
_WEIGHTS: dict[str, Any] = {
    "combination": combinations.DirichletWeights(3.0, 1.5),
    "sigma": 3.0,
    "varsigma": 3.0,
}
_UNIFORM = combinations.DirichletWeights(varphi=1.0)
_NOISE: dict[str, Any] = {"rho": 3.0, "varrho": 1.0}
_PROPER: dict[str, Any] = {"tau": 6.0, "upsilon": 3.0}
_SCALE = LearnedScale(3.0, 0.7)
_WEIGHTS_AND_SCALE: dict[str, Any] = _WEIGHTS | {"varsigma": _SCALE}

_PROBIT, _MIXTURE, _MUTUAL = MultinomialProbit, WishartKernelMixture, MutualKernelCompletion
_REGRESSION, _CLASSIFICATION = CompositeKernelRegression, CompositeKernelClassification
_GP_REGRESSION = GaussianProcessRegression
_GP_CLASSIFICATION = GaussianProcessClassification

#: Every variant, by model.
VARIANTS = (
    Variant("probit", "learned weights", _PROBIT, _PROBIT.example, probit_problem),
    Variant(
        "probit-fixed",
        "fixed weights",
        _PROBIT,
        _with(_PROBIT, combination="fixed"),
        lambda: probit_problem("fixed"),
    ),
    Variant(
        "probit-product",
        "learned exponents",
        _PROBIT,
        _probit(_POSITIVE, "product", 12),
        _probit(_UNIT, combinations.Product(2.0, 2.0), 10, **_PROPER),
    ),
    Variant(
        "probit-fixed-product",
        "fixed exponents",
        _PROBIT,
        _probit(_POSITIVE, "fixed product", 12),
        _probit(_UNIT, "fixed product", 10, **_PROPER),
    ),
    Variant(
        "probit-binary",
        "selection of kernels",
        _PROBIT,
        _with(_PROBIT, combination="binary"),
        lambda: probit_problem("binary"),
    ),
    Variant(
        "probit-widths",
        "learned kernel parameters",
        _PROBIT,
        _probit(_WIDTHS, "mean", 12),
        _probit(_PROPER_WIDTHS, combinations.Mean(2.0, 1.0), 10, **_PROPER),
    ),
    Variant(
        "probit-scale",
        "learned scale",
        _PROBIT,
        _with(_PROBIT, upsilon=LearnedScale()),
        lambda: probit_problem(upsilon=_SCALE),
    ),
    Variant(
        "regression",
        "",
        _REGRESSION,
        _REGRESSION.example,
        lambda: _REGRESSION.example(**_WEIGHTS, **_NOISE),
    ),
    Variant(
        "regression-collapsed",
        "collapsed",
        _REGRESSION,
        _with(_REGRESSION, collapsed=True),
        lambda: _REGRESSION.example(**_WEIGHTS, **_NOISE, collapsed=True),
        twin="regression",
    ),
    Variant(
        "regression-uniform",
        "uniform prior of the weights",
        _REGRESSION,
        _with(_REGRESSION, combination=_UNIFORM),
        lambda: _REGRESSION.example(**(_WEIGHTS | {"combination": _UNIFORM}), **_NOISE),
    ),
    Variant(
        "regression-scale",
        "learned scale",
        _REGRESSION,
        _with(_REGRESSION, varsigma=LearnedScale()),
        lambda: _REGRESSION.example(**_WEIGHTS_AND_SCALE, **_NOISE),
    ),
    Variant(
        "classification",
        "",
        _CLASSIFICATION,
        _CLASSIFICATION.example,
        lambda: _CLASSIFICATION.example(**_WEIGHTS),
    ),
    Variant(
        "classification-uniform",
        "uniform prior of the weights",
        _CLASSIFICATION,
        _with(_CLASSIFICATION, combination=_UNIFORM),
        lambda: _CLASSIFICATION.example(**(_WEIGHTS | {"combination": _UNIFORM})),
    ),
    Variant(
        "classification-scale",
        "learned scale",
        _CLASSIFICATION,
        # Under a broader prior, the scores of so few objects have tails too long for any chain.
        lambda: _CLASSIFICATION.example(**_WEIGHTS_AND_SCALE),
    ),
    # Under the default priors, so few objects have posteriors with tails too long for any chain.
    Variant(
        "gp-regression",
        "narrow priors",
        _GP_REGRESSION,
        lambda: _GP_REGRESSION.example(scale=_SCALE, gamma=_SCALE),
    ),
    Variant(
        "gp-classification",
        "narrow prior",
        _GP_CLASSIFICATION,
        lambda: _GP_CLASSIFICATION.example(scale=_SCALE),
    ),
    Variant("wishart", "", WishartCompletion, WishartCompletion.example),
    Variant("diagonal", "", DiagonalWishartCompletion, DiagonalWishartCompletion.example),
    Variant("mixture", "fixed weights", _MIXTURE, _MIXTURE.example),
    Variant(
        "mixture-learned",
        "learned weights",
        _MIXTURE,
        _with(_MIXTURE, concentration=1.0),
        _with(_MIXTURE, concentration=2.0),
    ),
    Variant(
        "mixture-collapsed",
        "learned weights, collapsed",
        _MIXTURE,
        _with(_MIXTURE, concentration=1.0, collapsed=True),
        _with(_MIXTURE, concentration=2.0, collapsed=True),
    ),
    Variant("mixture-wishart", "Wishart prior", _MIXTURE, _with(_MIXTURE, prior="wishart")),
    Variant("mixture-sum", "exact mixture prior", _MIXTURE, _with(_MIXTURE, prior="mixture")),
    Variant("mutual", "", _MUTUAL, _MUTUAL.example),
    Variant(
        "mutual-collapsed", "collapsed", _MUTUAL, _with(_MUTUAL, collapsed=True), twin="mutual"
    ),
)
