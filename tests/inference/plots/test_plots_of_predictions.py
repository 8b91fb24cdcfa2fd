"""Figures of predictions and kernels carry the right numbers, read back from the artists."""

from itertools import chain

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from scipy import stats
from xarray import Dataset, DataTree

from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.engine.predict import predict
from kernelzoo.inference.plots import plot_decision_regions, plot_kernels, plot_reliability
from kernelzoo.models.kernels import as_stack, gaussian, linear
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
    pc = plot_reliability({"x": probabilities(np.repeat(rows, 4, axis=0))}, labels, bins=4)
    x, y = pc.viz["frequency"]["calibration"].sel(model="x").item().get_data()
    np.testing.assert_allclose(x, [0.6, (0.9 + 0.9 + 1.0) / 3])
    np.testing.assert_allclose(y, [1 / 3, 2 / 3])
    counts = pc.viz["count"]["histogram"].sel(model="x").item().get_data().values
    np.testing.assert_array_equal(counts, [0, 0, 12, 12])
    bars = pc.viz["interval"]["calibration"].sel(model="x").item().get_segments()
    drawn = [bar[:, 1] for bar in bars]
    jeffreys = [stats.beta(k + 0.5, 12 - k + 0.5).interval(0.95) for k in (4, 8)]
    np.testing.assert_allclose(drawn, jeffreys)


def test_a_frequency_of_one_is_inside_its_interval():
    p = probabilities([[0.1, 0.9]] * 10).to_dataset(name="probability")
    bars = plot_reliability(p, ["v"] * 10).viz["interval"]["calibration"].sel(model="").item()
    (bar,) = bars.get_segments()
    assert bar[1, 1] == 1.0


def test_bins_of_few_objects_are_pooled():
    # Counts of the upper bins: 6, 8, 12, 0, 6. Bug: the remainder dropped, or pooled too far.
    sizes = np.repeat([0.55, 0.65, 0.75, 0.95], [6, 8, 12, 6])
    p = probabilities(np.stack([sizes, 1 - sizes], axis=1))
    happened = np.arange(32) % 3 == 0
    pc = plot_reliability({"x": p, "y": p}, np.where(happened, "u", "v"))
    table = pc.data["calibration"].sel(model="x")
    np.testing.assert_array_equal(table.sel(summary="count"), [14, 18])
    np.testing.assert_allclose(table.sel(summary="right edge"), [0.7, 1.0])
    np.testing.assert_allclose(
        table.sel(summary="frequency"), [happened[:14].mean(), happened[14:].mean()]
    )
    np.testing.assert_allclose(
        table.sel(summary="probability"), [sizes[:14].mean(), sizes[14:].mean()]
    )
    counts = pc.viz["count"]["histogram"].sel(model="x").item().get_data().values
    np.testing.assert_array_equal(counts, [0, 0, 0, 0, 0, 6, 8, 12, 0, 6])
    assert "at least 10" in pc.get_target(None, {"panel": "diagram"}).get_title()


def test_fewer_objects_than_a_bin_must_hold_are_one_bin():
    pc = plot_reliability(probabilities([[0.9, 0.1], [0.2, 0.8]]), ["u", "u"])
    (count,) = pc.data["calibration"].sel(model="", summary="count").values
    assert count == 2


def test_models_pool_their_own_bins():
    # Bug: the points of the model with fewer bins are padded by zeros.
    sure, unsure = np.repeat([0.65, 0.95], 12), np.full(24, 0.55)
    p = {
        name: probabilities(np.stack([x, 1 - x], 1))
        for name, x in (("sure", sure), ("not", unsure))
    }
    pc = plot_reliability(p, ["v", "u"] * 12)
    points = {name: pc.viz["frequency"]["calibration"].sel(model=name).item() for name in p}
    assert [len(points[name].get_xdata()) for name in p] == [2, 1]


