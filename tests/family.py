"""Statistical assertions that share one family-wise error rate.

The suite makes fewer than 1,000 random comparisons. Each is allowed to fail a correct program with
probability `ALPHA`, so the whole suite fails one by chance with probability below `FAMILY_WISE`.
Seeds are fixed: the rate says how unlucky the fixed seed could have been, not how often a run
fails.
"""

import numpy as np
from scipy import stats

FAMILY_WISE = 1e-3
COMPARISONS = 1_000
ALPHA = FAMILY_WISE / COMPARISONS


def z_bound(n_comparisons: int = 1) -> float:
    """Two-sided normal quantile of `ALPHA`, shared between `n_comparisons` of one assertion."""
    return float(stats.norm.isf(ALPHA / (2 * n_comparisons)))


def assert_z(z) -> None:
    """Every z-score lies within the bound for their number."""
    z = np.atleast_1d(np.asarray(z, dtype=float))
    assert np.isfinite(z).all(), f"z-scores that are not finite: {z[~np.isfinite(z)]}"
    worst = int(np.argmax(np.abs(z)))
    bound = z_bound(z.size)
    assert abs(z.flat[worst]) <= bound, (
        f"z-score {z.flat[worst]:.2f} at flat index {worst} of {z.size}; the bound is {bound:.2f}"
    )


def assert_mean(draws, exact, ess=None) -> None:
    """The mean of `draws` (draw, ...) agrees with `exact` within its Monte Carlo standard error.

    `ess` is the number of effective draws: the number of draws when they are independent.
    """
    draws = np.asarray(draws, dtype=float)
    ess = draws.shape[0] if ess is None else ess
    error = draws.std(axis=0, ddof=1) / np.sqrt(ess)
    assert_z((draws.mean(axis=0) - exact) / error)


def assert_frequencies(counts, n: int, probability) -> None:
    """Counts among `n` independent trials are binomial: exact tails, also near 0 and 1."""
    law = stats.binom(n, np.asarray(probability))
    p = 2 * np.minimum(law.cdf(counts), law.sf(np.asarray(counts) - 1))
    worst = int(np.argmin(p))
    assert p.flat[worst] >= ALPHA / p.size, (
        f"binomial p-value {p.flat[worst]:.3g} at flat index {worst} of {p.size}"
    )


def controlled(values, controls) -> tuple[float, float]:
    """Mean and standard error of independent `values` (draw,), by their regression on `controls`.

    `controls` (draw, k) are functions of the same draws whose expectations are zero.
    """
    design = np.column_stack([np.ones(len(values)), controls])
    coefficients, *_ = np.linalg.lstsq(design, values, rcond=None)
    free = len(values) - design.shape[1]
    variance = np.sum((values - design @ coefficients) ** 2) / free
    error = np.sqrt(variance * np.linalg.pinv(design.T @ design)[0, 0])
    return float(coefficients[0]), float(error)


def assert_ks(sample, cdf) -> None:
    """Kolmogorov-Smirnov: an independent sample comes from `cdf` (a function or other sample)."""
    p = stats.kstest(np.asarray(sample), cdf).pvalue
    assert p >= ALPHA, f"Kolmogorov-Smirnov p-value {p:.3g} is below {ALPHA:.0e}"


def uniform_p_value(ranks, n: int) -> float:
    """Chi-square p-value that independent ranks in 0..n are uniform."""
    ranks = np.asarray(ranks)
    bins = int(np.clip(len(ranks) // 20, 2, min(n + 1, 50)))
    edges = np.linspace(0, n + 1, bins + 1)
    expected = np.diff(np.ceil(edges)) / (n + 1) * len(ranks)
    observed, _ = np.histogram(ranks, bins=np.ceil(edges) - 0.5)
    return float(stats.chisquare(observed, expected).pvalue)


def assert_uniform(ranks, n: int) -> None:
    """Independent ranks in 0..n are uniform (simulation-based calibration, exact rank tests)."""
    p = uniform_p_value(ranks, n)
    assert p >= ALPHA, f"rank-uniformity p-value {p:.3g} is below {ALPHA:.0e}"
