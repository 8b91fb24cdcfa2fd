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

from importlib.metadata import version

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
    combine_classifiers,
    compare_engines,
    completion,
    describe,
    engines,
    estimate,
    fit,
    log_evidence,
    open_store,
    pareto_k,
    plots,
    predict,
    recommend,
    scores,
)
from .models import (
    MODELS,
    CompositeKernelClassification,
    CompositeKernelRegression,
    DiagonalWishartCompletion,
    MultinomialProbit,
    MutualKernelCompletion,
    WishartCompletion,
    WishartKernelMixture,
    combinations,
    distributions,
    kernels,
)
from .models.kernels import gaussian, linear, polynomial

__version__ = version("kernelzoo")

__all__ = [
    "ADVI",
    "EM",
    "MAP",
    "MODELS",
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
    "MultinomialProbit",
    "MutualKernelCompletion",
    "Pathfinder",
    "WishartCompletion",
    "WishartKernelMixture",
    "combinations",
    "combine_classifiers",
    "compare_engines",
    "completion",
    "datasets",
    "describe",
    "distributions",
    "engines",
    "estimate",
    "fit",
    "gaussian",
    "kernels",
    "linear",
    "log_evidence",
    "open_store",
    "pareto_k",
    "plots",
    "polynomial",
    "predict",
    "recommend",
    "scores",
]