@pytest.mark.parametrize("n_models", [1, 3, 8])
def test_the_legend_of_reliability_is_off_the_axes(n_models):
    p = probabilities([[0.01, 0.99], [0.99, 0.01]] * 20)
    pc = plot_reliability({f"model {i}": p for i in range(n_models)}, ["u", "u"] * 20, bins=2)
    figure = pc.viz["figure"].item()
    figure.draw_without_rendering()
    (legend,) = figure.legends
    legend_box = legend.get_window_extent()
    assert figure.bbox.x0 <= legend_box.x0 < legend_box.x1 <= figure.bbox.x1
    for axes in figure.axes:
        assert axes.get_legend() is None
        assert not legend_box.overlaps(axes.get_tightbbox())


# --- Decision regions


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    y = np.array(["a", "b", "c"])[np.arange(24) % 3]
    X = (
        rng.normal(size=(24, 2)) * [0.3, 30]
        + np.array([[0, 0], [2, 0], [1, 200]])[np.arange(24) % 3]
    )

    def kernels(A, B):
        return (gaussian(1.0) | linear())(A / [1, 100], None if B is None else B / [1, 100])

    model = MultinomialProbit(kernels(X, None), y)
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
    return model, tree, kernels, X, y


def test_regions_are_the_most_probable_classes_at_the_grid(classifier):
    # Bug: x and y swapped (the features differ in scale by 100), image upside down, wrong colours.
    model, tree, kernels, X, y = classifier
    pc = plot_decision_regions(model, tree, kernels, X, y, resolution=15)
    image = pc.viz["regions"]["probability"].item()
    left, right, bottom, top = image.get_extent()
    picture = image.get_array()
    assert image.origin == "lower"
    colors = {
        c: to_rgb(pc.viz["objects"]["train"].sel({"class": c}).item().get_facecolor()[0][:3])
        for c in "abc"
    }
    rng = np.random.default_rng(1)
    for row, column in rng.integers(0, 15, size=(30, 2)):
        x = left + (column + 0.5) * (right - left) / 15
        height = bottom + (row + 0.5) * (top - bottom) / 15
        p = predict(model, tree, kernels(np.array([[x, height]]), X))["probability"].values[0]
        winner = "abc"[p.argmax()]
        strength = 0.75 * (p.max() - 1 / 3) / (2 / 3)
        expected = 1 - strength * (1 - np.array(colors[winner]))
        np.testing.assert_allclose(picture[row, column], expected, atol=1e-6)
        assert pc.data["label"].values[row, column] == winner
    assert {"a", "b", "c"} == set(pc.data["label"].values.ravel())


def test_training_objects_lie_on_top_in_their_class(classifier):
    model, tree, kernels, X, y = classifier
    frame = pd.DataFrame(X, columns=["length", "mass"])

    def by_name(A, B):
        return kernels(np.asarray(A), np.asarray(B))

    pc = plot_decision_regions(model, tree, by_name, frame, y, resolution=5)
    image = pc.viz["regions"]["probability"].item()
    for c in "abc":
        points = pc.viz["objects"]["train"].sel({"class": c}).item()
        np.testing.assert_array_equal(points.get_offsets(), X[y == c])
        assert points.get_zorder() > image.get_zorder()
    axes = image.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("length", "mass")
    low, high = axes.get_ylim()
    assert low < X[:, 1].min()
    assert X[:, 1].max() < high


def test_decision_regions_of_a_polars_frame(classifier):
    model, tree, kernels, X, y = classifier
    frame = pl.DataFrame(X, schema=["length", "mass"])
    expected = plot_decision_regions(model, tree, kernels, X, y, resolution=3)
    given = plot_decision_regions(model, tree, kernels, frame, pl.Series(y.tolist()), resolution=3)
    xr.testing.assert_equal(given.data, expected.data)
    points = given.viz["objects"]["train"].sel({"class": "a"}).item()
    np.testing.assert_array_equal(points.get_offsets(), X[y == "a"])
    assert points.axes.get_ylabel() == "mass"


