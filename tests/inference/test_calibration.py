"""Simulation-based calibration: samplers have uniform ranks, mean field is seen to be too sure."""

from pathlib import Path

import numpy as np
import pytest

import kernelzoo as kz
from calibration import DRAWS, calibration_ranks, least_effective_draws, plot_ranks
from family import assert_uniform, uniform_p_value

RESULTS = Path("results") / "calibration"

pytestmark = pytest.mark.slow


def small_model():
    """Ten objects, three classes, two kernels, and a prior that lets the chains mix."""
    x = np.random.default_rng(1).normal(size=(10, 2))
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    return kz.MultinomialProbit(
        {"near": np.exp(-2 * distances), "far": np.exp(-distances / 8)},
        np.arange(10) % 3,
        combination=kz.combinations.Mean(2.0, 1.0),
        tau=6.0,
        upsilon=3.0,
    )


def basic_completion():
    """Three training and two test objects."""
    return kz.WishartCompletion.example()


def simplified_completion():
    """Three training and two test objects; the prior keeps lambda and delta within reach."""
    return kz.DiagonalWishartCompletion.example()


def collapsed_mixture():
    """Weights of two kernels from the evidence of three training objects."""
    return kz.WishartKernelMixture.example(concentration=2.0, collapsed=True)


def composite_regression():
    """Eight objects, two kernels; the priors keep targets and chains within reach."""
    rule = kz.combinations.DirichletWeights(3.0, 1.5)
    options = {"sigma": 3.0, "varsigma": 3.0, "rho": 3.0, "varrho": 1.0}
    return kz.CompositeKernelRegression.example(combination=rule, **options)


def composite_classification():
    """Eight objects, two kernels."""
    rule = kz.combinations.DirichletWeights(3.0, 1.5)
    return kz.CompositeKernelClassification.example(combination=rule, sigma=3.0, varsigma=3.0)


def mutual_completion():
    """Three objects, two kernels that lack one each, masks that are not nested."""
    x = np.random.default_rng(1).normal(size=(3, 2))
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    return kz.MutualKernelCompletion(
        {"near": np.exp(-2 * distances), "far": np.exp(-distances / 4)},
        np.array([[1, 0], [1, 1], [0, 1]], dtype=bool),
        lam=0.8,
        nu=[5.5, 7.0],
    )


def diagonal_of(W11):
    """What lambda, delta and W22.1 depend on in W11, as the diagonal matrix a model holds."""
    return np.diag(np.diag(W11))


BASIC = {
    "data": "K11_values",
    "var_names": [
        *("Sigma11", "Sigma22_1", "B", "K21", "K22_1"),
        *("log_det_Sigma22_1", "trace_K22"),
    ],
}
MUTUAL = {
    "data": {f"Qvv_{name}": f"Qvv_{name}_values" for name in ("near", "far")},
    "var_names": ["M", *(f"{b}_{k}" for b in ("Qhv", "Qhh_v") for k in ("near", "far")), "trace_Q"],
}
MIXTURE = {"data": "K11_values", "var_names": ["alpha"]}
SIMPLIFIED = {
    "data": "W11_values",
    "kept": diagonal_of,
    "var_names": ["lambda", "delta", "W22_1"],
}
NESTED = kz.Nested(particles=100, nodes=24)
CHAIN = {"chains": 1, "cores": 1}


@pytest.mark.parametrize(
    ("build", "engine", "replicates", "options"),
    [
        (small_model, kz.Gibbs(), 150, CHAIN | {"draws": 600, "tune": 200}),
        (small_model, kz.Gibbs(scheme="paper"), 150, CHAIN | {"draws": 6_000, "tune": 500}),
        (small_model, kz.NUTS(), 40, CHAIN | {"draws": 600, "tune": 400}),
        (basic_completion, kz.Gibbs(), 60, BASIC | CHAIN | {"draws": 1_000, "tune": 100}),
        (basic_completion, kz.NUTS(), 40, BASIC | CHAIN | {"draws": 600, "tune": 400}),
        (basic_completion, kz.Exact(), 200, BASIC | {"draws": DRAWS}),
        (
            simplified_completion,
            kz.Gibbs(),
            200,
            SIMPLIFIED | CHAIN | {"draws": 2_000, "tune": 100},
        ),
        (simplified_completion, kz.NUTS(), 40, SIMPLIFIED | CHAIN | {"draws": 600, "tune": 400}),
        (simplified_completion, kz.Exact(), 200, SIMPLIFIED | {"draws": DRAWS}),
        (
            composite_regression,
            kz.Gibbs(),
            150,
            {"data": "targets"} | CHAIN | {"draws": 2_000, "tune": 100},
        ),
        (composite_classification, kz.Gibbs(), 150, CHAIN | {"draws": 2_000, "tune": 100}),
        (composite_regression, NESTED, 200, {"data": "targets", "draws": 100}),
        (composite_classification, NESTED, 200, {"draws": 100}),
        (mutual_completion, kz.Gibbs(), 60, MUTUAL | CHAIN | {"draws": 1_500, "tune": 100}),
        (collapsed_mixture, kz.NUTS(), 60, MIXTURE | CHAIN | {"draws": 600, "tune": 400}),
    ],
    ids=[
        *("probit-Gibbs", "probit-Gibbs-paper", "probit-NUTS"),
        *("basic-Gibbs", "basic-NUTS", "basic-Exact"),
        *("simplified-Gibbs", "simplified-NUTS", "simplified-Exact"),
        *("composite-regression-Gibbs", "composite-classification-Gibbs"),
        *("composite-regression-Nested", "composite-classification-Nested"),
        *("mutual-Gibbs", "mixture-NUTS"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_samplers_are_calibrated(build, engine, replicates, options):
    model = build()
    if engine.kind == "mcmc":
        run = {name: value for name, value in options.items() if name not in ("data", "kept")}
        assert least_effective_draws(model, engine, **run, random_seed=1) > 2 * DRAWS
    ranks = calibration_ranks(model, engine, replicates, **options)
    plot_ranks(ranks, RESULTS / f"{build.__name__}-{engine.name}.png")
    for rows in ranks.values():
        for column in rows.reshape(replicates, -1).T:
            assert_uniform(column, DRAWS)


@pytest.mark.filterwarnings("ignore")
def test_mean_field_is_seen_to_be_overconfident():
    """The power of the test itself: ranks of the weights pile up at both ends."""
    replicates = 200
    ranks = calibration_ranks(small_model(), kz.VB(), replicates, draws=DRAWS)
    plot_ranks(ranks, RESULTS / "small_model-VB.png")
    contrasts = ranks["contrast"].reshape(replicates, -1)
    worst = min(uniform_p_value(column, DRAWS) for column in contrasts.T)
    assert worst < 1e-6
    ends = (contrasts < 4) | (contrasts > DRAWS - 4)
    assert ends.mean() > 1.5 * 8 / (DRAWS + 1)
