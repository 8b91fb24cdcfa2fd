"""Engines, one `fit` for all of them, prediction and comparison."""

# Each family registers its engines and what it predicts when it is imported.
from . import (
    completion,
    composite_kernel,  # noqa: F401
    kernel_completion,  # noqa: F401
    multinomial_probit,  # noqa: F401
    mutual_completion,  # noqa: F401
    plots,
    scores,
)
from .diagnostics.calibrate import calibrate
from .diagnostics.compare import Comparison, compare_engines
from .diagnostics.inclusion import inclusion
from .engine.draws_on_disk import open_store
from .engine.em import EM
from .engine.engine import Engine, Run
from .engine.estimate import Estimate, estimate
from .engine.evidence import log_evidence
from .engine.exact import Exact
from .engine.extend import extend
from .engine.fit import engines, fit
from .engine.identified import identified, identifies
from .engine.map import MAP
from .engine.mcmc import NUTS, Gibbs
from .engine.mode import Laplace
from .engine.outputs import ExactOutput, ModeOutput, PointOutput, VariationalOutput
from .engine.pareto_k import ApproximationWarning, pareto_k
from .engine.predict import predict, predictive
from .engine.recommend import Recommendation, recommend
from .engine.replicate import replicate
from .engine.vb import VB
from .generic.approximations import ADVI, Pathfinder
from .generic.smc import SMC
from .multinomial_probit.classifier_combination import combine_classifiers

__all__ = [
    "ADVI",
    "EM",
    "MAP",
    "NUTS",
    "SMC",
    "VB",
    "ApproximationWarning",
    "Comparison",
    "Engine",
    "Estimate",
    "Exact",
    "ExactOutput",
    "Gibbs",
    "Laplace",
    "ModeOutput",
    "Pathfinder",
    "PointOutput",
    "Recommendation",
    "Run",
    "VariationalOutput",
    "calibrate",
    "combine_classifiers",
    "compare_engines",
    "completion",
    "engines",
    "estimate",
    "extend",
    "fit",
    "identified",
    "identifies",
    "inclusion",
    "log_evidence",
    "open_store",
    "pareto_k",
    "plots",
    "predict",
    "predictive",
    "recommend",
    "replicate",
    "scores",
]
