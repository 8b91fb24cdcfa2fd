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
    Comparison,
    Exact,
    Gibbs,
    Laplace,
    Pathfinder,
    compare_engines,
    engines,
    fit,
    learn_weights,
    log_evidence,
    pareto_k,
    plot_bound,
    plot_decision_regions,
    plot_engines,
    plot_kernels,
    plot_reliability,
    plot_weights,
    predict,
)
from .models import (
    MODELS,
    CategoricalProbit,
    DiagonalWishartCompletion,
    FixedWeights,
    InverseWishart,
    Kernels,
    MatrixF,
    MatrixNormal,
    Mean,
    MultinomialProbit,
    Wishart,
    WishartCompletion,
    WishartKernelMixture,
    basis_expansion,
    cosine,
    covariance,
    gaussian,
    kernel_stack,
    laplace,
    linear,
    match_wishart,
    polynomial,
    precomputed,
)

__version__ = version("kernelzoo")

__all__ = [
    "ADVI",
    "EM",
    "MAP",
    "MODELS",
    "NUTS",
    "SMC",
    "VB",
    "CategoricalProbit",
    "Comparison",
    "DiagonalWishartCompletion",
    "Exact",
    "FixedWeights",
    "Gibbs",
    "InverseWishart",
    "Kernels",
    "Laplace",
    "MatrixF",
    "MatrixNormal",
    "Mean",
    "MultinomialProbit",
    "Pathfinder",
    "Wishart",
    "WishartCompletion",
    "WishartKernelMixture",
    "basis_expansion",
    "compare_engines",
    "cosine",
    "covariance",
    "datasets",
    "engines",
    "fit",
    "gaussian",
    "kernel_stack",
    "laplace",
    "learn_weights",
    "linear",
    "log_evidence",
    "match_wishart",
    "pareto_k",
    "plot_bound",
    "plot_decision_regions",
    "plot_engines",
    "plot_kernels",
    "plot_reliability",
    "plot_weights",
    "polynomial",
    "precomputed",
    "predict",
]
