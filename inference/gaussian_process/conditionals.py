"""Posterior of the scores given the hyperparameters, one class per covariance and likelihood.

Of Gram matrices the scores f of all objects are normal, exactly or nearly; of kernels at landmarks
the weights of their features are. Both give draws of the declaration's v and f, and a gradient with
respect to the kernels (obs, basis).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, override

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from ...models.gaussian_process import GaussianProcessRegression
from ...models.kernels.chunked_stack import ChunkedStack
from ...numerics import feature_scores, gaussian_scores
from ...numerics.expectation_propagation import (
    NormalScores,
    expectation_propagation,
    linear_terms,
    log_predictive,
)
from ...numerics.feature_precision import is_joint
from ...numerics.feature_scores import FeatureScores
from ...numerics.feature_targets import NormalFeatureScores, ProjectedTargets
from ...numerics.features import Features
from ...numerics.gaussian_process import NormalRegression, cholesky
from ...numerics.gaussian_scores import GaussianScores
from ...numerics.likelihoods import Likelihood, likelihood_of
from ...numerics.softmax import log_sum_exp
from .chunks import ChunkedFeatures
from .hyperparameters import GaussianProcess, Hyperparameters

type Array = NDArray[np.float64]
type Values = Mapping[str, Array]
# What makes an approximation of the scores again, or what a search for one can begin with; nothing
# for exact ones.
type Sites = tuple[Array, ...]

#: Least number of candidates for draws of the scores.
CANDIDATES = 64
#: Most objects with landmarks that have expectation propagation: with more of them for each
#: landmark Laplace's approximation is nearly exact.
PROPAGATED = 5_000


class Evidence(NamedTuple):
    """Log evidence at a point, with what makes the posterior of the scores there again.

    Attributes
    ----------
    log_evidence : float
    sites : tuple
        For `Conditionals.again`.
    start : tuple
        What the search at another point can begin with.
    """

    log_evidence: float
    sites: Sites = ()
    start: Sites = ()


class Conditional(Protocol):
    """Posterior of the scores given hyperparameters."""

    @property
    def log_evidence(self) -> float:
        """Log density of the observations; of classes Laplace's approximation."""

    @property
    def start(self) -> Array | None:
        """What the search for another one can begin with."""

    @property
    def start_of_evidence(self) -> Sites:
        """What `Conditionals.evidence` can begin with, here or at another point."""

    def gradient(self) -> tuple[Array, Array | None]:
        """Gradient with respect to covariances (obs, basis) and variances of the noise."""

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

    def evidence(self, values: Values, start: Sites) -> Evidence:
        """Log evidence, of classes better than Laplace's. Raises NotPositiveDefiniteError."""

    def again(self, values: Values, sites: Sites) -> Conditional:
        """Make the posterior again that had these sites."""


def conditionals_of(model: GaussianProcess, hyperparameters: Hyperparameters) -> Conditionals:
    """Read the current data of a model."""
    if isinstance(model, GaussianProcessRegression):
        targets = model.target_values.reshape(len(model.target_values), -1)
        of_targets = GramTargets if hyperparameters.whole else LandmarkTargets
        return of_targets(hyperparameters, targets)
    likelihood = likelihood_of(model.label_codes, model.n_classes)
    of_classes = GramClasses if hyperparameters.whole else LandmarkClasses
    return of_classes(hyperparameters, likelihood)


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
    def evidence(self, values: Values, start: Sites) -> Evidence:
        return Evidence(self.at(values).log_evidence)

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

    @property
    @override
    def start_of_evidence(self) -> Sites:
        return ()

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        return self.fit.gradient()

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
    """Classes on Gram matrices. O(C N^3)."""

    hyperparameters: Hyperparameters
    likelihood: Likelihood

    @override
    def at(self, values: Values, start: Array | None) -> Conditional:
        K = self.hyperparameters.covariance(values)
        return OfGramClasses(gaussian_scores.laplace(K, self.likelihood, start))

    @override
    def evidence(self, values: Values, start: Sites) -> Evidence:
        K = self.hyperparameters.covariance(values)
        of_sites = partial(GaussianScores.of_sites, K, self.likelihood)
        fit = expectation_propagation(of_sites, *start)
        if fit is None:
            fit = gaussian_scores.laplace(K, self.likelihood)
        return Evidence(fit.log_evidence, fit.without_matrices(), _start_at(fit))

    @override
    def again(self, values: Values, sites: Sites) -> Conditional:
        K = self.hyperparameters.covariance(values)
        return OfGramClasses(GaussianScores.with_matrices(K, self.likelihood, *sites))


