"""Bayesian kernel learning on PyMC: each paper declared once, every engine swappable on it.

>>> import kernelzoo as kz
>>> data = kz.datasets.load("wine").split(seed=1)
>>> kernels = kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)
>>> model = kz.MultinomialProbit(kernels(data.X_train), data.y_train)
>>> vb = kz.fit(model, kz.VB())
>>> gibbs = kz.fit(model, kz.Gibbs(), random_seed=1)
>>> kz.compare_engines({"VB": vb, "Gibbs": gibbs})
>>> kz.predict(model, vb, kernels(data.X_test, data.X_train))
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from . import datasets
from .inference import (
    ADVI,
    EM,
    MAP,
    NUTS,
    SMC,
    VB,
    ApproximationWarning,
    Exact,
    Gibbs,
    Laplace,
    Pathfinder,
    calibrate,
    combine_classifiers,
    compare_engines,
    completion,
    engines,
    extend,
    fit,
    inclusion,
    log_evidence,
    pareto_k,
    plots,
    predict,
    recommend,
    scores,
    select,
)
from .models import MODELS as MODELS
from .models import (
    CompositeKernelClassification,
    CompositeKernelRegression,
    DiagonalWishartCompletion,
    LearnedScale,
    MultinomialProbit,
    MutualKernelCompletion,
    WishartCompletion,
    WishartKernelMixture,
    combinations,
    composite_function,
    distributions,
    kernels,
)
from .models.kernels import gaussian, linear, polynomial

if TYPE_CHECKING:
    from . import estimators

__version__ = version("kernelzoo")

__all__ = [
    "ADVI",
    "EM",
    "MAP",
    "NUTS",
    "SMC",
    "VB",
    "ApproximationWarning",
    "CompositeKernelClassification",
    "CompositeKernelRegression",
    "DiagonalWishartCompletion",
    "Exact",
    "Gibbs",
    "Laplace",
    "LearnedScale",
    "MultinomialProbit",
    "MutualKernelCompletion",
    "Pathfinder",
    "WishartCompletion",
    "WishartKernelMixture",
    "calibrate",
    "combinations",
    "combine_classifiers",
    "compare_engines",
    "completion",
    "composite_function",
    "datasets",
    "distributions",
    "engines",
    "estimators",
    "extend",
    "fit",
    "gaussian",
    "inclusion",
    "kernels",
    "linear",
    "log_evidence",
    "pareto_k",
    "plots",
    "polynomial",
    "predict",
    "recommend",
    "scores",
    "select",
]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are asked for: scikit-learn takes half a second."""
    if name == "estimators":
        return import_module(".estimators", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
