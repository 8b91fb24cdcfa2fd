"""Engines, one `fit` for all of them, prediction and comparison."""

from . import composite_kernel, kernel_completion, multinomial_probit, mutual_completion  # noqa: F401
from .diagnostics.compare import Comparison, compare_engines
from .diagnostics.scores import scores
from .engine.answers import ExactAnswer, ModeAnswer, PointAnswer, VariationalAnswer
from .engine.description import EngineDescription
from .engine.em import EM
from .engine.engine import Engine, Run
from .engine.estimate import Estimate, estimate
from .engine.evidence import log_evidence
from .engine.exact import Exact
from .engine.fit import describe, engines, fit
from .engine.identified import identified, identifies
from .engine.map import MAP
from .engine.mcmc import NUTS, Gibbs
from .engine.mode import Laplace
from .engine.pareto_k import ApproximationWarning, pareto_k
from .engine.predict import document_predictions, predict, predictive
from .engine.table import EngineTable
from .engine.vb import VB
from .generic.approximations import ADVI, Pathfinder
from .generic.smc import SMC
from .kernel_completion.weights import learn_weights
from .multinomial_probit.classifier_combination import combine_classifiers
from .mutual_completion.imputation import impute_kernels
from .mutual_completion.scores import correlation_distance, entry_coverage, missing_entries, svm_auc
from .plots import (
    plot_bound,
    plot_decision_regions,
    plot_engines,
    plot_kernels,
    plot_reliability,
    plot_weights,
)

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
    "EngineDescription",
    "EngineTable",
    "Estimate",
    "Exact",
    "ExactAnswer",
    "Gibbs",
    "Laplace",
    "ModeAnswer",
    "Pathfinder",
    "PointAnswer",
    "Run",
    "VariationalAnswer",
    "combine_classifiers",
    "compare_engines",
    "correlation_distance",
    "describe",
    "document_predictions",
    "engines",
    "entry_coverage",
    "estimate",
    "fit",
    "identified",
    "identifies",
    "impute_kernels",
    "learn_weights",
    "log_evidence",
    "missing_entries",
    "pareto_k",
    "plot_bound",
    "plot_decision_regions",
    "plot_engines",
    "plot_kernels",
    "plot_reliability",
    "plot_weights",
    "predict",
    "predictive",
    "scores",
    "svm_auc",
]

# Every family has registered what it predicts.
document_predictions()
