"""NUTS with the curvature at another result as its mass matrix."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import kernelzoo as kz
from family import assert_z
from kernelzoo.inference.engine.chains import mean_and_spread
from kernelzoo.inference.engine.compilation import python_mode
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.mcmc import curvature_at

OPTIONS = {"progressbar": False, "random_seed": 1}
PYTHON = {"compile_kwargs": {"mode": python_mode()}}
BY_CURVATURE = kz.NUTS(mass_matrix="curvature", target_accept=0.8, max_treedepth=5)

# Of two coordinates with standard deviations of 1 and 0.01 along the diagonals.
TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
COVARIANCE = TURN @ np.diag([1.0, 1e-4]) @ TURN.T


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(2), COVARIANCE)
        pm.HalfNormal("s", shape=3)
    return model


@pytest.fixture(scope="module")
def start():
    """Draws that are a hundred times too narrow, as those of mean-field VB."""
    rng = np.random.default_rng(1)
    x, s = rng.normal(size=(1, 40, 2)) * 0.01, np.exp(0.1 * rng.normal(size=(1, 40, 3)))
    posterior = xr.Dataset({"x": (("chain", "draw", "i"), x), "s": (("chain", "draw", "j"), s)})
    return xr.DataTree.from_dict({"posterior": posterior})


def test_mean_and_spread_are_those_of_unconstrained_draws(model, start):
    mean, spread = mean_and_spread(start, model)
    draws = start["posterior"].to_dataset()
    flat = np.hstack([draws["x"].to_numpy()[0], np.log(draws["s"].to_numpy()[0])])
    np.testing.assert_allclose(mean, flat.mean(0))
    np.testing.assert_allclose(spread, flat.std(0))
    without = xr.DataTree.from_dict({"posterior": draws.drop_vars("s")})
    mean, spread = mean_and_spread(without, model)
    np.testing.assert_allclose(mean[2:], model.initial_point()["s_log__"])
    np.testing.assert_array_equal(spread[2:], 1.0)


def test_draws_that_are_not_finite_do_not_enter(model, start):
    draws = start["posterior"].to_dataset()
    x = draws["x"].to_numpy().copy()
    x[0, :3] = np.nan
    spoilt = xr.DataTree.from_dict({"posterior": draws.assign(x=(("chain", "draw", "i"), x))})
    rest = xr.DataTree.from_dict({"posterior": draws.isel(draw=slice(3, None))})
    for found, expected in zip(
        mean_and_spread(spoilt, model), mean_and_spread(rest, model), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def precision_at(start, model):
    run = Run(progressbar=False, mode=python_mode())
    precision, covariance, _ = curvature_at(start, model, run)
    np.testing.assert_allclose(precision @ covariance, np.eye(len(precision)), atol=1e-10)
    return precision


def test_the_precision_is_the_curvature(model, start):
    precision = precision_at(start, model)
    mean, _ = mean_and_spread(start, model)
    np.testing.assert_allclose(precision[:2, :2] @ COVARIANCE, np.eye(2), atol=1e-3)
    # A half normal's log density in log s is s^2 (-1/2) + log s: its curvature is 2 s^2.
    np.testing.assert_allclose(precision[2:, 2:], np.diag(2 * np.exp(2 * mean[2:])), atol=1e-5)
    np.testing.assert_allclose(precision[:2, 2:], 0, atol=1e-5)


@pytest.mark.parametrize("backend", ["pymc", "numpyro"])
def test_trajectories_are_short_and_the_law_is_right(model, start, backend):
    if backend == "numpyro":
        pytest.importorskip("numpyro")
    engine = replace(BY_CURVATURE, backend=backend)
    short = {"draws": 400, "tune": 200, "chains": 2, "cores": 1}
    result = kz.fit(model, engine, start=start, **short, **PYTHON, **OPTIONS)
    # With a diagonal matrix a trajectory across the long direction takes a hundred steps.
    assert float(result["sample_stats"]["n_steps"].mean()) < 10
    turned = result["posterior"]["x"].to_numpy() @ TURN
    n = turned.shape[0] * turned.shape[1]
    squares = (turned**2).reshape(n, 2).mean(0) / [1.0, 1e-4]
    # Squares of NUTS' draws are nearly independent; four times their variance is allowed.
    assert_z((squares - 1) / np.sqrt(4 * 2 / n))


def test_negative_curvature_is_taken_by_its_size():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("two modes", 2 * x**2 - x**4)
    draws = xr.Dataset({"x": (("chain", "draw"), np.array([[-0.1, 0.1]]))})
    start = xr.DataTree.from_dict({"posterior": draws})
    np.testing.assert_allclose(precision_at(start, model), 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give fit a start"),
        ({"start": True, "init": "adapt_full"}, "'init' argument .* left out with mass_matrix"),
        ({"start": True, "nuts": {"max_tree_depth": 5}}, "'nuts' argument .* left out with mass"),
        ({"start": True, "scaling": np.eye(5)}, "'scaling' argument .* left out with mass_matrix"),
    ],
)
def test_what_does_not_go_together_is_refused(model, start, options, message):
    options = {k: start if k == "start" else v for k, v in options.items()}
    with pytest.raises(ValueError, match=message):
        kz.fit(model, BY_CURVATURE, **options, **OPTIONS)


def test_the_density_is_compiled_as_the_user_asked(model, start, monkeypatch):
    asked, original = {}, pm.Model.logp_dlogp_function

    def recorded(self, **options):
        asked.update(options)
        return original(self, **options)

    monkeypatch.setattr(pm.Model, "logp_dlogp_function", recorded)
    mode = python_mode()
    curvature_at(start, model, Run(progressbar=False, mode=mode))
    assert asked["mode"] is mode


def test_nutpie_takes_no_curvature():
    with pytest.raises(ValueError, match="'adapted' with backend='nutpie'"):
        kz.NUTS(mass_matrix="curvature", backend="nutpie")


def test_chains_of_numpyro_begin_at_the_start(model, start):
    pytest.importorskip("numpyro")
    # Untuned steps are so long that all are rejected: the chains stay where they began.
    untuned = {"draws": 10, "tune": 0, "chains": 2}
    engine = kz.NUTS(backend="numpyro", max_treedepth=1)
    result = kz.fit(model, engine, start=start, **untuned, **OPTIONS)
    first = result["posterior"]["x"].to_numpy()[:, 0]
    drawn = start["posterior"]["x"].to_numpy()[0]
    np.testing.assert_allclose(np.abs(first[:, None] - drawn).max(2).min(1), 0, atol=1e-10)
