"""The width of kernels, and the scale of scores, by leave-one-out scores of one fit each.

Nothing is fitted without an object: the normal approximation of its likelihood is divided out of
the scores. Of targets, the evidence chooses, with the best scale and noise for each width. Weights
of several kernels are learned by the evidence, and kept where they predict left-out objects better
than equal ones.

Objects of one group, such as the samples of a person, are left out together. The evidence does not
know of groups: where samples of a person have one target, its noise goes to zero. So log scores of
targets that are left out by groups choose the scale and the noise, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm

from ...models.combinations.sums import FixedWeights
from ...models.gaussian_process import JITTER
from ...models.learned_scale import LEARNED
from ...numerics.feature_scores import laplace
from ...numerics.feature_targets import NormalFeatureScores, ProjectedTargets
from ...numerics.features import Features
from ...numerics.groups import Groups
from ...numerics.likelihoods import Likelihood
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
    groups: Groups | None = None
    scores: dict[float, Array] = field(default_factory=dict)
    _weights: Array | None = None

    def at(self, scale: float) -> Array:
        """Log scores (N,) of all objects, each left out, with its group. O(C N m^2 + C m^3)."""
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
            self.scores[scale] = self.likelihood.log_density(fit.left_out(self.groups)[0])
        return self.scores[scale]

    def height(self, scale: float) -> float:
        """Mean log score, by which scales and kernels are compared.

        Groups count once each, and as they are few, so does the default prior of the scale.
        """
        if self.groups is None:
            return float(self.at(scale).mean())
        of_groups = np.bincount(self.groups, self.at(scale)) / np.bincount(self.groups)
        prior, _ = LEARNED.log_density(np.log(scale))
        return float(of_groups.mean()) + prior / len(of_groups)

    def best(self, scales: Sequence[float] = SCALES) -> float:
        """Scale of the greatest height, in a climb from the first one."""
        first = min(FIRST_SCALE, len(scales) - 1)
        return scales[climb(len(scales), first, lambda k: self.height(scales[k]))]


def climb(length: int, start: int, height: Callable[[int], float]) -> int:
    """Position of the highest of some heights that rise to one peak."""
    at = start
    while True:
        near = [k for k in (at, at - 1, at + 1) if 0 <= k < length]
        best = max(near, key=height)
        if best == at:
            return at
        at = best


def best_of_targets(
    features: Features,
    targets: Array,
    groups: Groups | None = None,
    *,
    scale: float | None = None,
    noise: float | None = None,
) -> NormalFeatureScores:
    """Scale and noise of the highest evidence times prior of targets (N, P). O(m P) a step.

    Either may be given. With groups, log scores of left-out groups take the place of the evidence,
    in O(n^2 m + n^3) for each group of n objects.
    """
    projected = ProjectedTargets(features, targets)
    n_outputs = targets.shape[1]

    def at(logs: Array) -> NormalFeatureScores:
        of_scores, of_targets = np.exp(logs)
        return NormalFeatureScores(projected, of_scores, np.full(n_outputs, of_targets))

    def prior(logs: Array) -> tuple[float, Array]:
        density, slope = LEARNED.log_density(logs[0])
        # The prior is that of the precision, 1 / noise.
        density_of_noise, slope_of_noise = LEARNED.log_density(-logs[1])
        return density + density_of_noise, np.array([slope, -slope_of_noise])

    def by_evidence(logs: Array) -> tuple[float, Array]:
        fit = at(logs)
        of_scale, of_noise = fit.gradient()
        density, slopes = prior(logs)
        gradient = np.array([fit.scale * of_scale, fit.noise @ of_noise])
        return -(fit.log_evidence + density), -(gradient + slopes)

    def by_groups(logs: Array) -> float:
        return -(_log_scores_of_targets(at(logs), groups).sum() + prior(logs)[0])

    given = np.array([scale is not None, noise is not None])
    known = np.log([scale or 1.0, noise or 1.0])
    searches = [
        minimize(
            by_evidence if groups is None else by_groups,
            np.where(given, known, start),
            jac=groups is None,
            method="L-BFGS-B",
            bounds=np.where(given[:, None], known[:, None], LOG_BOUNDS),
        )
        for start in LOG_STARTS
    ]
    return at(min(searches, key=lambda search: search.fun).x)


def _log_scores_of_targets(fit: NormalFeatureScores, groups: Groups | None) -> Array:
    """Log scores (N,) of left-out objects, summed over their targets."""
    mean, variance = fit.left_out(groups)
    return norm.logpdf(fit.of.targets, mean, np.sqrt(variance)).sum(axis=1)


@dataclass(frozen=True)
class Tried:
    """A width and the scale that serves it best.

    `log_scores` (N,) are those of left-out objects; `height` is what widths are compared by: their
    mean, which of classes in groups counts groups once and has the scale's prior, or of targets
    without groups the evidence for each object. `weights` (kernel,) are learned ones. `noise` is
    the variance of targets that left-out groups choose.
    """

    times: float
    scale: float
    log_scores: Array
    height: float
    weights: Array | None = None
    noise: float | None = None

    @property
    def combination(self) -> FixedWeights:
        """Learned weights of the kernels, or equal ones."""
        return FixedWeights() if self.weights is None else FixedWeights(self.weights.tolist())


def tried_for_classes(
    covariance: Covariance,
    likelihood: Likelihood,
    times: Sequence[float] = TIMES,
    scales: Sequence[float] = SCALES,
    groups: Groups | None = None,
) -> list[Tried]:
    """Widths on a climb to the highest mean leave-one-out score, in the order of their sizes."""

    def at(width: float) -> Tried:
        by_scale = ByLeaveOneOut(features_of(covariance(width)), likelihood, groups)
        scale = by_scale.best(scales)
        return Tried(width, scale, by_scale.at(scale), by_scale.height(scale))

    return _climbed(at, times)


def mean_and_error(scores: Array, groups: Groups | None = None) -> tuple[float, float]:
    """Mean of scores (N,), and its standard error, with groups that of independent groups."""
    mean = float(scores.mean())
    deviations = scores - mean
    sums = deviations if groups is None else np.bincount(groups, deviations)
    variance = len(sums) / (len(sums) - 1) * np.square(sums).sum()
    return mean, float(np.sqrt(variance)) / len(scores)


def weights_at_mode(model: Any) -> Array:
    """Weights of the kernels of a Gaussian process at the mode of evidence times priors.

    O(K N^3) an evaluation, of C classes O(C N^3) more.
    """
    posterior = Posterior.of(model)
    with track(None, "weights", visible=False) as bar:
        mode, _ = find_mode(posterior.with_gradient, posterior.hyperparameters.start, bar)
    return posterior.hyperparameters.values(mode)["beta"]


def tried_for_targets(
    covariance: Covariance,
    targets: Array,
    times: Sequence[float] = TIMES,
    groups: Groups | None = None,
    *,
    scale: float | None = None,
    noise: float | None = None,
) -> list[Tried]:
    """Widths on a climb to the highest evidence of targets (N, P), in the order of their sizes.

    With groups it is a climb to the highest mean score of targets that are left out by groups.
    """

    def at(width: float) -> Tried:
        features = features_of(covariance(width))
        fit = best_of_targets(features, targets, groups, scale=scale, noise=noise)
        log_scores = _log_scores_of_targets(fit, groups)
        if groups is None:
            return Tried(width, fit.scale, log_scores, fit.log_evidence / len(targets))
        return Tried(
            width, fit.scale, log_scores, float(log_scores.mean()), noise=float(fit.noise[0])
        )

    return _climbed(at, times)


def _climbed(at: Callable[[float], Tried], times: Sequence[float]) -> list[Tried]:
    tried: dict[int, Tried] = {}

    def height(position: int) -> float:
        if position not in tried:
            tried[position] = at(times[position])
        return tried[position].height

    climb(len(times), len(times) // 2, height)
    return [tried[position] for position in sorted(tried)]