# --- Kernels


def test_kernels_are_ordered_by_class_in_rows_and_columns():
    X = np.random.default_rng(0).normal(size=(7, 2))
    labels = ["b", "a", "b", "a", "c", "a", "b"]
    order = [1, 3, 5, 0, 2, 6, 4]
    pc = plot_kernels((gaussian(1.0) | linear())(X), labels)
    picture = pc.viz["picture"]["kernels"].sel(kernel="linear").item()
    gram = X @ X.T
    np.testing.assert_allclose(picture.get_array(), gram[np.ix_(order, order)])
    limits = picture.get_clim()
    assert limits[0] == -limits[1]  # zero is the middle of two hues
    np.testing.assert_array_equal(picture.axes.get_yticks(), [1, 4, 6])
    assert [t.get_text() for t in picture.axes.get_yticklabels()] == ["a", "b", "c"]
    assert pc.viz["picture"]["kernels"].sel(kernel="gaussian(1)").item().get_clim()[0] == 0


def test_columns_of_a_basis_expansion_stay_in_order():
    design = np.arange(12.0).reshape(4, 3)
    pc = plot_kernels(design, [1, 0, 1, 0])
    picture = pc.viz["picture"]["kernels"].values.item()
    np.testing.assert_array_equal(picture.get_array(), design[[1, 3, 0, 2]])


def test_colours_cover_the_entries_beside_the_diagonal():
    # Bug: of a small kernel the diagonal is more than 1 % of the entries and sets the scale.
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.01, 0.03, size=(20, 20))
    picture = image_of((noise + noise.T) / 2 + np.eye(20))
    assert picture.get_clim()[0] == 0
    assert 0.02 < picture.get_clim()[1] < 0.04


def test_small_entries_show_beside_large_ones():
    # Bug: a near-white picture. Twelve of 870 entries are 1, the others near 0.01.
    values = np.full((30, 30), 0.01)
    values[:4, :4] = 1.0
    np.fill_diagonal(values, 2.0)
    picture = image_of(values)
    assert 0.15 < picture.norm(0.01) < 0.5
    assert picture.norm(0.0) == 0
    assert picture.norm(picture.get_clim()[1]) == 1
    ticks = picture.colorbar.get_ticks()
    assert 0 < min(tick for tick in ticks if tick > 0) < 0.05
    values[:4, 4:] = values[4:, :4] = -0.01
    signed = image_of(values)
    low, high = signed.get_clim()
    assert low == -high
    assert signed.norm(0.0) == 0.5
    np.testing.assert_allclose(signed.norm(-0.01), 1 - signed.norm(0.01))
    assert signed.norm(0.01) > 0.58


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
    return plot_kernels(kernel).viz["picture"]["kernels"].values.item()


