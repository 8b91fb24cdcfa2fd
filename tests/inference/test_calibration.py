"""Simulation-based calibration: samplers keep the bands, mean field is seen to be too sure."""

import json
from pathlib import Path

import arviz as az
import numpy as np
import pytest
from matplotlib import pyplot

import kernelzoo as kz
from kernelzoo.inference.diagnostics.calibrate import RANKED_DRAWS

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


def learned_scale():
    """The same with a learned scale of the regressors."""
    given = small_model()
    return kz.MultinomialProbit(
        given["K"].get_value(),
        given.label_codes,
        combination=kz.combinations.Mean(2.0, 1.0),
        tau=6.0,
        upsilon=kz.LearnedScale(3.0, 0.7),
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


def composite_regression_scale():
    """The regression with a learned scale."""
    rule = kz.combinations.DirichletWeights(3.0, 1.5)
    options = {"sigma": 3.0, "varsigma": kz.LearnedScale(3.0, 0.7), "rho": 3.0, "varrho": 1.0}
    return kz.CompositeKernelRegression.example(combination=rule, **options)


def composite_classification_scale():
    """The classification with a learned scale."""
    rule = kz.combinations.DirichletWeights(3.0, 1.5)
    scale = kz.LearnedScale(3.0, 0.7)
    return kz.CompositeKernelClassification.example(combination=rule, sigma=3.0, varsigma=scale)


def process_kernels():
    """Two kernels of 25 objects."""
    x = np.random.default_rng(1).normal(size=(25, 2))
    return (kz.gaussian(0.5) | kz.linear()).normalize("trace")(x)


def process_regression():
    """25 objects, two kernels, learned scale, weights and noise."""
    scale, gamma = kz.LearnedScale(3.0, 0.7), kz.LearnedScale(10.0, 0.7)
    targets = np.linspace(-1.7, 1.7, 25)
    return kz.GaussianProcessRegression(process_kernels(), targets, scale=scale, gamma=gamma)


def process_classification():
    """25 objects of two classes, two kernels, learned scale and weights."""
    scale = kz.LearnedScale(3.0, 0.7)
    return kz.GaussianProcessClassification(process_kernels(), np.arange(25) % 2, scale=scale)


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


SHORT = {"draws": 600, "tune": 400}
LONG = {"draws": 2_000, "tune": 100}
CELLS = {
    "probit-Gibbs": (small_model, kz.Gibbs(), 150, {"draws": 600, "tune": 200}),
    "probit-Gibbs-paper": (
        *(small_model, kz.Gibbs(scheme="paper"), 150),
        {"draws": 2_000, "tune": 500},
    ),
    "probit-NUTS": (small_model, kz.NUTS(), 40, SHORT),
    "scale-Gibbs": (learned_scale, kz.Gibbs(), 150, {"draws": 1_000, "tune": 200}),
    "scale-Gibbs-paper": (
        *(learned_scale, kz.Gibbs(scheme="paper"), 150),
        {"draws": 8_000, "tune": 500},
    ),
    "basic-Gibbs": (basic_completion, kz.Gibbs(), 60, {"draws": 1_000, "tune": 100}),
    "basic-NUTS": (basic_completion, kz.NUTS(), 40, SHORT),
    "basic-Exact": (basic_completion, kz.Exact(), 200, {"draws": RANKED_DRAWS}),
    "simplified-Gibbs": (simplified_completion, kz.Gibbs(), 200, LONG),
    "simplified-NUTS": (simplified_completion, kz.NUTS(), 40, SHORT),
    "simplified-Exact": (simplified_completion, kz.Exact(), 200, {"draws": RANKED_DRAWS}),
    "composite-regression-Gibbs": (composite_regression, kz.Gibbs(), 150, LONG),
    "composite-classification-Gibbs": (composite_classification, kz.Gibbs(), 150, LONG),
    "composite-regression-scale-Gibbs": (composite_regression_scale, kz.Gibbs(), 150, LONG),
    "composite-classification-scale-Gibbs": (
        *(composite_classification_scale, kz.Gibbs(), 150),
        LONG,
    ),
    "process-regression-INLA": (
        *(process_regression, kz.INLA(max_points=128), 200),
        {"draws": RANKED_DRAWS},
    ),
    "process-classification-INLA": (
        *(process_classification, kz.INLA(max_points=128), 200),
        {"draws": RANKED_DRAWS},
    ),
    "mutual-Gibbs": (mutual_completion, kz.Gibbs(), 60, {"draws": 1_500, "tune": 100}),
    "mixture-NUTS": (collapsed_mixture, kz.NUTS(), 60, SHORT | {"var_names": ["alpha"]}),
}


def calibrated(name, build, engine, replicates, options):
    """Calibration, whose ranks are drawn in a file."""
    checked = kz.calibrate(
        build(), engine, replicates=replicates, random_seed=1, progressbar=False, **options
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    with az.rc_context({"plot.max_subplots": None}):
        az.plot_ecdf_pit(checked, backend="matplotlib").savefig(RESULTS / f"{name}.png")
    pyplot.close("all")
    return checked


@pytest.mark.parametrize("name", CELLS)
def test_samplers_are_calibrated(name):
    checked = calibrated(name, *CELLS[name])
    assert checked.attrs["calibrated"] == 1, checked.attrs["verdict"]
    assert json.loads(checked.attrs["failures"]) == {}
    assert checked.attrs["draws"] == RANKED_DRAWS


def test_mean_field_is_seen_to_be_overconfident():
    """The power of the check itself: ranks of the weights pile up at both ends."""
    checked = calibrated("small_model-VB", small_model, kz.VB(), 200, {"draws": RANKED_DRAWS})
    assert json.loads(checked.attrs["leaves_bands"])["contrast"] > 20
    contrasts = checked["prior_sbc"]["contrast"]
    ends = (contrasts < 4 / (RANKED_DRAWS + 1)) | (contrasts > 1 - 4 / (RANKED_DRAWS + 1))
    assert ends.mean() > 1.5 * 8 / (RANKED_DRAWS + 1)
