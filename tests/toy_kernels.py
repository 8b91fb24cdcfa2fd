"""A model on kernels, added from outside the package: Bayesian ridge regression on one kernel."""

import numpy as np
import pymc as pm
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.stats import multivariate_normal
from xarray import Dataset

import kernelzoo as kz
from kernelzoo import inference
from kernelzoo.inference.new_objects import check_draws, stack_of_new_objects
from kernelzoo.models import Declaration
from kernelzoo.models.kernels.labels import aligned, ids_along


class KernelRidge(Declaration):
    """w ~ N(0, 1), y ~ N(K w, sigma^2)."""

    def __init__(self, kernels, targets, *, sigma=0.3):
        stack = kz.kernels.as_stack(kernels)
        super().__init__({dim: stack.indexes[dim] for dim in ("kernel", "obs", "basis")})
        self.sigma = sigma
        y = aligned(targets, ids_along(stack, "obs"), "targets", "KernelRidge")
        with self:
            K = pm.Data("K", stack.values, dims=("kernel", "obs", "basis"))
            observed = pm.Data("targets", np.asarray(y, dtype=float), dims="obs")
            w = pm.Normal("w", dims="basis")
            pm.Normal("y", K[0] @ w, sigma, observed=observed, dims="obs")
        self.seal()


def exact(model, run):
    """Draw w from its normal posterior."""
    K, y = model["K"].get_value()[0], model["targets"].get_value()
    precision = np.eye(K.shape[1]) + K.T @ K / model.sigma**2
    factor = cho_factor(precision, lower=True)
    mean = cho_solve(factor, K.T @ y) / model.sigma**2

    def sample(draws, rng):
        noise = rng.normal(size=(len(mean), draws))
        return {"w": mean + solve_triangular(factor[0], noise, lower=True, trans=1).T}

    return inference.ExactOutput(sample, log_evidence=log_evidence(model))


def log_evidence(model):
    K, y = model["K"].get_value()[0], model["targets"].get_value()
    return multivariate_normal.logpdf(y, cov=K @ K.T + model.sigma**2 * np.eye(len(y)))


def predict(model, result, kernels_new, *, keep_draws):
    """Mean and standard deviation of the targets of new objects, and draws of the mean."""
    drawn = result["posterior"].to_dataset()
    check_draws(model, drawn, "w")
    f = stack_of_new_objects(model, kernels_new)[0] @ drawn["w"]
    sd = (f.var(("chain", "draw")) + model.sigma**2) ** 0.5
    found = Dataset({"mean": f.mean(("chain", "draw")), "target_sd": sd})
    return found.assign(mean_draws=f) if keep_draws else found


inference.add_paper(
    inference.Paper(
        KernelRidge,
        exact=inference.Algorithm(exact),
        predict=predict,
        log_evidence=log_evidence,
    )
)
