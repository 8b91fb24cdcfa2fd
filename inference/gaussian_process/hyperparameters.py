"""Hyperparameters of Gaussian processes as one vector of unconstrained coordinates.

The coordinates z are log scale, the log ratios of the weights to the last one, log theta and log
gamma: those that the model learns, in this order. The log prior is the density of z, Jacobians
included, so that it is the declaration's density in these coordinates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ...models.combinations.sums import DirichletWeights
from ...models.gaussian_process import (
    JITTER,
    GaussianProcessClassification,
    GaussianProcessRegression,
)
from ...models.kernels.source import LearnedKernel
from ...models.learned_scale import LearnedScale
from ...numerics.softmax import log_sum_exp

type Array = NDArray[np.float64]
type GaussianProcess = GaussianProcessClassification | GaussianProcessRegression

LOG_2_PI = float(np.log(2 * np.pi))


class PositiveBlock:
    """Logarithms of positive numbers."""

    def values(self, z: Array) -> Array:
        """Return the numbers."""
        return np.exp(z)

    def chain(self, z: Array, gradient: Array) -> Array:
        """Turn a gradient with respect to the numbers into one with respect to z."""
        return np.exp(z) * gradient


@dataclass(frozen=True)
class LogNormalBlock(PositiveBlock):
    """Logarithms of positive numbers with a log-normal prior each."""

    prior: LearnedScale
    size: int

    @property
    def start(self) -> Array:
        """Where a search begins: at the median."""
        return np.full(self.size, np.log(self.prior.median))

    def log_prior(self, z: Array) -> tuple[float, Array]:
        """Log density of z, and its gradient."""
        deviations = (z - np.log(self.prior.median)) / self.prior.sigma
        constant = self.size * (0.5 * LOG_2_PI + np.log(self.prior.sigma))
        return -0.5 * float(deviations @ deviations) - constant, -deviations / self.prior.sigma


@dataclass(frozen=True)
class GammaBlock(PositiveBlock):
    """Logarithms of positive numbers with Gamma priors (shapes and rates)."""

    shape: Array
    rate: Array

    @property
    def start(self) -> Array:
        """Where a search begins: at the mean."""
        return np.log(self.shape / self.rate)

    def log_prior(self, z: Array) -> tuple[float, Array]:
        """Log density of z, and its gradient."""
        scaled = self.rate * np.exp(z)
        constants = self.shape * np.log(self.rate) - gammaln(self.shape)
        return float((constants + self.shape * z - scaled).sum()), self.shape - scaled


@dataclass(frozen=True)
class SimplexBlock:
    """Log ratios of weights to the last one, beta ~ Dirichlet(concentrations)."""

    concentrations: Array

    @property
    def start(self) -> Array:
        """Where a search begins: at equal weights."""
        return np.zeros(len(self.concentrations) - 1)

    def _log_weights(self, z: Array) -> Array:
        log_ratios = np.append(z, 0.0)
        return log_ratios - log_sum_exp(log_ratios)

    def values(self, z: Array) -> Array:
        """Return the weights."""
        return np.exp(self._log_weights(z))

    def log_prior(self, z: Array) -> tuple[float, Array]:
        """Log density of z, and its gradient."""
        total = self.concentrations.sum()
        constant = gammaln(total) - gammaln(self.concentrations).sum()
        log_weights = self._log_weights(z)
        gradient = self.concentrations - total * np.exp(log_weights)
        return float(constant + self.concentrations @ log_weights), gradient[:-1]

    def chain(self, z: Array, gradient: Array) -> Array:
        """Turn a gradient with respect to the weights into one with respect to z."""
        weights = self.values(z)
        return (weights * (gradient - weights @ gradient))[:-1]


type Block = LogNormalBlock | GammaBlock | SimplexBlock


class Hyperparameters:
    """What a model learns besides the scores, and the covariance as a function of it.

    Parameters
    ----------
    model : GaussianProcessRegression or GaussianProcessClassification

    Attributes
    ----------
    landmarks : array (M,)
        Rows of the objects whose kernels are the columns.
    whole : bool
        Whether all objects are, in their order.
    """

    def __init__(self, model: GaussianProcess):
        self._model = model
        self.source = model.kernel_source
        self.landmarks = model.landmarks
        self.whole = model.whole
        self.known: dict[str, Array] = {}
        self.blocks: dict[str, Block] = {}
        self.several = "output" in model.coords
        n_outputs = len(model.coords["output"]) if self.several else 1
        self._positive("scale", model.scale, 1)
        if model.learned:
            assert isinstance(model.combination, DirichletWeights)
            varphi = np.full(len(model.coords["kernel"]), model.combination.varphi, float)
            self.blocks["beta"] = SimplexBlock(varphi)
        else:
            self.known["beta"] = model["beta"].get_value()
        if self.source.parameters:
            self.blocks["theta"] = GammaBlock(self.source.omega, self.source.phi)
        if isinstance(model, GaussianProcessRegression):
            self._positive("gamma", model.gamma, n_outputs)
        sizes = [len(block.start) for block in self.blocks.values()]
        ends = np.cumsum([0, *sizes]).tolist()
        slices = map(slice, ends[:-1], ends[1:])
        self.slices = dict(zip(self.blocks, slices, strict=True))
        self.size = ends[-1]

    def _positive(self, name: str, value: float | LearnedScale, size: int) -> None:
        if isinstance(value, LearnedScale):
            self.blocks[name] = LogNormalBlock(value, size)
        else:
            self.known[name] = np.full(size, value, dtype=float)

    @cached_property
    def start(self) -> Array:
        """Coordinates at which a search begins."""
        return np.concatenate([np.empty(0), *(block.start for block in self.blocks.values())])

    def values(self, z: Array) -> dict[str, Array]:
        """Numbers, known ones among them, by the names of the variables."""
        learned = {name: block.values(z[self.slices[name]]) for name, block in self.blocks.items()}
        return self.known | learned

    def as_declared(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Values (draw, number) by variable, those of scalars with the shape (draw,)."""
        scalars = {"scale"} if self.several else {"scale", "gamma"}
        return {name: each[:, 0] if name in scalars else each for name, each in values.items()}

    def log_prior(self, z: Array) -> tuple[float, Array]:
        """Log density of the coordinates, and its gradient."""
        total = 0.0
        gradient = np.empty(self.size)
        for name, block in self.blocks.items():
            value, gradient[self.slices[name]] = block.log_prior(z[self.slices[name]])
            total += value
        return total, gradient

    @cached_property
    def _stack(self) -> Array:
        """Known kernels (kernel, obs, basis), jitter included. O(K N M)."""
        return self._with_jitter(self._model.kernel_values())

    @cached_property
    def _own_stack(self) -> Array:
        """Known kernels of the landmarks (kernel, basis, basis), jitter included. O(K M^2)."""
        if self.source.in_memory:
            own = self._model.kernel_values()[:, self.landmarks]
        else:
            own = self._model["K"].get_value()
        jitters = JITTER * np.einsum("kmm->k", own) / own.shape[1]
        return own + jitters[:, None, None] * np.eye(own.shape[1])

    def stack(self, values: Mapping[str, Array]) -> Array:
        """Kernels (kernel, obs, basis), jitter included."""
        if not self.source.parameters:
            return self._stack
        return self._with_jitter(self.source.evaluate(values["theta"]))

    def _with_jitter(self, stack: Array) -> Array:
        """Kernels with the declaration's jitter on the landmarks' variances."""
        columns = np.arange(len(self.landmarks))
        means = stack[:, self.landmarks, columns].mean(axis=1)
        raised = stack.copy()
        raised[:, self.landmarks, columns] += JITTER * means[:, None]
        return raised

    def covariance(self, values: Mapping[str, Array]) -> Array:
        """Covariance of the scores with those of the landmarks (obs, basis). O(K N M)."""
        weights = values["scale"] * values["beta"]
        return np.tensordot(weights, self.stack(values), axes=1)

    def covariance_of_landmarks(self, values: Mapping[str, Array]) -> Array:
        """Covariance (basis, basis) of the landmarks' scores. O(K M^2) without theta."""
        weights = values["scale"] * values["beta"]
        if self.source.parameters:
            return self.covariance(values)[self.landmarks]
        return np.tensordot(weights, self._own_stack, axes=1)

    def chain(
        self, z: Array, values: Mapping[str, Array], of_covariance: Array, of_noise: Array | None
    ) -> Array:
        """Gradient with respect to z from those with respect to covariance and noise variances.

        The covariance is (obs, basis), that of the landmarks being some rows of it: O(K N M), plus
        O(N M D) per kernel with D parameters.
        """
        scale = float(values["scale"][0])
        beta = values["beta"]
        stack = self.stack(values)
        of_kernels = stack.reshape(len(stack), -1) @ of_covariance.ravel()
        gradients: dict[str, Any] = {
            "scale": np.array([beta @ of_kernels]),
            "beta": scale * of_kernels,
        }
        if self.source.parameters:
            gradients["theta"] = np.concatenate(
                [
                    scale * beta[kernel.position] * self._slopes(kernel, stack, of_covariance)
                    for kernel, _ in self.source.learned_parts()
                ]
            )
        if of_noise is not None:
            # The variance is 1 / gamma.
            gradients["gamma"] = -of_noise / values["gamma"] ** 2
        parts = [
            block.chain(z[self.slices[name]], gradients[name])
            for name, block in self.blocks.items()
        ]
        return np.concatenate([np.empty(0), *parts])

    def _slopes(self, kernel: LearnedKernel, stack: Array, weights: Array) -> Array:
        """Sum of weights times the derivative of a kernel, by parameter (D,) or (1,).

        The derivative of exp(-sum_d theta_d (x_d - y_d)^2) is -(x_d - y_d)^2 times the kernel.
        """
        weighted = weights * stack[kernel.position]
        weighted[self.landmarks, np.arange(len(self.landmarks))] = 0.0
        X = kernel.rows - kernel.centre
        Y = kernel.columns - kernel.centre
        squares = weighted.sum(axis=1) @ X**2 + weighted.sum(axis=0) @ Y**2
        slopes = 2.0 * np.einsum("nd,nd->d", X, weighted @ Y) - squares
        return slopes if kernel.theta.ard else slopes.sum(keepdims=True)
