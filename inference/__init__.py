"""Engines, one `fit` for all of them, and what extensions and studies are made of."""

from . import completion as completion
from . import plots as plots
from . import scores as scores
from .composite_kernel import CLASSIFICATION, REGRESSION
from .engine.convergence import ApproximationWarning as ApproximationWarning
from .engine.engine import Engine as Engine
from .engine.engine import Run as Run
from .engine.fit import fit as fit
from .engine.paper import PAPERS as PAPERS
from .engine.paper import Algorithm as Algorithm
from .engine.paper import Paper as Paper
from .engine.paper import add_paper as add_paper
from .engine.paper import identified as identified
from .engine.predict import predict as predict
from .engine.result import ExactOutput as ExactOutput
from .engine.result import IntegratedOutput as IntegratedOutput
from .engine.result import PointOutput as PointOutput
from .engine.result import VariationalOutput as VariationalOutput
from .gaussian_process import GAUSSIAN_CLASSIFICATION, GAUSSIAN_REGRESSION
from .kernel_completion import DIAGONAL_WISHART, MIXTURE, WISHART
from .multinomial_probit import PROBIT
from .mutual_completion import MUTUAL
from .new_objects import check_draws as check_draws
from .new_objects import stack_of_new_objects as stack_of_new_objects

# All papers of the package.
for paper in (
    REGRESSION,
    CLASSIFICATION,
    PROBIT,
    GAUSSIAN_REGRESSION,
    GAUSSIAN_CLASSIFICATION,
    WISHART,
    MIXTURE,
    DIAGONAL_WISHART,
    MUTUAL,
):
    add_paper(paper)
