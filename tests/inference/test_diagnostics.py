"""k-hat tells a good approximation from one that is too narrow."""

import numpy as np
import xarray as xr
from scipy.stats import norm
from xarray import DataTree

from kernelzoo.inference.diagnostics import pareto_k


def result(sd):
    draws = np.random.default_rng(1).normal(0, sd, size=(1, 4000))
    stats = {"lp": norm.logpdf(draws), "lq": norm.logpdf(draws, 0, sd)}
    return DataTree.from_dict(
        {"sample_stats": xr.Dataset({k: (("chain", "draw"), v) for k, v in stats.items()})}
    )


def test_k_hat_is_low_for_a_wider_approximation():
    assert pareto_k(result(1.5)) < 0.3


def test_k_hat_is_high_for_a_narrower_approximation():
    """The ratio p/q of N(0, 1) to N(0, s) has Pareto tail index 1 - s^2 for s < 1."""
    assert pareto_k(result(0.45)) > 0.6


def test_k_hat_of_densities_that_are_not_finite_is_infinite():
    tree = result(1.0)
    tree["sample_stats"]["lp"][0, 3] = -np.inf
    assert pareto_k(tree) == np.inf


def test_results_without_a_density_have_none():
    assert np.isnan(pareto_k(DataTree()))