@pytest.mark.parametrize(
    ("sizes", "gram"),
    [
        ([40, 2, 1, 30, 1, 2, 2, 30, 1, 2], True),
        ([5] * 40, True),
        ([10, 1, 10], True),
        ([1, 1, 1, 1, 40], False),
    ],
    ids=["ten", "forty", "one small", "basis"],
)
def test_names_of_classes_do_not_collide(sizes, gram):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    names = [f"class number {i:02d}" for i in range(len(sizes))]
    X = np.random.default_rng(0).normal(size=(len(codes), 2)) + codes[:, None]
    kernels = (gaussian(1.0) | linear())(X) if gram else {"a": X, "b": X + 1}
    pc = plot_kernels(kernels, np.array(names)[codes])
    figure = pc.viz["figure"].item()
    figure.draw_without_rendering()
    middles = np.cumsum(sizes) - (np.array(sizes) + 1) / 2
    for image in pc.viz["picture"]["kernels"].values.ravel():
        axes = image.axes
        sides = [axes.get_xticklabels() if gram else [], axes.get_yticklabels()]
        written = [text for text in chain(*sides) if text.get_text() in names]
        # All classes are named, or as many as there is room for.
        n_sides = 2 if gram else 1
        assert len(written) > n_sides * min(len(sizes) / 3, 7)
        boxes = [text.get_window_extent() for text in written]
        picture = axes.get_window_extent()
        label = axes.yaxis.label.get_window_extent()
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in [*boxes[:i], picture, label])
            # Constrained layout is true to a few pixels.
            assert min(box.x0, box.y0) > -4
        for y, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True):
            assert y == middles[names.index(text.get_text())]
        assert ("largest" in axes.get_ylabel()) == (len(written) < n_sides * len(sizes))
    largest = names[int(np.argmax(sizes))]
    assert largest in {text.get_text() for text in written}


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
        (lambda: plot_kernels(np.eye(3), [0, 1]), "'labels' argument of plot_kernels"),
    ],
)
def test_errors_say_which_argument_and_why(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_decision_regions_need_two_features(classifier):
    model, tree, kernels, X, y = classifier
    with pytest.raises(ValueError, match=r"of two features. Got shape \(24, 3\)"):
        plot_decision_regions(model, tree, kernels, np.c_[X, X[:, 0]], y)
    with pytest.raises(ValueError, match="'y_train' argument of plot_decision_regions"):
        plot_decision_regions(model, tree, kernels, X, y[:-1], resolution=3)


def test_decision_regions_are_those_of_the_training_objects(classifier):
    # Shuffled classes were drawn at the objects, under the regions of the true ones.
    model, tree, kernels, X, y = classifier
    with pytest.raises(ValueError, match=r"'y_train' .* in the order of X_train. Got 24 others"):
        plot_decision_regions(model, tree, kernels, X, np.roll(y, 1), resolution=3)
    with pytest.raises(ValueError, match="against objects with other features, or in another or"):
        plot_decision_regions(model, tree, kernels, X[::-1], y[::-1], resolution=3)


def test_decision_regions_of_a_function_are_those_of_the_training_objects():
    """Kernels of a function do not say what they were computed against."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9, 2)), np.arange(9) % 2

    def kernels(A, B):
        return np.exp(-((np.asarray(A)[:, None] - np.asarray(B)) ** 2).sum(-1))

    K = as_stack(kernels(X, X), jitter=1e-5)
    model = MultinomialProbit(K, y)
    result = fit(model, "vb", draws=2, random_seed=1, progressbar=False)
    plot_decision_regions(model, result, kernels, X, y, resolution=3)
    for others in (X[::-1], 2.0 * X):
        with pytest.raises(ValueError, match=r"'X_train' .* of the model's kernels, in their ord"):
            plot_decision_regions(model, result, kernels, others, y, resolution=3)
    # By id, objects may be in any order.
    ids = [f"s{i}" for i in range(9)]
    frame = pd.DataFrame(X, ids)
    model = MultinomialProbit(pd.DataFrame(K.values[0], ids, ids), y)
    result = fit(model, "vb", draws=2, random_seed=1, progressbar=False)

    def by_id(A, B):
        return pd.DataFrame(kernels(A, B), columns=B.index)

    reverse = slice(None, None, -1)
    plot_decision_regions(model, result, by_id, frame[reverse], y[reverse], resolution=3)


def test_decision_regions_of_objects_with_ids_in_any_order(classifier):
    _, tree, _, X, y = classifier
    X = pd.DataFrame(X, [f"s{i}" for i in range(24)], ["u", "v"])
    kernels = gaussian(1.0) | linear()
    model = MultinomialProbit(kernels(X), pd.Series(y, X.index))
    shuffled = X.iloc[::-1]
    pc = plot_decision_regions(model, tree, kernels, shuffled, y[::-1], resolution=3)
    points = pc.viz["objects"]["train"].sel({"class": "a"}).item().get_offsets()
    np.testing.assert_array_equal(points, shuffled[y[::-1] == "a"])