@dataclass(frozen=True)
class OfGramClasses(Conditional):
    """Normal approximation of the scores given classes."""

    fit: GaussianScores

    @property
    @override
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    @override
    def start(self) -> Array:
        return self.fit.a

    @property
    @override
    def start_of_evidence(self) -> Sites:
        return _start_at(self.fit)

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        return self.fit.gradient(), None

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


def _start_at(fit: NormalScores) -> Sites:
    return fit.sites.d, linear_terms(fit)


def _candidates(number: int) -> int:
    """Draws of which `number` are chosen by their ratios."""
    return max(CANDIDATES, 2 * number)


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
        source = self.hyperparameters.source
        landmarks = self.hyperparameters.landmarks
        if isinstance(source, ChunkedStack):
            own = self.hyperparameters.covariance_of_landmarks(unscaled)
            return ChunkedFeatures(source, unscaled["beta"], own)
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
    def evidence(self, values: Values, start: Sites) -> Evidence:
        return Evidence(self.at(values).log_evidence)

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

    @property
    @override
    def start_of_evidence(self) -> Sites:
        return ()

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        pulled = self.fit.gradient_of_covariance()
        of_covariances = self.features.gradient(self.fit.of.features, pulled)
        return of_covariances, self.fit.gradient()[1]

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
    """Classes on kernels at landmarks. O(C^2 N M^2) for few weights of features, see `laplace`."""

    hyperparameters: Hyperparameters
    likelihood: Likelihood

    def __post_init__(self) -> None:
        self.features = FeaturesOfLandmarks(self.hyperparameters)
        self.latest: FeatureScores | None = None

    @override
    def at(self, values: Values, start: Array | None) -> "OfLandmarkClasses":
        features = self.features.at(values)
        scale = float(values["scale"][0])
        latest = self.latest
        if latest and (latest.features, latest.scale) == (features, scale) and start is latest.a:
            return OfLandmarkClasses(latest, self)
        W = None if start is None else np.sqrt(scale) * (features.values.T @ start)
        self.latest = feature_scores.laplace(features, self.likelihood, scale, W)
        return OfLandmarkClasses(self.latest, self)

    def is_propagated(self, features: Features) -> bool:
        """Whether there is expectation propagation, and not only Laplace's approximation."""
        few = features.n_objects <= PROPAGATED
        return few and is_joint(features, self.likelihood)

    @override
    def evidence(self, values: Values, start: Sites) -> Evidence:
        features = self.features.at(values)
        scale = float(values["scale"][0])
        if self.is_propagated(features):
            of_sites = partial(FeatureScores.of_sites, features, self.likelihood, scale)
            fit = expectation_propagation(of_sites, *start)
            if fit is None:
                fit = feature_scores.laplace(features, self.likelihood, scale)
            return Evidence(fit.log_evidence, fit.without_matrices(), _start_at(fit))
        mode = self.at(values, *start)
        return Evidence(mode.log_evidence, mode.fit.without_matrices(), mode.start_of_evidence)

    @override
    def again(self, values: Values, sites: Sites) -> Conditional:
        # The mode alone, as it is: its matrices are those of the last pass over the objects.
        if self.latest is not None and sites[0] is self.latest.a:
            return OfLandmarkClasses(self.latest, self)
        features = self.features.at(values)
        scale = float(values["scale"][0])
        fit = FeatureScores.with_matrices(features, self.likelihood, scale, *sites)
        return OfLandmarkClasses(fit, self)


@dataclass(frozen=True)
class OfLandmarkClasses(Conditional):
    """Normal approximation of the weights given classes."""

    fit: FeatureScores
    of: LandmarkClasses

    @property
    @override
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    @property
    @override
    def start(self) -> Array:
        return self.fit.a

    @property
    @override
    def start_of_evidence(self) -> Sites:
        propagated = self.of.is_propagated(self.fit.features)
        return _start_at(self.fit) if propagated else (self.fit.a,)

    @override
    def gradient(self) -> tuple[Array, Array | None]:
        return self.of.features.gradient(self.fit.features, self.fit.gradient()), None

    @override
    def left_out(self) -> Array:
        mean, variances = self.fit.left_out()
        covariances = variances[:, :, None] * np.eye(variances.shape[1])
        return log_predictive(self.fit.likelihood, mean, covariances)[:, None]

    @override
    def draw(self, number: int, rng: np.random.Generator) -> Array:
        if self.of.is_propagated(self.fit.features):
            normal = rng.standard_normal((_candidates(number), *self.fit.W.shape))
            W, log_ratios = self.fit.log_ratios(normal)
            W = W[_by_ratios(log_ratios, number, rng)]
        else:
            W = self.fit.draw(number, rng)
        return _whitened(self.fit.features, W, rng)

    @override
    def scores_of(self, v: Array) -> Array:
        return _scores(self.fit.features, self.fit.scale, v)
