"""Engines, one `fit` for all of them, prediction and comparison."""

from . import completion as completion
from . import plots as plots
from . import scores as scores
from .composite_kernel import CLASSIFICATION, REGRESSION
from .diagnostics.calibrate import calibrate as calibrate
from .diagnostics.compare import Comparison as Comparison
from .diagnostics.compare import compare_engines as compare_engines
from .diagnostics.scores import inclusion as inclusion
from .engine.chains import NUTS as NUTS
from .engine.convergence import ApproximationWarning as ApproximationWarning
from .engine.convergence import pareto_k as pareto_k
from .engine.engine import Engine as Engine
from .engine.engine import Run as Run
from .engine.fit import fit as fit
from .engine.groups import extend as extend
from .engine.mode import Laplace as Laplace
from .engine.paper import PAPERS as PAPERS
from .engine.paper import Algorithm as Algorithm
from .engine.paper import Paper as Paper
from .engine.paper import add_paper as add_paper
from .engine.paper import identified as identified
from .engine.paper import log_evidence as log_evidence
from .engine.paper_engines import EM as EM
from .engine.paper_engines import MAP as MAP
from .engine.paper_engines import VB as VB
from .engine.paper_engines import Exact as Exact
from .engine.paper_engines import Gibbs as Gibbs
from .engine.predict import predict as predict
from .engine.recommend import Recommendation as Recommendation
from .engine.recommend import engines as engines
from .engine.recommend import recommend as recommend
from .engine.result import ExactOutput as ExactOutput
from .engine.result import PointOutput as PointOutput
from .engine.result import VariationalOutput as VariationalOutput
from .generic import ADVI as ADVI
from .generic import SMC as SMC
from .generic import Pathfinder as Pathfinder
from .kernel_completion import DIAGONAL_WISHART, MIXTURE, WISHART
from .left_out import Selection as Selection
from .left_out import select as select
from .multinomial_probit import PROBIT
from .multinomial_probit.classifier_combination import combine_classifiers as combine_classifiers
from .mutual_completion import MUTUAL

# All papers of the package.
for paper in (REGRESSION, CLASSIFICATION, PROBIT, WISHART, MIXTURE, DIAGONAL_WISHART, MUTUAL):
    add_paper(paper)
