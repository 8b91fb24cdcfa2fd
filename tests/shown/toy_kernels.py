"""Two models on a kernel, added from outside the package.

They are ridge regression, and a robust one.
"""

import numpy as np
import pymc as pm
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.stats import multivariate_normal
from xarray import Dataset, dot

import kernelzoo as kz
from kernelzoo import inference
from kernelzoo.custom_steps import GibbsBlock
from kernelzoo.inference.new_objects import (
    check_draws,
    stack_of_new_objects,
)
from kernelzoo.models import Declaration
from kernelzoo.models.kernels.labels import aligned, ids_along
from kernelzoo.validation import (
    argument_error,
    check_positive,
    check_targets,
)


class OnOneKernel(Declaration):
    """What the two models share: f = K w with w ~ N(0, 1).

    Each has a constructor of its own.
    """

    def declare_function(self, kernels, targets, sigma):
        owner, stack = type(self).__name__, kz.kernels.as_stack(kernels)
        number = stack.sizes["kernel"]
        if number != 1:
            raise argument_error(
                "kernels", owner, "one kernel", str(number)
            )
        y = aligned(targets, ids_along(stack, "obs"), "targets", owner)
        y = check_targets(y, stack.sizes["obs"], owner)
        self.sigma = check_positive(sigma, "sigma", owner)
        self.add_kernels(stack)
        K = pm.Data("K", stack.values, dims=("kernel", "obs", "basis"))
        f = K[0] @ pm.Normal("w", dims="basis")
        return f, pm.Data("targets", y, dims="obs")


class KernelRidge(OnOneKernel):
    """y ~ N(f, sigma^2)."""

    def __init__(self, kernels, targets, *, sigma=0.3):
        super().__init__()
        with self:
            f, y = self.declare_function(kernels, targets, sigma)
            pm.Normal("y", f, self.sigma, observed=y, dims="obs")
        self.seal()


def exact(model, run):
    """Draw w from its normal posterior."""
    K, y = model["K"].get_value()[0], model["targets"].get_value()
    precision = np.eye(K.shape[1]) + K.T @ K / model.sigma**2
    factor = cho_factor(precision, lower=True)
    mean = cho_solve(factor, K.T @ y) / model.sigma**2

    def sample(draws, rng):
        z = rng.normal(size=(len(mean), draws))
        noise = solve_triangular(factor[0], z, lower=True, trans=1)
        return {"w": mean + noise.T}

    evidence = log_evidence(model)
    return inference.ExactOutput(sample, log_evidence=evidence)


def log_evidence(model):
    K, y = model["K"].get_value()[0], model["targets"].get_value()
    covariance = K @ K.T + model.sigma**2 * np.eye(len(y))
    return multivariate_normal.logpdf(y, cov=covariance)


def predict(model, result, kernels_new, *, keep_draws):
    """Mean and standard deviation of the targets of new objects.

    With `keep_draws`, draws of the mean as well.
    """
    drawn = result["posterior"].to_dataset()
    check_draws(model, drawn, "w")
    f = stack_of_new_objects(model, kernels_new)[0] @ drawn["w"]
    sd = (f.var(("chain", "draw")) + model.sigma**2) ** 0.5
    mean = f.mean(("chain", "draw"))
    found = Dataset({"mean": mean, "target_sd": sd})
    return found.assign(mean_draws=f) if keep_draws else found


def identified(result, variant):
    """Compare engines on f = K w.

    Where K is nearly singular, the data say little of w.
    """
    K, w = result["constant_data"]["K"][0], result["posterior"]["w"]
    return Dataset({"f": dot(K, w, dim="basis")})


inference.add_paper(
    inference.Paper(
        KernelRidge,
        exact=inference.Algorithm(exact),
        predict=predict,
        identified=identified,
        identified_reads=["w"],
        log_evidence=log_evidence,
    )
)


class RobustRidge(OnOneKernel):
    """y ~ StudentT(nu, f, sigma)."""

    def __init__(self, kernels, targets, *, sigma=0.3, nu=4.0):
        super().__init__()
        self.nu = check_positive(nu, "nu", "RobustRidge")
        with self:
            f, y = self.declare_function(kernels, targets, sigma)
            law = {"nu": self.nu, "mu": f, "sigma": self.sigma}
            pm.StudentT("y", **law, observed=y, dims="obs")
        self.seal()


class ScaleMixture(GibbsBlock):
    """Redraw w given the objects' precisions.

    The sweep draws and forgets them: y_n ~ N(f_n, 1 / v_n) with
    v_n ~ Gamma(nu / 2, nu sigma^2 / 2) is the Student t distribution.
    """

    declarations = (RobustRidge,)

    def prepare(self, model, given):
        self.K = model["K"].get_value()[0]
        self.y = model["targets"].get_value()
        self.nu, self.sigma = model.nu, model.sigma
        return ["w"], []

    def precisions(self, residuals, rng):
        rate = 0.5 * (self.nu * self.sigma**2 + residuals**2)
        return rng.gamma(0.5 * (self.nu + 1), 1 / rate)

    def sweep(self, values, rng):
        v = self.precisions(self.y - self.K @ values["w"], rng)
        precision = np.eye(self.K.shape[1]) + (self.K.T * v) @ self.K
        factor = np.linalg.cholesky(precision)
        mean = cho_solve((factor, True), self.K.T @ (v * self.y))
        z = rng.normal(size=len(mean))
        noise = solve_triangular(factor, z, lower=True, trans=1)
        return {"w": mean + noise}, {}


def gibbs(model, run):
    return [ScaleMixture(model=model)]


inference.add_paper(
    inference.Paper(
        RobustRidge,
        gibbs=inference.Algorithm(gibbs),
        identified=identified,
        identified_reads=["w"],
    )
)
