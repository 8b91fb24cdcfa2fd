"""Small problems for variational Bayes on the multinomial probit, and draws of its utilities."""

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from kernelzoo.inference.engine.engine import Run
from kernelzoo.models.kernels import as_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit

RUN = Run(progressbar=False, random_seed=1)


def problem(seed, n_kernels, n_classes, n_obs=None, gram=True):
    """Labelled points seen through Gaussian kernels, or through random basis functions."""
    rng = np.random.default_rng(seed)
    n_obs = n_obs or int(rng.integers(10, 30))
    labels = np.arange(n_obs) % n_classes
    x = 1.5 * rng.normal(size=(n_classes, 2))[labels] + 0.8 * rng.normal(size=(n_obs, 2))
    if gram:
        distances = ((x[:, None] - x[None]) ** 2).sum(-1)
        kernels = np.stack([np.exp(-distances / 4.0**s) for s in range(n_kernels)])
    else:
        n_basis = int(rng.integers(2, n_obs))
        kernels = np.tanh(x @ rng.normal(size=(n_kernels, 2, n_basis)))
    return kernels, labels


def model_of(seed, n_kernels, n_classes, *, n_obs=None, gram=True, **settings):
    kernels, labels = problem(seed, n_kernels, n_classes, n_obs, gram)
    return MultinomialProbit(as_stack(kernels), labels, **settings)


def cone_draws(f, labels, draws, rng):
    """y ~ N(f, I) given that y_t is the largest, (draws, N, C), by inverse distribution functions.

    The winner's is tabulated finely, the losers' are the normal's below the winner.
    """
    out = np.empty((draws, *f.shape))
    for n, (row, winner) in enumerate(zip(f, labels, strict=True)):
        grid = np.linspace(row.max() - 12, row.max() + 12, 40_001)
        log_density = -0.5 * (grid - row[winner]) ** 2
        log_density += log_ndtr(grid[:, None] - np.delete(row, winner)).sum(axis=1)
        cumulative = np.cumsum(np.exp(log_density - log_density.max()))
        top = np.interp(rng.random(draws), cumulative / cumulative[-1], grid)
        below = ndtri_exp(np.log(rng.random((draws, len(row)))) + log_ndtr(top[:, None] - row))
        out[:, n] = row + below
        out[:, n, winner] = top
    return out
