"""Readers of results go by ids, or refuse by name: predictions, scores, classifiers, pictures."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine.result import draws_to_tree
from kernelzoo.inference.kernel_completion.classifiers import KernelNearestMean
from kernelzoo.inference.mutual_completion.scores import kernel_alignment

N, D = 9, 2
RNG = np.random.default_rng(4)
IDS = [f"p{i}" for i in range(N)]
NEW_IDS = ["q3", "q1", "q0", "q2"]
SHUFFLED = np.array([5, 2, 7, 0, 8, 3, 6, 1, 4])
X = pd.DataFrame(RNG.normal(size=(N, D)), IDS, ["age", "mass"])
X_NEW = pd.DataFrame(RNG.normal(size=(4, D)), NEW_IDS, ["age", "mass"])
LABELS = pd.Series(list("abcabcabc"), IDS)
TRUTH = pd.Series(list("abca"), NEW_IDS)
KERNELS = kz.gaussian(0.4) | kz.linear()


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def drawn(model, **shapes):
    rng = np.random.default_rng(1)
    draws = {name: rng.gamma(2.0, size=(5, *shape)) for name, shape in shapes.items()}
    tree = draws_to_tree(model, draws)
    tree.attrs.update(model=type(model).__name__, engine="Gibbs")
    return tree


@pytest.fixture(scope="module")
def probit():
    model = kz.MultinomialProbit(KERNELS(X), LABELS)
    return model, drawn(model, W=(3, N), beta=(2,))


@pytest.fixture(scope="module")
def parametric():
    model = kz.MultinomialProbit(
        (kz.linear() | kz.gaussian(kz.kernels.Theta()))({"u": X, "v": X**2}), LABELS
    )
    return model, drawn(model, W=(3, N), beta=(4,), theta=(2,))


@pytest.fixture(scope="module")
def regression():
    model = kz.CompositeKernelRegression(KERNELS(X), np.arange(N) / N)
    return model, drawn(model, alpha=(N + 1,), beta=(2,), gamma=(), phi=(N + 1,))


# --- predictions -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["probit", "regression"])
def test_predictions_of_kernels_in_another_order_are_the_same(case, request):
    model, result = request.getfixturevalue(case)
    new = KERNELS(X_NEW, X)
    frames = {
        str(name): new.sel(kernel=name, drop=True).to_pandas() for name in new["kernel"].values
    }
    expected = kz.predict(model, result, new)
    for given in (
        KERNELS(X_NEW[["mass", "age"]], X.iloc[SHUFFLED]),
        (kz.linear() | kz.gaussian(0.4))(X_NEW, X),
        new.isel(basis=SHUFFLED),
        dict(reversed(frames.items())),
        {name: frame.iloc[:, SHUFFLED] for name, frame in frames.items()},
    ):
        xr.testing.assert_allclose(kz.predict(model, result, given), expected)


def test_kernels_with_parameters_are_those_of_the_model(parametric):
    model, result = parametric
    kernels = kz.linear() | kz.gaussian(kz.kernels.Theta())
    expected = kz.predict(model, result, kernels({"u": X_NEW, "v": X_NEW**2}, {"u": X, "v": X**2}))
    turned = X_NEW[["mass", "age"]]
    given = kernels({"u": turned, "v": turned**2}, {"u": X, "v": X**2})
    xr.testing.assert_allclose(kz.predict(model, result, given), expected)
    with pytest.raises(ValueError, match=r"'kernels_new' argument .* parameters \['gauss"):
        kz.predict(model, result, kernels({"v": X_NEW**2, "u": X_NEW}, {"v": X**2, "u": X}))
    with pytest.raises(ValueError, match=r"'kernels_new' argument .* parameters \['gauss"):
        kz.predict(model, result, kz.gaussian(kz.kernels.Theta())({"w": X_NEW}, {"w": X}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.assign_coords(basis=["r", *IDS[1:]]),
            r"'kernels_new' argument of predict .* Got the unknown 'r'; none for 'p0'\.",
        ),
        (
            lambda s: {str(n): s.sel(kernel=n).to_pandas().iloc[:, 1:] for n in s["kernel"].values},
            r"""'kernels_new\["gaussian\(0.4\)"\]' argument of predict .* Got none for 'p0'\.""",
        ),
        (lambda s: s.assign_coords(kernel=["linear", "g"]), r"Got \['linear', 'g'\]"),
        (lambda s: np.ma.masked_array(s.values, s.values > 0), r"'kernels_new.* without masked"),
    ],
)
def test_kernels_of_other_objects_are_refused(change, message, probit):
    with pytest.raises(ValueError, match=message):
        kz.predict(*probit, change(KERNELS(X_NEW, X)))


# --- scores ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def predictions(probit):
    return kz.predict(*probit, KERNELS(X_NEW, X), keep_draws=True)


@pytest.fixture(scope="module", params=[X, X.to_numpy()], ids=["ids in training", "no ids"])
def numbered(request):
    """Predictions of new objects that came as an array: their numbers are made up.

    They number on from those of the training objects, 9 to 12 where these have no ids.
    """
    train = request.param
    model = kz.MultinomialProbit(KERNELS(train), LABELS)
    new = KERNELS(X_NEW.to_numpy(), train)
    return kz.predict(model, drawn(model, W=(3, N), beta=(2,)), new, keep_draws=True)


def test_truth_goes_by_the_ids_of_the_predictions(predictions):
    expected = kz.scores.held_out(predictions, TRUTH.to_numpy())
    turned = kz.scores.held_out(predictions, TRUTH.to_numpy()[::-1])
    assert turned != expected
    for truth in (
        TRUTH,
        TRUTH.sort_index(),
        xr.DataArray(TRUTH[::-1].to_numpy(dtype=object), {"obs": NEW_IDS[::-1]}, "obs"),
        TRUTH.reset_index(drop=True),
        TRUTH.tolist(),
    ):
        assert kz.scores.held_out(predictions, truth) == expected
    assert kz.scores.held_out(predictions.rename(obs="sample"), TRUTH.sort_index()) == expected


@pytest.mark.parametrize("ids", [range(4), [30, 7, 9, 12], NEW_IDS, range(10, 14)])
def test_truth_goes_by_position_where_predictions_have_no_ids(ids, numbered, tmp_path):
    expected = kz.scores.held_out(numbered, TRUTH.to_numpy())
    truth = pd.Series(TRUTH.to_numpy(), index=ids)
    numbered.to_netcdf(tmp_path / "predictions.nc")
    with xr.open_dataset(tmp_path / "predictions.nc") as stored:
        for given in (numbered, stored.load(), kz.combine_classifiers([numbered] * 2)):
            assert kz.scores.held_out(given, truth)["accuracy"] == expected["accuracy"]


def test_targets_of_a_regression_go_by_ids(regression):
    model, result = regression
    predicted = kz.predict(model, result, KERNELS(X_NEW, X))
    truth = pd.Series([1.0, 2.0, 3.0, 4.0], NEW_IDS)
    assert kz.scores.held_out(predicted, truth.sort_index()) == kz.scores.held_out(
        predicted, truth.to_numpy()
    )
    unnamed = kz.CompositeKernelRegression(KERNELS(X.to_numpy()), np.arange(N) / N)
    new = KERNELS(X_NEW.to_numpy(), X.to_numpy())
    for given in (new, new.values):
        without = kz.predict(unnamed, result, given, keep_draws=True)
        assert kz.scores.held_out(without, truth) == kz.scores.held_out(predicted, truth)
    with pytest.raises(ValueError, match=r"'labels_new' .* Got the unknown 'q9'; none for 'q3'"):
        kz.scores.held_out(predicted, truth.rename({"q3": "q9"}))
    with pytest.raises(ValueError, match="without masked"):
        kz.scores.held_out(predicted, np.ma.masked_array(truth, truth > 3))


REFUSED_TRUTH = {
    "unknown": (TRUTH.rename({"q1": "r1"}), "Got the unknown 'r1'; none for 'q1'"),
    "missing": (TRUTH.iloc[1:], "Got none for 'q3'"),
    "more": (pd.concat([TRUTH, pd.Series(["a"], ["r"])]), r"Got the unknown 'r'\."),
    "repeated": (TRUTH.rename({"q1": "q0"}), "Got 'q0' more than once"),
    "another split": (TRUTH.set_axis([5, 3, 8, 1]), "unknown 5, 3, 8, 1; none for 'q3', 'q1'"),
    "masked": (np.ma.masked_array(["a", "b", "c", "a"], [0, 1, 0, 0]), "without masked"),
}


@pytest.mark.parametrize("case", REFUSED_TRUTH)
@pytest.mark.parametrize("read", [kz.scores.held_out, kz.plots.plot_reliability])
def test_truth_is_refused_by_name(case, read, predictions):
    truth, message = REFUSED_TRUTH[case]
    with pytest.raises(ValueError, match=rf"'labels(?:_new)?' argument of \w+ must .*{message}"):
        read(predictions, truth)


def test_truth_of_two_classes_goes_by_position_where_predictions_have_no_ids():
    two = LABELS.replace("c", "b")
    model = kz.CompositeKernelClassification(KERNELS(X.to_numpy()), two)
    result = drawn(model, alpha=(N + 1,), beta=(2,))
    predicted = kz.predict(model, result, KERNELS(X_NEW.to_numpy(), X.to_numpy()), keep_draws=True)
    truth = TRUTH.replace("c", "b")
    assert kz.scores.held_out(predicted, truth) == kz.scores.held_out(predicted, truth.to_numpy())


def test_masked_predictions_are_refused():
    p = np.ma.masked_array([[0.5, 0.5], [0.2, 0.8]], [[True, False], [False, False]])
    dataset = xr.Dataset({"probability": (("obs", "class"), p)}, {"class": ["a", "b"]})
    with pytest.raises(ValueError, match="'predictions' argument of held_out must be finite"):
        kz.scores.held_out(dataset, ["a", "b"])


def test_classifiers_are_combined_by_the_ids_of_objects(predictions):
    turned = predictions.isel(obs=[2, 0, 3, 1])
    expected = kz.combine_classifiers([predictions, predictions])
    xr.testing.assert_allclose(kz.combine_classifiers([predictions, turned]), expected)
    other = predictions.assign_coords(obs=["q3", "q1", "q0", "r"])
    with pytest.raises(
        ValueError, match=r"same objects and classes. Got the unknown 'r'; none for"
    ):
        kz.combine_classifiers([predictions, other])


# --- completion models -----------------------------------------------------------------------

THETA = pd.DataFrame(np.exp(-((X.to_numpy()[:, None] - X.to_numpy()) ** 2).sum(-1)), IDS, IDS)
TRAIN = ["p4", "p1", "p2", "p0", "p5", "p6"]
K11 = THETA.loc[TRAIN, TRAIN] + 0.1 * np.eye(6)


@pytest.fixture(scope="module")
def completed():
    model = kz.WishartCompletion(THETA, K11)
    K21 = np.asarray(THETA.loc[[one for one in IDS if one not in TRAIN], TRAIN])
    moments = xr.Dataset({"K21_mean": (("test", "train"), K21)})
    return model, DataTree.from_dict({"moments": moments})


def test_labels_of_training_objects_go_by_their_ids(completed):
    expected = kz.predict(*completed, labels=LABELS[TRAIN].to_numpy())
    for labels in (LABELS[TRAIN], LABELS[sorted(TRAIN)], LABELS[TRAIN].reset_index(drop=True)):
        xr.testing.assert_identical(kz.predict(*completed, labels=labels), expected)
    truth = LABELS[["p8", "p3", "p7"]]
    assert kz.scores.held_out(expected, truth) == kz.scores.held_out(
        expected, truth[["p3", "p7", "p8"]].to_numpy()
    )
    with pytest.raises(ValueError, match=r"'labels' .* Got the unknown 'p3', 'p7', 'p8'\."):
        kz.predict(*completed, labels=LABELS)


def test_test_objects_of_unlabelled_kernels_are_numbers():
    model = kz.WishartCompletion(THETA.to_numpy(), K11.to_numpy())
    moments = xr.Dataset({"K21_mean": (("test", "train"), np.ones((3, 6)))})
    result = DataTree.from_dict({"moments": moments})
    predicted = kz.predict(model, result, labels=LABELS[TRAIN])
    assert kz.scores.held_out(predicted, LABELS[["p8", "p3", "p7"]])


def test_weights_are_learned_from_labels_by_id():
    theta = {"near": THETA, "far": THETA**0.2}
    arguments = (theta, K11, "leave-one-out log score")
    labels = LABELS.replace("c", "b")[TRAIN]
    expected = kz.completion.learn_weights(*arguments, labels=labels.to_numpy())
    turned = kz.completion.learn_weights(*arguments, labels=labels.sort_index())
    xr.testing.assert_identical(turned, expected)
    with pytest.raises(ValueError, match=r"'labels' argument of learn_weights .* none for 'p4'"):
        kz.completion.learn_weights(*arguments, labels=labels.iloc[1:])


# --- classifiers on kernels ------------------------------------------------------------------


def test_kernel_classifiers_go_by_ids():
    cross = THETA.iloc[:3]
    expected = (
        KernelNearestMean().fit(THETA.to_numpy(), LABELS.to_numpy()).predict(cross.to_numpy())
    )
    fitted = KernelNearestMean().fit(THETA.iloc[:, SHUFFLED], LABELS[::-1])
    np.testing.assert_array_equal(fitted.predict(cross.iloc[:, SHUFFLED]), expected)
    np.testing.assert_array_equal(fitted.predict(cross.to_numpy()), expected)
    with pytest.raises(ValueError, match=r"'K21' .* Got the unknown 'r'; none for 'p0'"):
        fitted.predict(cross.rename(columns={"p0": "r"}))
    with pytest.raises(
        ValueError, match=r"'labels' argument of KernelNearestMean .* none for 'p0'"
    ):
        KernelNearestMean().fit(THETA, LABELS.iloc[1:])
    masked = np.ma.masked_array(THETA, THETA < 0.1)
    with pytest.raises(ValueError, match=r"'K11' .* without masked"):
        KernelNearestMean().fit(masked, LABELS)
    with pytest.raises(ValueError, match=r"'K21' .* without masked"):
        fitted.predict(masked[:2])


def test_alignment_of_frames_goes_by_labels():
    other = THETA**2
    turned = other.iloc[SHUFFLED, SHUFFLED]
    assert kernel_alignment(THETA, turned) == pytest.approx(kernel_alignment(THETA, other))
    with pytest.raises(ValueError, match=r"'L' .* labelled as K is. Got the unknown 'r'"):
        kernel_alignment(THETA, other.rename(index={"p0": "r"}))
    with pytest.raises(ValueError, match=r"'L' .* without masked"):
        kernel_alignment(THETA, np.ma.masked_array(other, other < 0.1))


# --- pictures --------------------------------------------------------------------------------


def test_truth_of_completed_kernels_has_distinct_ids():
    twice = THETA.rename(index={"p1": "p0"}, columns={"p1": "p0"})
    completed = kz.kernels.as_stack(THETA)
    with pytest.raises(ValueError, match=r"'truth' .* Got .*'p0'"):
        kz.scores.correlation_distance(completed, twice)


def test_pictures_order_objects_by_labels_of_their_ids():
    expected, given = (
        [axes.images[0].get_array() for axes in kz.plots.plot_kernels(KERNELS(X), labels)]
        for labels in (LABELS, LABELS.iloc[SHUFFLED])
    )
    np.testing.assert_array_equal(given, expected)
    with pytest.raises(ValueError, match=r"'labels' argument of plot_kernels .* none for 'p0'"):
        kz.plots.plot_kernels(KERNELS(X), LABELS.iloc[1:])


def test_regions_show_objects_in_the_colours_of_their_ids(probit):
    model, result = probit
    expected = kz.plots.plot_decision_regions(model, result, KERNELS, X, resolution=3)
    given = kz.plots.plot_decision_regions(model, result, KERNELS, X[::-1], resolution=3)
    for label in "abc":
        one, other = (
            next(each for each in axes.collections if each.get_label() == label)
            for axes in (expected, given)
        )
        np.testing.assert_array_equal(one.get_offsets(), other.get_offsets()[::-1])
    with pytest.raises(ValueError, match=r"'X_train' .* without masked"):
        kz.plots.plot_decision_regions(model, result, KERNELS, np.ma.masked_array(X, X > 1))
