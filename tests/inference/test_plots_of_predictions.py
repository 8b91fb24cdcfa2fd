"""Figures of predictions and kernels carry the right numbers, read back from the artists."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from scipy import stats
from xarray import Dataset, DataTree

from kernelzoo.inference.plots import plot_decision_regions, plot_kernels, plot_reliability
from kernelzoo.inference.predict import predict
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
    # Confidence .6 three times (one right), .9 twice (both right), 1.0 once (wrong).
    p = probabilities([[0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.9, 0.1], [0.1, 0.9], [1.0, 0.0]])
    pc = plot_reliability({"x": p}, ["u", "u", "v", "u", "v", "v"], bins=4, prob=0.9)
    x, y = pc.viz["frequency"]["calibration"].sel(model="x").item().get_data()
    np.testing.assert_allclose(x, [0.6, (0.9 + 0.9 + 1.0) / 3])
    np.testing.assert_allclose(y, [1 / 3, 2 / 3])
    counts = pc.viz["count"]["calibration"].sel(model="x").item().get_data().values
    np.testing.assert_array_equal(counts, [0, 0, 3, 3])
    bars = pc.viz["interval"]["calibration"].sel(model="x").item().get_segments()
    drawn = [bar[:, 1] for bar in bars]
    jeffreys = [stats.beta(k + 0.5, 3 - k + 0.5).interval(0.9) for k in (1, 2)]
    np.testing.assert_allclose(drawn, jeffreys)


def test_reliability_of_one_class_takes_its_own_column():
    p = probabilities([[0.1, 0.9], [0.2, 0.8], [0.8, 0.2], [0.7, 0.3]])
    pc = plot_reliability(
        p.to_dataset(name="probability"), ["v", "v", "v", "u"], bins=2, of_class="v"
    )
    x, y = pc.viz["frequency"]["calibration"].sel(model="").item().get_data()
    np.testing.assert_allclose(x, [0.25, 0.85])
    np.testing.assert_allclose(y, [0.5, 1.0])
    bars = pc.viz["interval"]["calibration"].sel(model="").item().get_segments()
    assert bars[1][1, 1] == 1.0  # a frequency of one is inside its interval


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
    pc = plot_decision_regions(model, tree, kernels, X, y, resolution=15, draws=80)
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
    pc = plot_decision_regions(
        model, tree, kernels, X, y, resolution=5, draws=4, feature_names=["length", "mass"]
    )
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


# --- Errors

P = probabilities([[0.6, 0.4], [0.4, 0.6]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_reliability(P, ["u", "w"]), "unseen class 'w'"),
        (lambda: plot_reliability(P, ["u"]), "of length 2"),
        (lambda: plot_reliability(P, ["u", "v"], bins=0), "'bins' argument"),
        (lambda: plot_reliability(P, ["u", "v"], of_class="w"), "'of_class' argument"),
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
        plot_decision_regions(model, tree, kernels, X, y[:-1], resolution=3, draws=1)
