"""Engines, one `fit` for all of them, prediction and comparison."""

from .compare import Comparison, compare_engines
from .diagnostics import pareto_k
from .engines import Engine, EngineTable, engines, fit
from .generic import ADVI, Pathfinder
from .gibbs import multinomial_probit as _gibbs_multinomial_probit  # noqa: F401  registers
from .identified import identified
from .mcmc import NUTS, SMC, Gibbs
from .mode import MAP, Laplace
from .plots import (
    plot_bound,
    plot_decision_regions,
    plot_engines,
    plot_kernels,
    plot_reliability,
    plot_weights,
)
from .predict import predict
from .quantities import multinomial_probit as _quantities_multinomial_probit  # noqa: F401
from .vb import multinomial_probit as _vb_multinomial_probit  # noqa: F401
from .vb.engine import VB

__all__ = [
    "ADVI",
    "MAP",
    "NUTS",
    "SMC",
    "VB",
    "Comparison",
    "Engine",
    "EngineTable",
    "Gibbs",
    "Laplace",
    "Pathfinder",
    "compare_engines",
    "engines",
    "fit",
    "identified",
    "pareto_k",
    "plot_bound",
    "plot_decision_regions",
    "plot_engines",
    "plot_kernels",
    "plot_reliability",
    "plot_weights",
    "predict",
]
