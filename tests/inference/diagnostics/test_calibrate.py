"""Calibration of engines by simulated data: right engines pass, wrong ones are found."""

import json
from dataclasses import dataclass

import arviz as az
import numpy as np
import pymc as pm
import pytest
from matplotlib import pyplot
from pymc.backends.arviz import find_observations
from scipy import signal, stats
from xarray import DataArray
from xarray.testing import assert_identical

import kernelzoo as kz
from family import assert_frequencies, assert_ks
from kernelzoo.inference.diagnostics.calibrate import (
    RANKED_DRAWS,
    Band,
    FromPrior,
    detectable_bias,
    detectable_scale,
    power,
    ranks,
    set_observations,
    thinned,
)
from kernelzoo.inference.engine.engine import Engine
from kernelzoo.inference.engine.groups import compile_log_likelihood
from kernelzoo.inference.engine.result import draws_to_tree, stamp
from kernelzoo.models import Declaration

Y = np.array([0.3, 1.2, -0.4, 0.8, 0.1])
#: Seeds of the fits of a test, and the numbers of those in which the user presses Ctrl-C.
FITS: list[int] = []
INTERRUPTED: list[int] = []
QUIET = {"progressbar": False, "draws": RANKED_DRAWS}


class Normal(Declaration):
    """mu ~ N(m, 1), y_n ~ N(mu, 1)."""

    def __init__(self, y=Y, m=0.0):
        super().__init__(coords={"obs": [f"object {i}" for i in range(len(y))]})
        with self:
            mu = pm.Normal("mu", m, 1.0)
            pm.Deterministic("means", mu + pm.math.zeros_like(y), dims="obs")
            pm.Normal("y", mu, 1.0, observed=pm.Data("values", y, dims="obs"), dims="obs")
        self.seal()


@dataclass(frozen=True)
class Conjugate(Engine):
    """Exact posterior of `Normal`, whose mean and standard deviation can be made wrong."""

    bias: float = 0.0
    scale: float = 1.0
    fails_above: float = np.inf
    kind = "exact"

    def why_not(self, model):
        return None

    def run(self, model, run):
        FITS.append(run.random_seed)
        if len(FITS) in INTERRUPTED:
            raise KeyboardInterrupt
        y = np.concatenate([*find_observations(model).values()])
        if y.mean() > self.fails_above:
            raise FloatingPointError("too large")
        variance = 1 / (len(y) + 1)
        z = self.bias + self.scale * run.rng().normal(size=run.draws)
        mu = y.sum() * variance + variance**0.5 * z
        tree = draws_to_tree(model, {"mu": mu, "means": np.repeat(mu[:, None], 5, axis=1)})
        tree.attrs["independent"] = 1
        return tree


# Named after its creation, so that it is not in the registry of engines.
Conjugate.name = "Conjugate"


@pytest.fixture(autouse=True)
def no_fits():
    FITS.clear()
    INTERRUPTED.clear()


def calibrate(engine=None, model=None, *, replicates=100, random_seed=1, **options):
    model = Normal() if model is None else model
    engine = Conjugate() if engine is None else engine
    options = QUIET | options
    return kz.calibrate(model, engine, replicates=replicates, random_seed=random_seed, **options)


