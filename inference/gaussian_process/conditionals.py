"""Posterior of the scores given the hyperparameters, one class per covariance and likelihood.

Of Gram matrices the scores f of all objects are normal, exactly or nearly; of kernels at landmarks
the weights of their features are. Both give draws of the declaration's v and f, and a gradient with
respect to the kernels (obs, basis).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, override

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from ...models.gaussian_process import GaussianProcessRegression
from ...models.kernels.dask_stack import DaskStack
from ...numerics import feature_scores, gaussian_scores
from ...numerics.feature_scores import (
    Features,
    FeatureScores,
    NormalFeatureScores,
    ProjectedTargets,
    is_joint,
)
from ...numerics.gaussian_process import NormalRegression, cholesky
from ...numerics.gaussian_scores import (
    GaussianScores,
    Likelihood,
    best_gaussian,
    likelihood_of,
    log_predictive,
)
from ...numerics.softmax import log_sum_exp
from .chunks import ChunkedFeatures
from .hyperparameters import GaussianProcess, Hyperparameters

type Array = NDArray[np.float64]
type Values = Mapping[str, Array]
# What makes the best normal approximation again; nothing if it is quickly found.
type Sites = tuple[Array, ...]

#: Draws of the scores at each point, of which a mean is the point's evidence.
SCORES_DRAWN = 64
#: Most objects with landmarks whose normal approximation is corrected by importance: with more of
#: them for each landmark it is nearly exact.
CORRECTED = 5_000


class Conditional(Protocol):
    """Posterior of the scores given hyperparameters."""

    @property
    def log_evidence(self) -> float:
        """Log density of the observations; of classes Laplace's approximation."""

    @property
    def start(self) -> Array | None:
        """What the search for another one can begin with."""

    def gradient(self) -> tuple[Array, Array | None]:
        """Gradient with respect to covariances (obs, basis) and variances of the noise."""

    def log_ratios(self) -> tuple[Array, Sites]:
        """Log ratios (S,) whose mean is the evidence, and what `again` needs."""

    def left_out(self) -> Array:
        """Log predictive densities (obs, output) of observations, each given all others."""

    def draw(self, number: int, rng: np.random.Generator) -> Array:
        """Draws of v (number, basis, function)."""

    def scores_of(self, v: Array) -> Array:
        """Scores f (number, obs, function) of v."""


class Conditionals(Protocol):
    """Posteriors of the scores as a function of hyperparameters."""

    def at(self, values: Values, start: Array | None) -> Conditional:
        """Find the posterior. Raises NotPositiveDefiniteError."""

    def again(self, values: Values, sites: Sites) -> Conditional:
        """Make the posterior again that had these sites."""


def conditionals_of(
    model: GaussianProcess, hyperparameters: Hyperparameters, rng: np.random.Generator
) -> Conditionals:
    """Read the current data of a model; `rng` makes the numbers that all points share."""
    if isinstance(model, GaussianProcessRegression):
        targets = model.target_values.reshape(len(model.target_values), -1)
        of_targets = GramTargets if hyperparameters.whole else LandmarkTargets
        return of_targets(hyperparameters, targets)
    likelihood = likelihood_of(model.label_codes, model.n_classes)
    n_objects, n_functions = likelihood.shape
    if hyperparameters.whole:
        numbers = rng.standard_normal((2, n_objects, n_functions, SCORES_DRAWN))
        return GramClasses(hyperparameters, likelihood, *numbers)
    n_landmarks = len(hyperparameters.landmarks)
    normal = rng.standard_normal((SCORES_DRAWN, n_landmarks, n_functions))
    return LandmarkClasses(hyperparameters, likelihood, normal)


@dataclass
class GramTargets(Conditionals):
    """Normal targets (obs, output) on Gram matrices. O(N^3)."""

    hyperparameters: Hyperparameters
    targets: Array

    @override
    def at(self, values: Values, start: Array | None = None) -> Conditional:
        K = self.hyperparameters.covariance(values)
        return OfGramTargets(NormalRegression(K, self.targets, _noise(values, self.targets)))

    @override
    def again(self, values: Values, sites: Sites) -> Conditional:
        return self.at(values)


def _noise(values: Values, targets: Array) -> Array:
    return np.broadcast_to(1.0 / values["gamma"], targets.shape[1])


@dataclass(frozen=True)
class OfGramTargets(Conditional):
    """Posterior of the scores given normal targets."""

    fit: NormalRegression

    @property
    @override
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    @override
    def start(self) -> None:
        return None

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        return self.fit.gradient()

    @override
    def log_ratios(self) -> tuple[Array, Sites]:
        return np.array([self.log_evidence]), ()

    @cached_property
    def root(self) -> Array:
        """Cholesky factor of the covariance."""
        return cholesky(self.fit.K)

    @override
    def left_out(self) -> Array:
        mean, variance = self.fit.left_out()
        return norm.logpdf(self.fit.targets, mean, np.sqrt(variance))

    @override
    def draw(self, number: int, rng: np.random.Generator) -> Array:
        normal, noise = rng.standard_normal((2, *self.fit.targets.shape, number))
        return self.fit.draw(self.root, normal, noise).transpose(2, 0, 1)

    @override
    def scores_of(self, v: Array) -> Array:
        return np.matmul(self.root, v)


