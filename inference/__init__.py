"""Engines, one `fit` for all of them, prediction and comparison."""

from . import completion, plots, scores
from .composite_kernel import CLASSIFICATION, REGRESSION
from .diagnostics.calibrate import calibrate
from .diagnostics.compare import Comparison, compare_engines
from .diagnostics.inclusion import inclusion
from .engine.engine import Engine, Run
from .engine.extend import extend
from .engine.fit import fit
from .engine.k_hat import ApproximationWarning, pareto_k
from .engine.mcmc import NUTS, Gibbs
from .engine.mode import Laplace
from .engine.outputs import ExactOutput, PointOutput, VariationalOutput
from .engine.paper import (
    EM,
    MAP,
    PAPERS,
    VB,
    Algorithm,
    Exact,
    Paper,
    add_paper,
    identified,
    log_evidence,
)
from .engine.predict import predict
from .engine.recommend import Recommendation, recommend
from .engine.tables import engines
from .generic.approximations import ADVI, Pathfinder
from .generic.smc import SMC
from .kernel_completion import DIAGONAL_WISHART, MIXTURE, WISHART
from .multinomial_probit import PROBIT
from .multinomial_probit.classifier_combination import combine_classifiers
from .mutual_completion import MUTUAL
from .selection import Selection, select

__all__ = [
    "ADVI",
    "EM",
    "MAP",
    "NUTS",
    "PAPERS",
    "SMC",
    "VB",
    "Algorithm",
    "ApproximationWarning",
    "Comparison",
    "Engine",
    "Exact",
    "ExactOutput",
    "Gibbs",
    "Laplace",
    "Paper",
    "Pathfinder",
    "PointOutput",
    "Recommendation",
    "Run",
    "Selection",
    "VariationalOutput",
    "add_paper",
    "calibrate",
    "combine_classifiers",
    "compare_engines",
    "completion",
    "engines",
    "extend",
    "fit",
    "identified",
    "inclusion",
    "log_evidence",
    "pareto_k",
    "plots",
    "predict",
    "recommend",
    "scores",
    "select",
]

# All papers of the package.
for paper in (REGRESSION, CLASSIFICATION, PROBIT, WISHART, MIXTURE, DIAGONAL_WISHART, MUTUAL):
    add_paper(paper)
