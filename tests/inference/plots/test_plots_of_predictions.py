"""Figures of predictions and kernels carry the right numbers, read back from the artists."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.collections import QuadMesh
from xarray import Dataset, DataTree

from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.engine.predict import predict
from kernelzoo.inference.plots import plot_decision_regions, plot_kernels, plot_reliability
from kernelzoo.models.kernels import gaussian, linear
from kernelzoo.models.multinomial_probit import MultinomialProbit

mpl.use("Agg")


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """No figure is shown, no global setting changed."""
    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


# --- Reliability


def probabilities(rows):
    return xr.DataArray(rows, dims=("obs", "class"), coords={"class": ["u", "v"]})


def test_reliability_of_hand_counted_bins():
    # Confidence .6 twelve times (four right), .9 eight times (all right), 1.0 four times (wrong).
    rows = [[0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.9, 0.1], [0.1, 0.9], [1.0, 0.0]]
    labels = np.repeat(["u", "u", "v", "u", "v", "v"], 4)
    p = probabilities(np.repeat(rows, 4, axis=0))
    axes = plot_reliability({"x": p, "y": p.to_dataset(name="probability")}, labels, bins=4)
    diagonal, *lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["x", "y"]
    for line in lines:
        np.testing.assert_allclose(line.get_xdata(), [0.6, (0.9 + 0.9 + 1.0) / 3])
        np.testing.assert_allclose(line.get_ydata(), [1 / 3, 2 / 3])
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    assert [text.get_text() for text in axes.texts] == ["12", "12"] * 2


def test_counts_stand_below_the_diagram_in_a_row_per_curve():
    # Bug: counts were printed on points, on each other and on the diagonal.
    p = probabilities(np.repeat([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2]], 1000, axis=0))
    curves = {"x": p, "y": p, "z": p}
    axes = plot_reliability(curves, np.where(np.arange(3000) % 10, "u", "v"))
    axes.figure.draw_without_rendering()
    points = axes.get_lines()[1].get_xdata()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["1000"] * 9
    np.testing.assert_allclose([text.get_position()[0] for text in axes.texts], [*points] * 3)
    assert all(box.y1 < axes.transData.transform((0, 0))[1] for box in boxes)
    assert all(axes.bbox.y0 < box.y0 for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


# --- Decision regions


KERNELS = gaussian(1e-3) | linear()


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    y = np.array(["a", "b", "c"])[np.arange(24) % 3]
    X = (
        rng.normal(size=(24, 2)) * [0.3, 30]
        + np.array([[0, 0], [2, 0], [1, 200]])[np.arange(24) % 3]
    )

    model = MultinomialProbit(KERNELS(X), y)
    draws = 40
    posterior = Dataset(
        {
            "beta": (("chain", "draw", "kernel"), rng.dirichlet([2, 2], (2, draws))),
            "W": (
                ("chain", "draw", "class", "basis"),
                (y == np.array([["a"], ["b"], ["c"]])) + 0.1 * rng.normal(size=(2, draws, 3, 24)),
            ),
        },
        coords={"class": ["a", "b", "c"]},
    )
    tree = DataTree.from_dict({"/posterior": posterior})
    tree.attrs["engine"] = "Gibbs"
    return model, tree, X, y


def test_regions_are_the_predictions_at_the_grid(classifier):
    # Bug: x and y swapped: the features differ in scale by 100.
    model, tree, X, y = classifier
    kernels = KERNELS
    axes = plot_decision_regions(model, tree, kernels, X, resolution=15)
    meshes = [each for each in axes.collections if isinstance(each, QuadMesh)]
    points = [each for each in axes.collections if not isinstance(each, QuadMesh)]
    assert [each.get_label() for each in points] == ["a", "b", "c"]
    for c, each in zip("abc", points, strict=True):
        np.testing.assert_array_equal(each.get_offsets(), X[y == c])
    centres = meshes[0].get_coordinates()
    centres = (centres[1:, 1:] + centres[:-1, :-1]) / 2
    p = predict(model, tree, kernels(centres.reshape(-1, 2), X))["probability"].to_numpy()
    winner = p.argmax(1)
    for code, mesh in enumerate(meshes):
        drawn = np.ma.masked_invalid(mesh.get_array()).filled(0).ravel() > 0
        np.testing.assert_array_equal(drawn, winner == code)
    # Bug: the region of a later class covered the points of earlier ones.
    assert max(each.zorder for each in meshes) < min(each.zorder for each in points)
    low, high = axes.get_ylim()
    assert low < X[:, 1].min()
    assert X[:, 1].max() < high


def test_regions_of_two_classes_are_drawn(classifier):
    # Bug: scikit-learn's display refuses the probabilities of two classes.
    _, _, X, y = classifier
    model = MultinomialProbit(gaussian(1e-3)(X), y == "b")
    axes = plot_decision_regions(model, fit(model, "vb", random_seed=1), gaussian(1e-3), X)
    shades = [each.get_array() for each in axes.collections if isinstance(each, QuadMesh)]
    assert len(shades) == 2
    assert (shades[0].mask != shades[1].mask).all()
    assert all(shade.compressed().min() >= 0.5 for shade in shades)


def test_decision_regions_of_a_polars_frame(classifier):
    model, tree, X, _ = classifier
    frame = pl.DataFrame(X, schema=["length", "mass"])
    axes = plot_decision_regions(model, tree, KERNELS, frame, resolution=3)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("length", "mass")


# --- Kernels


def test_kernels_are_ordered_by_class_in_rows_and_columns():
    X = np.random.default_rng(0).normal(size=(7, 2))
    labels = ["b", "a", "b", "a", "c", "a", "b"]
    order = [1, 3, 5, 0, 2, 6, 4]
    first, second = plot_kernels((gaussian(1.0) | linear())(X), labels)
    picture = second.images[0]
    gram = X @ X.T
    np.testing.assert_allclose(picture.get_array(), gram[np.ix_(order, order)])
    limits = picture.get_clim()
    assert limits[0] == -limits[1]  # zero is the middle of two hues
    np.testing.assert_array_equal(second.get_yticks(), [1, 4, 6])
    assert [t.get_text() for t in second.get_yticklabels()] == ["a", "b", "c"]
    # Bug: between pictures the label of the rows stood beside a colour bar, and was read as its.
    assert [each.get_ylabel() for each in (first, second)] == ["objects by class", ""]
    assert first.images[0].get_clim()[0] == 0
    chosen = plot_kernels(linear()(X), labels, classes=["c", "d", "a", "b"])[0]
    assert [t.get_text() for t in chosen.get_yticklabels()] == ["c", "a", "b"]


def test_completed_kernels_are_drawn_as_predicted():
    ids, K = list("abcd"), np.diag([1.0, 2.0, 3.0, 4.0])[None]
    coords = {"kernel": ["one"], "object": ids, "object_": ids}
    completed = xr.DataArray(K, coords, ("kernel", "object", "object_"))
    (axes,) = plot_kernels(completed, [1, 0, 1, 0])
    np.testing.assert_array_equal(np.diag(axes.images[0].get_array()), [2, 4, 1, 3])


def test_columns_of_a_basis_expansion_stay_in_order():
    design = np.arange(12.0).reshape(4, 3)
    (axes,) = plot_kernels(design, [1, 0, 1, 0])
    np.testing.assert_array_equal(axes.images[0].get_array(), design[[1, 3, 0, 2]])


def test_colours_cover_the_entries_beside_the_diagonal():
    # Bug: of a small kernel the diagonal is more than 1 % of the entries and sets the scale.
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.01, 0.03, size=(20, 20))
    picture = image_of((noise + noise.T) / 2 + np.eye(20))
    assert picture.get_clim()[0] == 0
    assert 0.02 < picture.get_clim()[1] < 0.04


def test_differences_of_a_wide_kernel_show():
    # Bug: all entries between 0.9 and 1 are drawn in one dark colour.
    X = np.random.default_rng(0).normal(size=(30, 2))
    picture = image_of(gaussian(0.01)(X).values[0])
    values = np.asarray(picture.get_array())
    strengths = np.asarray(picture.norm(values[~np.eye(30, dtype=bool)]))
    assert np.quantile(strengths, 0.9) - np.quantile(strengths, 0.1) > 0.4


def test_an_identity_is_no_pattern():
    # Bug: noise of 1e-12 beside the diagonal fills the scale.
    noise = 1e-12 * np.random.default_rng(0).uniform(size=(20, 20))
    picture = image_of(np.eye(20) + noise + noise.T)
    off_diagonal = picture.get_array()[~np.eye(20, dtype=bool)]
    assert picture.norm(off_diagonal).max() < 0.01
    # Rounding is no reason for two hues.
    assert image_of(np.eye(20) - 1e-17 * (1 - np.eye(20))).get_clim()[0] == 0


def image_of(kernel):
    return plot_kernels(kernel)[0].images[0]


# --- Errors

P = probabilities([[0.6, 0.4], [0.4, 0.6]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_reliability(P, ["u", "w"]), "unseen class 'w'"),
        (lambda: plot_reliability(P, ["u"]), "of length 2"),
        (lambda: plot_reliability(P, ["u", "v"], bins=0), "'bins' argument"),
        (lambda: plot_reliability(2 * P, ["u", "v"]), "sum to one"),
        (lambda: plot_reliability({}, ["u", "v"]), "at least one prediction"),
        (lambda: plot_reliability(P.to_dataset(name="mean"), ["u", "v"]), "class probabilities"),
        (lambda: plot_kernels(np.eye(3), [0, 1]), "'labels' argument of plot_kernels"),
    ],
)
def test_errors_say_which_argument_and_why(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_decision_regions_need_two_features(classifier):
    model, tree, X, _ = classifier
    with pytest.raises(ValueError, match=r"of two features. Got shape \(24, 3\)"):
        plot_decision_regions(model, tree, KERNELS, np.c_[X, X[:, 0]])


def test_decision_regions_are_those_of_the_training_objects(classifier):
    model, tree, X, _ = classifier
    with pytest.raises(ValueError, match="against objects with other features, or in another or"):
        plot_decision_regions(model, tree, KERNELS, X[::-1], resolution=3)
    # Kernels of a function do not say what they were computed against.
    with pytest.raises(ValueError, match="'kernels' argument of plot_decision_regions must be a s"):
        plot_decision_regions(model, tree, lambda A, B: KERNELS(A, B), X, resolution=3)


def test_decision_regions_of_objects_with_ids_in_any_order(classifier):
    _, tree, X, y = classifier
    X = pd.DataFrame(X, [f"s{i}" for i in range(24)], ["u", "v"])
    model = MultinomialProbit(KERNELS(X), pd.Series(y, X.index))
    shuffled = X.iloc[::-1]
    axes = plot_decision_regions(model, tree, KERNELS, shuffled, resolution=3)
    points = next(each for each in axes.collections if each.get_label() == "a").get_offsets()
    np.testing.assert_array_equal(points, shuffled[y[::-1] == "a"])
