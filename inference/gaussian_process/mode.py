"""Mode of the scores of a Gaussian-process classification whose hyperparameters are known."""

import numpy as np

from ...models.gaussian_process import GaussianProcessClassification
from ...numerics.gaussian_process import cholesky
from ...numerics.gaussian_scores import laplace, likelihood_of
from ..engine.engine import Run
from ..engine.result import PointOutput
from .hyperparameters import Hyperparameters


def why_no_mode(model: GaussianProcessClassification) -> str | None:
    """Why Newton's method does not find the mode; None when it does."""
    learned = ", ".join(Hyperparameters(model).blocks)
    return f"it needs known hyperparameters, and {learned} is learned" if learned else None


def find_mode_of_scores(model: GaussianProcessClassification, run: Run) -> PointOutput:
    """Newton's method (Rasmussen & Williams 2006, algorithms 3.1 and 3.3). O(C N^3) a step."""
    hyperparameters = Hyperparameters(model)
    K = hyperparameters.covariance(hyperparameters.values(np.empty(0)))
    fit = laplace(K, likelihood_of(model.label_codes, model.n_classes))
    root = cholesky(K)
    shape = tuple(len(model.coords[dim]) for dim in model.named_vars_to_dims["v"])
    squares = float((fit.a * fit.mean).sum())
    log_likelihood = float(fit.likelihood.log_density(fit.mean).sum())
    log_density = log_likelihood - 0.5 * (squares + fit.a.size * np.log(2 * np.pi))
    return PointOutput(
        # With LL' = K, f = L v.
        values={"v": (root.T @ fit.a).reshape(shape), "f": fit.mean.reshape(shape)},
        climbs=[np.array([log_density])],
        converged="yes",
        log_density=log_density,
        attributes={"lp_measure": "constrained"},
    )