def test_a_right_engine_keeps_the_bands(capsys):
    model = Normal()
    checked = calibrate(model=model, progressbar=True)
    assert checked.attrs["calibrated"] == 1
    assert json.loads(checked.attrs["leaves_bands"]) == {}
    assert checked.attrs["verdict"] in capsys.readouterr().out
    assert "(7 elements) stay within their bands" in checked.attrs["verdict"]
    found = checked["prior_sbc"]
    assert set(found.data_vars) == {"mu", "means", "log_likelihood"}
    assert list(found["obs"].values) == list(model.coords["obs"])
    for name in ("mu", "log_likelihood"):
        assert_ks(found[name].values.ravel(), "uniform")
    np.testing.assert_array_equal(model["values"].get_value(), Y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bias": 0.5},
        {"scale": 0.5},
        pytest.param({"bias": -0.5}, marks=pytest.mark.slow),
        pytest.param({"scale": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_wrong_engine_is_found(wrong):
    checked = calibrate(Conjugate(**wrong), replicates=150)
    assert checked.attrs["bias"] < 0.5 < checked.attrs["scale"] < 1
    assert json.loads(checked.attrs["leaves_bands"])["mu"] == 1
    assert checked.attrs["calibrated"] == 0
    assert "the ranks of mu (1 of 1), means (5 of 5)" in checked.attrs["verdict"]


def test_the_log_likelihood_finds_an_engine_that_draws_from_the_prior():
    """Ranks of parameters are uniform then; those of the likelihood are not (Modrák et al.)."""

    class Prior(Conjugate):
        def run(self, model, run):
            mu = run.rng().normal(size=run.draws)
            tree = draws_to_tree(model, {"mu": mu})
            tree.attrs["independent"] = 1
            return tree

    checked = calibrate(Prior())
    assert json.loads(checked.attrs["leaves_bands"]) == {"log_likelihood": 1}


def simulated_ranks(rng, calibrations, n, draws, bias=0.0, scale=1.0):
    """Fractional ranks of a normal truth among draws of a wrong normal posterior."""
    truth = rng.normal(size=(calibrations, n, 1))
    posterior = bias + scale * rng.normal(size=(calibrations, n, draws))
    return ((posterior < truth).sum(-1) + rng.uniform(size=(calibrations, n))) / (draws + 1)


@pytest.mark.parametrize(("n", "draws"), [(20, 31), (60, 9)])
def test_size_of_the_bands_and_the_stated_power(n, draws):
    rng, calibrations = np.random.default_rng(1), 1500
    band = Band(n, 0.9)
    left = [band.left_by(r) for r in simulated_ranks(rng, calibrations, n, draws)]
    exact = 1 - band.holds(band.points)
    assert 0.05 < exact <= 0.1
    assert_frequencies(sum(left), calibrations, exact)
    bias, scale = (find(band, draws, 0.8) for find in (detectable_bias, detectable_scale))
    assert abs(power(band, draws, bias=bias) - 0.8) < 0.01
    for wrong in ({"bias": bias}, {"scale": scale}):
        left = [band.left_by(r) for r in simulated_ranks(rng, calibrations, n, draws, **wrong)]
        assert_frequencies(sum(left), calibrations, power(band, draws, **wrong))


def test_power_grows_with_the_replicates():
    few, many = Band(20, 0.99), Band(300, 0.99)
    assert detectable_bias(many, RANKED_DRAWS, 0.8) < 0.3 * detectable_bias(few, RANKED_DRAWS, 0.8)
    assert detectable_scale(many, RANKED_DRAWS, 0.8) > 1.5 * detectable_scale(
        few, RANKED_DRAWS, 0.8
    )
    # Three ranks of one draw never leave the bands so often.
    assert detectable_scale(Band(3, 0.999), 1, 0.8) == 0
    assert detectable_bias(Band(3, 0.999), 1, 0.8) == np.inf


def test_failed_fits_are_listed():
    checked = calibrate(Conjugate(fails_above=1.0), replicates=40)
    failures = json.loads(checked.attrs["failures"])
    made = checked["prior_sbc"]["draw"].values
    assert sorted([*map(int, failures), *made]) == list(range(40))
    assert 2 <= len(failures) <= 20
    assert set(failures.values()) == {"FloatingPointError: too large"}
    assert f"{len(failures)} fits failed" in checked.attrs["verdict"]
    with pytest.raises(ValueError, match=r"No replicate could be fitted.*too large"):
        calibrate(Conjugate(fails_above=-100.0), replicates=20)


def test_fits_that_did_not_converge_and_ended_ones_are_told(monkeypatch):
    run = Conjugate.run

    def marked(self, model, run_, attribute):
        tree = run(self, model, run_)
        tree.attrs |= attribute
        return tree

    monkeypatch.setattr(Conjugate, "run", lambda *a: marked(*a, {"converged": "no"}))
    checked = calibrate(replicates=20)
    assert checked.attrs["not_converged"] == 20
    assert "20 fits did not converge" in checked.attrs["verdict"]
    ended = {"ended_by": "max_seconds", "note": "ended early"}
    monkeypatch.setattr(Conjugate, "run", lambda *a: marked(*a, ended))
    with pytest.raises(ValueError, match="RuntimeError: ended early"):
        calibrate(replicates=20)
    monkeypatch.setattr(Conjugate, "run", lambda *a: marked(*a, {"ended_by": "interrupt"}))
    with pytest.raises(KeyboardInterrupt):
        calibrate(replicates=20)


def test_nan_draws_fail():
    with pytest.raises(ValueError, match="mu has draws or a true value that are NaN"):
        calibrate(Conjugate(bias=np.nan), replicates=20)


def test_an_interrupted_calibration_goes_on(tmp_path):
    whole = calibrate(replicates=30)
    FITS.clear()
    INTERRUPTED.append(12)
    with pytest.raises(KeyboardInterrupt):
        calibrate(replicates=30, store=tmp_path)
    INTERRUPTED.clear()
    assert len(list(tmp_path.glob("*.json"))) == 11
    FITS.clear()
    again = calibrate(replicates=30, store=tmp_path)
    assert len(FITS) == 19
    assert_identical(again.to_dataset(), whole.to_dataset().assign_attrs(again.attrs))
    assert_identical(again["prior_sbc"].to_dataset(), whole["prior_sbc"].to_dataset())


def test_finished_replicates_are_used_by_the_same_call_only(tmp_path):
    def fits(**options):
        FITS.clear()
        calibrate(**{"replicates": 20, "store": tmp_path} | options)
        return len(FITS)

    assert fits() == 20
    assert fits() == 0
    assert fits(cores=1) == 0
    assert fits(replicates=25) == 5
    for other in (
        {"model": Normal(Y + 1e-9)},
        {"model": Normal(m=0.5)},
        {"engine": Conjugate(bias=0.1)},
        {"random_seed": 2},
        {"draws": 40},
    ):
        # The first fit tells that none is read.
        INTERRUPTED.append(1)
        with pytest.raises(KeyboardInterrupt):
            fits(**other)
        INTERRUPTED.clear()
    assert fits() == 0


def test_any_model_and_generic_engines():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, 1.0, observed=Y)
    checked = calibrate("laplace", model, replicates=20)
    assert checked.attrs["calibrated"] == 1
    assert checked.attrs["engine"] == "Laplace"
    assert checked["prior_sbc"]["log_likelihood"].shape == (1, 20)
    np.testing.assert_array_equal(find_observations(model)["y"], Y)


def test_arviz_draws_the_ranks_and_netcdf_keeps_them(tmp_path):
    checked = calibrate(replicates=30)
    drawn = az.plot_ecdf_pit(checked, backend="matplotlib")
    assert set(drawn.viz["ecdf_lines"].data_vars) == {"mu", "means", "log_likelihood"}
    pyplot.close("all")
    checked.to_netcdf(tmp_path / "checked.nc")
    again = az.from_netcdf(tmp_path / "checked.nc")
    assert again.attrs["verdict"] == checked.attrs["verdict"]
    np.testing.assert_array_equal(again["prior_sbc"]["mu"], checked["prior_sbc"]["mu"])


def test_integer_labels_are_replaced_where_engines_read_them():
    model = kz.MultinomialProbit.example().copied()
    _, data = FromPrior(model).draw(3)
    assert not np.array_equal(data["t"], model["labels"].get_value())
    set_observations(model, data)
    np.testing.assert_array_equal(model["labels"].get_value(), data["t"])


def test_variables_that_depend_on_the_data_are_those_of_the_fitted_data():
    """The simulated W11 is not diagonal, but the model keeps its diagonal."""
    model = kz.DiagonalWishartCompletion.example()
    truth, data = FromPrior(model).draw(3)
    np.testing.assert_array_equal(data["W11"], np.diag(np.diag(data["W11"])))
    C1, C2 = (model[name].get_value() for name in ("C1", "C2"))
    coefficients = model["coefficients"].get_value()
    rows = coefficients @ C1.T @ data["W11"] + C2.T @ truth["W21"]
    np.testing.assert_allclose(truth["K21"], rows @ C1)


def test_chains_are_thinned_to_half_their_effective_draws():
    noise = np.random.default_rng(1).normal(size=(2, 2000, 2))
    noise[..., 1] = signal.lfilter([1], [1, -0.98], noise[..., 1])
    chains = DataArray(noise, dims=("chain", "draw", "x"))
    least = float(az.ess(chains.to_dataset(name="x"))["x"].min())
    assert 20 < least < 60
    assert len(thinned(chains, {"kind": "mcmc"})) == int(least / 2)
    assert len(thinned(chains.isel(x=[0]), {"kind": "mcmc"})) == RANKED_DRAWS
    assert len(thinned(chains, {"kind": "exact", "independent": 1})) == RANKED_DRAWS
    assert len(thinned(chains, {"kind": "mcmc", "independent": 0})) == RANKED_DRAWS


def test_equal_draws_share_their_ranks():
    """A discrete truth is placed at random among equal draws."""
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5, shape=3000)
        pm.Normal("y", k.sum(), 1.0, observed=1.0)
    draws = np.zeros((RANKED_DRAWS, 3000), dtype=int)
    draws[:10] = 1
    tree = stamp(draws_to_tree(model, {"k": draws}), model, kind="exact")
    truth = np.zeros(3000, dtype=int)
    truth[1500:] = 1
    likelihood = compile_log_likelihood(model)
    found = ranks(
        *(model, tree, {"k": truth}),
        lambda draws: likelihood(draws, {"y": np.array(1.0)}),
        np.random.default_rng(1),
    )
    assert found["log_likelihood"][2] == RANKED_DRAWS
    values = np.array(found["k"][1])
    assert_ks(values[:1500], stats.uniform(0, 22 / 32).cdf)
    assert_ks(values[1500:], stats.uniform(21 / 32, 11 / 32).cdf)


def with_potential():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("term", -(x**2))
        pm.Normal("y", x, observed=1.0)
    return model


def without_data():
    with pm.Model() as model:
        pm.Normal("x")
    return model


def of_its_own_data():
    with pm.Model() as model:
        y = pm.Data("values", Y)
        pm.Normal("y", pm.Normal("x", y.mean(), 1.0), observed=y)
    return model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": with_potential()}, "'model' .* must be without pm.Potential: .* Got term"),
        ({"model": without_data()}, "'model' .* must be one with observed variables. Got none"),
        ({"model": of_its_own_data()}, "depend on values"),
        ({"engine": "map"}, "'engine' .* must be one whose result has draws. Got MAP"),
        ({"replicates": 19}, "'replicates' .* must be an integer of 20 or more"),
        ({"cores": 0}, "'cores' .* must be an integer of 1 or more"),
        ({"random_seed": -1}, "'random_seed' .* must be an integer of 0 or more"),
        ({"drawz": 3}, "drawz"),
    ],
)
def test_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        calibrate(**options)
    assert len(FITS) <= 1


@pytest.mark.slow
def test_cores_and_the_progress_bar_change_nothing(tmp_path):
    options = {"replicates": 20, "random_seed": 1, "draws": 50}
    model = kz.CompositeKernelRegression.example()
    alone = kz.calibrate(model, "gibbs", tune=10, **options, progressbar=False)
    two = kz.calibrate(model, "gibbs", tune=10, cores=2, store=tmp_path, **options)
    assert_identical(alone, two)
    alone.to_netcdf(tmp_path / "alone.nc")
    two.to_netcdf(tmp_path / "two.nc")
    assert (tmp_path / "alone.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()
