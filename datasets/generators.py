"""Data sets made by a rule or by a random generator."""

import numpy as np
import pandas as pd
from scipy.special import softmax

from ..validation import Count, PositiveOrZero, Seed, check_arguments, integer_seed
from .dataset import Dataset, Features, card_of, numbered

#: Features of the blocks of the cohort.
COHORT_FEATURES = {"clinical": 12, "expression": 200, "methylation": 80, "technical": 50}
#: Number of genes of the cohort that depend on the class; methylation averages over them.
ACTIVE_GENES = 40


def balance_scale() -> Dataset:
    """Balance scale: all 625 scales with weights and distances 1 to 5, labelled by their torque.

    The class is "L" if left weight times left distance exceeds the right torque, "R" if the right
    torque is larger and "B" (balanced) if they are equal: 288, 288 and 49 objects. The rows are in
    lexicographic order, as in the UCI file.

    Examples
    --------
    >>> kz.datasets.balance_scale().X.shape
    """
    names = ["left_weight", "left_distance", "right_weight", "right_distance"]
    X = 1.0 + np.indices((5, 5, 5, 5)).reshape(4, -1).T
    torque = X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3]
    y = np.array(["B", "L", "R"])[np.sign(torque).astype(int)]
    return Dataset("balance_scale", pd.DataFrame(X, columns=names), y, card_of("balance_scale"))


def twonorm(n: int = 7400, seed: Seed = 0) -> Dataset:
    r"""Two normal classes in 20 dimensions; 7400 is the size of the sample in common use.

    Equally likely classes :math:`N(a 1, I)` and :math:`N(-a 1, I)`, :math:`a = 2 / \sqrt{20}`. The
    best classifier is the sign of the features' sum; its error is :math:`\Phi(-2)`, 2.28 %.

    References
    ----------
    Breiman (1996), Bias, variance, and arcing classifiers, technical report 460, Statistics
    Department, University of California, Berkeley.

    Examples
    --------
    >>> data = kz.datasets.twonorm(n=100, seed=1)
    """
    rng = np.random.default_rng(integer_seed(seed, "seed", "twonorm"))
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 20)) + (1 - 2 * y[:, None]) * 2 / np.sqrt(20)
    return Dataset("twonorm", pd.DataFrame(X, columns=numbered("x", 20)), y, card_of("twonorm"))


def neal_three_class(n: Count = 400, seed: Seed = 0, noise: PositiveOrZero = 0.1) -> Dataset:
    """Neal's three classes, which depend on two of four inputs.

    Four inputs uniform on (0, 1) give the class: 0 if (x1, x2) is nearer than 0.35 to (0.4, 0.5),
    else 1 if 0.8 x1 + 1.8 x2 < 0.6, else 2. Then independent normal noise, of standard deviation
    `noise` (0.1 in Neal's), is added to all inputs: X holds the noisy inputs.

    The rule is that of Neal's own generator. Damoulas and Girolami (section 4.1) describe class 0
    as an ellipse centred at the origin, without its constants. They use 400 objects and the
    features :math:`1, x_1, x_2, x_1^2, x_1 x_2, x_2^2`.

    References
    ----------
    Neal (1998), Regression and classification using Gaussian process priors, Bayesian Statistics 6,
    475-501; the generator is in the examples of his software for flexible Bayesian modeling.

    Examples
    --------
    >>> data = kz.datasets.neal_three_class(n=100, seed=1)
    """
    check_arguments(neal_three_class, locals())
    rng = np.random.default_rng(integer_seed(seed, "seed", "neal_three_class"))
    clean = rng.uniform(size=(n, 4))
    near = np.hypot(clean[:, 0] - 0.4, clean[:, 1] - 0.5) < 0.35
    below = 0.8 * clean[:, 0] + 1.8 * clean[:, 1] < 0.6
    y = np.where(near, 0, np.where(below, 1, 2))
    X = pd.DataFrame(clean + noise * rng.normal(size=(n, 4)), columns=numbered("x", 4))
    return Dataset("neal_three_class", X, y, card_of("neal_three_class"))


def cohort(n: Count = 200, seed: Seed = 0, separation: PositiveOrZero = 1.0) -> Dataset:
    """Cohort with four simulated blocks: two informative, one redundant and one of noise.

    Each object has one of three equally likely classes y and two factors of two dimensions that are
    independent given the class: u ~ N(a_y, I) and v ~ N(a_y, I). The centres a_0, a_1, a_2 lie on
    a circle of radius `separation` around zero, a third of a turn apart. Given the factors, with
    independent standard normal E and loadings drawn once:

    =========== ======== ====================================================================
    block       features values
    =========== ======== ====================================================================
    clinical    12       u A + E, loadings A ~ N(0, 1/4)
    expression  200      v B + E, loadings B ~ N(0, 1/4) for the first 40, 0 for the others
    methylation 80       mean over 10 of the first 40 of expression, plus E / 4
    technical   50       E
    =========== ======== ====================================================================

    Given expression, methylation is independent of the class: it is redundant. technical is
    independent of everything.

    The seed is that of objects and loadings. ``extras["probability"]`` (n, 3) is p(y | u, v); no
    classifier on the blocks has a better expected log score.

    Examples
    --------
    >>> data = kz.datasets.cohort(seed=1)
    """
    check_arguments(cohort, locals())
    rng = np.random.default_rng(integer_seed(seed, "seed", "cohort"))
    y = rng.integers(3, size=n)
    turn = 2 * np.pi * np.arange(3) / 3
    centres = separation * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    u, v = centres[y] + rng.normal(size=(2, n, 2))
    # The centres have equal norms, which cancel in p(y | u, v).
    score = (u + v) @ centres.T
    blocks = {block: rng.normal(size=(n, m)) for block, m in COHORT_FEATURES.items()}
    blocks["clinical"] += u @ rng.normal(scale=0.5, size=(2, 12))
    loadings = np.zeros((2, COHORT_FEATURES["expression"]))
    loadings[:, :ACTIVE_GENES] = rng.normal(scale=0.5, size=(2, ACTIVE_GENES))
    blocks["expression"] += v @ loadings
    sites = range(COHORT_FEATURES["methylation"])
    chosen = np.stack([rng.choice(ACTIVE_GENES, 10, replace=False) for _ in sites])
    blocks["methylation"] /= 4
    blocks["methylation"] += blocks["expression"][:, chosen].mean(axis=2)
    X: Features = {b: pd.DataFrame(x, columns=numbered(b, x.shape[1])) for b, x in blocks.items()}
    extras = {"probability": softmax(score, axis=1)}
    return Dataset("cohort", X, y, card_of("cohort"), extras=extras)
