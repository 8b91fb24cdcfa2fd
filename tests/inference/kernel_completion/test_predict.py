"""Labels of completed objects from made-up results, in which wrong arrays answer otherwise."""

import numpy as np
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz

LABELS = ["a", "b", "c"]
#: Test objects (rows) near the second and the third training object, by the largest entry.
K21 = np.array([[0.1, 0.5, 0.2], [0.2, 0.1, 0.4]])
#: The same for the first and the second.
OTHER = np.array([[0.4, 0.1, 0.2], [0.1, 0.6, 0.2]])
DIMS = ("test", "train")


def model_of(kind):
    theta = np.exp(-((np.arange(5.0)[:, None] - np.arange(5.0)) ** 2))
    K11 = np.eye(3) + 0.5
    if kind is kz.WishartKernelMixture:
        return kind([theta, np.eye(5)], K11)
    return kind(theta, K11)


@pytest.fixture(scope="module")
def model():
    return model_of(kz.WishartCompletion)


def tree(**groups):
    """Result of which each group holds the given arrays (..., test, train), by name."""
    leading = {2: (), 3: ("chain",), 4: ("chain", "draw")}
    return DataTree.from_dict(
        {
            group: xr.Dataset({n: ((*leading[v.ndim], *DIMS), v) for n, v in arrays.items()})
            for group, arrays in groups.items()
        }
    )


def nearest(model, result, **options):
    options = {"labels": LABELS, "rule": "nearest neighbour"} | options
    return kz.predict(model, result, **options)


def named(predictions):
    return predictions["label"].values.tolist()


@pytest.mark.parametrize(
    "kind", [kz.WishartCompletion, kz.DiagonalWishartCompletion, kz.WishartKernelMixture]
)
@pytest.mark.parametrize(
    "result",
    [
        tree(moments={"K21_mean": K21, "K21_sd": OTHER, "K22_mean": OTHER}),
        tree(moments={"K21_mean": K21}, posterior={"K21": OTHER[None, None]}),
        tree(posterior={"K21": np.array([[K21 - OTHER, K21 + OTHER]])}),
        tree(point={"K21": K21}),
    ],
    ids=["moments", "moments before draws", "draws", "point"],
)
def test_label_is_that_of_the_posterior_mean(kind, result):
    predictions = nearest(model_of(kind), result)
    assert named(predictions) == ["b", "c"]
    assert predictions["test"].values.tolist() == [3, 4]


def test_rule_is_the_one_asked_for(model):
    """The mean of two far objects and a near one against the near one."""
    K = np.array([[0.9, -1.0, 0.5], [-1.0, 0.9, 0.5]])
    result = tree(point={"K21": K})
    labels = ["a", "a", "b"]
    assert named(kz.predict(model, result, labels=labels)) == ["b", "b"]
    assert named(nearest(model, result, labels=labels)) == ["a", "a"]


def test_dims_may_come_in_any_order(model):
    turned = xr.Dataset({"K21_mean": (("train", "test"), K21.T)})
    assert named(nearest(model, DataTree.from_dict({"moments": turned}))) == ["b", "c"]


def test_draws_give_frequencies_beside_the_label(model):
    draws = np.array([[K21, K21, OTHER], [K21, K21, K21]])
    predictions = nearest(model, tree(posterior={"K21": draws}), keep_draws=True)
    expected = [[1 / 6, 5 / 6, 0], [0, 1 / 6, 5 / 6]]
    np.testing.assert_allclose(predictions["probability"], expected)
    assert predictions["class"].values.tolist() == LABELS
    assert predictions["label_draws"].dims == ("chain", "draw", "test")
    assert predictions["label_draws"].values[0].tolist() == [["b", "c"], ["b", "c"], ["a", "b"]]


def test_collapsed_mixture_goes_by_the_mean_given_alpha():
    """It has no draws of K21, only of what averages to its mean."""
    collapsed = kz.WishartKernelMixture.example(concentration=1.0, collapsed=True)
    name = "K21_mean_given_alpha"
    assert name in collapsed.named_vars
    for result in (
        tree(moments={f"{name}_mean": K21, f"{name}_sd": OTHER}),
        tree(posterior={name: np.array([[K21 - OTHER, K21 + OTHER]])}),
    ):
        predictions = nearest(collapsed, result)
        assert named(predictions) == ["b", "c"]
        assert "probability" not in predictions
    with pytest.raises(ValueError, match=f"draws of {name}"):
        nearest(collapsed, tree(posterior={"alpha": np.zeros((1, 1, 1, 1))}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": None}, "'labels' argument of predict .* training objects"),
        ({"labels": ["a", "b"]}, "'labels' argument of predict"),
        ({"rule": "nearest"}, "'rule' argument of predict .* nearest is 'nearest mean'"),
        ({"kernels_new": np.eye(3)}, "'kernels_new' .* WishartCompletion: it contains"),
        ({"keep_draws": True}, "'result' argument of predict .* draws of K21"),
    ],
)
def test_bad_input_is_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        nearest(model, tree(moments={"K21_mean": K21}), **arguments)


def test_result_without_K21_is_refused(model):
    with pytest.raises(ValueError, match=r"'result' argument .* moments or draws of K21\. Got"):
        nearest(model, tree(moments={"K22_mean": K21}))
