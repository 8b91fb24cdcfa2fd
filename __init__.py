"""Bayesian kernel learning on PyMC: models of five papers, each fitted by any engine that applies.

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
from .inference import completion, plots, scores
from .inference.choice import select
from .inference.diagnostics.calibrate import calibrate
from .inference.diagnostics.compare import compare_engines
from .inference.diagnostics.scores import inclusion
from .inference.engine.convergence import ApproximationWarning, pareto_k
from .inference.engine.fit import fit
from .inference.engine.groups import extend
from .inference.engine.paper import log_evidence
from .inference.engine.predict import predict
from .inference.generic import ADVI, NUTS, SMC, Laplace, Pathfinder
from .inference.multinomial_probit.classifier_combination import combine_classifiers
from .inference.paper_engines import EM, INLA, MAP, VB, Exact, Gibbs
from .inference.recommend import engines, recommend
from .models import MODELS as MODELS
from .models import combinations, distributions, kernels
from .models.composite_function import composite_function
from .models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from .models.diagonal_wishart_completion import DiagonalWishartCompletion
from .models.gaussian_process import GaussianProcessClassification, GaussianProcessRegression
from .models.kernels import gaussian, linear, polynomial
from .models.learned_scale import LearnedScale
from .models.multinomial_probit import MultinomialProbit
from .models.mutual_kernel_completion import MutualKernelCompletion
from .models.wishart_completion import WishartCompletion
from .models.wishart_kernel_mixture import WishartKernelMixture

if TYPE_CHECKING:
    from . import estimators

__version__ = version("kernelzoo")

__all__ = [
    "ADVI",
    "EM",
    "INLA",
    "MAP",
    "NUTS",
    "SMC",
    "VB",
    "ApproximationWarning",
    "CompositeKernelClassification",
    "CompositeKernelRegression",
    "DiagonalWishartCompletion",
    "Exact",
    "GaussianProcessClassification",
    "GaussianProcessRegression",
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
