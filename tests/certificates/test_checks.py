"""Each check passes a correct engine and fails a spoilt one; the table keeps its other rows."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from xarray import DataArray, Dataset, DataTree

import kernelzoo as kz
from certificates import checks, modes
from certificates.table import Writer
from certificates.variants import VARIANTS


def result(draws, **attributes):
    """Result of an engine with draws (chain, draw, element)."""
    tree = DataTree.from_dict({"posterior": Dataset({"x": (("chain", "draw", "i"), draws)})})
    tree.attrs |= {"kind": "exact", "independent": 1, "engine": "Exact"} | attributes
    return tree


def rng():
    return np.random.default_rng(1)


REFERENCE = result(np.random.default_rng(0).normal(size=(1, 4000, 2)))


@pytest.mark.parametrize(
    ("shift", "scale", "verdicts"),
    [
        (0, 1, ("passed", "passed")),
        (1, 1, ("failed", "biased")),
        (0, 0.8, ("failed", "biased")),
    ],
)
def test_shifted_and_narrow_draws_do_not_agree(shift, scale, verdicts):
    drawn = result(shift + scale * rng().normal(size=(1, 4000, 2)))
    for approximate, verdict in zip((False, True), verdicts, strict=True):
        finding = checks.agreement(drawn, REFERENCE, approximate=approximate)
        assert finding.verdict == verdict
        assert finding.bias == pytest.approx(shift, abs=0.1)
        assert finding.least_sd_ratio == pytest.approx(scale, abs=0.05)
        assert finding.detects < 0.2


def test_an_engine_whose_draws_are_shifted_does_not_agree():
    model = kz.WishartCompletion.example()
    options = {"draws": 1000, "progressbar": False}
    known, drawn = (kz.fit(model, "exact", random_seed=seed, **options) for seed in (1, 2))
    assert checks.agreement(drawn, known).verdict == "passed"
    posterior = drawn["posterior"].to_dataset()
    drawn["posterior"] = DataTree(posterior + posterior.std(("chain", "draw")))
    assert checks.agreement(drawn, known).verdict == "failed"


def test_draws_without_moments_are_compared_by_their_scores():
    known, drawn = (result(rng().standard_cauchy(size=(1, 4000, 1))) for _ in range(2))
    assert checks.agreement(drawn, known).verdict == "passed"


def test_few_draws_that_agree_prove_little():
    drawn = result(rng().normal(size=(1, 40, 2)))
    finding = checks.agreement(drawn, REFERENCE)
    assert (finding.verdict, finding.statistic >= checks.ALPHA) == ("weak", True)


def test_k_hat_of_an_approximation_is_a_bias():
    drawn = result(rng().normal(size=(1, 4000, 2)), pareto_k=0.8)
    assert checks.agreement(drawn, REFERENCE, approximate=True).verdict == "biased"


def test_chains_that_are_apart_are_not_compared():
    apart = result(rng().normal(size=(2, 500, 2)) + 5 * np.arange(2)[:, None, None])
    apart.attrs["kind"] = "mcmc"
    del apart.attrs["independent"]
    finding = checks.agreement(apart, REFERENCE)
    assert finding.verdict == "not run"
    assert "R-hat" in finding.note


def test_error_of_populations_is_that_of_their_means():
    populations = rng().normal(size=(4, 30)) + np.arange(4)[:, None]
    draws = DataArray(populations[None], dims=("element", "chain", "draw"))
    error, freedom = checks.standard_errors(draws, result(populations[..., None], independent=0))
    assert error == pytest.approx(stats.sem(populations.mean(axis=1)))
    assert freedom == 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_population_has_no_standard_error():
    with pytest.raises(ValueError, match="too few draws or populations"):
        checks.agreement(result(rng().normal(size=(1, 300, 2)), independent=0), REFERENCE)


def ranks_of(truths, failures="{}"):
    """Result of `kz.calibrate` with an engine whose draws are standard normal."""
    group = Dataset({"x": (("chain", "draw", "i"), stats.norm.cdf(truths)[None])})
    tree = DataTree.from_dict({"prior_sbc": group})
    tree.attrs |= {"failures": failures}
    return tree


@pytest.mark.parametrize(
    ("bias", "ratio", "verdicts"),
    [
        (0, 1, ("passed", "passed")),
        (1, 1, ("failed", "biased")),
        (0, 0.5, ("failed", "biased")),
    ],
)
def test_shifted_and_narrow_draws_are_miscalibrated(bias, ratio, verdicts):
    ranks = ranks_of(-bias + rng().normal(size=(160, 2)) / ratio)
    for approximate, verdict in zip((False, True), verdicts, strict=True):
        finding = checks.calibration(ranks, approximate=approximate)
        assert finding.verdict == verdict
        assert finding.bias == pytest.approx(bias, abs=0.35)
        assert finding.least_sd_ratio == pytest.approx(ratio, abs=0.15)


def test_a_bimodal_posterior_that_an_engine_takes_for_normal_is_miscalibrated():
    """With the right mean and variance: the shape of the ranks alone is wrong."""
    modes_of_truths = rng().choice([-0.99, 0.99], size=(160, 1))
    ranks = ranks_of(modes_of_truths + 0.14 * rng().normal(size=(160, 1)))
    assert checks.calibration(ranks).verdict == "failed"


def test_few_replicates_prove_little_and_failed_fits_are_no_bias():
    ranks = ranks_of(rng().normal(size=(20, 2)))
    assert checks.calibration(ranks).verdict == "weak"
    ranks.attrs["failures"] = '{"3": "planted"}'
    finding = checks.calibration(ranks, approximate=True)
    assert finding.verdict == "failed"
    assert "planted" in finding.note


def test_p_values_of_uniform_ranks_are_not_too_small():
    p = np.array([checks.p_value_of_ranks(ranks) for ranks in rng().uniform(size=(100, 20))])
    assert stats.binomtest(int(np.sum(p < 0.1)), len(p), 0.1, "greater").pvalue > 1e-3
    assert np.mean(p < 0.1) > 0.03


def test_the_stated_bias_is_found_with_the_stated_probability():
    bias = checks.calibration(ranks_of(rng().normal(size=(40, 1)))).detects
    truths = rng().normal(size=(60, 40, 1)) - bias
    found = [checks.calibration(ranks_of(each)).verdict == "failed" for each in truths]
    assert np.mean(found) == pytest.approx(checks.POWER, abs=0.12)


def parabola(x):
    """Log density of N(0, I) and its gradient."""
    return -0.5 * float(x @ x), -x


def test_a_wrong_gradient_is_found():
    def wrong(x):
        value, slopes = parabola(x)
        return value, 1.001 * slopes

    start = np.ones(3)
    assert checks.gradient(parabola, start, rng()).verdict == "passed"
    assert checks.gradient(wrong, start, rng()).verdict == "failed"


@pytest.mark.parametrize("check", [checks.stationary, checks.highest_nearby])
def test_an_answer_beside_the_mode_is_found(check):
    assert check(parabola, np.zeros(3), rng()).verdict == "passed"
    assert check(parabola, np.full(3, 0.1), rng()).verdict == "failed"


@pytest.mark.filterwarnings("ignore:After 1 iterations")
def test_an_engine_that_stops_before_the_mode_is_found():
    model = kz.WishartCompletion.example()
    fitted = kz.fit(model, kz.EM(max_iterations=1), progressbar=False)
    density, x = modes.mode_of_em(model, fitted)
    assert checks.stationary(density, x, rng()).verdict == "failed"


def test_slopes_that_are_infinite_around_an_answer_prove_nothing():
    def cliff(x):
        return 0.0, np.where(x == 0, 1.0, np.inf)

    assert checks.stationary(cliff, np.zeros(2), rng()).verdict == "failed"


def test_wrong_standard_deviations_are_found():
    assert checks.curvature(parabola, np.zeros(3), np.ones(3)).verdict == "passed"
    assert checks.curvature(parabola, np.zeros(3), np.full(3, 1.01)).verdict == "failed"


def variational(bounds, mean=-2.0):
    """Result of a variational engine with bounds (start, iteration), and draws of log p - log q."""
    ratios = mean + 0.1 * rng().normal(size=(1, 400))
    trajectory = Dataset({"elbo": (("start", "iteration"), bounds)}, attrs={"best_start": 0})
    of_draws = {"lp": (("chain", "draw"), ratios), "lq": (("chain", "draw"), 0 * ratios)}
    return DataTree.from_dict({"trajectory": trajectory, "sample_stats": Dataset(of_draws)})


@pytest.mark.parametrize(
    ("mean", "verdict", "looser"),
    [(-2.0, "passed", "passed"), (-1.9, "failed", "passed"), (-2.1, "failed", "failed")],
)
def test_a_bound_that_is_not_that_of_the_draws_is_found(mean, verdict, looser):
    fitted = variational([[-3.0, -2.0]], mean)
    assert checks.bound(fitted).verdict == verdict
    assert checks.bound(fitted, looser=True).verdict == looser


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ([-3.0, -2.0, np.nan], "passed"),
        ([-3.0, -2.0, -2.1], "failed"),
        ([-3.0, np.nan, -2.0], "failed"),
        ([-3.0, -2.0, -np.inf], "failed"),
    ],
)
def test_a_bound_that_falls_or_is_lost_is_found(bounds, verdict):
    assert checks.bound_rises(variational([bounds, [-3.0, -2.5, -2.0]])).verdict == verdict


def test_a_bound_above_the_evidence_is_found():
    fitted = variational([[-3.0, -2.0]])
    assert checks.below_evidence(fitted, -1.9).verdict == "passed"
    assert checks.below_evidence(fitted, -2.1).verdict == "failed"


def test_coordinates_of_weights_at_a_corner_are_finite_and_exponents_are_logarithms():
    model = kz.CompositeKernelRegression.example()
    beta = model["beta"]
    corner = np.eye(beta.eval().size)[0]
    assert np.isfinite(modes.unconstrained(model, [beta], {"beta": corner})).all()
    gamma = model["gamma"]
    assert modes.unconstrained(model, [gamma], {"gamma": 3.0}) == pytest.approx(np.log(3.0))


def test_every_model_has_a_variant():
    assert {variant.model for variant in VARIANTS} == set(kz.MODELS)
    assert len({variant.slug for variant in VARIANTS}) == len(VARIANTS)


def report(check, **properties):
    cell = {"variant": "wishart", "engine": "EM", "check": check}
    told = {"cell": cell} | properties
    facts = {"when": "call", "duration": 1.0, "longreprtext": "an error"}
    return SimpleNamespace(user_properties=list(told.items()), **facts)


def test_rows_are_replaced_and_others_stay(tmp_path):
    writer = Writer(tmp_path / "table.csv")
    weak = checks.Finding("weak", 0.5, 0.1)._asdict() | {"seconds": 2.0}
    for given in (report("a", finding=weak), report("b", finding=weak), report("a")):
        writer.pytest_runtest_logreport(given)
    table = pd.read_csv(writer.table).set_index("check")
    assert table["verdict"].to_dict() == {"a": "failed", "b": "weak"}
    assert table.loc["a", "note"] == "an error"
    assert table.loc["b", "statistic"] == 0.5
