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
        combination=kz.Mean(2.0, 1.0),
        tau=6.0,
        upsilon=3.0,
    )


@pytest.mark.parametrize(
    ("engine", "replicates", "options"),
    [
        (kz.Gibbs(), 150, {"chains": 1, "cores": 1, "draws": 6_000, "tune": 500}),
        (kz.NUTS(), 40, {"chains": 1, "cores": 1, "draws": 600, "tune": 400}),
    ],
    ids=["Gibbs", "NUTS"],
)
@pytest.mark.filterwarnings("ignore")
def test_samplers_are_calibrated(engine, replicates, options):
    model = small_model()
    assert least_effective_draws(model, engine, **options, random_seed=1) > 2 * DRAWS
    ranks = calibration_ranks(model, engine, replicates, **options)
    plot_ranks(ranks, RESULTS / f"{engine.name}.png")
    for rows in ranks.values():
        for column in rows.reshape(replicates, -1).T:
            assert_uniform(column, DRAWS)


@pytest.mark.filterwarnings("ignore")
def test_mean_field_is_seen_to_be_overconfident():
    """The power of the test itself: ranks of the weights pile up at both ends."""
    replicates = 200
    ranks = calibration_ranks(small_model(), kz.VB(), replicates, draws=DRAWS)
    plot_ranks(ranks, RESULTS / "VB.png")
    contrasts = ranks["contrast"].reshape(replicates, -1)
    worst = min(uniform_p_value(column, DRAWS) for column in contrasts.T)
    assert worst < 1e-6
    ends = (contrasts < 4) | (contrasts > DRAWS - 4)
    assert ends.mean() > 1.5 * 8 / (DRAWS + 1)
