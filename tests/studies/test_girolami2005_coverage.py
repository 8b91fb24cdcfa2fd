"""Coverage of intervals: the problems, and what is counted."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import kernelzoo as kz
from family import assert_ks
from studies import girolami2005_coverage as study

SMALL = {"n_train": 15, "n_test": 40, "level": 80.0}


def settings_of(column):
    return study.SETTINGS[column] | SMALL


def test_problems_are_drawn_anew_by_seed():
    for column, make in study.PROBLEMS.items():
        one, same, other = (
            make(np.random.default_rng(seed), settings_of(column)) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one.targets_new, same.targets_new)
        assert not np.array_equal(one.targets_new, other.targets_new)
        assert one.kernels_new.shape == (3, 40, 15)
        assert one.model.design.shape == (3, 15, 16)


def test_the_known_truth_is_that_of_the_declaration(monkeypatch):
    """New targets have the alpha, the weights and the noise with which the old ones were drawn."""
    drawn, draw = [], pm.draw
    monkeypatch.setattr(study.pm, "draw", lambda *a, **k: drawn.append(draw(*a, **k)) or drawn[-1])
    options = {"tau": 1e6, "nu": 1.0, "varsigma": 100.0, "n_test": 400}
    settings = settings_of("known truth") | options
    # These priors are for such targets.
    with pytest.warns(UserWarning, match="Targets given .* choose priors for their scale"):
        problem = study.known_truth(np.random.default_rng(3), settings)
    [(beta, alpha, gamma, targets)] = drawn
    np.testing.assert_array_equal(problem.beta, beta)
    np.testing.assert_array_equal(problem.model.target_values, targets)
    composite = np.tensordot(beta, problem.kernels_new.values, axes=1)
    response = alpha[0] + composite @ alpha[1:]
    assert_ks(np.sqrt(gamma) * (problem.targets_new - response), stats.norm.cdf)
    assert response.std() > 1.0 / np.sqrt(gamma), "noise hides the response"
    np.testing.assert_allclose(problem.beta, 1 / 3, atol=0.01)
    assert problem.model.combination == kz.combinations.DirichletWeights(1e6, 1.0)
    assert problem.model.sigma == settings["sigma"]


def test_what_is_counted(monkeypatch):
    """Errors at the quantiles of their normal law, and truths at quantiles of the draws."""
    problem = study.known_truth(np.random.default_rng(1), settings_of("known truth"))
    errors = 2.0 * stats.norm.ppf((np.arange(40) + 0.5) / 40)
    # Of the central 80 %, the first truth is outside.
    draws = problem.beta - [0.05, 0.15, 0.5] + np.linspace(0, 1, 101)[:, None]
    posterior = xr.Dataset({"beta": (("chain", "draw", "kernel"), draws[None])})
    predictions = xr.Dataset(
        {"mean": ("obs", problem.targets_new + errors), "target_sd": ("obs", np.full(40, 2.0))}
    )
    monkeypatch.setattr(study, "fit", lambda *a, **k: {"posterior": posterior})
    monkeypatch.setattr(study, "predict", lambda *a: predictions)
    settings = settings_of("known truth") | {"engines": {"X": {"engine": "vb"}}}
    values = study.coverage("known truth", 1, **settings)
    assert values["X: new targets"] == 80.0
    np.testing.assert_allclose(values["X: weights"], 200 / 3)
    rmse = np.sqrt(np.mean(errors**2))
    np.testing.assert_allclose(values["X: error"], 100 * rmse / problem.targets_new.std())


def test_every_cell_of_a_small_run():
    task = study.coverage_study().tasks[0]
    settings = dict(task.settings) | SMALL
    settings["engines"] = {"VB": {"engine": "vb", "draws": 50}}
    values = study.coverage("known truth", 5, **settings)
    assert set(values) == {row for row in task.rows if row.startswith("VB")}
