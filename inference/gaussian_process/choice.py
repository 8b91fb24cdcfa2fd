"""The width of kernels, and the scale of scores, by leave-one-out scores of one fit each.

Nothing is fitted without an object: the normal approximation of its likelihood is divided out of
the scores. Of targets, the evidence chooses, with the best scale and noise for each width. Weights
of several kernels are learned by the evidence, and kept where they predict left-out objects better
than equal ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm

from ...models.gaussian_process import JITTER, GaussianProcessClassification
from ...models.learned_scale import LEARNED
from ...numerics.feature_scores import laplace
from ...numerics.feature_targets import NormalFeatureScores, ProjectedTargets
from ...numerics.features import Features
from ...numerics.likelihoods import Likelihood
from ...user_warnings import silent
from ..engine.progress import track
from .inla import Posterior, find_mode

type Array = NDArray[np.float64]
#: Covariance of the scores of all objects (N, N), up to their scale, at a width.
type Covariance = Callable[[float], Array]

#: Factors of the gamma that the median distance chooses.
TIMES = (1 / 75, 1 / 24, 0.117, 1 / 3, 14 / 15, 8 / 3)
#: Scales that are tried, and the position of the first one.
SCALES = tuple(3.0 ** np.arange(-2, 10))
FIRST_SCALE = 5
#: Increase of the log posterior, in nats an object, after which Newton's method ends, and least
#: eigenvalue of a kernel that is kept, relative to the largest one: choices need no more. Nor need
#: the search for the mode be conditioned (`laplace` with ``rough``): of 27 splits of nine data
#: sets, 3 then have another choice, and proteins of 27 classes take twice as long.
CHOICE_NATS = 1e-4
LEAST_SQUARE = 1e-6
#: Most objects whose kernel is used as it is; of more, columns at landmarks are.
MOST_COLUMNS = 400
LANDMARKS = 200
#: Most objects by which weights are learned.
MOST_LEARNED = 300
#: Starts of the search for scale and noise, as logarithms.
LOG_STARTS = ((0.0, -1.5), (2.0, -4.0))
#: Bounds of these logarithms.
LOG_BOUNDS = ((-9.0, 12.0), (-14.0, 3.0))


def features_of(K: Array) -> Features:
    """Features of a Gram matrix (N, N): of many objects, those of the first ones as landmarks."""
    if len(K) <= MOST_COLUMNS:
        return Features.of_gram(K, LEAST_SQUARE)
    square = K[:LANDMARKS, :LANDMARKS]
    jitter = JITTER * np.trace(square) / LANDMARKS * np.eye(LANDMARKS)
    return Features.of_landmarks(K[:, :LANDMARKS], square + jitter, LEAST_SQUARE)


@dataclass
class ByLeaveOneOut:
    """Scale of the scores of classes by leave-one-out log scores at the scores' mode.

    Predictions are those of the mode, too: the class probabilities at the mean of the left-out
    score, not averaged over its distribution, which on most data sets predicts worse.
    """

    features: Features
    likelihood: Likelihood
    scores: dict[float, Array] = field(default_factory=dict)
    _weights: Array | None = None

    def at(self, scale: float) -> Array:
        """Log scores (N,) of all objects, each left out. O(C N m^2 + C m^3)."""
        if scale not in self.scores:
            fit = laplace(
                self.features,
                self.likelihood,
                scale,
                self._weights,
                most_coupled=0,
                tolerance=CHOICE_NATS,
                rough=True,
            )
            self._weights = fit.W
            self.scores[scale] = self.likelihood.log_density(fit.left_out()[0])
        return self.scores[scale]

    def best(self, scales: Sequence[float] = SCALES) -> float:
        """Scale of the highest mean score, in a climb from the first one."""
        position = climb(
            len(scales), min(FIRST_SCALE, len(scales) - 1), lambda k: self.at(scales[k]).mean()
        )
        return scales[position]


def climb(length: int, start: int, height: Callable[[int], float]) -> int:
    """Position of the highest of some heights that rise to one peak."""
    at = start
    while True:
        near = [k for k in (at, at - 1, at + 1) if 0 <= k < length]
        best = max(near, key=height)
        if best == at:
            return at
        at = best


def best_of_targets(features: Features, targets: Array) -> NormalFeatureScores:
    """Scale and noise of the highest evidence times prior of targets (N, P). O(m P) a step."""
    projected = ProjectedTargets(features, targets)
    n_outputs = targets.shape[1]

    def at(logs: Array) -> NormalFeatureScores:
        scale, noise = np.exp(logs)
        return NormalFeatureScores(projected, scale, np.full(n_outputs, noise))

    def negative(logs: Array) -> tuple[float, Array]:
        fit = at(logs)
        of_scale, of_noise = fit.gradient()
        prior, slope = LEARNED.log_density(logs[0])
        # The prior is that of the precision, 1 / noise.
        prior_of_noise, slope_of_noise = LEARNED.log_density(-logs[1])
        gradient = np.array([fit.scale * of_scale, fit.noise @ of_noise])
        gradient += slope, -slope_of_noise
        return -(fit.log_evidence + prior + prior_of_noise), -gradient

    searches = [
        minimize(negative, np.array(start), jac=True, method="L-BFGS-B", bounds=LOG_BOUNDS)
        for start in LOG_STARTS
    ]
    return at(min(searches, key=lambda search: search.fun).x)


@dataclass(frozen=True)
class Tried:
    """A width and the scale that serves it best.

    `log_scores` (N,) are those of left-out objects; `height` is what widths are compared by: their
    mean, or of targets the evidence for each object. `weights` (kernel,) are learned ones.
    """

    times: float
    scale: float
    log_scores: Array
    height: float
    weights: Array | None = None


def tried_for_classes(
    covariance: Covariance,
    likelihood: Likelihood,
    times: Sequence[float] = TIMES,
    scales: Sequence[float] = SCALES,
) -> list[Tried]:
    """Widths on a climb to the highest mean leave-one-out score, in the order of their sizes."""

    def at(width: float) -> Tried:
        by_scale = ByLeaveOneOut(features_of(covariance(width)), likelihood)
        scale = by_scale.best(scales)
        log_scores = by_scale.at(scale)
        return Tried(width, scale, log_scores, float(log_scores.mean()))

    return _climbed(at, times)


def with_learned_weights(
    stack: Array, likelihood: Likelihood, equal: Tried, scales: Sequence[float] = SCALES
) -> Tried:
    """Learned weights of kernels (kernel, N, N), if they are better than equal ones; else `equal`.

    They are those at the mode of Laplace's evidence times the default priors, of at most
    `MOST_LEARNED` objects, and better if the mean gain in log score of left-out objects is more
    than its standard error. O(C N^3) an evaluation.
    """
    rows = slice(MOST_LEARNED)
    weights = _weights_at_mode(stack[:, rows, rows], likelihood.codes[rows])
    K = np.tensordot(weights, stack, axes=1)
    (learned,) = tried_for_classes(lambda _: K, likelihood, (equal.times,), scales)
    gain = learned.log_scores - equal.log_scores
    if gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)):
        return replace(learned, weights=weights)
    return equal


def _weights_at_mode(stack: Array, codes: NDArray[np.int64]) -> Array:
    if len(np.unique(codes)) == 1:
        return np.full(len(stack), 1 / len(stack))
    with silent():
        posterior = Posterior.of(GaussianProcessClassification(stack, codes))
    with track(None, "weights", visible=False) as bar:
        mode, _ = find_mode(posterior.with_gradient, posterior.hyperparameters.start, bar)
    return posterior.hyperparameters.values(mode)["beta"]


def tried_for_targets(
    covariance: Covariance, targets: Array, times: Sequence[float] = TIMES
) -> list[Tried]:
    """Widths on a climb to the highest evidence of targets (N, P), in the order of their sizes."""

    def at(width: float) -> Tried:
        fit = best_of_targets(features_of(covariance(width)), targets)
        mean, variance = fit.left_out()
        log_scores = norm.logpdf(targets, mean, np.sqrt(variance)).sum(axis=1)
        return Tried(width, fit.scale, log_scores, fit.log_evidence / len(targets))

    return _climbed(at, times)


def _climbed(at: Callable[[float], Tried], times: Sequence[float]) -> list[Tried]:
    tried: dict[int, Tried] = {}

    def height(position: int) -> float:
        if position not in tried:
            tried[position] = at(times[position])
        return tried[position].height

    climb(len(times), len(times) // 2, height)
    return [tried[position] for position in sorted(tried)]
