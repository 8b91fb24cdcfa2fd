"""Mode of the scores of a Gaussian-process classification whose hyperparameters are known."""

import numpy as np
from numpy.typing import NDArray

from ...models.gaussian_process import GaussianProcessClassification
from ...numerics import feature_scores, gaussian_scores
from ...numerics.gaussian_process import cholesky
from ...numerics.likelihoods import Likelihood, likelihood_of
from ..engine.engine import Run
from ..engine.result import PointOutput
from .conditionals import FeaturesOfLandmarks
from .hyperparameters import Hyperparameters

type Array = NDArray[np.float64]


def why_no_mode(model: GaussianProcessClassification) -> str | None:
    """Why Newton's method does not find the mode; None when it does."""
    learned = ", ".join(Hyperparameters(model).blocks)
    return f"it needs known hyperparameters, and {learned} is learned" if learned else None


def find_mode_of_scores(model: GaussianProcessClassification, run: Run) -> PointOutput:
    """Newton's method (Rasmussen & Williams 2006, algorithms 3.1 and 3.3).

    O(C N^3) a step, at M landmarks as `feature_scores.laplace`.
    """
    hyperparameters = Hyperparameters(model)
    likelihood = likelihood_of(model.label_codes, model.n_classes)
    v, f = (_of_all if hyperparameters.whole else _at_landmarks)(hyperparameters, likelihood)
    log_density = float(likelihood.log_density(f).sum())
    log_density -= 0.5 * (float(np.square(v).sum()) + v.size * np.log(2 * np.pi))
    functions = () if v.shape[1] == 1 else (v.shape[1],)
    return PointOutput(
        values={"v": v.reshape(-1, *functions), "f": f.reshape(-1, *functions)},
        climbs=[np.array([log_density])],
        converged="yes",
        log_density=log_density,
        attributes={"lp_measure": "constrained"},
    )


def _of_all(hyperparameters: Hyperparameters, likelihood: Likelihood) -> tuple[Array, Array]:
    """Whitened scores and scores (N, C) of objects that are all landmarks."""
    K = hyperparameters.covariance(hyperparameters.values(np.empty(0)))
    fit = gaussian_scores.laplace(K, likelihood)
    # With LL' = K, f = L v.
    return cholesky(K).T @ fit.a, fit.mean


def _at_landmarks(hyperparameters: Hyperparameters, likelihood: Likelihood) -> tuple[Array, Array]:
    """Whitened scores (M, C) of landmarks, and scores (N, C)."""
    values = hyperparameters.values(np.empty(0))
    features = FeaturesOfLandmarks(hyperparameters).at(values)
    fit = feature_scores.laplace(features, likelihood, float(values["scale"][0]))
    return features.rotation @ fit.W, fit.mean