@dataclass
class GramClasses(Conditionals):
    """Classes on Gram matrices. O(C N^3).

    `normal` and `noise` are standard normal numbers (obs, function, draw) of which the scores'
    draws are made at every point: with the same ones, points are compared with less noise.
    """

    hyperparameters: Hyperparameters
    likelihood: Likelihood
    normal: Array
    noise: Array

    @override
    def at(self, values: Values, start: Array | None) -> Conditional:
        K = self.hyperparameters.covariance(values)
        return OfGramClasses(gaussian_scores.laplace(K, self.likelihood, start), self)

    @override
    def again(self, values: Values, sites: Sites) -> Conditional:
        K = self.hyperparameters.covariance(values)
        return OfGramClasses(GaussianScores.with_matrices(K, self.likelihood, *sites), self)


@dataclass(frozen=True)
class OfGramClasses(Conditional):
    """Normal approximation of the scores given classes."""

    fit: GaussianScores
    of: GramClasses

    @property
    @override
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    @override
    def start(self) -> Array:
        return self.fit.a

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        return self.fit.gradient(), None

    @override
    def log_ratios(self) -> tuple[Array, Sites]:
        best = best_gaussian(self.fit)
        drawn = best.draw(self.root, self.of.normal, self.of.noise)
        return best.log_ratios(self.root, drawn), best.without_matrices()

    @cached_property
    def root(self) -> Array:
        """Cholesky factor of the covariance."""
        return cholesky(self.fit.K)

    @override
    def left_out(self) -> Array:
        mean, covariances = self.fit.left_out()
        return log_predictive(self.fit.likelihood, mean, covariances)[:, None]

    @override
    def draw(self, number: int, rng: np.random.Generator) -> Array:
        normal, noise = rng.standard_normal((2, *self.fit.a.shape, _candidates(number)))
        v = self.fit.draw(self.root, normal, noise)
        log_ratios = self.fit.log_ratios(self.root, v)
        return v[..., _by_ratios(log_ratios, number, rng)].transpose(2, 0, 1)

    @override
    def scores_of(self, v: Array) -> Array:
        return np.matmul(self.root, v)


def _candidates(number: int) -> int:
    """Draws of which `number` are chosen by their ratios."""
    return max(SCORES_DRAWN, 2 * number)


