"""Figures of damoulas2009: what is drawn where."""

import numpy as np
import pytest
from matplotlib.patches import Ellipse

from studies import damoulas2009_synthetic as synthetic
from studies.damoulas2009_figures import draw_weights
from studies.report import Cell, Report
from studies.study import Study

RNG = np.random.default_rng(4)


def cell(row, *values):
    return Cell(row, "digits", tuple(values), (), len(values), None, None, None)


def report(*cells):
    return Report(Study("name", "title", "measure", (), 50, 1), cells)


def test_weights_stand_in_the_panel_of_their_combination():
    weights = {
        "WSum, from equal weights": [0.1, 0.2, 0.6, 0.1],
        "WProd": [0.5, 1.2, 1.4, 0.3],
        "Bin": [1.0, 1.0, 1.0, 0.0],
    }
    cells = [cell("Prod", 5.0, 6.0)]
    for rule, means in weights.items():
        cells.append(cell(rule, 5.0, 6.0))
        for space, mean in zip(("FR", "KL", "PX", "ZM"), means, strict=True):
            cells.append(cell(f"{rule}: weight of {space}", 90 * mean, 110 * mean))
    cells.append(Cell("Late: weight of FR", "digits", (), (), 50, None, None, None))
    figure = draw_weights(report(*cells))
    assert [panel.get_title().split("\n")[0] for panel in figure.axes] == ["WSum", "WProd", "Bin"]
    for panel, means in zip(figure.axes, weights.values(), strict=True):
        np.testing.assert_allclose([bar.get_height() for bar in panel.patches], means)
        assert [label.get_text() for label in panel.get_xticklabels()] == ["FR", "KL", "PX", "ZM"]
        points = np.concatenate([dots.get_offsets() for dots in panel.collections])
        np.testing.assert_allclose(
            np.sort(points[:, 1]), np.sort(np.outer([0.9, 1.1], means), None)
        )
    assert not draw_weights(report(cell("Prod", 5.0))).axes


@pytest.mark.filterwarnings("ignore")
def test_figure_of_the_made_up_sets(monkeypatch, tmp_path):
    """The cloud and its ellipse are the posterior's; each panel's regions are its engine's."""
    vb = synthetic.RECIPES["VB"]
    small = vb | {"algorithm": vb["algorithm"] | {"max_iterations": 30}, "sampling": {"draws": 300}}
    monkeypatch.setattr(synthetic, "RECIPES", {"Gibbs": small, "VB": small})
    monkeypatch.setattr(synthetic, "SIDE", 20)
    made = synthetic.study()
    assert made.draw is synthetic.draw
    figure = synthetic.draw(None)
    first, second, *regions = figure.axes
    assert [panel.get_title() for panel in figure.axes] == 2 * ["Gibbs", "VB"]
    np.testing.assert_allclose(first.lines[0].get_xydata(), [[1, -1 / 3]])
    draws = np.asarray(first.collections[0].get_offsets())
    np.testing.assert_array_equal(draws, second.collections[0].get_offsets())
    (ellipse,) = (patch for patch in first.patches if isinstance(patch, Ellipse))
    np.testing.assert_allclose(ellipse.center, draws.mean(axis=0))
    inside = ellipse.contains_points(first.transData.transform(draws))
    assert 0.85 < inside.mean() < 1
    image = regions[0].images[0].get_array()
    # Neal's disc of the first class is around (0.4, 0.5); below it lies the second.
    colors = [tuple(np.round(image[row, column], 3)) for row, column in ((10, 8), (1, 2), (18, 18))]
    assert len(set(colors)) == 3
    figure.savefig(tmp_path / "figure.png")
