"""Engines, one `fit` for all of them, prediction and comparison."""

from importlib import import_module
from pkgutil import iter_modules

from . import em, exact, gibbs, map, quantities, vb
from .answers import ExactAnswer, ModeAnswer, PointAnswer, VariationalAnswer
from .classifier_combination import combine_classifiers
from .compare import Comparison, compare_engines
from .completion_scores import (
    correlation_distance,
    entry_coverage,
    missing_entries,
    svm_auc,
)
from .diagnostics import ApproximationWarning, pareto_k
from .em.engine import EM
from .engines import Engine, EngineDescription, EngineTable, Run, describe, engines, fit
from .estimate import Estimate, estimate
from .evidence import log_evidence
from .exact.engine import Exact
from .generic import ADVI, Pathfinder
from .identified import identified, identifies
from .imputation import impute_kernels
from .kernel_weights import learn_weights
from .map.engine import MAP
from .mcmc import NUTS, Gibbs
from .mode import Laplace
from .plots import (
    plot_bound,
    plot_decision_regions,
    plot_engines,
    plot_kernels,
    plot_reliability,
    plot_weights,
)
from .predict import document_predictions, predict, predictive
from .scores import scores
from .smc import SMC
from .vb.engine import VB

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

# A paper's implementations register themselves when they are imported: every file of these rooms.
for _room in (em, exact, gibbs, map, quantities, vb):
    for _file in iter_modules(_room.__path__):
        import_module(f"{_room.__name__}.{_file.name}")
document_predictions()