def _by_ratios(log_ratios: Array, number: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return systematic(np.exp(log_ratios - log_sum_exp(log_ratios)), number, rng)


def systematic(weights: Array, number: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw indices (number,) by weights that sum to 1, each number * w times, rounded."""
    levels = (rng.random() + np.arange(number)) / number
    cumulative = weights.cumsum()
    return np.searchsorted(cumulative / cumulative[-1], levels)


@dataclass
class FeaturesOfLandmarks:
    """Features of the composite kernel, kept while only the scale and the noise change."""

    hyperparameters: Hyperparameters
    latest: tuple[bytes, Any] = field(default=(b"", None), init=False)

    def at(self, values: Values) -> Features:
        """Features without the scale. O(K N M + N M^2)."""
        given = [values["beta"], values.get("theta", np.empty(0))]
        key = np.concatenate(given).tobytes()
        if key != self.latest[0]:
            self.latest = key, self._made({**values, "scale": np.ones(1)})
        return self.latest[1]

    def _made(self, unscaled: Values) -> Features:
        source, landmarks = self.hyperparameters.source, self.hyperparameters.landmarks
        if isinstance(source, DaskStack):
            own = self.hyperparameters.covariance_of_landmarks(unscaled)
            return ChunkedFeatures(source, unscaled["beta"], own, landmarks)
        K = self.hyperparameters.covariance(unscaled)
        return Features.of_landmarks(K, K[landmarks])

    def gradient(self, features: Features, pulled: Array) -> Array:
        """Gradient with respect to the covariances (obs, basis), of which the landmarks' are rows.

        `pulled` is as in `Features.gradient`.
        """
        of_covariances, of_landmarks = features.gradient(pulled)
        of_covariances[self.hyperparameters.landmarks] += of_landmarks
        return of_covariances


class LandmarkTargets(Conditionals):
    """Normal targets (obs, output) on kernels at landmarks. O(N M^2) if the kernel changes."""

    def __init__(self, hyperparameters: Hyperparameters, targets: Array):
        self.features = FeaturesOfLandmarks(hyperparameters)
        self.targets = targets
        self.projected: ProjectedTargets | None = None

    @override
    def at(self, values: Values, start: Array | None = None) -> Conditional:
        features = self.features.at(values)
        if self.projected is None or self.projected.features is not features:
            self.projected = ProjectedTargets(features, self.targets)
        scale = float(values["scale"][0])
        fit = NormalFeatureScores(self.projected, scale, _noise(values, self.targets))
        return OfLandmarkTargets(fit, self.features)

    @override
    def again(self, values: Values, sites: Sites) -> Conditional:
        return self.at(values)


@dataclass(frozen=True)
class OfLandmarkTargets(Conditional):
    """Posterior of the weights given normal targets."""

    fit: NormalFeatureScores
    features: FeaturesOfLandmarks

    @property
    @override
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    @override
    def start(self) -> None:
        return None

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        pulled = self.fit.gradient_of_covariance()
        of_covariances = self.features.gradient(self.fit.of.features, pulled)
        return of_covariances, self.fit.gradient()[1]

    @override
    def log_ratios(self) -> tuple[Array, Sites]:
        return np.array([self.log_evidence]), ()

    @override
    def left_out(self) -> Array:
        mean, variance = self.fit.left_out()
        return norm.logpdf(self.fit.of.targets, mean, np.sqrt(variance))

    @override
    def draw(self, number: int, rng: np.random.Generator) -> Array:
        return _whitened(self.fit.of.features, self.fit.draw(number, rng), rng)

    @override
    def scores_of(self, v: Array) -> Array:
        return _scores(self.fit.of.features, self.fit.scale, v)


def _whitened(features: Features, W: Array, rng: np.random.Generator) -> Array:
    """Draws of v (draw, basis, function) of weights (draw, m, function)."""
    normal = rng.standard_normal((len(W), len(features.rotation), W.shape[2]))
    return features.whitened(W, normal)


def _scores(features: Features, scale: float, v: Array) -> Array:
    """Scores f (draw, obs, function) of v (draw, basis, function)."""
    W = features.rotation.T @ v
    together = W.swapaxes(0, 1).reshape(W.shape[1], -1)
    f = np.sqrt(scale) * features.times(together)
    return f.reshape(-1, len(W), W.shape[2]).swapaxes(0, 1)


@dataclass
class LandmarkClasses(Conditionals):
    """Classes on kernels at landmarks. O(C^2 N M^2) for few weights of features, see `laplace`.

    `normal` are standard normal numbers (draw, basis, function) of which the scores' draws are
    made at every point.
    """

    hyperparameters: Hyperparameters
    likelihood: Likelihood
    normal: Array

    def __post_init__(self) -> None:
        self.features = FeaturesOfLandmarks(self.hyperparameters)
        self.latest: FeatureScores | None = None

    @override
    def at(self, values: Values, start: Array | None) -> Conditional:
        features, scale = self.features.at(values), float(values["scale"][0])
        W = None if start is None else np.sqrt(scale) * (features.values.T @ start)
        self.latest = feature_scores.laplace(features, self.likelihood, scale, W)
        return OfLandmarkClasses(self.latest, self)

    @override
    def again(self, values: Values, sites: Sites) -> Conditional:
        # The mode alone, as it is: its matrices are those of the last pass over the objects.
        if self.latest is not None and sites[0] is self.latest.a:
            return OfLandmarkClasses(self.latest, self)
        features, scale = self.features.at(values), float(values["scale"][0])
        fit = FeatureScores.with_matrices(features, self.likelihood, scale, *sites)
        return OfLandmarkClasses(fit, self)


@dataclass(frozen=True)
class OfLandmarkClasses(Conditional):
    """Normal approximation of the weights given classes."""

    fit: FeatureScores
    of: LandmarkClasses

    @property
    def corrected(self) -> bool:
        """Whether draws are weighted by importance."""
        few = len(self.fit.mean) <= CORRECTED
        return few and is_joint(self.fit.features, self.fit.likelihood)

    @property
    @override
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    @override
    def start(self) -> Array:
        return self.fit.a

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        return self.of.features.gradient(self.fit.features, self.fit.gradient()), None

    @override
    def log_ratios(self) -> tuple[Array, Sites]:
        if not self.corrected:
            return np.array([self.log_evidence]), self.fit.without_matrices()
        best = best_gaussian(self.fit)
        # The same numbers of whitened scores, whatever the features are.
        normal = best.features.rotation.T @ self.of.normal
        return best.log_ratios(normal)[1], best.without_matrices()

    @override
    def left_out(self) -> Array:
        mean, variances = self.fit.left_out()
        covariances = variances[:, :, None] * np.eye(variances.shape[1])
        return log_predictive(self.fit.likelihood, mean, covariances)[:, None]

    @override
    def draw(self, number: int, rng: np.random.Generator) -> Array:
        if self.corrected:
            normal = rng.standard_normal((_candidates(number), *self.fit.W.shape))
            W, log_ratios = self.fit.log_ratios(normal)
            W = W[_by_ratios(log_ratios, number, rng)]
        else:
            W = self.fit.draw(number, rng)
        return _whitened(self.fit.features, W, rng)

    @override
    def scores_of(self, v: Array) -> Array:
        return _scores(self.fit.features, self.fit.scale, v)
